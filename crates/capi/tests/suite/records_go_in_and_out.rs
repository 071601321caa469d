//! The store and the tokens through their C interface: what goes in comes out, with its length, its expiry and its
//! flags, and what does not fit is told.

use std::ffi::c_void;
use std::ptr;
use std::thread;

use ziptier_capi::batch::*;
use ziptier_capi::buffer::{ziptier_buffer, ziptier_buffer_free, ziptier_slice};
use ziptier_capi::iterator::*;
use ziptier_capi::status::ziptier_status::{self, *};
use ziptier_capi::store::*;
use ziptier_capi::tokens::*;

use crate::support::{Options, figure, into, last_error, noise, records, slice, text_of};

struct Opened(*mut ziptier_store);

// SAFETY: the header says that one store serves all threads.
unsafe impl Sync for Opened {}

impl Opened {
    fn new(given: &[(&str, &str)]) -> Opened {
        let options = Options::new(given);
        let mut store = ptr::null_mut();
        // SAFETY: the options live until the call has returned.
        let status = unsafe { ziptier_open(options.options.as_ptr(), options.options.len(), &mut store) };
        assert_eq!(status, ZIPTIER_OK, "{}", last_error());
        Opened(store)
    }

    fn put(&self, key: &[u8], value: &[u8], expires_at_ms: u64, flags: u32) -> ziptier_status {
        let (key, value) = (slice(key), slice(value));
        // SAFETY: the store is open; key and value are as long as said.
        unsafe { ziptier_put(self.0, key.data, key.len, value.data, value.len, expires_at_ms, flags) }
    }

    fn get(&self, key: &[u8], capacity: usize) -> (ziptier_status, usize, Vec<u8>) {
        let key = slice(key);
        // SAFETY: the store is open; key and target are as long as said.
        into(capacity, |target, length| unsafe {
            ziptier_get(self.0, key.data, key.len, target.cast(), capacity, length, ptr::null_mut())
        })
    }

    fn meta(&self, key: &[u8]) -> (ziptier_status, ziptier_meta) {
        let mut meta = ziptier_meta { len: 9, expires_at_ms: 9, flags: 9 };
        // SAFETY: the store is open; the key is as long as said.
        let status = unsafe { ziptier_get_meta(self.0, key.as_ptr().cast(), key.len(), &mut meta) };
        (status, meta)
    }

    fn delete(&self, key: &[u8]) -> ziptier_status {
        // SAFETY: the store is open; the key is as long as said.
        unsafe { ziptier_delete(self.0, key.as_ptr().cast(), key.len()) }
    }

    fn close(self) -> ziptier_status {
        // SAFETY: the store is open, and nobody uses it any more, unless iterators keep it open.
        unsafe { ziptier_close(self.0) }
    }
}

#[test]
fn values_of_all_sizes_come_back() {
    let store = Opened::new(&[]);
    for length in [0, 1, 2000, 3000, 200_000] {
        let (key, value) = (format!("key {length}"), noise(length));
        assert_eq!(store.put(key.as_bytes(), &value, 0, 0), ZIPTIER_OK);
        assert_eq!(store.get(key.as_bytes(), length), (ZIPTIER_OK, length, value.clone()));
        assert_eq!(store.get(key.as_bytes(), length + 10), (ZIPTIER_OK, length, value.clone()));
        if length > 0 {
            let (status, needed, _) = store.get(key.as_bytes(), length - 1);
            assert_eq!((status, needed), (ZIPTIER_TOO_SMALL, length));
        }
        let mut buffer = ziptier_buffer { data: ptr::null_mut(), len: 0, capacity: 0 };
        let mut meta = ziptier_meta::default();
        // SAFETY: the store is open; the buffer is filled before it is read, and freed once.
        unsafe {
            let (opened, known) = (store.0, slice(key.as_bytes()));
            assert_eq!(ziptier_get_buffer(opened, known.data, known.len, &mut buffer, &mut meta), ZIPTIER_OK);
            let found =
                if buffer.len == 0 { &[] } else { std::slice::from_raw_parts(buffer.data, buffer.len) };
            assert!(found == value && meta.len == length as u64);
            let missing = slice(b"missing");
            let status = ziptier_get_buffer(opened, missing.data, missing.len, &mut buffer, &mut meta);
            assert_eq!((status, buffer.len), (ZIPTIER_NOT_FOUND, 0));
            // No wrong argument leaves the value of another call.
            for (store, key) in [(ptr::null_mut(), known.data), (opened, ptr::null())] {
                assert_eq!(
                    ziptier_get_buffer(opened, known.data, known.len, &mut buffer, &mut meta),
                    ZIPTIER_OK
                );
                let status = ziptier_get_buffer(store, key, 1, &mut buffer, &mut meta);
                assert_eq!((status, buffer.len), (ZIPTIER_INVALID_ARGUMENT, 0));
            }
            ziptier_buffer_free(&mut buffer);
        }
    }
    assert_eq!(store.get(b"missing", 10).0, ZIPTIER_NOT_FOUND);
    assert_eq!((store.delete(b"key 1"), store.delete(b"key 1")), (ZIPTIER_OK, ZIPTIER_NOT_FOUND));
    assert_eq!(store.put(b"", b"", 0, 0), ZIPTIER_INVALID_ARGUMENT);
    assert!(last_error().contains("the key is empty"), "{}", last_error());
    // SAFETY: the store is open.
    let text = text_of(|text| unsafe { ziptier_stats(store.0, text) });
    assert!(figure(&text, "writes") >= 5 && figure(&text, "held_bytes") > 200_000, "{text}");
    assert_eq!(store.close(), ZIPTIER_OK);
}

