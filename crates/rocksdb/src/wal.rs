//! RocksDB's write-ahead log, in RocksDB's own bytes, in files whose room is made beforehand.
//!
//! RocksDB appends to its log and syncs it. Each sync of a file that has grown also writes the file system's metadata.
//! Here the file has room that is filled with zeros before it is needed, so that a sync writes only data. On persistent
//! memory (DAX) or tmpfs a record is stored into a mapping, without any system call. The records on the medium are
//! those that RocksDB would have written. Any RocksDB reads them, and takes the zeros behind the last record for the
//! end.
//!
//! A log that is being written ends, for its readers, before its file does. Within the process its length is known.
//! Another process sees the claim on the file, and walks the records. It takes the end of the last whole batch for the
//! end of the log, until it sees more. When no process claims the file any more, the log is the whole file. Readers
//! then read a log of a killed process to the end of its file, damage included. Only readers that followed the log
//! before keep to its whole batches.
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

/// The low four bytes of the number in the name of a log's file, `000123.log`. The log's records carry them.
fn number_of(path: &Path) -> Option<u32> {
    let number = path.file_name()?.to_str()?.strip_suffix(".log")?.parse::<u64>().ok()?;
    Some(number as u32)
}
