//! Errors before or during a run, as sentences that a user can act on.

use std::path::PathBuf;

/// The reason why a benchmark did not start or did not finish.
///
/// A run with *wrong* answers is no error: it ends, and its outcome counts them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The corpus cannot be read.
    #[error(
        "cannot read the corpus {path}: {reason}; give a file, a folder, a .zst, FILE.zip:MEMBER, or one of \
         json, log, timeseries, lorem, random:ETA"
    )]
    Corpus {
        /// The requested corpus.
        path: String,
        /// The finding.
        reason: String,
    },
    /// The corpus has fewer bytes than one value.
    #[error(
        "the corpus {path} has {corpus_bytes} bytes{half}, fewer than a value of {value_bytes}; give a \
         longer corpus or a smaller --value-bytes"
    )]
    CorpusShorterThanValue {
        /// The requested corpus.
        path: String,
        /// Bytes that values may be cut from.
        corpus_bytes: u64,
        /// `" in each half"` when only half of it serves, else empty.
        half: &'static str,
        /// The longest value.
        value_bytes: u64,
    },
    /// A name that is not in the list of known names.
    #[error("unknown {what} `{given}`; known: {known}")]
    Unknown {
        /// The kind of name.
        what: &'static str,
        /// The name that was given.
        given: String,
        /// The names that exist.
        known: String,
    },
    /// An argument without its required shape.
    #[error("bad {what} `{given}`: {expected}")]
    Invalid {
        /// Which argument.
        what: &'static str,
        /// The argument.
        given: String,
        /// The required shape.
        expected: String,
    },
    /// A signal ended a command that measures.
    #[error("interrupted; {kept}")]
    Interrupted {
        /// The part that is kept.
        kept: &'static str,
    },
    /// A target refused to open or to work.
    #[error("the target {target} {action}: {reason}")]
    Target {
        /// Its name.
        target: String,
        /// The action that failed.
        action: &'static str,
        /// Its own words.
        reason: String,
    },
    /// A run did not give a result and said why.
    #[error("{run}: {sentence}")]
    Run {
        /// Which run.
        run: String,
        /// Its reason.
        sentence: String,
        /// The exit status that belongs to it.
        status: u8,
    },
    /// The process of a run ended without a result.
    #[error("the process of run {run} ended without a result ({status}){last_words}")]
    Process {
        /// Which run.
        run: String,
        /// Its exit status.
        status: String,
        /// The end of its standard error.
        last_words: String,
    },
    /// A file or folder of results cannot be written, or a process cannot be started.
    #[error("cannot {action} {path}: {source}")]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file of numbers lacks one, or has an impossible one.
    #[error("cannot take {path}: {sentence}")]
    Inputs {
        /// The file.
        path: PathBuf,
        /// Where, what was found, and what to give.
        sentence: String,
    },
    /// A check of `--smoke` failed.
    #[error("the check \"{check}\" failed: {reason}")]
    Smoke {
        /// Which check.
        check: String,
        /// The finding.
        reason: String,
    },
}

/// The part of an interrupted benchmark that is kept.
pub(crate) const RUNS_KEPT: &str = "the results are those of the runs before";
/// The action of a target that refused its options.
pub(crate) const DID_NOT_OPEN: &str = "did not open";

impl Error {
    pub(crate) fn invalid(what: &'static str, given: impl Into<String>, expected: impl Into<String>) -> Self {
        Error::Invalid { what, given: given.into(), expected: expected.into() }
    }

    /// The exit status for a command that ends with this error: 2 when the request was at fault, 1 when the work was.
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::Run { status, .. } => *status,
            // A target that does not open lacks something that was requested.
            Error::Target { action, .. } => {
                if *action == DID_NOT_OPEN {
                    2
                } else {
                    1
                }
            }
            Error::Process { .. } | Error::Smoke { .. } | Error::Interrupted { .. } => 1,
            _ => 2,
        }
    }
}
