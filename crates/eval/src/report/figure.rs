//! The figures of a report as numbers. The plot, the table, the JSON and the TSV of a figure are made of the same
//! points, so that they cannot differ.

use serde::Serialize;

use crate::results::row::{Cell, Row, fixed};

/// Decimals that tell the percentiles of ten million calls apart.
pub(crate) const PERCENTILE_DECIMALS: usize = 6;

/// How a figure became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Measured,
    Modelled,
    Predicted,
    Input,
}

impl Kind {
    pub(crate) const ALL: [Kind; 4] = [Kind::Measured, Kind::Modelled, Kind::Predicted, Kind::Input];

    pub(crate) fn word(self) -> &'static str {
        match self {
            Kind::Measured => "measured",
            Kind::Modelled => "modelled",
            Kind::Predicted => "predicted",
            Kind::Input => "input",
        }
    }

    /// What the word means.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Kind::Measured => "A meter or a clock of the named machine told it.",
            Kind::Modelled => {
                "A model of a device, or of the power of a machine, told it. No such device was measured."
            }
            Kind::Predicted => "It was calculated from measurements, for a situation that was not measured.",
            Kind::Input => "It stands in a file that somebody wrote. ziptier did not check it.",
        }
    }

    /// How plots show it.
    pub(crate) fn look(self) -> &'static str {
        match self {
            Kind::Measured => "solid line, plain bar",
            Kind::Modelled => "dashed line, bar with diagonal stripes",
            Kind::Predicted => "dotted line, bar with dots",
            Kind::Input => "line of dashes and dots, bar with crossed stripes",
        }
    }
}

/// Where a point lies along the first axis.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Place {
    At(f64),
    Named(String),
    Missing,
}

impl Place {
    pub(crate) fn of(value: Option<f64>) -> Self {
        value.filter(|value| value.is_finite()).map_or(Place::Missing, Place::At)
    }

    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Place::At(value) => Some(*value),
            Place::Named(_) | Place::Missing => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Point {
    pub(crate) series: String,
    pub(crate) kind: Kind,
    pub(crate) x: Place,
    /// Nothing if it is not known, which is no 0.
    pub(crate) y: Option<f64>,
    /// The ends of the interval that the figure's description names.
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
}

impl Point {
    /// Without an interval.
    pub(crate) fn new(series: &str, kind: Kind, x: Place, y: Option<f64>) -> Self {
        let y = y.filter(|y| y.is_finite());
        Point { series: series.to_owned(), kind, x, y, low: None, high: None }
    }

    /// With an interval that reaches so far to either side.
    pub(crate) fn within(mut self, reach: Option<f64>) -> Self {
        let ends =
            self.y.zip(reach.filter(|reach| reach.is_finite())).map(|(y, reach)| (y - reach, y + reach));
        (self.low, self.high) = ends.unzip();
        self
    }

    /// With the least and the most of several measurements.
    pub(crate) fn among(mut self, all: &[f64]) -> Self {
        if all.len() > 1 {
            (self.low, self.high) =
                (all.iter().copied().reduce(f64::min), all.iter().copied().reduce(f64::max));
        }
        self
    }
}

/// How an axis is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    Linear,
    Logarithmic,
    /// Percentiles, each further nine as wide as the one before.
    Percentiles,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Axis {
    /// What it shows, and the unit.
    pub(crate) name: String,
    pub(crate) scale: Scale,
}

impl Axis {
    pub(crate) fn linear(name: impl Into<String>) -> Self {
        Axis { name: name.into(), scale: Scale::Linear }
    }
}

/// What a plot is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Shape {
    /// A line for each series.
    Lines,
    /// A marker for each point.
    Markers,
    /// A bar for each named place.
    Bars,
    /// An interval for each named place.
    Intervals,
}

/// A line across a plot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Mark {
    pub(crate) name: String,
    /// The series that it tells of, whose colour it has.
    pub(crate) series: String,
    pub(crate) at: f64,
    pub(crate) is_vertical: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) title: String,
    /// What is seen, in sentences.
    pub(crate) description: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) shape: Shape,
    pub(crate) points: Vec<Point>,
    pub(crate) marks: Vec<Mark>,
}

