//! The allocator refuses the memory for a block. RocksDB's process goes on: the read of a block is an error that does
//! not condemn the block, a new block is stored raw, the block cache misses, the log does without a buffer, and a
//! reader of another process's log fails. Rust would end the process.

#![allow(clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use ziptier_media::disk::Claim;
use ziptier_rocksdb::cache::{self, Admission, Cache, Kind};
use ziptier_rocksdb::codec::{
    BlockType, CANNED, Codec, ENTROPY_PARTS, Guidance, LZ4, Packed, TOKENS, UnpackError, ZLIB, ZSTD,
};
use ziptier_rocksdb::counters::Counters;
use ziptier_rocksdb::generation::Generation;
use ziptier_rocksdb::settings::Settings;
use ziptier_rocksdb::wal::{LogFile, LogReader};

/// The system's allocator, which refuses what is longer than [`LONGEST`].
struct Refusing;

static LONGEST: AtomicUsize = AtomicUsize::new(usize::MAX);

// SAFETY: every call goes on to the system's allocator as it came, or is refused, as any may be.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LONGEST.load(Relaxed) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if bytes > LONGEST.load(Relaxed) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's contract is the same.
        unsafe { System.realloc(address, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// Runs `work` in a new thread, which has no scratch yet, while the allocator refuses more than a MiB.
fn refused<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    refused_above(1 << 20, work)
}

fn refused_above<T: Send>(bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        LONGEST.store(bytes, Relaxed);
        let result = scope.spawn(work).join();
        LONGEST.store(usize::MAX, Relaxed);
        result.unwrap()
    })
}

/// Rows of words, of which no two blocks are equal.
fn text(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut text = Vec::new();
    while text.len() < bytes {
        let words = ["alpha", "bravo", "charlie", "delta", "echo"];
        text.extend(format!("{} {};", words[random.usize(..words.len())], random.u16(..1000)).bytes());
    }
    text
}

fn unpack_refused(codec: &Codec, packed_as: BlockType, generation: Option<&Generation>) {
    let raw = text(8 << 20, 1);
    let mut packed = Vec::new();
    let mut pack = || codec.pack(packed_as, generation, &raw, raw.len(), |bytes| packed = bytes.to_vec());
    assert_eq!(refused(&mut pack), Packed::Declined);
    let made = pack();
    let Packed::Into(made, _) = made else { panic!("{packed_as:#x} declined") };
    assert_eq!(made, if generation.is_none() && packed_as == TOKENS { ZSTD } else { packed_as });
    // A length comes first.
    let start = packed.iter().position(|byte| *byte < 0x80).unwrap() + 1;
    let unpack =
        || codec.unpack(made, generation, &packed[start..], raw.len(), |block| assert!(block == raw));
    let error = refused(unpack).unwrap_err();
    assert!(matches!(error, UnpackError::Engine(_)), "{error}");
    assert!(error.to_string().contains("bytes of memory for a block were refused"), "{error}");
    unpack().unwrap();
}

fn codec(format: &str, huffman: &str) -> Codec {
    with_level(format, huffman, 0)
}

fn with_level(format: &str, huffman: &str, level: i32) -> Codec {
    Codec::open(Settings::parse(format, "auto", huffman, level, "").unwrap()).unwrap()
}

#[test]
fn a_block_is_declined_or_an_error_and_comes_later() {
    unpack_refused(&codec("deflate", "dynamic"), ZLIB, None);
    unpack_refused(&codec("lz4", "dynamic"), LZ4, None);
    let tokens = codec("token", "dynamic");
    unpack_refused(&tokens, TOKENS, None);
    let Guidance::Sample(bytes) = tokens.guidance(true) else { panic!("the first file is sampled") };
    let blocks: Vec<Vec<u8>> = (0..bytes as u64 / 5000).map(|seed| text(5000, seed)).collect();
    let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    let generation: Arc<Generation> = tokens.train(&samples).unwrap();
    unpack_refused(&tokens, TOKENS, Some(&generation));
    let dense = with_level("token", "dynamic", 2);
    let generation: Arc<Generation> = dense.train(&samples).unwrap();
    unpack_refused(&dense, ENTROPY_PARTS, Some(&generation));
}

