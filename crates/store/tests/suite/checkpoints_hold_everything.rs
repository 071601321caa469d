//! A checkpoint that leaves out a leaf, cuts one wrong, or lets go of a dictionary loses what the log no longer has.
//! Here everything must be there again after checkpoints, with every codec, while leaves are split, joined, recoded and
//! written to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ziptier::{Batch, BlockOptions, CodecChoice, Huffman, Options, PutMeta, Store};
use ziptier_media::testing::RecordingDisk;

use crate::durable::{SetOnDrop, contents, options, put_versions, value};

const CODECS: [CodecChoice; 6] = [
    CodecChoice::Auto,
    CodecChoice::None,
    CodecChoice::Token,
    CodecChoice::Lz4,
    CodecChoice::Zstd,
    CodecChoice::Deflate,
];

fn open(disk: &RecordingDisk, codec: CodecChoice) -> Store {
    Store::open(options(Arc::new(disk.clone()), codec)).unwrap()
}

/// Records of all kinds and sizes; another `round` changes some of them.
fn write(store: &Store, keys: u64, round: u64) {
    let mut random = fastrand::Rng::with_seed(round);
    for _ in 0..keys {
        let n = random.u64(..keys);
        let key = format!("key:{n:08}").into_bytes();
        let bytes = match n % 50 {
            0 => 0,
            1 => 5000,
            2 => 1900,
            _ => 40 + n as usize % 100,
        };
        match random.u32(..20) {
            0 => drop(store.delete(&key).unwrap()),
            1 => drop(store.set_expiry(&key, Some((1 << 44) + n)).unwrap()),
            2 => store
                .put_with(
                    &key,
                    &value(n ^ round << 32, bytes),
                    PutMeta { expires_at_ms: Some(1 << 45), flags: 9 },
                )
                .unwrap(),
            3 => drop(store.copy(&key, &[&key[..], b"'"].concat(), true).unwrap()),
            4 => {
                let batch =
                    Batch::new().put(&key, b"in a batch").delete(format!("key:{:08}", n / 2).as_bytes());
                assert!(store.write(&batch).unwrap());
            }
            _ => store.put(&key, &value(n ^ round << 32, bytes)).unwrap(),
        }
    }
}

#[test]
fn a_check_counts_the_records_that_a_start_replays() {
    let disk = RecordingDisk::new();
    let store = open(&disk, CodecChoice::None);
    for n in 0..100 {
        store.put(&[n], b"in the checkpoint, and in the log").unwrap();
    }
    store.checkpoint().unwrap();
    for n in 0..3 {
        store.put(&[n], b"in the log").unwrap();
    }
    drop(store);
    let durable = options(Arc::new(disk.clone()), CodecChoice::None).durable.unwrap();
    let report = ziptier::check(&durable).unwrap();
    assert_eq!((report.records, report.log_records), (100, 3), "{report:?}");
    assert_eq!(report.damages, []);
}

/// Whoever waits for a start is told one way to go, images and log together.
#[test]
fn a_recovery_tells_how_far_it_is_of_all_that_it_reads() {
    let disk = RecordingDisk::new();
    let store = open(&disk, CodecChoice::None);
    for n in 0..10_000_u64 {
        store.put(&n.to_be_bytes(), &[7; 1000]).unwrap();
    }
    store.checkpoint().unwrap();
    for n in 0..10_000_u64 {
        store.put(&n.to_be_bytes(), &[8; 100]).unwrap();
    }
    let mut told = Vec::new();
    let options = options(Arc::new(disk.killed()), CodecChoice::None);
    let reopened = Store::open_with(options, |recovery| told.push(recovery)).unwrap();
    assert_eq!(reopened.recovered().unwrap().records, 10_000);
    let all_bytes = told[0].all_bytes;
    assert!(told.iter().all(|at| at.all_bytes == all_bytes && at.done_bytes <= all_bytes), "{told:?}");
    assert!(told.is_sorted_by_key(|at| at.done_bytes), "{told:?}");
    // Some of the images, and all of them with some of the log.
    assert!(told[0].done_bytes < 8 << 20 && told.last().unwrap().done_bytes > 10 << 20, "{told:?}");
}

