//! The plot of a bypass suite: one row of panels per run, over the reads since the jump. The left panel shows median
//! latency with the share of raw reads, the right panel the 99th percentile. A row begins some reads before the jump
//! and ends when the recovery of latency is visible. Panels of one column share their axes, so that runs compare by
//! eye.

use kuva::TickFormat;
use kuva::backend::svg::SvgBackend;
use kuva::plot::{LinePlot, LineStyle};
use kuva::render::figure::{Figure, FigureLegendPosition};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;

use crate::results::row::fixed;
use crate::results::table::grouped;
use crate::suites::bypass::{BypassSeries, BypassSpec, Interval};
use crate::suites::bypass_summary::BypassSummary;

const PANEL: (f64, f64) = (700.0, 300.0);
const P50: &str = "#005AB5";
const P99: &str = "#8C3C8C";
const RAW: &str = "#8A8A8A";
const JUMP: &str = "#C8390F";
/// Reads shown before and after the jump. More are shown if latency had not recovered by half of them.
const READS_BEFORE: f64 = 250_000.0;
const READS_AFTER: f64 = 750_000.0;
const THOUSAND: f64 = 1_000.0;
/// The share of the highest 99th percentiles that may lie above the panel: a single stall would flatten everything
/// else.
const CUT_SHARE: f64 = 0.01;
/// Room above the highest point.
const HEADROOM: f64 = 1.1;

type Points = Vec<(f64, f64)>;

/// Draws the runs as SVG.
pub(crate) fn plot(runs: &[(BypassSpec, BypassSeries)]) -> String {
    let Some((spec, _)) = runs.first() else { return String::new() };
    let points = |series, us: fn(&Interval) -> f64| -> Points {
        shown(series).map(|(reads, interval)| (reads, us(interval))).collect()
    };
    let highest = |us: fn(&Interval) -> f64, cut_share| {
        runs.iter().map(|(_, series)| top(&points(series, us), cut_share)).fold(0.001, f64::max)
    };
    let (p50_top, p99_top) = (highest(|i| i.p50_us, 0.0), highest(|i| i.p99_us, CUT_SHARE));
    let all_reads = || runs.iter().flat_map(|(_, series)| shown(series)).map(|(reads, _)| reads);
    let reads = (all_reads().fold(0.0, f64::min), all_reads().fold(0.001, f64::max));
    let mut figure = Figure::new(runs.len(), 2)
        .with_title(title(spec))
        .with_cell_size(PANEL.0, PANEL.1)
        .with_shared_legend_position(FigureLegendPosition::BottomCenter);
    let (mut panels, mut layouts) = (Vec::new(), Vec::new());
    for (row, (spec, series)) in runs.iter().enumerate() {
        let name = spec.run.name();
        let p50 = vec![line(points(series, |i| i.p50_us), P50, "p50 of reads", None), jump(p50_top)];
        let raw: Points =
            shown(series).filter_map(|(reads, interval)| Some((reads, raw_pct(interval)?))).collect();
        let layout = layout(&p50, &words(&name, series), "p50 of reads (µs)", reads, p50_top);
        if raw.is_empty() {
            layouts.push(layout);
            panels.push(p50);
        } else {
            let right = vec![line(raw, RAW, "reads from raw bytes (right)", None)];
            layouts.push(
                layout
                    .with_y2_range(0.0, 100.0)
                    .with_y2_axis_min(0.0)
                    .with_y2_axis_max(100.0)
                    .with_y2_label("reads from raw bytes (%)"),
            );
            figure = figure.with_twin_y_plots(2 * row, p50, right);
            panels.push(Vec::new());
        }
        let all = points(series, |i| i.p99_us);
        let cut = if all.iter().any(|point| point.1 > p99_top) { " (highest points cut off)" } else { "" };
        let kept = all.into_iter().map(|(reads, us)| (reads, us.min(p99_top))).collect();
        let p99 = vec![line(kept, P99, "p99 of reads", None), jump(p99_top)];
        let caption = format!("{name}: 99th percentile{cut}");
        layouts.push(self::layout(&p99, &caption, "p99 of reads (µs)", reads, p99_top));
        panels.push(p99);
    }
    SvgBackend::new().render_scene(&figure.with_plots(panels).with_layouts(layouts).render())
}

fn line(points: Points, color: &str, label: &str, style: Option<LineStyle>) -> Plot {
    let line = LinePlot::new().with_data(points).with_color(color).with_stroke_width(1.5).with_legend(label);
    Plot::Line(line.with_line_style(style.unwrap_or_default()))
}

/// The moment at which other keys become hot.
fn jump(top: f64) -> Plot {
    line(vec![(0.0, 0.0), (0.0, top)], JUMP, "the jump", Some(LineStyle::Custom("4 3".into())))
}

fn layout(plots: &[Plot], caption: &str, y_title: &str, reads: (f64, f64), top: f64) -> Layout {
    Layout::auto_from_plots(plots)
        .with_title(caption)
        .with_title_size(14)
        .with_x_label("thousands of reads since the jump")
        .with_y_label(y_title)
        .with_x_axis_min(reads.0)
        .with_x_axis_max(reads.1)
        .with_y_axis_min(0.0)
        .with_y_axis_max(top)
        .with_x_tick_format(TickFormat::Custom(std::sync::Arc::new(|reads| grouped(reads, 0))))
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
        "{name}: cold {:.2} µs, hot {:.2} µs (fall {} %), {back}",
        summary.p50_cold_us,
        summary.p50_hot_us,
        fixed(summary.fall_pct, 0)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::spec::RunSpec;

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
        let svg = plot(&[(spec("auto"), series.clone()), (spec("none"), series)]);
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
        assert!(plot(&[(spec.clone(), series)]).contains("btreemap: 99th percentile"));
        assert!(plot(&[(spec, BypassSeries::default())]).contains("btreemap: 99th percentile"));
    }
}
