//! The clock of latencies: the processor's counter, which is read in a few nanoseconds, or the system's clock if the
//! counter is not trustworthy. The rate of the counter is measured once, at one moment. The result would be wrong if
//! the measuring thread lost its processor at that moment.

use std::time::{Duration, Instant};

/// The time for which the counter is compared with the system's clock.
const COMPARED: Duration = Duration::from_millis(10);
/// How far the counter may be off.
const OFF_MAX: f64 = 0.01;
/// A longer wait begins with a sleep and ends with spinning, because the system may wake a sleeper late.
pub(crate) const SPUN_NS_MAX: u64 = 1_000_000;
/// The interval at which a sleeper checks whether to stop.
pub(crate) const SLEEP_NS_MAX: u64 = 20_000_000;

/// Tells how many nanoseconds lie between two readings.
#[derive(Debug, Clone)]
pub(crate) enum Clock {
    Counter(quanta::Clock),
    /// Nanoseconds since a moment.
    System(Instant),
    /// A count of nanoseconds that a test moves; each reading takes some.
    #[cfg(test)]
    Simulated(std::sync::Arc<super::simulated::Time>),
}

/// The time of a reading of the simulated clock, so that waiting for a moment ends.
#[cfg(test)]
const SIMULATED_READING_NS: u64 = 20;
/// The longest pause on the simulated clock, which other threads move, too.
#[cfg(test)]
const SIMULATED_PAUSE_NS_MAX: u64 = 1_000;

impl Clock {
    /// Takes 10 ms.
    pub(crate) fn new() -> Clock {
        let counter = Clock::Counter(quanta::Clock::new());
        let start = Reading::narrow(&counter);
        std::thread::sleep(COMPARED);
        let end = Reading::narrow(&counter);
        match Reading::agree(&start, &end, counter.delta_as_nanos(start.raw, end.raw)) {
            true => counter,
            false => Clock::system(),
        }
    }

    /// The system's clock.
    pub(crate) fn system() -> Clock {
        Clock::System(Instant::now())
    }

    /// A clock that shows the nanoseconds in `now`.
    #[cfg(test)]
    pub(crate) fn simulated(now: std::sync::Arc<super::simulated::Time>) -> Clock {
        Clock::Simulated(now)
    }

    /// A reading, in units of its own.
    #[inline]
    pub(crate) fn raw(&self) -> u64 {
        match self {
            Clock::Counter(counter) => counter.raw(),
            Clock::System(start) => start.elapsed().as_nanos() as u64,
            #[cfg(test)]
            Clock::Simulated(now) => {
                now.fetch_add(SIMULATED_READING_NS, std::sync::atomic::Ordering::Relaxed)
            }
        }
    }

    /// Lets a part of a wait of `wait_ns` pass, and spins for the last `spun_ns_max` of it. The caller looks at the
    /// clock again.
    #[inline]
    pub(crate) fn pause(&self, wait_ns: u64, spun_ns_max: u64) {
        match self {
            #[cfg(test)]
            Clock::Simulated(now) => {
                now.fetch_add(wait_ns.min(SIMULATED_PAUSE_NS_MAX), std::sync::atomic::Ordering::Relaxed);
            }
            _ if wait_ns > spun_ns_max => {
                std::thread::sleep(Duration::from_nanos((wait_ns - spun_ns_max / 2).min(SLEEP_NS_MAX)));
            }
            _ => std::hint::spin_loop(),
        }
    }

    /// Lets so much time pass, unless another thread wakes this one before. Nobody wakes it for a simulated moment, so
    /// it looks again soon.
    pub(crate) fn park(&self, wait_ns: u64) {
        let wait_ns = match self {
            #[cfg(test)]
            Clock::Simulated(now) => {
                now.park(wait_ns);
                wait_ns.min(50_000)
            }
            _ => wait_ns,
        };
        std::thread::park_timeout(Duration::from_nanos(wait_ns));
    }

    /// Nanoseconds between two readings; 0 if the second was the earlier one.
    #[inline]
    pub(crate) fn delta_as_nanos(&self, start: u64, end: u64) -> u64 {
        match self {
            Clock::Counter(counter) => counter.delta_as_nanos(start, end),
            Clock::System(_) => end.saturating_sub(start),
            #[cfg(test)]
            Clock::Simulated(_) => end.saturating_sub(start),
        }
    }
}

/// A reading of a clock, between two moments of the system's.
struct Reading {
    before: Instant,
    raw: u64,
    after: Instant,
}

impl Reading {
    /// The narrowest of some: the thread may lose its processor in one of them.
    fn narrow(clock: &Clock) -> Reading {
        let read = |_| Reading { before: Instant::now(), raw: clock.raw(), after: Instant::now() };
        (0..10).map(read).min_by_key(|reading| reading.after - reading.before).expect("there are ten")
    }

    /// Whether so many nanoseconds can lie between two readings.
    fn agree(start: &Reading, end: &Reading, delta_ns: u64) -> bool {
        let least_ns = (end.before - start.after).as_nanos() as f64;
        let most_ns = (end.after - start.before).as_nanos() as f64;
        (least_ns * (1.0 - OFF_MAX)..=most_ns * (1.0 + OFF_MAX)).contains(&(delta_ns as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_off_is_not_believed() {
        let start = Instant::now();
        let at_us = |us| start + Duration::from_micros(us);
        let reading = |us| Reading { before: at_us(us), raw: 0, after: at_us(us + 1) };
        for (delta_us, expected) in [(9_400, false), (9_950, true), (10_050, true), (10_600, false)] {
            let agree = Reading::agree(&reading(0), &reading(10_000), delta_us * 1000);
            assert_eq!(agree, expected, "{delta_us}");
        }
    }

    #[test]
    fn both_clocks_tell_the_time() {
        for clock in [Clock::new(), Clock::System(Instant::now())] {
            let (before, start) = (Instant::now(), clock.raw());
            std::thread::sleep(Duration::from_millis(20));
            let told = clock.delta_as_nanos(start, clock.raw());
            let passed = before.elapsed().as_nanos() as f64;
            assert!((19_800_000.0..=passed * 1.01).contains(&(told as f64)), "{clock:?}: {told} of {passed}");
            assert_eq!(clock.delta_as_nanos(start + 1, start), 0);
        }
    }
}
