//! `INFO`: one page about server, memory, counters and codec. Names are Redis's where Redis has them.

use std::fmt::Write as _;
use std::sync::atomic::Ordering::Relaxed;

use super::{OVERVIEW_BYTES, Session};
use crate::process::{self, COMPATIBLE_VERSION};
use crate::refusal::Refusal;
use crate::request::Args;
use crate::shared::{Shared, TOTALS};

/// Writes the fields of one section.
type Section = fn(&mut String, &Shared);

/// Name, heading, fields.
const SECTIONS: &[(&str, &str, Section)] = &[
    ("server", "Server", server),
    ("clients", "Clients", clients),
    ("memory", "Memory", memory),
    ("persistence", "Persistence", persistence),
    ("stats", "Stats", stats),
    ("replication", "Replication", replication),
    ("cpu", "CPU", cpu),
    ("codec", "Codec", codec),
    ("ssd", "SSD", ssd),
    ("keyspace", "Keyspace", keyspace),
];

pub(super) fn info(session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
    let every = |name: &[u8]| {
        [&b"all"[..], b"everything", b"default"].iter().any(|word| name.eq_ignore_ascii_case(word))
    };
    let all = args.len() == 1 || args.from(1).any(every);
    let mut page = String::new();
    for (name, heading, write) in SECTIONS {
        if all || args.from(1).any(|wanted| wanted.eq_ignore_ascii_case(name.as_bytes())) {
            let before = page.len();
            if !page.is_empty() {
                page.push_str("\r\n");
            }
            let _ = write!(page, "# {heading}\r\n");
            let fields = page.len();
            write(&mut page, session.shared);
            if *name == "ssd" && page.len() == fields {
                page.truncate(before);
            }
        }
    }
    session.client.worked_bytes += OVERVIEW_BYTES;
    session.reply.text(&page);
    Ok(())
}

fn field(page: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a string can't fail.
    let _ = write!(page, "{name}:{value}\r\n");
}

fn server(page: &mut String, shared: &Shared) {
    let uptime = shared.started.elapsed().as_secs();
    field(page, "redis_version", COMPATIBLE_VERSION);
    field(page, "ziptier_version", env!("CARGO_PKG_VERSION"));
    field(page, "redis_mode", "standalone");
    field(page, "os", std::env::consts::OS);
    field(page, "arch_bits", usize::BITS);
    field(page, "multiplexing_api", "epoll");
    field(page, "process_id", std::process::id());
    field(page, "tcp_port", shared.address.port());
    field(page, "io_threads", shared.config.threads);
    field(page, "started_unix_ms", shared.started_unix_ms);
    field(page, "uptime_in_seconds", uptime);
    field(page, "uptime_in_days", uptime / 86_400);
}

fn clients(page: &mut String, shared: &Shared) {
    field(page, "connected_clients", shared.connections_open.load(Relaxed));
    field(page, "maxclients", shared.settings.clients_max());
    field(page, "blocked_clients", 0);
}

