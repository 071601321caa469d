//! Measures the unit and the platforms of a folder, and keeps every round, so that an evaluation that was interrupted
//! goes on where it ended.
//!
//! 1. Commands of the user's purge and precondition the medium before each round, where the work has such.
//! 2. A round is a process of its own that loads fresh data, works until its throughput is steady, and then measures
//!    a window that is steady, too.
//! 3. The first round searches for the number of threads that gives the most; the others have that number.
//! 4. Rounds follow each other until five are steady: each window, and their throughputs by SNIA's rule.
//! 5. A raw load with requests of the same sizes tells what the medium can do, and so whether it was the limit.
//!
//! `results/NAME/` has a file for each round (`round-1.json`), the raw load (`raw.json`) and the machine
//! (`machine.json`). `NAME` is the file of the platform, or `unit`.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use serde_json::json;
use toml::{Table, Value};

use crate::bench::ProgressLine;
use crate::bench::confine::places_of_groups;
use crate::bench::process::{Launcher, check_cpus};
use crate::bench::remains::remove_remains;
use crate::error::Error;
use crate::inputs::Inputs;
use crate::mbwu::command::Running;
use crate::mbwu::comparison::Comparison;
use crate::mbwu::limit::Shares;
use crate::mbwu::measured::{Measured, others_cores};
use crate::mbwu::origin::Origin;
use crate::mbwu::power::{self, Power, Readings, Source};
use crate::mbwu::preparation::prepare;
use crate::mbwu::raw::{Raw, measure_raw, shares};
use crate::mbwu::rounds::{Round, forget_behind, is_enough, read_if_there, rounds, threads_of, write};
use crate::mbwu::service;
use crate::mbwu::sheets::{PlatformSheet, Sheets, Words, Work};
use crate::mbwu::verdict::{apart, counted, unsteady};
use crate::meters::machine::MachineUse;
use crate::results::folder::{Program, machine};
use crate::run::spec::RunSpec;
use crate::run::steady::Steadiness;
use crate::statistics::Mean;
use crate::workload::pace::Pace;

/// Where the results lie in the folder of an evaluation.
const RESULTS: &str = "results";
/// The name of the unit among them.
const UNIT: &str = "unit";

/// How runs are made of options, and where.
pub struct Means<'a> {
    /// Reads options of `ziptier bench`, which must describe one run.
    pub spec: &'a dyn Fn(&[String]) -> Result<RunSpec, Error>,
    /// Starts runs.
    pub launcher: &'a Launcher,
    /// What is written down about the program.
    pub program: &'a Program,
}

impl fmt::Debug for Means<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Means").finish_non_exhaustive()
    }
}

/// A folder with a unit, platforms, and what was measured of them.
#[derive(Debug)]
pub struct Evaluation {
    folder: PathBuf,
    sheets: Sheets,
}

/// The unit or a platform, as its file describes it.
struct Subject<'a> {
    /// Its folder among the results.
    file: &'a str,
    work: &'a Work,
    platform: Option<&'a PlatformSheet>,
}