#[test]
fn everything_is_there_again_with_every_codec() {
    for codec in CODECS {
        let disk = RecordingDisk::new();
        let mut store = open(&disk, codec);
        for round in 0..4 {
            write(&store, 3000, round);
            match round {
                1 => store.settle().unwrap(),
                2 => store.put(b"huge", &value(1, 3_000_000)).unwrap(),
                _ => {}
            }
            store.checkpoint().unwrap();
            let at_checkpoint = contents(&store);
            let copy = open(&disk.copy(), codec);
            assert_eq!(copy.recovered().unwrap().records, 0, "the log before is not needed");
            assert_eq!(contents(&copy), at_checkpoint, "{codec}, round {round}");
            write(&store, 500, round + 100);
            let before = contents(&store);
            let copy = open(&disk.copy(), codec);
            assert!(copy.recovered().unwrap().records > 0);
            assert_eq!(contents(&copy), before, "{codec}, round {round}");
            store.close().unwrap();
            store = open(&disk, codec);
            assert_eq!(contents(&store), before);
            assert_eq!(store.len(), before.len() as u64);
        }
    }
}

#[test]
fn what_did_not_change_is_not_written_again() {
    let disk = RecordingDisk::new();
    let store = open(&disk, CodecChoice::Auto);
    write(&store, 60_000, 1);
    store.settle().unwrap();
    store.checkpoint().unwrap();
    let first = store.checkpoint_stats().unwrap();
    assert!(first.images > 100 && first.images_kept == 0, "{first:?}");
    store.checkpoint().unwrap();
    let second = store.checkpoint_stats().unwrap();
    assert_eq!((second.images, second.images_kept), (first.images, first.images));
    store.put(b"key:00000007", b"changed").unwrap();
    store.checkpoint().unwrap();
    // Settled meanwhile, it still says what its image says.
    store.settle().unwrap();
    store.checkpoint().unwrap();
    let third = store.checkpoint_stats().unwrap();
    assert_eq!(third.images, first.images + 1, "{third:?}");
    drop(store);
    let again = open(&disk, CodecChoice::Auto);
    again.checkpoint().unwrap();
    assert_eq!(again.checkpoint_stats().unwrap().images, 0);
}

#[test]
fn a_clean_stop_leaves_little_to_replay() {
    for (bound, replays) in [(1 << 20, false), (16 << 20, true)] {
        let disk = RecordingDisk::new();
        let mut options = options(Arc::new(disk.clone()), CodecChoice::Auto);
        options.durable.as_mut().unwrap().checkpoint_log_bytes = Some(bound);
        let store = Store::open(options.clone()).unwrap();
        write(&store, 2000, 1);
        let before = contents(&store);
        store.close().unwrap();
        let again = Store::open(options).unwrap();
        let recovered = again.recovered().unwrap();
        assert!(recovered.is_sealed && (recovered.records > 0) == replays, "{recovered:?}");
        assert_eq!(contents(&again), before);
    }
}

#[test]
fn a_checkpoint_that_was_asked_for_is_made_in_the_background() {
    let store = open(&RecordingDisk::new(), CodecChoice::Auto);
    write(&store, 200, 1);
    let begun = store.checkpoint_stats().unwrap();
    assert!(begun.start_lsn == 1 && !begun.is_running, "{begun:?}");
    assert!(store.begin_checkpoint());
    let stats = loop {
        let stats = store.checkpoint_stats().unwrap();
        if !stats.is_running {
            break stats;
        }
        std::thread::yield_now();
    };
    assert_eq!((stats.checkpoints, stats.failed), (1, 0));
    assert_eq!(stats.start_lsn, store.durable_stats().unwrap().last_lsn + 1);
    assert!(!Store::open(Options::default()).unwrap().begin_checkpoint(), "there is no folder");
}

