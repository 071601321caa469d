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
//! let measured = target.run(&spec, &Meters { held_bytes: || 0, modelled: Default::default }, &|_| {})?;
//! assert_eq!(measured.mismatches, 0);
//! assert!(measured.qps() > 0.0);
//! # Ok::<(), ziptier_eval::Error>(())
//! ```
//!
//! | module | what |
//! |---|---|
//! | `keys`, `values`, `oracle` | which bytes a key and its versions are, and what a read may answer while others write |
//! | `corpus`, `generator` | where value bytes come from |
//! | `workload`, `distribution`, `permutation` | which operation on which key comes next |
//! | `target`, `target_options`, `targets`, `registry`, `conformance` | stores under test, the yardsticks, and what all must do |
//! | `spec`, `worker`, `window`, `run`, `clock`, `meters`, `measurement` | one run, from the empty store to its figures |
//! | `plan`, `bench`, `process` | sweeps and rounds of runs, each in a process of its own |
//! | `codec_suite`, `verdict` | every codec compared, and a verdict on each |
//! | `database_suite` | the codecs of a database on disk compared, as a published evaluation of RocksDB did |
//! | `cassandra_suite` | the compressors of Cassandra compared, likewise |
//! | `bypass`, `bypass_suite`, `bypass_summary`, `bypass_plot` | latency over time while other keys become hot |
//! | `server_suite`, `server_client`, `server_process`, `resp` | CPU time and memory of servers that speak RESP, side by side |
//! | `listening` | servers that somebody else started, found by the addresses at which they listen |
//! | `row`, `report`, `results_folder` | columns, tables and files of results |
//! | `mbwu`, `tco` | what a platform needs for each media-based work unit; what a work costs on servers of different designs |
//! | `inputs` | files of numbers that a user gives, and what each number does to a result |
//! | `smoke` | a quick check that everything works |
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod bench;
mod bypass;
#[cfg(feature = "plots")]
mod bypass_plot;
mod bypass_suite;
mod bypass_summary;
mod cassandra_suite;
mod clock;
mod codec_suite;
mod conformance;
mod corpus;
mod database_scaling;
mod database_suite;
mod distribution;
mod error;
mod generator;
mod inputs;
mod keys;
mod listening;
pub mod mbwu;
mod measurement;
mod meters;
mod models;
mod oracle;
mod pace;
mod permutation;
mod plan;
mod process;
mod published;
mod registry;
mod report;
mod resp;
mod results_folder;
mod row;
mod run;
mod server_client;
mod server_process;
mod server_suite;
mod smoke;
mod spec;
mod target;
mod target_options;
pub mod targets;
pub mod tco;
mod values;
mod verdict;
mod warm_up;
mod window;
mod worker;
mod workload;

pub use bench::{Configuration, Outcome, Unavailable, bench};
pub use bypass::{BypassSeries, BypassSpec, Interval};
pub use bypass_suite::{BypassOutcome, BypassPlan, bypass_suite};
pub use bypass_summary::BypassSummary;
pub use cassandra_suite::{cassandra_suite, render_compressors, write_compressors};
pub use codec_suite::codec_suite;
pub use conformance::check as check_conformance;
pub use corpus::Corpus;
pub use database_suite::{database_suite, render_databases, write_databases};
pub use distribution::Distribution;
pub use error::Error;
pub use generator::Generator;
pub use inputs::{Effect, Inputs, Number, deviation, effects};
pub use keys::{KEY_BYTES, Key, KeyShape};
pub use listening::{LocalServers, address_of, host_and_port, own_processors};
pub use measurement::{Latency, Measurement, ServersCpu, Step};
pub use meters::{Growth, Meters, ModelledWork, Usage};
pub use models::models;
pub use oracle::{Oracle, Word};
pub use pace::Pace;
pub use plan::Plan;
pub use process::{Launcher, serve_child};
pub use registry::{CodecEngine, Registration, Registry};
pub use report::{Format, faults, render};
pub use results_folder::Program;
pub use server_process::ServerProgram;
pub use server_suite::{ServerOutcome, ServerPlan, server_suite};
pub use smoke::{CodecCheck, smoke};
pub use spec::{RunSpec, TrainOn};
pub use target::{Answers, Batch, Config, Counters, EngineUnavailable, Records, Target, TargetError, Work};
pub use target_options::{ContextCache, Huffman, Path, TargetOptions};
pub use values::{ValueBytes, ValueOrder, Values};
pub use verdict::{Verdict, Verdicts};
pub use warm_up::{WarmUp, warm_up};
pub use workload::{LoadOrder, Mix, SCAN_RECORDS, Workload};
