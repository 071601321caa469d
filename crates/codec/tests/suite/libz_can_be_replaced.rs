//! Engine `zlib` exists for accelerators that are preloaded before libz. If libz were linked statically, or looked up
//! by hand, such an accelerator would never be called, and its users would measure the CPU. So this test builds and
//! preloads an accelerator that only counts.

#![cfg(target_os = "linux")]

use std::process::Command;
use ziptier_codec::block::{Preloaded, Setting};
use ziptier_codec::format::Format;

/// Calls of deflate and inflate are counted and go on to libz.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static long deflated, inflated;
int deflate(void *stream, int flush) {
    int (*next)(void *, int) = (int (*)(void *, int))dlsym(RTLD_NEXT, "deflate");
    deflated++;
    return next(stream, flush);
}
int inflate(void *stream, int flush) {
    int (*next)(void *, int) = (int (*)(void *, int))dlsym(RTLD_NEXT, "inflate");
    inflated++;
    return next(stream, flush);
}
__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("SHIM_COUNTS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%ld %ld\n", deflated, inflated);
        fclose(file);
    }
}
"#;

/// Set in the process that has the shim.
const INSIDE: &str = "ZIPTIER_TEST_INSIDE_SHIM";

const BLOCKS: usize = 20;

#[test]
fn a_preloaded_library_is_called_for_every_block_and_reported() {
    if std::env::var_os(INSIDE).is_some() {
        return pack_and_unpack();
    }
    let folder =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("shim-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, shim, counts) =
        (folder.join("shim.c"), folder.join("libzlib-accel.so"), folder.join("counts"));
    std::fs::write(&source, SHIM).unwrap();
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(&source).arg("-ldl").status();
    assert!(built.unwrap().success(), "the shim cannot be built");
    let inside = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "libz_can_be_replaced::a_preloaded_library_is_called_for_every_block_and_reported",
            "--nocapture",
        ])
        .env(INSIDE, "1")
        .env("LD_PRELOAD", &shim)
        .env("SHIM_COUNTS", &counts)
        .output()
        .unwrap();
    assert!(inside.status.success(), "{}", String::from_utf8_lossy(&inside.stdout));
    let counted = std::fs::read_to_string(&counts).unwrap();
    let counted: Vec<usize> = counted.split_whitespace().map(|count| count.parse().unwrap()).collect();
    assert_eq!(counted, [BLOCKS, BLOCKS], "libz is not called through the dynamic linker");
    std::fs::remove_dir_all(&folder).unwrap();

    let engine = Setting::new(Format::Deflate).engine_named("zlib").unwrap();
    assert_eq!((engine.worker(), Preloaded::find()), ("zlib_system", None));
}

/// Blocks of more than 512 bytes, packed and plain, and no dictionary: what accelerators take.
fn pack_and_unpack() {
    let engine = Setting::new(Format::Deflate).engine_named("zlib").unwrap();
    assert_eq!(engine.worker(), "zlib_accel_preload");
    assert!(Preloaded::find().unwrap().to_text().contains("libzlib-accel.so, "));
    let mut codec = engine.open().unwrap();
    for block in 0..BLOCKS {
        let raw: Vec<u8> =
            (0..4096u32).map(|n| (n.wrapping_mul(2_654_435_761) >> (20 + block % 4)) as u8).collect();
        let (mut packed, mut out) = (Vec::new(), Vec::new());
        codec.compress(&raw, &mut packed, 8192).unwrap().unwrap();
        assert!(packed.len() > 512, "{}", packed.len());
        codec.decompress(&packed, &mut out, raw.len()).unwrap();
        assert!(out == raw);
    }
}
