//! `ziptier predict`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum};
use ziptier_eval::predict::{
    Cluster, EXAMPLES, HoldOut, Memory, Question, WhatIf, hold_out, predict, read, render_balances,
    render_held_out, render_memory, render_predicted, render_savings, savings,
};
use ziptier_eval::{Error, Format, Inputs};

use crate::output;

/// Predictions of what this machine cannot measure.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print a file with comments to begin with
    Example(ExampleArguments),
    /// Predict throughput and latency with other threads, cores, devices and media from measured runs
    Throughput(ThroughputArguments),
    /// Find how many cores a configuration needs for the measured throughput of another
    Cores(CoresArguments),
    /// Simulate many shards behind clients that choose them: balance, hot keys, growth
    Shards(FileArguments),
    /// Simulate DRAM as a cache of far memory, as in Optane's memory mode, beside placement by size and by hotness
    MemoryMode(FileArguments),
}

/// The arguments of `ziptier predict example`.
#[derive(Args)]
pub(crate) struct ExampleArguments {
    /// Which file: what-if for `throughput`, or shards, or memory-mode
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(EXAMPLES.map(|(name, _)| name)))]
    name: String,
}

/// The arguments of the simulations.
#[derive(Args)]
pub(crate) struct FileArguments {
    /// File of the simulation; `ziptier predict example` prints one
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Format of the results: table, tsv or json
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

/// The arguments of `ziptier predict cores`.
#[derive(Args)]
pub(crate) struct CoresArguments {
    /// Folders that `ziptier bench --out` wrote, or tables of rows: two or more configurations, each with several
    /// numbers of processors. Suite rocksdb with --cpus measures that
    #[arg(value_name = "DIR", required = true)]
    runs: Vec<PathBuf>,
    /// Configuration whose throughput the others must reach: a part of its name [default: the first]
    #[arg(long, value_name = "NAME")]
    base: Option<String>,
    /// Format of the results: table, tsv or json
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

const THROUGHPUT_EXAMPLES: &str = "\
Examples:
  ziptier bench --target store --threads 1,2,4,8 --cpus 0 --rounds 3 --out runs
  ziptier bench --target store --threads 1,2,4,8 --cpus 0,1 --rounds 3 --out runs
  ziptier predict throughput runs --hold-out each
  ziptier predict throughput runs --threads 16,64 --cores 8,32";

/// The arguments of `ziptier predict throughput`.
#[derive(Args)]
#[command(after_help = THROUGHPUT_EXAMPLES)]
pub(crate) struct ThroughputArguments {
    /// Folders that `ziptier bench --out` wrote, or tables of rows. Runs of the same work with other threads and
    /// processors make one series
    #[arg(value_name = "DIR", required = true)]
    runs: Vec<PathBuf>,
    /// Threads to predict [default: those that were measured]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u64).range(1..=4096))]
    threads: Vec<u64>,
    /// Cores to predict [default: those that were measured]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = clap::value_parser!(u64).range(1..=4096))]
    cores: Vec<u64>,
    /// File of cases: devices, media, tiers, rates
    #[arg(long, value_name = "FILE", conflicts_with = "hold_out")]
    what_if: Option<PathBuf>,
    /// Leave points out, predict them, and print how far that was from what was measured
    #[arg(long, value_enum, value_name = "WHICH", conflicts_with_all = ["threads", "cores"])]
    hold_out: Option<Which>,
    /// Say that other processes used the cores during the runs. The fit then takes lost throughput for theirs
    #[arg(long)]
    shared_machine: bool,
    /// Cores that servers had, for rows of servers, which do not say so
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    cores_measured: Option<u64>,
    /// Format of the results: table, tsv or json
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

/// Points that are left out.
#[derive(Clone, Copy, ValueEnum)]
enum Which {
    /// Each point once, predicted from all others
    Each,
    /// Every second number of threads, predicted from the others
    EverySecond,
}

/// Runs the command.
pub(crate) fn run(command: &Command) -> ExitCode {
    output::end(match command {
        Command::Example(arguments) => Ok(example(&arguments.name).into()),
        Command::Throughput(arguments) => throughput(arguments),
        Command::Cores(arguments) => cores(arguments),
        Command::Shards(arguments) => shards(arguments),
        Command::MemoryMode(arguments) => memory_mode(arguments),
    })
}

fn shards(arguments: &FileArguments) -> Result<String, Error> {
    let (cluster, table) = Cluster::read(&arguments.file)?;
    let text = render_balances(&cluster, &table, arguments.format, &mut show_progress);
    output::show_progress("");
    Ok(text)
}

fn memory_mode(arguments: &FileArguments) -> Result<String, Error> {
    let FileArguments { file, format } = arguments;
    let (memory, table) = Memory::read(file)?;
    let text = render_memory(file, &memory, &table, *format, &mut show_progress);
    output::show_progress("");
    text
}

fn show_progress(done: u64, all: u64) {
    output::show_progress(&format!("simulating: {} %", done * 100 / all.max(1)));
}

fn example(name: &str) -> &'static str {
    EXAMPLES.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text)
}

fn cores(arguments: &CoresArguments) -> Result<String, Error> {
    let all = savings(&read(&arguments.runs, None)?, arguments.base.as_deref())?;
    Ok(render_savings(&all, arguments.format))
}

fn throughput(arguments: &ThroughputArguments) -> Result<String, Error> {
    let series = read(&arguments.runs, arguments.cores_measured.map(|cores| cores as usize))?;
    if let Some(which) = arguments.hold_out {
        let how = match which {
            Which::Each => HoldOut::Each,
            Which::EverySecond => HoldOut::EverySecond,
        };
        let held = hold_out(&series, how, arguments.shared_machine)?;
        return Ok(render_held_out(&held, arguments.format));
    }
    let counts = |asked: &[u64]| asked.iter().map(|&count| count as usize).collect();
    let question = Question {
        threads: counts(&arguments.threads),
        cores: counts(&arguments.cores),
        is_shared: arguments.shared_machine,
        what_if: arguments.what_if.as_deref().map(WhatIf::read).transpose()?,
    };
    Ok(render_predicted(&predict(&series, &question)?, arguments.format))
}
