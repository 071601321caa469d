//! Compiles RocksDB's classes of `shim/` against its public headers.

use std::env;
use std::path::{Path, PathBuf};

/// The folder of the headers from the Makefile's `setup-rocksdb`, relative to this crate.
const PREPARED: &str = "../../target/rocksdb/include";

fn main() {
    println!("cargo:rerun-if-env-changed=ROCKSDB_INCLUDE_DIR");
    println!("cargo:rerun-if-changed=shim");
    let include = env::var_os("ROCKSDB_INCLUDE_DIR").map_or_else(|| PathBuf::from(PREPARED), PathBuf::from);
    assert!(
        include.join("rocksdb/advanced_compression.h").exists(),
        "looked for RocksDB's headers in {}, found none; run `make setup-rocksdb`, or set \
         ROCKSDB_INCLUDE_DIR to the `include` of RocksDB 11.8.1",
        include.display()
    );
    // Clippy links nothing. What this script makes for clippy, Cargo keeps apart from what it makes for builds.
    let wrapper = env::var_os("RUSTC_WORKSPACE_WRAPPER").unwrap_or_default();
    if Path::new(&wrapper).ends_with("clippy-driver") {
        return;
    }
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        .include(&include)
        .include("shim")
        .files(sources(Path::new("shim")))
        // Stock builds of RocksDB come without type information, and a library that has it works with this, too.
        .flag("-fno-rtti")
        .flag("-fvisibility=hidden")
        .warnings(true)
        .extra_warnings(true)
        .flag(format!("-isystem{}", include.display()))
        .compile("ziptier_rocksdb_shim");
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let files = folder.read_dir().expect("the folder of the shim can be listed");
    let mut sources: Vec<_> = files.flatten().map(|file| file.path()).collect();
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "cc"));
    sources.sort();
    sources
}
