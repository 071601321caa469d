//! A block that overlaps another, loses its contents, or has fewer bytes than were asked for would corrupt a program
//! without a word. Here threads call the whole family at random, hand blocks to each other, and fork in between. A
//! shadow knows the size and the contents of each block. The library's own tests have this file, too, for sanitizers.

use std::ffi::c_void;
use std::mem::transmute;
use std::sync::Mutex;

use crate::support::{free, function, in_child, malloc, usable};

const THREADS: u64 = 4;

/// jemalloc's flag for a block that passes the cache of the thread by.
const MALLOCX_TCACHE_NONE: i32 = 1 << 8;

struct Block {
    address: usize,
    bytes: usize,
    mark: u8,
}

impl Block {
    fn new(address: usize, bytes: usize, mark: u8) -> Block {
        assert_ne!(address, 0);
        assert!(usable(address) >= bytes, "{} of {bytes} bytes", usable(address));
        let block = Block { address, bytes, mark };
        block.fill();
        block
    }

    /// Fills all that the allocator says may be used, which is what Redis does.
    fn fill(&self) {
        // SAFETY: the block is live and this thread's, with as many bytes.
        unsafe { (self.address as *mut u8).write_bytes(self.mark, usable(self.address)) };
    }

    fn check(&self, bytes: usize) {
        // SAFETY: the block is live and this thread's, and was filled.
        let contents =
            unsafe { std::slice::from_raw_parts(self.address as *const u8, bytes.min(self.bytes)) };
        assert!(contents.iter().all(|&byte| byte == self.mark), "a block of {} bytes is damaged", self.bytes);
    }

    fn check_and_free(self) {
        self.check(self.bytes);
        free(self.address);
    }
}

/// 0 bytes to 256 KiB, most of them small.
fn size(random: &mut fastrand::Rng) -> usize {
    let most = if random.u8(..32) == 0 { 18 } else { 11 };
    let bits = random.u32(3..=most);
    random.usize(..1 << bits)
}

fn allocate(random: &mut fastrand::Rng) -> Block {
    type OfSize = unsafe extern "C" fn(usize) -> usize;
    type OfTwo = unsafe extern "C" fn(usize, usize) -> usize;
    type Array = unsafe extern "C" fn(usize, usize, usize) -> usize;
    type Aligned = unsafe extern "C" fn(*mut usize, usize, usize) -> i32;
    type WithFlags = unsafe extern "C" fn(usize, i32) -> usize;
    let (bytes, mark, alignment) = (size(random), random.u8(..), 1 << random.u32(4..13));
    // SAFETY: the functions of these names have this type.
    let of_size = |name| unsafe { transmute::<*mut c_void, OfSize>(function(name))(bytes) };
    // SAFETY: the functions of these names have this type.
    let of_two = |name, first| unsafe { transmute::<*mut c_void, OfTwo>(function(name))(first, bytes) };
    // SAFETY: the function has the type of jemalloc's manual.
    let mallocx =
        |bytes, flags| unsafe { transmute::<*mut c_void, WithFlags>(function(c"mallocx"))(bytes, flags) };
    let mut is_zeroed = false;
    let mut is_aligned = false;
    let address = match random.u8(..14) {
        0 => {
            is_zeroed = true;
            of_two(c"calloc", 1)
        }
        1 => {
            is_aligned = true;
            let mut out = 0_usize;
            // SAFETY: the function has this type, and writes an address to `out`.
            let failed = unsafe {
                transmute::<*mut c_void, Aligned>(function(c"posix_memalign"))(&mut out, alignment, bytes)
            };
            assert_eq!(failed, 0);
            out
        }
        2 => {
            is_aligned = true;
            of_two(c"aligned_alloc", alignment)
        }
        3 => {
            is_aligned = true;
            of_two(c"memalign", alignment)
        }
        4 => of_size(c"valloc"),
        5 => of_size(c"pvalloc"),
        6 => of_size(c"_Znwm"),
        // SAFETY: the function has this type. It gets no block.
        7 => unsafe { transmute::<*mut c_void, Array>(function(c"reallocarray"))(0, bytes, 1) },
        8 => mallocx(bytes.max(1), 0),
        9 => mallocx(bytes.max(1), MALLOCX_TCACHE_NONE),
        _ => malloc(bytes),
    };
    assert!(!is_aligned || address.is_multiple_of(alignment));
    if is_zeroed {
        let zeros = Block { address, bytes, mark: 0 };
        zeros.check(bytes);
    }
    Block::new(address, bytes, mark)
}

