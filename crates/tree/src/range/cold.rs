//! Iterating, counting and drawing keys if some leaves lie on SSD. The records in memory are copied under the guard,
//! then images are read without it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::{CopiedValue, Copy, Ranges, copy_record, within};
use crate::Error;
use crate::below::Below;
use crate::blocks::Unpacked;
use crate::body::{Entry, EntryKey};
use crate::large::Large;
use crate::leaf::LeafState;
use crate::merge::merge_all;
use crate::record::{Kind, Meta};
use crate::tree::Tree;

/// Large values that an iterator reads from SSD at the same time, and their bytes.
const LARGES_AHEAD: usize = 16;
const AHEAD_BYTES: u64 = 256 << 10;

/// The keys of a cold leaf that memory knows, and whether each exists.
pub(crate) type Known = BTreeMap<Vec<u8>, bool>;

/// The keys of a cold leaf that memory knows.
pub fn known(state: &LeafState, tree: &Tree) -> Known {
    let now_ms = tree.clock.now_ms();
    let merged = merge_all(state, &tree.commits, 0);
    let exists = |entry: &Entry<'_>| entry.kind != Kind::Tombstone && !entry.fields.has_expired(now_ms);
    merged.records().map(|(entry, _)| (entry.key.to_vec(), exists(&entry))).collect()
}

/// One image of a cold leaf and what memory knows of its keys, between two bounds.
pub(super) struct ColdPart<'a> {
    pub(super) below: Arc<Below>,
    pub(super) index: usize,
    /// Asked before memory was copied. A record that was written between the two is among the copies only.
    pub(super) known: Known,
    pub(super) from: &'a Bound<Vec<u8>>,
    pub(super) to: &'a Bound<Vec<u8>>,
    pub(super) with_values: bool,
}

impl Ranges<'_> {
    /// Adds the records of an image to those of memory, in key order. `None` if the leaf is to be looked at again. A
    /// second failure with the list that is noted in `failed` becomes one record that says so.
    pub(super) fn copy_cold(
        &self,
        part: ColdPart<'_>,
        mut copies: Vec<Copy>,
        failed: &mut Option<Arc<Below>>,
    ) -> Option<Vec<Copy>> {
        let ColdPart { below, index, mut known, from, to, with_values } = part;
        known.extend(copies.iter().map(|copy| (copy.key.clone(), true)));
        match self.tree.read_image(&below, index) {
            Ok(image) => {
                let mut unpacked = Unpacked::default();
                for at in 0..image.body.len() {
                    let record = image.body.record(at);
                    let key = EntryKey { head: image.body.prefix(), tail: record.suffix };
                    let found = image.body.found(at, &image.form);
                    if !within(key, from, to) || self.tree.is_gone(found.expires_at_ms) {
                        continue;
                    }
                    let key = key.to_vec();
                    if !known.contains_key(&key) {
                        copies.push(copy_record(key, found, with_values, &mut unpacked));
                    }
                }
            }
            Err(reason) => {
                let again = failed.replace(below.clone());
                if again.is_none_or(|before| !Arc::ptr_eq(&before, &below)) {
                    return None;
                }
                let key = below.low(index).unwrap_or_default();
                let value = Err(Error::Unread { key_bytes: key.len(), reason });
                copies.push(Copy { key, meta: Meta::default(), value });
            }
        }
        copies.sort_by(|a, b| a.key.cmp(&b.key));
        Some(copies)
    }

    /// Whether `below` still lies under the leaf of `key`.
    pub(super) fn has_below(&self, key: &[u8], below: &Arc<Below>) -> bool {
        let guard = self.tree.pin();
        self.tree.locate(key, &guard).1.below.as_ref().is_some_and(|now| Arc::ptr_eq(now, below))
    }

    /// Keys of a cold leaf, of which memory knows some; an image is read for each that these lie above.
    pub(super) fn count_cold(&self, below: &Arc<Below>, known: &Known) -> Result<u64, String> {
        let mut count = i64::from(below.records());
        let mut image = None;
        for (key, exists) in known {
            let wanted = below.image_of(key);
            if image.as_ref().is_none_or(|(index, _)| *index != wanted) {
                image = Some((wanted, self.tree.read_image(below, wanted)?));
            }
            let is_below = image.as_ref().is_some_and(|(_, image)| image.find(key).is_some());
            count += i64::from(*exists) - i64::from(is_below);
        }
        Ok(count.max(0) as u64)
    }

    /// One of the keys of a cold leaf, `None` when there is none or they cannot be read.
    pub(super) fn random_cold_key(
        &self,
        below: &Arc<Below>,
        known: Known,
        random: &mut impl FnMut() -> u64,
    ) -> Option<Vec<u8>> {
        let first = random() as usize % below.len();
        for index in (first..below.len()).chain(0..first) {
            let Ok(image) = self.tree.read_image(below, index) else { continue };
            let now = self.tree.clock.now_ms();
            let mut keys: Vec<Vec<u8>> = known
                .iter()
                .filter(|(key, exists)| **exists && below.image_of(key) == index)
                .map(|(key, _)| key.clone())
                .collect();
            keys.extend((0..image.body.len()).filter_map(|at| {
                let record = image.body.record(at);
                let key = [image.body.prefix(), record.suffix].concat();
                let lives = record.fields.expires_at_ms.is_none_or(|at| at > now);
                (lives && !known.contains_key(&key)).then_some(key)
            }));
            if !keys.is_empty() {
                let drawn = random() as usize % keys.len();
                return Some(keys.swap_remove(drawn));
            }
        }
        None
    }
}

/// Reads large values on SSD at the same time, from the first of `copies` on, if that is one. A value that cannot
/// be read stays as it is, and its error comes when it is its turn.
pub(super) fn read_ahead_large(copies: &mut VecDeque<Copy>) {
    let on_ssd = |copy: &Copy| match &copy.value {
        Ok(CopiedValue::Large(large)) if large.is_on_ssd() => Some(large.clone()),
        _ => None,
    };
    if copies.front().and_then(on_ssd).is_none() {
        return;
    }
    let mut len = 0;
    let found = copies.iter().enumerate().filter_map(|(at, copy)| Some((at, on_ssd(copy)?)));
    let wanted: Vec<(usize, Arc<Large>)> = found
        .take(LARGES_AHEAD)
        .take_while(|(_, large)| {
            len += large.len();
            len <= AHEAD_BYTES
        })
        .collect();
    let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(wanted.len()));
    let larges = wanted.iter().map(|(_, large)| &**large);
    let _ = Large::read_several(larges, &mut bytes, |_, end| ends.push(end));
    let mut start = 0;
    for ((at, _), end) in wanted.iter().zip(ends) {
        copies[*at].value = Ok(CopiedValue::Inline(bytes[start..end].to_vec()));
        start = end;
    }
}
