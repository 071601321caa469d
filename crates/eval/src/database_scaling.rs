//! Throughput of a database's codecs over processors, and of modelled devices over their number, as the published
//! Figure 6 has it: how many processors does a codec need for what built-in zstd does with all of them?

use plotters::element::DashedPathElement;
use plotters::prelude::*;
use std::array::IntoIter;

use crate::bench::{Configuration, Outcome};
use crate::database_suite::{REFERENCE, in_words, label, setting};
use crate::error::Error;
use crate::measurement::Measurement;
use crate::report::{aligned, grouped, tsv};
use crate::row::{Cell, Row, median};
use crate::spec::RunSpec;

/// What was measured with so many processors.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    processors: usize,
    /// Median of the rounds.
    qps: f64,
}

/// One codec, and one model if it is modelled.
struct Curve<'a> {
    spec: &'a RunSpec,
    points: Vec<Point>,
}

/// All codecs in one setting.
pub(crate) struct Scaling<'a> {
    curves: Vec<Curve<'a>>,
}

/// The processors that a run has.
fn processors(spec: &RunSpec) -> usize {
    match spec.cpus.len() {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        some => some,
    }
}

/// How many processors reach `qps`, on straight lines between the points and from nothing at none; nothing if no point
/// reaches it.
fn processors_for(points: &[Point], qps: f64) -> Option<f64> {
    let mut before = Point { processors: 0, qps: 0.0 };
    for &point in points {
        if point.qps >= qps {
            let share = (qps - before.qps) / (point.qps - before.qps);
            return Some(before.processors as f64 + share * (point.processors - before.processors) as f64);
        }
        before = point;
    }
    None
}

impl Curve<'_> {
    fn add(&mut self, configuration: &Configuration) {
        let mut qps: Vec<f64> = configuration.rounds.iter().map(Measurement::qps).collect();
        let Some(qps) = median(&mut qps) else { return };
        self.points.push(Point { processors: processors(&configuration.spec), qps });
        self.points.sort_by_key(|point| point.processors);
    }

    fn is_modelled(&self) -> bool {
        self.spec.options.model.is_some()
    }
}

