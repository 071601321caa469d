//! Places to put bytes that are not the process's own memory, and what makes bytes durable there.
//!
//! Nothing here knows of records or codecs: callers hand over bytes, and get them back or an error that says what is wrong.
//!
//! | module | what it owns |
//! |---|---|
//! | [`far`] | far memory: DAX files, NUMA nodes, ordinary files; blocks on it that survive a restart |
//! | [`persist`] | copy, flush, fence and sync: what makes bytes in a mapping durable, and in which words it is told |
//! | [`placement`] | DRAM or far memory for each value, at a set ratio of bytes |

pub mod far;
pub mod persist;
pub mod placement;