impl Evaluation {
    /// Reads the files of a folder, and measures nothing.
    ///
    /// # Errors
    /// A file cannot be read, or has a field that is missing, unknown or impossible.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Ok(Evaluation { folder: folder.to_owned(), sheets: Sheets::read(folder)? })
    }

    /// The names of the platforms' files, without their endings.
    pub fn platforms(&self) -> Vec<&str> {
        self.sheets.platforms.iter().map(|(file, ..)| file.as_str()).collect()
    }

    /// Checks that this machine has the media of all that is to be measured on it.
    ///
    /// # Errors
    /// There is no such platform; or a folder is not there, or two folders lie on one medium.
    pub fn check(&self, unit: bool, platforms: &[&str]) -> Result<(), Error> {
        let unit = unit.then(|| Ok(self.unit()));
        let platforms = platforms.iter().map(|name| self.platform(name));
        unit.into_iter().chain(platforms).try_for_each(|subject| {
            let subject = subject?;
            let path = self.folder.join(self.file_with(&subject, "folder"));
            subject.work.check_media().map_err(|sentence| Error::Inputs { path, sentence })
        })
    }

    /// Checks the options and processors of all that is to be measured, before the first of it is.
    ///
    /// # Errors
    /// Options describe no run, or several; or this machine lacks a processor.
    pub fn check_options(&self, unit: bool, platforms: &[&str], means: &Means<'_>) -> Result<(), Error> {
        let unit = unit.then(|| Ok(self.unit()));
        let platforms = platforms.iter().map(|name| self.platform(name));
        unit.into_iter().chain(platforms).try_for_each(|subject| self.asked(&subject?, means).map(drop))
    }

    /// Ends and removes what evaluations and benchmarks that were killed left on this machine: processes, control
    /// groups, and files on the media of this evaluation. Returns a line that tells it; nothing if there was nothing.
    pub fn remove_remains(&self) -> Option<String> {
        let works = self.sheets.platforms.iter().map(|(_, sheet, _)| &sheet.work);
        let media = works.chain([&self.sheets.unit.work]).flat_map(|work| work.folders().iter().cloned());
        let folders: BTreeSet<PathBuf> = media.chain([std::env::temp_dir()]).collect();
        remove_remains(&places_of_groups(), &Vec::from_iter(folders))
    }

    /// Constructs the unit, or goes on with it.
    ///
    /// # Errors
    /// A run failed, or gave wrong answers. The rounds before it are kept.
    pub fn construct(&self, means: &Means<'_>) -> Result<Measured, Error> {
        self.measure_subject(&self.unit(), means)
    }

    /// Measures a platform, or goes on with it.
    ///
    /// # Errors
    /// There is no such platform; or a run failed, or gave wrong answers. The rounds before it are kept.
    pub fn measure(&self, platform: &str, means: &Means<'_>) -> Result<Measured, Error> {
        self.measure_subject(&self.platform(platform)?, means)
    }

    fn unit(&self) -> Subject<'_> {
        Subject { file: UNIT, work: &self.sheets.unit.work, platform: None }
    }

    fn platform(&self, name: &str) -> Result<Subject<'_>, Error> {
        let found = self.sheets.platforms.iter().find(|(file, ..)| file == name);
        let unknown =
            || Error::Unknown { what: "platform", given: name.into(), known: self.platforms().join(", ") };
        let (file, sheet, _) = found.ok_or_else(unknown)?;
        Ok(Subject { file, work: &sheet.work, platform: Some(sheet) })
    }

    fn measure_subject(&self, subject: &Subject<'_>, means: &Means<'_>) -> Result<Measured, Error> {
        let folders = subject.work.folders();
        let origin = Origin {
            asked: self.asked(subject, means)?,
            unit: Some(self.sheets.unit.words()),
            work: Some(subject.work.clone()),
            commit: means.program.commit.clone(),
            machine: Some(machine(means.program, folders)),
        };
        let place = self.folder.join(RESULTS).join(subject.file);
        let create_failed = |source| Error::Io { action: "create", path: place.clone(), source };
        fs::create_dir_all(&place).map_err(create_failed)?;
        let _lock = self.lock()?;
        let mut rounds = rounds(&place)?;
        let (unit, raw) = (&self.sheets.unit, place.join("raw.json"));
        let is_enough = |rounds: &[Round]| is_enough(rounds, unit.rounds, unit.rounds_max);
        let lacks_rounds = !is_enough(&rounds);
        let lacks_any = lacks_rounds || !folders.is_empty() && !raw.exists();
        self.refuse_mixture(subject, &rounds, Some(&origin.shared(lacks_rounds, lacks_any)))?;
        if lacks_any {
            forget_behind(&place, rounds.len())?;
        }
        let mut line = ProgressLine::new(unit.rounds + 1, (unit.rounds + 1) as f64 * unit.seconds);
        while !is_enough(&rounds) {
            let number = rounds.len() + 1;
            write(&place.join("machine.json"), &json!(origin.machine))?;
            let round = self.measure_round(subject, &origin, &rounds, means, &mut line)?;
            write(&place.join(format!("round-{number}.json")), &json!(round))?;
            rounds.push(round);
        }
        if !folders.is_empty() && !raw.exists() {
            line.next(&format!("{}, raw load", subject.file));
            let threads = threads_of(&rounds);
            // Also where the limits are those of a server.
            let limited = subject.work.limited(origin.asked);
            line.phase("measuring the raw medium");
            let measured = measure_raw(folders, &limited, &rounds, threads, means.launcher)?;
            write(&raw, &json!(measured))?;
        }
        line.clear();
        self.read_subject(subject)?.ok_or_else(|| Error::invalid("rounds", "0", "give at least one round"))
    }

    /// Measures the round that follows on these.
    fn measure_round(
        &self,
        subject: &Subject<'_>,
        origin: &Origin,
        rounds: &[Round],
        means: &Means<'_>,
        line: &mut ProgressLine,
    ) -> Result<Round, Error> {
        let run = format!("{}, round {}", subject.file, rounds.len() + 1);
        line.next(&run);
        for (field, phase, words) in subject.work.preparations() {
            line.phase(phase);
            prepare(means.launcher, &words.list(), subject.work.folders()).map_err(|error| {
                let sentence = format!("work.{field} of {}: {error}", self.file_with(subject, field));
                Error::Run { run: run.clone(), sentence, status: 1 }
            })?;
        }
        let spec = self.spec_of(&origin.asked, rounds);
        let mut service = self.serve(subject.work, &spec.target, means.launcher)?;
        let failed = |error: Error| match service.as_mut().and_then(Running::why_ended) {
            Some(why) => {
                Error::Run { run: run.clone(), sentence: format!("its server {why}: {error}"), status: 1 }
            }
            None => error,
        };
        let (measurement, _) = means.launcher.run(&spec, &mut |phase| line.phase(phase)).map_err(failed)?;
        if let Some(wrong) = &measurement.first_mismatch {
            let sentence = format!("{} answers were wrong; the first: {wrong}", measurement.mismatches);
            return Err(Error::Run { run, sentence, status: 1 });
        }
        Ok(Round { origin: origin.clone(), measurement })
    }

    /// Keeps other commands from measuring in the folder: both would take the rounds of each other for their own, and
    /// disturb each other. The lock ends with the file.
    fn lock(&self) -> Result<File, Error> {
        let path = self.folder.join(RESULTS).join("lock");
        let failed = |source| Error::Io { action: "lock", path: path.clone(), source };
        let file = File::create(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::Error(source)) => Err(failed(source)),
            Err(TryLockError::WouldBlock) => {
                let expected = "another `ziptier mbwu` measures in it; wait until that has ended";
                Err(Error::invalid("folder of an evaluation", self.folder.display().to_string(), expected))
            }
        }
    }

    /// The file that has a field of a subject's work. A platform takes over from the unit what its own file lacks.
    fn file_with(&self, subject: &Subject<'_>, field: &str) -> String {
        let platform = self.sheets.platforms.iter().find(|(file, ..)| file == subject.file);
        let own = platform.and_then(|(.., table)| table.get("work")?.get(field));
        format!("{}.toml", own.map_or(UNIT, |_| subject.file))
    }

    /// Starts the server of a round, if the platform has one.
    fn serve(&self, work: &Work, target: &str, launcher: &Launcher) -> Result<Option<Running>, Error> {
        let start = |words: &Words| {
            service::start(launcher, &words.list(), target, &work.cpus(), &work.confinement())
        };
        work.server.as_ref().map(start).transpose()
    }

    /// The run that both files describe together.
    fn asked(&self, subject: &Subject<'_>, means: &Means<'_>) -> Result<RunSpec, Error> {
        let unit = &self.sheets.unit;
        let own = subject.work.bench.as_ref().map_or(Vec::new(), Words::list);
        let options = [unit.bench.list(), own].concat();
        check_cpus("work.cpus", subject.work.cpus().into_iter())?;
        let spec = (means.spec)(&options)?;
        if spec.pace != Pace::Closed {
            let expected = "a round is a closed loop that finds its threads by itself; leave out a rate, a limit of \
                            latency and --saturate";
            return Err(Error::invalid("bench", options.join(" "), expected));
        }
        // Each round loads anew, and so each must become steady, not the one that searches alone.
        let warmup_seconds_max = spec.warmup_seconds_max.or(Some(RunSpec::usual_warmup_max(unit.seconds)));
        let spec = RunSpec { seconds: unit.seconds, until_steady: true, warmup_seconds_max, ..spec };
        Ok(match subject.work.server {
            // The limits are those of the server, and its clients have none.
            Some(_) => spec,
            None => RunSpec {
                // Each medium has an instance of the function.
                instances: spec.instances.max(subject.work.folders().len() as u64),
                ..subject.work.limited(spec)
            },
        })
    }

    fn spec_of(&self, asked: &RunSpec, rounds: &[Round]) -> RunSpec {
        match rounds {
            [] => RunSpec { pace: Pace::Saturated(self.sheets.unit.threads_max), ..asked.clone() },
            rounds => RunSpec { threads: threads_of(rounds), ..asked.clone() },
        }
    }

    /// What was measured so far: the unit first, then the platforms in the order of their files.
    ///
    /// # Errors
    /// A file of results is damaged.
    pub fn measured(&self) -> Result<Vec<Measured>, Error> {
        let platforms = self.sheets.platforms.iter().map(|(file, ..)| self.platform(file));
        let subjects = std::iter::once(Ok(self.unit())).chain(platforms);
        subjects.filter_map(|subject| subject.and_then(|one| self.read_subject(&one)).transpose()).collect()
    }

    /// The files that describe a subject, and the origin of a round by their words. Their options are read by the
    /// commands that measure alone, and those of `measured` stand in.
    fn of_files(&self, subject: &Subject<'_>, measured: &Origin) -> (String, Origin) {
        let files = match subject.file {
            UNIT => "unit.toml".to_owned(),
            file => format!("{file}.toml with unit.toml"),
        };
        let origin = Origin {
            asked: measured.asked.clone(),
            unit: Some(self.sheets.unit.words()),
            work: Some(subject.work.clone()),
            commit: None,
            machine: None,
        };
        (files, origin)
    }

    /// Refuses rounds that do not belong together: with each other, with a round of this command, with the files, with
    /// the unit.
    fn refuse_mixture(
        &self,
        subject: &Subject<'_>,
        rounds: &[Round],
        asked: Option<&Origin>,
    ) -> Result<(), Error> {
        let of_files = rounds.first().map(|round| self.of_files(subject, &round.origin));
        let numbered = (1..).zip(rounds).map(|(number, round)| (format!("round {number}"), &round.origin));
        let mut all: Vec<_> = numbered.chain(asked.map(|asked| ("this command".to_owned(), asked))).collect();
        let own = all.last().map(|(_, own)| *own);
        all.extend(of_files.iter().map(|(files, origin)| (files.clone(), origin)));
        let apart = |place: usize| {
            let (name, one) = &all[place];
            all[place + 1..].iter().find_map(|(other, two)| one.apart(two, [name, other]))
        };
        let results = self.folder.join(RESULTS);
        let unit = match subject.file {
            UNIT => None,
            _ => Round::read(&results.join(UNIT).join("round-1.json"))?,
        };
        let from_unit = || unit.as_ref()?.origin.work_apart(own?, ["the unit", subject.file]);
        let Some(why) = (0..all.len()).find_map(apart).or_else(from_unit) else { return Ok(()) };
        let expected = format!(
            "{why}, so that both do not belong together; write back what was changed, or move away what is wrong and \
             measure it anew"
        );
        Err(Error::invalid("results", results.join(subject.file).display().to_string(), expected))
    }

    fn read_subject(&self, subject: &Subject<'_>) -> Result<Option<Measured>, Error> {
        let place = self.folder.join(RESULTS).join(subject.file);
        let rounds = rounds(&place)?;
        self.refuse_mixture(subject, &rounds, None)?;
        let counted = counted(&rounds);
        let throughputs: Vec<f64> = counted.iter().map(Round::throughput).collect();
        let Some(throughput) = Mean::of(&throughputs) else { return Ok(None) };
        let throughput =
            match (throughput.error, rounds.first().and_then(|round| round.measurement.steadiness)) {
                // Of a single round, its own parts tell.
                (None, Some(Steadiness::Steady { throughput, .. })) => throughput,
                _ => throughput,
            };
        let raw = read_if_there::<Raw>(&place.join("raw.json"))?;
        let link = subject.platform.and_then(|platform| platform.network_bytes_per_second);
        let shares = shares(subject.work, link, counted, raw.as_ref());
        Ok(Some(Measured {
            name: subject.platform.map_or(UNIT.into(), |platform| platform.name.clone()),
            stage: subject.platform.map_or(String::new(), |platform| platform.stage.clone()),
            unsteady: unsteady(&rounds),
            power: self.power(subject, counted, &shares)?,
            machine: read_if_there(&place.join("machine.json"))?.unwrap_or_default(),
            others_cores: others_cores(counted),
            counted: counted.len(),
            throughput,
            shares,
            rounds,
        }))
    }

    fn power(
        &self,
        subject: &Subject<'_>,
        rounds: &[Round],
        shares: &Shares,
    ) -> Result<Option<Power>, Error> {
        let Some(platform) = subject.platform else { return Ok(None) };
        if let Some(watts) = platform.watts {
            let (source, meters) = (Source::Input, Vec::new());
            return Ok(Some(Power { watts: watts.0, error: None, source, meters }));
        }
        let machines: Vec<MachineUse> =
            rounds.iter().map(|round| round.measurement.steady_machine()).collect();
        let Some(sheet) = &platform.power else { return Ok(power::by_machines(&machines)) };
        if let Some(csv) = &sheet.csv {
            let path = self.folder.join(csv);
            let windows: Vec<(f64, f64)> = machines
                .iter()
                .map(|machine| (machine.from_unix_sec, machine.from_unix_sec + machine.sec))
                .collect();
            let power = Readings::read(&path)?.mean(&windows);
            let power = power.map(|power| Power { meters: vec![csv.display().to_string()], ..power });
            return power.map(Some).map_err(|sentence| Error::Inputs { path, sentence });
        }
        let model = sheet.idle_watts.zip(sheet.busy_watts).zip(shares.processors);
        Ok(model.map(|((idle, busy), share)| power::modelled(idle, busy, share)))
    }

    /// The unit and the platforms that were measured, as `ziptier mbwu compare` takes them.
    ///
    /// # Errors
    /// The unit or all platforms are not measured yet, or a file of results is damaged.
    pub fn comparison(&self) -> Result<(Comparison, Table), Error> {
        let missing = |what: &str| {
            let expected = format!("{what}; run `ziptier mbwu run {}`", self.folder.display());
            Error::invalid("folder of an evaluation", self.folder.display().to_string(), expected)
        };
        let mut unit =
            self.read_subject(&self.unit())?.ok_or_else(|| missing("its unit is not constructed yet"))?;
        let (mut platforms, mut origins, mut unmeasured) = (Vec::new(), Vec::new(), Vec::new());
        for (file, sheet, own) in &self.sheets.platforms {
            let Some(measured) = self.read_subject(&self.platform(file)?)? else {
                unmeasured.push(file.clone());
                continue;
            };
            platforms.push(Value::Table(platform_table(own, &measured)));
            origins.push(measured.origin());
            let is_twin = sheet.work == self.sheets.unit.work && measured.unsteady.is_none();
            unit.unsteady = unit.unsteady.take().or_else(|| apart(&unit, &measured).filter(|_| is_twin));
        }
        if platforms.is_empty() {
            return Err(missing("no platform is measured yet"));
        }
        let sheet = &self.sheets.unit;
        let mut table = Table::new();
        let mut table_of_unit: Table = [
            ("workload", Value::from(sheet.workload.as_str())),
            ("medium", Value::from(sheet.medium.as_str())),
            ("software", Value::from(sheet.software.as_str())),
            ("currency", Value::from(sheet.currency.as_str())),
            ("operations_per_second", with_error(unit.throughput)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into_iter()
        .collect();
        table_of_unit.extend(unit.unsteady.take().map(|why| ("unsteady".to_owned(), why.into())));
        table.insert("unit".into(), Value::Table(table_of_unit));
        table.insert("platform".into(), Value::Array(platforms));
        let told = |sentence| Error::Inputs { path: self.folder.clone(), sentence };
        let mut comparison: Comparison =
            table.clone().try_into().map_err(|error: toml::de::Error| told(error.to_string()))?;
        comparison.check().map_err(told)?;
        (comparison.folder, comparison.unmeasured) = (self.folder.clone(), unmeasured);
        comparison.unit.measured = unit.origin();
        for (platform, origin) in comparison.platforms.iter_mut().zip(origins) {
            platform.measured = origin;
        }
        Ok((comparison, table))
    }
}

/// Reads a folder of an evaluation, or a file of numbers that were measured elsewhere.
///
/// # Errors
/// See [`Evaluation::comparison`]; and a file may lack a field, or have an unknown or impossible one.
pub fn read(path: &Path) -> Result<(Comparison, Table), Error> {
    match path.is_dir() {
        true => Evaluation::open(path)?.comparison(),
        false => Comparison::read(path),
    }
}

/// A platform as a comparison has it: its own prices, and what was measured.
fn platform_table(own: &Table, measured: &Measured) -> Table {
    let kept = ["name", "stage", "price", "item", "litres", "watts"];
    let mut table: Table = own
        .iter()
        .filter(|(name, _)| kept.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    table.insert("operations_per_second".into(), with_error(measured.throughput));
    table.extend(measured.unsteady.clone().map(|why| ("unsteady".to_owned(), why.into())));
    if let Some(power) = measured.power.as_ref().filter(|power| power.source != Source::Input) {
        let mean = Mean { mean: power.watts, error: power.error, samples: measured.counted };
        table.insert("watts".into(), with_error(mean));
    }
    table
}

fn with_error(mean: Mean) -> Value {
    let number = |error: f64| {
        let fields: [(&str, Value); 3] =
            [("value", mean.mean.into()), ("error", error.into()), ("samples", (mean.samples as i64).into())];
        Table::from_iter(fields.map(|(name, value)| (name.to_owned(), value)))
    };
    mean.error.map_or(Value::Float(mean.mean), |error| Value::Table(number(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results that were copied from the machine with the medium are compared on another one.
    #[test]
    fn the_folders_of_a_medium_are_those_of_the_machine_that_measures() {
        let folder = tempfile::tempdir().unwrap();
        crate::mbwu::init(folder.path()).unwrap();
        let unit = folder.path().join("unit.toml");
        let text = fs::read_to_string(&unit).unwrap().replace("\"/var/tmp\"", "\"/no/medium\"");
        fs::write(&unit, text).unwrap();
        let here = folder.path().display();
        fs::write(
            folder.path().join("board.toml"),
            format!("name = 'board'\nstage = 'x'\nwork.folder = '{here}'"),
        )
        .unwrap();
        let evaluation = Evaluation::open(folder.path()).unwrap();
        assert!(evaluation.measured().unwrap().is_empty());
        evaluation.check(false, &["board"]).unwrap();
        for (unit, platforms) in [(true, &["board"][..]), (false, &["board", "server"][..])] {
            let told = evaluation.check(unit, platforms).unwrap_err().to_string();
            assert!(
                told.contains("unit.toml: work.folder is /no/medium, which is no folder of this"),
                "{told}"
            );
        }
    }

    #[test]
    fn one_command_at_a_time_measures_in_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        crate::mbwu::init(folder.path()).unwrap();
        fs::create_dir(folder.path().join(RESULTS)).unwrap();
        let evaluation = || Evaluation::open(folder.path()).unwrap();
        let held = evaluation().lock().unwrap();
        let told = evaluation().lock().unwrap_err().to_string();
        assert!(told.contains("another `ziptier mbwu` measures in it; wait"), "{told}");
        drop(held);
        evaluation().lock().unwrap();
    }
}
