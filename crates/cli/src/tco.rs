//! `ziptier tco`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use ziptier_eval::tco::{EXAMPLES, Sheet, render};
use ziptier_eval::{Error, Format, Inputs};

use crate::output;

const AFTER_HELP: &str = "\
Every number of FILE may have an error, such as { value = 100, error = 5 }. The results say how sure a saving is, and \
which numbers matter most.

Examples:
  ziptier tco --example servers >servers.toml
  ziptier tco servers.toml";

/// The arguments of `ziptier tco`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// File of the work, the site and the designs that are compared
    #[arg(value_name = "FILE", required_unless_present = "example")]
    file: Option<PathBuf>,
    /// Print a file to begin with: servers for RocksDB with zstd and with ziptier, or what two papers say of their
    /// hardware
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "file",
        value_parser = PossibleValuesParser::new(EXAMPLES.map(|(name, _)| name))
    )]
    example: Option<String>,
    /// Format of the results: table, tsv or json
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

/// Runs the command.
pub(crate) fn tco(arguments: &Arguments) -> ExitCode {
    output::end(text(arguments))
}

fn text(arguments: &Arguments) -> Result<String, Error> {
    if let Some((_, text)) = EXAMPLES.iter().find(|(name, _)| Some(*name) == arguments.example.as_deref()) {
        return Ok((*text).into());
    }
    let file = arguments.file.clone().unwrap_or_default();
    let (sheet, table) = Sheet::read(&file)?;
    Ok(render(&sheet, &table, arguments.format))
}
