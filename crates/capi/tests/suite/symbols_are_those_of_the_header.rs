//! A symbol that the header does not declare is a promise by accident, and clashes with symbols of other libraries. One
//! that is missing breaks programs when they start.

use std::collections::BTreeSet;
use std::process::Command;

use crate::installed::installed;

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = std::fs::read_to_string("include/ziptier.h").unwrap();
    let code: String = header.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let names =
        code.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_' || letter == '('));
    names
        .filter_map(|word| word.split_once('('))
        .filter(|(name, _)| name.starts_with("ziptier_"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_shared_library_exports_the_functions_of_the_header() {
    let library = installed().join("lib/libziptier.so");
    let mut nm = Command::new("nm");
    let symbols = printed(nm.args(["-D", "--defined-only", "--with-symbol-versions"]).arg(&library));
    let exported: BTreeSet<String> =
        symbols.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect();
    let node = "ZIPTIER_0.2";
    let expected: BTreeSet<String> = declared().iter().map(|name| format!("{name}@@{node}")).collect();
    assert!(expected.len() > 40, "{expected:?}");
    let mut functions = exported.clone();
    functions.retain(|name| name.split('@').next() != Some(node));
    assert_eq!(functions, expected);
}

/// A program may have another copy of zstd, or of Rust's library.
#[test]
fn the_static_library_defines_nothing_else_for_others() {
    let library = installed().join("lib/libziptier.a");
    let symbols = printed(Command::new("nm").args(["-g", "--defined-only", "--format=posix"]).arg(&library));
    let defined: BTreeSet<String> =
        symbols.lines().filter_map(|line| line.split_once(" T ")).map(|(name, _)| name.to_owned()).collect();
    assert_eq!(defined, declared());
    assert_eq!(symbols.lines().filter(|line| line.contains(' ')).count(), defined.len(), "{symbols}");
}

/// A function that a comment leaves open is a guess for its caller.
#[test]
fn every_comment_tells_ownership_threads_and_errors() {
    let header = std::fs::read_to_string("include/ziptier.h").unwrap();
    let mut told = 0;
    for paragraph in header.split("\n\n").collect::<Vec<_>>().join("\n\n").split(";\n\n") {
        let (comments, code): (Vec<&str>, Vec<&str>) =
            paragraph.lines().partition(|line| line.starts_with("//"));
        let Some(name) = code.iter().find_map(|line| line.split_once('(')).map(|(name, _)| name) else {
            continue;
        };
        for word in ["// Ownership: ", "// Threads: ", "// Errors: "] {
            assert!(comments.iter().any(|line| line.starts_with(word)), "{name} has no line {word:?}");
        }
        told += 1;
    }
    assert_eq!(told, declared().len());
}

/// A panic that leaves a function ends the process.
#[test]
fn every_function_catches_panics() {
    let mut functions = BTreeSet::new();
    for file in std::fs::read_dir("src").unwrap() {
        let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for function in source.split("extern \"C\" fn ").skip(1) {
            let name = function.split('(').next().unwrap().to_owned();
            let body = function.split("\n}\n").next().unwrap();
            let only_reads = ["ziptier_last_error", "ziptier_version"].contains(&name.as_str());
            assert!(only_reads || body.contains("call(|| {") || body.contains("guarded(|| "), "{name}");
            functions.insert(name);
        }
    }
    assert_eq!(functions, declared());
}

#[test]
fn the_soname_has_the_major_version() {
    let library = installed().join("lib/libziptier.so");
    let dynamic = printed(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("soname: [libziptier.so.0]"), "{dynamic}");
    assert_eq!(
        library.canonicalize().unwrap().file_name().unwrap(),
        concat!("libziptier.so.", env!("CARGO_PKG_VERSION"))
    );
}
