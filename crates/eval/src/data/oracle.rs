//! The oracle knows the right answers of every key, also while the key is being written.
//!
//! One word per key says which version it has. Only one thread writes a given key (see [`Oracle::own`]), and it
//! announces each write before it hands it to the target and confirms it afterwards. A reader takes the word before and
//! after its read. The answer must be one of the versions that were current in between. That is exactly one if there
//! was no write meanwhile, and the old or the new one if a write was under way.
//!
//! A word is 4 bytes per key, allocated before memory is measured. Keys that are inserted later have words, too: those
//! behind the loaded keys.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::data::keys::{KeyRoom, Keys};
use crate::data::values::Values;
use crate::target::Records;

const IN_FLIGHT: u32 = 1 << 31;
const LIVE: u32 = 1 << 30;
const LIVE_BEFORE: u32 = 1 << 29;
const VERSION: u32 = LIVE_BEFORE - 1;

/// The state of one key at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Word(u32);

impl Word {
    fn version(self) -> u32 {
        self.0 & VERSION
    }

    pub(crate) fn in_flight(self) -> bool {
        self.0 & IN_FLIGHT != 0
    }

    fn live(self) -> bool {
        self.0 & LIVE != 0
    }

    fn live_before(self) -> bool {
        self.0 & LIVE_BEFORE != 0
    }

    /// Whether the key exists for sure: it does, and no write is under way.
    pub fn certainly_live(self) -> bool {
        self.live() && !self.in_flight()
    }
}

/// The position of the value of a version, computed before it is needed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Forecast {
    version: u32,
    place: Range<usize>,
}

/// The right answers of all keys of one key space.
#[derive(Debug)]
pub struct Oracle {
    keys: Keys,
    first: u64,
    values: Values,
    words: Vec<AtomicU32>,
    /// Keys that are loaded; the others are inserted later.
    loaded: u64,
    deletions: AtomicBool,
}

impl Oracle {
    /// `count` keys with the numbers from `first` on, none of which exists yet.
    pub fn new(keys: Keys, first: u64, count: u64, values: Values) -> Self {
        Self::with_room(keys, first, [count, 0], values)
    }

    /// Room for so many keys that are loaded, and so many that are inserted later.
    pub(crate) fn with_room(keys: Keys, first: u64, [loaded, inserted]: [u64; 2], values: Values) -> Self {
        Oracle {
            keys,
            first,
            values,
            words: (0..loaded + inserted).map(|_| AtomicU32::new(0)).collect(),
            loaded,
            deletions: AtomicBool::new(false),
        }
    }

    /// How many keys are loaded.
    #[inline]
    pub(crate) fn loaded(&self) -> u64 {
        self.loaded
    }

    /// One more than the number of the last key that was ever written or is to be loaded.
    pub(crate) fn used(&self) -> u64 {
        let inserted = (self.loaded..self.len()).rev().find(|&index| self.observe(index).version() > 0);
        inserted.map_or(self.loaded, |last| last + 1)
    }

    /// How many keys there are room for, alive or not.
    pub fn len(&self) -> u64 {
        self.words.len() as u64
    }

    /// Whether there are no keys at all.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The keys.
    pub fn keys(&self) -> Keys {
        self.keys
    }

    /// The values of this key space.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Room for one key of this space at a time, for [`Oracle::key_in`].
    pub fn room(&self) -> KeyRoom {
        self.keys.room()
    }