/// Enough of the same kind for dictionaries, which blocks have from 6.4 MB on.
const DICTIONARY_KEYS: u64 = 45_000;

fn fill_for_dictionaries(store: &Store) {
    for n in 0..DICTIONARY_KEYS {
        store.put(format!("key:{n:08}").as_bytes(), &value(n, 150)).unwrap();
    }
    store.settle().unwrap();
}

fn dictionary_options(disk: &RecordingDisk, codec: CodecChoice) -> Options {
    let block = BlockOptions { huffman: Huffman::Canned, ..BlockOptions::default() };
    let mut options = Options { block, ..options(Arc::new(disk.clone()), codec) };
    let durable = options.durable.as_mut().unwrap();
    durable.log.segment_bytes = 4 << 20;
    durable.segments.segment_bytes = 1 << 20;
    durable.segments.write_bytes = 1 << 16;
    durable.durability = ziptier::Durability::No;
    options
}

/// What is held for records; readers of other tests may keep what is retired.
fn held_bytes(store: &Store) -> u64 {
    let memory = store.memory();
    memory.total_bytes() - memory.retired_bytes
}

#[test]
fn dictionaries_come_back_and_any_codec_reads_what_any_wrote() {
    let codecs = [CodecChoice::Auto, CodecChoice::Zstd, CodecChoice::Deflate, CodecChoice::None];
    for (index, codec) in codecs.into_iter().enumerate() {
        let disk = RecordingDisk::new();
        let store = Store::open(dictionary_options(&disk, codec)).unwrap();
        fill_for_dictionaries(&store);
        let generation = store.stats().dictionary_generation;
        assert_eq!(generation > 0, codec != CodecChoice::None, "{codec}");
        store.checkpoint().unwrap();
        let (before, held) = (contents(&store), held_bytes(&store));
        store.close().unwrap();

        let again = Store::open(dictionary_options(&disk.copy(), codec)).unwrap();
        assert_eq!(again.stats().dictionary_generation, generation);
        assert_eq!(
            again.memory().logical_bytes,
            before.iter().map(|(k, v)| (k.len() + v.0.len()) as u64).sum()
        );
        let held_again = held_bytes(&again);
        assert!(held_again < held + held / 8, "{codec}: {held_again} bytes are held, and were {held}");
        assert!(contents(&again) == before, "{codec}");
        drop(again);

        let other = codecs[(index + 1) % codecs.len()];
        let disk = disk.copy();
        for codec in [other, codec] {
            let store = Store::open(dictionary_options(&disk, codec)).unwrap();
            assert!(contents(&store) == before, "read by {codec}");
            for n in (0..DICTIONARY_KEYS).step_by(100) {
                let key = format!("key:{n:08}").into_bytes();
                store.put(&key, &before[&key].0).unwrap();
            }
            store.settle().unwrap();
            assert!(contents(&store) == before, "settled by {codec}");
            store.checkpoint().unwrap();
        }
    }
}

#[test]
fn segments_are_given_back_while_records_are_updated() {
    let disk = RecordingDisk::new();
    let store = open(&disk, CodecChoice::None);
    for round in 0..30 {
        // Every fourth leaf or so changes: segments die slowly.
        for n in (round % 7..4000).step_by(300) {
            store.put(format!("key:{n:08}").as_bytes(), &value(n ^ round << 32, 300)).unwrap();
        }
        if round == 0 {
            (0..4000).for_each(|n| store.put(format!("key:{n:08}").as_bytes(), &value(n, 300)).unwrap());
        }
        store.checkpoint().unwrap();
    }
    let stats = store.checkpoint_stats().unwrap();
    assert!(stats.segment_allocated_bytes < 4 * stats.segment_live_bytes, "{stats:?}");
    assert!(store.durable_stats().unwrap().first_lsn > 4000, "the log before is gone");
    let before = contents(&store);
    drop(store);
    assert_eq!(contents(&open(&disk, CodecChoice::None)), before);
}

