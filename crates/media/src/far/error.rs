//! Errors of far memory. Each is one sentence: the attempted action, the finding, the remedy.

use std::io;
use std::path::PathBuf;

/// The failure of opening far memory, or of an operation on it. An operation that returns an error has changed nothing
/// on the medium. The exception is [`FarError::Sync`]: afterwards it is unknown which bytes are durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FarError {
    /// No room for a block. DRAM and the stored blocks are unchanged.
    #[error(
        "far memory is full: {needed_bytes} bytes are needed and no free stretch of {capacity_bytes} holds them"
    )]
    Full {
        /// Bytes of the block.
        needed_bytes: u64,
        /// Bytes of the medium.
        capacity_bytes: u64,
    },
    /// A capacity too small to be of use.
    #[error("far memory of {bytes} bytes was asked for; give at least {min_bytes}")]
    TooSmall {
        /// The capacity asked for.
        bytes: u64,
        /// The smallest accepted.
        min_bytes: u64,
    },
    /// DAX was demanded, and the medium has none.
    #[error(
        "DAX was demanded, and {place} is {found}; give a file on a file system mounted with -o dax, or do \
         not demand it"
    )]
    NotDax {
        /// The place asked for.
        place: String,
        /// The kind that was found.
        found: String,
    },
    /// The file system has less room than asked for.
    #[error(
        "far file {path} is to have {needed_bytes} more bytes, and its file system has {free_bytes} free; \
         ask for less or make room"
    )]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// Bytes to allocate.
        needed_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
    },
    /// Something other than a file stands at the path.
    #[error("far path {path} is {found}; give the path of a file")]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// The kind of thing at the path.
        found: &'static str,
    },
    /// The file has other contents.
    #[error("{path} is not a far file of ziptier; give another path")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by another version.
    #[error(
        "far file {path} has format version {version}, and this program reads version {known}; give another \
         path, or remove the file"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// The version found.
        version: u32,
        /// The version read here.
        known: u32,
    },
    /// The file is longer than asked for.
    #[error(
        "far file {path} has {found_bytes} bytes and {asked_bytes} are asked for; ask for at least as many, \
         or remove the file"
    )]
    WouldShrink {
        /// The file.
        path: PathBuf,
        /// Bytes of the medium in the file.
        found_bytes: u64,
        /// The capacity asked for.
        asked_bytes: u64,
    },
    /// The file has lost its end.
    #[error("far file {path} has {length_bytes} bytes and should have {recorded_bytes}; its end was cut off")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        length_bytes: u64,
        /// The length that the head states.
        recorded_bytes: u64,
    },
    /// This process or another one holds the file.
    #[error(
        "far file {path} is open already, in this process or another; close it there or name another file"
    )]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A call on the file failed.
    #[error("cannot {action} far file {path}: {source}")]
    File {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The node does not exist.
    #[error("there is no NUMA node {node}; this machine has {present}")]
    NoSuchNode {
        /// The node asked for.
        node: u32,
        /// The nodes there are.
        present: String,
    },
    /// The node has too little free memory.
    #[error("NUMA node {node} has {free_bytes} bytes free and {needed_bytes} are asked for; ask for less")]
    NodeFull {
        /// The node.
        node: u32,
        /// The capacity asked for.
        needed_bytes: u64,
        /// Bytes that are free.
        free_bytes: u64,
    },
    /// A call on the node's memory failed.
    #[error("cannot {action} memory on NUMA node {node}: {source}")]
    Node {
        /// The attempted action.
        action: &'static str,
        /// The node.
        node: u32,
        /// The system's error.
        source: io::Error,
    },
    /// A block no longer has the bytes that were put.
    #[error(
        "far memory is damaged: the block at offset {offset}, {len} bytes long, does not match its checksum"
    )]
    Damaged {
        /// The offset of the block's bytes on the medium.
        offset: u64,
        /// Its length.
        len: u64,
    },
    /// A sync failed: it is unknown which bytes are durable.
    #[error("far memory could not be made durable: {0}")]
    Sync(io::Error),
}
