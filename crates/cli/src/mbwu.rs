//! `ziptier mbwu`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use ziptier_eval::mbwu::{EXAMPLE, Evaluation, Means, Measured, init, read, render};
use ziptier_eval::{Error, Format, or_interrupted};

use crate::{bench, interruption, output, program, report};

/// Media-based work units.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Make a folder with files to begin with: a unit, and two platforms
    Init {
        /// The new folder
        folder: PathBuf,
    },
    /// Construct the unit of a folder, measure its platforms, and compare them. What was measured before is kept, so
    /// that a run that was interrupted goes on. Ends with a page of the results, FOLDER/report.html
    Run(MeasureArguments),
    /// Construct the unit alone: the throughput of a platform that nothing but the medium limits
    Construct(ConstructArguments),
    /// Measure platforms without the unit, such as on another machine, to which the folder was copied
    Measure(MeasureArguments),
    /// Print a file for compare, to put in numbers that were measured elsewhere. It has those of the method's authors
    Example,
    /// Compare what is there: price, energy and volume of platforms for each media-based work unit
    Compare(CompareArguments),
}

/// The arguments of `ziptier mbwu construct`.
#[derive(Args)]
pub(crate) struct ConstructArguments {
    /// The folder that `ziptier mbwu init` made
    folder: PathBuf,
    #[command(flatten)]
    foreign: bench::Foreign,
}

/// The arguments of the commands that measure platforms.
#[derive(Args)]
pub(crate) struct MeasureArguments {
    /// The folder that `ziptier mbwu init` made
    folder: PathBuf,
    /// Platforms to measure, by the names of their files without .toml [default: all]
    #[arg(value_name = "PLATFORM")]
    platforms: Vec<String>,
    #[command(flatten)]
    foreign: bench::Foreign,
}

/// The arguments of `ziptier mbwu compare`.
#[derive(Args)]
pub(crate) struct CompareArguments {
    /// Folders of evaluations, and files of a unit and its platforms. Several end with a matrix of the cheapest
    /// platforms
    #[arg(value_name = "FOLDER|FILE", required = true)]
    evaluations: Vec<PathBuf>,
    /// Format of the results: table, tsv or json
    #[arg(long, default_value = "table", value_name = "FORMAT")]
    format: Format,
}

/// Runs the command.
pub(crate) fn run(command: &Command) -> ExitCode {
    const KEPT: &str = "what was measured is kept, and the same command goes on from there";
    output::end(text(command).map_err(|error| or_interrupted(error, KEPT)))
}

fn text(command: &Command) -> Result<String, Error> {
    match command {
        Command::Init { folder } => {
            let made = init(folder)?.iter().map(|path| format!("{}\n", path.display())).collect::<String>();
            Ok(format!("{made}edit these, then: ziptier mbwu run {}\n", folder.display()))
        }
        Command::Run(arguments) => {
            let evaluation = Evaluation::open(&arguments.folder)?;
            measure(&evaluation, &arguments.foreign, true, &asked(arguments, &evaluation))?;
            let compared = render(&[evaluation.comparison()?], Format::Table);
            output::print(&format!("\n{compared}\n"));
            let folder = &arguments.folder;
            report::write(std::slice::from_ref(folder), &folder.join("report.html"))
        }
        Command::Construct(arguments) => {
            measure(&Evaluation::open(&arguments.folder)?, &arguments.foreign, true, &[])?;
            Ok(String::new())
        }
        Command::Measure(arguments) => {
            let evaluation = Evaluation::open(&arguments.folder)?;
            measure(&evaluation, &arguments.foreign, false, &asked(arguments, &evaluation))?;
            Ok(String::new())
        }
        Command::Example => Ok(EXAMPLE.into()),
        Command::Compare(arguments) => {
            let read = arguments.evaluations.iter().map(|path| read(path));
            Ok(render(&read.collect::<Result<Vec<_>, _>>()?, arguments.format))
        }
    }
}

/// The platforms that are named, or all.
fn asked<'a>(arguments: &'a MeasureArguments, evaluation: &'a Evaluation) -> Vec<&'a str> {
    match arguments.platforms.as_slice() {
        [] => evaluation.platforms(),
        named => named.iter().map(String::as_str).collect(),
    }
}

/// Measures the unit if asked for, and these platforms. Tells each result as soon as it is there.
fn measure(
    evaluation: &Evaluation,
    foreign: &bench::Foreign,
    unit: bool,
    platforms: &[&str],
) -> Result<(), Error> {
    interruption::watch()?;
    let (program, launcher) = (program::program(), bench::launcher(foreign)?);
    let spec = |options: &[String]| bench::one_run(options, foreign);
    let means = Means { spec: &spec, launcher: &launcher, program: &program };
    let tell = |measured: Measured| output::print(&measured.to_text());
    // A folder that is missing is told before hours of work, and so is a wrong option.
    evaluation.check(unit, platforms)?;
    evaluation.check_options(unit, platforms, &means)?;
    if let Some(removed) = evaluation.remove_remains() {
        output::say(&format!("{removed}\n"));
    }
    if unit {
        tell(evaluation.construct(&means)?);
    }
    for platform in platforms {
        tell(evaluation.measure(platform, &means)?);
    }
    Ok(())
}
