//! `SCAN`: a walk over all keys in order, some per call.

use std::ops::Bound;

use super::Session;
use crate::glob;
use crate::integer::strict_i64;
use crate::refusal::Refusal;
use crate::request::Args;

/// Keys looked at in one call, whatever `COUNT` says; the cursor leads to the rest.
const COUNT_MAX: usize = 1 << 16;
/// Bytes of keys returned in one call.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// Keys asked of the store at a time.
const GROUP: usize = 64;

struct Options<'a> {
    pattern: &'a [u8],
    count: usize,
    /// No key can match, because there are only strings.
    nothing: bool,
}

pub(super) fn scan(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let cursor = std::str::from_utf8(args.at(1)).ok().and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or(Refusal::INVALID_CURSOR)?;
    let options = parse(args)?;
    let after = match cursor {
        0 => None,
        cursor => Some(session.shared.cursors.position(cursor).ok_or(Refusal::INVALID_CURSOR)?),
    };
    session.value.clear();
    let walk = if options.nothing { Walk::default() } else { walk(session, after, &options)? };
    let next = walk.after.map_or(0, |after| session.shared.cursors.advance(cursor, &after));

    let mut digits = itoa::Buffer::new();
    session.reply.array(2);
    session.reply.bulk(digits.format(next).as_bytes());
    session.reply.array(walk.found);
    session.reply.raw(session.value);
    Ok(())
}

#[derive(Default)]
struct Walk {
    /// Matching keys, which have been added to the session's scratch buffer as bulk strings.
    found: usize,
    /// The last key looked at; none when the walk has come to its end.
    after: Option<Box<[u8]>>,
}

fn walk(session: &mut Session<'_>, after: Option<Box<[u8]>>, options: &Options<'_>) -> Result<Walk, Refusal> {
    let Session { shared, value, .. } = session;
    // Keys come in order, so a pattern that starts with plain text needs only the keys that do.
    let prefix = glob::literal_prefix(options.pattern);
    let mut from = match after {
        Some(after) => Bound::Excluded(after),
        None => Bound::Included(Box::from(prefix)),
    };
    if prefix.is_empty() && matches!(from, Bound::Included(_)) {
        from = Bound::Unbounded;
    }
    let (mut found, mut seen) = (0, 0);
    while seen < options.count && value.len() < REPLY_BYTES_MAX {
        let limit = GROUP.min(options.count - seen);
        let mut beyond = false;
        let mut last = Vec::new();
        let from_ref = match &from {
            Bound::Excluded(key) => Bound::Excluded(&key[..]),
            Bound::Included(key) => Bound::Included(&key[..]),
            Bound::Unbounded => Bound::Unbounded,
        };
        let group = shared.backend.keys_from(from_ref, limit, &mut |key| {
            beyond = beyond || (key > prefix && !key.starts_with(prefix));
            if !beyond && glob::matches(options.pattern, key) {
                found += 1;
                value.push(b'$');
                value.extend_from_slice(itoa::Buffer::new().format(key.len()).as_bytes());
                value.extend_from_slice(b"\r\n");
                value.extend_from_slice(key);
                value.extend_from_slice(b"\r\n");
            }
            last.clear();
            last.extend_from_slice(key);
        })?;
        seen += group;
        if beyond || group < limit {
            return Ok(Walk { found, after: None });
        }
        from = Bound::Excluded(last.into());
    }
    let after = if let Bound::Excluded(key) = from { Some(key) } else { None };
    Ok(Walk { found, after })
}

fn parse<'a>(args: &Args<'a>) -> Result<Options<'a>, Refusal> {
    let mut options = Options { pattern: b"*", count: 10, nothing: false };
    let mut rest = args.from(2);
    while let Some(name) = rest.next() {
        let argument = rest.next().ok_or(Refusal::SYNTAX)?;
        match name.to_ascii_uppercase().as_slice() {
            b"MATCH" => options.pattern = argument,
            b"COUNT" => {
                let count = strict_i64(argument).ok_or(Refusal::NOT_INTEGER)?;
                if count < 1 {
                    return Err(Refusal::SYNTAX);
                }
                options.count = count.min(COUNT_MAX as i64) as usize;
            }
            b"TYPE" => options.nothing = !argument.eq_ignore_ascii_case(b"string"),
            _ => return Err(Refusal::SYNTAX),
        }
    }
    Ok(options)
}
