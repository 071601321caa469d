//! Throughput of a database's codecs over processors, and of modelled devices over their number, as in the published
//! Figure 6. The question is how many processors a codec needs for the throughput of built-in zstd on all of them.

use crate::bench::{Configuration, Outcome};
use crate::predict::cores_for;
use crate::results::row::{Cell, Row, median};
use crate::results::table::{aligned, grouped, tsv, wrapped};
use crate::run::measurement::Measurement;
use crate::run::spec::RunSpec;
use crate::suites::database::{REFERENCE, in_words, label, setting};

/// The measurement with a number of processors.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Point {
    processors: usize,
    /// Median of the rounds.
    qps: f64,
    /// The least and the most of them.
    range: (f64, f64),
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

impl Curve<'_> {
    fn add(&mut self, configuration: &Configuration) {
        let mut qps: Vec<f64> = configuration.rounds.iter().map(Measurement::qps).collect();
        let Some(qps) = median(&mut qps) else { return };
        let all = || configuration.rounds.iter().map(Measurement::qps);
        let range = (all().fold(qps, f64::min), all().fold(qps, f64::max));
        self.points.push(Point { processors: configuration.spec.processors(), qps, range });
        self.points.sort_by_key(|point| point.processors);
    }

    /// The number of processors that reach `qps`; `None` if no point does.
    fn processors_for(&self, qps: f64) -> Option<f64> {
        let points: Vec<(f64, f64)> =
            self.points.iter().map(|point| (point.processors as f64, point.qps)).collect();
        cores_for(&points, qps)
    }

    fn is_modelled(&self) -> bool {
        self.spec.options.model.is_some()
    }
}

impl<'a> Scaling<'a> {
    /// The scalings of all codecs measured with several numbers of processors or devices, setting by setting.
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

    /// The point of built-in zstd with all processors.
    fn line(&self) -> Option<Point> {
        let zstd = self.curves.iter().find(|curve| curve.spec.codec == REFERENCE)?;
        zstd.points.last().copied()
    }

    /// The share of zstd's processors with which a curve reaches zstd's throughput.
    fn share(&self, curve: &Curve<'_>) -> Option<f64> {
        let line = self.line()?;
        Some(curve.processors_for(line.qps)? / line.processors as f64)
    }

    /// The share of zstd's processors that `spec` needs for as many operations, by the measurements with fewer
    /// processors.
    pub(crate) fn share_of(all: &[Scaling<'a>], spec: &RunSpec) -> Option<f64> {
        let scaling = all.iter().find(|scaling| setting(scaling.curves[0].spec) == setting(spec))?;
        let curve = scaling.curves.iter().find(|curve| label(curve.spec) == label(spec))?;
        (curve.points.len() > 1).then(|| scaling.share(curve)).flatten()
    }

    /// As a table, one line for each codec.
    pub(crate) fn table(&self) -> String {
        const HEADINGS: [&str; 5] = ["codec", "processors", "ops/s", "to zstd", "needed"];
        let line = self.line();
        let mut lines = vec![HEADINGS.map(str::to_owned).to_vec()];
        for curve in &self.curves {
            let needed = line.map(|line| curve.processors_for(line.qps));
            let mut name = label(curve.spec);
            let mut needed = match needed {
                None => "-".to_owned(),
                Some(None) => format!("over {}", curve.points.last().map_or(0, |point| point.processors)),
                Some(Some(needed)) => grouped(needed, 2),
            };
            for point in &curve.points {
                let ratio = line.map_or("-".to_owned(), |line| grouped(point.qps / line.qps, 2));
                let (name, needed) = (std::mem::take(&mut name), std::mem::take(&mut needed));
                lines.push(vec![name, point.processors.to_string(), grouped(point.qps, 0), ratio, needed]);
            }
        }
        let all = line.map_or(0, |line| line.processors);
        let heading = wrapped(&format!("Figure 6, {}", in_words(self.curves[0].spec)));
        let meaning = format!(
            "to zstd: to {REFERENCE} on {all} processor(s); needed: processors for as many ops/s as that"
        );
        format!("{heading}{}{}", aligned(&lines, 1), wrapped(&meaning))
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

#[cfg(feature = "plots")]
mod picture;
#[cfg(feature = "plots")]
pub(crate) use picture::plot;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::database::tests::{configuration, outcome};

    fn with(codec: &str, cpus: usize, model: Option<&str>, operations: u64) -> Configuration {
        let mut one = configuration(codec, 16384, &[[operations, 1000, 80]]);
        one.spec.cpus = (0..cpus).collect();
        one.spec.options.model = model.map(str::to_owned);
        one
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
        assert!(devices[0].ends_with("over 1"), "{table}");
        let rows = points(&scalings);
        assert_eq!(rows.matches("\tmodelled\t").count(), 3, "{rows}");
    }

    #[test]
    fn one_point_without_a_model_is_no_curve() {
        assert!(Scaling::all(&outcome(vec![with("builtin-zstd", 0, None, 50)])).is_empty());
    }
}