#[test]
fn expiry_and_flags_go_with_the_value() {
    let store = Opened::new(&[]);
    let far = 4_000_000_000_000;
    assert_eq!(store.put(b"later", b"value", far, 7), ZIPTIER_OK);
    let (status, meta) = store.meta(b"later");
    assert_eq!((status, meta.len, meta.expires_at_ms, meta.flags), (ZIPTIER_OK, 5, far, 7));
    // SAFETY: the store is open; the key is as long as said.
    let set = |key: &[u8], at| unsafe { ziptier_set_expiry(store.0, key.as_ptr().cast(), key.len(), at) };
    assert_eq!(set(b"later", 0), ZIPTIER_OK);
    assert_eq!(store.meta(b"later").1.expires_at_ms, 0);
    assert_eq!(set(b"later", 1), ZIPTIER_OK);
    let (status, meta) = store.meta(b"later");
    assert_eq!((status, meta.len), (ZIPTIER_NOT_FOUND, 0));
    assert_eq!(set(b"later", far), ZIPTIER_NOT_FOUND);
    assert_eq!(store.close(), ZIPTIER_OK);
}

/// The keys of an iterator, taken from the front and from the back in turns.
fn walk(iterator: *mut ziptier_iterator) -> Vec<String> {
    const NONE: ziptier_slice = ziptier_slice { data: ptr::null(), len: 0 };
    let mut keys = Vec::new();
    for turn in 0.. {
        let (mut key, mut value) = (NONE, NONE);
        let next = if turn % 2 == 0 { ziptier_next } else { ziptier_next_back };
        // SAFETY: the iterator is open; key and value last until the next call.
        unsafe {
            if next(iterator, &mut key, &mut value) == ZIPTIER_NOT_FOUND {
                assert!(key.data.is_null() && key.len == 0);
                break;
            }
            let key = std::slice::from_raw_parts(key.data.cast::<u8>(), key.len);
            let value = std::slice::from_raw_parts(value.data.cast::<u8>(), value.len);
            assert_eq!(key, value);
            keys.push(String::from_utf8(key.to_vec()).unwrap());
        }
    }
    keys
}

