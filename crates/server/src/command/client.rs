//! `CLIENT`: names that clients give themselves, the list of connections, and their end.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use super::Session;
use super::object::help;
use crate::integer::strict_i64;
use crate::refusal::Refusal;
use crate::request::Args;
use crate::shared::{ClientInfo, Shared};
use crate::streaming::Streaming;

/// Lines of `CLIENT LIST` that are gathered while no client can come or go.
const LISTED_AT_A_TIME: usize = 64;

/// Bytes that `CLIENT KILL` counts in a turn for each client that it looks at, for the time that this takes.
const LOOK_BYTES: u64 = 16;

/// Longest name of a client or its library. Redis has no such limit; here it keeps clients from filling memory with
/// names.
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
            session.client.info.rename(|names| names.name = name);
            session.reply.ok();
        }
        b"setinfo" => {
            arity(4..=4)?;
            set_info(&session.client.info, args.at(2), args.at(3))?;
            session.reply.ok();
        }
        b"info" => {
            arity(2..=2)?;
            let line = line(session.shared, &session.client.info);
            session.reply.text(&line);
        }
        b"list" => {
            arity(2..=usize::MAX)?;
            let wanted = Wanted::read(args)?;
            list(session, &wanted)?;
        }
        b"kill" => {
            arity(3..=usize::MAX)?;
            kill(session, args)?;
        }
        b"help" => {
            arity(2..=2)?;
            help(session, "CLIENT", HELP);
        }
        _ => return Err(Refusal::unknown_subcommand("CLIENT", args.at(1))),
    }
    Ok(())
}

const HELP: &[(&str, &str)] = &[
    ("GETNAME", "Return the name of the current connection."),
    ("ID", "Return the ID of the current connection."),
    ("INFO", "Return information about the current client connection."),
    ("KILL <ip:port>", "Kill connection made from <ip:port>."),
    (
        "KILL <option> <value> [<option> <value> [...]]",
        "Kill connections that match every option: ADDR, LADDR, TYPE, USER, SKIPME (yes|no), ID.",
    ),
    (
        "LIST [TYPE <type> | ID <id> [<id> ...]]",
        "Return information about client connections: all, those of a type, or those with these IDs.",
    ),
    ("SETNAME <name>", "Assign the name <name> to the current connection."),
    ("SETINFO <option> <value>", "Set the library's name (LIB-NAME) or version (LIB-VER)."),
];

/// `CLIENT KILL address` or `CLIENT KILL option value [option value ...]`
fn kill(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    if args.len() == 3 {
        let address = |address: SocketAddr| address.to_string().as_bytes() == args.at(2);
        if end(session, |info| address(info.peer)) == 0 {
            return Err(Refusal::fixed("ERR No such client"));
        }
        session.reply.ok();
        return Ok(());
    }
    let (mut id, mut peer, mut address, mut skips_me, mut none) = (None, None, None, true, false);
    let mut rest = args.from(2);
    while let Some(option) = rest.next() {
        let value = rest.next().ok_or(Refusal::SYNTAX)?;
        match option.to_ascii_lowercase().as_slice() {
            b"id" => {
                let wanted = strict_i64(value).and_then(|id| u64::try_from(id).ok()).filter(|&id| id > 0);
                id = Some(wanted.ok_or(Refusal::fixed("ERR client-id should be greater than 0"))?);
            }
            b"addr" => peer = Some(value),
            b"laddr" => address = Some(value),
            b"user" if value == b"default" => {}
            b"user" => return Err(Refusal::quoting("ERR No such user '", value, "'")),
            b"type" => none |= !is_normal(value)?,
            b"skipme" if value.eq_ignore_ascii_case(b"yes") => skips_me = true,
            b"skipme" if value.eq_ignore_ascii_case(b"no") => skips_me = false,
            _ => return Err(Refusal::SYNTAX),
        }
    }
    let own = session.client.info.id;
    let is = |wanted: Option<&[u8]>, address: SocketAddr| {
        wanted.is_none_or(|wanted| address.to_string().as_bytes() == wanted)
    };
    let killed = end(session, |info| {
        let is_spared = none || (skips_me && info.id == own);
        !is_spared && id.is_none_or(|id| id == info.id) && is(peer, info.peer) && is(address, info.address)
    });
    session.reply.integer(killed);
    Ok(())
}

