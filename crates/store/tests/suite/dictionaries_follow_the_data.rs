//! A dictionary that is trained on yesterday's data compresses nothing today, and a store that keeps training on
//! data that cannot be compressed burns a core for ever.

use ziptier::{CodecChoice, Options, Store};
use ziptier_testing::until;

fn open() -> Store {
    open_with(CodecChoice::Auto)
}

fn open_with(codec: CodecChoice) -> Store {
    // No background thread: the writer trains, so that the test sees every step.
    Store::open(Options { codec, background_threads: 0, ..Options::default() }).unwrap()
}

fn log_line(n: u64, random: &mut fastrand::Rng) -> Vec<u8> {
    let host = random.u32(..200);
    format!(
        "2026-03-{:02}T12:{:02}:{:02}Z host-{host} INFO session opened for user u{} from 10.1.{}.{} port {n}",
        n % 28 + 1,
        n % 60,
        n % 59,
        random.u32(..5000),
        host % 250,
        random.u32(..250)
    )
    .into_bytes()
}

fn table_row(n: u64, random: &mut fastrand::Rng) -> Vec<u8> {
    let mut row = b"\x00\x17\x03ROW|".to_vec();
    for column in 0..12 {
        let names = ["BRUSHED STEEL", "LARGE PLATED TIN", "SMALL ANODIZED", "PROMO COPPER"];
        row.extend_from_slice(names[(random.u64(..) as usize + column) % 4].as_bytes());
        row.extend_from_slice(&(n as u32 / 1000).to_le_bytes());
    }
    row
}

fn load(store: &Store, keys: std::ops::Range<u64>, value: fn(u64, &mut fastrand::Rng) -> Vec<u8>) {
    let mut random = fastrand::Rng::with_seed(keys.start);
    for n in keys {
        let bytes = value(n, &mut random);
        store.put(format!("key:{n:012}").as_bytes(), &bytes).unwrap();
    }
}

fn check(store: &Store, keys: std::ops::Range<u64>, value: fn(u64, &mut fastrand::Rng) -> Vec<u8>) {
    let mut random = fastrand::Rng::with_seed(keys.start);
    for n in keys {
        let expected = value(n, &mut random);
        assert_eq!(store.get(format!("key:{n:012}").as_bytes()).unwrap(), Some(expected), "key {n}");
    }
}

fn held_per_raw(store: &Store) -> f64 {
    let memory = store.memory();
    memory.total_bytes() as f64 / memory.logical_bytes as f64
}

#[test]
fn a_store_of_text_is_coded_once_it_is_large_enough() {
    let store = open();
    load(&store, 0..1_000, log_line);
    store.settle().unwrap();
    assert_eq!(store.stats().adoptions, 0, "a dictionary costs more than 100 KB of data can save");
    load(&store, 1_000..150_000, log_line);
    store.settle().unwrap();
    let stats = store.stats();
    assert!(stats.adoptions >= 1 && stats.dictionary_bits >= 10, "{stats:?}");
    assert!(held_per_raw(&store) < 0.6, "{:?}", store.memory());
    check(&store, 0..1_000, log_line);
    check(&store, 1_000..150_000, log_line);
}

/// Words of a language of 2,000 words.
fn words(n: u64, _: &mut fastrand::Rng) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n);
    let mut value = Vec::new();
    while value.len() < 200 {
        let word = random.u32(..2000);
        let letter = |at| b'a' + (word.wrapping_mul(2_654_435_761).rotate_left(5 * at) % 26) as u8;
        value.extend((0..3 + word % 6).map(letter));
        value.push(b' ');
    }
    value
}

/// A cache that is full makes room for the training of another dictionary. Without that it keeps 0.38 of the keys.
#[test]
fn a_full_cache_follows_its_data() {
    const LIMIT_BYTES: u64 = 16 << 20;
    let open = || {
        let options = Options { eviction: true, background_threads: 0, ..Options::default() };
        Store::open(Options { memory_limit_bytes: Some(LIMIT_BYTES), ..options }).unwrap()
    };
    let (fresh, store) = (open(), open());
    // More than fits, however well it is coded.
    let records = LIMIT_BYTES / 80;
    load(&store, 0..records, words);
    assert!(store.stats().evicted > 0 && store.stats().adoptions > 0, "{:?}", store.stats());
    let mut random = fastrand::Rng::with_seed(1);
    for n in records..4 * records {
        let (key, line) = (format!("key:{n:012}"), log_line(n, &mut random));
        for store in [&store, &fresh] {
            store.put(key.as_bytes(), &line).unwrap();
        }
    }
    let (kept, possible) = (store.len(), fresh.len());
    assert!(kept * 10 > possible * 6, "{kept} of {possible}: {:?}, {:?}", store.memory(), store.stats());
}

