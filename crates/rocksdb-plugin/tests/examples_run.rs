//! The examples in C++, Java and Rust do what they show, against the RocksDB that its makers publish.

#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::Command;
use support::{linked, objects, plugin, printed, rocksdb, stock};

const OPTIONS: &str = "compression_manager={id=ziptier;format=token};compression=kCustomCompression80";

fn in_folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn in_cpp() {
    let dir = in_folder();
    plugin();
    let objects = objects();
    let program = linked(
        Path::new("examples/cpp/compression.cc"),
        &[
            "-Iinclude",
            &format!("-L{}", objects.display()),
            "-lziptier_rocksdb",
            &format!("-Wl,-rpath,{}", objects.display()),
        ],
    );
    let report = printed(stock(&program, &[dir.path().to_str().unwrap(), OPTIONS]));
    assert!(report.contains("ZiptierV1;") && report.contains("failures 0"), "{report}");
}

#[test]
fn in_java() {
    let (dir, classes) = (in_folder(), in_folder());
    let jar = rocksdb().join("rocksdbjni.jar");
    let compiled = Command::new("javac")
        .arg("-cp")
        .arg(&jar)
        .arg("-d")
        .arg(classes.path())
        .arg("examples/java/Compression.java")
        .status();
    assert!(compiled.unwrap().success());
    let path = std::env::join_paths([jar.as_path(), classes.path()]).unwrap();
    let output = Command::new("java")
        .arg("-cp")
        .arg(path)
        .arg("Compression")
        .arg(plugin())
        .arg(dir.path())
        .output()
        .unwrap();
    let report = printed(output);
    assert!(report.lines().all(|file| file.starts_with("ZiptierV1;")), "{report}");
}

#[test]
fn in_rust() {
    let dir = in_folder();
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--manifest-path", "examples/rust/Cargo.toml"])
        .arg("--target-dir")
        .arg(objects().parent().unwrap().join("rocksdb-example"))
        .env("ROCKSDB_LIB_DIR", rocksdb())
        .env("ROCKSDB_INCLUDE_DIR", rocksdb().join("include"))
        .status();
    assert!(built.unwrap().success());
    let program = objects().parent().unwrap().join("rocksdb-example/debug/ziptier-rocksdb-example");
    let output = Command::new(program).arg(dir.path()).env("LD_LIBRARY_PATH", rocksdb()).output().unwrap();
    let report = printed(output);
    assert!(report.contains("failures 0"), "{report}");
}
