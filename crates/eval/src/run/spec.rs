//! The complete description of one run, which a child process gets.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::bench::confine::Confinement;
use crate::data::corpus::Corpus;
use crate::data::keys::{KeyShape, Keys};
use crate::data::values::{ValueBytes, ValueOrder};
use crate::error::Error;
use crate::results::table::grouped;
use crate::target::Config;
use crate::target::options::TargetOptions;
use crate::workload::Workload;
use crate::workload::distribution::Distribution;
use crate::workload::mix::{Mix, WHOLE};
use crate::workload::pace::Pace;
use crate::workload::trace::TraceFile;

/// Which part of the corpus is loaded before the keys that are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrainOn {
    /// None: keys are loaded and measured with values from the whole corpus.
    All,
    /// Its first half. The run first loads as many keys again, with values from the first half, and lets them settle.
    /// The target can learn only from these. Then the run loads a fresh key space with values from the second half.
    /// Operations, and memory over raw bytes, count only the fresh key space.
    FirstHalf,
}

impl std::str::FromStr for TrainOn {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "all" => Ok(TrainOn::All),
            "first-half" => Ok(TrainOn::FirstHalf),
            _ => Err(Error::Unknown {
                what: "--train-on",
                given: text.into(),
                known: "first-half, all".into(),
            }),
        }
    }
}

impl std::fmt::Display for TrainOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TrainOn::All => "all",
            TrainOn::FirstHalf => "first-half",
        })
    }
}

/// A trace to replay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceSpec {
    /// Its file.
    pub path: PathBuf,
    /// Bytes of the file, and its hash: XXH3 in 128 bits.
    pub file_bytes: u64,
    /// The hash, in hexadecimal digits.
    pub file_hash: String,
    /// How many times faster than in the trace requests arrive, whatever the answers; `None` for a closed loop.
    pub speed: Option<f64>,
    /// Whether a get that finds nothing is followed by a put of the value.
    pub fills: bool,
}

impl TraceSpec {
    /// Reads a file once, to know which one it is, and checks that it begins like a trace.
    ///
    /// # Errors
    /// It cannot be read, or does not begin so.
    pub fn of(path: &Path, speed: Option<f64>, fills: bool) -> Result<Self, Error> {
        let mut trace =
            TraceSpec { path: path.to_owned(), file_bytes: 0, file_hash: String::new(), speed, fills };
        if let Some(speed) = speed.filter(|speed| !(1e-6..=1e6).contains(speed)) {
            return Err(Error::invalid("--speed", speed.to_string(), "give a factor, 0.000001 to 1000000"));
        }
        TraceFile::open(path, u32::MAX).map_err(|told| trace.wrong(told))?;
        let (mut hash, mut part) = (Xxh3::new(), vec![0; 1 << 16]);
        let mut file = File::open(path).map_err(|error| trace.wrong(error.to_string()))?;
        loop {
            match file.read(&mut part).map_err(|error| trace.wrong(error.to_string()))? {
                0 => break,
                bytes => {
                    hash.update(&part[..bytes]);
                    trace.file_bytes += bytes as u64;
                }
            }
        }
        trace.file_hash = format!("{:032x}", hash.digest128());
        Ok(trace)
    }

    /// What is wrong with the trace.
    pub(crate) fn wrong(&self, sentence: String) -> Error {
        Error::Inputs { path: self.path.clone(), sentence }
    }
}