#[test]
fn data_that_changes_its_nature_gets_a_new_dictionary() {
    let store = open();
    load(&store, 0..60_000, log_line);
    store.settle().unwrap();
    let first = store.stats();
    assert!(first.adoptions >= 1);
    load(&store, 60_000..150_000, table_row);
    store.settle().unwrap();
    let second = store.stats();
    assert!(second.dictionary_generation > first.dictionary_generation, "{second:?}");
    assert!(held_per_raw(&store) < 0.5, "{:?} {:?}", store.memory(), second);
    check(&store, 0..60_000, log_line);
    check(&store, 60_000..150_000, table_row);
}

#[test]
fn incompressible_data_is_not_trained_on_for_ever() {
    let store = open();
    let random_bytes = |_, random: &mut fastrand::Rng| (0..128).map(|_| random.u8(..)).collect();
    for round in 0..20 {
        load(&store, round * 20_000..(round + 1) * 20_000, random_bytes);
        store.settle().unwrap();
    }
    let stats = store.stats();
    assert_eq!(stats.adoptions, 0, "nothing can be saved: {stats:?}");
    assert!(stats.trainings <= 12, "back-off: {stats:?}");
    assert!(held_per_raw(&store) < 1.12, "{:?}", store.memory());
    check(&store, 0..20_000, random_bytes);
}

#[test]
fn blocks_look_for_a_better_dictionary_when_the_store_has_grown_fourfold() {
    let store = open_with(CodecChoice::Zstd);
    let mut keys = 0;
    let mut grow = || {
        load(&store, keys..keys + 10_000, log_line);
        keys += 10_000;
        assert!(keys < 2_000_000, "{:?}", store.stats());
    };
    while store.stats().adoptions == 0 {
        grow();
    }
    let (trainings, first_bytes) = (store.stats().trainings, store.memory().logical_bytes);
    while store.stats().trainings == trainings {
        grow();
    }
    let second_bytes = store.memory().logical_bytes;
    assert!(second_bytes > 3 * first_bytes, "{second_bytes} after {first_bytes}");
    store.settle().unwrap();
    let mut random = fastrand::Rng::with_seed(0);
    for n in 0..10_000 {
        let expected = log_line(n, &mut random);
        assert_eq!(store.get(format!("key:{n:012}").as_bytes()).unwrap(), Some(expected), "key {n}");
    }
}

#[test]
fn large_values_that_go_as_their_leaf_is_coded_anew_are_freed() {
    let store = open_with(CodecChoice::Token);
    let mut random = fastrand::Rng::with_seed(3);
    let mut text = |bytes: usize| {
        let mut text = Vec::new();
        while text.len() < bytes {
            text.extend(log_line(text.len() as u64, &mut random));
        }
        text
    };
    let key = |n: u64| format!("a:{n:04}").into_bytes();
    (0..40).for_each(|n| store.put(&key(n), &text(if n % 4 == 0 { 20_000 } else { 50 })).unwrap());
    store.settle().unwrap();
    assert_eq!(store.stats().adoptions, 0);
    load(&store, 0..100_000, log_line);
    assert!(store.stats().adoptions > 0);
    (0..40).step_by(4).for_each(|n| store.put(&key(n), b"small now").unwrap());
    until("the bytes of large values are back", || {
        store.settle().unwrap();
        store.memory().large_bytes == 0
    });
}

#[test]
fn names_of_a_large_value_share_it_when_it_is_coded_anew() {
    let store = open_with(CodecChoice::Token);
    let mut random = fastrand::Rng::with_seed(4);
    let mut text = Vec::new();
    while text.len() < 600_000 {
        text.extend(log_line(text.len() as u64, &mut random));
    }
    // Names in several leaves.
    let name = |kind: &str, n: u64| format!("key:{:012}/{kind}", n * 2000).into_bytes();
    let share = |kind: &str| {
        store.put(kind.as_bytes(), &text).unwrap();
        for n in 0..20 {
            store.copy(kind.as_bytes(), &name(kind, n), true).unwrap();
        }
    };
    let large_bytes = || {
        let held = || {
            store.settle().unwrap();
            store.memory().large_bytes
        };
        // What was replaced goes with its last reader.
        let mut last = held();
        until("nothing becomes free any more", || last == std::mem::replace(&mut last, held()));
        last
    };
    share("raw");
    load(&store, 0..50_000, log_line);
    let adoptions = store.stats().adoptions;
    assert!(adoptions > 0);
    assert!(large_bytes() <= text.len() as u64 * 11 / 10, "{:?}", store.memory());
    share("coded");
    let one_bytes = large_bytes() - text.len() as u64;
    assert!(one_bytes < text.len() as u64 * 3 / 4, "it is coded: {one_bytes}");
    load(&store, 50_000..100_000, words);
    assert!(store.stats().adoptions > adoptions, "{:?}", store.stats());
    load(&store, 0..40_001, table_row);
    // Each is there once, of whichever dictionary.
    assert!(large_bytes() <= 2 * text.len() as u64 * 11 / 10, "{:?}", store.memory());
    for kind in ["raw", "coded"] {
        (0..20).for_each(|n| assert!(store.get(&name(kind, n)).unwrap().as_ref() == Some(&text)));
    }
}
