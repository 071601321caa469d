//! Predictions of throughput and latency from measured runs, and how far predictions were from runs that were left out.

use super::fit::{CORES, Demands, fit};
use super::measured::{Point, Series};
use super::network::{Solution, Station, closed, open};
use super::what_if::{Case, WhatIf};
use crate::error::Error;
use crate::inputs::{deviation, effects};
use crate::results::row::median;
use crate::statistics::{Deviation, Mean};

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Threads to predict; those that were measured if empty.
    pub threads: Vec<usize>,
    /// Cores to predict; those that were measured if empty.
    pub cores: Vec<usize>,
    /// Whether other processes used the cores while the runs were measured.
    pub is_shared: bool,
    /// Cases of a file, and the table of its numbers.
    pub what_if: Option<(WhatIf, toml::Table)>,
}

/// A predicted figure of a series.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The name of the case, if it is one of a file.
    pub case: Option<String>,
    /// Threads; none if operations arrive at a rate.
    pub threads: Option<f64>,
    /// Cores.
    pub cores: f64,
    /// Throughput, latency and stations.
    pub solution: Solution,
    /// CPU-seconds of an operation.
    pub cpu_sec: f64,
    /// One standard deviation of the throughput, by the rounds and the errors of the file; none if neither says.
    pub deviation: Option<Deviation>,
    /// The station that is busiest.
    pub bound: String,
    /// Whether a device of it is modelled.
    pub is_modelled: bool,
    /// Whether more cores are asked for than were measured.
    pub is_beyond: bool,
    /// The throughput that was measured there, if any.
    pub measured: Option<f64>,
}

/// A series, what was fitted to it, and what follows.
#[derive(Debug, Clone)]
pub struct Predicted {
    /// The name of the series.
    pub series: String,
    /// What an operation demands.
    pub demands: Demands,
    /// One by one.
    pub predictions: Vec<Prediction>,
    /// Cases of the file that this work cannot do, and a sentence that says why.
    pub impossible: Vec<(String, String)>,
}

/// Predicts every series.
///
/// # Errors
///
/// A series has no CPU time.
pub fn predict(all: &[Series], question: &Question) -> Result<Vec<Predicted>, Error> {
    all.iter().map(|series| predict_one(series, question)).collect()
}

fn predict_one(series: &Series, question: &Question) -> Result<Predicted, Error> {
    let impossible = |sentence| Error::Run { run: series.name.clone(), sentence, status: 2 };
    let mut fits = Fits { all: fit(series, question.is_shared).map_err(impossible)?, rounds: Vec::new() };
    let rounds = (0..).map_while(|round| series.round(round));
    fits.rounds = rounds.filter_map(|round| fit(&round, question.is_shared).ok()).collect();
    let most_cores = series.points.iter().map(|point| point.cores).max().unwrap_or(1);
    let mut predictions = Vec::new();
    for (threads, cores) in asked(series, question) {
        let case = Case::plain(threads, cores);
        let found = series.points.iter().find(|point| (point.threads, point.cores) == (threads, cores));
        let mut prediction = fits.case(&case, None).map_err(impossible)?;
        prediction.case = None;
        prediction.measured = found.map(Point::throughput);
        predictions.push(prediction);
    }
    let mut impossible_cases = Vec::new();
    if let Some((what_if, table)) = &question.what_if {
        for (place, case) in what_if.cases.iter().enumerate() {
            match fits.case(case, Some((table, place))) {
                Ok(prediction) => predictions.push(prediction),
                Err(sentence) => impossible_cases.push((case.name.clone(), sentence)),
            }
        }
    }
    for prediction in &mut predictions {
        prediction.is_beyond = prediction.cores > most_cores as f64;
        prediction.is_modelled |= series.model.is_some();
    }
    Ok(Predicted {
        series: series.name.clone(),
        demands: fits.all,
        predictions,
        impossible: impossible_cases,
    })
}

