//! The figures of runs: throughput and size, latency, scaling, saturation, and the meters of the machine over time.

use crate::report::figure::{Axis, Figure, Kind, Mark, Place, Point, Scale, Shape};
use crate::results::row::median;
use crate::run::measurement::{Latency, Measurement, Percentile, Sample};
use crate::run::spec::RunSpec;
use crate::statistics::Mean;

/// Points of a series over time: more samples are joined.
const SAMPLES_MAX: usize = 60;
const MIB: f64 = 1_048_576.0;

/// All rounds of one configuration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runs<'a> {
    pub(crate) name: &'a str,
    pub(crate) spec: &'a RunSpec,
    pub(crate) rounds: &'a [&'a Measurement],
}

impl Runs<'_> {
    pub(crate) fn kind(&self) -> Kind {
        if self.spec.options.model.is_some() { Kind::Modelled } else { Kind::Measured }
    }

    fn figures(&self, of: impl Fn(&Measurement) -> Option<f64>) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| of(round)).collect()
    }

    fn median(&self, of: impl Fn(&Measurement) -> Option<f64>) -> Option<f64> {
        median(&mut self.figures(of))
    }

    /// The processors that the runs had.
    fn processors(&self) -> usize {
        let there = |round: &&Measurement| round.usable_processors().len();
        match self.spec.cpus.len() {
            0 => self.rounds.first().map_or(0, there),
            some => some,
        }
    }
}

/// Whether two runs did the same work.
pub(crate) fn are_beside(one: &RunSpec, other: &RunSpec) -> bool {
    let work = |spec: &RunSpec| {
        let sizes = (spec.value_bytes, spec.value_order, spec.keys, spec.instances);
        (spec.workload.clone(), sizes, spec.threads, spec.cpus.clone())
    };
    work(one) == work(other)
}

