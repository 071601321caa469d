//! A value that is open for reading in pieces. It stays as it was, however often its key is written meanwhile.

use std::sync::Arc;

use crate::Error;
use crate::large::{Large, LastPiece, OpenLarge};
use crate::record::Meta;
use crate::stats::Counter;
use crate::sync::Mutex;
use crate::tree::Tree;

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
        large: OpenLarge,
        /// The piece that was read last, if it lies on SSD.
        last: Mutex<LastPiece>,
        /// The store's count of values that could not be read.
        damaged: Arc<Counter>,
    },
}

impl OpenValue {
    pub(crate) fn inline(value: Vec<u8>, meta: Meta) -> Self {
        Self { meta, key_bytes: 0, source: Source::Inline(value) }
    }

    pub(crate) fn large(tree: &Tree, large: Arc<Large>, meta: Meta, key_bytes: usize) -> Self {
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

// No unsafe code comes this way: Miri would only be slow.
#[cfg(test)]
#[cfg(not(any(miri, shuttle)))]
mod tests {
    use super::*;
    use crate::{CodecChoice, Options, Store};

    #[test]
    fn readers_of_a_value_that_no_key_has_share_its_bytes() {
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let store = Store::open(options).unwrap();
        let settle = || {
            store.settle().unwrap();
            store.core.tree.reclaim();
        };
        for (value, is_large) in [(&b"inline"[..], false), (&[7; 300_000], true)] {
            store.put(b"key", value).unwrap();
            store.copy(b"key", b"name", true).unwrap();
            let readers = [b"key".as_slice(), b"name"].map(|key| store.open_value(key).unwrap().unwrap());
            let own = |readers: &[OpenValue]| readers.iter().map(OpenValue::own_bytes).collect::<Vec<_>>();
            assert_eq!(store.open_values(), 2 * u64::from(is_large));
            assert_eq!(own(&readers), [0, 0]);
            store.put(b"key", b"new").unwrap();
            settle();
            assert_eq!(own(&readers), [0, 0], "it has another name");
            store.delete(b"name").unwrap();
            settle();
            let [one, other] = readers;
            let (half, all) = (one.own_bytes(), store.memory().large_bytes as usize);
            assert_eq!((half > 150_000, half), (is_large, other.own_bytes()));
            drop(other);
            assert!(one.own_bytes().abs_diff(2 * half) < 2 && one.own_bytes() >= all);
            drop(one);
            assert_eq!((store.open_values(), store.memory().large_bytes), (0, 0));
        }
    }
}