/// Pairs of threads and cores: those that were measured, unless others are asked for.
fn asked(series: &Series, question: &Question) -> Vec<(usize, usize)> {
    let measured = |of: fn(&Point) -> usize| {
        let mut all: Vec<usize> = series.points.iter().map(of).collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    match (question.threads.as_slice(), question.cores.as_slice()) {
        ([], []) if question.what_if.is_some() => Vec::new(),
        ([], []) => series.points.iter().map(|point| (point.threads, point.cores)).collect(),
        (threads, cores) => {
            let or = |asked: &[usize], of| if asked.is_empty() { measured(of) } else { asked.to_vec() };
            let (threads, cores) = (or(threads, |point| point.threads), or(cores, |point| point.cores));
            cores.iter().flat_map(|&cores| threads.iter().map(move |&threads| (threads, cores))).collect()
        }
    }
}

impl Case {
    fn plain(threads: usize, cores: usize) -> Self {
        let number = |count: usize| crate::inputs::Number(count as f64);
        Case {
            name: String::new(),
            threads: Some(number(threads)),
            rate: None,
            cores: number(cores),
            cpu_factor: number(1),
            stations: Vec::new(),
        }
    }

    fn solve(&self, demands: &Demands) -> Result<(Vec<Station>, Solution), String> {
        let stations = self.network(demands)?;
        let solution = match (self.threads, self.rate) {
            (Some(threads), _) => closed(&stations, threads.0.round() as usize),
            (None, rate) => {
                let rate = rate.unwrap_or_default().0;
                open(&stations, rate).map_err(|place| {
                    format!("{} cannot keep up with {rate} operations per second", stations[place].name)
                })?
            }
        };
        Ok((stations, solution))
    }
}

/// What was fitted to the medians of all rounds, and to each round alone.
struct Fits {
    all: Demands,
    rounds: Vec<Demands>,
}

impl Fits {
    fn case(&self, case: &Case, file: Option<(&toml::Table, usize)>) -> Result<Prediction, String> {
        let (stations, solution) = case.solve(&self.all)?;
        // At a rate the latency is what is uncertain, and the throughput is given.
        let figure = |solution: &Solution| match case.rate {
            None => solution.throughput,
            Some(_) => solution.latency_sec,
        };
        let by_round: Vec<f64> =
            self.rounds.iter().filter_map(|demands| Some(figure(&case.solve(demands).ok()?.1))).collect();
        let by_file = file.and_then(|(table, place)| {
            deviation(&effects(table, |what_if: &WhatIf| {
                Some(figure(&what_if.cases.get(place)?.solve(&self.all).ok()?.1))
            }))
        });
        let by_rounds = Mean::of(&by_round).and_then(|mean| mean.deviation());
        let cores =
            stations.iter().position(|station| station.name == CORES).expect("every network has cores");
        // As in the fit: the cores that the threads can keep busy. A rate has no threads.
        let cpu_sec = match case.threads {
            Some(threads) => self.all.cpu_sec_with(threads.0.round(), case.cores.0),
            None => self.all.cpu_sec_at(solution.stations[cores].busy),
        };
        let slowed = stations[cores].demand_sec * (cpu_sec / self.all.cpu_sec);
        Ok(Prediction {
            case: Some(case.name.clone()),
            threads: case.threads.map(|threads| threads.0.round()),
            cores: case.cores.0,
            cpu_sec: slowed,
            deviation: Deviation::together([by_rounds, by_file].into_iter().flatten()),
            bound: solution.bottleneck().map_or_else(String::new, |place| stations[place].name.clone()),
            is_modelled: case.stations.iter().any(|station| station.is_modelled),
            is_beyond: false,
            measured: None,
            solution,
        })
    }
}

/// Which points are left out of the fit, to be predicted by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldOut {
    /// Each point once, by a fit to all others.
    Each,
    /// Every second number of threads, by one fit to the others.
    EverySecond,
}

/// A point that a fit without it predicted.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldOut {
    /// The name of the series.
    pub series: String,
    /// The point.
    pub point: Point,
    /// Predicted operations per second; none if too few points are left to fit.
    pub throughput: Option<f64>,
    /// Predicted CPU-seconds of an operation.
    pub cpu_sec: Option<f64>,
    /// Whether the runs had a modelled device.
    pub is_modelled: bool,
}

