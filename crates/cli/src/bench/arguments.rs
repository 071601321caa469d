//! The arguments of `ziptier bench`, and the plan that they ask for.

use std::path::PathBuf;

use clap::Args;
use ziptier_codec::block::Preloaded;
use ziptier_eval::{
    ContextCache, Distribution, Error, Format, Huffman, KeyShape, Pace, Path as CodecPath, Plan, Settings,
    TargetOptions, TraceSpec, TrainOn, ValueBytes, ValueOrder, Workload,
};
use ziptier_findings::shell_word;

use super::Foreign;

const DEFAULT_KEYS: u64 = 50_000;
const DEFAULT_SECONDS: f64 = 5.0;
const DEFAULT_WARMUP_SECONDS: f64 = 0.5;

/// A set of runs that belong together.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum Suite {
    /// Every codec and engine in five workloads, with 4, 8, 16 and 32 threads, background packing off and on. Smoke
    /// checks come first, verdicts at the end
    Codecs,
    /// Codecs of a stock RocksDB beside its built-in ones, by the settings of Intel's published evaluation: readrandom
    /// and an 80:20 mix after fillseq, values of 32 and 256 B, blocks of 4 and 16 KiB, neighbouring values and
    /// strangers. Results are ratios to built-in zstd and LZ4
    Rocksdb,
    /// Compressors of Cassandra beside its own, by the settings of Intel's published evaluation, on a cluster that
    /// runs: --target cql://HOST, and --nodetool. Reads and an 80:20 mix on a compacted table, chunks of 16 KiB, rows
    /// of 256 and 1024 B, and readings of sensors. Results are ratios to zstd and LZ4
    Cassandra,
    /// Latency over time of reads, while a few keys are hot and other keys become hot in the middle: series, summary
    /// and plot
    Bypass,
}

const AFTER_HELP: &str = "\
The benchmark runs every combination of the values in lists (targets, workloads, codecs, threads and so on), each \
in a process of its own.
It compares every answer with the written value. The exit status is 1 if an answer was wrong or a run failed, 2 if \
the request was at fault.

Examples:
  ziptier bench --corpus book1 --seconds 2
  ziptier bench --corpus json --keys 1000000 --workload read_only --settle 10 --target store --codec auto,token,none
  ziptier bench --corpus samba.zip:samba --threads 1,2 --rounds 5 --out bench-results
  ziptier bench --corpus random:0.5 --mix read=80,write=15,delete=5 --distribution zipfian:0.9
  ziptier bench --workload ycsb-a,ycsb-e --keys 1000000 --target store,rocksdb
  ziptier bench --workload-file workloads/workloadb --rate 1000..50000:8
  ziptier bench --suite codecs --corpus samba.zip:samba --out bench-results
  ziptier bench --suite bypass --codec auto,token --out bench-results
  ziptier bench --target rocksdb --codec builtin-zstd,ziptier --block-bytes 4096,16384
  ziptier bench --suite rocksdb --corpus calgary --rounds 3
  ziptier bench --target redis://127.0.0.1 --threads 16 --multi-get 16 --corpus FILE --value-order apart
  ziptier bench --target redis://127.0.0.1 --threads 1 --connections 50 --multi-get 16 --workload read_only
  ziptier bench --target file:/mnt/nvme/medium --value-bytes 4000 --threads 1,8,32 --workload read_only
  ziptier bench --target 'exec:python3 function.py' --workload read_only,write_only --threads 4
  ziptier bench --conformance --target 'exec:python3 function.py'
  ziptier bench --target cql://127.0.0.1 --nodetool nodetool --codec builtin-zstd,ziptier-deflate --threads 32
  ziptier bench --suite cassandra --target cql://127.0.0.1 --nodetool nodetool --corpus calgary --rounds 3
  ziptier bench --smoke";

const RUNS: &str = "Runs and their length";
const CODECS: &str = "Codecs";
const STORE: &str = "The store";
const DATA: &str = "Keys and values";
const RESULTS: &str = "Results";

