//! `ziptier check`, `ziptier dump` and `ziptier restore`: a store's folder without a store.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use ziptier::{CheckReport, Damage, DurableOptions};

use crate::output;

#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// Folder of a store that no server has open
    dir: PathBuf,

    #[command(flatten)]
    segments: SegmentsArgument,
}

#[derive(Debug, Args)]
struct SegmentsArgument {
    /// Folder of the store's segments, if it was moved since the store used it [default: where the store had it]
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
    /// Folder of a store; a server may have it open and write to it
    dir: PathBuf,

    /// New file for the dump, or - for standard output
    #[arg(default_value = "-")]
    file: PathBuf,

    #[command(flatten)]
    segments: SegmentsArgument,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// File that `dump` wrote, or - for standard input
    file: PathBuf,

    /// Folder to restore to: new, empty, or left by a restore that did not end
    dir: PathBuf,

    /// Folder for the store's segments, new or empty; serve the store with --ssd BYTES:FOLDER or without --ssd
    /// [default: within DIR]
    #[arg(long, value_name = "FOLDER")]
    segments: Option<PathBuf>,
}

/// A dump has all that a store has.
const DUMP_MODE: u32 = 0o600;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Damages that are told one by one, and files that the others are told of.
const DAMAGES_TOLD: usize = 20;
const FILES_TOLD: usize = 5;

