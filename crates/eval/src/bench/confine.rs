//! Limits on what a run may take of a machine, by control groups of Linux.
//!
//! A slow medium can be made of a fast one, and a cache of the kernel be kept smaller than the data. Both generations
//! of control groups are served, and both need root.

use std::fs;
use std::io;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::stat::{major, minor};
use serde::{Deserialize, Serialize};

use crate::bench::remains;
use crate::error::Error;
use crate::results::table::grouped;

/// What a run may take. `None` is no limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Confinement {
    /// Where temporary files lie. The disks of these folders are the ones that are limited.
    pub folder: Option<Folders>,
    /// Bytes of memory, the kernel's cache of files included.
    pub memory_bytes: Option<u64>,
    /// Limits of each folder's disk.
    #[serde(default)]
    pub disk: DiskLimits,
}

impl Confinement {
    /// The folders; none if nobody named one.
    pub fn folders(&self) -> &[PathBuf] {
        self.folder.as_ref().map_or(&[], Folders::list)
    }
}

/// A folder on a medium, or several, each on a medium of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "expected a folder, or a list of folders")]
pub enum Folders {
    /// One medium.
    One(PathBuf),
    /// Several, which stores side by side take in turns.
    Several(Vec<PathBuf>),
}

impl Folders {
    /// All of them, in their order.
    pub fn list(&self) -> &[PathBuf] {
        match self {
            Folders::One(folder) => std::slice::from_ref(folder),
            Folders::Several(folders) => folders,
        }
    }
}

/// Limits on the requests to a disk, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskLimits {
    /// Reads.
    pub reads_per_second: Option<u64>,
    /// Writes.
    pub writes_per_second: Option<u64>,
    /// Bytes read.
    pub read_bytes_per_second: Option<u64>,
    /// Bytes written.
    pub written_bytes_per_second: Option<u64>,
}

impl DiskLimits {
    /// The limits by their names in both generations.
    fn named(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        [
            ("read_iops", "riops", self.reads_per_second),
            ("write_iops", "wiops", self.writes_per_second),
            ("read_bps", "rbps", self.read_bytes_per_second),
            ("write_bps", "wbps", self.written_bytes_per_second),
        ]
        .into_iter()
        .filter_map(|(old, new, limit)| Some((old, new, limit?)))
    }

    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        *self == DiskLimits::default()
    }
}

/// Control groups with the limits of one run. They are removed with it.
#[derive(Debug)]
pub(crate) struct Groups {
    folders: Vec<PathBuf>,
    memory_bytes: Option<u64>,
}

/// Where Linux shows control groups.
const ROOT: &str = "/sys/fs/cgroup";

impl Groups {
    /// Makes the groups; none if nothing is limited.
    pub(crate) fn of(confinement: &Confinement) -> Result<Self, Error> {
        let memory_bytes = confinement.memory_bytes;
        let mut groups = Groups { folders: Vec::new(), memory_bytes };
        let root = Path::new(ROOT);
        let made = match is_unified(root) {
            true => groups.make_unified(root, confinement),
            false => groups.make_by_controller(root, confinement),
        };
        match made {
            Ok(()) => Ok(groups),
            Err(source) => {
                let path = groups.folders.last().cloned().unwrap_or_else(|| ROOT.into());
                Err(Error::Io { action: "limit memory or disk (which root may) by", path, source })
            }
        }
    }

    /// Puts a process and its children to come into the groups.
    pub(crate) fn take(&self, process: u32) -> Result<(), Error> {
        self.folders.iter().try_for_each(|folder| {
            let path = folder.join("cgroup.procs");
            let put = fs::write(&path, process.to_string());
            put.map_err(|source| Error::Io { action: "put a process into", path, source })
        })
    }

    /// What the kernel did to a process of the groups that wanted more memory than their limit; nothing if it did not.
    pub(crate) fn killed_for_memory(&self) -> Option<String> {
        // The names in the newer and in the older generation.
        let told = |folder: &PathBuf| {
            let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
            read("memory.events").or_else(|| read("memory.oom_control"))
        };
        let kills = self.folders.iter().filter_map(told).map(|text| kills_in(&text)).sum::<u64>();
        let limit = self.memory_bytes.filter(|_| kills > 0)?;
        Some(format!(
            "was killed for its memory limit of {} bytes; give more memory_bytes",
            grouped(limit as f64, 0)
        ))
    }

