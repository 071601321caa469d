//! `ziptier rocksdb`: a database of RocksDB's, without its application.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ziptier::ByteSize;
use ziptier_rocksdb::host::{Error, Estimate, Library, Packing};

use crate::output::{self, mib};
use crate::rocksdb_target::LibraryArgument;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List how the files of a database are packed, and the bytes that this saves; the database may be in use
    Inspect(Folder),
    /// Estimate the size of a database in ziptier's formats, and in RocksDB's LZ4 and zstd. The command only reads the
    /// database, which may be in use
    Estimate {
        #[command(flatten)]
        folder: Folder,

        /// Bytes of records that the formats are tried on: 32MiB, 1GB
        #[arg(long, value_name = "BYTES", default_value = "32MiB")]
        sample: ByteSize,
    },
    /// Rewrite a database that no process has open in one of ziptier's formats, and name the format in the database's
    /// options
    MigrateOn {
        #[command(flatten)]
        folder: Folder,

        /// Format that blocks are rewritten in
        #[arg(long)]
        format: Format,
    },
    /// Rewrite a database that no process has open so that it needs no plugin
    MigrateOff {
        #[command(flatten)]
        folder: Folder,

        /// RocksDB's own compression for the column families that use a private format: zstd, lz4, zlib, snappy, none,
        /// or a name of RocksDB's options, such as kLZ4HCCompression
        #[arg(long, value_name = "NAME", default_value = "zstd")]
        compression: String,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Format {
    /// Tokens of a dictionary that files share; readers need the plugin
    Token,
    /// DEFLATE by codes that files share; readers need the plugin
    Canned,
    /// DEFLATE that every RocksDB reads
    Deflate,
    /// LZ4 that every RocksDB reads
    Lz4,
}

impl Format {
    /// The options that an application sets for its column families.
    fn options(self) -> &'static str {
        match self {
            Format::Token => "compression_manager={id=ziptier;format=token};compression=kCustomCompression80",
            Format::Canned => {
                "compression_manager={id=ziptier;format=deflate;huffman=canned};compression=kCustomCompression82"
            }
            Format::Deflate => "compression_manager={id=ziptier;format=deflate};compression=kZlibCompression",
            Format::Lz4 => "compression_manager={id=ziptier;format=lz4};compression=kLZ4Compression",
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Folder {
    /// Folder of the database
    dir: PathBuf,

    #[command(flatten)]
    library: LibraryArgument,
}

pub(crate) fn run(command: &Command) -> ExitCode {
    let done = match command {
        Command::Inspect(folder) => inspect(folder),
        Command::Estimate { folder, sample } => estimate(folder, sample.0),
        Command::MigrateOn { folder, format } => migrate_on(folder, *format),
        Command::MigrateOff { folder, compression } => migrate_off(folder, compression),
    };
    match done {
        Ok(report) => {
            output::print(&report);
            ExitCode::SUCCESS
        }
        Err(error) => output::refuse(&error),
    }
}

fn inspect(folder: &Folder) -> Result<String, Error> {
    Ok(packings(&folder.library.load()?.inspect(&folder.dir)?))
}

fn estimate(folder: &Folder, sample_bytes: u64) -> Result<String, Error> {
    let library = folder.library.load()?;
    let estimate = library.estimate(&folder.dir, sample_bytes, &mut |done, all| {
        output::show_progress(&format!("trying the formats on a sample: {} %", done * 100 / all.max(1)));
    });
    output::show_progress("");
    Ok(estimated(&estimate?))
}

fn migrate_on(folder: &Folder, format: Format) -> Result<String, Error> {
    let options = format.options();
    let table = rewrite(folder, |library| library.migrate_on(&folder.dir, options).map(|()| None))?;
    Ok(format!(
        "{table}load the plugin where the database is opened, and set these options there; without them the \
         application's next compactions write its own format again:\n  {options}\n"
    ))
}

fn migrate_off(folder: &Folder, compression: &str) -> Result<String, Error> {
    let compression = match compression {
        "zstd" => "kZSTD",
        "lz4" => "kLZ4Compression",
        "zlib" => "kZlibCompression",
        "snappy" => "kSnappyCompression",
        "none" => "kNoCompression",
        other => other,
    };
    rewrite(folder, |library| library.migrate_off(&folder.dir, compression))
}

/// Rewrites a database; its files before and after, or what was found instead of a need for that.
fn rewrite(
    folder: &Folder,
    rewrite: impl Fn(&Library) -> Result<Option<String>, Error>,
) -> Result<String, Error> {
    let library = folder.library.load()?;
    let before = library.inspect(&folder.dir)?;
    output::say(&format!("rewriting {}\n", folder.dir.display()));
    if let Some(unneeded) = watched(&folder.dir, || rewrite(library))? {
        return Ok(unneeded + "\n");
    }
    let after = library.inspect(&folder.dir)?;
    let bytes = |packings: &[Packing]| packings.iter().map(|packing| packing.file_bytes).sum::<u64>();
    let change_pct = (bytes(&after) as f64 / bytes(&before).max(1) as f64 - 1.0) * 100.0;
    Ok(format!(
        "before\n{}after\n{}on disk: {} before, {} after: {:.0} % {}\n",
        packings(&before),
        packings(&after),
        mib(bytes(&before)),
        mib(bytes(&after)),
        change_pct.abs(),
        if change_pct < 0.0 { "less" } else { "more" }
    ))
}

/// Does `work`, and meanwhile shows how much of a database is rewritten.
fn watched<R>(dir: &Path, work: impl FnOnce() -> R) -> R {
    const SHOWN_EVERY: Duration = Duration::from_millis(500);
    let before = &data_files(dir);
    let (working, is_over) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            while is_over.recv_timeout(SHOWN_EVERY) == Err(RecvTimeoutError::Timeout) {
                output::show_progress(&rewritten(before, &data_files(dir)));
            }
            output::show_progress("");
        });
        let done = work();
        drop(working);
        done
    })
}

