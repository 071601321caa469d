//! Which keys are asked for: evenly, by Zipf's law, or the newest first.
//!
//! Zipf ranks are drawn by the closed form of Gray et al. ("Quickly generating billion-record synthetic databases",
//! SIGMOD 1994), as YCSB does: one power per draw, no table. Ranks are scattered over the key space by a bijection, so
//! that hot keys are no neighbours and each keeps its exact share.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::permutation::Permutation;

/// The skew of YCSB's Zipf distribution.
pub(crate) const DEFAULT_THETA: f64 = 0.99;

/// How often each key is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Every key alike.
    Uniform,
    /// The i-th most popular key in proportion to `1 / i^theta`.
    Zipfian {
        /// The skew, between 0 and 1.
        theta: f64,
    },
    /// Writes go round the key space in order; reads prefer what was written last, by Zipf's law.
    Latest,
}

impl FromStr for Distribution {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("uniform", "") => Ok(Distribution::Uniform),
            ("latest", "") => Ok(Distribution::Latest),
            ("zipfian", "") => Ok(Distribution::Zipfian { theta: DEFAULT_THETA }),
            ("zipfian", theta) => match theta.parse() {
                Ok(theta) if theta > 0.0 && theta < 1.0 => Ok(Distribution::Zipfian { theta }),
                _ => Err(Error::invalid(
                    "zipfian skew",
                    theta,
                    "give a number above 0 and below 1, such as zipfian:0.99",
                )),
            },
            _ => Err(Error::Unknown {
                what: "distribution",
                given: text.into(),
                known: "uniform, zipfian, zipfian:THETA, latest".into(),
            }),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => f.write_str("uniform"),
            Distribution::Zipfian { theta } => write!(f, "zipfian:{theta}"),
            Distribution::Latest => f.write_str("latest"),
        }
    }
}

/// Zipf ranks over a fixed number of items; built once, shared by the threads.
#[derive(Debug)]
struct Zipf {
    items: f64,
    theta_half: f64,
    alpha: f64,
    eta: f64,
    zeta: f64,
}

impl Zipf {
    fn new(items: u64, theta: f64) -> Self {
        let zeta = zeta(items, theta);
        let n = items as f64;
        Zipf {
            items: n,
            theta_half: 1.0 + 0.5f64.powf(theta),
            alpha: 1.0 / (1.0 - theta),
            eta: (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - self::zeta(2, theta) / zeta),
            zeta,
        }
    }

    #[inline]
    fn rank(&self, uniform: f64) -> u64 {
        let scaled = uniform * self.zeta;
        let rank = if scaled < 1.0 {
            0.0
        } else if scaled < self.theta_half {
            1.0
        } else {
            self.items * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)
        };
        rank.min(self.items - 1.0) as u64
    }
}

/// The sum of `1 / i^theta` for i up to `items`; beyond the first 100,000 terms by the trapezoidal rule (relative error
/// below 1e-9).
fn zeta(items: u64, theta: f64) -> f64 {
    let exact = items.min(100_000);
    let sum: f64 = (1..=exact).map(|i| (i as f64).powf(-theta)).sum();
    if items == exact {
        return sum;
    }
    let (from, to) = (exact as f64, items as f64);
    let integral = (to.powf(1.0 - theta) - from.powf(1.0 - theta)) / (1.0 - theta);
    sum + integral + (to.powf(-theta) - from.powf(-theta)) / 2.0
}

#[derive(Debug)]
enum Law {
    Uniform,
    Zipfian(Zipf, Permutation),
    Latest(Zipf),
}

/// The shared part of a key chooser.
#[derive(Debug, Clone)]
pub(crate) struct KeyLaw {
    law: Arc<Law>,
    keys: u64,
}

impl KeyLaw {
    /// Prepares a distribution over `keys` keys (at least 1).
    pub(crate) fn new(distribution: Distribution, keys: u64) -> Self {
        let law = match distribution {
            Distribution::Zipfian { theta } if keys > 2 => {
                Law::Zipfian(Zipf::new(keys, theta), Permutation::new(keys, 0x5eed))
            }
            Distribution::Latest if keys > 2 => Law::Latest(Zipf::new(keys, DEFAULT_THETA)),
            _ => Law::Uniform,
        };
        KeyLaw { law: Arc::new(law), keys }
    }

