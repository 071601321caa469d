//! Compiles the one call that needs C++: RocksDB tells its version as a `std::string`.

fn main() {
    println!("cargo:rerun-if-changed=version.cc");
    cc::Build::new().cpp(true).std("c++17").file("version.cc").compile("ziptier_rocksdb_version");
}
