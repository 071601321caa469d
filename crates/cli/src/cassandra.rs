//! `ziptier cassandra`: a table of Cassandra's, without its node.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use ziptier::ByteSize;
use ziptier_cassandra::{Error, Estimate, Table};

use crate::output::{self, mib};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Estimate the size of a table with other compressors and lengths of chunks. The command only reads the table's
    /// files, and the node may run
    Estimate {
        /// Folder of the table, such as /var/lib/cassandra/data/shop/orders-1b255f4def2540a60000000000000000
        dir: PathBuf,

        /// Bytes of rows that the compressors are tried on: 32MiB, 1GB
        #[arg(long, value_name = "BYTES", default_value = "32MiB")]
        sample: ByteSize,
    },
}

pub(crate) fn run(command: &Command) -> ExitCode {
    let Command::Estimate { dir, sample } = command;
    match estimate(dir, sample.0) {
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

fn estimate(dir: &std::path::Path, sample_bytes: u64) -> Result<String, Error> {
    let table = Table::open(dir)?;
    let estimate = Estimate::of(&table, sample_bytes, |done, all| {
        output::show_progress(&format!("trying the compressors on a sample: {} %", done * 100 / all.max(1)));
    });
    output::show_progress("");
    Ok(estimated(&table, &estimate?))
}

/// One line for each compressor and length of chunks, beside the table as it is.
fn estimated(table: &Table, estimate: &Estimate) -> String {
    let sample_mb = estimate.sample_bytes as f64 * 1e-6;
    let rows = estimate.formats.iter().map(|format| {
        let ms = |time: std::time::Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3 / sample_mb);
        vec![
            format.name.clone(),
            format!("{} KiB", format.chunk_bytes >> 10),
            mib(format.bytes),
            format!("{:.3}", format.bytes as f64 / estimate.bytes.max(1) as f64),
            ms(format.compress),
            ms(format.decompress),
        ]
    });
    let titles = ["compressor", "chunks", "then", "then/now", "compress/MB", "read/MB"];
    format!(
        "{} now, in {}; rows of {} before compression\n{}from a sample of {}; CPU time for each MB of rows\n",
        mib(estimate.bytes),
        output::count(table.ss_tables().len() as u64, "SSTable", "SSTables"),
        mib(table.raw_bytes()),
        output::table(&titles, rows, 1),
        mib(estimate.sample_bytes)
    )
}
