//! `ziptier bench`: arguments in, results out.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use ziptier_eval::{
    Distribution, Error, Format, KeyShape, Launcher, Meters, Plan, Registry, TrainOn, ValueBytes, Workload,
};

use crate::{codec_checks, heap, linked_versions, store_target};

/// The hidden command that does one run.
const RUN_COMMAND: &str = "bench-run";

const METERS: Meters = Meters { held_bytes: heap::held_bytes };

/// Every target that can be benchmarked. Ours come first, then eval's own yardsticks.
fn registry() -> Registry {
    Registry::with(vec![store_target::registration()])
}

/// What is compared unless the user says otherwise: us, an uncompressed map, and the harness.
const DEFAULT_TARGETS: &str = "store,btreemap,null";

const AFTER_HELP: &str = "\
Lists (targets, workloads, codecs, threads, landing sizes, background) are swept: every combination is a run, in a process of its own.
Every answer is compared with what was written; the exit status is 1 if any was wrong, 2 if the request was.

Examples:
  ziptier bench --corpus book1 --seconds 2
  ziptier bench --corpus json --keys 1000000 --workload read_only --settle 10 --target store --codec auto,token,none
  ziptier bench --corpus samba.zip:samba --threads 1,2 --rounds 5 --out bench-results
  ziptier bench --corpus random:0.5 --mix read=80,write=15,delete=5 --distribution zipfian:0.9
  ziptier bench --smoke";

/// The arguments of `ziptier bench`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Stores to measure: store, btreemap, skiplist, null (the harness itself)
    #[arg(long, value_delimiter = ',', default_value = DEFAULT_TARGETS, value_name = "LIST")]
    target: Vec<String>,
    /// read_only, write_only, read_write_8_2, read_write_5_5, read_write_2_8 [default: all five]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    workload: Vec<String>,
    /// Shares of the operations in per cent, instead of a named workload: read=80,write=20,delete=0,scan=0
    #[arg(long, value_name = "SHARES")]
    mix: Option<String>,
    /// How targets compress: auto, none, token [default: each target's own]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    codec: Vec<String>,
    /// Keys in each store, loaded in random order
    #[arg(long, default_value_t = 50_000, value_name = "N")]
    keys: u64,
    /// decimal (key:000000000042) or random (16 random bytes)
    #[arg(long, default_value = "decimal", value_name = "SHAPE")]
    key_shape: KeyShape,
    /// Keys per read call; above 1, latency is that of the call
    #[arg(long, default_value_t = 1, value_name = "N")]
    multi_get: usize,
    /// Bytes of a value: 128, or a range such as 16..512
    #[arg(long, default_value = "128", value_name = "N|A..B")]
    value_bytes: ValueBytes,
    /// Where values come from: a file, a folder, a .zst, FILE.zip:MEMBER, json, log, timeseries, random:ETA (share of zeros)
    #[arg(long, default_value = "json", value_name = "CORPUS")]
    corpus: String,
    /// first-half: load as many keys again from the first half of the corpus, let them settle, then load and measure fresh keys
    /// from the second half, memory included
    #[arg(long, default_value = "all", value_name = "first-half|all")]
    train_on: TrainOn,
    /// uniform, zipfian, zipfian:THETA, or latest (writes go round in order, reads prefer the newest)
    #[arg(long, default_value = "uniform", value_name = "NAME")]
    distribution: Distribution,
    /// Threads that operate on each store
    #[arg(long, value_delimiter = ',', default_value = "1", value_name = "LIST")]
    threads: Vec<u64>,
    /// Length of each timed window
    #[arg(long, default_value_t = 5.0, value_name = "S")]
    seconds: f64,
    /// Seconds of the same operations before it
    #[arg(long, default_value_t = 0.5, value_name = "S")]
    warmup: f64,
    /// Seconds of idling after it; then memory is read again as "settled" [0: leave it out]
    #[arg(long, default_value_t = 0.0, value_name = "S")]
    settle: f64,
    /// Repeat everything, in turns; results are medians
    #[arg(long, default_value_t = 1, value_name = "R")]
    rounds: usize,
    /// Bytes of a leaf's write buffer [default: the target's own]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    landing_bytes: Vec<usize>,
    /// 1: full landings are packed by background threads; 0: by the writer that fills one [default: the target's own]
    #[arg(long, value_delimiter = ',', value_parser = zero_or_one, value_name = "LIST")]
    background: Vec<bool>,
    /// Threads for background work of any kind [default: the target's own]
    #[arg(long, value_name = "N")]
    background_threads: Option<usize>,
    /// Processors that runs may use, such as 0,1 [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    cpus: Vec<usize>,
    /// Stores side by side in each run, each with its own threads and keys; figures are sums
    #[arg(long, default_value_t = 1, value_name = "N")]
    instances: u64,
    /// After the closed loop, offer a growing rate (open loop, from a tenth of the closed loop's, in steps of 1.25) until the 99th
    /// percentile from arrival exceeds this; the row is the last rate that held it. Waiting threads spin: CPU figures include that
    #[arg(long, value_name = "US")]
    until_p99: Option<f64>,
    /// Time every operation (costs about 20 ns each)
    #[arg(long, default_value = "on", value_parser = on_or_off, value_name = "on|off", action = clap::ArgAction::Set)]
    latency: bool,
    /// table, tsv or json
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
    /// Also write summary.tsv, rounds.tsv, a log per run and manifest.json into DIR/<timestamp>
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Check in under a minute that codecs, stores, concurrency and memory figures work; measure nothing
    #[arg(long)]
    smoke: bool,
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

