//! Bodies from bytes that somebody else may have changed: whatever the accessors rely on is checked once, here.

use super::{
    Body, BodyBytes, BodyRecord, CODED, EVEN, HEADER_BYTES, PACKED, SAME_SUFFIX, SAME_TAG, WIDE, fingerprint,
};
use crate::large::REFERENCE_BYTES;
use crate::numbers::array;
use crate::record::{Kind, Tag, key_hash};
use crate::sizes::{INLINE_BYTES_MAX, KEY_BYTES_MAX};

const LAYOUTS: u8 = WIDE | SAME_TAG | SAME_SUFFIX | CODED | PACKED | EVEN;

/// The things that the records of a body may refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Referents {
    /// A token dictionary.
    pub tokens: bool,
    /// Codes of its tokens.
    pub codes: bool,
    /// Engines for blocks.
    pub blocks: bool,
    /// Large values: references are numbers below this, see [`Body::with_references`].
    pub larges: usize,
    /// The images below, which tombstones shadow.
    pub below: bool,
}

impl Body {
    /// A body of `bytes`, which may be anything: an error says what they break. Coded values and blocks are checked by
    /// those who decode them.
    pub fn from_untrusted(bytes: &[u8], referents: Referents) -> Result<Self, &'static str> {
        let body = Self(BodyBytes::from(bytes));
        body.check(referents)?;
        Ok(if body.is_empty() { Self::empty() } else { body })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same with references to large values that its records own from now on.
    pub fn owning(self, mut reference: impl FnMut(usize) -> [u8; REFERENCE_BYTES]) -> Self {
        self.referring(|number| reference(u64::from_le_bytes(number) as usize)).unwrap_or(self)
    }

    /// A copy with other references to large values; `None` if there are none.
    pub(crate) fn referring(
        &self,
        replace: impl FnMut([u8; REFERENCE_BYTES]) -> [u8; REFERENCE_BYTES],
    ) -> Option<Self> {
        self.with_references(replace).map(|bytes| Self(BodyBytes::from(bytes.as_slice())))
    }

    /// The bytes with other references to large values; `None` if there are none.
    pub fn with_references(
        &self,
        mut replace: impl FnMut([u8; REFERENCE_BYTES]) -> [u8; REFERENCE_BYTES],
    ) -> Option<Vec<u8>> {
        let mut bytes = None;
        for index in 0..self.len() {
            let record = self.record(index);
            if record.tag.kind() == Kind::Large {
                let at = record.payload.as_ptr().addr() - self.0.as_ptr().addr();
                bytes.get_or_insert_with(|| self.0.to_vec())[at..at + REFERENCE_BYTES]
                    .copy_from_slice(&replace(array(record.payload)));
            }
        }
        bytes
    }

