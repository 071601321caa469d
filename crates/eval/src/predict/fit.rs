//! Fits what an operation demands to measured runs.
//!
//! 1. CPU time: an operation takes `cpu_sec × (1 + s (p - 1) + k p (p - 1) + c w)` CPU-seconds while `p` cores are
//!    busy, with `p` the smaller of threads and cores. `s` and `k` are the contention and coherency of the Universal
//!    Scalability Law, here of CPU time. `c` is the crowding: threads spin for a lock whose holder waits for a core,
//!    and `w` is the share of the threads that wait for one. This is linear in its four unknowns. The fit takes the
//!    least squares of relative errors that no negative unknown has. Crowding must lower them by more than chance does,
//!    by the F test at 99.9 per cent.
//! 2. Throughput: threads wait for `wait_sec` away from the cores, and further contention (`blocking`) makes them wait
//!    without CPU time. A search without derivatives (Hooke and Jeeves, 1961) finds the two with the least squares of
//!    the logarithms. On a machine that others share, the part of the busy cores that they left takes the place of
//!    blocking, one part for each number of busy cores: the two cannot be told apart by these figures.

use super::measured::{Point, Series};
use super::network::{Speed, Station, closed_throughput, waiting};
use crate::statistics::student_t;

/// What an operation demands, as fitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Demands {
    /// CPU-seconds of an operation while one core is busy.
    pub cpu_sec: f64,
    /// The part of these that each further busy core adds.
    pub contention: f64,
    /// The part of these that each pair of busy cores adds.
    pub coherency: f64,
    /// The part of these that an operation takes more if nearly all threads wait for a core.
    pub crowding: f64,
    /// Contention that threads wait for without CPU time.
    pub blocking: f64,
    /// Seconds of an operation away from the cores.
    pub wait_sec: f64,
    /// The part of the throughput that other processes left, for each number of busy cores that was measured; empty
    /// unless the machine was shared.
    pub left: Vec<(usize, f64)>,
}

/// The names of the stations that every network has.
pub(super) const CORES: &str = "cores";
pub(super) const WAIT: &str = "wait";

impl Demands {
    /// The stations of a machine with so many cores.
    pub(super) fn stations(&self, cores: f64) -> Vec<Station> {
        let speed = Speed::Cores {
            cores,
            contention: self.contention + self.blocking,
            coherency: self.coherency,
            crowding: self.crowding,
        };
        vec![
            Station { name: WAIT.into(), demand_sec: self.wait_sec, speed: Speed::Delay },
            Station { name: CORES.into(), demand_sec: self.cpu_sec, speed },
        ]
    }

    /// CPU-seconds of an operation of so many threads.
    pub(super) fn cpu_sec_with(&self, threads: f64, cores: f64) -> f64 {
        let busy = threads.min(cores);
        self.cpu_sec_at(busy) + self.cpu_sec * self.crowding * waiting(threads, busy)
    }

    /// CPU-seconds of an operation while so many cores are busy, and nobody waits for one.
    pub(super) fn cpu_sec_at(&self, busy: f64) -> f64 {
        let others = (busy - 1.0).max(0.0);
        self.cpu_sec * (1.0 + self.contention * others + self.coherency * busy * others)
    }

    /// Operations per second of so many threads, if nobody else uses the cores.
    pub(super) fn throughput(&self, threads: usize, cores: usize) -> f64 {
        closed_throughput(&self.stations(cores as f64), threads)
    }

    /// The part of the throughput that others left of so many busy cores: the mean of all where these were not
    /// measured, and everything unless the machine was shared.
    pub(super) fn left_of(&self, busy: usize) -> f64 {
        let measured = self.left.iter().find(|(of, _)| *of == busy);
        let mean = || self.left.iter().map(|(_, left)| left).sum::<f64>() / self.left.len() as f64;
        match self.left.is_empty() {
            true => 1.0,
            false => measured.map_or_else(mean, |(_, left)| *left),
        }
    }
}