/// The arguments of `ziptier bench`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Suite of runs that belong together; other options narrow it
    #[arg(long, value_enum, value_name = "NAME", help_heading = RUNS)]
    pub(super) suite: Option<Suite>,
    /// Stores to measure: store, rocksdb (a stock one, loaded at run time), redis://HOST[:PORT][/DATABASE] (an empty
    /// database of a server that speaks RESP; REDISCLI_AUTH has its password), cql://HOST[:PORT][,HOST...] (a table of
    /// Cassandra; with /timeseries behind it, readings of sensors; with + between hosts, separate clusters),
    /// file:PATH[+fdatasync][+overwrite] (a raw medium: a new file or, with +overwrite, a file or block device whose
    /// data nobody needs), exec:COMMAND (a data access function of any kind, which speaks a protocol of lines on its
    /// standard input and output; a command with a comma goes into a script), btreemap, btreemap-inline (keys in its
    /// nodes), hashmap, skiplist, null (the harness itself) [default: store,btreemap,null; suites codecs and bypass:
    /// store; suite rocksdb: rocksdb; suite cassandra: none]
    #[arg(long, value_delimiter = ',', value_name = "LIST", help_heading = RUNS)]
    target: Vec<String>,
    /// Mixes of operations: read_only, write_only, read_write_8_2, read_write_5_5, read_write_2_8; those of db_bench,
    /// which load in order of keys: fillseq (measures the load itself), readrandom, readrandomwriterandom (80:20);
    /// ycsb-a to ycsb-f, with YCSB's distribution and 1,000 bytes in a value; mbwu-slides, with 4,096; twitter-cluster1
    /// to twitter-cluster54, like clusters of caches at Twitter. --list-workloads prints them all [default: the first
    /// five]
    #[arg(long, value_delimiter = ',', value_name = "LIST", help_heading = RUNS)]
    workload: Vec<String>,
    /// Property files of YCSB, each a workload. A record is one value with the bytes of all its fields. Options of the
    /// command line override numbers of records, operations and threads, the distribution and so on [default: none]
    #[arg(long, value_delimiter = ',', value_name = "LIST", help_heading = RUNS)]
    workload_file: Vec<PathBuf>,
    /// Trace files to replay, each a workload: Twitter's cache traces, or ziptier's own format, packed by zstd or not.
    /// The store begins empty, and gets all requests, unless --operations or --seconds says how many. Keys and lengths
    /// of values are those of the trace
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "LIST",
        conflicts_with_all = [
            "suite", "workload", "workload_file", "mix", "keys", "key_shape", "key_bytes", "multi_get", "multi_put",
            "connections", "value_bytes", "value_order", "train_on", "distribution", "instances", "rate", "until_p99",
            "saturate", "until_steady", "warmup_max"
        ],
        help_heading = RUNS
    )]
    trace: Vec<PathBuf>,
    /// Requests of a trace arrive at its own times, N times as fast, whatever the answers. A latency counts from the
    /// arrival [default: a closed loop, in which a thread waits for its answer]
    #[arg(long, value_name = "N", help_heading = RUNS)]
    speed: Option<f64>,
    /// After a get of a trace that finds nothing, put the value, if the trace tells its length
    #[arg(long, help_heading = RUNS)]
    fill: bool,
    /// Print the named workloads, and measure nothing
    #[arg(long, help_heading = RUNS)]
    pub(super) list_workloads: bool,
    /// Shares of the operations in per cent instead of a named workload, such as read=80,write=20,delete=0,scan=0; they
    /// add up to 100. insert puts new keys, and rmw reads a key and then writes it
    #[arg(long, value_name = "SHARES", help_heading = RUNS)]
    mix: Option<String>,
    /// Codecs of the target. Store: auto, none, token, lz4, zstd, deflate. RocksDB's own: builtin-zstd, builtin-zstd-1,
    /// builtin-zstd-9 (levels), builtin-zstd-dict, builtin-lz4, builtin-lz4-dict, builtin-zlib, builtin-none. RocksDB
    /// with ziptier's plugin: ziptier (the private format), ziptier-deflate, ziptier-lz4. Cassandra: builtin-lz4,
    /// builtin-zstd, builtin-zstd-dictionary (from Cassandra 6 on, and in no suite by default), builtin-deflate, and
    /// ziptier-deflate, ziptier-lz4, ziptier-zstd, ziptier-token [default: each target's own; suites: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST", help_heading = CODECS)]
    codec: Vec<String>,
    /// Engines that compress, for codecs with several: software, iaa, qpl or zlib for deflate [default: each codec's
    /// own; suites: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST", help_heading = CODECS)]
    codec_engine: Vec<String>,
    /// Permission to use a device, for engines that know devices: auto (the CPU does blocks that a device cannot do,
    /// and counts them), hardware (a device or an error) or software [default: auto; suite codecs: software and
    /// hardware]
    #[arg(long, value_name = "PATH", help_heading = CODECS)]
    path: Option<CodecPath>,
    /// Modelled accelerator instead of a device, for engine iaa and for ziptier-deflate in RocksDB: devices=4,depth=128
    /// and so on; timing=off makes it as fast as the software. devices=1,2,4 are three models, one after the other.
    /// Rows say modelled; suite rocksdb adds them to the measured rows [default: no model]
    #[arg(long, value_name = "MODEL", help_heading = CODECS)]
    model: Option<String>,
    /// Path of Intel's libzlib-accel.so, for the row of suite codecs that preloads it before libz
    #[arg(long, env = "ZLIB_ACCEL_SO", value_name = "FILE", help_heading = CODECS)]
    zlib_accel: Option<PathBuf>,
    /// Bytes of values in a block, or in a chunk of Cassandra, before compression [default: the target's own; store:
    /// 512; suite cassandra: 16384]
    #[arg(long, value_delimiter = ',', value_name = "LIST", help_heading = CODECS)]
    block_bytes: Vec<usize>,
    /// Compression level: a higher one is slower and denser [default: the target's own; store: 1 for writes, 6 for idle
    /// leaves]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = CODECS)]
    level: Option<i32>,
    /// Huffman codes of deflate blocks: fixed (the format's), dynamic (each block's own) or canned (shared by all
    /// blocks) [default: dynamic; suites: all that an engine has]
    #[arg(long, value_name = "KIND", help_heading = CODECS)]
    huffman: Option<Huffman>,
    /// Keeper of the codec's contexts between calls: thread (every thread keeps its own) or none [default: thread]
    #[arg(long, value_name = "WHERE", help_heading = CODECS)]
    context_cache: Option<ContextCache>,
    /// Fill of a landing, in per cent, from which on background threads pack it; needs --background 1 [default: 100]
    #[arg(long, value_name = "N", help_heading = STORE)]
    landing_watermark_pct: Option<u8>,
    /// Codec of the background, for codecs with blocks: it packs idle leaves, and with --background 1 all landings
    /// [default: the codec of writers]
    #[arg(long, value_name = "NAME", help_heading = CODECS)]
    background_codec: Option<String>,
    /// Number of keys in each store, loaded in random order except in db_bench's workloads [default: 50000; suites
    /// bypass and rocksdb: 200000; suite cassandra: 20000]
    #[arg(long, value_name = "N", help_heading = DATA)]
    pub(super) keys: Option<u64>,
    /// Shape of keys: decimal (key:000000000042), random (random bytes), ycsb (YCSB's own: user and 1 to 19 digits of a
    /// hash) or ycsb-ordered (user and the number) [default: decimal; workloads of YCSB: ycsb or ycsb-ordered]
    #[arg(long, value_name = "SHAPE", help_heading = DATA)]
    key_shape: Option<KeyShape>,
    /// Bytes of a key, 16 to 250. Decimal keys get more zeros, random ones more random bytes. YCSB's keys get zeros
    /// before the digits if they are shorter [default: 16; YCSB's keys as they are; clusters of caches: their own]
    #[arg(long, value_name = "N", help_heading = DATA)]
    key_bytes: Option<usize>,
    /// Keys of a read call; above 1, a latency is that of the whole call
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = DATA)]
    multi_get: usize,
    /// Values of a write call; above 1, a latency is that of the whole call. Targets without such a call store one
    /// value after the other
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = DATA)]
    multi_put: usize,
    /// Bytes of a value: a number, or a range such as 16..512 [default: 128; suite rocksdb: 32,256; suite
    /// cassandra: 256,1024, and readings of 800..1200]
    #[arg(long, value_delimiter = ',', value_name = "N|A..B", help_heading = DATA)]
    value_bytes: Vec<ValueBytes>,
    /// Part of the corpus that becomes a key's value: strangers (any part; parts overlap), neighbours (the part behind
    /// that of the key before), apart (any part; none overlap), records (any line), drift (each new version from the
    /// next eighth of the corpus, so that dictionaries grow old) [default: strangers; suite rocksdb:
    /// strangers,neighbours; suite cassandra: apart]
    #[arg(long, value_delimiter = ',', value_name = "ORDER", help_heading = DATA)]
    value_order: Vec<ValueOrder>,
    /// Source of values: a file, a folder, a .zst, FILE.zip:MEMBER, or a generator: json, log, timeseries, lorem,
    /// random:ETA (random bytes, of which the share ETA are zeros)
    #[arg(long, default_value = "json", value_name = "CORPUS", help_heading = DATA)]
    corpus: String,
    /// Half of the corpus that dictionaries may learn from. first-half loads as many keys again from the first half and
    /// lets them settle; then it loads and measures fresh keys of the second half, memory included
    #[arg(long, default_value = "all", value_name = "first-half|all", help_heading = DATA)]
    train_on: TrainOn,
    /// Distribution of operations over keys: uniform, zipfian, zipfian:THETA, latest (writes go round in order, reads
    /// prefer the newest), or hot:KEYS_PCT:SHARE_PCT (neighbouring keys take a share of all operations). Those of YCSB:
    /// ycsb-zipfian, ycsb-latest (prefers the newest insert), sequential, exponential:PERCENT:FRACTION [default:
    /// uniform; suite bypass: hot:1:95; workloads of YCSB: their own]
    #[arg(long, value_name = "NAME", help_heading = DATA)]
    pub(super) distribution: Option<Distribution>,
    /// Reads in an interval of suite bypass; each interval has one median [default: 5000]
    #[arg(long, value_name = "N", help_heading = RUNS)]
    pub(super) interval_operations: Option<u64>,
    /// Threads that operate on each store [default: 1; suite codecs: 4,8,16,32; suite rocksdb: one per processor, at
    /// most 10; suite cassandra: 32, each with --multi-get requests in flight]
    #[arg(long, value_delimiter = ',', value_name = "LIST", help_heading = RUNS)]
    threads: Vec<u64>,
    /// Connections to a server that speaks RESP, of all threads together. A thread with several sends the next call of
    /// each as soon as its replies have come. A call is --multi-get reads or --multi-put writes [default: one for each
    /// thread]
    #[arg(long, value_name = "N", conflicts_with = "saturate", help_heading = RUNS)]
    connections: Option<u64>,
    /// Seconds of each timed window, or of each of the two phases of suite bypass [default: 5; traces: to their end]
    #[arg(long, value_name = "S", help_heading = RUNS)]
    seconds: Option<f64>,
    /// Operations of each timed window over all threads, or of each phase of suite bypass; the window then ends by this
    /// count [default: the window ends after --seconds]
    #[arg(long, value_name = "N", conflicts_with = "seconds", help_heading = RUNS)]
    operations: Option<u64>,
    /// Seconds of the same operations before the window; of a trace, they are its first ones [default: 0.5; traces: 0]
    #[arg(long, value_name = "S", help_heading = RUNS)]
    warmup: Option<f64>,
    /// Seconds of the longest warm-up. It ends as soon as the throughput is steady, by the rule of --until-steady, and
    /// lasts for --warmup at least; 0 is --warmup alone [default: --warmup alone; with --saturate, three times
    /// --seconds, 30 at least]
    #[arg(long, value_name = "S", conflicts_with_all = ["until_p99", "rate"], help_heading = RUNS)]
    warmup_max: Option<f64>,
    /// Seconds without operations after the window, before memory is read again as "settled"; 0 leaves the settled
    /// columns out
    #[arg(long, default_value_t = 0.0, value_name = "S", help_heading = RUNS)]
    settle: f64,
    /// Repetitions of all runs, in turns; results are medians
    #[arg(long, default_value_t = 1, value_name = "R", help_heading = RUNS)]
    rounds: usize,
    /// Bytes of a leaf's landing, the buffer of its newest writes [default: the target's own; store: 768]
    #[arg(long, value_delimiter = ',', value_name = "LIST", help_heading = STORE)]
    landing_bytes: Vec<usize>,
    /// Packer of full landings: 1 for background threads, 0 for the writer that fills one [default: the target's own;
    /// store: 0; suite codecs: 0,1]
    #[arg(long, value_delimiter = ',', value_parser = zero_or_one, value_name = "LIST", help_heading = STORE)]
    background: Vec<bool>,
    /// Threads for background work of any kind [default: the target's own; store: 1]
    #[arg(long, value_name = "N", help_heading = STORE)]
    background_threads: Option<usize>,
    /// Processors that runs may use, such as 0,1. Suite rocksdb measures with one of them, two, and so on in doubles
    /// [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST", help_heading = RUNS)]
    cpus: Vec<usize>,
    /// Number of stores side by side in each run, each with threads and keys of its own; figures are sums
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = RUNS)]
    instances: u64,
    /// Time that the 99th percentile may take, such as 20ms or 500us, counted from the arrival of a request. After the
    /// closed loop the benchmark offers a growing rate, from a tenth of the closed loop's in steps of 1.25. The row is
    /// the last rate that held the bound. Waiting threads sleep, but spin for the last millisecond unless the target is
    /// a server, and CPU figures include that. A number without a unit means microseconds [default: the closed loop
    /// alone]
    #[arg(long, value_parser = microseconds, value_name = "TIME", help_heading = RUNS)]
    until_p99: Option<f64>,
    /// Operations that arrive per second at each run, whatever the answers. A latency counts from the arrival, so that
    /// a stall is charged to every operation that came meanwhile. Threads wait as with --until-p99. 1000..50000:8
    /// offers eight rates from 1000 to 50000, each for a window and by the same factor above the one before; the row is
    /// the last [default: the closed loop, in which a thread waits for its answer]
    #[arg(long, value_name = "N|A..B:STEPS", conflicts_with = "until_p99", help_heading = RUNS)]
    rate: Option<Pace>,
    /// Search for the number of threads from which on there is no more throughput, up to N. It begins when the
    /// throughput of twice as many threads as processors is steady, or after --warmup-max. A closed loop with short
    /// windows finds the number with the most; the row is that of it, measured until the throughput is steady, or for
    /// --seconds. Sentences below the table tell knee and peak with their errors, and what was not steady [default:
    /// --threads as given]
    #[arg(long, value_name = "N", conflicts_with_all = ["until_p99", "rate"], help_heading = RUNS)]
    saturate: Option<u64>,
    /// Timed windows end as soon as the throughput is steady: over half of the window it neither drifts nor jumps by
    /// more than a tenth, whatever the noise. They end after --seconds in any case, and a sentence says so
    #[arg(long, conflicts_with_all = ["until_p99", "operations"], help_heading = RUNS)]
    until_steady: bool,
    /// FIFO of a `perf record --all-cpus --delay -1 --control fifo:FIFO`, which then records the timed windows alone:
    /// neither loads nor rounds that are not measured [default: none]
    #[arg(long, env = "ZIPTIER_PERF_CONTROL", value_name = "FIFO", help_heading = RUNS)]
    perf_control: Option<PathBuf>,
    /// Timing of every operation, which costs about 20 ns each
    #[arg(
        long,
        default_value = "on",
        value_parser = on_or_off,
        value_name = "on|off",
        action = clap::ArgAction::Set,
        help_heading = RUNS
    )]
    latency: bool,
    /// Format of the results: table, tsv or json
    #[arg(long, default_value = "table", value_name = "FORMAT", help_heading = RESULTS)]
    pub(super) format: Format,
    /// Folder for results: the benchmark writes summary.tsv, rounds.tsv, rounds.json, a log for each run and
    /// manifest.json into DIR/<timestamp>; ziptier report makes a page of them. Suite codecs adds verdicts.tsv; suite
    /// rocksdb adds databases.tsv, scaling.tsv and scaling.svg; suite cassandra adds compressors.tsv; suite bypass
    /// writes bypass-RUN.tsv, bypass-summary.tsv and bypass.svg instead [default: none]
    #[arg(long, value_name = "DIR", help_heading = RESULTS)]
    out: Option<PathBuf>,
    #[command(flatten)]
    pub(super) foreign: Foreign,
    /// Check that each --target answers like its model, alone and with three threads, and leave out operations that it
    /// refuses; measure nothing. The check for a function of your own, with --target exec:COMMAND
    #[arg(long, conflicts_with = "smoke", help_heading = RUNS)]
    pub(super) conformance: bool,
    /// Check in under a minute that codecs, stores, concurrency and memory figures work; measure nothing
    #[arg(long, help_heading = RUNS)]
    pub(super) smoke: bool,
}

