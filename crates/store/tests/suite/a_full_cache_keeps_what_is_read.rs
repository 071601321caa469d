//! A cache that refuses writes when it is full, outgrows its memory, forgets what everybody reads, or answers with what
//! was replaced long ago, is none.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ziptier::{Batch, Clock, CodecChoice, Options, PutMeta, Store, Transferred, Update};

const LIMIT_BYTES: u64 = 4 << 20;

fn cache_options() -> Options {
    Options { memory_limit_bytes: Some(LIMIT_BYTES), eviction: true, ..Options::default() }
}

fn cache(codec: CodecChoice, background_threads: usize) -> Store {
    Store::open(Options { codec, background_threads, ..cache_options() }).unwrap()
}

/// A value of `len` bytes and some more that no other version of any key has.
fn value(key: u64, version: u64, len: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(key << 32 | version);
    let mut value = format!("{key} in version {version}: ").into_bytes();
    value.extend((0..len).map(|_| random.alphanumeric() as u8));
    value
}

fn name(key: u64) -> Vec<u8> {
    format!("key:{key:012}").into_bytes()
}

fn assert_within_limit(store: &Store) {
    let held = store.memory().total_bytes();
    assert!(held <= LIMIT_BYTES + LIMIT_BYTES * 3 / 100, "{held} bytes are held, {:?}", store.memory());
}

#[test]
fn writes_are_taken_without_end_and_memory_keeps_its_limit() {
    for codec in [CodecChoice::None, CodecChoice::Auto, CodecChoice::Zstd] {
        for (background_threads, len) in [(0, 100), (1, 100), (1, 1000), (1, 1)] {
            let store = cache(codec, background_threads);
            let mut random = fastrand::Rng::with_seed(7);
            // Codecs make keys smaller, and short values.
            let is_halved = len < 100 && codec != CodecChoice::None;
            let writes = if is_halved { 3 } else { 2 } * LIMIT_BYTES / (len as u64 + 40);
            for n in 0..writes {
                // Half of them in order, half of them skewed.
                let key =
                    if n % 2 == 0 { 1 << 36 | n } else { random.u64(..) % (1 + random.u64(..1_000_000)) };
                store.put(&name(key), &value(key, n, len)).unwrap();
                if n % 64 == 0 {
                    assert_within_limit(&store);
                }
            }
            let held = store.memory().total_bytes();
            assert!(store.stats().evicted > 0, "{codec}, {len}: {held} bytes are held");
            assert!(held > LIMIT_BYTES * 8 / 10, "{codec}, {len}: only {held} bytes are held");
        }
    }
}

#[test]
fn what_is_there_is_the_newest_whatever_writes_it() {
    for codec in [CodecChoice::Auto, CodecChoice::Lz4] {
        let store = cache(codec, 1);
        let mut model: HashMap<u64, Vec<u8>> = HashMap::new();
        let mut random = fastrand::Rng::with_seed(11);
        let lengths = [0, 10, 100, 100, 100, 1500, 3000, 70_000];
        for n in 0..80_000u64 {
            let key = random.u64(..) % (1 + random.u64(..60_000));
            let len = if n % 50 == 0 { random.usize(..8) } else { random.usize(..5) };
            let new = value(key, n, lengths[len]);
            match random.u8(..20) {
                0 => {
                    let existed = store.delete(&name(key)).unwrap();
                    assert!(!existed || model.contains_key(&key));
                    model.remove(&key);
                }
                1 => {
                    assert!(
                        store.write(&Batch::new().put(&name(key), &new).put(&name(key + 1), &new)).unwrap()
                    );
                    model.insert(key, new.clone());
                    model.insert(key + 1, new);
                }
                2 => {
                    let written = store.update(&name(key), |old| {
                        let old = old.map_or(&b""[..], |(old, _)| &old[..old.len().min(50)]);
                        Update::Put([old, &new].concat(), PutMeta::default())
                    });
                    let Update::Put(written, _) = written.unwrap() else { panic!("it was put") };
                    let old = &written[..written.len() - new.len()];
                    assert!(old.is_empty() || model[&key].starts_with(old));
                    model.insert(key, written);
                }
                3 => {
                    let moved = model.remove(&key);
                    if store.rename(&name(key), &name(key + 1), true).unwrap() == Transferred::Done {
                        model.insert(key + 1, moved.unwrap());
                    }
                }
                4 => drop(store.set_expiry(&name(key), Some(33_177_117_420_000)).unwrap()),
                5..12 => {
                    store.put(&name(key), &new).unwrap();
                    model.insert(key, new);
                }
                _ => match store.get(&name(key)).unwrap() {
                    Some(found) => assert_eq!(Some(&found), model.get(&key), "{key}"),
                    // Once gone, it stays so until it is written.
                    None => drop(model.remove(&key)),
                },
            }
            if n % 256 == 0 {
                assert_within_limit(&store);
            }
        }
        store.settle().unwrap();
        let mut found = 0;
        for record in store.range(..) {
            let (key, value) = record.unwrap();
            let key: u64 = std::str::from_utf8(&key[4..]).unwrap().parse().unwrap();
            assert_eq!(model.get(&key), Some(&value));
            found += 1;
        }
        assert!(found > 1000 && found < model.len(), "{found} of {}", model.len());
        assert!(store.stats().evicted > 0);
    }
}

