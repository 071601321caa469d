//! Values that live outside their leaf, several times what memory holds: they must be read, changed, compared and kept
//! from SSD as from memory, with a folder and without.
//!
//! `ZIPTIER_ROUNDS` says how often each value is written while it moves and is read.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ziptier::{
    Batch, CodecChoice, Condition, Durability, DurableOptions, Error, Options, SsdOptions, Store, Update,
    Values, check, dump, restore,
};
use ziptier_testing::{count, until};

use crate::durable::{SetOnDrop, flip_bits, names_file_and_place};
use crate::waiting::until_telling;

const MEMORY: u64 = 4 << 20;
/// 24 MiB in all, in values of several chunks, and of several pieces.
const KEYS: u64 = 200;

fn options(dir: &Path, is_durable: bool, memory: u64, ssd: u64) -> Options {
    let mut durable = DurableOptions::new(dir.join("store"));
    durable.durability = Durability::No;
    durable.checkpoint_log_bytes = Some(8 << 20);
    durable.log.segment_bytes = 4 << 20;
    Options {
        memory_limit_bytes: Some(memory),
        ssd: Some(SsdOptions { path: Some(dir.join("segments")), limit_bytes: ssd }),
        durable: is_durable.then_some(durable),
        ..Options::default()
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:06}").into_bytes()
}

/// Noise, or text that compresses.
fn value(n: u64, round: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n << 8 | round);
    let len = match n % 50 {
        0 => 1_300_000,
        1..10 => 300_000,
        _ => 3000 + random.usize(..100_000),
    };
    if n.is_multiple_of(3) {
        return format!("a line of value {n} in round {round}\n").repeat(len / 30).into_bytes();
    }
    let mut noise = vec![0; len];
    random.fill(&mut noise);
    noise
}

fn fill(store: &Store, round: u64) {
    for n in 0..KEYS {
        let n = n * 77 % KEYS;
        let outcome = store.put(&key(n), &value(n, round));
        assert_eq!(outcome, Ok(()), "{n} in round {round}: {:?}, {:?}", store.memory(), store.ssd());
        let held = store.memory().total_bytes();
        assert!(held <= MEMORY + MEMORY / 8, "{n} in round {round}: {:?}", store.memory());
    }
}

fn audit(store: &Store, round: u64) {
    for n in 0..KEYS {
        assert!(store.get(&key(n)).unwrap() == Some(value(n, round)), "{n}");
    }
}

#[test]
fn large_values_beyond_memory_are_read_and_changed() {
    for is_durable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(options(dir.path(), is_durable, MEMORY, 256 << 20)).unwrap();
        fill(&store, 0);
        audit(&store, 0);
        assert!(store.ssd().unwrap().live_bytes > 3 * MEMORY, "{:?}", store.ssd());
        // In pieces, from the middle, several at once, in order.
        let (mut part, mut whole) = (Vec::new(), Vec::new());
        let open = store.open_value(&key(50)).unwrap().unwrap();
        while whole.len() < open.meta().len as usize {
            open.read_at(whole.len() as u64, 60_000, &mut whole).unwrap();
        }
        assert!(whole == value(50, 0));
        // Backwards, too, across what was read last.
        for (offset, len) in [(1_100_000, 1), (900_000, 400_000), (1_100_000, 1000), (0, 1), (1_299_999, 1)] {
            let mut part = Vec::new();
            open.read_at(offset, len, &mut part).unwrap();
            assert!(part == whole[offset as usize..][..len], "{offset}");
        }
        store.read_at(&key(50), 1_100_000, 70_000, &mut part).unwrap();
        assert!(part == value(50, 0)[1_100_000..1_170_000]);
        let keys: Vec<_> = (90..100).map(key).collect();
        let mut values = Values::default();
        store.multi_get(&keys, &mut values).unwrap();
        (0..10).for_each(|at| assert!(values.get(at) == Some(&value(90 + at as u64, 0)[..])));
        let records: Result<Vec<_>, _> = store.range(..).collect();
        assert!(records.unwrap().into_iter().zip(0..).all(|(record, n)| record == (key(n), value(n, 0))));
        // Conditions, new values, names and expiries.
        let batch =
            |wanted: Vec<u8>| Batch::new().require(&key(7), Condition::ValueIs(wanted)).put(b"b", b"1");
        let mut other = value(7, 0);
        other[299_999] ^= 1;
        assert!(!store.write(&batch(other)).unwrap());
        assert!(store.write(&batch(value(7, 0))).unwrap());
        store
            .update(&key(8), |found| Update::Put(found.unwrap().0[..100].to_vec(), Default::default()))
            .unwrap();
        assert!(store.get(&key(8)).unwrap().unwrap() == value(8, 0)[..100]);
        store.rename(&key(9), b"renamed", true).unwrap();
        store.copy(b"renamed", b"copied", true).unwrap();
        assert!(store.set_expiry(b"copied", Some(1 << 44)).unwrap());
        assert!(store.delete(b"renamed").unwrap());
        assert!(store.get(b"copied").unwrap() == Some(value(9, 0)));
        fill(&store, 1);
        audit(&store, 1);
        // What shadows a record on SSD is known when both are in memory.
        store.bring_from_ssd(|| true);
        let logical: u64 =
            store.range(..).map(|record| record.map(|(k, v)| k.len() + v.len()).unwrap() as u64).sum();
        store.settle().unwrap();
        assert_eq!(store.memory().logical_bytes, logical);
    }
}

