//! The summary of a bypass run: the fall of latency, and the time of its recovery after the jump.

use crate::results::row::{Cell, Row};
use crate::suites::bypass::{BypassSeries, BypassSpec, Interval};

/// The interval with the latency before the store knows the hot data, which may be soon. The first interval is left
/// out, because it also waits for caches.
const COLD: std::ops::Range<usize> = 1..2;
/// The last part of a phase, in which it has settled.
const SETTLED_SHARE: usize = 4;
/// Right after the jump.
const AFTER_JUMP: usize = 3;
/// Latency has recovered when `BACK_INTERVALS` intervals in a row are within this factor of the settled one.
const BACK: f64 = 1.1;
const BACK_INTERVALS: usize = 3;

/// A bypass run in a few figures.
#[derive(Debug, Clone, PartialEq)]
pub struct BypassSummary {
    /// Median latency at the beginning.
    pub p50_cold_us: f64,
    /// Median latency at the end of the first phase.
    pub p50_hot_us: f64,
    /// Median latency right after the jump.
    pub p50_jump_us: f64,
    /// Median latency at the end of the second phase.
    pub p50_hot_again_us: f64,
    /// The fall of latency in the first phase, in per cent of the cold latency.
    pub fall_pct: f64,
    /// Reads from the jump until the median latency is within 10 % of the hot one again, and stays there for three
    /// intervals. 0 if latency never left that range.
    pub recovery_operations: Option<u64>,
    /// The same in seconds.
    pub recovery_seconds: Option<f64>,
}

impl BypassSummary {
    /// Nothing if one of the phases has no interval.
    pub fn of(series: &BypassSeries) -> Option<Self> {
        let (before, after) = series.intervals.split_at_checked(series.jump)?;
        let last_before = before.last()?;
        let p50 =
            |intervals: &[Interval]| typical(intervals.iter().map(|interval| interval.p50_us).collect());
        let settled = |phase: &[Interval]| p50(&phase[phase.len() - phase.len().div_ceil(SETTLED_SHARE)..]);
        let cold = before.get(COLD.start..COLD.end.min(before.len())).filter(|cold| !cold.is_empty());
        let p50_cold_us = p50(cold.unwrap_or(before))?;
        let p50_hot_us = settled(before)?;
        let back = after
            .windows(BACK_INTERVALS)
            .position(|some| some.iter().all(|interval| interval.p50_us <= p50_hot_us * BACK));
        // The end of the interval before.
        let back = back.map(|first| &series.intervals[series.jump + first - 1]);
        Some(BypassSummary {
            p50_cold_us,
            p50_hot_us,
            p50_jump_us: p50(&after[..after.len().min(AFTER_JUMP)])?,
            p50_hot_again_us: settled(after)?,
            fall_pct: (1.0 - p50_hot_us / p50_cold_us) * 100.0,
            recovery_operations: back.map(|interval| interval.operations - last_before.operations),
            recovery_seconds: back.map(|interval| interval.seconds - last_before.seconds),
        })
    }
}

/// The mean of the middle third. It is as robust as a median, and finer than the steps of a clock, which many intervals
/// share.
fn typical(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let cut = values.len() / 3;
    let middle = &values[cut..values.len() - cut];
    (!middle.is_empty()).then(|| middle.iter().sum::<f64>() / middle.len() as f64)
}

