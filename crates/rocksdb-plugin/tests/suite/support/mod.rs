//! Programs in C and C++ against the RocksDB that its makers publish, with the plugin or without.

pub(crate) mod log;

use std::env;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The folder of the plugin's shared objects: `target/debug` of a test in `target/debug/deps`.
pub(crate) fn objects() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().to_path_buf()
}

/// The shared object that users load.
pub(crate) fn plugin() -> PathBuf {
    let path = objects().join("libziptier_rocksdb.so");
    assert!(
        path.exists() && path.with_file_name("libziptier_rocksdb_plugin.so").exists(),
        "{} is missing; `make tested-rocksdb-plugin` builds it, as `make test` does",
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

/// The command `ziptier`, with that RocksDB.
pub(crate) fn ziptier() -> Command {
    let mut command = Command::new(objects().join("ziptier"));
    command.env("ZIPTIER_ROCKSDB_LIBRARY", rocksdb().join("librocksdb.so"));
    command
}

/// A program of `tests/programs` with RocksDB.
pub(crate) fn compiled(source: &str) -> PathBuf {
    linked(&programs().join(source), &[])
}

/// The same without RocksDB, or a shared object.
pub(crate) fn compiled_alone(source: &str, more: &[&str]) -> PathBuf {
    compile(&programs().join(source), more)
}

fn programs() -> &'static Path {
    Path::new("tests/programs")
}

/// Compiles a program and links it with RocksDB, and with what else is said.
pub(crate) fn linked(source: &Path, more: &[&str]) -> PathBuf {
    let rocksdb = rocksdb();
    let (include, library) = (rocksdb.join("include"), rocksdb.display().to_string());
    let with_rocksdb = [
        "-isystem",
        include.to_str().unwrap(),
        &format!("-L{library}"),
        "-lrocksdb",
        &format!("-Wl,-rpath,{library}"),
    ];
    compile(source, &[more, &with_rocksdb].concat())
}

/// Compiles a program, unless one of the same sources, options and compiler is there from an earlier run.
fn compile(source: &Path, more: &[&str]) -> PathBuf {
    let is_c = source.extension().is_some_and(|extension| extension == "c");
    let (compiler, language) = if is_c {
        ("gcc", ["-std=c11", "-O1", "-Wall"])
    } else {
        ("g++", ["-std=c++20", "-O1", "-fno-rtti"])
    };
    static VERSIONS: [OnceLock<Vec<u8>>; 2] = [const { OnceLock::new() }; 2];
    let asked = || Command::new(compiler).arg("--version").output().unwrap().stdout;
    let version = VERSIONS[usize::from(is_c)].get_or_init(asked);
    let mut hasher = DefaultHasher::new();
    (version, language, source, more).hash(&mut hasher);
    let included = more.iter().filter_map(|option| option.strip_prefix("-I")).map(Path::new);
    included.chain(source.parent()).for_each(|folder| hash_files(folder, &mut hasher));
    hash_file(&rocksdb().join("include/rocksdb/version.h"), &mut hasher);
    if more.contains(&"-lziptier_rocksdb") {
        hash_file(&plugin(), &mut hasher);
    }
    let name = format!("{}-{:016x}", source.file_stem().unwrap().display(), hasher.finish());
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Tests are processes: one of them compiles, and the others wait for it.
    let lock = File::create(program.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    if !program.exists() {
        let made = program.with_extension("new");
        let status =
            Command::new(compiler).args(language).arg(source).args(more).arg("-o").arg(&made).status();
        assert!(status.unwrap().success());
        std::fs::rename(made, &program).unwrap();
    }
    program
}

fn hash_files(folder: &Path, hasher: &mut DefaultHasher) {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().filter(|path| path.is_file()).for_each(|path| hash_file(path, hasher));
}

fn hash_file(path: &Path, hasher: &mut DefaultHasher) {
    (path, std::fs::read(path).unwrap()).hash(hasher);
}

/// Runs a program without the plugin.
pub(crate) fn stock(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

/// Runs a program with the plugin preloaded.
pub(crate) fn with_plugin(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).env("LD_PRELOAD", plugin()).output().unwrap()
}

/// The output of a program that succeeded.
pub(crate) fn printed(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The message of a program that failed.
pub(crate) fn complaint(output: Output) -> String {
    assert!(!output.status.success(), "it went well: {}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.code().is_some(), "it crashed: {}", output.status);
    String::from_utf8(output.stderr).unwrap()
}
