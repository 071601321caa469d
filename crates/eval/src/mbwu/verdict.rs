//! Whether what was measured allows a verdict.
//!
//! A throughput that still changed is that of no state of the platform, and a ratio of two such says nothing. So the
//! unit and the platforms get a verdict only if they are steady:
//!
//! 1. the last five rounds by SNIA's rule,
//! 2. the window of each of them,
//! 3. the target before the search that chose the number of threads.
//!
//! Throughput that still grows with the threads is not the most that a platform does, so the search must saturate, too.

use crate::mbwu::measured::Measured;
use crate::mbwu::rounds::Round;
use crate::results::table::grouped;
use crate::run::steady::{CHANGE_MAX, ROUNDS, Steadiness, are_rounds_steady};
use crate::statistics::Deviation;

/// Whether the last five rounds are steady: their throughputs, and the window of each.
pub(crate) fn are_steady(rounds: &[Round]) -> bool {
    last(rounds).is_some_and(are_steady_together)
}

fn are_steady_together(rounds: &[Round]) -> bool {
    let is_steady = |round: &Round| round.measurement.steadiness.is_some_and(|found| found.is_steady());
    rounds.iter().all(is_steady) && are_rounds_steady(&throughputs(rounds))
}

/// The rounds that the figures are of: those at the end that are steady together, or all if the last ones are not.
///
/// All of them are held against one mean and one line. With windows of five rounds, each steady by itself, a throughput
/// that drifts by 2 % from round to round would have a mean of rounds far apart, and the error of steady ones.
pub(crate) fn counted(rounds: &[Round]) -> &[Round] {
    let Some(mut first) = rounds.len().checked_sub(ROUNDS).filter(|_| are_steady(rounds)) else {
        return rounds;
    };
    while first > 0 && are_steady_together(&rounds[first - 1..]) {
        first -= 1;
    }
    &rounds[first..]
}

