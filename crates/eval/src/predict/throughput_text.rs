//! Predictions of throughput, and their checks, as a table, as TSV or as JSON.

use super::throughput::{HeldOut, Predicted, Prediction, median_and_largest};
use crate::results::row::{Cell, Row};
use crate::results::table::{Format, aligned, grouped, objects, tsv, wrapped};
use crate::statistics::Deviation;

/// What a row is, with `modelled` where a device of it is.
fn status(is_modelled: bool) -> String {
    if is_modelled { "predicted, modelled" } else { "predicted" }.into()
}

/// The predictions in this format, ending with a newline.
pub fn render_predicted(all: &[Predicted], format: Format) -> String {
    let rows = || all.iter().flat_map(rows);
    match format {
        Format::Tsv => tsv(rows()),
        Format::Json => format!("{:#}\n", objects(rows())),
        Format::Table => all.iter().map(predicted_text).collect::<Vec<_>>().join("\n"),
    }
}

fn rows(one: &Predicted) -> impl Iterator<Item = Row> {
    let predicted = one.predictions.iter().map(|prediction| {
        let status = status(prediction.is_modelled);
        row(one, status, prediction.case.as_deref(), Some(prediction))
    });
    let impossible = one
        .impossible
        .iter()
        .map(|(case, sentence)| row(one, format!("impossible: {sentence}"), Some(case.as_str()), None));
    predicted.chain(impossible)
}

fn row(one: &Predicted, status: String, case: Option<&str>, prediction: Option<&Prediction>) -> Row {
    let Predicted { series, demands, .. } = one;
    let number = |of: &dyn Fn(&Prediction) -> f64, decimals| Cell::number(prediction.map(of), decimals);
    let fitted = |value: f64, decimals| Cell::number(Some(value), decimals);
    let deviation = prediction.and_then(Prediction::deviation_pct);
    let beyond = prediction.map(|prediction| if prediction.is_beyond { "yes" } else { "no" });
    vec![
        ("series", Cell::text(Some(series))),
        ("status", Cell::Text(status)),
        ("case", Cell::text(case)),
        ("threads", Cell::number(prediction.and_then(|prediction| prediction.threads), 0)),
        ("cores", number(&|prediction| prediction.cores, 3)),
        ("qps", number(&|prediction| prediction.solution.throughput, 0)),
        ("latency_us_mean", number(&|prediction| prediction.solution.latency_sec * 1e6, 3)),
        ("deviation_pct", Cell::number(deviation.map(|pct| pct.error), 2)),
        ("deviation_freedom", Cell::freedom(deviation)),
        ("cpu_us", number(&|prediction| prediction.cpu_sec * 1e6, 4)),
        ("busy_cores", number(&Prediction::busy_cores, 3)),
        ("bound", Cell::text(prediction.map(|prediction| prediction.bound.as_str()))),
        ("beyond_measured_cores", Cell::text(beyond)),
        ("measured_qps", Cell::number(prediction.and_then(|prediction| prediction.measured), 0)),
        ("fitted_cpu_us", fitted(demands.cpu_sec * 1e6, 4)),
        ("fitted_contention", fitted(demands.contention, 6)),
        ("fitted_coherency", fitted(demands.coherency, 6)),
        ("fitted_crowding", fitted(demands.crowding, 6)),
        ("fitted_blocking", fitted(demands.blocking, 6)),
        ("fitted_wait_us", fitted(demands.wait_sec * 1e6, 4)),
        ("fitted_share_left_by_others", fitted(demands.left_of(usize::MAX), 4)),
    ]
}

impl Prediction {
    /// Cores that the operations keep busy. Threads that wait for each other are at the cores, too, without CPU time.
    fn busy_cores(&self) -> f64 {
        self.solution.throughput * self.cpu_sec
    }

    /// One standard deviation in per cent of the uncertain figure: throughput, or at a rate latency.
    fn deviation_pct(&self) -> Option<Deviation> {
        let figure =
            if self.threads.is_some() { self.solution.throughput } else { self.solution.latency_sec };
        self.deviation.map(|deviation| deviation.times(100.0 / figure))
    }
}

fn predicted_text(one: &Predicted) -> String {
    const HEADINGS: [&str; 10] = [
        "predicted",
        "threads",
        "cores",
        "ops/s",
        "+-95 %",
        "mean us",
        "CPU us",
        "busy",
        "bound by",
        "measured",
    ];
    let mut text = wrapped(&fitted(one));
    if !one.predictions.is_empty() {
        let lines = one.predictions.iter().map(line);
        text += &aligned(
            &std::iter::once(HEADINGS.map(str::to_owned).to_vec()).chain(lines).collect::<Vec<_>>(),
            1,
        );
    }
    for (case, sentence) in &one.impossible {
        text += &wrapped(&format!("{case}: {sentence}"));
    }
    if one.predictions.iter().any(|prediction| prediction.is_beyond) {
        text += &wrapped(
            "* more cores than were measured: contention that shows only there is not in the prediction",
        );
    }
    text
}

