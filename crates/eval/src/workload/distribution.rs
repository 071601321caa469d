//! Distributions of requested keys: even, by Zipf's law, the newest first, or a few neighbours most of the time.
//!
//! A bijection scatters the ranks of Zipf's law over the key space, so that hot keys are not neighbours and each keeps
//! its exact share. The keys of a hot set, in contrast, are neighbours. A store that tracks leaves rather than keys can
//! detect a hot set.
//!
//! `ycsb-zipfian`, `ycsb-latest`, `sequential` and `exponential` request the keys that YCSB 0.17.0 requests, with its
//! quirks; so do `uniform` and `hot`. A test compares each of them with YCSB's own generator.
//!
//! A chooser can *jump*: every key is then replaced by the one half the key space away. Hot keys become cold, other
//! keys become hot, and the skew stays.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::data::fnv;
use crate::error::Error;
use crate::workload::permutation::Permutation;
use crate::workload::zipf::{DEFAULT_THETA, SteepZipf, Zipf};

const THETA_MAX: f64 = 10.0;

/// How often each key is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// Every key alike.
    Uniform,
    /// The i-th most popular key in proportion to `1 / i^theta`.
    Zipfian {
        /// The skew, above 0.
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
    /// YCSB's `zipfian`: ranks of Zipf's law over 10,000,000,001 items, whatever the number of keys, with YCSB's sum
    /// of their weights. FNV-1a in 64 bits hashes each rank to a place. There is one place more than keys, and two for
    /// each insert that is expected, so that inserts change no hot key. A place without a key is drawn again. The share
    /// of a key is that of all ranks in its place.
    #[serde(rename = "ycsb-zipfian")]
    YcsbZipfian,
    /// YCSB's `latest`: reads and writes prefer the key that was inserted last, by Zipf's law over the keys before it.
    /// The very first key is never requested. The sum of weights grows with the keys, and one factor of the closed form
    /// does not, so that many inserts change the law, as they do in YCSB.
    #[serde(rename = "ycsb-latest")]
    YcsbLatest,
    /// One key after the other, round and round.
    Sequential,
    /// Keys that were inserted last, exponentially less often the longer ago that was.
    Exponential {
        /// Per cent of the operations that go to the newest keys.
        percentile: f64,
        /// The number of these keys, as a part of the keys that were loaded.
        fraction: f64,
    },
}

/// The items and the sum of YCSB's scrambled Zipf distribution, which are constants there.
const YCSB_ITEMS: u64 = 10_000_000_001;
const YCSB_ZETA: f64 = 26.469_028_201_783_02;
/// YCSB's defaults of `exponential.percentile` and `exponential.frac`.
pub(crate) const EXPONENTIAL_PERCENTILE: f64 = 95.0;
pub(crate) const EXPONENTIAL_FRACTION: f64 = 0.857_142_857_1;
/// The mean distance from the newest key, over the number of keys, from which on an exponential law is even to twelve
/// digits.
const EXPONENTIAL_MEAN_MAX: f64 = 1e12;

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
                Ok(theta) if theta > 0.0 && theta <= THETA_MAX => Ok(Distribution::Zipfian { theta }),
                _ => Err(Error::invalid(
                    "zipfian skew",
                    theta,
                    "give a number above 0, up to 10, such as zipfian:0.99",
                )),
            },
            ("ycsb-zipfian", "") => Ok(Distribution::YcsbZipfian),
            ("ycsb-latest", "") => Ok(Distribution::YcsbLatest),
            ("sequential", "") => Ok(Distribution::Sequential),
            ("exponential", "") => Ok(Distribution::Exponential {
                percentile: EXPONENTIAL_PERCENTILE,
                fraction: EXPONENTIAL_FRACTION,
            }),
            ("exponential", both) => exponential(both).ok_or_else(|| {
                Error::invalid(
                    "exponential distribution",
                    both,
                    "give per cent of operations, above 0 and below 100, and a part of the keys above 0 and up to 1, \
                     such as exponential:95:0.1",
                )
            }),
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
                known: "uniform, zipfian, zipfian:THETA, latest, hot, hot:KEYS_PCT:SHARE_PCT, ycsb-zipfian, \
                        ycsb-latest, sequential, exponential, exponential:PERCENT:FRACTION"
                    .into(),
            }),
        }
    }
}

fn exponential(text: &str) -> Option<Distribution> {
    let (percentile, fraction) = text.split_once(':')?;
    let percentile = percentile.parse().ok().filter(|&pct: &f64| pct > 0.0 && pct < 100.0)?;
    let fraction = fraction.parse().ok().filter(|&part: &f64| part > 0.0 && part <= 1.0)?;
    Some(Distribution::Exponential { percentile, fraction })
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
            Distribution::YcsbZipfian => f.write_str("ycsb-zipfian"),
            Distribution::YcsbLatest => f.write_str("ycsb-latest"),
            Distribution::Sequential => f.write_str("sequential"),
            Distribution::Exponential { percentile, fraction } => {
                f.write_str("exponential")?;
                match (*percentile, *fraction) == (EXPONENTIAL_PERCENTILE, EXPONENTIAL_FRACTION) {
                    true => Ok(()),
                    false => write!(f, ":{percentile}:{fraction}"),
                }
            }
        }
    }
}

