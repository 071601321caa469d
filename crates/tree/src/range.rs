//! Iteration in key order, both ways.
//!
//! Not for a snapshot: writes that come meanwhile may be seen.
//!
//! 1. An iterator copies one leaf's records at a time and holds nothing between two calls.
//! 2. A key that is present throughout appears exactly once and in order. A key that is written meanwhile appears at
//!    most once.

mod cold;

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use crossbeam_epoch::Guard;

use crate::Error;
use crate::blocks::{ReadAhead, Unpacked};
use crate::body::EntryKey;
use crate::large::{Large, LargeHandle};
use crate::leaf::LeafState;
use crate::merge::{compare, merge_all};
use crate::open_value::OpenValue;
use crate::read::{Copied, Reads, copy_found};
use crate::record::{Fields, Found, Kind, Meta, Payload, PutMeta};
use crate::tree::Tree;
pub use cold::known;
use cold::{ColdPart, read_ahead_large};

/// Counts that are given up because leaves were joined meanwhile.
const COUNTS_MAX: usize = 20;

/// A call of [`Ranges::keys_from`] passes at most so many leaves. All records of a leaf may have expired.
const LEAVES_AT_A_TIME: usize = 64;

/// A record that was copied out of a leaf, or the reason why it could not be.
struct Copy {
    key: Vec<u8>,
    meta: Meta,
    value: Result<CopiedValue, Error>,
}

/// Key, value, and what the key carries beside it.
pub(crate) type WholeRecord = (Vec<u8>, Vec<u8>, PutMeta);

enum CopiedValue {
    /// The iterator was not asked for values.
    Skipped,
    Inline(Vec<u8>),
    Large(Arc<Large>),
}

/// Keys in their order, from `Store::keys_from`, and the place behind them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    /// The keys.
    pub keys: Vec<Vec<u8>>,
    /// The place to go on from; `None` at the end.
    pub next: Option<Vec<u8>>,
}

/// Iterator over keys and values in key order, from either end.
pub struct Range<'s> {
    reads: Reads<'s>,
    /// The keys between the two ends that were not copied yet.
    from: Bound<Vec<u8>>,
    to: Bound<Vec<u8>>,
    front: VecDeque<Copy>,
    back: VecDeque<Copy>,
}

impl<'s> Reads<'s> {
    /// The records between two keys, in key order.
    pub fn range(self, from: Bound<Vec<u8>>, to: Bound<Vec<u8>>) -> Range<'s> {
        Range { reads: self, from, to, front: VecDeque::new(), back: VecDeque::new() }
    }
}

