//! The files of an evaluation: one describes the unit, and one each platform.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Table;

use crate::bench::confine::{Confinement, DiskLimits, Folders, disk_of};
use crate::error::Error;
use crate::inputs::{Inputs, Number, above_0, within};
use crate::mbwu::comparison::{Part, price_of};
use crate::mbwu::power::PowerSheet;
use crate::run::spec::RunSpec;

/// The file of the unit in the folder of an evaluation.
pub(crate) const UNIT: &str = "unit.toml";

/// Files to begin with, with comments.
const EXAMPLES: [(&str, &str); 3] = [
    (UNIT, include_str!("../../sheets/mbwu/unit.toml")),
    ("server.toml", include_str!("../../sheets/mbwu/server.toml")),
    ("board.toml", include_str!("../../sheets/mbwu/board.toml")),
];

/// Makes a folder with a unit and two platforms to begin with; returns the names of the files.
///
/// # Errors
/// One of the files is there already, or the system refuses.
pub fn init(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let paths: Vec<PathBuf> = EXAMPLES.iter().map(|(name, _)| folder.join(name)).collect();
    if let Some(path) = paths.iter().find(|path| path.exists()) {
        let expected = "it is there already; give a new folder";
        return Err(Error::invalid("folder of an evaluation", path.display().to_string(), expected));
    }
    let failed = |action, path: &Path, source| Error::Io { action, path: path.to_owned(), source };
    fs::create_dir_all(folder).map_err(|source| failed("create", folder, source))?;
    for (path, (_, text)) in paths.iter().zip(EXAMPLES) {
        fs::write(path, text).map_err(|source| failed("write", path, source))?;
    }
    Ok(paths)
}

/// The unit: what is done, on which medium, by which software.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnitSheet {
    /// The workload in words.
    pub(crate) workload: String,
    /// The medium in words.
    pub(crate) medium: String,
    /// The software and its version in words.
    pub(crate) software: String,
    /// Options of `ziptier bench` that say what is done, the same on all platforms.
    pub(crate) bench: Words,
    /// Sign of the currency.
    #[serde(default = "dollar")]
    pub(crate) currency: String,
    /// Rounds at least; more follow until their throughputs are steady.
    #[serde(default = "five")]
    pub(crate) rounds: usize,
    /// Rounds at most.
    #[serde(default = "twenty_five")]
    pub(crate) rounds_max: usize,
    /// The longest timed window of a round.
    #[serde(default = "minute")]
    pub(crate) seconds: f64,
    /// The largest number of threads.
    #[serde(default = "threads")]
    pub(crate) threads_max: u64,
    /// The platform that others of its stage are compared with, by the name of its file without the ending; the first
    /// by name where it is missing.
    pub(crate) base: Option<String>,
    /// How the unit is constructed.
    pub(crate) work: Work,
}

/// The words of a unit's file that say what the unit is: other words are another unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnitWords {
    pub(crate) workload: String,
    pub(crate) medium: String,
    pub(crate) software: String,
    /// The options as one text.
    pub(crate) bench: String,
}

impl UnitSheet {
    pub(crate) fn words(&self) -> UnitWords {
        UnitWords {
            workload: self.workload.clone(),
            medium: self.medium.clone(),
            software: self.software.clone(),
            bench: self.bench.list().join(" "),
        }
    }
}

/// A platform that is compared.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlatformSheet {
    /// Its name.
    pub(crate) name: String,
    /// Where clients and media are.
    pub(crate) stage: String,
    /// Price of all that the work needs; the sum of the items where it is missing.
    pub(crate) price: Option<Number>,
    /// The bill of materials.
    #[serde(rename = "item", default)]
    pub(crate) items: Vec<Part>,
    /// Volume.
    pub(crate) litres: Option<Number>,
    /// Watts during the work, where they are known.
    pub(crate) watts: Option<Number>,
    /// How watts are found, where they are not.
    pub(crate) power: Option<PowerSheet>,
    /// Bytes per second that the link of the clients can carry in each direction.
    pub(crate) network_bytes_per_second: Option<Number>,
    /// How the work is done; what is missing is as for the unit.
    #[serde(default)]
    pub(crate) work: Work,
}