#[test]
fn large_values_on_ssd_are_there_again_and_not_read_at_a_start() {
    let dir = tempfile::tempdir().unwrap();
    let options = |memory| options(dir.path(), true, memory, 256 << 20);
    let store = Store::open(options(MEMORY)).unwrap();
    fill(&store, 0);
    // A leaf that the background packs after the checkpoint is written again, rightly.
    store.settle().unwrap();
    store.checkpoint().unwrap();
    let written = store.checkpoint_stats().unwrap().segment_written_bytes;
    // What a checkpoint has leaves memory without being written again.
    store.send_to_ssd(|| true).unwrap();
    store.checkpoint().unwrap();
    let again = store.checkpoint_stats().unwrap().segment_written_bytes;
    assert!(again < written + (1 << 20), "{written}, then {again}");
    fill(&store, 1);
    store.close().unwrap();
    for memory in [MEMORY, 64 << 20, MEMORY] {
        let durable = options(memory).durable.unwrap();
        assert_eq!(check(&durable).unwrap().damages, []);
        let store = Store::open(options(memory)).unwrap();
        assert!(store.memory().total_bytes() <= memory + memory / 8);
        audit(&store, 1);
        assert_eq!(store.len(), KEYS);
        store.close().unwrap();
    }
}

#[test]
fn room_of_large_values_comes_back() {
    for is_durable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        // No room is won by coding the values.
        let options =
            Options { codec: CodecChoice::None, ..options(dir.path(), is_durable, MEMORY, 96 << 20) };
        let store = Store::open(options).unwrap();
        for round in 0..6 {
            fill(&store, round);
        }
        let ssd = store.ssd().unwrap();
        assert!(ssd.allocated_bytes <= 96 << 20 && ssd.written_bytes > 96 << 20, "{ssd:?}");
        audit(&store, 5);
    }
}

#[test]
fn readers_see_whole_values_while_they_move() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(options(dir.path(), true, MEMORY, 128 << 20)).unwrap();
    let versioned = |n: u64, version: u64| {
        let mut bytes = version.to_be_bytes().to_vec();
        bytes.extend(fastrand::Rng::with_seed(n ^ version << 32).u64(..).to_be_bytes().repeat(9000));
        bytes
    };
    let rounds = count("ZIPTIER_ROUNDS", 6);
    (0..64).for_each(|n| store.put(&key(n), &versioned(n, 0)).unwrap());
    let (is_over, reads, moves) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _ends = SetOnDrop(&is_over);
        let (store, is_over, reads, moves) = (&store, &is_over, &reads, &moves);
        for seed in 0..2 {
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !is_over.load(Ordering::Relaxed) {
                    let n = random.u64(..64);
                    let found = store.get(&key(n)).unwrap().unwrap();
                    let version = u64::from_be_bytes(found[..8].try_into().unwrap());
                    assert!(found == versioned(n, version), "{n}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(move || {
            let mut random = fastrand::Rng::with_seed(ziptier_testing::seed());
            while !is_over.load(Ordering::Relaxed) {
                store.send_to_ssd(|| random.bool()).unwrap();
                store.checkpoint().unwrap();
                moves.fetch_add(1, Ordering::Relaxed);
            }
        });
        for version in 1..=rounds {
            (0..64).for_each(|n| store.put(&key(n), &versioned(n, version)).unwrap());
            // Every version is read while it moves, however few processors there are.
            let (read, moved) = (reads.load(Ordering::Relaxed), moves.load(Ordering::Relaxed));
            until("values of this version were read and moved", || {
                reads.load(Ordering::Relaxed) > read + 20 && moves.load(Ordering::Relaxed) > moved
            });
        }
    });
    (0..64).for_each(|n| assert!(store.get(&key(n)).unwrap() == Some(versioned(n, rounds))));
}

