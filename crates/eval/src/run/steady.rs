//! Whether a throughput is steady.
//!
//! The rule is that of SNIA's Solid State Storage Performance Test Specification: over a window of measurements the
//! throughput must neither drift nor jump by more than [`CHANGE_MAX`] of its mean. SNIA compares five measurements as
//! they are. A noisy series passes that by chance, or never. So here the *bound* of the change, which is not exceeded
//! in 999 of 1,000 cases, must be small; and while the bound is large only because of noise, more is measured.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::results::table::grouped;
use crate::statistics::{Line, Mean, student_t};

/// How much of its mean a steady throughput may change from the begin of the window to the end.
pub(crate) const CHANGE_MAX: f64 = 0.10;
/// Samples in the least window.
pub(crate) const SAMPLES_MIN: usize = 40;
/// A window is cut into so many batches. Samples follow each other and resemble each other; means of batches do less.
const BATCHES: usize = 20;
/// The level of the bound, to either side.
const SURE: f64 = 0.999;

/// The verdict on a series.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Steadiness {
    /// The last so many samples are steady, and this is their mean. The error is that of means of batches.
    Steady {
        /// Samples from the end that the verdict is about.
        samples: usize,
        /// Their mean, and its error.
        throughput: Mean,
    },
    /// More samples may decide: the noise is as large as the change that is looked for.
    Unsure {
        /// The largest change that the noise allows, as a share of the mean. Nothing as long as there are too few
        /// samples.
        change_max: Option<f64>,
    },
    /// The throughput drifts or jumps.
    Changing {
        /// By how much from the begin of the window to its end, as a share of the mean.
        change: f64,
    },
}

impl Steadiness {
    /// Judges the end of a series of samples of equal length. The first half is left out, since a target that has just
    /// been loaded is not yet what it will be; so is everything as long as there are too few samples.
    pub fn of(series: &[f64]) -> Self {
        let len = (series.len() / 2).max(SAMPLES_MIN) / BATCHES * BATCHES;
        let Some(window) = series.len().checked_sub(len).map(|start| &series[start..]) else {
            return Steadiness::Unsure { change_max: None };
        };
        let batches: Vec<f64> = window
            .chunks(len / BATCHES)
            .map(|batch| batch.iter().sum::<f64>() / batch.len() as f64)
            .collect();
        let changes = changes(&batches);
        let bound = changes.iter().map(|change| change.share.abs() + change.reach).reduce(f64::max);
        let Some((throughput, change_max)) = Mean::of(&batches).zip(bound) else {
            return Steadiness::Unsure { change_max: None };
        };
        if change_max <= CHANGE_MAX {
            return Steadiness::Steady { samples: len, throughput };
        }
        let is_sure = |change: &&Change| change.share.abs() - change.reach > CHANGE_MAX;
        let surest =
            changes.iter().filter(is_sure).max_by(|one, other| one.share.abs().total_cmp(&other.share.abs()));
        surest.map_or(Steadiness::Unsure { change_max: Some(change_max) }, |change| Steadiness::Changing {
            change: change.share,
        })
    }
}

impl fmt::Display for Steadiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Steadiness::Steady { throughput, .. } => {
                write!(f, "steady at {} operations per second", grouped(throughput.mean, 0))?;
                match throughput.reach_95() {
                    Some(reach) => write!(f, ", with 95 % within {}", grouped(reach, 0)),
                    None => Ok(()),
                }
            }
            Steadiness::Changing { change } => {
                write!(f, "NOT STEADY: it changed by {:.0} % until the end", change * 100.0)
            }
            Steadiness::Unsure { change_max: Some(change_max) } => {
                write!(
                    f,
                    "NOT STEADY: the noise allows a change of {:.0} %; measure for longer",
                    change_max * 100.0
                )
            }
            Steadiness::Unsure { change_max: None } => {
                f.write_str("NOT STEADY: too few samples; measure for longer")
            }
        }
    }
}

impl Steadiness {
    /// Whether the throughput was steady.
    pub fn is_steady(&self) -> bool {
        matches!(self, Steadiness::Steady { .. })
    }

