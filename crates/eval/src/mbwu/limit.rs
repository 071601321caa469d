//! What held a platform back.
//!
//! A throughput is a unit only if nothing but the medium limits it. Each resource is compared with what it can do: the
//! medium with a raw load of the same operations, processors with their time, the network with the speed of its link.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The medium is the limit from this share of a raw load's throughput on.
const MEDIUM: f64 = 0.90;
/// Processors are, from this share of their time on.
const PROCESSORS: f64 = 0.80;
/// A network is, from this share of its link on.
const NETWORK: f64 = 0.70;

/// The part of each resource that was in use. `None` where no meter tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// Requests to the disk, or bytes, over those of a raw load of the same operations; the larger one.
    pub medium: Option<f64>,
    /// Time that the allowed processors were busy.
    pub processors: Option<f64>,
    /// Bytes over the network in the direction that carried more, over those that its link can carry.
    pub network: Option<f64>,
}

/// What limits a throughput.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Limit {
    /// The medium alone.
    Medium,
    /// Processors.
    Processors,
    /// The network.
    Network,
    /// Nothing that has a meter: requests wait for each other, for locks, or for a single thread.
    Waiting,
    /// Nobody knows, since the meter of a resource is missing.
    Unknown,
}

impl Shares {
    /// What limits the throughput. Of several resources in full use, the one that is used most beyond its bound.
    pub fn limit(&self) -> Limit {
        let bounds = [
            (Limit::Processors, self.processors, PROCESSORS),
            (Limit::Network, self.network, NETWORK),
            (Limit::Medium, self.medium, MEDIUM),
        ];
        let full = bounds.iter().filter_map(|(limit, share, bound)| Some((*limit, (*share)? / bound)));
        let full: Vec<(Limit, f64)> = full.filter(|(_, beyond)| *beyond >= 1.0).collect();
        match full.as_slice() {
            [] if self.medium.is_none() || self.processors.is_none() => Limit::Unknown,
            [] => Limit::Waiting,
            [(only, _)] => *only,
            // Beside another resource in full use, the medium is not what alone limits.
            several => several
                .iter()
                .filter(|(limit, _)| *limit != Limit::Medium)
                .max_by(|one, other| one.1.total_cmp(&other.1))
                .map_or(Limit::Medium, |(limit, _)| *limit),
        }
    }

    /// Whether the throughput of the unit is one, in a sentence.
    pub fn verdict(&self) -> String {
        match self.limit() {
            Limit::Medium => format!("It is an MBWU, {self}."),
            Limit::Unknown => {
                format!("NOT KNOWN TO BE AN MBWU: the share of a resource is unknown ({self}).")
            }
            _ => format!("NOT AN MBWU, but {self}."),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Limit::Medium => "the medium alone",
            Limit::Processors => "processors",
            Limit::Network => "the network",
            Limit::Waiting => "waiting, for locks or for one thread",
            Limit::Unknown => "something without a meter",
        })
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "limited by {}: ", self.limit())?;
        let percent =
            |share: Option<f64>| share.map_or("-".into(), |share| format!("{:.0} %", share * 100.0));
        let (medium, processors, network) = (self.medium, self.processors, self.network);
        write!(
            f,
            "medium {}, processors {}, network {}",
            percent(medium),
            percent(processors),
            percent(network)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_what_is_in_full_use() {
        let of = |medium, processors, network| Shares { medium, processors, network }.limit();
        for (shares, expected) in [
            ((Some(0.95), Some(0.5), Some(0.1)), Limit::Medium),
            ((Some(0.95), Some(0.5), None), Limit::Medium),
            ((Some(0.5), Some(0.97), Some(0.1)), Limit::Processors),
            ((Some(0.95), Some(0.97), Some(0.1)), Limit::Processors),
            ((Some(0.5), Some(0.5), Some(0.9)), Limit::Network),
            ((Some(0.95), Some(0.85), Some(0.99)), Limit::Network),
            ((Some(0.5), Some(0.5), Some(0.1)), Limit::Waiting),
            ((Some(0.5), Some(0.5), None), Limit::Waiting),
            ((None, Some(0.5), Some(0.1)), Limit::Unknown),
            ((Some(0.5), None, Some(0.1)), Limit::Unknown),
        ] {
            assert_eq!(of(shares.0, shares.1, shares.2), expected, "{shares:?}");
        }
        let told = Shares { medium: Some(0.31), processors: Some(0.98), network: None }.verdict();
        assert_eq!(told, "NOT AN MBWU, but limited by processors: medium 31 %, processors 98 %, network -.");
        let told = Shares { medium: None, processors: Some(0.1), network: None }.verdict();
        assert!(told.starts_with("NOT KNOWN TO BE AN MBWU: the share of a resource is unknown ("), "{told}");
    }
}