#[test]
fn many_names_of_a_value_share_it_on_ssd() {
    for is_durable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let options = || options(dir.path(), is_durable, 64 << 20, 64 << 20);
        let store = Store::open(options()).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let noise: Vec<u8> = (0..6_000_000).map(|_| random.u8(..)).collect();
        store.put(b"first", &noise).unwrap();
        // Names in several leaves.
        (0..3000).for_each(|n| store.put(&key(n), b"small").unwrap());
        for n in 0..20 {
            store.copy(b"first", format!("key:{:06}/name", n * 150).as_bytes(), true).unwrap();
        }
        // A leaf that is being packed is sent later, and what they shared in memory is free when its last reader is
        // gone.
        until("all large values are on SSD", || {
            store.settle().unwrap();
            store.send_to_ssd(|| true).unwrap();
            store.memory().large_bytes == 0
        });
        let live_bytes = store.ssd().unwrap().live_bytes;
        assert!(
            live_bytes < 8 << 20,
            "{live_bytes} {is_durable} {:?} {:?}",
            store.checkpoint_stats(),
            store.ssd()
        );
        assert!(store.get(b"first").unwrap().as_ref() == Some(&noise));
        store.delete(b"first").unwrap();
        if is_durable {
            store.close().unwrap();
            let store = Store::open(options()).unwrap();
            (0..20).for_each(|n| {
                let name = format!("key:{:06}/name", n * 150);
                assert!(store.get(name.as_bytes()).unwrap().as_ref() == Some(&noise), "{name}");
            });
        }
    }
}

#[test]
fn a_full_ssd_refuses_and_loses_nothing() {
    const LIMIT: u64 = 32 << 20;
    for is_durable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(options(dir.path(), is_durable, MEMORY, LIMIT)).unwrap();
        let mut written = 0;
        let refusal = loop {
            let n = written * 3 + 1;
            match store.put(&key(n), &value(n, 0)) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 1000, "60 MiB do not fit into 36");
        };
        assert!(matches!(refusal, Error::MemoryAndSsdLimit { far_limit_bytes: 0, .. }), "{refusal}");
        assert!(store.memory().total_bytes() <= MEMORY + MEMORY / 8, "{:?}", store.memory());
        assert!(store.ssd().unwrap().allocated_bytes <= LIMIT, "{:?}", store.ssd());
        (0..written)
            .map(|n| n * 3 + 1)
            .for_each(|n| assert!(store.get(&key(n)).unwrap() == Some(value(n, 0)), "{n}"));
        // Deletes are not refused, and give room.
        (0..written / 2).for_each(|n| assert!(store.delete(&key(n * 3 + 1)).unwrap()));
        let again = written / 4;
        for n in 0..again {
            // Nothing goes to an SSD that was full a moment ago.
            let is_put = || store.put(&key(n * 3 + 1), &value(n * 3 + 1, 1)).is_ok();
            let told = || format!("{n} of {written}, {:?}, {:?}", store.ssd(), store.memory());
            until_telling("there is room", is_put, told);
        }
        (0..again).map(|n| n * 3 + 1).for_each(|n| assert!(store.get(&key(n)).unwrap() == Some(value(n, 1))));
    }
}

