//! Figures: what the store holds and where, what it did, and which engine packs its blocks.

use ziptier_tree::coding::Coding;
use ziptier_tree::far::FarStatus;
use ziptier_tree::memory::MemoryUse;
use ziptier_tree::stats::Stats;

use super::Store;
use crate::durable::{Durability, DurableStats, WriteLog};
use crate::places::ssd::SsdStatus;

/// # Figures
impl Store {
    /// When a write is durable; `None` without a folder.
    #[inline]
    pub fn durability(&self) -> Option<Durability> {
        self.core.journal.get().map(WriteLog::durability)
    }

    /// What the store's log has done; `None` without a folder.
    pub fn durable_stats(&self) -> Option<DurableStats> {
        self.core.journal.get().map(WriteLog::stats)
    }

    /// What the store holds, by purpose, in allocator bytes.
    pub fn memory(&self) -> MemoryUse {
        self.core.tree.dictionaries.count_live();
        let far = self.core.tree.far.as_ref().map(|far| far.usage());
        let mut memory = self.core.tree.gauges.memory_use();
        memory.far_used_bytes = far.map_or(0, |far| far.used_bytes);
        memory.far_limit_bytes = far.map_or(0, |far| far.capacity_bytes);
        memory
    }

    /// What far memory is in force, if any.
    pub fn far(&self) -> Option<FarStatus> {
        Some(self.core.tree.far.as_ref()?.status())
    }

    /// What the SSD holds and what was written there, if there is one.
    pub fn ssd(&self) -> Option<SsdStatus> {
        Some(self.core.cold.as_ref()?.status())
    }

    /// What the store did since it was opened.
    pub fn stats(&self) -> Stats {
        let current = self.core.tree.dictionaries.current();
        let (coded_raw_bytes, coded_bytes) = self.core.tree.dictionaries.coded_bytes();
        let engines = current.as_ref().and_then(Coding::blocks).map(|blocks| blocks.totals().by_engine());
        let mut stats = self.core.tree.stats.stats();
        (stats.coded_raw_bytes, stats.coded_bytes) = (coded_raw_bytes, coded_bytes);
        stats.dictionary_generation = current.as_ref().map_or(0, Coding::generation);
        stats.dictionary_bits = current.as_ref().and_then(Coding::tokens).map_or(0, |tokens| tokens.bits());
        stats.with_engines(&engines.unwrap_or_default())
    }

    /// Whether the background has settled all that was written, as far as there is room. That is known seconds after
    /// the last write, or minutes for large or full stores. True without background threads. Leaves that nobody uses
    /// may become denser later: that is not waited for.
    pub fn is_settled(&self) -> bool {
        self.core.backlog.is_settled(self.core.has_background)
    }

    /// Bytes of images that the calling thread has read from SSD since the store was opened. A look-up reads and checks
    /// a whole image, however short its answer is.
    pub fn thread_read_bytes(&self) -> u64 {
        self.core.cold.as_ref().map_or(0, |_| self.core.tree.stats.own().image_bytes.get())
    }

    /// The engine that packs blocks where values are written, such as `software` or `iaa`; `None` for codecs without
    /// blocks.
    pub fn block_engine(&self) -> Option<&'static str> {
        Some(self.core.tree.dictionaries.current()?.blocks()?.engine_name())
    }

    /// Who packs blocks where values are written, in the words of result tables (`cpu`, `software`, `hardware`,
    /// `modelled`, `zlib_system`, `zlib_accel_preload`); `None` for codecs without blocks.
    pub fn block_worker(&self) -> Option<&'static str> {
        Some(self.core.tree.dictionaries.current()?.blocks()?.worker())
    }
}