fn zero_or_one(text: &str) -> Result<bool, String> {
    match text {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err("give 0 or 1".into()),
    }
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("give on or off".into()),
    }
}

fn microseconds(text: &str) -> Result<f64, String> {
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6)];
    let parted = units.iter().find_map(|(unit, us)| Some((text.strip_suffix(unit)?, *us)));
    let (number, us) = parted.unwrap_or((text, 1.0));
    let number: f64 = number.parse().map_err(|_| "give a time such as 20ms or 500us".to_owned())?;
    Ok(number * us)
}

/// The accelerator that this process was started with, and so every run is.
fn preloaded() -> Option<PathBuf> {
    Preloaded::find().map(|preloaded| preloaded.library)
}

impl Arguments {
    /// The named workloads, those of files and the mix, if any were given.
    fn asked_workloads(&self) -> Result<Vec<Workload>, Error> {
        let named = self.workload.iter().map(|name| Workload::named(name));
        let files = self.workload_file.iter().map(|path| Workload::from_ycsb_file(path));
        let mix = self.mix.iter().map(|mix| Workload::mixed(mix));
        let traces =
            self.trace.iter().map(|path| TraceSpec::of(path, self.speed, self.fill).map(Workload::of_trace));
        named.chain(files).chain(mix).chain(traces).map(|workload| Ok(self.overriding(workload?))).collect()
    }