/// One run of one target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Name of the target.
    pub target: String,
    /// Whether the target has codecs, landings and background work to tune.
    pub tunable: bool,
    /// Name of the codec.
    pub codec: String,
    /// The operations.
    pub workload: Workload,
    /// Threads per instance.
    pub threads: u64,
    /// Connections of all threads to each store; `None` for one of each thread.
    #[serde(default)]
    pub connections: Option<u64>,
    /// Keys per instance.
    pub keys: u64,
    /// How keys look.
    pub key_shape: KeyShape,
    /// Bytes of a key, or of the shortest of YCSB's; `None` for the shape's own.
    #[serde(default)]
    pub key_bytes: Option<usize>,
    /// Keys per read call; 1 means single gets.
    pub multi_get: usize,
    /// Values per write call.
    pub multi_put: usize,
    /// Lengths of values.
    pub value_bytes: ValueBytes,
    /// Which part of the corpus a key's value is.
    pub value_order: ValueOrder,
    /// Name of the corpus.
    pub corpus: String,
    /// Which part is loaded first.
    pub train_on: TrainOn,
    /// Which keys are asked for.
    pub distribution: Distribution,
    /// Length of the timed window.
    pub seconds: f64,
    /// Whether the timed window ends as soon as the throughput is steady; `seconds` are the most then.
    #[serde(default)]
    pub until_steady: bool,
    /// Operations of the timed window, over all threads; then it ends with the last of them, however long they take.
    pub operations: Option<u64>,
    /// The same operations before it, not timed.
    pub warmup_seconds: f64,
    /// The longest time of the same operations before it, which end when the throughput is steady; `None` if they last
    /// for `warmup_seconds`, or before a search as long as is usual.
    #[serde(default)]
    pub warmup_seconds_max: Option<f64>,
    /// Idle time after it, before the settled memory is read; 0 leaves that out.
    pub settle_seconds: f64,
    /// Bytes of a leaf's write buffer; `None` for the target's own default.
    pub landing_bytes: Option<usize>,
    /// Whether background threads compact; `None` for the target's own default.
    pub background: Option<bool>,
    /// Threads for background work; `None` for the target's own default.
    pub background_threads: Option<usize>,
    /// Further options of the target.
    pub options: TargetOptions,
    /// A library that the run's process preloads.
    pub preload: Option<String>,
    /// Whether its row bears the names of the published evaluation's rows.
    pub is_published: bool,
    /// Processors the run may use; empty for all.
    pub cpus: Vec<usize>,
    /// What the run's process may take of the machine.
    #[serde(default)]
    pub confinement: Confinement,
    /// Stores in parallel.
    pub instances: u64,
    /// How fast operations come.
    pub pace: Pace,
    /// The FIFO of a `perf record --control`, which then records the timed windows alone.
    pub perf_control: Option<PathBuf>,
    /// Whether every operation is timed.
    pub latency: bool,
    /// Seed of key and value choice.
    pub seed: u64,
}

/// Operations per second that no processor does more of, whatever the target; and keys that are inserted at most,
/// whose words take 1 GiB.
const OPERATIONS_PER_SEC_MAX: f64 = 10e6;
const INSERTS_MAX: f64 = 268_435_456.0;

/// Keys are numbered by 32 bits times this; beyond, the oracle's memory is the limit.
const KEYS_MAX: u64 = 2_000_000_000;
const OPERATIONS_MAX: u64 = 1_000_000_000_000;
/// As many clients as Redis takes, unless it is told otherwise.
const CONNECTIONS_MAX: u64 = 10_000;

impl RunSpec {
    /// The longest window.
    pub(crate) const SECONDS_MAX: f64 = 86_400.0;

    /// The number of processors that the run may use.
    pub(crate) fn processors(&self) -> usize {
        match self.cpus.len() {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            some => some,
        }
    }

    /// A run with the usual settings: 50,000 decimal keys, 128-byte values, one thread, reads only, two seconds.
    pub fn new(target: &str, corpus: &str) -> Self {
        RunSpec {
            target: target.into(),
            tunable: false,
            codec: "none".into(),
            workload: Workload::of("read_only", Mix::percent(100, 0)),
            threads: 1,
            connections: None,
            keys: 50_000,
            key_shape: KeyShape::Decimal,
            key_bytes: None,
            multi_get: 1,
            multi_put: 1,
            value_bytes: ValueBytes { min: 128, max: 128 },
            value_order: ValueOrder::Strangers,
            corpus: corpus.into(),
            train_on: TrainOn::All,
            distribution: Distribution::Uniform,
            seconds: 2.0,
            until_steady: false,
            operations: None,
            warmup_seconds: 0.5,
            warmup_seconds_max: None,
            settle_seconds: 0.0,
            landing_bytes: None,
            background: None,
            background_threads: None,
            options: TargetOptions::default(),
            preload: None,
            is_published: false,
            cpus: Vec::new(),
            confinement: Confinement::default(),
            instances: 1,
            pace: Pace::Closed,
            perf_control: None,
            latency: true,
            seed: 1,
        }
    }

