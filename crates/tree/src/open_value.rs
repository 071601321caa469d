//! A value that is open for reading in pieces. It stays as it was, however often its key is written meanwhile.

use std::sync::Arc;

use crate::Error;
use crate::large::{Large, LastPiece, OpenLarge};
use crate::record::Meta;
use crate::stats::Counter;
use crate::sync::Mutex;
use crate::tree::Tree;

/// A value as it was when it was opened, to be read in pieces.
///
/// Of a large value it holds a share, which keeps the value's bytes alive after its key is gone: drop it soon.
pub struct OpenValue {
    meta: Meta,
    key_bytes: usize,
    source: Source,
}

enum Source {
    Inline(Vec<u8>),
    Large {
        large: OpenLarge,
        /// The piece that was read last, if it lies on SSD.
        last: Mutex<LastPiece>,
        /// The store's count of values that could not be read.
        damaged: Arc<Counter>,
    },
}

impl OpenValue {
    /// A value that was copied out of its leaf.
    pub fn inline(value: Vec<u8>, meta: Meta) -> Self {
        Self { meta, key_bytes: 0, source: Source::Inline(value) }
    }

    /// A share of a large value, whose key has `key_bytes` bytes. Errors of the reader name that length.
    pub fn large(tree: &Tree, large: Arc<Large>, meta: Meta, key_bytes: usize) -> Self {
        let (large, damaged) = (OpenLarge::new(large), tree.stats.damaged.clone());
        Self { meta, key_bytes, source: Source::Large { large, last: Mutex::default(), damaged } }
    }

    /// Its length, expiry and flags.
    pub fn meta(&self) -> Meta {
        self.meta
    }

    /// Bytes of DRAM that are held for this reader alone, because no key has the value any more. This is a large value
    /// that was replaced or deleted, once its leaf was packed since. Each of several readers holds a part.
    pub fn own_bytes(&self) -> usize {
        match &self.source {
            Source::Inline(_) => 0,
            Source::Large { large, .. } => large.own_bytes(),
        }
    }

    /// Appends up to `len` bytes from `offset` on to `out`; only the chunks that are asked for are decoded.
    ///
    /// # Errors
    /// Damage, or an SSD that cannot be read; `out` is as it was then.
    pub fn read_at(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        match &self.source {
            Source::Inline(value) => {
                let start = value.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
                let end = value.len().min(start.saturating_add(len));
                out.extend_from_slice(&value[start..end]);
                Ok(())
            }
            Source::Large { large, last, damaged } => {
                let before = out.len();
                large.read_through(offset, len, out, &mut last.lock()).map_err(|reason| {
                    out.truncate(before);
                    damaged.raise();
                    let key_bytes = self.key_bytes;
                    match large.is_on_ssd() {
                        true => Error::Unread { key_bytes, reason },
                        false => Error::Damaged { key_bytes, reason },
                    }
                })
            }
        }
    }
}

impl std::fmt::Debug for OpenValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenValue").field("meta", &self.meta).finish_non_exhaustive()
    }
}
