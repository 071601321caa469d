//! Results as a table for people, or as TSV or JSON for programs.

use serde_json::{Map, Value as Json};

use crate::bench::plan::Plan;
use crate::bench::{Configuration, Outcome};
use crate::error::Error;
use crate::results::footer::footer;
use crate::results::row::{Row, fixed, median_row, round_row, unavailable_row};
use crate::run::spec::RunSpec;
use crate::suites::verdict::Verdicts;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Columns with units, for people.
    Table,
    /// Tab-separated values: one row per configuration, medians over the rounds.
    Tsv,
    /// The same rows as JSON objects, with the rounds and latency steps inside.
    Json,
}

impl std::str::FromStr for Format {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "table" => Ok(Format::Table),
            "tsv" => Ok(Format::Tsv),
            "json" => Ok(Format::Json),
            _ => Err(Error::Unknown { what: "format", given: text.into(), known: "table, tsv, json".into() }),
        }
    }
}

/// The results as text that ends with a newline.
pub fn render(plan: &Plan, outcome: &Outcome, format: Format) -> String {
    match format {
        Format::Table => table(plan, outcome),
        Format::Tsv => tsv(summary_rows(outcome).into_iter()),
        Format::Json => json(outcome),
    }
}

/// Medians of the measured configurations, then the unavailable ones.
pub(crate) fn summary_rows(outcome: &Outcome) -> Vec<Row> {
    let mut rows: Vec<Row> = outcome.configurations.iter().map(median_row).collect();
    if let Some(columns) = rows.first().cloned() {
        rows.extend(outcome.unavailable.iter().map(|unavailable| unavailable_row(&columns, unavailable)));
    }
    rows
}

pub(crate) fn tsv(rows: impl Iterator<Item = Row>) -> String {
    let mut text = String::new();
    for row in rows {
        if text.is_empty() {
            text += &row.iter().map(|(name, _)| *name).collect::<Vec<_>>().join("\t");
            text.push('\n');
        }
        text += &row.iter().map(|(_, cell)| cell.to_tsv()).collect::<Vec<_>>().join("\t");
        text.push('\n');
    }
    text
}

/// Rows as an array of JSON objects.
pub(crate) fn objects(rows: impl Iterator<Item = Row>) -> Json {
    rows.map(object).map(Json::from).collect()
}

fn object(row: Row) -> Map<String, Json> {
    row.into_iter().map(|(name, cell)| (name.to_owned(), cell.to_json())).collect()
}

fn json(outcome: &Outcome) -> String {
    let rows: Vec<Json> = outcome
        .configurations
        .iter()
        .map(|configuration| {
            let mut row = object(median_row(configuration));
            let rounds = (0..configuration.rounds.len())
                .map(|round| Json::from(object(round_row(configuration, round))));
            row.insert("round_rows".into(), rounds.collect());
            let steps = configuration
                .rounds
                .iter()
                .flat_map(|round| &round.steps)
                .map(|step| serde_json::json!(step));
            row.insert("latency_steps".into(), steps.collect());
            Json::from(row)
        })
        .collect();
    let measured = outcome.configurations.len();
    let unavailable = summary_rows(outcome).into_iter().skip(measured).map(|row| Json::from(object(row)));
    format!("{:#}\n", rows.into_iter().chain(unavailable).collect::<Json>())
}

/// Columns of the table of speed: name and unit.
const SPEED: [(&str, &str); 10] = [
    ("speed", ""),
    ("ops", "k/s"),
    ("ops", "k/CPU-s"),
    ("ratio", ""),
    ("spread", "%"),
    ("read", "p50 us"),
    ("read", "p99 us"),
    ("write", "p50 us"),
    ("write", "p99 us"),
    ("hits", "%"),
];
/// Columns of the table of memory.
const MEMORY: [(&str, &str); 9] = [
    ("memory", ""),
    ("held", "/raw"),
    ("RSS", "/raw"),
    ("settled", "held/raw"),
    ("settled", "RSS/raw"),
    ("covers", "times"),
    ("load", "us/key"),
    ("settle", "us/key"),
    ("wrong", ""),
];
/// The width of a terminal that nobody widened.
const COLUMNS: usize = 80;

