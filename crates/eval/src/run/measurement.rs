//! The measurement of one run.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::meters::machine::MachineUse;
use crate::meters::{Growth, ModelledWork, Usage};
use crate::results::table::grouped;
use crate::run::saturation::Saturation;
use crate::run::spec::RunSpec;
use crate::run::steady::{Steadiness, WarmedUp};
use crate::target::{Counters, Work};
use crate::workload::pace::Pace;

/// Percentiles of one kind of operation over the whole timed window, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
}

impl Latency {
    /// Nothing if nothing was recorded.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Option<Self> {
        let us = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        (!histogram.is_empty()).then(|| Latency { p50_us: us(0.5), p99_us: us(0.99), p999_us: us(0.999) })
    }
}

/// Latency at one percentile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// The share of the calls that took this long or less; 1 for the slowest call.
    pub share: f64,
    /// Microseconds.
    pub us: f64,
}

/// Latencies of the whole timed window at percentiles that lie ever closer together towards 1, as the percentile
/// distribution of HdrHistogram has them; empty if nothing was recorded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Of read calls.
    pub read: Vec<Percentile>,
    /// Of write calls.
    pub write: Vec<Percentile>,
}

impl Percentiles {
    pub(crate) fn of(read_ns: &Histogram<u64>, write_ns: &Histogram<u64>) -> Self {
        /// Percentiles for each halving of the distance to 1.
        const TICKS: u32 = 3;
        let all = |histogram: &Histogram<u64>| {
            let percentile = |at: hdrhistogram::iterators::IterationValue<u64>| Percentile {
                share: at.quantile(),
                us: at.value_iterated_to() as f64 / 1e3,
            };
            let mut all: Vec<Percentile> = histogram.iter_quantiles(TICKS).map(percentile).collect();
            // Behind the last calls it steps on in place.
            all.dedup();
            all
        };
        Percentiles { read: all(read_ns), write: all(write_ns) }
    }
}

/// One of several rates that were offered.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Arrivals per second.
    pub offered_per_sec: f64,
    /// Operations finished per second.
    pub done_per_sec: f64,
    /// The larger of the read and write 99th percentiles, from arrival to answer.
    pub p99_us: f64,
}

/// A part of the timed window, about a second long.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Operations finished.
    pub operations: u64,
    /// What the machine did, and how long the part was.
    pub machine: MachineUse,
}

/// CPU seconds of the servers behind a target; `None` where they run on another machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ServersCpu {
    /// From the begin of the window until the servers were quiet.
    pub cpu_sec: Option<f64>,
    /// The part of it after the last answer.
    pub after_cpu_sec: Option<f64>,
}

impl ServersCpu {
    /// Nothing if the work is done in this process.
    pub(crate) fn between(before: Work, answered: Work, done: Work) -> Option<Self> {
        let cpu_sec = |work| match work {
            Work::Here => None,
            Work::Servers(cpu_sec) => Some(cpu_sec),
            Work::Elsewhere => Some(None),
        };
        let (before, answered, done) = (cpu_sec(before)?, cpu_sec(answered)?, cpu_sec(done)?);
        Some(ServersCpu {
            cpu_sec: done.zip(before).map(|(done, before)| done - before),
            after_cpu_sec: done.zip(answered).map(|(done, answered)| done - answered),
        })
    }
}

/// What was replayed of a trace. Counts are those of the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Replayed {
    /// The file of the trace.
    pub file: String,
    /// Its bytes.
    pub file_bytes: u64,
    /// XXH3 of them in 128 bits, in hexadecimal digits.
    pub file_hash: String,
    /// Requests that were read of it.
    pub requests: u64,
    /// Requests by the trace's names of operations.
    pub operations: Vec<(String, u64)>,
    /// Requests to read a value.
    pub gets: u64,
    /// Those that found one.
    pub hits: u64,
    /// Puts after a get that found nothing.
    pub fills: u64,
    /// Requests to change a value that found none, and so wrote nothing.
    pub without_key: u64,
    /// Requests that the target cannot do.
    pub skipped: u64,
    /// Values whose lifetime was left out.
    pub lifetimes: u64,
    /// Requests whose key has another length than the trace says.
    pub altered_keys: u64,
    /// Why the trace ended before its end: file, line, field and what is wrong.
    pub fault: Option<String>,
}

