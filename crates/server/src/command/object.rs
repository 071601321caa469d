//! The cost and the encoding of a key: `OBJECT` and `MEMORY`, as far as they have a meaning here.

use super::Session;
use crate::integer::strict_i64;
use crate::refusal::Refusal;
use crate::request::Args;

/// Strings up to this length are `embstr` in Redis.
const EMBEDDED_BYTES_MAX: u64 = 44;
/// No integer is longer.
const INTEGER_BYTES_MAX: usize = 20;

/// `OBJECT ENCODING|FREQ|IDLETIME|REFCOUNT key`
pub(super) fn object(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let subcommand = args.at(1).to_ascii_lowercase();
    match subcommand.as_slice() {
        b"help" if args.len() == 2 => {
            help(
                session,
                "OBJECT",
                &[
                    ("ENCODING <key>", "Return the encoding that Redis would use for the value of <key>."),
                    ("FREQ <key>", "Refuse: no access frequency is kept."),
                    ("IDLETIME <key>", "Return 0: no access time is kept."),
                    ("REFCOUNT <key>", "Return 1."),
                ],
            );
            return Ok(());
        }
        b"encoding" | b"freq" | b"idletime" | b"refcount" if args.len() == 3 => {}
        b"help" | b"encoding" | b"freq" | b"idletime" | b"refcount" => {
            let name = String::from_utf8_lossy(&subcommand);
            return Err(Refusal::wrong_arity(&format!("object|{name}")));
        }
        _ => return Err(Refusal::unknown_subcommand("OBJECT", args.at(1))),
    }
    let meta = session.backend.get_into(args.at(2), INTEGER_BYTES_MAX, session.value)?;
    session.counters.note_lookup(meta.is_some());
    let Some(meta) = meta else {
        session.reply.null();
        return Ok(());
    };
    match subcommand.as_slice() {
        b"encoding" => {
            let is_integer = meta.len <= INTEGER_BYTES_MAX as u64 && strict_i64(session.value).is_some();
            let is_embedded = meta.len <= EMBEDDED_BYTES_MAX;
            let encoding: &[u8] = match (is_integer, is_embedded) {
                (true, _) => b"int",
                (false, true) => b"embstr",
                (false, false) => b"raw",
            };
            session.reply.bulk(encoding);
        }
        b"freq" => return Err(Refusal::NO_FREQUENCY),
        b"idletime" => session.reply.integer(0),
        _ => session.reply.integer(1),
    }
    Ok(())
}

/// `MEMORY USAGE key [SAMPLES count]`: key and value as written, times the bytes that the whole store holds per byte
/// written. The result is at least 1.
pub(super) fn memory(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let subcommand = args.at(1).to_ascii_lowercase();
    match subcommand.as_slice() {
        b"help" if args.len() == 2 => {
            help(
                session,
                "MEMORY",
                &[("USAGE <key> [SAMPLES <count>]", "Return about how many bytes <key> and its value hold.")],
            );
            return Ok(());
        }
        b"usage" if args.len() >= 3 => {}
        b"help" | b"usage" => {
            let name = String::from_utf8_lossy(&subcommand);
            return Err(Refusal::wrong_arity(&format!("memory|{name}")));
        }
        _ => return Err(Refusal::unknown_subcommand("MEMORY", args.at(1))),
    }
    let mut rest = args.from(3);
    while let Some(option) = rest.next() {
        if !option.eq_ignore_ascii_case(b"samples") || rest.len() == 0 {
            return Err(Refusal::SYNTAX);
        }
        let count = rest.next().and_then(strict_i64).ok_or(Refusal::NOT_INTEGER)?;
        if count < 0 {
            return Err(Refusal::SYNTAX);
        }
    }
    let Some(meta) = session.backend.meta(args.at(2))? else {
        session.reply.null();
        return Ok(());
    };
    let memory = session.backend.memory();
    let written = args.at(2).len() as u64 + meta.len;
    let held_per_written = match memory.logical_bytes {
        // Nothing has settled yet, or the store does not count.
        0 => 1.0,
        logical_bytes => memory.held_bytes as f64 / logical_bytes as f64,
    };
    // Right after the first writes, most held bytes are not data.
    let bytes = written as f64 * held_per_written.clamp(0.0, 2.0);
    session.reply.integer((bytes as i64).max(1));
    Ok(())
}

/// An answer to `HELP` in Redis's layout: a heading, then each subcommand and its description.
pub(super) fn help(session: &mut Session<'_>, command: &str, lines: &[(&str, &str)]) {
    let reply = &mut *session.reply;
    reply.array(2 * lines.len() + 3);
    reply.simple(&format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    for (usage, meaning) in lines.iter().copied().chain([("HELP", "Prints this help.")]) {
        reply.simple(usage);
        reply.simple(&format!("    {meaning}"));
    }
}
