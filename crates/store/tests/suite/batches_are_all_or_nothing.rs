//! A batch that readers see half of is a broken transfer. Writers set groups of keys to one number each time; no
//! reader may ever see two numbers in a group, nor a number that goes back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ziptier::{Batch, CodecChoice, Condition, Error, Options, Store, Values};

fn keys(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|index| format!("{:02}/account/{index}", index * 37 % 100).into_bytes()).collect()
}

#[test]
fn readers_see_every_batch_whole() {
    readers_see_whole_batches(CodecChoice::Auto);
}

#[test]
fn readers_see_every_batch_whole_in_blocks() {
    for codec in [CodecChoice::Lz4, CodecChoice::Zstd, CodecChoice::Deflate] {
        readers_see_whole_batches(codec);
    }
}

fn readers_see_whole_batches(codec: CodecChoice) {
    let store = Store::open(Options { codec, landing_bytes: 256, ..Options::default() }).unwrap();
    for index in 0..5_000 {
        store.put(format!("{:02}/filler/{index}", index % 100).as_bytes(), b"filler").unwrap();
    }
    let keys = keys(40);
    let number = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let batch = {
                        let next = number.fetch_add(1, Ordering::Relaxed) + 1;
                        keys.iter().fold(Batch::new(), |batch, key| {
                            batch.put(key, format!("{next:020}").repeat(5).as_bytes())
                        })
                    };
                    assert!(store.write(&batch).unwrap());
                }
            });
        }
        scope.spawn(|| {
            let mut filler = 0u64;
            while !stop.load(Ordering::Relaxed) {
                filler += 1;
                store
                    .put(format!("{:02}/filler/{}", filler % 100, filler % 9_000).as_bytes(), b"more")
                    .unwrap();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                let mut values = Values::default();
                let mut seen = 0;
                while seen < 400 {
                    store.multi_get(&keys, &mut values).unwrap();
                    let first = values.get(0).map(<[u8]>::to_vec);
                    for index in 1..keys.len() {
                        assert_eq!(values.get(index), first.as_deref(), "half a batch was seen");
                    }
                    seen += u64::from(first.is_some());
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
    });
}

#[test]
fn a_batch_larger_than_any_landing_is_written_whole() {
    for codec in [CodecChoice::Auto, CodecChoice::Lz4, CodecChoice::Zstd, CodecChoice::Deflate] {
        a_large_batch_is_written_whole(Store::open(Options { codec, ..Options::default() }).unwrap());
    }
}

fn a_large_batch_is_written_whole(store: Store) {
    let count = 20_000;
    let batch = (0..count).fold(Batch::new(), |batch, index| {
        batch.put(format!("k{index}").as_bytes(), format!("value {index}").repeat(index % 20).as_bytes())
    });
    assert!(store.write(&batch).unwrap());
    assert_eq!(store.len(), count as u64);
    for index in 0..count {
        let expected = format!("value {index}").repeat(index % 20).into_bytes();
        assert_eq!(store.get(format!("k{index}").as_bytes()).unwrap(), Some(expected));
    }
}

#[test]
fn a_batch_whose_condition_fails_changes_nothing() {
    let store = Store::open(Options::default()).unwrap();
    let large = vec![9; 100_000];
    store.put(b"a", b"1").unwrap();
    let batch = Batch::new().put(b"a", b"2").put(b"b", &large).require(b"c", Condition::Exists);
    assert!(!store.write(&batch).unwrap());
    assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(store.get(b"b").unwrap(), None);
    assert_eq!(store.memory().large_bytes, 0);
    let batch = Batch::new().put(b"b", &large).require(b"a", Condition::ValueIs(b"1".to_vec()));
    assert!(store.write(&batch).unwrap());
    assert_eq!(store.get(b"b").unwrap(), Some(large));
    assert_eq!(store.write(&Batch::new().put(b"x", b"1").put(b"", b"2")), Err(Error::EmptyKey));
    assert_eq!(store.get(b"x").unwrap(), None);
}

#[test]
fn later_operations_on_a_key_win() {
    let store = Store::open(Options::default()).unwrap();
    let batch = Batch::new().put(b"k", b"1").delete(b"k").put(b"k", b"3").put(b"l", b"1").delete(b"l");
    assert!(store.write(&batch).unwrap());
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!(store.get(b"l").unwrap(), None);
}
