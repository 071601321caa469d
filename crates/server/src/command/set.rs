//! Writing whole values: `SET` and its options, the older forms (`SETEX` `PSETEX` `SETNX` `GETSET`), and several keys
//! at once: `MSET` `MSETNX` `ZT.BATCH`.

use super::Session;
use super::expiry::{Clock, Time, Unit};
use super::get::read_and_change;
use crate::backend::{Meta, Operation, Update};
use crate::jobs::Length;
use crate::refusal::Refusal;
use crate::request::Args;

/// When `SET` writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    Absent,
    Present,
}

/// The change to the key's expiry.
#[derive(Clone, Copy)]
enum Expiry<'a> {
    None,
    Keep,
    At(Time<'a>),
}

struct Options<'a> {
    when: When,
    expiry: Expiry<'a>,
    get: bool,
}

pub(super) fn set(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let (key, value) = (args.at(1), args.at(2));
    if args.len() == 3 {
        session.backend.put(key, value, None)?;
        session.reply.ok();
        return Ok(());
    }
    let options = parse(args)?;
    let expires_at_ms = match options.expiry {
        Expiry::At(time) => Some(time.deadline("set", 1)?),
        Expiry::None | Expiry::Keep => None,
    };
    if options.when == When::Always && !options.get && !matches!(options.expiry, Expiry::Keep) {
        session.backend.put(key, value, expires_at_ms)?;
        session.reply.ok();
        return Ok(());
    }

    let _copy = session.shared.reserve(value.len())?;
    let mut written = false;
    let mut decide = |old: Option<Meta>| {
        written = match options.when {
            When::Always => true,
            When::Absent => old.is_none(),
            When::Present => old.is_some(),
        };
        if !written {
            return Update::Keep;
        }
        let kept = old.and_then(|meta| meta.expires_at_ms);
        let expires_at_ms = if matches!(options.expiry, Expiry::Keep) { kept } else { expires_at_ms };
        Update::Put { value: value.to_vec(), expires_at_ms }
    };
    if !options.get {
        session.backend.update_meta(key, &mut decide)?;
        if written {
            session.reply.ok()
        } else {
            session.reply.null()
        }
        return Ok(());
    }
    read_and_change(session, key, decide)
}

pub(super) fn getset(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let _copy = session.shared.reserve(args.at(2).len())?;
    let put = |_| Update::Put { value: args.at(2).to_vec(), expires_at_ms: None };
    read_and_change(session, args.at(1), put)
}

pub(super) fn setnx(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let _copy = session.shared.reserve(args.at(2).len())?;
    let mut written = false;
    session.backend.update_meta(args.at(1), &mut |old| {
        written = old.is_none();
        match written {
            true => Update::Put { value: args.at(2).to_vec(), expires_at_ms: None },
            false => Update::Keep,
        }
    })?;
    session.reply.integer(written.into());
    Ok(())
}

pub(super) fn mset(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    if write(session, &puts(args, "mset")?)?.is_some() {
        session.reply.ok();
    }
    Ok(())
}

pub(super) fn msetnx(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let mut operations = puts(args, "msetnx")?;
    operations.extend(args.from(1).step_by(2).map(|key| Operation::RequireAbsent { key }));
    if let Some(written) = write(session, &operations)? {
        session.reply.integer(written.into());
    }
    Ok(())
}

/// `ZT.BATCH` of `SET key value` and `DEL key`, any number of each. If a key is named twice, the last one counts.
pub(super) fn batch(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let (mut operations, mut rest) = (Vec::new(), args.from(1));
    while let Some(verb) = rest.next() {
        let key = rest.next().ok_or(Refusal::SYNTAX)?;
        operations.push(if verb.eq_ignore_ascii_case(b"set") {
            Operation::Put { key, value: rest.next().ok_or(Refusal::SYNTAX)? }
        } else if verb.eq_ignore_ascii_case(b"del") {
            Operation::Delete { key }
        } else {
            return Err(Refusal::SYNTAX);
        });
    }
    if write(session, &operations)?.is_some() {
        session.reply.ok();
    }
    Ok(())
}

/// Writes several keys. A worker does not wait for another such write: `None` means that another thread is to run the
/// command.
fn write(session: &mut Session<'_>, operations: &[Operation<'_>]) -> Result<Option<bool>, Refusal> {
    let backend = session.backend;
    if session.request.is_some() {
        return Ok(Some(backend.write(operations)?));
    }
    let written = backend.write_if_free(operations)?;
    session.client.deferred = written.is_none().then_some(Length::Long);
    Ok(written)
}

/// The writes of pairs of arguments. If a key is named twice, the last pair counts.
fn puts<'a>(args: &Args<'a>, command: &str) -> Result<Vec<Operation<'a>>, Refusal> {
    if args.len().is_multiple_of(2) {
        return Err(Refusal::wrong_arity(command));
    }
    let pairs = args.from(1).step_by(2).zip(args.from(2).step_by(2));
    Ok(pairs.map(|(key, value)| Operation::Put { key, value }).collect())
}

pub(super) fn setex(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    set_for(session, args, "setex", Unit::Seconds)
}

pub(super) fn psetex(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    set_for(session, args, "psetex", Unit::Milliseconds)
}

fn set_for(session: &mut Session<'_>, args: &Args<'_>, command: &str, unit: Unit) -> Result<(), Refusal> {
    let expires_at_ms = Time { text: args.at(2), unit, clock: Clock::FromNow }.deadline(command, 1)?;
    session.backend.put(args.at(1), args.at(3), Some(expires_at_ms))?;
    session.reply.ok();
    Ok(())
}

fn parse<'a>(args: &Args<'a>) -> Result<Options<'a>, Refusal> {
    let mut options = Options { when: When::Always, expiry: Expiry::None, get: false };
    let mut rest = args.from(3);
    while let Some(option) = rest.next() {
        if let Some((unit, clock)) = Time::option(option) {
            // The same option may come twice; the last one counts. A different option is an error.
            match options.expiry {
                Expiry::None => {}
                Expiry::At(time) if (time.unit, time.clock) == (unit, clock) => {}
                _ => return Err(Refusal::SYNTAX),
            }
            options.expiry = Expiry::At(Time { text: rest.next().ok_or(Refusal::SYNTAX)?, unit, clock });
            continue;
        }
        let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
        match options {
            _ if is(b"GET") => options.get = true,
            Options { when: When::Always | When::Absent, .. } if is(b"NX") => options.when = When::Absent,
            Options { when: When::Always | When::Present, .. } if is(b"XX") => options.when = When::Present,
            Options { expiry: Expiry::None | Expiry::Keep, .. } if is(b"KEEPTTL") => {
                options.expiry = Expiry::Keep;
            }
            _ => return Err(Refusal::SYNTAX),
        }
    }
    Ok(options)
}
