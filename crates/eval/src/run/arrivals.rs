//! The moments at which an open loop offers its operations.

use crate::run::clock::{Clock, SPUN_NS_MAX};
use crate::run::control::Control;
use crate::target::Work;
use crate::workload::distribution::Chooser;

/// Arrivals of an open loop: a Poisson process that does not wait for answers. Latency counts from the arrival, so a
/// stall is charged to every operation that would have come meanwhile.
pub(crate) struct Arrivals {
    timer: Timer,
    interval_ns: f64,
    /// The first arrival that no operation has begun for.
    next_ns: f64,
}

impl Arrivals {
    pub(crate) fn new(
        clock: Option<&Clock>,
        interval_ns: Option<f64>,
        work: Work,
        chooser: &mut Chooser,
    ) -> Option<Self> {
        let mut arrivals =
            Arrivals { interval_ns: interval_ns?, next_ns: 0.0, timer: Timer::new(clock?, work) };
        arrivals.draw(chooser);
        Some(arrivals)
    }

    /// Waits for the next arrival and returns its time; nothing if the window is over.
    pub(crate) fn wait(&mut self, chooser: &mut Chooser, control: &Control) -> Option<u64> {
        let arrival = self.timer.wait_until(self.next_ns, control)?;
        self.draw(chooser);
        Some(arrival)
    }

    /// The time of the next arrival if it has come, or the nanoseconds until it does.
    pub(crate) fn due(&mut self, chooser: &mut Chooser) -> Result<u64, u64> {
        let arrival = self.timer.due(self.next_ns)?;
        self.draw(chooser);
        Ok(arrival)
    }

    /// How many nanoseconds the next arrival of a window that is over has waited; nothing behind the last one.
    pub(crate) fn missed_ns(&mut self, chooser: &mut Chooser, control: &Control) -> Option<u64> {
        let missed_ns = self.timer.missed_ns(self.next_ns, control)?;
        self.draw(chooser);
        Some(missed_ns)
    }

    fn draw(&mut self, chooser: &mut Chooser) {
        self.next_ns -= self.interval_ns * (1.0 - chooser.unit()).ln();
    }
}

/// Waits for moments.
pub(crate) struct Timer {
    clock: Clock,
    spun_ns_max: u64,
    start: u64,
}

impl Timer {
    /// Starts now. Threads that spin would take the processors from servers, which may be on this machine.
    pub(crate) fn new(clock: &Clock, work: Work) -> Self {
        let spun_ns_max = if work == Work::Here { SPUN_NS_MAX } else { 0 };
        Timer { clock: clock.clone(), spun_ns_max, start: clock.raw() }
    }

    /// Waits until so many nanoseconds have passed since the start, and returns that time of the clock; nothing if the
    /// window is over.
    pub(crate) fn wait_until(&self, at_ns: f64, control: &Control) -> Option<u64> {
        while !control.is_stopped() {
            match self.due(at_ns) {
                Ok(at) => return Some(at),
                Err(left_ns) => self.clock.pause(left_ns, self.spun_ns_max),
            }
        }
        None
    }

    /// The time of the clock at which so many nanoseconds had passed since the start, or the nanoseconds until then.
    fn due(&self, at_ns: f64) -> Result<u64, u64> {
        let now = self.clock.raw();
        let elapsed = self.clock.delta_as_nanos(self.start, now);
        if (elapsed as f64) < at_ns {
            return Err((at_ns - elapsed as f64) as u64);
        }
        // Only the clock knows its units per nanosecond, so the code goes back from now by the lateness.
        let late_ns = elapsed - at_ns as u64;
        let per_ns = if elapsed == 0 { 1.0 } else { (now - self.start) as f64 / elapsed as f64 };
        Ok(now - (late_ns as f64 * per_ns) as u64)
    }

    /// Nanoseconds from a moment of a window that is over until now; nothing if the moment lies behind the window.
    pub(crate) fn missed_ns(&self, at_ns: f64, control: &Control) -> Option<u64> {
        let since_start = |reading| self.clock.delta_as_nanos(self.start, reading);
        let is_within = at_ns <= since_start(control.ended_at()?) as f64;
        is_within.then(|| since_start(self.clock.raw()).saturating_sub(at_ns as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// A thread that spins comes back from each pause at once.
    #[test]
    fn a_client_of_servers_sleeps_where_another_would_spin() {
        const WAIT_NS: u64 = SPUN_NS_MAX / 2;
        let shortest_pause_ns = |work| {
            let timer = Timer::new(&Clock::system(), work);
            let pause_ns = |_| {
                let start = Instant::now();
                timer.clock.pause(WAIT_NS, timer.spun_ns_max);
                start.elapsed().as_nanos() as u64
            };
            (0..10).map(pause_ns).min().unwrap()
        };
        assert!(shortest_pause_ns(Work::Here) < WAIT_NS);
        assert!(shortest_pause_ns(Work::Servers(None)) >= WAIT_NS);
    }
}
