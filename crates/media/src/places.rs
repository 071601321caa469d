//! Finds the places of this machine: NUMA nodes, DAX devices, and file systems with direct access. Some nodes are
//! memory without processors (CXL, persistent memory).
//!
//! [`examine`] looks at a machine, or at a recorded tree of another machine, and reports its findings.

mod dax;
mod nodes;
mod tiering;

use std::path::Path;
use ziptier_findings::{Recorder, Section};

/// Looks for places below a root, which is `/` for this machine. Where there is far memory, a second section tells what
/// the kernel does with it.
pub fn examine(root: &Path) -> Vec<Section> {
    let mut section = Section::new("Memory");
    nodes::examine(root, &mut section);
    dax::examine(root, &mut section);
    [section].into_iter().chain(tiering::examine(root)).collect()
}

/// Records what [`examine`] reads, and nothing else.
pub fn record(recorder: &mut Recorder) {
    nodes::record(recorder);
    dax::record(recorder);
    tiering::record(recorder);
}

/// The names in a folder that begin with `prefix`, by number; none if the folder cannot be read.
fn numbered(folder: &Path, prefix: &str) -> Vec<(u32, String)> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<(u32, String)> =
        names.filter_map(|name| Some((name.strip_prefix(prefix)?.parse().ok()?, name))).collect();
    found.sort_unstable();
    found
}

