//! The section of a file of `ziptier tco`.

use std::path::Path;

use crate::error::Error;
use crate::inputs::Inputs;
use crate::report::evaluation::{name_of, tornado};
use crate::report::figure::{Axis, Figure, Kind, Place, Point, Shape};
use crate::report::{Section, text_of};
use crate::tco::{Compared, Sheet};

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

/// Each cost of each design, the designs side by side.
fn costs(all: &[Compared], currency: &str, years: u32) -> Figure {
    let mut parts: Vec<(Vec<(String, f64)>, &str)> = Vec::new();
    for one in all {
        let cost = &one.cost;
        let mut of_design = vec![("all".to_owned(), cost.total())];
        for (name, cost) in &cost.items {
            match of_design.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += cost,
                None => of_design.push((name.clone(), *cost)),
            }
        }
        of_design.push(("energy".into(), cost.energy));
        of_design.push(("room, power, cooling".into(), cost.plant));
        parts.push((of_design, cost.name.as_str()));
    }
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in parts.iter().flat_map(|(of_design, _)| of_design) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut points = Vec::new();
    for name in names {
        for (of_design, design) in &parts {
            if let Some((_, cost)) = of_design.iter().find(|(known, _)| known == name) {
                let place = Place::Named(format!("{name}: {design}"));
                points.push(Point::new("", Kind::Input, place, Some(*cost)));
            }
        }
    }
    let (x, y) = (Axis::linear("cost"), Axis::linear(currency));
    Figure::new("Costs", Shape::Bars, x, y, points).described(format!(
        "The cost of each design over {years} year(s), all of it first, then what it is made of."
    ))
}