    /// What the throughput did, as a clause with a verb.
    pub(crate) fn clause(&self) -> String {
        let percent = |share: f64| share.abs() * 100.0;
        match self {
            Steadiness::Steady { .. } => "throughput was steady".into(),
            Steadiness::Changing { change } => {
                format!("throughput still changed by {:.0} %", percent(*change))
            }
            Steadiness::Unsure { change_max: Some(change_max) } => {
                format!(
                    "throughput may have changed by up to {:.0} %, for all its noise",
                    percent(*change_max)
                )
            }
            Steadiness::Unsure { change_max: None } => {
                "there were too few samples to tell whether throughput was steady".into()
            }
        }
    }

    /// The verdict in a word, for tables.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Steadiness::Steady { .. } => "steady",
            Steadiness::Changing { .. } => "changing",
            Steadiness::Unsure { .. } => "unsure",
        }
    }
}

/// A warm-up that was to last until the throughput was steady.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WarmedUp {
    /// Threads on each store.
    pub threads: u64,
    /// How long it lasted.
    pub sec: f64,
    /// What the throughput did in its end.
    pub steadiness: Steadiness,
}

impl WarmedUp {
    /// What followed on the warm-up, such as `searched`: a sentence without its end.
    pub(crate) fn before(&self, followed: &str) -> String {
        let WarmedUp { threads, sec, steadiness } = self;
        let clause = steadiness.clause();
        match steadiness.is_steady() {
            true => {
                format!("{followed} after a warm-up of {sec:.0} s with {threads} thread(s), when {clause}")
            }
            false => format!(
                "{} WHILE {clause}, after a warm-up of {sec:.0} s with {threads} thread(s); allow a longer one by \
                 --warmup-max",
                followed.to_uppercase()
            ),
        }
    }
}

/// A change, and how far from it the true one may be, as shares of the mean.
struct Change {
    share: f64,
    reach: f64,
}

/// The drift over the whole window, and the jump after each batch. None if nothing was done at all.
fn changes(batches: &[f64]) -> Vec<Change> {
    let n = batches.len();
    let Some((mean, line)) = Mean::of(batches).map(|mean| mean.mean).zip(Line::through(batches)) else {
        return Vec::new();
    };
    if mean <= 0.0 {
        return Vec::new();
    }
    let sure = student_t(SURE, (n - 2) as f64) / mean;
    // From the begin of the first batch to the end of the last.
    let span = n as f64;
    let drift = Change { share: line.slope * span / mean, reach: line.slope_error * span * sure };
    // A jump in the first or last tenth shows when the window has moved on.
    let jumps = (n / 10..=n - n / 10).filter_map(|place| {
        let (before, after) = batches.split_at(place);
        let (before, after) = (spread(before)?, spread(after)?);
        let variance = (before.squares + after.squares) / (n - 2) as f64;
        let error = (variance * (1.0 / before.n + 1.0 / after.n)).sqrt();
        Some(Change { share: (after.mean - before.mean) / mean, reach: error * sure })
    });
    jumps.chain([drift]).collect()
}

struct Spread {
    n: f64,
    mean: f64,
    squares: f64,
}

fn spread(values: &[f64]) -> Option<Spread> {
    let (n, mean) = (values.len() as f64, Mean::of(values)?.mean);
    Some(Spread { n, mean, squares: values.iter().map(|value| (value - mean).powi(2)).sum() })
}

/// Whether the throughputs of these whole rounds, five or more, are steady together by SNIA's rule as it stands: none
/// is further than a tenth from the mean, and the line of least squares moves by a tenth of the mean at most.
pub(crate) fn are_rounds_steady(rounds: &[f64]) -> bool {
    let Some((mean, line)) = Mean::of(rounds).map(|mean| mean.mean).zip(Line::through(rounds)) else {
        return false;
    };
    let within = |round: &f64| (round - mean).abs() <= CHANGE_MAX * mean;
    let moved = line.slope * (rounds.len() - 1) as f64;
    rounds.len() >= ROUNDS && rounds.iter().all(within) && moved.abs() <= CHANGE_MAX * mean
}