#[test]
fn leaves_with_many_large_values_are_cut() {
    for is_durable in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(options(dir.path(), is_durable, 3 * MEMORY, 256 << 20)).unwrap();
        let value =
            |n: u64| if n.is_multiple_of(30) { b"small".to_vec() } else { n.to_le_bytes().repeat(263) };
        (0..10_000).for_each(|n| store.put(&key(n), &value(n)).unwrap());
        store.send_to_ssd(|| true).unwrap();
        // All others lie behind one that is there.
        (0..10_000).for_each(|n| store.put(&[&key(600)[..], &key(n)].concat(), &value(1)).unwrap());
        until("the leaf is cut", || store.stats().raised_from_ssd > 0);
        (0..10_000).for_each(|n| assert!(store.get(&key(n)).unwrap() == Some(value(n)), "{n}"));
        assert_eq!(store.range(..).filter(|record| record.is_ok()).count(), 20_000);
    }
}

/// Files of segments that hold anything.
fn segment_files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir.join("segments")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap() != "STORE").collect()
}

#[test]
fn damage_of_a_large_value_on_ssd_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), true, MEMORY, 128 << 20);
    let store = Store::open(options.clone()).unwrap();
    fill(&store, 0);
    // A leaf that is being packed is sent later. A sound copy of a value in memory would hide the damage of another.
    until("all large values are on SSD", || {
        store.settle().unwrap();
        store.send_to_ssd(|| true).unwrap();
        store.memory().large_bytes == 0
    });
    store.checkpoint().unwrap();
    for path in segment_files(dir.path()) {
        flip_bits(&path, 500_000, 2_000_000);
    }
    let is_damaged = |n: &u64| match store.get(&key(*n)) {
        Ok(found) => {
            assert!(found == Some(value(*n, 0)), "{n}");
            false
        }
        Err(error) => {
            assert!(names_file_and_place(&error), "{error}");
            true
        }
    };
    let damaged: Vec<u64> = (0..KEYS).filter(is_damaged).collect();
    assert!(!damaged.is_empty() && damaged.len() < KEYS as usize / 2, "{damaged:?}");
    // A reader in pieces is told, too, and that is counted.
    let open = store.open_value(&key(damaged[0])).unwrap().unwrap();
    let before = store.stats().damaged;
    let error = open.read_at(0, usize::MAX, &mut Vec::new()).unwrap_err();
    assert!(names_file_and_place(&error) && store.stats().damaged > before, "{error}");
    drop(open);
    // Checkpoints go on around it, and what is written over it is sound.
    store.put(&key(KEYS), b"new").unwrap();
    store.checkpoint().unwrap();
    let (sound, damaged) = damaged.split_at(damaged.len() / 2);
    sound.iter().for_each(|n| store.put(&key(*n), &value(*n, 0)).unwrap());
    store.checkpoint().unwrap();
    (0..KEYS).for_each(|n| assert_eq!(is_damaged(&n), damaged.contains(&n), "{n}"));
    store.close().unwrap();
    let damages = check(options.durable.as_ref().unwrap()).unwrap().damages;
    assert!(!damages.is_empty() && damages.iter().all(|damage| damage.path.starts_with(dir.path())));
    if let Err(error) = Store::open(options) {
        assert!(error.to_string().contains("segments/"), "{error}");
    }
}

#[test]
fn a_dump_has_large_values_on_ssd() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), true, MEMORY, 128 << 20);
    let store = Store::open(options.clone()).unwrap();
    fill(&store, 0);
    store.checkpoint().unwrap();
    let mut stream = Vec::new();
    dump(options.durable.as_ref().unwrap(), &mut stream).unwrap();
    drop(store);
    let other = tempfile::tempdir().unwrap();
    let mut durable = DurableOptions::new(other.path().join("store"));
    durable.durability = Durability::No;
    restore(&durable, &mut &*stream).unwrap();
    assert_eq!(check(&durable).unwrap().damages, []);
    let ssd = Some(SsdOptions { path: None, limit_bytes: 128 << 20 });
    let limited =
        Options { durable: Some(durable), ssd, memory_limit_bytes: Some(MEMORY), ..Options::default() };
    let store = Store::open(limited).unwrap();
    assert!(store.memory().total_bytes() < MEMORY, "{:?}", store.memory());
    audit(&store, 0);
}
