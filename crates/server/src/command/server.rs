//! `SAVE` `BGSAVE` `LASTSAVE` `SHUTDOWN` `TIME`.

use std::time::{SystemTime, UNIX_EPOCH};

use super::Session;
use crate::backend::{Backend, Save, Saving};
use crate::refusal::Refusal;
use crate::request::Args;

const NO_FOLDER: Refusal =
    Refusal::fixed("ERR there is no folder to save to; start the server with --dir to have one");

/// The clients of other threads are served meanwhile.
pub(super) fn save(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    begin(&*session.shared.backend, Save::Make)?;
    session.reply.ok();
    Ok(())
}

/// `SCHEDULE` waits for a rewrite of Redis's log. Here there is no such rewrite.
pub(super) fn bgsave(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    match args.get(1) {
        None => {}
        Some(option) if args.len() == 2 && option.eq_ignore_ascii_case(b"schedule") => {}
        Some(_) => return Err(Refusal::SYNTAX),
    }
    begin(&*session.shared.backend, Save::Begin)?;
    session.reply.simple("Background saving started");
    Ok(())
}

fn begin(backend: &dyn Backend, how: Save) -> Result<(), Refusal> {
    match backend.save(how)? {
        Saving::Done => Ok(()),
        Saving::UnderWay => Err(Refusal::fixed("ERR Background save already in progress")),
        Saving::NoFolder => Err(NO_FOLDER),
    }
}

pub(super) fn lastsave(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    let at_ms = session.shared.backend.last_save_ms().ok_or(NO_FOLDER)?;
    session.reply.integer((at_ms / 1000) as i64);
    Ok(())
}

/// Stops the server; closing the store leaves its folder in order. On success the client sees its connection close.
pub(super) fn shutdown(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let (mut saves, mut skips) = (false, false);
    for option in args.from(1) {
        match option.to_ascii_lowercase().as_slice() {
            b"save" if !skips => saves = true,
            b"nosave" if !saves => skips = true,
            b"now" | b"force" => {}
            b"abort" if args.len() == 2 => return Err(Refusal::fixed("ERR No shutdown in progress.")),
            _ => return Err(Refusal::SYNTAX),
        }
    }
    // While the store is still loading there is nothing to save. Redis ends without a save, too.
    if saves
        && !session.shared.backend.is_loading()
        && session.shared.backend.save(Save::MakeNext)? == Saving::NoFolder
    {
        return Err(NO_FOLDER);
    }
    session.client.closing = true;
    session.shared.stop();
    Ok(())
}

/// Seconds and microseconds of Unix time.
pub(super) fn time(session: &mut Session<'_>, _args: &Args<'_>) -> Result<(), Refusal> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    session.reply.array(2);
    for number in [now.as_secs(), now.subsec_micros().into()] {
        session.reply.bulk(number.to_string().as_bytes());
    }
    Ok(())
}
