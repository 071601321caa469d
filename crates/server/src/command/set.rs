//! `SET` and its options; `SETEX` and `PSETEX`, which came before them.

use super::Session;
use super::expiry::{Clock, Unit, deadline};
use crate::backend::Update;
use crate::refusal::Refusal;
use crate::request::Args;

/// When `SET` writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    Absent,
    Present,
}

/// What becomes of the key's expiry.
#[derive(Clone, Copy)]
enum Expiry<'a> {
    None,
    Keep,
    At(&'a [u8], Unit, Clock),
}

struct Options<'a> {
    when: When,
    expiry: Expiry<'a>,
    get: bool,
}

pub(super) fn set(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let (key, value) = (args.at(1), args.at(2));
    if args.len() == 3 {
        session.shared.backend.put(key, value, None)?;
        session.reply.ok();
        return Ok(());
    }
    let options = parse(args)?;
    let expires_at_ms = match options.expiry {
        Expiry::At(text, unit, clock) => Some(deadline("set", text, unit, clock, 1)?),
        Expiry::None | Expiry::Keep => None,
    };
    if options.when == When::Always && !options.get && !matches!(options.expiry, Expiry::Keep) {
        session.shared.backend.put(key, value, expires_at_ms)?;
        session.reply.ok();
        return Ok(());
    }

    let mut written = false;
    // The old value waits in the session's scratch buffer, if GET wants it.
    let mut old_found = false;
    session.shared.backend.update(key, &mut |old| {
        old_found = old.is_some();
        session.value.clear();
        if options.get
            && let Some((old, _)) = old
        {
            session.value.extend_from_slice(old);
        }
        written = match options.when {
            When::Always => true,
            When::Absent => old.is_none(),
            When::Present => old.is_some(),
        };
        if !written {
            return Update::Keep;
        }
        let kept = || old.and_then(|(_, meta)| meta.expires_at_ms);
        let expires_at_ms = if matches!(options.expiry, Expiry::Keep) { kept() } else { expires_at_ms };
        Update::Put { value: value.to_vec(), expires_at_ms }
    })?;
    match (options.get, old_found, written) {
        (true, true, _) => session.reply.bulk(session.value),
        (true, false, _) | (false, _, false) => session.reply.null(),
        (false, _, true) => session.reply.ok(),
    }
    Ok(())
}

pub(super) fn setex(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    set_for(session, args, "setex", Unit::Seconds)
}

pub(super) fn psetex(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    set_for(session, args, "psetex", Unit::Milliseconds)
}

fn set_for(session: &mut Session<'_>, args: &Args<'_>, command: &str, unit: Unit) -> Result<(), Refusal> {
    let expires_at_ms = deadline(command, args.at(2), unit, Clock::FromNow, 1)?;
    session.shared.backend.put(args.at(1), args.at(3), Some(expires_at_ms))?;
    session.reply.ok();
    Ok(())
}

fn parse<'a>(args: &Args<'a>) -> Result<Options<'a>, Refusal> {
    let mut options = Options { when: When::Always, expiry: Expiry::None, get: false };
    let mut rest = args.from(3);
    while let Some(option) = rest.next() {
        let mut upper = [0; 8];
        let Some(name) = upper.get_mut(..option.len()) else { return Err(Refusal::SYNTAX) };
        name.copy_from_slice(option);
        name.make_ascii_uppercase();
        let (unit, clock) = match &*name {
            b"NX" if options.when != When::Present => {
                options.when = When::Absent;
                continue;
            }
            b"XX" if options.when != When::Absent => {
                options.when = When::Present;
                continue;
            }
            b"GET" => {
                options.get = true;
                continue;
            }
            b"KEEPTTL" if !matches!(options.expiry, Expiry::At(..)) => {
                options.expiry = Expiry::Keep;
                continue;
            }
            b"EX" => (Unit::Seconds, Clock::FromNow),
            b"PX" => (Unit::Milliseconds, Clock::FromNow),
            b"EXAT" => (Unit::Seconds, Clock::Unix),
            b"PXAT" => (Unit::Milliseconds, Clock::Unix),
            _ => return Err(Refusal::SYNTAX),
        };
        // The same option may come twice, and then the last one counts; another one may not.
        match options.expiry {
            Expiry::None => {}
            Expiry::At(_, earlier, from) if (earlier, from) == (unit, clock) => {}
            _ => return Err(Refusal::SYNTAX),
        }
        let time = rest.next().ok_or(Refusal::SYNTAX)?;
        options.expiry = Expiry::At(time, unit, clock);
    }
    Ok(options)
}