#[test]
fn hot_keys_stay_while_others_pass_through() {
    let store = cache(CodecChoice::None, 1);
    let hot = 2000;
    (0..hot).for_each(|key| store.put(&name(key * 1000), &value(key, 0, 100)).unwrap());
    let mut misses = 0;
    for n in 0..200_000u64 {
        store.put(&name((hot + n) * 1000 + 1), &value(n, 1, 100)).unwrap();
        let key = n % hot;
        if store.get(&name(key * 1000)).unwrap().is_none() {
            misses += 1;
            store.put(&name(key * 1000), &value(key, 0, 100)).unwrap();
        }
    }
    assert!(misses < hot / 4, "{misses}");
    assert!(store.stats().evicted > 100_000);
}

#[test]
fn a_cache_in_which_everything_is_hot_takes_new_keys() {
    let store = cache(CodecChoice::None, 0);
    let mut keys = 0;
    while store.stats().evicted == 0 {
        store.put(&name(keys), &value(keys, 0, 100)).unwrap();
        keys += 1;
    }
    for _ in 0..5 {
        (0..keys).for_each(|key| drop(store.get(&name(key)).unwrap()));
    }
    for key in keys..2 * keys {
        store.put(&name(key), &value(key, 0, 100)).unwrap();
        assert!(store.get(&name(key)).unwrap().is_some(), "{key} was put just now");
        assert_within_limit(&store);
    }
}

#[test]
fn large_values_make_room_and_one_too_large_changes_nothing() {
    let store = cache(CodecChoice::None, 1);
    for key in 0..20_000 {
        store.put(&name(key), &value(key, 0, 100)).unwrap();
    }
    let before = store.len();
    assert!(store.put(b"huge", &vec![7; LIMIT_BYTES as usize]).is_err());
    assert!(store.len() > before / 2);
    for n in 0..300u64 {
        let new = value(n, 1, [300_000, 5_000, 900_000][n as usize % 3]);
        store.put(&name(n), &new).unwrap();
        assert_eq!(store.get(&name(n)).unwrap(), Some(new));
        assert_within_limit(&store);
    }
}

#[test]
fn expired_records_go_before_those_that_are_not() {
    let clock = Clock::manual(1_000);
    let options = Options { codec: CodecChoice::None, background_threads: 0, ..cache_options() };
    let store = Store::open(Options { clock: clock.clone(), ..options }).unwrap();
    let meta = PutMeta { expires_at_ms: Some(1_001), ..PutMeta::default() };
    for key in 0..9_000 {
        store.put_with(&name(2 * key), &value(key, 0, 100), meta).unwrap();
        store.put(&name(2 * key + 1), &value(key, 0, 100)).unwrap();
    }
    clock.advance(std::time::Duration::from_millis(1));
    // Less than what has expired.
    (0..8_000).for_each(|key| store.put(&name(1 << 36 | key), &value(key, 0, 100)).unwrap());
    let kept = (0..9_000).filter(|key| store.get(&name(2 * key + 1)).unwrap().is_some()).count();
    assert!(kept > 8_900, "{kept} of 9,000, {:?}", store.stats());
}

#[test]
fn threads_that_fill_a_cache_together_see_only_what_was_put() {
    let store = cache(CodecChoice::Auto, 1);
    let versions: Vec<AtomicU64> = (0..40_000).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (store, versions) = (&store, &versions);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for n in 1..30_000u64 {
                    // A key has one writer, and any number of readers.
                    let key = random.u64(..) % (1 + random.u64(..10_000)) * 4 + thread;
                    store.put(&name(key), &value(key, n, 200)).unwrap();
                    versions[key as usize].store(n, Ordering::Release);
                    let other = random.u64(..40_000);
                    let oldest = versions[other as usize].load(Ordering::Acquire);
                    if let Some(found) = store.get(&name(other)).unwrap() {
                        let text = String::from_utf8(found.clone()).unwrap();
                        let version: u64 = text.split([' ', ':']).nth(3).unwrap().parse().unwrap();
                        assert!(version >= oldest && found == value(other, version, 200), "{other}");
                    }
                }
            });
        }
    });
    assert_within_limit(&store);
    assert!(store.stats().evicted > 0);
}
