//! A store begins and ends, and has its work done at once.

use std::sync::Arc;

use ziptier_media::disk::{Disk, RealDisk};

use super::Store;
use super::checkpoint_thread::CheckpointThread;
use super::packers::Packers;
use crate::Error;
use crate::core::Core;
use crate::durable::{Recovered, Recovery, WriteLog};
use crate::options::Options;
use crate::places::far_medium::open_far;
use crate::recovery::recover;

/// # Open, close
impl Store {
    /// Opens an empty store, or with [`Options::durable`] the store in its folder.
    ///
    /// # Errors
    /// An option out of range, far memory that differs from the request, or a thread that the system refuses. Also a
    /// folder that is in use, damaged, or not that of a store.
    pub fn open(options: Options) -> Result<Self, Error> {
        Self::open_with(options, |_| {})
    }

    /// As [`Store::open`], and reports the progress of the recovery.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(options: Options, progress: impl FnMut(Recovery)) -> Result<Self, Error> {
        Self::open_on(Arc::new(RealDisk), options, progress)
    }

    /// As [`Store::open_with`], with the SSD on a disk of a test.
    #[doc(hidden)]
    pub fn open_on(
        disk: Arc<dyn Disk>,
        options: Options,
        mut progress: impl FnMut(Recovery),
    ) -> Result<Self, Error> {
        options.check()?;
        // A body without a slot of its size goes to SSD, or others are evicted for it.
        let takes_any = options.ssd.is_none() && !options.eviction;
        let far = options.far.as_ref().map(|far| open_far(far, options.far_ratio, takes_any)).transpose()?;
        let (core, folder) = Core::open(disk, &options, far)?;
        let core = Arc::new(core);
        let packers = Packers::start(&core, options.background_threads)?;
        let mut store = Self { _packers: packers, core, checkpoints: None, recovered: None };
        if let (Some(durable), Some(folder)) = (&options.durable, folder) {
            store.recovered = Some(recover(&store.core, &options, durable, folder, &mut progress)?);
            store.checkpoints = Some(CheckpointThread::start(store.core.clone())?);
            store.core.reclaimer().set_memory_limit(options.memory_limit_bytes);
        }
        Ok(store)
    }

    /// Ends the store with the mark of a clean stop, as dropping it does, and returns whether everything is durable.
    /// The store spends up to a few seconds on a checkpoint, so that the next start is quick. A store in an
    /// [`Arc`] is taken out with [`Arc::into_inner`], which gives it to the last owner.
    ///
    /// # Errors
    /// The log failed, now or earlier.
    pub fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    /// The findings of the recovery of the folder; `None` without a folder.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// Returns when everything that the caller has written or seen is as durable as [`DurableOptions::durability`]
    /// says; at once without a folder. For callers with [`DurableOptions::waits`] off.
    ///
    /// [`DurableOptions::durability`]: crate::DurableOptions::durability
    /// [`DurableOptions::waits`]: crate::DurableOptions::waits
    ///
    /// # Errors
    /// The log failed: writes since the last successful call may or may not be there when the store is opened anew.
    #[inline]
    pub fn wait(&self) -> Result<(), Error> {
        self.core.journal.get().map_or(Ok(()), WriteLog::wait)
    }

    /// Packs every landing now, and brings every leaf to its final form. Leaves that would grow stay as they are if
    /// neither DRAM nor far memory has room.
    ///
    /// # Errors
    /// None: a leaf without room stays as it is. The result leaves a later version room for errors.
    pub fn settle(&self) -> Result<(), Error> {
        self.core.maintenance().settle();
        Ok(())
    }
}
