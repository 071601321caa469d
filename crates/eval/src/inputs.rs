//! Files of numbers that a user gives, and what each number does to a result.
//!
//! The files are TOML. A number is `5703`, `{ value = 5703, error = 100 }`, or `{ value = 5703, error = 100, samples =
//! 5 }`. The error is one standard deviation, and normal unless the file says from how many samples it is. Errors are
//! taken as independent, so that their effects add up by squares.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

use crate::error::Error;
use crate::statistics::Deviation;

/// A file of numbers.
pub trait Inputs: DeserializeOwned {
    /// Checks what each number may be. The error is a sentence that names the field.
    fn check(&self) -> Result<(), String>;

    /// Reads a file, and the table of its numbers.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or a field is missing, unknown or impossible.
    fn read(path: &Path) -> Result<(Self, Table), Error> {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Io {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        Self::parse(&text).map_err(|sentence| Error::Inputs { path: path.to_owned(), sentence })
    }

    /// Reads a text. The error is a sentence that begins with the line, where one is at fault.
    fn parse(text: &str) -> Result<(Self, Table), String> {
        let told = |error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start);
            let line = text[..start.min(text.len())].matches('\n').count() + 1;
            let sentence = error.message().lines().collect::<Vec<_>>().join(" ");
            format!(
                "line {line}: {}",
                TYPES.iter().fold(sentence, |told, (name, words)| told.replace(name, words))
            )
        };
        let inputs: Self = toml::from_str(text).map_err(told)?;
        let table = text.parse::<Table>().map_err(told)?;
        inputs.check()?;
        Ok((inputs, table))
    }
}

/// Types as the reader of files names them, and the words for them.
const TYPES: [(&str, &str); 3] = [
    ("expected f64", "expected a number"),
    ("expected usize", "expected a whole number"),
    ("expected u64", "expected a whole number"),
];

/// Checks that a number lies within bounds. The error is a sentence.
pub(crate) fn within(what: &str, number: Number, least: f64, most: f64) -> Result<(), String> {
    match number.0 {
        given if (least..=most).contains(&given) => Ok(()),
        given if most == f64::MAX => Err(format!("{what} is {given}; give a number from {least} on")),
        given => Err(format!("{what} is {given}; give a number from {least} to {most}")),
    }
}

/// Checks that a number is above 0. The error is a sentence.
pub(crate) fn above_0(what: &str, number: Number) -> Result<(), String> {
    match number.0 {
        given if given > 0.0 && given.is_finite() => Ok(()),
        given => Err(format!("{what} is {given}; give a number above 0")),
    }
}

/// A number of a file, without its error.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Number(pub f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "expected a number, or { value = NUMBER, error = NUMBER }, with samples = COUNT if it is a mean"
        )]
        enum Written {
            Plain(f64),
            WithError(WithError),
        }
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct WithError {
            value: f64,
            error: f64,
            samples: Option<u32>,
        }
        match Written::deserialize(deserializer)? {
            Written::WithError(WithError { error, .. }) if !(0.0..=f64::MAX).contains(&error) => {
                Err(serde::de::Error::custom(format!("an error is {error}; give a number from 0 on")))
            }
            Written::WithError(WithError { samples: Some(samples @ ..2), .. }) => {
                Err(serde::de::Error::custom(format!(
                    "an error is of {samples} sample(s); give 2 or more, or leave samples out"
                )))
            }
            Written::Plain(value) | Written::WithError(WithError { value, .. }) => Ok(Number(value)),
        }
    }
}

/// What a number of a file does to a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    /// Where the number stands, such as `design zstd, watts_busy`.
    pub name: String,
    /// The number.
    pub value: f64,
    /// How far it was moved, down and up: as far as it may be off in 95 of 100 cases, or by a tenth of it. Where both
    /// ends of an error are impossible, half of that, or a quarter, and so on.
    pub by: f64,
    /// The error that the file gives; nothing if it gives none, and `by` is a tenth.
    pub error: Option<Deviation>,
    /// The result without a move.
    pub result: f64,
    /// The result with the number moved down, and up; nothing where it is impossible.
    pub moved: [Option<f64>; 2],
    /// The least and the most of the result: without a move, with the number at both ends of the move, and between
    /// them where the file gives an error. An end that is impossible is taken to lie as far away as the other.
    pub range: [f64; 2],
}

