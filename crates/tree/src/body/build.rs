//! Building a body from sorted entries.

use ziptier_codec::token::Dictionary;

use super::packed::Section;
use super::{Body, BodyBytes, CODED, EVEN, HEADER_BYTES, PACKED, SAME_SUFFIX, SAME_TAG, WIDE};
use crate::large::LargeHandle;
use crate::numbers::write_varint;
use crate::record::{Fields, Kind, Tag};

/// A key in two parts, as a body stores it: nothing is copied until the new body is written.
#[derive(Clone, Copy, Debug)]
pub struct EntryKey<'a> {
    /// The first part: the prefix of the body that the key comes from, empty for a key in one piece.
    pub head: &'a [u8],
    /// The rest of the key.
    pub tail: &'a [u8],
}

impl<'a> EntryKey<'a> {
    /// A key in one piece.
    pub fn whole(key: &'a [u8]) -> Self {
        Self { head: &[], tail: key }
    }

    /// Bytes of both parts.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Copies both parts into one piece.
    #[inline]
    pub fn to_vec(self) -> Vec<u8> {
        [self.head, self.tail].concat()
    }

    fn bytes(&self) -> impl Iterator<Item = &u8> {
        self.head.iter().chain(self.tail)
    }

    #[inline]
    pub(super) fn begins_with(&self, prefix: &[u8]) -> bool {
        self.len() >= prefix.len() && self.bytes().zip(prefix).all(|(mine, wanted)| mine == wanted)
    }

    /// Bytes that both begin with.
    pub fn shared(&self, other: &Self) -> usize {
        self.bytes().zip(other.bytes()).take_while(|(mine, theirs)| mine == theirs).count()
    }

    /// Appends the key without its first `skip` bytes.
    #[inline]
    pub(super) fn write_from(&self, skip: usize, out: &mut Vec<u8>) {
        if skip < self.head.len() {
            out.extend_from_slice(&self.head[skip..]);
            out.extend_from_slice(self.tail);
        } else {
            out.extend_from_slice(&self.tail[skip - self.head.len()..]);
        }
    }
}

/// A record on its way into a body.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its key.
    pub key: EntryKey<'a>,
    /// The fingerprint of its key.
    pub fingerprint: u8,
    /// Its kind, which says how `payload` holds the value.
    pub kind: Kind,
    /// Its expiry and flags.
    pub fields: Fields,
    /// The bytes behind the key, as the kind asks for them: a value, a coded value, a reference, or nothing.
    pub payload: &'a [u8],
}

impl Entry<'_> {
    /// Appends the record in a body of this layout, whose keys share a prefix.
    #[inline]
    pub(super) fn write(&self, layout: u8, prefix_len: usize, out: &mut Vec<u8>) {
        if layout & SAME_TAG == 0 {
            out.push(self.tag().0);
        }
        if layout & SAME_SUFFIX == 0 {
            write_varint((self.key.len() - prefix_len) as u32, out);
        }
        self.fields.write(out);
        self.key.write_from(prefix_len, out);
        out.extend_from_slice(self.payload);
    }

    pub(super) fn tag(&self) -> Tag {
        Tag::new(self.kind, &self.fields)
    }

    /// A record that says that the key does not exist.
    pub fn tombstone(self) -> Self {
        Self { kind: Kind::Tombstone, fields: Fields::default(), payload: &[], ..self }
    }

    /// Bytes of key and value as the user sees them; of a packed value, whose bytes lie in a block, those of the key.
    /// `tokens` is the dictionary of a coded value.
    pub fn logical_bytes(&self, tokens: Option<&Dictionary>) -> u64 {
        let value_bytes = match (self.kind, tokens) {
            (Kind::Coded, Some(tokens)) => tokens.raw_len(self.payload).map_or(0, |len| len as u64),
            (Kind::Recoded, Some(tokens)) => tokens.recoded_raw_len(self.payload).map_or(0, |len| len as u64),
            // SAFETY: the record of a readable state owns its reference, and is released after that.
            (Kind::Large, _) => unsafe { LargeHandle::borrow(self.payload) }.len(),
            _ => self.payload.len() as u64,
        };
        self.key.len() as u64 + value_bytes
    }
}

impl Body {
    /// Record `index` as it lies here, on its way into another body.
    #[inline]
    pub fn entry(&self, index: usize) -> Entry<'_> {
        let record = self.record(index);
        Entry {
            key: EntryKey { head: self.prefix(), tail: record.suffix },
            fingerprint: self.fingerprint(index),
            kind: record.tag.kind(),
            fields: record.fields,
            payload: record.payload,
        }
    }
}

/// Writes bodies; keeps its scratch from one to the next.
#[derive(Default)]
pub struct Builder {
    /// Scratch: the bytes of the body that was written last.
    pub bytes: Vec<u8>,
}

/// The properties that all entries of a body share.
struct Shape {
    layout: u8,
    tag: u8,
    prefix_len: usize,
    suffix_len: usize,
    earliest_expiry_ms: u64,
    bytes: usize,
}

impl Shape {
    /// Of a body without records.
    const EMPTY: Self = Self {
        layout: SAME_TAG | SAME_SUFFIX,
        tag: 0,
        prefix_len: 0,
        suffix_len: 0,
        earliest_expiry_ms: 0,
        bytes: HEADER_BYTES + 2,
    };

