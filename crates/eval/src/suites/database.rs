//! The suite that compares the codecs of a database on disk as Intel's evaluation of RocksDB did ("Intel In-Memory
//! Analytics Accelerator Plugin for RocksDB", Figures 4 and 5). It runs reads and an 80:20 mix after a sequential fill,
//! with values of 32 and 256 bytes and blocks of 4 and 16 KiB.
//!
//! Every figure is a ratio to a built-in codec in the same setting and the same round. Throughput is operations per
//! CPU-second of the whole process, background work included. So it is comparable on a machine that others use. Size is
//! that of the database as it was loaded.

use crate::bench::plan::Plan;
use crate::bench::{Configuration, Outcome};
use crate::data::values::{ValueBytes, ValueOrder};
use crate::error::Error;
use crate::meters::ModelledWork;
use crate::results::folder::ResultsFolder;
use crate::results::footer::predictions;
use crate::results::row::{Cell, Row, median, spread_pct};
use crate::results::table::{Format, grouped, objects, tabulated, tsv, wrapped};
use crate::run::measurement::Measurement;
use crate::run::spec::RunSpec;
#[cfg(feature = "plots")]
use crate::suites::database_scaling::plot;
use crate::suites::database_scaling::{Scaling, points};
use crate::workload::Workload;

/// The codecs that the others are compared with.
pub(crate) const REFERENCE: &str = "builtin-zstd";
const FAST: &str = "builtin-lz4";
/// The setting of the published Figure 4.
const FIGURE_4: (&str, u64, usize) = ("readrandomwriterandom", 256, 16384);
/// More threads than this did not work on one database there.
const THREADS_MAX: usize = 10;

/// The plan of the suite: `asked`, with its open parts (empty lists) filled in.
///
/// # Errors
/// None for the usual workloads, whose names are known.
pub fn database_suite(asked: Plan) -> Result<Plan, Error> {
    fn or<T>(asked: Vec<T>, usual: impl IntoIterator<Item = T>) -> Vec<T> {
        if asked.is_empty() { usual.into_iter().collect() } else { asked }
    }
    let sizes = [32, 256].map(|bytes| ValueBytes { min: bytes, max: bytes });
    let named = ["readrandom", "readrandomwriterandom"].map(Workload::named);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Plan {
        names_unavailable: true,
        workloads: or(asked.workloads, named.into_iter().collect::<Result<Vec<_>, _>>()?),
        value_bytes: or(asked.value_bytes, sizes),
        value_orders: or(asked.value_orders, [ValueOrder::Strangers, ValueOrder::Neighbours]),
        block_bytes: or(asked.block_bytes, [4096, 16384]),
        threads: or(asked.threads, [cores.min(THREADS_MAX) as u64]),
        cpus: asked.cpus.iter().flat_map(|cpus| growing(cpus)).collect(),
        models_beside: true,
        ..asked
    })
}

/// The first processor, the first two, and so on in doubles, up to all of them.
fn growing(cpus: &[usize]) -> Vec<Vec<usize>> {
    let counts =
        std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|&count| count < cpus.len());
    counts.chain([cpus.len()]).map(|count| cpus[..count].to_vec()).collect()
}

/// The codec, and what is modelled if anything is.
pub(crate) fn label(spec: &RunSpec) -> String {
    match &spec.options.model {
        None => spec.codec.clone(),
        Some(model) => format!("{} modelled {model}", spec.codec),
    }
}

/// A ratio to another codec, round by round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    /// `None` for one round.
    pub(crate) spread_pct: Option<f64>,
}

/// One codec beside another, each figure as a ratio.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Beside {
    /// Operations per CPU-second.
    pub(crate) throughput: Option<Ratio>,
    /// Operations per second.
    pub(crate) wall: Option<Ratio>,
    pub(crate) size: Option<Ratio>,
    pub(crate) read_p99: Option<Ratio>,
    load_cpu: Option<Ratio>,
}

impl Beside {
    fn of(one: &Configuration, other: Option<&Configuration>) -> Self {
        Beside {
            throughput: ratio(one, other, Measurement::qps_per_cpu_core),
            wall: ratio(one, other, |round| Some(round.qps())),
            size: ratio(one, other, |round| round.loaded_held_bytes.map(|bytes| bytes as f64)),
            read_p99: ratio(one, other, |round| round.read.map(|latency| latency.p99_us)),
            load_cpu: ratio(one, other, |round| round.load_cpu_sec),
        }
    }

    /// The share of the cores that does the same work.
    pub(crate) fn cores(&self) -> Option<f64> {
        self.throughput.map(|throughput| 1.0 / throughput.median)
    }
}