impl Range<'_> {
    /// Nothing more is told.
    fn end(&mut self) {
        (self.from, self.to) = (Bound::Excluded(Vec::new()), Bound::Excluded(Vec::new()));
        self.front.clear();
        self.back.clear();
    }

    /// As [`Iterator::next`], but a large value is only shared, not read.
    ///
    /// # Errors
    /// As [`Iterator::next`]; damage of a large value shows when it is read.
    pub fn next_opened(&mut self) -> Option<Result<(Vec<u8>, OpenValue), Error>> {
        if let Err(error) = self.fill_front() {
            return Some(Err(error));
        }
        let Copy { key, meta, value } = self.front.pop_front().or_else(|| self.back.pop_back())?;
        let opened = match value {
            Ok(CopiedValue::Inline(value)) => OpenValue::inline(value, meta),
            Ok(CopiedValue::Skipped) => OpenValue::inline(Vec::new(), meta),
            Ok(CopiedValue::Large(large)) => OpenValue::large(self.reads.tree, large, meta, key.len()),
            Err(error) => return Some(Err(self.reads.tree.ranges().uncopied(error))),
        };
        Some(Ok((key, opened)))
    }

    /// Goes to the next record, and passes at most `leaves_max` leaves on the way: all records of a leaf may have
    /// expired. If the next record lies behind these, returns a key for another range to go on from. `None` at a record
    /// and at the end.
    ///
    /// # Errors
    /// As [`Iterator::next`].
    pub fn look_ahead(&mut self, leaves_max: usize) -> Result<Option<Vec<u8>>, Error> {
        let mut leaves = 0;
        while self.front.is_empty() && !self.is_exhausted() {
            if leaves == leaves_max {
                return Ok(Some(match &self.from {
                    Bound::Included(key) | Bound::Excluded(key) => key.clone(),
                    Bound::Unbounded => Vec::new(),
                }));
            }
            leaves += 1;
            let (records, next) = self.reads.tree.ranges().copy_leaf_from(&self.from, &self.to, true);
            if let Err(error) = self.reads.host.wait_for_seen() {
                self.end();
                return Err(error);
            }
            self.front.extend(records);
            self.from = next.unwrap_or(Bound::Excluded(Vec::new()));
            if matches!(&self.from, Bound::Excluded(key) if key.is_empty()) {
                // Nothing lies beyond: an empty interval is the end.
                self.to = Bound::Excluded(Vec::new());
                self.from = Bound::Unbounded;
            }
        }
        Ok(None)
    }

    /// Copies the records of the next leaf that has any, if none are left.
    fn fill_front(&mut self) -> Result<(), Error> {
        self.look_ahead(usize::MAX).map(drop)
    }

    fn is_exhausted(&self) -> bool {
        use Bound::{Excluded, Included, Unbounded};
        match (&self.from, &self.to) {
            (Unbounded, _) => matches!(&self.to, Excluded(to) if to.is_empty()),
            (_, Unbounded) => false,
            (Included(from), Included(to)) => from > to,
            (Included(from) | Excluded(from), Excluded(to)) | (Excluded(from), Included(to)) => from >= to,
        }
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Vec<u8>, Vec<u8>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.fill_front() {
            return Some(Err(error));
        }
        read_ahead_large(&mut self.front);
        let copy = self.front.pop_front().or_else(|| self.back.pop_back())?;
        Some(self.reads.tree.ranges().finish(copy))
    }
}

impl DoubleEndedIterator for Range<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        while self.back.is_empty() && !self.is_exhausted() {
            let (records, next) = self.reads.tree.ranges().copy_leaf_below(&self.from, &self.to);
            if let Err(error) = self.reads.host.wait_for_seen() {
                self.end();
                return Some(Err(error));
            }
            // `back` is popped from its front, so it holds descending keys.
            self.back.extend(records.into_iter().rev());
            self.to = Bound::Excluded(next.unwrap_or_default());
        }
        read_ahead_large(&mut self.back);
        let copy = self.back.pop_front().or_else(|| self.front.pop_back())?;
        Some(self.reads.tree.ranges().finish(copy))
    }
}

/// Keys and records of a tree in their order.
#[derive(Clone, Copy)]
pub struct Ranges<'e> {
    tree: &'e Tree,
}

impl Tree {
    /// Its keys and records in their order.
    #[inline]
    pub fn ranges(&self) -> Ranges<'_> {
        Ranges { tree: self }
    }
}

