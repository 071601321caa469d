//! Moving and copying: a value goes from one key to another in one step for every reader.
//!
//! It is a batch whose second half depends on the first, so both leaves are locked before the source is read. A large
//! value is shared with its new record, not copied.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Locked;
use crate::Error;
use crate::core::{Copied, Core, check_key, copy_found};
use crate::durable::Operation;
use crate::landing::RecordBytes;
use crate::large::{INLINE_BYTES_MAX, Large};
use crate::leaf::Leaf;
use crate::record::{Fields, Kind, Lookup, Meta, PutMeta, key_hash};
use crate::update::ATTEMPTS_MAX;
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

/// A source's value: its bytes, and what the new record shares if it is large.
#[derive(Default)]
struct Carried {
    bytes: Vec<u8>,
    large: Option<Arc<Large>>,
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
        self.transfer_reading(source, target, keep_source, replace, |large, bytes| {
            self.read_large(source, large, bytes)
        })
    }

    /// As [`Core::transfer`]. `read` reads a large value, which the log needs; the value is looked at again then. After [`ATTEMPTS_MAX`] attempts
    /// other writers of `source` wait.
    pub(crate) fn transfer_reading(
        &self,
        source: &[u8],
        target: &[u8],
        keep_source: bool,
        replace: bool,
        mut read: impl FnMut(&Arc<Large>, &mut Vec<u8>) -> Result<(), Error>,
    ) -> Result<Transferred, Error> {
        check_key(source)?;
        check_key(target)?;
        self.wait_for_retired();
        let mut carried = Carried::default();
        let mut turn = None;
        let mut attempts = 0;
        loop {
            if let Some(journal) = self.journal.get() {
                journal.wait_for_room()?;
            }
            if attempts == ATTEMPTS_MAX {
                turn = Some(self.turns.take(key_hash(source)));
            }
            attempts += 1;
            if turn.is_none() {
                self.turns.wait_for_all([source, target].into_iter());
            }
            self.bring_up(source)?;
            self.bring_up(target)?;
            match self.try_transfer(source, target, keep_source, replace, &mut carried) {
                // Both leaves were locked when it was found out how much it takes.
                Err(Error::MemoryLimit { .. }) => {
                    self.make_room(source.len() + target.len() + INLINE_BYTES_MAX)?;
                    continue;
                }
                Err(error) => return Err(error),
                Ok(Some(transferred)) => return Ok(transferred),
                Ok(None) => {}
            }
            // The log needs the bytes of a large value, which are read under no lock.
            let Some(large) = &carried.large else { continue };
            carried.bytes.clear();
            read(large, &mut carried.bytes)?;
        }
    }

    /// `None` if the source has a large value other than the one in `carried`, where it is put now: its bytes are to be read
    /// first. Also if memory does not know one of the keys any more.
    fn try_transfer(
        &self,
        source: &[u8],
        target: &[u8],
        keep_source: bool,
        replace: bool,
        carried: &mut Carried,
    ) -> Result<Option<Transferred>, Error> {
        let one_at_a_time = self.batches.lock();
        let guard = self.pin();
        let (low, high) = if source <= target { (source, target) } else { (target, source) };
        let mut locked: Vec<Locked<'_>> = vec![self.lock_leaf(low, &guard)];
        if !locked[0].leaf.state(&guard).covers(high) {
            locked.push(self.lock_leaf(high, &guard));
        }
        let last = locked.len() - 1;
        let (of_source, of_target) = if source <= target { (0, last) } else { (last, 0) };
        let find = |leaf: &Leaf, key| match leaf.state(&guard).find(key, key_hash(key), &self.committed).0 {
            Lookup::Found(found) if !self.is_over(found.expires_at_ms) => Some(found),
            _ => None,
        };

        if self.is_unknown(locked[of_source].leaf, source, &guard)
            || self.is_unknown(locked[of_target].leaf, target, &guard)
        {
            return Ok(None);
        }
        let Some(found) = find(locked[of_source].leaf, source) else {
            return Ok(Some(Transferred::NoSource));
        };
        if !replace && find(locked[of_target].leaf, target).is_some() {
            return Ok(Some(Transferred::TargetExists));
        }
        if source == target {
            return Ok(Some(Transferred::Done));
        }
        let mut inline = Vec::new();
        let (mut value, meta): (NewValue<'_>, Meta) = match copy_found(found, &mut inline) {
            Copied::Inline(meta) => (NewValue::Inline(&inline), meta),
            Copied::Large(large, meta) => {
                let is_read = carried.large.as_ref().is_some_and(|read| Arc::ptr_eq(read, &large));
                if self.journal.get().is_some() && !is_read {
                    carried.large = Some(large);
                    return Ok(None);
                }
                (NewValue::Large { large: Some(large), raw: &carried.bytes }, meta)
            }
            Copied::Damaged(reason) => return Err(self.damaged(source, reason)),
        };
        let inline_bytes = if let NewValue::Inline(bytes) = &value { bytes.len() } else { 0 };
        self.admit(source.len() + target.len() + inline_bytes)?;

        let fields = Fields::of(PutMeta { expires_at_ms: meta.expires_at_ms, flags: meta.flags });
        if let Some(journal) = self.journal.get() {
            let delete = (!keep_source).then_some(Operation::Delete { key: source });
            let put = Operation::put(target, value.raw(), &fields);
            journal.append_all([put].into_iter().chain(delete))?;
            self.stats.own().logged_bytes.add(put.bytes());
        }
        let number = self.committed.load(Ordering::Relaxed) + 1;
        let mut record = RecordBytes::default();
        value.lay_out(&mut record, Fields { batch: Some(number), ..fields }, target, Kind::Raw);
        self.append_growing(locked[of_target].leaf, &record, key_hash(target), &guard);
        value.written();
        if !keep_source {
            let fields = Fields { batch: Some(number), ..Fields::default() };
            NewValue::None.lay_out(&mut record, fields, source, Kind::Tombstone);
            self.append_growing(locked[of_source].leaf, &record, key_hash(source), &guard);
        }
        self.commit(number, locked, one_at_a_time, &guard);
        Ok(Some(Transferred::Done))
    }
}
