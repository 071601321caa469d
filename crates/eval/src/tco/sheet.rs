//! The file that `ziptier tco` reads: the work, the site, and the designs that are compared.

use serde::Deserialize;

use super::costs;
use crate::inputs::{Inputs, Number, above_0, within};

/// Everything that the calculation needs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sheet {
    /// What must be done.
    pub work: Work,
    /// Where, for how long, at which prices.
    pub site: Site,
    /// The designs; the first is what the others are compared with.
    #[serde(rename = "design")]
    pub designs: Vec<Design>,
    /// What must be bought for every design.
    #[serde(rename = "item", default)]
    pub items: Vec<Item>,
}

/// What must be done.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Work {
    /// Operations per second in the first year.
    pub operations_per_second: Number,
    /// GB of keys and values in the first year, all copies, before compression.
    pub data_gb: Number,
    /// Growth of both from year to year: 0.2 for a fifth.
    #[serde(default)]
    pub growth_per_year: Number,
}

/// Where, for how long, at which prices.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Site {
    /// Sign of the currency, in the results alone.
    #[serde(default = "dollar")]
    pub currency: String,
    /// Years that are summed.
    pub years: u32,
    /// Price of a kilowatt-hour.
    #[serde(default)]
    pub price_per_kwh: Number,
    /// Power of the whole site over that of its servers.
    #[serde(default = "one")]
    pub pue: Number,
    /// Price of room, power and cooling for each watt that servers may draw.
    #[serde(default)]
    pub price_per_watt: Number,
    /// Years that this lasts.
    #[serde(default = "ten")]
    pub plant_years: Number,
    /// Part by which money of the next year counts less.
    #[serde(default)]
    pub discount_rate: Number,
    /// Whether a part of a server costs as much as a whole one. What is saved inside of a server is worth nothing then.
    #[serde(default = "yes")]
    pub whole_servers: bool,
}

/// A server, what it can do, and what it costs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Design {
    /// Its name in the results.
    pub name: String,
    /// Cores of a server.
    pub cores: Number,
    /// Operations per second of a core, as measured.
    pub operations_per_second_per_core: Option<Number>,
    /// Instead of that: the part of the first design's cores that this design saves at the same throughput.
    pub core_saving: Option<Number>,
    /// Share of the cores that may be busy.
    #[serde(default = "one")]
    pub utilisation: Number,
    /// GB that a server may hold; without it data never decide how many servers there are.
    pub gb: Option<Number>,
    /// Bytes held for each byte of data, as measured.
    #[serde(default = "one")]
    pub held_per_data: Number,
    /// Watts of a server whose cores are idle.
    #[serde(default)]
    pub watts_idle: Number,
    /// Watts of a server whose cores are all busy.
    #[serde(default)]
    pub watts_busy: Number,
    /// What must be bought for this design.
    #[serde(rename = "item", default)]
    pub items: Vec<Item>,
}

/// Something that must be bought.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Item {
    /// Its name in the results.
    pub name: String,
    /// Price of one.
    pub price: Number,
    /// How many for each of `per`.
    #[serde(default = "one")]
    pub quantity: Number,
    /// What it is bought for.
    #[serde(default)]
    pub per: Per,
    /// Years until it is bought again; the years of the site where it is missing.
    pub years: Option<Number>,
    /// Whether it is for computing: such items are also summed by themselves.
    #[serde(default)]
    pub is_compute: bool,
}

/// What an item is bought for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Per {
    /// Each server.
    #[default]
    Server,
    /// Each core that is needed, busy as far as it may be.
    Core,
    /// Each GB that is held.
    Gb,
    /// The site, once.
    Site,
}

fn dollar() -> String {
    "$".into()
}

fn one() -> Number {
    Number(1.0)
}

fn ten() -> Number {
    Number(10.0)
}

fn yes() -> bool {
    true
}

impl Inputs for Sheet {
    fn check(&self) -> Result<(), String> {
        let Work { operations_per_second, data_gb, growth_per_year } = self.work;
        let site = &self.site;
        let at_least_0 = |what: &str, number| within(what, number, 0.0, f64::MAX);
        at_least_0("work.operations_per_second", operations_per_second)?;
        at_least_0("work.data_gb", data_gb)?;
        within("work.growth_per_year", growth_per_year, -0.99, 10.0)?;
        within("site.years", Number(site.years.into()), 1.0, 50.0)?;
        at_least_0("site.price_per_kwh", site.price_per_kwh)?;
        within("site.pue", site.pue, 1.0, 10.0)?;
        at_least_0("site.price_per_watt", site.price_per_watt)?;
        above_0("site.plant_years", site.plant_years)?;
        within("site.discount_rate", site.discount_rate, 0.0, 1.0)?;
        if self.designs.len() < 2 {
            return Err("there are fewer than two designs; add a table [[design]]".into());
        }
        if self.designs[0].operations_per_second_per_core.is_none() {
            return Err(format!(
                "the first design, {}, has no operations_per_second_per_core; the others are compared with it",
                self.designs[0].name
            ));
        }
        self.items.iter().try_for_each(|item| item.check(""))?;
        self.designs.iter().try_for_each(Design::check)?;
        let costs = costs(self);
        if let Some(cost) = costs.iter().find(|cost| !cost.total().is_finite()) {
            return Err(format!("the cost of the design {} is too large to calculate with", cost.name));
        }
        if costs[0].total() <= 0.0 {
            return Err(format!(
                "the first design, {}, costs nothing, and the others are compared with it; give a price: of an item, \
                 site.price_per_kwh or site.price_per_watt",
                self.designs[0].name
            ));
        }
        Ok(())
    }
}

impl Sheet {
    /// Operations per second of a core of this design.
    pub(super) fn per_core(&self, design: &Design) -> f64 {
        let own = |design: &Design| design.operations_per_second_per_core.map(|number| number.0);
        match design.core_saving {
            Some(saving) => own(&self.designs[0]).unwrap_or_default() / (1.0 - saving.0),
            None => own(design).unwrap_or_default(),
        }
    }
}

impl Design {
    fn check(&self) -> Result<(), String> {
        let named = |field: &str| format!("{field} of the design {}", self.name);
        above_0(&named("cores"), self.cores)?;
        match (self.operations_per_second_per_core, self.core_saving) {
            (Some(given), None) => above_0(&named("operations_per_second_per_core"), given)?,
            (None, Some(saving)) => within(&named("core_saving"), saving, -100.0, 0.999)?,
            _ => {
                return Err(format!(
                    "the design {} needs operations_per_second_per_core or core_saving, and not both",
                    self.name
                ));
            }
        }
        within(&named("utilisation"), self.utilisation, 0.01, 1.0)?;
        self.gb.map_or(Ok(()), |gb| above_0(&named("gb"), gb))?;
        above_0(&named("held_per_data"), self.held_per_data)?;
        within(&named("watts_idle"), self.watts_idle, 0.0, f64::MAX)?;
        within(&named("watts_busy"), self.watts_busy, self.watts_idle.0, f64::MAX)?;
        self.items.iter().try_for_each(|item| item.check(&format!(" of the design {}", self.name)))
    }
}

impl Item {
    fn check(&self, of: &str) -> Result<(), String> {
        let named = |field: &str| format!("{field} of the item {}{of}", self.name);
        within(&named("price"), self.price, 0.0, f64::MAX)?;
        within(&named("quantity"), self.quantity, 0.0, f64::MAX)?;
        self.years.map_or(Ok(()), |years| above_0(&named("years"), years))
    }
}