    /// The workload without the settings that the command line gives itself.
    fn overriding(&self, workload: Workload) -> Workload {
        let own = workload.settings;
        let is_window_given = self.operations.is_some() || self.seconds.is_some();
        let settings = Settings {
            keys: own.keys.filter(|_| self.keys.is_none()),
            operations: own.operations.filter(|_| !is_window_given),
            key_shape: own.key_shape.filter(|_| self.key_shape.is_none()),
            key_bytes: own.key_bytes.filter(|_| {
                // Of a shape that is overridden, the length goes, too.
                self.key_bytes.is_none() && (own.key_shape.is_none() || self.key_shape.is_none())
            }),
            value_bytes: own.value_bytes.filter(|_| self.value_bytes.is_empty()),
            distribution: own.distribution.filter(|_| self.distribution.is_none()),
            threads: own.threads.filter(|_| self.threads.is_empty()),
            pace: own.pace.filter(|_| self.pace().is_none()),
            seconds: own.seconds.filter(|_| self.seconds.is_none()),
            warmup_seconds: own.warmup_seconds.filter(|_| self.warmup.is_none()),
            trace: own.trace,
        };
        Workload { settings, ..workload }
    }

    fn pace(&self) -> Option<Pace> {
        let until_p99 = self.until_p99.map(Pace::UntilP99);
        self.rate.or(until_p99).or(self.saturate.map(Pace::Saturated))
    }