#[derive(Debug)]
enum Law {
    Uniform,
    Zipfian(Zipf, Permutation),
    Latest(Zipf),
    Hot {
        keys: u64,
        share: f64,
    },
    Steep(SteepZipf, Permutation),
    YcsbZipfian {
        zipf: Zipf,
        places: u64,
    },
    YcsbLatest(Zipf),
    Sequential,
    /// The mean distance from the newest key.
    Exponential(f64),
}

/// The shared part of a key chooser.
#[derive(Debug, Clone)]
pub(crate) struct KeyLaw {
    law: Arc<Law>,
    keys: u64,
}

impl KeyLaw {
    /// Prepares a distribution over `keys` keys (at least 1), none of which is inserted later.
    pub(crate) fn new(distribution: Distribution, keys: u64) -> Self {
        Self::with_inserts(distribution, keys, 0.0)
    }

    /// Prepares a distribution over `keys` keys and those that are inserted later, as far as it requests any of them.
    /// About `inserts` are expected.
    pub(crate) fn with_inserts(distribution: Distribution, keys: u64, inserts: f64) -> Self {
        let scatter = || Permutation::new(keys, 0x5eed);
        let law = match distribution {
            Distribution::Zipfian { theta } if keys > 2 && theta < 1.0 => {
                Law::Zipfian(Zipf::new(keys, theta), scatter())
            }
            Distribution::Zipfian { theta } if keys > 2 => Law::Steep(SteepZipf::new(keys, theta), scatter()),
            Distribution::Latest if keys > 2 => Law::Latest(Zipf::new(keys, DEFAULT_THETA)),
            Distribution::Hot { keys_pct, share_pct } if keys > 1 => Law::Hot {
                keys: ((keys as f64 * keys_pct / 100.0) as u64).clamp(1, keys - 1),
                share: share_pct / 100.0,
            },
            Distribution::YcsbZipfian => Law::YcsbZipfian {
                zipf: Zipf::with_zeta(YCSB_ITEMS, DEFAULT_THETA, YCSB_ZETA),
                places: keys + (2.0 * inserts) as u64 + 1,
            },
            Distribution::YcsbLatest if keys > 3 => Law::YcsbLatest(Zipf::new(keys - 1, DEFAULT_THETA)),
            Distribution::Sequential => Law::Sequential,
            Distribution::Exponential { percentile, fraction } => {
                let mean = keys as f64 * fraction / -(-percentile / 100.0).ln_1p();
                Law::Exponential(mean.min(keys as f64 * EXPONENTIAL_MEAN_MAX))
            }
            _ => Law::Uniform,
        };
        KeyLaw { law: Arc::new(law), keys }
    }

    /// The share of all requests that the hottest key has, where the law tells that without draws.
    pub(crate) fn hottest(&self) -> Option<f64> {
        match &*self.law {
            Law::Uniform | Law::Sequential => Some(1.0 / self.keys as f64),
            Law::Zipfian(zipf, _) => Some(zipf.first_share()),
            Law::Hot { keys, share } => {
                Some((share / *keys as f64).max((1.0 - share) / (self.keys - keys) as f64))
            }
            // That of the newest key. A draw beyond the oldest one is made again.
            Law::Exponential(mean) => Some((-1.0 / *mean).exp_m1() / (-(self.keys as f64) / *mean).exp_m1()),
            _ => None,
        }
    }

