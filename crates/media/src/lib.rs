//! Places to put bytes that are not the process's own memory, and what makes bytes durable there.
//!
//! Nothing here knows of records or codecs: callers hand over bytes, and get them back or an error that says what is
//! wrong.
//!
//! | module | what it owns |
//! |---|---|
//! | [`aligned`] | bytes at addresses that direct reads and writes take |
//! | [`disk`] | the one trait through which every operation on durable files goes, and the real disk behind it |
//! | [`log`] | the write-ahead log: opaque records, group commit, replay that tells a torn tail from damage |
//! | [`segments`] | segment files on SSD: immutable bodies, appended in large writes and read singly |
//! | [`far`] | far memory: DAX files, NUMA nodes, ordinary files; blocks on it that survive a restart |
//! | [`persist`] | copy, flush, fence and sync: what makes bytes in a mapping durable, and in which words it is told |
//! | [`placement`] | DRAM or far memory for each value, at a set ratio of bytes |
//! | [`places`] | what of this the machine has |
//! | `testing` | disks that record every operation and rebuild what a power cut would leave, and disks that fail on purpose |

pub mod aligned;
pub mod disk;
pub mod far;
pub mod log;
mod mapping;
pub mod persist;
pub mod placement;
pub mod places;
pub mod segments;
#[doc(hidden)]
pub mod testing;
