//! `COMMAND`: the table of commands, for clients that ask.

use super::{COMMANDS, Command, Session, find};
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::request::Args;

pub(super) fn command(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let reply = &mut *session.reply;
    let Some(subcommand) = args.get(1) else {
        reply.array(COMMANDS.len());
        COMMANDS.iter().for_each(|command| describe(reply, command));
        return Ok(());
    };
    match subcommand.to_ascii_lowercase().as_slice() {
        b"count" if args.len() == 2 => reply.integer(COMMANDS.len() as i64),
        b"count" => return Err(Refusal::wrong_arity("command|count")),
        b"info" if args.len() == 2 => {
            reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|command| describe(reply, command));
        }
        b"info" => {
            reply.array(args.len() - 2);
            for name in args.from(2) {
                match find(name) {
                    Some(command) => describe(reply, command),
                    None => reply.null(),
                }
            }
        }
        b"list" if args.len() == 2 => {
            reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
        }
        // redis-cli asks for its hints here and does without.
        b"docs" => reply.map(0),
        _ => return Err(Refusal::unknown_subcommand("COMMAND", subcommand)),
    }
    Ok(())
}

/// The ten fields that Redis 7 has; the last four, which refine the others, stay empty.
fn describe(reply: &mut Reply, command: &Command) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity.into());
    reply.set(command.flags.len());
    command.flags.iter().for_each(|flag| reply.simple(flag));
    let (first, last, step) = command.keys;
    [first, last, step].into_iter().for_each(|number| reply.integer(number.into()));
    (0..4).for_each(|_| reply.array(0));
}
