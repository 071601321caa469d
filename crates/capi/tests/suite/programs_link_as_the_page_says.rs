//! A library that only its own tests can link is of no use. A program in C is compiled as C and as C++, with every
//! warning an error, by the flags of pkg-config, and linked with the shared and with the static library.

use std::path::Path;
use std::process::Command;

use crate::installed::{installed, pkg_config};

const C: [&str; 4] = ["cc", "-std=c11", "-x", "c"];
const CPP: [&str; 4] = ["c++", "-std=c++11", "-x", "c++"];

/// Compiles the example, runs it, and returns what it printed.
fn run(compiler: &[&str], flags: &[String]) -> String {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("example");
    let compiled = Command::new(compiler[0])
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "examples/ziptier.c", "-x", "none", "-o"])
        .arg(&program)
        .args(flags)
        .status();
    assert!(compiled.unwrap().success(), "{compiler:?} {flags:?}");
    let output = Command::new(program).arg(folder.path().join("store")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn check(printed: &str) {
    let version = concat!("ziptier ", env!("CARGO_PKG_VERSION"), "\n");
    assert!(printed.starts_with(version), "{printed}");
    for line in [
        "compress_calls 2",
        "does_not_fit 1",
        "worker cpu",
        "count: 4000, flags 7",
        "users: 3999",
        "option format is \"lz5\": unknown format \"lz5\": choose one of none, token, lz4, zstd, deflate",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "{line}: {printed}");
    }
    let value = printed.lines().find(|line| line.starts_with("value: ")).unwrap();
    assert!(value.ends_with("{\"user\":7,\"state\":\"active\"}"), "{value}");
}

#[test]
fn c_and_cpp_with_the_shared_library() {
    let prefix = installed();
    let mut flags = pkg_config(&prefix, &["--cflags", "--libs"]);
    flags.push(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
    for compiler in [C, CPP] {
        check(&run(&compiler, &flags));
    }
}

/// Follows the page for C programmers: its programs, and its two lines that link the first one.
#[test]
fn the_programs_of_the_page_link_both_ways() {
    let (prefix, folder) = (installed(), tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap());
    let page = std::fs::read_to_string("../../docs/c.md").unwrap();
    let programs: Vec<&str> =
        page.split("```c\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect();
    let printed = ["Ada\n", "2 trees, the first is number 1: bits 0xa\n"];
    assert_eq!(programs.len(), printed.len());
    let lines: Vec<&str> = page.lines().filter(|line| line.starts_with("cc first.c ")).collect();
    assert_eq!(lines.len(), 2);
    for (source, printed) in programs.iter().zip(printed) {
        std::fs::write(folder.path().join("first.c"), source).unwrap();
        for (line, name, library_path) in
            [(lines[0], "first", prefix.join("lib")), (lines[1], "first-static", "".into())]
        {
            let mut shell = Command::new("sh");
            shell
                .args(["-c", line])
                .current_dir(&folder)
                .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
            assert!(shell.status().unwrap().success(), "{line}");
            let mut program = Command::new(folder.path().join(name));
            let output = program.env("LD_LIBRARY_PATH", library_path).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), printed, "{line}: {output:?}");
        }
    }
}

#[test]
fn the_version_of_pkg_config_is_that_of_the_package() {
    assert_eq!(pkg_config(&installed(), &["--modversion"]), [env!("CARGO_PKG_VERSION")]);
    assert!(Path::new("include/ziptier.h").exists());
}
