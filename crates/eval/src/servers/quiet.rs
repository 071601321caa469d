//! Waiting until processes have no more to do, so that CPU time of work that was put off belongs to its cause.
//!
//! 1. A wait watches periods of one length, until several of them in a row were quiet.
//! 2. In a quiet period the processes take little CPU time.
//! 3. A process that gets no processor takes no CPU time either. So a period goes on until no thread is ready to run,
//!    and none waits for a disk. CPU time that such a thread still takes belongs to the period.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A server that never rests is measured all the same, and its row says how long it was watched.
const QUIET_MAX: Duration = Duration::from_secs(60);
/// The time between two looks at threads that are ready to run.
const LOOK: Duration = Duration::from_millis(20);

/// Processes that a wait watches.
pub(crate) trait Processes {
    /// CPU seconds of all their threads so far.
    fn cpu_sec(&self) -> f64;

    /// Whether a thread of theirs is ready to run, or waits for a disk.
    fn is_busy(&self) -> bool;
}

/// When processes are quiet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quiet {
    /// The share of a processor that they take less of.
    pub(crate) share: f64,
    /// The length of a period.
    pub(crate) period: Duration,
    /// Quiet periods in a row.
    pub(crate) periods: usize,
}

impl Quiet {
    /// For a wait between two windows. A node of Cassandra without requests takes up to 2 % of a processor for its
    /// timers. Two hundredths of a second, the steps of the CPU clock, are too many for a period.
    pub(crate) const BETWEEN_WINDOWS: Quiet =
        Quiet { share: 0.05, period: Duration::from_millis(300), periods: 2 };

    /// Waits until the processes are quiet. Returns for how long that was, and whether they were quiet in the end.
    pub(crate) fn wait_for(self, processes: &impl Processes, stop: &AtomicBool) -> (f64, bool) {
        let began = Instant::now();
        let goes_on = || began.elapsed() < QUIET_MAX && !stop.load(Ordering::Relaxed);
        let mut in_a_row = 0;
        while in_a_row < self.periods && goes_on() {
            let before = processes.cpu_sec();
            thread::sleep(self.period);
            let is_quiet = loop {
                // This look comes first: the work of a thread that has run meanwhile is in the reading then.
                let is_busy = processes.is_busy();
                let taken = (processes.cpu_sec() - before) / self.period.as_secs_f64();
                if !is_busy || taken >= self.share || !goes_on() {
                    break !is_busy && taken < self.share;
                }
                thread::sleep(LOOK);
            };
            in_a_row = if is_quiet { in_a_row + 1 } else { 0 };
        }
        (began.elapsed().as_secs_f64(), in_a_row >= self.periods)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Takes half a second once it gets a processor, after so many looks.
    struct Starved {
        looks: usize,
        looked: Cell<usize>,
    }

    impl Processes for Starved {
        fn cpu_sec(&self) -> f64 {
            if self.looked.get() < self.looks { 7.0 } else { 7.5 }
        }

        fn is_busy(&self) -> bool {
            self.looked.set(self.looked.get() + 1);
            self.looked.get() < self.looks
        }
    }

    fn waited(processes: &impl Processes, periods: usize, stop: bool) -> bool {
        let quiet = Quiet { share: 0.02, period: Duration::from_millis(1), periods };
        quiet.wait_for(processes, &AtomicBool::new(stop)).1
    }

    #[test]
    fn a_wait_tells_whether_there_was_quiet() {
        let idle = Starved { looks: 0, looked: Cell::new(0) };
        let told = [(3, false), (0, true), (3, true)].map(|(periods, stop)| waited(&idle, periods, stop));
        assert_eq!(told, [true, true, false]);
    }

    #[test]
    fn a_process_that_gets_no_processor_is_not_quiet() {
        let starved = Starved { looks: 9, looked: Cell::new(0) };
        assert!(waited(&starved, 2, false));
        assert_eq!(starved.cpu_sec(), 7.5);
    }

    /// It is ready to run until the end, and never runs.
    #[test]
    fn a_wait_that_is_stopped_before_a_process_ran_is_no_quiet() {
        struct Stopping<'a>(&'a AtomicBool);
        impl Processes for Stopping<'_> {
            fn cpu_sec(&self) -> f64 {
                7.0
            }

            fn is_busy(&self) -> bool {
                self.0.store(true, Ordering::Relaxed);
                true
            }
        }
        let stop = AtomicBool::new(false);
        let quiet = Quiet { share: 0.02, period: Duration::from_millis(1), periods: 1 };
        assert!(!quiet.wait_for(&Stopping(&stop), &stop).1);
    }
}
