//! `SCAN`: a walk over all keys in order, some per call.

use super::Session;
use crate::backend::BackendError;
use crate::integer::strict_i64;
use crate::refusal::Refusal;
use crate::request::Args;
use crate::walk::Walk;

/// Keys looked at in one call, whatever `COUNT` says; the cursor leads to the rest.
const COUNT_MAX: usize = 1 << 14;
/// Bytes of keys returned in one call.
const REPLY_BYTES_MAX: usize = 1 << 20;

struct Options<'a> {
    pattern: &'a [u8],
    count: usize,
    /// No key can match, because there are only strings.
    nothing: bool,
    /// Redis looks each key up to see its type.
    looks_up: bool,
}

pub(super) fn scan(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let cursor = std::str::from_utf8(args.at(1)).ok().and_then(|text| text.parse::<u64>().ok());
    let cursor = cursor.ok_or(Refusal::INVALID_CURSOR)?;
    let options = parse(args)?;
    let from = match cursor {
        0 => None,
        cursor => Some(session.shared.cursors.position(cursor).ok_or(Refusal::INVALID_CURSOR)?),
    };
    session.value.clear();
    let mut walk = Walk::new(options.pattern, from)?;
    let walked = match options.nothing {
        true => Ok(false),
        false => {
            let Session { backend, patience, value, .. } = session;
            walk.advance(*backend, *patience, options.count, REPLY_BYTES_MAX, value)
        }
    };
    session.client.worked_bytes += walk.worked_bytes();
    if let Err(BackendError::UnreadKeys { words, next: Some(next) }) = &walked {
        session.client.scans = true;
        let next = session.shared.cursors.advance(session.client.info.id, cursor, next);
        return Err(Refusal::said(format!("ERR {words}; SCAN {next} goes on behind these keys")));
    }
    let Some(more) = session.in_time(walked)? else { return Ok(()) };
    let Session { shared, client, .. } = session;
    let next = match walk.place() {
        Some(place) if more => {
            client.scans = true;
            shared.cursors.advance(client.info.id, cursor, place)
        }
        _ => 0,
    };

    if options.looks_up {
        session.counters.hits.add(walk.found as u64);
    }
    let mut digits = itoa::Buffer::new();
    session.reply.array(2);
    session.reply.bulk(digits.format(next).as_bytes());
    session.reply.array(walk.found);
    session.reply.raw(session.value);
    Ok(())
}

fn parse<'a>(args: &Args<'a>) -> Result<Options<'a>, Refusal> {
    let mut options = Options { pattern: b"*", count: 10, nothing: false, looks_up: false };
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
            b"TYPE" => {
                options.nothing = !argument.eq_ignore_ascii_case(b"string");
                options.looks_up = true;
            }
            _ => return Err(Refusal::SYNTAX),
        }
    }
    Ok(options)
}
