//! Results as a table for people, or as TSV or JSON for programs.

use serde_json::{Map, Value as Json};

use crate::bench::{Configuration, Outcome};
use crate::error::Error;
use crate::plan::Plan;
use crate::row::{Row, median_row, round_row, unavailable_row};
use crate::verdict::Verdicts;

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

/// Medians of what was measured, then what could not be.
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

const HEADINGS: [(&str, &str); 14] = [
    ("workload", ""),
    ("target", ""),
    ("threads", ""),
    ("ops", "per s"),
    ("ops", "per CPU-s"),
    ("spread", "%"),
    ("read p50", "us"),
    ("read p99", "us"),
    ("write p50", "us"),
    ("write p99", "us"),
    ("held", "per raw"),
    ("settled", "per raw"),
    ("RSS", "per raw"),
    ("wrong", "answers"),
];
/// Columns of names, set to the left.
const NAMES: usize = 2;

fn table(plan: &Plan, outcome: &Outcome) -> String {
    let mut lines: Vec<Vec<String>> = vec![
        HEADINGS.iter().map(|(name, _)| (*name).to_owned()).collect(),
        HEADINGS.iter().map(|(_, unit)| (*unit).to_owned()).collect(),
    ];
    lines.extend(outcome.configurations.iter().map(line));
    // A column that says nothing in any row is left out.
    let used: Vec<usize> = (0..HEADINGS.len())
        .filter(|&column| lines[2..].iter().any(|line| !line[column].is_empty()))
        .collect();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);

    let mut text = title(plan);
    let mut workload = String::new();
    for (number, line) in lines.iter().enumerate() {
        if number > 2 && line[0] != workload {
            text.push('\n');
        }
        workload.clone_from(&line[0]);
        let mut row = String::new();
        for &column in &used {
            let width = width(column);
            row += &match column < NAMES {
                true => format!("{:<width$}  ", line[column]),
                false => format!("{:>width$}  ", line[column]),
            };
        }
        text += row.trim_end();
        text.push('\n');
    }
    for unavailable in &outcome.unavailable {
        text += &format!("{} {unavailable}\n", unavailable.spec.name());
    }
    text += &footer(plan, outcome);
    if plan.compares_codecs {
        text += &Verdicts::of(outcome).to_text();
    }
    text
}

/// Lines of cells in columns; the first `names` columns are set to the left, the others to the right.
pub(crate) fn aligned(lines: &[Vec<String>], names: usize) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
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

fn line(configuration: &Configuration) -> Vec<String> {
    let row = median_row(configuration);
    let number = |name: &str, decimals: usize| {
        let cell = row.iter().find(|(column, _)| *column == name).map(|(_, cell)| cell.to_tsv());
        let number = cell.and_then(|cell| cell.parse::<f64>().ok());
        number.map_or(String::new(), |number| grouped(number, decimals))
    };
    let stores = !configuration.is_harness;
    let per_raw = |name: &str| if stores { number(name, 2) } else { "-".into() };
    let figure =
        |name: &str| row.iter().find(|(column, _)| *column == name).and_then(|(_, cell)| cell.as_number());
    let rss_per_raw = figure("rss_bytes").zip(figure("raw_bytes")).filter(|&(_, raw)| raw > 0.0 && stores);
    let spec = &configuration.spec;
    vec![
        spec.workload.name.clone(),
        spec.name().replacen('_', " ", 1),
        spec.threads.to_string(),
        number("qps", 0),
        number("qps_per_cpu_core", 0),
        if configuration.rounds.len() > 1 { number("qps_per_cpu_core_spread_pct", 1) } else { String::new() },
        number("read_p50_us", 2),
        number("read_p99_us", 2),
        number("write_p50_us", 2),
        number("write_p99_us", 2),
        per_raw("held_per_raw"),
        if spec.settle_seconds > 0.0 { per_raw("settled_held_per_raw") } else { String::new() },
        rss_per_raw.map_or("-".into(), |(rss, raw)| format!("{:.2}", rss / raw)),
        number("mismatches", 0),
    ]
}

