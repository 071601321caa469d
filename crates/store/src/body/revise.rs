//! A body with a few records replaced, added or removed: the rest is copied in runs, without looking at records.

use super::{
    BLOCKS_MAX, Blocks, Body, BodyBytes, BodyLimits, CODED, EVEN, Entry, HEADER_BYTES, SAME_SUFFIX, SAME_TAG,
    WIDE,
};
use crate::record::{Kind, Tag, write_varint};

/// One change to a body.
#[derive(Clone, Copy)]
pub(crate) struct Edit<'a> {
    /// The record that is replaced or removed, or the one that the new record comes before.
    pub(crate) place: usize,
    /// Whether the record at `place` goes away.
    pub(crate) replaces: bool,
    /// The entry in its place, if any.
    pub(crate) entry: Option<Entry<'a>>,
}

impl Body {
    /// This body with `edits`, which are in key order, and with `blocks` in place of its own. `None` if it then needs
    /// another layout or is beyond `limits`.
    pub(crate) fn revised(
        &self,
        edits: &[Edit<'_>],
        blocks: Option<&Blocks>,
        limits: BodyLimits,
        out: &mut Vec<u8>,
    ) -> Option<Self> {
        debug_assert_eq!(blocks.is_some(), self.is_packed());
        let layout = self.layout();
        if layout & WIDE != 0 || self.earliest_expiry_ms().is_some() {
            return None;
        }
        let count = self.len();
        let prefix = self.prefix();
        let same_suffix = layout & SAME_SUFFIX != 0;
        let suffix_len = usize::from(u16::from_le_bytes([self.0[6], self.0[7]]));
        let even = layout & EVEN != 0;
        // Only bodies with records are revised.
        let record_len = self.record_start(1) - self.record_start(0);
        let mut new_count = count;
        let mut is_coded = false;
        for edit in edits {
            new_count = new_count + usize::from(edit.entry.is_some()) - usize::from(edit.replaces);
            let Some(entry) = &edit.entry else { continue };
            let own_suffix = entry.key.len().checked_sub(prefix.len())?;
            let fits = entry.fields.expires_at_ms.is_none()
                && (layout & SAME_TAG == 0 || Tag::new(entry.kind, &entry.fields).0 == self.0[3])
                && (!same_suffix || own_suffix == suffix_len)
                && (!even || record_bytes(entry, layout, own_suffix) == record_len)
                && (edit.replaces || entry.key.begins_with(prefix));
            if !fits {
                return None;
            }
            is_coded |= entry.kind == Kind::Coded;
        }
        let too_many = blocks.is_some_and(|blocks| blocks.len() > BLOCKS_MAX);
        if new_count == 0 || new_count > limits.records_max || too_many {
            return None;
        }

        out.clear();
        out.extend_from_slice(&self.0[..HEADER_BYTES]);
        out[..2].copy_from_slice(&(new_count as u16).to_le_bytes());
        out[2] = layout & !CODED | if is_coded || self.stays_coded(edits) { CODED } else { 0 };
        let mut from = 0;
        for edit in edits {
            out.extend_from_slice(&self.0[HEADER_BYTES + from..HEADER_BYTES + edit.place]);
            out.extend(edit.entry.map(|entry| entry.fingerprint));
            from = edit.place + usize::from(edit.replaces);
        }
        out.extend_from_slice(&self.0[HEADER_BYTES + from..HEADER_BYTES + count]);
        let offsets = out.len();
        let offset_bytes = if even { 2 } else { (new_count + 1) * 2 };
        out.resize(offsets + offset_bytes, 0);
        out.extend_from_slice(prefix);

        let mut slot = offsets;
        let mut from = 0;
        for edit in edits {
            self.copy_run(from, edit.place, &mut slot, out);
            from = edit.place + usize::from(edit.replaces);
            if let Some(entry) = &edit.entry {
                if !even {
                    put_offset(out, &mut slot);
                }
                if layout & SAME_TAG == 0 {
                    out.push(Tag::new(entry.kind, &entry.fields).0);
                }
                if !same_suffix {
                    write_varint((entry.key.len() - prefix.len()) as u32, out);
                }
                entry.fields.write(out);
                entry.key.write_from(prefix.len(), out);
                out.extend_from_slice(entry.payload);
            }
        }
        self.copy_run(from, count, &mut slot, out);
        let section_bytes = blocks.map_or(0, |blocks| blocks.section_bytes(0, blocks.len()));
        if out.len() + section_bytes > limits.bytes_max.min(usize::from(u16::MAX)) {
            return None;
        }
        if even {
            out[offsets..offsets + 2].copy_from_slice(&(record_len as u16).to_le_bytes());
            slot = offsets + 2;
        } else {
            put_offset(out, &mut slot);
        }
        assert_eq!(slot, offsets + offset_bytes, "every record has its offset");
        if let Some(blocks) = blocks {
            blocks.write(0, blocks.len(), out);
        }
        Some(Self(BodyBytes::from(out.as_slice())))
    }

    /// Whether a record is coded that `edits` leave as it is.
    fn stays_coded(&self, edits: &[Edit<'_>]) -> bool {
        let mut replaced = edits.iter().filter(|edit| edit.replaces).map(|edit| edit.place).peekable();
        let stays = |index: &usize| replaced.next_if_eq(index).is_none();
        self.is_coded()
            && (0..self.len()).filter(stays).any(|index| self.record(index).tag.kind() == Kind::Coded)
    }

    /// Copies the records from `from` to `to` and their offsets, shifted.
    fn copy_run(&self, from: usize, to: usize, slot: &mut usize, out: &mut Vec<u8>) {
        if from == to {
            return;
        }
        let (start, end) = (self.record_start(from), self.record_start(to));
        if self.layout() & EVEN == 0 {
            let old_offsets = HEADER_BYTES + self.len();
            // Wraps on the way when bytes were removed before; the sum does not.
            let shift = (out.len() as u16).wrapping_sub(start as u16);
            let old = self.0[old_offsets + from * 2..old_offsets + to * 2].chunks_exact(2);
            for (new, old) in out[*slot..*slot + (to - from) * 2].chunks_exact_mut(2).zip(old) {
                new.copy_from_slice(&u16::from_le_bytes([old[0], old[1]]).wrapping_add(shift).to_le_bytes());
            }
            *slot += (to - from) * 2;
        }
        out.extend_from_slice(&self.0[start..end]);
    }
}

/// Bytes of the record that an entry becomes in a body of this layout, whose suffixes are alike.
fn record_bytes(entry: &Entry<'_>, layout: u8, suffix_len: usize) -> usize {
    let tag = Tag::new(entry.kind, &entry.fields);
    usize::from(layout & SAME_TAG == 0) + tag.field_bytes() + suffix_len + entry.payload.len()
}

/// Writes where the next record begins.
fn put_offset(out: &mut [u8], slot: &mut usize) {
    let at = out.len() as u16;
    out[*slot..*slot + 2].copy_from_slice(&at.to_le_bytes());
    *slot += 2;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{Builder, EntryKey, Referents, fingerprint};
    use crate::record::{Fields, key_hash};

    fn entry<'a>(key: &'a [u8], payload: &'a [u8]) -> Entry<'a> {
        Entry {
            key: EntryKey::whole(key),
            fingerprint: fingerprint(key_hash(key)),
            // One in sixteen.
            kind: if payload.len() % 16 == 5 { Kind::Coded } else { Kind::Raw },
            fields: Fields::default(),
            payload,
        }
    }

    const LIMITS: BodyLimits =
        BodyLimits { bytes_full: 1 << 16, bytes_max: 1 << 16, records_full: 300, records_max: 300 };

    #[test]
    fn a_revised_body_holds_what_a_body_built_anew_holds() {
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..if cfg!(miri) { 4 } else { 2_000 } {
            let width = if round % 2 == 0 { 3 } else { 0 };
            // One round in three has records that are all of one length.
            let length = |random: &mut fastrand::Rng| if round % 3 == 0 { 20 } else { random.usize(..40) };
            let name = |n: u32| format!("key:{n:0width$}").into_bytes();
            let old: std::collections::BTreeMap<_, _> = (0..random.usize(1..60))
                .map(|_| (name(random.u32(..300)), vec![1u8; length(&mut random)]))
                .collect();
            let built = |records: &std::collections::BTreeMap<Vec<u8>, Vec<u8>>| {
                let entries: Vec<_> = records.iter().map(|(key, payload)| entry(key, payload)).collect();
                Builder::default().build(&entries)
            };
            let body = built(&old);
            let mut new = old.clone();
            let changes: std::collections::BTreeMap<_, _> = (0..random.usize(1..8))
                .map(|_| (name(random.u32(..300)), random.bool().then(|| vec![2u8; length(&mut random)])))
                .collect();
            let mut edits = Vec::new();
            for (key, payload) in &changes {
                let (place, replaces) = body.seek_from(0, key);
                match payload {
                    Some(payload) => {
                        new.insert(key.clone(), payload.clone());
                        edits.push(Edit { place, replaces, entry: Some(entry(key, payload)) });
                    }
                    None if replaces => {
                        new.remove(key);
                        edits.push(Edit { place, replaces, entry: None });
                    }
                    None => {}
                }
            }
            let Some(revised) = body.revised(&edits, None, LIMITS, &mut Vec::new()) else { continue };
            assert_eq!((revised.len(), revised.is_coded()), (new.len(), built(&new).is_coded()));
            let tokens = Referents { tokens: true, blocks: false, larges: 0, below: false };
            assert!(Body::from_untrusted(revised.bytes(), tokens).is_ok());
            for (index, (key, payload)) in new.iter().enumerate() {
                assert_eq!(revised.find(key, key_hash(key)), Some(index));
                assert_eq!(revised.record(index).payload, payload);
            }
        }
    }
}