/// Places between a number and each end of its move at which the result is asked for, too. A result with whole servers
/// may be the same at both ends, and another between them.
const PLACES_BETWEEN: u32 = 16;
/// Times that the move of a number with an error is halved until one of its ends is possible.
const HALVINGS: i32 = 30;

impl Effect {
    /// Moves a number. `at` tells the result for another value of it, and `result` is the one without a move.
    fn of(
        name: String,
        value: f64,
        error: Option<Deviation>,
        result: f64,
        at: impl Fn(f64) -> Option<f64>,
    ) -> Self {
        let both = |by: f64| [at(value - by), at(value + by)];
        let whole = error.map_or(value.abs() / 10.0, |error| error.reach_95());
        let mut halved = (0..HALVINGS).map(|times| whole / 2f64.powi(times));
        let possible = error.and_then(|_| halved.find(|by| both(*by) != [None, None]));
        let by = possible.unwrap_or(whole);
        let moved = both(by);
        let ends = match moved {
            [Some(down), Some(up)] => [down, up],
            [Some(end), None] | [None, Some(end)] => [end, 2.0 * result - end],
            [None, None] => [result; 2],
        };
        let places = 1..=possible.map_or(0, |_| PLACES_BETWEEN);
        let part = |place: u32| f64::from(place) / f64::from(PLACES_BETWEEN + 1);
        let between = places.flat_map(|place| both(by * part(place))).flatten();
        let wider = |[least, most]: [f64; 2], found: f64| [least.min(found), most.max(found)];
        let range = between.chain(ends).fold([result; 2], wider);
        Effect { name, value, by, error, result, moved, range }
    }

    /// How far the result goes, from its least to its most.
    pub fn width(&self) -> f64 {
        self.range[1] - self.range[0]
    }

    /// The standard deviation of the result by the error of this number alone, if `reach` is as far as the result goes
    /// while the number is off by `by`.
    fn deviation(&self, reach: f64) -> Option<Deviation> {
        self.error.map(|error| error.times(if self.by > 0.0 { reach / self.by } else { 0.0 }))
    }
}

/// A place in a table: names of fields, and places in arrays.
#[derive(Debug, Clone)]
enum Step {
    Field(String),
    Place(usize),
}

/// Moves every number of the inputs down and up, as far as its error allows with 95 % or by a tenth, and asks for the
/// result each time. Those that do most come first; those that do nothing are left out.
pub fn effects<I: Inputs>(table: &Table, result: impl Fn(&I) -> Option<f64>) -> Vec<Effect> {
    let mut effects = all_effects(table, result);
    effects.retain(|effect| effect.width() > 0.0);
    effects
}

/// The same, those that do nothing included.
pub(crate) fn all_effects<I: Inputs>(table: &Table, result: impl Fn(&I) -> Option<f64>) -> Vec<Effect> {
    effects_in(table, |table| {
        let inputs = I::deserialize(table.clone()).ok().filter(|inputs| inputs.check().is_ok())?;
        result(&inputs).filter(|result| result.is_finite())
    })
}

fn effects_in(table: &Table, result: impl Fn(&Table) -> Option<f64>) -> Vec<Effect> {
    let Some(unmoved) = result(table) else { return Vec::new() };
    let mut paths = Vec::new();
    find(&Value::Table(table.clone()), &mut Vec::new(), &mut paths);
    let mut effects: Vec<Effect> = paths
        .into_iter()
        .map(|path| {
            let number = at(table, &path);
            let moved = |to: f64| {
                let mut moved = Value::Table(table.clone());
                *at_mut(&mut moved, &path) = Value::Float(to);
                moved.as_table().and_then(&result)
            };
            let value = value_of(number).unwrap_or(0.0);
            Effect::of(words(table, &path), value, error_of(number), unmoved, moved)
        })
        .collect();
    effects.sort_by(|one, other| other.width().total_cmp(&one.width()));
    effects
}

