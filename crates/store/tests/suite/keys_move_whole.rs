//! A rename that loses its key, leaves two of it, or drops the expiry is noticed when it is too late. So threads pass
//! keys around while others look, and at the end every one must be there once.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ziptier::{Options, PutMeta, Store, Transferred, Update, Values};
use ziptier_testing::{not_enough, until};

use crate::durable::SetOnDrop;

fn store() -> Store {
    Store::open(Options::default()).unwrap()
}

fn value(n: usize) -> Vec<u8> {
    // Every third is too large for a leaf.
    let len = if n.is_multiple_of(3) { 100_000 } else { 40 };
    format!("value {n} ").into_bytes().into_iter().cycle().take(len).collect()
}

#[test]
fn a_rename_takes_value_expiry_and_flags() {
    let store = store();
    let meta = PutMeta { expires_at_ms: Some(33_177_117_420_000), flags: 7 };
    for n in [0, 1] {
        store.put_with(b"source", &value(n), meta).unwrap();
        assert_eq!(store.rename(b"source", b"target", true).unwrap(), Transferred::Done);
        assert_eq!(store.get(b"source").unwrap(), None);
        assert_eq!(store.get(b"target").unwrap(), Some(value(n)));
        let found = store.meta(b"target").unwrap().unwrap();
        assert_eq!((found.expires_at_ms, found.flags), (meta.expires_at_ms, 7));
        assert_eq!(store.copy(b"target", b"copy", false).unwrap(), Transferred::Done);
        assert_eq!(store.copy(b"target", b"copy", false).unwrap(), Transferred::TargetExists);
        assert_eq!(store.copy(b"target", b"target", false).unwrap(), Transferred::TargetExists);
        assert_eq!(store.rename(b"missing", b"target", true).unwrap(), Transferred::NoSource);
        store.delete(b"target").unwrap();
        assert_eq!(store.get(b"copy").unwrap(), Some(value(n)));
        assert_eq!(store.meta(b"copy").unwrap().unwrap(), found);
        store.delete(b"copy").unwrap();
    }
    until("the bytes of large values are back", || {
        store.settle().unwrap();
        store.memory().large_bytes == 0
    });
}

#[test]
fn no_key_is_lost_or_doubled_while_threads_pass_them_around() {
    const KEYS: usize = 60;
    const PLACES: usize = 240;
    const STATES: usize = 20;
    let store = store();
    let place = |n: usize| format!("place:{n:05}").into_bytes();
    for n in 0..2000 {
        store.put(format!("place:{:05}:filler", n % PLACES * 7 + n).as_bytes(), &value(n | 1)).unwrap();
    }
    for n in 0..KEYS {
        store.put(&place(n), &value(n)).unwrap();
    }
    let (done, states) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let movers: Vec<_> = (0..4)
            .map(|seed| {
                let (store, states, done) = (&store, &states, &done);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(seed);
                    let mut moved = 0;
                    // They go on until the observer has seen enough of it, or has ended.
                    let mut goes_on = not_enough(|| {
                        states.load(Ordering::Relaxed) >= STATES || done.load(Ordering::Relaxed)
                    });
                    for _ in (0_u64..).take_while(|&round| round < 4000 || goes_on()) {
                        let (from, to) = (random.usize(..PLACES), random.usize(..PLACES));
                        let outcome = store.rename(&place(from), &place(to), false).unwrap();
                        moved += usize::from(outcome == Transferred::Done);
                    }
                    moved
                })
            })
            .collect();
        let observer = scope.spawn(|| {
            let _ends = SetOnDrop(&done);
            let places: Vec<Vec<u8>> = (0..PLACES).map(place).collect();
            let mut values = Values::default();
            let mut seen = HashSet::new();
            while !done.load(Ordering::Relaxed) {
                store.multi_get_up_to(&places, 1000, &mut values).unwrap();
                let there: Vec<usize> = (0..PLACES).filter(|&n| values.meta(n).is_some()).collect();
                assert_eq!(there.len(), KEYS, "seen at one moment");
                seen.insert(there);
                states.store(seen.len(), Ordering::Relaxed);
            }
            seen.len()
        });
        let moved: usize = movers.into_iter().map(|mover| mover.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        assert!(moved > 1000, "{moved}");
        let seen = observer.join().unwrap();
        assert!(seen >= STATES, "the observer saw {seen} states while {moved} keys moved");
    });
    let mut found: Vec<Vec<u8>> = (0..PLACES).filter_map(|n| store.get(&place(n)).unwrap()).collect();
    let mut expected: Vec<Vec<u8>> = (0..KEYS).map(value).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert!(found == expected, "{} keys", found.len());
}

#[test]
fn random_keys_are_keys_and_all_of_them_come() {
    let store = store();
    let mut random = fastrand::Rng::with_seed(1);
    assert_eq!(store.random_key(|| random.u64(..)), None);
    for n in 0..3000 {
        store.put(format!("{n:04}").as_bytes(), b"value").unwrap();
    }
    let mut seen = HashSet::new();
    for _ in 0..60_000 {
        seen.insert(store.random_key(|| random.u64(..)).unwrap());
    }
    assert!(seen.len() > 2900, "{}", seen.len());
    assert!(seen.iter().all(|key| store.get(key).unwrap().is_some()));
    for n in 0..2999 {
        store.delete(format!("{n:04}").as_bytes()).unwrap();
    }
    assert_eq!(store.random_key(|| random.u64(..)), Some(b"2999".to_vec()));
    store.put_with(b"2999", b"", PutMeta { expires_at_ms: Some(1), flags: 0 }).unwrap();
    assert_eq!(store.random_key(|| random.u64(..)), None);
}

#[test]
fn long_values_can_be_left_out_and_decisions_made_without_them() {
    let store = store();
    store.put(b"long", &value(0)).unwrap();
    store.put(b"short", &value(1)).unwrap();
    let mut values = Values::default();
    store.multi_get_up_to(&["long", "short", "none"], 1000, &mut values).unwrap();
    assert_eq!((values.get(0), values.meta(0).unwrap().len), (None, 100_000));
    assert_eq!((values.get(1), values.meta(1).unwrap().len), (Some(&value(1)[..]), 40));
    assert_eq!((values.get(2), values.meta(2)), (None, None));
    store.multi_get(&["long"], &mut values).unwrap();
    assert_eq!(values.get(0), Some(&value(0)[..]));

    let expire = Update::Expire(Some(33_177_117_420_000));
    let done = store.update_meta(b"long", |meta| {
        assert_eq!(meta.unwrap().len, 100_000);
        expire.clone()
    });
    assert_eq!(done.unwrap(), expire);
    assert_eq!(store.get(b"long").unwrap(), Some(value(0)));
}