impl Ranges<'_> {
    /// Up to `limit` keys from `from` on and below `high`, in key order. A call reads a bounded number of
    /// leaves, and none behind `high`. So there may be fewer keys, or none, before the end. The caller holds no guard.
    ///
    /// # Errors
    /// The next keys lie on SSD and cannot be read. [`Ranges::keys_behind`] tells where to go on.
    pub fn keys_from(&self, from: &[u8], high: Option<&[u8]>, limit: usize) -> Result<Keys, Error> {
        let (mut keys, mut from) = (Vec::new(), Bound::Included(from.to_vec()));
        let to = high.map_or(Bound::Unbounded, |high| Bound::Excluded(high.to_vec()));
        'leaves: for passed in 0..LEAVES_AT_A_TIME {
            // A leaf that cannot be read tells no key to go on from. So the call ends before it looks at one more leaf.
            if keys.len() >= limit {
                break;
            }
            let (records, next) = self.copy_leaf_from(&from, &to, false);
            let before = keys.len();
            for copy in records {
                match copy.value {
                    Ok(_) if keys.len() == limit => return Ok(Keys { keys, next: Some(copy.key) }),
                    Ok(_) => keys.push(copy.key),
                    // The next call begins there, and says so.
                    Err(_) if before > 0 || passed > 0 => {
                        keys.truncate(before);
                        break 'leaves;
                    }
                    Err(error) => return Err(self.uncopied(error)),
                }
            }
            let is_below = |next: &[u8]| high.is_none_or(|high| next < high);
            match next {
                Some(Bound::Included(next)) if is_below(&next) => from = Bound::Included(next),
                _ => return Ok(Keys { keys, next: None }),
            }
        }
        let next = match from {
            Bound::Included(next) | Bound::Excluded(next) => Some(next),
            Bound::Unbounded => None,
        };
        Ok(Keys { keys, next })
    }

    /// The place behind keys that [`Ranges::keys_from`] cannot read from `from` on; `None` if nothing lies behind them.
    pub fn keys_behind(&self, from: &[u8]) -> Option<Vec<u8>> {
        let guard = self.tree.pin();
        let (_, state) = self.tree.locate(from, &guard);
        let image = state.below.as_ref().and_then(|below| below.low(below.image_of(from) + 1));
        image.or_else(|| state.high.as_ref().map(|high| high.to_vec()))
    }

    /// A key of a leaf that is drawn at random, or of one of the leaves that follow when that one has none. `None` once
    /// `goes_on` says no, which is asked at each leaf.
    pub fn random_key(
        &self,
        mut random: impl FnMut() -> u64,
        mut goes_on: impl FnMut() -> bool,
    ) -> Option<Option<Vec<u8>>> {
        let mut guard = self.tree.pin();
        let mut cursor: Option<Vec<u8>> = None;
        let mut wrapped = false;
        while goes_on() {
            let state = match &cursor {
                None => self.tree.index.random_leaf(&mut random, &guard).state(&guard),
                Some(cursor) => self.tree.locate(cursor, &guard).1,
            };
            let high = state.high.as_ref().map(|high| high.to_vec());
            if let Some(below) = state.below.clone() {
                let known = known(state, self.tree);
                drop(guard);
                if let Some(key) = self.random_cold_key(&below, known, &mut random) {
                    return Some(Some(key));
                }
                guard = self.tree.pin();
                if !wrapped || high.is_some() {
                    wrapped |= high.is_none();
                    cursor = Some(high.unwrap_or_default());
                    continue;
                }
                return Some(None);
            }
            let merged = merge_all(state, &self.tree.commits, self.tree.clock.now_ms());
            if merged.len() > 0 {
                let chosen = random() % merged.len() as u64;
                return Some(merged.records().nth(chosen as usize).map(|(entry, _)| entry.key.to_vec()));
            }
            // Neighbours that hold nothing are joined when they are quiet, so this walk is seldom long.
            if wrapped && high.is_none() {
                return Some(None);
            }
            wrapped |= high.is_none();
            cursor = Some(high.unwrap_or_default());
        }
        None
    }

    /// Keys that exist, landings included.
    pub fn count_keys(&self) -> u64 {
        self.count_keys_while(&|| true).unwrap_or(0)
    }

    /// The same, as long as `goes_on` says so at each leaf; `None` after that.
    pub fn count_keys_while(&self, goes_on: &dyn Fn() -> bool) -> Option<u64> {
        if self.tree.gauges.landing.held() == 0 && self.tree.gauges.shadowing.get() == 0 {
            return Some(self.tree.gauges.records.get());
        }
        // Leaves that are joined behind the cursor would be counted twice.
        let strict = || self.count_each(true, usize::MAX, goes_on);
        (0..COUNTS_MAX).find_map(|_| strict()).or_else(|| self.count_each(false, usize::MAX, goes_on))
    }

    /// As [`Ranges::count_keys`], but `None` if it had to look at more than `leaves_max` leaves or at an SSD.
    pub fn count_keys_of(&self, leaves_max: usize) -> Option<u64> {
        match self.tree.gauges.landing.held() == 0 && self.tree.gauges.shadowing.get() == 0 {
            true => Some(self.tree.gauges.records.get()),
            false => self.count_each(true, leaves_max, &|| true),
        }
    }

    /// Counts the keys of every leaf. `None` if leaves were joined meanwhile and `is_strict`, if there are more than
    /// `leaves_max` and that is a bound, or once `goes_on` says no.
    fn count_each(&self, is_strict: bool, leaves_max: usize, goes_on: &dyn Fn() -> bool) -> Option<u64> {
        let mut count = 0;
        let mut cursor: Vec<u8> = Vec::new();
        let mut leaves = 0;
        loop {
            let guard = self.tree.pin();
            let (leaf, state) = self.tree.locate(&cursor, &guard);
            leaves += 1;
            if is_strict && *leaf.low() != *cursor || leaves > leaves_max || !goes_on() {
                return None;
            }
            let high = state.high.clone();
            if let Some(below) = state.below.clone() {
                if leaves_max < usize::MAX {
                    return None;
                }
                let known = known(state, self.tree);
                drop(guard);
                match self.count_cold(&below, &known) {
                    Ok(keys) => count += keys,
                    // An image that cannot be read counts as it was settled.
                    Err(_) if self.has_below(&cursor, &below) => count += u64::from(below.records()),
                    Err(_) => continue,
                }
            } else if state.is_unsettled() {
                count += merge_all(state, &self.tree.commits, self.tree.clock.now_ms()).len() as u64;
            } else {
                count += state.body.len() as u64;
            }
            match high {
                Some(high) => cursor = high.to_vec(),
                None => return Some(count),
            }
        }
    }

    /// The records of the leaf at the lower bound, and the bound for the next leaf.
    fn copy_leaf_from(
        &self,
        from: &Bound<Vec<u8>>,
        to: &Bound<Vec<u8>>,
        with_values: bool,
    ) -> (Vec<Copy>, Option<Bound<Vec<u8>>>) {
        let cursor: &[u8] = match from {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let mut failed = None;
        loop {
            let guard = self.tree.pin();
            let (_, state) = self.tree.locate(cursor, &guard);
            let Some(below) = state.below.clone() else {
                let records = self.copy_state(state, from, to, with_values, &guard);
                return (records, state.high.as_ref().map(|high| Bound::Included(high.to_vec())));
            };
            // One image at a time, as one leaf at a time in memory.
            let index = below.image_of(cursor);
            let next = below.low(index + 1).or_else(|| state.high.as_ref().map(|high| high.to_vec()));
            let end = next.as_deref().map_or_else(|| to.clone(), |next| nearer(to, next));
            let known = known(state, self.tree);
            let memory = self.copy_state(state, from, &end, with_values, &guard);
            let part = ColdPart { below, index, known, from, to: &end, with_values };
            drop(guard);
            if let Some(records) = self.copy_cold(part, memory, &mut failed) {
                return (records, next.map(Bound::Included));
            }
        }
    }

    /// The records of the leaf just below the upper bound, and its lowest key if there are leaves below.
    fn copy_leaf_below(&self, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> (Vec<Copy>, Option<Vec<u8>>) {
        let mut failed = None;
        loop {
            let guard = self.tree.pin();
            let Some((state, low)) = self.state_below(to, &guard) else { return (Vec::new(), None) };
            let Some(below) = state.below.clone() else {
                let records = self.copy_state(state, from, to, true, &guard);
                return (records, (!low.is_empty()).then(|| low.to_vec()));
            };
            let index = match to {
                Bound::Included(key) => below.image_of(key),
                Bound::Excluded(key) => below.image_below(key),
                Bound::Unbounded => below.len() - 1,
            };
            let low = below.low(index).unwrap_or_else(|| low.to_vec());
            let start = farther(from, &low);
            let known = known(state, self.tree);
            let memory = self.copy_state(state, &start, to, true, &guard);
            let part = ColdPart { below, index, known, from: &start, to, with_values: true };
            drop(guard);
            if let Some(records) = self.copy_cold(part, memory, &mut failed) {
                return (records, (!low.is_empty()).then_some(low));
            }
        }
    }

    /// The state of the leaf just below an upper bound, and the leaf's lowest key.
    fn state_below<'g>(&self, to: &Bound<Vec<u8>>, guard: &'g Guard) -> Option<(&'g LeafState, Arc<[u8]>)> {
        let mut leaf = match to {
            Bound::Included(key) => self.tree.locate(key, guard).0,
            Bound::Excluded(key) => self.tree.index.find_below(key, guard)?,
            Bound::Unbounded => self.tree.index.last(guard),
        };
        // A split may have moved the upper part of the leaf to the right since the index was read.
        loop {
            let state = leaf.state(guard);
            let beyond = match (to, &state.high) {
                (_, None) => false,
                (Bound::Unbounded, Some(_)) => true,
                (Bound::Included(key), Some(high)) => **high <= **key,
                (Bound::Excluded(key), Some(high)) => **high < **key,
            };
            match state.right(guard) {
                Some(right) if beyond => leaf = right,
                _ => return Some((state, leaf.low())),
            }
        }
    }

    /// The records of a state from `from` to `to` with their values.
    pub fn records(
        &self,
        state: &LeafState,
        from: &Bound<Vec<u8>>,
        to: &Bound<Vec<u8>>,
        guard: &Guard,
    ) -> Vec<Result<WholeRecord, Error>> {
        let copies = self.copy_state(state, from, to, true, guard);
        let finished = copies.into_iter().map(|copy| {
            let meta = PutMeta { expires_at_ms: copy.meta.expires_at_ms, flags: copy.meta.flags };
            let (key, value) = self.finish(copy)?;
            Ok((key, value, meta))
        });
        finished.collect()
    }

    /// Decodes the value of a record.
    fn finish(&self, copy: Copy) -> Result<(Vec<u8>, Vec<u8>), Error> {
        let mut value = Vec::new();
        match copy.value {
            Ok(CopiedValue::Inline(inline)) => value = inline,
            Ok(CopiedValue::Skipped) => {}
            Ok(CopiedValue::Large(large)) => self.tree.read_large(&copy.key, &large, &mut value)?,
            Err(error) => return Err(self.uncopied(error)),
        }
        Ok((copy.key, value))
    }

    /// Counts a record that could not be copied, once its reader is told.
    fn uncopied(&self, error: Error) -> Error {
        self.tree.stats.damaged.raise();
        error
    }

    fn copy_state(
        &self,
        state: &LeafState,
        from: &Bound<Vec<u8>>,
        to: &Bound<Vec<u8>>,
        with_values: bool,
        _guard: &Guard,
    ) -> Vec<Copy> {
        let mut copies = Vec::new();
        let ahead = if with_values { read_ahead(state, from, to) } else { ReadAhead::default() };
        let mut unpacked = Unpacked::with(ahead);
        merge_all(state, &self.tree.commits, self.tree.expiry_now_ms()).records().for_each(
            |(entry, place)| {
                if entry.kind == Kind::Tombstone || !within(entry.key, from, to) {
                    return;
                }
                let payload = match place {
                    Some(place) => state.body.found(place, &state.form).payload,
                    None if entry.kind == Kind::Large => {
                        // SAFETY: the record that owns the reference is part of `state`, which a guard keeps readable.
                        Payload::Large(unsafe { LargeHandle::borrow(entry.payload) })
                    }
                    None => Payload::Raw(entry.payload),
                };
                let Fields { expires_at_ms, flags, .. } = entry.fields;
                let found = Found { payload, expires_at_ms, flags };
                copies.push(copy_record(entry.key.to_vec(), found, with_values, &mut unpacked));
            },
        );
        copies
    }
}

