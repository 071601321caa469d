//! One page of results for readers who decide: does it pay, how sure is that, and what limits each side?
//!
//! The page is one HTML file that needs no network and no JavaScript. Beside it lie the same figures as JSON and as
//! TSV. It is not for programs that follow single runs: these read `rounds.json` of the folders themselves.
//!
//! 1. Each input becomes a section: verdicts in words, what is not known, and figures as points.
//! 2. `plot` draws the points of each figure, behind the feature `plots`.
//! 3. `page` sets everything as HTML; every text of a file is escaped there.
//!
//! | module | what |
//! |---|---|
//! | `figure` | the figures as numbers |
//! | `benchmark`, `evaluation`, `costs` | sections of each kind of input |
//! | `runs` | figures that benchmarks and evaluations share |
//! | `plot`, `page` | how they are shown |

mod benchmark;
mod costs;
mod evaluation;
mod figure;
mod page;
#[cfg(feature = "plots")]
mod plot;
mod runs;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;

use crate::error::Error;
use crate::report::figure::Figure;
use crate::results::folder::{KEPT, MANIFEST};
use crate::results::table::tsv;
use crate::suites::bypass_rounds::BYPASS_SUMMARY;

/// What one input says.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Section {
    pub(crate) title: String,
    /// What it is about, in sentences.
    pub(crate) about: Vec<String>,
    pub(crate) verdicts: Vec<String>,
    /// What is not known, or not measured, in sentences.
    pub(crate) unknown: Vec<String>,
    pub(crate) figures: Vec<Figure>,
    /// The machine, and how those of other sides differ.
    pub(crate) facts: Vec<(String, String)>,
    /// How to take the figures again.
    pub(crate) commands: Vec<String>,
    /// Files that were read, with their texts.
    pub(crate) files: Vec<(String, String)>,
    /// Tables as they were written.
    pub(crate) tables: Vec<Table>,
}

/// A table as it stands in a file; the first line has the names of the columns.
#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) lines: Vec<Vec<String>>,
}

/// Writes a page about these inputs to `out`, and the same figures beside it as JSON and TSV. Returns the three paths.
/// `command` is written down as the way to make the page again.
///
/// # Errors
/// An input has no results, or a damaged file; or a file cannot be written, or is there and is not of a report.
pub fn report(inputs: &[PathBuf], out: &Path, command: &str) -> Result<[PathBuf; 3], Error> {
    if out.extension().is_none_or(|extension| extension != "html") {
        let expected = "give a file whose name ends with .html; the JSON and the TSV get the other endings";
        return Err(Error::invalid("--out", out.display().to_string(), expected));
    }
    // A report writes its page first, so without a page these files are another command's, such as summary.tsv.
    let mut beside = ["json", "tsv"].map(|ending| out.with_extension(ending)).into_iter();
    if let Some(file) = beside.find(|file| file.exists() && !out.exists()) {
        let expected =
            format!("{} is there already, and no report wrote it; give another name", file.display());
        return Err(Error::invalid("--out", out.display().to_string(), expected));
    }
    let sections = inputs.iter().map(|input| section(input)).collect::<Result<Vec<_>, _>>()?;
    let rows = sections.iter().flat_map(|section| {
        section.figures.iter().flat_map(|figure| figure.rows(&section.title)).collect::<Vec<_>>()
    });
    let json = serde_json::json!({ "command": command, "sections": sections });
    let texts =
        [("html", page::page(&sections, command)), ("json", format!("{json:#}\n")), ("tsv", tsv(rows))];
    for (ending, text) in &texts {
        let path = out.with_extension(ending);
        fs::write(&path, text).map_err(|source| Error::Io { action: "write", path, source })?;
    }
    Ok(texts.map(|(ending, _)| out.with_extension(ending)))
}