impl HeldOut {
    /// By how much the prediction is too high, 0.1 for a tenth.
    pub fn throughput_error(&self) -> Option<f64> {
        Some(self.throughput? / self.point.throughput() - 1.0)
    }

    /// The same for the CPU time.
    pub fn cpu_error(&self) -> Option<f64> {
        Some(self.cpu_sec? / self.point.cpu_sec()? - 1.0)
    }
}

/// Predicts points that the fit does not see.
///
/// # Errors
///
/// A series has no CPU time.
pub fn hold_out(all: &[Series], how: HoldOut, is_shared: bool) -> Result<Vec<HeldOut>, Error> {
    let mut held = Vec::new();
    for series in all {
        let groups: Vec<Vec<usize>> = match how {
            HoldOut::Each => (0..series.points.len()).map(|place| vec![place]).collect(),
            HoldOut::EverySecond => vec![every_second(series)],
        };
        for group in groups {
            let (left_out, kept): (Vec<_>, Vec<_>) =
                series.points.iter().enumerate().partition(|(place, _)| group.contains(place));
            let kept = Series {
                points: kept.into_iter().map(|(_, point)| point.clone()).collect(),
                ..series.clone()
            };
            let demands = match kept.points.len() {
                0 => None,
                _ => Some(fit(&kept, is_shared).map_err(|sentence| Error::Run {
                    run: series.name.clone(),
                    sentence,
                    status: 2,
                })?),
            };
            held.extend(left_out.into_iter().map(|(_, point)| held_out(series, point, demands.as_ref())));
        }
    }
    Ok(held)
}

/// Every second point of each number of cores.
fn every_second(series: &Series) -> Vec<usize> {
    let points = &series.points;
    let of = |place: &usize| {
        let before = points[..*place].iter().filter(|point| point.cores == points[*place].cores);
        before.count() % 2 == 1
    };
    (0..points.len()).filter(of).collect()
}

fn held_out(series: &Series, point: &Point, demands: Option<&Demands>) -> HeldOut {
    HeldOut {
        series: series.name.clone(),
        point: point.clone(),
        throughput: demands
            .map(|demands| demands.throughput(point.threads, point.cores) * demands.left_of(point.busy())),
        cpu_sec: demands.map(|demands| demands.cpu_sec_with(point.threads as f64, point.cores as f64)),
        is_modelled: series.model.is_some(),
    }
}

/// The median and the largest of errors, without signs.
pub(super) fn median_and_largest(errors: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let mut errors: Vec<f64> = errors.map(f64::abs).collect();
    Some((median(&mut errors)?, *errors.last()?))
}

#[cfg(test)]
mod tests {
    use super::super::measured::Round;
    use super::super::measured::tests::series;
    use super::super::throughput_text::{render_held_out, render_predicted};
    use super::*;
    use crate::inputs::Inputs;
    use crate::results::table::Format;

    /// 100,000 operations per second of each core.
    fn even() -> Series {
        let of = |cores: usize| 1e5 * cores as f64;
        let rounds: Vec<[f64; 2]> = [1, 2, 4].map(|cores| [of(cores), of(cores) * 1.02]).into();
        let points: Vec<(usize, usize, &[f64])> = vec![
            (1, 1, &rounds[0]),
            (2, 1, &rounds[0]),
            (2, 2, &rounds[1]),
            (4, 2, &rounds[1]),
            (4, 4, &rounds[2]),
            (8, 4, &rounds[2]),
        ];
        series("even", &points)
    }

    fn case(text: &str) -> Result<Prediction, String> {
        let what_if = WhatIf::parse(&format!("[[case]]\nname = 'asked'\n{text}"))?;
        let question = Question { what_if: Some(what_if), ..Question::default() };
        let all = predict(&[even()], &question).map_err(|error| error.to_string())?;
        match all[0].impossible.first() {
            None => Ok(all[0].predictions[0].clone()),
            Some((_, sentence)) => Err(sentence.clone()),
        }
    }

    #[test]
    fn held_out_points_of_a_known_law_are_predicted() {
        for how in [HoldOut::Each, HoldOut::EverySecond] {
            let held = hold_out(&[even()], how, false).unwrap();
            assert_eq!(held.len(), if how == HoldOut::Each { 6 } else { 3 });
            let (median, largest) =
                median_and_largest(held.iter().filter_map(HeldOut::throughput_error)).unwrap();
            assert!(median < 0.01 && largest < 0.02, "{held:?}");
        }
    }