/// Why there is no verdict on these rounds, and what to do: a sentence without its end. Nothing if there is one.
pub(crate) fn unsteady(rounds: &[Round]) -> Option<String> {
    let mut reasons: Vec<String> = Vec::new();
    let searched = rounds.first().and_then(|round| round.measurement.warm_up);
    reasons.extend(searched.filter(|found| matches!(found.steadiness, Steadiness::Changing { .. })).map(
        |found| format!("its number of threads was {}, and move its results away", found.before("searched")),
    ));
    reasons.extend(unsaturated(rounds));
    let last = last(rounds).unwrap_or(rounds);
    reasons.extend(unsteady_windows(last));
    if rounds.len() < ROUNDS {
        reasons.push(format!("{} round(s) do not tell; give `rounds` = {ROUNDS} or more", rounds.len()));
    } else if !are_rounds_steady(&throughputs(last)) {
        let [least, most] = [f64::min, f64::max].map(|of| throughputs(last).into_iter().reduce(of));
        reasons.push(format!(
            "its last {ROUNDS} rounds reach from {} to {} operations per second; give more `rounds_max`, longer \
             `seconds`, and a machine without other work",
            grouped(least.unwrap_or_default(), 0),
            grouped(most.unwrap_or_default(), 0)
        ));
    }
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Why the search did not find the number of threads that gives the most.
fn unsaturated(rounds: &[Round]) -> Option<String> {
    let found = rounds.first()?.measurement.saturation.as_ref().filter(|found| !found.is_saturated())?;
    Some(format!(
        "its search for the number of threads did not saturate: throughput still grew at {} thread(s), so that it may \
         do more; give a larger `threads_max`, and move its results away",
        found.largest_load()
    ))
}

fn unsteady_windows(last: &[Round]) -> Option<String> {
    let found = || last.iter().map(|round| round.measurement.steadiness);
    if found().any(|steadiness| steadiness.is_none()) {
        return Some(
            "its windows end by a count of operations, and nobody looked whether they were steady; leave out \
             --operations"
                .into(),
        );
    }
    let unsteady: Vec<Steadiness> = found().flatten().filter(|found| !found.is_steady()).collect();
    let worst = unsteady.iter().max_by(|one, other| weight(one).total_cmp(&weight(other)))?;
    Some(format!(
        "the windows of {} of its last {} round(s) were not steady: in one, {}; give longer `seconds`, a longer \
         warm-up (--warmup-max in `bench`), and a machine without other work",
        unsteady.len(),
        last.len(),
        worst.clause()
    ))
}

/// Changes first, those that are sure before those that noise may hide.
fn weight(found: &Steadiness) -> f64 {
    match found {
        Steadiness::Changing { change } => 1e9 + change.abs(),
        Steadiness::Unsure { change_max } => change_max.unwrap_or_default(),
        Steadiness::Steady { .. } => 0.0,
    }
}

/// Why the same work, measured as the unit and as a platform, settles nothing: both are further apart than a steady
/// throughput may change, and than their errors.
pub(crate) fn apart(unit: &Measured, twin: &Measured) -> Option<String> {
    let apart = twin.throughput.mean / unit.throughput.mean - 1.0;
    let both = [unit.throughput.deviation()?, twin.throughput.deviation()?];
    let reach = Deviation::together(both)?.reach_95() / unit.throughput.mean;
    (apart.abs() > CHANGE_MAX.max(reach)).then(|| {
        format!(
            "{} does the very work of the unit, and both came out {:.0} % apart ({} and {} operations per second); \
             give longer `seconds` and a longer warm-up (--warmup-max in `bench`), and measure both again",
            twin.name,
            apart.abs() * 100.0,
            grouped(unit.throughput.mean, 0),
            grouped(twin.throughput.mean, 0)
        )
    })
}

fn last(rounds: &[Round]) -> Option<&[Round]> {
    rounds.len().checked_sub(ROUNDS).map(|first| &rounds[first..])
}

fn throughputs(rounds: &[Round]) -> Vec<f64> {
    rounds.iter().map(Round::throughput).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::mbwu::limit::Shares;
    use crate::mbwu::origin::Origin;
    use crate::run::saturation::{Effort, saturate};
    use crate::run::spec::RunSpec;
    use crate::run::steady::WarmedUp;
    use crate::statistics::Mean;
    use crate::suites::database::tests::configuration;

    /// Rounds of so many operations per second, of which some have windows that changed by so much.
    fn rounds(throughputs: &[f64], changed: &[(usize, f64)]) -> Vec<Round> {
        let measurement = configuration("builtin-lz4", 16_384, &[[1, 1, 1]]).rounds.remove(0);
        let steady = |mean| Steadiness::Steady {
            samples: 40,
            throughput: Mean { mean, error: Some(mean / 100.0), samples: 20 },
        };
        let round = |(place, per_sec): (usize, &f64)| {
            let mut measurement = measurement.clone();
            let change = changed.iter().find(|(changed, _)| *changed == place);
            measurement.steadiness =
                Some(change.map_or(steady(*per_sec), |(_, change)| Steadiness::Changing { change: *change }));
            (measurement.operations, measurement.wall_sec) = (*per_sec as u64, 1.0);
            let asked = RunSpec::new("x", "log");
            Round { origin: Origin::of(asked), measurement }
        };
        throughputs.iter().enumerate().map(round).collect()
    }

    #[test]
    fn steady_rounds_with_steady_windows_have_a_verdict() {
        let alike = [100.0, 101.0, 99.0, 102.0, 98.0];
        assert_eq!(unsteady(&rounds(&alike, &[])), None);
        let told = unsteady(&rounds(&alike, &[(1, -0.14), (3, -0.38)])).unwrap();
        assert!(told.contains("the windows of 2 of its last 5 round(s) were not steady"), "{told}");
        assert!(told.contains("still changed by 38 %; give longer `seconds`"), "{told}");
        let told = unsteady(&rounds(&[100.0, 101.0, 99.0, 60.0, 98.0], &[])).unwrap();
        assert!(told.contains("its last 5 rounds reach from 60 to 101 operations per second"), "{told}");
        let told = unsteady(&rounds(&alike[..2], &[])).unwrap();
        assert_eq!(told, "2 round(s) do not tell; give `rounds` = 5 or more");
        let mut counted = rounds(&alike, &[]);
        counted[4].measurement.steadiness = None;
        assert!(unsteady(&counted).unwrap().contains("leave out --operations"));
        assert!(!are_steady(&counted));
    }

    #[test]
    fn a_search_while_throughput_changed_has_no_verdict() {
        let mut rounds = rounds(&[100.0; 5], &[]);
        let mut warm_up = |steadiness| {
            rounds[0].measurement.warm_up = Some(WarmedUp { threads: 4, sec: 180.0, steadiness });
            unsteady(&rounds)
        };
        let told = warm_up(Steadiness::Changing { change: -0.12 }).unwrap();
        assert!(told.contains("SEARCHED WHILE throughput still changed by 12 %, after a warm-up of 180 s"));
        // Noise that hides a change is no change, and the windows tell for themselves.
        assert_eq!(warm_up(Steadiness::Unsure { change_max: Some(0.2) }), None);
    }

    /// The unit would be less than the medium allows, and each platform more of it.
    #[test]
    fn a_search_that_did_not_saturate_has_no_verdict() {
        let mut rounds = rounds(&[100.0; 5], &[]);
        let mut searched = |most: f64| {
            let effort = Effort { load_max: 16, ..Effort::default() };
            let found = saturate(effort, &mut |load| Ok((load as f64).min(most))).unwrap();
            rounds[0].measurement.saturation = Some(found);
            unsteady(&rounds)
        };
        assert_eq!(searched(4.0), None);
        let told = searched(1e9).unwrap();
        assert!(told.contains("did not saturate: throughput still grew at 16 thread(s)"), "{told}");
        assert!(told.contains("give a larger `threads_max`"), "{told}");
    }

    /// Results of versions that knew the knee alone call that saturated.
    #[test]
    fn older_results_saturate_by_the_rule_of_this_version() {
        let mut rounds = rounds(&[100.0; 5], &[]);
        let points: Vec<_> = [1, 2, 4, 8, 16, 32, 64]
            .map(|load| json!({ "load": load, "throughputs": [f64::from(load).sqrt()] }))
            .into();
        let found = json!({
            "points": points, "peak_load": 64, "peak": { "mean": 8.0, "error": null, "samples": 1 }, "knee": 8.0,
            "knee_error": null, "enough_load": 64, "is_saturated": true
        });
        rounds[0].measurement.saturation = serde_json::from_value(found).unwrap();
        let told = unsteady(&rounds).unwrap();
        assert!(told.contains("throughput still grew at 64 thread(s)"), "{told}");
    }

    #[test]
    fn figures_are_of_the_rounds_that_are_steady_together() {
        let first_is_far = [40.0, 100.0, 101.0, 99.0, 102.0, 98.0, 100.0];
        let all = rounds(&first_is_far, &[]);
        assert_eq!(counted(&all).len(), 6);
        assert_eq!(counted(&rounds(&first_is_far, &[(1, 0.2)])).len(), 5);
        assert_eq!(counted(&rounds(&first_is_far, &[(6, 0.2)])).len(), 7, "the last is not steady");
        assert_eq!(counted(&all[..3]).len(), 3);
    }

    /// Any five rounds that follow each other move by 8 %, and all of them by 32 %.
    #[test]
    fn rounds_of_a_slow_drift_are_not_steady_together() {
        let drifting: Vec<f64> = (0..15).map(|round| 100.0 * 1.02f64.powi(round)).collect();
        let all = rounds(&drifting, &[]);
        assert!((ROUNDS..=all.len()).all(|end| are_steady(&all[..end])));
        let counted = throughputs(counted(&all));
        assert!(counted[counted.len() - 1] / counted[0] < 1.11, "{counted:?}");
    }

    #[test]
    fn the_same_work_must_come_out_alike_twice() {
        let measured = |name: &str, mean: f64, error: f64| Measured {
            name: name.into(),
            stage: String::new(),
            rounds: Vec::new(),
            counted: 5,
            throughput: Mean { mean, error: Some(error), samples: 5 },
            unsteady: None,
            shares: Shares::default(),
            power: None,
            others_cores: None,
            machine: serde_json::Value::Null,
        };
        let apart = |mean, error| apart(&measured("unit", 7_858.0, 170.0), &measured("twin", mean, error));
        let told = apart(10_837.0, 149.0).unwrap();
        assert!(told.contains("twin does the very work of the unit"), "{told}");
        assert!(told.contains("38 % apart (7,858 and 10,837 operations per second)"), "{told}");
        assert_eq!(apart(8_500.0, 10.0), None, "a steady throughput may change by as much");
        assert_eq!(apart(10_837.0, 1_500.0), None, "within their errors");
    }
}
