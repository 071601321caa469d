//! A key past its time must be gone for every call at the same moment, and its bytes must be given back.

use std::sync::Arc;
use std::time::Duration;

use ziptier::{
    Batch, Clock, CodecChoice, Condition, Keys, Options, PutMeta, SsdOptions, Store, Update, Values,
};
use ziptier_media::testing::RecordingDisk;
use ziptier_testing::until;

use crate::durable::options;

const NOW_MS: u64 = 1_700_000_000_000;
const SECOND: Duration = Duration::from_secs(1);

fn in_a_second(clock: &Clock) -> Option<u64> {
    Some(clock.now_ms() + 1000)
}

/// A store of each codec, and its clock.
fn open() -> impl Iterator<Item = (Store, Clock)> {
    let codecs = [CodecChoice::Auto, CodecChoice::Lz4, CodecChoice::Zstd, CodecChoice::Deflate];
    codecs.into_iter().map(|codec| {
        let clock = Clock::manual(NOW_MS);
        let options = Options { codec, background_threads: 0, clock: clock.clone(), ..Options::default() };
        (Store::open(options).unwrap(), clock)
    })
}

#[test]
fn every_call_sees_an_expired_key_as_absent() {
    open().for_each(|(store, clock)| an_expired_key_is_absent(&store, &clock));
}

fn an_expired_key_is_absent(store: &Store, clock: &Clock) {
    for settled in [false, true] {
        let meta = PutMeta { expires_at_ms: in_a_second(clock), flags: 7 };
        store.put_with(b"brief", b"value", meta).unwrap();
        store.put(b"lasting", b"value").unwrap();
        if settled {
            store.settle().unwrap();
        }
        assert_eq!(store.meta(b"brief").unwrap().unwrap().flags, 7);
        assert_eq!(store.len(), 2);
        clock.advance(SECOND - Duration::from_millis(1));
        assert!(store.get(b"brief").unwrap().is_some());
        clock.advance(Duration::from_millis(1));
        assert_eq!(store.get(b"brief").unwrap(), None);
        assert_eq!(store.meta(b"brief").unwrap(), None);
        assert_eq!(store.read_at(b"brief", 0, 3, &mut Vec::new()).unwrap(), None);
        let mut values = Values::default();
        store.multi_get(&[b"brief".as_slice(), b"lasting"], &mut values).unwrap();
        assert_eq!((values.get(0), values.get(1)), (None, Some(&b"value"[..])));
        assert_eq!(store.range(..).count(), 1);
        assert!(!store.delete(b"brief").unwrap());
        assert!(!store.set_expiry(b"brief", None).unwrap());
        assert!(!store.write(&Batch::new().require(b"brief", Condition::Exists)).unwrap());
        store
            .update(b"brief", |old| {
                assert!(old.is_none());
                Update::Keep
            })
            .unwrap();
        store.settle().unwrap();
        assert_eq!(store.len(), 1);
    }
}

#[test]
fn an_expiry_can_be_changed_and_taken_away_without_the_value() {
    open().for_each(|(store, clock)| an_expiry_can_be_changed(&store, &clock));
}

fn an_expiry_can_be_changed(store: &Store, clock: &Clock) {
    let large = vec![5; 300_000];
    for (key, value) in [(b"small".as_slice(), b"value".as_slice()), (b"large", &large)] {
        store.put(key, value).unwrap();
        assert!(store.set_expiry(key, in_a_second(clock)).unwrap());
        assert!(store.meta(key).unwrap().unwrap().expires_at_ms.is_some());
        store.settle().unwrap();
        assert!(store.meta(key).unwrap().unwrap().expires_at_ms.is_some());
        assert!(store.set_expiry(key, None).unwrap());
        assert_eq!(store.meta(key).unwrap().unwrap().expires_at_ms, None);
        store.settle().unwrap();
        assert_eq!(store.get(key).unwrap().as_deref(), Some(value));
        assert!(store.set_expiry(key, Some(1)).unwrap());
        assert_eq!(store.get(key).unwrap(), None);
    }
    store.settle().unwrap();
    assert!(store.is_empty());
    until("the bytes of large values are back", || {
        store.settle().unwrap();
        store.memory().large_bytes == 0
    });
}

#[test]
fn a_background_thread_gives_the_bytes_of_expired_keys_back() {
    let clock = Clock::manual(NOW_MS);
    let store = Store::open(Options { clock: clock.clone(), ..Options::default() }).unwrap();
    for n in 0..20_000u32 {
        let meta = PutMeta { expires_at_ms: in_a_second(&clock), flags: 0 };
        store.put_with(&n.to_be_bytes(), &[1; 100], meta).unwrap();
    }
    assert_eq!(store.len(), 20_000);
    clock.advance(SECOND);
    until("no byte of an expired key is left", || store.memory().logical_bytes == 0);
}

