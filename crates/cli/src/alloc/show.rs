//! What the library tells of a program, for people and as JSON.

use serde_json::{Value, json};
use ziptier_alloc::configuration::{Configuration, Policy};
use ziptier_alloc::fixed_text::FixedText;
use ziptier_alloc::page::{FarKind, MediumSeen, Snapshot};
use ziptier_alloc::programs::{Linkage, Program};
use ziptier_alloc::size_class::class_bytes;

use crate::output::{mib, table};

pub(super) const MEDIA: [&str; 2] = ["DRAM", "far memory"];

/// Figures of this age deserve a note.
const OLD_MS: u64 = 10_000;

/// The policy in words: `ratio 1:3, threshold 1024 bytes`.
pub(super) fn policy(seen: &Snapshot) -> String {
    let threshold = seen.threshold_bytes;
    match (seen.policy, seen.ratio) {
        (None, _) | (Some(Policy::Ratio), None) => "unknown".to_owned(),
        (Some(Policy::Ratio), Some(ratio)) => format!("ratio {}:{}", ratio.dram, ratio.far),
        (Some(Policy::Threshold), _) => format!("threshold, sizes above {threshold} bytes lie in far memory"),
        (Some(policy), _) => policy.name().to_owned(),
    }
}

/// What far memory is.
pub(super) fn far(seen: &Snapshot) -> String {
    match seen.far_kind {
        FarKind::Unknown => "none".to_owned(),
        FarKind::Simulated => "simulated: ordinary memory that is counted as far".to_owned(),
        FarKind::Nodes => {
            let nodes: Vec<String> = seen.far_nodes.iter().map(|node| node.to_string()).collect();
            format!("NUMA node {}", nodes.join(", "))
        }
    }
}

/// Bytes in DRAM to bytes in far memory, as a ratio with the smaller part of the wanted one: `1:2.98`.
fn ratio_now(seen: &Snapshot) -> String {
    let [dram, far] = seen.media.each_ref().map(|medium| medium.live_bytes as f64);
    if dram + far == 0.0 {
        return "nothing allocated yet".to_owned();
    }
    if dram >= far && far > 0.0 {
        return format!("{:.2}:1", dram / far);
    }
    if dram == 0.0 { "0:1".to_owned() } else { format!("1:{:.2}", far / dram) }
}

fn text<const BYTES: usize>(text: &FixedText<BYTES>) -> String {
    String::from_utf8_lossy(text.as_bytes()).into_owned()
}

fn limit(bytes: u64) -> String {
    if bytes == u64::MAX { "none".to_owned() } else { mib(bytes) }
}

/// What the reader should know before he trusts the figures.
fn notes(program: &Program, seen: &Snapshot) -> Vec<String> {
    let mut notes = Vec::new();
    let mistake = text(&seen.mistake);
    if !mistake.is_empty() {
        notes.push(format!(
            "the program was started with wrong options, and everything lies in DRAM: {mistake}"
        ));
    }
    if let Ok(linkage @ Linkage::OwnAllocator(_)) = program.linkage() {
        notes.push(format!("the figures are those of shared libraries alone: {linkage}"));
    }
    if let Some(age_ms) = seen.age_ms().filter(|&age_ms| age_ms >= OLD_MS) {
        let seconds = age_ms / 1000;
        notes.push(format!("the figures are {seconds} s old: the program has allocated little since"));
    }
    if seen.failed_bindings > 0 {
        let failed = seen.failed_bindings;
        notes.push(format!("the kernel refused to bind memory to the nodes of far memory ({failed} times)"));
    }
    if let (Some(class), true) = (seen.class, seen.is_class_lost) {
        let class = class.as_str();
        notes.push(format!(
            "the program is not in the class {class}; it keeps the ratio and the limits that it had, and joins \
             when there is such a class, see: ziptier alloc class"
        ));
    }
    notes
}

pub(super) fn screen(program: &Program) -> String {
    let seen = Snapshot::of(program.page());
    let wanted = program.wanted();
    let mut lines = vec![
        (
            "program",
            format!("{}, process {}, library {}", program.name, program.pid, text(&seen.library_version)),
        ),
        ("policy", policy(&seen)),
        ("now", ratio_now(&seen)),
        ("far memory", far(&seen)),
    ];
    if seen.policy == Some(Policy::Ratio) {
        let threshold = match seen.threshold_bytes {
            u64::MAX => "none".to_owned(),
            bytes => format!("{bytes} bytes; {:.1} % of that size class is far", seen.dither * 100.0),
        };
        lines.insert(3, ("threshold", threshold));
    }
    if let Some(class) = seen.class {
        lines.push(("class", class.as_str().to_owned()));
    }
    lines.extend(notes(program, &seen).into_iter().map(|note| ("note", note)));
    let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: String = lines.iter().map(|(name, text)| format!("{name:width$}  {text}\n")).collect();
    lines + "\n" + &media(&seen, &wanted)
}