    /// Throughput that falls with each thread beyond the cores: no part of the model does that.
    #[test]
    fn a_curve_that_the_model_lacks_shows_as_an_error() {
        let points: Vec<(usize, f64)> = vec![(1, 100.0), (2, 200.0), (4, 100.0), (8, 50.0), (16, 25.0)];
        let rounds: Vec<[f64; 1]> = points.iter().map(|(_, qps)| [*qps]).collect();
        let points: Vec<(usize, usize, &[f64])> =
            points.iter().zip(&rounds).map(|((threads, _), rounds)| (*threads, 2, &rounds[..])).collect();
        let held = hold_out(&[series("thrashing", &points)], HoldOut::Each, false).unwrap();
        let (_, largest) = median_and_largest(held.iter().filter_map(HeldOut::throughput_error)).unwrap();
        assert!(largest > 1.0, "{held:?}");
        let text = render_held_out(&held, Format::Table);
        assert!(text.contains(&format!("largest {:.1} %", largest * 100.0)), "{text}");
        let alone = series("alone", &[(1, 1, &[1.0])]);
        let text = render_held_out(&hold_out(&[alone], HoldOut::Each, false).unwrap(), Format::Table);
        assert!(text.contains("1 not predicted"), "{text}");
    }

    #[test]
    fn cases_add_stations_and_rates() {
        let plain = case("threads = 4\ncores = 4").unwrap();
        assert!((plain.solution.throughput / 404e3 - 1.0).abs() < 1e-3, "{plain:?}");
        // A medium of 50,000 visits a second, where half of the operations go.
        let medium =
            "[[case.station]]\nname = 'SSD'\nvisits = 0.5\nlatency_us = 80\nvisits_per_second = 50_000";
        let bound = case(&format!("threads = 200\ncores = 4\n{medium}")).unwrap();
        assert!((bound.solution.throughput / 100e3 - 1.0).abs() < 0.01 && bound.bound == "SSD", "{bound:?}");
        // A device that saves half of the CPU time.
        let device = "[[case.station]]\nname = 'device'\nis_modelled = true\nvisits = 1\nlatency_us = 2\nservers = 8\n\
                      cpu_us = -4.95";
        let saved = case(&format!("threads = 64\ncores = 4\n{device}")).unwrap();
        assert!(saved.is_modelled && (saved.solution.throughput / 808e3 - 1.0).abs() < 0.02, "{saved:?}");
        let rate = case("rate = 80_000\ncores = 1").unwrap();
        // M/M/1: the 9.9 us of an operation over the idle part of the core.
        assert!((rate.solution.latency_sec * 1e6 / (9.901 / (1.0 - 0.7921)) - 1.0).abs() < 1e-2, "{rate:?}");
        for (text, expected) in [
            ("rate = 500_000\ncores = 4", "cores cannot keep up with 500000 operations per second"),
            ("cores = 4", "the case asked needs threads or rate, and not both"),
            ("threads = 4\ncores = 0", "cores of the case asked is 0; give a number from 0.1 to 100000"),
            (
                &format!("threads = 4\ncores = 4\n{}", device.replace("4.95", "10")),
                "save 10.000 us of CPU time",
            ),
            (&format!("threads = 4\ncores = 4\n{medium}\nservers = 4"), "is given beside visits_per_second"),
            (
                &format!("rate = 4\ncores = 4\n{}", medium.replace("50_000", "1e18")),
                "and latency_us make 80000000000000 visits at a time; give numbers that make 100000 at most",
            ),
            (
                &format!("threads = 4\ncores = 4\n{}", device.replace("-4.95", "nan")),
                "cpu_us of the station device of the case asked is NaN; give a number from -1000000000 to",
            ),
        ] {
            let told = case(text).unwrap_err();
            assert!(told.contains(expected), "{told}");
        }
    }

