//! A body: an immutable sorted run of records.
//!
//! ```text
//! 0        u16 records n
//! 2        u8  layout: WIDE, SAME_TAG, SAME_SUFFIX, CODED, PACKED, EVEN
//! 3        u8  the tag of all records, with SAME_TAG
//! 4        u16 bytes of the prefix that all keys share
//! 6        u16 bytes of every key's suffix, with SAME_SUFFIX
//! 8        u64 earliest expiry in milliseconds, 0 for none
//! 16       u8  fingerprint of each key [n]
//! 16+n     u16 (u32 with WIDE) offset of each record from the start of the body, and of the end [n + 1];
//!          with EVEN instead of all these u16 bytes of every record
//! ..       prefix
//! ..       records: [tag u8] [suffix length varint] [optional fields] suffix, payload
//! ..       blocks, with PACKED: see `packed`
//! ```
//!
//! Keys lose the prefix that the whole body shares and nothing more, so that any record can be compared on its
//! own. A look-up compares one fingerprint byte per record, 32 at a time, and then whole keys.

mod build;
mod bytes;
mod check;
mod packed;
mod revise;

use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

pub use build::{Builder, Entry, EntryKey};
use bytes::BodyBytes;
pub use check::Referents;
pub(crate) use packed::BLOCKS_MAX;
pub use packed::{Block, Blocks, Section};
pub use revise::Edit;

use crate::blocks::PackedValue;
use crate::codec_options::CodecOptions;
use crate::far::{FarBytes, FarMemory};
use crate::form::Form;
use crate::large::LargeHandle;
use crate::memory::prefetch;
use crate::numbers::{array, read_varint};
use crate::record::{Fields, Found, Kind, Payload, Tag};

const HEADER_BYTES: usize = 16;
const WIDE: u8 = 1;
const SAME_TAG: u8 = 1 << 1;
const SAME_SUFFIX: u8 = 1 << 2;
const CODED: u8 = 1 << 3;
const PACKED: u8 = 1 << 4;
const EVEN: u8 = 1 << 5;

/// Bytes of header, fingerprints and offsets in most bodies. A look-up reads these before it knows which record it
/// wants.
pub(crate) const DIRECTORY_BYTES: usize = 512;

/// Bytes of a record that are asked for ahead of its look-up.
const PREFETCHED_BYTES_MAX: usize = 256;

#[cfg(test)]
std::thread_local! {
    /// Keys, and groups of fingerprints, that this thread has compared in search of records.
    pub static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How large bodies become.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    /// Bytes that a body is filled to when there is a choice. With its reference counts these are two pages. The
    /// allocator's classes of whole pages have neither rounding nor holes.
    pub bytes_full: usize,
    /// A larger body is split: the room above a full one lets values grow without a split.
    pub bytes_max: usize,
    /// Records a body is filled to when there is a choice.
    pub records_full: usize,
    /// A body with more records is split.
    pub(crate) records_max: usize,
}

impl BodyLimits {
    /// Two pages, or two blocks if these are larger: a body can be cut between blocks only. A look-up compares a
    /// fingerprint for each record, which unpacking a block takes much longer than.
    pub(crate) fn of(options: &CodecOptions) -> Self {
        let packs = options.codec.block_format().is_some();
        let blocks = if packs { 2 * options.block.bytes.next_power_of_two() } else { 0 };
        let pages = blocks.max(8192);
        let records_full = if packs { 480 } else { 256 };
        Self {
            bytes_full: pages - 16,
            bytes_max: pages / 4 * 5 - 16,
            records_full,
            records_max: records_full + 32,
        }
    }
}

/// The fingerprint of a key in a body.
#[inline]
pub fn fingerprint(hash: u64) -> u8 {
    (hash >> 56) as u8
}

/// An immutable sorted run of records. See the module for the layout.
#[derive(Clone)]
pub struct Body(BodyBytes);

