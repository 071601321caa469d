//! The plot of a bypass suite: one row of panels per run, median latency with the share of raw reads on the left, the
//! 99th percentile on the right, over the reads since the jump: some before it, and as many after it as tell how soon
//! latency is back.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use crate::bypass::{BypassSeries, BypassSpec, Interval};
use crate::bypass_summary::BypassSummary;
use crate::error::Error;
use crate::report::grouped;

type Failure = Box<dyn std::error::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const WIDTH: u32 = 1_500;
const ROW_HEIGHT: u32 = 330;
const TITLE_HEIGHT: u32 = 50;
const FONT: &str = "sans-serif";
const P50: RGBColor = RGBColor(0, 90, 181);
const P99: RGBColor = RGBColor(140, 60, 140);
const RAW: RGBColor = RGBColor(150, 150, 150);
const JUMP: RGBColor = RGBColor(215, 60, 20);
/// Reads that are shown before the jump, and after it; more if latency was not back by half of these.
const READS_BEFORE: f64 = 250_000.0;
const READS_AFTER: f64 = 750_000.0;
const THOUSAND: f64 = 1_000.0;
/// The share of the highest 99th percentiles that may lie above the panel: a single stall would flatten everything
/// else.
const CUT_SHARE: f64 = 0.01;
/// Above the highest point lies the legend.
const HEADROOM: f64 = 1.45;
/// As much above 100 as the headroom of the other scale.
const RAW_PCT_TOP: f64 = 145.0;

/// Draws the runs as SVG.
pub(crate) fn plot(runs: &[(BypassSpec, BypassSeries)]) -> Result<String, Error> {
    let mut svg = String::new();
    draw(&mut svg, runs).map_err(|error| Error::Plot { reason: error.to_string() })?;
    Ok(svg)
}

fn draw(svg: &mut String, runs: &[(BypassSpec, BypassSeries)]) -> Result<(), Failure> {
    let height = TITLE_HEIGHT + ROW_HEIGHT * runs.len() as u32;
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let all = match runs.first() {
        Some((spec, _)) => root.titled(&title(spec), (FONT, 24))?,
        None => root.clone(),
    };
    let panels = all.split_evenly((runs.len().max(1), 2));
    let points = |series, us: fn(&Interval) -> f64| {
        shown(series).map(|(reads, interval)| (reads, us(interval))).collect::<Vec<_>>()
    };
    // Panels of one column have one scale, so that runs compare by eye.
    let highest = |us: fn(&Interval) -> f64, cut_share| {
        runs.iter().map(|(_, series)| top(&points(series, us), cut_share)).fold(0.001, f64::max)
    };
    let (p50_top, p99_top) = (highest(|i| i.p50_us, 0.0), highest(|i| i.p99_us, CUT_SHARE));
    for ((spec, series), row) in runs.iter().zip(panels.chunks(2)) {
        let shown: Vec<_> = shown(series).collect();
        let raw = shown.iter().filter_map(|(reads, interval)| Some((*reads, raw_pct(interval)?)));
        let name = spec.run.name();
        panel(
            &row[0],
            &words(&name, series),
            "p50 of reads (µs)",
            &points(series, |i| i.p50_us),
            p50_top,
            P50,
            Some(raw.collect()),
        )?;
        panel(
            &row[1],
            &format!("{name}: 99th percentile"),
            "p99 of reads (µs)",
            &points(series, |i| i.p99_us),
            p99_top,
            P99,
            None,
        )?;
    }
    root.present()?;
    Ok(())
}

fn title(spec: &BypassSpec) -> String {
    let run = &spec.run;
    format!(
        "Read latency while other keys become hot: {} keys, {}, values of {} B from {}, intervals of {} reads",
        grouped(run.keys as f64, 0),
        run.distribution,
        run.value_bytes,
        run.corpus.rsplit('/').next().unwrap_or_default(),
        grouped(spec.interval_operations as f64, 0)
    )
}

fn words(name: &str, series: &BypassSeries) -> String {
    let Some(summary) = BypassSummary::of(series) else { return name.to_owned() };
    let back = match summary.recovery_operations {
        Some(0) => "never left".into(),
        Some(operations) => format!("back after {} reads", grouped(operations as f64, 0)),
        None => "not back".into(),
    };
    format!(
        "{name}: cold {:.2} µs, hot {:.2} µs (fall {:.0} %), {back}",
        summary.p50_cold_us,
        summary.p50_hot_us,
        // A fall of less than nothing rounds to no fall.
        summary.fall_pct.round() + 0.0
    )
}

/// The intervals around the jump, with thousands of reads since it.
fn shown(series: &BypassSeries) -> impl Iterator<Item = (f64, &Interval)> {
    let last_before = series.jump.checked_sub(1).and_then(|last| series.intervals.get(last));
    let jumped_at = last_before.map_or(0.0, |interval| interval.operations as f64);
    let back = BypassSummary::of(series).map(|summary| summary.recovery_operations);
    let after = match back {
        Some(Some(operations)) => READS_AFTER.max(2.0 * operations as f64),
        _ => f64::INFINITY,
    };
    let since_jump =
        series.intervals.iter().map(move |interval| (interval.operations as f64 - jumped_at, interval));
    since_jump
        .filter(move |(reads, _)| (-READS_BEFORE..=after).contains(reads))
        .map(|(reads, interval)| (reads / THOUSAND, interval))
}