fn table(plan: &Plan, outcome: &Outcome) -> String {
    let mut text = wrapped(&title(plan, outcome));
    let in_group = |one: &Configuration, other: &Configuration| group(plan, one) == group(plan, other);
    for group_of in outcome.configurations.chunk_by(in_group) {
        let [first, ..] = group_of else { continue };
        text += &format!("\n{}", group(plan, first));
        let rows: Vec<Row> = group_of.iter().map(median_row).collect();
        let line = |row, one| speed(row, one, &rows[0]);
        text += &tabulated(&SPEED, rows.iter().zip(group_of).map(|(row, one)| line(row, one)).collect(), 1);
        text +=
            &tabulated(&MEMORY, rows.iter().zip(group_of).map(|(row, one)| memory(row, one)).collect(), 1);
    }
    text += &unavailable(outcome);
    text += &footer(plan, outcome);
    if plan.compares_codecs {
        text += &Verdicts::of(outcome).to_text();
    }
    text
}

/// The unavailable configurations, grouped by reason.
fn unavailable(outcome: &Outcome) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for unavailable in &outcome.unavailable {
        let name = unavailable.spec.name();
        match reasons.iter_mut().find(|(reason, _)| *reason == unavailable.reason) {
            Some((_, names)) => names.push(name),
            None => reasons.push((&unavailable.reason, vec![name])),
        }
    }
    let said = |(reason, names): &(&str, Vec<String>)| {
        format!("\n{}", wrapped(&format!("{} unavailable: {reason}", names.join(", "))))
    };
    reasons.iter().map(said).collect()
}

/// Headings and lines in columns, the first `names` of them names; a column that says nothing in any line is left out.
pub(crate) fn tabulated<const N: usize>(
    headings: &[(&str, &str); N],
    lines: Vec<[String; N]>,
    names: usize,
) -> String {
    let used = |column: &usize| lines.iter().any(|line| !line[*column].is_empty());
    let used: Vec<usize> = (0..N).filter(used).collect();
    let titles = headings.each_ref().map(|(name, _)| (*name).to_owned());
    let units = headings.each_ref().map(|(_, unit)| (*unit).to_owned());
    let lines = [titles, units].into_iter().chain(lines);
    let kept = |line: [String; N]| used.iter().map(|&column| line[column].clone()).collect();
    aligned(&lines.map(kept).collect::<Vec<Vec<String>>>(), names)
}

/// Breaks a text at spaces into lines that fit a terminal.
pub(crate) fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    for paragraph in text.lines() {
        let mut width = 0;
        for word in paragraph.split(' ') {
            let space = usize::from(width > 0);
            if width > 0 && width + space + word.len() > COLUMNS {
                lines.push('\n');
                width = 0;
            } else if space > 0 {
                lines.push(' ');
                width += 1;
            }
            lines += word;
            width += word.len();
        }
        lines.push('\n');
    }
    lines
}

/// A text behind a begin, broken at spaces into lines that fit a terminal. Further lines begin below the text.
pub fn folded(begin: &str, text: &str) -> String {
    let indent = begin.chars().count();
    let (mut lines, mut width) = (begin.to_owned(), indent);
    for (place, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if place > 0 && width + 1 + length > COLUMNS {
            lines.push('\n');
            lines += &" ".repeat(indent);
            width = indent;
        } else if place > 0 {
            lines.push(' ');
            width += 1;
        }
        lines += word;
        width += length;
    }
    lines.push('\n');
    lines
}

/// Lines of cells in columns; the first `names` columns are set to the left, the others to the right. If they are wider
/// than a terminal, the longest cells of the first column stand on lines of their own.
pub(crate) fn aligned(lines: &[Vec<String>], names: usize) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize, most: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count());
        cells.filter(|width| *width <= most).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..columns).map(|column| width(column, usize::MAX)).collect();
    let others: usize = widths.iter().skip(1).map(|width| width + 2).sum();
    if let Some(first) = widths.first_mut().filter(|first| **first + others > COLUMNS) {
        *first = width(0, COLUMNS.saturating_sub(others));
    }
    let mut text = String::new();
    for line in lines {
        let mut line = line.clone();
        if line.first().is_some_and(|name| name.chars().count() > widths[0]) {
            text += &line[0];
            text.push('\n');
            line[0].clear();
        }
        let mut row = String::new();
        for (column, (cell, &width)) in line.iter().zip(&widths).enumerate() {
            row += &match column < names {
                true => format!("{cell:<width$}  "),
                false => format!("{cell:>width$}  "),
            };
        }
        text += row.trim_end();
        text.push('\n');
    }
    text
}

