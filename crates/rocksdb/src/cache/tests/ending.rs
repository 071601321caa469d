//! The cache serves threads that end.

use super::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// Uses a cache when its thread ends.
struct AtEnd(Arc<Cache>, Arc<AtomicU64>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        put(&self.0, 2);
        self.1.fetch_add(count(&self.0, 1..3), Ordering::Relaxed);
    }
}

/// RocksDB drops a thread's iterators in the destructors of the thread, in which the scratch may be gone.
#[test]
fn a_thread_that_ends_still_reads_and_stores() {
    thread_local! {
        static AT_END: Cell<Option<AtEnd>> = const { Cell::new(None) };
    }
    let folder = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache::open(&settings(folder.path())).unwrap());
    let found = Arc::new(AtomicU64::new(0));
    put(&cache, 1);
    for is_scratch_first in [true, false] {
        let (cache, found) = (cache.clone(), found.clone());
        let ends = std::thread::spawn(move || {
            if is_scratch_first {
                assert!(has(&cache, 1));
            }
            AT_END.set(Some(AtEnd(cache.clone(), found)));
            assert!(has(&cache, 1));
        });
        ends.join().unwrap();
    }
    assert_eq!(found.load(Ordering::Relaxed), 4);
}
