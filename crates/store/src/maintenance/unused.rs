//! Leaves that nobody uses get denser token numbers, and leaves that are read get fast ones again.

use std::sync::Arc;

use ziptier_codec::token::entropy::Codes;
use ziptier_codec::token::{Dictionary, Effort, Encoder};
use ziptier_tree::codec_options::CodecChoice;
use ziptier_tree::coding::Coding;
use ziptier_tree::leaf::LeafState;

use super::*;
use crate::options::Options;
use crate::{FarOptions, FarPlace, Store, tierer::Tierer};

const KEYS: u64 = 3_000;

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:09}").into_bytes()
}

/// Words as long as a token, of which each has four successors.
fn value(n: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n);
    let (mut word, mut value) = (random.u32(0..300), Vec::new());
    while value.len() < 200 {
        value.extend_from_slice(format!("{word:03} is a number,").as_bytes());
        word = (word * 5 + random.u32(0..4)) % 300;
    }
    value
}

/// A body has room for more of these if they are condensed.
fn long_value(n: u64) -> Vec<u8> {
    [n, n + KEYS, n + 2 * KEYS].map(value).concat()
}

/// Tokens make no such value smaller.
fn noise(n: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n);
    (0..200).map(|_| random.u8(..)).collect()
}

fn options() -> Options {
    Options { codec: CodecChoice::Auto, background_threads: 0, ..Options::default() }
}

fn store() -> Store {
    store_of(options(), value)
}

/// A store with a dictionary that has codes, and with records in settled leaves that nobody has visited since.
fn store_of(options: Options, value_of: fn(u64) -> Vec<u8>) -> Store {
    let store = Store::open(options).expect("a store without a folder opens");
    let samples: Vec<_> = (KEYS..KEYS + 500).map(value).collect();
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    let dictionary = Dictionary::train(&samples, 10, 1).expect("the sample is sound");
    let codes = Codes::train(&dictionary, &mut Encoder::new(), Effort::Fast, &samples, 64 << 20);
    store.core.tree.dictionaries.adopt(Coding::Tokens(Arc::new(dictionary.with_codes(codes))));
    (0..KEYS).for_each(|n| store.put(&key(n), &value_of(n)).expect("no limit is set"));
    let mut sweep = Sweep::default();
    (0..3).for_each(|_| lap(&store, &mut sweep));
    assert_eq!(store.stats().dictionary_generation, 1, "the store has trained another one");
    store
}

fn lap(store: &Store, sweep: &mut Sweep) {
    while !store.core.reclaimer().sweep(sweep, SWEEP_LEAVES) {}
}

/// Laps that count; what the bodies hold after each.
fn counted_laps<const LAPS: usize>(store: &Store) -> [u64; LAPS] {
    let mut sweep = Sweep::default();
    sweep.counts = true;
    [(); LAPS].map(|()| {
        lap(store, &mut sweep);
        bodies(store)
    })
}

fn round(store: &Store) {
    let mut tierer = Tierer::default();
    while !store.core.tiering().tier(&mut tierer, SWEEP_LEAVES) {}
}

fn bodies(store: &Store) -> u64 {
    store.memory().coded_body_bytes
}

fn leaves(store: &Store) -> u64 {
    let (guard, mut count) = (store.core.tree.pin(), 1);
    let mut leaf = store.core.tree.locate(&[], &guard).0;
    while let Some(right) = leaf.state(&guard).right(&guard) {
        (leaf, count) = (right, count + 1);
    }
    count
}

fn read_all(store: &Store) {
    read_times(store, value, 1);
}

/// Reads everything so often that all leaves have counts.
fn read_much(store: &Store) {
    read_times(store, value, 2 * ziptier_tree::hotness::SAMPLE);
}

fn read_times(store: &Store, value_of: fn(u64) -> Vec<u8>, times: u32) {
    let values: Vec<_> = (0..KEYS).map(value_of).collect();
    for (n, value) in (0..times).flat_map(|_| (0..).zip(&values)) {
        assert_eq!(store.get(&key(n)).expect("nothing is damaged").as_ref(), Some(value), "key {n}");
    }
}

#[test]
fn leaves_that_nobody_uses_are_condensed_and_leaves_that_are_read_are_relaxed() {
    let store = store();
    let plain = bodies(&store);
    let [first, second, third] = counted_laps(&store);
    assert_eq!(first, plain, "one lap does not tell that nobody uses a leaf");
    assert!(second < plain * 9 / 10, "{second} of {plain}");
    assert_eq!((third, store.stats().condensed), (second, leaves(&store)), "a leaf is condensed once");
    read_all(&store);

    read_much(&store);
    round(&store);
    assert_eq!(store.stats().relaxed, leaves(&store));
    assert_eq!(bodies(&store), plain);
    read_all(&store);

    // The clocks forget, and the leaves are unused once more.
    (0..8).for_each(|_| round(&store));
    assert_eq!(counted_laps(&store), [plain, second]);
    read_all(&store);
}

#[test]
fn leaves_that_are_read_are_not_condensed() {
    let store = store();
    let plain = bodies(&store);
    read_much(&store);
    assert_eq!(counted_laps(&store), [plain; 4]);
}