/// The common settings of a group of rows, in words.
fn group(plan: &Plan, configuration: &Configuration) -> String {
    let spec = &configuration.spec;
    let mut words = spec.workload.name.clone();
    let own = &spec.workload.settings;
    if own.keys.is_some() {
        words += &format!(", {} keys", grouped(spec.keys as f64, 0));
    }
    if own.distribution.is_some() {
        words += &format!(", {}", spec.distribution);
    }
    if own.key_bytes.is_some() {
        words += &format!(", keys of {} B", key_bytes(spec));
    }
    if plan.value_bytes.len() > 1 || own.value_bytes.is_some() {
        words += &format!(", values of {} B", spec.value_bytes);
    }
    if plan.value_orders.len() > 1 {
        words += &format!(", {}", spec.value_order);
    }
    words += &format!(", {}", spec.threads_in_words());
    wrapped(&words)
}

fn figure(row: &Row, name: &str) -> Option<f64> {
    row.iter().find(|(column, _)| *column == name).and_then(|(_, cell)| cell.as_number())
}

fn number(row: &Row, name: &str, decimals: usize) -> String {
    figure(row, name).map_or(String::new(), |number| grouped(number, decimals))
}

/// With three digits at least.
fn three_digits(number: Option<f64>) -> String {
    let Some(number) = number else { return String::new() };
    let decimals = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    grouped(number, decimals)
}

fn thousands(row: &Row, name: &str) -> String {
    three_digits(figure(row, name).map(|number| number / 1e3))
}

pub(super) fn in_columns(spec: &RunSpec) -> String {
    spec.name().replacen('_', " ", 1)
}

fn speed(row: &Row, configuration: &Configuration, first: &Row) -> [String; SPEED.len()] {
    let per_cpu = |row| figure(row, "qps_per_cpu_core").filter(|rate| *rate > 0.0);
    let ratio = per_cpu(row).zip(per_cpu(first)).map(|(own, first)| format!("{:.2}", own / first));
    [
        in_columns(&configuration.spec),
        thousands(row, "qps"),
        thousands(row, "qps_per_cpu_core"),
        ratio.unwrap_or_default(),
        number(row, "qps_per_cpu_core_spread_pct", 1),
        three_digits(figure(row, "read_p50_us")),
        three_digits(figure(row, "read_p99_us")),
        three_digits(figure(row, "write_p50_us")),
        three_digits(figure(row, "write_p99_us")),
        number(row, "hit_pct", 1),
    ]
}

fn memory(row: &Row, configuration: &Configuration) -> [String; MEMORY.len()] {
    let stores = !configuration.is_harness;
    let raw = figure(row, "raw_bytes").filter(|raw| *raw > 0.0 && stores);
    let over = |name: &str, base: Option<f64>, decimals| match figure(row, name).zip(base) {
        Some((figure, base)) => grouped(figure / base, decimals),
        None if stores => String::new(),
        None => "-".into(),
    };
    let settled =
        |name| if configuration.spec.settle_seconds > 0.0 { over(name, raw, 2) } else { String::new() };
    let per_key = |keys: Option<f64>| keys.filter(|keys| *keys > 0.0 && stores).map(|keys| keys / 1e6);
    let live = per_key(figure(row, "keys"));
    // The window may have inserted others and deleted some.
    let loaded = per_key(configuration.rounds.first().map(|round| round.loaded_keys as f64));
    let settles = configuration.spec.settle_seconds > 0.0;
    [
        in_columns(&configuration.spec),
        over("held_bytes", raw, 2),
        over("rss_bytes", raw, 2),
        settled("settled_held_bytes"),
        settled("settled_rss_bytes"),
        number(row, "coverage", 2),
        over("load_cpu_sec", loaded, 2),
        if settles { over("settle_cpu_sec", live, 2) } else { String::new() },
        number(row, "mismatches", 0),
    ]
}

/// A number with separators between thousands.
pub(crate) fn grouped(number: f64, decimals: usize) -> String {
    let text = fixed(number, decimals);
    let (whole, fraction) =
        text.split_once('.').map_or((text.as_str(), ""), |(whole, fraction)| (whole, fraction));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut out = String::from(sign);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out += fraction;
    }
    out
}

/// The values of a list, in a sentence.
fn listed<T: ToString>(list: &[T]) -> String {
    list.iter().map(T::to_string).collect::<Vec<_>>().join(" and ")
}