/// A record of a body.
#[derive(Clone, Copy)]
pub struct BodyRecord<'a> {
    /// Its kind, and which optional fields it has.
    pub tag: Tag,
    /// Its optional fields.
    pub fields: Fields,
    pub(crate) suffix: &'a [u8],
    /// The bytes behind the key, as the kind asks for them: a value, a coded value, a reference, or nothing.
    pub payload: &'a [u8],
}

impl Body {
    /// The body without records, shared by all leaves that have none.
    pub fn empty() -> Self {
        static EMPTY: LazyLock<Body> = LazyLock::new(|| Builder::default().build_anew(&[], None));
        EMPTY.clone()
    }

    /// Bytes it asks of the allocator in DRAM, 0 for the shared empty body: how large it is, wherever it lies.
    pub fn asked_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.0.len() + 2 * size_of::<usize>() }
    }

    /// Bytes it has asked of the allocator.
    pub fn dram_bytes(&self) -> usize {
        if self.is_empty() { 0 } else { self.0.dram_bytes() }
    }

    /// Bytes it has in far memory.
    pub fn far_bytes(&self) -> usize {
        if self.is_far() { self.0.len() } else { 0 }
    }

    /// Whether it lies in far memory.
    #[inline]
    pub fn is_far(&self) -> bool {
        self.0.far().is_some()
    }

    /// A copy in far memory; `None` when it has no room. The references of large values are the same.
    pub fn to_far(&self, memory: &Arc<FarMemory>) -> Option<Self> {
        BodyBytes::put(memory, &self.0).map(Self)
    }

    /// Whether its bytes are what was put, as far as the place where they lie can tell.
    pub fn is_whole(&self) -> bool {
        self.0.far().is_none_or(FarBytes::is_whole)
    }

    /// A copy in DRAM; `None` when its bytes are no longer what was put.
    pub fn to_dram(&self) -> Option<Self> {
        self.is_whole().then(|| Self(BodyBytes::from(&*self.0)))
    }

    /// The large values that its records own. The body is that of an open leaf, of one that the caller owns, or of one
    /// that the caller found in the tree since its guard began.
    pub fn larges(&self) -> impl Iterator<Item = LargeHandle<'_>> {
        let none = self.layout() & SAME_TAG != 0 && Tag(self.0[3]).kind() != Kind::Large;
        (0..if none { 0 } else { self.len() }).filter_map(|index| {
            let record = self.record(index);
            // SAFETY: a record of this kind owns its reference until a merge releases it by way of the epoch.
            (record.tag.kind() == Kind::Large).then(|| unsafe { LargeHandle::borrow(record.payload) })
        })
    }

    /// Whether both share the same bytes in memory. Two bodies with equal bytes in two places are not the same.
    pub fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.0.as_ptr(), other.0.as_ptr())
    }

    /// Its address, for `prefetch` only.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Records.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(u16::from_le_bytes([self.0[0], self.0[1]]))
    }

    /// Whether it has no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a reader decodes or unpacks any value.
    pub fn is_compressed(&self) -> bool {
        self.layout() & (CODED | PACKED) != 0
    }

    /// Whether any value is coded.
    pub(crate) fn is_coded(&self) -> bool {
        self.layout() & CODED != 0
    }

    /// Values with token numbers of one width.
    pub fn plain(&self) -> usize {
        let is_plain = |index: &usize| self.record(*index).tag.kind() == Kind::Coded;
        if self.is_coded() { (0..self.len()).filter(is_plain).count() } else { 0 }
    }

    /// Whether any value has token numbers that are coded by entropy.
    pub fn has_entropy(&self) -> bool {
        self.is_coded() && (0..self.len()).any(|index| self.record(index).tag.kind() == Kind::Recoded)
    }

    /// The earliest expiry of its records, in milliseconds since the Unix epoch.
    pub fn earliest_expiry_ms(&self) -> Option<u64> {
        Some(u64::from_le_bytes(array(&self.0[8..]))).filter(|at| *at != 0)
    }

    /// The record of `key`.
    #[inline]
    pub fn find(&self, key: &[u8], hash: u64) -> Option<usize> {
        self.find_by(fingerprint(hash), key)
    }

    /// The record of `key`, whose fingerprint is `wanted`.
    #[inline]
    pub(crate) fn find_by(&self, wanted: u8, key: &[u8]) -> Option<usize> {
        let count = self.len();
        let mut at = 0;
        while at < count {
            #[cfg(test)]
            STEPS.set(STEPS.get() + 1);
            let mut matches = equal_bytes(&self.0[HEADER_BYTES + at..], wanted, count - at);
            while matches != 0 {
                let index = at + matches.trailing_zeros() as usize;
                if self.key_is(index, key) {
                    return Some(index);
                }
                matches &= matches - 1;
            }
            at += LANES;
        }
        None
    }

    /// Asks for the memory of the whole body.
    pub(crate) fn prefetch(&self) {
        prefetch(self.address(), self.0.len());
    }

    /// Asks for the memory of the first record whose fingerprint is that of `hash`.
    pub(crate) fn prefetch_record(&self, hash: u64) {
        let count = self.len();
        let wanted = fingerprint(hash);
        for at in (0..count).step_by(LANES) {
            let matches = equal_bytes(&self.0[HEADER_BYTES + at..], wanted, count - at);
            if matches != 0 {
                let record = self.record_bytes(at + matches.trailing_zeros() as usize);
                return prefetch(record.as_ptr().addr(), record.len().min(PREFETCHED_BYTES_MAX));
            }
        }
    }

    /// The first record whose key is not below `key`, and whether it is that key; `key` is above every record
    /// before `from`.
    pub fn seek_from(&self, from: usize, key: &[u8]) -> (usize, bool) {
        let prefix = self.prefix();
        let shared = key.len().min(prefix.len());
        match key[..shared].cmp(&prefix[..shared]) {
            Ordering::Less => return (from, false),
            Ordering::Greater => return (self.len(), false),
            Ordering::Equal if key.len() < prefix.len() => return (from, false),
            Ordering::Equal => {}
        }
        let rest = &key[shared..];
        let (mut low, mut high) = (from, self.len());
        while low < high {
            #[cfg(test)]
            STEPS.set(STEPS.get() + 1);
            let middle = (low + high) / 2;
            match self.record(middle).suffix.cmp(rest) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        (low, false)
    }

    /// The fingerprint of record `index`.
    pub fn fingerprint(&self, index: usize) -> u8 {
        self.0[HEADER_BYTES + index]
    }

    /// Whether all keys lie from `low` on and below `high`.
    pub fn lies_within(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        self.seek_from(0, low).0 == 0 && high.is_none_or(|high| self.seek_from(0, high).0 == self.len())
    }

    /// The prefix of all keys.
    #[inline]
    pub(crate) fn prefix(&self) -> &[u8] {
        let at = self.prefix_at();
        &self.0[at..at + usize::from(u16::from_le_bytes([self.0[4], self.0[5]]))]
    }

    /// Record `index` in key order.
    #[inline]
    pub fn record(&self, index: usize) -> BodyRecord<'_> {
        let mut bytes = self.record_bytes(index);
        let layout = self.layout();
        let tag = if layout & SAME_TAG != 0 {
            Tag(self.0[3])
        } else {
            let tag = Tag(bytes[0]);
            bytes = &bytes[1..];
            tag
        };
        let suffix_len = if layout & SAME_SUFFIX != 0 {
            usize::from(u16::from_le_bytes([self.0[6], self.0[7]]))
        } else {
            let (len, rest) = read_varint(bytes);
            bytes = rest;
            len as usize
        };
        let (fields, bytes) = Fields::read(tag, bytes);
        let (suffix, payload) = bytes.split_at(suffix_len);
        BodyRecord { tag, fields, suffix, payload }
    }

    /// The value of record `index`, to be decoded as `form`, which is the body's, tells.
    #[inline]
    pub fn found<'a>(&'a self, index: usize, form: &'a Form) -> Found<'a> {
        let record = self.record(index);
        Found {
            payload: self.payload(index, &record, form),
            expires_at_ms: record.fields.expires_at_ms,
            flags: record.fields.flags,
        }
    }

    /// The bytes of the value of `record`, which is the one at `index`.
    #[inline]
    fn payload<'a>(&'a self, index: usize, record: &BodyRecord<'a>, form: &'a Form) -> Payload<'a> {
        let tokens = || form.tokens().expect("a body with coded values has their dictionary");
        match record.tag.kind() {
            Kind::Coded => Payload::Coded(record.payload, tokens()),
            Kind::Recoded => Payload::Recoded(record.payload, tokens()),
            Kind::Packed => {
                let block = self.block_around(index);
                Payload::Packed(PackedValue {
                    frame: block.frame,
                    place: index - block.first,
                    count: block.count,
                    coding: form.blocks().expect("a packed body has its engines"),
                })
            }
            // SAFETY: a record of this kind owns its reference until a merge releases it by way of the epoch.
            Kind::Large => Payload::Large(unsafe { LargeHandle::borrow(record.payload) }),
            Kind::Lost => Payload::Lost,
            _ => Payload::Raw(record.payload),
        }
    }

    #[inline]
    fn layout(&self) -> u8 {
        self.0[2]
    }

    #[inline]
    fn key_is(&self, index: usize, key: &[u8]) -> bool {
        let prefix = self.prefix();
        let suffix = self.record(index).suffix;
        key.len() == prefix.len() + suffix.len()
            && &key[prefix.len()..] == suffix
            && &key[..prefix.len()] == prefix
    }

    #[inline]
    fn prefix_at(&self) -> usize {
        let count = self.len();
        let offsets = match self.layout() & (EVEN | WIDE) {
            0 => (count + 1) * 2,
            WIDE => (count + 1) * 4,
            _ => 2,
        };
        HEADER_BYTES + count + offsets
    }

    /// The end of the records, and the beginning of the bytes behind them.
    #[inline]
    fn records_end(&self) -> usize {
        self.record_start(self.len())
    }

    /// The offset at which record `index` begins, or the last one ends.
    #[inline]
    fn record_start(&self, index: usize) -> usize {
        let offsets = HEADER_BYTES + self.len();
        let narrow = |at: usize| usize::from(u16::from_le_bytes([self.0[at], self.0[at + 1]]));
        match self.layout() & (EVEN | WIDE) {
            0 => narrow(offsets + index * 2),
            WIDE => u32::from_le_bytes(array(&self.0[offsets + index * 4..])) as usize,
            _ => {
                let prefix_len = usize::from(u16::from_le_bytes([self.0[4], self.0[5]]));
                offsets + 2 + prefix_len + index * narrow(offsets)
            }
        }
    }

    #[inline]
    fn record_bytes(&self, index: usize) -> &[u8] {
        &self.0[self.record_start(index)..self.record_start(index + 1)]
    }
}