    /// The chooser of one thread.
    pub(crate) fn chooser(&self, seed: u64, thread: u64, threads: u64) -> Chooser {
        let growing = match &*self.law {
            Law::YcsbLatest(zipf) => Some(zipf.clone()),
            _ => None,
        };
        Chooser {
            law: self.clone(),
            random: SmallRng::seed_from_u64(seed),
            steps: 0,
            shift: 0,
            newest: self.keys - 1,
            growing,
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
    /// Keys written in the order of `latest`, or requested in that of `sequential`.
    steps: u64,
    /// How far every key is moved up, going round.
    shift: u64,
    /// The key that was inserted last.
    newest: u64,
    /// Zipf's law over a growing number of keys.
    growing: Option<Zipf>,
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

    /// Keys of the order of `latest` or `sequential` that all threads have gone through, if all are as fast as this one
    /// is.
    pub(crate) fn gone_through(&self) -> u64 {
        self.steps * self.threads
    }

    /// Goes on behind so many keys of that order.
    pub(crate) fn behind(self, keys: u64) -> Self {
        Chooser { steps: keys.div_ceil(self.threads), ..self }
    }

    /// Moves every key by half the key space.
    pub(crate) fn jump(&mut self) {
        let keys = self.law.keys;
        self.shift = (self.shift + keys / 2) % keys;
    }

    /// Tells that a key was inserted.
    pub(crate) fn inserted(&mut self, key: u64) {
        self.newest = self.newest.max(key);
        if let Some(zipf) = &mut self.growing {
            zipf.grow(self.newest, self.law.keys - 1);
        }
    }

    /// The key of the next read. It lies below the number of keys, or was inserted: by this thread or, if it is older
    /// than the newest of this thread, perhaps by another.
    #[inline]
    pub(crate) fn read(&mut self) -> u64 {
        let keys = self.law.keys;
        let law = &*self.law.law;
        let unmoved = match law {
            Law::Uniform => below(&mut self.random, keys),
            Law::Zipfian(zipf, scatter) => scatter.at(zipf.rank(unit(&mut self.random))),
            Law::Latest(zipf) => {
                let newest = (self.steps * self.threads + self.thread) % keys;
                let back = zipf.rank(unit(&mut self.random));
                if back <= newest { newest - back } else { newest + keys - back }
            }
            Law::Hot { keys: hot, share } => match unit(&mut self.random) < *share {
                true => below(&mut self.random, *hot),
                false => hot + below(&mut self.random, keys - hot),
            },
            _ => return self.read_otherwise(),
        };
        let moved = unmoved + self.shift;
        if moved < keys { moved } else { moved - keys }
    }

    /// The rank of the next read by Zipf's law, before it is scattered.
    #[cfg(test)]
    pub(crate) fn read_rank(&mut self) -> u64 {
        let Law::Zipfian(zipf, _) = &*self.law.law else { panic!("ranks are those of Zipf's law") };
        zipf.rank(unit(&mut self.random))
    }

    /// The key of the next read by a steep law, or by one that may request inserted keys.
    #[inline(never)]
    fn read_otherwise(&mut self) -> u64 {
        let Chooser { law, random, steps, newest, growing, thread, threads, shift, .. } = self;
        loop {
            let key = match (&*law.law, &*growing) {
                (Law::YcsbZipfian { zipf, places }, _) => Some(fnv::hash64(zipf.rank(unit(random))) % places),
                (Law::Steep(zipf, scatter), _) => {
                    Some((scatter.at(zipf.rank(|| unit(random))) + *shift) % law.keys)
                }
                (Law::Exponential(mean), _) => newest.checked_sub(distance(unit(random), *mean, *newest)),
                (_, Some(zipf)) => Some(*newest - zipf.rank(unit(random))),
                _ => {
                    *steps += 1;
                    Some(((*steps - 1) * *threads + *thread) % law.keys)
                }
            };
            if let Some(key) = key.filter(|key| key <= newest) {
                return key;
            }
        }
    }

    /// The key of the next write, before ownership is settled.
    #[inline]
    pub(crate) fn write(&mut self) -> u64 {
        if matches!(*self.law.law, Law::Latest(_)) {
            self.steps += 1;
            return (self.steps * self.threads + self.thread) % self.law.keys;
        }
        self.read()
    }
}

/// The distance from the newest key that an exponential law with this mean has at an even number in `[0, 1)`. It may be
/// larger than `newest`, and is drawn again then.
fn distance(unit: f64, mean: f64, newest: u64) -> u64 {
    let keys = newest as f64 + 1.0;
    let means = if mean < keys {
        -unit.ln()
    } else {
        // Most distances lie beyond the oldest key, so the law is that of the others alone.
        let share = -(-keys / mean).exp_m1();
        -(-unit * share).ln_1p()
    };
    (means * mean) as u64
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
        let zeta = crate::workload::zipf::zeta(1_000, 0.99);
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

    /// Each draw of such a law would lie beyond the oldest key.
    #[test]
    fn an_exponential_law_with_a_tiny_percentile_is_even() {
        for text in ["exponential:0.0001:1", "exponential:1e-30:1", "exponential:5e-324:1"] {
            let law: Distribution = text.parse().unwrap();
            let hottest = KeyLaw::new(law, 100).hottest().unwrap();
            assert!((hottest * 100.0 - 1.0).abs() < 1e-5, "{text}: {hottest}");
            let counts = shares(law, 100);
            assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{text}: {counts:?}");
        }
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
    fn latest_prefers_what_was_just_written() {
        let mut chooser = KeyLaw::new(Distribution::Latest, 10_000).chooser(1, 0, 1);
        let newest = (0..500).map(|_| chooser.write()).last().unwrap();
        let near = (0..10_000).filter(|_| chooser.read().abs_diff(newest) < 100).count();
        assert!(near > 4_000, "{near} of 10,000 reads were near the newest key");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "zipf",
            "zipfian:0",
            "zipfian:11",
            "zipfian:x",
            "uniform:1",
            "ycsb-latest:1",
            "hot:1",
            "hot:0:95",
            "hot:1:100",
            "hot:1:95:3",
        ] {
            assert!(text.parse::<Distribution>().is_err(), "{text}");
        }
    }
}