/// Fits the demands to the points of a series. `is_shared` says that other processes used the cores, too.
///
/// # Errors
///
/// A sentence: there is no point, or no CPU time.
pub(super) fn fit(series: &Series, is_shared: bool) -> Result<Demands, String> {
    let points = &series.points;
    let [cpu_sec, contention, coherency, crowding] = cpu_law(&spent(points))
        .ok_or_else(|| format!("{} has no CPU time: nothing can be predicted from it", series.name))?;
    // Both unknowns are searched on scales where 0 is none of either.
    let with = |[first, second]: [f64; 2]| Demands {
        cpu_sec,
        contention,
        coherency,
        crowding,
        blocking: if is_shared { 0.0 } else { first.exp() - 1.0 },
        wait_sec: cpu_sec * (second.exp() - 1.0),
        left: Vec::new(),
    };
    let errors = |demands: &Demands| {
        let of = |point: &Point| (point.throughput() / demands.throughput(point.threads, point.cores)).ln();
        points.iter().map(|point| (point.busy(), of(point))).collect::<Vec<_>>()
    };
    let shares = |errors: &[(usize, f64)]| if is_shared { left(errors) } else { Vec::new() };
    let error = |unknowns| {
        let errors = errors(&with(unknowns));
        let shares = shares(&errors);
        let share = |busy| {
            shares.iter().find(|(of, _)| *of == busy).map_or(0.0, |(_, left): &(usize, f64)| left.ln())
        };
        errors.iter().map(|(busy, error)| (error - share(*busy)).powi(2)).sum::<f64>()
    };
    let demands = with(search(&error));
    Ok(Demands { left: shares(&errors(&demands)), ..demands })
}

/// The part of the throughput that was left for each number of busy cores: the mean of the logarithms, and 1 at most.
fn left(errors: &[(usize, f64)]) -> Vec<(usize, f64)> {
    let mut busy: Vec<usize> = errors.iter().map(|(busy, _)| *busy).collect();
    busy.sort_unstable();
    busy.dedup();
    let of = |busy: usize| {
        let of: Vec<f64> = errors.iter().filter(|(of, _)| *of == busy).map(|(_, error)| *error).collect();
        (of.iter().sum::<f64>() / of.len() as f64).min(0.0).exp()
    };
    busy.into_iter().map(|busy| (busy, of(busy))).collect()
}

/// CPU-seconds of an operation that were measured.
struct Spent {
    busy: f64,
    waiting: f64,
    cpu_sec: f64,
}

impl Spent {
    /// The factors of the unknowns of the law.
    fn terms(&self) -> [f64; 4] {
        [1.0, self.busy - 1.0, self.busy * (self.busy - 1.0), self.waiting]
    }
}

fn spent(points: &[Point]) -> Vec<Spent> {
    let of = |point: &Point| {
        Some(Spent { busy: point.busy() as f64, waiting: point.waiting(), cpu_sec: point.cpu_sec()? })
    };
    points.iter().filter_map(of).collect()
}

/// A law of CPU time that was fitted.
struct Law {
    /// CPU-seconds of an operation, and what contention, coherency and crowding add.
    unknowns: [f64; 4],
    /// How many of them were fitted.
    used: usize,
    /// The sum of the squares of relative errors.
    error: f64,
}

/// CPU-seconds of an operation, contention, coherency and crowding. Nothing if nothing was measured.
fn cpu_law(spent: &[Spent]) -> Option<[f64; 4]> {
    let plain = best_law(spent, &[&[0], &[0, 1], &[0, 2], &[0, 1, 2]])?;
    let are_told_apart = distinct(spent.iter().map(|one| one.waiting)) > 1;
    let crowded = best_law(spent, &[&[0, 3], &[0, 1, 3], &[0, 2, 3], &[0, 1, 2, 3]]);
    let law = crowded.filter(|law| are_told_apart && explains_more(law, &plain, spent.len()));
    let [cpu_sec, more @ ..] = law.unwrap_or(plain).unknowns;
    let [contention, coherency, crowding] = more.map(|added| added / cpu_sec);
    Some([cpu_sec, contention, coherency, crowding])
}

/// Whether one unknown more lowers the errors by more than chance does, in one of a thousand cases at most.
fn explains_more(law: &Law, plain: &Law, measured: usize) -> bool {
    let freedom = measured.saturating_sub(law.used) as f64;
    let gain = plain.error - law.error;
    let quantile = student_t(0.9995, freedom);
    freedom >= 1.0 && gain > 1e-18 && gain > quantile.powi(2) * law.error / freedom
}

fn distinct(all: impl Iterator<Item = f64>) -> usize {
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all.len()
}

