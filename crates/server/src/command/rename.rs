//! From one key to another: `RENAME` `RENAMENX` `COPY`.

use super::Session;
use crate::backend::{Transfer, Transferred};
use crate::integer::strict_i64;
use crate::refusal::Refusal;
use crate::request::Args;

pub(super) fn rename(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    match transfer(session, args, Transfer { keep_source: false, replace: true })? {
        Transferred::NoSource => return Err(Refusal::NO_SUCH_KEY),
        Transferred::Done | Transferred::TargetExists => session.reply.ok(),
    }
    Ok(())
}

pub(super) fn renamenx(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let outcome = transfer(session, args, Transfer { keep_source: false, replace: false })?;
    if outcome == Transferred::NoSource {
        return Err(Refusal::NO_SUCH_KEY);
    }
    session.reply.integer((outcome == Transferred::Done).into());
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
    session.reply.integer((outcome == Transferred::Done).into());
    Ok(())
}

fn transfer(session: &mut Session<'_>, args: &Args<'_>, how: Transfer) -> Result<Transferred, Refusal> {
    let (source, target) = (args.at(1), args.at(2));
    let backend = &session.shared.backend;
    if source == target {
        let exists = backend.meta(source)?.is_some();
        return Ok(if exists { Transferred::TargetExists } else { Transferred::NoSource });
    }
    Ok(backend.transfer(source, target, how)?)
}