/// How work is done, and on what.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Work {
    /// Options of `ziptier bench` that say who does the work.
    pub(crate) bench: Option<Words>,
    /// A command that starts a server for each round; the limits below are its own. `{folder}` in it stands for a fresh
    /// folder on the medium.
    pub(crate) server: Option<Words>,
    /// A command that purges the medium before each round.
    pub(crate) purge: Option<Words>,
    /// A command that preconditions the medium before each round, after the purge.
    pub(crate) precondition: Option<Words>,
    /// Processors that may be used; all of them where it is missing.
    pub(crate) cpus: Option<Vec<usize>>,
    /// A folder on the medium, or one on each of several media, each of which has an instance of the function; none if
    /// the work needs no medium of this machine.
    pub(crate) folder: Option<Folders>,
    /// Bytes of memory that may be used, the kernel's cache of files included.
    pub(crate) memory_bytes: Option<u64>,
    /// Limits that make a slower medium of each folder's disk.
    pub(crate) disk: Option<DiskLimits>,
}

/// Options of a command: a text that is parted at white space, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected options as one text, or as a list of texts")]
pub(crate) enum Words {
    Text(String),
    List(Vec<String>),
}

impl Words {
    pub(crate) fn list(&self) -> Vec<String> {
        match self {
            Words::Text(text) => text.split_whitespace().map(str::to_owned).collect(),
            Words::List(list) => list.clone(),
        }
    }
}

fn dollar() -> String {
    "$".into()
}

fn five() -> usize {
    5
}

fn twenty_five() -> usize {
    25
}

fn minute() -> f64 {
    60.0
}

fn threads() -> u64 {
    64
}

impl Work {
    pub(crate) fn confinement(&self) -> Confinement {
        Confinement { folder: self.folder.clone(), memory_bytes: self.memory_bytes, disk: self.limits() }
    }

    /// A run within these limits. Without any `cpus`, it has those of its own options. Beside a server those are the
    /// clients' alone.
    pub(crate) fn limited(&self, run: RunSpec) -> RunSpec {
        let own = if self.server.is_some() { Vec::new() } else { run.cpus };
        let cpus = self.cpus.clone().unwrap_or(own);
        RunSpec { cpus, confinement: self.confinement(), ..run }
    }

    /// The folders on the media.
    pub(crate) fn folders(&self) -> &[PathBuf] {
        self.folder.as_ref().map_or(&[], Folders::list)
    }

    /// The processors that may be used; none for all.
    pub(crate) fn cpus(&self) -> Vec<usize> {
        self.cpus.clone().unwrap_or_default()
    }

    /// The commands that prepare the medium before a round, in their order, each with its field and its phase.
    pub(crate) fn preparations(&self) -> impl Iterator<Item = (&'static str, &'static str, &Words)> {
        let all = [
            ("purge", "purging the medium", &self.purge),
            ("precondition", "preconditioning the medium", &self.precondition),
        ];
        all.into_iter().filter_map(|(field, phase, words)| Some((field, phase, words.as_ref()?)))
    }

    /// The same in words: a sentence.
    pub(crate) fn preparation_in_words(&self) -> String {
        let line = |words: &Words| format!("`{}`", words.list().join(" "));
        let purge = self.purge.as_ref().map_or("no command".into(), line);
        let precondition = self.precondition.as_ref().map_or("the load alone".into(), line);
        format!("Medium: purged by {purge}, preconditioned by {precondition}.")
    }

    /// Limits of the disk, if there are any.
    pub(crate) fn limits(&self) -> DiskLimits {
        self.disk.unwrap_or_default()
    }

    /// The same, with what is missing here as `unit` has it.
    fn or(self, unit: &Work) -> Work {
        let is_same_target = self.bench.is_none();
        Work {
            bench: self.bench.or_else(|| unit.bench.clone()),
            // Another target has no use for the unit's server.
            server: self.server.or_else(|| unit.server.clone().filter(|_| is_same_target)),
            purge: self.purge.or_else(|| unit.purge.clone()),
            precondition: self.precondition.or_else(|| unit.precondition.clone()),
            cpus: self.cpus.or_else(|| unit.cpus.clone()),
            folder: self.folder.or_else(|| unit.folder.clone()),
            memory_bytes: self.memory_bytes.or(unit.memory_bytes),
            disk: self.disk.or(unit.disk),
        }
    }