/// The files of a database with its records, and their bytes.
fn data_files(dir: &Path) -> BTreeMap<OsString, u64> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    let is_data = |name: &OsString| {
        Path::new(name).extension().is_some_and(|extension| extension == "sst" || extension == "blob")
    };
    let named = entries.map(|entry| (entry.file_name(), entry.metadata().map_or(0, |found| found.len())));
    named.filter(|(name, _)| is_data(name)).collect()
}

/// What a migration has done so far, by the files before it and those that are there.
fn rewritten(before: &BTreeMap<OsString, u64>, now: &BTreeMap<OsString, u64>) -> String {
    let bytes = |files: &BTreeMap<OsString, u64>, were_before: bool| {
        let counted = files.iter().filter(|(name, _)| before.contains_key(*name) == were_before);
        counted.map(|(_, bytes)| bytes).sum::<u64>()
    };
    let (left, all) = (bytes(now, true), bytes(before, true));
    format!("rewriting: {} written, {} of {} left", mib(bytes(now, false)), mib(left), mib(all))
}

/// One line for each way of packing, as it is named: files of one name may have blocks of several types.
fn packings(packings: &[Packing]) -> String {
    let mut named_alike: Vec<Packing> = Vec::new();
    for packing in packings {
        let compression = named(&packing.compression);
        let is_alike =
            |row: &&mut Packing| (&row.family, &row.compression) == (&packing.family, &compression);
        match named_alike.iter_mut().find(is_alike) {
            Some(row) => {
                row.files += packing.files;
                row.file_bytes += packing.file_bytes;
                row.raw_bytes += packing.raw_bytes;
            }
            None => named_alike.push(Packing { compression, ..packing.clone() }),
        }
    }
    let rows = named_alike.into_iter().map(|row| {
        let saved = mib(row.raw_bytes.abs_diff(row.file_bytes));
        vec![
            row.family,
            row.compression,
            row.files.to_string(),
            mib(row.file_bytes),
            mib(row.raw_bytes),
            format!("{:.3}", row.file_bytes as f64 / row.raw_bytes.max(1) as f64),
            if row.raw_bytes < row.file_bytes { format!("-{saved}") } else { saved },
        ]
    });
    let titles = ["family", "compression", "files", "on disk", "raw", "disk/raw", "saved"];
    output::table(&titles, rows, 2)
}