/// The standard deviation of a result, from the errors that the file gives; nothing if it gives none.
pub fn deviation(effects: &[Effect]) -> Option<Deviation> {
    Deviation::together(effects.iter().filter_map(|effect| effect.deviation(effect.width() / 2.0)))
}

/// The interval that holds a result in 95 of 100 cases, from the errors that the file gives; nothing if it gives none.
/// Each side has its own reach, since a count of whole servers may go to one side alone.
pub fn interval_95(effects: &[Effect]) -> Option<[f64; 2]> {
    let result = effects.first()?.result;
    let reach_95 = |reach: &dyn Fn([f64; 2]) -> f64| {
        let all = effects.iter().filter_map(|effect| effect.deviation(reach(effect.range)));
        Some(Deviation::together(all)?.reach_95())
    };
    let (below, above) = (reach_95(&|[least, _]| result - least)?, reach_95(&|[_, most]| most - result)?);
    Some([result - below, result + above])
}

/// A part that is saved, and how sure that is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Saving {
    /// 0.1 for a tenth; below 0, more is spent.
    pub(crate) share: f64,
    /// The standard deviation; nothing if no number has an error.
    pub(crate) deviation: Option<Deviation>,
    /// The interval of 95 %.
    interval: Option<[f64; 2]>,
}

impl Saving {
    pub(crate) fn new(share: f64, effects: &[Effect]) -> Self {
        Saving { share, deviation: deviation(effects), interval: interval_95(effects) }
    }
}

/// The verdict: that `name` saves so much of `what` that `base` needs.
pub(crate) fn saving_in_words(name: &str, base: &str, what: &str, saving: Saving) -> String {
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let does = |share: f64| match share >= 0.0 {
        true => format!("{name} saves {} % of {what}", percent(share)),
        false => format!("{name} takes {} % more than {what}", percent(-share)),
    };
    let begin = format!("{} that {base} takes", does(saving.share));
    let Some([low, high]) = saving.interval else {
        return format!("{begin}. No number behind that has an error, so nobody knows how sure it is.");
    };
    // Rounding is no change.
    if high - low < 1e-9 {
        return format!("{begin}. With 95 % the errors of the file do not change that.");
    }
    // A sentence about a loss tells how much more is taken, and so does its interval.
    let ends = if saving.share >= 0.0 { [low, high] } else { [-high, -low] };
    let [least, most] = ends.map(percent);
    if low <= 0.0 && high >= 0.0 {
        return format!(
            "{begin}, but with 95 % it is something from {least} to {most} %: the errors of the file leave it \
             undecided."
        );
    }
    format!("{begin}, with 95 % something from {least} to {most} %.")
}

/// The error of a number, if the file gives one.
pub(crate) fn error_of(number: &Value) -> Option<Deviation> {
    let samples = number.get("samples").and_then(Value::as_integer).map(|samples| samples as usize);
    Some(Deviation::of(number.get("error").and_then(plain)?, samples))
}

/// A number without its error.
pub(crate) fn value_of(number: &Value) -> Option<f64> {
    plain(number).or_else(|| number.get("value").and_then(plain))
}

fn plain(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64))
}

fn find(value: &Value, path: &mut Vec<Step>, paths: &mut Vec<Vec<Step>>) {
    if value_of(value).is_some() {
        return paths.push(path.clone());
    }
    let mut visit = |step: Step, inner: &Value| {
        path.push(step);
        find(inner, path, paths);
        path.pop();
    };
    match value {
        Value::Table(table) => table.iter().for_each(|(name, inner)| visit(Step::Field(name.clone()), inner)),
        Value::Array(all) => {
            all.iter().enumerate().for_each(|(place, inner)| visit(Step::Place(place), inner))
        }
        _ => {}
    }
}

fn at<'t>(table: &'t Table, path: &[Step]) -> &'t Value {
    let [Step::Field(first), rest @ ..] = path else { unreachable!("a path begins in a table") };
    rest.iter().fold(&table[first], |value, step| match step {
        Step::Field(name) => &value[name.as_str()],
        Step::Place(place) => &value[*place],
    })
}

