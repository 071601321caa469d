//! Records in the order of their keys: `ZT.RANGE`.

use std::mem;
use std::ops::Bound;

use super::Session;
use crate::integer::strict_i64;
use crate::range::Range;
use crate::refusal::Refusal;
use crate::request::Args;
use crate::streaming::{PIECE_BYTES, Streaming};
use crate::walk::call_bytes;

/// Redis's words for the ends of ranges of sorted sets.
const NOT_AN_END: Refusal = Refusal::fixed("ERR min or max not valid string range item");

/// `ZT.RANGE from to [LIMIT count]`: keys and values in turn. Short replies are made at once. Long ones are made like
/// that of `KEYS`: some records at a time, with other clients served in between. They wait in this connection's memory,
/// because a reply begins with its length.
pub(super) fn range(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let (from, to) = (end(args.at(1), b"-", b"+")?, end(args.at(2), b"+", b"-")?);
    let wanted = match args.len() {
        3 => u64::MAX,
        5 if args.at(3).eq_ignore_ascii_case(b"limit") => {
            let wanted = strict_i64(args.at(4)).ok_or(Refusal::NOT_INTEGER)?;
            u64::try_from(wanted).map_err(|_| Refusal::fixed("ERR LIMIT is negative"))?
        }
        _ => return Err(Refusal::SYNTAX),
    };
    // A range from behind the last key, or to before the first, has no records.
    let (Some(from), Some(to)) = (from, to) else {
        session.reply.array(0);
        return Ok(());
    };
    let mut range = Range::new(from, to, wanted);
    session.value.clear();
    let Session { shared, backend, client, patience, value, .. } = session;
    let walked = range.advance(*backend, shared, &client.info, *patience, PIECE_BYTES, value);
    session.client.worked_bytes += call_bytes(range.found);
    let Some(more) = session.in_time(walked)? else { return Ok(()) };
    if more {
        session.client.streaming = Some(Box::new(Streaming::records(range, mem::take(session.value))));
    } else {
        session.reply.array(2 * range.found);
        session.reply.raw(session.value);
    }
    Ok(())
}

/// One end of a range as `ZRANGEBYLEX` has it: `[key` with the key, `(key` without it. `open` stands for no bound, and
/// `None` is the `other` end of all keys.
fn end<'a>(text: &'a [u8], open: &[u8], other: &[u8]) -> Result<Option<Bound<&'a [u8]>>, Refusal> {
    match text {
        [b'[', key @ ..] => Ok(Some(Bound::Included(key))),
        [b'(', key @ ..] => Ok(Some(Bound::Excluded(key))),
        text if text == open => Ok(Some(Bound::Unbounded)),
        text if text == other => Ok(None),
        _ => Err(NOT_AN_END),
    }
}
