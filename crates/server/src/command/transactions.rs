//! `MULTI` `EXEC` `DISCARD` `WATCH` `UNWATCH`. There are no transactions, and no client may believe that it has one.
//!
//! The server refuses `MULTI`. But clients send `MULTI`, their commands and `EXEC` in one go and read only the last
//! reply. So after `MULTI` no command runs until the client leaves that state, and `EXEC` reports it as Redis does.

use super::{Client, Session};
use crate::refusal::Refusal;
use crate::request::Args;

pub(super) const NOT_INSIDE: Refusal = Refusal::fixed("ERR Command not allowed inside a transaction");
pub(super) const NOT_RUN: Refusal = Refusal::fixed(
    "ERR not run: MULTI came before, and this server has no transactions; send DISCARD, EXEC or RESET to go on",
);

/// Whether the command called `name` runs behind `MULTI`.
pub(super) fn may_run(name: &str) -> bool {
    matches!(name, "multi" | "exec" | "discard" | "watch" | "quit" | "reset")
}

pub(super) fn multi(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    if session.client.in_transaction {
        return Err(Refusal::fixed("ERR MULTI calls can not be nested"));
    }
    session.client.in_transaction = true;
    Err(Refusal::fixed(
        "ERR MULTI is not supported: this server has no transactions; nothing will run until DISCARD, EXEC or RESET",
    ))
}

/// Nothing ran, so nothing is left to undo.
pub(super) fn exec(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    match leave(session.client) {
        true => Err(Refusal::fixed("EXECABORT Transaction discarded because of previous errors.")),
        false => Err(Refusal::fixed("ERR EXEC without MULTI")),
    }
}

pub(super) fn discard(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    if !leave(session.client) {
        return Err(Refusal::fixed("ERR DISCARD without MULTI"));
    }
    session.reply.ok();
    Ok(())
}

pub(super) fn watch(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    Err(Refusal::fixed(match session.client.in_transaction {
        true => "ERR WATCH inside MULTI is not allowed",
        false => "ERR WATCH is not supported: this server has no transactions",
    }))
}

/// No key is ever watched.
pub(super) fn unwatch(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    session.reply.ok();
    Ok(())
}

/// The answer of `EXEC` when `EXEC` itself is refused. This ends the state, too.
pub(super) fn abort(client: &mut Client, refusal: &Refusal) -> Refusal {
    leave(client);
    let words = refusal.0.strip_prefix(b"ERR ").unwrap_or(&refusal.0);
    Refusal::quoting("EXECABORT Transaction discarded because of: ", words, "")
}

/// Ends the state, and returns whether the client was in it.
fn leave(client: &mut Client) -> bool {
    std::mem::take(&mut client.in_transaction)
}
