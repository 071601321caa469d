//! The parts of a store, shared by the callers' threads and the background threads.
//!
//! Not for the public API, which is `store`, nor for reads and writes of keys, which are those
//! of the tree. `host`
//! answers reads, writes, packs and moves.

mod host;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use ziptier_media::disk::Disk;
use ziptier_tree::far::FarMemory;
use ziptier_tree::host::Journal;
use ziptier_tree::memory::Gauges;
use ziptier_tree::read::Reads;
use ziptier_tree::tree::Tree;
use ziptier_tree::write::Writes;

use crate::Error;
use crate::backlog::Backlog;
use crate::durable::{Checkpointer, Folder, WriteLog, refuse_segments_of_a_store};
use crate::maintenance::Maintenance;
use crate::options::Options;
use crate::places::Moves;
use crate::places::ssd::{Cold, Tier};
use crate::reclaimer::{Pressure, Reclaimer};
use crate::room::{Findings, Room};
use crate::s3fifo::Eviction;
use crate::tierer::Tiering;
use crate::upkeep::Upkeep;

pub(crate) struct Core {
    /// Dropped first: what readers held goes back while the folders are locked. Leaves that others share outlive the
    /// epochs, and no drop below pins one.
    pub(crate) tree: Tree,
    pub(crate) has_background: bool,
    pub(crate) background_packing: bool,
    /// The SSD, the last place, if there is one.
    pub(crate) cold: Option<Cold>,
    pub(crate) findings: Findings,
    pub(crate) pressure: Pressure,
    pub(crate) backlog: Backlog,
    /// The data of eviction, while it is on.
    pub(crate) eviction: Box<Eviction>,
    /// The log that writes go to, once the store has recovered; never without a folder.
    pub(crate) journal: OnceLock<WriteLog>,
    /// Makes the checkpoints that keep the log short.
    pub(crate) checkpointer: OnceLock<Checkpointer>,
    /// Leaves are made from images, and no other thread may change any.
    pub(crate) loading: AtomicBool,
    /// A recovery deletes a range of keys. Leaves on SSD that were cut at its bounds stay apart.
    pub(crate) deletes_range: AtomicBool,
}

impl Core {
    /// A core with DRAM only.
    pub(crate) fn new(options: &Options) -> Self {
        Self::with_places(options, Arc::new(Gauges::new(options.memory_limit_bytes)), None, None)
    }

    /// A core with far memory of a test.
    #[cfg(test)]
    pub(crate) fn with_far(options: &Options, far: Arc<FarMemory>) -> Self {
        Self::with_places(options, Arc::new(Gauges::new(options.memory_limit_bytes)), Some(far), None)
    }

    /// A core with `far` memory and the SSD that `options` name, and its folder, of which no image and no log was read
    /// yet. The SSD of a core without a folder lies on `disk`.
    ///
    /// # Errors
    /// A folder or an SSD that is in use, damaged, or not that of a store.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        options: &Options,
        far: Option<Arc<FarMemory>>,
    ) -> Result<(Self, Option<Folder>), Error> {
        let gauges = Arc::new(Gauges::new(options.memory_limit_bytes));
        let ssd = options.ssd.as_ref();
        let folder = options.durable.as_ref().map(|durable| Folder::open(durable, ssd)).transpose()?;
        if options.eviction && folder.as_ref().is_some_and(Folder::has_cold) {
            let reason = "the folder has leaves on SSD, where a store that evicts keeps nothing; open it \
                          without eviction";
            return Err(Error::Ssd { reason: reason.to_owned() });
        }
        let cold = match (&folder, ssd) {
            (Some(folder), _) if ssd.is_some() || folder.has_cold() => {
                let tier = Tier::over(folder.files.clone(), folder.layout, gauges.clone());
                Some(Cold::over(tier, &gauges))
            }
            (None, Some(ssd)) => Some(Cold::open(disk, ssd, &gauges, refuse_segments_of_a_store)?),
            _ => None,
        };
        Ok((Self::with_places(options, gauges, far, cold), folder))
    }

    /// A core with the places below DRAM.
    pub(crate) fn with_places(
        options: &Options,
        gauges: Arc<Gauges>,
        far: Option<Arc<FarMemory>>,
        cold: Option<Cold>,
    ) -> Self {
        Self {
            has_background: options.background_threads > 0,
            background_packing: options.background_packing && options.background_threads > 0,
            cold,
            findings: Findings::default(),
            pressure: Pressure::default(),
            backlog: Backlog::default(),
            eviction: Box::new(Eviction::new(options.eviction)),
            journal: OnceLock::new(),
            checkpointer: OnceLock::new(),
            loading: AtomicBool::new(options.durable.is_some()),
            deletes_range: AtomicBool::new(false),
            tree: Tree::new(&options.tree(), gauges, far),
        }
    }
}

