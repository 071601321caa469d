//! A manual page that lacks a new option, or a completion of a hidden command, misleads the users of a package.

use std::fs;
use std::process::Command;

#[test]
fn each_command_has_a_page_and_is_completed() {
    let folder = tempfile::tempdir().unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_ziptier")).arg("pages").arg(folder.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    for shell in ["ziptier.bash", "ziptier.fish", "_ziptier"] {
        assert!(read(shell).contains("maxmemory-policy"), "{shell}");
    }
    for command in [
        "alloc",
        "bench",
        "bench-server",
        "check",
        "dump",
        "restore",
        "doctor",
        "mbwu",
        "pages",
        "predict",
        "rocksdb",
        "serve",
        "tco",
    ] {
        assert!(
            read("ziptier.1").contains(&format!("ziptier\\-{}", command.replace('-', "\\-"))),
            "{command}"
        );
        assert!(read(&format!("ziptier-{command}.1")).contains(".SH SYNOPSIS"), "{command}");
    }
    assert!(read("ziptier-serve.1").contains("requirepass"));
    assert!(!folder.path().join("ziptier-bench-run.1").exists());
    for (shell, hidden) in [
        ("ziptier.bash", [" bench-run ", " --maxmemory "]),
        ("ziptier.fish", ["\"bench-run\"", " -l maxmemory "]),
        ("_ziptier", ["'bench-run:", "'--maxmemory="]),
    ] {
        let offered = hidden.into_iter().find(|word| read(shell).contains(word));
        assert_eq!(offered, None, "{shell}");
    }
    let is_whole = Command::new("bash").arg("-n").arg(folder.path().join("ziptier.bash")).status().unwrap();
    assert!(is_whole.success());
}

#[test]
fn a_folder_that_cannot_be_made_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_ziptier")).arg("pages").arg(file.path()).output().unwrap();
    assert!(!done.status.success());
    assert!(String::from_utf8_lossy(&done.stderr).contains("cannot write manual pages into"));
}
