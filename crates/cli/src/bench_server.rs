//! `ziptier bench-server`: arguments in, results out.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Command};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use ziptier::ByteSize;
use ziptier_eval::{Error, KeyShape, ServerPlan, ServerProgram, ValueOrder};
use ziptier_server::raise_open_files;

use crate::output;
use crate::serve;

/// The arguments of `ziptier bench-server`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Program of the server to compare with
    #[arg(long, default_value = "redis-server", value_name = "FILE")]
    redis: PathBuf,
    /// Memory that ziptier may have, in bytes: 4GiB, 512MB, 1000000
    #[arg(long, default_value = "4GiB", value_name = "BYTES")]
    memory: ByteSize,
    /// Number of keys that are loaded
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    keys: u64,
    /// Shapes of keys, one after the other: decimal (key:000000000042) and random (16 random bytes)
    #[arg(long, default_value = "decimal,random", value_delimiter = ',', value_name = "LIST")]
    key_shape: Vec<KeyShape>,
    /// Bytes of a value, one length after the other
    #[arg(long, default_value = "128,600", value_delimiter = ',', value_name = "LIST")]
    value_bytes: Vec<u64>,
    /// Part of the corpus that becomes a key's value: strangers, neighbours, apart, records or drift, as for bench
    #[arg(long, default_value = "strangers", value_name = "ORDER")]
    value_order: ValueOrder,
    /// Source of values, as for bench
    #[arg(long, default_value = "json", value_name = "CORPUS")]
    corpus: String,
    /// Clients at the same time
    #[arg(long, default_value_t = 50, value_name = "N")]
    connections: usize,
    /// Requests of a phase with pipelines of 16; a phase without pipelines has a quarter of them
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    requests: u64,
    /// SETs per second of the last phase, with the longest values; 0 leaves the phase out
    #[arg(long, default_value_t = 5_000, value_name = "N")]
    rate: u64,
    /// Seconds that a server must be quiet after a phase; until then its CPU time belongs to the phase. ziptier's
    /// background may rest for 5 seconds before it goes on
    #[arg(long, default_value_t = 6, value_name = "S")]
    quiet_seconds: usize,
    /// Repetitions of all phases, with the servers in alternating order; results are medians
    #[arg(long, default_value_t = 3, value_name = "R")]
    rounds: usize,
    /// File for the rows of all rounds as TSV, also of an interrupted run [default: none]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn bench_server(arguments: &Arguments) -> ExitCode {
    let done = run(arguments);
    output::show_progress("");
    output::end(done)
}

fn run(arguments: &Arguments) -> Result<String, Error> {
    // Each client takes a file. Both servers raise their own limits, too.
    raise_open_files();
    let io = |action| move |source| Error::Io { action, path: "ziptier".into(), source };
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM].into_iter().filter(|signal| !is_ignored(*signal)) {
        // The servers are ended before this process ends.
        signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(io("watch the signals of"))?;
    }
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let redis = words(&[
        "--port",
        "{port}",
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--daemonize",
        "no",
    ]);
    let ours = words(&["serve", "--port", "{port}", "--memory", &arguments.memory.0.to_string()]);
    let server = |name: &str, program, arguments| ServerProgram { name: name.into(), program, arguments };
    let inherited = inherited(&ours);
    let plan = ServerPlan {
        servers: vec![
            server("redis-server", arguments.redis.clone(), redis),
            server("ziptier", std::env::current_exe().map_err(io("find"))?, ours),
        ],
        corpus: arguments.corpus.clone(),
        value_order: arguments.value_order,
        keys: arguments.keys,
        key_shapes: arguments.key_shape.clone(),
        value_bytes: arguments.value_bytes.clone(),
        connections: arguments.connections,
        requests: arguments.requests,
        rate: arguments.rate,
        quiet_seconds: arguments.quiet_seconds,
        rounds: arguments.rounds,
        out: arguments.out.clone(),
        inherited,
    };
    let done = ziptier_eval::server_suite(&plan, &stop, &output::show_progress);
    // A signal is no fault of the server that it ended.
    let done =
        done.map_err(|error| if stop.load(Ordering::Relaxed) { interrupted(arguments) } else { error });
    done.map(|outcome| outcome.to_text())
}

fn interrupted(arguments: &Arguments) -> Error {
    let kept = match arguments.out {
        Some(_) => "the file of --out has the rows of the phases before",
        None => "without --out nothing is kept",
    };
    Error::Interrupted { kept }
}

/// Whether this process was started to ignore a signal, as `nohup` starts it.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let signals = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let signals = signals.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
    signals.unwrap_or(0) >> (signal - 1) & 1 == 1
}

/// The variables of the environment that our server takes an option from, beside those that `given` names. A store has
/// no use for the library of RocksDB.
fn inherited(given: &[String]) -> Vec<String> {
    let command = serve::Arguments::augment_args(Command::new("serve"));
    let is_given = |long: &str| given.iter().any(|word| word.strip_prefix("--") == Some(long));
    let is_idle = |long: &str| long == "rocksdb-library" || is_given(long);
    let options = command.get_arguments().filter(|option| !option.get_long().is_some_and(is_idle));
    let names = options.filter_map(|option| option.get_env()).filter(|name| std::env::var_os(name).is_some());
    names.map(|name| name.to_string_lossy().into_owned()).collect()
}
