//! Draws the points of a figure as SVG. Colours are variables of the page, so that one picture suits light and dark
//! screens and paper. What a colour says is said by a marker, a dash or a hatch, too.

use std::sync::Arc;

use kuva::backend::svg::SvgBackend;
use kuva::plot::annotations::ReferenceLine;
use kuva::plot::legend::LegendPosition;
use kuva::plot::scatter::MarkerShape;
use kuva::plot::{BarPlot, FillPattern, ForestPlot, LinePlot, LineStyle, ScatterPlot};
use kuva::render::layout::Layout;
use kuva::render::plots::Plot;
use kuva::render::render::{Primitive, render_multiple};
use kuva::render::theme::Theme;
use kuva::{AxisLabelOverlap, TickFormat};

use crate::report::figure::{Figure, Kind, PERCENTILE_DECIMALS, Place, Point, Scale, Shape, shortest};
use crate::results::table::grouped;

const WIDTH: f64 = 520.0;
/// Without the legend.
const HEIGHT: f64 = 260.0;
/// Height of a line of the legend.
const LEGEND_LINE: f64 = 18.0;
/// Room below the last line of a legend.
const BELOW_TEXT: f64 = 8.0;
/// Room to the right for half of the last number below an axis.
const RIGHT: f64 = 30.0;
/// Room above the highest point, as a factor.
const HEADROOM: f64 = 1.08;
/// Room beside the points of a logarithmic axis, as a factor.
const ASIDE: f64 = 1.2;
/// Letters of a name beside a bar; the table has the whole name.
const NAME_LETTERS: usize = 34;
/// Height of a bar and of an interval.
const BAR: f64 = 26.0;
/// Colours of series, as `page.css` defines them.
const COLOURS: usize = 8;
const MARKERS: [MarkerShape; COLOURS] = [
    MarkerShape::Circle,
    MarkerShape::Square,
    MarkerShape::Triangle,
    MarkerShape::Diamond,
    MarkerShape::Cross,
    MarkerShape::Plus,
    MarkerShape::TriangleDown,
    MarkerShape::Star,
];
/// Markers of a line with many points.
const MARKERS_MAX: usize = 8;
const INK: &str = "var(--ink)";
const PAPER: &str = "var(--paper)";

/// The plot, or nothing if no point can be drawn. `id` is the figure's own on the page.
pub(crate) fn svg(figure: &Figure, id: &str) -> Option<String> {
    let is_there = |point: &&Point| point.y.is_some() && point.x != Place::Missing;
    let points: Vec<&Point> = figure.points.iter().filter(is_there).collect();
    if points.is_empty() {
        return None;
    }
    let (plots, layout) = match figure.shape {
        Shape::Lines | Shape::Markers => lines(figure, &points),
        Shape::Bars => bars(figure, &points),
        Shape::Intervals => intervals(figure, &points),
    };
    let mut layout = layout.with_theme(theme());
    layout.force_margin_right = Some(RIGHT);
    let mut scene = render_multiple(plots, layout);
    let hatches = points.iter().map(|point| hatch(point.kind)).filter(|hatch| hatch.is_patterned());
    for hatch in hatches {
        let definition = hatch.svg_def().replace("black", PAPER).replace("\"0.6\"", "\"1.6\"");
        if !scene.defs.contains(&definition) {
            scene.defs.push(definition);
        }
    }
    let svg = SvgBackend::new().render_scene(&scene);
    let (_, inside) = svg.split_once('>')?;
    // A size of its own would keep the plot from fitting the page. Ids must not clash with those of other plots.
    let inside = inside.replace("\"kuva-", &format!("\"{id}-")).replace("#kuva-", &format!("#{id}-"));
    // The library keeps too little room for some legends.
    let lowest = scene.elements.iter().filter_map(|element| match element {
        Primitive::Text { y, .. } => Some(*y + BELOW_TEXT),
        _ => None,
    });
    let (width, height) = (scene.width, lowest.fold(scene.height, f64::max));
    Some(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" fill=\"{INK}\" role=\"img\" \
         aria-labelledby=\"{id}-title {id}-about\">{inside}"
    ))
}