#[test]
fn a_leaf_that_is_written_to_between_laps_that_count_is_in_use() {
    let store = store();
    counted_laps::<1>(&store);
    (0..KEYS).step_by(50).for_each(|n| store.put(&key(n), &value(n)).expect("no limit is set"));
    // The second lap packs what the first one found.
    let mut sweep = Sweep::default();
    (0..2).for_each(|_| lap(&store, &mut sweep));
    counted_laps::<1>(&store);
    assert_eq!(store.stats().condensed, 0);
    counted_laps::<1>(&store);
    assert!(store.stats().condensed > 0);
}

#[test]
fn a_leaf_with_a_few_new_values_waits_for_more() {
    let store = store();
    let [_, condensed] = counted_laps(&store);
    let packed = |keys: std::ops::Range<u64>| {
        let before = store.stats().condensed;
        keys.for_each(|n| store.put(&key(n), &value(n + 1)).expect("no limit is set"));
        counted_laps::<4>(&store);
        store.stats().condensed - before
    };
    assert_eq!(packed(0..2), 0);
    assert!(packed(0..KEYS) > 0);
    assert!(bodies(&store) < condensed * 21 / 20, "{} of {condensed}", bodies(&store));
}

/// Condensed leaves stay so at a limit by the bytes that are held, however much they are read, and not without a limit.
fn no_leaf_is_relaxed_at(store: &Store, limit: impl Fn(u64) -> u64) {
    let [_, condensed] = counted_laps(store);
    store.core.tree.reclaim();
    store.core.set_memory_limit(Some(limit(store.memory().total_bytes())));
    read_much(store);
    round(store);
    assert_eq!((bodies(store), store.stats().relaxed), (condensed, 0));
    store.core.set_memory_limit(None);
    round(store);
    assert_eq!(store.stats().relaxed, leaves(store));
}

#[test]
fn leaves_stay_condensed_in_a_store_that_is_full() {
    let store = store();
    no_leaf_is_relaxed_at(&store, |held_bytes| held_bytes / 2);
}

#[test]
fn a_full_store_condenses_leaves_again_that_were_relaxed() {
    let store = store_of(options(), long_value);
    store.settle().expect("no limit is set");
    let put = || store.put(&key(0), &long_value(1));
    // All leaves are settled once more. From here on only relaxed leaves can give room.
    store.core.set_memory_limit(Some(store.memory().total_bytes() / 4 * 3));
    assert!(put().is_err());
    store.core.set_memory_limit(None);
    let (settled, before) = (bodies(&store), leaves(&store));
    read_times(&store, long_value, 2 * ziptier_tree::hotness::SAMPLE);
    round(&store);
    assert!(leaves(&store) > before, "no leaf was cut as it was relaxed");
    store.core.tree.reclaim();
    let grown_bytes = bodies(&store) - settled;
    store.core.set_memory_limit(Some(store.memory().total_bytes() - grown_bytes / 2));
    let before = store.stats().condensed;
    put().expect("leaves that are condensed again make room");
    assert!(store.stats().condensed > before);
    let codes_bytes = Scratch::with(|scratch| scratch.codes_bytes());
    assert_eq!(codes_bytes, 0, "the writer keeps what counts for no limit");
}

#[test]
fn no_leaf_is_demoted_for_one_that_is_relaxed() {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let place = FarPlace::File(folder.path().join("far"));
    let far = Some(FarOptions { place, capacity_bytes: 8 << 20, require_dax: false });
    let store = store_of(Options { far, ..options() }, value);
    // From nine tenths of the limit on, leaves go down.
    no_leaf_is_relaxed_at(&store, |held_bytes| held_bytes / 95 * 100);
}

#[test]
fn a_leaf_of_raw_values_is_neither_condensed_nor_relaxed() {
    let store = store_of(options(), noise);
    counted_laps::<3>(&store);
    assert_eq!(store.stats().condensed, 0);
    // As a start leaves them: only values with token numbers are counted.
    let guard = store.core.tree.pin();
    let mut next = Some(store.core.tree.locate(&[], &guard).0);
    while let Some(leaf) = next {
        let state = leaf.state(&guard);
        let form = state.form.clone().with_counts(state.form.loose(), 0);
        assert!(leaf.publish(state, LeafState { form, ..state.clone() }, &guard));
        next = leaf.state(&guard).right(&guard);
    }
    drop(guard);
    read_times(&store, noise, 2 * ziptier_tree::hotness::SAMPLE);
    round(&store);
    assert_eq!(store.stats().relaxed, 0);
}

#[test]
fn leaves_that_are_condensed_again_are_relaxed_only_for_later_reads() {
    let store = store();
    counted_laps::<2>(&store);
    read_much(&store);
    round(&store);
    assert_eq!(store.stats().relaxed, leaves(&store));
    // Relaxed leaves are read, too, until the clocks forget.
    read_much(&store);
    (0..8).for_each(|_| round(&store));
    store.settle().expect("no limit is set");
    let condensed = (bodies(&store), store.stats().relaxed);
    (0..2).for_each(|_| round(&store));
    assert_eq!((bodies(&store), store.stats().relaxed), condensed);
}

#[test]
fn a_settled_store_is_condensed_whoever_reads_it() {
    let store = store();
    read_much(&store);
    store.settle().expect("no limit is set");
    let settled = bodies(&store);
    read_much(&store);
    round(&store);
    assert!(store.stats().relaxed > 0 && bodies(&store) > settled);
    store.settle().expect("no limit is set");
    assert_eq!(bodies(&store), settled);
    read_all(&store);
}
