//! A comparison as a table, as TSV or as JSON.

use crate::inputs::{Saving, error_of, saving_in_words, value_of};
use crate::mbwu::comparison::{Comparison, Platform, Resource, Unit, effects_on_saving};
use crate::mbwu::origin::Origin;
use crate::results::row::{Cell, Row};
use crate::results::table::{Format, aligned, grouped, objects, tsv, wrapped};
use crate::statistics::Deviation;

/// The comparisons in this format, ending with a newline. Several end with a matrix: which platform is the cheapest for
/// which workload.
pub fn render(all: &[(Comparison, toml::Table)], format: Format) -> String {
    let rows = || {
        let of = |(comparison, table): &(Comparison, toml::Table)| {
            (0..comparison.platforms.len()).map(|place| row(comparison, table, place)).collect::<Vec<_>>()
        };
        all.iter().flat_map(of)
    };
    match format {
        Format::Tsv => tsv(rows()),
        Format::Json => format!("{:#}\n", objects(rows())),
        Format::Table => {
            let mut parts: Vec<String> =
                all.iter().map(|(comparison, table)| text(comparison, table)).collect();
            if all.len() > 1 {
                parts.push(matrix(all));
                parts.extend(repeated(all));
            }
            parts.join("\n")
        }
    }
}

/// What stands in place of a number of units.
const NO_VERDICT: &str = "no verdict";

fn is_unsteady(platform: &Platform, unit: &Unit) -> bool {
    platform.unsteady.is_some() || unit.unsteady.is_some()
}

