//! `ziptier check`, `ziptier dump` and `ziptier restore`: a store's folder without a store.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ziptier::DurableOptions;

use crate::output;

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// The folder of a store that is not being served
    dir: PathBuf,

    #[command(flatten)]
    segments: SegmentsArgument,
}

#[derive(Debug, Args)]
struct SegmentsArgument {
    /// The folder of its segments, if it has been moved since the store had it
    #[arg(long, value_name = "FOLDER")]
    segments: Option<PathBuf>,
}

impl SegmentsArgument {
    fn options(&self, dir: &Path) -> DurableOptions {
        let mut options = DurableOptions::new(dir);
        options.segments_dir.clone_from(&self.segments);
        options
    }
}

#[derive(Debug, Args)]
pub(crate) struct DumpArguments {
    /// The folder of a store, which may be served and written to
    dir: PathBuf,

    /// A new file, or - for standard output
    #[arg(default_value = "-")]
    file: PathBuf,

    #[command(flatten)]
    segments: SegmentsArgument,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// What `dump` wrote, or - for standard input
    file: PathBuf,

    /// A folder that is new or empty
    dir: PathBuf,

    /// A folder for its segments, new or empty; to be served with --ssd BYTES:FOLDER or without
    #[arg(long, value_name = "FOLDER")]
    segments: Option<PathBuf>,
}

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Verifies everything; what is damaged is listed, one line each.
pub(crate) fn check(arguments: &CheckArguments) -> ExitCode {
    let report = match ziptier::check(&arguments.segments.options(&arguments.dir)) {
        Ok(report) => report,
        Err(error) => return failed("check", &error),
    };
    report.damages.iter().for_each(|damage| output::print(&format!("damaged: {damage}\n")));
    let stop = if report.is_sealed { "a clean stop" } else { "no clean stop" };
    output::print(&format!(
        "{}: {} records in {} leaves, {} records of the log ({stop}), {} dictionaries, {} bodies in segments; {} damages\n",
        arguments.dir.display(),
        report.records,
        report.leaves,
        report.log_records,
        report.generations,
        report.bodies,
        report.damages.len(),
    ));
    if report.damages.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Writes a folder as a stream.
pub(crate) fn dump(arguments: &DumpArguments) -> ExitCode {
    let write = || -> Outcome<ziptier::DumpSummary> {
        let options = arguments.segments.options(&arguments.dir);
        if is_standard(&arguments.file) {
            return Ok(ziptier::dump(&options, &mut BufWriter::new(std::io::stdout().lock()))?);
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&arguments.file);
        let file = file.map_err(|error| format!("cannot create {}: {error}", arguments.file.display()))?;
        let mut buffered = BufWriter::new(file);
        let summary = ziptier::dump(&options, &mut buffered)?;
        buffered.into_inner()?.sync_all()?;
        Ok(summary)
    };
    match write() {
        Ok(summary) => {
            let _ = writeln!(
                std::io::stderr(),
                "dumped {} leaves and {} records of the log, up to number {}: {} bytes",
                summary.leaves,
                summary.log_records,
                summary.last_lsn,
                summary.bytes
            );
            ExitCode::SUCCESS
        }
        Err(error) => failed("dump", &*error),
    }
}

/// Makes a folder of a stream.
pub(crate) fn restore(arguments: &RestoreArguments) -> ExitCode {
    let read = || -> Outcome<ziptier::DumpSummary> {
        let mut from: Box<dyn Read> = if is_standard(&arguments.file) {
            Box::new(std::io::stdin().lock())
        } else {
            let file = File::open(&arguments.file);
            Box::new(file.map_err(|error| format!("cannot open {}: {error}", arguments.file.display()))?)
        };
        let mut options = DurableOptions::new(&arguments.dir);
        options.segments_dir.clone_from(&arguments.segments);
        Ok(ziptier::restore(&options, &mut BufReader::new(&mut from))?)
    };
    match read() {
        Ok(summary) => {
            output::print(&format!(
                "restored {} leaves and {} records of the log to {}\n",
                summary.leaves,
                summary.log_records,
                arguments.dir.display()
            ));
            ExitCode::SUCCESS
        }
        Err(error) => failed("restore", &*error),
    }
}

fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn failed(command: &str, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("ziptier {command}: {error}");
    ExitCode::FAILURE
}