/// The decoder's buffer grew to twice the block.
#[test]
fn a_canned_block_is_read_where_it_has_room() {
    let canned = codec("deflate", "canned");
    let blocks: Vec<Vec<u8>> = (0..400).map(|seed| text(5000, seed)).collect();
    let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    let generation: Arc<Generation> = canned.train(&samples).unwrap();
    let raw = text((8 << 20) + 1, 1);
    let mut packed = Vec::new();
    let made = canned.pack(CANNED, Some(&generation), &raw, raw.len(), |bytes| packed = bytes.to_vec());
    assert!(matches!(made, Packed::Into(CANNED, _)), "{made:?}");
    // A length comes first.
    let start = packed.iter().position(|byte| *byte < 0x80).unwrap() + 1;
    let unpack = || {
        canned.unpack(CANNED, Some(&generation), &packed[start..], raw.len(), |block| assert!(block == raw))
    };
    refused_above(raw.len(), unpack).unwrap();
}

/// Rows of a block, each list of the encoder, and the table of codes are refused in turn.
#[test]
fn tokens_give_way_to_the_raw_block_at_any_refusal() {
    [1, 2].into_iter().for_each(gives_way);
}

fn trained(level: i32) -> (Codec, Arc<Generation>) {
    let tokens = with_level("token", "dynamic", level);
    let blocks: Vec<Vec<u8>> = (0..400).map(|seed| text(5000, seed)).collect();
    let samples: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    let generation = tokens.train(&samples).unwrap();
    (tokens, generation)
}

fn gives_way(level: i32) {
    let (tokens, generation) = trained(level);
    // One row, rows of 512 bytes, and as many rows as a block can have: entries of three zeros, and no restart point.
    for raw in [text(400, 1), text(2 << 20, 1), vec![0; (3 << 17) + 4]] {
        let pack = || tokens.pack(TOKENS, Some(&generation), &raw, raw.len(), |_| ());
        let mut refusals = 0;
        for bits in 14..24 {
            refusals += usize::from(refused_above(1 << bits, pack) == Packed::Declined);
        }
        assert!(raw.len() < 1000 || refusals > 0, "{} bytes", raw.len());
    }
}

/// The encoder of tokens gets no memory, and then that of the block alone.
#[test]
fn each_refusal_counts_as_a_failure() {
    let (tokens, generation) = trained(1);
    let raw = text(2 << 20, 1);
    let failures = || -> u64 {
        let told = Counters::of_process().to_string();
        let failures = told.lines().find_map(|line| line.strip_prefix("failures "));
        failures.unwrap().parse().unwrap()
    };
    let before = failures();
    let pack = || tokens.pack(TOKENS, Some(&generation), &raw, raw.len(), |_| ());
    assert_eq!(refused_above(16 << 10, pack), Packed::Declined);
    assert_eq!(failures() - before, 2);
}

#[test]
fn the_cache_misses_and_the_block_comes_later() {
    let folder = tempfile::tempdir().unwrap();
    let settings =
        cache::Settings { admission: Admission::All, ..cache::Settings::new(folder.path(), 256 << 20) };
    let cache = Cache::open(&settings).unwrap();
    let put_small = || cache.put(b"small", Kind::default(), b"block");
    assert!(!refused(put_small), "in a buffer of a MiB");
    assert!(put_small());
    let packs = text(3 << 19, 1);
    let mut random = fastrand::Rng::with_seed(2);
    let is_raw: Vec<u8> = (0..3 << 19).map(|_| random.u8(..)).collect();
    for (key, block) in [(b"0123456789abcdef", &packs), (b"fedcba9876543210", &is_raw)] {
        let put = || cache.put(key, Kind::default(), block);
        let get = || cache.get(key, |_, found| assert!(found == block)).is_some();
        assert!(!refused(put) && !get() && put());
        assert!(!refused(get), "from memory");
        cache.flush();
        assert!(!refused(get), "from a file");
        assert!(get());
    }
    assert_eq!(cache.counters().damaged.get(), 0);
}

