//! What `ziptier mbwu` says of platforms whose limit is known, because it was made: processors, a disk by a control
//! group, one lock, and a link by a filter of the kernel. `make test-mbwu` runs these; they need root and some minutes.

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
        assert!(said.contains(&format!("limited by {expected}")), "{name}, {time}: {said}");
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
