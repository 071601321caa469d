//! A comparison as a table, as TSV or as JSON.

use super::{Comparison, Resource, effects_on_saving};
use crate::inputs::{Saving, saving_in_words};
use crate::report::{Format, aligned, grouped, objects, tsv, wrapped};
use crate::row::{Cell, Row};

/// The comparison in this format, ending with a newline.
pub fn render(comparison: &Comparison, table: &toml::Table, format: Format) -> String {
    let places = 0..comparison.platforms.len();
    match format {
        Format::Tsv => tsv(places.map(|place| row(comparison, table, place))),
        Format::Json => format!("{:#}\n", objects(places.map(|place| row(comparison, table, place)))),
        Format::Table => text(comparison, table),
    }
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
        let percent = |share: f64| share * 100.0;
        let of = |figure: Option<f64>| Cell::number(figure.map(percent), 2);
        [of(saving.map(|saving| saving.share)), of(saving.and_then(|saving| saving.deviation))]
    });
    let ([price, price_deviation], [power, power_deviation], [volume, volume_deviation]) =
        (price, power, volume);
    vec![
        ("workload", Cell::text(Some(&unit.workload))),
        ("medium", Cell::text(Some(&unit.medium))),
        ("software", Cell::text(Some(&unit.software))),
        ("stage", Cell::text(Some(&platform.stage))),
        ("platform", Cell::text(Some(&platform.name))),
        ("mbwu", Cell::number(Some(platform.units(unit)), 4)),
        ("operations_per_second_of_unit", Cell::number(Some(unit.operations_per_second.0), 1)),
        ("price_per_mbwu", per_unit(Resource::Price, 2)),
        ("watts_per_mbwu", per_unit(Resource::Power, 3)),
        ("litres_per_mbwu", per_unit(Resource::Volume, 3)),
        ("price_saving_pct", price),
        ("price_saving_deviation_pct", price_deviation),
        ("energy_saving_pct", power),
        ("energy_saving_deviation_pct", power_deviation),
        ("volume_saving_pct", volume),
        ("volume_saving_deviation_pct", volume_deviation),
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
            grouped(platform.units(unit), 2),
            cell(Resource::Price, 2),
            cell(Resource::Power, 1),
            cell(Resource::Volume, 1),
        ]);
    }
    text += &aligned(&lines, 2);
    for place in (0..comparison.platforms.len()).filter(|place| comparison.base(*place) != *place) {
        let (platform, base) = (&comparison.platforms[place], &comparison.platforms[comparison.base(place)]);
        for (resource, what) in Resource::ALL.into_iter().zip(["money", "energy", "space"]) {
            let Some(saving) = saving(comparison, table, place, resource) else { continue };
            let sentence =
                saving_in_words(&platform.name, &base.name, &format!("the {what} for each unit"), saving);
            text += &format!("\n{}", wrapped(&format!("{}: {sentence}", platform.stage)));
        }
    }
    text
}
