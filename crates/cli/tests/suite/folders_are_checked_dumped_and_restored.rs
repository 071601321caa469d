//! A backup is taken of a server that goes on serving, and is worth nothing if it cannot be checked and served itself.

use std::fs;
use std::path::Path;
use std::process::Output;

use crate::support;
use crate::support::{Server, serve};

fn ziptier(arguments: &[&str]) -> Output {
    support::ziptier().args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn start(dir: &Path) -> Server {
    Server::start(serve().args(["--memory", "64MiB", "--dir"]).arg(dir))
}

fn set(server: &Server, from: u32, to: u32) {
    let requests: String = (from..to).map(|n| format!("SET key:{n} value-of-{n}\r\n")).collect();
    assert_eq!(server.ask(requests.as_bytes()), "+OK\r\n".repeat((to - from) as usize));
}

#[test]
fn a_running_server_is_dumped_and_its_dump_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, copy, file) =
        (folder.path().join("store"), folder.path().join("copy"), folder.path().join("dump"));
    let [dir_name, copy_name, file_name] = [&dir, &copy, &file].map(|path| path.to_str().unwrap());
    let server = start(&dir);
    set(&server, 0, 5000);

    let refused = ziptier(&["check", dir_name]);
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("is open already"),
        "{}",
        text(&refused.stderr)
    );
    let dumped = ziptier(&["dump", dir_name, file_name]);
    assert!(dumped.status.success(), "{}", text(&dumped.stderr));
    set(&server, 5000, 6000);
    assert!(!ziptier(&["dump", dir_name, file_name]).status.success(), "a file is never overwritten");

    let restored = ziptier(&["restore", file_name, copy_name]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    assert!(!ziptier(&["restore", file_name, copy_name]).status.success(), "a folder is never overwritten");
    let checked = ziptier(&["check", copy_name]);
    assert!(
        checked.status.success() && text(&checked.stdout).ends_with("; 0 damages\n"),
        "{}",
        text(&checked.stdout)
    );
    let copied = start(&copy);
    assert_eq!(copied.ask(b"DBSIZE\r\nSTRLEN key:4999\r\n"), ":5000\r\n:13\r\n");
    copied.stop();
    server.stop();
    assert!(ziptier(&["check", dir_name]).status.success());

    // Damage is named by file and offset.
    let log = fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let log = log.filter(|path| path.to_string_lossy().contains("/log-")).max().unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&log, bytes).unwrap();
    let checked = ziptier(&["check", dir_name]);
    let found = text(&checked.stdout);
    assert!(
        !checked.status.success() && found.contains(log.to_str().unwrap()) && found.contains("at byte"),
        "{found}"
    );
    let refused = ziptier(&["check", folder.path().to_str().unwrap()]);
    assert!(text(&refused.stderr).contains("holds no store"), "{}", text(&refused.stderr));
}

/// A dump that fails leaves nothing, and nothing that looks like one.
#[test]
fn a_failed_dump_leaves_nothing_and_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, file) = (folder.path().join("store"), folder.path().join("dump"));
    let [dir_name, file_name] = [&dir, &file].map(|path| path.to_str().unwrap());
    let server = start(&dir);
    set(&server, 0, 3000);
    assert_eq!(server.ask(b"SAVE\r\n"), "+OK\r\n");
    server.stop();
    // The first image is written to the stream before the damage behind it is met.
    let segments = fs::read_dir(dir.join("segments")).unwrap().map(|entry| entry.unwrap().path());
    let segment = segments.filter(|path| path.to_string_lossy().contains("/segment-")).max().unwrap();
    let whole = fs::read(&segment).unwrap();
    let mut damaged = whole.clone();
    (4200..damaged.len()).step_by(500).for_each(|at| damaged[at] ^= 1);
    fs::write(&segment, damaged).unwrap();
    // A dump that was killed has left this.
    fs::write(folder.path().join("dump.partial"), b"half").unwrap();
    let failed = ziptier(&["dump", dir_name, file_name]);
    assert!(!failed.status.success());
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["store"], "{}", text(&failed.stderr));
    fs::write(&segment, whole).unwrap();
    let dumped = ziptier(&["dump", dir_name, file_name]);
    assert!(dumped.status.success(), "{}", text(&dumped.stderr));
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(ziptier(&["restore", file_name, folder.path().join("copy").to_str().unwrap()]).status.success());
}

/// The only folder that the user of the service may write to.
#[test]
fn a_dump_into_the_folder_of_its_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    start(&dir).stop();
    for file in [dir.join("dump"), folder.path().join("store/../store/dump")] {
        let refused = ziptier(&["dump", dir.to_str().unwrap(), file.to_str().unwrap()]);
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains("name a file elsewhere"), "{said}");
    }
    // A server takes no file that is not its own.
    start(&dir).stop();
}

/// A terminal takes some of its bytes for orders.
#[test]
fn a_dump_is_not_written_to_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    start(&dir).stop();
    let terminal = fs::OpenOptions::new().read(true).write(true).open("/dev/ptmx").unwrap();
    let refused = support::ziptier().arg("dump").arg(&dir).stdout(terminal).output().unwrap();
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("no text for a terminal; name a file"), "{said}");
}

#[test]
fn a_stream_that_fails_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, copy) = (folder.path().join("store"), folder.path().join("copy"));
    start(&dir).stop();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let dumped = support::ziptier().arg("dump").arg(&dir).stdout(full).output().unwrap();
    let said = text(&dumped.stderr);
    assert!(said.starts_with("ziptier dump: cannot write the dump to standard output: No space"), "{said}");
    let half = folder.path().join("half");
    fs::write(&half, b"ziptrdmp").unwrap();
    let restored = support::ziptier().arg("restore").args([&half, &copy]).output().unwrap();
    let said = text(&restored.stderr);
    let expected = format!("ziptier restore: cannot restore from {}: ", half.display());
    assert!(said.starts_with(&expected) && said.contains("ends too early"), "{said}");
    assert!(!dumped.status.success() && !restored.status.success() && !copy.exists());
}

/// A timer that begins a dump before the last one has ended must not cost the last one.
#[test]
fn a_dump_leaves_the_file_of_another_one_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    start(&dir).stop();
    let dump = || ziptier(&["dump", dir.to_str().unwrap(), folder.path().join("dump").to_str().unwrap()]);
    let partial = folder.path().join("dump.partial");
    fs::write(&partial, b"half").unwrap();
    let running = fs::File::open(&partial).unwrap();
    running.lock().unwrap();
    let refused = dump();
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("another dump writes it"), "{said}");
    assert_eq!(fs::read(&partial).unwrap(), b"half");
    drop(running);
    assert!(dump().status.success());
    assert!(!partial.exists());
}

#[test]
fn much_damage_is_counted_not_listed() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("store");
    let server = start(&dir);
    set(&server, 0, 20_000);
    assert_eq!(server.ask(b"SAVE\r\n"), "+OK\r\n");
    server.stop();
    for entry in fs::read_dir(dir.join("segments")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("/segment-") {
            let mut bytes = fs::read(&path).unwrap();
            (4200..bytes.len()).step_by(400).for_each(|at| bytes[at] ^= 1);
            fs::write(&path, bytes).unwrap();
        }
    }
    let checked = ziptier(&["check", dir.to_str().unwrap()]);
    let said = text(&checked.stdout);
    assert!(!checked.status.success());
    assert!(
        said.lines().count() <= 22 && said.contains("damaged: ") && said.contains(" more places, "),
        "{said}"
    );
}
