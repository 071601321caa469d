//! RocksDB's write-ahead log, in RocksDB's own bytes, in files whose room is made beforehand.
//!
//! RocksDB appends to its log and syncs it; each sync of a file that has grown also writes the file system's metadata. Here the
//! file has room that is filled with zeros before it is needed, so that a sync writes data alone, and on persistent memory (DAX)
//! or tmpfs a record is stored into a mapping, without any system call. What is on the medium is what RocksDB would have written:
//! any RocksDB reads it, and takes the zeros behind the last record for its end.
//!
//! | module | what it owns |
//! |---|---|
//! | `file` | one log file that is written: its room, its medium, its end |
//! | `direct` | synced records past the page cache |
//! | `live` | where each file that is being written ends for its readers, by inode |
//! | `counters` | what was done, counted |

mod counters;
mod direct;
mod file;
mod live;

pub(crate) use counters::WalCounters;
pub use file::LogFile;
pub use live::{Length, length_of};
