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
