//! Prints the results of commands.

use std::io::{ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use ziptier_eval::{Error, in_place};

/// Prints `text` as it is. A reader that closes the pipe early, as `head` does, is no failure. Any other failure ends
/// the command.
pub(crate) fn print(text: &str) {
    is_printed(text);
}

/// Prints likewise, and tells whether the reader is still there.
pub(crate) fn is_printed(text: &str) -> bool {
    let mut output = std::io::stdout();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::BrokenPipe => false,
        Err(error) => {
            say(&format!("error: cannot print the results: {error}\n"));
            std::process::exit(1);
        }
    }
}

/// Ends a command: prints its results, or says why there are none.
pub(crate) fn end(done: Result<String, Error>) -> ExitCode {
    match done {
        Ok(text) => {
            print(&text);
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

/// Ends a command that failed.
pub(crate) fn fail(error: &Error) -> ExitCode {
    say(&format!("error: {error}\n"));
    ExitCode::from(error.exit_status())
}

/// Ends a command that cannot work with its input.
pub(crate) fn refuse(error: &dyn std::error::Error) -> ExitCode {
    say(&format!("error: {error}\n"));
    ExitCode::from(2)
}

/// Writes `text` to standard error as it is. Work goes on if nobody reads it any more, where `eprint!` would panic.
pub(crate) fn say(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Shows one line on a terminal, in place of the line before; nothing anywhere else. An empty line clears it.
pub(crate) fn show_progress(line: &str) {
    let mut terminal = std::io::stderr();
    if terminal.is_terminal() {
        // Progress that cannot be shown is no reason to stop.
        let _ = write!(terminal, "{}", in_place(line)).and_then(|()| terminal.flush());
    }
}

/// A number and what it counts: `1 leaf`, `2 leaves`.
pub(crate) fn count(number: u64, one: &str, more: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { more })
}

/// Bytes in MiB, with two decimals where these are few.
pub(crate) fn mib(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    format!("{mib:.*} MiB", if mib < 10.0 { 2 } else { 1 })
}

/// Rows under titles, as wide as they need to be. The first `names` columns are names, which begin at the left; the
/// others are figures.
pub(crate) fn table(titles: &[&str], rows: impl IntoIterator<Item = Vec<String>>, names: usize) -> String {
    let titles = titles.iter().map(|title| (*title).to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(titles).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| {
            if at < names { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