    fn of(entries: &[Entry<'_>]) -> Self {
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return Self::EMPTY;
        };
        let prefix_len = first.key.shared(&last.key).min(usize::from(u16::MAX));
        let suffix_len = first.key.len() - prefix_len;
        let tag = first.tag().0;
        let mut layout = SAME_TAG;
        if suffix_len <= usize::from(u16::MAX) {
            layout |= SAME_SUFFIX;
        }
        let mut earliest_expiry_ms = u64::MAX;
        let mut data = 0;
        let mut suffix_lengths = 0;
        let mut lengths = [usize::MAX, 0];
        for entry in entries {
            let entry_tag = entry.tag();
            let entry_suffix_len = entry.key.len() - prefix_len;
            if entry_tag.0 != tag {
                layout &= !SAME_TAG;
            }
            if entry_suffix_len != suffix_len {
                layout &= !SAME_SUFFIX;
            }
            if entry.kind.is_coded() {
                layout |= CODED;
            }
            earliest_expiry_ms = earliest_expiry_ms.min(entry.fields.expires_at_ms.unwrap_or(u64::MAX));
            let len = entry_tag.field_bytes() + entry_suffix_len + entry.payload.len();
            lengths = [lengths[0].min(len), lengths[1].max(len)];
            data += len;
            suffix_lengths += varint_bytes(entry_suffix_len);
        }
        let count = entries.len();
        if layout & SAME_TAG == 0 {
            data += count;
        }
        if layout & SAME_SUFFIX == 0 {
            data += suffix_lengths;
        } else if lengths[0] == lengths[1] && data / count <= usize::from(u16::MAX) {
            layout |= EVEN;
        }
        let offset_bytes = if layout & EVEN != 0 { 2 } else { (count + 1) * 2 };
        let mut bytes = HEADER_BYTES + count + offset_bytes + prefix_len + data;
        if bytes > usize::from(u16::MAX) && layout & EVEN == 0 {
            layout |= WIDE;
            bytes += (count + 1) * 2;
        }
        Self {
            layout,
            tag,
            prefix_len,
            suffix_len,
            earliest_expiry_ms: if earliest_expiry_ms == u64::MAX { 0 } else { earliest_expiry_ms.max(1) },
            bytes,
        }
    }
}

fn varint_bytes(value: usize) -> usize {
    match value {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        _ => 3,
    }
}

impl Builder {
    /// The bytes of the body that [`Builder::build`] would write.
    pub(crate) fn size(entries: &[Entry<'_>], section: Option<Section<'_>>) -> usize {
        Shape::of(entries).bytes + section.map_or(0, |section| section.bytes())
    }

    /// Writes a body of `entries`, which are in key order without duplicates. The `section` has their values if these
    /// are packed in blocks.
    pub fn build(&mut self, entries: &[Entry<'_>], section: Option<Section<'_>>) -> Body {
        if entries.is_empty() { Body::empty() } else { self.build_anew(entries, section) }
    }

    /// As [`Builder::build`], also if there are no entries.
    pub(super) fn build_anew(&mut self, entries: &[Entry<'_>], section: Option<Section<'_>>) -> Body {
        debug_assert!(section.is_none_or(|section| section.records() == entries.len()));
        self.write(entries, section.is_some());
        if let Some(section) = section {
            section.write(&mut self.bytes);
        }
        Body(BodyBytes::from(self.bytes.as_slice()))
    }

    fn write(&mut self, entries: &[Entry<'_>], packed: bool) {
        debug_assert!(entries.is_sorted_by(|a, b| a.key.bytes().lt(b.key.bytes())));
        let shape = Shape::of(entries);
        let count = entries.len();
        let wide = shape.layout & WIDE != 0;
        let even = shape.layout & EVEN != 0;
        let same_suffix = shape.layout & SAME_SUFFIX != 0;
        let out = &mut self.bytes;
        out.clear();
        out.extend_from_slice(
            &u16::try_from(count).expect("a body has at most 65,535 records").to_le_bytes(),
        );
        out.push(shape.layout | if packed { PACKED } else { 0 });
        out.push(shape.tag);
        out.extend_from_slice(&(shape.prefix_len as u16).to_le_bytes());
        out.extend_from_slice(&if same_suffix { shape.suffix_len as u16 } else { 0 }.to_le_bytes());
        out.extend_from_slice(&shape.earliest_expiry_ms.to_le_bytes());
        out.extend(entries.iter().map(|entry| entry.fingerprint));
        let offsets = out.len();
        out.resize(offsets + if even { 2 } else { (count + 1) * if wide { 4 } else { 2 } }, 0);
        if let Some(first) = entries.first() {
            let key = first.key;
            let from_head = shape.prefix_len.min(key.head.len());
            out.extend_from_slice(&key.head[..from_head]);
            out.extend_from_slice(&key.tail[..shape.prefix_len - from_head]);
        }
        let write_offset = |out: &mut Vec<u8>, index: usize| {
            let at = out.len() as u32;
            if even {
                // All are as long as the first one.
                if index == 1 {
                    let start = (offsets + 2 + shape.prefix_len) as u32;
                    out[offsets..offsets + 2].copy_from_slice(&((at - start) as u16).to_le_bytes());
                }
            } else if wide {
                out[offsets + index * 4..][..4].copy_from_slice(&at.to_le_bytes());
            } else {
                out[offsets + index * 2..][..2].copy_from_slice(&(at as u16).to_le_bytes());
            }
        };
        for (index, entry) in entries.iter().enumerate() {
            write_offset(out, index);
            entry.write(shape.layout, shape.prefix_len, out);
        }
        write_offset(out, count);
        assert_eq!(out.len(), shape.bytes, "a body is as long as its shape says");
    }
}
