//! Moving and copying: a value goes from one key to another in one step for every reader.
//!
//! It is a batch whose second half depends on the first, so both leaves are locked before the source is read. A large
//! value is shared with its new record, not copied.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_epoch::pin;

use super::Locked;
use crate::Error;
use crate::core::{Copied, Core, check_key, copy_found};
use crate::landing::RecordBytes;
use crate::large::{INLINE_BYTES_MAX, Large};
use crate::leaf::Leaf;
use crate::record::{Fields, Kind, Lookup, Meta, PutMeta, key_hash};
use crate::write::NewValue;

/// How a rename or a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Transferred {
    /// The target has the source's value, expiry and flags.
    Done,
    /// There is no source; nothing was changed.
    NoSource,
    /// There is a target, which was to be kept; nothing was changed.
    TargetExists,
}

/// A source's value, which the new record shares if it is large.
enum Carried {
    Inline(Vec<u8>),
    Large(Arc<Large>),
}

impl Core {
    /// Gives `target` what `source` has, and deletes `source` unless it is kept. The same key twice is left alone.
    pub(crate) fn transfer(
        &self,
        source: &[u8],
        target: &[u8],
        keep_source: bool,
        replace: bool,
    ) -> Result<Transferred, Error> {
        check_key(source)?;
        check_key(target)?;
        self.wait_for_retired();
        // How much it takes is known under the locks only, where nobody waits for room.
        let _may_be_less = self.make_room(source.len() + target.len() + INLINE_BYTES_MAX);
        let one_at_a_time = self.batches.lock();
        let guard = pin();
        let (low, high) = if source <= target { (source, target) } else { (target, source) };
        let mut locked: Vec<Locked<'_>> = vec![self.lock_leaf(low, &guard)];
        if !locked[0].leaf.state(&guard).covers(high) {
            locked.push(self.lock_leaf(high, &guard));
        }
        let last = locked.len() - 1;
        let (of_source, of_target) = if source <= target { (0, last) } else { (last, 0) };
        let find = |leaf: &Leaf, key| match leaf.state(&guard).find(key, key_hash(key), &self.committed).0 {
            Lookup::Found(found) if !found.expired() => Some(found),
            _ => None,
        };

        let Some(found) = find(locked[of_source].leaf, source) else { return Ok(Transferred::NoSource) };
        if !replace && find(locked[of_target].leaf, target).is_some() {
            return Ok(Transferred::TargetExists);
        }
        if source == target {
            return Ok(Transferred::Done);
        }
        let mut bytes = Vec::new();
        let (carried, meta): (Carried, Meta) = match copy_found(found, &mut bytes) {
            Copied::Inline(meta) => (Carried::Inline(bytes), meta),
            Copied::Large(large, meta) => (Carried::Large(large), meta),
            Copied::Damaged(reason) => return Err(self.damaged(source, reason)),
        };
        let mut value = match &carried {
            Carried::Inline(bytes) => NewValue::Inline(bytes),
            Carried::Large(large) => NewValue::Large(Some(Arc::clone(large))),
        };
        let inline_bytes = if let NewValue::Inline(bytes) = &value { bytes.len() } else { 0 };
        self.admit(source.len() + target.len() + inline_bytes)?;

        let number = self.committed.load(Ordering::Relaxed) + 1;
        let mut record = RecordBytes::default();
        let fields = Fields::of(PutMeta { expires_at_ms: meta.expires_at_ms, flags: meta.flags });
        value.lay_out(&mut record, Fields { batch: Some(number), ..fields }, target, Kind::Raw);
        self.append_growing(locked[of_target].leaf, &record, key_hash(target), &guard);
        value.written();
        if !keep_source {
            let fields = Fields { batch: Some(number), ..Fields::default() };
            NewValue::None.lay_out(&mut record, fields, source, Kind::Tombstone);
            self.append_growing(locked[of_source].leaf, &record, key_hash(source), &guard);
        }
        self.commit(number, locked, one_at_a_time, &guard);
        Ok(Transferred::Done)
    }
}
