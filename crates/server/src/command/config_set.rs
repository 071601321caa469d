//! `CONFIG SET`: several settings at once, all or none.
//!
//! 1. The server checks every name and value, in order. The first wrong one refuses the whole request.
//! 2. Then it makes every change. None of them can fail.
//!
//! No refusal quotes a value, because it may be a password.

use std::sync::atomic::Ordering::Relaxed;

use super::config::settings;
use crate::integer::{bytes_said, strict_i64};
use crate::output_limits::OutputLimits;
use crate::password::Password;
use crate::refusal::Refusal;
use crate::request::Args;
use crate::shared::Shared;

/// A change that has been judged.
enum Change {
    Timeout(u64),
    KeepAlive(u64),
    ClientsMax(usize),
    Memory(u64),
    Password(Option<Password>),
    OutputLimits(OutputLimits),
    Eviction(bool),
    Nothing,
}

/// `CONFIG SET name value [name value ...]`
pub(super) fn set(shared: &Shared, args: &Args<'_>) -> Result<(), Refusal> {
    if args.len() % 2 == 1 {
        return Err(Refusal::SYNTAX);
    }
    let alone = shared.settings.change();
    let in_force = settings(shared);
    let mut changes = Vec::new();
    let mut rest = args.from(2);
    while let (Some(name), Some(value)) = (rest.next(), rest.next()) {
        let wanted = |known: &&(&str, Vec<u8>)| known.0.as_bytes().eq_ignore_ascii_case(name);
        let Some((known, present)) = in_force.iter().find(wanted) else {
            return Err(Refusal::quoting(
                "ERR Unknown option or number of arguments for CONFIG SET - '",
                name,
                "'",
            ));
        };
        let failed = |reason: String| {
            let after = format!("') - {reason}");
            Refusal::quoting("ERR CONFIG SET failed (possibly related to argument '", name, &after)
        };
        if changes.iter().any(|(earlier, _)| earlier == known) {
            return Err(failed("duplicate parameter".into()));
        }
        changes.push((*known, judge(shared, known, value, present).map_err(failed)?));
    }
    let made = changes.into_iter().map(|(_, change)| change);
    let (eviction, others): (Vec<_>, Vec<_>) = made.partition(|change| matches!(change, Change::Eviction(_)));
    others.into_iter().for_each(|change| change.make(shared));
    // This visits every leaf, so other settings can change meanwhile.
    drop(alone);
    eviction.into_iter().for_each(|change| change.make(shared));
    Ok(())
}

/// The change that `value` means for the setting `name`, or the refusal.
fn judge(shared: &Shared, name: &str, value: &[u8], present: &[u8]) -> Result<Change, String> {
    match name {
        "timeout" => integer(value, 0, i32::MAX.into()).map(Change::Timeout),
        "tcp-keepalive" => integer(value, 0, i32::MAX.into()).map(Change::KeepAlive),
        "maxclients" => clients_max(shared, value),
        "maxmemory" => bytes_said(value).map(Change::Memory).ok_or("argument must be a memory value".into()),
        "requirepass" => password(shared, value),
        "maxmemory-policy" => policy(shared, value),
        "client-output-buffer-limit" => {
            shared.settings.output_limits().changed(value).map(Change::OutputLimits)
        }
        // The setting has this value already.
        _ if value.eq_ignore_ascii_case(present) => Ok(Change::Nothing),
        _ => Err("can't set immutable config".into()),
    }
}

impl Change {
    fn make(self, shared: &Shared) {
        let settings = &shared.settings;
        match self {
            Self::Timeout(seconds) => settings.timeout_s.store(seconds, Relaxed),
            Self::KeepAlive(seconds) => settings.keepalive_s.store(seconds, Relaxed),
            Self::ClientsMax(clients) => settings.set_clients_max(clients),
            Self::Memory(bytes) => shared.set_memory_limit(bytes),
            Self::Password(password) => settings.set_password(password),
            Self::OutputLimits(limits) => settings.set_output_limits(limits),
            Self::Eviction(evicts) => shared.backend.set_eviction(evicts),
            Self::Nothing => {}
        }
    }
}

fn integer(value: &[u8], least: i64, most: i64) -> Result<u64, String> {
    let number = strict_i64(value).ok_or("argument couldn't be parsed into an integer")?;
    if !(least..=most).contains(&number) {
        return Err(format!("argument must be between {least} and {most} inclusive"));
    }
    Ok(number as u64)
}

fn clients_max(shared: &Shared, value: &[u8]) -> Result<Change, String> {
    let clients = integer(value, 1, u32::MAX.into())? as usize;
    let possible = shared.settings.clients_possible();
    if clients > possible {
        return Err(format!(
            "The operating system is not able to handle the specified number of clients, try with {possible}"
        ));
    }
    Ok(Change::ClientsMax(clients))
}

fn password(shared: &Shared, value: &[u8]) -> Result<Change, String> {
    if value.is_empty() {
        if shared.config.is_exposed(false) {
            return Err("protected mode forbids to serve other machines without a password".into());
        }
        return Ok(Change::Password(None));
    }
    Password::new(value).map(|password| Change::Password(Some(password))).map_err(|error| error.to_string())
}

fn policy(shared: &Shared, value: &[u8]) -> Result<Change, String> {
    if shared.backend.is_loading() {
        return Err("the store is not open yet".into());
    }
    match value.to_ascii_lowercase().as_slice() {
        b"noeviction" => Ok(Change::Eviction(false)),
        b"allkeys-s3fifo" => {
            shared.backend.may_evict().map(|()| Change::Eviction(true)).map_err(|refusal| refusal.to_string())
        }
        _ => Err("argument(s) must be one of the following: noeviction, allkeys-s3fifo".into()),
    }
}
