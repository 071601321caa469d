//! The costs of a sheet as a table, as TSV or as JSON.

use super::{Bound, Cost, Sheet, costs, effects_on_saving};
use crate::inputs::{Effect, Saving, saving_in_words};
use crate::results::row::{Cell, Row};
use crate::results::table::{Format, aligned, grouped, objects, tsv, wrapped};

/// Numbers that do most, of those that do anything.
pub(crate) const EFFECTS_SHOWN: usize = 10;

/// A design beside the first one.
pub(crate) struct Compared {
    pub(crate) cost: Cost,
    saving: Saving,
    /// Needed cores over those of the first design.
    cores: f64,
    break_even_premium: f64,
    pub(crate) effects: Vec<Effect>,
}

impl Compared {
    pub(crate) fn all(sheet: &Sheet, table: &toml::Table) -> Vec<Compared> {
        let costs = costs(sheet);
        let first = costs[0].clone();
        let compared = |(place, cost): (usize, Cost)| {
            let effects = effects_on_saving(table, place);
            Compared {
                saving: Saving::new(cost.saving(&first), &effects),
                cores: cost.cores / first.cores,
                break_even_premium: cost.break_even_premium(&first, sheet.site.years),
                effects,
                cost,
            }
        };
        costs.into_iter().enumerate().map(compared).collect()
    }

    pub(crate) fn verdict(&self, first: &str) -> String {
        let mut words = saving_in_words(&self.cost.name, first, "the cost", self.saving);
        if (self.cores - 1.0).abs() > 1e-9 {
            words += &format!(
                " It needs {:.1} % of the cores: each core does {:.1} % more work.",
                self.cores * 100.0,
                (1.0 / self.cores - 1.0) * 100.0
            );
        }
        words
    }
}

/// The costs in this format, ending with a newline.
pub fn render(sheet: &Sheet, table: &toml::Table, format: Format) -> String {
    let all = Compared::all(sheet, table);
    match format {
        Format::Tsv => tsv(all.iter().map(row)),
        Format::Json => format!("{:#}\n", objects(all.iter().map(row))),
        Format::Table => text(sheet, &all),
    }
}

fn row(one: &Compared) -> Row {
    let Compared { cost, saving, cores, break_even_premium, .. } = one;
    let number = |value: f64, decimals| Cell::number(Some(value), decimals);
    vec![
        ("design", Cell::text(Some(&cost.name))),
        ("servers_first_year", number(cost.servers[0], 3)),
        ("servers_last_year", number(cost.servers[1], 3)),
        ("bound", Cell::Text(words(cost.bound).into())),
        ("cores", number(cost.cores, 3)),
        ("held_gb", number(cost.gb, 3)),
        ("compute_cost", number(cost.compute, 2)),
        ("energy_kwh", number(cost.kwh, 1)),
        ("energy_cost", number(cost.energy, 2)),
        ("plant_cost", number(cost.plant, 2)),
        ("total_cost", number(cost.total(), 2)),
        ("cost_per_million_operations", Cell::precise(cost.per_million_operations())),
        ("cost_per_gb_month", Cell::precise(cost.per_gb_month())),
        ("kwh_per_million_operations", Cell::precise(cost.kwh_per_million_operations())),
        ("saving_pct", number(saving.share * 100.0, 2)),
        ("saving_deviation_pct", Cell::number(saving.deviation.map(|deviation| deviation.error * 100.0), 2)),
        ("saving_deviation_freedom", Cell::freedom(saving.deviation)),
        ("cores_to_first", number(*cores, 4)),
        ("break_even_premium_per_server", number(*break_even_premium, 2)),
    ]
}

fn words(bound: Bound) -> &'static str {
    match bound {
        Bound::Operations => "operations",
        Bound::Data => "data",
    }
}

