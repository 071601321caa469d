//! Finds out which libz the crate is linked with.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(libz_is_built_in)");
    println!("cargo::rerun-if-changed=build.rs");
    // `libz-sys` names its output folder if it compiled its own library. That library is linked statically.
    if std::env::var_os("DEP_Z_ROOT").is_some() {
        println!("cargo::rustc-cfg=libz_is_built_in");
        println!(
            "cargo::warning=the system has no libz to link with (Debian: zlib1g-dev): engine zlib will be \
             unavailable, for no preloaded accelerator could replace a library that is built in"
        );
    }
}
