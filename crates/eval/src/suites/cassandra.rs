//! The suite that compares the compressors of Cassandra, as Intel's evaluation of its compressor did ("Apache Cassandra
//! with Intel In-Memory Analytics Accelerator", Figures 5 to 7). It runs reads alone and an 80:20 mix on a table that
//! was flushed and compacted, with rows cut from files and with readings of sensors.
//!
//! Every figure is a ratio to a compressor of Cassandra's own in the same setting and the same round. CPU time is that
//! of the nodes, with what they do after the last answer: flush what the window wrote, and compact.

use crate::bench::Outcome;
use crate::bench::plan::Plan;
use crate::data::values::{ValueBytes, ValueOrder};
use crate::error::Error;
use crate::results::folder::ResultsFolder;
use crate::results::footer::steps;
use crate::results::row::{Cell, Row};
use crate::results::table::{Format, grouped, objects, tabulated, tsv, wrapped};
use crate::run::measurement::Measurement;
use crate::run::spec::RunSpec;
use crate::suites::database::{Compared, are_beside, compared};
use crate::workload::Workload;
use crate::workload::pace::Pace;

/// Requests in flight that keep a node of two processors busy.
const THREADS: u64 = 32;
const CHUNK_BYTES: usize = 16 << 10;
/// What an address ends with whose table has readings.
const READINGS: &str = "/timeseries";
/// Their texts, as in cql-timeseries of NoSQLBench.
const TEXT_BYTES: ValueBytes = ValueBytes { min: 800, max: 1200 };
/// Rows cut from files: small ones, and those of Intel's evaluation.
const ROW_BYTES: [ValueBytes; 2] = [ValueBytes { min: 256, max: 256 }, ValueBytes { min: 1024, max: 1024 }];

/// The plans of the suite: `asked`, with its open parts (empty lists) filled in. The first has rows cut from the
/// corpus, the second readings. An address that ends with `/timeseries` means readings alone.
///
/// # Errors
/// None for the usual workloads, whose names are known.
pub fn cassandra_suite(asked: Plan) -> Result<Vec<Plan>, Error> {
    fn or<T>(asked: Vec<T>, usual: impl IntoIterator<Item = T>) -> Vec<T> {
        if asked.is_empty() { usual.into_iter().collect() } else { asked }
    }
    let named = ["read_only", "read_write_8_2"].map(Workload::named);
    let common = Plan {
        workloads: or(asked.workloads, named.into_iter().collect::<Result<Vec<_>, _>>()?),
        block_bytes: or(asked.block_bytes, [CHUNK_BYTES]),
        threads: or(asked.threads, [THREADS]),
        ..asked
    };
    let (readings, records): (Vec<String>, Vec<String>) =
        common.targets.iter().cloned().partition(|target| target.ends_with(READINGS));
    let with_readings = |target: &String| format!("{}{READINGS}", target.trim_end_matches('/'));
    let records_plan = Plan {
        value_bytes: or(common.value_bytes.clone(), ROW_BYTES),
        value_orders: or(common.value_orders.clone(), [ValueOrder::Apart]),
        targets: records.clone(),
        ..common.clone()
    };
    let readings_plan = Plan {
        value_bytes: vec![TEXT_BYTES],
        value_orders: vec![ValueOrder::Strangers],
        corpus: "lorem".into(),
        targets: readings.into_iter().chain(records.iter().map(with_readings)).collect(),
        ..common
    };
    Ok([records_plan, readings_plan].into_iter().filter(|plan| !plan.targets.is_empty()).collect())
}

fn row(one: &Compared<'_>) -> Row {
    let of = |figure: fn(&Measurement) -> Option<f64>, decimals| Cell::number(one.figure(figure), decimals);
    let spec = &one.configuration.spec;
    let mut row = one.row();
    row.extend([
        ("target", Cell::Text(spec.target.clone())),
        ("qps_to_zstd", Cell::number(one.reference.wall.map(|ratio| ratio.median), 3)),
        ("table_bytes", of(|round| round.loaded_held_bytes.map(|bytes| bytes as f64), 0)),
        ("cpu_us_per_operation", of(cpu_us, 3)),
        ("after_cpu_sec", of(|round| round.servers?.after_cpu_sec, 3)),
        ("write_p99_us", of(|round| Some(round.write?.p99_us), 3)),
        ("offered_qps", Cell::number(one.figure(|round| round.offered_rate(spec.pace)), 0)),
    ]);
    row
}

fn cpu_us(round: &Measurement) -> Option<f64> {
    Some(round.cpu_sec()? * 1e6 / round.operations as f64)
}

