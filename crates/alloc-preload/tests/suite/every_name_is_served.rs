//! A program that takes one function of the family from this library and another from elsewhere frees blocks that
//! neither knows. So every name is here, and each of them works.

use std::ffi::{CStr, c_void};
use std::hint::black_box;
use std::mem::transmute;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use crate::support::{
    far_range, free, function, in_child, library, mallctl, malloc, page_of, usable, with_library,
};

const NAMES: [&CStr; 54] = [
    c"malloc",
    c"calloc",
    c"realloc",
    c"reallocarray",
    c"free",
    c"free_sized",
    c"free_aligned_sized",
    c"posix_memalign",
    c"aligned_alloc",
    c"memalign",
    c"valloc",
    c"pvalloc",
    c"malloc_usable_size",
    c"malloc_trim",
    c"__libc_malloc",
    c"__libc_calloc",
    c"__libc_realloc",
    c"__libc_free",
    c"__libc_memalign",
    c"__libc_valloc",
    c"__libc_pvalloc",
    c"__posix_memalign",
    c"cfree",
    c"mallocx",
    c"rallocx",
    c"xallocx",
    c"sallocx",
    c"dallocx",
    c"sdallocx",
    c"nallocx",
    c"mallctl",
    c"mallctlnametomib",
    c"mallctlbymib",
    c"malloc_stats_print",
    c"_Znwm",
    c"_Znam",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnamRKSt9nothrow_t",
    c"_ZnwmSt11align_val_t",
    c"_ZnamSt11align_val_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
    c"_ZdlPv",
    c"_ZdaPv",
    c"_ZdlPvRKSt9nothrow_t",
    c"_ZdaPvRKSt9nothrow_t",
    c"_ZdlPvm",
    c"_ZdaPvm",
    c"_ZdlPvSt11align_val_t",
    c"_ZdaPvSt11align_val_t",
    c"_ZdlPvSt11align_val_tRKSt9nothrow_t",
    c"_ZdaPvSt11align_val_tRKSt9nothrow_t",
    c"_ZdlPvmSt11align_val_t",
    c"_ZdaPvmSt11align_val_t",
];

/// jemalloc's flag for a block that passes the caches by.
const NO_CACHE: i32 = 0x100;

fn names() {
    let path = library();
    for name in NAMES {
        // SAFETY: all zeros is a valid `Dl_info`, and the name of the file that is told is a C string.
        let file = unsafe {
            let mut told: libc::Dl_info = std::mem::zeroed();
            assert_ne!(libc::dladdr(function(name), &mut told), 0);
            CStr::from_ptr(told.dli_fname).to_str().unwrap().to_owned()
        };
        assert_eq!(file, path.to_str().unwrap(), "{}", name.to_string_lossy());
    }
}

#[test]
fn by_the_library() {
    in_child("every_name_is_served::by_the_library", "ratio=1:3", names);
}

/// Calls what the random calls of the other test leave out.
fn calls() {
    type WithFlags = unsafe extern "C" fn(usize, i32) -> usize;
    type Resize = unsafe extern "C" fn(usize, usize, i32) -> usize;
    type Extend = unsafe extern "C" fn(usize, usize, usize, i32) -> usize;
    type Sized = unsafe extern "C" fn(usize, usize);
    type Aligned = unsafe extern "C" fn(usize, usize) -> usize;
    type SizedAligned = unsafe extern "C" fn(usize, usize, usize);
    // SAFETY: the functions have these types, and get live blocks.
    unsafe {
        let mallocx: WithFlags = transmute::<*mut c_void, _>(function(c"mallocx"));
        let rallocx: Resize = transmute::<*mut c_void, _>(function(c"rallocx"));
        let xallocx: Extend = transmute::<*mut c_void, _>(function(c"xallocx"));
        let free_sized: Sized = transmute::<*mut c_void, _>(function(c"free_sized"));
        let free_aligned: SizedAligned = transmute::<*mut c_void, _>(function(c"free_aligned_sized"));
        let new_aligned: Aligned = transmute::<*mut c_void, _>(function(c"_ZnwmSt11align_val_t"));
        let delete_aligned: SizedAligned = transmute::<*mut c_void, _>(function(c"_ZdlPvmSt11align_val_t"));
        for bytes in [1, 24, 100, 5000, 16_384, 1 << 20] {
            let block = rallocx(mallocx(bytes, 0), 2 * bytes, 0x40);
            assert!(usable(block) >= 2 * bytes);
            assert_eq!(xallocx(block, 2 * bytes, 0, 0), usable(block));
            free_sized(block, 2 * bytes);
            free_aligned(libc::aligned_alloc(256, bytes) as usize, 256, bytes);
            let block = new_aligned(bytes, 128);
            assert!(block.is_multiple_of(128));
            delete_aligned(block, bytes, 128);
            let nothing = libc::realloc(malloc(bytes) as *mut c_void, 0);
            assert!(nothing.is_null());
        }
        assert_eq!(usable(0), 0);
        assert_eq!(libc::malloc_trim(0), 1);
        // More than there are addresses.
        assert!(black_box(libc::calloc(black_box(1 << 40), 1 << 40)).is_null());
        assert_eq!(malloc(usize::MAX - 100), 0);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOMEM));
        let mut out = std::ptr::null_mut();
        assert_eq!(libc::posix_memalign(&mut out, 24, 100), libc::EINVAL);
    }
    assert_eq!(mallctl(c"arenas.bin.5.size", 0_usize, None), 80);
}

