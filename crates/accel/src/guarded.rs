//! A queue that refuses jobs that would never end. It refuses after several time-outs in a row, once its device is
//! gone, and in a forked child.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use crate::descriptor::Descriptor;
use crate::device::{Capabilities, Device, SubmitError};
use crate::home::Home;

/// Time-outs in a row after which a queue is lost, for all sessions that share it.
pub const TIME_OUTS_MAX: u32 = 3;

/// A queue, and whether it still ends jobs. Sessions of all threads share one value, so that after one thread's
/// time-outs the others need not wait.
pub struct Guarded {
    device: Arc<dyn Device>,
    /// The process that opened the queue.
    home: Home,
    /// Jobs given up since one ended in time.
    time_outs: AtomicU32,
    /// A submission found that the queue is lost. Its jobs under way will not end, either.
    is_gone: AtomicBool,
}

impl Guarded {
    /// Guards a queue that this process has opened.
    pub fn new(device: Arc<dyn Device>) -> Guarded {
        Guarded { device, home: Home::here(), time_outs: AtomicU32::new(0), is_gone: AtomicBool::new(false) }
    }

    fn is_hung(&self) -> bool {
        self.time_outs.load(Relaxed) >= TIME_OUTS_MAX
    }
}

/// The error of a forked child, which must not touch a queue.
pub(crate) fn forked() -> io::Error {
    io::Error::other("this process was forked from the one that opened the queue, and must open it itself")
}

impl Device for Guarded {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn is_modelled(&self) -> bool {
        self.device.is_modelled()
    }

    fn capabilities(&self) -> &Capabilities {
        self.device.capabilities()
    }

    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), SubmitError> {
        if !self.home.is_here() {
            return Err(SubmitError::Lost(forked()));
        }
        if self.is_hung() {
            let what = format!("it did not end {TIME_OUTS_MAX} jobs in a row in time");
            return Err(SubmitError::Lost(io::Error::new(io::ErrorKind::TimedOut, what)));
        }
        // SAFETY: the caller's.
        let taken = unsafe { self.device.submit(descriptor) };
        if matches!(taken, Err(SubmitError::Lost(_))) {
            self.is_gone.store(true, Relaxed);
        }
        taken
    }

    fn retire(&self) {
        // A queue that is lost stays lost: a job that ends now says little about the next one.
        if self.time_outs.load(Relaxed) > 0 {
            let _ =
                self.time_outs.fetch_update(Relaxed, Relaxed, |count| (count < TIME_OUTS_MAX).then_some(0));
        }
        self.device.retire();
    }

    fn retire_late(&self) {
        self.device.retire_late();
    }

    fn timed_out(&self) {
        self.time_outs.fetch_add(1, Relaxed);
        self.device.timed_out();
    }

    fn is_lost(&self) -> bool {
        self.is_gone.load(Relaxed) || self.is_hung() || !self.home.is_here() || self.device.is_lost()
    }
}