fn theme() -> Theme {
    let grid = "var(--grid)".to_owned();
    let ink = || INK.to_owned();
    Theme {
        background: PAPER.into(),
        axis_color: ink(),
        grid_color: grid.clone(),
        tick_color: ink(),
        text_color: ink(),
        legend_bg: PAPER.into(),
        legend_border: "none".into(),
        pie_leader: ink(),
        box_median: ink(),
        violin_border: ink(),
        colorbar_border: ink(),
        font_family: None,
        show_grid: true,
    }
}

fn colour(series: usize) -> String {
    format!("var(--series-{})", series % COLOURS + 1)
}

/// A text as the library takes it, which would read formulas between dollar signs.
fn plain(text: &str) -> String {
    text.replace('$', "\\$")
}

fn style(kind: Kind) -> LineStyle {
    match kind {
        Kind::Measured => LineStyle::Solid,
        Kind::Modelled => LineStyle::Dashed,
        Kind::Predicted => LineStyle::Dotted,
        Kind::Input => LineStyle::DashDot,
    }
}

fn hatch(kind: Kind) -> FillPattern {
    match kind {
        Kind::Measured => FillPattern::Solid,
        Kind::Modelled => FillPattern::DiagonalForward,
        Kind::Predicted => FillPattern::Dots,
        Kind::Input => FillPattern::DiagonalCrosshatch,
    }
}

/// Lines of all but the markers, which have points alone.
fn lines(figure: &Figure, points: &[&Point]) -> (Vec<Plot>, Layout) {
    let mut plots = Vec::new();
    for (place, (name, kind)) in figure.series().into_iter().enumerate() {
        let of_series = || points.iter().filter(|point| point.series == name && point.kind == kind);
        let all: Vec<(f64, f64)> = of_series().filter_map(|point| at(figure, point)).collect();
        if all.is_empty() {
            continue;
        }
        if figure.shape == Shape::Lines && all.len() > 1 {
            let line =
                LinePlot::new().with_data(all.clone()).with_color(colour(place)).with_stroke_width(1.8);
            plots.push(Plot::Line(line.with_line_style(style(kind))));
        }
        let marked = all.len().div_ceil(MARKERS_MAX);
        let reach = |point: &&Point| {
            let y = point.y.unwrap_or_default();
            (y - point.low.unwrap_or(y), point.high.unwrap_or(y) - y)
        };
        let markers = ScatterPlot::new()
            .with_data(all.into_iter().step_by(marked).collect::<Vec<_>>())
            .with_color(colour(place))
            .with_size(4.5)
            .with_marker(MARKERS[place % COLOURS])
            .with_legend(plain(&format!("{name} ({})", kind.word())));
        let has_reach = of_series().any(|point| point.low.is_some());
        let reaches: Vec<(f64, f64)> =
            of_series().filter(|point| at(figure, point).is_some()).map(reach).step_by(marked).collect();
        plots.push(Plot::Scatter(if has_reach { markers.with_y_err_asymmetric(reaches) } else { markers }));
    }
    let mut layout = Layout::auto_from_plots(&plots)
        .with_x_label(plain(&figure.x.name))
        .with_y_label(plain(&figure.y.name))
        .with_legend_position(LegendPosition::OutsideBottomColumns)
        .with_legend_col_limit(1)
        .with_legend_box(false)
        .with_x_tick_format(ticks(figure.x.scale))
        .with_y_tick_format(ticks(figure.y.scale));
    layout = match figure.x.scale {
        Scale::Linear => layout,
        Scale::Percentiles => layout.with_log_x(),
        Scale::Logarithmic => {
            let (least, most) = ends_across(figure, points);
            layout.with_log_x().with_x_axis_min(least / ASIDE).with_x_axis_max(most * ASIDE).with_clamp_axis()
        }
    };
    layout = match figure.y.scale {
        Scale::Linear => {
            let ends = points.iter().flat_map(|point| [point.y, point.high]).flatten();
            let most = ends.chain(level_marks(figure)).fold(0.0, f64::max);
            layout.with_y_axis_min(0.0).with_y_axis_max(if most > 0.0 { most * HEADROOM } else { 1.0 })
        }
        Scale::Logarithmic | Scale::Percentiles => layout.with_log_y(),
    };
    for mark in &figure.marks {
        let line = match mark.is_vertical {
            true => ReferenceLine::vertical(mark.at),
            false => ReferenceLine::horizontal(mark.at),
        };
        let series = figure.series().iter().position(|(name, _)| *name == mark.series);
        let line = line.with_color(series.map_or(INK.into(), colour)).with_stroke_width(1.5);
        // Several names would cover each other.
        layout = layout.with_reference_line(match figure.marks.len() {
            1 => line.with_label(plain(&mark.name)),
            _ => line,
        });
    }
    let legend = figure.series().len() as f64 * LEGEND_LINE;
    (plots, sized(layout, HEIGHT + legend))
}

