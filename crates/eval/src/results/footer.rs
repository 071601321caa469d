//! The lines below a table: the meanings of its columns, findings, notes and faults.

use crate::bench::plan::Plan;
use crate::bench::{Configuration, Outcome};
use crate::results::row::median;
use crate::results::table::{grouped, in_columns, wrapped};
use crate::run::measurement::Measurement;

const MEANINGS: &str = "\
per CPU-s: by CPU time of the whole process, background threads included. ratio: that over the first row's. \
spread: largest less smallest round. held: bytes in the allocator's active pages, less those before the store was \
opened. RSS: likewise, resident pages. raw: bytes of live keys and values. covers: how often the values cover the \
corpus; above 1 they overlap, which flatters whatever trains a dictionary (--value-order apart does not). load: CPU \
time of loading.";

pub(super) fn footer(plan: &Plan, outcome: &Outcome) -> String {
    let mut meanings = String::from(MEANINGS);
    let rounds = || outcome.configurations.iter().flat_map(|one| &one.rounds);
    if rounds().any(|round| round.loaded_held_bytes.is_some()) {
        meanings += " For a database on disk, held: bytes of its files.";
    }
    if rounds().any(|round| round.servers.is_some()) {
        meanings += " For servers, CPU time is that of their processes, until they were quiet; it is missing where \
                     another machine has them.";
    }
    if plan.settle_seconds > 0.0 {
        meanings += &format!(
            " settled: after {} s of idling; settle: CPU time of that, work that was put off.",
            plan.settle_seconds
        );
    }
    meanings.push('\n');
    if outcome.configurations.iter().any(|configuration| configuration.is_harness) {
        meanings += "null stores nothing: its row is what the harness itself costs, and that cost is in \
                     every other row, too.\n";
    }
    let mut text = format!("\n{}", wrapped(&meanings));
    text += &steps(outcome);
    text += &findings(&outcome.configurations);
    text += &predictions(&outcome.configurations);
    text += &descriptions(outcome);
    let notes: std::collections::BTreeSet<&str> = outcome
        .configurations
        .iter()
        .flat_map(|configuration| &configuration.rounds)
        .flat_map(|round| &round.notes)
        .filter(|note| !note.starts_with("memory:"))
        .map(String::as_str)
        .collect();
    for note in notes {
        text += &wrapped(&format!("note: {note}"));
    }
    text + &faults(outcome)
}

/// The words of the targets that a user named by an address: what they are, and how they were reached.
fn descriptions(outcome: &Outcome) -> String {
    let mut text = String::new();
    let all = &outcome.configurations;
    let has_several = all.windows(2).any(|pair| pair[0].spec.threads != pair[1].spec.threads);
    for configuration in all.iter().filter(|one| one.spec.target.contains(':')) {
        let last = configuration.rounds.last().and_then(|round| round.descriptions.last());
        let (name, workload) = (configuration.spec.name(), &configuration.spec.workload.name);
        let threads =
            if has_several { format!(", {}", configuration.spec.threads_in_words()) } else { String::new() };
        let told = |words: &String| wrapped(&format!("{name}, {workload}{threads}: {words}"));
        text += &last.map_or_else(String::new, told);
    }
    text
}

/// The meaning of rows of modelled devices, with their predicted figures; empty without such rows.
pub(crate) fn predictions(configurations: &[Configuration]) -> String {
    const MEANING: &str = "modelled: software stands in for the device, and its CPU time is taken off. predicted: \
        from what was measured, up to what threads that wait for one job at a time would do if no job were late. \
        held leaves out what the model remembers.";
    let lines: Vec<String> = configurations.iter().filter_map(prediction).collect();
    if lines.is_empty() { String::new() } else { wrapped(MEANING) + &lines.concat() }
}

fn prediction(configuration: &Configuration) -> Option<String> {
    let spec = &configuration.spec;
    let rounds = || configuration.rounds.iter().filter(|round| round.modelled.jobs > 0);
    let of = |figure: &dyn Fn(&Measurement) -> Option<f64>| {
        median(&mut rounds().filter_map(figure).collect::<Vec<f64>>())
    };
    let per_job = |figure: f64, round: &Measurement| Some(figure / round.modelled.jobs as f64);
    let measured = of(&|round| Some(round.qps()))?;
    let late = of(&|round| per_job(round.modelled.late_jobs as f64 * 100.0, round))?;
    let late_us = of(&|round| per_job(round.modelled.late_sec * 1e6, round))?;
    let most = of(&|round| round.qps_without_lateness(spec));
    let cpus = match spec.cpus.len() {
        0 => String::new(),
        cpus => format!(", {cpus} processor(s)"),
    };
    let range = match most {
        Some(most) => format!("{} to {}", grouped(measured, 0), grouped(most, 0)),
        None => format!("{} or more", grouped(measured, 0)),
    };
    Some(wrapped(&format!(
        "{}, {}{cpus}: predicted {range} ops/s; {late:.0} % of jobs late, all by {late_us:.1} us on average",
        in_columns(spec),
        spec.workload.name
    )))
}

/// What makes a benchmark fail that was measured to its end: a line for each configuration, and nothing if all is well.
pub fn faults(outcome: &Outcome) -> String {
    let mut text = String::new();
    for configuration in &outcome.configurations {
        let (name, workload) = (configuration.spec.name(), &configuration.spec.workload.name);
        if let Some(first) = configuration.rounds.iter().find_map(|round| round.first_mismatch.as_ref()) {
            text += &format!("WRONG ANSWERS: {name}, {workload}; the first: {first}\n");
        }
        if configuration.rounds.iter().any(Measurement::has_retrained) {
            text += &format!(
                "NOT HELD OUT: {name}, {workload}: it took a dictionary of the second half into use\n"
            );
        }
    }
    if let Some(folder) = &outcome.folder {
        text += &format!("written to {}\n", folder.display());
    }
    text
}

/// Where throughput ends to grow, and whether it was steady, for runs that looked for that.
fn findings(configurations: &[Configuration]) -> String {
    let mut text = String::new();
    for (spec, round) in
        configurations.iter().flat_map(|one| one.rounds.iter().map(|round| (&one.spec, round)))
    {
        let name = format!("{} {}", spec.name(), spec.workload.name);
        for finding in round.findings() {
            text += &format!("\n{}", wrapped(&format!("{name}: {finding}.")));
        }
    }
    text
}

/// The rates that were offered one after the other; empty if there was one, or none.
pub(crate) fn steps(outcome: &Outcome) -> String {
    let has_steps = |one: &&Configuration| one.rounds.iter().any(|round| !round.steps.is_empty());
    let Some(first) = outcome.configurations.iter().find(has_steps) else { return String::new() };
    let limit_us = first.spec.pace.limit_us();
    let until = limit_us.map_or(String::new(), |us| format!(" until the 99th percentile passed {us} us"));
    let heading = format!("offered rates{until} (open loop, latency from arrival):");
    let mut text = format!("\n{}", wrapped(&heading));
    for configuration in outcome.configurations.iter().filter(has_steps) {
        let spec = &configuration.spec;
        text += &wrapped(&format!("{}, {}, {}:", spec.name(), spec.workload.name, spec.threads_in_words()));
        for step in configuration.rounds.iter().flat_map(|round| &round.steps) {
            text += &format!(
                "  offered {} per s, done {}, p99 {} us{}\n",
                grouped(step.offered_per_sec, 0),
                grouped(step.done_per_sec, 0),
                grouped(step.p99_us, 1),
                if limit_us.is_some_and(|limit_us| step.p99_us > limit_us) { "  (too slow)" } else { "" }
            );
        }
    }
    text
}
