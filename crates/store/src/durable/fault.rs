//! Why bytes of a file cannot be taken.

use std::path::PathBuf;

use crate::Error;

/// Why bytes of a file cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// They are damaged: the expectation and the finding.
    Damaged(String),
    /// They are whole, and of another version than this program reads. No salvage may leave them out.
    Version(String),
}

impl Fault {
    /// The error for these bytes of a file.
    pub(crate) fn at(self, path: PathBuf, offset: u64) -> Error {
        match self {
            Self::Damaged(reason) => Error::FileDamaged { path, offset, reason },
            Self::Version(reason) => Error::FileForeign { path, reason },
        }
    }
}

impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Self::Damaged(reason)
    }
}

impl From<&str> for Fault {
    fn from(reason: &str) -> Self {
        Self::Damaged(reason.to_owned())
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Damaged(reason) | Fault::Version(reason) => reason,
        }
    }
}
