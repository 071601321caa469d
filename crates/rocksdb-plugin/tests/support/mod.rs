//! Programs in C++ against the RocksDB that its makers publish, with the plugin or without.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The folder of the plugin's shared objects: `target/debug` of a test in `target/debug/deps`.
fn objects() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_path_buf()
}

/// The shared object that users load.
pub(crate) fn plugin() -> PathBuf {
    let path = objects().join("libziptier_rocksdb.so");
    assert!(
        path.exists() && path.with_file_name("libziptier_rocksdb_plugin.so").exists(),
        "{} is missing; run `make rocksdb-plugin`, which `make test` does",
        path.display()
    );
    path
}

/// RocksDB as `make setup-rocksdb` leaves it.
pub(crate) fn rocksdb() -> PathBuf {
    let include = env::var_os("ROCKSDB_INCLUDE_DIR")
        .map_or_else(|| PathBuf::from("../../target/rocksdb/include"), PathBuf::from);
    include.parent().unwrap().canonicalize().unwrap()
}

/// Compiles a program, once for all tests of a file.
pub(crate) fn compiled(source: &str) -> PathBuf {
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    COMPILED.get_or_init(|| compile(source)).clone()
}

fn compile(source: &str) -> PathBuf {
    let name = Path::new(source).file_stem().unwrap();
    // Tests of several files may compile the same program at once.
    let program =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{}", name.display(), std::process::id()));
    let rocksdb = rocksdb();
    let status = Command::new("g++")
        .args(["-std=c++20", "-O1", "-fno-rtti", "-isystem"])
        .arg(rocksdb.join("include"))
        .arg(Path::new("tests/programs").join(source))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&rocksdb)
        .arg("-lrocksdb")
        .arg(format!("-Wl,-rpath,{}", rocksdb.display()))
        .status()
        .unwrap();
    assert!(status.success());
    program
}

/// Runs a program without the plugin.
pub(crate) fn stock(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

/// Runs a program with the plugin preloaded.
pub(crate) fn with_plugin(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).env("LD_PRELOAD", plugin()).output().unwrap()
}

/// What a program printed that ended well.
pub(crate) fn printed(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What a program complained of that did not.
pub(crate) fn complaint(output: Output) -> String {
    assert!(!output.status.success(), "it went well: {}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.code().is_some(), "it crashed: {}", output.status);
    String::from_utf8(output.stderr).unwrap()
}