    /// The chooser of one thread.
    pub(crate) fn chooser(&self, seed: u64, thread: u64, threads: u64) -> Chooser {
        Chooser { law: self.clone(), random: SmallRng::seed_from_u64(seed), written: 0, thread, threads }
    }
}

/// Draws keys for one thread.
#[derive(Debug)]
pub(crate) struct Chooser {
    law: KeyLaw,
    random: SmallRng,
    written: u64,
    thread: u64,
    threads: u64,
}

impl Chooser {
    /// An even number below `limit`.
    #[inline]
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        below(&mut self.random, limit)
    }

    /// An even number in `[0, 1)`.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        unit(&mut self.random)
    }

    /// The key of the next read.
    #[inline]
    pub(crate) fn read(&mut self) -> u64 {
        let keys = self.law.keys;
        match &*self.law.law {
            Law::Uniform => below(&mut self.random, keys),
            Law::Zipfian(zipf, scatter) => scatter.at(zipf.rank(unit(&mut self.random))),
            Law::Latest(zipf) => {
                let newest = (self.written * self.threads + self.thread) % keys;
                let back = zipf.rank(unit(&mut self.random));
                if back <= newest { newest - back } else { newest + keys - back }
            }
        }
    }

    /// The key of the next write, before ownership is settled.
    #[inline]
    pub(crate) fn write(&mut self) -> u64 {
        if matches!(*self.law.law, Law::Latest(_)) {
            self.written += 1;
            return (self.written * self.threads + self.thread) % self.law.keys;
        }
        self.read()
    }
}

#[inline]
fn below(random: &mut SmallRng, limit: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(limit)) >> 64) as u64
}

#[inline]
fn unit(random: &mut SmallRng) -> f64 {
    (random.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(distribution: Distribution, keys: u64) -> Vec<u64> {
        let mut counts = vec![0; keys as usize];
        let mut chooser = KeyLaw::new(distribution, keys).chooser(1, 0, 1);
        for _ in 0..1_000_000 {
            counts[chooser.read() as usize] += 1;
        }
        counts
    }

    #[test]
    fn uniform_is_even() {
        let counts = shares(Distribution::Uniform, 100);
        assert!(counts.iter().all(|&count| (9_500..10_500).contains(&count)), "{counts:?}");
    }

    #[test]
    fn zipfian_shares_follow_the_law() {
        let mut counts = shares(Distribution::Zipfian { theta: 0.99 }, 1_000);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let zeta = zeta(1_000, 0.99);
        for (rank, tolerance) in [(0, 0.02), (1, 0.03), (9, 0.15), (99, 0.2)] {
            let expected = 1e6 / ((rank + 1) as f64).powf(0.99) / zeta;
            let error = (counts[rank] as f64 / expected - 1.0).abs();
            assert!(error < tolerance, "rank {rank}: {} instead of {expected}", counts[rank]);
        }
    }

    #[test]
    fn the_tail_of_the_sum_is_close() {
        let exact: f64 = (1..=300_000u64).map(|i| (i as f64).powf(-0.9)).sum();
        assert!((zeta(300_000, 0.9) / exact - 1.0).abs() < 1e-9);
    }

    #[test]
    fn latest_prefers_what_was_just_written() {
        let mut chooser = KeyLaw::new(Distribution::Latest, 10_000).chooser(1, 0, 1);
        let newest = (0..500).map(|_| chooser.write()).last().unwrap();
        let near = (0..10_000).filter(|_| chooser.read().abs_diff(newest) < 100).count();
        assert!(near > 4_000, "{near} of 10,000 reads were near the newest key");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["zipf", "zipfian:2", "zipfian:x", "uniform:1"] {
            assert!(text.parse::<Distribution>().is_err(), "{text}");
        }
    }
}