/// Writes the comparison beside the other files of the results.
///
/// # Errors
/// A file cannot be written.
pub fn write_compressors(outcome: &Outcome) -> Result<(), Error> {
    let Some(folder) = &outcome.folder else { return Ok(()) };
    ResultsFolder::at(folder.clone()).write("compressors.tsv", &tsv(compared(outcome).iter().map(row)))
}

/// The comparison as text that ends with a newline.
pub fn render_compressors(plan: &Plan, outcome: &Outcome, format: Format) -> String {
    let all = compared(outcome);
    match format {
        Format::Tsv => tsv(all.iter().map(row)),
        Format::Json => format!("{:#}\n", objects(all.iter().map(row))),
        Format::Table => table(plan, outcome, &all),
    }
}

fn table(plan: &Plan, outcome: &Outcome, all: &[Compared<'_>]) -> String {
    let rounds =
        if plan.rounds == 1 { "1 round".into() } else { format!("medians of {} rounds", plan.rounds) };
    let nodes = outcome
        .configurations
        .iter()
        .flat_map(|one| &one.rounds)
        .find_map(|round| round.descriptions.first());
    let mut text = wrapped(&format!(
        "{} rows in each table, values from {}, {rounds} of {}; {}",
        grouped(plan.keys as f64, 0),
        plan.corpus,
        plan.common().window_in_words(),
        nodes.map_or("no round was finished", String::as_str)
    ));
    for group in all.chunk_by(|one, other| are_beside(one.configuration, other.configuration)) {
        let spec = &group[0].configuration.spec;
        text += &format!("\n{}{}{}", wrapped(&in_words(spec)), speeds(group), sizes(group));
    }
    text += &steps(outcome);
    for configuration in &outcome.configurations {
        if let Some(first) = configuration.rounds.iter().find_map(|round| round.first_mismatch.as_ref()) {
            text += &wrapped(&format!("WRONG ANSWERS: {}; the first: {first}", configuration.spec.name()));
        }
    }
    let meanings = "ops /s: by the clock. CPU: time of the nodes' processes for each operation, until they were quiet; \
        it is missing where another machine has them. In a mix it includes the flush of what was written. ops /CPU: \
        operations per CPU-second over those of builtin-zstd, round by round, and the spread of that. cores: the share \
        of builtin-zstd's processors for as many operations, extrapolated from CPU time, not measured. table: bytes of \
        the SSTables, with indexes and filters, as loaded and compacted; raw: bytes of keys and values. load: CPU time \
        of loading, flush, training and compaction.";
    format!("{text}\n{}", wrapped(meanings))
}

fn in_words(spec: &RunSpec) -> String {
    let rows = if spec.target.ends_with(READINGS) { "readings with texts" } else { "rows with values" };
    let tables = match spec.instances {
        1 => String::new(),
        tables => format!(" on each of {tables} tables"),
    };
    let pace = match spec.pace {
        Pace::Closed => String::new(),
        Pace::Rate(per_sec) => format!("; {} offered per second", grouped(per_sec, 0)),
        Pace::Ramp { to, .. } => {
            format!("; {} offered per second, the last of several rates", grouped(to, 0))
        }
        Pace::Saturated(_) => "; as many as gave the largest throughput".into(),
        Pace::UntilP99(limit_us) => {
            format!("; the last rate with a 99th percentile of at most {limit_us} us")
        }
    };
    format!(
        "{}, {rows} of {} B ({}), chunks of {} B, {}{} requests in flight{tables}{pace}",
        spec.workload.name,
        spec.value_bytes,
        spec.value_order,
        spec.options.block_bytes.map_or("the usual".into(), |bytes| grouped(bytes as f64, 0)),
        spec.up_to(),
        spec.threads_max() * spec.multi_get as u64
    )
}

/// The compressor. The nodes say whether they model its device.
fn label(one: &Compared<'_>) -> String {
    let modelled = if one.is_modelled() { " modelled" } else { "" };
    format!("{}{modelled}", one.configuration.spec.codec)
}

fn number(number: Option<f64>, decimals: usize) -> String {
    number.map_or(String::new(), |number| grouped(number, decimals))
}

fn speeds(group: &[Compared<'_>]) -> String {
    const HEADINGS: [(&str, &str); 8] = [
        ("speed", ""),
        ("ops", "/s"),
        ("ops /s", "to zstd"),
        ("CPU", "us/op"),
        ("ops /CPU", "to zstd"),
        ("spread", "%"),
        ("read p99", "ms"),
        ("cores", "extrap."),
    ];
    let line = |one: &Compared<'_>| {
        let zstd = &one.reference;
        let wrong = if one.mismatches() > 0 { "  WRONG ANSWERS" } else { "" };
        [
            format!("{}{wrong}", label(one)),
            number(one.figure(|round| Some(round.qps())), 0),
            number(zstd.wall.map(|ratio| ratio.median), 2),
            number(one.figure(cpu_us), 0),
            number(zstd.throughput.map(|ratio| ratio.median), 2),
            number(zstd.throughput.filter(|_| !one.is_reference()).and_then(|ratio| ratio.spread_pct), 0),
            number(one.figure(|round| Some(round.read?.p99_us / 1e3)), 1),
            number(zstd.cores(), 2),
        ]
    };
    tabulated(&HEADINGS, group.iter().map(line).collect(), 1)
}

fn sizes(group: &[Compared<'_>]) -> String {
    const HEADINGS: [(&str, &str); 7] = [
        ("size", ""),
        ("table", "MiB"),
        ("table", "/raw"),
        ("table", "to lz4"),
        ("table", "to zstd"),
        ("SSTables", ""),
        ("load", "CPU-s"),
    ];
    let line = |one: &Compared<'_>| {
        [
            label(one),
            number(one.figure(|round| Some(round.loaded_held_bytes? as f64 / f64::from(1 << 20))), 2),
            number(one.held_per_raw(), 3),
            number(one.fast.size.map(|ratio| ratio.median), 2),
            number(one.reference.size.map(|ratio| ratio.median), 2),
            number(one.figure(|round| round.counters.files.map(|files| files as f64)), 0),
            number(one.figure(|round| round.load_cpu_sec), 1),
        ]
    };
    tabulated(&HEADINGS, group.iter().map(line).collect(), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Configuration;
    use crate::run::measurement::{ServersCpu, Step};
    use crate::suites::database::tests::{configuration, outcome};

    fn asked(target: &str) -> Plan {
        Plan {
            targets: vec![target.into()],
            workloads: vec![],
            threads: vec![],
            value_bytes: vec![],
            value_orders: vec![],
            block_bytes: vec![],
            ..crate::suites::codec::tests::asked()
        }
    }

    #[test]
    fn rows_and_readings_are_plans_of_their_own() {
        let plans = cassandra_suite(asked("cql://a,b")).unwrap();
        let [records, readings] = plans.as_slice() else { panic!("{} plans", plans.len()) };
        assert_eq!(
            (records.targets.as_slice(), records.value_bytes.len()),
            (&["cql://a,b".to_owned()][..], 2)
        );
        assert_eq!(readings.targets, ["cql://a,b/timeseries"]);
        assert_eq!((readings.corpus.as_str(), readings.value_bytes.as_slice()), ("lorem", &[TEXT_BYTES][..]));
        assert_eq!(readings.block_bytes, [CHUNK_BYTES]);
        let alone = cassandra_suite(asked("cql://a/timeseries")).unwrap();
        assert_eq!(alone.len(), 1);
        assert_eq!(alone[0].targets, ["cql://a/timeseries"]);
    }

    /// One round: operations in a CPU-second of the servers, and bytes of the table.
    fn of_servers(codec: &str, rounds: &[[u64; 2]], cpu_sec: Option<f64>) -> Configuration {
        let rounds: Vec<_> = rounds.iter().map(|[operations, bytes]| [*operations, *bytes, 9_000]).collect();
        let mut configuration = configuration(codec, CHUNK_BYTES, &rounds);
        configuration.spec.target = "cql://a".into();
        for round in &mut configuration.rounds {
            round.servers = Some(ServersCpu { cpu_sec, after_cpu_sec: cpu_sec.map(|cpu_sec| cpu_sec / 4.0) });
            round.descriptions = vec!["Cassandra 5.0.9, flush_compression table".into()];
        }
        configuration
    }

    fn figure(row: &Row, name: &str) -> String {
        row.iter().find(|(column, _)| *column == name).unwrap().1.to_tsv()
    }

    #[test]
    fn figures_are_of_the_servers_and_ratios_to_their_own_compressors() {
        let all = outcome(vec![
            of_servers("builtin-lz4", &[[3000, 1000], [300, 1000]], Some(2.0)),
            of_servers("builtin-zstd", &[[1000, 600], [100, 600]], Some(2.0)),
            of_servers("ziptier-token", &[[2000, 500], [200, 500]], Some(2.0)),
        ]);
        let rows: Vec<Row> = compared(&all).iter().map(row).collect();
        let ours = &rows[2];
        assert_eq!(figure(ours, "throughput_to_zstd"), "2.000");
        assert_eq!(figure(ours, "qps_to_zstd"), "2.000");
        assert_eq!(figure(ours, "size_to_lz4"), "0.500");
        assert_eq!(figure(ours, "cores_at_equal_throughput_extrapolated"), "0.500");
        // 2 s of the servers for 2,000 and for 200 operations; the client's own second does not count.
        assert_eq!(figure(ours, "cpu_us_per_operation"), "5500.000");
        assert_eq!(figure(ours, "after_cpu_sec"), "0.500");
        let plan = Plan { rounds: 2, ..asked("cql://a") };
        let text = render_compressors(&plan, &all, Format::Table);
        assert!(text.contains("flush_compression table"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("extrap."), "{text}");
        let beside = |line: &&str| line.starts_with("ziptier-token  ");
        assert_eq!(text.lines().filter(beside).count(), 2, "names stand beside their figures: {text}");
    }

    #[test]
    fn the_row_of_a_device_that_a_node_models_says_so() {
        let mut modelled = of_servers("ziptier-deflate", &[[2000, 500]], Some(2.0));
        modelled.rounds[0].counters.engine = Some("modelled".into());
        let all = outcome(vec![of_servers("builtin-zstd", &[[1000, 600]], Some(2.0)), modelled]);
        let rows: Vec<Row> = compared(&all).iter().map(row).collect();
        assert_eq!([0, 1].map(|index| figure(&rows[index], "status")), ["measured", "modelled"]);
        let text = render_compressors(&asked("cql://a"), &all, Format::Table);
        assert_eq!(text.matches("ziptier-deflate modelled").count(), 2, "{text}");
        assert!(!text.contains("builtin-zstd modelled"), "{text}");
    }

    #[test]
    fn the_last_rate_that_held_and_tables_side_by_side_are_told() {
        let mut one = of_servers("builtin-zstd", &[[1000, 600]], Some(2.0));
        (one.spec.pace, one.spec.instances) = (Pace::UntilP99(20_000.0), 2);
        let step = |offered_per_sec, p99_us| Step { offered_per_sec, done_per_sec: 1.0, p99_us };
        one.rounds[0].steps = vec![step(400.0, 9_000.0), step(500.0, 10_000.0), step(625.0, 30_000.0)];
        let all = outcome(vec![one]);
        assert_eq!(figure(&row(&compared(&all)[0]), "offered_qps"), "500");
        let plan = Plan { pace: Pace::UntilP99(20_000.0), ..asked("cql://a") };
        let text = render_compressors(&plan, &all, Format::Table);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("1 requests in flight on each of 2 tables"), "{text}");
        assert!(words.contains("the last rate with a 99th percentile of at most 20000 us"), "{text}");
        assert!(words.contains("offered 625 per s, done 1, p99 30,000.0 us (too slow)"), "{text}");
    }

    /// `ziptier predict` knows an open loop by this figure.
    #[test]
    fn a_search_in_which_no_rate_held_is_no_closed_loop() {
        let mut one = of_servers("builtin-zstd", &[[1000, 600]], Some(2.0));
        one.spec.pace = Pace::UntilP99(20_000.0);
        one.rounds[0].steps = vec![Step { offered_per_sec: 100.0, done_per_sec: 90.0, p99_us: 30_000.0 }];
        assert_eq!(figure(&row(&compared(&outcome(vec![one]))[0]), "offered_qps"), "0");
    }

    #[test]
    fn a_search_for_saturation_names_the_most_requests_that_it_tries() {
        let mut one = of_servers("builtin-zstd", &[[1000, 600]], Some(2.0));
        one.spec.pace = Pace::Saturated(64);
        let text = render_compressors(&asked("cql://a"), &outcome(vec![one]), Format::Table);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("chunks of 16,384 B, up to 64 requests in flight; as many as gave"), "{text}");
    }

    #[test]
    fn cpu_time_of_another_machine_is_missing_not_zero() {
        let all = outcome(vec![
            of_servers("builtin-zstd", &[[1000, 600]], None),
            of_servers("ziptier-lz4", &[[2000, 500]], None),
        ]);
        let rows: Vec<Row> = compared(&all).iter().map(row).collect();
        for name in ["cpu_us_per_operation", "qps_per_cpu_core", "throughput_to_zstd", "after_cpu_sec"] {
            assert_eq!(figure(&rows[1], name), "NA", "{name}");
        }
        assert_eq!(figure(&rows[1], "qps_to_zstd"), "2.000");
        let text = render_compressors(&asked("cql://a"), &all, Format::Table);
        assert!(!text.contains("us/op"), "a column that says nothing is left out: {text}");
    }
}
