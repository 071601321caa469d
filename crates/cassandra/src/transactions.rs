//! The logs of transactions, `nb_txn_compaction_UUID.log`, tell which SSTables of a folder belong to its table. A
//! flush, a compaction or a stream logs each SSTable first, and then writes files under their final names.
//!
//! | line begins with | meaning |
//! |---|---|
//! | `ADD:[/FOLDER/nb-2-big-,` | the transaction writes this SSTable |
//! | `REMOVE:[/FOLDER/nb-1-big-,` | the transaction replaces this SSTable |
//! | `COMMIT:[` | the transaction has ended |

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The names, such as `nb-2-big`, of SSTables that transactions are writing or have replaced. `files` are all files of
/// a folder.
///
/// # Errors
///
/// [`Error::Io`] if a log cannot be read.
pub(crate) fn strays(files: &[PathBuf]) -> Result<HashSet<String>, Error> {
    let mut strays = HashSet::new();
    for path in files.iter().filter(|path| is_log(path)) {
        let log = match fs::read(path) {
            // The transaction has ended, and the node has removed its strays.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            read => String::from_utf8_lossy(&read.map_err(Error::io(path))?).into_owned(),
        };
        let has_ended = log.lines().any(|line| line.starts_with("COMMIT:["));
        let of_stray = if has_ended { "REMOVE:[" } else { "ADD:[" };
        let files = log.lines().filter_map(|line| line.strip_prefix(of_stray)?.split(',').next());
        let names = files.filter_map(|file| Path::new(file).file_name()?.to_str());
        strays.extend(names.map(|name| name.trim_end_matches('-').to_owned()));
    }
    Ok(strays)
}

fn is_log(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.contains("_txn_") && name.ends_with(".log"))
}
