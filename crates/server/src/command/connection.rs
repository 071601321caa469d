//! The connection itself: `PING` `ECHO` `SELECT` `AUTH` `HELLO` `RESET` `QUIT`.

use std::mem;

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

/// `AUTH [user] password`. There is one user, called `default`.
pub(super) fn auth(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let (user, password) = match args.len() {
        2 if !session.shared.settings.requires_password() => {
            return Err(Refusal::fixed(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => (&b"default"[..], args.at(1)),
        3 => (args.at(1), args.at(2)),
        _ => return Err(Refusal::SYNTAX),
    };
    authenticate(session, user, password)?;
    session.reply.ok();
    Ok(())
}

/// A failed attempt changes nothing. Without a password every attempt succeeds.
fn authenticate(session: &mut Session<'_>, user: &[u8], password: &[u8]) -> Result<(), Refusal> {
    let is_right = session.shared.settings.password().is_none_or(|right| right.matches(password));
    if !is_right || user != b"default" {
        return Err(Refusal::WRONG_PASSWORD);
    }
    session.client.authenticated = true;
    Ok(())
}

/// Returns the connection to its initial state.
pub(super) fn reset(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    let client = &mut *session.client;
    client.in_transaction = false;
    client.chosen = Some(None);
    client.authenticated = !session.shared.settings.requires_password();
    client.info.rename(|names| {
        names.name = String::new();
        names.resp3 = false;
    });
    session.reply.resp3 = false;
    session.reply.simple("RESET");
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
            let (user, password) = (rest.next().unwrap_or_default(), rest.next().unwrap_or_default());
            authenticate(session, user, password)?;
        } else if option.eq_ignore_ascii_case(b"setname") && rest.len() >= 1 {
            name = rest.next().map(client::checked_name).transpose()?;
        } else {
            return Err(Refusal::quoting("ERR Syntax error in HELLO option '", option, "'"));
        }
    }

    if session.client.must_authenticate(session.shared) {
        return Err(Refusal::fixed(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH <user> <pass> \
             option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }

    session.client.info.rename(|names| {
        names.name = name.unwrap_or(mem::take(&mut names.name));
        names.resp3 = resp3;
    });
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
