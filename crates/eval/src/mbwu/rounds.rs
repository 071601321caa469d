//! The rounds of a unit or a platform, and the files that keep them.
//!
//! Each round is a file of its own, `round-1.json` and so on, and is written whole or not at all. A round that is
//! missing ends them: those behind it are of an earlier evaluation.

use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::error::Error;
use crate::mbwu::origin::Origin;
use crate::mbwu::verdict::are_steady;
use crate::run::measurement::Measurement;
use crate::run::steady::{ROUNDS, Steadiness};

/// One round.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    /// Where it comes from.
    #[serde(flatten)]
    pub origin: Origin,
    /// What was measured.
    pub measurement: Measurement,
}

/// The part of a round's file that is no origin.
#[derive(Deserialize)]
struct Figures {
    measurement: Measurement,
}

impl Round {
    /// Reads the file of a round; nothing if there is none.
    ///
    /// One pass takes the origin and one the figures. With `serde(flatten)` a single pass would do, but the compiler
    /// would make a second reader of every type of an origin.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, Error> {
        let (origin, figures) = (read_if_there(path)?, read_if_there::<Figures>(path)?);
        Ok(origin.zip(figures).map(|(origin, Figures { measurement })| Round { origin, measurement }))
    }

    /// Operations per second while they were steady, or of the whole window.
    pub fn throughput(&self) -> f64 {
        match self.measurement.steadiness {
            Some(Steadiness::Steady { throughput, .. }) => throughput.mean,
            _ => self.measurement.qps(),
        }
    }
}

/// Whether no round must follow these.
pub(crate) fn is_enough(rounds: &[Round], least: usize, most: usize) -> bool {
    rounds.len() >= most || rounds.len() >= least && (least < ROUNDS || are_steady(rounds))
}

/// The number of threads that gave the most.
pub(crate) fn threads_of(rounds: &[Round]) -> u64 {
    let found = rounds.first().and_then(|round| round.measurement.saturation.as_ref());
    found.map_or(1, |found| found.peak_load)
}

/// The rounds that lie in a folder, in their order; none after the first that is missing.
pub(crate) fn rounds(place: &Path) -> Result<Vec<Round>, Error> {
    let read = |number: usize| Round::read(&place.join(format!("round-{number}.json"))).transpose();
    (1..).map_while(read).collect()
}

/// Removes rounds behind so many, which an earlier search left behind one that is missing, and the raw load, which
/// follows the last round.
pub(crate) fn forget_behind(place: &Path, rounds: usize) -> Result<(), Error> {
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source| Error::Io { action, path, source }
    };
    for entry in fs::read_dir(place).map_err(failed("read", place))? {
        let path = entry.map_err(failed("read", place))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number =
            name.strip_prefix("round-").and_then(|rest| rest.strip_suffix(".json")?.parse::<usize>().ok());
        if name == "raw.json" || number.is_some_and(|number| number > rounds) {
            fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
    }
    Ok(())
}

/// Reads a file of results; nothing if there is none.
pub(crate) fn read_if_there<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::Io { action: "read", path: path.to_owned(), source }),
    };
    let damaged = |error: serde_json::Error| Error::Inputs {
        path: path.to_owned(),
        sentence: format!("it is damaged ({error}); remove it, and it is measured again"),
    };
    serde_json::from_slice(&text).map(Some).map_err(damaged)
}

/// Writes a file whole or not at all.
pub(crate) fn write(path: &Path, json: &Json) -> Result<(), Error> {
    let failed = |source| Error::Io { action: "write", path: path.to_owned(), source };
    let new = path.with_extension("new");
    fs::write(&new, format!("{json:#}\n")).and_then(|()| fs::rename(&new, path)).map_err(failed)
}