fn ratio(
    one: &Configuration,
    other: Option<&Configuration>,
    figure: impl Fn(&Measurement) -> Option<f64>,
) -> Option<Ratio> {
    let rounds = one.rounds.iter().zip(&other?.rounds);
    let both = |(one, other)| Some(figure(one)? / figure(other).filter(|figure| *figure > 0.0)?);
    let mut ratios: Vec<f64> = rounds.filter_map(both).collect();
    let spread_pct = if ratios.len() > 1 { spread_pct(&mut ratios) } else { None };
    Some(Ratio { median: median(&mut ratios)?, spread_pct })
}

/// The figures of one configuration.
pub(crate) struct Compared<'a> {
    pub(crate) configuration: &'a Configuration,
    pub(crate) reference: Beside,
    pub(crate) fast: Beside,
    /// The share of zstd's processors for as many operations, by the measurements with fewer processors.
    cores: Option<f64>,
}

/// The common settings of compared runs, without processors.
pub(crate) fn setting(spec: &RunSpec) -> impl PartialEq {
    (
        spec.workload.clone(),
        spec.value_bytes,
        spec.value_order,
        spec.options.block_bytes,
        spec.threads,
        spec.instances,
    )
}

/// Whether two runs have the same setting and the same processors.
pub(crate) fn are_beside(one: &Configuration, other: &Configuration) -> bool {
    one.spec.cpus == other.spec.cpus && setting(&one.spec) == setting(&other.spec)
}

pub(crate) fn compared(outcome: &Outcome) -> Vec<Compared<'_>> {
    let all = &outcome.configurations;
    let scalings = Scaling::all(outcome);
    let beside = |one: &Configuration, codec: &str| {
        let there = all.iter().find(|other| other.spec.codec == codec && are_beside(one, other));
        Beside::of(one, there)
    };
    let compare = |configuration| Compared {
        configuration,
        reference: beside(configuration, REFERENCE),
        fast: beside(configuration, FAST),
        cores: Scaling::share_of(&scalings, &configuration.spec),
    };
    all.iter().map(compare).collect()
}

impl Compared<'_> {
    /// Whether it is the codec that the others are compared with; compared with itself it has no spread.
    pub(crate) fn is_reference(&self) -> bool {
        self.configuration.spec.codec == REFERENCE
    }

    pub(crate) fn figure(&self, figure: impl Fn(&Measurement) -> Option<f64>) -> Option<f64> {
        median(&mut self.configuration.rounds.iter().filter_map(figure).collect::<Vec<f64>>())
    }

    pub(crate) fn held_per_raw(&self) -> Option<f64> {
        let raw = |round: &Measurement| Some(round.loaded_raw_bytes as f64).filter(|raw| *raw > 0.0);
        self.figure(|round| Some(round.loaded_held_bytes? as f64 / raw(round)?))
    }

    /// Resident bytes of the process at the end of the window, decoders of its files included, over raw bytes.
    fn rss_per_raw(&self) -> Option<f64> {
        let of_process = |round: &Measurement| round.servers.is_none().then_some(round.memory.rss_bytes);
        self.figure(|round| Some(of_process(round)? as f64 / round.raw_bytes as f64))
    }

    /// Whether a modelled device did the work, in the run's own process or on a server.
    pub(crate) fn is_modelled(&self) -> bool {
        let Configuration { spec, rounds, .. } = self.configuration;
        let by_model = |round: &Measurement| round.counters.engine.as_deref() == Some("modelled");
        spec.options.model.is_some() || rounds.iter().any(by_model)
    }

    pub(crate) fn mismatches(&self) -> u64 {
        self.configuration.rounds.iter().map(|round| round.mismatches).sum()
    }

    pub(crate) fn row(&self) -> Row {
        let spec = &self.configuration.spec;
        let of = |ratio: Option<Ratio>| Cell::number(ratio.map(|ratio| ratio.median), 3);
        let spread = |ratio: Option<Ratio>| Cell::number(ratio.and_then(|ratio| ratio.spread_pct), 1);
        let (reference, fast) = (&self.reference, &self.fast);
        let of_model = |figure: fn(&ModelledWork) -> f64, decimals| {
            let figure = |round: &Measurement| (round.modelled.jobs > 0).then(|| figure(&round.modelled));
            Cell::number(self.figure(figure), decimals)
        };
        vec![
            ("workload", Cell::Text(spec.workload.name.clone())),
            ("value_bytes", Cell::Text(spec.value_bytes.to_string())),
            ("value_order", Cell::Text(spec.value_order.to_string())),
            ("block_bytes", Cell::count(spec.options.block_bytes.map(|bytes| bytes as u64))),
            ("instances", Cell::Count(spec.instances as i64)),
            (
                "threads",
                Cell::count(self.figure(|round| Some(round.threads(spec) as f64)).map(|all| all as u64)),
            ),
            ("cpus", Cell::count((!spec.cpus.is_empty()).then_some(spec.cpus.len() as u64))),
            ("codec", Cell::Text(spec.codec.clone())),
            ("status", Cell::text(Some(if self.is_modelled() { "modelled" } else { "measured" }))),
            ("model", Cell::text(spec.options.model.as_deref())),
            ("qps_per_cpu_core", Cell::number(self.figure(Measurement::qps_per_cpu_core), 0)),
            ("qps", Cell::number(self.figure(|round| Some(round.qps())), 0)),
            ("read_p99_us", Cell::number(self.figure(|round| Some(round.read?.p99_us)), 3)),
            ("load_cpu_sec", Cell::number(self.figure(|round| round.load_cpu_sec), 3)),
            ("loaded_held_per_raw", Cell::number(self.held_per_raw(), 4)),
            ("rss_per_raw", Cell::number(self.rss_per_raw(), 4)),
            ("coverage", Cell::number(self.figure(|round| Some(round.coverage)), 2)),
            ("files", Cell::number(self.figure(|round| round.counters.files.map(|files| files as f64)), 0)),
            ("throughput_to_zstd", of(reference.throughput)),
            ("throughput_to_zstd_spread_pct", spread(reference.throughput)),
            ("size_to_zstd", of(reference.size)),
            ("read_p99_to_zstd", of(reference.read_p99)),
            ("read_p99_to_zstd_spread_pct", spread(reference.read_p99)),
            ("cores_at_equal_throughput_extrapolated", Cell::number(reference.cores(), 3)),
            ("cores_at_equal_throughput_measured", Cell::number(self.cores, 3)),
            ("load_cpu_to_zstd", of(reference.load_cpu)),
            ("throughput_to_lz4", of(fast.throughput)),
            ("size_to_lz4", of(fast.size)),
            ("read_p99_to_lz4", of(fast.read_p99)),
            ("rounds", Cell::Count(self.configuration.rounds.len() as i64)),
            ("mismatches", Cell::Count(self.mismatches() as i64)),
            ("modelled_late_pct", of_model(|model| model.late_jobs as f64 / model.jobs as f64 * 100.0, 1)),
            ("modelled_late_us_mean", of_model(|model| model.late_sec * 1e6 / model.jobs as f64, 3)),
            ("modelled_cpu_sec", of_model(|model| model.cpu_sec, 3)),
            ("corpus", Cell::text(Some(&spec.corpus))),
            ("keys", Cell::Count(spec.keys as i64)),
        ]
    }
}

