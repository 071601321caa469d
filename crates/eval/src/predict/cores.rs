//! Cores that one configuration needs for the throughput of another, from curves of throughput over cores.
//!
//! Between two measured numbers of cores the curve is a straight line, and so it is from 0 to the first. A curve is
//! never continued beyond its last point: what no point reaches is not predicted. Each round that all points have gives
//! a saving of its own. Their mean has an interval by Student's t for so few rounds.

use super::measured::Series;
use crate::error::Error;
use crate::results::row::{Cell, Row};
use crate::results::table::{Format, aligned, grouped, objects, tsv, wrapped};
use crate::statistics::Mean;

/// The number of cores that reach a throughput, on straight lines between pairs of cores and throughput, beginning at
/// zero. `None` if none of them reaches it.
pub(crate) fn cores_for(points: &[(f64, f64)], throughput: f64) -> Option<f64> {
    let mut before = (0.0, 0.0);
    for &(cores, reached) in points {
        if reached >= throughput {
            let share = (throughput - before.1) / (reached - before.1);
            return Some(before.0 + share * (cores - before.0));
        }
        before = (cores, reached);
    }
    None
}

/// What a configuration saves at the throughput of the base.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    /// The name of the base.
    pub base: String,
    /// The configuration.
    pub series: String,
    /// Whether it had a modelled device.
    pub is_modelled: bool,
    /// Cores of the base.
    pub base_cores: usize,
    /// Operations per second of the base on them; the median of its rounds.
    pub throughput: f64,
    /// Cores needed, the mean of the rounds; none if a round never reaches the throughput.
    pub cores: Option<f64>,
    /// The part of the base's cores that is saved.
    pub saving: Option<f64>,
    /// The standard error of that; none for one round.
    pub deviation: Option<f64>,
    /// Half of the interval that holds the saving with 95 %.
    pub reach: Option<f64>,
    /// The rounds behind both.
    pub rounds: usize,
}

/// What every series but the base saves, for each number of cores that the base was measured with. `base` is a part of
/// the name of a series; the first series if it is missing.
///
/// # Errors
///
/// No series, or more than one, has such a name; or there is none beside it.
pub fn savings(all: &[Series], base: Option<&str>) -> Result<Vec<Saved>, Error> {
    let names = || all.iter().map(|series| series.name.clone()).collect::<Vec<_>>().join("; ");
    let asked = base.unwrap_or(&all[0].name);
    let exact = all.iter().position(|series| series.name == asked);
    let parts: Vec<usize> = (0..all.len()).filter(|&place| all[place].name.contains(asked)).collect();
    let place = match (exact, parts.as_slice()) {
        (Some(place), _) | (None, &[place]) => place,
        _ => return Err(Error::Unknown { what: "series", given: asked.into(), known: names() }),
    };
    if all.len() < 2 {
        return Err(Error::invalid(
            "runs",
            asked,
            "there is one series alone; give the runs of another, too",
        ));
    }
    let base = &all[place];
    let others = all.iter().enumerate().filter(|(other, _)| *other != place);
    Ok(others.flat_map(|(_, series)| curve(base).into_iter().map(|at| saved(base, series, at))).collect())
}

/// Pairs of cores and the best throughput with them.
fn curve(series: &Series) -> Vec<(f64, f64)> {
    let mut curve: Vec<(f64, f64)> = Vec::new();
    for point in &series.points {
        let (cores, throughput) = (point.cores as f64, point.throughput());
        match curve.last_mut() {
            Some(last) if last.0 == cores => last.1 = last.1.max(throughput),
            _ => curve.push((cores, throughput)),
        }
    }
    curve
}

fn saved(base: &Series, series: &Series, (base_cores, throughput): (f64, f64)) -> Saved {
    let of_round = |round: usize| {
        let (base, own) = (base.round(round)?, series.round(round)?);
        let (_, reached) = *curve(&base).iter().find(|(cores, _)| *cores == base_cores)?;
        Some(cores_for(&curve(&own), reached))
    };
    let rounds: Option<Vec<f64>> = (0..).map_while(of_round).collect();
    let rounds = rounds.filter(|rounds| !rounds.is_empty());
    let mean = rounds.as_deref().and_then(Mean::of);
    let cores = mean.map(|mean| mean.mean);
    let in_cores = |width: Option<f64>| width.map(|width| width / base_cores);
    Saved {
        base: base.name.clone(),
        series: series.name.clone(),
        is_modelled: series.model.is_some() || base.model.is_some(),
        base_cores: base_cores as usize,
        throughput,
        cores,
        saving: cores.map(|cores| 1.0 - cores / base_cores),
        deviation: in_cores(mean.and_then(|mean| mean.error)),
        reach: in_cores(mean.and_then(|mean| mean.reach_95())),
        rounds: mean.map_or(0, |mean| mean.samples),
    }
}

/// The savings in this format, ending with a newline.
pub fn render_savings(all: &[Saved], format: Format) -> String {
    match format {
        Format::Tsv => tsv(all.iter().map(row)),
        Format::Json => format!("{:#}\n", objects(all.iter().map(row))),
        Format::Table => text(all),
    }
}