/// The different values of a setting, in a sentence.
fn distinct(outcome: &Outcome, setting: impl Fn(&RunSpec) -> String) -> String {
    let mut all: Vec<String> = Vec::new();
    for configuration in &outcome.configurations {
        let value = setting(&configuration.spec);
        if !all.contains(&value) {
            all.push(value);
        }
    }
    listed(&all)
}

/// Lengths of the keys of a run.
fn key_bytes(spec: &RunSpec) -> String {
    let keys = spec.key_space();
    keys.bytes().map_or_else(|| format!("up to {}", keys.bytes_max()), |bytes| bytes.to_string())
}

fn title(plan: &Plan, outcome: &Outcome) -> String {
    let several =
        if plan.instances > 1 { format!(" in each of {} stores", plan.instances) } else { String::new() };
    let in_batches = |what: &str, number: usize| match number {
        1 => String::new(),
        number => format!(", {what} in batches of {number}"),
    };
    let connections = plan.connections.map(|number| format!(", {number} connections")).unwrap_or_default();
    let batches = in_batches("reads", plan.multi_get) + &in_batches("writes", plan.multi_put) + &connections;
    let halves = match plan.train_on {
        crate::run::spec::TrainOn::All => "",
        crate::run::spec::TrainOn::FirstHalf => " (second half; the first half was loaded before)",
    };
    let rounds =
        if plan.rounds == 1 { "1 round".into() } else { format!("median of {} rounds", plan.rounds) };
    let window = distinct(outcome, RunSpec::window_in_words);
    if outcome.configurations.iter().all(|one| one.spec.trace().is_some()) {
        let speed = |spec: &RunSpec| match spec.trace().and_then(|trace| trace.speed) {
            None => "as fast as answers come".to_owned(),
            Some(speed) => format!("at {speed} times the speed of the trace, whatever the answers"),
        };
        return format!(
            "keys and lengths of values of the trace, values from {}; requests come {}; {rounds} of {window}",
            plan.corpus,
            distinct(outcome, speed)
        );
    }
    format!(
        "{} {} keys of {} B{several}, values of {} B from {}{halves} ({}), {}{batches}; {rounds} of {window}",
        distinct(outcome, |spec| grouped(spec.keys as f64, 0)),
        distinct(outcome, |spec| spec.key_shape.to_string()),
        distinct(outcome, key_bytes),
        distinct(outcome, |spec| spec.value_bytes.to_string()),
        plan.corpus,
        listed(&plan.value_orders),
        distinct(outcome, |spec| spec.distribution.to_string()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::database::tests::configuration;

    #[test]
    fn the_cost_of_a_load_is_shared_by_the_keys_that_were_loaded() {
        let mut one = configuration("builtin-zstd", 4096, &[[100, 1000, 80]]);
        // Two seconds for ten keys; the window has inserted as many again.
        one.rounds[0].keys = 20;
        let place = MEMORY.iter().position(|(name, _)| *name == "load").unwrap();
        assert_eq!(memory(&median_row(&one), &one)[place], "200,000.00");
    }

    #[test]
    fn thousands_are_separated() {
        assert_eq!(grouped(1234567.0, 0), "1,234,567");
        assert_eq!(grouped(-1234.5, 2), "-1,234.50");
        assert_eq!(grouped(999.0, 0), "999");
    }

    #[test]
    fn what_rounds_to_nothing_has_no_sign() {
        assert_eq!([grouped(-0.3, 0), fixed(-0.04, 1), fixed(-0.06, 1)], ["0", "0.0", "-0.1"]);
    }

    #[test]
    fn tables_that_are_too_wide_have_long_names_on_lines_of_their_own() {
        let line = |name: &str| {
            let figures = ["1,234,567", "2,345,678", "3,456,789", "4,567,890", "5,678,901"];
            std::iter::once(name).chain(figures).map(str::to_owned).collect::<Vec<_>>()
        };
        let text = aligned(&[line("short"), line(&"long".repeat(10)), line("")], 1);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[1]), (4, "long".repeat(10).as_str()));
        assert!(lines.iter().all(|line| line.len() <= COLUMNS), "{text}");
        // The figures stand below each other.
        assert_eq!([lines[0], lines[2], lines[3]].map(|line| line.find("1,234,567")), [Some(7); 3], "{text}");
        // A table that fits keeps its names beside the figures.
        assert_eq!(aligned(&[line("short"), line("longer")], 1).lines().count(), 2);
    }
}
