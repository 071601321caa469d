//! Writers that wait for room which a training takes.

use std::sync::atomic::Ordering::Relaxed;

use ziptier_testing::until;
use ziptier_tree::record::PutMeta;

use crate::Error;
use crate::core::Core;
use crate::options::{MEMORY_LIMIT_BYTES_MIN, Options};

#[test]
fn nobody_is_refused_for_want_of_room_that_a_training_takes() {
    let options = Options {
        memory_limit_bytes: Some(MEMORY_LIMIT_BYTES_MIN),
        background_threads: 0,
        ..Options::default()
    };
    let core = Core::new(&options);
    let put = || core.put(b"key", &[7; 1000], PutMeta::default());
    std::thread::scope(|scope| {
        let training = core.tree.dictionaries.schedule.lock();
        core.tree.gauges.dictionary.add_held(MEMORY_LIMIT_BYTES_MIN as usize);
        let writer = scope.spawn(put);
        until("the writer waits", || core.tree.dictionaries.waits.load(Relaxed) > 0 || writer.is_finished());
        assert!(!writer.is_finished(), "it was refused");
        core.tree.gauges.dictionary.take_held(MEMORY_LIMIT_BYTES_MIN as usize);
        drop(training);
        assert_eq!(writer.join().expect("it did not panic").map(drop), Ok(()));
    });
    core.tree.gauges.dictionary.add_held(MEMORY_LIMIT_BYTES_MIN as usize);
    // The landing has room for a few more.
    assert!((0..8).any(|_| matches!(put(), Err(Error::MemoryLimit { .. }))));
}

/// A store that is full of raw values has room as soon as it has a dictionary.
#[test]
fn nothing_is_evicted_while_the_first_dictionary_is_trained() {
    const LIMIT_BYTES: u64 = 8 << 20;
    let options = Options {
        memory_limit_bytes: Some(LIMIT_BYTES),
        eviction: true,
        background_threads: 1,
        ..Options::default()
    };
    let core = Core::new(&options);
    let fill = || {
        for n in 0..LIMIT_BYTES / 200 {
            let value =
                format!("{n:>8} of the sheep in the parlour, and of the shepherd at her window").repeat(3);
            core.put(format!("key:{n:08}").as_bytes(), value.as_bytes(), PutMeta::default())?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let training = core.tree.dictionaries.schedule.lock();
        core.tree.gauges.dictionary.add_held(LIMIT_BYTES as usize / 2);
        // As a training leaves it, so that nobody begins another one.
        core.tree.dictionaries.first_bytes.store(u64::MAX, Relaxed);
        let writer = scope.spawn(fill);
        until("the writer waits", || core.tree.dictionaries.waits.load(Relaxed) > 0 || writer.is_finished());
        assert!(!writer.is_finished(), "it found room");
        assert_eq!(core.tree.stats.evicted.get(), 0);
        core.tree.dictionaries.first_bytes.store(0, Relaxed);
        core.tree.gauges.dictionary.take_held(LIMIT_BYTES as usize / 2);
        drop(training);
        assert_eq!(writer.join().expect("it did not panic"), Ok::<(), Error>(()));
    });
    assert!(core.tree.dictionaries.has_current());
    assert_eq!(core.tree.stats.evicted.get(), 0);
}
