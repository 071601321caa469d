//! `ziptier report`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use ziptier_eval::{Error, report};
use ziptier_findings::shell_word;

use crate::output;

const AFTER_HELP: &str = "\
The page needs no network, no JavaScript and no other file. Beside FILE.html the same figures lie as FILE.json and \
FILE.tsv.

Examples:
  ziptier bench --target store,btreemap --workload read_only --out results
  ziptier report results --out results/report.html
  ziptier report evaluation servers.toml --out report.html";

/// The arguments of `ziptier report`.
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Arguments {
    /// Folders of ziptier bench --out and of ziptier mbwu run, and files of ziptier tco and ziptier mbwu compare; each
    /// becomes a section
    #[arg(value_name = "DIR|FILE", required = true)]
    inputs: Vec<PathBuf>,
    /// The page; its name ends with .html
    #[arg(long, value_name = "FILE.html")]
    out: PathBuf,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    output::end(write(&arguments.inputs, &arguments.out))
}

/// Writes a page, and says where it lies.
pub(crate) fn write(inputs: &[PathBuf], out: &Path) -> Result<String, Error> {
    let word = |path: &Path| shell_word(&path.to_string_lossy());
    let words: Vec<String> = inputs.iter().map(|input| word(input)).collect();
    let command = format!("ziptier report {} --out {}", words.join(" "), word(out));
    let written = report::report(inputs, out, &command)?;
    Ok(written.map(|path| format!("written to {}\n", path.display())).concat())
}