/// The blocks of a leaf with records between the bounds, if a device unpacks them.
fn read_ahead(state: &LeafState, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> ReadAhead {
    let body = &state.body;
    let blocks = state.form.blocks();
    let Some(coding) = blocks.filter(|coding| body.is_packed() && coding.unpacks_in_batches()) else {
        return ReadAhead::default();
    };
    let first = match from {
        Bound::Included(key) | Bound::Excluded(key) => body.seek_from(0, key).0,
        Bound::Unbounded => 0,
    };
    let end = match to {
        Bound::Included(key) | Bound::Excluded(key) => (body.seek_from(0, key).0 + 1).min(body.len()),
        Bound::Unbounded => body.len(),
    };
    if first >= end {
        return ReadAhead::default();
    }
    ReadAhead::of(coding, body.frames_of(body.block_of(first)..body.block_of(end - 1) + 1))
}

/// Copies a record; a block is unpacked once for all its values.
fn copy_record(key: Vec<u8>, found: Found<'_>, with_value: bool, unpacked: &mut Unpacked) -> Copy {
    if !with_value {
        // A lost value does not hide its key.
        return Copy { key, meta: Meta::default(), value: Ok(CopiedValue::Skipped) };
    }
    let payload = match found.payload {
        Payload::Packed(packed) => unpacked.value(&packed).map_or(found.payload, Payload::Raw),
        payload => payload,
    };
    let found = Found { payload, ..found };
    let mut meta = Meta { len: 0, expires_at_ms: found.expires_at_ms, flags: found.flags };
    let mut bytes = Vec::new();
    let value = match copy_found(found, &mut bytes) {
        Copied::Inline(_) => {
            meta.len = bytes.len() as u64;
            Ok(CopiedValue::Inline(bytes))
        }
        Copied::Large(large, large_meta) => {
            meta = large_meta;
            Ok(CopiedValue::Large(large))
        }
        Copied::Damaged(reason) => Err(Error::Damaged { key_bytes: key.len(), reason }),
    };
    Copy { key, meta, value }
}

fn within(key: EntryKey<'_>, from: &Bound<Vec<u8>>, to: &Bound<Vec<u8>>) -> bool {
    let above = match from {
        Bound::Included(from) => compare(key, from).is_ge(),
        Bound::Excluded(from) => compare(key, from).is_gt(),
        Bound::Unbounded => true,
    };
    above
        && match to {
            Bound::Included(to) => compare(key, to).is_le(),
            Bound::Excluded(to) => compare(key, to).is_lt(),
            Bound::Unbounded => true,
        }
}

/// The upper bound that excludes `key` and what lies above, unless `to` lies below that.
fn nearer(to: &Bound<Vec<u8>>, key: &[u8]) -> Bound<Vec<u8>> {
    match to {
        Bound::Included(to) if to.as_slice() < key => Bound::Included(to.clone()),
        Bound::Excluded(to) if to.as_slice() < key => Bound::Excluded(to.clone()),
        _ => Bound::Excluded(key.to_vec()),
    }
}

/// The lower bound that excludes what lies below `key`, unless `from` does so already.
fn farther(from: &Bound<Vec<u8>>, key: &[u8]) -> Bound<Vec<u8>> {
    match from {
        Bound::Included(from) if from.as_slice() > key => Bound::Included(from.clone()),
        Bound::Excluded(from) if from.as_slice() >= key => Bound::Excluded(from.clone()),
        _ => Bound::Included(key.to_vec()),
    }
}

/// The first key above every key that begins with `prefix`; `None` when there is none.
pub fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return Some(end);
        }
        end.pop();
    }
    None
}