    /// Four threads do the work of two, and an operation takes no more CPU time.
    #[test]
    fn threads_that_wait_for_each_other_keep_no_core_busy() {
        let round = |throughput| Round { throughput, cpu_sec: Some(1e-5) };
        let point = |threads, throughput| Point { threads, cores: threads, rounds: vec![round(throughput)] };
        let locked = Series { points: vec![point(1, 1e5), point(4, 2e5)], ..even() };
        let text = render_predicted(&predict(&[locked], &Question::default()).unwrap(), Format::Tsv);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
        let place = rows[0].iter().position(|name| *name == "busy_cores").unwrap();
        let busy: Vec<f64> = rows[1..].iter().map(|row| row[place].parse().unwrap()).collect();
        assert!((busy[0] - 1.0).abs() < 0.02 && (busy[1] - 2.0).abs() < 0.02, "{busy:?}");
    }

    /// Threads that are away from the cores half of the time, and whose operations slow each other down.
    #[test]
    fn cpu_time_is_predicted_for_as_many_busy_cores_as_it_is_fitted_for() {
        let point = |threads, throughput, cpu_sec| Point {
            threads,
            cores: threads,
            rounds: vec![Round { throughput, cpu_sec: Some(cpu_sec) }],
        };
        let waiting = Series { points: vec![point(1, 5e4, 1e-5), point(4, 1.74e5, 1.3e-5)], ..even() };
        let all = predict(&[waiting], &Question::default()).unwrap();
        let cpu_us: Vec<f64> = all[0].predictions.iter().map(|one| one.cpu_sec * 1e6).collect();
        assert!((cpu_us[0] - 10.0).abs() < 1e-3 && (cpu_us[1] - 13.0).abs() < 1e-3, "{cpu_us:?}");
    }

    #[test]
    fn errors_of_rounds_and_of_the_file_add_up_by_squares() {
        let of = |text: &str| case(text).unwrap().deviation.unwrap().error;
        let by_rounds = of("threads = 4\ncores = 4");
        // 400,000 and 408,000: half of their difference.
        assert!((by_rounds / 4e3 - 1.0).abs() < 1e-2, "{by_rounds}");
        let both = of("threads = 4\ncores = 4\ncpu_factor = { value = 1, error = 0.05 }");
        let by_file = (1.0 / 0.95 - 1.0 / 1.05) / 2.0 * 404e3;
        assert!((both / by_rounds.hypot(by_file) - 1.0).abs() < 1e-2, "{both} {by_file}");
    }

    #[test]
    fn predictions_say_that_they_are() {
        let mut modelled = even();
        modelled.model = Some("devices=1".into());
        let question = Question { threads: vec![8], cores: vec![2, 8], ..Question::default() };
        let all = predict(&[even(), modelled], &question).unwrap();
        let rows = render_predicted(&all, Format::Tsv);
        assert_eq!(
            (rows.matches("\tpredicted\t").count(), rows.matches("\tpredicted, modelled\t").count()),
            (2, 2)
        );
        let text = render_predicted(&all, Format::Table);
        assert!(text.contains("8*") && text.contains("* more cores than were measured"), "{text}");
        assert_eq!(text.matches("modelled").count(), 2, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let measured = predict(&[even()], &Question::default()).unwrap();
        assert_eq!(measured[0].predictions.iter().filter(|one| one.measured.is_some()).count(), 6);
    }

    #[test]
    fn a_case_that_the_work_cannot_do_says_so_beside_the_others() {
        let (_, example) = super::super::EXAMPLES[0];
        // The work of this test is slower than the example's rate.
        let what_if = Some(WhatIf::parse(example).unwrap());
        let all = predict(&[even()], &Question { what_if, ..Question::default() }).unwrap();
        assert_eq!((all[0].predictions.len(), all[0].impossible.len()), (4, 1));
        let words = render_predicted(&all, Format::Table).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("500,000 a second: cores cannot keep up with 500000 operations"), "{words}");
        let rows = render_predicted(&all, Format::Tsv);
        let last = rows.lines().last().unwrap();
        assert!(last.contains("\timpossible: cores cannot keep up") && last.contains("\tNA\t"), "{rows}");
        assert_eq!(last.split('\t').count(), rows.lines().next().unwrap().split('\t').count());
    }
}