/// The section of one input: a folder of a benchmark or of an evaluation, or a file of numbers.
fn section(input: &Path) -> Result<Section, Error> {
    if input.is_file() {
        let table: toml::Table = text_of(input)?.parse().map_err(|error: toml::de::Error| Error::Inputs {
            path: input.to_owned(),
            sentence: error.message().lines().collect::<Vec<_>>().join(" "),
        })?;
        return match (table.contains_key("design"), table.contains_key("unit")) {
            (true, _) => costs::section(input),
            (false, true) => evaluation::comparison_section(input),
            (false, false) => Err(no_results(input, "the file has neither [[design]] nor [unit]")),
        };
    }
    if input.join("unit.toml").is_file() {
        return evaluation::section(input);
    }
    if input.join(KEPT).is_file() {
        return benchmark::section(input);
    }
    let mut folders: Vec<PathBuf> = fs::read_dir(input)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect())
        .map_err(|source| Error::Io { action: "read", path: input.to_owned(), source })?;
    folders.sort();
    let has = |folder: &&PathBuf, file: &str| folder.join(file).is_file();
    let is_unended = |folder: &&PathBuf| has(folder, MANIFEST) && !has(folder, BYPASS_SUMMARY);
    let unended = folders.iter().rev().take_while(|folder| !has(folder, KEPT)).find(is_unended);
    let ended: Vec<&PathBuf> = folders.iter().filter(|folder| has(folder, KEPT)).collect();
    let Some(newest) = ended.last() else {
        let mut all = std::iter::once(input).chain(folders.iter().map(PathBuf::as_path));
        let found = if all.any(|folder| folder.join(BYPASS_SUMMARY).is_file()) {
            "the folder is of suite bypass, which has a plot of its own, bypass.svg".to_owned()
        } else if input.join("summary.tsv").is_file() {
            format!("the folder is of an older ziptier, without {KEPT}")
        } else {
            format!("the folder has neither unit.toml nor {KEPT}")
        };
        return Err(no_results(input, &found));
    };
    let mut section = benchmark::section(newest)?;
    if ended.len() > 1 {
        let others = ended.len() - 1;
        section.about.push(format!("The newest folder; {others} older beside it are not in this report."));
    }
    section.unknown.extend(unended.map(|folder| {
        format!(
            "A newer benchmark has no results, since it was interrupted or still runs: {}.",
            folder.display()
        )
    }));
    Ok(section)
}

/// Sentences about names, of which there are so many: the same sentence about several names is said once.
pub(crate) fn told_once(all: usize, told: Vec<(String, String)>) -> Vec<String> {
    /// So many names are called by their names.
    const NAMES_MAX: usize = 3;
    let mut sentences: Vec<(Vec<String>, String)> = Vec::new();
    for (name, sentence) in told {
        match sentences.iter_mut().find(|(_, known)| *known == sentence) {
            Some((names, _)) => names.push(name),
            None => sentences.push((vec![name], sentence)),
        }
    }
    let about = |names: &[String]| match names.len() == all && all > NAMES_MAX {
        true => "All".to_owned(),
        false => names.join("; "),
    };
    sentences.iter().map(|(names, sentence)| format!("{}: {sentence}", about(names))).collect()
}

fn no_results(input: &Path, found: &str) -> Error {
    Error::invalid(
        "results",
        input.display().to_string(),
        format!(
            "{found}; give a folder of `ziptier bench --out` or of `ziptier mbwu run`, or a file of `ziptier tco` or \
             `ziptier mbwu compare`"
        ),
    )
}

pub(crate) fn text_of(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Io { action: "read", path: path.to_owned(), source };
    fs::read_to_string(path).map_err(failed)
}

pub(crate) fn parsed<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    serde_json::from_slice(text_of(path)?.as_bytes()).map_err(|error| Error::Inputs {
        path: path.to_owned(),
        sentence: format!("it is damaged ({error}); run the benchmark again"),
    })
}

/// What is told of a machine, without its libraries.
pub(crate) fn facts_of(machine: &Json) -> Vec<(String, String)> {
    const OF_OTHERS: [&str; 3] = ["libraries", "command", "started"];
    let words = |value: &Json| match value {
        Json::Null => None,
        Json::String(text) if text.is_empty() || text == "unknown" => None,
        Json::String(text) => Some(text.clone()),
        Json::Array(all) if all.is_empty() => Some("none".into()),
        Json::Object(fields) => {
            let field = |(name, value): (&String, &Json)| {
                format!("{name}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            };
            let known = fields.iter().filter(|(_, value)| !value.is_null());
            Some(known.map(field).collect::<Vec<_>>().join(", "))
        }
        other => Some(other.to_string()),
    };
    let facts = machine.as_object().into_iter().flatten();
    let named = facts.filter(|(name, _)| !OF_OTHERS.contains(&name.as_str()));
    let fact = |(name, value): (&String, &Json)| {
        (name.replace('_', " "), words(value).unwrap_or_else(|| "missing".into()))
    };
    named.map(fact).collect()
}

#[cfg(test)]
mod tests;