/// The law with the least error, of those that use these unknowns.
fn best_law(spent: &[Spent], choices: &[&[usize]]) -> Option<Law> {
    let busy = distinct(spent.iter().map(|one| one.busy));
    let mut best: Option<Law> = None;
    for used in choices {
        if used.iter().filter(|&&term| term < 3).count() > busy {
            continue;
        }
        let row =
            |one: &Spent| -> Vec<f64> { used.iter().map(|&term| one.terms()[term] / one.cpu_sec).collect() };
        let rows: Vec<Vec<f64>> = spent.iter().map(row).collect();
        let Some(found) = least_squares(&rows) else { continue };
        if found.iter().any(|unknown| *unknown < 0.0) {
            continue;
        }
        let sum = |row: &Vec<f64>| row.iter().zip(&found).map(|(term, unknown)| term * unknown).sum::<f64>();
        let error: f64 = rows.iter().map(|row| (sum(row) - 1.0).powi(2)).sum();
        // An unknown more must explain more than an error of arithmetic.
        if best.as_ref().is_none_or(|best| error < best.error * (1.0 - 1e-9) - 1e-18) {
            let mut unknowns = [0.0; 4];
            used.iter().zip(&found).for_each(|(&term, unknown)| unknowns[term] = *unknown);
            best = Some(Law { unknowns, used: used.len(), error });
        }
    }
    best
}

/// The unknowns whose products with the rows come nearest to 1, by the normal equations. Nothing if these have no
/// single solution.
fn least_squares(rows: &[Vec<f64>]) -> Option<Vec<f64>> {
    let unknowns = rows.first()?.len();
    let mut matrix: Vec<Vec<f64>> = (0..unknowns)
        .map(|one| {
            let product = |other: usize| rows.iter().map(|row| row[one] * row[other]).sum::<f64>();
            let right = rows.iter().map(|row| row[one]).sum::<f64>();
            (0..unknowns).map(product).chain([right]).collect()
        })
        .collect();
    for pivot in 0..unknowns {
        let largest =
            (pivot..unknowns).max_by(|&a, &b| matrix[a][pivot].abs().total_cmp(&matrix[b][pivot].abs()))?;
        matrix.swap(pivot, largest);
        let head = matrix[pivot].clone();
        if head[pivot].abs() <= f64::EPSILON * rows.len() as f64 {
            return None;
        }
        for (place, row) in matrix.iter_mut().enumerate().filter(|(place, _)| *place != pivot) {
            debug_assert_ne!(place, pivot);
            let factor = row[pivot] / head[pivot];
            row.iter_mut().zip(&head).for_each(|(cell, above)| *cell -= factor * above);
        }
    }
    Some((0..unknowns).map(|place| matrix[place][unknowns] / matrix[place][place]).collect())
}

