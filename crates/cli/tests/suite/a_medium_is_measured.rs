//! `ziptier bench --target file:PATH` on files of its own. A benchmark that wrote over a file in use would lose data of
//! its user.

use std::path::Path;
use std::process::Output;

use crate::support::ziptier;

fn bench(target: &str, arguments: &[&str]) -> Output {
    let mut command = ziptier();
    command.args(["bench", "--target", target, "--keys", "300", "--warmup", "0", "--threads", "3"]);
    command.args(arguments).output().unwrap()
}

fn target(path: &Path, words: &str) -> String {
    format!("file:{}{words}", path.display())
}

#[test]
fn every_answer_of_a_medium_is_checked_and_the_medium_is_described() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("medium");
    let mix =
        ["--mix", "read=50,write=30,delete=10,scan=10", "--operations", "900", "--value-bytes", "0..9000"];
    let output = bench(&target(&path, "+fdatasync"), &mix);
    let (printed, told) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && told.is_empty(), "{printed}{told}");
    let printed = printed.replace('\n', " ");
    for words in ["slots of 12288 bytes", "fdatasync after each write", "bytes read and"] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert!(!path.exists());
}

#[test]
fn a_file_of_somebody_else_is_refused_and_keeps_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("accounts");
    std::fs::write(&path, "a user's").unwrap();
    let refused = |target: &str, arguments: &[&str], words: &str| {
        let output = bench(target, arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{told}");
        assert!(told.contains(words), "{told}");
    };
    refused(&target(&path, ""), &["--operations", "900"], "has 8 bytes, which a benchmark would write over");
    assert_eq!(std::fs::read(&path).unwrap(), b"a user's");
    refused(&target(&path, "+overwrite"), &["--instances", "2"], "leave out --instances");
    let random = ["--key-shape", "random", "--mix", "scan=100", "--operations", "900"];
    refused(
        &target(&folder.path().join("new"), ""),
        &random,
        "leave scan out of --mix, or give --key-shape decimal",
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let asked = ["--workload", "read_only", "--operations", "900"];
    assert!(bench(&target(&path, "+overwrite"), &asked).status.success());
    assert!(path.exists());
}
