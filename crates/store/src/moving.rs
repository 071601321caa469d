//! Moving a leaf's body between DRAM and far memory: copy, publish a state with the copy, and let the epoch free the rest.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::body::Body;
use crate::core::Core;
use crate::far::FAR_SHARE_BYTES;
use crate::large::{Large, LargeHandle, REFERENCE_BYTES};
use crate::leaf::{Leaf, LeafState};
use crate::pressure::Sent;

/// A body of so many bytes is not worth what DRAM would hold for it.
const SMALL_BYTES: usize = 2 * FAR_SHARE_BYTES;

impl Core {
    /// Moves what `leaf`, which the caller owns, has in DRAM to far memory.
    pub(crate) fn send_to_far(&self, leaf: &Leaf, guard: &Guard) -> Sent {
        let Some(far) = &self.far else { return Sent::Kept };
        let state = leaf.state(guard);
        if state.closed || state.body.is_empty() {
            return Sent::Kept;
        }
        let to_far = |large: LargeHandle<'_>| large.is_in_dram().then(|| large.to_far(far)).flatten();
        let moved = if far.is_placing() { None } else { MovedLarge::of(&state.body, to_far) };
        if moved.is_none() && (state.body.is_far() || state.body.dram_bytes() <= SMALL_BYTES) {
            return Sent::Kept;
        }
        let body = moved.as_ref().map_or(&state.body, |moved| &moved.body);
        let Some(body) = body.to_far(far) else { return Sent::Full };
        let mut freed_bytes = state.body.dram_bytes().saturating_sub(body.dram_bytes()) as u64;
        self.publish_body(leaf, body, guard);
        if let Some(moved) = moved {
            freed_bytes += moved.freed_bytes;
            self.settle_large(moved.large, moved.replaced, guard);
        }
        self.stats.sent_to_far.raise();
        Sent::Freed(freed_bytes)
    }

    /// Brings `leaf`, which the caller owns, back to DRAM; `false` when it stays.
    pub(crate) fn raise_from_far(&self, leaf: &Leaf, guard: &Guard) -> bool {
        let state = leaf.state(guard);
        if state.closed || !state.body.is_far() {
            return false;
        }
        let Some(body) = state.body.to_dram() else {
            self.stats.damaged.raise();
            return false;
        };
        self.publish_body(leaf, body, guard);
        self.stats.raised_from_far.raise();
        true
    }

    /// Publishes `body` beside whatever landings `leaf`, which the caller owns, has by now.
    pub(crate) fn publish_body(&self, leaf: &Leaf, body: Body, guard: &Guard) {
        loop {
            let current = leaf.state(guard);
            if leaf.publish(current, LeafState { body: body.clone(), ..current.clone() }, guard) {
                return;
            }
        }
    }

    /// Whether large values of a leaf's body are in DRAM and need not stay there.
    pub(crate) fn holds_large(&self, state: &LeafState) -> bool {
        let placing = self.far.as_ref().is_none_or(|far| far.is_placing());
        !placing && state.body.larges().any(|large| large.is_in_dram())
    }
}

/// A body whose large values have copies elsewhere.
pub(crate) struct MovedLarge {
    /// With references to the copies, and in DRAM.
    pub(crate) body: Body,
    pub(crate) large: Vec<Arc<Large>>,
    pub(crate) replaced: Vec<[u8; REFERENCE_BYTES]>,
    freed_bytes: u64,
}