    /// The same run of another workload, with the settings that the workload brings along.
    pub(crate) fn of_workload(self, workload: Workload) -> Self {
        let own = &workload.settings;
        RunSpec {
            keys: own.keys.unwrap_or(self.keys),
            operations: own.operations.or(self.operations),
            key_shape: own.key_shape.unwrap_or(self.key_shape),
            key_bytes: own.key_bytes.or(self.key_bytes),
            distribution: own.distribution.unwrap_or(self.distribution),
            pace: own.pace.unwrap_or(self.pace),
            seconds: own.seconds.unwrap_or(self.seconds),
            warmup_seconds: own.warmup_seconds.unwrap_or(self.warmup_seconds),
            workload,
            ..self
        }
    }

    /// How long values are.
    pub(crate) fn values_in_words(&self) -> String {
        match self.trace() {
            Some(_) => "values of the trace".into(),
            None => format!("values of {} B", self.value_bytes),
        }
    }

    /// How many threads work on each store in the timed window: a search may find fewer than the most.
    pub(crate) fn threads_in_words(&self) -> String {
        let threads = self.threads_max();
        format!("{}{threads} thread{}", self.up_to(), if threads == 1 { "" } else { "s" })
    }

    /// How long a timed window is.
    pub(crate) fn window_in_words(&self) -> String {
        match self.operations {
            Some(operations) => format!("{} operations", grouped(operations as f64, 0)),
            None if self.trace().is_some() && self.seconds >= Self::SECONDS_MAX => "the whole trace".into(),
            None => format!("{} s", self.seconds),
        }
    }

    /// The name of the configuration in the results, such as `store_auto_l1024_bg0`.
    pub fn name(&self) -> String {
        let mut name = self.target.clone();
        if !self.tunable {
            return name;
        }
        name += &format!("_{}", self.codec);
        if let Some(engine) = self.options.engine_in_words() {
            name += &format!("-{engine}");
        }
        if let Some(model) = &self.options.model {
            name += &format!("-modelled-{}", model.replace('=', "").replace(',', "-"));
        }
        if self.preload.is_some() {
            name += "-preloaded";
        }
        if let Some(bytes) = self.options.block_bytes {
            name += &format!("_b{bytes}");
        }
        if let Some(bytes) = self.landing_bytes {
            name += &format!("_l{bytes}");
        }
        if let Some(background) = self.background {
            name += if background { "_bg1" } else { "_bg0" };
        }
        name
    }

