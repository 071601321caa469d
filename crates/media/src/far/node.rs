//! Far memory on a NUMA node: private anonymous memory, bound to the node and populated before use.

use std::fs;
use std::path::Path;

use super::error::FarError;
use crate::mapping::Mapping;

/// Memory of `bytes` bytes on the node, and whether the node has no processors. `sysfs` is the mount point of sysfs.
pub(super) fn open(node: u32, bytes: usize, sysfs: &Path) -> Result<(Mapping, bool), FarError> {
    let nodes = sysfs.join("devices/system/node");
    let folder = nodes.join(format!("node{node}"));
    if !folder.is_dir() {
        return Err(FarError::NoSuchNode { node, present: present(&nodes) });
    }
    let failed = |action| move |source| FarError::Node { action, node, source };
    // The check comes first, because populating a bound mapping on a full node wakes the kernel's OOM killer.
    let free_bytes = free_bytes(&folder).map_err(failed("read the size of"))?;
    if free_bytes < bytes as u64 {
        return Err(FarError::NodeFull { node, needed_bytes: bytes as u64, free_bytes });
    }
    let mapping = Mapping::anonymous(bytes).map_err(failed("map"))?;
    mapping.bind(node).map_err(failed("bind"))?;
    mapping.populate().map_err(failed("populate"))?;
    let processors = fs::read_to_string(folder.join("cpulist")).unwrap_or_default();
    Ok((mapping, processors.trim().is_empty()))
}

/// The nodes of this machine, in words.
fn present(nodes: &Path) -> String {
    match fs::read_to_string(nodes.join("online")) {
        Ok(list) if list.trim().contains([',', '-']) => format!("nodes {}", list.trim()),
        Ok(list) => format!("node {}", list.trim()),
        Err(_) => "no NUMA nodes".to_string(),
    }
}

/// From the line `Node 1 MemFree:  123 kB`.
fn free_bytes(folder: &Path) -> std::io::Result<u64> {
    let meminfo = fs::read_to_string(folder.join("meminfo"))?;
    let kib = meminfo.lines().find_map(|line| {
        let (_, value) = line.split_once("MemFree:")?;
        value.split_whitespace().next()?.parse::<u64>().ok()
    });
    kib.map(|kib| kib * 1024).ok_or_else(|| std::io::Error::other("meminfo of the node has no line MemFree"))
}
