//! Threads that use a cache at the same time get what is right.

use super::*;

#[test]
fn threads_find_what_is_right_while_segments_are_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(&settings(folder.path())).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let cache = &cache;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for _ in 0..4000 {
                    let i = random.u64(..4000);
                    if !has(cache, i) {
                        cache.put(&key(i), kind(i), &block(i));
                    }
                }
            });
        }
    });
    assert_eq!(cache.counters().damaged.get(), 0);
    assert!(cache.counters().hits.get() > 0);
}
