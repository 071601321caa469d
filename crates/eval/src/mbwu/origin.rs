//! Whether results belong together. A mean or a ratio of different work, programs or machines says nothing.
//!
//! 1. The rounds of one side have the same options and work, and were measured on the same machine.
//! 2. The unit and the platforms have the same workload. They may be different machines, and different software does
//!    the work.
//! 3. All are of the same ziptier. Where a server does the work, ziptier still asks it, and takes a share of the time.
//! 4. The files say what they said when the rounds were measured.
//!
//! Results of older versions do not tell all of that, and nothing can be said against these.

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::mbwu::sheets::{UnitWords, Work};
use crate::run::spec::RunSpec;

/// Where a round comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// What was asked for, without the number of threads.
    pub asked: RunSpec,
    /// The unit, by the words of its file; nothing in results of older versions.
    #[serde(default)]
    pub(crate) unit: Option<UnitWords>,
    /// How the work was done; nothing in results of older versions.
    #[serde(default)]
    pub(crate) work: Option<Work>,
    /// The commit of the program that measured, where that is known.
    #[serde(default)]
    pub(crate) commit: Option<String>,
    /// The machine; nothing in results of older versions.
    #[serde(default)]
    pub(crate) machine: Option<Json>,
}

/// Options that say what is done. The others say who does it, and for how long.
const WORKLOAD: [&str; 13] = [
    "workload",
    "keys",
    "key_shape",
    "key_bytes",
    "multi_get",
    "multi_put",
    "value_bytes",
    "value_order",
    "corpus",
    "train_on",
    "distribution",
    "pace",
    "seed",
];
/// Fields that a machine is known by. Its load and its commit are others in each round.
const MACHINE: [&str; 5] = ["cpu", "processors", "kernel", "governor", "disks"];

impl Origin {
    /// An origin that tells the options alone.
    #[cfg(test)]
    pub(crate) fn of(asked: RunSpec) -> Self {
        Origin { asked, unit: None, work: None, commit: None, machine: None }
    }

    /// How the medium was prepared before the round: a sentence; nothing in results of older versions.
    pub(crate) fn preparation_in_words(&self) -> Option<String> {
        self.work.as_ref().map(Work::preparation_in_words)
    }

    /// How a round differs from another of the same side, in words; nothing if both belong together.
    pub(crate) fn apart(&self, other: &Origin, names: [&str; 2]) -> Option<String> {
        let of_side = |origin: &Origin| {
            json!({
                "options": origin.asked,
                "unit": origin.unit,
                "work": origin.work,
                "commit": origin.commit,
                "machine": origin.machine.as_ref().map(known_by),
            })
        };
        known_difference(&of_side(self), &of_side(other), names)
    }

    /// The part of a command's origin that its rounds must share. A command that measures no round may be of another
    /// commit, and one that measures nothing may run on another machine.
    pub(crate) fn shared(&self, measures_round: bool, measures: bool) -> Origin {
        Origin {
            commit: self.commit.clone().filter(|_| measures_round),
            machine: self.machine.clone().filter(|_| measures),
            ..self.clone()
        }
    }

    /// How the work of a round differs from that of a round of another side.
    pub(crate) fn work_apart(&self, other: &Origin, names: [&str; 2]) -> Option<String> {
        let of_work = |origin: &Origin| {
            let workload = only(&json!(origin.asked), &WORKLOAD);
            json!({ "workload": workload, "unit": origin.unit, "commit": origin.commit })
        };
        known_difference(&of_work(self), &of_work(other), names)
    }
}

/// The fields that a machine is known by.
pub(crate) fn known_by(machine: &Json) -> Json {
    only(machine, &MACHINE)
}

fn only(all: &Json, fields: &[&str]) -> Json {
    fields.iter().map(|field| ((*field).to_owned(), all[field].clone())).collect()
}

/// The first difference in a field that both sides tell.
fn known_difference(one: &Json, other: &Json, names: [&str; 2]) -> Option<String> {
    let fields = one.as_object()?.iter();
    let known = fields.filter(|(field, value)| !value.is_null() && !other[*field].is_null());
    known.into_iter().find_map(|(field, value)| difference(field, value, &other[field], names))
}