    fn check(&self) -> Result<(), String> {
        let folders = self.folders();
        if self.folder.is_none() && !self.limits().is_none() {
            return Err(
                "work.disk has limits, and work.folder is missing; say which folder's disk is limited".into(),
            );
        }
        if self.folder.is_some() && folders.is_empty() {
            return Err("work.folder is a list of none; give a folder, or leave it out".into());
        }
        if self.server.is_some() && folders.len() > 1 {
            return Err(
                "work.folder has several folders, and work.server is one server; give one folder".into()
            );
        }
        match self.preparations().find(|(.., words)| words.list().is_empty()) {
            Some((field, ..)) => Err(format!("work.{field} is empty; give a command, or leave it out")),
            None => Ok(()),
        }
    }

    /// Checks that the folders are there, each on a medium of its own. Only the machine that does the work has them.
    /// The error is a sentence.
    pub(crate) fn check_media(&self) -> Result<(), String> {
        let folders = self.folders();
        if let Some(folder) = folders.iter().find(|folder| !folder.is_dir()) {
            return Err(format!("work.folder is {}, which is no folder of this machine", folder.display()));
        }
        let medium = |folder: &PathBuf| disk_of(folder).unwrap_or_else(|_| folder.display().to_string());
        let media: Vec<String> = folders.iter().map(medium).collect();
        match media.iter().enumerate().find(|(place, one)| media[..*place].contains(one)) {
            Some((_, one)) => Err(format!(
                "work.folder has two folders on {one}, which is one medium; give a folder for each medium"
            )),
            None => Ok(()),
        }
    }
}

impl Inputs for UnitSheet {
    fn check(&self) -> Result<(), String> {
        let rounds = |name, given: usize| within(name, Number(given as f64), 1.0, 100.0);
        rounds("rounds", self.rounds)?;
        rounds("rounds_max", self.rounds_max)?;
        if self.rounds > self.rounds_max {
            return Err(format!("rounds is {}, more than rounds_max, {}", self.rounds, self.rounds_max));
        }
        within("seconds", Number(self.seconds), 1.0, 86_400.0)?;
        within("threads_max", Number(self.threads_max as f64), 1.0, 1_024.0)?;
        self.work.check()
    }
}

impl Inputs for PlatformSheet {
    fn check(&self) -> Result<(), String> {
        if self.price.is_some() && !self.items.is_empty() {
            return Err("price is given, and items, too; leave one out".into());
        }
        if self.watts.is_some() && self.power.is_some() {
            return Err("watts is given, and power, too; leave one out".into());
        }
        let numbers = [
            ("price", self.price),
            ("litres", self.litres),
            ("watts", self.watts),
            ("network_bytes_per_second", self.network_bytes_per_second),
        ];
        for (name, number) in numbers {
            number.map_or(Ok(()), |number| above_0(name, number))?;
        }
        for item in &self.items {
            within(&format!("price of the item {}", item.name), item.price, 0.0, f64::MAX)?;
            within(&format!("quantity of the item {}", item.name), item.quantity, 0.0, f64::MAX)?;
        }
        price_of(&self.items).map_or(Ok(()), |sum| above_0("the sum of the items", Number(sum)))?;
        self.power.as_ref().map_or(Ok(()), PowerSheet::check)
    }
}

/// All files of an evaluation.
#[derive(Debug, Clone)]
pub(crate) struct Sheets {
    pub(crate) unit: UnitSheet,
    /// Platforms by the names of their files, without the ending.
    pub(crate) platforms: Vec<(String, PlatformSheet, Table)>,
}