impl Arguments {
    fn plan(&self) -> Result<Plan, Error> {
        let workloads = match (&self.mix, self.workload.as_slice()) {
            (Some(mix), []) => vec![Workload::mixed(mix)?],
            (Some(mix), named) => {
                let named = named.iter().map(|name| Workload::named(name)).collect::<Result<Vec<_>, _>>()?;
                named.into_iter().chain([Workload::mixed(mix)?]).collect()
            }
            (None, []) => Workload::all_named(),
            (None, named) => named.iter().map(|name| Workload::named(name)).collect::<Result<_, _>>()?,
        };
        Ok(Plan {
            targets: self.target.clone(),
            codecs: self.codec.clone(),
            workloads,
            threads: self.threads.clone(),
            landing_bytes: self.landing_bytes.clone(),
            background: self.background.clone(),
            background_threads: self.background_threads,
            rounds: self.rounds,
            keys: self.keys,
            key_shape: self.key_shape,
            multi_get: self.multi_get,
            value_bytes: self.value_bytes,
            corpus: self.corpus.clone(),
            train_on: self.train_on,
            distribution: self.distribution,
            seconds: self.seconds,
            warmup_seconds: self.warmup,
            settle_seconds: self.settle,
            cpus: self.cpus.clone(),
            instances: self.instances,
            until_p99_us: self.until_p99,
            latency: self.latency,
            out: self.out.clone(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
        })
    }
}

/// Runs the command.
pub(crate) fn bench(arguments: Arguments) -> ExitCode {
    match run(&arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}

fn run(arguments: &Arguments) -> Result<u8, Error> {
    let plan = arguments.plan()?;
    let registry = registry();
    let program = std::env::current_exe().map_err(|source| Error::Io {
        action: "find",
        path: "ziptier".into(),
        source,
    })?;
    let launcher = Launcher { program, arguments: vec![RUN_COMMAND.into()] };
    if arguments.smoke {
        ziptier_eval::smoke(&plan, &registry, &launcher, codec_checks::CODECS, &mut |check| {
            println!("ok: {check}")
        })?;
        return Ok(0);
    }
    let outcome = ziptier_eval::bench(&plan, &registry, &launcher, &linked_versions::linked_versions())?;
    if !outcome.configurations.is_empty() {
        print!("{}", ziptier_eval::render(&plan, &outcome, arguments.format));
    }
    if let Some(failure) = &outcome.failure {
        eprintln!("error: {failure}");
    }
    Ok(outcome.exit_status())
}

/// Does one run of a benchmark on behalf of the process that started this one.
pub(crate) fn run_one() -> ExitCode {
    ExitCode::from(ziptier_eval::serve_child(&registry(), &METERS))
}
