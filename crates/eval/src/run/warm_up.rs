//! Rounds that come before a suite on servers and are not measured. A server that runs in a JVM compiles what it runs
//! often while it runs it: its first requests cost twice as much CPU time as later ones.
//!
//! 1. A round runs every codec once, for a short window of the last workload, on tables of at most [`KEYS_MAX`] rows.
//! 2. Rounds follow each other until CPU time per operation differs by less than 5 % from that of the round before.
//! 3. They end after [`ROUNDS_MAX`] in any case, and the command prints the CPU time of each round.

use std::fmt;

use crate::bench::plan::Plan;
use crate::bench::process::Launcher;
use crate::bench::{Outcome, bench};
use crate::error::Error;
use crate::results::folder::Program;
use crate::target::registry::Registry;
use crate::workload::pace::Pace;

const CHANGE_MAX: f64 = 0.05;
const ROUNDS_MAX: usize = 4;
const KEYS_MAX: u64 = 20_000;
const WINDOW_SEC: f64 = 2.0;

/// CPU time per operation of each round, in microseconds; `None` where another machine has the servers.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmUp(Vec<Option<f64>>);

impl WarmUp {
    /// Whether servers are as fast as they become: the last two rounds were alike. Two rounds must do where nobody
    /// knows the CPU time.
    fn is_steady(&self) -> bool {
        match self.0.as_slice() {
            [.., Some(before), Some(last)] => (last / before - 1.0).abs() < CHANGE_MAX,
            rounds => rounds.len() > 1,
        }
    }
}

impl fmt::Display for WarmUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |us: &Option<f64>| us.map_or("unknown".into(), |us| format!("{us:.0}"));
        let all: Vec<String> = self.0.iter().map(us).collect();
        let end = if self.is_steady() { "" } else { "; THE SERVERS DID NOT BECOME STEADY" };
        write!(f, "CPU time of rounds before the first that is measured, in us/op: {}{end}", all.join(", "))
    }
}

/// Runs plans without measuring, until the servers are steady.
///
/// # Errors
/// A run failed, or an answer was wrong.
pub fn warm_up(
    plans: &[Plan],
    registry: &Registry,
    launcher: &Launcher,
    program: &Program,
) -> Result<WarmUp, Error> {
    let plans = short(plans);
    let mut warm_up = WarmUp(Vec::new());
    while !warm_up.is_steady() && warm_up.0.len() < ROUNDS_MAX {
        let run = |plan| bench(plan, registry, launcher, program)?.into_result();
        let outcomes = plans.iter().map(run).collect::<Result<Vec<_>, _>>()?;
        if let Some(wrong) = outcomes.iter().find_map(wrong_answer) {
            return Err(wrong);
        }
        warm_up.0.push(cpu_us(&outcomes));
    }
    Ok(warm_up)
}

/// The plans of one round. The first runs every codec, because the JVM compiles a call anew when it meets another
/// codec behind it. The others run one codec on rows of their own.
fn short(plans: &[Plan]) -> Vec<Plan> {
    let short = |(number, plan): (usize, &Plan)| Plan {
        codecs: plan.codecs.iter().take(if number == 0 { usize::MAX } else { 1 }).cloned().collect(),
        workloads: plan.workloads.last().cloned().into_iter().collect(),
        value_bytes: plan.value_bytes.last().copied().into_iter().collect(),
        block_bytes: plan.block_bytes.first().copied().into_iter().collect(),
        keys: plan.keys.min(KEYS_MAX),
        seconds: WINDOW_SEC,
        operations: None,
        settle_seconds: 0.0,
        pace: Pace::Closed,
        perf_control: None,
        rounds: 1,
        out: None,
        ..plan.clone()
    };
    plans.iter().enumerate().map(short).collect()
}

fn cpu_us(outcomes: &[Outcome]) -> Option<f64> {
    let rounds = || outcomes.iter().flat_map(|outcome| &outcome.configurations).flat_map(|one| &one.rounds);
    let cpu_sec: f64 = rounds().map(|round| round.cpu_sec()).sum::<Option<f64>>()?;
    let operations: u64 = rounds().map(|round| round.operations).sum();
    (operations > 0).then(|| cpu_sec * 1e6 / operations as f64)
}

fn wrong_answer(outcome: &Outcome) -> Option<Error> {
    let rounds =
        outcome.configurations.iter().flat_map(|one| one.rounds.iter().map(move |round| (one, round)));
    let (one, sentence) =
        rounds.into_iter().find_map(|(one, round)| Some((one, round.first_mismatch.clone()?)))?;
    Some(Error::Run { run: one.spec.name(), sentence, status: 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::database::tests::{configuration, outcome};
    use crate::workload::Workload;

    #[test]
    fn rounds_go_on_until_two_are_alike() {
        let is_steady = |us: &[f64]| WarmUp(us.iter().copied().map(Some).collect()).is_steady();
        for (us, expected) in [
            (&[][..], false),
            (&[90.0], false),
            (&[90.0, 60.0], false),
            (&[90.0, 60.0, 58.0], true),
            (&[46.0, 49.0], false),
        ] {
            assert_eq!(is_steady(us), expected, "{us:?}");
        }
        assert!(WarmUp(vec![None, None]).is_steady() && !WarmUp(vec![None]).is_steady());
        let told = WarmUp(vec![Some(90.0), Some(46.2)]).to_string();
        assert!(told.contains("90, 46; THE SERVERS DID NOT BECOME STEADY"), "{told}");
    }

    #[test]
    fn a_round_is_short_and_only_the_first_plan_runs_every_codec() {
        let usual = crate::suites::codec::tests::asked();
        let plan = Plan {
            codecs: vec!["builtin-lz4".into(), "ziptier-lz4".into()],
            workloads: ["read_only", "read_write_8_2"].map(|name| Workload::named(name).unwrap()).to_vec(),
            rounds: 3,
            pace: Pace::UntilP99(20_000.0),
            perf_control: Some("fifo".into()),
            out: Some("results".into()),
            ..usual
        };
        let round = short(&[plan.clone(), plan]);
        assert_eq!([0, 1].map(|number| round[number].codecs.len()), [2, 1]);
        for plan in round {
            let workloads: Vec<&str> = plan.workloads.iter().map(|workload| workload.name.as_str()).collect();
            assert_eq!(workloads, ["read_write_8_2"]);
            assert_eq!((plan.rounds, plan.seconds, plan.keys), (1, WINDOW_SEC, KEYS_MAX));
            assert_eq!((plan.pace, plan.perf_control, plan.out), (Pace::Closed, None, None));
        }
    }

    #[test]
    fn cpu_time_is_that_of_all_operations_and_no_wrong_answer_is_lost() {
        let of = |rounds: &[[u64; 3]]| outcome(vec![configuration("builtin-lz4", 16384, rounds)]);
        // A second of CPU time for each.
        let mut both = [of(&[[10_000, 1, 1]]), of(&[[30_000, 1, 1]])];
        assert_eq!(cpu_us(&both), Some(50.0));
        assert_eq!(cpu_us(&[]), None);
        assert!(both.iter().find_map(wrong_answer).is_none());
        both[1].configurations[0].rounds[0].first_mismatch = Some("get of key number 7".into());
        let told = both.iter().find_map(wrong_answer).unwrap().to_string();
        assert!(told.contains("get of key number 7"), "{told}");
    }
}