/// The parts that work on it.
impl Core {
    /// What room there is.
    #[inline]
    pub(crate) fn room(&self) -> Room<'_> {
        let Self { tree, cold, findings, has_background, .. } = self;
        Room { tree, cold: cold.as_ref(), findings, has_background: *has_background }
    }

    /// Moves between the store's places.
    #[inline]
    pub(crate) fn moves(&self) -> Moves<'_> {
        Moves { tree: &self.tree, cold: self.cold.as_ref(), host: self }
    }

    /// Reads of the store's tree.
    #[inline]
    pub(crate) fn reads(&self) -> Reads<'_> {
        Reads { tree: &self.tree, host: self }
    }

    /// Writes to the store's tree.
    #[inline]
    pub(crate) fn writes(&self) -> Writes<'_> {
        Writes::new(&self.tree, self.journal.get().map(|journal| journal as &dyn Journal), self)
    }

    /// The upkeep of its leaves.
    #[inline]
    pub(crate) fn upkeep(&self) -> Upkeep<'_> {
        Upkeep { tree: &self.tree, room: self.room(), moves: self.moves(), eviction: &self.eviction }
    }

    /// The reclaimer, which makes room.
    #[inline]
    pub(crate) fn reclaimer(&self) -> Reclaimer<'_> {
        Reclaimer {
            tree: &self.tree,
            room: self.room(),
            moves: self.moves(),
            upkeep: self.upkeep(),
            eviction: &self.eviction,
            pressure: &self.pressure,
            backlog: &self.backlog,
            checkpointer: &self.checkpointer,
            journal: &self.journal,
            loading: &self.loading,
        }
    }

    /// Rounds of the tierer.
    pub(crate) fn tiering(&self) -> Tiering<'_> {
        Tiering { tree: &self.tree, upkeep: self.upkeep(), pressure: &self.pressure }
    }

    /// The background's work.
    pub(crate) fn maintenance(&self) -> Maintenance<'_> {
        Maintenance {
            tree: &self.tree,
            room: self.room(),
            upkeep: self.upkeep(),
            reclaimer: self.reclaimer(),
            tiering: self.tiering(),
            backlog: &self.backlog,
            writes: self.writes(),
        }
    }
}

/// Reads and writes of tests, as callers of the store make them.
#[cfg(any(test, fuzzing))]
mod calls {
    use ziptier_tree::batch::Batch;
    use ziptier_tree::multi_get::Values;
    #[cfg(not(shuttle))]
    use ziptier_tree::record::Kind;
    use ziptier_tree::record::{Meta, PutMeta};
    use ziptier_tree::seen::Wanted;
    use ziptier_tree::update::Update;

    use super::Core;
    use crate::Error;

    #[cfg_attr(fuzzing, expect(dead_code, reason = "the fuzz target of images calls three of them"))]
    impl Core {
        pub(crate) fn read(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
            Ok(self.reads().read(key, value)?)
        }

        pub(crate) fn multi_get<K: AsRef<[u8]>>(
            &self,
            keys: &[K],
            len_max: u64,
            values: &mut Values,
        ) -> Result<(), Error> {
            Ok(self.reads().multi_get(keys, len_max, values)?)
        }

        pub(crate) fn put(&self, key: &[u8], value: &[u8], meta: PutMeta) -> Result<(), Error> {
            Ok(self.writes().put(key, value, meta)?)
        }

        #[cfg(not(shuttle))]
        pub(crate) fn append_bare(&self, key: &[u8], kind: Kind, at: Option<u64>) -> Result<(), Error> {
            Ok(self.writes().append_bare(key, kind, at)?)
        }

        pub(crate) fn modify(
            &self,
            key: &[u8],
            wanted: Wanted,
            decide: impl FnMut(Option<(&[u8], Meta)>) -> Update,
        ) -> Result<Update, Error> {
            Ok(self.writes().modify(key, wanted, decide)?)
        }

        pub(crate) fn write(&self, batch: &Batch) -> Result<bool, Error> {
            Ok(self.writes().write(batch)?)
        }

        pub(crate) fn settle(&self) {
            self.maintenance().settle();
        }

        #[cfg(not(shuttle))]
        pub(crate) fn set_memory_limit(&self, bytes: Option<u64>) {
            self.reclaimer().set_memory_limit(bytes);
        }
    }
}
