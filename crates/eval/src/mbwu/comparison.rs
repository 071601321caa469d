//! Units and platforms, as numbers that somebody measured: what each unit costs, and what is saved.

use std::path::PathBuf;

use serde::Deserialize;

use crate::inputs::{Effect, Inputs, Number, above_0, effects, within};
use crate::mbwu::origin::Origin;

/// A file to begin with: what the slides of the method's authors say of a server and a small board.
pub const EXAMPLE: &str = include_str!("../../sheets/mbwu-slides.toml");

/// A unit, and the platforms that are compared by it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The unit.
    pub unit: Unit,
    /// The platforms. The first of each stage is what the others of the stage are compared with.
    #[serde(rename = "platform")]
    pub platforms: Vec<Platform>,
    /// The folder of the evaluation; empty for numbers of a file.
    #[serde(skip)]
    pub folder: PathBuf,
    /// The files of platforms in that folder that are not measured yet, without their endings.
    #[serde(skip)]
    pub unmeasured: Vec<String>,
}

/// What one unit is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// The workload: mix, sizes, distribution of keys.
    pub workload: String,
    /// The medium that limits it.
    pub medium: String,
    /// The software and its version: another version has another unit.
    pub software: String,
    /// Operations per second of a platform that only the medium limits.
    pub operations_per_second: Number,
    /// Why there is no verdict by this unit, because it was not steady or did not saturate: a sentence without its end.
    #[serde(default)]
    pub unsteady: Option<String>,
    /// Sign of the currency, in the results alone.
    #[serde(default = "dollar")]
    pub currency: String,
    /// The origin of its rounds, if ziptier measured it.
    #[serde(skip)]
    pub measured: Option<Origin>,
}

/// A platform at one stage of the comparison.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// Its name.
    pub name: String,
    /// Where the clients and the media are, such as `integrated`, `network` or `disaggregated`.
    pub stage: String,
    /// Operations per second, as measured.
    pub operations_per_second: Option<Number>,
    /// Units, where these are given instead.
    pub mbwu: Option<Number>,
    /// Why there is no verdict on it, because it was not steady or did not saturate: a sentence without its end.
    #[serde(default)]
    pub unsteady: Option<String>,
    /// Price of all that the platform needs for the work; the sum of the items where it is missing.
    pub price: Option<Number>,
    /// Watts during the work.
    pub watts: Option<Number>,
    /// Volume.
    pub litres: Option<Number>,
    /// The bill of materials.
    #[serde(rename = "item", default)]
    pub items: Vec<Part>,
    /// The origin of its rounds, if ziptier measured it.
    #[serde(skip)]
    pub measured: Option<Origin>,
}

/// A line of a bill of materials.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Price of one.
    pub price: Number,
    /// How many.
    #[serde(default = "one")]
    pub quantity: Number,
}

/// The price of a bill of materials; nothing for one without a line.
pub(crate) fn price_of(items: &[Part]) -> Option<f64> {
    items.iter().map(|item| item.price.0 * item.quantity.0).reduce(|sum, more| sum + more)
}

fn one() -> Number {
    Number(1.0)
}

fn dollar() -> String {
    "$".into()
}

impl Inputs for Comparison {
    fn check(&self) -> Result<(), String> {
        above_0("unit.operations_per_second", self.unit.operations_per_second)?;
        if self.platforms.is_empty() {
            return Err("there is no platform; add a table [[platform]]".into());
        }
        self.platforms.iter().try_for_each(|platform| {
            let named =
                |field: &str| format!("{field} of the platform {} ({})", platform.name, platform.stage);
            match (platform.operations_per_second, platform.mbwu) {
                (Some(rate), None) => above_0(&named("operations_per_second"), rate)?,
                (None, Some(units)) => above_0(&named("mbwu"), units)?,
                (Some(_), Some(_)) => {
                    return Err(format!(
                        "{} is given, and mbwu, too; leave one out",
                        named("operations_per_second")
                    ));
                }
                (None, None) => {
                    return Err(format!("{} is missing; give that, or mbwu", named("operations_per_second")));
                }
            }
            if platform.price.is_some() && !platform.items.is_empty() {
                return Err(format!("{} is given, and items, too; leave one out", named("price")));
            }
            for (field, number) in
                [("price", platform.price), ("watts", platform.watts), ("litres", platform.litres)]
            {
                number.map_or(Ok(()), |number| above_0(&named(field), number))?;
            }
            for item in &platform.items {
                within(&named(&format!("price of the item {}", item.name)), item.price, 0.0, f64::MAX)?;
                within(&named(&format!("quantity of the item {}", item.name)), item.quantity, 0.0, f64::MAX)?;
            }
            // A part of nothing is no saving.
            price_of(&platform.items)
                .map_or(Ok(()), |sum| above_0(&named("the sum of the items"), Number(sum)))
        })
    }
}