/// A number with separators between thousands.
pub(crate) fn grouped(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
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

fn title(plan: &Plan) -> String {
    let several =
        if plan.instances > 1 { format!(" in each of {} stores", plan.instances) } else { String::new() };
    let batches =
        if plan.multi_get > 1 { format!(", reads in batches of {}", plan.multi_get) } else { String::new() };
    let halves = match plan.train_on {
        crate::spec::TrainOn::All => "",
        crate::spec::TrainOn::FirstHalf => " (second half; the first half was loaded before)",
    };
    let rounds =
        if plan.rounds == 1 { "1 round".into() } else { format!("median of {} rounds", plan.rounds) };
    format!(
        "{} {} keys of {} B{several}, values of {} B from {}{halves}, {}{batches}; {rounds} of {} s\n\n",
        grouped(plan.keys as f64, 0),
        plan.key_shape,
        crate::keys::KEY_BYTES,
        plan.value_bytes,
        plan.corpus,
        plan.distribution,
        plan.seconds
    )
}

fn footer(plan: &Plan, outcome: &Outcome) -> String {
    let mut text = String::from(
        "\nper CPU-s: CPU time of the whole process, background threads included. held: bytes in the allocator's active\n\
         pages, less those before the store was opened; raw: bytes of live keys and values.",
    );
    if outcome
        .configurations
        .iter()
        .any(|one| one.rounds.iter().any(|round| round.loaded_held_bytes.is_some()))
    {
        text += " For a database on disk, held: bytes of its files.";
    }
    if plan.settle_seconds > 0.0 {
        text += &format!(" settled: after {} s of idling.", plan.settle_seconds);
    }
    text.push('\n');
    if outcome.configurations.iter().any(|configuration| configuration.is_harness) {
        text += "null stores nothing: its row is what the harness itself costs, and that cost is in every other row, too.\n";
    }
    if let Some(limit) = plan.until_p99_us {
        text += &steps(outcome, limit);
    }
    let notes: std::collections::BTreeSet<&str> = outcome
        .configurations
        .iter()
        .flat_map(|configuration| &configuration.rounds)
        .flat_map(|round| &round.notes)
        .filter(|note| !note.starts_with("memory:"))
        .map(String::as_str)
        .collect();
    for note in notes {
        text += &format!("note: {note}\n");
    }
    for configuration in &outcome.configurations {
        if let Some(first) = configuration.rounds.iter().find_map(|round| round.first_mismatch.as_ref()) {
            let (name, workload) = (configuration.spec.name(), &configuration.spec.workload.name);
            text += &format!("WRONG ANSWERS: {name}, {workload}; the first: {first}\n");
        }
    }
    if let Some(folder) = &outcome.folder {
        text += &format!("written to {}\n", folder.display());
    }
    text
}

fn steps(outcome: &Outcome, limit_us: f64) -> String {
    let mut text = format!(
        "\noffered rates until the 99th percentile passed {limit_us} us (open loop, latency from arrival):\n"
    );
    for configuration in &outcome.configurations {
        let spec = &configuration.spec;
        for step in configuration.rounds.iter().flat_map(|round| &round.steps) {
            text += &format!(
                "  {} {} {} thread(s): offered {} per s, done {}, p99 {} us{}\n",
                spec.name(),
                spec.workload.name,
                spec.threads,
                grouped(step.offered_per_sec, 0),
                grouped(step.done_per_sec, 0),
                grouped(step.p99_us, 1),
                if step.p99_us > limit_us { "  (too slow)" } else { "" }
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(grouped(1234567.0, 0), "1,234,567");
        assert_eq!(grouped(-1234.5, 2), "-1,234.50");
        assert_eq!(grouped(999.0, 0), "999");
    }
}