impl Replayed {
    /// Hits of all gets, in per cent.
    pub fn hit_pct(&self) -> Option<f64> {
        (self.gets > 0).then(|| self.hits as f64 / self.gets as f64 * 100.0)
    }

    /// What readers of the figures must know.
    pub(crate) fn notes(&self) -> Vec<String> {
        let operations: Vec<String> = self
            .operations
            .iter()
            .map(|(name, count)| format!("{} {name}", grouped(*count as f64, 0)))
            .collect();
        let window = if operations.is_empty() { "none of them".to_owned() } else { operations.join(", ") };
        let mut notes = vec![format!(
            "{}: {} bytes, XXH3 {}; {} requests were read, and the window has {window}",
            self.file,
            grouped(self.file_bytes as f64, 0),
            self.file_hash,
            grouped(self.requests as f64, 0)
        )];
        for (count, what) in [
            (self.lifetimes, "writes had a lifetime, which no target is told"),
            (
                self.skipped,
                "requests were skipped: the target has no such operation, or the value would be longer than the corpus",
            ),
            (self.without_key, "requests to change a value found none, and wrote nothing"),
            (self.fills, "gets that found nothing were followed by a put (--fill)"),
            (
                self.altered_keys,
                "requests have keys of another length than the trace says; they are those of the file",
            ),
        ] {
            if count > 0 {
                notes.push(format!("{}: {} {what}", self.file, grouped(count as f64, 0)));
            }
        }
        notes
    }
}

/// The measurement of one run. All sums are over its instances.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measurement {
    /// Operations in the timed window; each key of a multi-get counts as one.
    pub operations: u64,
    /// Length of the window.
    pub wall_sec: f64,
    /// CPU time and context switches of the whole process in the window, background threads included.
    pub usage: Usage,
    /// The CPU time of servers in the window, if the target is their client.
    #[serde(default)]
    pub servers: Option<ServersCpu>,
    /// The work of modelled devices in the window. Their CPU time is part of that of the process.
    #[serde(default)]
    pub modelled: ModelledWork,
    /// What the machine did in the window. For servers on other machines, only the network is known.
    #[serde(default)]
    pub machine: MachineUse,
    /// The numbers of the processors that the work might use, of those that were online; `None` where nobody knows.
    #[serde(default)]
    pub processors: Option<Vec<usize>>,
    /// The parts of a window that ended by the clock.
    #[serde(default)]
    pub samples: Vec<Sample>,
    /// Latency of read calls (get, multi-get, scan), if taken.
    pub read: Option<Latency>,
    /// Latency of write calls (put, delete), if taken.
    pub write: Option<Latency>,
    /// Both at many more percentiles.
    #[serde(default)]
    pub percentiles: Percentiles,
    /// What was replayed, for a trace.
    #[serde(default)]
    pub replayed: Option<Replayed>,
    /// Answers that were wrong, keys that were lost and calls that failed, in the whole run.
    pub mismatches: u64,
    /// The first of them.
    pub first_mismatch: Option<String>,
    /// Live keys at the end of the window.
    pub keys: u64,
    /// Bytes of their keys and values.
    pub raw_bytes: u64,
    /// Memory at the end of the window, less what there was before.
    pub memory: Growth,
    /// The same after the idle time, if there was any.
    pub settled: Option<Growth>,
    /// CPU seconds of that idle time: work that the load and the window deferred.
    #[serde(default)]
    pub settle_cpu_sec: Option<f64>,
    /// The number of times the values of the live keys cover their part of the corpus.
    #[serde(default)]
    pub coverage: f64,
    /// Dictionaries that the target adopted since the loading of the measured keys began, if it counts them.
    #[serde(default)]
    pub adoptions: Option<u64>,
    /// Whether the target must adopt none of them, because the run measures what it learnt before.
    #[serde(default)]
    pub is_held_out: bool,
    /// Held bytes when loading was done and nothing else had begun, for a target that keeps its data in files.
    pub loaded_held_bytes: Option<u64>,
    /// Live keys at that moment; 0 for a trace.
    #[serde(default)]
    pub loaded_keys: u64,
    /// Bytes of their keys and values.
    #[serde(default)]
    pub loaded_raw_bytes: u64,
    /// Seconds that loading took.
    pub load_sec: f64,
    /// CPU seconds that loading took, without those of modelled devices; `None` for servers of another machine.
    pub load_cpu_sec: Option<f64>,
    /// The target's counters in the window.
    pub counters: Counters,
    /// The steps of `--until-p99`, or of several rates.
    pub steps: Vec<Step>,
    /// The warm-up, if it was to last until the throughput was steady.
    #[serde(default)]
    pub warm_up: Option<WarmedUp>,
    /// What `--saturate` found.
    #[serde(default)]
    pub saturation: Option<Saturation>,
    /// The verdict on a window that was to be steady.
    #[serde(default)]
    pub steadiness: Option<Steadiness>,
    /// The target's descriptions of its state at the end of the window, and after the idle time.
    pub descriptions: Vec<String>,
    /// Notes for readers of the figures.
    pub notes: Vec<String>,
}

