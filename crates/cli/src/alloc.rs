//! `ziptier alloc`: programs whose heap lies in DRAM and far memory, by `libziptier_alloc.so`.

mod classes;
mod prometheus;
mod run;
mod show;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::Value;
use ziptier_alloc::page::{Page, Snapshot};
use ziptier_alloc::programs::Program;

use crate::output;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show how a running program's memory is split between DRAM and far memory
    Stat(Stat),
    /// Change options of a running program
    Set {
        /// Process of the program
        pid: u32,

        /// Options: policy, ratio, threshold, threshold-min, threshold-max, pin, tables-in-dram, dram-limit, far-limit
        #[arg(required = true, value_name = "OPTION=VALUE")]
        options: Vec<String>,
    },
    /// List all programs that run with the library
    List {
        #[command(flatten)]
        form: Form,
    },
    /// Start a program with the library
    Run(run::Arguments),
    /// Make, list, change and delete classes: ratios and budgets that several programs share
    #[command(subcommand)]
    Class(classes::Command),
}

#[derive(Debug, Args)]
pub(crate) struct Stat {
    /// Process of the program
    pid: u32,

    #[command(flatten)]
    form: Form,

    /// Print a line every so many seconds until the program ends
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["json", "prometheus"])]
    watch: Option<f64>,
}

#[derive(Debug, Args)]
pub(crate) struct Form {
    /// Print JSON
    #[arg(long, conflicts_with = "prometheus")]
    json: bool,

    /// Print metrics in Prometheus's text format
    #[arg(long)]
    prometheus: bool,
}

/// The time for which a change waits for the program. A program that allocates nothing does not look.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) fn run(command: Command) -> ExitCode {
    let done = match command {
        Command::Stat(stat) => self::stat(&stat),
        Command::Set { pid, options } => set(pid, &options.join(",")),
        Command::List { form } => Ok(list(&form)),
        Command::Run(arguments) => run::run(arguments).map(|never| match never {}),
        Command::Class(command) => classes::run(&command),
    };
    match done {
        Ok(text) => {
            output::print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            output::say(&format!("error: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn stat(stat: &Stat) -> Result<String, String> {
    let program = Program::of(stat.pid).map_err(sentence)?;
    match stat.watch {
        Some(seconds) => watch(&program, seconds),
        None if stat.form.json => Ok(format!("{:#}\n", show::json(&program))),
        None if stat.form.prometheus => Ok(prometheus::metrics(&[program])),
        None => Ok(show::screen(&program)),
    }
}

fn watch(program: &Program, seconds: f64) -> Result<String, String> {
    let pause = Duration::try_from_secs_f64(seconds).ok().filter(|pause| !pause.is_zero());
    let pause = pause.ok_or("--watch takes a number of seconds above 0")?;
    output::print(&show::watch_title());
    let mut last = Snapshot::of(program.page());
    loop {
        let now = Snapshot::of(program.page());
        if !output::is_printed(&show::watch_line(&last, &now)) {
            return Ok(String::new());
        }
        last = now;
        std::thread::sleep(pause);
        if Program::of(program.pid).is_err() {
            return Ok(format!("process {} ({}) has ended\n", program.pid, program.name));
        }
    }
}

fn list(form: &Form) -> String {
    let (programs, others, hidden) = Program::all();
    if form.json {
        return format!("{:#}\n", Value::from_iter(programs.iter().map(show::json)));
    }
    if form.prometheus {
        return prometheus::metrics(&programs);
    }
    let mut text = show::list(&programs);
    for other in &others {
        text += &format!("{other}\n");
    }
    if hidden > 0 {
        let processes = output::count(hidden as u64, "process", "processes");
        text += &format!("{processes} of other users not looked at; run this command as root for these\n");
    }
    text
}

fn set(pid: u32, options: &str) -> Result<String, String> {
    let program = Program::of(pid).map_err(sentence)?;
    let number = program.change(options).map_err(sentence)?;
    let name = format!("process {pid} ({})", program.name);
    if !wait_for_answer(program.page(), number) {
        return Ok(format!("{name} takes the change after its next allocations, of about 16 MiB at most\n"));
    }
    let seen = Snapshot::of(program.page());
    if seen.applied < number {
        return Err(format!("{name} refused the change; its library is another version than this command"));
    }
    Ok(format!("{name} allocates by this from now on: {}\n", show::policy(&seen)))
}

/// Whether the program has obeyed a change, or refused it.
fn wait_for_answer(page: &Page, number: u64) -> bool {
    let end = Instant::now() + ANSWER_TIMEOUT;
    loop {
        let seen = Snapshot::of(page);
        if seen.applied >= number || seen.refused >= number {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn sentence(error: impl Display) -> String {
    error.to_string()
}

/// The library beside this command, as a package and as Cargo lay them.
fn library() -> Option<PathBuf> {
    let command = std::env::current_exe().ok()?;
    let folder = command.parent()?;
    let places = [folder.join("../lib/ziptier/libziptier_alloc.so"), folder.join("libziptier_alloc.so")];
    places.into_iter().find_map(|place| place.canonicalize().ok())
}
