//! Keys as such: `DEL` `UNLINK` `EXISTS` `TOUCH` `TYPE` `KEYS` `RANDOMKEY` `DBSIZE` `FLUSHALL` `FLUSHDB`.

use std::mem;

use super::{APART_BYTES, Counted, OVERVIEW_BYTES, Session};
use crate::backend::{Backend, DatabaseName, Databases};
use crate::jobs::Length;
use crate::refusal::Refusal;
use crate::request::Args;
use crate::streaming::Streaming;

pub(super) fn del(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let delete = |session: &Session<'_>, key: &[u8]| Ok(session.backend.delete(key)?);
    count_keys(session, args, delete, |session| session.backend.may_wait_for_room(false))
}

/// A key that is named twice counts twice.
pub(super) fn exists(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    count_keys(session, args, |session, key| Ok(session.read_meta(key)?.is_some()), |_| false)
}

/// Answers with the number of keys for which `counts` is true. A worker leaves the other keys to another thread when
/// its store has read many bytes for that, or when the next key `may_wait`.
fn count_keys(
    session: &mut Session<'_>,
    args: &Args<'_>,
    counts: fn(&Session<'_>, &[u8]) -> Result<bool, Refusal>,
    may_wait: fn(&Session<'_>) -> bool,
) -> Result<(), Refusal> {
    let Counted { mut keys, mut count } = mem::take(&mut session.client.counted);
    let read_before = session.backend.thread_read_bytes();
    for key in args.from(1 + keys) {
        let read_bytes = session.backend.thread_read_bytes().saturating_sub(read_before);
        let leaves = || read_bytes > APART_BYTES as u64 || keys > 0 && may_wait(session);
        if session.request.is_none() && leaves() {
            session.client.counted = Counted { keys, count };
            session.client.deferred = Some(Length::Long);
            return Ok(());
        }
        count += i64::from(counts(session, key)?);
        keys += 1;
    }
    session.reply.integer(count);
    Ok(())
}

pub(super) fn type_of(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let found = session.read_meta(args.at(1))?.is_some();
    session.reply.simple(if found { "string" } else { "none" });
    Ok(())
}

/// Visits all keys, some thousands at a time, and serves other clients in between. Keys that come or go meanwhile may
/// be missing or appear. The reply waits in this connection's memory until its length is known. It is refused when
/// connections hold too much.
pub(super) fn keys(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    session.client.streaming = Some(Box::new(Streaming::matching(args.at(1))?));
    Ok(())
}

/// If all keys of many leaves have expired, another thread goes on.
pub(super) fn randomkey(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    let drawn = session.backend.random_key(session.patience);
    match session.in_time(drawn)? {
        Some(Some(key)) => session.reply.bulk(&key),
        Some(None) => session.reply.null(),
        None => {}
    }
    Ok(())
}

/// If counting must visit many leaves, another thread does it; on an SSD each leaf may cost a read.
pub(super) fn dbsize(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    session.client.worked_bytes += OVERVIEW_BYTES;
    match session.backend.len_if_quick() {
        Ok(keys) => session.reply.integer(keys as i64),
        Err(_) if session.request.is_none() => session.client.deferred = Some(Length::Long),
        Err(_) => session.reply.integer(session.backend.count()? as i64),
    }
    Ok(())
}

pub(super) fn flushdb(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    check_mode(args)?;
    session.backend.clear()?;
    session.reply.ok();
    Ok(())
}

/// Databases that are closed keep their keys. One that refuses keeps no other one from being cleared.
pub(super) fn flushall(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    check_mode(args)?;
    let shared = session.shared;
    session.client.rests_on_others = true;
    match shared.backend.databases() {
        None => shared.backend.clear()?,
        Some(databases) => clear_all(&*shared.backend, databases)?,
    }
    session.reply.ok();
    Ok(())
}

/// Clears the database that every client begins with, and the others that are open.
fn clear_all(first: &dyn Backend, databases: &dyn Databases) -> Result<(), Refusal> {
    let listed = databases.list()?;
    let mut kept = Vec::new();
    if let Err(error) = first.clear() {
        kept.push(format!("default: {error}"));
    }
    for database in listed.into_iter().filter(|database| database.is_open) {
        // It may have been closed since.
        let found = DatabaseName::new(database.name.as_bytes()).and_then(|name| databases.find(name).ok());
        if let Some(chosen) = found.flatten()
            && let Err(error) = chosen.clear()
        {
            kept.push(format!("{}: {error}", database.name));
        }
    }
    match kept.is_empty() {
        true => Ok(()),
        false => Err(Refusal::said(format!("ERR these databases may keep their keys: {}", kept.join("; ")))),
    }
}

fn check_mode(args: &Args<'_>) -> Result<(), Refusal> {
    let known = |mode: &[u8]| mode.eq_ignore_ascii_case(b"sync") || mode.eq_ignore_ascii_case(b"async");
    match args.get(1) {
        None => Ok(()),
        Some(mode) if args.len() == 2 && known(mode) => Ok(()),
        Some(_) => Err(Refusal::SYNTAX),
    }
}