const LANES: usize = 32;

/// Bit `i` is set where `bytes[i] == wanted`, for the first 32 bytes of the first `count`.
#[inline]
fn equal_bytes(bytes: &[u8], wanted: u8, count: usize) -> u32 {
    let mask = match bytes.first_chunk::<LANES>() {
        Some(lanes) => equal_lanes(lanes, wanted),
        None => bytes.iter().rev().fold(0, |mask, byte| mask << 1 | u32::from(*byte == wanted)),
    };
    if count < LANES { mask & ((1 << count) - 1) } else { mask }
}

// Each x86-64 processor has SSE2 and each aarch64 one has NEON, so nothing is asked at run time.

#[inline]
#[cfg(target_arch = "x86_64")]
fn equal_lanes(bytes: &[u8; LANES], wanted: u8) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    let half = |at: usize| {
        // SAFETY: 16 bytes from 0 and from 16 are in bounds, and SSE2 is part of x86-64.
        unsafe {
            let lanes = _mm_loadu_si128(bytes.as_ptr().add(at).cast());
            _mm_movemask_epi8(_mm_cmpeq_epi8(lanes, _mm_set1_epi8(wanted as i8))) as u32
        }
    };
    half(0) | half(16) << 16
}

#[inline]
#[cfg(target_arch = "aarch64")]
fn equal_lanes(bytes: &[u8; LANES], wanted: u8) -> u32 {
    use std::arch::aarch64::{vaddv_u8, vand_u8, vceq_u8, vdup_n_u8, vld1_u8};
    const BITS: [u8; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
    bytes.chunks_exact(8).rev().fold(0, |mask, lanes| {
        // SAFETY: eight bytes are in bounds of either, and NEON is part of aarch64.
        let byte = unsafe {
            let equal = vceq_u8(vld1_u8(lanes.as_ptr()), vdup_n_u8(wanted));
            vaddv_u8(vand_u8(equal, vld1_u8(BITS.as_ptr())))
        };
        mask << 8 | u32::from(byte)
    })
}

#[inline]
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn equal_lanes(bytes: &[u8; LANES], wanted: u8) -> u32 {
    bytes.iter().rev().fold(0, |mask, byte| mask << 1 | u32::from(*byte == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::key_hash;

    fn entry<'a>(key: &'a [u8], payload: &'a [u8], expires_at_ms: Option<u64>) -> Entry<'a> {
        Entry {
            key: EntryKey::whole(key),
            fingerprint: fingerprint(key_hash(key)),
            kind: Kind::Raw,
            fields: Fields { expires_at_ms, ..Fields::default() },
            payload,
        }
    }

    fn check(keys: &[Vec<u8>], payload_bytes: usize, expiring: bool) {
        let payload = vec![7; payload_bytes];
        let expiry = |index: usize| (expiring && index.is_multiple_of(3)).then_some(index as u64 + 5);
        let entries: Vec<_> =
            keys.iter().enumerate().map(|(index, key)| entry(key, &payload, expiry(index))).collect();
        let body = Builder::default().build(&entries, None);
        assert_eq!(body.len(), keys.len());
        assert_eq!(body.earliest_expiry_ms(), expiring.then_some(5).filter(|_| !keys.is_empty()));
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(body.find(key, key_hash(key)), Some(index));
            assert_eq!(body.seek_from(0, key), (index, true));
            assert_eq!(body.seek_from(index, key), (index, true));
            let record = body.record(index);
            assert_eq!([body.prefix(), record.suffix].concat(), *key);
            assert_eq!((record.payload, record.fields.expires_at_ms), (&payload[..], expiry(index)));
            for absent in [&key[..key.len() - 1], &[key, &[0][..]].concat()] {
                if !keys.iter().any(|key| key == absent) {
                    assert_eq!(body.find(absent, key_hash(absent)), None);
                    let (place, present) = body.seek_from(0, absent);
                    assert!(!present);
                    assert!(place == 0 || keys[place - 1].as_slice() < absent);
                    assert!(place == keys.len() || absent < keys[place].as_slice());
                }
            }
        }
    }

    #[test]
    fn every_layout_finds_every_record_and_no_other() {
        // Miri takes a thousand times as long.
        let (records, longest, payloads) =
            if cfg!(miri) { (20, 300, &[20][..]) } else { (100, 65_536, &[0, 20, 2000][..]) };
        let decimal: Vec<_> = (0..records).map(|n| format!("key:{n:012}").into_bytes()).collect();
        let mixed: Vec<_> =
            (1..records.min(60)).map(|n| [b"x/".as_slice(), &vec![b'k'; n]].concat()).collect();
        let one = vec![b"only".to_vec()];
        let long = vec![vec![1; longest], vec![2; longest]];
        for keys in [&decimal, &mixed, &one, &long] {
            for payload_bytes in payloads {
                check(keys, *payload_bytes, false);
                check(keys, *payload_bytes, true);
            }
        }
        assert!(Body::empty().is_empty());
        assert_eq!(Body::empty().find(b"key", key_hash(b"key")), None);
    }
}
