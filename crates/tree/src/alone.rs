//! A tree with the least of hosts, for tests: writers pack their leaves themselves, and nobody makes room.

use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::batch::Batch;
use crate::below::Below;
use crate::clock::Clock;
use crate::codec_options::{CodecChoice, CodecOptions};
use crate::host::{Admission, Host, ReadHost};
use crate::large::{ChunkPlace, Large};
use crate::leaf::{Leaf, LeafState};
use crate::marks::Mark;
use crate::memory::{Gauges, Reserved};
use crate::packing::{Goal, Packs, Scratch};
use crate::read::Reads;
use crate::record::{Found, Meta, PutMeta};
use crate::retention::{KeepsAll, Retention};
use crate::sync::back_off;
use crate::tree::{Tree, TreeOptions};
use crate::write::Writes;
use crate::{Error, HostError};

/// The refusal of a write for which memory has no room.
#[derive(Debug, thiserror::Error)]
#[error("memory has no room")]
struct Full;

/// A tree that is its own host.
pub(crate) struct Alone {
    pub(crate) tree: Tree,
}

impl Alone {
    /// A tree of one empty leaf.
    pub(crate) fn new(codec: CodecChoice) -> Self {
        Self::with_clock(codec, Clock::default())
    }

    /// The same with a clock of the test's own.
    pub(crate) fn with_clock(codec: CodecChoice, clock: Clock) -> Self {
        Self::with(&TreeOptions { clock, ..Self::options(codec) })
    }

    /// The same with options that begin with [`Alone::options`].
    pub(crate) fn with(options: &TreeOptions) -> Self {
        let alone = Self { tree: Tree::new(options, Arc::new(Gauges::default()), None) };
        alone.set_memory_limit(None);
        alone
    }

    pub(crate) fn options(codec: CodecChoice) -> TreeOptions {
        TreeOptions {
            codecs: CodecOptions { codec, ..CodecOptions::default() },
            heats: false,
            landing_bytes: 768,
            landing_watermark_pct: 100,
            evicts: false,
            recovers: false,
            clock: Clock::default(),
        }
    }

    /// Bytes above which writes are refused.
    pub(crate) fn set_memory_limit(&self, bytes: Option<u64>) {
        self.tree.gauges.set_limit(bytes);
    }

    pub(crate) fn reads(&self) -> Reads<'_> {
        Reads { tree: &self.tree, host: self }
    }

    pub(crate) fn writes(&self) -> Writes<'_> {
        Writes::new(&self.tree, None, self)
    }

    pub(crate) fn read(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        self.reads().read(key, value)
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8], meta: PutMeta) -> Result<(), Error> {
        self.writes().put(key, value, meta)
    }

    pub(crate) fn write(&self, batch: &Batch) -> Result<bool, Error> {
        self.writes().write(batch)
    }

    /// Packs the landings of a leaf that the caller owns.
    pub(crate) fn pack(&self, leaf: &Leaf, guard: &Guard) {
        self.pack_with(leaf, Goal::Keep, &mut KeepsAll, guard);
    }

    /// The same with a goal and a retention.
    pub(crate) fn pack_with(&self, leaf: &Leaf, goal: Goal, retention: &mut dyn Retention, guard: &Guard) {
        Scratch::with(|scratch| {
            Packs::new(&self.tree, self, retention, guard, scratch).pack(leaf, goal);
        });
    }

    /// Joins a leaf that the caller owns with its right neighbour, if one body has room for both.
    pub(crate) fn join(&self, leaf: &Leaf, guard: &Guard) -> bool {
        Scratch::with(|scratch| Packs::new(&self.tree, self, &mut KeepsAll, guard, scratch).join_right(leaf))
    }

    /// Packs all landings, and gives all leaves their dense form.
    pub(crate) fn settle(&self) {
        let mut cursor = Vec::new();
        loop {
            let high = self.tree.with_leaf_of(&cursor, |leaf, guard| {
                // A landing may be sealed while another one waits for its pack.
                for _ in 0..2 {
                    leaf.seal(guard);
                    self.pack_with(leaf, Goal::Recode, &mut KeepsAll, guard);
                }
                leaf.state(guard).high.as_ref().map(|high| high.to_vec())
            });
            match high {
                Some(high) => cursor = high,
                None => break,
            }
        }
        self.tree.reclaim();
    }

    /// Packs the sealed landing of a leaf; `false` if another thread has the leaf.
    fn pack_sealed(&self, leaf: &Leaf, guard: &Guard) -> bool {
        let Some(_ownership) = leaf.try_own() else { return false };
        if leaf.state(guard).sealed.is_some() {
            self.pack(leaf, guard);
            self.tree.stats.packs_foreground.raise();
        }
        true
    }
}

impl Admission for Alone {
    fn admit(&self, bytes: usize) -> Result<(), Error> {
        let gauges = &self.tree.gauges;
        if gauges.held() + bytes as u64 <= gauges.limit() { Ok(()) } else { Err(self.refusal()) }
    }

    fn admit_in_time(&self) -> Result<(), Error> {
        Ok(())
    }

    fn has_room_for_growth(&self, bytes: usize) -> bool {
        self.admit(bytes).is_ok()
    }

    fn is_short(&self) -> bool {
        false
    }

    fn has_place_for(&self, _: &[&LeafState]) -> bool {
        true
    }

    fn chunk_place(&self, _: usize) -> ChunkPlace<'_> {
        ChunkPlace::Dram
    }

    fn refusal(&self) -> Error {
        Error::MemoryLimit(HostError::new(Full))
    }

    fn make_room(&self, bytes: usize) -> Result<(), Error> {
        self.admit(bytes)
    }

    fn make_room_in_time(&self, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn reserve(&self, bytes: usize) -> Result<Reserved<'_>, Error> {
        self.admit(bytes)?;
        Ok(self.tree.gauges.reserve(bytes))
    }

    fn wait_for_retired(&self) {}
}

impl Host for Alone {
    fn note_landing(&self, _: &Leaf) {}

    fn note_watermark(&self, _: &Leaf) {}

    fn sealed(&self, leaf: &Leaf, guard: &Guard) {
        self.pack_sealed(leaf, guard);
    }

    fn pack_full(&self, key: &[u8], _: bool, round: u32) -> Result<(), Error> {
        let guard = self.tree.pin();
        if !self.pack_sealed(self.tree.locate(key, &guard).0, &guard) {
            drop(guard);
            back_off(round);
        }
        Ok(())
    }

    fn has_evicted(&self) -> bool {
        false
    }

    fn after_packs(&self) {}

    fn after_batch(&self) {}

    fn remember(&self, _: &Leaf, _: &[Mark], _: &Guard) {}

    fn seal_left(&self, leaf: &Leaf, guard: &Guard) {
        if let Some(_writer) = leaf.try_lock_writer() {
            self.tree.seal_grown(leaf, guard);
        }
    }
}

impl ReadHost for Alone {
    fn wait_for_seen(&self) -> Result<(), Error> {
        Ok(())
    }

    fn note_read_below(&self, _: &[u8], _: Option<Found<'_>>, _: &Arc<Below>) {}

    fn note_large_reads<'a>(&self, _: &mut dyn Iterator<Item = (&'a [u8], &'a Large)>) {}
}
