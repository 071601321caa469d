//! `make figures` prints the published figures. A row that failed silently would be missing or stale, without any
//! notice.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// The script with a program and a corpus, in a folder of its own for what it keeps.
fn figures(folder: &Path, ziptier: &str, rows: &[&str]) -> (Output, String, String) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/figures");
    let corpus = folder.to_str().unwrap();
    let output =
        Command::new(script).arg(ziptier).arg(corpus).args(rows).current_dir(folder).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    (output, printed, said)
}

/// A program that prints these rows, whatever it is asked, and ends with this status.
fn printing(folder: &Path, tsv: &str, status: u8) -> String {
    fs::write(folder.join("rows"), tsv).unwrap();
    let program = folder.join("program");
    fs::write(&program, format!("#!/bin/sh\ncat {}/rows\nexit {status}\n", folder.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program.to_str().unwrap().to_owned()
}

#[test]
fn a_row_that_fails_is_named_with_its_reason_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (output, printed, said) = figures(folder.path(), env!("CARGO_BIN_EXE_ziptier"), &["read-nci", "lz4"]);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(printed.is_empty());
    assert_eq!(said.matches("there is no such file or folder").count(), 2, "{said}");
    assert!(said.ends_with("figures: these rows failed: read-nci lz4\n"), "{said}");
}

#[test]
fn wrong_answers_and_rows_that_are_not_there_fail() {
    let folder = tempfile::tempdir().unwrap();
    let honest = "run\tqps_per_cpu_core\tkeys\tmismatches\nstore_auto\t5\t10\t0\n";
    let lying = "run\tqps_per_cpu_core\tkeys\tmismatches\nstore_auto\t5\t10\t3\n";
    for (tsv, status, row, expected) in [
        (honest, 0, "read-nci", Some(0)),
        (honest, 0, "read-nothing", Some(1)),
        (honest, 1, "read-nci", Some(1)),
        (lying, 0, "read-nci", Some(1)),
        ("", 0, "read-nci", Some(1)),
    ] {
        let program = printing(folder.path(), tsv, status);
        let (output, printed, said) = figures(folder.path(), &program, &[row]);
        assert_eq!(output.status.code(), expected, "{tsv} {status} {row}: {printed}{said}");
        assert_eq!(said.is_empty(), expected == Some(0), "{said}");
    }
}
