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

/// Runs the lines of the page for RocksDB's users unchanged, in a folder with the names of a checkout. They link a
/// program with the RocksDB that `make setup-rocksdb` fetches. The C++ program calls no function of ziptier. Linkers
/// drop such a library unless an option prevents it.
#[test]
fn programs_are_linked_as_the_page_says() {
    let page = std::fs::read_to_string("../../docs/rocksdb.md").unwrap();
    let line = |compiler: &str| {
        let is_it = |line: &&str| line.starts_with(compiler) && line.contains("-L target/rocksdb ");
        page.lines().find(is_it).unwrap_or_else(|| panic!("the page has no line for {compiler}")).to_owned()
    };
    plugin();
    let checkout = in_folder();
    let link = |from: &Path, name: &str| {
        std::os::unix::fs::symlink(from.canonicalize().unwrap(), checkout.path().join(name)).unwrap();
    };
    std::fs::create_dir(checkout.path().join("target")).unwrap();
    link(&objects(), "target/release");
    link(&rocksdb(), "target/rocksdb");
    link(Path::new(".."), "crates");
    let linked_by = |line: &str| {
        let mut compiler = Command::new("sh");
        let status = compiler.args(["-c", line]).current_dir(checkout.path()).status();
        assert!(status.unwrap().success(), "{line}");
        checkout.path().join("a.out")
    };

    std::fs::copy("tests/programs/stranger.cc", checkout.path().join("app.cc")).unwrap();
    std::fs::copy("tests/programs/checks.h", checkout.path().join("checks.h")).unwrap();
    let dir = in_folder();
    let program = linked_by(&line("g++ -std=c++20 app.cc"));
    let names = printed(stock(&program, &[dir.path().to_str().unwrap(), OPTIONS]));
    assert!(names.contains("ZiptierV1;"), "{names}");

    std::fs::copy("examples/c/all_of_it.c", checkout.path().join("app.c")).unwrap();
    let program = linked_by(&line("gcc app.c"));
    let folders = ["c db", "c cache"].map(|name| dir.path().join(name));
    let report = printed(stock(&program, &folders.each_ref().map(|folder| folder.to_str().unwrap())));
    assert!(report.contains("failures 0"), "{report}");
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
    // Programs of a second do not live to use what another compiler or collector would prepare.
    const SHORT: [&str; 2] = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"];
    let compiled = Command::new("javac")
        .args(SHORT.map(|option| format!("-J{option}")))
        .arg("-cp")
        .arg(&jar)
        .arg("-d")
        .arg(classes.path())
        .arg("examples/java/Compression.java")
        .status();
    assert!(compiled.unwrap().success());
    let path = std::env::join_paths([jar.as_path(), classes.path()]).unwrap();
    let output = Command::new("java")
        .args(SHORT)
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