    fn make_by_controller(&mut self, root: &Path, confinement: &Confinement) -> io::Result<()> {
        if let Some(bytes) = confinement.memory_bytes {
            let folder = self.folder(&root.join("memory"))?;
            limit_memory(&folder, ("memory.limit_in_bytes", bytes), ("memory.memsw.limit_in_bytes", bytes))?;
        }
        if !confinement.disk.is_none() {
            let folder = self.folder(&root.join("blkio"))?;
            for disk in disk_numbers(confinement)? {
                for (name, _, limit) in confinement.disk.named() {
                    fs::write(
                        folder.join(format!("blkio.throttle.{name}_device")),
                        format!("{disk} {limit}"),
                    )?;
                }
            }
        }
        Ok(())
    }

    fn make_unified(&mut self, root: &Path, confinement: &Confinement) -> io::Result<()> {
        if confinement.memory_bytes.is_none() && confinement.disk.is_none() {
            return Ok(());
        }
        let wanted = [("+memory", confinement.memory_bytes.is_some()), ("+io", !confinement.disk.is_none())];
        let wanted: Vec<&str> =
            wanted.iter().filter(|(_, is_wanted)| *is_wanted).map(|(name, _)| *name).collect();
        // A group has the files of a controller once the group above hands that on. systemd hands few on.
        fs::write(root.join("cgroup.subtree_control"), wanted.join(" "))?;
        let folder = self.folder(root)?;
        if let Some(bytes) = confinement.memory_bytes {
            limit_memory(&folder, ("memory.max", bytes), ("memory.swap.max", 0))?;
        }
        if !confinement.disk.is_none() {
            let limits = confinement.disk.named().map(|(_, name, limit)| format!("{name}={limit}"));
            let limits = limits.collect::<Vec<_>>().join(" ");
            for disk in disk_numbers(confinement)? {
                fs::write(folder.join("io.max"), format!("{disk} {limits}"))?;
            }
        }
        Ok(())
    }

    fn folder(&mut self, above: &Path) -> io::Result<PathBuf> {
        /// Groups that this process has made.
        static MADE: AtomicU64 = AtomicU64::new(0);
        let name = format!("{}{}", remains::name("group"), MADE.fetch_add(1, Ordering::Relaxed));
        let folder = above.join(name);
        self.folders.push(folder.clone());
        // A process of the same number that was killed may have left one behind.
        let _ = fs::remove_dir(&folder);
        fs::create_dir(&folder)?;
        Ok(folder)
    }
}

/// The folders that groups are made in.
pub(crate) fn places_of_groups() -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    match is_unified(root) {
        true => vec![root.to_owned()],
        false => ["memory", "blkio"].map(|controller| root.join(controller)).to_vec(),
    }
}

/// Whether the groups are of the newer generation.
fn is_unified(root: &Path) -> bool {
    root.join("cgroup.controllers").exists()
}