/// The fitted demands in words.
fn fitted(one: &Predicted) -> String {
    let demands = &one.demands;
    let begin = format!(
        "{}. Fitted: {:.3} us of CPU time for an operation, contention {:.4}, coherency {:.5}, crowding {:.4}, \
         {:.3} us away from the cores",
        one.series,
        demands.cpu_sec * 1e6,
        demands.contention,
        demands.coherency,
        demands.crowding,
        demands.wait_sec * 1e6
    );
    match demands.left.as_slice() {
        [] => format!("{begin}, contention without CPU time {:.4}", demands.blocking),
        left => {
            let each = left.iter().map(|(busy, left)| format!("{:.0} % of {busy}", left * 100.0));
            let each = each.collect::<Vec<_>>().join(", ");
            format!(
                "{begin}. Others left part of the busy cores ({each}); the predictions are for all of them"
            )
        }
    }
}

fn line(prediction: &Prediction) -> Vec<String> {
    let own = &prediction.solution;
    let name = match (&prediction.case, prediction.is_modelled) {
        (None, false) => String::new(),
        (None, true) => "modelled".into(),
        (Some(case), false) => case.clone(),
        (Some(case), true) => format!("{case} (modelled)"),
    };
    let star = if prediction.is_beyond { "*" } else { "" };
    vec![
        name,
        prediction.threads.map_or_else(|| "rate".into(), |threads| grouped(threads, 0)),
        grouped(prediction.cores, usize::from(prediction.cores.fract() > 0.0)) + star,
        grouped(own.throughput, 0),
        prediction.deviation_pct().map_or_else(String::new, |pct| format!("{:.1} %", pct.reach_95())),
        grouped(own.latency_sec * 1e6, 2),
        grouped(prediction.cpu_sec * 1e6, 2),
        grouped(prediction.busy_cores(), 1),
        prediction.bound.clone(),
        prediction.measured.map_or_else(String::new, |measured| grouped(measured, 0)),
    ]
}

/// The checks in this format, ending with a newline.
pub fn render_held_out(all: &[HeldOut], format: Format) -> String {
    let rows = || all.iter().map(held_out_row);
    match format {
        Format::Tsv => tsv(rows()),
        Format::Json => format!("{:#}\n", objects(rows())),
        Format::Table => {
            all.chunk_by(|one, other| one.series == other.series).map(held_out_text).collect::<String>()
                + &verdict(all)
        }
    }
}

fn held_out_row(one: &HeldOut) -> Row {
    let point = &one.point;
    let pct = |error: Option<f64>| Cell::number(error.map(|error| error * 100.0), 2);
    let us = |sec: Option<f64>| Cell::number(sec.map(|sec| sec * 1e6), 4);
    vec![
        ("series", Cell::text(Some(&one.series))),
        ("status", Cell::Text(status(one.is_modelled))),
        ("threads", Cell::Count(point.threads as i64)),
        ("cores", Cell::Count(point.cores as i64)),
        ("measured_qps", Cell::number(Some(point.throughput()), 0)),
        ("predicted_qps", Cell::number(one.throughput, 0)),
        ("qps_error_pct", pct(one.throughput_error())),
        ("measured_cpu_us", us(point.cpu_sec())),
        ("predicted_cpu_us", us(one.cpu_sec)),
        ("cpu_error_pct", pct(one.cpu_error())),
    ]
}

fn held_out_text(series: &[HeldOut]) -> String {
    const HEADINGS: [[&str; 8]; 2] = [
        ["threads", "cores", "ops/s", "ops/s", "error", "CPU us", "CPU us", "error"],
        ["", "", "measured", "predicted", "%", "measured", "predicted", "%"],
    ];
    let mut lines: Vec<Vec<String>> = HEADINGS.map(|line| line.map(str::to_owned).to_vec()).into();
    let figure =
        |figure: Option<f64>, decimals| figure.map_or_else(|| "-".into(), |figure| grouped(figure, decimals));
    let pct = |error: Option<f64>| error.map_or_else(|| "-".into(), |error| format!("{:+.1}", error * 100.0));
    let us = |sec: Option<f64>| figure(sec.map(|sec| sec * 1e6), 3);
    lines.extend(series.iter().map(|one| {
        vec![
            one.point.threads.to_string(),
            one.point.cores.to_string(),
            grouped(one.point.throughput(), 0),
            figure(one.throughput, 0),
            pct(one.throughput_error()),
            us(one.point.cpu_sec()),
            us(one.cpu_sec),
            pct(one.cpu_error()),
        ]
    }));
    let [first, ..] = series else { return String::new() };
    let modelled = if first.is_modelled { ", modelled" } else { "" };
    wrapped(&format!("{}{modelled}: each predicted by a fit without it", first.series))
        + &aligned(&lines, 0)
        + "\n"
}

/// The median and the largest error of all points.
fn verdict(all: &[HeldOut]) -> String {
    let said = |what: &str, errors: &dyn Fn(&HeldOut) -> Option<f64>| {
        median_and_largest(all.iter().filter_map(errors)).map_or_else(String::new, |(median, largest)| {
            format!("{what}: median {:.1} %, largest {:.1} %\n", median * 100.0, largest * 100.0)
        })
    };
    let lost = all.iter().filter(|one| one.throughput.is_none()).count();
    let lost = match lost {
        0 => String::new(),
        lost => format!("{lost} not predicted: no other point of its series was measured\n"),
    };
    said("error of ops/s", &HeldOut::throughput_error)
        + &said("error of CPU time", &HeldOut::cpu_error)
        + &lost
}
