//! One bypass run: reads of a few hot keys, which jump in the middle, and latency over time.
//!
//! A store that keeps hot data uncompressed answers a skewed workload faster once it knows the hot data. This run shows
//! how much faster, how soon, and the effect of other data becoming hot. One thread reads without a pause, in intervals
//! of equal length. Each interval has its own percentiles, and the target's counts of reads from raw, coded and packed
//! bytes.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::{DID_NOT_OPEN, Error};
use crate::meters::Meters;
use crate::run::clock::Clock;
use crate::run::every_key::{check_absent, check_all, load};
use crate::run::has_not_ended;
use crate::run::instance::{Instance, Open};
use crate::run::measurement::Latency;
use crate::run::spaces::{config, live, spaces};
use crate::run::spec::RunSpec;
use crate::run::tally::Mistakes;
use crate::run::worker::{Buffers, Worker};
use crate::target::{Config, TargetError};
use crate::workload::distribution::KeyLaw;
use crate::workload::scan::ScanLengths;

/// A phase lasts for the seconds of the run, and for at least this many intervals. With 5,000 operations each, that is
/// twice the recovery time of the published bypass.
const INTERVALS_MIN: usize = 200;
/// Intervals whose room is allocated before memory is measured.
const INTERVALS_RESERVED: usize = 1 << 16;

/// One bypass run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BypassSpec {
    /// The store, the keys and their distribution; `seconds` is the length of each of the two phases.
    pub run: RunSpec,
    /// Reads in an interval.
    pub interval_operations: u64,
}

/// One interval of reads.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Reads since the run began, at the end of the interval.
    pub operations: u64,
    /// Seconds since the run began, at the end of the interval.
    pub seconds: f64,
    /// Median of the latencies in the interval.
    pub p50_us: f64,
    /// 99th percentile of them.
    pub p99_us: f64,
    /// Reads that the target answered from raw bytes.
    pub reads_raw: Option<u64>,
    /// Reads for which it decoded one value.
    pub reads_coded: Option<u64>,
    /// Reads for which it decoded a block.
    pub reads_packed: Option<u64>,
}

/// The measurement of a bypass run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BypassSeries {
    /// In order of time.
    pub intervals: Vec<Interval>,
    /// The first interval after the jump.
    pub jump: usize,
    /// Bytes that the allocator holds for the store at the end.
    pub held_bytes: i64,
    /// Bytes of live keys and values.
    pub raw_bytes: u64,
    /// Answers that were wrong, in the whole run.
    pub mismatches: u64,
    /// The first wrong answer.
    pub first_mismatch: Option<String>,
}

impl BypassSpec {
    /// Checks the numbers.
    pub fn check(&self) -> Result<(), Error> {
        self.run.check()?;
        if !(1..=1_000_000_000).contains(&self.interval_operations) {
            return Err(Error::invalid(
                "--interval-operations",
                self.interval_operations.to_string(),
                "give 1 to 1000000000",
            ));
        }
        if !self.run.distribution.is_skewed() {
            return Err(Error::invalid(
                "--distribution",
                self.run.distribution.to_string(),
                "a bypass run needs keys that stay hot: give hot, hot:KEYS_PCT:SHARE_PCT or zipfian",
            ));
        }
        Ok(())
    }
}

/// Runs `spec` with a target that `open` opens, and reports its phases to `progress`.
pub(crate) fn run(
    open: Open,
    spec: &BypassSpec,
    meters: &Meters,
    progress: &dyn Fn(&str),
) -> Result<BypassSeries, Error> {
    spec.check()?;
    let run = &spec.run;
    progress("reading the corpus");
    let all_spaces = spaces(run, meters)?;
    let spaces = all_spaces.first().expect("a checked run has at least one store");
    let clock = Clock::new();
    let law = KeyLaw::new(run.distribution, run.keys);
    let buffers = Buffers::new(1, 0, run.value_bytes.max as usize, 1);
    let intervals = Vec::with_capacity(INTERVALS_RESERVED);
    let empty = meters.memory();
    let fail = |action| {
        move |error: TargetError| Error::Target {
            target: run.target.clone(),
            action,
            reason: error.to_string(),
        }
    };
    let config = Config { heating: true, ..config(run, spaces) };
    let target = open(&config).map_err(fail(DID_NOT_OPEN))?;

    let mut mistakes = Mistakes::default();
    progress("loading");
    load(&target, &spaces.measured, 1, run.workload.load, &mut mistakes);
    progress("settling");
    target.loaded().and_then(|()| target.settle()).map_err(fail("did not settle"))?;

    let worker = Worker {
        work: target.work(),
        oracle: &spaces.measured,
        chooser: law.chooser(run.seed, 0, 1),
        mix: run.workload.mix,
        scan_lengths: ScanLengths::new(run.workload.scan),
        thread: 0,
        threads: 1,
        connections: 0..1,
        multi_get: 1,
        multi_put: 1,
        clock: Some(clock),
        interval_ns: None,
        quota: None,
        buffers,
    };
    let (intervals, jump, buffers) = phases(spec, &target, worker, intervals, progress);
    let held_bytes = meters.memory().held_bytes as i64 - empty.held_bytes as i64;
    let raw_bytes = live(&all_spaces).raw_bytes();

    progress("checking every key");
    check_all(&target, &spaces.measured, &mut mistakes);
    check_absent(&target, spaces, &mut mistakes);
    mistakes.merge(buffers.tally.mistakes);
    has_not_ended(run, [&mistakes])?;
    Ok(BypassSeries {
        intervals,
        jump,
        held_bytes,
        raw_bytes,
        mismatches: mistakes.count,
        first_mismatch: mistakes.first,
    })
}

/// Reads before and after the jump; returns the intervals, the first one after the jump, and the worker's buffers.
fn phases(
    spec: &BypassSpec,
    target: &Instance,
    mut worker: Worker<'_>,
    mut intervals: Vec<Interval>,
    progress: &dyn Fn(&str),
) -> (Vec<Interval>, usize, Buffers) {
    let length = Duration::from_secs_f64(spec.run.seconds);
    let reads = spec.run.operations.map(|operations| operations.div_ceil(spec.interval_operations));
    let start = Instant::now();
    let mut jump = 0;
    for (phase, jumps) in [("before the jump", false), ("after the jump", true)] {
        progress(phase);
        if jumps {
            worker.chooser.jump();
            jump = intervals.len();
        }
        let (began, first) = (Instant::now(), intervals.len());
        let is_long_enough = |intervals: usize| match reads {
            Some(reads) => intervals as u64 >= reads,
            None => began.elapsed() >= length && intervals >= INTERVALS_MIN,
        };
        while !is_long_enough(intervals.len() - first) && worker.buffers.tally.mistakes.gone.is_none() {
            let before = target.counters();
            target.read_many(&mut worker, spec.interval_operations);
            let counted = target.counters().since(&before);
            let tally = &mut worker.buffers.tally;
            let latency = Latency::of(&tally.read_ns);
            tally.restart();
            intervals.push(Interval {
                operations: (intervals.len() as u64 + 1) * spec.interval_operations,
                seconds: start.elapsed().as_secs_f64(),
                p50_us: latency.map_or(0.0, |latency| latency.p50_us),
                p99_us: latency.map_or(0.0, |latency| latency.p99_us),
                reads_raw: counted.reads_raw,
                reads_coded: counted.reads_coded,
                reads_packed: counted.reads_packed,
            });
        }
    }
    (intervals, jump, worker.buffers)
}
