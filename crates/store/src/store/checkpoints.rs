//! Checkpoints on demand, and their end.

use super::Store;
use crate::Error;
use crate::durable::{CheckpointStats, Checkpointer};

/// # Checkpoints
impl Store {
    /// Writes what changed since the last checkpoint to segments, so that the log so far can go; happens by itself when
    /// the log has grown much. Nothing waits for it but the caller. Without a folder it does nothing.
    ///
    /// # Errors
    /// The disk's. Nothing is lost: the checkpoint before stays in force, and the log since.
    pub fn checkpoint(&self) -> Result<(), Error> {
        match (self.core.checkpointer.get(), self.core.journal.get()) {
            (Some(checkpointer), Some(journal)) => checkpointer.checkpoint(self.core.moves(), journal),
            _ => Ok(()),
        }
    }

    /// As [`Store::checkpoint`], in the background; `false` if one is under way, or without a folder.
    pub fn begin_checkpoint(&self) -> bool {
        let (Some(checkpointer), Some(thread)) = (self.core.checkpointer.get(), &self.checkpoints) else {
            return false;
        };
        let begins = checkpointer.want();
        thread.wake();
        begins
    }

    /// What checkpoints have done; `None` without a folder.
    pub fn checkpoint_stats(&self) -> Option<CheckpointStats> {
        self.core.checkpointer.get().map(Checkpointer::stats)
    }

    /// Has a checkpoint that is being made end with an error, and those that are asked for from now on: the store is
    /// about to be closed, and a thread that waits in [`Store::checkpoint`] would hold that up. [`Store::close`] makes
    /// its own all the same.
    pub fn stop_checkpoints(&self) {
        if let Some(checkpointer) = self.core.checkpointer.get() {
            checkpointer.stop();
        }
    }
}
