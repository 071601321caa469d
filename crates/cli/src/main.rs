//! The `ziptier` command.

#![deny(unsafe_code)]

mod alloc;
mod bench;
mod bench_server;
mod cassandra;
mod codec_checks;
mod cql;
mod doctor;
mod far;
mod folder;
#[allow(unsafe_code, reason = "the configuration that jemalloc reads, and a call of it")]
mod heap;
mod interruption;
mod mbwu;
mod output;
mod pages;
mod predict;
mod program;
mod report;
mod rocksdb;
mod rocksdb_backend;
mod rocksdb_target;
mod serve;
mod store_target;
mod tco;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "ziptier",
    version,
    about = "A key-value engine that keeps more data in less memory",
    arg_required_else_help = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Spread the heap of an unmodified program, such as redis-server, over DRAM and far memory
    #[command(subcommand)]
    Alloc(alloc::Command),
    /// Measure speed and memory of stores, side by side, with every answer checked
    Bench(Box<bench::Arguments>),
    /// Measure CPU time per operation and memory of a server beside a real redis-server, with every answer checked
    BenchServer(bench_server::Arguments),
    /// One run of a benchmark, in a process of its own
    #[command(hide = true)]
    BenchRun(bench::Foreign),
    /// Estimate what other compressors would make of a table of Cassandra
    #[command(subcommand)]
    Cassandra(cassandra::Command),
    /// Verify the folder of a store, and list each damaged place
    Check(folder::CheckArguments),
    /// Write the folder of a store as one stream, also while a server has the folder open
    Dump(folder::DumpArguments),
    /// Make the folder of a store from a stream that dump wrote
    Restore(folder::RestoreArguments),
    /// List the devices, libraries and memory of this machine, the path of each codec, and commands that would help
    Doctor(doctor::Arguments),
    /// Compare platforms by how much work of a storage medium they do (media-based work units)
    #[command(subcommand)]
    Mbwu(mbwu::Command),
    /// Write manual pages and completions for shells into a folder
    Pages(pages::Arguments),
    /// Predict what this machine cannot measure: other cores, threads, devices, shards and memory
    #[command(subcommand)]
    Predict(predict::Command),
    /// Inspect how the files of a RocksDB database are packed, or rewrite them with ziptier's formats or without
    #[command(subcommand)]
    Rocksdb(rocksdb::Command),
    /// Write one page of results for readers who decide: verdicts, figures with intervals, and their data
    Report(report::Arguments),
    /// Serve a store to Redis clients
    Serve(Box<serve::Arguments>),
    /// Compare what the same work costs on servers of different designs, energy and room included
    Tco(tco::Arguments),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Alloc(command) => alloc::run(command),
        Command::Bench(arguments) => bench::bench(*arguments),
        Command::BenchServer(arguments) => bench_server::bench_server(&arguments),
        Command::BenchRun(foreign) => bench::run_one(&foreign),
        Command::Check(arguments) => folder::check(&arguments),
        Command::Dump(arguments) => folder::dump(&arguments),
        Command::Restore(arguments) => folder::restore(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Mbwu(command) => mbwu::run(&command),
        Command::Pages(arguments) => pages::pages(Cli::command(), &arguments),
        Command::Predict(command) => predict::run(&command),
        Command::Cassandra(command) => cassandra::run(&command),
        Command::Rocksdb(command) => rocksdb::run(&command),
        Command::Report(arguments) => report::run(&arguments),
        Command::Tco(arguments) => tco::tco(&arguments),
        Command::Serve(arguments) => serve::serve(*arguments, Some(heap::held_bytes)),
    }
}
