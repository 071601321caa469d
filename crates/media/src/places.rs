//! Finds the places of this machine: NUMA nodes, DAX devices, and file systems with direct access. Some nodes are
//! memory without processors (CXL, persistent memory).
//!
//! [`examine`] looks at a machine, or at a recorded tree of another machine, and reports its findings.

mod dax;
mod nodes;

use std::path::Path;
use ziptier_findings::{Recorder, Section};

/// Looks for places below a root, which is `/` for this machine.
pub fn examine(root: &Path) -> Section {
    let mut section = Section::new("Memory");
    nodes::examine(root, &mut section);
    dax::examine(root, &mut section);
    section
}

/// Records what [`examine`] reads, and nothing else.
pub fn record(recorder: &mut Recorder) {
    nodes::record(recorder);
    dax::record(recorder);
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
        examine(root.path())
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
