//! The scalings as a picture, one panel below the other, all on the same axes. Modelled curves are dashed and labelled.
//! Bars reach from the least round to the most.

use kuva::TickFormat;
use kuva::backend::svg::SvgBackend;
use kuva::plot::scatter::ScatterPlot;
use kuva::plot::{LinePlot, LineStyle};
use kuva::render::figure::Figure;
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use std::sync::Arc;

use super::{Curve, Point, REFERENCE, Scaling, grouped, in_words, label};

const PANEL: (f64, f64) = (1_000.0, 480.0);
/// Room above the highest point.
const HEADROOM: f64 = 1.05;
/// Colours that stand out from white, and from each other for the colour-blind: those of Okabe and Ito without the
/// yellow, and darker ones.
const COLORS: [&str; 9] =
    ["#0072B2", "#D55E00", "#009E73", "#AA3377", "#8C6D1F", "#3399CC", "#444444", "#B2182B", "#5E3C99"];

/// Draws the scalings as SVG.
pub(crate) fn plot(all: &[Scaling<'_>]) -> String {
    let points = || all.iter().flat_map(|scaling| &scaling.curves).flat_map(|curve| &curve.points);
    let top = points().map(|point| point.range.1).fold(1.0, f64::max) * HEADROOM;
    let last = points().map(|point| point.processors).fold(2, usize::max) as f64;
    let panels: Vec<Vec<Plot>> = all.iter().map(|scaling| panel(scaling, last)).collect();
    let layouts = all.iter().zip(&panels).map(|(scaling, plots)| {
        Layout::auto_from_plots(plots)
            .with_title(in_words(scaling.curves[0].spec))
            .with_title_size(15)
            .with_x_label("processors")
            .with_y_label("operations per second")
            .with_x_axis_min(1.0)
            .with_x_axis_max(last)
            .with_x_tick_step(1.0)
            .with_x_tick_format(TickFormat::Integer)
            .with_y_axis_min(0.0)
            .with_y_axis_max(top)
            .with_y_tick_format(TickFormat::Custom(Arc::new(|qps| grouped(qps, 0))))
    });
    let layouts = layouts.collect();
    let figure = Figure::new(all.len().max(1), 1).with_cell_size(PANEL.0, PANEL.1);
    SvgBackend::new().render_scene(&figure.with_plots(panels).with_layouts(layouts).render())
}

fn panel(scaling: &Scaling<'_>, last: f64) -> Vec<Plot> {
    let curves = scaling.curves.iter().enumerate();
    let mut plots: Vec<Plot> =
        curves.flat_map(|(number, curve)| drawn(curve, COLORS[number % COLORS.len()])).collect();
    if let Some(line) = scaling.line() {
        let reached = LinePlot::new().with_data([(1.0, line.qps), (last, line.qps)]);
        let label = format!("{REFERENCE} on {} processor(s)", line.processors);
        plots.push(Plot::Line(reached.with_dotted().with_stroke_width(1.0).with_legend(label)));
    }
    plots
}

fn drawn(curve: &Curve<'_>, color: &str) -> [Plot; 2] {
    let at = |point: &Point| (point.processors as f64, point.qps);
    let points = || curve.points.iter().map(at);
    let bars = curve.points.iter().map(|point| (point.qps - point.range.0, point.range.1 - point.qps));
    let style = if curve.is_modelled() { LineStyle::Custom("4 3".into()) } else { LineStyle::Solid };
    let line = LinePlot::new().with_data(points()).with_color(color).with_line_style(style);
    let dots = ScatterPlot::new().with_data(points()).with_color(color).with_size(4.0);
    let has_rounds = curve.points.iter().any(|point| point.range.0 < point.range.1);
    let dots = if has_rounds { dots.with_y_err_asymmetric(bars) } else { dots };
    [Plot::Line(line.with_legend(label(curve.spec))), Plot::Scatter(dots)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::database::tests::{configuration, outcome};

    #[test]
    fn curves_have_names_bars_and_whole_processors() {
        let with = |codec: &str, cpus: usize, model: Option<&str>, rounds: &[u64]| {
            let rounds: Vec<[u64; 3]> = rounds.iter().map(|operations| [*operations, 1000, 80]).collect();
            let mut one = configuration(codec, 16384, &rounds);
            one.spec.cpus = (0..cpus).collect();
            one.spec.options.model = model.map(str::to_owned);
            one
        };
        let all = |rounds: &[u64]| {
            outcome(vec![
                with("builtin-zstd", 1, None, &[50]),
                with("builtin-zstd", 2, None, &[100]),
                with("ziptier-deflate", 1, Some("devices=4"), &[60]),
                with("ziptier-deflate", 2, Some("devices=4"), rounds),
            ])
        };
        let one_round = all(&[120]);
        let svg = plot(&Scaling::all(&one_round));
        for between in [">0.5<", ">1.5<"] {
            assert!(!svg.contains(between), "a tick at {between} processors");
        }
        assert!(svg.contains("modelled devices=4") && svg.contains("builtin-zstd on 2 processor(s)"));
        let three_rounds = all(&[90, 120, 130]);
        let with_bars = plot(&Scaling::all(&three_rounds));
        let lines = |svg: &str| svg.matches("<line").count() + svg.matches("<path").count();
        assert!(lines(&with_bars) > lines(&svg), "three rounds have no bar");
    }
}