#[test]
fn large_values_that_move_while_checkpoints_are_made_are_there_again() {
    let disk = RecordingDisk::new();
    let mut options = options(Arc::new(disk.clone()), CodecChoice::Auto);
    options.durable.as_mut().unwrap().durability = ziptier::Durability::No;
    let store = Store::open(options).unwrap();
    (0..3000).for_each(|n| store.put(format!("m:{n:05}").as_bytes(), &value(n, 100)).unwrap());
    let name = |side: &str, n: u64| format!("{side}:large:{n}").into_bytes();
    (0..8).for_each(|n| store.put(&name("a", n), &value(n, 5000 + n as usize)).unwrap());
    let is_over = AtomicBool::new(false);
    let copies: Vec<RecordingDisk> = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(1);
            while !is_over.load(Ordering::Relaxed) {
                let n = random.u64(..8);
                let (from, to) = if random.bool() { ("a", "z") } else { ("z", "a") };
                store.rename(&name(from, n), &name(to, n), true).unwrap();
                std::thread::yield_now();
            }
        });
        let _ends = SetOnDrop(&is_over);
        let copies = (0..40).map(|_| {
            store.checkpoint().unwrap();
            disk.copy()
        });
        copies.collect()
    });
    for copy in copies {
        let copy = open(&copy, CodecChoice::Auto);
        for n in 0..8 {
            let found: Vec<_> =
                ["a", "z"].iter().filter_map(|side| copy.get(&name(side, n)).unwrap()).collect();
            assert_eq!(found, [value(n, 5000 + n as usize)], "value {n}");
        }
    }
    let before = contents(&store);
    drop(store);
    assert_eq!(contents(&open(&disk, CodecChoice::Auto)), before);
}

#[test]
fn writers_go_on_while_checkpoints_are_made() {
    const KEYS: u64 = 3000;
    for codec in [CodecChoice::Auto, CodecChoice::Zstd] {
        let disk = RecordingDisk::new();
        let mut options = options(Arc::new(disk.clone()), codec);
        options.background_threads = 1;
        options.durable.as_mut().unwrap().durability = ziptier::Durability::No;
        let store = Store::open(options).unwrap();
        let acknowledged: Vec<AtomicU64> = (0..2 * KEYS).map(|_| AtomicU64::new(0)).collect();
        let is_over = AtomicBool::new(false);
        let copies = std::thread::scope(|scope| {
            for writer in 0..2 {
                let (store, acknowledged) = (&store, &acknowledged);
                scope.spawn(move || put_versions(store, writer, acknowledged));
            }
            let checkpoints = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    store.checkpoint().unwrap();
                }
            });
            let mut copies = Vec::new();
            for _ in 0..10 {
                std::thread::sleep(std::time::Duration::from_millis(50));
                let versions: Vec<u64> =
                    acknowledged.iter().map(|version| version.load(Ordering::SeqCst)).collect();
                copies.push((disk.copy(), versions));
            }
            is_over.store(true, Ordering::Relaxed);
            checkpoints.join().unwrap();
            copies
        });
        for (copy, versions) in copies {
            let copy = open(&copy, codec);
            for (n, version) in versions.iter().enumerate() {
                let found = copy.get(format!("key:{n:08}").as_bytes()).unwrap();
                let found = found.map_or(0, |bytes| u64::from_be_bytes(bytes[..8].try_into().unwrap()));
                assert!(
                    found >= *version,
                    "{codec}, key {n}: version {version} was acknowledged, {found} found"
                );
            }
        }
        let before = contents(&store);
        store.checkpoint().unwrap();
        drop(store);
        assert_eq!(contents(&open(&disk, codec)), before);
    }
}
