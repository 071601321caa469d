//! Scripts set machines up, measure and test. One that is interrupted may leave its mark on a machine, and one that
//! hides a failure prints figures of nothing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Writes a program for the shell, which a [`script`] finds before any other of its name.
fn program(folder: &Path, name: &str, body: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A script of the repository, with its temporary files in `folder/tmp`.
fn script(folder: &Path, name: &str) -> Command {
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    fs::create_dir_all(folder.join("tmp")).unwrap();
    let mut command = Command::new(Path::new(REPOSITORY).join(name));
    command.current_dir(REPOSITORY).env("PATH", path).env("TMPDIR", folder.join("tmp"));
    command
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
    assert_eq!(fs::read_dir(folder.path().join("tmp")).unwrap().count(), 0);

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
    program(folder.path(), "ziptier", "exit 1");
    // A script that asks for ever is ended by a signal.
    let asked = "echo >>\"$0.asked\"\n[ \"$(wc -l <\"$0.asked\")\" -lt 50 ] || kill -TERM $PPID\nexit 1";
    program(folder.path(), "redis-cli", asked);
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