fn at_mut<'v>(value: &'v mut Value, path: &[Step]) -> &'v mut Value {
    path.iter().fold(value, |value, step| match step {
        Step::Field(name) => &mut value[name.as_str()],
        Step::Place(place) => &mut value[*place],
    })
}

/// The path in words: an element of an array has the name that it gives itself.
fn words(table: &Table, path: &[Step]) -> String {
    let mut words: Vec<String> = Vec::new();
    for (depth, step) in path.iter().enumerate() {
        match step {
            Step::Field(name) => words.push(name.clone()),
            Step::Place(place) => {
                let kind = words.pop().unwrap_or_default();
                words.push(format!("{kind} {}", element_name(at(table, &path[..depth]), *place)));
            }
        }
    }
    words.join(", ")
}

/// The name of an element of an array, or its number. Elements of one name have their stage beside it, if that tells
/// them apart, and their number otherwise.
fn element_name(all: &Value, place: usize) -> String {
    let number = (place + 1).to_string();
    let Some(name) = text_of(&all[place], "name") else { return number };
    let namesakes = || {
        let others = all.as_array().into_iter().flatten().enumerate();
        let others = others.filter(move |(other, _)| *other != place).map(|(_, other)| other);
        others.filter(move |other| text_of(other, "name") == Some(name))
    };
    if namesakes().next().is_none() {
        return name.to_owned();
    }
    let stage = text_of(&all[place], "stage");
    let stage = stage.filter(|stage| namesakes().all(|other| text_of(other, "stage") != Some(*stage)));
    format!("{name} ({})", stage.unwrap_or(&number))
}