fn memory(page: &mut String, shared: &Shared) {
    let memory = shared.backend.memory();
    let clients = shared.budget.held_bytes() as u64;
    let (used, peak) = shared.used_bytes();
    let resident = process::resident();
    let everywhere = memory.held_bytes + shared.backend.held_below_bytes();
    let per = |bytes: u64, of: u64| if of == 0 { 0.0 } else { bytes as f64 / of as f64 };
    field(page, "used_memory", used);
    field(page, "used_memory_human", human(used));
    field(page, "used_memory_rss", resident.bytes);
    field(page, "used_memory_rss_human", human(resident.bytes));
    field(page, "used_memory_rss_anonymous", resident.anonymous_bytes);
    field(page, "used_memory_peak", peak);
    field(page, "used_memory_peak_human", human(peak));
    field(page, "used_memory_dataset", memory.held_bytes);
    field(page, "logical_bytes", memory.logical_bytes);
    field(page, "logical_human", human(memory.logical_bytes));
    field(page, "held_bytes", memory.held_bytes);
    field(page, "held_human", human(memory.held_bytes));
    field(page, "held_per_logical", format_args!("{:.3}", per(memory.held_bytes, memory.logical_bytes)));
    field(page, "compression_ratio", format_args!("{:.3}", per(memory.logical_bytes, everywhere)));
    for (name, bytes) in &memory.parts {
        field(page, name, bytes);
    }
    let limit_bytes = shared.limit_bytes();
    field(page, "maxmemory", limit_bytes);
    field(page, "maxmemory_human", human(limit_bytes));
    // The store's part of the limit, if the limit is that of the whole process.
    field(page, "store_limit_bytes", shared.memory_limit.store_bytes().unwrap_or(limit_bytes));
    field(page, "maxmemory_policy", shared.eviction_policy());
    if let Some(far) = shared.backend.far() {
        field(page, "far_kind", far.kind);
        field(page, "far_persistence", far.persistence);
        field(page, "far_used_bytes", far.used_bytes);
        field(page, "far_limit_bytes", far.limit_bytes);
        for (name, bytes) in &far.parts {
            field(page, name, bytes);
        }
    }
    field(page, "mem_clients_normal", clients);
    field(page, "mem_fragmentation_ratio", format_args!("{:.2}", per(resident.bytes, used)));
}

fn persistence(page: &mut String, shared: &Shared) {
    let is_loading = shared.backend.is_loading();
    field(page, "loading", u8::from(is_loading));
    field(page, "async_loading", 0);
    if is_loading {
        let (done, all) = (shared.backend.done_bytes.load(Relaxed), shared.backend.all_bytes.load(Relaxed));
        let percent = 100.0 * done as f64 / all.max(1) as f64;
        field(page, "loading_start_time", shared.started_unix_ms / 1000);
        field(page, "loading_total_bytes", all);
        field(page, "loading_loaded_bytes", done);
        field(page, "loading_loaded_perc", format_args!("{percent:.2}"));
    }
    let fields = shared.backend.persistence();
    field(page, "aof_enabled", u8::from(!fields.is_empty()));
    for (name, value) in fields {
        field(page, name, value);
    }
}

fn stats(page: &mut String, shared: &Shared) {
    for (name, total) in TOTALS.into_iter().zip(shared.totals().0) {
        field(page, name, total);
    }
    field(page, "evicted_clients", shared.budget.evicted.load(Relaxed));
    field(page, "eventloop_cycles", shared.total(|counters| &counters.cycles));
    field(page, "background_work", u8::from(!shared.backend.is_settled()));
}

fn replication(page: &mut String, _shared: &Shared) {
    field(page, "role", "master");
    field(page, "connected_slaves", 0);
}

fn cpu(page: &mut String, _shared: &Shared) {
    let usage = process::cpu_seconds();
    field(page, "used_cpu_sys", format_args!("{:.6}", usage.system));
    field(page, "used_cpu_user", format_args!("{:.6}", usage.user));
}

fn codec(page: &mut String, shared: &Shared) {
    field(page, "codec", shared.backend.codec());
    for (name, value) in shared.backend.counters() {
        field(page, name, value);
    }
}

/// Nothing without an SSD.
fn ssd(page: &mut String, shared: &Shared) {
    for (name, value) in shared.backend.ssd() {
        field(page, name, value);
    }
}

fn keyspace(page: &mut String, shared: &Shared) {
    // If counting would have to visit many leaves, the count of the last merges stands in.
    let keys = shared.backend.len_if_quick().unwrap_or_else(|settled| settled);
    if keys > 0 {
        let _ = write!(page, "db0:keys={keys}\r\n");
    }
}

/// Bytes as Redis abbreviates them.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let mut scaled = bytes as f64 / 1024.0;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{scaled:.2}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn bytes_are_abbreviated() {
        assert_eq!(human(512), "512B");
        assert_eq!(human(1536), "1.50K");
        assert_eq!(human(1 << 30), "1.00G");
    }
}
