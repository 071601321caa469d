//! The sections of an evaluation in media-based work units, and of a file of units and platforms.

use std::fs;
use std::path::Path;

use crate::error::Error;
use crate::inputs::{Effect, Inputs, deviation, effects};
use crate::mbwu::{
    Comparison, Evaluation, Measured, Origin, Platform, Resource, Source, effects_on_saving, known_by,
    verdicts,
};
use crate::report::figure::{Axis, Figure, Kind, Place, Point, Shape};
use crate::report::runs::{self, Runs};
use crate::report::{Section, facts_of, text_of, told_once};
use crate::results::table::grouped;
use crate::run::measurement::Measurement;
use crate::tco::EFFECTS_SHOWN;

/// Reads the folder of an evaluation, however much of it is measured.
///
/// # Errors
/// A file cannot be read, or is damaged; or nothing is measured yet.
pub(crate) fn section(folder: &Path) -> Result<Section, Error> {
    let evaluation = Evaluation::open(folder)?;
    let mut measured = evaluation.measured()?;
    let compared = evaluation.comparison();
    if measured.is_empty() {
        return Err(compared.expect_err("without a measurement there is no comparison"));
    }
    let mut section = Section {
        title: format!("Evaluation {}", name_of(folder)),
        about: vec![format!("Results in {}.", folder.display())],
        commands: vec![format!("ziptier mbwu run {}", folder.display())],
        files: sheets(folder)?,
        ..Section::default()
    };
    match &compared {
        Ok((comparison, table)) => {
            let kind = |place: Option<usize>, resource| kind_of(comparison, place, resource, &measured);
            compare(&mut section, comparison, table, &kind);
        }
        Err(error) => section.unknown.push(format!("Nothing can be compared yet: {error}.")),
    }
    section.verdicts.extend(measured.iter().map(ToString::to_string));
    name_apart(&mut measured);
    section.facts = machines(&measured);
    section.unknown.extend(told_once(measured.len(), measured.iter().flat_map(unknown).collect()));
    section.figures.extend(figures(&measured));
    Ok(section)
}

/// Names the stages of sides of one name, since a figure joins the points of one name.
fn name_apart(measured: &mut [Measured]) {
    let names: Vec<String> = measured.iter().map(|one| one.name.clone()).collect();
    let is_shared = |name: &str| names.iter().filter(|other| *other == name).count() > 1;
    for one in measured.iter_mut().filter(|one| is_shared(&one.name) && !one.stage.is_empty()) {
        one.name = format!("{}, {}", one.name, one.stage);
    }
}

/// The machine of the first side, and what another machine is known by where that differs.
fn machines(measured: &[Measured]) -> Vec<(String, String)> {
    let Some((first, others)) = measured.split_first() else { return Vec::new() };
    let known = facts_of(&known_by(&first.machine));
    let differing = others.iter().filter(|one| !one.machine.is_null()).flat_map(|one| {
        let facts = facts_of(&known_by(&one.machine)).into_iter().filter(|fact| !known.contains(fact));
        facts.map(|(name, value)| (format!("{}: {name}", one.name), value)).collect::<Vec<_>>()
    });
    facts_of(&first.machine).into_iter().chain(differing).collect()
}

/// Reads a file of a unit and its platforms, whose numbers were measured elsewhere.
///
/// # Errors
/// The file cannot be read, or has a field that is missing, unknown or impossible.
pub(crate) fn comparison_section(path: &Path) -> Result<Section, Error> {
    let (comparison, table) = Comparison::read(path)?;
    let mut section = Section {
        title: format!("Comparison {}", name_of(path)),
        about: vec![format!("Numbers of {}.", path.display())],
        commands: vec![format!("ziptier mbwu compare {}", path.display())],
        files: vec![(name_of(path), text_of(path)?)],
        ..Section::default()
    };
    compare(&mut section, &comparison, &table, &|_, _| Kind::Input);
    section.unknown.push("All numbers are input: ziptier measured none of them.".into());
    Ok(section)
}