    /// Checks the numbers against each other.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |what, given: String, expected: &str| Err(Error::invalid(what, given, expected));
        if self.threads == 0 || self.threads_max() > 1024 {
            return wrong("--threads", self.threads.to_string(), "give 1 to 1024");
        }
        if self.instances == 0 || self.instances > 256 {
            return wrong("--instances", self.instances.to_string(), "give 1 to 256");
        }
        if self.keys < self.threads_max() || self.keys > KEYS_MAX {
            return wrong(
                "--keys",
                self.keys.to_string(),
                "give at least one key per thread and at most 2,000,000,000",
            );
        }
        for (what, number, expected) in [
            ("--multi-get", self.multi_get, "give 1 (single reads) to 65536 keys per call"),
            ("--multi-put", self.multi_put, "give 1 (single writes) to 65536 values per call"),
        ] {
            if !(1..=65_536).contains(&number) {
                return wrong(what, number.to_string(), expected);
            }
        }
        self.check_connections()?;
        if let Some(threads) = self.background_threads.filter(|&threads| threads > 64) {
            return wrong("--background-threads", threads.to_string(), "give 0 to 64");
        }
        self.options.check()?;
        self.check_window()
    }

    /// Checks that each thread has a connection.
    fn check_connections(&self) -> Result<(), Error> {
        let Some(connections) = self.connections else { return Ok(()) };
        let expected = match self.pace {
            Pace::Saturated(_) => {
                "a search counts threads that wait for one answer each; leave out --connections or --saturate"
            }
            _ if !(self.threads..=CONNECTIONS_MAX).contains(&connections) => {
                "give at least one connection per thread and at most 10,000"
            }
            _ => return Ok(()),
        };
        Err(Error::invalid("--connections", connections.to_string(), expected))
    }

    /// Checks what is done in the window, and for how long.
    fn check_window(&self) -> Result<(), Error> {
        let wrong = |what, given: String, expected: &str| Err(Error::invalid(what, given, expected));
        for (what, seconds, least) in [
            ("--seconds", self.seconds, 0.01),
            ("--warmup", self.warmup_seconds, 0.0),
            ("--warmup-max", self.warmup_seconds_max.unwrap_or_default(), 0.0),
            ("--settle", self.settle_seconds, 0.0),
        ] {
            if !(least..=Self::SECONDS_MAX).contains(&seconds) {
                return wrong(what, seconds.to_string(), "give seconds, up to 86400");
            }
        }
        if let Some(operations) = self
            .operations
            .filter(|operations| !(self.threads * self.instances..=OPERATIONS_MAX).contains(operations))
        {
            return wrong(
                "--operations",
                operations.to_string(),
                "give at least one operation per thread and at most 1,000,000,000,000",
            );
        }
        if self.distribution == Distribution::Latest && self.workload.mix.insert > 0 {
            return wrong(
                "--distribution",
                self.distribution.to_string(),
                "its newest keys are those that were written last; give ycsb-latest, whose newest keys are those that \
                 were inserted last",
            );
        }
        let lengths = Keys::lengths(self.key_shape);
        match (self.key_bytes.filter(|bytes| !lengths.contains(bytes)), self.trace()) {
            (Some(bytes), _) => {
                let (shape, least, most) = (self.key_shape, lengths.start(), lengths.end());
                wrong("--key-bytes", bytes.to_string(), &format!("{shape} keys have {least} to {most} bytes"))
            }
            (None, Some(_)) => self.check_replay(),
            (None, None) => self.pace.check(&self.workload),
        }
    }

    /// Checks what a trace leaves no choice of.
    fn check_replay(&self) -> Result<(), Error> {
        let chosen = [
            ("--multi-get", self.multi_get != 1),
            ("--multi-put", self.multi_put != 1),
            ("--connections", self.connections.is_some()),
            ("--instances", self.instances != 1),
            ("--train-on", self.train_on != TrainOn::All),
            ("--until-steady", self.until_steady),
            ("--warmup-max", self.warmup_seconds_max.is_some()),
            ("--saturate", matches!(self.pace, Pace::Saturated(_))),
            ("--rate", !matches!(self.pace, Pace::Closed | Pace::Saturated(_))),
        ];
        match chosen.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => {
                let expected =
                    "a trace has requests of its own, one after the other; leave out one of the two";
                Err(Error::invalid(option, self.workload.name.clone(), expected))
            }
            None => Ok(()),
        }
    }

    /// The trace that is replayed, if one is.
    pub(crate) fn trace(&self) -> Option<&TraceSpec> {
        self.workload.settings.trace.as_ref()
    }

    /// The keys that one store can take in besides those that are loaded.
    pub(crate) fn inserts_max(&self) -> u64 {
        let share = self.insert_share();
        if share == 0.0 {
            return 0;
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let workers = (self.threads * self.instances) as f64;
        let fastest = self.pace.fastest().unwrap_or(OPERATIONS_PER_SEC_MAX * workers.min(processors));
        let window = self.operations.map_or(self.seconds * fastest, |operations| operations as f64);
        let warmup_seconds = self.warmup_max().unwrap_or_default().max(self.warmup_seconds);
        let operations = self.pace.windows() as f64 * (window + warmup_seconds * fastest);
        // Chance spreads inserts unevenly: six standard deviations, and what is planned ahead.
        let each = share * operations / workers;
        let each = each + 6.0 * each.sqrt() + 100.0;
        (each * self.threads as f64).min(INSERTS_MAX) as u64
    }

    /// The inserts into one store that its distribution counts on: those of the timed window if it ends by count, else
    /// half as many as it has keys.
    pub(crate) fn inserts_expected(&self) -> f64 {
        let of_window = |operations| operations as f64 / self.instances as f64 * self.insert_share();
        match self.operations {
            Some(operations) => of_window(operations),
            None => (self.keys as f64 / 2.0).min(self.inserts_max() as f64),
        }
    }

    fn insert_share(&self) -> f64 {
        f64::from(self.workload.mix.insert) / f64::from(WHOLE)
    }

    /// The store has taken in all keys that there was room for.
    pub(crate) fn lacks_room(&self) -> Error {
        let expected = format!(
            "the workload inserted all {} keys that this benchmark has room for; give a number of --operations, or \
             fewer --seconds",
            self.inserts_max()
        );
        Error::invalid("--seconds", self.seconds.to_string(), expected)
    }

    /// The longest warm-up until the throughput is steady; nothing for a run that warms up for a fixed time.
    pub(crate) fn warmup_max(&self) -> Option<f64> {
        let is_search = matches!(self.pace, Pace::Saturated(_));
        self.warmup_seconds_max.or_else(|| is_search.then(|| Self::usual_warmup_max(self.seconds)))
    }

    /// The usual one before windows of so many seconds: three of them, and not less than a noisy throughput needs to be
    /// called steady.
    pub(crate) fn usual_warmup_max(window_seconds: f64) -> f64 {
        const WINDOWS: f64 = 3.0;
        const SECONDS_LEAST: f64 = 30.0;
        (WINDOWS * window_seconds).max(SECONDS_LEAST)
    }

    /// The largest number of threads on each store at one time.
    pub(crate) fn threads_max(&self) -> u64 {
        match self.pace {
            Pace::Saturated(threads_max) => self.threads.max(threads_max),
            _ => self.threads,
        }
    }

    /// The connections of one of so many threads, by their numbers among those of all: as evenly spread as may be.
    pub(crate) fn connections_of(&self, thread: u64, threads: u64) -> Range<u64> {
        let all = self.connections.unwrap_or(threads);
        thread * all / threads..(thread + 1) * all / threads
    }

    /// The words before that number: a search may find fewer.
    pub(crate) fn up_to(&self) -> &'static str {
        if matches!(self.pace, Pace::Saturated(_)) { "up to " } else { "" }
    }

    /// How a target is to be opened, without the right answers.
    pub(crate) fn config(&self) -> Config {
        Config {
            target: self.target.clone(),
            codec: self.codec.clone(),
            landing_bytes: self.landing_bytes,
            background: self.background,
            background_threads: self.background_threads,
            raw_bytes: self.raw_bytes(),
            instances: self.instances,
            connections: match self.connections {
                Some(_) => (0..self.threads)
                    .map(|thread| self.connections_of(thread, self.threads))
                    .filter(|numbers| numbers.end - numbers.start > 1)
                    .collect(),
                None => Vec::new(),
            },
            folders: self.confinement.folders().to_vec(),
            is_replay: self.trace().is_some(),
            options: self.options.clone(),
            ..Config::default()
        }
    }

    /// Bytes of the keys and values that one store is loaded with, about. Nobody knows those of a trace: enough that
    /// RocksDB has its own sizes of files.
    pub(crate) fn raw_bytes(&self) -> u64 {
        const OF_TRACE: u64 = 8 << 30;
        if self.trace().is_some() {
            return OF_TRACE;
        }
        let spaces = match self.train_on {
            TrainOn::All => 1,
            TrainOn::FirstHalf => 2,
        };
        // YCSB's hashes have 19 digits in nine of ten keys.
        spaces
            * self.keys
            * (self.key_space().bytes_max() as u64 + (self.value_bytes.min + self.value_bytes.max) / 2)
    }

    /// The keys of each store.
    pub(crate) fn key_space(&self) -> Keys {
        Keys::new(self.key_shape, self.key_bytes)
    }

    /// Reads the corpus this run needs.
    pub fn read_corpus(&self) -> Result<Corpus, Error> {
        self.read_corpus_into(Vec::with_capacity)
    }

    /// The same, into the vector that `room` makes for so many bytes.
    pub(crate) fn read_corpus_into(&self, room: fn(usize) -> Vec<u8>) -> Result<Corpus, Error> {
        // Enough that no two keys need the same bytes, as far as memory goes.
        const GENERATED_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=1 << 30;
        /// A generated line has fewer.
        const LINE_BYTES: u64 = 1024;
        let each = match self.value_order {
            ValueOrder::Records => LINE_BYTES,
            _ => self.value_bytes.max,
        };
        let wanted = self.keys.saturating_mul(each);
        let generated =
            wanted.clamp(*GENERATED_BYTES.start(), *GENERATED_BYTES.end()).max(self.value_bytes.max * 2);
        let corpus =
            Corpus::read_into(&self.corpus, generated as usize, self.value_bytes.max as usize, room)?;
        let (bytes, half) = match self.train_on {
            TrainOn::All => (corpus.bytes.len() as u64, ""),
            TrainOn::FirstHalf => (corpus.bytes.len() as u64 / 2, " in each half"),
        };
        if bytes < self.value_bytes.max {
            return Err(Error::CorpusShorterThanValue {
                path: self.corpus.clone(),
                corpus_bytes: bytes,
                half,
                value_bytes: self.value_bytes.max,
            });
        }
        Ok(corpus)
    }
}