#[test]
fn a_batch_whose_condition_does_not_hold_changes_nothing() {
    let store = Opened::new(&[]);
    let require = |batch, key: &[u8], exists| {
        // SAFETY: the batch is there, and the key as long as said.
        assert_eq!(unsafe { ziptier_batch_require(batch, slice(key).data, key.len(), exists) }, ZIPTIER_OK);
    };
    let require_value = |batch, key: &[u8], value: &[u8]| {
        let (key, value) = (slice(key), slice(value));
        // SAFETY: the batch is there, and key and value are as long as said.
        let status = unsafe { ziptier_batch_require_value(batch, key.data, key.len, value.data, value.len) };
        assert_eq!(status, ZIPTIER_OK);
    };
    // Puts "key" to a value if the conditions hold.
    let put_if = |value: &[u8], conditions: &dyn Fn(*mut ziptier_batch)| {
        let mut batch = ptr::null_mut();
        // SAFETY: the batch is made before it is filled; key and value are as long as said.
        unsafe {
            assert_eq!(ziptier_batch_new(&mut batch), ZIPTIER_OK);
            let (key, value) = (slice(b"key"), slice(value));
            assert_eq!(ziptier_batch_put(batch, key.data, key.len, value.data, value.len, 0, 0), ZIPTIER_OK);
            conditions(batch);
            let status = ziptier_write(store.0, batch);
            ziptier_batch_free(batch);
            status
        }
    };
    assert_eq!(put_if(b"a", &|batch| require(batch, b"key", 1)), ZIPTIER_NOT_WRITTEN);
    assert_eq!(store.get(b"key", 10).0, ZIPTIER_NOT_FOUND);
    assert_eq!(put_if(b"a", &|batch| require(batch, b"key", 0)), ZIPTIER_OK);
    assert_eq!(put_if(b"b", &|batch| require(batch, b"key", 0)), ZIPTIER_NOT_WRITTEN);
    assert_eq!(put_if(b"b", &|batch| require_value(batch, b"key", b"b")), ZIPTIER_NOT_WRITTEN);
    assert_eq!(store.get(b"key", 10).2, b"a");
    assert_eq!(put_if(b"b", &|batch| require_value(batch, b"key", b"a")), ZIPTIER_OK);
    assert_eq!(store.get(b"key", 10).2, b"b");
    let both = |batch| {
        require(batch, b"key", 7);
        require_value(batch, b"none", b"");
    };
    assert_eq!(put_if(b"c", &both), ZIPTIER_NOT_WRITTEN);
    assert_eq!(put_if(b"c", &|batch| require(batch, b"", 1)), ZIPTIER_INVALID_ARGUMENT);
    assert_eq!(store.get(b"key", 10).2, b"b");
    // SAFETY: null is what these calls refuse.
    unsafe {
        assert_eq!(ziptier_batch_require(ptr::null_mut(), ptr::null(), 0, 1), ZIPTIER_INVALID_ARGUMENT);
        let status = ziptier_batch_require_value(ptr::null_mut(), ptr::null(), 0, ptr::null(), 0);
        assert_eq!(status, ZIPTIER_INVALID_ARGUMENT);
    }
    assert_eq!(store.close(), ZIPTIER_OK);
}

#[test]
fn a_batch_is_written_whole_and_iterators_keep_the_store_open() {
    let store = Opened::new(&[]);
    let mut batch = ptr::null_mut();
    // SAFETY: the batch is made before it is filled; keys are as long as said.
    unsafe {
        assert_eq!(ziptier_batch_new(&mut batch), ZIPTIER_OK);
        for key in ["a", "b1", "b2", "b3", "c"] {
            let key = slice(key.as_bytes());
            assert_eq!(ziptier_batch_put(batch, key.data, key.len, key.data, key.len, 0, 0), ZIPTIER_OK);
        }
        let key: *const c_void = b"c".as_ptr().cast();
        assert_eq!(ziptier_batch_delete(batch, key, 1), ZIPTIER_OK);
        assert_eq!((ziptier_write(store.0, batch), ziptier_write(store.0, batch)), (ZIPTIER_OK, ZIPTIER_OK));
        assert_eq!(ziptier_batch_put(batch, ptr::null(), 0, ptr::null(), 0, 0, 0), ZIPTIER_OK);
        assert_eq!(ziptier_write(store.0, batch), ZIPTIER_INVALID_ARGUMENT);
        ziptier_batch_free(batch);
    }
    let (from, to) = (slice(b"b2"), slice(b"c"));
    let mut iterators = [ptr::null_mut(); 3];
    // SAFETY: the store is open; the bounds are as long as said.
    unsafe {
        assert_eq!(ziptier_prefix(store.0, b"b".as_ptr().cast(), 1, &mut iterators[0]), ZIPTIER_OK);
        assert_eq!(
            ziptier_range(store.0, from.data, from.len, to.data, to.len, &mut iterators[1]),
            ZIPTIER_OK
        );
        assert_eq!(ziptier_range(store.0, ptr::null(), 0, ptr::null(), 0, &mut iterators[2]), ZIPTIER_OK);
    }
    // A call without a place for the record takes none.
    let mut record = slice(b"");
    for next in [ziptier_next, ziptier_next_back] {
        // SAFETY: the iterator is open, and null is what the calls refuse.
        unsafe {
            assert_eq!(next(iterators[0], &mut record, ptr::null_mut()), ZIPTIER_INVALID_ARGUMENT);
            assert_eq!(next(iterators[0], ptr::null_mut(), &mut record), ZIPTIER_INVALID_ARGUMENT);
        }
    }
    assert_eq!(walk(iterators[0]), ["b1", "b3", "b2"]);
    assert_eq!(walk(iterators[1]), ["b2", "b3"]);
    assert_eq!(walk(iterators[2]), ["a", "b3", "b1", "b2"]);
    // SAFETY: the store stays open while it has iterators; each of these is freed once.
    unsafe {
        assert_eq!(ziptier_close(store.0), ZIPTIER_INVALID_ARGUMENT);
        assert!(last_error().contains("the store has 3 iterators; free them"), "{}", last_error());
        iterators.into_iter().for_each(|iterator| ziptier_iterator_free(iterator));
    }
    assert_eq!(store.close(), ZIPTIER_OK);
}

