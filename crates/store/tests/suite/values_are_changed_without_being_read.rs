//! A server that read a value of 400 MB to give it another expiry took four times its memory limit. What is changed by
//! its length, its expiry or a part of it is opened, and whoever opened it decides what is read.

use ziptier::{OldValue, Options, PutMeta, Store, Update};

fn value(len: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| random.u8(b'a'..=b'p')).collect()
}

#[test]
fn large_values_come_opened_and_small_ones_whole() {
    let store = Store::open(Options::default()).unwrap();
    assert_eq!(
        store.update_opened(b"key", |old| if old.is_none() { Update::Keep } else { Update::Delete }),
        Ok(Update::Keep)
    );
    for len in [0, 1, 2048, 2049, 65_536, 1 << 20] {
        let (old, new) = (value(len, 1), value(len / 2, 2));
        store.put(b"key", &old).unwrap();
        let mut opened = None;
        let done = store.update_opened(b"key", |seen| {
            let (seen, meta) = seen.unwrap();
            assert_eq!(meta.len, len as u64);
            match seen {
                OldValue::Inline(bytes) => assert!(bytes == old && len <= 2048, "{len}"),
                OldValue::Large(value) => opened = Some(value),
            }
            Update::Put(new.clone(), PutMeta::default())
        });
        assert!(matches!(done, Ok(Update::Put(..))));
        assert!(store.get(b"key").unwrap().unwrap() == new);
        // It stays as it was.
        assert_eq!(opened.is_some(), len > 2048);
        if let Some(opened) = opened {
            let mut read = Vec::new();
            opened.read_at(0, len, &mut read).unwrap();
            assert!(read == old, "{len}");
        }
        let later = Some(4_000_000_000_000);
        store.update_opened(b"key", |_| Update::Expire(later)).unwrap();
        assert_eq!(store.meta(b"key").unwrap().unwrap().expires_at_ms, later);
        assert!(store.get(b"key").unwrap().unwrap() == new);
        store.update_opened(b"key", |_| Update::Delete).unwrap();
        assert_eq!(store.get(b"key").unwrap(), None);
    }
}

#[test]
fn a_count_looks_at_few_leaves_or_says_what_is_settled() {
    // A background thread may settle all leaves.
    let store = Store::open(Options { background_threads: 0, ..Options::default() }).unwrap();
    assert_eq!(store.len_if_quick(), Ok(0));
    for number in 0..1000u32 {
        store.put(&number.to_be_bytes(), b"value").unwrap();
        assert_eq!(store.len_if_quick(), Ok(u64::from(number) + 1));
    }
    for number in 1000..400_000u32 {
        store.put(&number.to_be_bytes(), &value(20, number.into())).unwrap();
    }
    // Many leaves, and some of them unsettled.
    store.put(b"one more", b"value").unwrap();
    let settled = store.len_if_quick().unwrap_err();
    assert!((300_000..=400_001).contains(&settled), "{settled}");
    assert_eq!(store.len(), 400_001);
    store.settle().unwrap();
    store.len_if_quick().unwrap();
}
