//! Judges key-value stores: workloads, targets, meters, results.
//!
//! A *target* is a store under test behind the trait [`Target`]. A run loads the target with keys in random order. It
//! then runs a mix of reads and writes, for some seconds or a number of operations. It compares every answer, byte for
//! byte, with the written value. One row reports operations per second and per CPU-second, latency over the whole
//! window, and the memory that the allocator holds for the data. A store that loses a key or returns a wrong byte fails
//! the run.
//!
//! ```
//! use ziptier_eval::{Meters, Registry, RunSpec};
//!
//! let registry = Registry::with(vec![]);
//! let spec = RunSpec {
//!     keys: 1_000,
//!     operations: Some(10_000),
//!     warmup_seconds: 0.0,
//!     ..RunSpec::new("btreemap", "json")
//! };
//! let target = registry.find(&spec.target)?;
//! let measured = target.run(&spec, &Meters::default(), &|_| {})?;
//! assert_eq!(measured.mismatches, 0);
//! assert!(measured.qps() > 0.0);
//! # Ok::<(), ziptier_eval::Error>(())
//! ```
//!
//! | module | what |
//! |---|---|
//! | `data` | which bytes keys and values are, where they come from, and what a read may answer while others write |
//! | `workload` | which operation on which key comes next, and when |
//! | `target`, `targets` | stores under test, what all must do, and the yardsticks |
//! | `medium` | a file or a device that is read and written past the page cache, and the most that it can do |
//! | `run` | one run, from the empty store to its figures |
//! | `meters` | what a run took of the machine |
//! | `bench` | sweeps and rounds of runs, each in a process of its own |
//! | `suites` | whole evaluations: every codec, RocksDB, Cassandra, servers side by side, latency while other keys become hot |
//! | `servers` | servers and functions in other processes: how to start, find and ask them |
//! | `results` | columns, tables and folders of results |
//! | `report` | one page of results for readers who decide, in HTML, with its data as JSON and TSV |
//! | `mbwu`, `tco` | what a platform needs for each media-based work unit; what a work costs on servers of different designs |
//! | `predict` | what this machine cannot measure: other cores, devices, shards and memory |
//! | `inputs` | files of numbers that a user gives, and what each number does to a result |
//! | `smoke` | a quick check that everything works |
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod bench;
mod data;
mod error;
mod inputs;
pub mod mbwu;
mod medium;
mod meters;
pub mod predict;
pub mod report;
mod results;
mod run;
mod servers;
mod smoke;
mod statistics;
mod suites;
mod target;
pub mod targets;
pub mod tco;
mod workload;

pub use bench::confine::{Confinement, DiskLimits, Folders};
pub use bench::plan::Plan;
pub use bench::process::{Launcher, interrupt, or_interrupted, serve_child};
pub use bench::{Configuration, Outcome, Unavailable, bench, in_place};
pub use data::corpus::Corpus;
pub use data::generator::Generator;
pub use data::keys::{KEY_BYTES, KEY_BYTES_MAX, KeyRoom, KeyShape, Keys};
pub use data::oracle::{Live, Oracle, Word};
pub use data::values::{ValueBytes, ValueOrder, Values};
pub use error::Error;
pub use inputs::{Effect, Inputs, Number, deviation, effects, interval_95};
pub use medium::ceiling::{Ceiling, CeilingSpec, Order, raw_ceiling};
pub use meters::machine::{DiskUse, InterfaceUse, MachineUse, OwnIo};
pub use meters::{Growth, Meters, ModelledWork, Usage};
pub use results::folder::Program;
pub use results::footer::faults;
pub use results::table::{Format, folded, render};
pub use run::measurement::{
    Latency, Measurement, Percentile, Percentiles, Replayed, Sample, ServersCpu, Step,
};
pub use run::saturation::{Point, Saturation};
pub use run::spec::{RunSpec, TraceSpec, TrainOn};
pub use run::steady::{Steadiness, WarmedUp};
pub use run::warm_up::{WarmUp, warm_up};
pub use servers::listening::{LocalServers, RESTLESS, address_of, host_and_port, own_processors};
pub use servers::process::ServerProgram;
#[doc(hidden)]
pub use servers::replies;
pub use smoke::{CodecCheck, smoke};
pub use statistics::{Deviation, Mean};
pub use suites::bypass::{BypassSeries, BypassSpec, Interval};
pub use suites::bypass_rounds::{BypassOutcome, BypassPlan, bypass_suite};
pub use suites::bypass_summary::BypassSummary;
pub use suites::cassandra::{cassandra_suite, render_compressors, write_compressors};
pub use suites::codec::codec_suite;
pub use suites::database::{database_suite, render_databases, write_databases};
pub use suites::models::models;
pub use suites::server::{ServerOutcome, ServerPlan, server_suite};
pub use suites::verdict::{Verdict, Verdicts};
pub use target::conformance::check as check_conformance;
pub use target::options::{ContextCache, Huffman, Path, TargetOptions};
pub use target::registry::{CodecEngine, Registration, Registry};
pub use target::{
    Answers, Batch, Config, Counters, EngineUnavailable, Gone, Records, Target, TargetError, Work,
};
pub use workload::distribution::Distribution;
pub use workload::mix::{Mix, Operation};
pub use workload::pace::Pace;
pub use workload::scan::ScanLength;
#[doc(hidden)]
pub use workload::trace;
pub use workload::{LoadOrder, Settings, Workload};
