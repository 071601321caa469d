//! The connection itself: `PING` `ECHO` `SELECT` `HELLO` `QUIT`.

use super::{Session, client};
use crate::integer::strict_i64;
use crate::process::COMPATIBLE_VERSION;
use crate::refusal::Refusal;
use crate::request::Args;

pub(super) fn ping(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    match args.get(1) {
        None => session.reply.simple("PONG"),
        Some(text) if args.len() == 2 => session.reply.bulk(text),
        Some(_) => return Err(Refusal::wrong_arity("ping")),
    }
    Ok(())
}

pub(super) fn echo(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    session.reply.bulk(args.at(1));
    Ok(())
}

/// There is one database.
pub(super) fn select(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let index = strict_i64(args.at(1)).ok_or(Refusal::NOT_INTEGER)?;
    if i32::try_from(index).is_err() {
        return Err(Refusal::NOT_INT);
    }
    if index != 0 {
        return Err(Refusal::DB_INDEX);
    }
    session.reply.ok();
    Ok(())
}

pub(super) fn quit(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    session.client.closing = true;
    session.reply.ok();
    Ok(())
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`
pub(super) fn hello(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let mut resp3 = session.reply.resp3;
    if let Some(version) = args.get(1) {
        resp3 = match strict_i64(version) {
            Some(2) => false,
            Some(3) => true,
            Some(_) => return Err(Refusal::fixed("NOPROTO unsupported protocol version")),
            None => return Err(Refusal::fixed("ERR Protocol version is not an integer or out of range")),
        };
    }
    let mut name = None;
    let mut rest = args.from(2);
    while let Some(option) = rest.next() {
        if option.eq_ignore_ascii_case(b"auth") && rest.len() >= 2 {
            // Without passwords there is the default user, whose every password is right.
            let user = rest.next();
            rest.next();
            if user != Some(b"default") {
                return Err(Refusal::fixed("WRONGPASS invalid username-password pair or user is disabled."));
            }
        } else if option.eq_ignore_ascii_case(b"setname") && rest.len() >= 1 {
            name = rest.next().map(client::checked_name).transpose()?;
        } else {
            return Err(Refusal::quoting("ERR Syntax error in HELLO option '", option, "'"));
        }
    }

    let mut names = session.client.info.names();
    if let Some(name) = name {
        names.name = name;
    }
    names.resp3 = resp3;
    drop(names);
    let reply = &mut *session.reply;
    reply.resp3 = resp3;
    reply.map(7);
    for (field, value) in [("server", "ziptier"), ("version", COMPATIBLE_VERSION)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(if resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.integer(session.client.info.id as i64);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}