/// The index has a table of 828 places for 700 entries, and 1,035 places would take more than 8 KiB.
#[test]
fn the_cache_forgets_what_its_index_has_no_room_for() {
    // 64 tables.
    const KEYS: u32 = 64 * 700;
    let folder = tempfile::tempdir().unwrap();
    let settings =
        cache::Settings { codec: cache::Codec::None, ..cache::Settings::new(folder.path(), 256 << 20) };
    let cache = Cache::open(&settings).unwrap();
    let put = |keys: std::ops::Range<u32>| {
        keys.filter(|key| cache.put(&key.to_le_bytes(), Kind::default(), b"block")).count()
    };
    let found = |cache: &Cache, keys: std::ops::Range<u32>| {
        keys.filter(|key| cache.get(&key.to_le_bytes(), |_, _| ()).is_some()).count()
    };
    assert_eq!(put(0..KEYS), KEYS as usize);
    let stored = refused_above(8 << 10, || put(KEYS..KEYS + 8_000));
    assert_eq!(found(&cache, 0..KEYS), KEYS as usize);
    assert!(found(&cache, KEYS..KEYS + 8_000) <= stored);
    drop(cache);
    // After a crash, the segments are read in pieces of 4 MiB.
    fs::remove_file(folder.path().join("index")).unwrap();
    let cache = refused_above(2 << 20, || Cache::open(&settings)).unwrap();
    assert_eq!(found(&cache, 0..KEYS), 0);
}

/// The saved index has a table of 3 MiB. The segment, of 4 MiB, has no room either.
#[test]
fn a_saved_index_that_has_no_room_is_left_out() {
    const ENTRIES_BYTES: usize = 3 << 20;
    let folder = tempfile::tempdir().unwrap();
    let settings =
        cache::Settings { codec: cache::Codec::None, ..cache::Settings::new(folder.path(), 256 << 20) };
    let cache = Cache::open(&settings).unwrap();
    assert!(cache.put(b"key", Kind::default(), b"block"));
    drop(cache);
    let path = folder.path().join("index");
    let mut index = fs::read(&path).unwrap();
    // Behind 16 bytes with the count of segments, and 32 for each, stands the count of the first table's entries.
    let count_at = 16 + 32 * u32::from_le_bytes(index[12..16].try_into().unwrap()) as usize;
    index[count_at..count_at + 4].copy_from_slice(&(ENTRIES_BYTES as u32 / 12).to_le_bytes());
    index.resize(count_at + 4 + ENTRIES_BYTES + 4, 0);
    fs::write(&path, index).unwrap();
    let cache = refused_above(2 << 20, || Cache::open(&settings)).unwrap();
    assert!(cache.get(b"key", |_, _| ()).is_none());
    assert!(!path.exists());
}

#[test]
fn a_log_gets_room() {
    const APPENDS: usize = 20;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("000007.log");
    fs::write(&path, []).unwrap();
    let log = refused_above(16 << 10, || {
        let log = LogFile::begin(&path).unwrap();
        for _ in 0..APPENDS {
            log.append(&[7; 1000]).unwrap();
            log.sync().unwrap();
        }
        log
    });
    assert!(fs::metadata(&path).unwrap().len() >= 256 << 10, "the log has no room");
    log.close().unwrap();
    assert!(fs::read(&path).unwrap() == vec![7; 1000 * APPENDS]);
}

/// A process that does not write the log walks over its records in buffers of 32 KiB.
#[test]
fn a_followed_log_is_an_error_and_is_read_later() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["000007.log", "000009.log"].map(|name| folder.path().join(name));
    // Room without a record: to a follower the log is empty.
    paths.iter().for_each(|path| fs::write(path, [0_u8; 100]).unwrap());
    let _claim = Claim::lay(&paths[0], 7).unwrap();
    // The second log is followed from its opening on, because the folder of the first one is.
    for path in &paths {
        let reader = LogReader::open(path).unwrap();
        for _ in 0..2 {
            let error = refused_above(16 << 10, || reader.bytes()).unwrap_err();
            assert!(error.to_string().ends_with("out of memory"), "{error}");
            assert!(refused_above(16 << 10, || reader.read(0, &mut [7; 10])).is_err());
        }
        assert_eq!((reader.bytes().unwrap(), reader.read(0, &mut [7; 10]).unwrap()), (0, 0));
    }
}