/// One line for each format, beside the database as it is.
fn estimated(estimate: &Estimate) -> String {
    let sample_mb = estimate.sample_bytes as f64 * 1e-6;
    let rows = estimate.formats.iter().map(|format| {
        let ms = |time: std::time::Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3 / sample_mb);
        vec![
            format.name.clone(),
            mib(estimate.bytes),
            mib(format.bytes),
            format!("{:.3}", format.bytes as f64 / estimate.bytes.max(1) as f64),
            ms(format.compress),
            ms(format.read),
        ]
    });
    let titles = ["format", "now", "then", "then/now", "compress/MB", "read/MB"];
    format!(
        "{}from a sample of {}; CPU time for each MB of uncompressed blocks\n",
        output::table(&titles, rows, 1),
        mib(estimate.sample_bytes)
    )
}

/// A compression in words: who wrote it, and what.
fn named(compression: &str) -> String {
    let Some((manager, types)) = compression.split_once(';') else { return compression.to_owned() };
    let types = types.trim_end_matches(';');
    let names = (0..types.len()).step_by(2).map(|at| match types.get(at..at + 2).unwrap_or_default() {
        "01" => "snappy",
        "02" => "zlib",
        "04" => "lz4",
        "07" => "zstd",
        "80" => "token",
        "81" => "private zstd",
        "82" => "canned deflate",
        // With and without parts.
        "83" | "84" => "entropy-coded token",
        other => other,
    });
    let mut names: Vec<&str> = names.collect();
    names.dedup();
    let manager = if matches!(manager, "ZiptierV1" | "ZiptierV2") { "ziptier: " } else { "" };
    format!("{manager}{}", if names.is_empty() { "raw".to_owned() } else { names.join(", ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_named_alike_have_one_line() {
        let packing = |family: &str, compression: &str| Packing {
            family: family.to_owned(),
            compression: compression.to_owned(),
            files: 2,
            data_bytes: 1 << 20,
            raw_bytes: 4 << 20,
            file_bytes: 1 << 20,
        };
        let with_and_without_parts = ["ZiptierV2;83;", "ZiptierV2;8384;", "ZiptierV2;84;"];
        let told = packings(
            &with_and_without_parts
                .map(|types| packing("default", types))
                .into_iter()
                .chain([packing("other", "ZiptierV2;84;"), packing("default", "ZiptierV1;80;")])
                .collect::<Vec<_>>(),
        );
        let lines: Vec<Vec<_>> = told.lines().map(|line| line.split_whitespace().collect()).collect();
        let files = |family: &str, token: &str| {
            let mut lines = lines.iter().filter(|line| line[0] == family && line.contains(&token));
            let line = lines.next().expect("it has a line");
            assert!(lines.next().is_none(), "{told}");
            line.iter().find_map(|word| word.parse::<u64>().ok())
        };
        assert_eq!(files("default", "entropy-coded"), Some(6), "{told}");
        assert_eq!((files("other", "entropy-coded"), lines.len()), (Some(2), 4), "{told}");
    }

    #[test]
    fn the_progress_of_a_migration_follows_from_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, kib: usize| std::fs::write(folder.path().join(name), vec![0u8; kib << 10]).unwrap();
        write("000007.sst", 3 << 10);
        write("000008.sst", 1 << 10);
        write("LOG", 1);
        let before = data_files(folder.path());
        write("000009.sst", 512);
        assert_eq!(
            rewritten(&before, &data_files(folder.path())),
            "rewriting: 0.50 MiB written, 4.00 MiB of 4.00 MiB left"
        );
        std::fs::remove_file(folder.path().join("000007.sst")).unwrap();
        assert_eq!(
            rewritten(&before, &data_files(folder.path())),
            "rewriting: 0.50 MiB written, 1.00 MiB of 4.00 MiB left"
        );
        assert_eq!(watched(Path::new("/no/such/folder"), || 7), 7);
    }
}