    /// The bytes of a key, in room that this oracle gave.
    #[inline]
    pub fn key_in<'a>(&self, index: u64, room: &'a mut KeyRoom) -> &'a [u8] {
        room.key(self.first + index)
    }

    /// The bytes of a key.
    pub fn key(&self, index: u64) -> Vec<u8> {
        self.keys.key(self.first + index)
    }

    /// The key with these bytes, if it belongs to the key space.
    #[inline]
    pub fn index(&self, key: &[u8]) -> Option<u64> {
        let index = self.keys.number(key)?.wrapping_sub(self.first);
        (index < self.len()).then_some(index)
    }

    /// The key nearest to `index` that `thread` of `threads` may write.
    #[inline]
    pub fn own(&self, index: u64, thread: u64, threads: u64) -> u64 {
        if threads == 1 {
            return index;
        }
        let own = index - index % threads + thread;
        if own < self.len() { own } else { own - threads }
    }

    /// The state of a key now: take it before a read.
    #[inline]
    pub fn observe(&self, index: u64) -> Word {
        Word(self.words[index as usize].load(Ordering::Acquire))
    }

    /// Announces the next version of a key; only its owner may. Returns the value to write.
    #[inline]
    pub fn begin_put(&self, index: u64) -> &[u8] {
        let version = self.announce(index, LIVE);
        self.values.slice(index, version)
    }

    /// [`Oracle::begin_put`] with a forecast made by [`Oracle::forecast`].
    #[inline]
    pub(crate) fn begin_put_as(&self, index: u64, forecast: &Forecast) -> &[u8] {
        let version = self.announce(index, LIVE);
        if version == forecast.version {
            self.values.at(&forecast.place)
        } else {
            self.values.slice(index, version)
        }
    }

    /// Announces the deletion of a key; only its owner may. Returns whether it exists.
    pub fn begin_delete(&self, index: u64) -> bool {
        self.deletions.store(true, Ordering::Release);
        self.announce(index, 0);
        self.observe(index).live_before()
    }

    fn announce(&self, index: u64, live: u32) -> u32 {
        let now = self.observe(index);
        debug_assert!(!now.in_flight(), "key {index} has two writers");
        let version = (now.version() + 1) & VERSION;
        let before = if now.live() { LIVE_BEFORE } else { 0 };
        self.words[index as usize].store(version | live | before | IN_FLIGHT, Ordering::Release);
        version
    }

    /// Confirms what was announced.
    #[inline]
    pub fn finish(&self, index: u64) {
        let word = self.words[index as usize].load(Ordering::Relaxed);
        self.words[index as usize].store(word & !(IN_FLIGHT | LIVE_BEFORE), Ordering::Release);
    }

    /// Whether `answer` is right for a read of `index` that began after `before` was observed and has just ended.
    #[inline]
    pub fn accepts(&self, index: u64, before: Word, answer: Option<&[u8]>) -> bool {
        let after = self.observe(index);
        if before == after && !after.in_flight() {
            return match answer {
                Some(value) => after.live() && value == self.values.slice(index, after.version()),
                None => !after.live(),
            };
        }
        self.accepts_one_of(index, before, after, answer)
    }

    /// [`Oracle::accepts`] with a forecast made by [`Oracle::forecast`].
    #[inline]
    pub(crate) fn accepts_as(
        &self,
        index: u64,
        before: Word,
        answer: Option<&[u8]>,
        forecast: &Forecast,
    ) -> bool {
        let after = self.observe(index);
        match answer {
            Some(value) if before == after && after == Word(forecast.version | LIVE) => {
                value == self.values.at(&forecast.place)
            }
            _ => self.accepts(index, before, answer),
        }
    }

    #[cold]
    fn accepts_one_of(&self, index: u64, before: Word, after: Word, answer: Option<&[u8]>) -> bool {
        let (oldest, oldest_live) = match before.in_flight() {
            true => (before.version() - 1, before.live_before()),
            false => (before.version(), before.live()),
        };
        let newest = after.version();
        (oldest..=newest).any(|version| {
            // The two words do not tell what happened in between: a deletion, if there are any at all.
            let live = if version == newest {
                Some(after.live())
            } else if version + 1 == newest && after.in_flight() {
                Some(after.live_before())
            } else if version == oldest {
                Some(oldest_live)
            } else if version == before.version() {
                Some(before.live())
            } else if self.deletions.load(Ordering::Acquire) {
                None
            } else {
                Some(true)
            };
            match answer {
                Some(value) => live != Some(false) && value == self.values.slice(index, version),
                None => live != Some(true),
            }
        })
    }

    /// The keys that a scan of `limit` records from `index` on may meet: the first alone, unless keys are in the order
    /// of their numbers.
    pub(crate) fn expected_in_scan(&self, index: u64, limit: u64) -> Range<u64> {
        match self.is_in_order() {
            true => index..(index + limit).min(self.len()),
            false => index..index + 1,
        }
    }

    /// Whether the keys are in the order of their numbers.
    pub(crate) fn is_in_order(&self) -> bool {
        self.keys.are_in_order(self.first + self.len())
    }

    /// Checks a scan of `limit` records from key `index` on, before which the words `before` of
    /// [`Oracle::expected_in_scan`] were observed. Keys must ascend and be keys that were written, and values must be
    /// right. An observed key that existed throughout must not be missing from the part that was scanned. Keys that are
    /// not observed lie behind all that are. For these keys, a scan that was `alone` must return the current version.
    /// Otherwise any version is accepted, because an unknown number of writes may have followed. With a `filter`, the
    /// scan looked at `limit` records and left out those without its bytes.
    pub(crate) fn check_scan(
        &self,
        index: u64,
        before: &[Word],
        limit: usize,
        alone: bool,
        filter: Option<&[u8]>,
        records: &Records,
    ) -> Result<(), String> {
        let from = self.key(index);
        if records.len() > limit {
            return Err(format!("a scan of {limit} records returned {}", records.len()));
        }
        let mut last: Option<&[u8]> = None;
        let mut met = 0;
        for (key, value) in records.iter() {
            if key < from.as_slice() || last.is_some_and(|last| key <= last) {
                return Err(format!("a scan from key number {index} returned keys out of order"));
            }
            last = Some(key);
            let number = self.keys.number(key).filter(|number| *number < self.first + self.len());
            let Some(number) = number else {
                return Err(format!("a scan from key number {index} returned a key that was never written"));
            };
            // Without an index it is a key of the space that was loaded before this one.
            let this = number.checked_sub(self.first);
            let observed = this.and_then(|this| {
                let place = this.checked_sub(index)?;
                Some((place, *before.get(place as usize)?))
            });
            let passed = observed.map_or(before.len() as u64, |(place, _)| place);
            if let Some(lost) = self.lost_between(index, met, index + passed, before, filter) {
                return Err(format!("a scan from key number {index} missed key number {lost}"));
            }
            met = passed + u64::from(observed.is_some());
            let Some(this) = this else { continue };
            let right = match observed {
                Some((_, word)) => self.accepts(this, word, Some(value)),
                None => self.accepts_unobserved(this, value, alone),
            };
            if !passes(filter, value) {
                return Err(format!(
                    "a scan from key number {index} returned key number {this}, which its filter leaves out"
                ));
            }
            if !right {
                return Err(format!(
                    "a scan from key number {index} returned wrong bytes for key number {this}"
                ));
            }
        }
        if (records.len() < limit || filter.is_some())
            && let Some(lost) = self.lost_between(index, met, index + before.len() as u64, before, filter)
        {
            return Err(format!("a scan from key number {index} missed key number {lost}"));
        }
        Ok(())
    }

    /// A key between the `met`-th after `index` and `end` that existed before the scan and still does, unwritten, and
    /// that the filter does not leave out.
    fn lost_between(
        &self,
        index: u64,
        met: u64,
        end: u64,
        before: &[Word],
        filter: Option<&[u8]>,
    ) -> Option<u64> {
        (index + met..end).find(|&key| {
            let word = before[(key - index) as usize];
            let is_there = word.certainly_live() && self.observe(key) == word;
            is_there && passes(filter, self.values.slice(key, word.version()))
        })
    }

    fn accepts_unobserved(&self, index: u64, value: &[u8], alone: bool) -> bool {
        let newest = self.observe(index).version();
        let oldest = if alone { newest } else { 1 };
        (oldest..=newest).rev().any(|version| value == self.values.slice(index, version))
    }

    /// The value a key has now, for a target that answers from the oracle itself.
    #[inline]
    pub(crate) fn current(&self, index: u64) -> Option<&[u8]> {
        let now = self.observe(index);
        now.live().then(|| self.values.slice(index, now.version()))
    }

    /// Whether the key existed before the write that is under way, or exists if none is.
    pub(crate) fn existed(&self, index: u64) -> bool {
        let now = self.observe(index);
        if now.in_flight() { now.live_before() } else { now.live() }
    }

    /// Touches the word of a key, so that the waits for memory of several operations overlap.
    #[inline]
    pub(crate) fn warm(&self, index: u64) {
        std::hint::black_box(self.words[index as usize].load(Ordering::Relaxed));
    }

    /// Works out the value that an operation on this key will most likely meet, the next one if it `writes`, and
    /// touches its bytes.
    #[inline]
    pub(crate) fn forecast(&self, index: u64, writes: bool) -> Forecast {
        let version = (self.observe(index).version() + u32::from(writes)) & VERSION;
        let place = self.values.place(index, version);
        self.values.warm(&place);
        Forecast { version, place }
    }

    /// The live keys.
    pub fn live(&self) -> Live {
        let words = (0..self.len()).map(|index| (index, self.observe(index)));
        words.filter(|(_, word)| word.live()).fold(Live::default(), |sum, (index, word)| {
            let key_bytes = self.keys.len(self.first + index) as u64;
            sum.plus(Live { keys: 1, key_bytes, value_bytes: self.values.len(index, word.version()) as u64 })
        })
    }
}

