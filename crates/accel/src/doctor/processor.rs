//! Instructions of the processor, as the kernel lists them.

use super::text;
use std::path::Path;
use ziptier_findings::{Finding, Section};

/// Name, the kernel's words for it, its purpose, and the effect of lacking it.
const FEATURES: [(&str, &[&str], &str, &str); 3] = [
    (
        "ENQCMD",
        &["enqcmd"],
        "shared queues take jobs from a process",
        "jobs for shared queues go through the kernel",
    ),
    (
        "MOVDIR64B",
        &["movdir64b"],
        "dedicated queues take jobs from a process",
        "jobs for dedicated queues go through the kernel",
    ),
    (
        "AVX-512",
        &["avx512f", "avx512bw", "avx512_vbmi", "avx512vbmi"],
        "scan, extract, select, expand by whole vectors",
        "scan, extract, select, expand by narrower vectors",
    ),
];

pub(super) fn examine(root: &Path) -> Section {
    let mut section = Section::new("Processor");
    let cpuinfo = text(root, "proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(found, _)| found.trim() == name).map(|(_, value)| value.trim().to_owned())
    };
    let Some(flags) = field("flags").or_else(|| field("Features")) else {
        section.add(Finding::note("features", "not told: no proc/cpuinfo that can be read"));
        return section;
    };
    let flags: Vec<&str> = flags.split_whitespace().collect();
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let is_virtual = if flags.contains(&"hypervisor") { ", in a virtual machine" } else { "" };
    let name = field("model name").unwrap_or_else(|| "unknown model".to_owned());
    let are = if count == 1 { "one processor".to_owned() } else { format!("{count} processors") };
    section.add(Finding::note("CPU", format!("{name}, {are}{is_virtual}")));
    for (name, words, with, without) in FEATURES {
        let has = match words {
            // The kernel spells the last one in either way.
            [first, second, either, or] => {
                flags.contains(first)
                    && flags.contains(second)
                    && (flags.contains(either) || flags.contains(or))
            }
            words => words.iter().all(|word| flags.contains(word)),
        };
        section.add(if has {
            Finding::good(name, with)
        } else {
            Finding::note(name, format!("none: {without}"))
        });
    }
    section
}