/// What is divided by units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// Money.
    Price,
    /// Watts, which are watt-hours for each hour of a unit's work.
    Power,
    /// Litres.
    Volume,
}

impl Resource {
    /// All of them.
    pub const ALL: [Resource; 3] = [Resource::Price, Resource::Power, Resource::Volume];
}

impl Platform {
    /// The number of units; nothing if there is no verdict by the unit or on the platform.
    pub fn units(&self, unit: &Unit) -> Option<f64> {
        let measured = self.operations_per_second.map(|rate| rate.0 / unit.operations_per_second.0);
        let units = measured.or(self.mbwu.map(|units| units.0));
        units.filter(|_| self.unsteady.is_none() && unit.unsteady.is_none())
    }

    /// What it needs of a resource, if that is known.
    pub fn needs(&self, resource: Resource) -> Option<f64> {
        match resource {
            Resource::Price => self.price.map(|price| price.0).or_else(|| price_of(&self.items)),
            Resource::Power => self.watts.map(|watts| watts.0),
            Resource::Volume => self.litres.map(|litres| litres.0),
        }
    }

    /// The same for one unit.
    pub fn per_unit(&self, unit: &Unit, resource: Resource) -> Option<f64> {
        Some(self.needs(resource)? / self.units(unit)?)
    }
}

impl Comparison {
    /// Why there is no verdict on a platform: the unit, the platform itself or the one that it is compared with has
    /// none. A whole sentence.
    pub fn no_verdict(&self, place: usize) -> Option<String> {
        let (platform, base) = (&self.platforms[place], &self.platforms[self.base(place)]);
        let of = |what: String, why: &Option<String>| why.as_ref().map(|why| format!("{what}: {why}."));
        of("No verdict, since the unit itself has none".into(), &self.unit.unsteady)
            .or_else(|| of(format!("No verdict on {}", platform.name), &platform.unsteady))
            .or_else(|| {
                let what = format!("No verdict on {} beside {}", platform.name, base.name);
                of(what, &base.unsteady.as_ref().map(|_| format!("{} has none", base.name)))
            })
    }

    /// The platform that one is compared with: the first of its stage.
    pub fn base(&self, place: usize) -> usize {
        let stage = &self.platforms[place].stage;
        self.platforms.iter().position(|platform| platform.stage == *stage).unwrap_or(place)
    }

    /// Measurements that are left, a sentence for each platform.
    pub fn not_measured(&self) -> Vec<String> {
        let folder = self.folder.display();
        let sentence = |file: &String| {
            format!("{file} is not measured yet; `ziptier mbwu measure {folder} {file}` measures it.")
        };
        self.unmeasured.iter().map(sentence).collect()
    }

    /// The part of a resource for each unit that a platform saves beside the first of its stage.
    pub fn saving(&self, place: usize, resource: Resource) -> Option<f64> {
        let [own, base] =
            [place, self.base(place)].map(|place| self.platforms.get(place)?.per_unit(&self.unit, resource));
        Some(1.0 - own? / base?)
    }
}

