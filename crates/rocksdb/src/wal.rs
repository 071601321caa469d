//! RocksDB's write-ahead log, in RocksDB's own bytes, in files whose room is made beforehand.
//!
//! RocksDB appends to its log and syncs it; each sync of a file that has grown also writes the file system's metadata.
//! Here the file has room that is filled with zeros before it is needed, so that a sync writes data alone, and on
//! persistent memory (DAX) or tmpfs a record is stored into a mapping, without any system call. What is on the medium
//! is what RocksDB would have written: any RocksDB reads it, and takes the zeros behind the last record for its end.
//!
//! A log that is being written ends, for its readers, before its file does. Within the process its length is known.
//! Another process sees that the file is claimed, walks the records that are there, and takes for the end what follows
//! the last whole batch, until it sees more. When nobody claims the file any more, it is what it is: a log that a
//! killed process left is read to the end of its file, damage and all, but by those who followed it.
//!
//! | module | what it owns |
//! |---|---|
//! | `file` | one log file that is written: its room, its medium, its end |
//! | `direct` | synced records past the page cache |
//! | `live` | where each file that this process writes ends for its readers, by inode |
//! | `reader` | a log that is read, in this process or another, while it is written or later |
//! | `walk` | how far a log is whole, from its records |
//! | `counters` | what was done, counted |

mod counters;
mod direct;
mod file;
mod live;
mod reader;
mod walk;

pub(crate) use counters::WalCounters;
pub use file::LogFile;
pub use live::is_written;
pub use reader::{LogReader, stop_following};
pub use walk::Walk;

use std::path::Path;

/// RocksDB's reader goes by blocks of this size, and looks at the head of the first record in each.
const BLOCK_BYTES: usize = 32 << 10;

/// The low four bytes of the number that is the name of a log's file, `000123.log`: those that its records carry.
fn number_of(path: &Path) -> Option<u32> {
    let number = path.file_name()?.to_str()?.strip_suffix(".log")?.parse::<u64>().ok()?;
    Some(number as u32)
}
