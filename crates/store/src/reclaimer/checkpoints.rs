//! Waiting for room on SSD that a checkpoint gives.
//!
//! Not for how a checkpoint is made: `durable` does that, and counts the attempts that gave nothing.
//!
//! 1. In a store with a folder, the segments of dead images go only with the next checkpoint.
//! 2. A writer that finds no room wishes for one, which wakes the checkpoint thread, and waits for the end of one
//!    attempt.
//! 3. Without that thread, at a start and at the end of a store, who waits makes the checkpoint.
//! 4. After two attempts in a row that gave nothing no writer waits, until more images have died.
//!
//! A caller that serves others on the same thread asks [`Reclaimer::may_wait_for_room`] before it writes.

use std::time::Duration;

use super::{Moved, Reclaimer};
use crate::durable::Checkpointer;

/// How long a writer waits before it looks whether a checkpoint gave room.
const ROOM_PAUSE: Duration = Duration::from_millis(1);

impl Reclaimer<'_> {
    /// Whether a write that needs room may have to wait for a checkpoint.
    pub(crate) fn may_wait_for_room(&self) -> bool {
        self.tree.gauges.held() > self.room.watermarks().help
            && self.moves.cold.as_ref().is_some_and(|cold| cold.tier.is_short())
            && self.checkpointer.get().is_some_and(Checkpointer::gives_room)
    }

    /// Waits until a checkpoint that may give room has ended, or until there is room for `bytes` in another way.
    /// Returns `false` if no checkpoint may give any. A checkpoint frees the bytes that died on SSD, and the bytes
    /// that it holds itself while it writes. The checkpointer counts attempts that gave nothing: after two of them no
    /// writer waits.
    pub(super) fn wait_for_checkpoint(&self, moved: Moved, bytes: usize) -> bool {
        let Some(checkpointer) = self.checkpointer.get() else { return false };
        let may_give = || {
            let is_near = checkpointer.is_awaited() || (moved == Moved::Stuck && checkpointer.is_running());
            is_near && checkpointer.gives_room()
        };
        if !may_give() {
            return false;
        }
        let attempts = checkpointer.attempts();
        // The hand found nothing a moment ago, and looking again would take images from the checkpoint's disk.
        while checkpointer.attempts() == attempts && may_give() && self.room.admit(bytes).is_err() {
            if checkpointer.has_thread() || checkpointer.is_running() {
                std::thread::sleep(ROOM_PAUSE);
            } else if let Some(journal) = self.journal.get() {
                // It counts its failures itself.
                let _ = checkpointer.checkpoint(self.moves, journal);
            }
            self.tree.reclaim();
        }
        true
    }
}

// No unsafe code comes this way, and there is an SSD: not for Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use std::sync::Arc;

    use ziptier_media::testing::{FailingDisk, RecordingDisk};

    use crate::{CodecChoice, DiskHandle, DurableOptions, Options, SsdOptions, Store};

    /// The checkpoint thread may make some, too.
    const ATTEMPTS_MAX: u32 = 10;

    /// Each wish for room began the count anew, so writers of a full store waited for ever.
    #[test]
    fn no_writer_waits_after_some_checkpoints_in_a_row_that_gave_nothing() {
        let disk = FailingDisk::that_fills(Arc::new(RecordingDisk::new()));
        let mut durable = DurableOptions::new("/data");
        durable.disk = DiskHandle(Arc::new(disk.clone()));
        durable.log.segment_bytes = 1 << 20;
        let store = Store::open(Options {
            ssd: Some(SsdOptions { path: None, limit_bytes: 4 << 20 }),
            durable: Some(durable),
            codec: CodecChoice::None,
            background_threads: 0,
            ..Options::default()
        })
        .expect("the folder is empty");
        (0..200_u32).for_each(|n| store.put(&n.to_be_bytes(), &[7; 200]).expect("there is room"));
        store.send_to_ssd(|| true).expect("there is room");
        disk.set_full(true);
        let core = &store.core;
        let checkpointer = core.checkpointer.get().expect("it has a folder");
        let journal = core.journal.get().expect("it has a folder");
        assert!(checkpointer.want_room(), "nothing of the segment is dead");
        let mut attempts = 0;
        while checkpointer.want_room() && checkpointer.gives_room() {
            assert!(checkpointer.checkpoint(core.moves(), journal).is_err());
            attempts += 1;
            assert!(attempts < ATTEMPTS_MAX);
        }
    }
}
