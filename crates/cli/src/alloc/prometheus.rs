//! What the library tells of programs, in Prometheus's text format.

use std::fmt::Write;

use ziptier_alloc::page::{FarKind, MediumSeen, Snapshot};
use ziptier_alloc::programs::Program;

/// Name, help, type and value of a metric.
type Metric<T> = (&'static str, &'static str, &'static str, fn(&T) -> f64);

const OF_MEDIA: [Metric<MediumSeen>; 7] = [
    ("live_bytes", "Bytes of live allocations.", "gauge", |medium| medium.live_bytes as f64),
    ("active_bytes", "Bytes of pages that hold live allocations.", "gauge", |medium| {
        medium.active_bytes as f64
    }),
    ("mapped_bytes", "Bytes of mappings.", "gauge", |medium| medium.mapped_bytes as f64),
    ("spills_total", "Allocations for which this medium had no room.", "counter", |medium| {
        medium.spills as f64
    }),
    ("spilled_bytes_total", "Bytes of these.", "counter", |medium| medium.spilled_bytes as f64),
    ("moves_total", "Allocations that moved to this medium.", "counter", |medium| medium.moves as f64),
    ("moved_bytes_total", "Bytes of these.", "counter", |medium| medium.moved_bytes as f64),
];

const OF_PROGRAMS: [Metric<Snapshot>; 7] = [
    ("ratio_far_to_dram", "Wanted bytes in far memory for each byte in DRAM.", "gauge", |seen| {
        seen.ratio.map_or(f64::NAN, |ratio| f64::from(ratio.far) / f64::from(ratio.dram))
    }),
    ("threshold_bytes", "Larger sizes lie in far memory.", "gauge", |seen| match seen.threshold_bytes {
        u64::MAX => f64::INFINITY,
        bytes => bytes as f64,
    }),
    ("far_fraction_at_threshold", "Part of the threshold's size class that is far.", "gauge", |seen| {
        seen.dither
    }),
    ("far_is_simulated", "1 if far memory is ordinary memory.", "gauge", |seen| {
        f64::from(u8::from(seen.far_kind == FarKind::Simulated))
    }),
    ("failed_bindings_total", "Mappings not bound to far memory.", "counter", |seen| {
        seen.failed_bindings as f64
    }),
    ("threads", "Threads that have allocated in far memory.", "gauge", |seen| f64::from(seen.threads)),
    ("ticks_total", "Decisions of the policy.", "counter", |seen| seen.ticks as f64),
];

pub(super) fn metrics(programs: &[Program]) -> String {
    let programs: Vec<(String, Snapshot)> =
        programs.iter().map(|program| (labels(program), Snapshot::of(program.page()))).collect();
    let mut text = String::new();
    for (name, help, kind, value) in OF_MEDIA {
        head(&mut text, name, help, kind);
        for (labels, seen) in &programs {
            for (medium, label) in seen.media.iter().zip(["dram", "far"]) {
                let _ =
                    writeln!(text, "ziptier_alloc_{name}{{{labels},medium=\"{label}\"}} {}", value(medium));
            }
        }
    }
    for (name, help, kind, value) in OF_PROGRAMS {
        head(&mut text, name, help, kind);
        for (labels, seen) in &programs {
            let _ = writeln!(text, "ziptier_alloc_{name}{{{labels}}} {}", number(value(seen)));
        }
    }
    text
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP ziptier_alloc_{name} {help}\n# TYPE ziptier_alloc_{name} {kind}");
}

/// Infinity as Prometheus writes it.
fn number(value: f64) -> String {
    if value.is_infinite() { "+Inf".to_owned() } else { value.to_string() }
}

fn labels(program: &Program) -> String {
    let name = program.name.replace('\\', "\\\\").replace('"', "\\\"");
    format!("process=\"{}\",program=\"{name}\"", program.pid)
}