/// Leaves that are written to all the time, with a background that drops what has expired.
#[test]
fn what_is_given_more_time_stays_while_others_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::manual(NOW_MS);
    let ssd = SsdOptions { path: Some(dir.path().to_owned()), limit_bytes: 64 << 20 };
    let stores = [None, Some(ssd)]
        .map(|ssd| Store::open(Options { ssd, clock: clock.clone(), ..Options::default() }).unwrap());
    let key = |n: u64| format!("key:{n:02}").into_bytes();
    // Every third lies outside its leaf.
    let value = |n: u64| n.to_le_bytes().repeat(if n.is_multiple_of(3) { 500 } else { 5 });
    for store in &stores {
        for n in 0..40 {
            let meta = PutMeta { expires_at_ms: in_a_second(&clock).filter(|_| n < 20), flags: 0 };
            store.put_with(&key(n), &value(n), meta).unwrap();
        }
        store.settle().unwrap();
    }
    stores[1].send_to_ssd(|| true).unwrap();
    let later = |n: u64| Some(1 << 44).filter(|_| n.is_multiple_of(2));
    for store in &stores {
        assert!((0..10).all(|n| store.set_expiry(&key(n), later(n)).unwrap()));
    }
    clock.advance(SECOND);
    until("the background dropped what expired", || {
        (30..40).for_each(|n| stores.iter().for_each(|store| store.put(&key(n), &value(1)).unwrap()));
        stores[0].len() == 30
    });
    for store in &stores {
        for settled in [false, true] {
            if settled {
                store.settle().unwrap();
            }
            for n in 0..10 {
                assert_eq!(store.get(&key(n)).unwrap(), Some(value(n)), "{n}");
                assert_eq!(store.meta(&key(n)).unwrap().unwrap().expires_at_ms, later(n), "{n}");
            }
            (10..20).for_each(|n| assert_eq!(store.get(&key(n)).unwrap(), None, "{n}"));
        }
    }
}

/// A walk that found no key would pass all leaves in one call.
#[test]
fn a_walk_over_expired_keys_takes_several_calls() {
    let clock = Clock::manual(NOW_MS);
    let options = Options {
        codec: CodecChoice::None,
        background_threads: 0,
        clock: clock.clone(),
        ..Options::default()
    };
    let store = Store::open(options).unwrap();
    let meta = PutMeta { expires_at_ms: in_a_second(&clock), ..PutMeta::default() };
    (0..30_000u32).for_each(|n| store.put_with(&n.to_be_bytes(), &[7; 100], meta).unwrap());
    let lasting = [0u32, 15_000, u32::MAX].map(|n| [&n.to_be_bytes()[..], b"lasts"].concat());
    lasting.iter().for_each(|key| store.put(key, b"value").unwrap());
    let walk = |limit| {
        let (mut calls, mut found, mut from) = (0, Vec::new(), Some(Vec::new()));
        while let Some(place) = from {
            let Keys { keys, next } = store.keys_from(&place, limit).unwrap();
            found.extend(keys);
            (calls, from) = (calls + 1, next);
        }
        (calls, found)
    };
    let (calls, found) = walk(10_001);
    assert!(calls >= 3 && found.len() == 30_003, "{} keys in {calls} calls", found.len());
    clock.advance(Duration::from_secs(2));
    for limit in [1, 2, 10_000] {
        let (calls, found) = walk(limit);
        assert!(calls >= 3, "{calls} calls");
        assert_eq!(found, lasting);
    }
}

/// A clock that was set back before a start would show a key again whose delete is not in the log.
#[test]
fn a_delete_of_an_expired_key_is_logged_once() {
    let open = |disk: RecordingDisk, clock: &Clock| {
        let ssd = Some(SsdOptions { path: None, limit_bytes: 64 << 20 });
        let durable = options(Arc::new(disk), CodecChoice::None);
        Store::open(Options { clock: clock.clone(), ssd, ..durable }).unwrap()
    };
    let (disk, clock) = (RecordingDisk::new(), Clock::manual(NOW_MS));
    let store = open(disk.clone(), &clock);
    let meta = PutMeta { expires_at_ms: in_a_second(&clock), flags: 0 };
    store.put_with(b"cold", b"value", meta).unwrap();
    store.settle().unwrap();
    assert_eq!(store.send_to_ssd(|| true).unwrap(), 1);
    store.put_with(b"brief", b"value", meta).unwrap();
    clock.advance(SECOND);
    let deletes: [(&[u8], u64); 5] =
        [(b"brief", 5), (b"cold", 4), (b"brief", 0), (b"cold", 0), (b"never", 0)];
    for (key, logged_bytes) in deletes {
        let before = store.stats().logged_bytes;
        assert!(!store.delete(key).unwrap());
        assert_eq!(store.stats().logged_bytes - before, logged_bytes, "{key:?}");
    }
    let killed = open(disk.copy(), &Clock::manual(NOW_MS));
    for (key, _) in deletes {
        assert_eq!(killed.get(key).unwrap(), None, "{key:?}");
    }
}

/// The checkpoint has the record still, and a start may take the image for what the leaf says.
#[test]
fn a_delete_of_a_key_whose_expired_record_was_dropped_is_logged() {
    let open = |disk: RecordingDisk, clock: &Clock| {
        let durable = options(Arc::new(disk), CodecChoice::None);
        Store::open(Options { clock: clock.clone(), ..durable }).unwrap()
    };
    let (disk, clock) = (RecordingDisk::new(), Clock::manual(NOW_MS));
    let store = open(disk.clone(), &clock);
    let meta = PutMeta { expires_at_ms: in_a_second(&clock), flags: 0 };
    store.put_with(b"brief", b"value", meta).unwrap();
    store.settle().unwrap();
    store.checkpoint().unwrap();
    clock.advance(SECOND);
    store.settle().unwrap();
    assert_eq!(store.memory().logical_bytes, 0, "no pack dropped the record");
    let before = store.stats().logged_bytes;
    assert!(!store.delete(b"brief").unwrap());
    assert_eq!(store.stats().logged_bytes - before, 5);
    let killed = open(disk.copy(), &Clock::manual(NOW_MS));
    assert_eq!(killed.get(b"brief").unwrap(), None);
}
