//! `COMMAND`: the table of commands, for clients that ask.

use super::{COMMANDS, Command, Session, docs, find, object};
use crate::glob::Pattern;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::request::Args;
use crate::streaming::Streaming;

pub(super) fn command(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let reply = &mut *session.reply;
    let Some(subcommand) = args.get(1) else {
        reply.array(COMMANDS.len());
        COMMANDS.iter().for_each(|command| describe(reply, command));
        return Ok(());
    };
    let name = subcommand.to_ascii_lowercase();
    match name.as_slice() {
        b"count" if args.len() == 2 => reply.integer(COMMANDS.len() as i64),
        b"info" if args.len() == 2 => {
            reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|command| describe(reply, command));
        }
        b"info" => {
            reply.array(args.len() - 2);
            let rows = Streaming::rows(session.own(args), 2, |reply, name| match find(name) {
                Some(command) => describe(reply, command),
                None => reply.null(),
            });
            session.client.streaming = Some(Box::new(rows));
        }
        b"list" => return list(reply, args),
        b"docs" if args.len() == 2 => {
            reply.map(COMMANDS.len());
            COMMANDS.iter().for_each(|command| document(reply, command));
        }
        b"docs" => {
            reply.map(args.from(2).filter_map(find).count());
            let rows = Streaming::rows(session.own(args), 2, |reply, name| {
                if let Some(command) = find(name) {
                    document(reply, command);
                }
            });
            session.client.streaming = Some(Box::new(rows));
        }
        b"getkeys" if args.len() >= 4 => return keys(reply, args),
        b"help" if args.len() == 2 => object::help(session, "COMMAND", HELP),
        b"count" | b"getkeys" | b"help" => {
            let name = String::from_utf8_lossy(&name);
            return Err(Refusal::wrong_arity(&format!("command|{name}")));
        }
        _ => return Err(Refusal::unknown_subcommand("COMMAND", subcommand)),
    }
    Ok(())
}

const HELP: &[(&str, &str)] = &[
    ("(no subcommand)", "Return details about all commands."),
    ("COUNT", "Return how many commands there are."),
    ("LIST [FILTERBY MODULE <module>|PATTERN <pattern>]", "Return the names of the commands."),
    ("INFO [<command-name> ...]", "Return details about the given commands, or about all."),
    ("DOCS [<command-name> ...]", "Return what the given commands do, or all."),
    ("GETKEYS <full-command>", "Return the keys among the arguments of a command."),
];

fn list(reply: &mut Reply, args: &Args<'_>) -> Result<(), Refusal> {
    let mut pattern = None;
    let mut none = false;
    if args.len() > 2 {
        let is =
            |index: usize, word: &[u8]| args.get(index).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
        match args.get(4) {
            Some(wanted) if args.len() == 5 && is(2, b"filterby") && is(3, b"pattern") => {
                pattern = Some(Pattern::new(&wanted.to_ascii_lowercase())?);
            }
            // There are no modules.
            Some(_) if args.len() == 5 && is(2, b"filterby") && is(3, b"module") => none = true,
            _ => return Err(Refusal::SYNTAX),
        }
    }
    let mut states = Vec::new();
    let mut wanted = |command: &&Command| {
        let name = command.name.as_bytes();
        !none && pattern.as_ref().is_none_or(|pattern| pattern.matches(name, &mut states))
    };
    let names: Vec<_> = COMMANDS.iter().filter(|command| wanted(command)).collect();
    reply.set(names.len());
    names.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
    Ok(())
}

/// `COMMAND GETKEYS name argument...`
fn keys(reply: &mut Reply, args: &Args<'_>) -> Result<(), Refusal> {
    let command = find(args.at(2)).ok_or(Refusal::fixed("ERR Invalid command specified"))?;
    let given = args.len() - 2;
    let (first, last, step) = match command.name {
        // Their subcommands name a key.
        "object" | "memory" if given >= 3 => (2, 2, 1),
        _ => command.keys,
    };
    if first == 0 {
        return Err(Refusal::fixed("ERR The command has no key arguments"));
    }
    if !command.takes(given) {
        return Err(Refusal::fixed("ERR Invalid number of arguments specified for command"));
    }
    let last = if last < 0 { given as i32 + last } else { last } as usize;
    let keys = (first as usize..=last).step_by(step as usize);
    reply.array(keys.clone().count());
    keys.for_each(|index| reply.bulk(args.at(2 + index)));
    Ok(())
}

/// The ten fields of Redis 7. The last four refine the others and stay empty.
fn describe(reply: &mut Reply, command: &Command) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity.into());
    reply.set(command.flags.len());
    command.flags.iter().for_each(|flag| reply.simple(flag));
    let (first, last, step) = command.keys;
    [first, last, step].into_iter().for_each(|number| reply.integer(number.into()));
    (0..4).for_each(|_| reply.set(0));
}

/// A command's name and its documentation.
fn document(reply: &mut Reply, command: &Command) {
    reply.bulk(command.name.as_bytes());
    let fields = docs::find(command.name).map_or([("summary", ""), ("since", ""), ("group", "")], |doc| {
        [("summary", doc.summary), ("since", doc.since), ("group", doc.group)]
    });
    reply.map(fields.len());
    for (field, text) in fields {
        reply.bulk(field.as_bytes());
        reply.bulk(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_leaves_four_sets_empty() {
        let mut reply = Reply { resp3: true, ..Reply::default() };
        describe(&mut reply, find(b"get").unwrap());
        assert!(reply.output.unsent().ends_with(b":1\r\n~0\r\n~0\r\n~0\r\n~0\r\n"));
    }
}
