//! Retired bytes: no thread can reach them any more, but readers may still hold them. Writers wait for them, so that
//! they stay few.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ziptier_tree::sync::back_off;

use super::Room;

/// Retired bytes that writers do not wait for, however small the store, and the part of a memory limit that they are at
/// most.
const RETIRED_BYTES_MIN: u64 = 256 << 10;
const RETIRED_LIMIT_PART: u64 = 64;
/// How much sooner that wait turns into sleep than others do.
const RETIRED_BACK_OFF: u32 = 16;
/// Rounds that a writer waits for retired bytes at most, about a second: no reader holds them for so long.
const RETIRED_ROUNDS_MAX: u32 = 20_000;

impl Room<'_> {
    /// Waits until retired bytes are at most 1 % of what is held, or for a moment. The caller holds no guard.
    ///
    /// Retired bytes may take more while the memory limit has room: half of that room, up to an eighth of the limit. A
    /// pack of a batch of hundreds of thousands of records lasts a third of a second under one epoch. Writers of other
    /// leaves go on meanwhile.
    ///
    /// The thread that holds the epoch back has usually lost its processor. It needs one, so the waiting thread sleeps
    /// and does not spin.
    pub(crate) fn wait_for_retired(self) {
        let few = RETIRED_BYTES_MIN.min(self.tree.gauges.limit() / RETIRED_LIMIT_PART);
        for round in 0..RETIRED_ROUNDS_MAX {
            let (retired_bytes, held) = (self.tree.gauges.retired_soon_free(), self.tree.gauges.held());
            if retired_bytes <= few || retired_bytes <= held / 100 || retired_bytes <= self.retired_room(held)
            {
                return;
            }
            #[cfg(test)]
            self.tree.stats.retired_waits.raise();
            self.tree.reclaim();
            back_off(round.saturating_mul(RETIRED_BACK_OFF));
        }
    }

    /// Waits for all readers of this moment if `over_bytes` or more are retired; whether it did. No writer is refused
    /// because a reader takes long. The caller holds no guard.
    pub(crate) fn waits_for_readers_of(self, over_bytes: u64) -> bool {
        let frees = self.tree.gauges.retired_soon_free() >= over_bytes;
        if frees {
            self.wait_for_readers();
        }
        frees
    }

    /// Waits until every reader of this moment is gone, and frees what they held. The caller holds no guard.
    pub(crate) fn wait_for_readers(self) {
        let gone = Arc::new(AtomicBool::new(false));
        {
            let (guard, gone) = (self.tree.pin(), gone.clone());
            guard.defer(move || gone.store(true, Relaxed));
            guard.flush();
        }
        let mut round = 0;
        while !gone.load(Relaxed) {
            self.tree.pin().flush();
            back_off(round);
            round += 1;
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::time::Duration;

    use ziptier_tree::record::PutMeta;
    use ziptier_tree::seen::Wanted;
    use ziptier_tree::update::Update;

    use super::*;
    use crate::core::Core;
    use crate::options::Options;

    /// The store stays above its limit, by less than expiries may take beyond it.
    #[test]
    fn an_expiry_that_retired_bytes_have_no_room_for_waits_for_their_reader() {
        let options =
            Options { background_threads: 0, memory_limit_bytes: Some(8 << 20), ..Options::default() };
        let core = Core::new(&options);
        core.put(b"key", b"value", PutMeta::default()).expect("there is room");
        let limit = core.tree.gauges.limit();
        core.tree.gauges.dictionary.add_held((limit + limit / 256 - core.tree.gauges.held()) as usize);
        let retired_bytes = limit as usize / 100;
        core.tree.gauges.retire(retired_bytes, retired_bytes);
        let gauges = core.tree.gauges.clone();
        let reader = core.tree.pin();
        reader.defer(move || gauges.free(retired_bytes, retired_bytes));
        assert!(core.room().admit_in_time().is_err());
        drop(reader);
        let expires = core.modify(b"key", Wanted::Meta, |_| Update::Expire(Some(33_177_117_420_000)));
        assert!(expires.is_ok(), "{expires:?}");
        assert!(core.tree.gauges.held() > limit);
    }

    /// A writer was refused after 20,000 rounds. A reader without a processor may take longer.
    #[test]
    fn a_writer_that_lacks_retired_bytes_alone_waits_for_their_reader() {
        let options =
            Options { background_threads: 0, memory_limit_bytes: Some(8 << 20), ..Options::default() };
        let core = Core::new(&options);
        let limit = core.tree.gauges.limit();
        let retired_bytes = limit as usize / 100;
        core.tree.gauges.retire(retired_bytes, retired_bytes);
        core.tree.gauges.dictionary.add_held((limit - core.tree.gauges.held()) as usize);
        let gauges = core.tree.gauges.clone();
        let reader = core.tree.pin();
        reader.defer(move || gauges.free(retired_bytes, retired_bytes));
        reader.flush();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| core.put(b"key", b"value", PutMeta::default()));
            // The rounds of a writer would end sooner.
            std::thread::sleep(Duration::from_millis(300));
            drop(reader);
            let put = writer.join().expect("it ends");
            assert!(put.is_ok(), "{put:?}");
        });
    }

    /// Such a writer was refused after a second or two. Live records left room, so nothing was evicted, and a reader
    /// held fewer retired bytes than writers wait for.
    #[test]
    fn a_writer_of_a_cache_waits_for_a_reader_of_few_bytes() {
        let options = Options {
            background_threads: 0,
            memory_limit_bytes: Some(8 << 20),
            eviction: true,
            ..Options::default()
        };
        let core = Core::new(&options);
        let value = vec![7; 1 << 20];
        let limit = core.tree.gauges.limit();
        let retired_bytes = 96 << 10;
        let live_bytes = limit - value.len() as u64 - (64 << 10);
        core.tree.gauges.dictionary.add_held((live_bytes - core.tree.gauges.held()) as usize);
        core.tree.gauges.retire(retired_bytes, retired_bytes);
        let gauges = core.tree.gauges.clone();
        let reader = core.tree.pin();
        reader.defer(move || gauges.free(retired_bytes, retired_bytes));
        reader.flush();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| core.put(b"key", &value, PutMeta::default()));
            // The rounds of a writer would end sooner.
            std::thread::sleep(Duration::from_millis(500));
            drop(reader);
            let put = writer.join().expect("it ends");
            assert!(put.is_ok(), "{put:?}");
        });
    }

    #[test]
    fn writers_wait_for_no_reader_while_there_is_room() {
        let waits_in = |limit: Option<u64>| {
            let core = Core::new(&Options {
                background_threads: 0,
                memory_limit_bytes: limit,
                ..Options::default()
            });
            let _reader = core.tree.pin();
            let mut waits = 0;
            for n in 0..500_u32 {
                core.put(&(n % 100).to_be_bytes(), &[7; 500], PutMeta::default()).expect("there is room");
                waits = core.tree.stats.retired_waits.get();
                if waits > 0 {
                    break;
                }
            }
            (waits, core.tree.gauges.retired.held())
        };
        let (waits, retired_bytes) = waits_in(Some(256 << 20));
        assert!(waits == 0 && retired_bytes > 4 * RETIRED_BYTES_MIN, "{waits}, {retired_bytes}");
        // Nearly all of this limit would be retired bytes.
        assert!(waits_in(Some(2 << 20)).0 > 0);
    }

    #[test]
    fn writers_wait_for_readers_that_hold_retired_bytes_back() {
        let core = Core::new(&Options { background_threads: 0, ..Options::default() });
        let put = |n: u32| core.put(&(n % 100).to_be_bytes(), &[7; 500], PutMeta::default());
        (0..100).for_each(|n| put(n).expect("no limit is set"));
        let (pinned, released, written) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let guard = core.tree.pin();
                pinned.store(true, Ordering::Release);
                while written.load(Ordering::Relaxed) == 0 {
                    std::thread::yield_now();
                }
                std::thread::sleep(Duration::from_millis(200));
                released.store(true, Ordering::Release);
                drop(guard);
            });
            while !pinned.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let mut most = 0;
            while !released.load(Ordering::Acquire) {
                put(written.fetch_add(1, Ordering::Relaxed)).expect("no limit is set");
                most = most.max(core.tree.gauges.retired.held());
            }
            assert!(most < 2 * RETIRED_BYTES_MIN, "{most} bytes were retired");
        });
        // The reader has gone, and each store has an epoch of its own.
        core.tree.reclaim();
        assert!(
            core.tree.gauges.retired.held() < RETIRED_BYTES_MIN / 4,
            "{}",
            core.tree.gauges.retired.held()
        );
    }
}
