//! `SHUTDOWN`.

use super::Session;
use crate::refusal::Refusal;
use crate::request::Args;

/// Stops the server. There is nothing to save, and a client that succeeds sees its connection close.
pub(super) fn shutdown(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    for option in args.from(1) {
        match option.to_ascii_lowercase().as_slice() {
            b"nosave" | b"save" | b"now" | b"force" => {}
            b"abort" if args.len() == 2 => return Err(Refusal::fixed("ERR No shutdown in progress.")),
            _ => return Err(Refusal::SYNTAX),
        }
    }
    session.client.closing = true;
    session.shared.stop();
    Ok(())
}
