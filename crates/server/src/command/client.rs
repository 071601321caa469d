//! `CLIENT`: names that clients give themselves, and the list of connections.

use std::fmt::Write as _;

use super::Session;
use crate::refusal::Refusal;
use crate::request::Args;
use crate::shared::ClientInfo;

/// Longest name kept of a client or its library. Redis has no such limit; here nobody fills memory with names.
const NAME_BYTES_MAX: usize = 1 << 10;

pub(super) fn client(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let subcommand = args.at(1).to_ascii_lowercase();
    let arity = |range: std::ops::RangeInclusive<usize>| {
        let name = String::from_utf8_lossy(&subcommand);
        if range.contains(&args.len()) {
            Ok(())
        } else {
            Err(Refusal::wrong_arity(&format!("client|{name}")))
        }
    };
    match subcommand.as_slice() {
        b"id" => {
            arity(2..=2)?;
            session.reply.integer(session.client.info.id as i64);
        }
        b"getname" => {
            arity(2..=2)?;
            let name = session.client.info.names().name.clone();
            if name.is_empty() { session.reply.null() } else { session.reply.bulk(name.as_bytes()) }
        }
        b"setname" => {
            arity(3..=3)?;
            let name = checked_name(args.at(2))?;
            session.client.info.names().name = name;
            session.reply.ok();
        }
        b"setinfo" => {
            arity(4..=4)?;
            set_info(&session.client.info, args.at(2), args.at(3))?;
            session.reply.ok();
        }
        b"info" => {
            arity(2..=2)?;
            let line = line(&session.client.info);
            session.reply.text(&line);
        }
        b"list" => {
            arity(2..=usize::MAX)?;
            let list: String = session.shared.clients().values().map(|info| line(info)).collect();
            session.reply.text(&list);
        }
        _ => return Err(Refusal::unknown_subcommand("CLIENT", args.at(1))),
    }
    Ok(())
}

/// A name without blanks and control characters, so that `CLIENT LIST` stays readable.
pub(super) fn checked_name(name: &[u8]) -> Result<String, Refusal> {
    checked(name)
        .ok_or(Refusal::fixed("ERR Client names cannot contain spaces, newlines or special characters."))
}

fn checked(name: &[u8]) -> Option<String> {
    let plain = name.len() <= NAME_BYTES_MAX && name.iter().all(u8::is_ascii_graphic);
    plain.then(|| String::from_utf8_lossy(name).into_owned())
}

fn set_info(info: &ClientInfo, attribute: &[u8], value: &[u8]) -> Result<(), Refusal> {
    let version = attribute.eq_ignore_ascii_case(b"lib-ver");
    if !version && !attribute.eq_ignore_ascii_case(b"lib-name") {
        return Err(Refusal::quoting("ERR Unrecognized option '", attribute, "'"));
    }
    let attribute = if version { "lib-ver" } else { "lib-name" };
    let value = checked(value).ok_or_else(|| {
        Refusal::said(format!("ERR {attribute} cannot contain spaces, newlines or special characters."))
    })?;
    let mut names = info.names();
    if version {
        names.library_version = value;
    } else {
        names.library = value;
    }
    Ok(())
}

fn line(info: &ClientInfo) -> String {
    let names = info.names();
    let mut line = String::new();
    // Writing to a string can't fail.
    let _ = writeln!(
        line,
        "id={} addr={} name={} age={} flags=N db=0 resp={} lib-name={} lib-ver={}",
        info.id,
        info.peer,
        names.name,
        info.connected.elapsed().as_secs(),
        if names.resp3 { 3 } else { 2 },
        names.library,
        names.library_version,
    );
    line
}