fn row(saved: &Saved) -> Row {
    let pct = |part: Option<f64>| Cell::number(part.map(|part| part * 100.0), 2);
    let status = if saved.is_modelled { "predicted, modelled" } else { "predicted" };
    vec![
        ("base", Cell::text(Some(&saved.base))),
        ("series", Cell::text(Some(&saved.series))),
        ("status", Cell::text(Some(status))),
        ("base_cores", Cell::Count(saved.base_cores as i64)),
        ("qps", Cell::number(Some(saved.throughput), 0)),
        ("cores", Cell::number(saved.cores, 3)),
        ("core_saving_pct", pct(saved.saving)),
        ("deviation_pct", pct(saved.deviation)),
        ("deviation_freedom", Cell::number(saved.deviation.map(|_| saved.rounds as f64 - 1.0), 2)),
        ("reach_95_pct", pct(saved.reach)),
    ]
}

fn text(all: &[Saved]) -> String {
    let mut lines = vec![
        ["predicted", "cores of base", "ops/s", "cores needed", "saved %", "+-95 %"]
            .map(str::to_owned)
            .to_vec(),
    ];
    lines.extend(all.iter().map(|saved| {
        let pct = |part: Option<f64>| part.map_or_else(|| "-".into(), |part| format!("{:.1}", part * 100.0));
        vec![
            format!("{}{}", saved.series, if saved.is_modelled { " (modelled)" } else { "" }),
            saved.base_cores.to_string(),
            grouped(saved.throughput, 0),
            saved.cores.map_or_else(|| "more than measured".into(), |cores| grouped(cores, 2)),
            pct(saved.saving),
            pct(saved.reach),
        ]
    }));
    let base = all.first().map_or("", |saved| &saved.base);
    let mut text = wrapped(&format!("Cores for the throughput of {base}")) + &aligned(&lines, 1);
    for saved in all {
        if let (Some(saving), Some(deviation)) = (saved.saving, saved.deviation) {
            text += &format!(
                "\n# {}, at the throughput of {} core(s), for a design of ziptier tco:\n\
                 core_saving = {{ value = {saving:.4}, error = {deviation:.4}, samples = {} }}\n",
                saved.series, saved.base_cores, saved.rounds
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predict::measured::tests::series;

    #[test]
    fn cores_are_found_between_points() {
        let points = [(1.0, 100.0), (2.0, 150.0)];
        assert_eq!(cores_for(&points, 50.0), Some(0.5));
        assert_eq!(cores_for(&points, 125.0), Some(1.5));
        assert_eq!(cores_for(&points, 150.0), Some(2.0));
        assert_eq!(cores_for(&points, 151.0), None);
    }

    #[test]
    fn a_saving_has_the_interval_of_its_rounds() {
        let base = series("zstd", &[(4, 4, &[100.0, 110.0, 90.0]), (8, 8, &[200.0, 220.0, 180.0])]);
        // Of two numbers of threads the faster one counts.
        let other = series(
            "tokens",
            &[(4, 4, &[200.0, 220.0, 200.0]), (8, 4, &[100.0; 3]), (8, 8, &[300.0, 330.0, 300.0])],
        );
        let slow = series("slow", &[(4, 4, &[10.0; 3])]);
        let all = savings(&[base, other, slow], Some("zst")).unwrap();
        let [four, eight, never, _] = all.as_slice() else { panic!("{all:?}") };
        // 100 of 200, 110 of 220, 90 of 200: 2, 2 and 1.8 of 4 cores.
        assert!((four.saving.unwrap() - (1.0 - 5.8 / 3.0 / 4.0)).abs() < 1e-9, "{four:?}");
        assert!((four.deviation.unwrap() - 0.2 / 3.0 / 4.0).abs() < 1e-9, "{four:?}");
        assert!((four.reach.unwrap() / four.deviation.unwrap() - 4.303).abs() < 1e-3);
        assert!((eight.saving.unwrap() - (1.0 - (4.0 + 4.0 + 3.6) / 3.0 / 8.0)).abs() < 1e-9, "{eight:?}");
        assert_eq!((never.saving, never.cores), (None, None));
        let text = render_savings(&all, Format::Table);
        assert!(
            text.contains("more than measured") && text.contains("core_saving = { value = 0.5167, error ="),
            "{text}"
        );
    }

    /// Without its point of one core, the curve of tokens would be a line from zero that needs one core.
    #[test]
    fn rounds_that_a_point_lacks_give_no_saving() {
        let base = series("zstd", &[(1, 1, &[100.0; 3]), (2, 2, &[150.0; 5])]);
        let other = series("tokens", &[(1, 1, &[200.0; 3]), (2, 2, &[300.0; 5])]);
        let all = savings(&[base, other], None).unwrap();
        let [_, two] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((two.base_cores, two.cores, two.rounds), (2, Some(0.75), 3));
    }

    #[test]
    fn a_base_must_be_one_of_several() {
        let one = |name| series(name, &[(1, 1, &[1.0][..])]);
        let told = |all: &[Series], base| savings(all, base).unwrap_err().to_string();
        assert!(told(&[one("a"), one("b")], Some("c")).contains("unknown series `c`; known: a; b"));
        assert!(told(&[one("a1"), one("a2")], Some("a")).contains("unknown series `a`"));
        assert!(told(&[one("a")], None).contains("there is one series alone"));
    }
}
