//! `ziptier mbwu`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ziptier_eval::mbwu::{Comparison, EXAMPLE, render};
use ziptier_eval::{Error, Format, Inputs};

use crate::output;

/// Media-based work units.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print a file with comments to begin with: what the slides of the method's authors say
    Example,
    /// Divide price, energy and volume of platforms by their media-based work units
    Compare(CompareArguments),
}

/// The arguments of `ziptier mbwu compare`.
#[derive(Args)]
pub(crate) struct CompareArguments {
    /// Files of a unit and its platforms. Several end with a matrix of the cheapest platforms
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Format of the results: table, tsv or json
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

/// Runs the command.
pub(crate) fn run(command: &Command) -> ExitCode {
    output::end(text(command))
}

fn text(command: &Command) -> Result<String, Error> {
    match command {
        Command::Example => Ok(EXAMPLE.into()),
        Command::Compare(arguments) => {
            let read = arguments.files.iter().map(|file| Comparison::read(file));
            Ok(render(&read.collect::<Result<Vec<_>, _>>()?, arguments.format))
        }
    }
}
