//! Where commands print what they found.

use std::io::{ErrorKind, Write};

/// Prints `text` as it is. Whoever reads may go away early, as `head` does, which is no failure; any other ends
/// the command.
pub(crate) fn print(text: &str) {
    let mut output = std::io::stdout();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("error: cannot print the results: {error}");
            std::process::exit(1);
        }
        _ => {}
    }
}
