//! The examples in C, C++, Java and Rust do what they show, against the RocksDB that its makers publish.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{linked, objects, plugin, printed, rocksdb, stock};

const OPTIONS: &str = "compression_manager={id=ziptier;format=token};compression=kCustomCompression80";

fn in_folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// An example that is linked with RocksDB and with the plugin's loader.
fn linked_with_plugin(source: &str) -> PathBuf {
    plugin();
    let objects = objects();
    linked(
        Path::new(source),
        &[
            "-Iinclude",
            &format!("-L{}", objects.display()),
            "-lziptier_rocksdb",
            &format!("-Wl,-rpath,{}", objects.display()),
        ],
    )
}

#[test]
fn in_cpp() {
    let dir = in_folder();
    let program = linked_with_plugin("examples/cpp/compression.cc");
    let report = printed(stock(&program, &[dir.path().to_str().unwrap(), OPTIONS]));
    assert!(report.contains("ZiptierV1;") && report.contains("failures 0"), "{report}");
}

/// Compilers drop a library that a program calls no function of.
#[test]
fn a_program_that_calls_nothing_of_ziptiers_is_linked_as_the_readme_says() {
    let (dir, objects) = (in_folder(), objects());
    plugin();
    let more = [
        "-Wl,--as-needed".to_owned(),
        format!("-L{}", objects.display()),
        "-Wl,--push-state,--no-as-needed,-lziptier_rocksdb,--pop-state".to_owned(),
        format!("-Wl,-rpath,{}", objects.display()),
    ];
    let readme = std::fs::read_to_string("../../README.md").unwrap();
    assert!(readme.contains(&more[2]), "the README has another line");
    let program = linked(Path::new("tests/programs/stranger.cc"), &more.each_ref().map(String::as_str));
    let names = printed(stock(&program, &[dir.path().to_str().unwrap(), OPTIONS]));
    assert!(names.contains("ZiptierV1;"), "{names}");
}

#[test]
fn in_c() {
    let dir = in_folder();
    let program = linked_with_plugin("examples/c/all_of_it.c");
    let folders = ["db", "cache"].map(|name| dir.path().join(name));
    let report = printed(stock(&program, &folders.each_ref().map(|folder| folder.to_str().unwrap())));
    let figure = |name: &str| {
        let line = report.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|figure| figure.parse::<u64>().ok()).unwrap_or(0)
    };
    assert!(figure("packed_token_blocks") > 0 && figure("wal_syncs") > 0, "{report}");
    // The second pass finds in the cache's files what does not fit into memory.
    assert!(figure("cache_hits") > 100 && report.contains("failures 0"), "{report}");
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
        .args(["db", "cache"].map(|name| dir.path().join(name)))
        .output()
        .unwrap();
    let report = printed(output);
    let (sizes, files): (Vec<&str>, Vec<&str>) =
        report.lines().partition(|line| line.starts_with("log ") || line.starts_with("cache "));
    assert!(!files.is_empty() && files.iter().all(|file| file.starts_with("ZiptierV1;")), "{report}");
    // The log has room behind its few records, and blocks came to the cache's files.
    let bytes: Vec<u64> = sizes.iter().filter_map(|line| line.split_once(' ')?.1.parse().ok()).collect();
    assert!(bytes.len() == 2 && bytes[0] > 10_000 && bytes[1] > 100_000, "{report}");
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
