//! Reading whole values: `GET` `MGET` `STRLEN`; reading and changing at once: `GETEX` `GETDEL`.

use super::expiry::{Time, has_passed};
use super::{SHORT_BYTES, Session};
use crate::backend::{BackendError, Meta, Old, Update, ValueReader};
use crate::jobs::Length;
use crate::refusal::Refusal;
use crate::request::Args;
use crate::streaming::{Found, PIECE_BYTES, Streaming, answer_keys, lookup};

pub(super) fn get(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let found = lookup(session.backend, args.at(1), session.value)?;
    session.counters.note_lookup(!matches!(found, Found::Nothing));
    match found {
        Found::Small => session.reply.bulk(session.value),
        Found::Large(reader) => {
            session.shared.check_room_for(&session.client.info, &*reader)?;
            session.client.streaming = Some(Box::new(Streaming::value(reader, session.reply)));
        }
        Found::Nothing => session.reply.null(),
    }
    Ok(())
}

/// Keys are looked up in groups. Other clients' `MSET`s may take effect between two groups.
pub(super) fn mget(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    session.reply.array(args.len() - 1);
    let answered = answer_keys(session.backend, session.counters, session.reply, args.from(1));
    if answered < args.len() - 1 {
        session.client.streaming = Some(Box::new(Streaming::values(session.own(args), 1 + answered)));
    }
    Ok(())
}

pub(super) fn strlen(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let meta = session.read_meta(args.at(1))?;
    session.reply.integer(meta.map_or(0, |meta| meta.len as i64));
    Ok(())
}

pub(super) fn getdel(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    read_and_change(session, args.at(1), |_| Update::Delete)
}

/// The change that `GETEX` makes to the expiry.
#[derive(Clone, Copy)]
enum Change<'a> {
    None,
    Persist,
    Expire(Time<'a>),
}

pub(super) fn getex(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let mut change = Change::None;
    let mut rest = args.from(2);
    while let Some(option) = rest.next() {
        change = match (Time::option(option), change) {
            (None, Change::None | Change::Persist) if option.eq_ignore_ascii_case(b"persist") => {
                Change::Persist
            }
            (Some((unit, clock)), Change::None) => {
                Change::Expire(Time { text: rest.next().ok_or(Refusal::SYNTAX)?, unit, clock })
            }
            // The same option may come twice; the last one counts. A different option is an error.
            (Some((unit, clock)), Change::Expire(time)) if (unit, clock) == (time.unit, time.clock) => {
                Change::Expire(Time { text: rest.next().ok_or(Refusal::SYNTAX)?, ..time })
            }
            _ => return Err(Refusal::SYNTAX),
        };
    }
    match change {
        Change::None => get(session, args),
        Change::Persist => {
            read_and_change(session, args.at(1), |meta| match meta.and_then(|meta| meta.expires_at_ms) {
                Some(_) => Update::Expire { expires_at_ms: None },
                None => Update::Keep,
            })
        }
        Change::Expire(time) => match time.deadline("getex", 1) {
            Ok(moment) => read_and_change(session, args.at(1), |old| match old {
                _ if has_passed(moment) => Update::Delete,
                Some(_) => Update::Expire { expires_at_ms: Some(moment) },
                None => Update::Keep,
            }),
            // A missing key is answered before the time is checked.
            Err(refusal) if session.read_meta(args.at(1))?.is_some() => Err(refusal),
            Err(_) => {
                session.reply.null();
                Ok(())
            }
        },
    }
}

/// Answers with the old value of `key` and changes the key atomically. A missing key may be deleted, too: a cache in a
/// folder may have evicted it, and then it must not come back. Changes nothing if there is no room for the answer, or
/// if its value cannot be read. A value that is sent in pieces is read before that, too: on another thread, because
/// that may take long.
pub(super) fn read_and_change(
    session: &mut Session<'_>,
    key: &[u8],
    mut change: impl FnMut(Option<Meta>) -> Update,
) -> Result<(), Refusal> {
    let is_apart = session.request.is_some();
    let Session { shared, client, value, .. } = session;
    let (mut found, mut deferred) = (Ok(Found::Nothing), None);
    session.backend.update(key, &mut |old| {
        let meta = old.as_ref().map(|(_, meta)| *meta);
        let check_room = |reader: &dyn ValueReader| shared.check_room_for(&client.info, reader);
        deferred = None;
        found = keep_old(old, value, check_room);
        if found.is_err() {
            return Update::Keep;
        }
        let update = change(meta);
        let changes_it = update != Update::Keep;
        if let Ok(Found::Large(reader)) = &mut found
            && changes_it
        {
            if !is_apart {
                let is_short = reader.len() <= SHORT_BYTES as u64;
                deferred = Some(if is_short { Length::Short } else { Length::Long });
                return Update::Keep;
            }
            if let Err(error) = read_through(reader.as_mut(), value) {
                found = Err(error.into());
                return Update::Keep;
            }
        }
        update
    })?;
    if deferred.is_some() {
        session.client.deferred = deferred;
        return Ok(());
    }
    answer_old(session, found?);
    Ok(())
}

/// Reads a whole value, a piece at a time, and keeps nothing of it.
fn read_through(reader: &mut dyn ValueReader, piece: &mut Vec<u8>) -> Result<(), BackendError> {
    let (mut offset, len) = (0, reader.len());
    while offset < len {
        let bytes = (len - offset).min(PIECE_BYTES as u64);
        piece.clear();
        reader.read_at(offset, bytes as usize, piece)?;
        offset += bytes;
    }
    Ok(())
}

/// Keeps an old value for the reply: its bytes in `waiting`, or open if it is to be sent in pieces.
fn keep_old(
    old: Option<(Old<'_>, Meta)>,
    waiting: &mut Vec<u8>,
    check_room: impl FnOnce(&dyn ValueReader) -> Result<(), Refusal>,
) -> Result<Found, Refusal> {
    waiting.clear();
    match old {
        None => return Ok(Found::Nothing),
        Some((Old::Whole(bytes), _)) => waiting.extend_from_slice(bytes),
        Some((Old::Large(mut reader), _)) => {
            check_room(&*reader)?;
            if reader.len() > PIECE_BYTES as u64 {
                return Ok(Found::Large(reader));
            }
            reader.read_at(0, reader.len() as usize, waiting)?;
        }
    }
    Ok(Found::Small)
}

/// Answers with a value that [`keep_old`] kept, and counts the look-up. A large value is sent in pieces.
fn answer_old(session: &mut Session<'_>, found: Found) {
    session.counters.note_lookup(!matches!(found, Found::Nothing));
    match found {
        Found::Nothing => session.reply.null(),
        Found::Small => session.reply.bulk(session.value),
        Found::Large(reader) => {
            session.client.streaming = Some(Box::new(Streaming::value(reader, session.reply)));
        }
    }
}