/// Whether a type of clients is `normal`, the type of all clients here. Redis's other types are always empty.
fn is_normal(name: &[u8]) -> Result<bool, Refusal> {
    match name.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"master" | b"replica" | b"slave" | b"pubsub" => Ok(false),
        _ => Err(Refusal::quoting("ERR Unknown client type '", name, "'")),
    }
}

/// Ends the matching connections, and counts them. The client's own connection ends after its reply.
fn end(session: &mut Session<'_>, is_meant: impl Fn(&ClientInfo) -> bool) -> i64 {
    let own = session.client.info.id;
    let mut killed = 0;
    let mut clients = session.shared.clients();
    session.client.worked_bytes += LOOK_BYTES * clients.len() as u64;
    clients.retain(|_, info| {
        let goes = is_meant(info);
        killed += i64::from(goes);
        if goes && info.id != own {
            info.killed.store(true, Relaxed);
        }
        session.client.closing |= goes && info.id == own;
        !goes || info.id == own
    });
    drop(clients);
    if killed > 0 {
        session.shared.sweep();
    }
    killed
}

/// Whom `CLIENT LIST` lists.
enum Wanted {
    All,
    None,
    /// In ascending order.
    Ids(Vec<u64>),
}

impl Wanted {
    /// `CLIENT LIST [TYPE type | ID id [id ...]]`
    fn read(args: &Args<'_>) -> Result<Self, Refusal> {
        let is = |word: &str| args.at(2).eq_ignore_ascii_case(word.as_bytes());
        match args.len() {
            2 => Ok(Self::All),
            4 if is("type") => Ok(if is_normal(args.at(3))? { Self::All } else { Self::None }),
            4.. if is("id") => {
                let id = |id| strict_i64(id).and_then(|id| u64::try_from(id).ok()).filter(|&id| id > 0);
                let ids: Option<Vec<u64>> = args.from(3).map(id).collect();
                let mut ids = ids.ok_or(Refusal::fixed("ERR Invalid client ID"))?;
                ids.sort_unstable();
                Ok(Self::Ids(ids))
            }
            _ => Err(Refusal::SYNTAX),
        }
    }

    fn has(&self, id: u64) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Ids(ids) => ids.binary_search(&id).is_ok(),
        }
    }
}

/// Writes a line for each wanted client, some at a time; connections come and go meanwhile. The page counts as memory
/// that clients hold.
fn list(session: &mut Session<'_>, wanted: &Wanted) -> Result<(), Refusal> {
    let shared = session.shared;
    let (mut held, mut page, mut after) = (shared.budget.hold(), String::new(), 0);
    loop {
        let some = shared.clients_after(after, LISTED_AT_A_TIME);
        let Some(last) = some.last() else { break };
        after = last.id;
        for info in some.iter().filter(|info| wanted.has(info.id)) {
            let line = line(shared, info);
            if page.len() + line.len() > page.capacity() {
                let bytes = (page.len() + line.len()).max(2 * page.capacity());
                held.grow_to(bytes)?;
                page.reserve_exact(bytes - page.len());
            }
            page.push_str(&line);
        }
    }
    session.client.streaming = Some(Box::new(Streaming::text(page, session.reply)));
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
    info.rename(|names| match version {
        true => names.library_version = value,
        false => names.library = value,
    });
    Ok(())
}

fn line(shared: &Shared, info: &ClientInfo) -> String {
    let names = info.names();
    let mut line = String::new();
    // Writing to a string can't fail.
    let _ = writeln!(
        line,
        "id={} addr={} laddr={} name={} age={} idle={} flags=N db=0 user=default resp={} lib-name={} lib-ver={}",
        info.id,
        info.peer,
        info.address,
        names.name,
        info.connected.elapsed().as_secs(),
        shared.seconds().saturating_sub(info.active_s.load(Relaxed)),
        if names.resp3 { 3 } else { 2 },
        names.library,
        names.library_version,
    );
    line
}
