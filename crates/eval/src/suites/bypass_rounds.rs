//! The bypass suite: one bypass run per codec, their series, a summary and a plot.

use std::path::PathBuf;

use crate::bench::plan::{Plan, runs_in_words};
use crate::bench::process::{Launcher, or_interrupted};
use crate::bench::{ProgressLine, human_seconds};
use crate::error::{Error, RUNS_KEPT};
use crate::results::folder::{Program, ResultsFolder};
use crate::results::row::Row;
use crate::results::table::{Format, aligned, grouped, objects, tsv, wrapped};
use crate::run::spec::{RunSpec, TrainOn};
use crate::suites::bypass::{BypassSeries, BypassSpec};
#[cfg(feature = "plots")]
use crate::suites::bypass_plot::plot;
use crate::suites::bypass_summary::{interval_row, summary_row};
use crate::target::registry::Registry;
use crate::workload::Workload;
use crate::workload::pace::Pace;

/// The file of the summary, which no other suite writes.
pub(crate) const BYPASS_SUMMARY: &str = "bypass-summary.tsv";

/// The user's request for the bypass suite.
#[derive(Debug, Clone)]
pub struct BypassPlan {
    /// The runs; empty lists mean every target that compresses, with each of its codecs.
    pub plan: Plan,
    /// Reads in an interval.
    pub interval_operations: u64,
}

/// The result of a bypass suite.
#[derive(Debug)]
pub struct BypassOutcome {
    /// The runs and their measurements.
    pub runs: Vec<(BypassSpec, BypassSeries)>,
    /// The reason of an early end, if any. Earlier measurements are kept.
    pub failure: Option<Error>,
    /// The folder of the written files.
    pub folder: Option<PathBuf>,
}

impl BypassPlan {
    /// Checks everything and lists the runs.
    pub fn runs(&self, registry: &Registry) -> Result<Vec<BypassSpec>, Error> {
        let asked = &self.plan;
        let only = |what, given: String, right: bool, expected: &str| match right {
            true => Ok(()),
            false => Err(Error::invalid(what, given, format!("a bypass run {expected}"))),
        };
        let threads = asked.threads.first().copied().unwrap_or(1);
        only("--threads", threads.to_string(), asked.threads.len() <= 1 && threads == 1, "has one thread")?;
        let reads = asked.workloads.is_empty() || asked.workloads == [Workload::named("read_only")?];
        only("--workload", "other than read_only".into(), reads, "reads and nothing else")?;
        only("--multi-get", asked.multi_get.to_string(), asked.multi_get == 1, "reads keys one by one")?;
        only("--multi-put", asked.multi_put.to_string(), asked.multi_put == 1, "writes nothing")?;
        let connections = asked.connections.map(|number| number.to_string());
        only(
            "--connections",
            connections.unwrap_or_default(),
            asked.connections.is_none(),
            "has one thread",
        )?;
        only("--instances", asked.instances.to_string(), asked.instances == 1, "has one store")?;
        only(
            "--rounds",
            asked.rounds.to_string(),
            asked.rounds == 1,
            "is a series, so there are no medians",
        )?;
        only("--latency", "off".into(), asked.latency, "times every read")?;
        only("--rate or --until-p99", "a number".into(), asked.pace == Pace::Closed, "offers no rates")?;
        only("--perf-control", "a FIFO".into(), asked.perf_control.is_none(), "has no timed window")?;
        let shapes = asked.value_bytes.len() * asked.value_orders.len();
        only("--value-bytes", "several".into(), shapes == 1, "has values of one shape")?;
        let all = asked.train_on == TrainOn::All;
        only("--train-on", asked.train_on.to_string(), all, "loads its keys once")?;
        let mut plan = Plan {
            threads: vec![1],
            workloads: vec![Workload::named("read_only")?],
            compares_codecs: true,
            names_unavailable: true,
            ..asked.clone()
        };
        if plan.targets.is_empty() {
            plan.targets = registry.compressing();
        }
        let spec = |run: RunSpec| BypassSpec { run, interval_operations: self.interval_operations };
        let runs: Vec<BypassSpec> = plan.runs(registry)?.into_iter().map(spec).collect();
        runs.iter().try_for_each(BypassSpec::check)?;
        Ok(runs)
    }

    fn expected_seconds(&self, runs: usize) -> f64 {
        // Two phases, and the pass that settles the store.
        self.plan.expected_seconds(runs) + runs as f64 * self.plan.seconds
    }

    /// The announcement of the suite's work and its expected time.
    pub fn announcement(&self, registry: &Registry) -> Result<String, Error> {
        let runs = self.runs(registry)?.len();
        let seconds = self.expected_seconds(runs);
        Ok(format!(
            "{} of two phases of {}: about {} in all, more for codecs that need longer than 5 us a read",
            runs_in_words(runs),
            self.plan.common().window_in_words(),
            human_seconds(seconds)
        ))
    }
}

