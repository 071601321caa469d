//! How fast operations come.

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
    /// The rate grows until the 99th percentile of latency exceeds so many microseconds.
    UntilP99(f64),
    /// A closed loop, whose number of threads on each store grows up to this one until there is no more throughput.
    Saturated(u64),
}

impl Pace {
    const RATE_MAX: f64 = 1e9;
    const LIMIT_US_MAX: f64 = 1e6;

    /// The rate of an open loop, per second.
    pub fn rate(self) -> Option<f64> {
        match self {
            Pace::Rate(per_sec) => Some(per_sec),
            _ => None,
        }
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
            Pace::Saturated(0) => {
                return Err(Error::invalid("--saturate", "0", "give the largest number of threads"));
            }
            Pace::Saturated(_) => return Ok(()),
            Pace::Rate(per_sec) => ("--rate", per_sec, Self::RATE_MAX, "operations per second"),
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