/// The least and the most along the first axis, upright lines included.
fn ends_across(figure: &Figure, points: &[&Point]) -> (f64, f64) {
    let marks = figure.marks.iter().filter(|mark| mark.is_vertical).map(|mark| mark.at);
    let all = points.iter().filter_map(|point| point.x.number()).chain(marks).filter(|at| *at > 0.0);
    all.fold((f64::INFINITY, 1.0), |(least, most), at| (least.min(at), most.max(at)))
}

fn level_marks(figure: &Figure) -> impl Iterator<Item = f64> {
    figure.marks.iter().filter(|mark| !mark.is_vertical).map(|mark| mark.at)
}

fn sized(layout: Layout, height: f64) -> Layout {
    layout
        .with_x_label_overlap(AxisLabelOverlap::Thin)
        .with_width(WIDTH)
        .with_height(height)
        .with_label_size(12)
        .with_tick_size(11)
        .with_body_size(11)
}

/// Where a point is drawn, if a logarithm allows that.
fn at(figure: &Figure, point: &Point) -> Option<(f64, f64)> {
    let x = match (figure.x.scale, point.x.number()?) {
        (Scale::Percentiles, share) => 1.0 / (1.0 - share / 100.0),
        (_, x) => x,
    };
    let fits = |value: f64, scale| value.is_finite() && (scale == Scale::Linear || value > 0.0);
    let y = point.y?;
    (fits(x, figure.x.scale) && fits(y, figure.y.scale)).then_some((x, y))
}

fn ticks(scale: Scale) -> TickFormat {
    TickFormat::Custom(Arc::new(move |value| match scale {
        Scale::Percentiles => shortest(100.0 - 100.0 / value, PERCENTILE_DECIMALS),
        Scale::Linear | Scale::Logarithmic => short(value),
    }))
}

/// A number of an axis: thousands and millions as k and M.
fn short(value: f64) -> String {
    match value.abs() {
        large if large >= 1e9 => shortest(value / 1e9, 2) + " G",
        large if large >= 1e6 => shortest(value / 1e6, 2) + " M",
        large if large >= 1e4 => shortest(value / 1e3, 2) + " k",
        large if large >= 1e3 => grouped(value, 0),
        _ => shortest(value, 4),
    }
}

fn names(points: &[&Point]) -> Vec<String> {
    let name = |point: &&Point| match &point.x {
        Place::Named(name) => plain(&format!("{} ({})", shortened(name), point.kind.word())),
        Place::At(_) | Place::Missing => String::new(),
    };
    points.iter().map(name).collect()
}

/// A long name without its middle: what tells it from others often stands at its end.
fn shortened(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    match letters.len() > NAME_LETTERS {
        true => {
            let end = &letters[letters.len() - NAME_LETTERS / 2 - 1..];
            letters[..NAME_LETTERS / 2].iter().chain(['…'].iter()).chain(end).collect()
        }
        false => name.to_owned(),
    }
}

