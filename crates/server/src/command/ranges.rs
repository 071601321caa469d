//! Parts of values: `GETRANGE` `SUBSTR` `SETRANGE` `APPEND`.

use super::Session;
use crate::backend::Update;
use crate::integer::strict_i64;
use crate::refusal::Refusal;
use crate::request::{Args, BULK_BYTES_MAX};
use crate::streaming::{PIECE_BYTES, Streaming};

pub(super) fn getrange(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let start = strict_i64(args.at(2)).ok_or(Refusal::NOT_INTEGER)?;
    let end = strict_i64(args.at(3)).ok_or(Refusal::NOT_INTEGER)?;
    // One value is opened and read, whatever is written meanwhile.
    let Some(mut reader) = session.shared.backend.open_value(args.at(1))? else {
        session.counters.misses.add(1);
        session.reply.bulk(b"");
        return Ok(());
    };
    session.counters.hits.add(1);
    let Some((start, end)) = within(start, end, reader.len()) else {
        session.reply.bulk(b"");
        return Ok(());
    };
    if end - start > PIECE_BYTES as u64 {
        session.client.streaming = Some(Box::new(Streaming::range(reader, start, end, session.reply)));
    } else {
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
        let meta = session.shared.backend.meta(key)?;
        session.reply.integer(meta.map_or(0, |meta| meta.len as i64));
        return Ok(());
    }
    let end = offset.saturating_add(part.len() as u64);
    if end > BULK_BYTES_MAX as u64 {
        return Err(Refusal::STRING_TOO_LONG);
    }
    let (offset, end) = (offset as usize, end as usize);
    change(session, key, |old| {
        (old.len().max(end), move |new: &mut Vec<u8>| {
            new.resize(new.len().max(end), 0);
            new[offset..end].copy_from_slice(part);
        })
    })
}

pub(super) fn append(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let tail = args.at(2);
    change(session, args.at(1), |old| {
        (old.len() + tail.len(), move |new: &mut Vec<u8>| {
            new.extend_from_slice(tail);
        })
    })
}

/// Replaces the value of `key`, empty if there is none, by a changed copy and answers with its length. `change` tells
/// how long it will be, and changes it. What would be too long, here or when the store copies it, is refused before
/// anything is allocated for it.
fn change<Edit: FnOnce(&mut Vec<u8>)>(
    session: &mut Session<'_>,
    key: &[u8],
    change: impl Fn(&[u8]) -> (usize, Edit),
) -> Result<(), Refusal> {
    let shared = session.shared;
    let mut outcome = Ok(0);
    shared.backend.update(key, &mut |old| {
        let (old, expires_at_ms) = old.map_or((&b""[..], None), |(value, meta)| (value, meta.expires_at_ms));
        let (len, edit) = change(old);
        outcome = match len {
            0..=BULK_BYTES_MAX => shared.check_room(2 * len).map(|()| len),
            _ => Err(Refusal::STRING_TOO_LONG),
        };
        if outcome.is_err() {
            return Update::Keep;
        }
        let mut value = Vec::with_capacity(len);
        value.extend_from_slice(old);
        edit(&mut value);
        Update::Put { value, expires_at_ms }
    })?;
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