/// Live keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Live {
    /// How many.
    pub keys: u64,
    /// Bytes of the keys.
    pub key_bytes: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
}

impl Live {
    /// Both together.
    pub(crate) fn plus(self, other: Live) -> Live {
        Live {
            keys: self.keys + other.keys,
            key_bytes: self.key_bytes + other.key_bytes,
            value_bytes: self.value_bytes + other.value_bytes,
        }
    }

    /// Bytes of keys and values.
    pub fn raw_bytes(&self) -> u64 {
        self.key_bytes + self.value_bytes
    }
}

/// Whether a value has the bytes of a filter.
fn passes(filter: Option<&[u8]>, value: &[u8]) -> bool {
    filter.is_none_or(|filter| filter.is_empty() || value.windows(filter.len()).any(|bytes| bytes == filter))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::keys::KeyShape;
    use crate::data::values::ValueBytes;
    use std::sync::Arc;

    fn oracle() -> Oracle {
        oracle_of(KeyShape::Decimal)
    }

    fn oracle_of(shape: KeyShape) -> Oracle {
        let corpus: Arc<Vec<u8>> = Arc::new((0..4_000u32).flat_map(|i| i.to_le_bytes()).collect());
        let region = 0..corpus.len();
        let values = Values::new(corpus, region, ValueBytes { min: 16, max: 16 }, 1).unwrap();
        Oracle::new(Keys::new(shape, None), 0, 100, values)
    }

    fn put(oracle: &Oracle, index: u64) -> Vec<u8> {
        let value = oracle.begin_put(index).to_vec();
        oracle.finish(index);
        value
    }

    #[test]
    fn at_rest_only_the_current_version_is_right() {
        let oracle = oracle();
        let nothing = oracle.observe(5);
        assert!(oracle.accepts(5, nothing, None));
        let old = put(&oracle, 5);
        let new = put(&oracle, 5);
        let before = oracle.observe(5);
        assert!(oracle.accepts(5, before, Some(&new)));
        assert!(!oracle.accepts(5, before, Some(&old)), "a stale value");
        assert!(!oracle.accepts(5, before, None), "a lost key");
        assert!(!oracle.accepts(5, before, Some(&new[..15])), "a short value");
    }

    #[test]
    fn during_a_write_exactly_the_old_and_the_new_version_are_right() {
        let oracle = oracle();
        let older = put(&oracle, 5);
        let old = put(&oracle, 5);
        let new = oracle.begin_put(5).to_vec();
        let during = oracle.observe(5);
        for (value, right) in [(&older, false), (&old, true), (&new, true)] {
            assert_eq!(oracle.accepts(5, during, Some(value)), right);
        }
        assert!(!oracle.accepts(5, during, None), "an overwritten key was never absent");
        oracle.finish(5);
        assert!(oracle.accepts(5, during, Some(&old)), "the read began before the write ended");
        let after = oracle.observe(5);
        assert!(!oracle.accepts(5, after, Some(&old)), "this read began after it");
    }

    #[test]
    fn absence_is_right_only_around_a_deletion() {
        let oracle = oracle();
        let old = put(&oracle, 5);
        let before = oracle.observe(5);
        assert!(oracle.begin_delete(5));
        assert!(oracle.accepts(5, before, None) && oracle.accepts(5, before, Some(&old)));
        oracle.finish(5);
        let gone = oracle.observe(5);
        assert!(oracle.accepts(5, gone, None) && !oracle.accepts(5, gone, Some(&old)));
        assert_eq!(oracle.live(), Live::default());
    }

    #[test]
    fn several_puts_during_one_read_never_excuse_a_lost_key() {
        let oracle = oracle();
        put(&oracle, 5);
        let before = oracle.observe(5);
        let middle = put(&oracle, 5);
        put(&oracle, 5);
        put(&oracle, 5);
        assert!(oracle.accepts(5, before, Some(&middle)));
        assert!(!oracle.accepts(5, before, None));
    }

    /// Values of the numbers from some number on: one in sixteen or so has the byte.
    #[test]
    fn a_filtered_scan_has_all_that_pass_and_nothing_else() {
        let oracle = oracle();
        let values: Vec<Vec<u8>> = (0..100).map(|index| put(&oracle, index)).collect();
        let filter = &values[20][4..7];
        let passing: Vec<usize> = (10..60).filter(|index| passes(Some(filter), &values[*index])).collect();
        assert!(passing.contains(&20) && passing.len() < 50);
        let before: Vec<Word> = (10..60).map(|index| oracle.observe(index)).collect();
        let judged = |kept: &[usize]| {
            let mut records = Records::default();
            kept.iter().for_each(|index| records.push(&oracle.key(*index as u64), &values[*index]));
            oracle.check_scan(10, &before, 50, true, Some(filter), &records)
        };
        assert_eq!(judged(&passing), Ok(()));
        let lost = judged(&passing[..passing.len() - 1]).unwrap_err();
        assert!(lost.contains(&format!("missed key number {}", passing[passing.len() - 1])), "{lost}");
        let other = (10..20).find(|index| !passing.contains(index)).unwrap();
        let told = judged(&[&[other][..], &passing].concat()).unwrap_err();
        assert!(
            told.contains(&format!("returned key number {other}, which its filter leaves out")),
            "{told}"
        );
    }

    /// Scans of ten records from the twenty-first key on.
    #[test]
    fn a_scan_begins_at_its_key_and_has_keys_that_were_written() {
        for shape in [KeyShape::Decimal, KeyShape::Random] {
            let oracle = oracle_of(shape);
            let values: Vec<Vec<u8>> = (0..100).map(|index| put(&oracle, index)).collect();
            let mut order: Vec<u64> = (0..100).collect();
            order.sort_unstable_by_key(|index| oracle.key(*index));
            let first = order[20];
            let expected = oracle.expected_in_scan(first, 10);
            let before: Vec<Word> = expected.map(|index| oracle.observe(index)).collect();
            let judged = |scanned: &[u64], invented: u8| {
                let mut records = Records::default();
                for index in scanned {
                    records.push(&oracle.key(*index), &values[*index as usize]);
                }
                for last in 0..invented {
                    records.push(&[oracle.key(first).as_slice(), &[last]].concat(), &values[0]);
                }
                oracle.check_scan(first, &before, 10, true, None, &records)
            };
            assert_eq!(judged(&order[20..30], 0), Ok(()), "{shape}");
            for scanned in [&order[21..31], &order[30..40], &order[..0]] {
                let told = judged(scanned, 0).unwrap_err();
                assert!(told.ends_with(&format!("missed key number {first}")), "{shape}: {told}");
            }
            for invented in [9, 10] {
                let told = judged(&order[20..30 - usize::from(invented)], invented).unwrap_err();
                assert!(told.ends_with("returned a key that was never written"), "{shape}: {told}");
            }
        }
    }

    #[test]
    fn every_key_has_one_owner() {
        let oracle = oracle();
        for threads in [1, 2, 3, 7] {
            for thread in 0..threads {
                for index in 0..100 {
                    assert_eq!(oracle.own(index, thread, threads) % threads, thread);
                    assert!(oracle.own(index, thread, threads) < 100);
                }
            }
        }
    }
}