impl Figure {
    pub(crate) fn new(title: impl Into<String>, shape: Shape, x: Axis, y: Axis, points: Vec<Point>) -> Self {
        Figure { title: title.into(), description: String::new(), x, y, shape, points, marks: Vec::new() }
    }

    pub(crate) fn described(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// The series in the order of their first points.
    pub(crate) fn series(&self) -> Vec<(&str, Kind)> {
        let mut series: Vec<(&str, Kind)> = Vec::new();
        for point in &self.points {
            let of = (point.series.as_str(), point.kind);
            if !series.contains(&of) {
                series.push(of);
            }
        }
        series
    }

    /// The points that something is missing of, in words.
    pub(crate) fn missing(&self) -> Vec<String> {
        let lacks = |point: &&Point| point.y.is_none() || point.x == Place::Missing;
        let words = |point: &Point| match &point.x {
            Place::Named(name) if point.series.is_empty() => name.clone(),
            Place::Named(name) => format!("{name}, {}", point.series),
            Place::At(_) | Place::Missing => point.series.clone(),
        };
        let mut missing: Vec<String> = self.points.iter().filter(lacks).map(words).collect();
        missing.dedup();
        missing
    }

    /// A row for each point.
    pub(crate) fn rows(&self, section: &str) -> Vec<Row> {
        let number = Cell::precise;
        let row = |point: &Point| {
            let x = match &point.x {
                Place::At(value) => number(Some(*value)),
                Place::Named(name) => Cell::text(Some(name)),
                Place::Missing => Cell::Missing,
            };
            vec![
                ("section", Cell::text(Some(section))),
                ("figure", Cell::text(Some(&self.title))),
                (
                    "series",
                    Cell::text(Some(&point.series).filter(|name| !name.is_empty()).map(String::as_str)),
                ),
                ("kind", Cell::text(Some(point.kind.word()))),
                ("x", x),
                ("y", number(point.y)),
                ("low", number(point.low)),
                ("high", number(point.high)),
                ("x_is", Cell::text(Some(&self.x.name))),
                ("y_is", Cell::text(Some(&self.y.name))),
            ]
        };
        self.points.iter().map(row).collect()
    }
}

/// A number without zeros at the end of the decimals, of which there is one at least.
pub(crate) fn shortest(value: f64, decimals: usize) -> String {
    let text = fixed(value, decimals);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_missing_is_no_zero() {
        let points = vec![
            Point::new("a", Kind::Measured, Place::At(1.0), Some(0.0)),
            Point::new("b", Kind::Input, Place::At(1.0), None).within(Some(3.0)),
            Point::new("c", Kind::Modelled, Place::of(Some(f64::NAN)), Some(f64::INFINITY)),
        ];
        let (x, y) = (Axis::linear("x"), Axis::linear("y"));
        let figure = Figure::new("t", Shape::Markers, x, y, points);
        assert_eq!(figure.missing(), ["b", "c"]);
        let cells: Vec<[String; 3]> =
            figure.rows("s").iter().map(|row| [4, 5, 6].map(|at: usize| row[at].1.to_tsv())).collect();
        assert_eq!(cells, [["1.000000", "0.000000", "NA"], ["1.000000", "NA", "NA"], ["NA"; 3]]);
        assert_eq!(serde_json::json!(figure.points[2])["y"], serde_json::Value::Null);
    }

    #[test]
    fn an_interval_reaches_to_both_sides_and_one_measurement_has_none() {
        let point = || Point::new("a", Kind::Measured, Place::At(1.0), Some(10.0));
        let ends = |point: Point| (point.low, point.high);
        assert_eq!(ends(point().within(Some(2.0))), (Some(8.0), Some(12.0)));
        assert_eq!(ends(point().among(&[9.0, 10.0, 14.0])), (Some(9.0), Some(14.0)));
        assert_eq!(ends(point().among(&[10.0])), (None, None));
    }
}
