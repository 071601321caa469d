//! Sums over simulated stores: a step that no store takes any more tests nothing.

use crate::Stats;
use crate::core::Core;
use crate::durable::Checkpointer;

/// Counters of a store, by name.
type Named = (&'static str, fn(&Stats) -> u64);

/// The counters that some store of a hundred raises.
const COUNTERS: &[Named] = &[
    ("reads of raw values", |stats| stats.reads_raw),
    ("reads of coded values", |stats| stats.reads_coded),
    ("reads of packed values", |stats| stats.reads_packed),
    ("reads of landings", |stats| stats.reads_landing),
    ("reads of large values", |stats| stats.reads_large),
    ("reads on SSD", |stats| stats.reads_below),
    ("packs in the background", |stats| stats.packs_background),
    ("packs by writers", |stats| stats.packs_foreground),
    ("evictions", |stats| stats.evicted),
    ("splits", |stats| stats.splits),
    ("merges", |stats| stats.merges),
    ("recoded leaves", |stats| stats.recoded),
    ("condensed leaves", |stats| stats.condensed),
    ("demotions to far memory", |stats| stats.sent_to_far),
    ("promotions from far memory", |stats| stats.raised_from_far),
    ("demotions to SSD", |stats| stats.sent_to_ssd),
    ("merges on SSD", |stats| stats.merged_on_ssd),
    ("promotions from SSD", |stats| stats.raised_from_ssd),
    ("records copied up", |stats| stats.copied_up),
    ("large values raised", |stats| stats.values_raised),
    ("blocks packed fast", |stats| stats.blocks_packed_fast),
    ("blocks packed densely", |stats| stats.blocks_packed_dense),
    ("blocks unpacked", |stats| stats.blocks_unpacked),
];

/// Sums over stores.
#[derive(Default)]
pub(super) struct Reached {
    counted: Vec<u64>,
    pub(super) checkpoints: u64,
    pub(super) images_kept: u64,
    pub(super) cleaned_bytes: u64,
    pub(super) clears: u64,
    /// Stops, kills and power cuts.
    pub(super) ends: [u64; 3],
    pub(super) failed_starts: u64,
    pub(super) checks: u64,
    pub(super) restores: u64,
    pub(super) forgetful_syncs: u64,
}

impl Reached {
    /// Adds what a store has counted that is about to end.
    pub(super) fn add(&mut self, core: &Core) {
        let stats = core.tree.stats.stats();
        self.counted.resize(COUNTERS.len(), 0);
        self.counted.iter_mut().zip(COUNTERS).for_each(|(sum, (_, count))| *sum += count(&stats));
        if let Some(stats) = core.checkpointer.get().map(Checkpointer::stats) {
            self.checkpoints += stats.checkpoints;
            self.images_kept += stats.images_kept;
            self.cleaned_bytes += stats.cleaned_bytes;
        }
    }

    /// The names of the sums to which none of `stores` has added anything. Prints all sums.
    pub(super) fn missing(&self, stores: u64) -> Vec<&'static str> {
        let names = COUNTERS.iter().map(|(name, _)| *name);
        let others = [
            ("checkpoints", self.checkpoints),
            ("images kept", self.images_kept),
            ("bytes cleaned", self.cleaned_bytes),
            ("clears", self.clears),
            ("stops", self.ends[0]),
            ("kills", self.ends[1]),
            ("power cuts", self.ends[2]),
            ("starts that fail", self.failed_starts),
            ("checks", self.checks),
            ("restores", self.restores),
            ("syncs that lose pages", self.forgetful_syncs),
        ];
        let all: Vec<_> = names.zip(self.counted.iter().copied()).chain(others).collect();
        println!("{stores} stores: {all:?}");
        all.into_iter().filter(|(_, sum)| *sum == 0).map(|(name, _)| name).collect()
    }
}
