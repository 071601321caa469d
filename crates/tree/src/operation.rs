//! Changes of a tree, as the log has them.
//!
//! Not for their bytes in the log: the host lays these out.

use crate::record::Fields;

/// One change of the tree. Doing it again after later ones, and these after it, changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// A value for a key, whether the key has one or not.
    Put {
        /// The key.
        key: &'a [u8],
        /// The value, as it was given.
        value: &'a [u8],
        /// When the key ceases to exist, in milliseconds since the Unix epoch; `None` for never.
        expires_at_ms: Option<u64>,
        /// Opaque to the store.
        flags: u32,
    },
    /// The key ceases to exist.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Another expiry for the value that is there.
    Expire {
        /// The key.
        key: &'a [u8],
        /// When the key ceases to exist, in milliseconds since the Unix epoch; `None` for never.
        expires_at_ms: Option<u64>,
    },
    /// Every key from `low` on and below `high`, if there is one.
    DeleteRange {
        /// The lowest key of the range.
        low: &'a [u8],
        /// The key that the range ends below; `None` if it has no end.
        high: Option<&'a [u8]>,
    },
}

impl<'a> Operation<'a> {
    /// The put of a record with these fields.
    pub fn put(key: &'a [u8], value: &'a [u8], fields: &Fields) -> Self {
        Self::Put { key, value, expires_at_ms: fields.expires_at_ms, flags: fields.flags }
    }

    /// Its key, or the first one of its range.
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Self::Put { key, .. } | Self::Delete { key } | Self::Expire { key, .. } => key,
            Self::DeleteRange { low, .. } => low,
        }
    }

    /// Bytes of its key and value, or of both ends of its range.
    pub fn bytes(&self) -> u64 {
        let second = match *self {
            Self::Put { value, .. } => value,
            Self::DeleteRange { high, .. } => high.unwrap_or_default(),
            Self::Delete { .. } | Self::Expire { .. } => &[],
        };
        (self.key().len() + second.len()) as u64
    }
}