#[test]
fn threads_write_one_store_and_a_folder_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let dir = [("dir", folder.path().to_str().unwrap()), ("durability", "no"), ("codec", "token")];
    let store = Opened::new(&dir);
    let records = records(2000);
    thread::scope(|scope| {
        for part in records.chunks(500) {
            let store = &store;
            scope.spawn(move || {
                for record in part {
                    assert_eq!(store.put(record, record, 0, 0), ZIPTIER_OK);
                    assert_eq!(store.get(record, record.len()).2, *record);
                }
            });
        }
    });
    // SAFETY: the store is open.
    unsafe { assert_eq!((ziptier_settle(store.0), ziptier_checkpoint(store.0)), (ZIPTIER_OK, ZIPTIER_OK)) };
    // SAFETY: the store is open.
    let text = text_of(|text| unsafe { ziptier_stats(store.0, text) });
    assert!(text.contains("durability no\n") && figure(&text, "checkpoints") >= 1, "{text}");
    assert_eq!(store.close(), ZIPTIER_OK);

    let store = Opened::new(&dir);
    assert!(records.iter().all(|record| store.get(record, record.len()).2 == *record));
    // SAFETY: the store is open.
    let text = text_of(|text| unsafe { ziptier_stats(store.0, text) });
    assert!(figure(&text, "keys") == 2000 && figure(&text, "recovered_images") > 0, "{text}");
    assert_eq!(store.close(), ZIPTIER_OK);
}

#[test]
fn a_full_store_refuses_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let ssd = format!("8MiB:{}", dir.path().display());
    for (options, words) in [
        (&[("memory", "2MiB")][..], "the memory limit is 2097152; "),
        (&[("memory", "2MiB"), ("ssd", &ssd)], "of 8388608 bytes of SSD"),
    ] {
        let store = Opened::new(options);
        let mut puts = (0..1000).map(|i| store.put(&noise(20 + i), &noise(100_000), 0, 0));
        assert_eq!(puts.find(|status| *status != ZIPTIER_OK), Some(ZIPTIER_NO_ROOM));
        assert!(last_error().contains(words), "{}", last_error());
        assert_eq!(store.get(&noise(20), 100_000).0, ZIPTIER_OK);
        assert_eq!(store.close(), ZIPTIER_OK);
    }
}

/// Tokens of records, saved and loaded again.
fn loaded(records: &[Vec<u8>]) -> *mut ziptier_tokens {
    let samples: Vec<ziptier_slice> = records.iter().map(|record| slice(record)).collect();
    let (mut trained, mut tokens) = (ptr::null_mut(), ptr::null_mut());
    let mut saved = ziptier_buffer { data: ptr::null_mut(), len: 0, capacity: 0 };
    // SAFETY: the samples live on; the buffer is filled before it is read, and freed once.
    unsafe {
        assert_eq!(ziptier_tokens_train(samples.as_ptr(), samples.len(), 12, 3, &mut trained), ZIPTIER_OK);
        assert_eq!(ziptier_tokens_save(trained, &mut saved), ZIPTIER_OK);
        assert_eq!(ziptier_tokens_load(saved.data.cast(), saved.len, &mut tokens), ZIPTIER_OK);
        ziptier_buffer_free(&mut saved);
        ziptier_tokens_free(trained);
    }
    tokens
}

