//! What can go wrong with far memory, each in one sentence: what was tried, what was found, what to do.

use std::io;
use std::path::PathBuf;

/// Why far memory was refused, or an operation on it. Nothing on the medium was changed by an operation that returns
/// one, except after [`FarError::Sync`], when nobody knows what is durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FarError {
    /// No room for a block. DRAM and what is stored already are as before.
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
        /// What it is.
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
        /// What is to be allocated.
        needed_bytes: u64,
        /// What there is.
        free_bytes: u64,
    },
    /// Something other than a file stands at the path.
    #[error("far path {path} is {found}; give the path of a file")]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What stands there.
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
        /// What its head says.
        recorded_bytes: u64,
    },
    /// Another process holds the file.
    #[error("far file {path} is in use by another process")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// A call on the file failed.
    #[error("cannot {action} far file {path}: {source}")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
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
        /// What is free.
        free_bytes: u64,
    },
    /// A call on the node's memory failed.
    #[error("cannot {action} memory on NUMA node {node}: {source}")]
    Node {
        /// What was tried.
        action: &'static str,
        /// The node.
        node: u32,
        /// What the system said.
        source: io::Error,
    },
    /// A block no longer has the bytes that were put.
    #[error(
        "far memory is damaged: the block at offset {offset}, {len} bytes long, does not match its checksum"
    )]
    Damaged {
        /// Where the block's bytes begin on the medium.
        offset: u64,
        /// Its length.
        len: u64,
    },
    /// Nobody knows what is durable.
    #[error("far memory could not be made durable: {0}")]
    Sync(io::Error),
}
