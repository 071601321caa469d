//! Ways to use DRAM and far memory as a table, as TSV or as JSON.

use std::path::Path;

use super::memory_inputs::Memory;
use super::memory_mode::{Way, simulate_memory};
use crate::error::Error;
use crate::inputs::{deviation, effects};
use crate::results::row::{Cell, Row};
use crate::results::table::{Format, aligned, grouped, objects, tsv, wrapped};
use crate::statistics::Deviation;

/// Simulates the file at `path`, whose numbers are in `table`; the results in this format, ending with a newline.
/// `progress` gets the parts that are done, and all parts.
///
/// # Errors
///
/// The trace of the file cannot be read.
pub fn render_memory(
    path: &Path,
    memory: &Memory,
    table: &toml::Table,
    format: Format,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<String, Error> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let ways = simulate_memory(memory, folder, progress)
        .map_err(|sentence| Error::Inputs { path: path.to_owned(), sentence })?;
    let timed: Vec<Timed<'_>> = ways.iter().map(|way| Timed::new(way, memory, table)).collect();
    Ok(match format {
        Format::Tsv => tsv(timed.iter().map(Timed::row)),
        Format::Json => format!("{:#}\n", objects(timed.iter().map(Timed::row))),
        Format::Table => text(memory, &timed),
    })
}

/// A way and its times.
struct Timed<'a> {
    way: &'a Way,
    mean_ns: f64,
    /// One standard deviation of that, by the errors of latencies and bandwidths.
    deviation_ns: Option<Deviation>,
    far_bound: Option<f64>,
}

impl<'a> Timed<'a> {
    fn new(way: &'a Way, memory: &Memory, table: &toml::Table) -> Self {
        let counts = &way.counts;
        Timed {
            mean_ns: counts.mean_ns(memory),
            deviation_ns: deviation(&effects(table, |memory: &Memory| Some(counts.mean_ns(memory)))),
            far_bound: counts.far_bound(memory),
            way,
        }
    }

    /// Bytes of a request that far memory reads, and that it writes, with those of the background.
    fn far_bytes(&self) -> [f64; 2] {
        let counts = &self.way.counts;
        let of = |bytes: u64| bytes as f64 / counts.requests as f64;
        [
            of(counts.far_read_bytes + counts.moved_read_bytes),
            of(counts.far_write_bytes + counts.moved_write_bytes),
        ]
    }

    fn row(&self) -> Row {
        let number = |value: f64, decimals| Cell::number(Some(value), decimals);
        let [read, written] = self.far_bytes();
        vec![
            ("way", Cell::text(Some(self.way.name))),
            ("status", Cell::Text("predicted".into())),
            ("fits", Cell::text(Some(if self.way.fits { "yes" } else { "no" }))),
            ("requests", Cell::Count(self.way.counts.requests as i64)),
            ("dram_hits_pct", number(self.way.counts.hit_share() * 100.0, 3)),
            ("mean_ns", number(self.mean_ns, 2)),
            ("deviation_ns", Cell::number(self.deviation_ns.map(|deviation| deviation.error), 2)),
            ("deviation_freedom", Cell::freedom(self.deviation_ns)),
            ("far_read_bytes_per_request", number(read, 2)),
            ("far_written_bytes_per_request", number(written, 2)),
            ("write_amplification", Cell::number(self.way.counts.write_amplification(), 3)),
            ("far_bound_qps", Cell::number(self.far_bound, 0)),
        ]
    }
}

fn text(memory: &Memory, all: &[Timed<'_>]) -> String {
    const HEADINGS: [[&str; 9]; 2] = [
        ["predicted", "room", "DRAM", "mean", "+-95 %", "far read", "far written", "written", "far bound"],
        ["", "", "hits %", "ns", "ns", "B/request", "B/request", "far/own", "M/s"],
    ];
    let requests = match (&memory.trace, &memory.distribution) {
        (Some(trace), _) => trace.clone(),
        (None, distribution) => format!(
            "{} objects, {}",
            grouped(memory.objects.unwrap_or(0).into(), 0),
            distribution.as_deref().unwrap_or("uniform")
        ),
    };
    let title = format!(
        "{} GB of data, {} GB of DRAM, {} GB of far memory; {requests}, {} bytes each, {:.0} % writes",
        memory.data_gb.0,
        memory.dram.gb.0,
        memory.far.gb.0,
        memory.object_bytes,
        memory.write_share.0 * 100.0
    );
    let mut lines: Vec<Vec<String>> = HEADINGS.map(|line| line.map(str::to_owned).to_vec()).into();
    lines.extend(all.iter().map(|one| {
        let counts = &one.way.counts;
        let or_none = |figure: Option<f64>, decimals| {
            figure.map_or_else(|| "-".into(), |figure| grouped(figure, decimals))
        };
        let [read, written] = one.far_bytes();
        vec![
            one.way.name.into(),
            if one.way.fits { "enough" } else { "too little" }.into(),
            format!("{:.1}", counts.hit_share() * 100.0),
            grouped(one.mean_ns, 0),
            one.deviation_ns.map_or_else(String::new, |deviation| grouped(deviation.reach_95(), 0)),
            grouped(read, 0),
            grouped(written, 0),
            or_none(counts.write_amplification(), 2),
            or_none(one.far_bound.map(|bound| bound / 1e6), 2),
        ]
    }));
    wrapped(&title) + &aligned(&lines, 1)
}
