//! The counts of Linux, as the texts of `/proc` tell them, and which devices count for themselves.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct DiskCounts {
    pub(super) reads: u64,
    pub(super) read_sectors: u64,
    pub(super) writes: u64,
    pub(super) written_sectors: u64,
    /// The kernel prints milliseconds in 32 bits, and begins anew after 50 days of them
    /// (`Documentation/admin-guide/iostats.rst`).
    pub(super) busy_ms: u32,
    pub(super) waiting_ms: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct InterfaceCounts {
    pub(super) received_bytes: u64,
    pub(super) sent_bytes: u64,
}

/// Busy and all ticks of each processor, from `/proc/stat`. Waiting for a disk is no work, nor is time that the host of
/// a virtual machine gave to others.
pub(super) fn cores(stat: &str) -> BTreeMap<usize, (u64, u64)> {
    let of = |line: &str| {
        let (name, ticks) = line.split_once(' ')?;
        let number = name.strip_prefix("cpu")?.parse().ok()?;
        let ticks: Vec<u64> = ticks.split_whitespace().take(8).map_while(|tick| tick.parse().ok()).collect();
        let idle: u64 = [3, 4, 7].iter().filter_map(|place| ticks.get(*place)).sum();
        let all: u64 = ticks.iter().sum();
        Some((number, (all - idle, all)))
    };
    stat.lines().filter_map(of).collect()
}

pub(super) fn disks(stats: &str, is_whole: impl Fn(&str) -> bool) -> BTreeMap<String, DiskCounts> {
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let name = *fields.get(2)?;
        let count = |place: usize| fields.get(place)?.parse::<u64>().ok();
        let counts = DiskCounts {
            reads: count(3)?,
            read_sectors: count(5)?,
            writes: count(7)?,
            written_sectors: count(9)?,
            // A kernel that counts in 64 bits is taken at its lowest 32, whose difference is the same.
            busy_ms: count(12)? as u32,
            waiting_ms: count(13)? as u32,
        };
        is_whole(name).then(|| (name.to_owned(), counts))
    };
    stats.lines().filter_map(of).collect()
}

/// Whether it is a disk of its own: not a partition, nor a device that lies on others, nor one in memory.
pub(super) fn is_whole_disk(name: &str) -> bool {
    let block = Path::new("/sys/block").join(name);
    block.join("device").exists() || (name.starts_with("nvme") && block.exists())
}

/// Whether it is a device of LVM, dm-crypt or md, or a loop device with a file: not a partition of one. `blocks` is the
/// folder `/sys/block`.
pub(super) fn is_stacked(blocks: &Path, name: &str) -> bool {
    let block = blocks.join(name);
    // The kernel makes loop devices beforehand, and only one with a file has this folder.
    block.join("loop").exists() || ["dm-", "md"].iter().any(|kind| name.starts_with(kind)) && block.exists()
}

/// Interfaces, but for those that lie on others: these count the bytes, too.
pub(super) fn interfaces(
    dev: &str,
    lies_on_others: impl Fn(&str) -> bool,
) -> BTreeMap<String, InterfaceCounts> {
    let of = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let counts: Vec<u64> = counts.split_whitespace().map_while(|count| count.parse().ok()).collect();
        let counts = InterfaceCounts { received_bytes: *counts.first()?, sent_bytes: *counts.get(8)? };
        let name = name.trim();
        (!lies_on_others(name)).then(|| (name.to_owned(), counts))
    };
    dev.lines().filter_map(of).collect()
}

/// Whether it is a bond, a bridge or a VLAN: the kernel links such an interface to those below.
pub(super) fn lies_on_others(name: &str) -> bool {
    let entries = fs::read_dir(Path::new("/sys/class/net").join(name)).into_iter().flatten();
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("lower_"))
}

pub(super) fn page_cache_bytes(meminfo: &str) -> Option<u64> {
    let kib =
        |line: &str| line.strip_prefix("Cached:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok();
    meminfo.lines().find_map(kib).map(|kib| kib << 10)
}

pub(super) fn own_io(io: &str) -> Option<(u64, u64)> {
    let count = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some((count("read_bytes:")?, count("write_bytes:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop device shows a disk behind a network as a medium, and the raw load needs its requests.
    #[test]
    fn a_loop_device_with_a_file_is_a_medium_of_its_own() {
        let blocks = tempfile::tempdir().unwrap();
        for folder in ["loop0/loop", "loop1/queue", "dm-0/dm", "sda/device"] {
            fs::create_dir_all(blocks.path().join(folder)).unwrap();
        }
        let found = ["loop0", "loop0p1", "loop1", "dm-0", "dm-1", "sda"];
        let found = found.map(|name| is_stacked(blocks.path(), name));
        assert_eq!(found, [true, false, false, true, false, false]);
    }
}