    fn check(&self, referents: Referents) -> Result<(), &'static str> {
        if self.0.len() < HEADER_BYTES {
            return Err("the body's header ends");
        }
        let layout = self.layout();
        if layout & !LAYOUTS != 0 || layout & (WIDE | EVEN) == WIDE | EVEN {
            return Err("the body has an unknown layout");
        }
        self.check_directory()?;
        self.check_records(referents)?;
        if layout & PACKED != 0 {
            return if referents.blocks {
                self.check_blocks()
            } else {
                Err("the body's blocks have no engines")
            };
        }
        if self.records_end() == self.0.len() { Ok(()) } else { Err("bytes lie behind the body's records") }
    }

    /// Prefix and records lie one behind the other within the bytes.
    fn check_directory(&self) -> Result<(), &'static str> {
        let outside = "the body's records lie outside of it";
        let prefix_len = usize::from(u16::from_le_bytes([self.0[4], self.0[5]]));
        let records_from = self.prefix_at() + prefix_len;
        if records_from > self.0.len() || self.record_start(0) != records_from {
            return Err(outside);
        }
        let mut before = records_from;
        for index in 1..=self.len() {
            let start = self.record_start(index);
            if start < before || start > self.0.len() {
                return Err(outside);
            }
            before = start;
        }
        Ok(())
    }

    fn check_records(&self, referents: Referents) -> Result<(), &'static str> {
        let mut key = self.prefix().to_vec();
        let prefix_len = key.len();
        let mut before: Option<&[u8]> = None;
        let (mut earliest, mut coded) = (u64::MAX, false);
        for index in 0..self.len() {
            self.check_record_bytes(index, referents.below)?;
            let record = self.record(index);
            key.truncate(prefix_len);
            key.extend_from_slice(record.suffix);
            if !(1..=KEY_BYTES_MAX).contains(&key.len())
                || before.is_some_and(|before| before >= record.suffix)
            {
                return Err("the body's keys are not in order");
            }
            if self.fingerprint(index) != fingerprint(key_hash(&key)) {
                return Err("a key of the body has another fingerprint");
            }
            self.check_value(&record, referents)?;
            before = Some(record.suffix);
            coded |= record.tag.kind().is_coded();
            earliest = earliest.min(record.fields.expires_at_ms.unwrap_or(u64::MAX));
        }
        let earliest = Some(earliest.max(1)).filter(|at| *at != u64::MAX);
        // Bodies whose last coded record was replaced once went on saying that they are coded, and were written so.
        if earliest != self.earliest_expiry_ms() || coded && !self.is_coded() {
            return Err("the body's header does not fit its records");
        }
        Ok(())
    }

    /// The head of a record can be read: tag, length of the suffix, fields, suffix.
    fn check_record_bytes(&self, index: usize, has_tombstones: bool) -> Result<(), &'static str> {
        let ends = "a record of the body ends too early";
        let mut bytes = self.record_bytes(index);
        let layout = self.layout();
        let tag = if layout & SAME_TAG != 0 {
            Tag(self.0[3])
        } else {
            let (tag, rest) = bytes.split_first().ok_or(ends)?;
            bytes = rest;
            Tag(*tag)
        };
        if !(tag.is_settled() || has_tombstones && tag == Tag::TOMBSTONE) {
            return Err("a record of the body is of no known kind");
        }
        let suffix_len = if layout & SAME_SUFFIX != 0 {
            usize::from(u16::from_le_bytes([self.0[6], self.0[7]]))
        } else {
            let (len, rest) = crate::numbers::checked_varint(bytes).ok_or(ends)?;
            bytes = rest;
            len as usize
        };
        if tag.field_bytes() + suffix_len > bytes.len() { Err(ends) } else { Ok(()) }
    }

    fn check_value(&self, record: &BodyRecord<'_>, referents: Referents) -> Result<(), &'static str> {
        let is_sound = match record.tag.kind() {
            Kind::Raw if record.payload.len() > INLINE_BYTES_MAX => {
                return Err("a value of the body is too long for it");
            }
            Kind::Coded => referents.tokens,
            Kind::Recoded => referents.codes,
            Kind::Packed => self.is_packed() && record.payload.is_empty(),
            Kind::Tombstone => record.payload.is_empty(),
            Kind::Large => {
                record.payload.len() == REFERENCE_BYTES
                    && u64::from_le_bytes(array(record.payload)) < referents.larges as u64
            }
            _ => true,
        };
        if is_sound { Ok(()) } else { Err("a value of the body refers to what is not there") }
    }

    /// Every record has a block, and the frames lie one behind the other up to the end.
    fn check_blocks(&self) -> Result<(), &'static str> {
        let section = &self.0[self.records_end()..];
        let ends = "the body's blocks end too early";
        let (blocks, rest) = section.split_first().ok_or(ends)?;
        let blocks = usize::from(*blocks);
        let (counts, rest) = rest.split_at_checked(blocks).ok_or(ends)?;
        let (frame_ends, frames) = rest.split_at_checked(2 * blocks).ok_or(ends)?;
        let mut before = 0;
        for end in frame_ends.chunks_exact(2) {
            let end = usize::from(u16::from_le_bytes([end[0], end[1]]));
            if end < before {
                return Err("the body's blocks are not in order");
            }
            before = end;
        }
        let records: usize = counts.iter().map(|count| usize::from(*count)).sum();
        if before == frames.len() && records == self.len() {
            Ok(())
        } else {
            Err("the body's blocks do not fit its records")
        }
    }
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use crate::body::{Builder, Entry, EntryKey};
    use crate::record::Fields;

    const ALL: Referents = Referents { tokens: true, codes: true, blocks: true, larges: 3, below: false };

    fn body(keys: &[Vec<u8>], kind: impl Fn(usize) -> (Kind, Vec<u8>), expiring: bool) -> Body {
        let payloads: Vec<_> = (0..keys.len()).map(kind).collect();
        let entries: Vec<_> = keys
            .iter()
            .zip(&payloads)
            .enumerate()
            .map(|(index, (key, (kind, payload)))| Entry {
                key: EntryKey::whole(key),
                fingerprint: fingerprint(key_hash(key)),
                kind: *kind,
                fields: Fields { expires_at_ms: expiring.then_some(index as u64 * 3), ..Fields::default() },
                payload,
            })
            .collect();
        Builder::default().build(&entries, None)
    }

    fn bodies() -> Vec<Body> {
        let even: Vec<_> = (0..20).map(|n| format!("key:{n:06}").into_bytes()).collect();
        let odd: Vec<_> = (0..20_u8).map(|n| vec![b'k'; 1 + usize::from(n)]).collect();
        let many: Vec<_> = (0..40).map(|n| format!("key:{n:06}").into_bytes()).collect();
        let raw = |index: usize| (Kind::Raw, vec![index as u8; 9]);
        let mixed = |index: usize| match index % 4 {
            0 => (Kind::Large, (index as u64 % 3).to_le_bytes().to_vec()),
            1 => (Kind::Coded, vec![1; index]),
            2 => (Kind::Lost, Vec::new()),
            _ => (Kind::Raw, vec![2; index]),
        };
        vec![
            Body::empty(),
            body(&even, raw, false),
            body(&even, raw, true),
            body(&odd, raw, false),
            body(&odd, mixed, true),
            body(&even, mixed, false),
            body(&many, |_| (Kind::Raw, vec![7; INLINE_BYTES_MAX]), false),
            body(&many, |index| (Kind::Raw, vec![7; INLINE_BYTES_MAX - index % 2]), false),
        ]
    }

    /// Reads all that readers and packs read.
    fn read_all(body: &Body) {
        for index in 0..body.len() {
            let record = body.record(index);
            let key = [body.prefix(), record.suffix].concat();
            assert_eq!(body.find(&key, key_hash(&key)), Some(index));
            assert_eq!(body.seek_from(0, &key), (index, true));
        }
        for block in body.each_block() {
            block.raw_bytes();
        }
        let _ = (body.raw_bytes(), body.earliest_expiry_ms());
    }

    #[test]
    fn what_was_built_is_taken() {
        for body in bodies() {
            let taken = Body::from_untrusted(body.bytes(), ALL).unwrap();
            assert_eq!(taken.bytes(), body.bytes());
            read_all(&taken);
        }
    }

    #[test]
    fn a_body_with_coded_records_says_so_and_one_without_may_say_so() {
        for body in bodies() {
            let mut bytes = body.bytes().to_vec();
            bytes[2] ^= CODED;
            assert_eq!(Body::from_untrusted(&bytes, ALL).is_ok(), !body.is_coded());
        }
    }

    #[test]
    fn bytes_that_are_taken_can_be_read() {
        let mut random = fastrand::Rng::with_seed(11);
        let rounds = if cfg!(miri) { 30 } else { 20_000 };
        let mut taken = 0;
        for body in bodies() {
            for _ in 0..rounds {
                let mut bytes = body.bytes().to_vec();
                let reach = bytes.len().min(700);
                for _ in 0..random.usize(1..4) {
                    bytes[random.usize(..reach)] = random.u8(..);
                }
                if random.u8(..4) == 0 {
                    bytes.truncate(random.usize(..=reach));
                }
                if let Ok(body) = Body::from_untrusted(&bytes, ALL) {
                    read_all(&body);
                    taken += 1;
                }
            }
        }
        assert!(taken > 0);
    }

    #[test]
    fn references_are_replaced_one_by_one() {
        let keys: Vec<_> = (0..8).map(|n: u8| vec![b'k', n]).collect();
        let kind = |index: usize| match index % 2 {
            0 => (Kind::Large, (index as u64 / 2).to_le_bytes().to_vec()),
            _ => (Kind::Raw, vec![1; 8]),
        };
        let body = body(&keys, kind, false);
        let raised = |reference| (u64::from_le_bytes(reference) + 5).to_le_bytes();
        let bytes = body.with_references(raised).unwrap();
        assert!(Body::from_untrusted(&bytes, Referents { larges: 8, ..ALL }).is_err());
        let raised = Body::from_untrusted(&bytes, Referents { larges: 9, ..ALL }).unwrap();
        assert_eq!(raised.record(6).payload, 8_u64.to_le_bytes());
        assert_eq!(raised.record(5).payload, [1; 8]);
        assert_eq!(Body::empty().with_references(|_| panic!("there are none")), None);
    }
}
