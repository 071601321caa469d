//! Room on SSD, which the store asks for before it merges, codes or writes anything of a leaf.
//!
//! Not for giving room back: `clean` does that.
//!
//! 1. A leaf asks for one image, because its landings are not merged yet and nobody knows how many images come of it.
//!    So a body of full far memory, which comes to DRAM before it goes, need not stay there.
//! 2. A leaf whose image a checkpoint wrote asks for nothing: that image is there.
//! 3. A compaction asks again for each image, after it has read the old one. An overlay that only repeats its images
//!    leaves memory without a write.

use ziptier_media::segments::{Purpose, SegmentError};
use ziptier_tree::leaf::{Leaf, LeafState};
use ziptier_tree::pending::newest;
use ziptier_tree::record::Kind;

use super::tier::Tier;
use crate::leaf_image::{Plain, Stored};
use crate::places::Moves;

impl Tier {
    /// Whether an image of so many bytes would be taken now. An image that makes a leaf smaller may use the room that
    /// is kept for cleaning.
    pub(super) fn ask(&self, image_bytes: usize, shrinks: bool) -> Result<(), SegmentError> {
        let ask_for = |purpose| {
            self.check_room(self.kept_from(purpose))?;
            self.files.segments.prepare(image_bytes, purpose)
        };
        match ask_for(Purpose::New) {
            Err(SegmentError::Full { .. }) if shrinks => ask_for(Purpose::Cleaning),
            answer => answer,
        }
    }
}

impl Moves<'_> {
    /// Whether the SSD has room for a leaf that is about to be settled for it. The caller holds no guard.
    pub(super) fn ask_ssd(&self, leaf: &Leaf) -> Result<(), SegmentError> {
        let Some(cold) = &self.cold else { return Ok(()) };
        let guard = self.tree.pin();
        let state = leaf.state(&guard);
        // While there is hope, a compaction looks whether the overlay only repeats its images.
        let has_hope = self.host.has_hope() && self.host.has_place_for(&[state]);
        let may_be_known = state.below.is_some() && has_hope;
        if may_be_known || needs_no_room(leaf, state) {
            return Ok(());
        }
        let image_bytes = state.body.asked_bytes() + state.landing_bytes() as usize;
        cold.tier.ask(image_bytes.min(self.tree.limits.bytes_max), self.shrinks(state))
    }

    /// Whether most of the records that a compaction would take down are deletes.
    fn shrinks(&self, state: &LeafState) -> bool {
        if state.below.is_none() {
            return false;
        }
        let landed = newest(state.landings(), &self.tree.commits);
        let kinds = (0..state.body.len()).map(|index| state.body.record(index).tag.kind());
        let kinds: Vec<Kind> = kinds.chain(landed.pending.iter().map(|record| record.kind)).collect();
        2 * kinds.iter().filter(|kind| **kind == Kind::Tombstone).count() > kinds.len()
    }
}

/// Whether nothing of a leaf has to be written.
fn needs_no_room(leaf: &Leaf, state: &LeafState) -> bool {
    let stored = Stored::of(state).and_then(|stored| stored.current(leaf.appends(), state.form.generation()));
    let has_image = stored.is_some_and(|at| matches!(at.plain(), Some(Plain { .. })));
    let has_references_alone = state.body.larges().count() == state.body.len();
    !state.is_unsettled() && (has_image || has_references_alone)
}

// No unsafe code comes this way, and there is an SSD: not for Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use std::sync::Arc;

    use ziptier_media::disk::Disk;
    use ziptier_media::testing::{FailingDisk, RecordingDisk};
    use ziptier_tree::codec_options::CodecChoice;
    use ziptier_tree::far::FarMemory;
    use ziptier_tree::memory::Gauges;
    use ziptier_tree::record::PutMeta;

    use crate::Error;
    use crate::core::Core;
    use crate::options::Options;
    use crate::places::ssd::{Cold, SsdOptions};

    const DRAM_BYTES: u64 = 8 << 20;
    const FAR_BYTES: u64 = 2 << 20;
    const SSD_BYTES: u64 = 4 << 20;
    /// Refusals that a test looks at.
    const REFUSALS: usize = 200;
    const TRIES_MAX: usize = 20_000;

    fn core_over(disk: Arc<dyn Disk>, far: Option<Arc<FarMemory>>, limit_bytes: u64) -> Core {
        let options = Options {
            // More leaves than the hand asks for in all of a writer's laps.
            memory_limit_bytes: Some(DRAM_BYTES),
            codec: CodecChoice::None,
            background_threads: 0,
            ..Options::default()
        };
        let gauges = Arc::new(Gauges::new(options.memory_limit_bytes));
        let ssd = SsdOptions { path: Some("/ssd".into()), limit_bytes };
        let cold = Cold::open(disk, &ssd, &gauges, |_, _| Ok(())).expect("the folder is empty");
        Core::with_places(&options, gauges, far, Some(cold))
    }

    /// Record `n`, whose key lies anywhere among the others.
    fn put(core: &Core, n: u64) -> Result<(), Error> {
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        core.put(&key, &n.to_le_bytes().repeat(20), PutMeta::default())
    }

    /// Writes records until many were refused, none of which merged anything. Returns the number of records that were
    /// taken before the first refusal.
    fn refuse(core: &Core) -> u64 {
        let first = (1 << 32..).find(|n| put(core, *n).is_err()).expect("no place is endless");
        let mut refusals = 0;
        for n in (first + 1..).take(TRIES_MAX) {
            let before = (core.tree.stats.tried_merges.get(), core.tree.gauges.body_bytes());
            if put(core, n).is_err() {
                assert_eq!((core.tree.stats.tried_merges.get(), core.tree.gauges.body_bytes()), before);
                refusals += 1;
            }
            if refusals == REFUSALS {
                return first - (1 << 32);
            }
        }
        panic!("{refusals} writes were refused");
    }

    #[test]
    fn a_refused_write_merges_nothing_for_an_ssd_at_its_limit() {
        let core = core_over(Arc::new(RecordingDisk::new()), None, SSD_BYTES);
        let records = refuse(&core);
        assert!(records * 168 > DRAM_BYTES + SSD_BYTES / 2, "{records} records were taken");
    }

    /// Bodies of full far memory would come to DRAM when they are merged.
    #[test]
    fn a_refused_write_merges_nothing_for_a_disk_without_room() {
        let disk = FailingDisk::that_fills(Arc::new(RecordingDisk::new()));
        let core = core_over(Arc::new(disk.clone()), Some(FarMemory::on_heap(FAR_BYTES)), 16 << 20);
        (0..100_000).for_each(|n| put(&core, n).expect("the SSD has room"));
        assert!(core.tree.stats.sent_to_ssd.get() > 0);
        disk.set_full(true);
        refuse(&core);
    }
}