impl Sheets {
    /// Reads the folder.
    ///
    /// # Errors
    /// A file cannot be read, or has a field that is missing, unknown or impossible; or there is no platform, or two of
    /// the same name and stage.
    pub(crate) fn read(folder: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Io { action: "read", path: folder.to_owned(), source };
        let entries = fs::read_dir(folder).map_err(failed)?;
        let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
        let mut paths = paths.map_err(failed)?;
        paths.sort();
        if !paths.iter().any(|path| path.ends_with(UNIT)) {
            let expected = "there is no unit.toml in it; give a folder that `ziptier mbwu init` made";
            return Err(Error::invalid("folder of an evaluation", folder.display().to_string(), expected));
        }
        let (unit, _) = UnitSheet::read(&folder.join(UNIT))?;
        let mut platforms: Vec<(String, PlatformSheet, Table)> = Vec::new();
        for path in paths {
            let Some(stem) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".toml")) else {
                continue;
            };
            if path.ends_with(UNIT) {
                continue;
            }
            let (mut sheet, table) = PlatformSheet::read(&path)?;
            // What a platform takes over from the unit may not go with its own.
            sheet.work = sheet.work.or(&unit.work);
            let told = |sentence| Error::Inputs { path: path.clone(), sentence };
            sheet.work.check().map_err(told)?;
            let is_same = |(_, other, _): &&(String, PlatformSheet, Table)| {
                other.name == sheet.name && other.stage == sheet.stage
            };
            if let Some((other, ..)) = platforms.iter().find(is_same) {
                let sentence = format!("{other}.toml has the same name and stage; give it another name");
                return Err(Error::Inputs { path, sentence });
            }
            platforms.push((stem.to_owned(), sheet, table));
        }
        if let Some(base) = &unit.base {
            let Some(place) = platforms.iter().position(|(file, ..)| file == base) else {
                let sentence = format!("base is {base}, and there is no {base}.toml");
                return Err(Error::Inputs { path: folder.join(UNIT), sentence });
            };
            platforms[..=place].rotate_right(1);
        }
        match platforms.is_empty() {
            true => Err(Error::invalid(
                "folder of an evaluation",
                folder.display().to_string(),
                "it has no platform; add a file beside unit.toml",
            )),
            false => Ok(Sheets { unit, platforms }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The processors of a server limit the raw load on its medium, though the server's clients have all of them.
    #[test]
    fn a_run_within_the_limits_of_a_server_has_its_processors_and_memory() {
        let work = Work { cpus: Some(vec![1]), memory_bytes: Some(9), ..Work::default() };
        let limited = work.limited(RunSpec::new("redis://127.0.0.1", "log"));
        assert_eq!((limited.cpus, limited.confinement.memory_bytes), (vec![1], Some(9)));
        assert_eq!(limited.target, "redis://127.0.0.1");
    }

    fn work(text: &str) -> Work {
        text.parse::<Table>().unwrap().try_into().unwrap()
    }

    #[test]
    fn commands_that_prepare_the_medium_are_texts_or_lists_in_their_order() {
        let both = work("precondition = ['fill', '{folder}']\npurge = 'fstrim {folder}'");
        let read: Vec<_> = both.preparations().map(|(field, _, words)| (field, words.list())).collect();
        let list = |words: [&str; 2]| words.map(str::to_owned).to_vec();
        let expected =
            [("purge", list(["fstrim", "{folder}"])), ("precondition", list(["fill", "{folder}"]))];
        assert_eq!(read, expected);
        assert_eq!(both.check(), Ok(()));
        let told = work("purge = []").check().unwrap_err();
        assert_eq!(told, "work.purge is empty; give a command, or leave it out");
        assert!(work("precondition = ' '").check().unwrap_err().contains("work.precondition is empty"));
    }

    #[test]
    fn a_platform_takes_over_the_commands_that_prepare_the_medium_or_has_its_own() {
        let unit = work("purge = 'fstrim {folder}'");
        let taken = work("precondition = 'fill'").or(&unit).preparation_in_words();
        assert_eq!(taken, "Medium: purged by `fstrim {folder}`, preconditioned by `fill`.");
        let own = work("purge = 'blkdiscard /dev/x'").or(&unit).preparation_in_words();
        assert_eq!(own, "Medium: purged by `blkdiscard /dev/x`, preconditioned by the load alone.");
        let none = Work::default().preparation_in_words();
        assert_eq!(none, "Medium: purged by no command, preconditioned by the load alone.");
    }

    #[test]
    fn processors_of_the_options_stay_unless_the_work_has_its_own() {
        let run = || RunSpec { cpus: vec![0], ..RunSpec::new("btreemap", "log") };
        let served = Work { server: Some(Words::Text("server".into())), ..Work::default() };
        let own = Work { cpus: Some(vec![1]), ..Work::default() };
        let limited = [Work::default(), own, served].map(|work| work.limited(run()).cpus);
        assert_eq!(limited, [vec![0], vec![1], vec![]], "those of clients are not those of their server");
    }
}