/// Verifies a folder. The first damages have a line each; the others are counted.
pub(crate) fn check(arguments: &CheckArguments) -> ExitCode {
    let mut shown = Instant::now();
    let checked = ziptier::check_with(&arguments.segments.options(&arguments.dir), |report| {
        if shown.elapsed() >= SHOWN_EVERY {
            shown = Instant::now();
            output::show_progress(&format!("checking: {}", so_far(report)));
        }
    });
    output::show_progress("");
    let report = match checked {
        Ok(report) => report,
        Err(error) => return failed("check", &error),
    };
    let told = report.damages.iter().take(DAMAGES_TOLD);
    told.for_each(|damage| output::print(&format!("damaged: {damage}\n")));
    if let Some(more @ 1..) = report.damages.len().checked_sub(DAMAGES_TOLD) {
        let more = output::count(more as u64, "more place", "more places");
        output::print(&format!("damaged: {more}, {}\n", by_file(&report.damages[DAMAGES_TOLD..])));
    }
    let stop = if report.is_sealed { "a clean stop" } else { "no clean stop" };
    output::print(&format!(
        "{}: {} in {}, {} of the log to replay ({stop}), {}, {} in segments; {}\n",
        arguments.dir.display(),
        records(report.records),
        leaves(report.leaves),
        records(report.log_records),
        output::count(report.generations, "dictionary", "dictionaries"),
        output::count(report.bodies, "body", "bodies"),
        output::count(report.damages.len() as u64, "damage", "damages"),
    ));
    if report.damages.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The findings so far, on a line that a usual terminal does not break.
fn so_far(report: &CheckReport) -> String {
    let bodies = output::count(report.bodies, "body", "bodies");
    format!("{}, {} of the log, {bodies}", records(report.records), report.log_records)
}

fn records(number: u64) -> String {
    output::count(number, "record", "records")
}

fn leaves(number: u64) -> String {
    output::count(number, "leaf", "leaves")
}

/// The number of damaged places of each file, with the names of the first files.
fn by_file(damages: &[Damage]) -> String {
    let mut counts: BTreeMap<&Path, usize> = BTreeMap::new();
    damages.iter().for_each(|damage| *counts.entry(&damage.path).or_default() += 1);
    let count = |(path, count): (&&Path, &usize)| format!("{count} in {}", path.display());
    let told: Vec<String> = counts.iter().take(FILES_TOLD).map(count).collect();
    match counts.len().saturating_sub(FILES_TOLD) {
        0 => told.join(", "),
        more => {
            let files = output::count(more as u64, "more file", "more files");
            format!("{}, and in {files}", told.join(", "))
        }
    }
}

/// Writes a folder as a stream.
pub(crate) fn dump(arguments: &DumpArguments) -> ExitCode {
    let write = || -> Outcome<ziptier::DumpSummary> {
        let options = arguments.segments.options(&arguments.dir);
        if !is_standard(&arguments.file) {
            return dump_to_file(&options, &arguments.file);
        }
        let output = io::stdout().lock();
        if output.is_terminal() {
            return Err("a dump is no text for a terminal; name a file, or redirect the output".into());
        }
        let mut output = BufWriter::new(Passing::new("dumping", None, output));
        let written = ziptier::dump(&options, &mut output);
        written.map_err(|error| of_stream("write the dump to", "standard output", error))
    };
    match write() {
        Ok(summary) => {
            output::say(&format!(
                "dumped {} and {} of the log, up to number {}: {} bytes\n",
                leaves(summary.leaves),
                records(summary.log_records),
                summary.last_lsn,
                summary.bytes
            ));
            ExitCode::SUCCESS
        }
        Err(error) => failed("dump", &*error),
    }
}

/// Writes a dump under another name, `.partial` behind its own, until it is whole: a file of its own name is a dump.
fn dump_to_file(options: &DurableOptions, path: &Path) -> Outcome<ziptier::DumpSummary> {
    let failed =
        |what: &str, path: &Path, error: &dyn Display| format!("cannot {what} {}: {error}", path.display());
    if path.symlink_metadata().is_ok() {
        return Err(failed("create", path, &"it is there already; name another file").into());
    }
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let (Ok(folder), Ok(dir)) = (folder.canonicalize(), options.dir.canonicalize())
        && folder == dir
    {
        let reason = "it would lie in the folder of the store, which no server starts with then; name a file elsewhere";
        return Err(failed("create", path, &reason).into());
    }
    let partial = path.with_added_extension("partial");
    // Its lock ends with it, once the file has another name or is gone.
    let file = begin(&partial, path).map_err(|error| failed("create", &partial, &error))?;
    let write = || -> Outcome<ziptier::DumpSummary> {
        const ACTION: &str = "write the dump to";
        let mut buffered = BufWriter::new(Passing::new("dumping", None, &file));
        let written = ziptier::dump(options, &mut buffered);
        let summary = written.map_err(|error| of_stream(ACTION, path.display(), error))?;
        let synced = buffered.flush().and_then(|()| file.sync_all());
        synced.map_err(|error| failed(ACTION, path, &error))?;
        fs::rename(&partial, path).map_err(|error| failed("create", path, &error))?;
        File::open(folder)?.sync_all()?;
        Ok(summary)
    };
    let written = write();
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Makes the file of a dump that is not whole yet, and locks it. A file without a lock was left by a dump that did not
/// end, and goes. The whole dump, which only the holder of the lock may make, must not be there.
fn begin(partial: &Path, whole: &Path) -> Outcome<File> {
    let lock = |file: &File| -> Outcome<()> {
        // File systems without locks tell nothing.
        let is_locked = matches!(file.try_lock(), Err(TryLockError::WouldBlock));
        let number = |found: &Metadata| (found.dev(), found.ino());
        // Another dump may have ended, or begun, since the file was opened.
        let is_there = partial
            .symlink_metadata()
            .is_ok_and(|found| file.metadata().is_ok_and(|opened| number(&opened) == number(&found)));
        if is_locked || !is_there {
            return Err("another dump writes it; wait until that has ended, or name another file".into());
        }
        Ok(())
    };
    if partial.symlink_metadata().is_ok_and(|found| found.is_file()) {
        let left = File::open(partial)?;
        lock(&left)?;
        fs::remove_file(partial)?;
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(DUMP_MODE).open(partial)?;
    lock(&file)?;
    if whole.symlink_metadata().is_ok() {
        fs::remove_file(partial)?;
        return Err(format!("{} was made meanwhile; name another file", whole.display()).into());
    }
    Ok(file)
}

/// Makes a folder of a stream.
pub(crate) fn restore(arguments: &RestoreArguments) -> ExitCode {
    let read = || -> Outcome<ziptier::DumpSummary> {
        let mut from: Box<dyn Read> = if is_standard(&arguments.file) {
            Box::new(std::io::stdin().lock())
        } else {
            let file = File::open(&arguments.file);
            let file = file.map_err(|error| format!("cannot open {}: {error}", arguments.file.display()))?;
            let found = file.metadata().ok().filter(Metadata::is_file);
            Box::new(Passing::new("restoring", found.map(|found| found.len()), file))
        };
        let mut options = DurableOptions::new(&arguments.dir);
        options.segments_dir.clone_from(&arguments.segments);
        let restored = ziptier::restore(&options, &mut BufReader::new(&mut from));
        restored.map_err(|error| match is_standard(&arguments.file) {
            true => of_stream("restore from", "standard input", error),
            false => of_stream("restore from", arguments.file.display(), error),
        })
    };
    match read() {
        Ok(summary) => {
            output::print(&format!(
                "restored {} and {} of the log to {}\n",
                leaves(summary.leaves),
                records(summary.log_records),
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

/// The error of a dump or a restore. One that the stream caused names the stream.
fn of_stream(
    action: &str,
    stream: impl Display,
    error: ziptier::Error,
) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        ziptier::Error::Stream { reason } => format!("cannot {action} {stream}: {reason}").into(),
        error => error.into(),
    }
}

/// How often progress is shown.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// A stream that shows on a terminal how many of its bytes have passed.
struct Passing<S> {
    action: &'static str,
    /// Bytes of the whole stream, if they are known.
    all_bytes: Option<u64>,
    stream: S,
    bytes: u64,
    shown: Instant,
}

impl<S> Passing<S> {
    fn new(action: &'static str, all_bytes: Option<u64>, stream: S) -> Self {
        Self { action, all_bytes, stream, bytes: 0, shown: Instant::now() }
    }

    fn note(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.shown.elapsed() >= SHOWN_EVERY {
            self.shown = Instant::now();
            output::show_progress(&self.line());
        }
    }

    fn line(&self) -> String {
        let all = self.all_bytes.map_or_else(String::new, |bytes| format!(" of {}", output::mib(bytes)));
        format!("{}: {}{all}", self.action, output::mib(self.bytes))
    }
}

impl<S: Read> Read for Passing<S> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(bytes)?;
        self.note(read);
        Ok(read)
    }
}

impl<S: Write> Write for Passing<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.stream.write(bytes)?;
        self.note(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl<S> Drop for Passing<S> {
    fn drop(&mut self) {
        output::show_progress("");
    }
}

fn failed(command: &str, error: &dyn std::error::Error) -> ExitCode {
    output::say(&format!("ziptier {command}: {error}\n"));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_what_has_passed() {
        let mut reading = Passing::new("restoring", Some(3 << 20), io::repeat(0).take(1 << 20));
        assert_eq!(io::copy(&mut reading, &mut io::sink()).unwrap(), 1 << 20);
        assert_eq!(reading.line(), "restoring: 1.00 MiB of 3.00 MiB");
        let mut writing = Passing::new("dumping", None, io::sink());
        writing.write_all(&[0; 1 << 19]).unwrap();
        assert_eq!(writing.line(), "dumping: 0.50 MiB");
    }

    #[test]
    fn one_dump_at_a_time_writes_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, partial) = (folder.path().join("dump"), folder.path().join("dump.partial"));
        let running = begin(&partial, &whole).unwrap();
        assert!(begin(&partial, &whole).unwrap_err().to_string().contains("another dump writes it"));
        assert!(partial.exists());
        drop(running);
        begin(&partial, &whole).unwrap();
    }

    /// No server starts with a foreign file in the folder of its store.
    #[test]
    fn a_dump_does_not_lie_in_the_folder_of_its_store() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, link) = (folder.path().join("store"), folder.path().join("link"));
        fs::create_dir(&dir).unwrap();
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        for path in [dir.join("dump"), link.join("dump")] {
            let told = dump_to_file(&DurableOptions::new(&dir), &path).unwrap_err().to_string();
            assert!(told.contains("it would lie in the folder of the store"), "{told}");
        }
        assert!(fs::read_dir(&dir).unwrap().next().is_none());
    }

    /// The name was free when the second dump looked at it.
    #[test]
    fn a_dump_that_begins_as_another_one_ends_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (whole, partial) = (folder.path().join("dump"), folder.path().join("dump.partial"));
        drop(begin(&partial, &whole).unwrap());
        fs::rename(&partial, &whole).unwrap();
        assert!(begin(&partial, &whole).unwrap_err().to_string().contains("was made meanwhile"));
        assert!(whole.exists() && !partial.exists());
    }
}
