//! `ziptier bench --target exec:COMMAND` with functions in Python. A function that loses a write must fail the command,
//! or else the fastest function is the one that does nothing.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{comes_true, ziptier};

fn example(name: &str) -> String {
    format!("{}/../eval/examples/functions/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A function that breaks this promise, or none if there is no such promise.
fn liar(lie: &str) -> String {
    format!("exec:python3 {}/tests/suite/functions/liar.py {lie}", env!("CARGO_MANIFEST_DIR"))
}

fn bench(target: &str, arguments: &[&str]) -> Output {
    let mut command = ziptier();
    command.args(["bench", "--target", target, "--keys", "2000", "--warmup", "0", "--threads", "2"]);
    command.args(arguments).output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap().replace('\n', " ")
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

const MIX: [&str; 4] = ["--mix", "read=40,write=40,delete=15,scan=5", "--operations", "4000"];

#[test]
fn an_honest_function_passes_and_its_cpu_time_counts() {
    let output = bench(&liar("nothing"), &[&MIX[..], &["--format", "tsv"]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let [names, row] = text.lines().collect::<Vec<_>>().try_into().unwrap();
    let place = names.split('\t').position(|name| name == "qps_per_cpu_core").unwrap();
    // A server in Python does less per second of its CPU time than a client in Rust.
    let by_cpu: f64 = row.split('\t').nth(place).unwrap().parse().unwrap();
    assert!((10.0..1e6).contains(&by_cpu), "{by_cpu}");
}

/// A function could have its work done by daemons, and seem to cost nothing.
#[test]
fn the_cpu_time_of_a_daemon_counts_for_its_function() {
    // The daemon begins with the load, which is over once both are quiet.
    let output = bench(&liar("daemon"), &[&MIX[..], &["--format", "tsv"]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let [names, row] = text.lines().collect::<Vec<_>>().try_into().unwrap();
    let place = names.split('\t').position(|name| name == "load_cpu_sec").unwrap();
    let load_cpu_sec: f64 = row.split('\t').nth(place).unwrap().parse().unwrap();
    assert!(load_cpu_sec > 1.0, "{load_cpu_sec}");
}

#[test]
fn every_lie_fails_the_command() {
    for (lie, mix, expected) in [
        ("loses", "read=100", "did not find a key that exists"),
        ("thousandth", "read=100", "did not find a key that exists"),
        ("older", "write=100", "answered bytes that were not written"),
        ("another", "read=100", "answered bytes that were not written"),
        ("deletes", "delete=100", "answered bytes that were not written"),
        ("claims", "delete=100", "said true, and the key did not exist"),
        ("skips", "scan=100", "missed key number"),
        ("filter", "scan=100", "which its filter leaves out"),
        ("refuses", "read=100", "failed: it refused GET: no such column"),
    ] {
        let output = bench(&liar(lie), &["--mix", mix, "--operations", "500"]);
        let printed = printed(&output);
        assert_eq!(output.status.code(), Some(1), "{lie}: {printed}{}", said(&output));
        assert!(printed.contains("WRONG ANSWERS: exec:python3"), "{lie}: {printed}");
        assert!(printed.contains(expected), "{lie}: {printed}");
    }
}

/// A window of a day.
#[test]
fn a_function_that_dies_or_babbles_ends_the_benchmark_at_once() {
    for (lie, expected) in [
        ("dies", "has ended: after `GET 16` it ended (exit status: 1); its last words: the disk is on fire"),
        ("babbles", "has ended: after `GET 16` it answered `debug: here`, which is no reply"),
    ] {
        let output = bench(&liar(lie), &["--workload", "read_only", "--seconds", "80000"]);
        let told = said(&output);
        assert_eq!((output.status.code(), told.lines().count()), (Some(1), 1), "{told}");
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn what_a_function_does_not_have_is_refused_before_anything_is_loaded() {
    let filter = format!("exec:python3 {}", example("filter.py"));
    for (target, arguments, expected) in [
        ("exec:", &MIX[..], "it names no command"),
        ("exec:/no/such/function", &MIX[..], "after its start it ended (exit status: 127); its last words: "),
        ("exec:echo Python", &MIX[..], "it greets with `Python`"),
        (&filter, &MIX[..], "it has LOAD GET SCAN STAT and no PUT; leave write out of --mix"),
    ] {
        let output = bench(target, arguments);
        let told = said(&output);
        assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{told}");
        assert!(told.contains(expected), "{told}");
    }
}

/// It heeds no end of its input, and nobody but the interrupted command knows of it.
#[test]
fn a_function_that_hangs_does_not_outlive_an_interrupted_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pid");
    let command = format!("echo ziptier 1 GET PUT; echo $$ > {}; exec sleep 1000000", path.display());
    let mut bench = ziptier();
    bench.args(["bench", "--workload", "read_only", "--keys", "10", "--target", &format!("exec:{command}")]);
    let mut bench = bench.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let written = || std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'));
    let begun = comes_true(|| written().is_some());
    assert!(Command::new("kill").args(["-INT", &bench.id().to_string()]).status().unwrap().success());
    let ended = comes_true(|| bench.try_wait().unwrap().is_some());
    if !ended {
        bench.kill().unwrap();
    }
    let pid = written().unwrap_or_default();
    let is_gone = comes_true(|| Path::new(&format!("/proc/{}/exe", pid.trim())).read_link().is_err());
    if !is_gone {
        Command::new("kill").args(["-KILL", pid.trim()]).status().unwrap();
    }
    assert!(begun && ended && is_gone, "{begun}, {ended}, {is_gone}");
}

#[test]
fn conformance_is_checked_for_users_who_write_functions() {
    let check =
        |arguments: &[&str]| ziptier().arg("bench").arg("--conformance").args(arguments).output().unwrap();
    let sqlite = format!("exec:python3 {}", example("sqlite.py"));
    let filter = format!("exec:python3 {}", example("filter.py"));
    let where_e = format!("{filter} --where quick");
    // The function that the page shows.
    let page = std::fs::read_to_string("../../docs/benchmarks.md").unwrap();
    let shown = page.split_once("```python\n").unwrap().1.split_once("```").unwrap().0;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("function.py");
    std::fs::write(&path, shown).unwrap();
    let shown = format!("exec:python3 {}", path.display());
    let output = check(&["--target", &format!("btreemap,{sqlite},{filter},{where_e},{shown}")]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(printed(&output).matches("answers like its model").count(), 5, "{}", printed(&output));
    let output = check(&["--target", &liar("thousandth")]);
    let told = said(&output);
    assert_eq!((output.status.code(), told.lines().count()), (Some(1), 1), "{told}");
    assert!(told.contains("did not find a key that exists"), "{told}");
    assert!(said(&check(&[])).contains("name the targets to check"));
}

#[test]
fn a_table_of_sqlite_is_measured() {
    let output = bench(&format!("exec:python3 {}", example("sqlite.py")), &MIX);
    assert!(output.status.success(), "{}{}", printed(&output), said(&output));
    assert!(printed(&output).contains("has GET PUT DEL SCAN; since all keys were loaded it sent"));
}

/// The number in front of some words.
fn number_before(text: &str, words: &str) -> f64 {
    let before = &text[..text.find(words).unwrap_or_else(|| panic!("{words}: {text}"))];
    before.rsplit(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("{words}: {text}"))
}

#[test]
fn a_filter_beside_the_data_lowers_what_is_sent_for_each_byte_that_is_read() {
    let filter = format!("exec:python3 {}", example("filter.py"));
    let sent = |target: &str| {
        let scans =
            ["--mix", "scan=100", "--operations", "300", "--corpus", "log", "--value-order", "records"];
        let output = bench(target, &scans);
        let printed = printed(&output);
        assert!(output.status.success(), "{printed}{}", said(&output));
        assert!(number_before(&printed, " bytes from its medium") > 100_000.0);
        number_before(&printed, " bytes for each that it read")
    };
    let (all, filtered) = (sent(&filter), sent(&format!("{filter} --where ERROR")));
    assert!(all > 1.0 && filtered < 0.5 * all, "{all} {filtered}");
}

/// A Python with h5py: the one of `make setup-test`, or the usual one.
fn python_with_h5py() -> Option<String> {
    let named = std::env::var("ZIPTIER_PYTHON").into_iter().chain(["python3".into()]);
    let mut has_h5py = named.filter(|python| {
        Command::new(python).args(["-c", "import h5py"]).output().is_ok_and(|output| output.status.success())
    });
    has_h5py.next()
}

#[test]
fn a_selection_from_a_file_of_hdf5_is_measured() {
    let Some(python) = python_with_h5py() else {
        return ziptier_testing::not_run("h5py", "make setup-test installs it for Python 3.11 and later");
    };
    assert!(Path::new(&example("hdf5.py")).exists());
    let target = format!("exec:{python} {}", example("hdf5.py"));
    let output =
        bench(&target, &["--mix", "read=80,scan=20", "--operations", "2000", "--value-bytes", "0..900"]);
    let printed = printed(&output);
    assert!(output.status.success(), "{printed}{}", said(&output));
    assert!(number_before(&printed, " bytes from its medium") > 100_000.0, "{printed}");
    let output = ziptier().args(["bench", "--conformance", "--target", &target]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}
