//! A program whose decision about a key panicked must find the key as it was, and its other threads must go on. A turn
//! that outlived its update would stop all writers of the key for ever.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use ziptier::{Options, Store, Update};

#[test]
fn at_once_and_when_it_has_its_turn() {
    let store = Store::open(Options::default()).unwrap();
    store.put(b"key", b"before").unwrap();
    // Eight attempts in vain give the update its turn.
    for attempts in [1u32, 9, 10] {
        let mut attempt = 0;
        let decided = catch_unwind(AssertUnwindSafe(|| {
            store.update(b"key", |_| {
                attempt += 1;
                assert!(attempt < attempts, "no decision");
                let value = attempt.to_le_bytes();
                if attempt <= 8 {
                    thread::scope(|scope| scope.spawn(|| store.put(b"key", &value)).join().unwrap()).unwrap();
                }
                // It may read.
                assert!(store.get(b"key").unwrap().is_some());
                Update::Delete
            })
        }));
        match attempts {
            10 => assert_eq!(decided.unwrap(), Ok(Update::Delete)),
            _ => assert!(decided.is_err() && store.get(b"key").unwrap().is_some(), "{attempts}"),
        }
        store.put(b"key", b"after").unwrap();
        assert_eq!(store.update(b"key", |_| Update::Delete), Ok(Update::Delete));
        store.put(b"key", b"before").unwrap();
    }
}
