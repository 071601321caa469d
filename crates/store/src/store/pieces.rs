//! Values that are too long to be read whole: a caller asks how long one is, and reads a part, or one piece after
//! another.

use std::fmt;

use ziptier_tree::host::ReadHost;
use ziptier_tree::open_value;
use ziptier_tree::read::{Copied, copy_found};
use ziptier_tree::record::{Meta, Payload, check_key};

use super::Store;
use crate::Error;

/// A value as it was when [`Store::open_value`] found it, to be read in pieces.
///
/// Of a large value it holds a share, which keeps the value's bytes alive after its key is gone: drop it soon.
pub struct OpenValue(pub(super) open_value::OpenValue);

impl fmt::Debug for OpenValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl OpenValue {
    /// Its length, expiry and flags.
    pub fn meta(&self) -> Meta {
        self.0.meta()
    }

    /// Bytes of DRAM that are held for this reader alone, because no key has the value any more. This is a large value
    /// that was replaced or deleted, once its leaf was packed since. Each of several readers holds a part.
    pub fn own_bytes(&self) -> usize {
        self.0.own_bytes()
    }

    /// Appends up to `len` bytes from `offset` on to `out`; only the chunks that are asked for are decoded.
    ///
    /// # Errors
    /// Damage, or an SSD that cannot be read; `out` is as it was then.
    pub fn read_at(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), Error> {
        Ok(self.0.read_at(offset, len, out)?)
    }
}

/// # Long values in pieces
impl Store {
    /// As [`Store::get_into`], but of a large value longer than `len_max` only what is known of it, so that the caller
    /// knows what it may have to hold; `value` is empty then.
    ///
    /// # Errors
    /// As [`Store::get`]; `value` is empty then.
    #[inline]
    pub fn get_up_to(&self, key: &[u8], len_max: u64, value: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        check_key(key)?;
        value.clear();
        let read = self.core.reads().read_up_to(key, len_max, value);
        self.seen(read).inspect_err(|_| value.clear())
    }

    /// Replaces the contents of `out` by up to `len` bytes of the value of `key`, from `offset` on. Of a large
    /// value only the chunks that are asked for are decoded.
    ///
    /// # Errors
    /// As [`Store::get`]; `out` is empty then.
    pub fn read_at(
        &self,
        key: &[u8],
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<Meta>, Error> {
        check_key(key)?;
        out.clear();
        let copied = self.core.reads().find_value(key, |found| match found.payload {
            Payload::Raw(bytes) => {
                let start = bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
                let end = bytes.len().min(start.saturating_add(len));
                out.extend_from_slice(&bytes[start..end]);
                let meta =
                    Meta { len: bytes.len() as u64, expires_at_ms: found.expires_at_ms, flags: found.flags };
                (Copied::Inline(meta), false)
            }
            _ => (copy_found(found, out), true),
        })?;
        self.core.wait_for_seen().inspect_err(|_| out.clear())?;
        match copied {
            None => Ok(None),
            Some((Copied::Inline(meta), false)) => Ok(Some(meta)),
            Some((Copied::Inline(meta), true)) => {
                let meta = Meta { len: out.len() as u64, ..meta };
                let start = out.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
                out.drain(..start);
                out.truncate(len);
                Ok(Some(meta))
            }
            Some((Copied::Large(large, meta), _)) => {
                self.core.moves().promote_to_read_parts(key, &large);
                match large.read_at(offset, len, out) {
                    Ok(()) => Ok(Some(meta)),
                    Err(reason) => {
                        out.clear();
                        Err(self.core.tree.unread_large(key, &large, reason).into())
                    }
                }
            }
            Some((Copied::Damaged(reason), _)) => {
                out.clear();
                Err(self.core.tree.damaged(key, reason).into())
            }
        }
    }

    /// Opens the value of `key` for reading in pieces, which all come from this one value.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn open_value(&self, key: &[u8]) -> Result<Option<OpenValue>, Error> {
        check_key(key)?;
        let mut value = Vec::new();
        let copied = self.core.reads().find_value(key, |found| copy_found(found, &mut value))?;
        self.core.wait_for_seen()?;
        match copied {
            None => Ok(None),
            Some(Copied::Inline(meta)) => {
                let meta = Meta { len: value.len() as u64, ..meta };
                Ok(Some(OpenValue(open_value::OpenValue::inline(value, meta))))
            }
            Some(Copied::Large(large, meta)) => {
                self.core.moves().promote_to_read_parts(key, &large);
                Ok(Some(OpenValue(open_value::OpenValue::large(&self.core.tree, large, meta, key.len()))))
            }
            Some(Copied::Damaged(reason)) => Err(self.core.tree.damaged(key, reason).into()),
        }
    }
}
