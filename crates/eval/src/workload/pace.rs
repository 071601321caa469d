//! How fast operations come.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::workload::Workload;

/// How fast operations come, over all threads of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// Each thread sends its next operation after the answer to the last one: a closed loop.
    #[default]
    Closed,
    /// Operations arrive at this rate per second, whatever the answers: an open loop. A latency counts from the
    /// arrival, so that a stall is charged to every operation that came meanwhile.
    Rate(f64),
    /// Several rates one after the other, each by the same factor above the one before.
    Ramp {
        /// The first, per second.
        from: f64,
        /// The last.
        to: f64,
        /// How many.
        steps: usize,
    },
    /// The rate grows until the 99th percentile of latency exceeds so many microseconds.
    UntilP99(f64),
    /// A closed loop, whose number of threads on each store grows up to this one until there is no more throughput.
    Saturated(u64),
}

impl Pace {
    const RATE_MAX: f64 = 1e9;
    const LIMIT_US_MAX: f64 = 1e6;
    const STEPS_MAX: usize = 1_000;
    /// Rates that a search offers at most.
    pub(crate) const SEARCH_STEPS_MAX: usize = 20;

    /// The rate of an open loop, per second.
    pub fn rate(self) -> Option<f64> {
        match self {
            Pace::Rate(per_sec) => Some(per_sec),
            _ => None,
        }
    }

    /// The highest rate per second; `None` if answers decide.
    pub(crate) fn fastest(self) -> Option<f64> {
        match self {
            Pace::Ramp { to, .. } => Some(to),
            pace => pace.rate(),
        }
    }

    /// Windows of a run, at most.
    pub(crate) fn windows(self) -> usize {
        match self {
            Pace::Closed | Pace::Rate(_) => 1,
            Pace::Ramp { steps, .. } => steps,
            Pace::UntilP99(_) => 1 + Self::SEARCH_STEPS_MAX,
            // Its other windows are short, and nothing is inserted.
            Pace::Saturated(_) => 1,
        }
    }

    /// Windows of a run, as far as they are known beforehand: a search mostly ends early.
    pub(crate) fn windows_usual(self) -> usize {
        if self.limit_us().is_some() { 1 } else { self.windows() }
    }

    /// The rates of a ramp.
    pub(crate) fn rates(from: f64, to: f64, steps: usize) -> impl Iterator<Item = f64> {
        (0..steps).map(move |step| from * (to / from).powf(step as f64 / (steps - 1).max(1) as f64))
    }

    /// The bound of a growing rate, in microseconds.
    pub fn limit_us(self) -> Option<f64> {
        match self {
            Pace::UntilP99(limit_us) => Some(limit_us),
            _ => None,
        }
    }

    /// Checks the number, and that `workload` can be offered a rate.
    pub(crate) fn check(self, workload: &Workload) -> Result<(), Error> {
        let (option, given, most, unit) = match self {
            Pace::Closed => return Ok(()),
            Pace::Saturated(_) if workload.is_fill() => {
                let expected = "loading is done once; leave one of them out";
                return Err(Error::invalid("--saturate", workload.name.clone(), expected));
            }
            Pace::Saturated(_) if workload.mix.insert > 0 => {
                let expected = "new keys are parted among a fixed number of threads; leave one of them out";
                return Err(Error::invalid("--saturate", workload.name.clone(), expected));
            }
            Pace::Saturated(0) => {
                return Err(Error::invalid("--saturate", "0", "give the largest number of threads"));
            }
            Pace::Saturated(_) => return Ok(()),
            Pace::Rate(per_sec) => ("--rate", per_sec, Self::RATE_MAX, "operations per second"),
            Pace::Ramp { to, .. } => ("--rate", to, Self::RATE_MAX, "operations per second"),
            Pace::UntilP99(limit_us) => ("--until-p99", limit_us, Self::LIMIT_US_MAX, "microseconds"),
        };
        if workload.is_fill() {
            let expected = "loading is offered no rates; leave one of them out";
            return Err(Error::invalid(option, workload.name.clone(), expected));
        }
        if !(given > 0.0 && given <= most) {
            return Err(Error::invalid(option, given.to_string(), format!("give {unit}, up to {most}")));
        }
        Ok(())
    }
}

/// One rate, such as `5000`, or several, such as `1000..50000:8`.
impl FromStr for Pace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let ramp = |text: &str| {
            let (from, rest) = text.split_once("..")?;
            let (to, steps) = rest.split_once(':')?;
            let (from, to, steps): (f64, f64, usize) =
                (from.parse().ok()?, to.parse().ok()?, steps.parse().ok()?);
            let is_right = from > 0.0 && from < to && (2..=Self::STEPS_MAX).contains(&steps);
            is_right.then_some(Pace::Ramp { from, to, steps })
        };
        text.parse().ok().map(Pace::Rate).or_else(|| ramp(text)).ok_or_else(|| {
            let expected = "give operations per second, such as 5000, or a lower rate, a higher one and how many there \
                            are with them, 2 to 1000, such as 1000..50000:8";
            Error::invalid("--rate", text, expected)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_grow_by_one_factor() {
        assert_eq!("250".parse::<Pace>().unwrap(), Pace::Rate(250.0));
        let Pace::Ramp { from, to, steps } = "1000..8000:4".parse().unwrap() else { panic!("no ramp") };
        let rates: Vec<f64> = Pace::rates(from, to, steps).map(f64::round).collect();
        assert_eq!(rates, [1_000.0, 2_000.0, 4_000.0, 8_000.0]);
        for bad in ["", "x", "1..9", "1..9:1", "9..1:3", "0..9:3", "1..9:1001", "1..nan:3"] {
            assert!(bad.parse::<Pace>().unwrap_err().to_string().contains("1000..50000:8"), "{bad}");
        }
    }
}
