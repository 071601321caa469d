//! The errors of reading tables. Each sentence says what was tried, what was found and what to do.

use std::io;
use std::path::{Path, PathBuf};

use ziptier_codec::block::BlockError;
use ziptier_codec::block::dictionary::TrainError;
use ziptier_codec::block::setting::SettingError;

/// Why a table cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused to read a file or a folder.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// A file that Cassandra did not write so.
    #[error("{} is damaged at byte {offset}: {what}; run nodetool verify or scrub", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// The expectation and the finding.
        what: String,
    },
    /// A compressor of somebody else, or a version that is unknown here.
    #[error("cannot read {}: {what}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// The finding, and what can be read.
        what: String,
    },
    /// A folder without rows.
    #[error(
        "looked for SSTables (...-Data.db) in {}, found none; name the folder of a table, such as KEYSPACE/TABLE-ID, \
         and flush the table if it is new",
        folder.display()
    )]
    Empty {
        /// The folder.
        folder: PathBuf,
    },
    /// A format that could not be tried.
    #[error("a format could not be tried: {0}")]
    Format(#[source] BlockError),
    /// A format that this program does not have.
    #[error("a format cannot be tried: {0}")]
    Setting(#[source] SettingError),
    /// Rows that give no dictionary.
    #[error("the rows of the table give no dictionary: {0}")]
    Training(#[source] TrainError),
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        |source| Error::Io { path, source }
    }

    pub(crate) fn damaged(path: &Path, offset: u64, what: impl Into<String>) -> Error {
        Error::Damaged { path: path.to_owned(), offset, what: what.into() }
    }

    /// Whether the file is not there any more: compaction removes SSTables at any moment.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
