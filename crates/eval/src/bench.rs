//! A whole benchmark: rounds of runs, each in a process of its own, and their outcome.

pub(crate) mod confine;
pub(crate) mod open_files;
pub(crate) mod plan;
pub(crate) mod process;
pub(crate) mod remains;

use std::io::{IsTerminal, Write};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::bench::plan::Plan;
use crate::bench::process::{Launcher, or_interrupted};
use crate::error::{Error, RUNS_KEPT};
use crate::results::folder::{Program, ResultsFolder};
use crate::run::measurement::Measurement;
use crate::run::spec::RunSpec;
use crate::target::registry::Registry;

/// All rounds of one configuration.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Configuration {
    /// The specification of the run.
    pub spec: RunSpec,
    /// The measurements, one per round. They also name the engine that coded, if any.
    pub rounds: Vec<Measurement>,
    /// Names of the log files of the rounds, if results are kept.
    pub logs: Vec<String>,
    /// Whether the target is the harness itself.
    pub is_harness: bool,
}

/// A configuration that this machine cannot measure.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Unavailable {
    /// The first of its runs.
    pub spec: RunSpec,
    /// Why.
    pub reason: String,
}

impl std::fmt::Display for Unavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unavailable: {}", self.reason)
    }
}

/// The result of a benchmark.
#[derive(Debug)]
pub struct Outcome {
    /// In the order of the plan.
    pub configurations: Vec<Configuration>,
    /// Configurations without figures, because this machine lacks their engine.
    pub unavailable: Vec<Unavailable>,
    /// The reason of an early end, if any. Earlier measurements are kept.
    pub failure: Option<Error>,
    /// The folder of the written files.
    pub folder: Option<std::path::PathBuf>,
}

impl Outcome {
    /// Wrong answers of all runs.
    pub fn mismatches(&self) -> u64 {
        self.configurations
            .iter()
            .flat_map(|configuration| &configuration.rounds)
            .map(|round| round.mismatches)
            .sum()
    }

    /// Whether some target learnt from held-out data.
    pub fn has_retrained(&self) -> bool {
        self.configurations.iter().flat_map(|one| &one.rounds).any(Measurement::has_retrained)
    }

    /// The outcome, unless it ended early.
    ///
    /// # Errors
    /// The reason of the early end.
    pub fn into_result(mut self) -> Result<Outcome, Error> {
        self.failure.take().map_or(Ok(self), Err)
    }

    /// The exit status of the command: that of the failure; 1 if any answer was wrong or a row is not what it claims;
    /// otherwise 0.
    pub fn exit_status(&self) -> u8 {
        match &self.failure {
            Some(failure) => failure.exit_status(),
            None => u8::from(self.mismatches() > 0 || self.has_retrained()),
        }
    }
}

/// Runs a plan. The targets take turns within each round, so that a noisy minute hits them alike, and the order of a
/// round is that of `order`. `program` goes into the manifest.
pub fn bench(
    plan: &Plan,
    registry: &Registry,
    launcher: &Launcher,
    program: &Program,
) -> Result<Outcome, Error> {
    let (runs, unavailable) = plan.possible_runs(registry)?;
    let expected_seconds = plan.expected_seconds(runs.len());
    let folder = match &plan.out {
        Some(path) => Some(ResultsFolder::create(path, plan, program)?),
        None => None,
    };
    let mut configurations: Vec<Configuration> = runs
        .into_iter()
        .map(|spec| Configuration {
            is_harness: registry.find(&spec.target).is_ok_and(|target| target.is_harness),
            spec,
            rounds: Vec::new(),
            logs: Vec::new(),
        })
        .collect();
    let mut line = ProgressLine::new(plan.rounds * configurations.len(), expected_seconds);
    let failure = rounds(plan.rounds, &mut configurations, launcher, folder.as_ref(), &mut line).err();
    let failure = failure.map(|error| or_interrupted(error, RUNS_KEPT));
    line.clear();
    configurations.retain(|configuration| !configuration.rounds.is_empty());
    let folder_path = folder.as_ref().map(|folder| folder.path().to_owned());
    let mut outcome = Outcome { configurations, unavailable, failure, folder: folder_path };
    let written = folder.map_or(Ok(()), |folder| folder.summary(&outcome, plan.compares_codecs));
    // A full disk does not cost the figures, which the command prints.
    outcome.failure = outcome.failure.or(written.err());
    Ok(outcome)
}

/// The engine of a row whose accelerator was preloaded.
const PRELOADED: &str = "zlib_accel_preload";

fn rounds(
    rounds: usize,
    configurations: &mut [Configuration],
    launcher: &Launcher,
    folder: Option<&ResultsFolder>,
    line: &mut ProgressLine,
) -> Result<(), Error> {
    for round in 1..=rounds {
        for index in order(configurations.len(), round) {
            let configuration = &mut configurations[index];
            let spec = &configuration.spec;
            line.next(&format!("{} {} {} thread(s)", spec.name(), spec.workload.name, spec.threads));
            let (measurement, said) = launcher.run(spec, &mut |phase| line.phase(phase))?;
            if let (Some(library), Some(engine)) = (&spec.preload, &measurement.counters.engine)
                && engine != PRELOADED
            {
                let sentence = format!(
                    "{library} was preloaded, and yet {engine} did the work: it is not Intel's \
                     libzlib-accel.so, or did not load"
                );
                return Err(Error::Run { run: spec.name(), sentence, status: 1 });
            }
            if let Some(folder) = folder {
                configuration.logs.push(folder.log(spec, round, &measurement, &said)?);
            }
            let fault = measurement.replayed.as_ref().and_then(|replayed| replayed.fault.clone());
            configuration.rounds.push(measurement);
            if let Some(sentence) = fault {
                // The figures of the requests before are kept.
                return Err(Error::Run { run: configuration.spec.name(), sentence, status: 1 });
            }
        }
    }
    Ok(())
}