impl<'a> Scaling<'a> {
    /// The scalings of everything that was measured with several numbers of processors or devices, setting by setting.
    pub(crate) fn all(outcome: &'a Outcome) -> Vec<Scaling<'a>> {
        let mut all: Vec<Scaling<'_>> = Vec::new();
        for configuration in &outcome.configurations {
            let spec = &configuration.spec;
            let found = all.iter().position(|scaling| setting(scaling.curves[0].spec) == setting(spec));
            let scaling = match found {
                Some(found) => &mut all[found],
                None => {
                    all.push(Scaling { curves: Vec::new() });
                    all.last_mut().expect("one was pushed")
                }
            };
            let found = scaling.curves.iter().position(|curve| label(curve.spec) == label(spec));
            match found {
                Some(found) => scaling.curves[found].add(configuration),
                None => {
                    let mut curve = Curve { spec, points: Vec::new() };
                    curve.add(configuration);
                    scaling.curves.push(curve);
                }
            }
        }
        all.retain(Scaling::has_steps);
        all
    }

    fn has_steps(&self) -> bool {
        self.curves.iter().any(|curve| curve.points.len() > 1 || curve.is_modelled())
    }

    /// All numbers of processors.
    fn processors(&self) -> Vec<usize> {
        let points = self.curves.iter().flat_map(|curve| &curve.points);
        let mut all: Vec<usize> = points.map(|point| point.processors).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What built-in zstd does with all processors.
    fn line(&self) -> Option<Point> {
        let zstd = self.curves.iter().find(|curve| curve.spec.codec == REFERENCE)?;
        zstd.points.last().copied()
    }

    /// The share of zstd's processors with which a curve reaches zstd's throughput.
    fn share(&self, curve: &Curve<'_>) -> Option<f64> {
        let line = self.line()?;
        Some(processors_for(&curve.points, line.qps)? / line.processors as f64)
    }

    /// The share of the processors of zstd's that `spec` needs for as many operations, by what was measured with fewer.
    pub(crate) fn share_of(all: &[Scaling<'a>], spec: &RunSpec) -> Option<f64> {
        let scaling = all.iter().find(|scaling| setting(scaling.curves[0].spec) == setting(spec))?;
        let curve = scaling.curves.iter().find(|curve| label(curve.spec) == label(spec))?;
        (curve.points.len() > 1).then(|| scaling.share(curve)).flatten()
    }

    /// As a table, one line for each codec.
    pub(crate) fn table(&self) -> String {
        let processors = self.processors();
        let line = self.line();
        let mut headings = vec!["codec".to_owned()];
        for count in &processors {
            headings.push(format!("ops/s on {count}"));
            headings.push("to zstd".into());
        }
        headings.push("processors at zstd's ops/s".into());
        let mut lines = vec![headings];
        for curve in &self.curves {
            let mut cells = vec![label(curve.spec)];
            for count in &processors {
                let point = curve.points.iter().find(|point| point.processors == *count);
                let ratio = point.zip(line).map(|(point, line)| point.qps / line.qps);
                cells.push(point.map_or("-".into(), |point| grouped(point.qps, 0)));
                cells.push(ratio.map_or("-".into(), |ratio| grouped(ratio, 2)));
            }
            let needed = line.map(|line| processors_for(&curve.points, line.qps));
            cells.push(match needed {
                None => "-".into(),
                Some(None) => "more than there are".into(),
                Some(Some(needed)) => grouped(needed, 2),
            });
            lines.push(cells);
        }
        let all = line.map_or(0, |line| line.processors);
        format!(
            "Figure 6, {}\n{}to zstd: to {REFERENCE} on {all} processor(s)\n",
            in_words(self.curves[0].spec),
            aligned(&lines, 1)
        )
    }

    fn rows(&self) -> impl Iterator<Item = Row> {
        self.curves.iter().flat_map(move |curve| {
            curve.points.iter().map(move |point| {
                let spec = curve.spec;
                let ratio = self.line().map(|line| point.qps / line.qps);
                vec![
                    ("setting", Cell::Text(in_words(spec))),
                    ("codec", Cell::Text(spec.codec.clone())),
                    ("model", Cell::text(spec.options.model.as_deref())),
                    ("status", Cell::text(Some(if curve.is_modelled() { "modelled" } else { "measured" }))),
                    ("processors", Cell::Count(point.processors as i64)),
                    ("qps", Cell::number(Some(point.qps), 0)),
                    ("qps_to_zstd_on_all", Cell::number(ratio, 3)),
                    ("processors_share_at_zstds_qps", Cell::number(self.share(curve), 3)),
                ]
            })
        })
    }
}

/// The points of all scalings as TSV.
pub(crate) fn points(all: &[Scaling<'_>]) -> String {
    tsv(all.iter().flat_map(Scaling::rows))
}

const WIDTH: u32 = 1_000;
const PANEL_HEIGHT: u32 = 520;
const FONT: &str = "sans-serif";
/// Above the highest point lies the legend.
const HEADROOM: f64 = 1.6;

/// How a line is drawn, and its sample in the legend: pixels of a dash, and of the gap behind it.
type Dashes = (i32, i32);
const MEASURED: Dashes = (WIDTH as i32, 0);
const MODELLED: Dashes = (7, 5);
const REACHED: Dashes = (2, 4);

/// A line's sample in the legend.
fn sample(
    (x, y): (i32, i32),
    dashes: Dashes,
    style: ShapeStyle,
) -> DashedPathElement<IntoIter<(i32, i32), 2>, i32> {
    DashedPathElement::new([(x, y), (x + 24, y)], dashes.0, dashes.1, style)
}

/// A number of processors, at whole ones alone.
fn whole(processors: f64) -> String {
    if processors.fract() == 0.0 { grouped(processors, 0) } else { String::new() }
}

/// Draws the scalings as SVG, one panel below the other. What is modelled is dashed, and says so.
pub(crate) fn plot(all: &[Scaling<'_>]) -> Result<String, Error> {
    let mut svg = String::new();
    draw(&mut svg, all).map_err(|error| Error::Plot { reason: error.to_string() })?;
    Ok(svg)
}

fn draw(svg: &mut String, all: &[Scaling<'_>]) -> Result<(), Box<dyn std::error::Error>> {
    let height = PANEL_HEIGHT * all.len().max(1) as u32;
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    for (scaling, area) in all.iter().zip(root.split_evenly((all.len().max(1), 1))) {
        let last = scaling.processors().last().copied().unwrap_or(1) as f64;
        let points = scaling.curves.iter().flat_map(|curve| &curve.points);
        let top = points.map(|point| point.qps).fold(1.0, f64::max) * HEADROOM;
        let mut chart = ChartBuilder::on(&area)
            .caption(in_words(scaling.curves[0].spec), (FONT, 18))
            .margin(14)
            .x_label_area_size(44)
            .y_label_area_size(84)
            .build_cartesian_2d(0.0..last * 1.03, 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc("processors")
            .x_labels(last as usize + 1)
            .x_label_formatter(&|processors| whole(*processors))
            .y_desc("operations per second")
            .y_label_formatter(&|qps| grouped(*qps, 0))
            .axis_desc_style((FONT, 16))
            .label_style((FONT, 14))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (number, curve) in scaling.curves.iter().enumerate() {
            let color = Palette99::pick(number).to_rgba();
            let style = color.stroke_width(2);
            let points: Vec<(f64, f64)> =
                curve.points.iter().map(|point| (point.processors as f64, point.qps)).collect();
            let dashes = if curve.is_modelled() { MODELLED } else { MEASURED };
            chart
                .draw_series([DashedPathElement::new(points.clone(), dashes.0, dashes.1, style)])?
                .label(label(curve.spec))
                .legend(move |at| sample(at, dashes, style));
            chart.draw_series(points.into_iter().map(|point| Circle::new(point, 4, color.filled())))?;
        }
        if let Some(line) = scaling.line() {
            let ends = [(0.0, line.qps), (last * 1.03, line.qps)];
            let style = BLACK.stroke_width(1);
            chart
                .draw_series([DashedPathElement::new(ends, REACHED.0, REACHED.1, style)])?
                .label(format!("{REFERENCE} on {} processor(s)", line.processors))
                .legend(move |at| sample(at, REACHED, style));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font((FONT, 14))
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.4))
            .draw()?;
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database_suite::tests::{configuration, outcome};

    fn with(codec: &str, cpus: usize, model: Option<&str>, operations: u64) -> Configuration {
        let mut one = configuration(codec, 16384, &[[operations, 1000, 80]]);
        one.spec.cpus = (0..cpus).collect();
        one.spec.options.model = model.map(str::to_owned);
        one
    }

    #[test]
    fn processors_are_found_between_points() {
        let points = [Point { processors: 1, qps: 100.0 }, Point { processors: 2, qps: 150.0 }];
        assert_eq!(processors_for(&points, 50.0), Some(0.5));
        assert_eq!(processors_for(&points, 125.0), Some(1.5));
        assert_eq!(processors_for(&points, 150.0), Some(2.0));
        assert_eq!(processors_for(&points, 151.0), None);
    }

    #[test]
    fn modelled_curves_stand_apart_and_say_so() {
        let all = outcome(vec![
            with("builtin-zstd", 1, None, 50),
            with("ziptier", 1, None, 100),
            with("ziptier-deflate", 1, Some("devices=1"), 70),
            with("ziptier-deflate", 1, Some("devices=4"), 90),
            with("builtin-zstd", 2, None, 100),
            with("ziptier", 2, None, 210),
            with("ziptier-deflate", 2, Some("devices=4"), 95),
        ]);
        let scalings = Scaling::all(&all);
        let [scaling] = scalings.as_slice() else { panic!("{} settings", scalings.len()) };
        assert_eq!(scaling.curves.len(), 4);
        assert_eq!(Scaling::share_of(&scalings, &with("ziptier", 2, None, 1).spec), Some(0.5));
        assert_eq!(Scaling::share_of(&scalings, &with("builtin-zstd", 2, None, 1).spec), Some(1.0));
        let never = with("ziptier-deflate", 1, Some("devices=1"), 1);
        assert_eq!(Scaling::share_of(&scalings, &never.spec), None);
        let table = scaling.table();
        let devices: Vec<&str> = table.lines().filter(|line| line.contains("devices=")).collect();
        assert!(devices.len() == 2 && devices.iter().all(|line| line.contains("modelled")), "{table}");
        assert!(devices[0].contains("more than there are"), "{table}");
        let rows = points(&scalings);
        assert_eq!(rows.matches("\tmodelled\t").count(), 3, "{rows}");
        let svg = plot(&scalings).unwrap();
        for between in [">0.2<", ">0.5<", ">1.5<"] {
            assert!(!svg.contains(between), "a tick at {between} processors");
        }
        assert!(svg.contains("modelled devices=4") && svg.contains("builtin-zstd on 2 processor(s)"));
    }

    #[test]
    fn one_point_without_a_model_is_no_curve() {
        assert!(Scaling::all(&outcome(vec![with("builtin-zstd", 0, None, 50)])).is_empty());
        assert!(plot(&[]).is_ok());
    }
}
