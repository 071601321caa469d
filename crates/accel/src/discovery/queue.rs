//! Work queues and their device nodes.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::sysfs::Folder;
use super::{Places, State, read_group_id};

/// The mode of a queue: its permitted submitters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueMode {
    /// Many processes. The queue tells a submitter when it is full.
    Shared,
    /// One process, which counts its jobs.
    Dedicated,
    /// The driver says something else, or (empty) nothing.
    Other(String),
}

impl fmt::Display for QueueMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueueMode::Shared => "shared",
            QueueMode::Dedicated => "dedicated",
            QueueMode::Other(text) => text,
        })
    }
}

/// A work queue. Values that the kernel does not report are `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkQueue {
    /// Its name on the bus, such as `wq1.0`.
    pub name: String,
    /// The number behind the dot.
    pub number: u32,
    /// Whether it is switched on.
    pub state: State,
    /// The mode: its permitted submitters.
    pub mode: QueueMode,
    /// `user`, `kernel` or `none`.
    pub kind: Option<String>,
    /// The driver that holds it: `user` for queues that processes may open, `crypto` for the kernel's own use.
    pub driver_name: Option<String>,
    /// The name that an administrator gave it.
    pub label: Option<String>,
    /// Entries.
    pub size: Option<u32>,
    /// Entries that ordinary submitters may use, of a shared queue.
    pub threshold: Option<u32>,
    /// 1 to 15: weight against other queues of its group.
    pub priority: Option<u32>,
    /// The group whose engines serve it, if any.
    pub group: Option<u32>,
    /// Whether a job waits while the kernel brings in a page.
    pub block_on_fault: Option<bool>,
    /// Page requests are switched off, whatever `block_on_fault` says.
    pub prs_disable: Option<bool>,
    /// Cached address translations are switched off.
    pub ats_disable: Option<bool>,
    /// Bytes that one job may read or write at most.
    pub max_transfer_size: Option<u64>,
    /// Opcodes that are allowed: bit *n* for opcode *n*.
    pub op_config: Option<[u64; 4]>,
    /// Minor number of its device node.
    pub cdev_minor: Option<u32>,
    /// Processes that have it open.
    pub clients: Option<u32>,
    /// Entries that are taken, if the device tells.
    pub occupancy: Option<u32>,
    /// The number of times the kernel tries again when the queue is full.
    pub enqcmds_retries: Option<u32>,
    /// The path of its device node, existing or not, such as `/dev/iax/wq1.0`.
    pub node: PathBuf,
    /// The node, if it is there.
    pub node_file: Option<NodeFile>,
}

/// A device node as this process sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFile {
    /// Number of the user who owns it.
    pub owner: u32,
    /// Number of the group that owns it.
    pub group: u32,
    /// Permission bits, such as 0o600.
    pub mode: u32,
    /// Whether this process may open it for reading and writing.
    pub may_open: bool,
}

impl WorkQueue {
    /// Whether jobs wait for the kernel to bring in a page; if not, they end with a page fault.
    pub fn blocks_on_fault(&self) -> bool {
        self.block_on_fault == Some(true) && self.prs_disable != Some(true)
    }
}

pub(super) fn read(folder: &mut Folder<'_>, name: &str, number: u32, places: &Places) -> WorkQueue {
    let node = places.dev.join("iax").join(name);
    let node_file = node.metadata().ok().map(|metadata| NodeFile {
        owner: metadata.uid(),
        group: metadata.gid(),
        mode: metadata.mode() & 0o7777,
        may_open: (places.may_open)(&node),
    });
    let mode = match folder.text("mode").as_deref() {
        Some("shared") => QueueMode::Shared,
        Some("dedicated") => QueueMode::Dedicated,
        other => QueueMode::Other(other.unwrap_or_default().to_owned()),
    };
    WorkQueue {
        name: name.to_owned(),
        number,
        state: State::of(folder.text("state")),
        mode,
        kind: folder.text("type"),
        driver_name: folder.text("driver_name"),
        label: folder.text("name"),
        size: folder.number("size"),
        threshold: folder.number("threshold"),
        priority: folder.number("priority"),
        group: read_group_id(folder),
        block_on_fault: folder.flag("block_on_fault"),
        prs_disable: folder.flag("prs_disable"),
        ats_disable: folder.flag("ats_disable"),
        max_transfer_size: folder.number("max_transfer_size"),
        op_config: folder.bits("op_config"),
        cdev_minor: folder.number("cdev_minor"),
        clients: folder.number("clients"),
        // If the device has no such register, the file says so in words.
        occupancy: folder.text("occupancy").and_then(|text| text.parse().ok()),
        enqcmds_retries: folder.number("enqcmds_retries"),
        node,
        node_file,
    }
}

/// Asks the kernel whether this process, with its effective user, may read and write a file.
pub(super) fn may_open(path: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    accessat(CWD, path, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}