impl Measurement {
    /// Operations per second.
    pub fn qps(&self) -> f64 {
        self.operations as f64 / self.wall_sec
    }

    /// Threads on each store in the window: those of the largest throughput, if a search found them.
    pub(crate) fn threads(&self, spec: &RunSpec) -> u64 {
        self.saturation.as_ref().map_or(spec.threads, |found| found.peak_load)
    }

    /// Operations per second if no job of a model had been late, for threads that wait for one job after the other.
    /// `None` if jobs were late all the time. Threads with several jobs under way would gain less.
    pub(crate) fn qps_without_lateness(&self, spec: &RunSpec) -> Option<f64> {
        let late_sec = self.modelled.late_sec / (self.threads(spec) * spec.instances).max(1) as f64;
        let wall_sec = self.wall_sec - late_sec;
        (wall_sec > 0.0).then(|| self.operations as f64 / wall_sec)
    }

    /// CPU time of the window without that of modelled devices; that of the servers if the target is their client, and
    /// nothing if these run on another machine.
    pub fn cpu_sec(&self) -> Option<f64> {
        match self.servers {
            None => Some(self.usage.cpu_sec() - self.modelled.cpu_sec),
            Some(servers) => servers.cpu_sec,
        }
    }

    /// Bytes that went to and from disks for each byte of the records that the operations concerned.
    pub fn disk_amplification(&self) -> Option<f64> {
        self.per_record_byte(self.machine.disk_bytes(|disk| disk.read_bytes + disk.written_bytes)?)
    }

    /// Bytes that went over the network for each byte of the records that the operations concerned.
    pub fn network_amplification(&self) -> Option<f64> {
        self.per_record_byte(self.machine.network_bytes()?)
    }

    /// The numbers of the processors that the work might use: all of the machine where nobody knows.
    pub(crate) fn usable_processors(&self) -> Vec<usize> {
        self.processors.clone().unwrap_or_else(|| self.machine.online())
    }

    /// What the machine did while the throughput was steady, or in the whole window where it was not.
    pub(crate) fn steady_machine(&self) -> MachineUse {
        let steady = match self.steadiness {
            Some(Steadiness::Steady { samples, .. }) => self.samples.len().checked_sub(samples),
            _ => None,
        };
        let parts = steady.map(|start| self.samples[start..].iter().map(|sample| &sample.machine));
        parts.and_then(MachineUse::joined).unwrap_or_else(|| self.machine.clone())
    }

    fn per_record_byte(&self, bytes: u64) -> Option<f64> {
        let records = self.operations as f64 * self.raw_bytes as f64 / self.keys as f64;
        (records > 0.0).then(|| bytes as f64 / records)
    }

    /// Processors kept busy on average.
    pub fn cpu_cores(&self) -> Option<f64> {
        self.cpu_sec().map(|cpu_sec| cpu_sec / self.wall_sec)
    }