fn text_of<'v>(element: &'v Value, field: &str) -> Option<&'v str> {
    element.get(field)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    #[test]
    fn elements_of_one_name_are_told_apart() {
        let table = table(
            "part = [{ name = 'a', stage = 'x' }, { name = 'a', stage = 'y' }, { name = 'b', stage = 'x' }, \
             { name = 'c', stage = 'x' }, { name = 'c', stage = 'x' }, { stage = 'x' }]",
        );
        let names: Vec<String> = (0..6).map(|place| element_name(&table["part"], place)).collect();
        assert_eq!(names, ["a (x)", "a (y)", "b", "c (4)", "c (5)", "6"]);
    }

    #[test]
    fn every_number_is_moved_by_its_error_or_a_tenth() {
        let table = table(
            "a = 10\nb = { value = 4.0, error = 1, samples = 5 }\nunused = 3\nname = 'x'\n\
             [[part]]\nname = 'disk'\nc = 5.0",
        );
        #[derive(Deserialize)]
        struct File {
            a: Number,
            b: Number,
            part: Vec<Part>,
        }
        #[derive(Deserialize)]
        struct Part {
            c: Number,
        }
        let product = |table: &Table| {
            let File { a, b, part } = File::deserialize(table.clone()).ok()?;
            Some(a.0 * b.0 * part[0].c.0)
        };
        let found = effects_in(&table, product);
        let told: Vec<_> = found
            .iter()
            .filter(|effect| effect.width() > 0.0)
            .map(|effect| (effect.name.as_str(), effect.value, effect.by, effect.error, effect.moved))
            .collect();
        let error = Deviation { error: 1.0, freedom: 4.0 };
        let ends = [-1.0, 1.0].map(|sign| Some(10.0 * (4.0 + sign * error.reach_95()) * 5.0));
        assert_eq!(
            told,
            [
                ("b", 4.0, error.reach_95(), Some(error), ends),
                ("a", 10.0, 1.0, None, [Some(180.0), Some(220.0)]),
                ("part disk, c", 5.0, 0.5, None, [Some(180.0), Some(220.0)]),
            ]
        );
        let of_all = deviation(&found).unwrap();
        assert!((of_all.error - 50.0).abs() < 1e-9 && (of_all.freedom - 4.0).abs() < 1e-9, "{of_all:?}");
    }

    #[test]
    fn an_impossible_end_lies_as_far_away_as_the_other() {
        let table = table("a = { value = 1, error = 2 }");
        let by = Deviation::of(2.0, None).reach_95();
        let above_0 = |table: &Table| Some(table["a"].as_float().unwrap_or(1.0)).filter(|a| *a >= 0.0);
        let [effect] = effects_in(&table, above_0).try_into().unwrap();
        assert_eq!(effect.moved, [None, Some(1.0 + by)]);
        assert!((effect.width() - 2.0 * by).abs() < 1e-9, "{effect:?}");
        assert!(effects_in(&table, |_| None).is_empty());
    }

    /// The result is linear, so that its deviation is that of the number, however little of the move is possible.
    #[test]
    fn a_number_within_bounds_keeps_the_effect_of_a_large_error() {
        for [value, error] in [[1.0, 0.5], [1.0, 1e4], [0.0, 2.0], [3.0, 2.0]] {
            let table = table(&format!("a = {{ value = {value:?}, error = {error:?}, samples = 2 }}"));
            let bounded = |table: &Table| value_of(&table["a"]).filter(|a| (0.0..=3.0).contains(a));
            let [effect] = effects_in(&table, bounded).try_into().unwrap();
            let found = deviation(std::slice::from_ref(&effect)).unwrap();
            assert!((found.error / error - 1.0).abs() < 1e-9 && found.freedom == 1.0, "{effect:?}");
        }
    }

    #[test]
    fn errors_add_up_by_squares() {
        let table = table("a = { value = 3, error = 0.3 }\nb = { value = 5, error = 0.4 }");
        let sum = |table: &Table| {
            let value = |name: &str| Number::deserialize(table[name].clone()).map(|number| number.0);
            Some(value("a").ok()? + value("b").ok()?)
        };
        let found = deviation(&effects_in(&table, sum)).unwrap();
        assert!((found.error - 0.5).abs() < 1e-9 && found.freedom.is_infinite(), "{found:?}");
        assert_eq!(deviation(&[]), None);
    }

    /// A number that ten per cent of its cases bring to the next step, to one side.
    #[test]
    fn a_step_within_95_per_cent_moves_one_end_alone() {
        let table = table("a = { value = 3, error = 0.25 }");
        let steps =
            |table: &Table| Some(value_of(&table["a"]).map(|a| (a + 0.6).floor()).unwrap_or_default());
        let [low, high] = interval_95(&effects_in(&table, steps)).unwrap();
        assert!(low == 3.0 && (high - 4.0).abs() < 1e-9, "{low} {high}");
        assert_eq!(interval_95(&[]), None);
        // Two servers and four save nothing, three save one.
        let odd = |table: &Table| Some(value_of(&table["a"]).map(|a| a.floor() % 2.0).unwrap_or_default());
        assert_eq!(interval_95(&effects_in(&table, odd)), Some([0.0, 1.0]));
    }

    /// A share may be no more than 1 and no less than 0.
    #[test]
    fn an_error_beyond_both_bounds_is_an_error() {
        let table = table("a = { value = 0.5, error = 1 }");
        let bounded = |table: &Table| value_of(&table["a"]).filter(|a| (0.0..=1.0).contains(a));
        let [low, high] = interval_95(&effects_in(&table, bounded)).unwrap();
        assert!((low - 0.5 + 1.96).abs() < 1e-3 && (high - 0.5 - 1.96).abs() < 1e-3, "{low} {high}");
    }

    #[test]
    fn what_is_no_number_is_told() {
        for text in ["a = 'ten'", "a = { value = 1 }", "a = { value = 1, error = 1, unit = 'W' }", "a = true"]
        {
            let told = Number::deserialize(table(text)["a"].clone()).unwrap_err().to_string();
            assert!(told.contains("expected a number, or { value = NUMBER"), "{text}: {told}");
        }
        let told = Number::deserialize(table("a = { value = 1, error = 1, samples = 1 }")["a"].clone());
        assert!(told.unwrap_err().to_string().contains("an error is of 1 sample(s); give 2 or more"));
        for error in ["-1", "nan", "inf"] {
            let text = format!("a = {{ value = 1, error = {error} }}");
            let told = Number::deserialize(table(&text)["a"].clone()).unwrap_err().to_string();
            assert!(told.contains("give a number from 0 on"), "{told}");
        }
    }
}