/// The row of a run in the summary.
pub(crate) fn summary_row(spec: &BypassSpec, series: &BypassSeries) -> Row {
    let summary = BypassSummary::of(series);
    let us = |figure: fn(&BypassSummary) -> f64| Cell::number(summary.as_ref().map(figure), 3);
    let operations = series.intervals.last().map(|interval| interval.operations);
    let seconds = series.intervals.last().map(|interval| interval.seconds);
    let held = (series.raw_bytes > 0).then(|| series.held_bytes as f64 / series.raw_bytes as f64);
    let run = &spec.run;
    vec![
        ("run", Cell::Text(run.name())),
        ("target", Cell::Text(run.target.clone())),
        ("codec", Cell::Text(run.codec.clone())),
        ("distribution", Cell::Text(run.distribution.to_string())),
        ("keys", Cell::count(Some(run.keys))),
        ("p50_cold_us", us(|summary| summary.p50_cold_us)),
        ("p50_hot_us", us(|summary| summary.p50_hot_us)),
        ("fall_pct", Cell::number(summary.as_ref().map(|summary| summary.fall_pct), 1)),
        ("p50_jump_us", us(|summary| summary.p50_jump_us)),
        ("p50_hot_again_us", us(|summary| summary.p50_hot_again_us)),
        (
            "recovery_operations",
            Cell::count(summary.as_ref().and_then(|summary| summary.recovery_operations)),
        ),
        ("recovery_seconds", Cell::number(summary.as_ref().and_then(|summary| summary.recovery_seconds), 3)),
        ("operations", Cell::count(operations)),
        ("seconds", Cell::number(seconds, 3)),
        ("held_per_raw", Cell::number(held, 4)),
        ("mismatches", Cell::count(Some(series.mismatches))),
        ("interval_operations", Cell::count(Some(spec.interval_operations))),
        ("corpus", Cell::text(Some(&run.corpus))),
    ]
}

/// The row of an interval.
pub(crate) fn interval_row(series: &BypassSeries, index: usize) -> Row {
    let interval = &series.intervals[index];
    vec![
        ("operations", Cell::count(Some(interval.operations))),
        ("seconds", Cell::number(Some(interval.seconds), 6)),
        ("p50_us", Cell::number(Some(interval.p50_us), 3)),
        ("p99_us", Cell::number(Some(interval.p99_us), 3)),
        ("reads_raw", Cell::count(interval.reads_raw)),
        ("reads_coded", Cell::count(interval.reads_coded)),
        ("reads_packed", Cell::count(interval.reads_packed)),
        ("jumped", Cell::count(Some((index >= series.jump).into()))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(before: &[f64], after: &[f64]) -> BypassSeries {
        let intervals = before.iter().chain(after).enumerate().map(|(index, &p50_us)| Interval {
            operations: (index as u64 + 1) * 1_000,
            seconds: (index + 1) as f64 * 0.5,
            p50_us,
            p99_us: p50_us * 2.0,
            ..Interval::default()
        });
        BypassSeries { intervals: intervals.collect(), jump: before.len(), ..BypassSeries::default() }
    }

    #[test]
    fn fall_and_recovery_are_read_from_the_series() {
        let before = [9.0, 4.0, 4.0, 4.0, 4.0, 4.0, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0];
        // A single quick interval is not a recovery.
        let after = [5.0, 5.0, 1.0, 5.0, 3.0, 1.05, 1.1, 1.0, 1.0];
        let summary = BypassSummary::of(&series(&before, &after)).unwrap();
        assert_eq!((summary.p50_cold_us, summary.p50_hot_us, summary.fall_pct), (4.0, 1.0, 75.0));
        assert_eq!((summary.p50_jump_us, summary.p50_hot_again_us), (5.0, 1.0));
        assert_eq!((summary.recovery_operations, summary.recovery_seconds), (Some(5_000), Some(2.5)));
    }

    #[test]
    fn what_never_comes_back_has_no_recovery() {
        let summary = BypassSummary::of(&series(&[4.0, 4.0, 1.0, 1.0], &[4.0; 20])).unwrap();
        assert_eq!(summary.recovery_operations, None);
        let flat = BypassSummary::of(&series(&[4.0; 9], &[4.2; 9])).unwrap();
        assert_eq!((flat.recovery_operations, flat.fall_pct), (Some(0), 0.0));
        assert_eq!(BypassSummary::of(&series(&[], &[1.0])), None);
        assert_eq!(BypassSummary::of(&series(&[1.0], &[])), None);
    }
}