    /// Operations per CPU-second; nothing if the window was too short for the CPU clock.
    pub fn qps_per_cpu_core(&self) -> Option<f64> {
        self.cpu_sec().filter(|cpu_sec| *cpu_sec > 0.0).map(|cpu_sec| self.operations as f64 / cpu_sec)
    }

    /// Held bytes at the end of the window; nothing if only the servers know, and do not tell.
    pub fn held_bytes(&self) -> Option<i64> {
        self.known(self.memory)?.held_bytes
    }

    /// The same after the idle time.
    pub fn settled_held_bytes(&self) -> Option<i64> {
        self.known(self.settled?)?.held_bytes
    }

    /// Memory that the target takes. The allocator of a client knows nothing of its servers.
    fn known(&self, memory: Growth) -> Option<Growth> {
        (self.servers.is_none() || self.loaded_held_bytes.is_some()).then_some(memory)
    }

    /// The rate of an open loop, or the highest of several; with a limit of latency, the highest that kept it, or 0 if
    /// none did. Nothing for a closed loop alone.
    pub fn offered_rate(&self, pace: Pace) -> Option<f64> {
        let limit_us = pace.limit_us();
        let kept = self.steps.iter().filter(|step| step.p99_us <= limit_us.unwrap_or(f64::INFINITY));
        let fastest = kept.map(|step| step.offered_per_sec).reduce(f64::max);
        fastest.or(pace.rate()).or(limit_us.map(|_| 0.0))
    }

    /// Whether the target learnt from data that were held out.
    pub fn has_retrained(&self) -> bool {
        self.is_held_out && self.adoptions.is_some_and(|adoptions| adoptions > 0)
    }

    /// What a search for saturation found, what the warm-up before it did, and whether the window was steady: sentences
    /// without their ends.
    pub(crate) fn findings(&self) -> Vec<String> {
        let followed = if self.saturation.is_some() { "searched" } else { "measured" };
        let warm_up = self.warm_up.map(|warm_up| warm_up.before(followed));
        let found = self.saturation.as_ref().map(ToString::to_string);
        let told = self.steadiness.as_ref().map(ToString::to_string);
        found.into_iter().chain(warm_up).chain(told).collect()
    }

    /// Held bytes per raw byte at the end of the window.
    pub fn held_per_raw(&self) -> Option<f64> {
        per_raw(self.held_bytes()?, self.raw_bytes)
    }

    /// Held bytes per raw byte after the idle time.
    pub fn settled_held_per_raw(&self) -> Option<f64> {
        per_raw(self.settled_held_bytes()?, self.raw_bytes)
    }
}

fn per_raw(bytes: i64, raw_bytes: u64) -> Option<f64> {
    (raw_bytes > 0).then(|| bytes as f64 / raw_bytes as f64)
}

fn both(a: Option<u64>, b: Option<u64>, join: impl Fn(u64, u64) -> u64) -> Option<u64> {
    Some(join(a?, b?))
}

impl Counters {
    fn joined(&self, other: &Counters, join: impl Fn(u64, u64) -> u64 + Copy) -> Counters {
        macro_rules! fields {
            ($($field:ident)*) => {
                Counters {
                    engine: self.engine.clone(),
                    qpl_mode: self.qpl_mode.clone(),
                    bg_threads: self.bg_threads,
                    files: self.files,
                    $($field: both(self.$field, other.$field, join),)*
                }
            };
        }
        fields!(iaa_compress_calls iaa_decompress_calls engine_fallbacks engine_queue_full_retries engine_faults
            qpl_compress_calls qpl_decompress_calls zlib_compress_calls zlib_decompress_calls bg_compactions
            fg_compactions trainings adoptions coded_raw_bytes coded_bytes reads_raw reads_coded reads_packed)
    }

    pub(crate) fn plus(&self, other: &Counters) -> Counters {
        self.joined(other, u64::wrapping_add)
    }

    pub(crate) fn since(&self, before: &Counters) -> Counters {
        self.joined(before, u64::saturating_sub)
    }
}
