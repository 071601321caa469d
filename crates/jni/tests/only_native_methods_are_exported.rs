//! A symbol that the library exports besides its native methods keeps code alive that no Java program can reach, and
//! clashes with other libraries of a JVM. A method that is missing fails when a program calls it.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// The library of what Cargo built with this test, linked as for the jar.
fn linked(folder: &TempDir) -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let built = fs::read_dir(program.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let archives = built.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libziptier_jni") && name.ends_with(".a")
    });
    let newest = archives.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).unwrap();
    let library = folder.path().join("libziptier_jni.so");
    let mut link = Command::new("scripts/link-jni");
    // The tests are built with the codec of the whole workspace, which has the engine `zlib`.
    link.current_dir("../..").arg(newest).arg(&library).arg("-lz");
    assert!(link.status().unwrap().success());
    library
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_symbols_are_the_native_methods_of_java() {
    let java = "../../java/ziptier-codec/src/main/java/io/ziptier/codec/Native.java";
    let source = fs::read_to_string(java).unwrap();
    let signatures = source.split("static native ").skip(1).map(|rest| rest.split_once('(').unwrap().0);
    let methods = signatures
        .map(|signature| format!("Java_io_ziptier_codec_Native_{}", signature.rsplit_once(' ').unwrap().1));
    let methods: BTreeSet<String> = methods.collect();
    assert!(methods.len() > 15, "{methods:?}");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut nm = Command::new("nm");
    let symbols = printed(nm.args(["-D", "--defined-only", "--format=posix"]).arg(linked(&folder)));
    let exported: BTreeSet<String> =
        symbols.lines().map(|line| line.split_once(' ').unwrap().0.to_owned()).collect();
    assert_eq!(exported, methods);
}

/// A JVM in a small image has the system's C library, and perhaps nothing else.
#[test]
fn the_library_needs_the_c_library_alone() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let dynamic = printed(Command::new("readelf").arg("-d").arg(linked(&folder)));
    let needed = dynamic.lines().filter(|line| line.contains("(NEEDED)"));
    let needed = needed.map(|line| line.split_once('[').unwrap().1.trim_end_matches(']').to_owned());
    let known = [
        "libc.so.6",
        "libm.so.6",
        "libgcc_s.so.1",
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
        "libz.so.1",
    ];
    let others: Vec<String> = needed.filter(|name| !known.contains(&name.as_str())).collect();
    assert_eq!(others, Vec::<String>::new(), "{dynamic}");
}
