//! From one key to another: `RENAME` `RENAMENX` `COPY`.

use super::{APART_BYTES, Session};
use crate::backend::{Need, Transfer, Transferred};
use crate::integer::strict_i64;
use crate::jobs::Length;
use crate::refusal::Refusal;
use crate::request::Args;

pub(super) fn rename(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    match transfer(session, args, Transfer { keep_source: false, replace: true })? {
        Some(Transferred::NoSource) => Err(Refusal::NO_SUCH_KEY),
        Some(_) => {
            session.reply.ok();
            Ok(())
        }
        None => Ok(()),
    }
}

pub(super) fn renamenx(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let outcome = transfer(session, args, Transfer { keep_source: false, replace: false })?;
    if outcome == Some(Transferred::NoSource) {
        return Err(Refusal::NO_SUCH_KEY);
    }
    answer(session, outcome);
    Ok(())
}

/// `COPY source target [DB 0] [REPLACE]`
pub(super) fn copy(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let mut replace = false;
    let mut rest = args.from(3);
    while let Some(option) = rest.next() {
        if option.eq_ignore_ascii_case(b"replace") {
            replace = true;
        } else if option.eq_ignore_ascii_case(b"db") && rest.len() >= 1 {
            let index = rest.next().and_then(strict_i64).ok_or(Refusal::NOT_INTEGER)?;
            if i32::try_from(index).is_err() {
                return Err(Refusal::NOT_INT);
            }
            if index != 0 {
                return Err(Refusal::DB_INDEX);
            }
        } else {
            return Err(Refusal::SYNTAX);
        }
    }
    if args.at(1) == args.at(2) {
        return Err(Refusal::fixed("ERR source and destination objects are the same"));
    }
    let outcome = transfer(session, args, Transfer { keep_source: true, replace })?;
    if let Some(outcome) = outcome {
        session.counters.note_lookup(outcome != Transferred::NoSource);
    }
    answer(session, outcome);
    Ok(())
}

fn answer(session: &mut Session<'_>, outcome: Option<Transferred>) {
    if let Some(outcome) = outcome {
        session.reply.integer((outcome == Transferred::Done).into());
    }
}

/// Runs the transfer and returns its result. `None` means that another thread is to run the command. A worker waits for
/// no other write of several keys, and reads no more than other commands do. Memory for the bytes read, and for the
/// log's copy, is reserved before.
fn transfer(
    session: &mut Session<'_>,
    args: &Args<'_>,
    how: Transfer,
) -> Result<Option<Transferred>, Refusal> {
    let (source, target) = (args.at(1), args.at(2));
    let shared = session.shared;
    if source == target {
        let exists = session.backend.meta(source)?.is_some();
        return Ok(Some(if exists { Transferred::TargetExists } else { Transferred::NoSource }));
    }
    let (is_apart, mut deferred) = (session.request.is_some(), false);
    let (mut room, mut refused) = (None, Ok(()));
    let mut worked_bytes = 0;
    let copies = 1 + usize::from(shared.backend.holds_replies());
    let outcome = session.backend.transfer(source, target, how, &mut |need| {
        let len = match need {
            Need::Wait => 0,
            Need::Bytes(len) => usize::try_from(len).unwrap_or(usize::MAX),
        };
        deferred = !is_apart && (need == Need::Wait || len > APART_BYTES);
        if deferred || len == 0 {
            return !deferred;
        }
        worked_bytes = len as u64;
        // One that was read before is gone.
        room = None;
        match shared.reserve(len.saturating_mul(copies)) {
            Ok(promised) => room = promised,
            Err(refusal) => refused = Err(refusal),
        }
        refused.is_ok()
    });
    session.client.worked_bytes += worked_bytes;
    let outcome = outcome?;
    session.client.deferred = deferred.then_some(Length::Long);
    refused?;
    Ok(Some(outcome).filter(|_| !deferred))
}
