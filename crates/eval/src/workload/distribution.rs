//! Distributions of requested keys: even, by Zipf's law, the newest first, or a few neighbours most of the time.
//!
//! Zipf ranks are drawn by the closed form of Gray et al. ("Quickly generating billion-record synthetic databases",
//! SIGMOD 1994), as YCSB does: one power per draw, no table. A bijection scatters ranks over the key space, so that hot
//! keys are not neighbours and each keeps its exact share. The keys of a hot set, in contrast, are neighbours. A store
//! that tracks leaves rather than keys can detect a hot set.
//!
//! A chooser can *jump*: every key is then replaced by the one half the key space away. Hot keys become cold, other
//! keys become hot, and the skew stays.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::workload::permutation::Permutation;

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
    /// Neighbouring keys that get a fixed share of the operations, each alike; the others share the rest.
    Hot {
        /// Per cent of the keys that are hot.
        keys_pct: f64,
        /// Per cent of the operations that go to them.
        share_pct: f64,
    },
}

/// One key in a hundred takes 95 % of the operations.
const HOT_KEYS_PCT: f64 = 1.0;
const HOT_SHARE_PCT: f64 = 95.0;

impl Distribution {
    /// Whether some keys are always hotter than others, independently of writes.
    pub fn is_skewed(&self) -> bool {
        matches!(self, Distribution::Zipfian { .. } | Distribution::Hot { .. })
    }
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
            ("hot", "") => Ok(Distribution::Hot { keys_pct: HOT_KEYS_PCT, share_pct: HOT_SHARE_PCT }),
            ("hot", both) => hot(both).ok_or_else(|| {
                Error::invalid(
                    "hot set",
                    both,
                    "give per cent of keys and of operations, above 0 and below 100, such as hot:1:95",
                )
            }),
            _ => Err(Error::Unknown {
                what: "distribution",
                given: text.into(),
                known: "uniform, zipfian, zipfian:THETA, latest, hot, hot:KEYS_PCT:SHARE_PCT".into(),
            }),
        }
    }
}

fn hot(text: &str) -> Option<Distribution> {
    let (keys, share) = text.split_once(':')?;
    let pct = |text: &str| text.parse().ok().filter(|&pct: &f64| pct > 0.0 && pct < 100.0);
    Some(Distribution::Hot { keys_pct: pct(keys)?, share_pct: pct(share)? })
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Uniform => f.write_str("uniform"),
            Distribution::Zipfian { theta } => write!(f, "zipfian:{theta}"),
            Distribution::Latest => f.write_str("latest"),
            Distribution::Hot { keys_pct, share_pct } => write!(f, "hot:{keys_pct}:{share_pct}"),
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
    Hot { keys: u64, share: f64 },
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
            Distribution::Hot { keys_pct, share_pct } if keys > 1 => Law::Hot {
                keys: ((keys as f64 * keys_pct / 100.0) as u64).clamp(1, keys - 1),
                share: share_pct / 100.0,
            },
            _ => Law::Uniform,
        };
        KeyLaw { law: Arc::new(law), keys }
    }

    /// The chooser of one thread.
    pub(crate) fn chooser(&self, seed: u64, thread: u64, threads: u64) -> Chooser {
        Chooser {
            law: self.clone(),
            random: SmallRng::seed_from_u64(seed),
            written: 0,
            shift: 0,
            thread,
            threads,
        }
    }
}

/// Draws keys for one thread.
#[derive(Debug)]
pub(crate) struct Chooser {
    law: KeyLaw,
    random: SmallRng,
    written: u64,
    /// How far every key is moved up, going round.
    shift: u64,
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

    /// Moves every key by half the key space.
    pub(crate) fn jump(&mut self) {
        let keys = self.law.keys;
        self.shift = (self.shift + keys / 2) % keys;
    }

    /// The key of the next read.
    #[inline]
    pub(crate) fn read(&mut self) -> u64 {
        let keys = self.law.keys;
        let moved = self.unmoved() + self.shift;
        if moved < keys { moved } else { moved - keys }
    }

    #[inline]
    fn unmoved(&mut self) -> u64 {
        let keys = self.law.keys;
        match &*self.law.law {
            Law::Uniform => below(&mut self.random, keys),
            Law::Zipfian(zipf, scatter) => scatter.at(zipf.rank(unit(&mut self.random))),
            Law::Latest(zipf) => {
                let newest = (self.written * self.threads + self.thread) % keys;
                let back = zipf.rank(unit(&mut self.random));
                if back <= newest { newest - back } else { newest + keys - back }
            }
            Law::Hot { keys: hot, share } => match unit(&mut self.random) < *share {
                true => below(&mut self.random, *hot),
                false => hot + below(&mut self.random, keys - hot),
            },
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
    fn a_hot_set_takes_its_share_and_its_keys_are_neighbours() {
        let counts = shares("hot:2:80".parse().unwrap(), 1_000);
        let hot: u64 = counts[..20].iter().sum();
        assert!((795_000..805_000).contains(&hot), "{hot}");
        assert!(counts[..20].iter().all(|count| (38_000..42_000).contains(count)), "{counts:?}");
        assert!(counts[20..].iter().all(|count| (130..290).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_jump_moves_the_hot_keys_and_keeps_the_skew() {
        const READS: u64 = 200_000;
        for (distribution, keys) in [("hot:1:95", 10_000), ("hot:1:95", 9_999), ("zipfian:0.99", 10_000)] {
            let mut chooser = KeyLaw::new(distribution.parse().unwrap(), keys).chooser(1, 0, 1);
            let mut hottest = || {
                let mut counts = vec![0u64; keys as usize];
                (0..READS).for_each(|_| counts[chooser.read() as usize] += 1);
                let mut order: Vec<u64> = (0..keys).collect();
                order.sort_unstable_by_key(|&key| std::cmp::Reverse(counts[key as usize]));
                order.truncate(90);
                let taken: u64 = order.iter().map(|&key| counts[key as usize]).sum();
                chooser.jump();
                (order, taken as f64 / READS as f64)
            };
            let ((first, first_share), (second, second_share), (third, _)) =
                (hottest(), hottest(), hottest());
            let shared = |other: &[u64]| first.iter().filter(|key| other.contains(key)).count();
            assert!(shared(&second) <= 5, "{distribution}: {} keys stayed hot", shared(&second));
            assert!(first_share > 0.4, "{distribution}: {first_share}");
            let skew = first_share / second_share;
            assert!((0.98..1.02).contains(&skew), "{distribution} of {keys}: {skew}");
            if keys % 2 == 0 && distribution.starts_with("zipfian") {
                assert!(shared(&third) > 60, "two jumps lead back");
            }
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
        for text in
            ["zipf", "zipfian:2", "zipfian:x", "uniform:1", "hot:1", "hot:0:95", "hot:1:100", "hot:1:95:3"]
        {
            assert!(text.parse::<Distribution>().is_err(), "{text}");
        }
    }
}