impl Drop for Groups {
    fn drop(&mut self) {
        for folder in &self.folders {
            // A group that still has a process, which is about to end, is left behind empty.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Limits the memory of a group by a file and its bytes, and swap by another file where the kernel counts that. With
/// swap, a process would have more memory than its limit, and read and write the disk that is measured.
fn limit_memory(folder: &Path, memory: (&str, u64), swap: (&str, u64)) -> io::Result<()> {
    let limit = |(file, bytes): (&str, u64)| fs::write(folder.join(file), bytes.to_string());
    limit(memory)?;
    if folder.join(swap.0).exists() { limit(swap) } else { Ok(()) }
}

/// Processes that the kernel killed for want of memory, as a control group counts them.
fn kills_in(events: &str) -> u64 {
    let found = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
    found.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// The numbers of the whole disks below the folders, as `MAJOR:MINOR`: the kernel limits whole disks alone.
fn disk_numbers(confinement: &Confinement) -> io::Result<Vec<String>> {
    let number = |folder: &PathBuf| {
        let name = disk_of(folder)?;
        Ok(fs::read_to_string(Path::new("/sys/block").join(name).join("dev"))?.trim().to_owned())
    };
    match confinement.folders() {
        [] => Ok(vec![number(&std::env::temp_dir())?]),
        folders => folders.iter().map(number).collect(),
    }
}

/// The name of the disk that a folder lies on, as `/sys/block` has it.
///
/// # Errors
/// The folder is not there, or lies on no disk of this machine, such as one in memory or of another machine.
pub(crate) fn disk_of(folder: &Path) -> io::Result<String> {
    let device = fs::metadata(folder)?.st_dev();
    let shown = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
    let no_disk = || io::Error::new(io::ErrorKind::NotFound, format!("{} lies on no disk", folder.display()));
    let place = fs::canonicalize(&shown).map_err(|_| no_disk())?;
    let whole = if place.join("partition").exists() { place.parent().unwrap_or(&place) } else { &place };
    whole.file_name().and_then(|name| name.to_str()).map(str::to_owned).ok_or_else(no_disk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limits_need_no_groups() {
        let groups = Groups::of(&Confinement::default()).unwrap();
        assert!(groups.folders.is_empty());
        groups.take(std::process::id()).unwrap();
    }

    #[test]
    fn a_kill_for_want_of_memory_is_read_in_both_generations() {
        assert_eq!(kills_in("low 0\nhigh 0\nmax 31\noom 2\noom_kill 1\noom_group_kill 0\n"), 1);
        assert_eq!(kills_in("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 3);
        assert_eq!((kills_in("max 31\noom 2\noom_kill 0\n"), kills_in("")), (0, 0));
        let folder = tempfile::tempdir().unwrap();
        let group = |name: &str, kills: u64| {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join("memory.events"), format!("max 9\noom_kill {kills}\n")).unwrap();
            Groups { folders: vec![path], memory_bytes: Some(96 << 20) }.killed_for_memory()
        };
        assert_eq!(group("alive", 0), None);
        let told = group("killed", 1).unwrap();
        assert_eq!(told, "was killed for its memory limit of 100,663,296 bytes; give more memory_bytes");
    }

    #[test]
    fn controllers_are_handed_on_to_unified_groups() {
        let root = tempfile::tempdir().unwrap();
        let mut groups = Groups { folders: vec![], memory_bytes: None };
        let confinement = Confinement { memory_bytes: Some(96 << 20), ..Confinement::default() };
        groups.make_unified(root.path(), &confinement).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("cgroup.subtree_control")).unwrap(), "+memory");
        assert_eq!(fs::read_to_string(groups.folders[0].join("memory.max")).unwrap(), "100663296");
    }

    #[test]
    fn swap_is_limited_where_the_kernel_counts_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| fs::read_to_string(folder.path().join(name)).ok();
        let limit = || limit_memory(folder.path(), ("memory.max", 96), ("memory.swap.max", 0)).unwrap();
        limit();
        assert_eq!((file("memory.max").as_deref(), file("memory.swap.max")), (Some("96"), None));
        fs::write(folder.path().join("memory.swap.max"), "max").unwrap();
        limit();
        assert_eq!(file("memory.swap.max").as_deref(), Some("0"));
    }

    #[test]
    fn limits_have_the_names_of_both_generations() {
        let limits =
            DiskLimits { reads_per_second: Some(4), written_bytes_per_second: Some(7), ..Default::default() };
        assert_eq!(limits.named().collect::<Vec<_>>(), [("read_iops", "riops", 4), ("write_bps", "wbps", 7)]);
        assert!(!limits.is_none() && DiskLimits::default().is_none());
    }

    #[test]
    fn a_folder_in_memory_lies_on_no_disk() {
        let told = disk_of(Path::new("/proc")).unwrap_err().to_string();
        assert!(told.contains("/proc lies on no disk"), "{told}");
    }
}
