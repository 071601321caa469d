//! Measured runs, as `ziptier bench` wrote them: series of points that differ in threads and processors alone.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::network::waiting;
use crate::error::Error;
use crate::results::row::median;

/// A window that inserts keys or deletes some ends with another number of keys in each round.
const LOADED_KEYS: &str = "loaded_keys";
/// Columns that say which work a run did. Runs that agree in all of them are one series.
const SETTINGS: [&str; 27] = [
    "run",
    "workload",
    "codec",
    "engine",
    "target",
    LOADED_KEYS,
    "key_shape",
    "key_bytes",
    "value_bytes",
    "value_order",
    "corpus",
    "train_on",
    "distribution",
    "multi_get",
    "multi_put",
    "instances",
    "landing_bytes",
    "background",
    "block_bytes",
    "level",
    "huffman",
    "path",
    "context_cache",
    "landing_watermark_pct",
    "background_codec",
    "trace_hash",
    "model",
];

/// One run of a point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// Operations per second.
    pub throughput: f64,
    /// CPU-seconds of an operation; none if the servers' CPU time is not known.
    pub cpu_sec: Option<f64>,
}

/// A number of threads on a number of cores, and what was measured there.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Threads, those of all instances together.
    pub threads: usize,
    /// Cores that the work could use.
    pub cores: usize,
    /// Its rounds.
    pub rounds: Vec<Round>,
}

impl Point {
    /// Cores that the threads can keep busy.
    pub(super) fn busy(&self) -> usize {
        self.threads.min(self.cores)
    }

    /// The share of the threads that wait for a core if all want one.
    pub(super) fn waiting(&self) -> f64 {
        waiting(self.threads as f64, self.busy() as f64)
    }

    /// The median of the rounds' throughput.
    pub fn throughput(&self) -> f64 {
        let mut all: Vec<f64> = self.rounds.iter().map(|round| round.throughput).collect();
        median(&mut all).unwrap_or(f64::NAN)
    }

    /// The median of the rounds' CPU-seconds of an operation.
    pub fn cpu_sec(&self) -> Option<f64> {
        let mut all: Vec<f64> = self.rounds.iter().filter_map(|round| round.cpu_sec).collect();
        median(&mut all)
    }
}

/// Runs of the same work.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name, with the settings in which it differs from the other series.
    pub name: String,
    /// The model of a device that the runs had, if any: their figures are modelled.
    pub model: Option<String>,
    /// In the order of cores, then of threads.
    pub points: Vec<Point>,
    pub(super) settings: Vec<String>,
}

impl Series {
    /// One round of every point; nothing if a point has fewer rounds. A curve without one of its points is another
    /// curve, and no round of this one.
    pub(crate) fn round(&self, round: usize) -> Option<Series> {
        let of = |point: &Point| Some(Point { rounds: vec![*point.rounds.get(round)?], ..point.clone() });
        let points = self.points.iter().map(of).collect::<Option<Vec<Point>>>()?;
        (!points.is_empty()).then(|| Series { points, ..self.clone() })
    }
}

/// Reads all series of these files and folders. A folder is one of `ziptier bench --out`, or holds such folders.
/// `cores` stands for rows that do not say how many cores the work could use, as those of servers.
///
/// # Errors
///
/// A file cannot be read, lacks a column, or has a wrong answer in it; or there is no row of a closed loop.
pub fn read(paths: &[PathBuf], cores: Option<usize>) -> Result<Vec<Series>, Error> {
    let mut series: Vec<Series> = Vec::new();
    for path in paths {
        let files = tables(path)?;
        if files.is_empty() {
            return Err(refused(
                path,
                "there is no rounds.tsv in it; give a folder that ziptier bench --out wrote",
            ));
        }
        for file in files {
            let text = fs::read_to_string(&file).map_err(|source| io("read", &file, source))?;
            add(&mut series, &text, cores).map_err(|sentence| refused(&file, &sentence))?;
        }
    }
    if series.is_empty() {
        let path = paths.first().cloned().unwrap_or_default();
        return Err(refused(&path, "no row was measured in a closed loop, without --rate and --connections"));
    }
    for one in &mut series {
        one.points.sort_by_key(|point| (point.cores, point.threads));
    }
    name(&mut series);
    Ok(series)
}