/// The innermost field that differs, with both values.
fn difference(field: &str, one: &Json, other: &Json, names: [&str; 2]) -> Option<String> {
    match (one, other) {
        _ if one == other => None,
        (Json::Object(fields), Json::Object(others)) => fields
            .keys()
            .chain(others.keys())
            .find_map(|field| difference(field, &one[field], &other[field], names)),
        _ => Some(format!("{} has `{field}` = {one}, and {} has {other}", names[0], names[1])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mbwu::sheets::Words;

    fn origin(change: impl FnOnce(&mut Origin)) -> Origin {
        let mut origin = Origin {
            asked: RunSpec::new("rocksdb", "log"),
            unit: Some(UnitWords {
                workload: "reads".into(),
                medium: "disk".into(),
                software: "x 1".into(),
                bench: "--keys 50000".into(),
            }),
            work: Some(Work::default()),
            commit: Some("a".into()),
            machine: Some(json!({ "cpu": "X", "processors": 8, "load_average": "0.1", "commit": "a" })),
        };
        change(&mut origin);
        origin
    }

    #[test]
    fn rounds_of_one_side_are_of_the_same_work_program_and_machine() {
        let apart = |change: &dyn Fn(&mut Origin)| origin(|_| {}).apart(&origin(change), ["one", "two"]);
        let told = |change: &dyn Fn(&mut Origin)| apart(change).unwrap();
        assert_eq!(apart(&|_| {}), None);
        assert_eq!(told(&|two| two.asked.keys = 7), "one has `keys` = 50000, and two has 7");
        assert_eq!(
            told(&|two| two.asked.workload.mix.read = 5),
            told(&|two| two.asked.workload.mix.read = 5)
        );
        assert!(
            told(&|two| two.work.as_mut().unwrap().memory_bytes = Some(9)).contains("`memory_bytes` = null")
        );
        let purge = |two: &mut Origin| {
            two.work.as_mut().unwrap().purge = Some(Words::Text("fstrim /x".into()));
        };
        assert_eq!(told(&purge), "one has `purge` = null, and two has \"fstrim /x\"");
        let software = |two: &mut Origin| two.unit.as_mut().unwrap().software = "x 2".into();
        assert_eq!(told(&software), "one has `software` = \"x 1\", and two has \"x 2\"");
        assert_eq!(told(&|two| two.commit = Some("b".into())), "one has `commit` = \"a\", and two has \"b\"");
        let machine = |two: &mut Origin, field: &str| two.machine.as_mut().unwrap()[field] = "Y".into();
        assert_eq!(told(&|two| machine(two, "cpu")), "one has `cpu` = \"X\", and two has \"Y\"");
        assert_eq!(apart(&|two| machine(two, "load_average")), None);
        assert_eq!(apart(&|two| *two = Origin::of(two.asked.clone())), None, "older results");
    }

    /// A new ziptier may take the raw load anew beside rounds of an older one, on their machine.
    #[test]
    fn a_command_that_measures_no_round_may_be_of_another_commit() {
        let command = origin(|command| {
            command.commit = Some("b".into());
            command.machine.as_mut().unwrap()["cpu"] = "Y".into();
        });
        let apart = |measures_round, measures| {
            origin(|_| {}).apart(&command.shared(measures_round, measures), ["round 1", "this command"])
        };
        assert!(apart(true, true).unwrap().contains("`commit`"));
        assert!(apart(false, true).unwrap().contains("`cpu`"));
        assert_eq!(apart(false, false), None);
    }

    #[test]
    fn sides_have_one_workload_and_one_ziptier_on_several_machines() {
        let apart =
            |change: &dyn Fn(&mut Origin)| origin(|_| {}).work_apart(&origin(change), ["unit", "board"]);
        assert_eq!(
            apart(&|board| (board.asked.target, board.asked.instances) = ("redis://x".into(), 3)),
            None
        );
        assert_eq!(apart(&|board| (board.machine, board.work) = (Some(json!({ "cpu": "Y" })), None)), None);
        let told = apart(&|board| board.asked.value_bytes.max = 4_096).unwrap();
        assert!(told.contains("unit has `") && told.contains("and board has"), "{told}");
        assert!(apart(&|board| board.commit = Some("b".into())).unwrap().contains("`commit`"));
        let medium = |board: &mut Origin| board.unit.as_mut().unwrap().medium = "ssd".into();
        assert!(apart(&medium).unwrap().contains("`medium`"));
    }
}
