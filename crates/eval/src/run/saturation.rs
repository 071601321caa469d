//! The load from which on a target gives no more throughput.
//!
//! Up to the knee, throughput grows with the load as if requests did not meet; from there on it is bounded. The knee is
//! where the two asymptotes cross: the bound over the throughput of each unit of load when there is little load
//! (Lazowska and others, "Quantitative System Performance", 1984, chapter 5). A single noisy measurement can place it
//! anywhere, so both are measured again in turns until the error of their ratio is small.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::statistics::{Deviation, Mean, student_t};

/// Less growth than this by twice the load is no growth.
const GROWTH_MIN: f64 = 0.03;
/// The part of the bound that is as good as all of it.
const ENOUGH: f64 = 0.97;

/// A load of so many times the knee is beyond it.
const BEYOND: f64 = 1.2;

/// How exact a search is, and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Effort {
    /// The largest load.
    pub(crate) load_max: u64,
    /// The relative standard error of the knee at which the search ends.
    pub(crate) error: f64,
    /// Measurements of each load at most.
    pub(crate) repeats_max: usize,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { load_max: 256, error: 0.02, repeats_max: 5 }
    }
}

/// The measurements of one load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests under way at once.
    pub load: u64,
    /// Operations per second, one for each measurement.
    pub throughputs: Vec<f64>,
}

impl Point {
    fn mean(&self) -> f64 {
        Mean::of(&self.throughputs).map_or(0.0, |mean| mean.mean)
    }
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Saturation {
    /// All measurements, by load.
    pub points: Vec<Point>,
    /// The load of the largest throughput.
    pub peak_load: u64,
    /// The largest throughput. Its measurements are others than those that chose the load, or the luckiest would win.
    pub peak: Mean,
    /// Where the asymptotes cross.
    pub knee: f64,
    /// Its standard error; nothing if one measurement of each asymptote was all.
    pub knee_error: Option<f64>,
    /// The least load that gave 97 % of the largest throughput.
    pub enough_load: u64,
}

impl Saturation {
    /// Whether some load was well beyond the knee, and the largest load gave no more throughput than half of it. If
    /// not, the largest load that was allowed is too small.
    pub fn is_saturated(&self) -> bool {
        let largest = self.largest_load();
        largest as f64 > self.knee * BEYOND
            && !(self.peak_load == largest && grows(&self.points, largest, &self.peak))
    }

    /// The largest load that was measured; 0 for none.
    pub fn largest_load(&self) -> u64 {
        self.points.iter().map(|point| point.load).max().unwrap_or(0)
    }
}

/// Whether the throughput of `load`, `peak`, is more than that of half the load.
fn grows(points: &[Point], load: u64, peak: &Mean) -> bool {
    let half = points.iter().find(|point| point.load * 2 == load);
    half.is_some_and(|half| peak.mean > half.mean() * (1.0 + GROWTH_MIN))
}

/// Searches. `measure` gives operations per second at a load, and is asked as seldom as the errors allow.
///
/// # Errors
/// Those of `measure`; or the least load gave no throughput at all, and so there is no knee.
pub(crate) fn saturate(
    effort: Effort,
    measure: &mut dyn FnMut(u64) -> Result<f64, Error>,
) -> Result<Saturation, Error> {
    let mut search = Search { points: Vec::new(), measure };
    let doubled = std::iter::successors(Some(1u64), |load| load.checked_mul(2));
    ramp(doubled.take_while(|load| *load <= effort.load_max.max(1)), &mut |load| search.measured(load))?;
    let first = search.points[0].load;
    let (peak_load, slope, peak) = search.asymptotes(first, effort)?;
    if slope.mean <= 0.0 {
        let expected = "no operation ended within the windows of the search; give longer --seconds";
        return Err(Error::invalid("search for saturation", format!("{first} thread(s)"), expected));
    }
    let knee = peak.mean / (slope.mean / first as f64);
    let knee_error = relative_error(&slope, &peak).map(|error| error * knee);
    let enough_load = search.enough(peak_load, peak.mean, effort)?;
    search.points.sort_by_key(|point| point.load);
    Ok(Saturation { points: search.points, peak_load, peak, knee, knee_error, enough_load })
}

impl fmt::Display for Saturation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = self.knee_error.map_or(String::new(), |error| format!(" (standard error {error:.1})"));
        let (knee, enough, peak) = (self.knee, self.enough_load, self.peak_load);
        match self.is_saturated() {
            true => write!(
                f,
                "{enough} thread(s) are enough for 97 % of the largest throughput, which {peak} gave; the knee lies at \
                 {knee:.1}{error}"
            ),
            false => {
                let largest = self.largest_load();
                write!(f, "NOT SATURATED: throughput still grew at {largest} thread(s); allow more")
            }
        }
    }
}