/// Does the runs, each in a process of its own, and writes series, summary and plot into the folder of results, if
/// there is one.
pub fn bypass_suite(
    asked: &BypassPlan,
    registry: &Registry,
    launcher: &Launcher,
    program: &Program,
) -> Result<BypassOutcome, Error> {
    let specs = asked.runs(registry)?;
    let folder = match &asked.plan.out {
        Some(path) => Some(ResultsFolder::create(path, &asked.plan, program)?),
        None => None,
    };
    let mut line = ProgressLine::new(specs.len(), asked.expected_seconds(specs.len()));
    let mut outcome = BypassOutcome {
        runs: Vec::new(),
        failure: None,
        folder: folder.as_ref().map(|folder| folder.path().to_owned()),
    };
    for spec in specs {
        line.next(&spec.run.name());
        match launcher.bypass(&spec, &mut |phase| line.phase(phase)) {
            Ok((series, said)) => {
                if let Some(folder) = &folder {
                    let rows = (0..series.intervals.len()).map(|index| interval_row(&series, index));
                    folder.write(&format!("bypass-{}.tsv", spec.run.name()), &tsv(rows))?;
                    folder.write(&format!("bypass-{}.log", spec.run.name()), &said)?;
                }
                outcome.runs.push((spec, series));
            }
            Err(error) => {
                outcome.failure = Some(or_interrupted(error, RUNS_KEPT));
                break;
            }
        }
    }
    line.clear();
    if let Some(folder) = &folder
        && !outcome.runs.is_empty()
    {
        folder.write(BYPASS_SUMMARY, &tsv(outcome.rows()))?;
        #[cfg(feature = "plots")]
        folder.write("bypass.svg", &plot(&outcome.runs))?;
    }
    Ok(outcome)
}

impl BypassOutcome {
    /// The exit status of the command: 0, or 1 if any answer was wrong, or that of the failure.
    pub fn exit_status(&self) -> u8 {
        match &self.failure {
            Some(failure) => failure.exit_status(),
            None => u8::from(self.runs.iter().any(|(_, series)| series.mismatches > 0)),
        }
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        self.runs.iter().map(|(spec, series)| summary_row(spec, series))
    }

    /// The summary as text that ends with a newline.
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Tsv => tsv(self.rows()),
            Format::Json => format!("{:#}\n", objects(self.rows())),
            Format::Table => self.table(),
        }
    }

    fn table(&self) -> String {
        const COLUMNS: [(&str, &str, &str, usize); 10] = [
            ("run", "", "run", 0),
            ("cold", "p50 us", "p50_cold_us", 2),
            ("hot", "p50 us", "p50_hot_us", 2),
            ("fall", "%", "fall_pct", 0),
            ("jump", "p50 us", "p50_jump_us", 2),
            ("again", "p50 us", "p50_hot_again_us", 2),
            ("back", "reads", "recovery_operations", 0),
            ("back", "s", "recovery_seconds", 2),
            ("held", "/raw", "held_per_raw", 2),
            ("wrong", "", "mismatches", 0),
        ];
        let mut lines: Vec<Vec<String>> = vec![
            COLUMNS.iter().map(|column| column.0.to_owned()).collect(),
            COLUMNS.iter().map(|column| column.1.to_owned()).collect(),
        ];
        lines.extend(self.rows().map(|row| {
            let cell = |&(_, _, name, decimals): &(&str, &str, &str, usize)| {
                let cell = row.iter().find(|(column, _)| *column == name).map(|(_, cell)| cell);
                match cell.and_then(|cell| cell.as_number()) {
                    Some(number) => grouped(number, decimals),
                    None => cell.map_or(String::new(), |cell| cell.to_tsv()),
                }
            };
            COLUMNS.iter().map(cell).collect()
        }));
        let mut text = aligned(&lines, 1);
        text += &wrapped(
            "\np50 of reads in the intervals: cold at the beginning, hot at the end of the first phase, jump right \
             after other keys became hot, again at the end of the second phase. back: until the p50 is within 10 % \
             of the hot one again for three intervals; 0: it never left, NA: not in this run.",
        );
        for (spec, series) in &self.runs {
            if let Some(first) = &series.first_mismatch {
                text += &format!("WRONG ANSWERS: {}; the first: {first}\n", spec.run.name());
            }
        }
        text + &match &self.folder {
            Some(folder) => format!("written to {}\n", folder.display()),
            None => "with --out DIR the series and a plot are written, too\n".to_owned(),
        }
    }
}