#[test]
fn values_by_tokens_come_back_alone() {
    let records = records(2000);
    let tokens = loaded(&records);
    let encode = |value: &[u8], capacity| {
        // SAFETY: the tokens are there; sources and targets are as long as said.
        into(capacity, |target, length| unsafe {
            ziptier_tokens_encode(tokens, value.as_ptr().cast(), value.len(), target.cast(), capacity, length)
        })
    };
    let decode = |coded: &[u8], capacity| {
        // SAFETY: as above.
        into(capacity, |target, length| unsafe {
            ziptier_tokens_decode(tokens, coded.as_ptr().cast(), coded.len(), target.cast(), capacity, length)
        })
    };
    for value in records.iter().take(100).map(Vec::as_slice).chain([&b""[..], &noise(5000)]) {
        // SAFETY: the tokens are there.
        let bound = unsafe { ziptier_tokens_bound(tokens, value.len()) };
        let (status, length, mut coded) = encode(value, bound);
        assert_eq!((status, length), (ZIPTIER_OK, coded.len()));
        let (status, needed, _) = encode(value, length - 1);
        assert_eq!((status, needed), (ZIPTIER_TOO_SMALL, length));
        for capacity in [value.len(), value.len() + 7, value.len() + 16, 100_000] {
            assert_eq!(decode(&coded, capacity), (ZIPTIER_OK, value.len(), value.to_vec()));
        }
        if let Some(few) = value.len().checked_sub(1) {
            let (status, needed, _) = decode(&coded, few);
            assert_eq!((status, needed), (ZIPTIER_TOO_SMALL, value.len()));
        }
        coded[0] ^= 1;
        assert_eq!(decode(&coded, 100_000).0, ZIPTIER_DAMAGED);
    }
    // SAFETY: nobody uses the tokens any more.
    unsafe { ziptier_tokens_free(tokens) };
}

#[test]
fn values_by_tokens_come_back_in_groups() {
    let records = records(2000);
    let tokens = loaded(&records);
    let group: Vec<ziptier_slice> = records[..50].iter().map(|record| slice(record)).collect();
    let (mut ends, mut value_ends) = (vec![0; group.len()], vec![0; group.len()]);
    let mut encode = |capacity| {
        // SAFETY: the tokens are there; arrays and targets are as long as said.
        into(capacity, |target, length| unsafe {
            ziptier_tokens_encode_group(
                tokens,
                group.as_ptr(),
                group.len(),
                target.cast(),
                capacity,
                length,
                ends.as_mut_ptr(),
            )
        })
    };
    let (_, needed, _) = encode(10);
    let (status, _, coded) = encode(needed);
    assert_eq!(status, ZIPTIER_OK);
    assert_eq!(ends.last(), Some(&needed));
    let mut decode = |ends: &[usize], capacity| {
        // SAFETY: as above.
        into(capacity, |target, length| unsafe {
            let coded = slice(&coded);
            let (values, count) = (target.cast(), ends.len());
            ziptier_tokens_decode_group(
                tokens,
                coded.data,
                coded.len,
                ends.as_ptr(),
                count,
                values,
                capacity,
                length,
                value_ends.as_mut_ptr(),
            )
        })
    };
    let values = records[..50].concat();
    let (status, needed, _) = decode(&ends, 100);
    assert_eq!((status, needed), (ZIPTIER_TOO_SMALL, values.len()));
    assert_eq!(decode(&ends, needed), (ZIPTIER_OK, values.len(), values.clone()));
    assert_eq!(decode(&[ends[0], 0], needed).0, ZIPTIER_INVALID_ARGUMENT);
    assert!(last_error().contains("pass the ends of the encoder"), "{}", last_error());
    assert_eq!(value_ends[0], records[0].len());
    let both = ends.as_mut_ptr();
    // SAFETY: as above, and the library refuses ends in the place of the others.
    let (status, _, _) = into(needed, |target, length| unsafe {
        let (coded, count) = (slice(&coded), value_ends.len());
        let values = target.cast();
        ziptier_tokens_decode_group(tokens, coded.data, coded.len, both, count, values, needed, length, both)
    });
    assert_eq!(status, ZIPTIER_INVALID_ARGUMENT);
    assert!(last_error().contains("input and output overlap"), "{}", last_error());
    // SAFETY: nobody uses the tokens any more.
    unsafe { ziptier_tokens_free(tokens) };
}