    /// Checks that options which need another one have it.
    fn check_companions(&self) -> Result<(), Error> {
        // clap requires no option that conflicts with a given one, as --trace does with --workload.
        let of_traces = self.speed.map(|_| "--speed").or(self.fill.then_some("--fill"));
        if let Some(what) = of_traces.filter(|_| self.trace.is_empty()) {
            let expected = "it is for traces; name one by --trace, or leave it out".into();
            return Err(Error::Invalid { what, given: "no --trace".into(), expected });
        }
        if let Some(reads) = self.interval_operations
            && !matches!(self.suite, Some(Suite::Bypass))
        {
            let expected = "it is for suite bypass; name that by --suite, or leave it out".into();
            return Err(Error::Invalid { what: "--interval-operations", given: reads.to_string(), expected });
        }
        Ok(())
    }

    /// The requested plan. An empty list was left open.
    pub(super) fn plan(&self) -> Result<Plan, Error> {
        self.check_companions()?;
        // Runs get their options as JSON, and the manifest has the whole command, as a shell takes it.
        let words = std::env::args_os().map(|word| {
            word.into_string().map(|word| shell_word(&word)).map_err(|word| Error::Invalid {
                what: "argument",
                given: word.to_string_lossy().into_owned(),
                expected: "give text in UTF-8".into(),
            })
        });
        let command = words.collect::<Result<Vec<_>, _>>()?.join(" ");
        Ok(Plan {
            targets: self.target.clone(),
            codecs: self.codec.clone(),
            engines: self.codec_engine.clone(),
            compares_codecs: false,
            names_unavailable: false,
            workloads: self.asked_workloads()?,
            threads: self.threads.clone(),
            connections: self.connections,
            landing_bytes: self.landing_bytes.clone(),
            background: self.background.clone(),
            background_threads: self.background_threads,
            block_bytes: self.block_bytes.clone(),
            models: self.model.as_deref().map(ziptier_eval::models).transpose()?.unwrap_or_default(),
            models_beside: false,
            options: TargetOptions {
                engine: None,
                path: self.path,
                model: None,
                block_bytes: None,
                level: self.level,
                huffman: self.huffman,
                context_cache: self.context_cache,
                landing_watermark_pct: self.landing_watermark_pct,
                background_codec: self.background_codec.clone(),
            },
            rounds: self.rounds,
            keys: self.keys.unwrap_or(DEFAULT_KEYS),
            key_shape: self.key_shape.unwrap_or(KeyShape::Decimal),
            key_bytes: self.key_bytes,
            multi_get: self.multi_get,
            multi_put: self.multi_put,
            value_bytes: self.value_bytes.clone(),
            value_orders: self.value_order.clone(),
            corpus: self.corpus.clone(),
            train_on: self.train_on,
            distribution: self.distribution.unwrap_or(Distribution::Uniform),
            seconds: self.seconds.unwrap_or(DEFAULT_SECONDS),
            operations: self.operations,
            warmup_seconds: self.warmup.unwrap_or(DEFAULT_WARMUP_SECONDS),
            warmup_seconds_max: self.warmup_max,
            settle_seconds: self.settle,
            cpus: if self.cpus.is_empty() { vec![] } else { vec![self.cpus.clone()] },
            instances: self.instances,
            pace: self.pace().unwrap_or_default(),
            until_steady: self.until_steady,
            perf_control: self.perf_control.clone(),
            latency: self.latency,
            zlib_accel: self
                .zlib_accel
                .clone()
                .filter(|path| !path.as_os_str().is_empty())
                .or_else(preloaded),
            out: self.out.clone(),
            command,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::microseconds;

    #[test]
    fn times_have_units() {
        let read = ["20ms", "500us", "1s", "250", "0.5ms"].map(microseconds);
        assert_eq!(read, [20_000.0, 500.0, 1e6, 250.0, 500.0].map(Ok));
        assert!(["", "ms", "20 m"].iter().all(|text| microseconds(text).is_err()));
    }
}