/// The price of a unit by workload, medium and stage on the one hand, and platform on the other.
fn matrix(all: &[(Comparison, toml::Table)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut settings: Vec<(&Comparison, &str)> = Vec::new();
    for (comparison, _) in all {
        for platform in &comparison.platforms {
            if !names.contains(&platform.name.as_str()) {
                names.push(&platform.name);
            }
            let is_known = |(known, stage): &(&Comparison, &str)| {
                std::ptr::eq(*known, comparison) && *stage == platform.stage
            };
            if !settings.iter().any(is_known) {
                settings.push((comparison, &platform.stage));
            }
        }
    }
    let mut lines = vec![
        std::iter::once("price of a unit, * the least")
            .chain(names.iter().copied())
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    ];
    for (comparison, stage) in settings {
        let unit = &comparison.unit;
        let price = |name: &&str| {
            let mut of_stage = comparison.platforms.iter().filter(|platform| platform.stage == stage);
            of_stage.find(|platform| platform.name == **name)?.per_unit(unit, Resource::Price)
        };
        let not_steady = |name: &&str| {
            let mut of_stage = comparison.platforms.iter().filter(|platform| platform.stage == stage);
            of_stage.any(|platform| platform.name == *name && is_unsteady(platform, unit))
        };
        let prices: Vec<Option<f64>> = names.iter().map(price).collect();
        let least = prices.iter().flatten().copied().reduce(f64::min);
        let cell = |(name, price): (&&str, &Option<f64>)| match price {
            None if not_steady(name) => NO_VERDICT.into(),
            None => "-".into(),
            Some(price) => {
                format!(
                    "{}{} {}",
                    if *price == least.unwrap_or(f64::NAN) { "*" } else { "" },
                    grouped(*price, 2),
                    unit.currency
                )
            }
        };
        let setting = format!("{}, {}, {stage}", unit.workload, unit.medium);
        lines.push(std::iter::once(setting).chain(names.iter().zip(&prices).map(cell)).collect());
    }
    aligned(&lines, 1)
}

/// A throughput and its error, as a file has them.
fn throughput(table: &toml::Value) -> Option<(f64, Option<Deviation>)> {
    let given = table.get("operations_per_second")?;
    Some((value_of(given)?, error_of(given)))
}

/// Whether what was measured twice came out alike: the same unit in the first file and in another, and the same
/// platform at the same stage.
fn repeated(all: &[(Comparison, toml::Table)]) -> Option<String> {
    let (first, first_table) = all.first()?;
    let words = |unit: &Unit| [unit.workload.clone(), unit.medium.clone(), unit.software.clone()];
    let mut lines = Vec::new();
    for (other, other_table) in &all[1..] {
        if words(&first.unit) != words(&other.unit) {
            continue;
        }
        let folders = [first, other].map(|comparison| comparison.folder.display().to_string());
        let difference = |one: &Option<Origin>, other: &Option<Origin>| {
            one.as_ref()?.apart(other.as_ref()?, folders.each_ref().map(String::as_str))
        };
        let of_unit = [&first.unit, &other.unit].iter().any(|unit| unit.unsteady.is_some());
        let mut pairs = vec![(
            "the unit".to_owned(),
            first_table.get("unit"),
            other_table.get("unit"),
            of_unit,
            difference(&first.unit.measured, &other.unit.measured),
        )];
        for (place, platform) in first.platforms.iter().enumerate() {
            let is_same = |one: &Platform| one.name == platform.name && one.stage == platform.stage;
            let Some(again) = other.platforms.iter().position(is_same) else { continue };
            pairs.push((
                format!("{} ({})", platform.name, platform.stage),
                first_table.get("platform").and_then(|all| all.get(place)),
                other_table.get("platform").and_then(|all| all.get(again)),
                platform.unsteady.is_some() || other.platforms[again].unsteady.is_some(),
                difference(&platform.measured, &other.platforms[again].measured),
            ));
        }
        for (name, before, after, is_unsteady, differs) in pairs {
            let both = before.and_then(throughput).zip(after.and_then(throughput));
            let Some(((before, error), (after, other_error))) = both else { continue };
            let apart = after - before;
            let both = error.zip(other_error).and_then(|(one, other)| Deviation::together([one, other]));
            let verdict = match (differs, both.map(|both| both.reach_95())) {
                (Some(differs), _) => format!(
                    "NOT MEASURED ALIKE, which settles nothing: {differs}; measure both anew with the same"
                ),
                _ if is_unsteady => "WITHOUT A VERDICT, which settles nothing".into(),
                (_, None) => "nobody knows whether that is more than the errors".into(),
                (_, Some(reach)) if apart.abs() <= reach => "within the errors of both".into(),
                (_, Some(_)) => "MORE THAN THE ERRORS of both".into(),
            };
            lines.push(wrapped(&format!(
                "{name}: {} and {} operations per second, {:+.1} %: {verdict}.",
                grouped(before, 0),
                grouped(after, 0),
                apart / before * 100.0
            )));
        }
    }
    (!lines.is_empty()).then(|| format!("measured again\n{}", lines.concat()))
}

fn saving(comparison: &Comparison, table: &toml::Table, place: usize, resource: Resource) -> Option<Saving> {
    let share = comparison.saving(place, resource)?;
    Some(Saving::new(share, &effects_on_saving(table, place, resource)))
}

fn row(comparison: &Comparison, table: &toml::Table, place: usize) -> Row {
    let (platform, unit) = (&comparison.platforms[place], &comparison.unit);
    let per_unit = |resource, decimals| Cell::number(platform.per_unit(unit, resource), decimals);
    let savings = Resource::ALL.map(|resource| saving(comparison, table, place, resource));
    let [price, power, volume] = savings.map(|saving| {
        let percent = |share: Option<f64>| Cell::number(share.map(|share| share * 100.0), 2);
        let deviation = saving.and_then(|saving| saving.deviation);
        [
            percent(saving.map(|saving| saving.share)),
            percent(deviation.map(|deviation| deviation.error)),
            Cell::freedom(deviation),
        ]
    });
    let [price, price_deviation, price_freedom] = price;
    let [power, power_deviation, power_freedom] = power;
    let [volume, volume_deviation, volume_freedom] = volume;
    vec![
        ("workload", Cell::text(Some(&unit.workload))),
        ("medium", Cell::text(Some(&unit.medium))),
        ("software", Cell::text(Some(&unit.software))),
        ("stage", Cell::text(Some(&platform.stage))),
        ("platform", Cell::text(Some(&platform.name))),
        ("mbwu", Cell::number(platform.units(unit), 4)),
        ("operations_per_second_of_unit", Cell::number(Some(unit.operations_per_second.0), 1)),
        ("price_per_mbwu", per_unit(Resource::Price, 2)),
        ("watts_per_mbwu", per_unit(Resource::Power, 3)),
        ("litres_per_mbwu", per_unit(Resource::Volume, 3)),
        ("price_saving_pct", price),
        ("price_saving_deviation_pct", price_deviation),
        ("price_saving_deviation_freedom", price_freedom),
        ("energy_saving_pct", power),
        ("energy_saving_deviation_pct", power_deviation),
        ("energy_saving_deviation_freedom", power_freedom),
        ("volume_saving_pct", volume),
        ("volume_saving_deviation_pct", volume_deviation),
        ("volume_saving_deviation_freedom", volume_freedom),
        ("no_verdict", Cell::text(comparison.no_verdict(place).as_deref())),
    ]
}

fn text(comparison: &Comparison, table: &toml::Table) -> String {
    let unit = &comparison.unit;
    let mut text = wrapped(&format!(
        "1 MBWU = {} operations per second: {}, {}, {}",
        grouped(unit.operations_per_second.0, 1),
        unit.workload,
        unit.medium,
        unit.software
    ));
    let prepared = unit.measured.as_ref().and_then(Origin::preparation_in_words);
    text.extend(prepared.map(|prepared| wrapped(&prepared)));
    // Without a unit, nothing below is a verdict.
    let first = unit.unsteady.is_some();
    let verdicts =
        || verdicts(comparison, table).iter().map(|told| format!("\n{}", wrapped(told))).collect::<String>();
    if first {
        text += &verdicts();
    }
    text.push('\n');
    let price = format!("{}/MBWU", unit.currency);
    let titles = ["stage", "platform", "MBWU", &price, "Wh/MBWU and hour", "litres/MBWU"];
    let mut lines = vec![titles.map(str::to_owned).to_vec()];
    for platform in &comparison.platforms {
        let cell = |resource, decimals| {
            platform
                .per_unit(unit, resource)
                .map_or_else(|| "-".into(), |per_unit| grouped(per_unit, decimals))
        };
        lines.push(vec![
            platform.stage.clone(),
            platform.name.clone(),
            platform.units(unit).map_or_else(|| NO_VERDICT.into(), |units| grouped(units, 2)),
            cell(Resource::Price, 2),
            cell(Resource::Power, 1),
            cell(Resource::Volume, 1),
        ]);
    }
    text += &aligned(&lines, 2);
    if !first {
        text += &verdicts();
    }
    for sentence in comparison.not_measured() {
        text += &format!("\n{}", wrapped(&sentence));
    }
    text
}

/// What each platform saves beside the first of its stage, a sentence for each resource; or why there is no verdict.
/// That of an unsteady unit is the only one.
pub(crate) fn verdicts(comparison: &Comparison, table: &toml::Table) -> Vec<String> {
    let mut verdicts = Vec::new();
    for place in 0..comparison.platforms.len() {
        let stage = &comparison.platforms[place].stage;
        match comparison.no_verdict(place) {
            Some(told) if comparison.unit.unsteady.is_some() => return vec![told],
            Some(told) => {
                verdicts.push(format!("{stage}: {told}"));
                continue;
            }
            None if comparison.base(place) == place => continue,
            None => {}
        }
        let (platform, base) = (&comparison.platforms[place], &comparison.platforms[comparison.base(place)]);
        for (resource, what) in Resource::ALL.into_iter().zip(["money", "energy", "space"]) {
            let Some(saving) = saving(comparison, table, place, resource) else { continue };
            let sentence =
                saving_in_words(&platform.name, &base.name, &format!("the {what} for each unit"), saving);
            verdicts.push(format!("{}: {sentence}", platform.stage));
        }
    }
    verdicts
}
