//! Ends a command that measures when a signal comes. The command keeps what was measured, and removes its own files.

use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use ziptier_eval::{Error, interrupt};

/// Has a signal kill the run and the server that are under way, and all that follow. Then the command fails by itself.
/// Work of this process itself is not ended.
pub(crate) fn watch() -> Result<(), Error> {
    const PAUSE: Duration = Duration::from_millis(20);
    let failed = |source| Error::Io { action: "watch the signals of", path: "ziptier".into(), source };
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            loop {
                interrupt();
                thread::sleep(PAUSE);
            }
        }
    });
    Ok(())
}
