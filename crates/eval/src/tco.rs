//! Total cost of ownership: what a work costs on servers of one design, and what another design saves.
//!
//! For each year, `N` servers are the larger of the cores that the operations need over those of a server, and of the
//! GB that the data take over those of a server:
//!
//! - an item costs its price over the years that it lasts, for each server, needed core, held GB, or once;
//! - energy is watts × PUE × hours × price; watts lie between idle and busy by the share of cores that are busy;
//! - the plant (room, power, cooling) costs its price per watt that servers may draw, over the years that it lasts.
//!
//! This is the sum over parts that the reference works of data centres make (Hamilton, "Cost of Power in Large-Scale
//! Data Centers", 2008; Barroso, Hölzle and Ranganathan, "The Datacenter as a Computer", chapter 6). Sums are over the
//! years of the site, each discounted. A saving is 1 - TCO' / TCO.

mod sheet;
mod text;

use crate::inputs::{Effect, all_effects, effects};

pub use sheet::{Design, Item, Per, Sheet, Site, Work};
pub use text::render;
pub(crate) use text::{Compared, EFFECTS_SHOWN, four_digits};

/// Files to begin with, by their names: servers for RocksDB with zstd and with ziptier, whose prices are examples; what
/// "RocksDB with Intel IAA" says in its Figures 7 and 9; and the instances of "Optane persistent memory at Alibaba".
pub const EXAMPLES: [(&str, &str); 3] = [
    ("servers", include_str!("../sheets/servers.toml")),
    ("rocksdb-iaa", include_str!("../sheets/rocksdb-iaa.toml")),
    ("optane-alibaba", include_str!("../sheets/optane-alibaba.toml")),
];

const HOURS_PER_YEAR: f64 = 8_766.0;
const SECONDS_PER_YEAR: f64 = HOURS_PER_YEAR * 3_600.0;
/// A part of a server that is only an error of arithmetic.
const TINY: f64 = 1e-9;

/// What decides how many servers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Their cores.
    Operations,
    /// Their room for data.
    Data,
}

/// The cost of a work on one design, over all years.
#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// The design.
    pub name: String,
    /// Servers in the first and in the last year.
    pub servers: [f64; 2],
    /// What decides about them in the first year.
    pub bound: Bound,
    /// Cores that the operations keep busy in the first year, each as far as it may be.
    pub cores: f64,
    /// GB that are held in the first year.
    pub gb: f64,
    /// Each item's cost.
    pub items: Vec<(String, f64)>,
    /// The part of these that is for computing.
    pub compute: f64,
    /// Kilowatt-hours, those of the site included.
    pub kwh: f64,
    /// The cost of these.
    pub energy: f64,
    /// The cost of room, power and cooling.
    pub plant: f64,
    /// Operations that are done.
    pub operations: f64,
    /// The same, each discounted as the money of its year is.
    pub discounted_operations: f64,
    /// GB of data, times the months for which they are kept, discounted likewise.
    pub discounted_gb_months: f64,
    /// Servers, times the years for which they are there, discounted.
    pub server_years: f64,
}

impl Cost {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.items.iter().map(|(_, cost)| cost).sum::<f64>() + self.energy + self.plant
    }

    /// The cost of all items of a name; nothing if there is none.
    pub(crate) fn of_items(&self, name: &str) -> Option<f64> {
        let of_name = self.items.iter().filter(|(item, _)| item == name).map(|(_, cost)| *cost);
        of_name.reduce(|sum, more| sum + more)
    }

    /// The cost of a million operations: the price at which all operations pay for the whole cost.
    pub fn per_million_operations(&self) -> Option<f64> {
        (self.discounted_operations > 0.0).then(|| self.total() / self.discounted_operations * 1e6)
    }

    /// The cost of a GB of data for a month, likewise.
    pub fn per_gb_month(&self) -> Option<f64> {
        (self.discounted_gb_months > 0.0).then(|| self.total() / self.discounted_gb_months)
    }

    /// Kilowatt-hours for a million operations.
    pub fn kwh_per_million_operations(&self) -> Option<f64> {
        (self.operations > 0.0).then(|| self.kwh / self.operations * 1e6)
    }

    /// The part of the cost of `other` that this design saves.
    pub fn saving(&self, other: &Cost) -> f64 {
        1.0 - self.total() / other.total()
    }

    /// What a server may cost more for the years of the site until nothing is saved.
    pub fn break_even_premium(&self, other: &Cost, years: u32) -> f64 {
        (other.total() - self.total()) / self.server_years * f64::from(years)
    }
}

