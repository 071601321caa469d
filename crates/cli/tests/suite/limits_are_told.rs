//! What `ziptier mbwu` says of platforms whose limit is known, because it was made: processors, a disk by a control
//! group, two disks, one lock, and a link by a filter of the kernel. `make test-mbwu` runs these; they need root and
//! some minutes.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::ziptier;

/// Evaluations of each kind.
const TIMES: usize = 5;

const UNIT: &str = r#"
    workload = "reads"
    medium = "none"
    software = "none"
    bench = "--mix read=100 --keys 2000 --value-bytes 4096 --corpus log --warmup 0.2 --warmup-max 0"
    rounds = 1
    rounds_max = 1
    seconds = 5
    threads_max = 16
    work = { bench = "--target btreemap" }
"#;

/// Measures a platform several times anew, and compares what limits it.
fn check(name: &str, platform: &str, expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("unit.toml"), UNIT).unwrap();
    let platform = platform.replace("FOLDER", folder.path().to_str().unwrap());
    let text = format!("name = \"{name}\"\nstage = \"made\"\nprice = 1\n{platform}");
    fs::write(folder.path().join("platform.toml"), text).unwrap();
    for time in 1..=TIMES {
        let results = folder.path().join("results");
        if results.exists() {
            fs::remove_dir_all(&results).unwrap();
        }
        let output = ziptier().args(["mbwu", "measure"]).arg(folder.path()).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        println!("{time} of {TIMES}: {said}{}", String::from_utf8_lossy(&output.stderr));
        let words = said.replace('\n', " ");
        assert!(words.contains(&format!("limited by {expected}")), "{name}, {time}: {said}");
    }
}

#[test]
#[ignore = "make test-mbwu"]
fn processors() {
    let platform = r#"work = { bench = "--target store --codec zstd", folder = "FOLDER" }"#;
    check("a store", platform, "processors");
}

#[test]
#[ignore = "make test-mbwu"]
fn a_disk() {
    let platform = r#"
        [work]
        bench = "--target file:FOLDER/medium"
        folder = "FOLDER"
        disk = { reads_per_second = 400, writes_per_second = 400 }
    "#;
    check("a file", platform, "the medium alone");
}

/// A function that serves one request after the other and takes two milliseconds for each, in which it waits.
const WAITS: &str = r#"
import sys, time
reader, writer, records = sys.stdin.buffer, sys.stdout.buffer, {}
writer.write(b"ziptier 1 GET PUT\n")
writer.flush()
for line in reader:
    word, *lengths = line.split()
    key, *value = [reader.read(int(length)) for length in lengths]
    if word == b"PUT":
        records[key] = value[0]
        writer.write(b"OK\n")
    else:
        time.sleep(0.002)
        found = records.get(key)
        writer.write(b"NONE\n" if found is None else b"VALUE %d\n%b" % (len(found), found))
    writer.flush()
"#;

#[test]
#[ignore = "make test-mbwu"]
fn one_lock() {
    let function = tempfile::NamedTempFile::new().unwrap();
    fs::write(function.path(), WAITS).unwrap();
    let bench = format!("\"--target\", \"exec:python3 {}\"", function.path().display());
    check("a lock", &format!("work = {{ bench = [{bench}], folder = 'FOLDER' }}"), "waiting");
}

/// A network namespace with one link to this one, which carries 2 MB per second.
struct Namespace;

const NAMESPACE: &str = "ziptier-limits";
const LINK: &str = "ziptier-l0";

fn ip(command: &str) -> bool {
    Command::new("ip").args(command.split_whitespace()).output().is_ok_and(|done| done.status.success())
}

impl Namespace {
    fn make() -> Self {
        let made = Namespace;
        for command in [
            format!("netns add {NAMESPACE}"),
            format!("link add {LINK} type veth peer name inner netns {NAMESPACE}"),
            format!("addr add 10.231.7.1/24 dev {LINK}"),
            format!("link set {LINK} up"),
            format!("-n {NAMESPACE} addr add 10.231.7.2/24 dev inner"),
            format!("-n {NAMESPACE} link set inner up"),
            format!(
                "netns exec {NAMESPACE} tc qdisc add dev inner root tbf rate 16mbit burst 32kbit latency 400ms"
            ),
        ] {
            assert!(ip(&command), "ip {command}");
        }
        made
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        ip(&format!("link del {LINK}"));
        ip(&format!("netns del {NAMESPACE}"));
    }
}

#[test]
#[ignore = "make test-mbwu"]
fn a_link() {
    let _namespace = Namespace::make();
    assert!(Path::new("/usr/bin/redis-server").exists(), "make setup-test installs it");
    let platform = format!(
        r#"
        network_bytes_per_second = 2_000_000
        [work]
        bench = "--target redis://10.231.7.2:6399"
        server = ["ip", "netns", "exec", "{NAMESPACE}", "redis-server", "--port", "6399", "--bind", "10.231.7.2",
                  "--protected-mode", "no", "--save", "", "--dir", "{{folder}}"]
        folder = "FOLDER"
    "#
    );
    check("a server behind a link", &platform, "the network");
}

/// A file system in a file, on a loop device of its own.
struct Disk {
    device: String,
    folder: tempfile::TempDir,
}

fn done(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl Disk {
    fn make(place: &Path, name: &str) -> Self {
        let file = place.join(name);
        fs::File::create(&file).and_then(|file| file.set_len(1 << 30)).unwrap();
        let device = done("losetup", &["--find", "--show", "--direct-io=on", file.to_str().unwrap()]);
        let disk = Disk { device, folder: tempfile::tempdir().unwrap() };
        done("mkfs.ext4", &["-q", &disk.device]);
        done("mount", &[&disk.device, disk.folder.path().to_str().unwrap()]);
        disk
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.folder.path()).status();
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

#[test]
#[ignore = "make test-mbwu"]
fn two_disks() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let disks = ["one", "two"].map(|name| Disk::make(folder.path(), name));
    let [one, two] = disks.each_ref().map(|disk| disk.folder.path().display().to_string());
    let unit = format!(
        r#"
        workload = "reads of 4 KiB"
        medium = "400 reads per second"
        software = "RocksDB"
        bench = "--mix read=100 --keys 40000 --value-bytes 4096 --corpus log --warmup 2 --warmup-max 0"
        rounds = 1
        rounds_max = 1
        seconds = 10
        threads_max = 8
        [work]
        bench = "--target rocksdb --codec builtin-none"
        folder = "{one}"
        memory_bytes = 100_663_296
        disk = {{ reads_per_second = 400 }}
    "#
    );
    let platform = format!(
        "name = 'two disks'\nstage = 'made'\nprice = 1\n\
         work = {{ folder = ['{one}', '{two}'], memory_bytes = 201_326_592 }}\n"
    );
    let sheets = folder.path().join("sheets");
    fs::create_dir(&sheets).unwrap();
    fs::write(sheets.join("unit.toml"), unit).unwrap();
    fs::write(sheets.join("platform.toml"), platform).unwrap();
    let output = ziptier().args(["mbwu", "run"]).arg(&sheets).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    let operations = |name: &str| {
        let path = sheets.join(format!("results/{name}/round-1.json"));
        let round: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let figure = |name: &str| round["measurement"][name].as_f64().unwrap();
        figure("operations") / figure("wall_sec")
    };
    let units = operations("platform") / operations("unit");
    assert!((1.7..2.3).contains(&units), "{units} units on two disks");
    assert_eq!(said.replace('\n', " ").matches("limited by the medium alone").count(), 2, "{said}");
}
