//! `ziptier rocksdb`: a database of RocksDB's, without its application.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ziptier_rocksdb::host::{Error, Packing};

use crate::output;
use crate::rocksdb_target::LibraryArgument;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say how the files of a database are packed, and what that saves; it may be in use
    Inspect(Folder),
    /// Rewrite a database that nobody has open so that it needs no plugin
    MigrateOff {
        #[command(flatten)]
        folder: Folder,

        /// RocksDB's own compression, by its name in options, where the private format was asked for
        #[arg(long, value_name = "NAME", default_value = "kZSTD")]
        compression: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Folder {
    /// The folder of the database
    dir: PathBuf,

    #[command(flatten)]
    library: LibraryArgument,
}

pub(crate) fn run(command: &Command) -> ExitCode {
    let done = match command {
        Command::Inspect(folder) => inspect(folder),
        Command::MigrateOff { folder, compression } => migrate_off(folder, compression),
    };
    match done {
        Ok(report) => {
            output::print(&report);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("ziptier: {error}");
            ExitCode::FAILURE
        }
    }
}

fn inspect(folder: &Folder) -> Result<String, Error> {
    Ok(table(&folder.library.load()?.inspect(&folder.dir)?))
}

fn migrate_off(folder: &Folder, compression: &str) -> Result<String, Error> {
    let library = folder.library.load()?;
    let before = library.inspect(&folder.dir)?;
    eprintln!("rewriting {}", folder.dir.display());
    library.migrate_off(&folder.dir, compression)?;
    Ok(format!("before\n{}after\n{}", table(&before), table(&library.inspect(&folder.dir)?)))
}

/// One line for each way of packing.
fn table(packings: &[Packing]) -> String {
    let mut text = format!(
        "{:<16} {:<28} {:>7} {:>12} {:>12} {:>9} {:>12}\n",
        "family", "compression", "files", "data", "raw", "data/raw", "saved"
    );
    for packing in packings {
        let mib = |bytes: f64| format!("{:.1} MiB", bytes / f64::from(1 << 20));
        let (data_bytes, raw_bytes) = (packing.data_bytes as f64, packing.raw_bytes as f64);
        text += &format!(
            "{:<16} {:<28} {:>7} {:>12} {:>12} {:>9.3} {:>12}\n",
            packing.family,
            named(&packing.compression),
            packing.files,
            mib(data_bytes),
            mib(raw_bytes),
            data_bytes / raw_bytes.max(1.0),
            mib(raw_bytes - data_bytes),
        );
    }
    text
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
        other => other,
    });
    let names: Vec<&str> = names.collect();
    let manager = if manager == "ZiptierV1" { "ziptier: " } else { "" };
    format!("{manager}{}", if names.is_empty() { "raw".to_owned() } else { names.join(", ") })
}