/// The cost of every design.
pub fn costs(sheet: &Sheet) -> Vec<Cost> {
    sheet.designs.iter().map(|design| cost(sheet, design)).collect()
}

fn cost(sheet: &Sheet, design: &Design) -> Cost {
    let (work, site) = (&sheet.work, &sheet.site);
    let years: Vec<Year> = (0..site.years).map(|year| Year::of(sheet, design, year)).collect();
    let sum = |of: &dyn Fn(&Year) -> f64| years.iter().map(|year| of(year) * year.discount).sum::<f64>();
    let of_item = |item: &Item| {
        let lasts = item.years.map_or(f64::from(site.years), |years| years.0);
        let count = |year: &Year| match item.per {
            Per::Server => year.servers,
            Per::Core => year.cores,
            Per::Gb => year.gb,
            Per::Site => 1.0,
        };
        sum(&count) * item.quantity.0 * item.price.0 / lasts
    };
    let bought = || sheet.items.iter().chain(&design.items);
    let items: Vec<(String, f64)> = bought().map(|item| (item.name.clone(), of_item(item))).collect();
    let kwh = |year: &Year| year.watts / 1e3 * site.pue.0 * HOURS_PER_YEAR;
    let operations = |year: &Year| work.operations_per_second.0 * year.growth * SECONDS_PER_YEAR;
    let (first, last) = (&years[0], &years[years.len() - 1]);
    Cost {
        name: design.name.clone(),
        servers: [first.servers, last.servers],
        bound: first.bound,
        cores: first.cores,
        gb: first.gb,
        compute: items
            .iter()
            .zip(bought())
            .filter(|(_, item)| item.is_compute)
            .map(|((_, cost), _)| cost)
            .sum(),
        items,
        kwh: years.iter().map(kwh).sum(),
        energy: sum(&kwh) * site.price_per_kwh.0,
        plant: sum(&|year| year.servers) * design.watts_busy.0 * site.price_per_watt.0 / site.plant_years.0,
        operations: years.iter().map(operations).sum(),
        discounted_operations: sum(&operations),
        discounted_gb_months: sum(&|year| work.data_gb.0 * year.growth * 12.0),
        server_years: sum(&|year| year.servers),
    }
}

/// What one year needs.
struct Year {
    growth: f64,
    discount: f64,
    cores: f64,
    gb: f64,
    servers: f64,
    bound: Bound,
    watts: f64,
}

impl Year {
    fn of(sheet: &Sheet, design: &Design, year: u32) -> Self {
        let exponent = year as i32;
        let growth = (1.0 + sheet.work.growth_per_year.0).powi(exponent);
        let per_core = sheet.per_core(design) * design.utilisation.0;
        let cores = sheet.work.operations_per_second.0 * growth / per_core;
        let gb = sheet.work.data_gb.0 * growth * design.held_per_data.0;
        let for_operations = cores / design.cores.0;
        let for_data = design.gb.map_or(0.0, |room| gb / room.0);
        let needed = for_operations.max(for_data);
        let servers = if sheet.site.whole_servers { (needed - TINY).ceil().max(1.0) } else { needed };
        let busy = cores * design.utilisation.0 / design.cores.0;
        let watts = servers * design.watts_idle.0 + busy * (design.watts_busy.0 - design.watts_idle.0);
        Year {
            growth,
            discount: (1.0 + sheet.site.discount_rate.0).powi(-exponent),
            cores,
            gb,
            servers,
            bound: if for_data > for_operations { Bound::Data } else { Bound::Operations },
            watts,
        }
    }
}

