//! Far memory beside DRAM: where it comes from, and what the kernel does with it by itself.

use std::fmt::Write;
use std::path::Path;

use super::{bytes, nodes, numbered, text};
use ziptier_findings::{Finding, Recorder, Section};

const TIERS: &str = "sys/devices/virtual/memory_tiering";
const DEMOTION: &str = "sys/kernel/mm/numa/demotion_enabled";
const BALANCING: &str = "proc/sys/kernel/numa_balancing";
const INTERLEAVE: &str = "sys/kernel/mm/mempolicy/weighted_interleave";
const DAMON: &str = "sys/kernel/mm/damon/admin";
const PERSISTENT: &str = "sys/bus/nd/devices";

/// What the kernel has for a machine with far memory; nothing for another machine.
pub(super) fn examine(root: &Path) -> Option<Section> {
    let far = nodes::without_processors(root);
    let devices = super::dax::unused_devices(root);
    let mut section = Section::new("Far memory");
    persistent(root, &mut section);
    if far.is_empty() && devices.is_empty() && section.findings.is_empty() {
        return None;
    }
    if !far.is_empty() {
        kernel(root, &mut section);
    }
    for name in devices {
        section.remedy(
            format!("Make a node of far memory of {name}; its contents are lost"),
            [format!("sudo daxctl reconfigure-device --mode=system-ram {name}")],
        );
    }
    if !far.is_empty() {
        let list: Vec<String> = far.iter().map(u32::to_string).collect();
        section.remedy(
            "Spread the heap of a stock redis-server over DRAM and far memory",
            [format!("ziptier alloc run ratio=1:3 far=node:{} -- redis-server", list.join("+"))],
        );
    }
    Some(section)
}

/// The modules of persistent memory: in App Direct they have regions, in Memory Mode none.
fn persistent(root: &Path, section: &mut Section) {
    let folder = root.join(PERSISTENT);
    let modules = numbered(&folder, "nmem").len();
    let regions = numbered(&folder, "region");
    if modules > 0 && regions.is_empty() {
        let text = format!(
            "{modules} without a region: in Memory Mode, where DRAM is their cache and no ratio is kept, or not set up"
        );
        section.add(Finding::note("modules", text));
        section.remedy(
            "Show the mode of the modules; App Direct, which a reboot sets up, gives memory of its own",
            ["sudo ipmctl show -memoryresources", "sudo ipmctl create -goal PersistentMemoryType=AppDirect"],
        );
    }
    for (_, name) in regions {
        let size = |attribute: &str| text(&folder.join(&name).join(attribute))?.parse::<u64>().ok();
        let mut line =
            size("size").map_or("unknown size".to_owned(), bytes) + " of persistent memory in App Direct";
        if let Some(free) = size("available_size").filter(|&free| free > 0) {
            let _ = write!(line, ", {} without a name space", bytes(free));
            section.remedy(
                format!("Make a DAX device of the rest of {name}"),
                [format!("sudo ndctl create-namespace --mode=devdax --region={name}")],
            );
        }
        section.add(Finding::good(name, line));
    }
}

/// The kernel's own ways, each with the case in which it is the better one.
fn kernel(root: &Path, section: &mut Section) {
    let tiers = numbered(&root.join(TIERS), "memory_tier");
    if !tiers.is_empty() {
        let nodes = |name: &str| text(&root.join(TIERS).join(name).join("nodelist")).unwrap_or_default();
        let tiers: Vec<String> =
            tiers.iter().map(|(number, name)| format!("{number}: nodes {}", nodes(name))).collect();
        section.add(Finding::note("tiers", format!("{} (a lower number is faster)", tiers.join("; "))));
    }
    let state = match text(&root.join(DEMOTION)).as_deref() {
        Some("true" | "1") => "on: cold pages move to far memory when DRAM runs short",
        Some(_) => {
            "off; the better choice for heaps that malloc does not serve (JVM), and for the page cache"
        }
        None => "the kernel has none (since 5.15)",
    };
    section.add(Finding::note("demotion", state));
    let mode: Option<u32> = text(&root.join(BALANCING)).and_then(|mode| mode.parse().ok());
    let state = match mode {
        None => "the kernel has none".to_owned(),
        Some(mode) if mode & 2 != 0 => format!("mode {mode}: hot pages come back from far memory"),
        Some(mode) => format!("mode {mode}: no page comes back from far memory; demotion needs mode 2"),
    };
    section.add(Finding::note("NUMA balancing", state));
    section.add(Finding::note("weighted interleave", interleave(root)));
    let state = if root.join(DAMON).is_dir() {
        "built in: moves pages by sampled accesses (since 6.11); the better choice where whole pages are hot or cold"
    } else {
        "not built in"
    };
    section.add(Finding::note("DAMON", state));
}

fn interleave(root: &Path) -> String {
    let folder = root.join(INTERLEAVE);
    let weight = |(number, name): (u32, String)| Some(format!("node {number} {}", text(&folder.join(name))?));
    let weights: Vec<String> = numbered(&folder, "node").into_iter().filter_map(weight).collect();
    if weights.is_empty() {
        return "the kernel has none (since 6.9)".to_owned();
    }
    format!(
        "weights: {}; the better choice where bandwidth is short (numactl --weighted-interleave=all PROGRAM)",
        weights.join(", ")
    )
}

/// Records what [`examine`] reads.
pub(super) fn record(recorder: &mut Recorder) {
    for path in [DEMOTION, BALANCING] {
        recorder.file(path);
    }
    recorder.folder(DAMON);
    for name in recorder.folder(TIERS).iter().filter(|name| name.starts_with("memory_tier")) {
        recorder.file(&format!("{TIERS}/{name}/nodelist"));
    }
    for name in recorder.folder(INTERLEAVE).iter().filter(|name| name.starts_with("node")) {
        recorder.file(&format!("{INTERLEAVE}/{name}"));
    }
    for name in recorder.folder(PERSISTENT) {
        let device = format!("{PERSISTENT}/{name}");
        if name.starts_with("nmem") || name.starts_with("region") {
            recorder.folder(&device);
            recorder.file(&format!("{device}/size"));
            recorder.file(&format!("{device}/available_size"));
        }
    }
}
