//! Records that lie below memory, written above it.

use std::sync::Arc;

use super::{Expected, NewValue, Writes};
use crate::Error;
use crate::below::Below;
use crate::read::{Copied, copy_found};
use crate::record::{Fields, Found, Kind, Lookup, PutMeta, key_hash};

impl Writes<'_> {
    /// Makes memory know what `key` holds, if that lies below: its record, or that there is none, is written above.
    /// The caller holds no guard.
    pub fn bring_up(&self, key: &[u8]) -> Result<(), Error> {
        let mut failed: Option<(Arc<Below>, String)> = None;
        loop {
            let below = {
                let guard = self.tree.pin();
                let (_, state) = self.tree.locate(key, &guard);
                let Some(below) = &state.below else { return Ok(()) };
                let found = state.find(key, key_hash(key), &self.tree.commits).0;
                match found {
                    Lookup::Absent => below.clone(),
                    _ => return Ok(()),
                }
            };
            if let Some((before, reason)) = failed
                && Arc::ptr_eq(&before, &below)
            {
                return Err(self.tree.unread(key, reason));
            }
            match self.tree.read_image(&below, below.image_of(key)) {
                Ok(image) => {
                    let record = image.find(key);
                    let found = record.filter(|found| !self.tree.is_over(found.expires_at_ms));
                    if record.is_some() && found.is_none() {
                        self.tree.note_dropped();
                    }
                    if self.copy_up(key, found, &below)? {
                        return Ok(());
                    }
                    failed = None;
                }
                Err(reason) => failed = Some((below, reason)),
            }
        }
    }

    /// Writes what `below` holds of `key` above it; `false` when the leaf is another one by now.
    pub fn copy_up(&self, key: &[u8], found: Option<Found<'_>>, below: &Arc<Below>) -> Result<bool, Error> {
        let expected = Expected::Below(below);
        let Some(found) = found else {
            return self.append(key, Kind::Tombstone, Fields::default(), &mut NewValue::None, expected);
        };
        let mut bytes = Vec::new();
        let meta = match copy_found(found, &mut bytes) {
            Copied::Inline(meta) => PutMeta { expires_at_ms: meta.expires_at_ms, flags: meta.flags },
            Copied::Large(..) => unreachable!("references to large values stay in memory"),
            Copied::Damaged(reason) => return Err(self.tree.damaged(key, reason)),
        };
        let mut value = NewValue::Inline(&bytes);
        self.append(key, Kind::Raw, Fields::of(meta), &mut value, expected)
    }
}