/// Operations per second over the bytes that a target holds.
pub(crate) fn throughput_and_size(all: &[Runs<'_>]) -> Figure {
    let mut points = Vec::new();
    for runs in all {
        let size = runs.median(|round| round.settled_held_per_raw().or_else(|| round.held_per_raw()));
        let throughputs = runs.figures(|round| Some(round.qps()));
        let point = Point::new(runs.name, runs.kind(), Place::of(size), median(&mut throughputs.clone()));
        points.push(point.among(&throughputs));
        if runs.kind() == Kind::Modelled {
            let most = runs.median(|round| round.qps_without_lateness(runs.spec));
            points.push(Point::new(runs.name, Kind::Predicted, Place::of(size), most));
        }
    }
    let (x, y) =
        (Axis::linear("bytes held per byte of keys and values"), Axis::linear("operations per second"));
    let figure = Figure::new("Throughput and size", Shape::Markers, x, y, points);
    figure.described(
        "Up is faster, left is smaller. Medians of the rounds; whiskers reach from the least to the most. Bytes are \
         those after the idle time, where there was one.",
    )
}

/// Latency over percentiles.
pub(crate) fn latency(title: &str, all: &[Runs<'_>]) -> Option<Figure> {
    let mut points = Vec::new();
    for runs in all {
        let Some(last) = runs.rounds.last() else { continue };
        let sides =
            [("reads", &last.percentiles.read, last.read), ("writes", &last.percentiles.write, last.write)];
        for (side, percentiles, latency) in sides {
            let series = format!("{}, {side}", runs.name);
            let known = if percentiles.is_empty() { latency.map(few) } else { Some(percentiles.clone()) };
            points.extend(
                known
                    .unwrap_or_default()
                    .into_iter()
                    .map(|at| Point::new(&series, runs.kind(), Place::At(at.share * 100.0), Some(at.us))),
            );
        }
    }
    let x = Axis { name: "percentile".into(), scale: Scale::Percentiles };
    let y = Axis { name: "latency in microseconds".into(), scale: Scale::Logarithmic };
    let figure = Figure::new(title, Shape::Lines, x, y, points);
    (!figure.points.is_empty()).then(|| {
        figure.described(
            "Lower is better. Each line is the whole timed window of the last round. Both axes are logarithmic.",
        )
    })
}

/// The percentiles that results without the others have.
fn few(latency: Latency) -> Vec<Percentile> {
    let Latency { p50_us, p99_us, p999_us } = latency;
    [(0.5, p50_us), (0.99, p99_us), (0.999, p999_us)].map(|(share, us)| Percentile { share, us }).into()
}

/// Throughput over processors, or over threads where all runs have the same processors. `all` does the same work but
/// for these. The line lies at the most that `base` did.
pub(crate) fn scaling(title: &str, all: &[Runs<'_>], base: &str) -> Option<Figure> {
    let steps = |of: &dyn Fn(&Runs<'_>) -> usize| {
        let mut steps: Vec<usize> = all.iter().map(of).collect();
        steps.sort_unstable();
        steps.dedup();
        steps.len()
    };
    let by_processors = steps(&|runs| runs.processors()) > 1;
    let threads = |runs: &Runs<'_>| (runs.spec.threads * runs.spec.instances) as usize;
    if !by_processors && steps(&threads) < 2 {
        return None;
    }
    let load = |runs: &Runs<'_>| if by_processors { runs.processors() } else { threads(runs) };
    let point = |runs: &Runs<'_>| {
        let throughputs = runs.figures(|round| Some(round.qps()));
        let middle = median(&mut throughputs.clone());
        Point::new(runs.name, runs.kind(), Place::At(load(runs) as f64), middle).among(&throughputs)
    };
    let mut points = fastest(all.iter().map(point).collect());
    points.sort_by(|one, other| one.x.number().partial_cmp(&other.x.number()).expect("loads are numbers"));
    let what = if by_processors { "processors" } else { "threads" };
    let (x, y) = (Axis::linear(what), Axis::linear("operations per second"));
    let mut figure = Figure::new(title, Shape::Lines, x, y, points);
    let of = |name: &str| figure.points.iter().filter(|point| point.series == name).collect::<Vec<_>>();
    let most = of(base).iter().filter_map(|point| point.y).reduce(f64::max)?;
    let mut words = format!(
        "Of several runs with as many {what} the fastest counts. The line across is the most that {base} did. For as \
         much work each needs: "
    );
    let needed = figure.series().into_iter().map(|(name, _)| match load_for(&of(name), most) {
        Some(load) => format!("{name} {load:.1} {what}"),
        None => format!("{name} more {what} than were measured"),
    });
    words += &(needed.collect::<Vec<_>>().join("; ") + ", on straight lines between the points.");
    let (name, series) = (format!("the most of {base}"), base.to_owned());
    figure.marks.push(Mark { name, series, at: most, is_vertical: false });
    Some(figure.described(words))
}

/// The points without those that lie below another of the same series: runs with other threads, where `x` is
/// processors. A line through all of them would go up and down.
fn fastest(points: Vec<Point>) -> Vec<Point> {
    let is_above = |one: &Point, other: &Point| {
        (&one.series, one.kind, &one.x) == (&other.series, other.kind, &other.x) && one.y > other.y
    };
    points.iter().filter(|point| !points.iter().any(|other| is_above(other, point))).cloned().collect()
}

/// The load that gives so much throughput, on straight lines between the points, beginning at zero.
fn load_for(points: &[&Point], throughput: f64) -> Option<f64> {
    let mut before = (0.0, 0.0);
    for (load, reached) in points.iter().filter_map(|point| point.x.number().zip(point.y)) {
        if reached >= throughput {
            return Some(before.0 + (throughput - before.1) / (reached - before.1) * (load - before.0));
        }
        before = (load, reached);
    }
    None
}

/// What `--saturate` found.
pub(crate) fn saturation(all: &[Runs<'_>]) -> Option<Figure> {
    let (mut points, mut marks, mut words) = (Vec::new(), Vec::new(), Vec::new());
    for runs in all {
        let found = runs.rounds.iter().find_map(|round| Some((round.saturation.as_ref()?, round.warm_up)));
        let Some((found, warm_up)) = found else { continue };
        points.extend(found.points.iter().map(|point| {
            let mean = Mean::of(&point.throughputs).map(|mean| mean.mean);
            Point::new(runs.name, runs.kind(), Place::At(point.load as f64), mean).among(&point.throughputs)
        }));
        let peak = (found.peak_load as f64, found.peak.mean);
        points.push(
            Point::new(&format!("{}, peak", runs.name), runs.kind(), Place::At(peak.0), Some(peak.1))
                .within(found.peak.reach_95()),
        );
        marks.push(Mark {
            name: "knee".into(),
            series: runs.name.to_owned(),
            at: found.knee,
            is_vertical: true,
        });
        words.push(format!("{}: {found}.", runs.name));
        words.extend(warm_up.map(|warm_up| format!("{}: {}.", runs.name, warm_up.before("searched"))));
    }
    let x = Axis { name: "requests under way at once".into(), scale: Scale::Logarithmic };
    let mut figure =
        Figure::new("Saturation", Shape::Lines, x, Axis::linear("operations per second"), points);
    figure.marks = marks;
    (!figure.points.is_empty()).then(|| {
        figure.described(format!(
            "Means of all measurements of a load; whiskers reach from the least to the most, those of a peak over \
             its interval of 95 %. An upright line of the same colour is the knee, where throughput ends to grow \
             with the load. {}",
            words.join(" ")
        ))
    })
}

/// A title, a unit, and what a part of the window tells.
type Meter = (&'static str, &'static str, fn(&Sample) -> Option<f64>);

/// The only meter that is of the work, and not of the machine.
const THROUGHPUT: &str = "Throughput";

/// What each meter of the machine told during the last round.
pub(crate) fn meters(all: &[Runs<'_>]) -> Vec<Figure> {
    const METERS: [Meter; 7] = [
        (THROUGHPUT, "operations per second", |part| Some(part.operations as f64 / part.machine.sec)),
        ("Busy processors", "processors", |part| part.machine.busy_cores(&[])),
        ("Read from disks", "MiB per second", |part| {
            Some(part.machine.disk_bytes(|disk| disk.read_bytes)? as f64 / MIB / part.machine.sec)
        }),
        ("Written to disks", "MiB per second", |part| {
            Some(part.machine.disk_bytes(|disk| disk.written_bytes)? as f64 / MIB / part.machine.sec)
        }),
        ("Page cache", "MiB", |part| Some(part.machine.page_cache_bytes? as f64 / MIB)),
        ("Network", "MiB per second", |part| {
            Some(part.machine.network_bytes()? as f64 / MIB / part.machine.sec)
        }),
        ("Power by the machine's meters", "watts", |part| part.machine.watts()),
    ];
    METERS.into_iter().filter_map(|meter| over_time(all, meter)).collect()
}

fn over_time(all: &[Runs<'_>], (title, unit, told): Meter) -> Option<Figure> {
    let mut points = Vec::new();
    for runs in all {
        let Some(last) = runs.rounds.last().filter(|round| round.samples.len() > 1) else { continue };
        // The machine is there, whatever device is modelled on it; the work has the speed of the model.
        let kind = if title == THROUGHPUT { runs.kind() } else { Kind::Measured };
        let joined = last.samples.len().div_ceil(SAMPLES_MAX);
        let (mut seconds, mut of_series) = (0.0, Vec::new());
        for part in last.samples.chunks(joined) {
            let length: f64 = part.iter().map(|sample| sample.machine.sec).sum();
            let weighted: Option<f64> =
                part.iter().map(|sample| Some(told(sample)? * sample.machine.sec)).sum();
            let middle = Place::At(seconds + length / 2.0);
            of_series.push(Point::new(runs.name, kind, middle, weighted.map(|sum| sum / length)));
            seconds += length;
        }
        match of_series.iter().all(|point| point.y.is_none()) {
            true => points.push(Point::new(runs.name, kind, Place::Missing, None)),
            false => points.extend(of_series),
        }
    }
    let (x, y) = (Axis::linear("seconds of the timed window"), Axis::linear(unit));
    let figure = Figure::new(title, Shape::Lines, x, y, points);
    let is_known = figure.points.iter().any(|point| point.y.is_some());
    is_known.then(|| match title {
        THROUGHPUT => figure.described("The last round, of the work alone."),
        _ => figure.described("The last round, of the whole machine, other programs included."),
    })
}

/// What is not known of runs: meters that the machine lacks, and the like, each with the name of the runs.
pub(crate) fn unknown(runs: &Runs<'_>) -> Vec<(String, String)> {
    let mut unknown = Vec::new();
    let missing: Vec<&str> = runs.rounds.first().map_or(Vec::new(), |round| round.machine.missing());
    if !missing.is_empty() {
        unknown.push(format!("without a meter: {}.", missing.join(", ")));
    }
    if let Some(model) = &runs.spec.options.model {
        unknown.push(format!("the device is modelled ({model}), not measured."));
    }
    if runs.rounds.len() < 2 {
        unknown.push("one round alone does not tell how sure it is.".into());
    }
    let wrong = runs.rounds.iter().filter_map(|round| round.first_mismatch.as_ref());
    unknown.extend(wrong.map(|first| format!("WRONG ANSWERS, the first: {first}")));
    unknown.into_iter().map(|sentence| (runs.name.to_owned(), sentence)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_for_a_throughput_lies_between_the_points() {
        let points: Vec<Point> = [(1.0, 100.0), (2.0, 200.0), (4.0, 300.0)]
            .into_iter()
            .map(|(x, y)| Point::new("a", Kind::Measured, Place::At(x), Some(y)))
            .collect();
        let points: Vec<&Point> = points.iter().collect();
        let loads = [50.0, 200.0, 250.0, 301.0].map(|throughput| load_for(&points, throughput));
        assert_eq!(loads, [Some(0.5), Some(2.0), Some(3.0), None]);
    }
}