pub(crate) fn name_of(path: &Path) -> String {
    let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    whole.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn sheets(folder: &Path) -> Result<Vec<(String, String)>, Error> {
    let failed = |source| Error::Io { action: "read", path: folder.to_owned(), source };
    let entries = fs::read_dir(folder).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let mut paths: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    paths.iter().map(|path| Ok((name_of(path), text_of(path)?))).collect()
}

/// How the throughput of a platform, or its need for a resource, became known. Without a place, it is the unit, which
/// is measured first. Nothing tells a price or a volume but a file.
fn kind_of(
    comparison: &Comparison,
    place: Option<usize>,
    resource: Option<Resource>,
    measured: &[Measured],
) -> Kind {
    let found = match place.map(|place| &comparison.platforms[place]) {
        Some(platform) => {
            measured.iter().find(|one| one.name == platform.name && one.stage == platform.stage)
        }
        None => measured.first(),
    };
    match resource {
        None => found.and_then(|one| Some(runs_of(one)?.kind())).unwrap_or(Kind::Measured),
        Some(Resource::Power) => match found.and_then(|one| Some(one.power.as_ref()?.source)) {
            Some(Source::Measured) => Kind::Measured,
            Some(Source::Modelled) => Kind::Modelled,
            Some(Source::Input) | None => Kind::Input,
        },
        Some(Resource::Price | Resource::Volume) => Kind::Input,
    }
}

type KindOf<'k> = dyn Fn(Option<usize>, Option<Resource>) -> Kind + 'k;

/// Adds the verdicts and figures of a comparison.
fn compare(section: &mut Section, comparison: &Comparison, table: &toml::Table, kind: &KindOf<'_>) {
    let unit = &comparison.unit;
    section.about.push(format!(
        "1 MBWU = {} operations per second: {}, {}, {}.",
        grouped(unit.operations_per_second.0, 1),
        unit.workload,
        unit.medium,
        unit.software
    ));
    section.about.extend(unit.measured.as_ref().and_then(Origin::preparation_in_words));
    section.verdicts = verdicts(comparison, table);
    section.unknown.extend(comparison.not_measured());
    let price = format!("{}/MBWU", unit.currency);
    let shown: [(Option<Resource>, &str, &str, &str); 4] = [
        (None, "Units", "MBWU", "How many units of work each platform does."),
        (Some(Resource::Price), "Price of a unit", &price, "Less is better."),
        (Some(Resource::Power), "Energy of a unit", "Wh/MBWU and hour", "Less is better."),
        (Some(Resource::Volume), "Room of a unit", "litres/MBWU", "Less is better."),
    ];
    for (resource, title, unit_name, words) in shown {
        let of = |comparison: &Comparison, place: usize| {
            let (platform, unit) = (comparison.platforms.get(place)?, &comparison.unit);
            resource.map_or_else(|| platform.units(unit), |resource| platform.per_unit(unit, resource))
        };
        let point = |place: usize| {
            let sure = deviation(&effects(table, |moved: &Comparison| of(moved, place)));
            let at = Place::Named(platform_name(comparison, place));
            // The throughputs of the platform and of the unit are behind it, too.
            let known = kind(Some(place), resource).max(kind(Some(place), None)).max(kind(None, None));
            Point::new("", known, at, of(comparison, place))
                .within(sure.map(|deviation| deviation.reach_95()))
        };
        let points: Vec<Point> = (0..comparison.platforms.len()).map(point).collect();
        if points.iter().all(|point| point.y.is_none()) {
            section.unknown.push(format!("{title}: no platform has a number for it."));
            continue;
        }
        let figure =
            Figure::new(title, Shape::Bars, Axis::linear("platform"), Axis::linear(unit_name), points);
        section.figures.push(figure.described(format!(
            "{words} Whiskers are intervals of 95 %; a bar without one has no number with an error behind it."
        )));
    }
    section.figures.extend(tornados(comparison, table, kind));
}

fn platform_name(comparison: &Comparison, place: usize) -> String {
    let (name, stage) = (&comparison.platforms[place].name, &comparison.platforms[place].stage);
    let is_alone = comparison.platforms.iter().filter(|other| other.name == *name).count() == 1;
    if is_alone { name.clone() } else { format!("{name}, {stage}") }
}

fn tornados(comparison: &Comparison, table: &toml::Table, kind: &KindOf<'_>) -> Vec<Figure> {
    let kind_of = |effect: &Effect| match effect.name.rsplit_once(", ") {
        Some((of, "operations_per_second")) => kind(place_of(comparison, of), None),
        Some((of, "watts")) => kind(place_of(comparison, of), Some(Resource::Power)),
        _ => Kind::Input,
    };
    let mut figures = Vec::new();
    for place in (0..comparison.platforms.len()).filter(|place| comparison.base(*place) != *place) {
        for (resource, what) in Resource::ALL.into_iter().zip(["money", "energy", "space"]) {
            let (name, base) =
                (platform_name(comparison, place), platform_name(comparison, comparison.base(place)));
            let title = format!("What matters most for the {what} that {name} saves beside {base}");
            figures.extend(tornado(title, &effects_on_saving(table, place, resource), &kind_of));
        }
    }
    figures
}

/// The platform that an effect's name begins with, beside its stage if others have its name; nothing for the unit.
fn place_of(comparison: &Comparison, words: &str) -> Option<usize> {
    let words = words.strip_prefix("platform ")?;
    let find = |is_it: &dyn Fn(&Platform) -> bool| comparison.platforms.iter().position(is_it);
    find(&|platform| words == platform.name)
        .or_else(|| find(&|platform| words == format!("{} ({})", platform.name, platform.stage)))
}

/// How far a saving goes if each number is less or more, those that do most first.
pub(crate) fn tornado(title: String, effects: &[Effect], kind: &dyn Fn(&Effect) -> Kind) -> Option<Figure> {
    let percent = |share: f64| share * 100.0;
    let point = |effect: &Effect| {
        let by = if effect.error.is_some() { "by its 95 %" } else { "by a tenth" };
        let place = Place::Named(effect.name.clone());
        let mut point = Point::new(by, kind(effect), place, Some(percent(effect.result)));
        [point.low, point.high] = effect.moved.map(|end| end.map(percent));
        point
    };
    let points: Vec<Point> = effects.iter().take(EFFECTS_SHOWN).map(point).collect();
    let (x, y) = (Axis::linear("number"), Axis::linear("saved, per cent"));
    let figure = Figure::new(title, Shape::Intervals, x, y, points);
    (!figure.points.is_empty()).then(|| {
        figure.described(
            "Each line reaches over what is saved if that number is less or more, as far as it may be off with 95 %, \
             or by a tenth where it has no error. In the table, low is the saving with less of the number, and high \
             is that with more.",
        )
    })
}

fn measurements(one: &Measured) -> Vec<&Measurement> {
    one.rounds.iter().map(|round| &round.measurement).collect()
}

fn runs_of(one: &Measured) -> Option<Runs<'_>> {
    Some(Runs { name: &one.name, spec: &one.rounds.first()?.origin.asked, rounds: &[] })
}

