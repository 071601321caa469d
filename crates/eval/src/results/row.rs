//! The columns of a result row, and medians over rounds.
//!
//! The first 28 or so columns have the names of the published evaluation's summary file, so that both can stand in one
//! table. Further columns follow. `NA` marks a value that does not apply or was not measured.

use serde_json::Value as Json;

use crate::bench::{Configuration, Unavailable};
use crate::run::measurement::{Latency, Measurement, Replayed};
use crate::run::spec::RunSpec;
use crate::statistics::Deviation;
use crate::suites::published::PublishedNames;

/// One cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Text(String),
    Count(i64),
    Number(f64, usize),
    Missing,
}

/// A row: column names and cells.
pub(crate) type Row = Vec<(&'static str, Cell)>;

impl Cell {
    pub(crate) fn number(value: Option<f64>, decimals: usize) -> Self {
        value.filter(|value| value.is_finite()).map_or(Cell::Missing, |value| Cell::Number(value, decimals))
    }

    /// A number with six decimals, or as many more as it takes for six digits that count.
    pub(crate) fn precise(value: Option<f64>) -> Self {
        const DIGITS: f64 = 6.0;
        let of = |value: f64| DIGITS - 1.0 - value.abs().log10().floor();
        let decimals = value.filter(|value| *value != 0.0).map_or(DIGITS, of);
        Cell::number(value, decimals.clamp(DIGITS, 300.0) as usize)
    }

    pub(crate) fn count(value: Option<u64>) -> Self {
        value.map_or(Cell::Missing, |value| Cell::Count(value as i64))
    }

    pub(crate) fn text(value: Option<&str>) -> Self {
        value.map_or(Cell::Missing, |value| Cell::Text(value.to_owned()))
    }

    /// The degrees of freedom of a deviation, without which nobody knows how far an interval reaches. A normal
    /// distribution has none.
    pub(crate) fn freedom(deviation: Option<Deviation>) -> Self {
        Cell::number(deviation.map(|deviation| deviation.freedom), 2)
    }

    /// As it stands in a TSV file, where tabs and ends of lines are between cells alone.
    pub(crate) fn to_tsv(&self) -> String {
        match self {
            Cell::Text(text) => text.replace(['\t', '\n', '\r'], " "),
            Cell::Count(count) => count.to_string(),
            Cell::Number(number, decimals) => fixed(*number, *decimals),
            Cell::Missing => "NA".into(),
        }
    }

    pub(crate) fn to_json(&self) -> Json {
        match self {
            Cell::Text(text) => Json::from(text.as_str()),
            Cell::Count(count) => Json::from(*count),
            Cell::Number(number, decimals) => {
                let scale = 10f64.powi(*decimals as i32);
                Json::from((number * scale).round() / scale)
            }
            Cell::Missing => Json::Null,
        }
    }

    pub(crate) fn as_number(&self) -> Option<f64> {
        match self {
            Cell::Count(count) => Some(*count as f64),
            Cell::Number(number, _) => Some(*number),
            _ => None,
        }
    }
}

/// A number with so many decimals. What rounds to nothing has no sign.
pub(crate) fn fixed(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    match text.strip_prefix('-') {
        Some(digits) if digits.bytes().all(|digit| matches!(digit, b'0' | b'.')) => digits.to_owned(),
        _ => text,
    }
}

/// The row of one round.
pub(crate) fn round_row(configuration: &Configuration, round: usize) -> Row {
    let log = configuration.logs.get(round).map(String::as_str);
    let mut row = row(&configuration.spec, &configuration.rounds[round], log);
    row.push(("round", Cell::Count(round as i64 + 1)));
    row
}

/// The row of a configuration: the median of every number over the rounds, the sum of the mismatches, and the spread of
/// the rounds. The spread is the largest less the smallest, in per cent of the median. One round has no spread.
pub(crate) fn median_row(configuration: &Configuration) -> Row {
    let rounds: Vec<Row> =
        (0..configuration.rounds.len()).map(|round| round_row(configuration, round)).collect();
    let Some(first) = rounds.first() else { return Vec::new() };
    let column =
        |index: usize| rounds.iter().filter_map(|row| row[index].1.as_number()).collect::<Vec<f64>>();
    let mut row: Row = first
        .iter()
        .enumerate()
        .filter(|(_, (name, _))| *name != "round")
        .map(|(index, (name, cell))| {
            let median = median(&mut column(index));
            let cell = match (cell, *name) {
                (_, "mismatches") => Cell::Count(column(index).iter().sum::<f64>() as i64),
                (Cell::Count(_), _) => {
                    median.map_or(Cell::Missing, |median| Cell::Count(median.round() as i64))
                }
                (Cell::Number(_, decimals), _) => Cell::number(median, *decimals),
                // All rounds are behind the figures of the row, so all must have been steady.
                (_, "warm_up_throughput" | "window_throughput") => {
                    let mut cells = rounds.iter().map(|row| &row[index].1);
                    cells.find(|cell| **cell != Cell::Text("steady".into())).unwrap_or(cell).clone()
                }
                (cell, _) => cell.clone(),
            };
            (*name, cell)
        })
        .collect();
    row.push(("rounds", Cell::Count(rounds.len() as i64)));
    for (name, spread_name) in
        [("qps", "qps_spread_pct"), ("qps_per_cpu_core", "qps_per_cpu_core_spread_pct")]
    {
        let mut values = first.iter().position(|(column, _)| *column == name).map(column).unwrap_or_default();
        let spread = if rounds.len() > 1 { spread_pct(&mut values) } else { None };
        row.push((spread_name, Cell::number(spread, 1)));
    }
    row
}

pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        len if len % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

pub(crate) fn spread_pct(values: &mut [f64]) -> Option<f64> {
    let median = median(values).filter(|median| *median > 0.0)?;
    Some((values.last()? - values.first()?) / median * 100.0)
}

fn row(spec: &RunSpec, measured: &Measurement, log: Option<&str>) -> Row {
    let counters = &measured.counters;
    let held = measured.held_bytes().map(|held| held as f64);
    let raw = measured.raw_bytes as f64;
    let ratio = |raw: f64, held: f64| (held > 0.0 && raw > 0.0).then_some(raw / held);
    let saved_pct = held.filter(|_| raw > 0.0).map(|held| (1.0 - held / raw) * 100.0);
    let coded =
        counters.coded_raw_bytes.zip(counters.coded_bytes).map(|(raw, coded)| (raw as f64, coded as f64));
    let codec_ratio = coded.and_then(|(raw, coded)| ratio(raw, coded));
    let latency =
        |latency: Option<Latency>| latency.map_or([None; 3], |l| [l.p50_us, l.p99_us, l.p999_us].map(Some));
    let [read_p50, read_p99, read_p999] = latency(measured.read);
    let [write_p50, write_p99, write_p999] = latency(measured.write);
    let (usage, machine) = (&measured.usage, &measured.machine);
    // The client of servers tells nothing about them.
    let own = |cell| if measured.servers.is_some() { Cell::Missing } else { cell };
    let modelled = Some(&measured.modelled).filter(|modelled| modelled.jobs > 0);
    let settled = measured.settled;
    let replayed = measured.replayed.as_ref();
    // A trace leaves no choice of these.
    let chosen = |setting| if replayed.is_some() { Cell::Missing } else { Cell::Text(setting) };
    let options = &spec.options;
    let published = spec.is_published.then(|| PublishedNames::of(spec));
    let (run, codec) = match &published {
        Some(names) => (names.run.clone(), names.codec.clone()),
        None => (spec.name(), spec.codec.clone()),
    };
    let qpl_mode = published.and_then(|names| names.qpl_mode).or_else(|| counters.qpl_mode.clone());
    vec![
        ("run", Cell::Text(run)),
        ("workload", Cell::Text(spec.workload.name.clone())),
        ("threads", Cell::Count(measured.threads(spec) as i64)),
        ("codec", Cell::Text(codec)),
        ("engine", Cell::text(Some(counters.engine.as_deref().unwrap_or("none")))),
        ("qpl_mode", Cell::text(qpl_mode.as_deref())),
        ("qps", Cell::number(Some(measured.qps()), 0)),
        ("mismatches", Cell::Count(measured.mismatches as i64)),
        ("ratio", Cell::number(held.and_then(|held| ratio(raw, held)), 3)),
        ("saved_pct", Cell::number(saved_pct, 2)),
        ("read_p50_us", Cell::number(read_p50, 3)),
        ("read_p99_us", Cell::number(read_p99, 3)),
        ("read_p999_us", Cell::number(read_p999, 3)),
        ("write_p50_us", Cell::number(write_p50, 3)),
        ("write_p99_us", Cell::number(write_p99, 3)),
        ("write_p999_us", Cell::number(write_p999, 3)),
        ("wall_sec", Cell::number(Some(measured.wall_sec), 3)),
        ("user_sec", own(Cell::number(Some(usage.user_sec), 3))),
        ("sys_sec", own(Cell::number(Some(usage.sys_sec), 3))),
        ("cpu_pct", Cell::number(measured.cpu_cores().map(|cores| cores * 100.0), 1)),
        ("cpu_cores", Cell::number(measured.cpu_cores(), 3)),
        ("qps_per_cpu_core", Cell::number(measured.qps_per_cpu_core(), 0)),
        ("qpl_compress_calls", Cell::count(counters.qpl_compress_calls)),
        ("qpl_decompress_calls", Cell::count(counters.qpl_decompress_calls)),
        ("zlib_compress_calls", Cell::count(counters.zlib_compress_calls)),
        ("zlib_decompress_calls", Cell::count(counters.zlib_decompress_calls)),
        ("bg_threads", Cell::count(counters.bg_threads)),
        ("bg_compactions", Cell::count(counters.bg_compactions)),
        ("fg_compactions", Cell::count(counters.fg_compactions)),
        ("log", Cell::text(log)),
        ("cpu_log", Cell::text(log)),
        ("raw_bytes", Cell::Count(measured.raw_bytes as i64)),
        ("held_bytes", measured.held_bytes().map_or(Cell::Missing, Cell::Count)),
        ("rss_bytes", own(Cell::Count(measured.memory.rss_bytes))),
        ("held_per_raw", Cell::number(measured.held_per_raw(), 4)),
        ("keys", Cell::Count(measured.keys as i64)),
        ("codec_ratio", Cell::number(codec_ratio, 3)),
        ("codec_saved_pct", Cell::number(codec_ratio.map(|ratio| (1.0 - 1.0 / ratio) * 100.0), 2)),
        ("reads_raw", Cell::count(counters.reads_raw)),
        ("reads_coded", Cell::count(counters.reads_coded)),
        ("reads_packed", Cell::count(counters.reads_packed)),
        ("max_rss", own(Cell::Count(usage.max_rss_bytes as i64))),
        ("ctx_switches_voluntary", own(Cell::Count(usage.ctx_switches_voluntary as i64))),
        ("ctx_switches_involuntary", own(Cell::Count(usage.ctx_switches_involuntary as i64))),
        ("settled_held_bytes", measured.settled_held_bytes().map_or(Cell::Missing, Cell::Count)),
        ("settled_held_per_raw", Cell::number(measured.settled_held_per_raw(), 4)),
        ("settled_rss_bytes", own(settled.map_or(Cell::Missing, |settled| Cell::Count(settled.rss_bytes)))),
        ("load_sec", Cell::number(Some(measured.load_sec), 3)),
        ("load_cpu_sec", Cell::number(measured.load_cpu_sec, 3)),
        ("settle_cpu_sec", Cell::number(measured.settle_cpu_sec, 3)),
        ("operations", Cell::Count(measured.operations as i64)),
        ("coverage", Cell::number(Some(measured.coverage), 2)),
        ("trainings", Cell::count(counters.trainings)),
        ("adoptions", Cell::count(counters.adoptions)),
        ("adoptions_measured", Cell::count(measured.adoptions)),
        ("offered_qps", Cell::number(measured.offered_rate(spec.pace), 0)),
        ("target", Cell::Text(spec.target.clone())),
        ("key_shape", chosen(spec.key_shape.to_string())),
        ("value_bytes", chosen(spec.value_bytes.to_string())),
        ("corpus", Cell::text(Some(&spec.corpus))),
        ("train_on", Cell::Text(spec.train_on.to_string())),
        ("distribution", chosen(spec.distribution.to_string())),
        ("multi_get", Cell::Count(spec.multi_get as i64)),
        ("multi_put", Cell::Count(spec.multi_put as i64)),
        ("connections", Cell::count(spec.connections)),
        ("landing_bytes", Cell::count(spec.landing_bytes.map(|bytes| bytes as u64))),
        ("instances", Cell::Count(spec.instances as i64)),
        ("background", Cell::count(spec.background.map(u64::from))),
        ("engine_asked", Cell::text(options.engine.as_deref())),
        ("path", Cell::text(options.path.map(|path| path.to_string()).as_deref())),
        ("model", Cell::text(options.model.as_deref())),
        ("block_bytes", Cell::count(options.block_bytes.map(|bytes| bytes as u64))),
        ("level", options.level.map_or(Cell::Missing, |level| Cell::Count(level.into()))),
        ("huffman", Cell::text(options.huffman.map(|huffman| huffman.to_string()).as_deref())),
        ("context_cache", Cell::text(options.context_cache.map(|cache| cache.to_string()).as_deref())),
        ("landing_watermark_pct", Cell::count(options.landing_watermark_pct.map(u64::from))),
        ("background_codec", Cell::text(options.background_codec.as_deref())),
        ("iaa_compress_calls", Cell::count(counters.iaa_compress_calls)),
        ("iaa_decompress_calls", Cell::count(counters.iaa_decompress_calls)),
        ("engine_fallbacks", Cell::count(counters.engine_fallbacks)),
        ("engine_queue_full_retries", Cell::count(counters.engine_queue_full_retries)),
        ("engine_faults", Cell::count(counters.engine_faults)),
        ("modelled_jobs", modelled.map_or(Cell::Missing, |modelled| Cell::Count(modelled.jobs as i64))),
        ("modelled_late_pct", Cell::number(modelled.map(|m| m.late_jobs as f64 / m.jobs as f64 * 100.0), 1)),
        ("modelled_late_us_mean", Cell::number(modelled.map(|m| m.late_sec * 1e6 / m.jobs as f64), 3)),
        ("modelled_cpu_sec", Cell::number(modelled.map(|m| m.cpu_sec), 3)),
        ("modelled_qps_max", Cell::number(modelled.and_then(|_| measured.qps_without_lateness(spec)), 1)),
        ("modelled_memo_bytes", modelled.map_or(Cell::Missing, |m| Cell::Count(m.memo_bytes as i64))),
        ("files", Cell::count(counters.files)),
        ("loaded_held_bytes", Cell::count(measured.loaded_held_bytes)),
        ("loaded_keys", Cell::Count(measured.loaded_keys as i64)),
        ("value_order", chosen(spec.value_order.to_string())),
        ("after_cpu_sec", Cell::number(measured.servers.and_then(|servers| servers.after_cpu_sec), 3)),
        ("disk_read_bytes", Cell::count(machine.disk_bytes(|disk| disk.read_bytes))),
        ("disk_written_bytes", Cell::count(machine.disk_bytes(|disk| disk.written_bytes))),
        ("disk_bytes_per_record_byte", Cell::number(measured.disk_amplification(), 3)),
        ("network_bytes", Cell::count(machine.network_bytes())),
        ("network_bytes_per_record_byte", Cell::number(measured.network_amplification(), 3)),
        ("machine_busy_cores", Cell::number(machine.busy_cores(&[]), 3)),
        ("page_cache_bytes", Cell::count(machine.page_cache_bytes)),
        ("watts", Cell::number(machine.watts(), 1)),
        (
            "watts_of",
            Cell::text(Some(machine.joules_of.join(", ").as_str()).filter(|names| !names.is_empty())),
        ),
        ("processors", own(Cell::Count(spec.processors() as i64))),
        (
            "key_bytes",
            Cell::count(spec.key_space().bytes().filter(|_| replayed.is_none()).map(|bytes| bytes as u64)),
        ),
        ("trace", Cell::text(replayed.map(|replayed| replayed.file.as_str()))),
        ("trace_bytes", Cell::count(replayed.map(|replayed| replayed.file_bytes))),
        ("trace_hash", Cell::text(replayed.map(|replayed| replayed.file_hash.as_str()))),
        ("trace_speed", Cell::number(spec.trace().and_then(|trace| trace.speed), 6)),
        ("trace_requests", Cell::count(replayed.map(|replayed| replayed.requests))),
        ("trace_skipped", Cell::count(replayed.map(|replayed| replayed.skipped))),
        ("hit_pct", Cell::number(replayed.and_then(Replayed::hit_pct), 3)),
        ("warm_up_sec", Cell::number(measured.warm_up.map(|warm_up| warm_up.sec), 1)),
        ("warm_up_throughput", Cell::text(measured.warm_up.map(|warm_up| warm_up.steadiness.word()))),
        ("window_throughput", Cell::text(measured.steadiness.map(|steadiness| steadiness.word()))),
        ("status", Cell::Text("measured".into())),
    ]
}

/// A row of an unavailable configuration: its names, and the reason. `columns` are those of the rows beside it.
pub(crate) fn unavailable_row(columns: &Row, unavailable: &Unavailable) -> Row {
    let spec = &unavailable.spec;
    let names = PublishedNames::of(spec);
    let cell = |column: &str| match column {
        "run" => Cell::Text(names.run.clone()),
        "codec" => Cell::Text(names.codec.clone()),
        "engine" => Cell::text(Some(names.engine)),
        "qpl_mode" => Cell::text(names.qpl_mode.as_deref()),
        "target" => Cell::text(Some(&spec.target)),
        "engine_asked" => Cell::text(spec.options.engine.as_deref()),
        "path" => Cell::text(spec.options.path.map(|path| path.to_string()).as_deref()),
        "huffman" => Cell::text(spec.options.huffman.map(|huffman| huffman.to_string()).as_deref()),
        "status" => Cell::text(Some(&unavailable.to_string())),
        _ => Cell::Missing,
    };
    columns.iter().map(|(column, _)| (*column, cell(column))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
        assert_eq!(spread_pct(&mut [90.0, 110.0, 100.0]), Some(20.0));
    }

    #[test]
    fn cells_are_plain_numbers() {
        assert_eq!(Cell::number(Some(f64::NAN), 2).to_tsv(), "NA");
        assert_eq!(Cell::number(Some(1.0 / 3.0), 3).to_tsv(), "0.333");
        assert_eq!(Cell::number(Some(1.0 / 3.0), 3).to_json(), Json::from(0.333));
        let precise =
            [2e7 / 3.0, -0.5, 0.0, 2e-9 / 3.0, f64::NAN].map(|value| Cell::precise(Some(value)).to_tsv());
        assert_eq!(precise, ["6666666.666667", "-0.500000", "0.000000", "0.000000000666667", "NA"]);
        assert_eq!(Cell::Text("exec:a\tb\nc".into()).to_tsv(), "exec:a b c");
    }
}
