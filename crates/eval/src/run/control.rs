//! What the workers of a window are told to do, and by whom.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::Thread;

use crate::run::clock::Clock;

/// The current command for the workers of a run, which the thread gives that made it. A worker stops all if the store
/// has ended.
#[derive(Debug)]
pub(crate) struct Control {
    phase: AtomicU8,
    /// A reading of the clock of latencies when the commander ended the window; 0 until then.
    end: AtomicU64,
    commander: Thread,
    /// The workers and the commander meet here.
    start: Barrier,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    WarmUp = 0,
    Measure = 1,
    Stop = 2,
}

impl Control {
    pub(crate) fn new(workers: u64) -> Self {
        Control {
            phase: AtomicU8::new(Phase::WarmUp as u8),
            end: AtomicU64::new(0),
            commander: std::thread::current(),
            start: Barrier::new(workers as usize + 1),
        }
    }

    /// Waits until every worker is there, and the commander. The system may start a thread late, and until then the
    /// others would be measured alone.
    pub(crate) fn start(&self) {
        self.start.wait();
    }

    /// Nothing follows after the stop.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::Release);
    }

    /// Ends the window at a reading of the clock of latencies.
    pub(crate) fn end(&self, at: u64) {
        self.end.store(at, Ordering::Relaxed);
        self.enter(Phase::Stop);
    }

    /// The reading at which the commander ended the window. `None` while the window goes on, and after a worker has
    /// stopped all.
    pub(crate) fn ended_at(&self) -> Option<u64> {
        let is_over = self.phase.load(Ordering::Acquire) == Phase::Stop as u8;
        Some(self.end.load(Ordering::Relaxed)).filter(|at| is_over && *at > 0)
    }

    /// Lets a part of the run take its time: waits until so many seconds have passed since `start`, a reading of the
    /// clock. The thread that commands calls it, and comes back early if a worker has stopped all.
    pub(crate) fn wait(&self, clock: &Clock, start: u64, seconds: f64) {
        loop {
            let left_ns = seconds.max(0.0) * 1e9 - clock.delta_as_nanos(start, clock.raw()) as f64;
            if left_ns < 1.0 || self.is_stopped() {
                return;
            }
            clock.park(left_ns as u64);
        }
    }

    /// Whether a worker has stopped all, or the window is over.
    pub(crate) fn is_stopped(&self) -> bool {
        self.phase() == Phase::Stop
    }

    #[cold]
    pub(crate) fn stop(&self) {
        self.enter(Phase::Stop);
        self.commander.unpark();
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::WarmUp,
            1 => Phase::Measure,
            _ => Phase::Stop,
        }
    }
}