/// The configurations of a round in the order of their runs; the first round has number 1. Every second round goes
/// backwards through the one before, so that no configuration gains by its place while the machine or a server becomes
/// steadily faster or slower. Each pair of rounds begins one configuration later.
fn order(configurations: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..configurations).collect();
    order.rotate_left((round - 1) / 2 % configurations.max(1));
    if round.is_multiple_of(2) {
        order.reverse();
    }
    order
}

/// A progress line on a terminal; nothing elsewhere.
pub(crate) struct ProgressLine {
    shown: bool,
    runs: usize,
    run: usize,
    what: String,
    start: Instant,
    /// Seconds from the start to the end of the last finished run.
    done_seconds: f64,
    expected_seconds: f64,
}

impl ProgressLine {
    pub(crate) fn new(runs: usize, expected_seconds: f64) -> Self {
        ProgressLine {
            shown: std::io::stderr().is_terminal(),
            runs,
            run: 0,
            what: String::new(),
            start: Instant::now(),
            done_seconds: 0.0,
            expected_seconds,
        }
    }

    pub(crate) fn next(&mut self, what: &str) {
        self.run += 1;
        // Rounds may follow until they are steady.
        self.runs = self.runs.max(self.run);
        self.done_seconds = self.start.elapsed().as_secs_f64();
        self.what = what.into();
        self.phase("starting");
    }

    pub(crate) fn phase(&self, phase: &str) {
        let now = self.start.elapsed().as_secs_f64();
        let current_seconds = now - self.done_seconds;
        let done = self.run.saturating_sub(1);
        let left = seconds_left(done, self.runs, self.done_seconds, current_seconds, self.expected_seconds);
        let left = human_seconds(left);
        self.draw(&format!("[{}/{}, {left} left] {}: {phase}", self.run, self.runs, self.what));
    }

    pub(crate) fn clear(&self) {
        self.draw("");
    }

    fn draw(&self, text: &str) {
        if self.shown {
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(std::io::stderr(), "{}", in_place(text)).and_then(|()| std::io::stderr().flush());
        }
    }
}

/// The text for a terminal, in place of the line before. The terminal cuts the text at its edge: a text on two lines
/// would leave the first one behind.
pub fn in_place(text: &str) -> String {
    format!("\r\x1b[K\x1b[?7l{text}\x1b[?7h")
}

/// The remaining seconds, when `done` of `runs` runs took `done_seconds` and the next has taken `current_seconds` so
/// far. Each run is assumed to take as long as the earlier ones, or as expected if there are none.
fn seconds_left(
    done: usize,
    runs: usize,
    done_seconds: f64,
    current_seconds: f64,
    expected_seconds: f64,
) -> f64 {
    let each = if done > 0 { done_seconds / done as f64 } else { expected_seconds / runs.max(1) as f64 };
    let later = each * runs.saturating_sub(done + 1) as f64;
    later + (each - current_seconds).max(0.0)
}

/// Seconds in words, as exact as an estimate deserves.
pub(crate) fn human_seconds(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        _ if seconds < 90.0 => format!("{seconds:.0} s"),
        0..=89 => format!("{minutes} min"),
        _ => format!("{} h {:02} min", minutes / 60, minutes % 60),
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_two_rounds_add_up_to_the_same() {
        let place =
            |round, configuration| order(5, round).iter().position(|one| *one == configuration).unwrap();
        for configuration in 0..5 {
            assert_eq!(place(1, configuration), configuration, "the first round has the order of the plan");
            assert_eq!(place(1, configuration) + place(2, configuration), 4);
            assert_eq!(place(3, configuration) + place(4, configuration), 4);
        }
        assert_eq!([order(5, 3)[0], order(5, 11)[0], order(1, 2)[0]], [1, 0, 0]);
        assert!(order(0, 3).is_empty());
    }

    #[test]
    fn the_time_left_follows_the_runs_so_far() {
        assert_eq!(seconds_left(0, 10, 0.0, 0.0, 60.0), 60.0);
        assert_eq!(seconds_left(0, 10, 0.0, 2.0, 60.0), 58.0);
        assert_eq!(seconds_left(1, 10, 20.0, 0.0, 60.0), 180.0);
        assert_eq!(seconds_left(9, 10, 90.0, 4.0, 60.0), 6.0);
        assert_eq!(seconds_left(9, 10, 90.0, 400.0, 60.0), 0.0);
    }

    #[test]
    fn a_line_of_progress_stays_one_line_and_counts_rounds_that_were_not_planned() {
        assert_eq!(in_place("x"), "\r\x1b[K\x1b[?7lx\x1b[?7h");
        let mut line = ProgressLine::new(1, 1.0);
        line.next("first");
        line.next("second");
        assert_eq!((line.run, line.runs), (2, 2));
    }

    #[test]
    fn estimates_are_rounded() {
        let words: Vec<_> = [5.4, 89.0, 100.0, 3600.0, 6000.0].map(human_seconds).into();
        assert_eq!(words, ["5 s", "89 s", "2 min", "60 min", "1 h 40 min"]);
    }
}
