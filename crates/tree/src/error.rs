//! The errors of the tree: refusals, and damage that it found.

use std::sync::Arc;
use std::{error, fmt};

/// An error of the host, which the tree returns unchanged.
#[derive(Debug, Clone)]
pub struct HostError(Arc<dyn error::Error + Send + Sync>);

impl HostError {
    /// Holds an error of the host.
    pub fn new(error: impl error::Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }

    /// The error, if it is of this type.
    pub fn downcast_ref<E: error::Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl error::Error for HostError {}

/// Clones of one error are equal; two errors never are.
impl PartialEq for HostError {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A refusal or a failure. No record has changed, unless the log failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A key of no bytes.
    #[error("the key is empty")]
    EmptyKey,
    /// A key above [`KEY_BYTES_MAX`](crate::sizes::KEY_BYTES_MAX).
    #[error("the key has {len} bytes")]
    KeyTooLong {
        /// Bytes of the key.
        len: usize,
    },
    /// A value above [`VALUE_BYTES_MAX`](crate::sizes::VALUE_BYTES_MAX).
    #[error("the value has {len} bytes")]
    ValueTooLong {
        /// Bytes of the value.
        len: u64,
    },
    /// A batch of more bytes than the newest writes of a leaf may have.
    #[error("the batch has {bytes} bytes of {limit_bytes}")]
    BatchTooLarge {
        /// Bytes of its records, without those of large values.
        bytes: usize,
        /// Bytes that a batch may have.
        limit_bytes: usize,
    },
    /// Block options that no engine can follow.
    #[error("blocks cannot be packed: {reason}")]
    BlockOptions {
        /// The thing that the engine cannot do, and the things that it can.
        reason: String,
    },
    /// An engine that this machine does not have.
    #[error("{reason}")]
    EngineUnavailable {
        /// Which engine, what was looked for and found, what to do.
        reason: String,
    },
    /// Stored bytes that fail their check.
    #[error("a value is damaged: {reason}")]
    Damaged {
        /// Bytes of the key.
        key_bytes: usize,
        /// The finding of the decoder.
        reason: String,
    },
    /// A value on a medium that could not be read.
    #[error("a value cannot be read: {reason}")]
    Unread {
        /// Bytes of the key.
        key_bytes: usize,
        /// Which file, where in it, and what is wrong.
        reason: String,
    },
    /// The memory limit has no room. A write that meets it calls
    /// [`Admission::make_room`](crate::host::Admission::make_room) and tries again.
    #[error(transparent)]
    MemoryLimit(HostError),
    /// Any other error of the host, also a refusal that names far memory or the SSD.
    #[error(transparent)]
    Host(HostError),
}
