//! The background threads, each of which does what is due and sleeps when nothing is.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use ziptier_tree::clock::steady;
use ziptier_tree::packing::Scratch;

use crate::Error;
use crate::core::Core;
use crate::maintenance::Background;

/// How long a packer sleeps after work, and at most.
const NAP_MIN: Duration = Duration::from_millis(1);
const NAP_MAX: Duration = Duration::from_millis(64);
/// The same while much is read, so that the tierer is not late.
const NAP_READ: Duration = Duration::from_millis(8);

/// The background threads of a store; they end when this is dropped.
pub(crate) struct Packers {
    core: Arc<Core>,
    threads: Vec<JoinHandle<()>>,
}

impl Packers {
    pub(crate) fn start(core: &Arc<Core>, threads: usize) -> Result<Self, Error> {
        let mut packers = Self { core: core.clone(), threads: Vec::new() };
        for index in 0..threads {
            let core = core.clone();
            let thread = std::thread::Builder::new()
                .name(format!("ziptier-pack-{index}"))
                .spawn(move || pack(&core, index == 0))
                .map_err(|error| Error::Thread { reason: error.to_string() })?;
            packers.core.backlog.queue.packers.lock().push(thread.thread().clone());
            packers.threads.push(thread);
        }
        Ok(packers)
    }
}

impl Drop for Packers {
    fn drop(&mut self) {
        self.core.backlog.queue.stopping.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "a packer panicked");
        }
    }
}

/// Works until the store ends.
fn pack(core: &Core, is_first: bool) {
    Scratch::work_in_background();
    let mut work = Background::new(is_first, steady());
    let mut nap = NAP_MIN;
    while !core.backlog.queue.stopping.load(Ordering::Acquire) {
        if core.loading.load(Ordering::Acquire) {
            std::thread::park_timeout(NAP_MAX);
            continue;
        }
        let maintenance = core.maintenance();
        if maintenance.do_next(&mut work, steady()) {
            maintenance.note_work(&work);
            continue;
        }
        core.tree.reclaim();
        maintenance.reclaimer.maintain_dictionary();
        maintenance.note_rest(&work);
        if work.take_packed() {
            nap = NAP_MIN;
        }
        std::thread::park_timeout(nap);
        nap = (nap * 2).min(if work.may_tier_soon(&core.tree) { NAP_READ } else { NAP_MAX });
    }
}
