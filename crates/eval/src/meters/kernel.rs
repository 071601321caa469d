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

/// Whether it is a disk of its own: not a partition, nor a device that lies on others, nor one in memory. `blocks` is
/// the folder `/sys/block`.
pub(super) fn is_whole_disk(blocks: &Path, name: &str) -> bool {
    let block = blocks.join(name);
    (block.join("device").exists() || (name.starts_with("nvme") && block.exists()))
        && !has_paths(blocks, name)
}

/// Whether it is a device of LVM, dm-crypt or md, a namespace of NVMe with paths, or a loop or network block device
/// that is connected: not a partition of one. `blocks` is the folder `/sys/block`.
pub(super) fn is_stacked(blocks: &Path, name: &str) -> bool {
    let block = blocks.join(name);
    // The kernel makes loop and network block devices beforehand. Only one that has a file, or a server, has one of
    // these entries.
    let is_connected = block.join("loop").exists() || (name.starts_with("nbd") && block.join("pid").exists());
    let is_mapped = ["dm-", "md"].iter().any(|kind| name.starts_with(kind)) && block.exists();
    is_connected || is_mapped || has_paths(blocks, name)
}

/// Whether it is a namespace of NVMe that the kernel reaches by paths, as it does `nvme0n1` by `nvme0c0n1`. Each path
/// counts its requests. The namespace counts all of them once more, or none in older kernels.
fn has_paths(blocks: &Path, name: &str) -> bool {
    fn parts(name: &str, sign: char) -> Option<(&str, &str)> {
        name.strip_prefix("nvme")?.split_once(sign)
    }
    let Some((subsystem, namespace)) = parts(name, 'n') else { return false };
    let is_path = |path: &str| {
        let Some((of, controller)) = parts(path, 'c') else { return false };
        of == subsystem && controller.split_once('n').is_some_and(|(_, of)| of == namespace)
    };
    let mut entries = fs::read_dir(blocks).into_iter().flatten().flatten();
    entries.any(|entry| is_path(&entry.file_name().to_string_lossy()))
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

    /// A folder of `/sys/block` with these entries.
    fn blocks(entries: &[&str]) -> tempfile::TempDir {
        let blocks = tempfile::tempdir().unwrap();
        entries.iter().for_each(|entry| fs::create_dir_all(blocks.path().join(entry)).unwrap());
        blocks
    }

    /// A loop device shows a disk behind a network as a medium, and the raw load needs its requests.
    #[test]
    fn a_loop_or_network_device_in_use_is_a_medium_of_its_own() {
        let blocks =
            blocks(&["loop0/loop", "loop1/queue", "nbd0/pid", "nbd1/queue", "dm-0/dm", "sda/device"]);
        let found = ["loop0", "loop0p1", "loop1", "nbd0", "nbd0p1", "nbd1", "dm-0", "dm-1", "sda"];
        let found = found.map(|name| is_stacked(blocks.path(), name));
        assert_eq!(found, [true, false, false, true, false, false, true, false, false]);
        let whole = ["loop0", "nbd0", "dm-0", "sda", "sda1"];
        let whole = whole.map(|name| is_whole_disk(blocks.path(), name));
        assert_eq!(whole, [false, false, false, true, false]);
    }

    #[test]
    fn a_namespace_with_paths_counts_no_request_twice() {
        let names = ["nvme0n1", "nvme0c0n1", "nvme0c1n1", "nvme0n11", "nvme1n1", "nvme10n1"];
        let blocks = blocks(&names.map(|name| format!("{name}/device")).each_ref().map(String::as_str));
        let whole = names.map(|name| is_whole_disk(blocks.path(), name));
        assert_eq!(whole, [false, true, true, true, true, true]);
        let stacked = names.map(|name| is_stacked(blocks.path(), name));
        assert_eq!(stacked, [true, false, false, false, false, false]);
        assert!(!is_whole_disk(blocks.path(), "nvme0n1p1") && !is_stacked(blocks.path(), "nvme0n1p1"));
    }
}
