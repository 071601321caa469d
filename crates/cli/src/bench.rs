//! `ziptier bench`: arguments in, results out.

mod arguments;
mod kinds;

use std::process::ExitCode;

use clap::{Args, Parser};
use ziptier_accel::ModelUsage;
use ziptier_eval::{
    BypassPlan, Error, Launcher, Meters, ModelledWork, Plan, Registry, RunSpec, ValueOrder, Workload,
};
use ziptier_server::raise_open_files;

pub(crate) use self::arguments::Arguments;
use self::arguments::Suite;
use self::kinds::Bench;

use crate::cql::NodeToolArgument;
use crate::rocksdb_target::LibraryArgument;
use crate::{cql, heap, output, rocksdb_target, store_target};

/// The hidden command that does one run.
const RUN_COMMAND: &str = "bench-run";

const METERS: Meters = Meters { held_bytes: heap::held_bytes, modelled, room: heap::room };

/// The work of models in this program, and in the library that a database has loaded.
fn modelled() -> ModelledWork {
    let usage = ModelUsage::now();
    let own = ModelledWork {
        jobs: usage.jobs,
        late_jobs: usage.late_jobs,
        late_sec: usage.late.as_secs_f64(),
        cpu_sec: usage.cpu.as_secs_f64(),
        memo_bytes: usage.memo_bytes,
    };
    own.plus(rocksdb_target::modelled())
}

/// Every target that can be benchmarked. Ours comes first, eval's own yardsticks last.
fn registry(foreign: &Foreign) -> Registry {
    foreign.rocksdb.set();
    let own = [store_target::registration(), rocksdb_target::registration()];
    Registry::with(own.into_iter().chain(cql::registration(&foreign.cql)).collect())
}

/// How to reach the databases of others.
#[derive(Debug, Args)]
pub(crate) struct Foreign {
    #[command(flatten)]
    rocksdb: LibraryArgument,
    #[command(flatten)]
    cql: NodeToolArgument,
}

/// The targets that are compared by default: the store, an uncompressed map, and the harness.
const DEFAULT_TARGETS: [&str; 3] = ["store", "btreemap", "null"];
/// The bypass suite needs more leaves, so that the hot ones among them are few; RocksDB's, files of some size.
const DEFAULT_KEYS_SUITES: u64 = 200_000;
const DEFAULT_INTERVAL_OPERATIONS: u64 = 5_000;

/// Runs the command.
pub(crate) fn bench(arguments: Arguments) -> ExitCode {
    match run(&arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => output::fail(&error),
    }
}

fn run(arguments: &Arguments) -> Result<u8, Error> {
    if arguments.list_workloads {
        output::print(&Workload::list());
        return Ok(0);
    }
    let registry = registry(&arguments.foreign);
    let asked = arguments.plan()?;
    let targets = cql::targets(&asked.targets, &registry)?;
    let asked = Plan { targets, ..asked };
    let cql = &arguments.foreign.cql;
    let bench = Bench { registry, launcher: launcher(&arguments.foreign)?, format: arguments.format };
    let plan = usual(asked.clone())?;
    match arguments.suite {
        _ if arguments.smoke => {
            bench.smoke(&plan, |check| output::print(&format!("ok: {check}\n"))).map(|()| 0)
        }
        _ if arguments.conformance => bench.conformance(&plan).map(|()| 0),
        None => bench.measure(&with_defaults(plan)),
        Some(Suite::Codecs) => bench.codecs(plan),
        Some(Suite::Rocksdb) => {
            bench.rocksdb(Plan { keys: arguments.keys.unwrap_or(DEFAULT_KEYS_SUITES), ..asked })
        }
        Some(Suite::Cassandra) => {
            cql.check_suite(&asked.targets)?;
            bench.cassandra(Plan { keys: arguments.keys.unwrap_or(cql::DEFAULT_KEYS), ..asked })
        }
        Some(Suite::Bypass) => bench.bypass(BypassPlan {
            plan: Plan {
                keys: arguments.keys.unwrap_or(DEFAULT_KEYS_SUITES),
                distribution: arguments.distribution.map_or_else(|| "hot".parse(), Ok)?,
                workloads: asked.workloads,
                ..plan
            },
            interval_operations: arguments.interval_operations.unwrap_or(DEFAULT_INTERVAL_OPERATIONS),
        }),
    }
}

/// Starts this program again for each run.
pub(crate) fn launcher(foreign: &Foreign) -> Result<Launcher, Error> {
    let program = std::env::current_exe().map_err(|source| Error::Io {
        action: "find",
        path: "ziptier".into(),
        source,
    })?;
    let Foreign { rocksdb, cql } = foreign;
    let run = std::iter::once(RUN_COMMAND.into()).chain(rocksdb.to_arguments()).chain(cql.to_arguments());
    Ok(Launcher { program, arguments: run.collect() })
}

/// The run that options describe, which must be one alone.
pub(crate) fn one_run(options: &[String], foreign: &Foreign) -> Result<RunSpec, Error> {
    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Options {
        #[command(flatten)]
        arguments: Arguments,
    }
    let given = options.join(" ");
    let wrong =
        |expected: String| Error::Invalid { what: "options of a benchmark", given: given.clone(), expected };
    let told = |error: clap::Error| {
        let text = error.to_string();
        let sentence = text.lines().next().unwrap_or_default();
        wrong(sentence.strip_prefix("error: ").unwrap_or(sentence).to_owned())
    };
    let arguments = Options::try_parse_from(options).map_err(told)?.arguments;
    let registry = registry(foreign);
    let asked = arguments.plan()?;
    let targets = cql::targets(&asked.targets, &registry)?;
    let mut runs = with_defaults(usual(Plan { targets, ..asked })?).runs(&registry)?;
    match (runs.pop(), runs.is_empty()) {
        (Some(run), true) => Ok(run),
        _ => Err(wrong("they describe several runs; name one target, one codec and one workload".into())),
    }
}

/// The targets and threads of a benchmark without a suite.
fn with_defaults(mut plan: Plan) -> Plan {
    if plan.targets.is_empty() {
        plan.targets = DEFAULT_TARGETS.map(str::to_owned).to_vec();
    }
    if plan.threads.is_empty() {
        plan.threads = vec![1];
    }
    plan
}

/// Fills in what was left open and has one usual value.
fn usual(asked: Plan) -> Result<Plan, Error> {
    fn or<T>(asked: Vec<T>, usual: impl FnOnce() -> Vec<T>) -> Vec<T> {
        if asked.is_empty() { usual() } else { asked }
    }
    let value_bytes = "128".parse()?;
    Ok(Plan {
        workloads: or(asked.workloads, Workload::usual),
        value_bytes: or(asked.value_bytes, || vec![value_bytes]),
        value_orders: or(asked.value_orders, || vec![ValueOrder::Strangers]),
        ..asked
    })
}

/// Does one run of a benchmark on behalf of the process that started this one.
pub(crate) fn run_one(foreign: &Foreign) -> ExitCode {
    ExitCode::from(ziptier_eval::serve_child(&registry(foreign), &METERS, raise_open_files))
}