fn figures(measured: &[Measured]) -> Vec<Figure> {
    let rounds: Vec<Vec<&Measurement>> = measured.iter().map(measurements).collect();
    let all: Vec<Runs<'_>> = measured
        .iter()
        .zip(&rounds)
        .filter_map(|(one, rounds)| Some(Runs { rounds, ..runs_of(one)? }))
        .collect();
    let mut figures = vec![shares(measured), by_round(measured)];
    figures.extend(runs::saturation(&all));
    figures.extend(runs::latency("Latency", &all));
    figures.push(runs::throughput_and_size(&all));
    figures.extend(runs::meters(&all));
    figures
}

fn shares(measured: &[Measured]) -> Figure {
    let points = measured.iter().flat_map(|one| {
        let shares = &one.shares;
        let all = [("medium", shares.medium), ("processors", shares.processors), ("network", shares.network)];
        all.map(|(resource, share)| {
            let place = Place::Named(format!("{}: {resource}", one.name));
            Point::new("", Kind::Measured, place, share.map(|share| share * 100.0))
        })
    });
    let words = measured.iter().map(|one| format!("{}: {}", one.name, one.limit_in_words()));
    let (x, y) = (Axis::linear("resource"), Axis::linear("in use, per cent"));
    Figure::new("What limits each side", Shape::Bars, x, y, points.collect())
        .described(words.collect::<Vec<_>>().join(" "))
}

fn by_round(measured: &[Measured]) -> Figure {
    let points = measured.iter().flat_map(|one| {
        (1..).zip(&one.rounds).map(|(number, round)| {
            let kind = runs_of(one).map_or(Kind::Measured, |runs| runs.kind());
            Point::new(&one.name, kind, Place::At(f64::from(number)), Some(round.throughput()))
        })
    });
    let words: Vec<String> = measured
        .iter()
        .map(|one| {
            let reach = one.throughput.reach_95();
            let sure =
                reach.map_or(String::new(), |reach| format!(", with 95 % within {}", grouped(reach, 0)));
            format!("{}: {} operations per second{sure}.", one.name, grouped(one.throughput.mean, 0))
        })
        .collect();
    let (x, y) = (Axis::linear("round"), Axis::linear("operations per second"));
    Figure::new("Throughput of each round", Shape::Lines, x, y, points.collect()).described(words.join(" "))
}

/// What is not known of one side, each with its name.
fn unknown(one: &Measured) -> Vec<(String, String)> {
    let rounds = measurements(one);
    let Some(runs) = runs_of(one).map(|runs| Runs { rounds: &rounds, ..runs }) else { return Vec::new() };
    let mut unknown = runs::unknown(&runs);
    let power = match one.power.as_ref().map(|power| power.source) {
        Some(Source::Modelled) => Some("power is modelled from its busy processors, not measured."),
        Some(Source::Input) => Some("power is input, not measured."),
        Some(Source::Measured) => None,
        // The unit itself has no power.
        None => (!one.stage.is_empty()).then_some("power is missing."),
    };
    let steady = one.unsteady.as_ref().map(|why| format!("without a verdict: {why}."));
    let told = power.map(str::to_owned).into_iter().chain(steady);
    let told = told.map(|sentence| (one.name.clone(), sentence));
    unknown.extend(told);
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the numbers of the second are as measured or as modelled as those of the first.
    #[test]
    fn numbers_of_platforms_of_one_name_are_those_of_their_stage() {
        let platform = |stage: &str| {
            format!("[[platform]]\nname = 'board'\nstage = '{stage}'\nmbwu = 2\nprice = 4\nwatts = 5\n")
        };
        let text = format!(
            "[unit]\nworkload = 'w'\nmedium = 'm'\nsoftware = 's'\noperations_per_second = 10\n{}{}",
            platform("integrated"),
            platform("network")
        );
        let (comparison, table) = Comparison::parse(&text).unwrap();
        let all = effects(&table, |moved: &Comparison| Some(moved.platforms[1].watts?.0));
        let [watts] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!(watts.name, "platform board (network), watts");
        let found = watts.name.rsplit_once(", ").map(|(of, _)| place_of(&comparison, of));
        assert_eq!(found, Some(Some(1)));
        assert_eq!(place_of(&comparison, "unit"), None);
    }
}