/// Writes the comparison, and the curves over processors and devices if there are any, beside the other files of the
/// results.
///
/// # Errors
/// A file cannot be written.
pub fn write_databases(outcome: &Outcome) -> Result<(), Error> {
    let Some(folder) = &outcome.folder else { return Ok(()) };
    let folder = ResultsFolder::at(folder.clone());
    folder.write("databases.tsv", &tsv(compared(outcome).iter().map(Compared::row)))?;
    let scalings = Scaling::all(outcome);
    if scalings.is_empty() {
        return Ok(());
    }
    folder.write("scaling.tsv", &points(&scalings))?;
    #[cfg(feature = "plots")]
    folder.write("scaling.svg", &plot(&scalings))?;
    Ok(())
}

/// The comparison as text that ends with a newline.
pub fn render_databases(plan: &Plan, outcome: &Outcome, format: Format) -> String {
    let all = compared(outcome);
    match format {
        Format::Tsv => tsv(all.iter().map(Compared::row)),
        Format::Json => format!("{:#}\n", objects(all.iter().map(Compared::row))),
        Format::Table => table(plan, outcome, &all),
    }
}

fn table(plan: &Plan, outcome: &Outcome, all: &[Compared<'_>]) -> String {
    let rounds =
        if plan.rounds == 1 { "1 round".into() } else { format!("medians of {} rounds", plan.rounds) };
    let mut text = wrapped(&format!(
        "{} keys of 16 B in each of {} database(s), values from {}, {rounds} of {}; ratios are to {REFERENCE} in \
         the same round",
        grouped(plan.keys as f64, 0),
        plan.instances,
        plan.corpus,
        plan.common().window_in_words()
    ));
    for group in all.chunk_by(|one, other| are_beside(one.configuration, other.configuration)) {
        let spec = &group[0].configuration.spec;
        text += &format!("\n{}{}", wrapped(&in_words_with_cpus(spec)), figure_5(group));
    }
    for group in all.chunk_by(|one, other| are_beside(one.configuration, other.configuration)) {
        let spec = &group[0].configuration.spec;
        let here = (spec.workload.name.as_str(), spec.value_bytes.max, spec.options.block_bytes.unwrap_or(0));
        if here == FIGURE_4 {
            let heading = wrapped(&format!("Figure 4, {}", in_words_with_cpus(spec)));
            text += &format!("\n{heading}{}", figure_4(group));
        }
    }
    for scaling in Scaling::all(outcome) {
        text += &format!("\n{}", scaling.table());
    }
    let mut named: Vec<&str> = Vec::new();
    for unavailable in &outcome.unavailable {
        if !named.contains(&unavailable.spec.codec.as_str()) {
            named.push(&unavailable.spec.codec);
            text += &format!("\n{}", wrapped(&format!("{} {unavailable}", unavailable.spec.codec)));
        }
    }
    let meanings = "ops: operations per CPU-second of the whole process, compaction included. size: bytes of the files \
        as loaded and compacted. RSS: resident memory of the process that it gained, over raw bytes: memtables, \
        decoders and dictionaries of files, the page cache apart. cores by ops: the share of the processors that does \
        as many operations, extrapolated; found: the same between the points of fewer processors. fill: CPU time of \
        the sequential load and its compaction.";
    format!("{text}\n{}{}", wrapped(meanings), predictions(&outcome.configurations))
}

pub(crate) fn in_words(spec: &RunSpec) -> String {
    let databases =
        if spec.instances > 1 { format!(" on each of {} databases", spec.instances) } else { String::new() };
    format!(
        "{}, values of {} B ({}), blocks of {} B, {}{} thread(s){databases}",
        spec.workload.name,
        spec.value_bytes,
        spec.value_order,
        spec.options.block_bytes.map_or("the usual".into(), |bytes| grouped(bytes as f64, 0)),
        spec.up_to(),
        spec.threads_max()
    )
}

/// The same, and the processors if they were told.
fn in_words_with_cpus(spec: &RunSpec) -> String {
    match spec.cpus.len() {
        0 => in_words(spec),
        cpus => format!("{}, {cpus} processor(s)", in_words(spec)),
    }
}

/// The published Figure 5 and its savings, as two tables.
fn figure_5(group: &[Compared<'_>]) -> String {
    const SPEED: [(&str, &str); 7] = [
        ("speed", ""),
        ("ops", "/CPU-s"),
        ("ops", "to zstd"),
        ("spread", "%"),
        ("ops", "to lz4"),
        ("read p99", "us"),
        ("read p99", "to zstd"),
    ];
    const SIZE: [(&str, &str); 9] = [
        ("size", ""),
        ("size", "to zstd"),
        ("size", "to lz4"),
        ("size", "/raw"),
        ("RSS", "/raw"),
        ("fill", "to zstd"),
        ("cores", "by ops"),
        ("cores", "found"),
        ("files", ""),
    ];
    let number = |number: Option<f64>, decimals| number.map_or(String::new(), |n| grouped(n, decimals));
    let ratio = |ratio: Option<Ratio>| number(ratio.map(|ratio| ratio.median), 2);
    let speed = |one: &Compared<'_>| {
        let wrong = if one.mismatches() > 0 { "  WRONG ANSWERS" } else { "" };
        [
            format!("{}{wrong}", label(&one.configuration.spec)),
            number(one.figure(Measurement::qps_per_cpu_core), 0),
            ratio(one.reference.throughput),
            number(
                one.reference.throughput.filter(|_| !one.is_reference()).and_then(|ratio| ratio.spread_pct),
                1,
            ),
            ratio(one.fast.throughput),
            number(one.figure(|round| Some(round.read?.p99_us)), 1),
            ratio(one.reference.read_p99),
        ]
    };
    let size = |one: &Compared<'_>| {
        [
            label(&one.configuration.spec),
            ratio(one.reference.size),
            ratio(one.fast.size),
            number(one.held_per_raw(), 3),
            number(one.rss_per_raw(), 3),
            ratio(one.reference.load_cpu),
            number(one.reference.cores(), 2),
            number(one.cores, 2),
            number(one.figure(|round| round.counters.files.map(|files| files as f64)), 0),
        ]
    };
    tabulated(&SPEED, group.iter().map(speed).collect(), 1)
        + &tabulated(&SIZE, group.iter().map(size).collect(), 1)
}

/// The published Figure 4: the position of each codec in the plane of throughput and size, relative to zstd and to LZ4.
fn figure_4(group: &[Compared<'_>]) -> String {
    const HEADINGS: [(&str, &str); 5] =
        [("codec", ""), ("ops", "to zstd"), ("size", "to zstd"), ("ops", "to lz4"), ("size", "to lz4")];
    let line = |one: &Compared<'_>| {
        let ratio =
            |ratio: Option<Ratio>| ratio.map_or(String::new(), |ratio| format!("{:.2}", ratio.median));
        [
            label(&one.configuration.spec),
            ratio(one.reference.throughput),
            ratio(one.reference.size),
            ratio(one.fast.throughput),
            ratio(one.fast.size),
        ]
    };
    tabulated(&HEADINGS, group.iter().map(line).collect(), 1)
}

#[cfg(test)]
pub(crate) mod tests;
