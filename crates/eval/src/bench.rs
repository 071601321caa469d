//! A whole benchmark: rounds of runs, each in a process of its own, and their outcome.

use std::io::{IsTerminal, Write};

use crate::error::Error;
use crate::measurement::Measurement;
use crate::plan::Plan;
use crate::process::Launcher;
use crate::registry::Registry;
use crate::results_folder::ResultsFolder;
use crate::spec::RunSpec;

/// All rounds of one configuration.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// What was run.
    pub spec: RunSpec,
    /// Who coded, if anybody, and so on: see the measurements. One per round.
    pub rounds: Vec<Measurement>,
    /// Names of the log files of the rounds, where results are kept.
    pub logs: Vec<String>,
    /// Whether the target is the harness itself.
    pub is_harness: bool,
}

/// The result of a benchmark.
#[derive(Debug)]
pub struct Outcome {
    /// In the order of the plan.
    pub configurations: Vec<Configuration>,
    /// Why it ended early, if it did; what was measured until then is kept.
    pub failure: Option<Error>,
    /// Where files were written.
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

    /// The exit status of the command: 0, or 1 if any answer was wrong, or that of the failure.
    pub fn exit_status(&self) -> u8 {
        match &self.failure {
            Some(failure) => failure.exit_status(),
            None => u8::from(self.mismatches() > 0),
        }
    }
}

/// Runs a plan. The targets take turns within each round, so that a noisy minute hits them alike. `versions` are those of the
/// linked libraries, for the manifest.
pub fn bench(
    plan: &Plan,
    registry: &Registry,
    launcher: &Launcher,
    versions: &[(String, String)],
) -> Result<Outcome, Error> {
    let runs = plan.runs(registry)?;
    let folder = match &plan.out {
        Some(path) => Some(ResultsFolder::create(path, plan, versions)?),
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
    let mut line = ProgressLine::new(plan.rounds * configurations.len());
    let failure = rounds(plan.rounds, &mut configurations, launcher, folder.as_ref(), &mut line).err();
    line.clear();
    configurations.retain(|configuration| !configuration.rounds.is_empty());
    let outcome =
        Outcome { configurations, failure, folder: folder.as_ref().map(|folder| folder.path().to_owned()) };
    if let Some(folder) = &folder {
        folder.summary(&outcome)?;
    }
    Ok(outcome)
}

fn rounds(
    rounds: usize,
    configurations: &mut [Configuration],
    launcher: &Launcher,
    folder: Option<&ResultsFolder>,
    line: &mut ProgressLine,
) -> Result<(), Error> {
    for round in 1..=rounds {
        for configuration in &mut *configurations {
            let spec = &configuration.spec;
            line.next(&format!("{} {} {} thread(s)", spec.name(), spec.workload.name, spec.threads));
            let (measurement, said) = launcher.run(spec, &mut |phase| line.phase(phase))?;
            if let Some(folder) = folder {
                configuration.logs.push(folder.log(spec, round, &measurement, &said)?);
            }
            configuration.rounds.push(measurement);
        }
    }
    Ok(())
}

/// One line on a terminal that says what is going on; nothing anywhere else.
pub(crate) struct ProgressLine {
    shown: bool,
    runs: usize,
    run: usize,
    what: String,
}

impl ProgressLine {
    pub(crate) fn new(runs: usize) -> Self {
        ProgressLine { shown: std::io::stderr().is_terminal(), runs, run: 0, what: String::new() }
    }

    pub(crate) fn next(&mut self, what: &str) {
        self.run += 1;
        self.what = what.into();
        self.phase("starting");
    }

    pub(crate) fn phase(&self, phase: &str) {
        self.draw(&format!("[{}/{}] {}: {phase}", self.run, self.runs, self.what));
    }

    pub(crate) fn clear(&self) {
        self.draw("");
    }

    fn draw(&self, text: &str) {
        if self.shown {
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(std::io::stderr(), "\r\x1b[K{text}").and_then(|()| std::io::stderr().flush());
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}
