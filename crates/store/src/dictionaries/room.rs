//! The count of the bytes that a training takes.

use crate::memory::Gauges;

/// Bytes that are counted as held for dictionaries until this is dropped.
pub(super) struct Counted<'a> {
    gauges: &'a Gauges,
    bytes: usize,
}

impl<'a> Counted<'a> {
    pub(super) fn new(gauges: &'a Gauges, bytes: usize) -> Self {
        gauges.dictionary.add_held(bytes);
        Self { gauges, bytes }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.gauges.dictionary.take_held(self.bytes);
    }
}

#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use ziptier_testing::until;

    use super::*;
    use crate::Error;
    use crate::codec_options::CodecChoice;
    use crate::core::Core;
    use crate::host::TrainingRoom;
    use crate::options::{MEMORY_LIMIT_BYTES_MIN, Options};
    use crate::record::PutMeta;

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
            let counted = Counted::new(&core.tree.gauges, MEMORY_LIMIT_BYTES_MIN as usize);
            let writer = scope.spawn(put);
            until("the writer waits", || {
                core.tree.dictionaries.waits.load(Relaxed) > 0 || writer.is_finished()
            });
            assert!(!writer.is_finished(), "it was refused");
            drop((counted, training));
            assert_eq!(writer.join().expect("it did not panic").map(drop), Ok(()));
        });
        let _counted = Counted::new(&core.tree.gauges, MEMORY_LIMIT_BYTES_MIN as usize);
        // The landing has room for a few more.
        assert!((0..8).any(|_| matches!(put(), Err(Error::MemoryLimit { .. }))));
    }

    /// A cache at rest keeps its records, whatever its background would like to train.
    #[test]
    fn writers_make_the_room_for_a_training_and_the_training_evicts_nothing() {
        const LIMIT_BYTES: u64 = 4 << 20;
        const TRAINING_BYTES: usize = 1 << 20;
        let options = Options {
            memory_limit_bytes: Some(LIMIT_BYTES),
            eviction: true,
            codec: CodecChoice::None,
            background_threads: 0,
            ..Options::default()
        };
        let core = Core::new(&options);
        let put =
            |n: u64| core.put(&n.to_be_bytes(), &[n as u8; 200], PutMeta::default()).expect("it evicts");
        (0..LIMIT_BYTES / 150).for_each(put);
        let evicted = core.tree.stats.evicted.get();
        assert!(evicted > 0);
        for _ in 0..100 {
            assert!(!core.has_room_to_train(TRAINING_BYTES));
            core.settle();
            while core.evict_in_background() {}
        }
        assert_eq!(core.tree.stats.evicted.get(), evicted);
        assert!(!core.has_room_to_train(TRAINING_BYTES));
        let needed = (0..).find(|n| {
            put(1 << 40 | n);
            core.has_room_to_train(TRAINING_BYTES)
        });
        assert!(needed.is_some_and(|writes| writes < LIMIT_BYTES / 150), "{needed:?}");
        assert!(core.tree.stats.evicted.get() > evicted);
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
                let value = format!("{n:>8} of the sheep in the parlour, and of the shepherd at her window")
                    .repeat(3);
                core.put(format!("key:{n:08}").as_bytes(), value.as_bytes(), PutMeta::default())?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let training = core.tree.dictionaries.schedule.lock();
            let counted = Counted::new(&core.tree.gauges, LIMIT_BYTES as usize / 2);
            // As a training leaves it, so that nobody begins another one.
            core.tree.dictionaries.first_bytes.store(u64::MAX, Relaxed);
            let writer = scope.spawn(fill);
            until("the writer waits", || {
                core.tree.dictionaries.waits.load(Relaxed) > 0 || writer.is_finished()
            });
            assert!(!writer.is_finished(), "it found room");
            assert_eq!(core.tree.stats.evicted.get(), 0);
            core.tree.dictionaries.first_bytes.store(0, Relaxed);
            drop((counted, training));
            assert_eq!(writer.join().expect("it did not panic"), Ok::<(), Error>(()));
        });
        assert!(core.tree.dictionaries.has_current());
        assert_eq!(core.tree.stats.evicted.get(), 0);
    }
}