/// The fewest rounds that can be steady.
pub(crate) const ROUNDS: usize = 5;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// Normal noise by Box and Muller.
    pub(crate) fn noise(rng: &mut SmallRng) -> f64 {
        let uniform = |rng: &mut SmallRng| ((rng.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (-2.0 * uniform(rng).ln()).sqrt() * (std::f64::consts::TAU * uniform(rng)).cos()
    }

    /// Feeds a series sample by sample, and tells after how many it is called steady.
    fn called_steady(
        seed: u64,
        samples: usize,
        noise_share: f64,
        level: impl Fn(usize) -> f64,
    ) -> Option<usize> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut series = Vec::new();
        for place in 0..samples {
            series.push(level(place) * (1.0 + noise_share * noise(&mut rng)));
            // A look at every tenth is as often as a run looks.
            if place % 10 == 9 && matches!(Steadiness::of(&series), Steadiness::Steady { .. }) {
                return Some(place + 1);
            }
        }
        None
    }

    const SEEDS: u64 = 1_000;

    #[test]
    fn a_steady_series_is_called_steady_whatever_its_noise() {
        for (noise, samples) in [(0.0, 40), (0.01, 40), (0.02, 120), (0.05, 400), (0.10, 1_500)] {
            let unsteady =
                (0..SEEDS).filter(|seed| called_steady(*seed, samples, noise, |_| 5_000.0).is_none()).count();
            assert!(unsteady < 50, "{unsteady} of {SEEDS} with noise {noise}");
        }
    }

    /// A drift of a tenth of the level over the least window, upwards, and downwards, which goes on.
    #[test]
    fn a_drift_is_not_called_steady() {
        for noise in [0.0, 0.01, 0.02, 0.05] {
            for drift in [0.1001, 0.2, -0.12] {
                let level = |place: usize| 5_000.0 * (1.0 + drift / SAMPLES_MIN as f64).powi(place as i32);
                let steady =
                    (0..SEEDS).filter(|seed| called_steady(*seed, 200, noise, level).is_some()).count();
                assert!(steady < 10, "{steady} of {SEEDS} with noise {noise} and drift {drift}");
            }
        }
    }

    /// A jump by 15 % anywhere in the middle of the least window.
    #[test]
    fn a_jump_is_not_called_steady() {
        for noise in [0.0, 0.01, 0.03] {
            for place in [8, 14, 20, 26, 32] {
                for jump in [1.15, 0.85] {
                    let level = |at: usize| if at < place { 5_000.0 } else { 5_000.0 * jump };
                    let steady =
                        (0..SEEDS).filter(|seed| called_steady(*seed, SAMPLES_MIN, noise, level).is_some());
                    let steady = steady.count();
                    assert!(steady < 10, "{steady} of {SEEDS}: {noise} {place} {jump}");
                }
            }
        }
    }

    #[test]
    fn a_change_is_told_from_noise() {
        let ramp: Vec<f64> = (0..80).map(|place| 100.0 + place as f64).collect();
        assert!(matches!(Steadiness::of(&ramp), Steadiness::Changing { change } if change > 0.1));
        assert!(matches!(Steadiness::of(&ramp[..20]), Steadiness::Unsure { .. }));
        let Steadiness::Steady { samples, throughput } = Steadiness::of(&[7.0; 100]) else { panic!() };
        assert_eq!((samples, throughput.mean, throughput.error), (40, 7.0, Some(0.0)));
        assert!(matches!(Steadiness::of(&[0.0; 100]), Steadiness::Unsure { .. }), "nothing was done");
    }

    /// Batches that lie above and below the mean in turn allow a change of 3.24 times their share of it, by Student's t
    /// for 18 degrees of freedom. The normal distribution would allow 2.82 times.
    #[test]
    fn few_batches_are_less_sure_than_many() {
        let series = |share: f64| -> Vec<f64> {
            (0..40).map(|place| if place / 2 % 2 == 0 { 1.0 + share } else { 1.0 - share }).collect()
        };
        assert!(matches!(Steadiness::of(&series(0.030)), Steadiness::Steady { samples: 40, .. }));
        let unsure = Steadiness::of(&series(0.033));
        assert!(
            matches!(unsure, Steadiness::Unsure { change_max: Some(change) } if change < 0.11),
            "{unsure:?}"
        );
    }

    #[test]
    fn rounds_are_steady_by_the_rule_of_snia() {
        assert!(are_rounds_steady(&[100.0, 102.0, 98.0, 101.0, 99.0]));
        assert!(!are_rounds_steady(&[50.0, 100.0, 102.0, 98.0, 101.0, 99.0]), "the first is far away");
        assert!(!are_rounds_steady(&[100.0, 102.0, 98.0, 101.0]), "four are too few");
        assert!(!are_rounds_steady(&[100.0, 102.0, 98.0, 101.0, 120.0]), "one is far away");
        assert!(!are_rounds_steady(&[94.0, 97.0, 100.0, 103.0, 106.0]), "they grow");
    }
}
