//! The section of a folder that `ziptier bench --out` wrote.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::bench::Configuration;
use crate::error::Error;
use crate::mbwu::Limit;
use crate::report::figure::{Figure, Kind};
use crate::report::runs::{self, Runs, are_beside};
use crate::report::{Section, Table, facts_of, parsed, text_of, told_once};
use crate::results::folder::{KEPT, Kept, MANIFEST};
use crate::results::row::fixed;
use crate::run::measurement::Measurement;
use crate::run::spec::RunSpec;
use crate::statistics::Mean;
use crate::suites::database::REFERENCE;

/// Tables that say nothing else than the figures.
const TABLES_LEFT_OUT: [&str; 2] = ["summary.tsv", "rounds.tsv"];

/// Reads a folder of results.
///
/// # Errors
/// A file cannot be read, or is damaged.
pub(crate) fn section(folder: &Path) -> Result<Section, Error> {
    let kept: Kept = parsed(&folder.join(KEPT))?;
    let manifest: Json = parsed(&folder.join(MANIFEST))?;
    let names = names(&kept.configurations);
    let rounds: Vec<Vec<&Measurement>> =
        kept.configurations.iter().map(|one| one.rounds.iter().collect()).collect();
    let all: Vec<Runs<'_>> = kept
        .configurations
        .iter()
        .zip(&names)
        .zip(&rounds)
        .map(|((one, name), rounds)| Runs { name, spec: &one.spec, rounds })
        .collect();
    let mut unknown = told_once(all.len(), all.iter().flat_map(runs::unknown).collect());
    unknown.extend(kept.failure.map(|failure| format!("The benchmark ended early: {failure}.")));
    unknown.extend(kept.unavailable.iter().map(|one| format!("{} was {one}.", one.spec.name())));
    let command = manifest["command"].as_str().unwrap_or_default().to_owned();
    Ok(Section {
        title: format!("Benchmark {}", manifest["started"].as_str().unwrap_or_default()),
        about: vec![format!("Results in {}.", folder.display())],
        verdicts: verdicts(&all),
        unknown,
        figures: figures(&all, &kept.configurations),
        facts: facts_of(&manifest),
        commands: vec![command],
        files: Vec::new(),
        tables: tables(folder)?,
    })
}

/// A part of the words for a run.
type Part = fn(&RunSpec) -> String;

const WORKLOAD: Part = |spec| spec.workload.name.clone();
const ORDER: Part = |spec| spec.value_order.to_string();
const THREADS: Part = |spec| format!("{} thread(s)", spec.threads);
const PROCESSORS: Part = |spec| format!("{} processor(s)", spec.cpus.len());

/// The parts that are not alike in all runs.
fn differing<'a>(specs: impl Iterator<Item = &'a RunSpec> + Clone, parts: &[Part]) -> Vec<Part> {
    let differs =
        |part: &Part| specs.clone().zip(specs.clone().skip(1)).any(|(one, next)| part(one) != part(next));
    parts.iter().copied().filter(differs).collect()
}

/// The words for a run, between commas.
fn in_words(spec: &RunSpec, parts: &[Part]) -> String {
    parts.iter().map(|part| part(spec)).collect::<Vec<_>>().join(", ")
}

/// Names that tell the configurations apart, without what all have in common.
fn names(all: &[Configuration]) -> Vec<String> {
    let specs = all.iter().map(|one| &one.spec);
    let differing =
        differing(specs.clone(), &[WORKLOAD, RunSpec::values_in_words, ORDER, THREADS, PROCESSORS]);
    let parts = [&[RunSpec::name as Part][..], &differing[..]].concat();
    specs.map(|spec| in_words(spec, &parts)).collect()
}

/// The configurations beside the first that did the same work.
fn groups<'a>(all: &[Runs<'a>]) -> Vec<Vec<Runs<'a>>> {
    let mut groups: Vec<Vec<Runs<'a>>> = Vec::new();
    for runs in all {
        match groups.iter_mut().find(|group| are_beside(group[0].spec, runs.spec)) {
            Some(group) => group.push(*runs),
            None => groups.push(vec![*runs]),
        }
    }
    groups
}

/// The configuration that the others are compared with: RocksDB's own zstd where it is, or the first.
fn base_of<'g, 'a>(group: &'g [Runs<'a>]) -> &'g Runs<'a> {
    group.iter().find(|runs| runs.spec.codec == REFERENCE).unwrap_or(&group[0])
}

