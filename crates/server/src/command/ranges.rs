//! Parts of values: `GETRANGE` `SUBSTR` `SETRANGE` `APPEND`.

use super::{APART_BYTES, SHORT_BYTES, Session};
use crate::backend::{Old, Update};
use crate::integer::strict_i64;
use crate::jobs::Length;
use crate::refusal::Refusal;
use crate::request::{Args, BULK_BYTES_MAX};
use crate::streaming::{PIECE_BYTES, Streaming};

/// Bytes that a store may unpack for a part of a value, however short the part is.
const UNPACKED_BYTES: u64 = 64 << 10;

pub(super) fn getrange(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let start = strict_i64(args.at(2)).ok_or(Refusal::NOT_INTEGER)?;
    let end = strict_i64(args.at(3)).ok_or(Refusal::NOT_INTEGER)?;
    // The reader sees one value, whatever is written meanwhile.
    let opened = session.backend.open_value(args.at(1))?;
    session.counters.note_lookup(opened.is_some());
    let Some(mut reader) = opened else {
        session.reply.bulk(b"");
        return Ok(());
    };
    let Some((start, end)) = within(start, end, reader.len()) else {
        session.reply.bulk(b"");
        return Ok(());
    };
    if end - start > PIECE_BYTES as u64 {
        session.shared.check_room_for(&session.client.info, &*reader)?;
        session.client.streaming = Some(Box::new(Streaming::range(reader, start, end, session.reply)));
    } else {
        session.client.worked_bytes += reader.len().min(UNPACKED_BYTES);
        session.value.clear();
        reader.read_at(start, (end - start) as usize, session.value)?;
        session.reply.bulk(session.value);
    }
    Ok(())
}

/// The part of a value of `len` bytes from `start` to `end` inclusive, where negative places count from its end.
/// None if it has no byte.
fn within(start: i64, end: i64, len: u64) -> Option<(u64, u64)> {
    if start < 0 && end < 0 && start > end {
        return None;
    }
    let len = len as i64;
    let from_end = |place: i64| if place < 0 { place.saturating_add(len).max(0) } else { place };
    let (start, end) = (from_end(start), from_end(end).min(len - 1));
    (start <= end && len > 0).then(|| (start as u64, end as u64 + 1))
}

pub(super) fn setrange(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let (key, part) = (args.at(1), args.at(3));
    let offset = strict_i64(args.at(2)).ok_or(Refusal::NOT_INTEGER)?;
    let offset = u64::try_from(offset).map_err(|_| Refusal::fixed("ERR offset is out of range"))?;
    if part.is_empty() {
        let meta = session.backend.meta(key)?;
        session.reply.integer(meta.map_or(0, |meta| meta.len as i64));
        return Ok(());
    }
    let end = offset.saturating_add(part.len() as u64);
    if end > BULK_BYTES_MAX as u64 {
        return Err(Refusal::STRING_TOO_LONG);
    }
    let (offset, end) = (offset as usize, end as usize);
    let len = |old_len: usize| old_len.max(end);
    change(session, key, len, |value| {
        value.resize(value.len().max(end), 0);
        value[offset..end].copy_from_slice(part);
    })
}

pub(super) fn append(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let tail = args.at(2);
    change(session, args.at(1), |old_len| old_len + tail.len(), |value| value.extend_from_slice(tail))
}

/// Replaces the value of `key`, empty if there is none, by a changed copy and answers with its length. `len` computes
/// the new length from the old one, and `edit` changes the value. A value that would be too long, here or in the
/// store's copy, is refused before anything is read or allocated.
fn change(
    session: &mut Session<'_>,
    key: &[u8],
    len: impl Fn(usize) -> usize,
    edit: impl Fn(&mut Vec<u8>),
) -> Result<(), Refusal> {
    let shared = session.shared;
    let mut outcome = Ok(0);
    let mut room = None;
    let (is_apart, mut deferred) = (session.request.is_some(), None);
    let mut worked_bytes = 0;
    // The store's copy, and the log's until it is written.
    let copies = 2 + usize::from(shared.backend.holds_replies());
    let updated = session.backend.update(key, &mut |old| {
        let (old_len, expires_at_ms) =
            old.as_ref().map_or((0, None), |(_, meta)| (meta.len as usize, meta.expires_at_ms));
        let len = len(old_len);
        // A value that is too long is refused here.
        let runs_apart = !is_apart && len > APART_BYTES && len <= BULK_BYTES_MAX;
        deferred = runs_apart.then_some(if len <= SHORT_BYTES { Length::Short } else { Length::Long });
        if deferred.is_some() {
            return Update::Keep;
        }
        room = None;
        let made = match len {
            0..=BULK_BYTES_MAX => shared.reserve(copies * len),
            _ => Err(Refusal::STRING_TOO_LONG),
        };
        let changed = made.and_then(|made| {
            room = Some(made);
            worked_bytes = len as u64;
            let mut value = Vec::with_capacity(len);
            match old {
                None => {}
                Some((Old::Whole(old), _)) => value.extend_from_slice(old),
                Some((Old::Large(mut old), _)) => old.read_at(0, old_len, &mut value)?,
            }
            edit(&mut value);
            Ok(value)
        });
        match changed {
            Ok(value) => {
                outcome = Ok(len);
                Update::Put { value, expires_at_ms }
            }
            Err(refusal) => {
                outcome = Err(refusal);
                Update::Keep
            }
        }
    });
    session.client.worked_bytes += worked_bytes;
    updated?;
    if deferred.is_some() {
        session.client.deferred = deferred;
        return Ok(());
    }
    session.reply.integer(outcome? as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn places_count_from_either_end() {
        for (start, end, len, expected) in [
            (0, -1, 5, Some((0, 5))),
            (0, 0, 5, Some((0, 1))),
            (-3, -2, 5, Some((2, 4))),
            (-2, -3, 5, None),
            (-100, 100, 5, Some((0, 5))),
            (5, 10, 5, None),
            (i64::MIN, i64::MAX, 5, Some((0, 5))),
            (i64::MIN, i64::MIN, 5, Some((0, 1))),
            (0, -1, 0, None),
        ] {
            assert_eq!(within(start, end, len), expected, "{start} {end} {len}");
        }
    }
}
