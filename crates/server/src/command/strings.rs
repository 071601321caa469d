//! Strings: `GET` `MGET` `MSET` `INCR` `DECR` `INCRBY` `DECRBY` `APPEND` `STRLEN`.

use super::Session;
use crate::backend::{Operation, Update};
use crate::integer::strict_i64;
use crate::refusal::Refusal;
use crate::request::{Args, BULK_BYTES_MAX};
use crate::streaming::{Found, PIECE_BYTES, Streaming, lookup};

pub(super) fn get(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    match lookup(&*session.shared.backend, args.at(1), session.value)? {
        Found::Small => {
            session.counters.hits.add(1);
            session.reply.bulk(session.value);
        }
        Found::Large(reader) => {
            session.counters.hits.add(1);
            session.client.streaming = Some(Box::new(Streaming::value(reader, session.reply)));
        }
        Found::Nothing => {
            session.counters.misses.add(1);
            session.reply.null();
        }
    }
    Ok(())
}

/// Keys of one `MGET` that are looked up together.
const GROUP: usize = 32;

pub(super) fn mget(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let Session { shared, counters, client, reply, .. } = session;
    let count = args.len() - 1;
    reply.array(count);
    let mut done = 0;
    let mut written = 0;
    while done < count && written < PIECE_BYTES {
        let mut keys = [&b""[..]; GROUP];
        let group = GROUP.min(count - done);
        for (slot, key) in keys.iter_mut().zip(args.from(1 + done)) {
            *slot = key;
        }
        // A value to be sent in pieces ends the group: what comes after it waits.
        let mut answered = 0;
        let mut large = false;
        shared.backend.multi_get(&keys[..group], PIECE_BYTES, &mut |found| {
            if large {
                return;
            }
            match found {
                Ok(Some((meta, value))) => {
                    large = meta.len > PIECE_BYTES as u64;
                    if large {
                        return;
                    }
                    counters.hits.add(1);
                    reply.bulk(value);
                    written += value.len();
                }
                Ok(None) => {
                    counters.misses.add(1);
                    reply.null();
                }
                Err(error) => reply.error(&error.into()),
            }
            answered += 1;
        });
        done += answered;
        if large {
            break;
        }
    }
    if done < count {
        client.streaming = Some(Box::new(Streaming::keys(args.from(1 + done))));
    }
    Ok(())
}

pub(super) fn mset(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    if args.len().is_multiple_of(2) {
        return Err(Refusal::wrong_arity("mset"));
    }
    let operations: Vec<_> = (1..args.len())
        .step_by(2)
        .map(|index| Operation::Put { key: args.at(index), value: args.at(index + 1) })
        .collect();
    session.shared.backend.write(&operations)?;
    session.reply.ok();
    Ok(())
}

pub(super) fn incr(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    add(session, args.at(1), 1)
}

pub(super) fn decr(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    add(session, args.at(1), -1)
}

pub(super) fn incrby(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let increment = strict_i64(args.at(2)).ok_or(Refusal::NOT_INTEGER)?;
    add(session, args.at(1), increment)
}

pub(super) fn decrby(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let decrement = strict_i64(args.at(2)).ok_or(Refusal::NOT_INTEGER)?;
    let increment = decrement.checked_neg().ok_or(Refusal::fixed("ERR decrement would overflow"))?;
    add(session, args.at(1), increment)
}

/// Adds to the integer that a key's value spells; a missing key counts as 0.
fn add(session: &mut Session<'_>, key: &[u8], increment: i64) -> Result<(), Refusal> {
    let mut sum = Ok(0);
    session.shared.backend.update(key, &mut |old| {
        let (number, expires_at_ms) = match old {
            Some((value, meta)) => (strict_i64(value).ok_or(Refusal::NOT_INTEGER), meta.expires_at_ms),
            None => (Ok(0), None),
        };
        sum = number.and_then(|number| number.checked_add(increment).ok_or(Refusal::INCREMENT_OVERFLOW));
        match &sum {
            Ok(sum) => {
                let mut digits = itoa::Buffer::new();
                Update::Put { value: digits.format(*sum).as_bytes().to_vec(), expires_at_ms }
            }
            Err(_) => Update::Keep,
        }
    })?;
    session.reply.integer(sum?);
    Ok(())
}

pub(super) fn append(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let (key, tail) = (args.at(1), args.at(2));
    let mut len = Ok(0);
    session.shared.backend.update(key, &mut |old| {
        let (head, expires_at_ms) = old.map_or((&b""[..], None), |(value, meta)| (value, meta.expires_at_ms));
        if head.len() + tail.len() > BULK_BYTES_MAX {
            len = Err(Refusal::STRING_TOO_LONG);
            return Update::Keep;
        }
        len = Ok(head.len() + tail.len());
        Update::Put { value: [head, tail].concat(), expires_at_ms }
    })?;
    session.reply.integer(len? as i64);
    Ok(())
}

pub(super) fn strlen(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let meta = session.shared.backend.meta(args.at(1))?;
    session.reply.integer(meta.map_or(0, |meta| meta.len as i64));
    Ok(())
}