/// What each number of a file does to a saving.
pub fn effects_on_saving(table: &toml::Table, place: usize, resource: Resource) -> Vec<Effect> {
    effects(table, |comparison: &Comparison| comparison.saving(place, resource))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::deviation;
    use crate::mbwu::render;
    use crate::results::table::Format;
    use crate::run::spec::RunSpec;

    /// The slides say 64, 58 and 74 % less money, and 40 and 46 % less energy.
    #[test]
    fn the_published_savings_are_reproduced_to_the_rounding() {
        let (slides, table) = Comparison::parse(EXAMPLE).unwrap();
        let saved = |resource| {
            let embedded = (0..slides.platforms.len()).filter(|place| slides.base(*place) != *place);
            let percent = |place| Some((slides.saving(place, resource)? * 100.0).round());
            embedded.map(percent).collect::<Vec<_>>()
        };
        assert_eq!(saved(Resource::Price), [Some(64.0), Some(58.0), Some(74.0)]);
        assert_eq!(saved(Resource::Power), [Some(40.0), Some(46.0), None]);
        assert_eq!(saved(Resource::Volume), [None; 3]);
        let units: Vec<_> = slides.platforms.iter().map(|platform| platform.units(&slides.unit)).collect();
        assert_eq!(units, [6.0, 0.5, 5.2, 0.37, 3.2, 0.37].map(Some));
        // 0.5 and 6 units are rounded most: 56.7 to 70.0 % by the ends, and 95 % of the interval lie about as far.
        let sure = deviation(&effects_on_saving(&table, 1, Resource::Price)).unwrap().reach_95();
        assert!((0.04..0.07).contains(&sure), "{sure}");
        let sure = deviation(&effects_on_saving(&table, 5, Resource::Price)).unwrap().reach_95();
        assert!((0.005..0.02).contains(&sure), "{sure}");
    }

    /// After an interruption a table and a page passed over it in silence.
    #[test]
    fn a_platform_that_is_not_measured_yet_is_named() {
        let (mut comparison, table) = Comparison::parse(EXAMPLE).unwrap();
        comparison.folder = "work".into();
        comparison.unmeasured = vec!["board".into()];
        let text = render(&[(comparison, table)], Format::Table);
        let last = "\nboard is not measured yet; `ziptier mbwu measure work board` measures it.\n";
        assert!(text.ends_with(last), "{text}");
    }

    const SMALL: &str = r#"
        [unit]
        workload = "reads"
        medium = "disk"
        software = "x 1"
        operations_per_second = 100
        [[platform]]
        name = "host"
        stage = "integrated"
        operations_per_second = 400
        watts = 80
        litres = 20
        item = [{ name = "board", price = 500 }, { name = "disk", price = 75, quantity = 4 }]
        [[platform]]
        name = "board"
        stage = "integrated"
        operations_per_second = 50
        price = 50
        watts = { value = 8, error = 1 }
        [[platform]]
        name = "board"
        stage = "network"
        mbwu = 0.4
        price = 50
    "#;

    #[test]
    fn units_and_what_each_needs_are_divided() {
        let (small, _) = Comparison::parse(SMALL).unwrap();
        let of = |place: usize| {
            Resource::ALL.map(|resource| small.platforms[place].per_unit(&small.unit, resource))
        };
        assert_eq!(of(0), [Some(200.0), Some(20.0), Some(5.0)]);
        assert_eq!(of(1), [Some(100.0), Some(16.0), None]);
        assert_eq!(of(2), [Some(125.0), None, None]);
        assert_eq!([0, 1, 2].map(|place| small.base(place)), [0, 0, 2]);
        assert_eq!(small.saving(1, Resource::Price), Some(0.5));
        assert_eq!(small.saving(1, Resource::Volume), None);
    }

    #[test]
    fn the_table_names_the_cheapest_and_what_is_not_sure() {
        let told = |text: &str| {
            let text = render(&[Comparison::parse(text).unwrap()], Format::Table);
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let sure = told(SMALL);
        assert!(sure.contains("board saves 50.0 % of the money for each unit that host takes"), "{sure}");
        // An eighth of error reaches across a saving of a fifth.
        assert!(
            sure.contains(
                "20.0 % of the energy for each unit that host takes, with 95 % something from 0.4 to 39.6 %"
            ),
            "{sure}"
        );
        // 4.303 standard errors of three rounds reach further than 1.96.
        for error in ["error = 2", "error = 1, samples = 3"] {
            let unsure = told(&SMALL.replace("error = 1", error));
            assert!(unsure.contains("undecided"), "{unsure}");
        }
        for format in [Format::Tsv, Format::Json] {
            assert!(render(&[Comparison::parse(SMALL).unwrap()], format).contains("mbwu"));
        }
    }

    /// A deviation alone does not tell how far the interval of 95 % reaches.
    #[test]
    fn rows_have_the_degrees_of_freedom_of_each_deviation() {
        let of = |error: &str| {
            let file = Comparison::parse(&SMALL.replace("error = 1", error)).unwrap();
            let text = render(&[file], Format::Tsv);
            let mut lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
            let (names, board) = (lines.next().unwrap(), lines.nth(1).unwrap());
            let place = names.iter().position(|name| *name == "energy_saving_deviation_freedom");
            board[place.unwrap()].to_owned()
        };
        assert_eq!([of("error = 1, samples = 3"), of("error = 1")], ["2.00", "NA"]);
    }

    #[test]
    fn several_files_end_with_a_matrix() {
        let scans = SMALL.replace("\"reads\"", "\"scans\"").replace(
            "name = \"board\"\n        stage = \"integrated\"",
            "name = \"phone\"\n        stage = \"integrated\"",
        );
        let files = [SMALL, &scans].map(|text| Comparison::parse(text).unwrap());
        let text = render(&files, Format::Table);
        let (_, matrix) = text.split_once("price of a unit").unwrap();
        let lines: Vec<Vec<&str>> = matrix.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines[0].ends_with(&["host", "board", "phone"]), "{text}");
        assert!(lines[1].ends_with(&["integrated", "200.00", "$", "*100.00", "$", "-"]), "{text}");
        assert!(lines[2].ends_with(&["network", "-", "*125.00", "$", "-"]), "{text}");
        assert!(lines[3].ends_with(&["integrated", "200.00", "$", "-", "*100.00", "$"]), "{text}");
        assert_eq!((lines.len(), render(&files, Format::Tsv).lines().count()), (5, 7));
    }

    #[test]
    fn what_was_not_steady_has_neither_units_nor_a_verdict() {
        let told = |from: &str, format| {
            let text = SMALL.replacen(from, &format!("{from}\nunsteady = \"it changed by 38 %\""), 1);
            let text = render(&[Comparison::parse(&text).unwrap()], format);
            text.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let board = told("operations_per_second = 50", Format::Table);
        assert!(board.contains("integrated: No verdict on board: it changed by 38 %."), "{board}");
        assert!(board.contains("integrated board no verdict - - -") && !board.contains("saves"), "{board}");
        assert!(board.contains("integrated host 4.00 200.00"), "{board}");
        let base = told("operations_per_second = 400", Format::Table);
        assert!(base.contains("No verdict on board beside host: host has none."), "{base}");
        let unit = told("operations_per_second = 100", Format::Table);
        let (before, after) = unit.split_once("stage platform").unwrap();
        assert!(before.ends_with("the unit itself has none: it changed by 38 %. "), "said first: {unit}");
        assert!(!after.contains("No verdict") && !after.contains("200.00"), "{unit}");
        let rows = told("operations_per_second = 50", Format::Json);
        assert_eq!(rows.matches("\"no_verdict\": null").count(), 2, "{rows}");
        assert_eq!(rows.matches("\"mbwu\": null").count(), 1, "{rows}");
    }

    /// It would have been the cheapest.
    #[test]
    fn what_was_not_steady_is_not_the_cheapest() {
        let changed =
            SMALL.replace("price = 50\n        watts", "price = 50\n        unsteady = \"x\"\n        watts");
        let files = [SMALL, &changed].map(|text| Comparison::parse(text).unwrap());
        let text = render(&files, Format::Table);
        let (_, matrix) = text.split_once("price of a unit").unwrap();
        let line = matrix.lines().nth(3).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(line.ends_with("integrated *200.00 $ no verdict"), "{text}");
        let again = matrix.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(again.contains("WITHOUT A VERDICT, which settles nothing"), "{text}");
    }

    #[test]
    fn what_was_measured_again_is_compared_with_its_errors() {
        let with = |unit: &str, platform: &str| {
            let text =
                SMALL.replace("operations_per_second = 100", &format!("operations_per_second = {unit}"));
            Comparison::parse(&text.replace("operations_per_second = 400", platform)).unwrap()
        };
        let told = |files: &[(Comparison, toml::Table)]| {
            let text = render(files, Format::Table);
            let (_, again) = text.split_once("measured again").unwrap_or_default();
            again.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let exact = "operations_per_second = { value = 400, error = 1 }";
        let first = with("{ value = 100, error = 2 }", exact);
        let second = with("{ value = 105, error = 2 }", &exact.replace("400", "440"));
        let again = told(&[first.clone(), second]);
        assert!(
            again.contains("the unit: 100 and 105 operations per second, +5.0 %: within the errors of both."),
            "{again}"
        );
        assert!(
            again.contains(
                "host (integrated): 400 and 440 operations per second, +10.0 %: MORE THAN THE ERRORS"
            ),
            "{again}"
        );
        assert!(again.contains("board (integrated): 50 and 50") && again.contains("nobody knows"), "{again}");
        let other = Comparison::parse(&SMALL.replace("\"reads\"", "\"scans\"")).unwrap();
        assert_eq!(told(&[first, other]), "", "another workload has another unit");
    }

    /// The words of both units are the same.
    #[test]
    fn other_work_of_the_same_words_is_named_and_not_compared() {
        let evaluation = |folder: &str, keys: u64| {
            let (mut comparison, table) = Comparison::parse(SMALL).unwrap();
            let origin = Origin::of(RunSpec { keys, ..RunSpec::new("rocksdb", "log") });
            comparison.folder = folder.into();
            comparison.unit.measured = Some(origin.clone());
            comparison.platforms[1].measured = Some(origin);
            (comparison, table)
        };
        let told = |keys: u64| {
            let text = render(&[evaluation("old", 20), evaluation("new", keys)], Format::Table);
            let (_, again) = text.split_once("measured again").unwrap();
            again.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        let apart = "NOT MEASURED ALIKE, which settles nothing: old has `keys` = 20, and new has 30; measure both \
                     anew with the same.";
        assert_eq!(told(30).matches(apart).count(), 2, "the unit and a platform: {}", told(30));
        assert!(!told(20).contains("NOT MEASURED ALIKE"));
    }

    #[test]
    fn a_wrong_file_is_told_by_field() {
        for (from, to, expected) in [
            ("mbwu = 0.4", "", "operations_per_second of the platform board (network) is missing"),
            ("mbwu = 0.4", "mbwu = 0", "mbwu of the platform board (network) is 0; give a number above 0"),
            ("mbwu = 0.4", "mbwu = 1\noperations_per_second = 9", "leave one out"),
            ("litres = 20", "price = 3", "price of the platform host (integrated) is given, and items, too"),
            ("price = 75", "price = -75", "price of the item disk of the platform host (integrated) is -75"),
            (
                "price = 500 }, { name = \"disk\", price = 75",
                "price = 0 }, { name = \"disk\", price = 0",
                "the sum of the items of the platform host (integrated) is 0; give a number above 0",
            ),
            ("price = 75", "price = 1e308", "the sum of the items of the platform host (integrated) is inf"),
            ("medium = \"disk\"", "", "missing field `medium`"),
        ] {
            assert!(SMALL.contains(from), "{from}");
            let told = Comparison::parse(&SMALL.replacen(from, to, 1)).unwrap_err();
            assert!(told.contains(expected) && !told.contains('\n'), "{told}");
        }
    }
}