/// The file itself, or the tables of rounds in a folder and in the folders of that.
fn tables(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let own = path.join("rounds.tsv");
    if own.is_file() {
        return Ok(vec![own]);
    }
    let entries = fs::read_dir(path).map_err(|source| io("read", path, source))?;
    let inner = entries.filter_map(|entry| Some(entry.ok()?.path().join("rounds.tsv")));
    let mut files: Vec<PathBuf> = inner.filter(|file| file.is_file()).collect();
    files.sort();
    Ok(files)
}

/// Adds the rows of a table. The error is a sentence that begins with the line.
fn add(series: &mut Vec<Series>, text: &str, cores: Option<usize>) -> Result<(), String> {
    let mut lines = text.lines().enumerate();
    let columns: Vec<&str> = lines.next().map(|(_, line)| line.split('\t').collect()).unwrap_or_default();
    // The table of a benchmark that was interrupted in its first run is empty.
    if !columns.is_empty() && !columns.contains(&"qps") {
        return Err(
            "line 1: it has no column qps; give a folder or a table that ziptier bench --out wrote".into()
        );
    }
    for (number, line) in lines {
        let (there, needed) = (line.split('\t').count(), columns.len());
        if there != needed {
            let number = number + 1;
            return Err(format!(
                "line {number}: it has {there} of {needed} columns, so that the file is damaged"
            ));
        }
        let row: HashMap<&str, &str> = columns.iter().copied().zip(line.split('\t')).collect();
        add_row(series, &row, cores).map_err(|sentence| format!("line {}: {sentence}", number + 1))?;
    }
    Ok(())
}

fn add_row(series: &mut Vec<Series>, row: &HashMap<&str, &str>, cores: Option<usize>) -> Result<(), String> {
    let known = |name: &str| row.get(name).copied().filter(|cell| *cell != "NA");
    let is_paced = known("offered_qps").or(known("trace_speed")).is_some();
    // Threads with several connections do not wait for one answer each, as clients of the model do.
    if known("status") != Some("measured") || is_paced || known("connections").is_some() {
        return Ok(());
    }
    let number = |name: &str| match known(name) {
        None => {
            Err(format!("the column {name} is missing; measure again with this version of ziptier bench"))
        }
        Some(cell) => {
            let number = cell.parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| format!("the column {name} has no number but {cell}"))
        }
    };
    if number("mismatches")? > 0.0 {
        return Err("some answers of this run were wrong: its figures say nothing".into());
    }
    let figure =
        |name: &str| known(name)?.parse().ok().filter(|figure: &f64| *figure > 0.0 && figure.is_finite());
    let qps = number("qps")?;
    let counted = figure("operations").zip(figure("wall_sec")).filter(|(_, sec)| is_coarser(qps, *sec));
    let throughput = counted.map_or(qps, |(operations, sec)| operations / sec);
    if throughput <= 0.0 {
        return Err("qps is 0: nothing can be predicted from it".into());
    }
    let cores = match (known("processors"), cores) {
        (None, Some(cores)) => cores,
        (None, None) => {
            return Err(
                "the row does not say how many processors the work could use; say it by --cores-measured"
                    .into(),
            );
        }
        (Some(_), _) => number("processors")? as usize,
    };
    let threads = (number("threads")? * number("instances")?) as usize;
    if threads == 0 || cores == 0 {
        return Err(format!(
            "it has {threads} threads on {cores} processors; give a row with one of each at least"
        ));
    }
    let rate = figure("qps_per_cpu_core");
    let busy = figure("cpu_cores").filter(|busy| rate.is_none_or(|rate| is_coarser(rate, *busy)));
    let cpu_sec = busy.map(|busy| busy / throughput).or(rate.map(f64::recip));
    let setting = |name: &str| match known(name) {
        // Older tables have the keys of the end alone.
        None if name == LOADED_KEYS => known("keys"),
        cell => cell,
    };
    let settings: Vec<String> = SETTINGS.iter().map(|name| setting(name).unwrap_or("").to_owned()).collect();
    let place = series.iter().position(|one| one.settings == settings).unwrap_or_else(|| {
        let model = known("model").map(str::to_owned);
        series.push(Series { name: String::new(), model, points: Vec::new(), settings });
        series.len() - 1
    });
    let points = &mut series[place].points;
    let found = points.iter().position(|point| (point.threads, point.cores) == (threads, cores));
    let round = Round { throughput, cpu_sec };
    match found {
        Some(found) => points[found].rounds.push(round),
        None => points.push(Point { threads, cores, rounds: vec![round] }),
    }
    Ok(())
}

