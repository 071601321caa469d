//! A whole benchmark starts itself for each run. With a target that drops every tenth write, it must end with exit
//! status 1 and report the fault in every format. The same benchmark of an honest target must end with 0.
//!
//! This test has its own `main`, because the child processes are this program.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::process::{Command, exit};
use std::sync::atomic::{AtomicU64, Ordering};

use ziptier_eval::targets::BTreeMapTarget;
use ziptier_eval::{
    Answers, BypassPlan, Config, Format, Gone, Launcher, Meters, Plan, Program, Records, Registration,
    Registry, RunSpec, Target, TargetError, TrainOn, Workload,
};

/// Has the fault of its name: "dies" ends the process at once, "ends" takes no key, and others drop every tenth write.
struct Faulty {
    honest: BTreeMapTarget,
    has_ended: bool,
    puts: AtomicU64,
}

impl Target for Faulty {
    type Batch = Answers;

    fn open(config: &Config) -> Result<Self, TargetError> {
        if config.target == "dies" {
            eprintln!("the disk is on fire");
            exit(9);
        }
        let honest = BTreeMapTarget::open(config)?;
        Ok(Faulty { honest, has_ended: config.target == "ends", puts: AtomicU64::new(0) })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        self.honest.get(key, value)
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        self.honest.multi_get(keys, batch)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        if self.has_ended {
            return Err(Gone("it closed the connection".into()).into());
        }
        match self.puts.fetch_add(1, Ordering::Relaxed) % 10 {
            9 => Ok(()),
            _ => self.honest.put(key, value),
        }
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        self.honest.delete(key)
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        self.honest.scan(from, limit, records)
    }
}

fn registry() -> Registry {
    Registry::with(vec![
        Registration::of::<Faulty>("liar", "drops every tenth write", &["none"]),
        Registration::of::<Faulty>("packer", "drops every tenth write, with any codec", &["lz4", "none"]),
        Registration::of::<Faulty>("ends", "ends before the first put", &["none"]),
        Registration::of::<Faulty>("dies", "ends the process", &["none"]),
    ])
}

fn plan(target: &str) -> Plan {
    let usual = RunSpec::new(target, "log");
    Plan {
        targets: target.split(',').map(str::to_owned).collect(),
        codecs: vec![],
        engines: vec![],
        compares_codecs: false,
        workloads: vec![Workload::named("read_only").unwrap(), Workload::named("write_only").unwrap()],
        threads: vec![1],
        landing_bytes: vec![],
        background: vec![],
        background_threads: None,
        models: vec![],
        models_beside: false,
        options: usual.options,
        rounds: 2,
        keys: 1_000,
        key_shape: usual.key_shape,
        key_bytes: None,
        multi_get: 1,
        multi_put: 1,
        connections: None,
        value_bytes: vec![usual.value_bytes],
        value_orders: vec![usual.value_order],
        names_unavailable: false,
        block_bytes: vec![],
        corpus: usual.corpus,
        train_on: TrainOn::All,
        distribution: usual.distribution,
        seconds: 1.0,
        operations: Some(2_000),
        warmup_seconds: 0.0,
        settle_seconds: 0.0,
        cpus: vec![],
        instances: 1,
        pace: ziptier_eval::Pace::Closed,
        warmup_seconds_max: None,
        until_steady: false,
        perf_control: None,
        latency: true,
        zlib_accel: None,
        out: None,
        command: String::new(),
    }
}

/// Runs a plan as a command does.
fn command(target: &str) -> u8 {
    let program = std::env::current_exe().unwrap();
    let launcher = Launcher { program, arguments: vec!["child".into()] };
    let plan = plan(target);
    match ziptier_eval::bench(&plan, &registry(), &launcher, &Program::default()) {
        Ok(outcome) => {
            for format in [Format::Table, Format::Tsv, Format::Json] {
                print!("{}", ziptier_eval::render(&plan, &outcome, format));
            }
            if let Some(failure) = &outcome.failure {
                eprintln!("error: {failure}");
            }
            outcome.exit_status()
        }
        Err(error) => {
            eprintln!("error: {error}");
            error.exit_status()
        }
    }
}

/// Runs the suite of codecs, or of the bypass, or the rounds before a suite on servers, as a command does.
fn suite(name: &str, target: &str) -> u8 {
    let program = std::env::current_exe().unwrap();
    let launcher = Launcher { program, arguments: vec!["child".into()] };
    let registry = registry();
    if name == "codecs" {
        let plan = ziptier_eval::codec_suite(plan(target), &registry);
        let outcome = ziptier_eval::bench(&plan, &registry, &launcher, &Program::default()).unwrap();
        print!("{}", ziptier_eval::render(&plan, &outcome, Format::Table));
        return outcome.exit_status();
    }
    if name == "warm-up" {
        let rounds = ziptier_eval::warm_up(&[plan(target)], &registry, &launcher, &Program::default());
        let error = rounds.expect_err("a wrong answer of a round that is not measured counts, too");
        eprintln!("error: {error}");
        return error.exit_status();
    }
    let plan = Plan { workloads: vec![], rounds: 1, distribution: "hot".parse().unwrap(), ..plan(target) };
    let plan = BypassPlan { plan, interval_operations: 100 };
    let outcome = ziptier_eval::bypass_suite(&plan, &registry, &launcher, &Program::default()).unwrap();
    print!("{}", outcome.render(Format::Table));
    outcome.exit_status()
}