/// One bar below the other, the first on top.
fn bars(figure: &Figure, points: &[&Point]) -> (Vec<Plot>, Layout) {
    let rows: Vec<(String, &Point)> = names(points).into_iter().zip(points.iter().copied()).rev().collect();
    let filled = |fill: &dyn Fn(&Point) -> String| {
        let bar = |(name, point): &(String, &Point)| (name.clone(), point.y.unwrap_or_default(), fill(point));
        BarPlot::new().with_colored_bars(rows.iter().map(bar)).with_horizontal(true).with_width(0.7)
    };
    let hatched = filled(&|point| match hatch(point.kind) {
        FillPattern::Solid => "none".into(),
        hatch => format!("url(#{})", hatch.id()),
    });
    let reach = |(_, point): &(String, &Point)| {
        let y = point.y.unwrap_or_default();
        (y - point.low.unwrap_or(y), point.high.unwrap_or(y) - y)
    };
    let has_reach = points.iter().any(|point| point.low.is_some());
    let hatched = match has_reach {
        true => hatched.with_asymmetric_error(rows.iter().map(reach)).with_error_color(INK),
        false => hatched,
    };
    let plots = vec![Plot::Bar(filled(&|_| colour(0))), Plot::Bar(hatched)];
    let ends = points.iter().flat_map(|point| [point.y, point.low, point.high]).flatten();
    let (least, most) = ends.fold((0.0f64, 0.0f64), |(least, most), end| (least.min(end), most.max(end)));
    let layout = Layout::auto_from_plots(&plots)
        .with_x_axis_min(least)
        .with_x_axis_max(if most > 0.0 { most * HEADROOM } else { 1.0 })
        .with_x_label(plain(&figure.y.name))
        .with_x_tick_format(ticks(figure.y.scale));
    (plots, sized(layout, 80.0 + BAR * points.len() as f64))
}

fn intervals(figure: &Figure, points: &[&Point]) -> (Vec<Plot>, Layout) {
    let mut forest = ForestPlot::new().with_color(colour(0)).with_marker_size(4.0);
    for (name, point) in names(points).into_iter().zip(points) {
        let y = point.y.unwrap_or_default();
        let ends = [point.low.unwrap_or(y), point.high.unwrap_or(y)];
        let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        forest = forest.with_row(name, y, low, high);
    }
    let plots = vec![Plot::Forest(forest.with_null_value(0.0).with_show_null_line(true))];
    let layout = Layout::auto_from_plots(&plots)
        .with_x_label(plain(&figure.y.name))
        .with_x_tick_format(ticks(figure.y.scale));
    (plots, sized(layout, 80.0 + BAR * points.len() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figure::Axis;

    fn figure(shape: Shape, kinds: &[Kind]) -> Figure {
        let place = |at: usize| match shape {
            Shape::Lines | Shape::Markers => Place::At(at as f64 + 1.0),
            Shape::Bars | Shape::Intervals => Place::Named(format!("<b>{at} $x$")),
        };
        let point = |(at, kind): (usize, &Kind)| {
            Point::new(&format!("series {at}"), *kind, place(at), Some(at as f64 + 1.0)).within(Some(0.5))
        };
        let points = kinds.iter().enumerate().map(point).collect();
        Figure::new("t", shape, Axis::linear("x"), Axis::linear("y"), points)
    }

    #[test]
    fn every_kind_has_a_look_and_a_word_of_its_own() {
        let bars = svg(&figure(Shape::Bars, &Kind::ALL), "f7").unwrap();
        for kind in Kind::ALL {
            assert!(bars.contains(&format!("({})", kind.word())), "{kind:?}");
        }
        for pattern in ["f7-fp-diag-fwd", "f7-fp-dots", "f7-fp-diag-cross"] {
            assert!(bars.contains(&format!("id=\"{pattern}\"")), "{pattern}");
            assert!(bars.contains(&format!("fill=\"url(#{pattern})\"")), "{pattern}");
        }
        assert!(!bars.contains("kuva-") && !bars.contains("<b>") && bars.contains("$x$"), "{bars}");
        assert!(bars.starts_with("<svg") && bars.contains("viewBox=") && bars.contains("role=\"img\""));
    }

    #[test]
    fn what_is_missing_is_not_drawn() {
        for shape in [Shape::Lines, Shape::Markers, Shape::Bars, Shape::Intervals] {
            let mut figure = figure(shape, &[Kind::Measured, Kind::Measured]);
            assert!(svg(&figure, "f1").unwrap().contains(if shape == Shape::Lines {
                "series 1"
            } else {
                "1"
            }));
            figure.points.iter_mut().for_each(|point| point.y = None);
            assert_eq!(svg(&figure, "f1"), None, "{shape:?}");
        }
    }

    #[test]
    fn numbers_of_axes_are_short() {
        let told = [0.0, 0.25, 999.0, 1_000.0, 12_500.0, 3e6, 2e9].map(short);
        assert_eq!(told, ["0", "0.25", "999", "1,000", "12.5 k", "3 M", "2 G"]);
    }
}