impl MovedLarge {
    /// Each value's copy is what `copy` says, nothing if it stays. `None` if all do.
    pub(crate) fn of(body: &Body, mut copy: impl FnMut(LargeHandle<'_>) -> Option<Large>) -> Option<Self> {
        let (mut large, mut replaced, mut freed_bytes) = (Vec::new(), Vec::new(), 0);
        for old in body.larges() {
            let Some(new) = copy(old).map(Arc::new) else { continue };
            freed_bytes += old.held_bytes().saturating_sub(new.held_bytes()) as u64;
            replaced.push(old.reference());
            large.push(new);
        }
        if large.is_empty() {
            return None;
        }
        let mut copies = replaced.iter().zip(&large).peekable();
        let body =
            body.referring(|reference| match copies.next_if(|(replaced, _)| **replaced == reference) {
                Some((_, new)) => LargeHandle::to(new).reference(),
                None => reference,
            })?;
        Some(Self { body, large, replaced, freed_bytes })
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use crossbeam_epoch::pin;

    use super::*;
    use crate::far::FarMemory;
    use crate::options::{CodecChoice, Options};
    use crate::record::PutMeta;

    fn core_over(far: &Arc<FarMemory>, limit_bytes: Option<u64>) -> Core {
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let core = Core::with_far(&options, far.clone());
        core.gauges.set_limit(limit_bytes);
        core
    }

    fn value_of(n: u32) -> Vec<u8> {
        let len = if n.is_multiple_of(10) { 3000 } else { 100 };
        n.to_le_bytes().into_iter().cycle().take(len).collect()
    }

    /// Demotes, or brings back, every leaf that nobody else owns.
    fn move_all(core: &Core, demote: bool) {
        let mut cursor = Some(Vec::new());
        while let Some(low) = cursor {
            let guard = pin();
            let (leaf, _) = core.locate(&low, &guard);
            if let Some(_ownership) = leaf.try_own() {
                if demote {
                    core.send_to_far(leaf, &guard);
                } else {
                    core.raise_from_far(leaf, &guard);
                }
            }
            cursor = leaf.state(&guard).high.as_ref().map(|high| high.to_vec());
        }
        core.reclaim();
    }

    /// Whether `holds` is true once what was retired is freed; other tests' readers may hold it for a while.
    fn eventually(core: &Core, holds: impl Fn() -> bool) -> bool {
        (0..2000).any(|_| {
            core.reclaim();
            pin().flush();
            std::thread::sleep(std::time::Duration::from_millis(1));
            holds()
        })
    }

    #[test]
    fn readers_of_leaves_that_move_see_every_value() {
        // What was replaced may wait for the reader as long as that runs.
        let far = FarMemory::on_heap(1 << 30);
        let (records, rounds) = if cfg!(miri) { (25u32, 3) } else { (500, 50) };
        {
            let core = core_over(&far, None);
            for n in 0..records {
                core.put(&n.to_be_bytes(), &value_of(n), PutMeta::default()).unwrap();
            }
            core.settle();
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut value = Vec::new();
                    while !done.load(Relaxed) {
                        for n in 0..records {
                            value.clear();
                            core.read(&n.to_be_bytes(), &mut value).unwrap().unwrap();
                            assert_eq!(value, value_of(n));
                        }
                    }
                });
                (0..rounds).for_each(|round| move_all(&core, round % 2 == 0));
                done.store(true, Relaxed);
            });
            move_all(&core, true);
            assert_eq!(core.body_bytes(), 0);
            assert!(core.gauges.far_body.held() > 0);
            // A write to a leaf in far memory leaves it there.
            core.put(&3u32.to_be_bytes(), b"new", PutMeta::default()).unwrap();
            core.settle();
            assert_eq!(core.body_bytes(), 0);
            assert_eq!(
                core.gauges.memory_use().logical_bytes,
                core.count_keys() * 4 + {
                    (0..records).filter(|n| *n != 3).map(|n| value_of(n).len() as u64).sum::<u64>() + 3
                }
            );
        }
        (0..10).for_each(|_| pin().flush());
    }

    #[test]
    fn demoted_bytes_are_counted_where_they_lie_and_freed() {
        let far = FarMemory::on_heap(1 << 20);
        let core = core_over(&far, None);
        (0..200u32).for_each(|n| core.put(&n.to_be_bytes(), &value_of(n), PutMeta::default()).unwrap());
        core.settle();
        let before = core.gauges.memory_use();
        move_all(&core, true);
        let after = core.gauges.memory_use();
        assert_eq!((after.raw_body_bytes, after.logical_bytes), (0, before.logical_bytes));
        // Twenty values of 3,000 bytes, which the allocator rounds up to 3,072.
        assert_eq!(after.far_large_bytes, 20 * 3072);
        let freed = || before.large_bytes.saturating_sub(core.gauges.memory_use().large_bytes) >= 20 * 3000;
        assert!(eventually(&core, freed), "{before:?}, {after:?}");
        core.clear().unwrap();
        assert!(eventually(&core, || far.usage().used_bytes == 0), "{:?}", core.gauges.memory_use());
    }
}