/// Whether a figure of a table that is a whole number has fewer digits than one with three decimals. Rates of slow work
/// do, and busy cores of work that waits do not.
fn is_coarser(whole: f64, with_decimals: f64) -> bool {
    whole < 1_000.0 * with_decimals
}

/// Names each series by its run and workload, and by the settings that are not alike in all of them.
fn name(series: &mut [Series]) {
    let differs =
        |setting: &usize| series.iter().any(|one| one.settings[*setting] != series[0].settings[*setting]);
    let shown: Vec<usize> = (2..SETTINGS.len()).filter(differs).collect();
    for one in series {
        let mut words = vec![one.settings[0].clone(), one.settings[1].clone()];
        // The run names target, codec and engine already.
        let named = ["codec", "engine", "target"];
        let further = shown.iter().filter(|setting| !named.contains(&SETTINGS[**setting]));
        words.extend(further.map(|&setting| match one.settings[setting].as_str() {
            "" => format!("no {}", SETTINGS[setting]),
            value => format!("{} {value}", SETTINGS[setting]),
        }));
        one.name = words.join(", ");
    }
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io { action, path: path.to_owned(), source }
}

fn refused(path: &Path, sentence: &str) -> Error {
    Error::Inputs { path: path.to_owned(), sentence: sentence.into() }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A series of threads, cores, and the throughput of each round, whose CPU time keeps all cores busy.
    pub(crate) fn series(name: &str, points: &[(usize, usize, &[f64])]) -> Series {
        let point = |&(threads, cores, all): &(usize, usize, &[f64])| {
            let busy = threads.min(cores) as f64;
            let round = |&throughput: &f64| Round { throughput, cpu_sec: Some(busy / throughput) };
            Point { threads, cores, rounds: all.iter().map(round).collect() }
        };
        Series {
            name: name.into(),
            model: None,
            points: points.iter().map(point).collect(),
            settings: Vec::new(),
        }
    }

    const COLUMNS: &str = "run\tworkload\tthreads\tqps\tmismatches\tcpu_cores\tinstances\tprocessors\toffered_qps\t\
                           status\tvalue_bytes\ttrace_speed\tkey_bytes\tqps_per_cpu_core\tkeys\tloaded_keys\t\
                           operations\twall_sec\tconnections";

    fn read_text(rows: &[&str]) -> Result<Vec<Series>, String> {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("20260418T021637Z");
        fs::create_dir(&inner).unwrap();
        let columns = COLUMNS.split('\t').count();
        let whole = |row: &&str| {
            let cells = row.split(' ').chain(std::iter::repeat("NA")).take(columns);
            cells.collect::<Vec<_>>().join("\t")
        };
        let rows: Vec<String> = rows.iter().map(whole).collect();
        fs::write(inner.join("rounds.tsv"), format!("{COLUMNS}\n{}\n", rows.join("\n"))).unwrap();
        read(&[folder.path().to_owned()], None).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_become_series_points_and_rounds() {
        let all = read_text(&[
            "store read_only 2 200 0 1.5 2 4 NA measured 128",
            "store read_only 1 100 0 1.0 1 4 NA measured 128",
            "store read_only 1 110 0 1.0 1 4 NA measured 128",
            "store read_only 1 120 0 1.0 1 4 NA measured 256",
            "store read_only 1 50 0 1.0 1 4 500 measured 128",
            "store read_only 4 900 0 1.0 1 4 NA measured 128 NA NA NA NA NA NA NA 8",
            "other read_only NA NA NA NA NA NA NA unavailable NA",
        ])
        .unwrap();
        let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "store, read_only, value_bytes 128, instances 2",
                "store, read_only, value_bytes 128, instances 1",
                "store, read_only, value_bytes 256, instances 1"
            ]
        );
        assert_eq!((all[0].points[0].threads, all[0].points[0].cores), (4, 4));
        assert_eq!(all[0].points[0].cpu_sec(), Some(1.5 / 200.0));
        assert_eq!((all[1].points.len(), all[1].points[0].rounds.len()), (1, 2));
        assert_eq!(all[1].points[0].throughput(), 105.0);
    }

    #[test]
    fn cpu_time_of_work_that_waits_is_exact() {
        let all = read_text(&["store read_only 1 100 0 0.002 1 4 NA measured 128 NA 16 40000"]).unwrap();
        assert_eq!(all[0].points[0].cpu_sec(), Some(25e-6));
        let all = read_text(&["store read_only 1 100 0 inf 1 4 NA measured 128 NA 16 NA"]).unwrap();
        assert_eq!(all[0].points[0].cpu_sec(), None);
    }

    #[test]
    fn slow_work_has_more_than_the_whole_operations_of_a_second() {
        let of = |row: &str| {
            let all = read_text(&[row]).unwrap();
            (all[0].points[0].throughput(), all[0].points[0].cpu_sec())
        };
        let slow = of("exec scan 1 3 0 0.500 1 4 NA measured 128 NA 16 7 NA NA 34 10.000");
        assert_eq!(slow, (3.4, Some(0.5 / 3.4)));
        // A window of five milliseconds has one digit.
        let short =
            of("store read_only 1 4250000 0 0.941 1 4 NA measured 128 NA 16 4500000 NA NA 21250 0.005");
        assert_eq!(short, (4_250_000.0, Some(1.0 / 4_500_000.0)));
    }

    #[test]
    fn rounds_that_insert_other_numbers_of_keys_are_of_one_series() {
        let inserts = |ends: [&str; 3]| {
            let row = |end: &&str| format!("store ycsb_d 1 100 0 1.0 1 4 NA measured 128 NA 16 NA {end}");
            let rows: Vec<String> = ends.iter().map(row).collect();
            let all = read_text(&rows.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
            all.iter().map(|one| (one.name.clone(), one.points[0].rounds.len())).collect::<Vec<_>>()
        };
        let of = |name: &str, rounds: usize| (format!("store, ycsb_d{name}"), rounds);
        assert_eq!(inserts(["70 50", "80 50", "90 50"]), [of("", 3)]);
        assert_eq!(
            inserts(["70 50", "70 60", "90 60"]),
            [of(", loaded_keys 50", 1), of(", loaded_keys 60", 2)]
        );
        // Tables of older versions have no such column.
        assert_eq!(inserts(["50", "60", "60"]), [of(", loaded_keys 50", 1), of(", loaded_keys 60", 2)]);
    }

    #[test]
    fn runs_of_other_keys_are_another_series_and_a_trace_at_its_own_times_is_none() {
        let all = read_text(&[
            "store read_only 1 100 0 1.0 1 4 NA measured 128 NA 16",
            "store read_only 1 300 0 1.0 1 4 NA measured 128 NA 100",
            "store read_only 1 5 0 1.0 1 4 NA measured 128 2.0 16",
        ])
        .unwrap();
        let found: Vec<(&str, f64)> =
            all.iter().map(|one| (one.name.as_str(), one.points[0].throughput())).collect();
        let expected =
            [("store, read_only, key_bytes 16", 100.0), ("store, read_only, key_bytes 100", 300.0)];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_row_that_says_nothing_is_told_by_line_and_column() {
        for (row, expected) in [
            (
                "store read_only 1 100 3 1.0 1 4 NA measured 128",
                "line 2: some answers of this run were wrong",
            ),
            ("store read_only 1 NA 0 1.0 1 4 NA measured 128", "line 2: the column qps is missing"),
            ("store read_only 1 100 0 1.0 1 NA NA measured 128", "say it by --cores-measured"),
            (
                "store read_only 1 nan 0 1.0 1 4 NA measured 128",
                "line 2: the column qps has no number but nan",
            ),
            ("store read_only 0 100 0 1.0 1 4 NA measured 128", "line 2: it has 0 threads on 4 processors"),
            ("store read_only 1 100 0 1.0 1 4 99 measured 128", "no row was measured in a closed loop"),
            // A search in which no rate kept the limit.
            ("store read_only 1 100 0 1.0 1 4 0 measured 128", "no row was measured in a closed loop"),
        ] {
            let told = read_text(&[row]).unwrap_err();
            assert!(told.contains(expected), "{told}");
        }
        let cut = format!("{COLUMNS}\nstore\tread_only\t1\t10");
        let told = add(&mut Vec::new(), &cut, None).unwrap_err();
        assert_eq!(told, "line 2: it has 4 of 19 columns, so that the file is damaged");
        let told = add(&mut Vec::new(), "# Prices of servers\n[work]\n", None).unwrap_err();
        assert!(told.starts_with("line 1: it has no column qps; give a folder"), "{told}");
    }
}