/// What each number of a file does to the saving of the design at this place. Numbers with an error that brings no
/// whole server more or less are there, too, if parts of servers would cost something else.
pub fn effects_on_saving(table: &toml::Table, design: usize) -> Vec<Effect> {
    let cost_of_parts = |sheet: &Sheet| {
        let mut parts = sheet.clone();
        parts.site.whole_servers = false;
        let costs = costs(&parts);
        Some(costs.first()?.total() + costs.get(design)?.total())
    };
    let behind = effects(table, cost_of_parts);
    let is_behind =
        |effect: &Effect| effect.error.is_some() && behind.iter().any(|one| one.name == effect.name);
    let mut all = all_effects(table, |sheet: &Sheet| {
        let costs = costs(sheet);
        Some(costs.get(design)?.saving(costs.first()?))
    });
    all.retain(|effect| effect.width() > 0.0 || is_behind(effect));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::{Inputs, Number};
    use crate::results::table::Format;

    fn sheet(text: &str) -> Sheet {
        Sheet::parse(text).unwrap().0
    }

    fn example(name: &str) -> Sheet {
        let (_, text) = EXAMPLES.iter().find(|(known, _)| *known == name).unwrap();
        sheet(text)
    }

    fn savings(sheet: &Sheet) -> Vec<f64> {
        let costs = costs(sheet);
        costs.iter().map(|cost| cost.saving(&costs[0])).collect()
    }

    /// Two servers by their cores, or three by their room, all of whose costs are known.
    const SMALL: &str = r#"
        work = { operations_per_second = 1_600, data_gb = 50 }
        site = { years = 2, price_per_kwh = 0.5, pue = 2, price_per_watt = 3, plant_years = 6 }
        [[design]]
        name = "one"
        cores = 10
        operations_per_second_per_core = 100
        utilisation = 0.8
        gb = 40
        held_per_data = 1
        watts_idle = 100
        watts_busy = 300
        item = [
            { name = "box", price = 1_000, years = 4 },
            { name = "CPU", price = 200, quantity = 2, is_compute = true },
            { name = "licence", price = 10, per = "core" },
            { name = "backup", price = 4, per = "gb" },
            { name = "staff", price = 70, per = "site", years = 1 },
        ]
        [[design]]
        name = "other"
        cores = 10
        operations_per_second_per_core = 100
        utilisation = 0.8
        gb = 20
    "#;

    #[test]
    fn every_part_of_a_cost_is_counted_for_what_it_is_bought_for() {
        let costs = costs(&sheet(SMALL));
        let [one, other] = costs.as_slice() else { panic!("{costs:?}") };
        assert_eq!((one.servers, one.bound, one.cores, one.gb), ([2.0; 2], Bound::Operations, 20.0, 50.0));
        let items: Vec<f64> = one.items.iter().map(|(_, cost)| *cost).collect();
        // Two servers for half of the life of a box, 20 cores, 50 GB, two years of staff.
        assert_eq!(items, [1_000.0, 800.0, 200.0, 200.0, 140.0]);
        assert_eq!(one.compute, 800.0);
        // 16 of 20 cores are busy: 520 W, 1.04 kW of the site.
        let kwh = 1.04 * 2.0 * HOURS_PER_YEAR;
        assert!((one.kwh - kwh).abs() < 1e-6 && (one.energy - kwh / 2.0).abs() < 1e-6, "{one:?}");
        assert_eq!(one.plant, 2.0 * 2.0 * 300.0 * 3.0 / 6.0);
        let sum = items.iter().sum::<f64>() + one.energy + one.plant;
        assert!((one.total() - sum).abs() < 1e-6);
        let operations = 1_600.0 * SECONDS_PER_YEAR * 2.0;
        assert!((one.per_million_operations().unwrap() - sum / operations * 1e6).abs() < 1e-12);
        assert!((one.per_gb_month().unwrap() - sum / (50.0 * 24.0)).abs() < 1e-9);
        assert_eq!((other.servers, other.bound), ([3.0; 2], Bound::Data));
    }

    #[test]
    fn parts_of_servers_growth_and_discount_change_what_they_say() {
        let changed = |from: &str, to: &str| {
            assert!(SMALL.contains(from));
            costs(&sheet(&SMALL.replace(from, to)))
        };
        let parts = changed("years = 2,", "years = 2, whole_servers = false,");
        assert_eq!([parts[0].servers[0], parts[1].servers[0]], [2.0, 2.5]);
        let grown = changed("data_gb = 50", "data_gb = 50, growth_per_year = 0.5");
        assert_eq!(grown[0].servers, [2.0, 3.0]);
        assert_eq!(grown[0].items[0].1, (2.0 + 3.0) * 1_000.0 / 4.0);
        let discounted = changed("years = 2,", "years = 2, discount_rate = 0.25,");
        assert!((discounted[0].items[0].1 - 2.0 * 250.0 * (1.0 + 0.8)).abs() < 1e-9);
        // All years are alike, and so is the cost of the work in each.
        let unit = |cost: &Cost| [cost.per_million_operations(), cost.per_gb_month()].map(Option::unwrap);
        let [plain, less] = [&costs(&sheet(SMALL))[0], &discounted[0]].map(unit);
        assert!(plain.iter().zip(less).all(|(plain, less)| (plain / less - 1.0).abs() < 1e-12), "{less:?}");
        // Nothing to do still needs a server.
        let idle =
            changed("operations_per_second = 1_600, data_gb = 50", "operations_per_second = 0, data_gb = 0");
        assert_eq!((idle[0].servers, idle[0].per_million_operations()), ([1.0; 2], None));
    }

    #[test]
    fn a_saving_of_cores_stands_for_operations_of_a_core() {
        let own = "operations_per_second_per_core = 100\n        utilisation = 0.8\n        gb = 20";
        assert!(SMALL.contains(own));
        let with = |saving: &str| SMALL.replace(own, &format!("{saving}\n utilisation = 0.8\n gb = 20"));
        let of = |text: &str| {
            Sheet::parse(text).map(|(sheet, table)| (costs(&sheet), effects_on_saving(&table, 1)))
        };
        let (costs, _) = of(&with("core_saving = 0.2")).unwrap();
        assert!((costs[1].cores / costs[0].cores - 0.8).abs() < 1e-12, "{costs:?}");
        let parts = with("core_saving = { value = 0.2, error = 0.05 }\nwatts_busy = 100")
            .replace("years = 2,", "years = 2, whole_servers = false,")
            .replace("gb = 20", "");
        let (_, effects) = of(&parts).unwrap();
        let effect = effects.iter().find(|effect| effect.name == "design other, core_saving").unwrap();
        assert!(effect.error.is_some_and(|error| error.error == 0.05), "{effects:?}");
        for (text, expected) in [
            (with(""), "the design other needs operations_per_second_per_core or core_saving"),
            (
                with("core_saving = 1"),
                "core_saving of the design other is 1; give a number from -100 to 0.999",
            ),
            (
                SMALL.replacen("operations_per_second_per_core = 100", "core_saving = 0.1", 1),
                "the first design, one, has no operations_per_second_per_core",
            ),
        ] {
            let told = of(&text).unwrap_err();
            assert!(told.contains(expected), "{told}");
        }
    }

    #[test]
    fn a_premium_up_to_the_break_even_saves() {
        let base = example("servers");
        let costs_of = |premium: f64| {
            let mut sheet = base.clone();
            let item = Item {
                name: "premium".into(),
                price: Number(premium),
                quantity: Number(1.0),
                per: Per::Server,
                years: None,
                is_compute: false,
            };
            sheet.designs[1].items.push(item);
            savings(&sheet)[1]
        };
        let both = costs(&base);
        let premium = both[1].break_even_premium(&both[0], base.site.years);
        assert!(premium > 0.0 && costs_of(0.0) > 0.0);
        assert!(costs_of(premium).abs() < 1e-9, "{}", costs_of(premium));
        assert!(costs_of(premium * 1.01) < 0.0);
    }

    /// "RocksDB with Intel IAA", Figures 7 and 9: 47 to 67 % fewer cores are said to cost 9 to 15 % less. One share of
    /// the cores in the cost does not give both; data that are 9 and 2 % larger do.
    #[test]
    fn the_published_saving_of_an_accelerator_is_reproduced() {
        let sheet = example("rocksdb-iaa");
        let [_, low, high] = savings(&sheet).try_into().unwrap();
        assert_eq!([low, high].map(|saving| (saving * 100.0).round()), [9.0, 15.0]);
        let costs = costs(&sheet);
        let service = [1, 2].map(|design| (costs[0].cores / costs[design].cores - 1.0) * 100.0);
        // The source calls that 47 to 67 % more service.
        assert_eq!(service.map(f64::round), [89.0, 203.0]);
        // The range of shares that round to 9 % of 47 % lies below the range for 15 % of 67 %.
        let shares = |saving: f64, cores: f64| [saving - 0.5, saving + 0.5].map(|end| end / cores);
        assert!(shares(9.0, 47.0)[1] < shares(15.0, 67.0)[0]);
    }

    /// "Optane persistent memory at Alibaba": instances with a fifth of DRAM and four fifths of persistent memory.
    #[test]
    fn the_published_prices_of_memory_are_reproduced() {
        let mut sheet = example("optane-alibaba");
        let per_gb: Vec<f64> = costs(&sheet).iter().map(|cost| cost.per_gb_month().unwrap()).collect();
        assert_eq!([per_gb[0], per_gb[1]].map(|price| (price * 100.0).round() / 100.0), [22.46, 11.87]);
        assert_eq!((savings(&sheet)[1] * 1_000.0).round(), 472.0);
        // The price of persistent memory, if DRAM has its own in both.
        let far = (20.0 * per_gb[1] - 4.0 * per_gb[0]) / 16.0;
        assert_eq!(((far * 100.0).round(), (far / per_gb[0] * 100.0).round()), (922.0, 41.0));
        // What is bound by operations costs more there.
        (sheet.work.data_gb, sheet.work.operations_per_second) = (Number(0.0), Number(1e9));
        sheet.site.whole_servers = false;
        let monthly = |cost: &Cost| cost.total() / 12.0 / f64::from(sheet.site.years) / 1e6;
        let per_thousand: Vec<f64> = costs(&sheet).iter().map(monthly).collect();
        assert_eq!(
            [per_thousand[0], per_thousand[1]].map(|price| (price * 1_000.0).round()),
            [1_872.0, 2_238.0]
        );
        // From so many GB for the operations of eight processors on, the larger instance is cheaper.
        let saves = |gb: f64| {
            let mut sheet = example("optane-alibaba");
            (sheet.work.data_gb, sheet.work.operations_per_second) = (Number(gb), Number(1.0));
            sheet.site.whole_servers = false;
            sheet.designs[1].gb = Some(Number(gb));
            savings(&sheet)[1] > 0.0
        };
        assert!(!saves(84.5) && saves(84.7));
    }

    #[test]
    fn examples_are_understood_whole() {
        for (name, text) in EXAMPLES {
            let (sheet, table) = Sheet::parse(text).unwrap_or_else(|sentence| panic!("{name}: {sentence}"));
            for (place, saving) in savings(&sheet).into_iter().enumerate().skip(1) {
                assert!(saving.is_finite());
                assert!(!effects_on_saving(&table, place).is_empty(), "{name}");
            }
            for format in [Format::Table, Format::Tsv, Format::Json] {
                let text = render(&sheet, &table, format);
                assert!(text.contains(&sheet.designs[1].name) && text.ends_with('\n'), "{text}");
            }
            let text = render(&sheet, &table, Format::Table);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }

    #[test]
    fn the_verdict_says_how_sure_it_is() {
        let told = |price: &str| {
            let other = format!("gb = 50\nitem = [{{ name = 'box', price = {price} }}]");
            let (sheet, table) = Sheet::parse(&SMALL.replace("gb = 20", &other)).unwrap();
            render(&sheet, &table, Format::Table).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let sure = told("{ value = 1_700, error = 100 }");
        assert!(
            sure.contains(
                "other saves 71.8 % of the cost that one takes, with 95 % something from 68.5 to 75.1 %."
            ),
            "{sure}"
        );
        let dearer = told("{ value = 9_000, error = 100 }");
        assert!(
            dearer.contains(
                "other takes 49.3 % more than the cost that one takes, with 95 % something from 46.0"
            ),
            "{dearer}"
        );
        let unsure = told("{ value = 6_000, error = 9_000 }");
        assert!(unsure.contains("the errors of the file leave it undecided"), "{unsure}");
        // 18,000 beside 12,056.64; 1.96 errors of two boxes are 19,600.
        let dearer = told("{ value = 9_000, error = 5_000 }");
        assert!(
            dearer.contains(
                "takes 49.3 % more than the cost that one takes, but with 95 % it is something from"
            ) && dearer.contains("from -113.3 to 211.9 %: the errors of the file leave it undecided"),
            "{dearer}"
        );
        assert!(told("1_700").contains("No number behind that has an error"));
    }

    /// 2,500 operations per second need 2.5 and 1.25 servers.
    #[test]
    fn an_error_that_crosses_no_server_is_an_error() {
        let told = |error: u32| {
            let text = format!(
                "work = {{ operations_per_second = {{ value = 2_500, error = {error} }}, data_gb = 0 }}\n\
                 site = {{ years = 1 }}\nitem = [{{ name = 'box', price = 1_000 }}]\n\
                 [[design]]\nname = 'a'\ncores = 10\noperations_per_second_per_core = 100\n\
                 [[design]]\nname = 'b'\ncores = 20\noperations_per_second_per_core = 100"
            );
            let (sheet, table) = Sheet::parse(&text).unwrap();
            render(&sheet, &table, Format::Table).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let inside = told(100);
        assert!(
            inside.contains(
                "b saves 33.3 % of the cost that a takes. With 95 % the errors of the file do not change"
            ),
            "{inside}"
        );
        // One deviation crosses no server; within 95 % there are two and one, or four and two.
        let crossing = told(300);
        assert!(crossing.contains("with 95 % something from 33.3 to 50.0 %"), "{crossing}");
    }

    /// Both need four servers, or both two, at the ends of the error, and three beside two between them.
    #[test]
    fn an_error_that_changes_a_saving_between_its_ends_changes_the_saving() {
        let text = "work = { operations_per_second = { value = 2_900, error = 485 }, data_gb = 0 }\n\
                    site = { years = 1 }\nitem = [{ name = 'box', price = 1_000 }]\n\
                    [[design]]\nname = 'a'\ncores = 10\noperations_per_second_per_core = 100\n\
                    [[design]]\nname = 'b'\ncores = 10\ncore_saving = 0.1";
        let (sheet, table) = Sheet::parse(text).unwrap();
        let told = render(&sheet, &table, Format::Table).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains("b saves 0.0 % of the cost that a takes, but with 95 %"), "{told}");
        let effects = effects_on_saving(&table, 1);
        assert_eq!(effects[0].moved, [Some(0.0); 2]);
        assert!((effects[0].range[1] - 1.0 / 3.0).abs() < 1e-9, "{effects:?}");
    }

    #[test]
    fn an_error_beyond_what_a_number_may_be_has_its_effect() {
        let from = "watts_idle = 100";
        assert!(SMALL.contains(from));
        let text = SMALL.replace(from, "watts_idle = { value = 100, error = 20, samples = 2 }")
            + "\n        item = [{ name = 'box', price = 1_700 }]";
        let effects = effects_on_saving(&Sheet::parse(&text).unwrap().1, 1);
        let effect = effects.iter().find(|effect| effect.name == "design one, watts_idle").unwrap();
        assert!(effect.width() > 0.0, "{effect:?}");
    }

    #[test]
    fn a_small_number_that_matters_is_no_zero() {
        let text = "work = { operations_per_second = 1, data_gb = 0 }\nsite = { years = 1 }\n\
                    item = [{ name = 'call', price = 0.0004, per = 'core' }, { name = 'box', price = 0.0001 }]\n\
                    [[design]]\nname = 'a'\ncores = 1\noperations_per_second_per_core = 1\n\
                    [[design]]\nname = 'b'\ncores = 1\noperations_per_second_per_core = 2";
        let (sheet, table) = Sheet::parse(text).unwrap();
        let told = render(&sheet, &table, Format::Table).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(told.contains("item call, price 0.0004000 0.00004000 (a tenth)"), "{told}");
    }

    #[test]
    fn a_sheet_without_a_price_is_refused() {
        let free = "work = { operations_per_second = 9, data_gb = 1 }\nsite = { years = 1 }\n\
                    [[design]]\nname = 'a'\ncores = 1\noperations_per_second_per_core = 1\n\
                    [[design]]\nname = 'b'\ncores = 1\noperations_per_second_per_core = 2";
        let told = Sheet::parse(free).unwrap_err();
        assert!(
            told.contains("the first design, a, costs nothing") && told.contains("give a price"),
            "{told}"
        );
        assert!(Sheet::parse(&format!("item = [{{ name = 'c', price = 1 }}]\n{free}")).is_ok());
    }

    #[test]
    fn a_wrong_file_is_told_by_line_and_field() {
        for (from, to, expected) in [
            ("years = 2,", "", "missing field `years`"),
            ("pue = 2", "pue = 0.5", "site.pue is 0.5; give a number from 1 to 10"),
            ("cores = 10", "kernels = 10", "unknown field `kernels`"),
            ("cores = 10", "cores = 'ten'", "expected a number, or { value = NUMBER, error = NUMBER }"),
            ("watts_busy = 300", "watts_busy = 30", "watts_busy of the design one is 30"),
            ("price = 200", "price = -200", "price of the item CPU of the design one is -200"),
            ("price = 200", "price = 1e308", "the cost of the design one is too large to calculate with"),
            ("per = \"core\"", "per = \"socket\"", "unknown variant `socket`"),
            (
                "[[design]]\n        name = \"other\"",
                "[[rest]]\n        name = \"other\"",
                "unknown field `rest`",
            ),
            ("cores = 10", "cores = = 10", "line 6: "),
        ] {
            assert!(SMALL.contains(from), "{from}");
            let told = Sheet::parse(&SMALL.replacen(from, to, 1)).unwrap_err();
            assert!(told.contains(expected) && !told.contains('\n'), "{told}");
        }
    }
}