fn text(sheet: &Sheet, all: &[Compared]) -> String {
    let (work, site) = (&sheet.work, &sheet.site);
    let mut text = wrapped(&format!(
        "{} operations per second on {} GB of data, {} {}, in {}; {}",
        grouped(work.operations_per_second.0, 0),
        grouped(work.data_gb.0, 0),
        site.years,
        if site.years == 1 { "year" } else { "years" },
        site.currency,
        if site.whole_servers { "servers are whole" } else { "servers may be parts of one" }
    ));
    text.push('\n');
    text += &aligned(&lines(all, site.years > 1), 1);
    let first = &all[0].cost.name;
    for one in &all[1..] {
        text += &format!("\n{}", wrapped(&one.verdict(first)));
        text += &tornado(one);
    }
    text
}

fn lines(all: &[Compared], has_years: bool) -> Vec<Vec<String>> {
    let line = |name: &str, cell: &dyn Fn(&Compared) -> String| {
        std::iter::once(name.to_owned()).chain(all.iter().map(cell)).collect::<Vec<String>>()
    };
    let of = |name: &str, decimals: usize, figure: &dyn Fn(&Compared) -> Option<f64>| {
        line(name, &|one| figure(one).map_or_else(String::new, |figure| grouped(figure, decimals)))
    };
    let small = |name: &str, figure: &dyn Fn(&Compared) -> Option<f64>| {
        line(name, &|one| figure(one).map_or_else(String::new, four_digits))
    };
    let servers = |one: &Compared| one.cost.servers[0];
    let decimals = usize::from(all.iter().any(|one| servers(one).fract() > 0.0)) * 2;
    let mut lines =
        vec![line("", &|one| one.cost.name.clone()), of("servers", decimals, &|one| Some(servers(one)))];
    if has_years && all.iter().any(|one| one.cost.servers[0] != one.cost.servers[1]) {
        lines.push(of("servers in the last year", decimals, &|one| Some(one.cost.servers[1])));
    }
    lines.push(line("decided by", &|one| words(one.cost.bound).into()));
    lines.push(of("cores needed", 1, &|one| Some(one.cost.cores)));
    lines.push(of("GB held", 0, &|one| Some(one.cost.gb)));
    let mut names: Vec<&String> = Vec::new();
    for (name, _) in all.iter().flat_map(|one| &one.cost.items) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        lines.push(of(name, 0, &|one| one.cost.of_items(name)));
    }
    lines.push(of("energy", 0, &|one| Some(one.cost.energy)));
    lines.push(of("room, power, cooling", 0, &|one| Some(one.cost.plant)));
    lines.push(of("all", 0, &|one| Some(one.cost.total())));
    lines.push(of("of it for computing", 0, &|one| Some(one.cost.compute)));
    lines.push(small("a million operations", &|one| one.cost.per_million_operations()));
    lines.push(small("a GB of data for a month", &|one| one.cost.per_gb_month()));
    lines.push(small("kWh, a million operations", &|one| one.cost.kwh_per_million_operations()));
    let beside = |figure: &dyn Fn(&Compared) -> f64, decimals: usize, unit: &str, name: &str| {
        let cell = |one: &Compared| match std::ptr::eq(one, &all[0]) {
            true => "-".into(),
            false => grouped(figure(one), decimals) + unit,
        };
        line(name, &cell)
    };
    lines.push(beside(&|one| one.saving.share * 100.0, 1, " %", "saved"));
    lines.push(beside(&|one| one.break_even_premium, 0, "", "a server may cost more by"));
    lines
}

/// A number with four digits that count.
pub(crate) fn four_digits(number: f64) -> String {
    let magnitude = if number == 0.0 { 0 } else { number.abs().log10().floor() as i32 };
    grouped(number, usize::try_from(3 - magnitude).unwrap_or(0))
}

fn tornado(one: &Compared) -> String {
    let mut lines = vec![
        ["what matters most", "number", "moved by", "saved if less", "saved if more"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for effect in one.effects.iter().take(EFFECTS_SHOWN) {
        let saved = |result: Option<f64>| {
            result.map_or_else(String::new, |saving| format!("{} %", grouped(saving * 100.0, 1)))
        };
        lines.push(vec![
            effect.name.clone(),
            four_digits(effect.value),
            four_digits(effect.by) + if effect.error.is_some() { "" } else { " (a tenth)" },
            saved(effect.moved[0]),
            saved(effect.moved[1]),
        ]);
    }
    aligned(&lines, 1)
}
