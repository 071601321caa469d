//! Result files: `<folder>/<timestamp>/` with `summary.tsv`, `rounds.tsv`, `rounds.json`, a log per run, and
//! `manifest.json`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::bench::confine::disk_of;
use crate::bench::plan::Plan;
use crate::bench::{Configuration, Outcome, Unavailable};
use crate::data::values::ValueOrder;
use crate::error::Error;
use crate::results::row::round_row;
use crate::results::table::{summary_rows, tsv};
use crate::run::measurement::Measurement;
use crate::run::spec::RunSpec;
use crate::suites::verdict::Verdicts;

pub(crate) struct ResultsFolder {
    path: PathBuf,
}

/// The file of the machine and the command, which is there from the beginning.
pub(crate) const MANIFEST: &str = "manifest.json";
/// The file of all that was asked for and measured, for programs.
pub(crate) const KEPT: &str = "rounds.json";

/// What that file holds.
#[derive(Debug, Deserialize)]
pub(crate) struct Kept {
    pub(crate) configurations: Vec<Configuration>,
    pub(crate) unavailable: Vec<Unavailable>,
    /// Why the benchmark ended early, if it did.
    pub(crate) failure: Option<String>,
}

/// The program that measures, for the manifest.
#[derive(Debug, Default)]
pub struct Program {
    /// The commit that it was built from, if that is known; a plus sign says that the sources differed from the commit.
    pub commit: Option<String>,
    /// Names and versions of the libraries that are linked into it.
    pub libraries: Vec<(String, String)>,
}

impl ResultsFolder {
    /// Makes the folder and writes the manifest: what is needed to read the figures later and to take them again.
    pub(crate) fn create(parent: &Path, plan: &Plan, program: &Program) -> Result<Self, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let stamp = timestamp(now);
        // Two benchmarks may begin in the same second.
        let path = (1..)
            .map(|attempt| {
                parent.join(if attempt == 1 { stamp.clone() } else { format!("{stamp}-{attempt}") })
            })
            .find(|path| !path.exists())
            .unwrap_or_else(|| parent.join(&stamp));
        fs::create_dir_all(&path).map_err(|source| Error::Io {
            action: "create",
            path: path.clone(),
            source,
        })?;
        let folder = ResultsFolder { path };
        let mut manifest = machine(program, &[]);
        manifest["started"] = stamp.into();
        manifest["command"] = plan.command.as_str().into();
        manifest["corpus"] =
            json!({ "name": plan.corpus, "bytes": fs::metadata(&plan.corpus).ok().map(|file| file.len()) });
        folder.write(MANIFEST, &format!("{manifest:#}\n"))?;
        Ok(folder)
    }

    /// A folder that was made before.
    pub(crate) fn at(path: PathBuf) -> Self {
        ResultsFolder { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the log of one run and returns its file name.
    pub(crate) fn log(
        &self,
        spec: &RunSpec,
        round: usize,
        measured: &Measurement,
        said: &str,
    ) -> Result<String, Error> {
        let values = match spec.value_order {
            ValueOrder::Strangers => spec.value_bytes.to_string(),
            order => format!("{}-{order}", spec.value_bytes),
        };
        let workload = &spec.workload.name;
        let cpus = if spec.cpus.is_empty() { String::new() } else { format!("-c{}", spec.cpus.len()) };
        let run = file_name(&spec.name());
        let name = format!("{run}-{workload}-v{values}-t{}{cpus}-round{round}.log", spec.threads);
        let text = format!("run: {:#}\n\n{said}\nmeasured: {:#}\n", json!(spec), json!(measured));
        self.write(&name, &text)?;
        Ok(name)
    }

    /// Writes the rows: medians per configuration, every round, and the verdicts of a comparison of codecs. Writes
    /// everything that was measured for programs, too.
    pub(crate) fn summary(&self, outcome: &Outcome, compares_codecs: bool) -> Result<(), Error> {
        let all = &outcome.configurations;
        self.write("summary.tsv", &tsv(summary_rows(outcome).into_iter()))?;
        let rounds = all.iter().flat_map(|one| (0..one.rounds.len()).map(move |round| round_row(one, round)));
        self.write("rounds.tsv", &tsv(rounds))?;
        let kept = json!({
            "configurations": all,
            "unavailable": outcome.unavailable,
            "failure": outcome.failure.as_ref().map(ToString::to_string),
        });
        self.write(KEPT, &format!("{kept}\n"))?;
        match compares_codecs {
            true => self.write("verdicts.tsv", &Verdicts::of(outcome).to_tsv()),
            false => Ok(()),
        }
    }

    /// Writes a file.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.path.join(name);
        fs::write(&path, text).map_err(|source| Error::Io { action: "write", path, source })
    }
}

/// The machine and the program, as far as figures depend on them; and the disks of folders.
pub(crate) fn machine(program: &Program, folders: &[PathBuf]) -> Value {
    let libraries: serde_json::Map<String, Value> =
        program.libraries.iter().map(|(name, version)| (name.clone(), version.as_str().into())).collect();
    let disks = folders.iter().filter_map(|folder| disk_of(folder).ok()).map(|name| {
        let read = |file: &str| first_line(&format!("/sys/block/{name}/{file}"));
        json!({
            "name": name,
            "model": read("device/model"),
            "sectors_of_512_bytes": read("size"),
            "rotational": read("queue/rotational"),
            "scheduler": read("queue/scheduler"),
        })
    });
    json!({
        "kernel": first_line("/proc/sys/kernel/osrelease"),
        "cpu": cpu_model(),
        "governor": first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "memory": first_line("/proc/meminfo"),
        "load_average": first_line("/proc/loadavg"),
        "disks": disks.collect::<Vec<_>>(),
        "commit": program.commit,
        "libraries": libraries,
    })
}

/// A name of a run as part of a file's name: addresses have slashes, and commands can have anything. The end of a long
/// one tells most.
fn file_name(run: &str) -> String {
    const CHARS_MAX: usize = 120;
    let run = run.replace("://", "-");
    let is_plain = |one: char| one.is_ascii_alphanumeric() || "._-+=:".contains(one);
    let plain: Vec<char> = run.chars().map(|one| if is_plain(one) { one } else { '-' }).collect();
    plain[plain.len().saturating_sub(CHARS_MAX)..].iter().collect()
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or("unknown").to_owned()
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or(std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// UTC as `20260418T021637Z` (days to date after Hinnant, "chrono-compatible low-level date algorithms").
fn timestamp(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / 86_400 + 719_468, unix_seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_runs_are_names_of_files() {
        assert_eq!(file_name("store_auto_l1024_bg0"), "store_auto_l1024_bg0");
        assert_eq!(file_name("redis://127.0.0.1:6379/1"), "redis-127.0.0.1:6379-1");
        assert_eq!(file_name("exec:python3 a/b.py 'x y'"), "exec:python3-a-b.py--x-y-");
        assert_eq!(file_name(&"é/".repeat(500)).len(), 120);
    }

    #[test]
    fn timestamps_are_utc() {
        assert_eq!(timestamp(0), "19700101T000000Z");
        assert_eq!(timestamp(1_776_478_597), "20260418T021637Z");
        assert_eq!(timestamp(951_782_400), "20000229T000000Z");
    }
}
