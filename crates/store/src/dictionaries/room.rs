//! Room in memory for a training, and the count of the bytes that a training takes.
//!
//! Not for how large a training is: [`Candidate`](super::Candidate) tells that.

use crate::core::Core;
use crate::memory::Gauges;

/// The part of its limit, one in so many, that an evicting store makes free to train a dictionary. A small store makes
/// free what a training of 12 bits takes, but no more than a larger part.
const TRAINING_PART: u64 = 16;
const TRAINING_PART_SMALL: u64 = 4;
const TRAINING_BYTES_SMALL: u64 = 4 << 20;
/// The part of the room, one in so many, that writers keep while a store that has a dictionary trains another one.
const WRITERS_PART: u64 = 4;

impl Core {
    /// Whether a training has its room, which is made if it can be.
    pub(super) fn has_room_to_train(&self, bytes: usize) -> bool {
        // A recovery admits every write, but a training can wait.
        if self.recovering() {
            return self.gauges.held() + bytes as u64 <= self.gauges.limit();
        }
        let needs_room = self.admit(bytes).is_err() || self.movable_bytes() > 0;
        !needs_room || !self.ask_for_training_room(bytes as u64) && self.make_room_to_train(bytes).is_ok()
    }

    /// Bytes that a training may take now, where another dictionary would save the part `saving` of what is written.
    ///
    /// Three quarters of the room that is left; the rest is for writers meanwhile. With half of the room, a store of 32
    /// MiB was too full for 14 bits by the time that these saved enough. Before there is a dictionary it is all of the
    /// room: writers wait for that training, and it gives them more than it takes. A store that evicts is full
    /// for ever, and makes room: for a first dictionary a part of its limit, and no more for another one than that is
    /// about to save. Its writers evict for that room.
    pub(super) fn training_room_bytes(&self, saving: Option<f64>) -> u64 {
        let limit_bytes = self.gauges.limit();
        let room_bytes = limit_bytes.saturating_sub(self.gauges.held()) + self.movable_bytes();
        let has_current = self.dictionaries.has_current();
        let free_bytes = if has_current || limit_bytes == u64::MAX {
            room_bytes - room_bytes / WRITERS_PART
        } else {
            room_bytes
        };
        if !self.evicts() || limit_bytes == u64::MAX {
            return free_bytes;
        }
        let saving = if has_current { saving.unwrap_or(0.0) } else { 1.0 };
        let part_bytes =
            (limit_bytes / TRAINING_PART).max(TRAINING_BYTES_SMALL.min(limit_bytes / TRAINING_PART_SMALL));
        free_bytes.max(part_bytes.min((limit_bytes as f64 * saving) as u64))
    }
}

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
    use crate::dictionaries::{Candidate, SAMPLE_BYTES_MIN};
    use crate::options::{CodecChoice, MEMORY_LIMIT_BYTES_MIN, Options};
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
            let training = core.dictionaries.schedule.lock();
            let counted = Counted::new(&core.gauges, MEMORY_LIMIT_BYTES_MIN as usize);
            let writer = scope.spawn(put);
            until("the writer waits", || core.dictionaries.waits.load(Relaxed) > 0 || writer.is_finished());
            assert!(!writer.is_finished(), "it was refused");
            drop((counted, training));
            assert_eq!(writer.join().expect("it did not panic").map(drop), Ok(()));
        });
        let _counted = Counted::new(&core.gauges, MEMORY_LIMIT_BYTES_MIN as usize);
        assert!(matches!(put(), Err(Error::MemoryLimit { .. })));
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
        let evicted = core.stats.evicted.get();
        assert!(evicted > 0);
        for _ in 0..100 {
            assert!(!core.has_room_to_train(TRAINING_BYTES));
            core.settle();
            while core.evict_in_background() {}
        }
        assert_eq!(core.stats.evicted.get(), evicted);
        assert!(!core.has_room_to_train(TRAINING_BYTES));
        let needed = (0..).find(|n| {
            put(1 << 40 | n);
            core.has_room_to_train(TRAINING_BYTES)
        });
        assert!(needed.is_some_and(|writes| writes < LIMIT_BYTES / 150), "{needed:?}");
        assert!(core.stats.evicted.get() > evicted);
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
            let training = core.dictionaries.schedule.lock();
            let counted = Counted::new(&core.gauges, LIMIT_BYTES as usize / 2);
            // As a training leaves it, so that nobody begins another one.
            core.dictionaries.first_bytes.store(u64::MAX, Relaxed);
            let writer = scope.spawn(fill);
            until("the writer waits", || core.dictionaries.waits.load(Relaxed) > 0 || writer.is_finished());
            assert!(!writer.is_finished(), "it found room");
            assert_eq!(core.stats.evicted.get(), 0);
            core.dictionaries.first_bytes.store(0, Relaxed);
            drop((counted, training));
            assert_eq!(writer.join().expect("it did not panic"), Ok::<(), Error>(()));
        });
        assert!(core.dictionaries.has_current());
        assert_eq!(core.stats.evicted.get(), 0);
    }

    /// With half of its room for a training, such a store stayed with 12 bits, and refused what 14 would have held.
    #[test]
    fn a_store_of_32_mib_that_is_half_full_may_train_14_bits() {
        const LIMIT_BYTES: u64 = 32 << 20;
        let core = Core::new(&Options {
            memory_limit_bytes: Some(LIMIT_BYTES),
            background_threads: 0,
            ..Options::default()
        });
        let samples: Vec<Vec<u8>> =
            (0..1000_u32).map(|n| format!("value {n} of many").into_bytes()).collect();
        let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
        let first = Candidate::Tokens(12).train(&samples, LIMIT_BYTES, 1).expect("it trains");
        core.dictionaries.adopt(first);
        let _held = Counted::new(&core.gauges, LIMIT_BYTES as usize / 2);
        let sample_bytes = Candidate::Tokens(14).sample_bytes(LIMIT_BYTES, core.training_room_bytes(None));
        assert!(sample_bytes >= Some(SAMPLE_BYTES_MIN), "{sample_bytes:?}");
    }
}