fn media(seen: &Snapshot, wanted: &Configuration) -> String {
    let limits = [wanted.dram_limit_bytes, wanted.far_limit_bytes];
    let rows = seen.media.iter().zip(MEDIA).zip(limits).map(|((medium, name), limit_bytes)| {
        vec![
            name.to_owned(),
            mib(medium.live_bytes),
            mib(medium.active_bytes),
            mib(medium.mapped_bytes),
            limit(limit_bytes),
            medium.spills.to_string(),
            medium.moves.to_string(),
        ]
    });
    table(&["medium", "live", "active", "mapped", "limit", "spilled", "moved in"], rows, 1)
}

pub(super) fn list(programs: &[Program]) -> String {
    let rows = programs.iter().map(|program| {
        let seen = Snapshot::of(program.page());
        let [dram, far] = seen.media.each_ref().map(|medium| mib(medium.live_bytes));
        let kind = match seen.far_kind {
            FarKind::Nodes => "node",
            FarKind::Simulated => "simulated",
            FarKind::Unknown => "none",
        };
        let class = seen.class.map_or_else(|| "-".to_owned(), |class| class.as_str().to_owned());
        vec![program.name.clone(), policy(&seen), class, kind.to_owned(), program.pid.to_string(), dram, far]
    });
    table(&["program", "policy", "class", "far memory", "process", "in DRAM", "in far memory"], rows, 4)
}

pub(super) fn watch_title() -> String {
    let mut titles = String::new();
    for title in ["in DRAM", "in far memory", "ratio", "threshold", "spilled", "moved"] {
        titles += &format!("{title:>15}");
    }
    titles + "\n"
}

/// One line: bytes now, and spills and moves since the last line.
pub(super) fn watch_line(last: &Snapshot, now: &Snapshot) -> String {
    let since = |count: fn(&MediumSeen) -> u64| {
        let sum = |seen: &Snapshot| seen.media.iter().map(count).fold(0, u64::wrapping_add);
        sum(now).wrapping_sub(sum(last))
    };
    let [dram, far] = now.media.each_ref().map(|medium| mib(medium.live_bytes));
    let (spills, moves) = (since(|medium| medium.spills), since(|medium| medium.moves));
    let ratio = ratio_now(now);
    let threshold = match now.threshold_bytes {
        u64::MAX => "none".to_owned(),
        bytes => bytes.to_string(),
    };
    format!("{dram:>15}{far:>15}{ratio:>15}{threshold:>15}{spills:>15}{moves:>15}\n")
}

pub(super) fn json(program: &Program) -> Value {
    let seen = Snapshot::of(program.page());
    let wanted = program.wanted();
    let limits =
        [wanted.dram_limit_bytes, wanted.far_limit_bytes].map(|bytes| (bytes != u64::MAX).then_some(bytes));
    let [dram, far] = [0, 1].map(|index: usize| medium_json(&seen.media[index], limits[index]));
    json!({
        "process": program.pid,
        "program": program.name,
        "library_version": text(&seen.library_version),
        "policy": seen.policy.map(Policy::name),
        "ratio": seen.ratio.map(|ratio| json!({ "dram": ratio.dram, "far": ratio.far })),
        "far_to_dram": seen.far_to_dram(),
        "threshold_bytes": (seen.threshold_bytes != u64::MAX).then_some(seen.threshold_bytes),
        "far_fraction_at_threshold": seen.dither,
        "far_memory": {
            "is_simulated": seen.far_kind == FarKind::Simulated,
            "nodes": seen.far_nodes.iter().collect::<Vec<u32>>(),
            "failed_bindings": seen.failed_bindings,
        },
        "class": seen.class.map(|class| class.as_str().to_owned()),
        "threads": seen.threads,
        "ticks": seen.ticks,
        "age_ms": seen.age_ms(),
        "changes_wanted": seen.changes,
        "changes_obeyed": seen.applied,
        "notes": notes(program, &seen),
        "dram": dram,
        "far": far,
    })
}

fn medium_json(medium: &MediumSeen, limit_bytes: Option<u64>) -> Value {
    let sizes = medium.live_bytes_by_class.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
    let sizes: Vec<Value> = sizes
        .map(|(class, bytes)| json!({ "size_bytes": class_bytes(class), "live_bytes": bytes }))
        .collect();
    json!({
        "live_bytes": medium.live_bytes,
        "active_bytes": medium.active_bytes,
        "mapped_bytes": medium.mapped_bytes,
        "limit_bytes": limit_bytes,
        "spills": medium.spills,
        "spilled_bytes": medium.spilled_bytes,
        "moves": medium.moves,
        "moved_bytes": medium.moved_bytes,
        "sizes": sizes,
    })
}