/// The relative standard error of a ratio. That of few samples may be small by luck, so it is made as large as the
/// interval of 95 % by Student's t asks for.
fn relative_error(one: &Mean, other: &Mean) -> Option<f64> {
    let relative = |mean: &Mean| mean.deviation().map(|deviation| deviation.times(1.0 / mean.mean));
    let both = Deviation::together([relative(one)?, relative(other)?])?;
    Some(both.reach_95() / student_t(0.975, f64::INFINITY))
}

/// Measures growing loads until two in a row gave no growth.
///
/// # Errors
/// Those of `measure`.
pub(crate) fn ramp(
    loads: impl IntoIterator<Item = u64>,
    measure: &mut dyn FnMut(u64) -> Result<f64, Error>,
) -> Result<(), Error> {
    let (mut best, mut without_growth) = (0.0f64, 0);
    for load in loads {
        let throughput = measure(load)?;
        without_growth = if throughput < best * (1.0 + GROWTH_MIN) { without_growth + 1 } else { 0 };
        best = best.max(throughput);
        if without_growth == 2 {
            break;
        }
    }
    Ok(())
}

struct Search<'a> {
    points: Vec<Point>,
    measure: &'a mut dyn FnMut(u64) -> Result<f64, Error>,
}

impl Search<'_> {
    fn measured(&mut self, load: u64) -> Result<f64, Error> {
        let throughput = (self.measure)(load)?;
        match self.points.iter_mut().find(|point| point.load == load) {
            Some(point) => point.throughputs.push(throughput),
            None => self.points.push(Point { load, throughputs: vec![throughput] }),
        }
        Ok(throughput)
    }

    /// Measures the least load, and the load with the largest throughput beside twice and half of it, in turns, until
    /// the error of the knee is small. Returns the load of the peak, and the throughputs of the least load and of the
    /// peak.
    ///
    /// Noise may have ended the ramp below the peak. So twice the largest throughput's load is measured even if the
    /// ramp did not come to it, and the same is done around the peak while throughput grows there.
    fn asymptotes(&mut self, first: u64, effort: Effort) -> Result<(u64, Mean, Mean), Error> {
        let by_mean = |one: &&Point, other: &&Point| one.mean().total_cmp(&other.mean());
        let best = self.points.iter().max_by(by_mean).map_or(first, |point| point.load);
        let allowed = |load: &u64| (first..=effort.load_max.max(first)).contains(load);
        let loads: Vec<u64> = [best, best * 2, best / 2].into_iter().filter(allowed).collect();
        let mut slopes = Vec::new();
        let mut peaks: Vec<Vec<f64>> = vec![Vec::new(); loads.len()];
        loop {
            slopes.push(self.measured(first)?);
            for (peak, load) in peaks.iter_mut().zip(&loads) {
                peak.push(self.measured(*load)?);
            }
            let means = peaks.iter().filter_map(|peak| Mean::of(peak));
            let largest = means.zip(&loads).max_by(|one, other| one.0.mean.total_cmp(&other.0.mean));
            let Some((slope, (peak, load))) = Mean::of(&slopes).zip(largest) else { continue };
            let is_exact =
                slopes.len() > 2 && relative_error(&slope, &peak).is_some_and(|error| error <= effort.error);
            if is_exact || slopes.len() >= effort.repeats_max {
                let (twice, is_largest) = (*load * 2, self.points.iter().all(|point| point.load <= *load));
                if is_largest && twice <= effort.load_max && grows(&self.points, *load, &peak) {
                    self.measured(twice)?;
                    return self.asymptotes(first, effort);
                }
                return Ok((*load, slope, peak));
            }
        }
    }

    /// The least load with enough of the peak, by halving the gap to the largest one that had less.
    fn enough(&mut self, peak_load: u64, peak: f64, effort: Effort) -> Result<u64, Error> {
        let is_less = |point: &&Point| point.load < peak_load && point.mean() < peak * ENOUGH;
        let mut less = self.points.iter().filter(is_less).map(|point| point.load).max().unwrap_or(0);
        let mut enough = peak_load;
        while enough - less > (less / 16).max(1) {
            let load = less + (enough - less) / 2;
            let repeats = effort.repeats_max.min(3);
            let throughputs = (0..repeats).map(|_| self.measured(load)).collect::<Result<Vec<_>, _>>()?;
            match Mean::of(&throughputs) {
                Some(mean) if mean.mean >= peak * ENOUGH => enough = load,
                _ => less = load,
            }
        }
        Ok(enough)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::steady::tests::noise;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    const EXACT: Effort = Effort { load_max: 1_024, error: 0.012, repeats_max: 400 };

    fn searched(seed: u64, noise_share: f64, effort: Effort, throughput: impl Fn(f64) -> f64) -> Saturation {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut measure =
            |load: u64| Ok(throughput(load as f64) * (1.0 + noise_share * noise(&mut rng)).max(0.0));
        saturate(effort, &mut measure).unwrap()
    }

    #[test]
    fn the_knee_is_found_within_5_per_cent_with_noise_of_10() {
        for seed in 0..100 {
            let knee = 1.5 + (SmallRng::seed_from_u64(seed).next_u64() % 1_000) as f64 / 5.0;
            let hinge = |load: f64| 250.0 * load.min(knee);
            let found = searched(seed, 0.10, EXACT, hinge);
            let off = found.knee / knee - 1.0;
            assert!(off.abs() < 0.05, "seed {seed}: {} of {knee}", found.knee);
            assert!(found.knee_error.is_some_and(|error| error <= 0.012 * found.knee));
            assert!(found.is_saturated() && (found.peak.mean / (250.0 * knee) - 1.0).abs() < 0.05);
        }
    }

    /// A closed network with one bottleneck bends long before its knee, and a target may become slower beyond it.
    #[test]
    fn a_soft_knee_is_found_and_a_decline_is_no_peak() {
        for seed in 0..100 {
            let knee = 3.0 + (SmallRng::seed_from_u64(seed).next_u64() % 200) as f64 / 5.0;
            // The bounds of a balanced network lie between this curve and the asymptotes.
            let soft = |load: f64| 100.0 * load / (1.0 + (load / knee).powi(4)).powf(0.25);
            let off = searched(seed, 0.05, EXACT, soft).knee / knee - 1.0;
            assert!(off.abs() < 0.05, "seed {seed}: {off}");
            let declining =
                |load: f64| 100.0 * load.min(knee) / (1.0 + (load - knee).max(0.0) / (40.0 * knee));
            let found = searched(seed, 0.05, EXACT, declining);
            assert!((found.knee / knee - 1.0).abs() < 0.08, "seed {seed}: {} of {knee}", found.knee);
            assert!(found.peak_load < 4 * knee as u64, "seed {seed}: {found:?}");
        }
    }

    #[test]
    fn without_noise_few_measurements_do() {
        let mut asked = 0;
        let mut measure = |load: u64| {
            asked += 1;
            Ok(1_000.0 * load.min(24) as f64)
        };
        let found = saturate(Effort::default(), &mut measure).unwrap();
        assert_eq!((found.knee, found.enough_load, found.is_saturated()), (24.0, 24, true));
        assert_eq!((found.peak.mean, found.knee_error), (24_000.0, Some(0.0)));
        assert!(asked <= 40, "{asked}");
        let loads: Vec<u64> = found.points.iter().map(|point| point.load).collect();
        assert!(loads.is_sorted() && loads.contains(&128), "{loads:?}");
    }

    #[test]
    fn what_does_not_saturate_is_told_and_an_error_ends_the_search() {
        let found = searched(1, 0.0, Effort { load_max: 16, ..Effort::default() }, |load| load * 7.0);
        assert_eq!((found.is_saturated(), found.peak_load, found.enough_load), (false, 16, 16));
        let found = searched(1, 0.0, Effort { load_max: 1, ..Effort::default() }, |load| load * 7.0);
        assert_eq!((found.is_saturated(), found.peak_load, found.knee), (false, 1, 1.0));
        // Far beyond where the asymptotes cross, each doubling still gives two fifths more.
        let found = searched(1, 0.0, Effort { load_max: 64, ..Effort::default() }, f64::sqrt);
        assert_eq!((found.is_saturated(), found.peak_load, found.knee), (false, 64, 8.0));
        // Noise ends the ramp at 4 threads, which are the best then.
        let ramp = [100.0, 98.0, 102.0];
        let mut seen = 0;
        let mut noisy = |load: u64| {
            seen += 1;
            Ok(ramp.get(seen - 1).copied().unwrap_or(if load == 2 { 98.0 } else { 102.0 }))
        };
        let found = saturate(Effort { load_max: 16, ..Effort::default() }, &mut noisy).unwrap();
        assert_eq!((found.is_saturated(), found.largest_load()), (true, 8), "{found:?}");
        // It ends the ramp there although throughput grows up to 16.
        let mut seen = 0;
        let mut hidden = |load: u64| {
            seen += 1;
            Ok(if seen <= ramp.len() { 100.0 } else { 100.0 * load as f64 })
        };
        let found = saturate(Effort { load_max: 16, ..Effort::default() }, &mut hidden).unwrap();
        assert_eq!((found.is_saturated(), found.peak_load), (false, 16), "{found:?}");
        let one_only = searched(1, 0.0, Effort::default(), |_| 9.0);
        assert_eq!((one_only.is_saturated(), one_only.enough_load, one_only.knee), (true, 1, 1.0));
        let none = saturate(Effort::default(), &mut |_| Ok(0.0)).unwrap_err().to_string();
        assert!(none.contains("no operation ended within the windows of the search"), "{none}");
        let mut dies = |load: u64| match load {
            4 => Err(Error::invalid("target", "dead", "it died")),
            _ => Ok(load as f64),
        };
        assert!(saturate(Effort::default(), &mut dies).is_err());
    }
}