/// The two numbers from 0 on with the least error: the best of a coarse grid, then steps that halve.
fn search(error: &dyn Fn([f64; 2]) -> f64) -> [f64; 2] {
    const GRID: [f64; 6] = [0.0, 0.05, 0.3, 1.0, 3.0, 6.0];
    let grid = GRID.iter().flat_map(|&first| GRID.map(|second| [first, second]));
    let mut best = [0.0; 2];
    let mut least = error(best);
    for at in grid {
        let here = error(at);
        if here < least {
            (best, least) = (at, here);
        }
    }
    let mut step = 1.0;
    while step > 1e-5 {
        let mut is_better = false;
        for (place, sign) in [(0, 1.0), (0, -1.0), (1, 1.0), (1, -1.0)] {
            let mut at = best;
            at[place] = (at[place] + sign * step).max(0.0);
            let here = error(at);
            if here < least {
                (best, least, is_better) = (at, here, true);
            }
        }
        if !is_better {
            step /= 2.0;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    use super::*;
    use crate::predict::measured::Round;

    const KNOWN: Demands = Demands {
        cpu_sec: 2e-6,
        contention: 0.04,
        coherency: 0.001,
        crowding: 0.0,
        blocking: 0.0,
        wait_sec: 10e-6,
        left: Vec::new(),
    };

    /// Runs of known demands, with an error of so much in each round's throughput and CPU time.
    fn runs(known: &Demands, noise: f64, left: f64, seed: u64) -> Series {
        let mut random = SmallRng::seed_from_u64(seed);
        // The sum of twelve even numbers is nearly normal.
        let mut noisy = || 1.0 + noise * ((0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0);
        let mut points = Vec::new();
        for cores in [1, 2, 4, 8, 16] {
            for threads in [1, 2, 4, 8, 16, 32, 64] {
                let throughput = known.throughput(threads, cores) * left;
                let cpu_sec = known.cpu_sec_with(threads as f64, cores as f64);
                let round = |noisy: &mut dyn FnMut() -> f64| Round {
                    throughput: throughput * noisy(),
                    cpu_sec: Some(cpu_sec * noisy()),
                };
                let rounds = (0..3).map(|_| round(&mut noisy)).collect();
                points.push(Point { threads, cores, rounds });
            }
        }
        Series { name: "known".into(), model: None, points, settings: Vec::new() }
    }

    fn near(what: &str, one: f64, other: f64, part: f64) {
        assert!((one / other - 1.0).abs() < part, "{what}: {one} is not {other}");
    }

    #[test]
    fn demands_are_found_in_runs_without_noise() {
        for (is_shared, left) in [(false, 1.0), (true, 0.7)] {
            let found = fit(&runs(&KNOWN, 0.0, left, 1), is_shared).unwrap();
            near("CPU time", found.cpu_sec, KNOWN.cpu_sec, 1e-6);
            near("contention", found.contention, KNOWN.contention, 1e-4);
            near("coherency", found.coherency, KNOWN.coherency, 1e-4);
            near("wait", found.wait_sec, KNOWN.wait_sec, 1e-2);
            near("what others left", found.left_of(4), left, 1e-3);
            assert!(found.blocking < 1e-3);
        }
        let crowded = Demands { crowding: 0.4, ..KNOWN };
        let found = fit(&runs(&crowded, 0.0, 1.0, 1), false).unwrap();
        near("crowding", found.crowding, 0.4, 1e-4);
        near("CPU time", found.cpu_sec, KNOWN.cpu_sec, 1e-6);
        near("wait", found.wait_sec, KNOWN.wait_sec, 1e-2);
        let blocked = Demands { blocking: 0.2, ..KNOWN };
        let found = fit(&runs(&blocked, 0.0, 1.0, 1), false).unwrap();
        near("blocking", found.blocking, 0.2, 1e-2);
    }

    /// Every seed: 10 % of error in each figure of a round.
    #[test]
    fn demands_are_found_in_noisy_runs() {
        for seed in 0..100 {
            let found = fit(&runs(&KNOWN, 0.1, 1.0, seed), false).unwrap();
            near("CPU time", found.cpu_sec, KNOWN.cpu_sec, 0.1);
            near("CPU time on 16 cores", found.cpu_sec_at(16.0), KNOWN.cpu_sec_at(16.0), 0.15);
            near("wait", found.wait_sec, KNOWN.wait_sec, 0.25);
            for (threads, cores) in [(1, 1), (64, 16), (48, 12), (64, 24)] {
                let what = format!("seed {seed}, {threads} threads on {cores} cores");
                near(&what, found.throughput(threads, cores), KNOWN.throughput(threads, cores), 0.2);
            }
        }
    }

    /// A write took 1.05 us with two threads on two cores, and 1.45 us with 32.
    #[test]
    fn threads_that_wait_for_a_core_make_an_operation_dearer() {
        let crowded = Demands { crowding: 0.4, ..KNOWN };
        for seed in 0..20 {
            let mut few = runs(&crowded, 0.02, 1.0, seed);
            few.points.retain(|point| point.cores <= 2 && point.threads <= 16);
            let [cpu_sec, contention, _, crowding] = cpu_law(&spent(&few.points)).unwrap();
            let of_32 = cpu_sec * (1.0 + contention + crowding * (1.0 - 2.0 / 32.0));
            near("CPU time of 2 threads", cpu_sec * (1.0 + contention), crowded.cpu_sec_with(2.0, 2.0), 0.06);
            near("CPU time of 32 threads", of_32, crowded.cpu_sec_with(32.0, 2.0), 0.06);
            assert!((0.3..0.5).contains(&crowding), "seed {seed}: {crowding}");
        }
        // Without a thread that waits, nothing tells of it.
        let mut enough = runs(&crowded, 0.02, 1.0, 1);
        enough.points.retain(|point| point.threads <= point.cores);
        assert_eq!(cpu_law(&spent(&enough.points)).unwrap()[3], 0.0);
    }

    #[test]
    fn crowding_is_not_taken_from_noise() {
        let crowding = |seed| cpu_law(&spent(&runs(&KNOWN, 0.1, 1.0, seed).points)).unwrap()[3];
        assert!((0..100).filter(|seed| crowding(*seed) > 0.0).count() <= 3);
    }

    #[test]
    fn one_number_of_cores_says_nothing_of_contention() {
        let mut one = runs(&KNOWN, 0.1, 1.0, 1);
        one.points.retain(|point| point.cores == 1);
        let found = fit(&one, false).unwrap();
        assert_eq!((found.contention, found.coherency), (0.0, 0.0));
    }

    #[test]
    fn runs_without_cpu_time_are_refused() {
        let mut remote = runs(&KNOWN, 0.0, 1.0, 1);
        remote.points.iter_mut().flat_map(|point| &mut point.rounds).for_each(|round| round.cpu_sec = None);
        assert!(fit(&remote, false).unwrap_err().contains("known has no CPU time"));
    }
}