fn raw_pct(interval: &Interval) -> Option<f64> {
    let raw = interval.reads_raw? as f64;
    let all = raw + interval.reads_coded.unwrap_or(0) as f64 + interval.reads_packed.unwrap_or(0) as f64;
    (all > 0.0).then(|| raw / all * 100.0)
}

/// The top of the scale: above all points but the few highest.
fn top(points: &[(f64, f64)], cut_share: f64) -> f64 {
    let mut heights: Vec<f64> = points.iter().map(|point| point.1).collect();
    heights.sort_unstable_by(f64::total_cmp);
    let kept = heights.len() - (heights.len() as f64 * cut_share) as usize;
    heights[..kept].last().map_or(1.0, |highest| highest * HEADROOM).max(0.001)
}

fn panel(
    area: &Area<'_>,
    caption: &str,
    y_title: &str,
    points: &[(f64, f64)],
    top: f64,
    color: RGBColor,
    raw_pct: Option<Vec<(f64, f64)>>,
) -> Result<(), Failure> {
    let first = points.first().map_or(0.0, |point| point.0).min(0.0);
    let last = points.last().map_or(1.0, |point| point.0).max(first + 0.001);
    let cut = if points.iter().any(|point| point.1 > top) { " (highest points cut off)" } else { "" };
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{caption}{cut}"), (FONT, 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(62)
        .right_y_label_area_size(if raw_pct.is_some() { 62 } else { 12 })
        .build_cartesian_2d(first..last, 0.0..top)?
        .set_secondary_coord(first..last, 0.0..RAW_PCT_TOP);
    chart
        .configure_mesh()
        .x_desc("thousands of reads since the jump")
        .y_desc(y_title)
        .x_label_formatter(&|reads| grouped(*reads, if last - first < 10.0 { 1 } else { 0 }))
        .y_label_formatter(&|us| if top < 10.0 { format!("{us:.2}") } else { format!("{us:.0}") })
        .axis_desc_style((FONT, 16))
        .label_style((FONT, 14))
        .light_line_style(TRANSPARENT)
        .draw()?;
    let line = |style: ShapeStyle| move |(x, y)| PathElement::new([(x, y), (x + 24, y)], style);
    if let Some(raw_pct) = raw_pct.filter(|raw| !raw.is_empty()) {
        chart
            .configure_secondary_axes()
            .y_desc("reads from raw bytes (%)")
            .y_label_formatter(&|pct| if *pct > 100.0 { String::new() } else { format!("{pct:.0}") })
            .axis_desc_style((FONT, 16))
            .label_style((FONT, 14))
            .draw()?;
        chart
            .draw_secondary_series(LineSeries::new(raw_pct, RAW.stroke_width(1)))?
            .label("reads from raw bytes (right)")
            .legend(line(RAW.stroke_width(1)));
    }
    let shown = points.iter().map(|&(x, y)| (x, y.min(top)));
    chart
        .draw_series(LineSeries::new(shown, color.stroke_width(2)))?
        .label(y_title.split(" (").next().unwrap_or(y_title))
        .legend(line(color.stroke_width(2)));
    chart
        .draw_series(DashedLineSeries::new([(0.0, 0.0), (0.0, top)], 7, 5, JUMP.stroke_width(2)))?
        .label("the jump")
        .legend(|(x, y)| DashedPathElement::new([(x, y), (x + 24, y)], 7, 5, JUMP.stroke_width(2)));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .label_font((FONT, 14))
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.4))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::RunSpec;

    #[test]
    fn every_run_has_its_panels_with_titles_units_legend_and_jump() {
        let spec = |codec: &str| BypassSpec {
            run: RunSpec { tunable: true, codec: codec.into(), ..RunSpec::new("store", "json") },
            interval_operations: 1_000,
        };
        let intervals = (0..40).map(|index| Interval {
            operations: (index + 1) * 1_000,
            seconds: index as f64 / 10.0,
            p50_us: 1.0,
            p99_us: if index == 7 { 900.0 } else { 3.0 },
            reads_raw: Some(900),
            reads_coded: Some(100),
            reads_packed: None,
        });
        let series = BypassSeries { intervals: intervals.collect(), jump: 20, ..BypassSeries::default() };
        let svg = plot(&[(spec("auto"), series.clone()), (spec("none"), series)]).unwrap();
        for words in [
            "store_auto: cold 1.00 µs",
            "store_none: 99th percentile",
            "thousands of reads since the jump",
            "p50 of reads (µs)",
            "reads from raw bytes (%)",
            "the jump",
        ] {
            assert!(svg.contains(words), "{words}");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn a_fall_that_rounds_to_none_has_no_sign() {
        let interval = |operations, p50_us| Interval { operations, p50_us, ..Interval::default() };
        let intervals =
            (1..=40).map(|number| interval(number * 1_000, if number < 10 { 1.0 } else { 1.001 }));
        let series = BypassSeries { intervals: intervals.collect(), jump: 20, ..BypassSeries::default() };
        assert!(words("auto", &series).contains("(fall 0 %)"), "{}", words("auto", &series));
    }

    #[test]
    fn a_run_without_counters_or_intervals_is_drawn() {
        let spec = BypassSpec { run: RunSpec::new("btreemap", "json"), interval_operations: 1 };
        let one = Interval { operations: 1, ..Interval::default() };
        let series = BypassSeries { intervals: vec![one], jump: 1, ..BypassSeries::default() };
        assert!(plot(&[(spec.clone(), series)]).is_ok());
        assert!(plot(&[(spec, BypassSeries::default())]).is_ok());
        assert!(plot(&[]).is_ok());
    }
}
