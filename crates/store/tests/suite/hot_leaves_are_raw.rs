//! A leaf that takes another form because it is hot, or no longer is, must hold the same values, whoever writes to it
//! meanwhile; and one that stays raw for ever makes a compressed store a plain one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ziptier_testing::until;

use ziptier::{CodecChoice, Options, Stats, Store};

use crate::durable::SetOnDrop;
use crate::waiting::until_telling;

const KEYS: u64 = 60_000;
/// Enough for leaves to change their form under writers.
const FEWER_KEYS: u64 = 24_000;
const ROUNDS: u64 = 2;
const HOT: std::ops::Range<u64> = 15_000..15_200;
const CODECS: [CodecChoice; 3] = [CodecChoice::Auto, CodecChoice::Lz4, CodecChoice::Zstd];

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

fn value(n: u64, version: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n * 1_000 + version);
    let words = ["lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "adipiscing", "elit", "sed", "do"];
    let mut value = format!("{n}.{version}: ");
    for _ in 0..20 {
        value.push_str(words[random.usize(..10)]);
        value.push(' ');
    }
    value.into_bytes()
}

fn open(codec: CodecChoice, heating: bool, background_threads: usize, keys: u64) -> Store {
    let store = Store::open(Options { codec, heating, background_threads, ..Options::default() }).unwrap();
    (0..keys).for_each(|n| store.put(&key(n), &value(n, 0)).unwrap());
    store.settle().unwrap();
    store
}

fn read_hot(store: &Store, times: usize, version: impl Fn(u64) -> u64) {
    for _ in 0..times {
        HOT.for_each(|n| assert_eq!(store.get(&key(n)).unwrap(), Some(value(n, version(n)))));
    }
}

/// Reads of hot keys by form: raw, and any other.
fn reads_of(store: &Store, version: impl Fn(u64) -> u64) -> (u64, u64) {
    let of = |stats: Stats| (stats.reads_raw, stats.reads_coded + stats.reads_packed);
    let before = of(store.stats());
    read_hot(store, 1, version);
    let after = of(store.stats());
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn hot_leaves_become_raw_and_take_their_form_again() {
    for codec in CODECS {
        let store = open(codec, true, 0, KEYS);
        let raw_before = store.memory().raw_body_bytes;
        read_hot(&store, 30, |_| 0);
        store.settle().unwrap();
        assert!(store.stats().heated > 0, "{codec}: {:?}", store.stats());
        let (raw, other) = reads_of(&store, |_| 0);
        assert!(raw > 10 * other, "{codec}: {raw} raw, {other} others");

        // What is written to a hot leaf stays raw with it.
        let version = |n| n % 2;
        HOT.filter(|n| n % 2 == 1).for_each(|n| store.put(&key(n), &value(n, 1)).unwrap());
        read_hot(&store, 30, version);
        store.settle().unwrap();
        let (raw, other) = reads_of(&store, version);
        assert!(raw > 10 * other, "{codec}: {raw} raw, {other} others");

        for _ in 0..6 {
            store.settle().unwrap();
        }
        assert!(store.stats().cooled > 0, "{codec}: {:?}", store.stats());
        assert!(store.memory().raw_body_bytes <= raw_before, "{codec}: {:?}", store.memory());
        let (raw, other) = reads_of(&store, version);
        assert!(other > 10 * raw, "{codec}: {raw} raw, {other} others");
        // A look-up unpacks a block for one value, and a scan for all of its values.
        let version = |n: u64| if HOT.contains(&n) { version(n) } else { 0 };
        let expected = (0..KEYS).map(|n| (key(n), value(n, version(n))));
        assert!(store.range(..).map(|record| record.unwrap()).eq(expected), "{codec}");
    }
}

#[test]
fn a_forced_codec_keeps_its_form_unless_it_may_heat() {
    for codec in [CodecChoice::Token, CodecChoice::Zstd] {
        let store = open(codec, false, 0, KEYS);
        read_hot(&store, 30, |_| 0);
        store.settle().unwrap();
        assert_eq!(store.stats().heated, 0, "{codec}");
        assert_eq!(reads_of(&store, |_| 0).0, 0, "{codec}");
    }
}

#[test]
fn a_hot_set_that_moves_is_followed_without_being_asked() {
    let store = open(CodecChoice::Zstd, true, 1, KEYS);
    for start in [1_000, 20_000] {
        let heated = store.stats().heated;
        until("a leaf of the hot set is heated", || {
            for n in start..start + 200 {
                assert_eq!(store.get(&key(n)).unwrap(), Some(value(n, 0)));
            }
            store.stats().heated > heated
        });
    }
    until("a leaf that nobody reads any more is cooled", || {
        read_hot(&store, 1, |_| 0);
        store.stats().cooled > 0
    });
}

#[test]
fn values_stay_whole_while_leaves_change_form_under_writers() {
    for codec in CODECS {
        let store = open(codec, true, 1, FEWER_KEYS);
        let (stop, reads, writes) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for reader in 0..2u64 {
                let (store, stop, reads) = (&store, &stop, &reads);
                scope.spawn(move || {
                    let mut start = reader * 10_000;
                    while !stop.load(Ordering::Relaxed) {
                        for n in (0..30).flat_map(|_| start..start + 200) {
                            let found = store.get(&key(n)).unwrap().expect("no key is deleted");
                            let text = std::str::from_utf8(&found).unwrap();
                            let version = text.split([':', '.']).nth(1).unwrap().parse().unwrap();
                            assert_eq!(found, value(n, version));
                        }
                        reads.fetch_add(1, Ordering::Relaxed);
                        start = (start + 7_919) % (FEWER_KEYS - 200);
                    }
                });
            }
            let (store, stop, reads, writes) = (&store, &stop, &reads, &writes);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(1);
                for version in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let n = random.u64(..FEWER_KEYS);
                    store.put(&key(n), &value(n, version)).unwrap();
                    writes.fetch_add(1, Ordering::Relaxed);
                }
            });
            let _ends = SetOnDrop(stop);
            // Each round sees a set of leaves become hot, writes and leaves that change their form, however busy the
            // machine is.
            let mut rounds = 0;
            let round = || {
                let now = || (reads.load(Ordering::Relaxed), writes.load(Ordering::Relaxed));
                let (read, written) = now();
                until("hot keys were read and others written", || {
                    now().0 > read + 1 && now().1 > written + 500
                });
                store.settle().unwrap();
                rounds += 1;
                rounds >= ROUNDS && store.stats().heated > 0
            };
            until_telling("leaves are heated", round, || format!("{codec}: {:?}", store.stats()));
        });
        assert_eq!(store.len(), FEWER_KEYS, "{codec}");
    }
}
