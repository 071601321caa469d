//! The section of a file of `ziptier tco`.

use std::path::Path;

use crate::error::Error;
use crate::inputs::Inputs;
use crate::report::evaluation::{name_of, tornado};
use crate::report::figure::{Axis, Figure, Kind, Place, Point, Shape};
use crate::report::{Section, text_of};
use crate::tco::{Compared, Cost, Sheet};

/// Reads a file of designs and their prices.
///
/// # Errors
/// The file cannot be read, or has a field that is missing, unknown or impossible.
pub(crate) fn section(path: &Path) -> Result<Section, Error> {
    let (sheet, table) = Sheet::read(path)?;
    let all = Compared::all(&sheet, &table);
    let first = &all[0].cost.name;
    let mut figures = vec![costs(&all, &sheet.site.currency, sheet.site.years)];
    for one in &all[1..] {
        let title = format!("What matters most for the cost that {} saves beside {first}", one.cost.name);
        figures.extend(tornado(title, &one.effects, &|_| Kind::Input));
    }
    Ok(Section {
        title: format!("Costs {}", name_of(path)),
        about: vec![format!("Numbers of {}.", path.display())],
        verdicts: all[1..].iter().map(|one| one.verdict(first)).collect(),
        unknown: vec!["All numbers are input: ziptier measured none of them.".into()],
        figures,
        commands: vec![format!("ziptier tco {}", path.display())],
        files: vec![(name_of(path), text_of(path)?)],
        ..Section::default()
    })
}

/// Each cost of each design, the designs side by side. An item may have the name of another cost.
fn costs(all: &[Compared], currency: &str, years: u32) -> Figure {
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in all.iter().flat_map(|one| &one.cost.items) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut points = Vec::new();
    let mut add = |name: &str, of: &dyn Fn(&Cost) -> Option<f64>| {
        points.extend(all.iter().filter_map(|one| {
            let place = Place::Named(format!("{name}: {}", one.cost.name));
            Some(Point::new("", Kind::Input, place, Some(of(&one.cost)?)))
        }));
    };
    add("all", &|cost| Some(cost.total()));
    for name in names {
        add(name, &|cost| cost.of_items(name));
    }
    add("energy", &|cost| Some(cost.energy));
    add("room, power, cooling", &|cost| Some(cost.plant));
    let (x, y) = (Axis::linear("cost"), Axis::linear(currency));
    Figure::new("Costs", Shape::Bars, x, y, points).described(format!(
        "The cost of each design over {years} year(s), all of it first, then what it is made of."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_called_energy_stands_beside_the_energy_of_the_site() {
        let design = |name: &str| {
            format!(
                "[[design]]\nname = '{name}'\ncores = 1\noperations_per_second_per_core = 1\nwatts_busy = 1000\n"
            )
        };
        let text = format!(
            "item = [{{ name = 'energy', price = 5 }}, {{ name = 'all', price = 7 }}]\n\
             work = {{ operations_per_second = 1, data_gb = 1 }}\nsite = {{ years = 1, price_per_kwh = 1 }}\n{}{}",
            design("a"),
            design("b")
        );
        let (sheet, table) = Sheet::parse(&text).unwrap();
        let figure = costs(&Compared::all(&sheet, &table), "$", 1);
        let of = |name: &str| {
            let points = figure.points.iter().filter(|point| point.x == Place::Named(name.into()));
            points.filter_map(|point| point.y).collect::<Vec<f64>>()
        };
        // A kW for the hours of a year.
        assert_eq!(of("energy: a"), [5.0, 8_766.0]);
        assert_eq!(of("all: b"), [8_778.0, 7.0]);
    }
}