fn resize(random: &mut fastrand::Rng, block: Block) -> Block {
    type InPlace = unsafe extern "C" fn(usize, usize, usize, i32) -> usize;
    type Resize = unsafe extern "C" fn(usize, usize) -> usize;
    let bytes = size(random).max(1);
    if random.u8(..4) == 0 && block.bytes > 0 {
        // SAFETY: the block is live and this thread's. The function has the type of jemalloc's manual.
        let usable =
            unsafe { transmute::<*mut c_void, InPlace>(function(c"xallocx"))(block.address, bytes, 0, 0) };
        let kept = usable.min(bytes);
        block.check(kept);
        return Block::new(block.address, kept, block.mark.wrapping_add(1));
    }
    // SAFETY: the block is live and this thread's. The function has this type.
    let address = unsafe { transmute::<*mut c_void, Resize>(function(c"realloc"))(block.address, bytes) };
    let moved = Block { address, ..block };
    moved.check(bytes);
    Block::new(address, bytes, block.mark.wrapping_add(1))
}

/// A child has the blocks of the thread that forked, as they were.
fn fork_and_check(random: &mut fastrand::Rng, blocks: &mut Vec<Block>) {
    // SAFETY: the child calls the allocator alone, and ends without destructors.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            while let Some(block) = blocks.pop() {
                block.check_and_free();
                if random.bool() {
                    allocate(random).check_and_free();
                }
            }
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0, "the child failed");
    }
}

fn call_at_random(seed: u64, calls: u64, handed_over: &Mutex<Vec<Block>>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut blocks: Vec<Block> = Vec::new();
    for call in 0..calls {
        let pick = |random: &mut fastrand::Rng, blocks: &mut Vec<Block>| {
            let index = random.usize(..blocks.len());
            blocks.swap_remove(index)
        };
        match random.u8(..16) {
            0..=6 => blocks.push(allocate(&mut random)),
            7..=9 if !blocks.is_empty() => {
                let block = pick(&mut random, &mut blocks);
                blocks.push(resize(&mut random, block));
            }
            10 if !blocks.is_empty() => handed_over.lock().unwrap().push(pick(&mut random, &mut blocks)),
            11 => blocks.extend(handed_over.lock().unwrap().pop()),
            _ if !blocks.is_empty() => pick(&mut random, &mut blocks).check_and_free(),
            _ => {}
        }
        if call % (calls / 4) == calls / 8 {
            fork_and_check(&mut random, &mut blocks);
        }
    }
    blocks.into_iter().for_each(Block::check_and_free);
}

fn call_all() {
    let (seed, calls) = (ziptier_testing::seed(), ziptier_testing::count("ZIPTIER_ALLOC_CALLS", 1_000_000));
    let handed_over = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let handed_over = &handed_over;
            scope.spawn(move || call_at_random(seed + thread, calls / THREADS, handed_over));
        }
    });
    handed_over.into_inner().unwrap().into_iter().for_each(Block::check_and_free);
}

#[test]
fn by_ratio() {
    in_child("a_million_calls_agree_with_a_shadow::by_ratio", "ratio=1:3", call_all);
}

#[test]
fn with_everything_in_far_memory() {
    let name = "a_million_calls_agree_with_a_shadow::with_everything_in_far_memory";
    in_child(name, "policy=only-far", call_all);
}