/// Two configurations, whose runs are logged as they end. A profile has the windows of all of them.
fn every_second_round_goes_backwards() {
    let program = std::env::current_exe().unwrap();
    let launcher = Launcher { program, arguments: vec!["child".into()] };
    let results = tempfile::tempdir().unwrap();
    let orders = tempfile::NamedTempFile::new().unwrap();
    let plan = Plan {
        out: Some(results.path().to_owned()),
        warmup_seconds_max: None,
        until_steady: false,
        perf_control: Some(orders.path().to_owned()),
        ..plan("btreemap")
    };
    let outcome = ziptier_eval::bench(&plan, &registry(), &launcher, &Program::default()).unwrap();
    let folder = outcome.folder.unwrap();
    let logged = |run: usize, round: usize| {
        folder.join(&outcome.configurations[run].logs[round]).metadata().unwrap().modified().unwrap()
    };
    assert_eq!(std::fs::read_to_string(orders.path()).unwrap(), "enable\ndisable\n".repeat(4));
    assert!(logged(0, 0) < logged(1, 0) && logged(1, 0) < logged(1, 1) && logged(1, 1) < logged(0, 1));
}

/// As on a disk that is full by then.
fn figures_that_cannot_be_written_are_not_lost() {
    let results = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    // A run puts a folder in the place of the file.
    let script = format!(
        "for folder in {}/*; do mkdir -p $folder/summary.tsv; done; exec {} child",
        results.path().display(),
        program.display()
    );
    let launcher = Launcher { program: "sh".into(), arguments: vec!["-c".into(), script] };
    let plan = Plan { out: Some(results.path().to_owned()), rounds: 1, ..plan("btreemap") };
    let outcome = ziptier_eval::bench(&plan, &registry(), &launcher, &Program::default()).unwrap();
    assert_eq!((outcome.configurations.len(), outcome.exit_status()), (2, 2));
    let told = outcome.failure.unwrap().to_string();
    assert!(told.starts_with("cannot write ") && told.contains("summary.tsv"), "{told}");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["child"] => {
            let meters = Meters::default();
            exit(ziptier_eval::serve_child(&registry(), &meters, || 0).into())
        }
        ["bench", target] => exit(command(target).into()),
        [name @ ("codecs" | "bypass" | "warm-up"), target] => exit(suite(name, target).into()),
        // A test runner asks for the names of tests, and for those that are usually left out.
        arguments if arguments.contains(&"--list") => {
            if !arguments.contains(&"--ignored") {
                println!("a_lying_target_fails_the_command: test");
            }
            return;
        }
        _ => {}
    }
    let run_as = |command: &str, target: &str| {
        let output = Command::new(std::env::current_exe().unwrap()).args([command, target]).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };

    let run = |target: &str| run_as("bench", target);

    let (status, printed, said) = run("btreemap");
    assert_eq!((status, said.as_str()), (Some(0), ""), "{printed}");
    assert!(!printed.contains("WRONG"), "{printed}");

    let (status, printed, _) = run("liar");
    assert_eq!(status, Some(1), "{printed}");
    assert!(printed.contains("WRONG ANSWERS: liar, read_only; the first: get of key number"), "{printed}");

    let (status, printed, _) = run_as("codecs", "packer");
    assert_eq!(status, Some(1), "{printed}");
    assert!(printed.contains("WRONG") && printed.contains("packer against lz4"), "{printed}");
    let mut verdicts = printed.lines().skip_while(|line| *line != "packer against lz4");
    assert!(verdicts.any(|line| line.starts_with("none ") && line.contains("wrong answers")), "{printed}");

    assert_eq!(run_as("bypass", "btreemap").0, Some(0));
    let (status, printed, _) = run_as("bypass", "liar");
    assert_eq!(status, Some(1), "{printed}");
    assert!(printed.contains("WRONG ANSWERS: liar; the first: get of key number"), "{printed}");

    let (status, printed, said) = run_as("warm-up", "liar");
    assert_eq!((status, printed.as_str()), (Some(1), ""));
    assert!(said.contains("liar: get of key number"), "{said}");

    let (status, printed, said) = run("btreemap,ends");
    assert_eq!(status, Some(1), "{said}");
    assert!(printed.contains("btreemap"), "what was measured before is kept: {printed}");
    assert_eq!(said, "error: ends: the target ends has ended: it closed the connection\n");

    every_second_round_goes_backwards();
    figures_that_cannot_be_written_are_not_lost();

    let (status, _, said) = run("dies");
    assert_eq!(status, Some(1));
    assert!(said.contains("ended without a result (exit status: 9): the disk is on fire"), "{said}");
    println!("test a_lying_target_fails_the_command ... ok");
    println!("test result: ok. 1 passed; 0 failed");
}
