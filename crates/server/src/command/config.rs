//! `CONFIG`: the settings that tools ask for and change, under Redis's names.

use std::sync::atomic::Ordering::Relaxed;

use super::object::help;
use super::{Session, config_set};
use crate::glob::Pattern;
use crate::refusal::Refusal;
use crate::request::{Args, BULK_BYTES_MAX};
use crate::shared::Shared;

const HELP: &[(&str, &str)] = &[
    ("GET <pattern>", "Return parameters matching the glob-like <pattern> and their values."),
    ("SET <directive> <value>", "Set the configuration <directive> to <value>."),
    ("RESETSTAT", "Reset statistics reported by the INFO command."),
    ("REWRITE", "Rewrite the configuration file."),
];

pub(super) fn config(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let subcommand = args.at(1).to_ascii_lowercase();
    match subcommand.as_slice() {
        b"get" if args.len() >= 3 => get(session, args)?,
        b"set" if args.len() >= 4 => {
            config_set::set(session.shared, args)?;
            session.reply.ok();
        }
        b"resetstat" if args.len() == 2 => {
            session.shared.reset_totals();
            session.reply.ok();
        }
        b"rewrite" if args.len() == 2 => {
            return Err(Refusal::fixed("ERR The server is running without a config file"));
        }
        b"help" if args.len() == 2 => help(session, "CONFIG", HELP),
        b"get" | b"set" | b"resetstat" | b"rewrite" | b"help" => {
            let name = String::from_utf8_lossy(&subcommand);
            return Err(Refusal::wrong_arity(&format!("config|{name}")));
        }
        _ => return Err(Refusal::unknown_subcommand("CONFIG", args.at(1))),
    }
    Ok(())
}

fn get(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let settings = settings(session.shared);
    let (mut is_wanted, mut states) = (vec![false; settings.len()], Vec::new());
    for pattern in args.from(2) {
        let pattern = Pattern::new(&pattern.to_ascii_lowercase())?;
        for ((name, _), is_wanted) in settings.iter().zip(&mut is_wanted) {
            *is_wanted = *is_wanted || pattern.matches(name.as_bytes(), &mut states);
        }
    }
    let settings: Vec<_> = settings
        .into_iter()
        .zip(is_wanted)
        .filter(|(_, wanted)| *wanted)
        .map(|(setting, _)| setting)
        .collect();
    session.reply.map(settings.len());
    for (name, value) in settings {
        session.reply.bulk(name.as_bytes());
        session.reply.bulk(&value);
    }
    Ok(())
}

/// Every setting in force. The password is shown as Redis shows it: only clients that have sent it may ask.
pub(super) fn settings(shared: &Shared) -> Vec<(&'static str, Vec<u8>)> {
    let (config, live) = (&shared.config, &shared.settings);
    let durability = shared.backend.persistence().into_iter().find(|(name, _)| *name == "durability");
    let is_durable = durability.is_some();
    let password = live.password().map_or(Vec::new(), |password| password.reveal().to_vec());
    // With TLS alone the address is that of `tls-port`.
    let port = if config.plain { shared.address.port() } else { 0 };
    let mut settings = vec![("requirepass", password)];
    let shown = [
        ("appendfsync", durability.map_or("everysec".into(), |(_, durability)| durability)),
        ("appendonly", yes_or_no(is_durable)),
        ("bind", config.bind.to_string()),
        ("client-output-buffer-limit", live.output_limits().to_string()),
        ("databases", "1".into()),
        ("tls-port", shared.config.tls.as_ref().map_or(0, |tls| tls.port).to_string()),
        ("io-threads", config.threads.to_string()),
        ("maxclients", live.clients_max().to_string()),
        ("maxmemory", shared.limit_bytes().to_string()),
        ("maxmemory-clients", shared.budget.limit_bytes().to_string()),
        ("maxmemory-policy", shared.eviction_policy().into()),
        ("port", port.to_string()),
        ("proto-max-bulk-len", BULK_BYTES_MAX.to_string()),
        ("protected-mode", yes_or_no(config.protected_mode)),
        ("save", String::new()),
        ("tcp-keepalive", live.keepalive_s.load(Relaxed).to_string()),
        ("timeout", live.timeout_s.load(Relaxed).to_string()),
    ];
    settings.extend(shown.map(|(name, value): (_, String)| (name, value.into_bytes())));
    settings
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.into()
}