fn verdicts(all: &[Runs<'_>]) -> Vec<String> {
    let mut verdicts = Vec::new();
    for group in groups(all) {
        let base = base_of(&group);
        verdicts.extend(group.iter().filter(|runs| runs.name != base.name).map(|runs| beside(runs, base)));
    }
    verdicts.extend(all.iter().flat_map(limits));
    verdicts
}

/// A configuration beside another, round by round, since the rounds of all take turns.
fn beside(runs: &Runs<'_>, base: &Runs<'_>) -> String {
    let ratio = |of: &dyn Fn(&Measurement) -> Option<f64>| {
        let of_round = |own, other| Some(of(own)? / of(other)?).filter(|ratio: &f64| ratio.is_finite());
        let pairs = runs.rounds.iter().zip(base.rounds);
        let ratios: Option<Vec<f64>> = pairs.map(|(own, other)| of_round(own, other)).collect();
        Mean::of(&ratios?)
    };
    let (what, found) = match ratio(&|round| round.qps_per_cpu_core()) {
        Some(found) => ("operations per CPU-second", Some(found)),
        None => ("operations per second", ratio(&|round| Some(round.qps()))),
    };
    let Some(found) = found else { return format!("{} has no figure to compare.", runs.name) };
    let sure = match found.reach_95() {
        None => "; one round does not tell how sure that is".to_owned(),
        Some(reach) => {
            let [low, high] = [found.mean - reach, found.mean + reach].map(|end| fixed(end, 2));
            let decided = if found.mean - reach <= 1.0 && found.mean + reach >= 1.0 {
                ": the rounds leave it undecided"
            } else {
                ""
            };
            format!(", with 95 % something from {low} to {high}{decided}")
        }
    };
    let held = ratio(&|round| round.settled_held_per_raw().or_else(|| round.held_per_raw()));
    let held = match held {
        Some(held) => format!("It holds {} times the bytes.", fixed(held.mean, 2)),
        None => "The bytes that it holds are missing.".into(),
    };
    // A ratio to a model is one of a model.
    let kind = if base.kind() == Kind::Modelled { base.kind() } else { runs.kind() }.word();
    let mean = fixed(found.mean, 2);
    format!("{} does {mean} times the {what} of {} ({kind}){sure}. {held}", runs.name, base.name)
}

/// The part of its threads, or of the processors, that a configuration must keep busy to be limited by them.
const BUSY: f64 = 0.8;

/// What limits a configuration, as far as its meters tell.
fn limits(runs: &Runs<'_>) -> Vec<String> {
    let Some(last) = runs.rounds.last() else { return Vec::new() };
    let mut said: Vec<String> = Vec::new();
    let there = last.usable_processors().len();
    if let Some(own) = last.cpu_cores().filter(|_| there > 0) {
        let threads = last.threads(runs.spec) * runs.spec.instances;
        let limit = match own {
            own if own >= BUSY * there as f64 => "processors".to_owned(),
            own if own >= BUSY * threads as f64 => "its threads".to_owned(),
            _ => Limit::Unknown.to_string(),
        };
        let (name, own) = (runs.name, fixed(own, 2));
        said.push(format!(
            "{name} was limited by {limit}: it kept {own} of {there} processors busy with {threads} thread(s)."
        ));
    }
    said.extend(last.findings().iter().map(|finding| format!("{}: {finding}.", runs.name)));
    said
}

fn figures(all: &[Runs<'_>], configurations: &[Configuration]) -> Vec<Figure> {
    let stores: Vec<Runs<'_>> =
        all.iter().zip(configurations).filter(|(_, one)| !one.is_harness).map(|(runs, _)| *runs).collect();
    let mut figures = vec![runs::throughput_and_size(&stores)];
    let work = differing(all.iter().map(|runs| runs.spec), &[RunSpec::values_in_words, ORDER, PROCESSORS]);
    let work = [&[WORKLOAD][..], &work[..], &[RunSpec::threads_in_words as Part][..]].concat();
    for group in groups(all) {
        let title = format!("Latency, {}", in_words(group[0].spec, &work));
        let names: Vec<String> = group.iter().map(|runs| runs.spec.name()).collect();
        let named: Vec<Runs<'_>> =
            group.iter().zip(&names).map(|(runs, name)| Runs { name, ..*runs }).collect();
        figures.extend(runs::latency(&title, &named));
    }
    for (title, of_work, base) in scalings(all) {
        let named: Vec<Runs<'_>> =
            of_work.iter().map(|(name, runs)| Runs { name: name.as_str(), ..*runs }).collect();
        figures.extend(runs::scaling(&title, &named, &base));
    }
    figures.extend(runs::saturation(all));
    figures.extend(runs::meters(all));
    figures
}

type Scaled<'a> = (String, Vec<(String, Runs<'a>)>, String);

/// Runs of the same work with other processors or threads, each with the name of its target alone.
fn scalings<'a>(all: &[Runs<'a>]) -> Vec<Scaled<'a>> {
    let work = |spec: &RunSpec| (spec.workload.clone(), spec.value_bytes, spec.value_order);
    let mut scalings: Vec<Scaled<'a>> = Vec::new();
    for runs in all {
        let name = runs.spec.name();
        let found = scalings.iter_mut().find(|(_, group, _)| work(group[0].1.spec) == work(runs.spec));
        match found {
            Some((_, group, base)) => {
                if runs.spec.codec == REFERENCE {
                    *base = name.clone();
                }
                group.push((name, *runs));
            }
            None => {
                let spec = runs.spec;
                let words = in_words(spec, &[WORKLOAD, RunSpec::values_in_words, ORDER]);
                let title = format!("Scaling, {words}");
                scalings.push((title, vec![(name.clone(), *runs)], name));
            }
        }
    }
    scalings
}

/// The tables that a suite added.
fn tables(folder: &Path) -> Result<Vec<Table>, Error> {
    let failed = |source| Error::Io { action: "read", path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_tsv = path.extension().is_some_and(|extension| extension == "tsv");
        // Beside a page lie the points of a report.
        if is_tsv && !TABLES_LEFT_OUT.contains(&&*name) && !path.with_extension("html").exists() {
            paths.push((name, path));
        }
    }
    paths.sort();
    let table = |(name, path): (String, PathBuf)| {
        let text = text_of(&path)?;
        let lines = text.lines().map(|line| line.split('\t').map(str::to_owned).collect());
        Ok(Table { name, lines: lines.collect() })
    };
    paths.into_iter().map(table).collect()
}