/// The text of a small file, without surrounding white space.
fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// Bytes for a reader: `23.5 GiB`.
fn bytes(bytes: u64) -> String {
    match bytes {
        0..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use ziptier_findings::Mark;

    fn examined(files: &[(&str, &str)]) -> Section {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let mut section = Section::new("all");
        for found in examine(root.path()) {
            section.findings.extend(found.findings);
            section.remedies.extend(found.remedies);
        }
        section
    }

    fn line(section: &Section, subject: &str) -> (Mark, String) {
        let finding = section.findings.iter().find(|finding| finding.subject == subject).unwrap();
        (finding.mark, finding.text.clone())
    }

    #[test]
    fn an_empty_tree_has_no_places() {
        let section = examined(&[]);
        assert_eq!(line(&section, "nodes"), (Mark::Note, "the kernel tells of none".into()));
        assert_eq!(line(&section, "DAX"), (Mark::Note, "no device, no file system".into()));
        assert_eq!(section.remedies, []);
    }

    #[test]
    fn memory_without_processors_is_far_memory() {
        let section = examined(&[
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            (
                "sys/devices/system/node/node0/meminfo",
                "Node 0 MemTotal:  16777216 kB\nNode 0 MemFree: 1 kB\n",
            ),
            ("sys/devices/system/node/node2/cpulist", "\n"),
            ("sys/devices/system/node/node2/meminfo", "Node 2 MemTotal:  524288 kB\n"),
            ("sys/devices/system/node/node2/distance", "17 10\n"),
        ]);
        assert_eq!(line(&section, "node 0"), (Mark::Note, "16.0 GiB, processors 0-3".into()));
        let far = (Mark::Good, "512 MiB without processors: far memory".into());
        assert_eq!(line(&section, "node 2"), far);
        let commands = ["ziptier alloc run ratio=1:3 far=node:2 -- redis-server"];
        assert_eq!(section.remedies[0].commands, commands);
    }

    #[test]
    fn what_the_kernel_does_with_far_memory_is_told_beside_its_use() {
        let far = ("sys/devices/system/node/node1/cpulist", "\n");
        let section = examined(&[far]);
        assert_eq!(line(&section, "NUMA balancing").1, "the kernel has none");
        assert_eq!(line(&section, "weighted interleave").1, "the kernel has none (since 6.9)");
        assert_eq!(line(&section, "DAMON").1, "not built in");
        assert_eq!(line(&section, "demotion").1, "the kernel has none (since 5.15)");
        assert!(section.findings.iter().all(|finding| finding.subject != "tiers"));

        let section = examined(&[
            far,
            ("sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0\n"),
            ("sys/devices/virtual/memory_tiering/memory_tier22/nodelist", "1\n"),
            ("sys/kernel/mm/numa/demotion_enabled", "true\n"),
            ("proc/sys/kernel/numa_balancing", "2\n"),
            ("sys/kernel/mm/mempolicy/weighted_interleave/node0", "3\n"),
            ("sys/kernel/mm/mempolicy/weighted_interleave/node1", "1\n"),
            ("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "0\n"),
        ]);
        assert_eq!(line(&section, "tiers").1, "4: nodes 0; 22: nodes 1 (a lower number is faster)");
        assert!(line(&section, "demotion").1.starts_with("on: cold pages move to far memory"));
        assert_eq!(line(&section, "NUMA balancing").1, "mode 2: hot pages come back from far memory");
        assert!(
            line(&section, "weighted interleave").1.starts_with("weights: node 0 3, node 1 1; the better")
        );
        assert!(line(&section, "DAMON").1.starts_with("built in"));
    }

    #[test]
    fn a_device_becomes_a_node_by_a_command() {
        let device = [("sys/bus/dax/devices/dax0.0/size", "1073741824")];
        let section = examined(&device);
        let commands = ["sudo daxctl reconfigure-device --mode=system-ram dax0.0"];
        assert_eq!(section.remedies[0].commands, commands);
    }

    #[test]
    fn modules_of_persistent_memory_tell_their_mode() {
        let section = examined(&[("sys/bus/nd/devices/nmem0/devtype", "nvdimm")]);
        assert!(line(&section, "modules").1.starts_with("1 without a region: in Memory Mode"));
        assert_eq!(section.remedies[0].commands[0], "sudo ipmctl show -memoryresources");
        let section = examined(&[
            ("sys/bus/nd/devices/nmem0/devtype", "nvdimm"),
            ("sys/bus/nd/devices/region0/size", "4294967296"),
            ("sys/bus/nd/devices/region0/available_size", "1073741824"),
        ]);
        let expected = "4.0 GiB of persistent memory in App Direct, 1.0 GiB without a name space";
        assert_eq!(line(&section, "region0"), (Mark::Good, expected.into()));
        let commands = ["sudo ndctl create-namespace --mode=devdax --region=region0"];
        assert_eq!(section.remedies[0].commands, commands);
    }

    #[test]
    fn direct_access_is_told_by_device_and_mount() {
        let section = examined(&[
            ("sys/bus/dax/devices/dax0.0/size", "1073741824"),
            ("sys/bus/dax/devices/dax0.0/target_node", "2"),
            ("sys/block/pmem1/size", "2097152"),
            (
                "proc/mounts",
                "/dev/pmem1 /mnt/my\\040pool ext4 rw,relatime,dax=always 0 0\n/dev/sda / ext4 rw 0 0\n",
            ),
        ]);
        assert_eq!(line(&section, "dax0.0"), (Mark::Good, "1.0 GiB, would be node 2".into()));
        assert_eq!(
            line(&section, "/mnt/my pool"),
            (Mark::Good, "ext4 on /dev/pmem1, mounted with dax=always".into())
        );
        assert!(section.findings.iter().all(|finding| finding.subject != "pmem1"));
    }

    #[test]
    fn persistent_memory_without_direct_access_is_told_what_lacks() {
        let files = [
            ("sys/block/pmem0/size", "2097152"),
            ("proc/mounts", "/dev/pmem0 /mnt/pool ext4 rw,relatime 0 0\n"),
        ];
        let section = examined(&files);
        assert_eq!(line(&section, "/mnt/pool").0, Mark::Bad);
        assert_eq!(
            section.remedies[0].commands,
            ["sudo umount /mnt/pool", "sudo mount -o dax=always /dev/pmem0 /mnt/pool"]
        );
        let section = examined(&files[..1]);
        assert_eq!(line(&section, "pmem0"), (Mark::Note, "1.0 GiB of persistent memory, not mounted".into()));
    }
}