#[test]
fn by_ratio() {
    in_child("every_name_is_served::by_ratio", "ratio=1:3", calls);
}

#[test]
fn with_everything_in_far_memory() {
    in_child("every_name_is_served::with_everything_in_far_memory", "policy=only-far", calls);
}

/// Blocks of a named arena, and blocks that grow in place.
fn counted() {
    type WithFlags = unsafe extern "C" fn(usize, i32) -> usize;
    type Resize = unsafe extern "C" fn(usize, usize, i32) -> usize;
    type InPlace = unsafe extern "C" fn(usize, usize, usize, i32) -> usize;
    let page = page_of(std::process::id());
    let arena = mallctl(c"arenas.create", 0_u32, None);
    let of_arena = (arena as i32 + 1) << 20 | NO_CACHE;
    let counts = |name: &str, call: &dyn Fn()| {
        let ticks = page.told.ticks.load(Relaxed);
        (0..4000).for_each(|_| call());
        assert!(page.told.ticks.load(Relaxed) > ticks + 10, "{name} is not counted");
    };
    // SAFETY: the functions have these types, and get live blocks.
    unsafe {
        let mallocx: WithFlags = transmute::<*mut c_void, _>(function(c"mallocx"));
        let rallocx: Resize = transmute::<*mut c_void, _>(function(c"rallocx"));
        let xallocx: InPlace = transmute::<*mut c_void, _>(function(c"xallocx"));
        counts("mallocx", &|| free(mallocx(20_000, of_arena)));
        let block = mallocx(32_000, of_arena);
        counts("rallocx", &|| assert_eq!(rallocx(block, 32_000, of_arena), block));
        counts("xallocx", &|| {
            xallocx(block, 20_000, 0, 0);
            assert!(xallocx(block, 32_000, 0, 0) >= 32_000, "the block cannot grow in place");
        });
    }
}

#[test]
fn and_counts_blocks_of_a_named_arena() {
    let name = "every_name_is_served::and_counts_blocks_of_a_named_arena";
    in_child(name, "policy=only-dram,dram-limit=1GiB", counted);
}

/// The active defragmentation of Redis 8 copies values into such blocks.
fn placed_without_a_cache() {
    type WithFlags = unsafe extern "C" fn(usize, i32) -> usize;
    type Resize = unsafe extern "C" fn(usize, usize, i32) -> usize;
    type Free = unsafe extern "C" fn(usize, i32);
    let far = far_range();
    // SAFETY: the functions have these types, and get live blocks.
    unsafe {
        let mallocx: WithFlags = transmute::<*mut c_void, _>(function(c"mallocx"));
        let rallocx: Resize = transmute::<*mut c_void, _>(function(c"rallocx"));
        let dallocx: Free = transmute::<*mut c_void, _>(function(c"dallocx"));
        for bytes in [100, 5000, 100_000] {
            let block = mallocx(bytes, NO_CACHE);
            assert!(far.contains(&block), "a block of {bytes} bytes lies in DRAM");
            let block = rallocx(block, 3 * bytes, NO_CACHE);
            assert!(far.contains(&block), "a block of {bytes} bytes has gone to DRAM");
            dallocx(block, NO_CACHE);
        }
    }
}

#[test]
fn and_places_blocks_that_pass_caches_by() {
    let name = "every_name_is_served::and_places_blocks_that_pass_caches_by";
    in_child(name, "policy=only-far", placed_without_a_cache);
}

fn shrinks() {
    type InPlace = unsafe extern "C" fn(usize, usize, usize, i32) -> usize;
    let block = malloc(28_000);
    // SAFETY: the block is live. The function has the type of jemalloc's manual.
    let told = unsafe { transmute::<*mut c_void, InPlace>(function(c"xallocx"))(block, 20_000, 0, 0) };
    assert!((20_000..28_000).contains(&told), "{told}");
    assert_eq!(usable(block), told);
    free(block);
}

#[test]
fn and_tells_the_size_of_a_block_that_shrank_in_place() {
    let name = "every_name_is_served::and_tells_the_size_of_a_block_that_shrank_in_place";
    in_child(name, "policy=only-dram", shrinks);
    in_child(name, "policy=only-far", shrinks);
}

/// `operator new` calls the handler, throws after it, and does not throw where it must not.
#[test]
fn as_cpp_wants_it() {
    let program = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("new_fails");
    let compiled =
        Command::new("g++").args(["-O1", "-w", "tests/programs/new_fails.cc", "-o"]).arg(&program).status();
    if !compiled.is_ok_and(|status| status.success()) {
        return ziptier_testing::not_run("g++", "install g++");
    }
    let output = with_library(program.to_str().unwrap(), "ratio=1:3").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "handler\nhandler\nbad_alloc\nnull\nhandler\nnull\n");
}

/// A wrong option leaves the program running, and `strict` does not.
#[test]
fn after_a_mistake_by_dram_alone() {
    let output = with_library("true", "ratio=one").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && said.contains("libziptier_alloc: ZIPTIER_ALLOC has `ratio=one`"),
        "{said}"
    );
    let output = with_library("true", "strict=yes,ratio=one").output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
}
