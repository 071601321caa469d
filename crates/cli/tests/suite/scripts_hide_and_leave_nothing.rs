//! Scripts set machines up, measure and test. One that is interrupted may leave its mark on a machine, and one that
//! hides a failure prints figures of nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Writes a program for the shell, which a [`script`] finds before any other of its name.
fn program(folder: &Path, name: &str, body: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The search path of a script that finds the programs of this folder first.
fn search_path(folder: &Path) -> String {
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// A script of the repository, with its temporary files in `folder/tmp`.
fn script(folder: &Path, name: &str) -> Command {
    fs::create_dir_all(folder.join("tmp")).unwrap();
    let mut command = Command::new(Path::new(REPOSITORY).join(name));
    command.current_dir(REPOSITORY).env("PATH", search_path(folder)).env("TMPDIR", folder.join("tmp"));
    command
}

/// The files and folders that scripts have left in a folder.
fn left_in(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

fn run(folder: &Path, name: &str, arguments: &[&str]) -> Output {
    script(folder, name).args(arguments).output().unwrap()
}

/// Debian's shell runs no trap of EXIT when a signal ends it. The policy by which no service starts stayed on the
/// machine for good when somebody interrupted `scripts/setup`.
#[test]
fn an_interrupted_script_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "cargo", "kill -TERM $PPID");
    let output = run(folder.path(), "scripts/check-crate", &["name", "1.0.0", "hash"]);
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(left_in(&folder.path().join("tmp")), 0);

    let scripts = fs::read_dir(Path::new(REPOSITORY).join("scripts")).unwrap();
    let scripts = scripts.map(|entry| entry.unwrap().path());
    for path in scripts.chain([Path::new(REPOSITORY).join("tests/vm/run")]) {
        let text = fs::read_to_string(&path).unwrap();
        let traps = || text.lines().map(str::trim).filter(|line| line.starts_with("trap "));
        let cleans_up = text.starts_with("#!/bin/sh\n") && traps().any(|line| line.ends_with(" EXIT"));
        let is_told = traps().any(|line| line == "trap 'exit 130' INT TERM HUP");
        assert!(is_told || !cleans_up, "{}", path.display());
    }
}

/// On a fresh machine two targets failed for want of the test runner, and two waited for ever for redis-cli.
#[test]
fn targets_set_up_their_tools() {
    for (target, tool) in [
        ("shuttle", "cargo-nextest"),
        ("test-mbwu", "cargo-nextest"),
        ("soak", "redis-cli:redis-tools redis-benchmark:redis-tools"),
        ("all-places", "redis-cli:redis-tools"),
    ] {
        let mut make = Command::new("make");
        make.args(["--dry-run", target]).current_dir(REPOSITORY).env_remove("MAKEFLAGS");
        let commands = String::from_utf8(make.output().unwrap().stdout).unwrap();
        assert!(commands.contains(tool), "{target}: {commands}");
    }
}

/// The script waited for ever for a server that could not start.
#[test]
fn a_soak_ends_with_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let [ziptier, far] = ["ziptier", "far"].map(|name| folder.path().join(name).display().to_string());
    program(folder.path(), "ziptier", "echo $$ >\"$0.pid\"");
    // A script that asks for ever is ended by a signal. Questions count once the server has ended.
    let asked = format!(
        "[ -s '{ziptier}.pid' ] && ! kill -0 \"$(cat '{ziptier}.pid')\" 2>/dev/null || exit 1\n\
         echo >>\"$0.asked\"\n[ \"$(wc -l <\"$0.asked\")\" -lt 50 ] || kill -TERM $PPID\nexit 1"
    );
    program(folder.path(), "redis-cli", &asked);
    let output = run(folder.path(), "scripts/soak-server", &[ziptier.as_str(), "10", "1", far.as_str()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// A run that failed left an empty row, and the script printed medians of the other rows as if nothing had failed.
#[test]
fn a_benchmark_of_logs_fails_with_its_first_run() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().to_str().unwrap();
    program(folder.path(), "g++", "");
    program(
        folder.path(),
        "durable_puts",
        "echo >>\"$0.runs\"\n[ \"$(wc -l <\"$0.runs\")\" -gt 1 ] || exit 1\necho 1 2",
    );
    let output = run(folder.path(), "scripts/bench-rocksdb-wal", &[name, name, name]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let output = run(folder.path(), "scripts/bench-rocksdb-wal", &[name, name, name]);
    assert!(output.status.success(), "{output:?}");
}

/// The next call took packages for whole that npm had begun to unpack.
#[test]
fn packages_that_npm_did_not_finish_are_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let packages = folder.path().join("packages");
    program(folder.path(), "npm", "mkdir -p \"$3/node_modules/redis\"\nexit 1");
    for _ in 0..2 {
        let output = run(folder.path(), "scripts/setup-node", &[packages.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
    }
    program(folder.path(), "npm", "touch \"$3/node_modules/.package-lock.json\"");
    assert!(run(folder.path(), "scripts/setup-node", &[packages.to_str().unwrap()]).status.success());
    program(folder.path(), "npm", "exit 1");
    assert!(run(folder.path(), "scripts/setup-node", &[packages.to_str().unwrap()]).status.success());
}

/// An upgrade repeats lines of the page for operators. One of them replaced the options of the service, such as the
/// address and the file of the password, by the commented ones of the package.
#[test]
fn an_upgrade_from_source_keeps_the_options() {
    let folder = tempfile::tempdir().unwrap();
    let options = folder.path().join("options");
    let page = fs::read_to_string(Path::new(REPOSITORY).join("docs/install.md")).unwrap();
    let line = page.lines().find(|line| line.contains("packaging/ziptier.default")).unwrap();
    let line = line.replace("/etc/default/ziptier", options.to_str().unwrap());
    let install = || Command::new("sh").args(["-c", &line]).current_dir(REPOSITORY).status().unwrap();
    assert!(install().success());
    assert!(fs::read_to_string(&options).unwrap().contains("#ZIPTIER_MEMORY="));
    fs::write(&options, "ZIPTIER_BIND=0.0.0.0\n").unwrap();
    assert!(install().success());
    assert_eq!(fs::read_to_string(&options).unwrap(), "ZIPTIER_BIND=0.0.0.0\n");
}

/// The table of an evaluation had rows of every earlier one with the same folder, and nothing told them apart.
#[test]
fn an_evaluation_has_its_own_rows_alone() {
    const BENCH: &str = "[ ! -e \"$0.fails\" ] || exit 1
while [ \"$1\" != --out ]; do shift; done
echo >>\"$0.runs\"
run=$(wc -l <\"$0.runs\")
mkdir -p \"$2/$run\"
printf 'run\\n%s\\n' \"$run\" >\"$2/$run/summary.tsv\"";
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "ziptier", BENCH);
    let evaluate = || {
        let mut evaluation = script(folder.path(), "scripts/run_iaa_eval.sh");
        evaluation.env("RESULTS_DIR", folder.path().join("results")).env("BTREE_USE_SILESIA", "0");
        evaluation.env("ZIPTIER", "ziptier").env("SOFTWARE_CODECS", "lz4 qpl").output().unwrap()
    };
    for rows in ["run\n1\n2\n", "run\n3\n4\n"] {
        let output = evaluate();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(folder.path().join("results/summary.tsv")).unwrap(), rows);
    }
    fs::write(folder.path().join("ziptier.fails"), "").unwrap();
    let output = evaluate();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing was measured"), "{output:?}");
}

/// Help left out a target whose name has digits, and listed nothing on a machine without `column`.
#[test]
fn help_lists_each_target() {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "column", "exit 1");
    let mut make = Command::new("make");
    make.arg("help").current_dir(REPOSITORY).env_remove("MAKEFLAGS").env("PATH", search_path(folder.path()));
    let help = String::from_utf8(make.output().unwrap().stdout).unwrap();
    let rules = fs::read_to_string(Path::new(REPOSITORY).join("Makefile")).unwrap();
    let rules = rules.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
    for target in
        rules.filter_map(|line| line.split_once("##")).filter_map(|(rule, _)| rule.split(':').next())
    {
        assert!(help.contains(&format!("  make {target} ")), "{target}: {help}");
    }
}

/// A subshell named the folder of the database, so the trap of the script knew no name.
#[test]
fn an_interrupted_benchmark_of_logs_removes_its_database() {
    let folder = tempfile::tempdir().unwrap();
    let (name, disk) = (folder.path().to_str().unwrap(), folder.path().join("disk"));
    fs::create_dir(&disk).unwrap();
    program(folder.path(), "g++", "");
    program(folder.path(), "durable_puts", "mkdir \"$1\"\nkill -TERM 0");
    let mut benchmark = script(folder.path(), "scripts/bench-rocksdb-wal");
    // As from a terminal, a signal goes to the whole group.
    let output = benchmark.args([name, name]).arg(&disk).process_group(0).output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(left_in(&disk) + left_in(&folder.path().join("tmp")), 0);
}

/// The script removes folders below the one that it is given: of `/` that would be the home of root.
#[test]
fn a_release_is_checked_in_a_folder_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    // No check comes to removing or building anything here.
    program(folder.path(), "rm", "echo \"$@\" >>\"$0.asked\"");
    program(folder.path(), "cargo", "exit 1");
    for directory in ["", "/"] {
        let output = run(folder.path(), "scripts/release-check", &[directory]);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    assert!(!folder.path().join("rm.asked").exists());
}

/// Cargo took a relative name for a folder in the copy of the sources, and compiled all dependencies there anew.
#[test]
fn a_fault_is_compiled_in_the_target_folder() {
    let folder = tempfile::tempdir().unwrap();
    let words = "no order of these calls explains the answers";
    program(
        folder.path(),
        "cargo",
        &format!("echo \"$CARGO_TARGET_DIR\" >\"$0.target\"\necho '{words}'\nexit 1"),
    );
    let depth = fs::canonicalize(REPOSITORY).unwrap().components().count() - 1;
    let target = folder.path().join("target");
    let relative = format!("{}{}", "../".repeat(depth), target.strip_prefix("/").unwrap().display());
    let mut check = script(folder.path(), "scripts/refuse-fault");
    let output = check.env("CARGO_TARGET_DIR", relative).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let compiled_in = fs::read_to_string(folder.path().join("cargo.target")).unwrap();
    let fault = target.join("fault");
    assert_eq!(fs::canonicalize(compiled_in.trim()).unwrap(), fs::canonicalize(&fault).unwrap());
    assert_eq!(left_in(&fault), 0);
}

/// A server went on after the script had failed.
#[test]
fn a_soak_of_caches_that_fails_stops_its_server() {
    const SERVER: &str = "echo $$ >\"$0.pid\"
exec python3 -c '
import socket, sys, time
port = int(sys.argv[sys.argv.index(\"--port\") + 1])
server = socket.create_server((\"127.0.0.1\", port))
print(\"listens on 127.0.0.1:%d with\" % server.getsockname()[1], flush=True)
client, _ = server.accept()
client.sendall(b\"no length\\r\\n\")
# A server that is left behind ends some time.
time.sleep(60)' \"$@\"";
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "ziptier", SERVER);
    let ziptier = folder.path().join("ziptier");
    let output = run(folder.path(), "scripts/soak-cache", &[ziptier.to_str().unwrap(), "Cargo.toml"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let pid = fs::read_to_string(folder.path().join("ziptier.pid")).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "{output:?}");
}

/// Servers that had ended could not be killed, and that ended the trap before it removed their folders.
#[test]
fn servers_that_have_ended_leave_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    for server in ["redis-server", "ziptier"] {
        program(folder.path(), server, "echo $$ >>\"${0%/*}/pids\"");
    }
    // The script sleeps while its servers start. It fails once it has seen all four of them end.
    let wait = "pids=${0%/*}/pids
until [ \"$(wc -l <\"$pids\")\" = 4 ]; do :; done
for pid in $(cat \"$pids\"); do while [ -e /proc/$pid ]; do :; done; done
exit 7";
    program(folder.path(), "sleep", wait);
    let ziptier = folder.path().join("ziptier");
    let output = run(folder.path(), "scripts/durable-cpu", &[ziptier.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(left_in(&folder.path().join("tmp")), 0, "{output:?}");
    fs::remove_file(folder.path().join("pids")).unwrap();
    let ziptier = ziptier.to_str().unwrap();
    let output = run(folder.path(), "scripts/mget-cpu", &["Cargo.toml", ziptier, ziptier, ziptier, ziptier]);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

/// Scripts went on to Cargo without a compiler for aarch64 on a machine that has the headers.
#[test]
fn nothing_is_compiled_for_aarch64_without_a_compiler() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("library")).unwrap();
    program(folder.path(), "rustc", "echo \"${0%/*}/library\"");
    program(folder.path(), "uname", "echo x86_64");
    // Not root, so nothing is installed.
    program(folder.path(), "id", "echo 1000");
    program(folder.path(), "cargo", "echo >\"$0.asked\"");
    for tool in ["ls", "sort", "tee", "tr", "xargs"] {
        let path = std::env::var_os("PATH").unwrap();
        let found = std::env::split_paths(&path).map(|place| place.join(tool)).find(|path| path.exists());
        symlink(found.unwrap(), folder.path().join(tool)).unwrap();
    }
    for name in ["scripts/check-aarch64", "scripts/build-jni-aarch64", "scripts/test-aarch64"] {
        let mut compile = script(folder.path(), name);
        compile.env("PATH", folder.path()).env_remove("ZIPTIER_REQUIRED").env_remove("ZIPTIER_NOT_RUN");
        let output = compile.output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("NOT RUN: aarch64"), "{name}: {output:?}");
        assert!(!folder.path().join("cargo.asked").exists(), "{name}");
    }
}

/// A round that failed printed nothing, and the script went on to the next one.
#[test]
fn a_benchmark_of_the_cache_fails_with_its_first_round() {
    const CACHED: &str = "[ \"$1\" = read ] || exit 0
case \" $* \" in *' end=kill '*) echo 'pass 1 operations_per_second 1'; kill -KILL $$ ;; esac
echo no room >&2
exit 1";
    let folder = tempfile::tempdir().unwrap();
    let [corpus, work] = ["corpus", "work"].map(|name| folder.path().join(name));
    fs::create_dir(&corpus).unwrap();
    fs::write(corpus.join("text"), "text").unwrap();
    program(folder.path(), "prepared", CACHED);
    // A compiler that copies the program into the place after `-o`.
    program(folder.path(), "g++", "while [ \"$1\" != -o ]; do shift; done\ncp \"${0%/*}/prepared\" \"$2\"");
    program(folder.path(), "du", "echo 0");
    let arguments = ["plugin", "rocksdb", corpus.to_str().unwrap(), work.to_str().unwrap()];
    let output = run(folder.path(), "scripts/bench-rocksdb-cache", &arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no room") && said.contains("round 1: ended with status 1"), "{output:?}");
    assert_eq!(left_in(&work), 0);
}

/// A namespace that could not be deleted ended the trap before it removed the files of ports.
#[test]
fn a_namespace_that_stays_keeps_no_file_of_ports() {
    let folder = tempfile::tempdir().unwrap();
    let java = folder.path().join("built");
    fs::create_dir(&java).unwrap();
    fs::write(java.join("bench-node.classpath"), "").unwrap();
    program(folder.path(), "ip", "case $2 in\ndelete) exit 1 ;;\nexec) shift 3; exec \"$@\" ;;\nesac");
    program(folder.path(), "java", "echo 9042\nexec cat");
    let mut beside = script(folder.path(), "scripts/with-cassandra");
    for setting in ["CASSANDRA", "NODES", "NODE_CPUS", "MODEL", "CLIENT_CPUS", "PERF_DATA"] {
        beside.env_remove(setting);
    }
    let output = beside.env("NETNS", "1").arg(&java).args(["20", "true"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(left_in(&folder.path().join("tmp")), 0, "{output:?}");
}

/// Rounds with another bound on a test, or with a test left out, counted as rounds of the same state.
#[test]
fn the_profile_of_the_tests_is_a_part_of_their_state() {
    let folder = tempfile::tempdir().unwrap();
    let [sources, target] = ["sources", "target"].map(|name| folder.path().join(name));
    fs::create_dir_all(sources.join(".config")).unwrap();
    let profile = sources.join(".config/nextest.toml");
    fs::write(&profile, "retries = 0").unwrap();
    let commit =
        "git init --quiet && git add . && git -c user.name=a -c user.email=a@b commit --quiet --message a";
    assert!(Command::new("sh").args(["-c", commit]).current_dir(&sources).status().unwrap().success());
    program(folder.path(), "cargo", "exit 1");
    let states = || {
        let mut steady = script(folder.path(), "scripts/steady");
        let output = steady.arg("1").current_dir(&sources).env("CARGO_TARGET_DIR", &target).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        left_in(&target.join("steady"))
    };
    assert_eq!(states(), 1);
    fs::write(&profile, "retries = 1").unwrap();
    assert_eq!(states(), 2);
}

/// The comparisons of the allocator waited for a server that had ended, and told no reason.
#[test]
fn a_comparison_of_allocators_tells_how_a_server_ended() {
    let folder = tempfile::tempdir().unwrap();
    let [library, table] = ["library", "table"].map(|name| folder.path().join(name).display().to_string());
    fs::write(&library, "").unwrap();
    program(folder.path(), "redis-server", "[ \"$1\" = --version ] || exit 3");
    program(folder.path(), "redis-benchmark", "exit 1");
    let output = run(folder.path(), "scripts/bench-alloc", &[library.as_str(), "1", "10", "32"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("bench-alloc: redis-server (own) has ended with status 3"), "{said}");
    assert!(!output.status.success(), "{output:?}");
    let mut comparison = script(folder.path(), "scripts/compare-memory");
    comparison.env("GET_MISSES", "1").env("SET_MISSES", "1");
    let output = comparison.args([&library, &library, &library, &table]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("compare-memory: the server redis-server has ended with status 3"), "{said}");
    assert!(!output.status.success(), "{output:?}");
}

/// A server that works for 20 ms of CPU time in another thread than its first, for each client. One with options of the
/// library has a mapping as the library makes it.
const WORKING_SERVER: &str = r#"[ "$1" = --version ] && exit
exec python3 - "$@" <<'END'
import mmap, os, socket, sys, threading, time
page = os.memfd_create("ziptier-alloc" if "ZIPTIER_ALLOC" in os.environ else "other")
os.ftruncate(page, mmap.PAGESIZE)
mapped = mmap.mmap(page, mmap.PAGESIZE)
server = socket.create_server(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])))
def work():
    while time.thread_time() < 0.02:
        pass
while True:
    client, _ = server.accept()
    with client:
        if client.recv(1):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            client.sendall(b"x")
END"#;

/// One client, whatever the arguments.
const CLIENT: &str = r#"exec python3 - "$@" <<'END'
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[sys.argv.index("-p") + 1]))) as client:
    client.sendall(b"x")
    client.recv(1)
END"#;

/// The CPU time was that of the first thread alone. Servers that ran without the library were compared, too.
#[test]
fn a_comparison_of_allocators_counts_all_threads_of_servers_that_have_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("library").display().to_string();
    fs::write(&library, "").unwrap();
    program(folder.path(), "redis-server", WORKING_SERVER);
    program(folder.path(), "redis-benchmark", CLIENT);
    let compare = || run(folder.path(), "scripts/bench-alloc", &[library.as_str(), "1", "100", "32"]);
    let output = compare();
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(table.lines().count(), 6, "{table}");
    for line in table.lines() {
        let (before, _) = line.split_once(" us least").unwrap();
        let microseconds: f64 = before.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(microseconds >= 200.0, "20 ms are 200 us for each of 100 requests: {line}");
    }
    program(folder.path(), "redis-server", &WORKING_SERVER.replace("ziptier-alloc", "other"));
    let output = compare();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("bench-alloc: redis-server (only-dram) runs without the library"), "{said}");
}
