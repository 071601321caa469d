//! `CONFIG GET`: the settings that tools ask for, under Redis's names.

use super::Session;
use crate::glob;
use crate::refusal::Refusal;
use crate::request::{Args, BULK_BYTES_MAX};
use crate::shared::Shared;

pub(super) fn config(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    if !args.at(1).eq_ignore_ascii_case(b"get") {
        return Err(Refusal::unknown_subcommand("CONFIG", args.at(1)));
    }
    if args.len() < 3 {
        return Err(Refusal::wrong_arity("config|get"));
    }
    let mut settings = settings(session.shared);
    settings.retain(|(name, _)| {
        args.from(2).any(|pattern| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes()))
    });
    session.reply.map(settings.len());
    for (name, value) in settings {
        session.reply.bulk(name.as_bytes());
        session.reply.bulk(value.as_bytes());
    }
    Ok(())
}

fn settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let config = &shared.config;
    let limit_bytes = shared.limit_bytes();
    let durability = shared.backend.persistence().into_iter().find(|(name, _)| *name == "durability");
    vec![
        ("appendfsync", durability.clone().map_or("everysec".into(), |(_, durability)| durability)),
        ("appendonly", if durability.is_some() { "yes" } else { "no" }.into()),
        ("bind", config.bind.to_string()),
        ("databases", "1".into()),
        ("io-threads", config.threads.to_string()),
        ("maxclients", config.clients_max.to_string()),
        ("maxmemory", limit_bytes.to_string()),
        ("maxmemory-clients", config.client_bytes_max.to_string()),
        ("maxmemory-policy", shared.backend.eviction_policy().into()),
        ("port", shared.address.port().to_string()),
        ("proto-max-bulk-len", BULK_BYTES_MAX.to_string()),
        ("protected-mode", if config.protected_mode { "yes" } else { "no" }.into()),
        ("save", String::new()),
        ("timeout", "0".into()),
    ]
}
