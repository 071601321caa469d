//! NUMA nodes.

use super::{bytes, numbered, text};
use std::path::Path;
use ziptier_findings::{Finding, Recorder, Section};

pub(super) fn examine(root: &Path, section: &mut Section) {
    let folder = root.join("sys/devices/system/node");
    let nodes = numbered(&folder, "node");
    if nodes.is_empty() {
        section.add(Finding::note("nodes", "the kernel tells of none"));
        return;
    }
    for (number, name) in nodes {
        let folder = folder.join(name);
        let subject = format!("node {number}");
        let size = memory_bytes(&folder).map_or("memory of unknown size".to_owned(), bytes);
        section.add(match text(&folder.join("cpulist")) {
            Some(processors) if !processors.is_empty() => {
                Finding::note(subject, format!("{size}, processors {processors}"))
            }
            _ => Finding::good(subject, format!("{size} without processors: far memory")),
        });
    }
}

/// The nodes that have no processors.
pub(super) fn without_processors(root: &Path) -> Vec<u32> {
    let folder = root.join("sys/devices/system/node");
    let has_none = |name: &str| text(&folder.join(name).join("cpulist")).is_none_or(|list| list.is_empty());
    let nodes = numbered(&folder, "node").into_iter();
    nodes.filter(|(_, name)| has_none(name)).map(|(number, _)| number).collect()
}

/// Records what [`examine`] reads.
pub(super) fn record(recorder: &mut Recorder) {
    for name in recorder.folder("sys/devices/system/node").iter().filter(|name| name.starts_with("node")) {
        let node = format!("sys/devices/system/node/{name}");
        recorder.file(&format!("{node}/cpulist"));
        recorder
            .lines(&format!("{node}/meminfo"), |line| line.contains(" MemTotal:").then(|| line.to_owned()));
    }
}

/// The line `Node 0 MemTotal:  9398484 kB`.
fn memory_bytes(node: &Path) -> Option<u64> {
    let text = text(&node.join("meminfo"))?;
    let line = text.lines().find(|line| line.contains(" MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().rev().nth(1)?.parse().ok()?;
    kibibytes.checked_mul(1024)
}
