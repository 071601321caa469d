//! A value that was opened: it stays as it was, however often its key is written meanwhile.

use std::sync::Arc;

use crate::Error;
use crate::large::{Large, LastPiece};
use crate::record::Meta;
use crate::sync::Mutex;

/// A value as it was when [`Store::open_value`](crate::Store::open_value) found it, to be read in pieces.
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
        large: Arc<Large>,
        /// The piece that was read last, if it lies on SSD.
        last: Mutex<LastPiece>,
    },
}

impl OpenValue {
    pub(crate) fn inline(value: Vec<u8>, meta: Meta) -> Self {
        Self { meta, key_bytes: 0, source: Source::Inline(value) }
    }

    pub(crate) fn large(large: Arc<Large>, meta: Meta, key_bytes: usize) -> Self {
        Self { meta, key_bytes, source: Source::Large { large, last: Mutex::default() } }
    }

    /// Its length, expiry and flags.
    pub fn meta(&self) -> Meta {
        self.meta
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
            Source::Large { large, last } => {
                let before = out.len();
                large.read_through(offset, len, out, &mut last.lock()).map_err(|reason| {
                    out.truncate(before);
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
