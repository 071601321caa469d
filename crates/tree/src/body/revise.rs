//! A body with a few records replaced, added or removed: the rest is copied in runs, without looking at records.

use super::packed::Section;
use super::{
    BLOCKS_MAX, Body, BodyBytes, BodyLimits, CODED, EVEN, Entry, HEADER_BYTES, SAME_SUFFIX, SAME_TAG, WIDE,
};
use crate::record::Kind;

/// One change to a body.
#[derive(Clone, Copy)]
pub struct Edit<'a> {
    /// The record that is replaced or removed, or the one that the new record comes before.
    pub place: usize,
    /// Whether the record at `place` goes away.
    pub replaces: bool,
    /// The entry in its place, if any. One of [`Kind::Touch`] changes only the expiry of the record.
    pub entry: Option<Entry<'a>>,
}

impl Edit<'_> {
    /// The first record of the body behind it.
    pub fn end(&self) -> usize {
        self.place + usize::from(self.replaces)
    }

    /// Whether it changes only the expiry of the record at `place`.
    pub(crate) fn touches(&self) -> bool {
        self.entry.is_some_and(|entry| entry.kind == Kind::Touch)
    }
}

impl Body {
    /// Whether the keys of `edits`, which are in key order, fit the layout of this body, and all records `limits`.
    /// A pack asks this before it codes their values.
    pub(crate) fn takes(&self, edits: &[Edit<'_>], limits: BodyLimits) -> bool {
        let (layout, prefix) = (self.layout(), self.prefix());
        let suffix_len = usize::from(u16::from_le_bytes([self.0[6], self.0[7]]));
        let fits = |edit: &Edit<'_>| {
            let Some(entry) = &edit.entry else { return true };
            let Some(own_suffix) = entry.key.len().checked_sub(prefix.len()) else { return false };
            entry.fields.expires_at_ms.is_none()
                && (layout & SAME_SUFFIX == 0 || own_suffix == suffix_len)
                && (edit.replaces || entry.key.begins_with(prefix))
        };
        layout & WIDE == 0
            && self.earliest_expiry_ms().is_none()
            && (1..=limits.records_max).contains(&self.len_with(edits))
            && edits.iter().all(fits)
    }

    /// Records with `edits`.
    fn len_with(&self, edits: &[Edit<'_>]) -> usize {
        let came = edits.iter().filter(|edit| edit.entry.is_some()).count();
        self.len() + came - edits.iter().filter(|edit| edit.replaces).count()
    }

    /// This body with `edits`, which it [takes](Body::takes), and with the blocks of `section` in place of its own.
    /// `None` if it then needs another layout or is beyond `limits`.
    pub(crate) fn revised(
        &self,
        edits: &[Edit<'_>],
        section: Option<Section<'_>>,
        limits: BodyLimits,
        out: &mut Vec<u8>,
    ) -> Option<Self> {
        debug_assert_eq!(section.is_some(), self.is_packed());
        debug_assert!(self.takes(edits, limits));
        if !self.keeps_layout(edits) || section.is_some_and(|section| section.len() > BLOCKS_MAX) {
            return None;
        }
        self.write_revised(edits, self.len_with(edits), out);
        let section_bytes = section.map_or(0, |section| section.bytes());
        if out.len() + section_bytes > limits.bytes_max.min(usize::from(u16::MAX)) {
            return None;
        }
        if let Some(section) = section {
            section.write(out);
        }
        Some(Self(BodyBytes::from(out.as_slice())))
    }

    /// Whether the entries of `edits`, which this body takes, have the tag and the length that the records here share.
    fn keeps_layout(&self, edits: &[Edit<'_>]) -> bool {
        let (layout, prefix_len) = (self.layout(), self.prefix().len());
        let fits = |entry: &Entry<'_>| {
            let is_even = || record_bytes(entry, layout, entry.key.len() - prefix_len) == self.even_bytes();
            (layout & SAME_TAG == 0 || entry.tag().0 == self.0[3]) && (layout & EVEN == 0 || is_even())
        };
        edits.iter().filter_map(|edit| edit.entry.as_ref()).all(fits)
    }

    /// Writes this body with `edits`, without blocks; it has `count` records then. If it is above 64 KiB, its offsets
    /// are wrong, and the caller drops it.
    fn write_revised(&self, edits: &[Edit<'_>], count: usize, out: &mut Vec<u8>) {
        let (layout, prefix) = (self.layout(), self.prefix());
        let is_even = layout & EVEN != 0;
        out.clear();
        out.extend_from_slice(&self.0[..HEADER_BYTES]);
        out[..2].copy_from_slice(&(count as u16).to_le_bytes());
        out[2] = layout & !CODED | if self.is_coded_with(edits) { CODED } else { 0 };
        let mut from = 0;
        for edit in edits {
            out.extend_from_slice(&self.0[HEADER_BYTES + from..HEADER_BYTES + edit.place]);
            out.extend(edit.entry.map(|entry| entry.fingerprint));
            from = edit.end();
        }
        out.extend_from_slice(&self.0[HEADER_BYTES + from..HEADER_BYTES + self.len()]);
        let mut slot = out.len();
        let slots_end = slot + if is_even { 2 } else { (count + 1) * 2 };
        out.resize(slots_end, 0);
        out.extend_from_slice(prefix);

        let mut from = 0;
        for edit in edits {
            self.copy_run(from, edit.place, &mut slot, out);
            from = edit.end();
            if let Some(entry) = &edit.entry {
                if !is_even {
                    put_u16(out.len(), &mut slot, out);
                }
                entry.write(layout, prefix.len(), out);
            }
        }
        self.copy_run(from, self.len(), &mut slot, out);
        put_u16(if is_even { self.even_bytes() } else { out.len() }, &mut slot, out);
        assert_eq!(slot, slots_end, "every record has its offset");
    }

    /// Bytes of each record, if all are of one length.
    fn even_bytes(&self) -> usize {
        self.record_start(1) - self.record_start(0)
    }

    /// Whether a record is coded that `edits` bring or leave as it is.
    fn is_coded_with(&self, edits: &[Edit<'_>]) -> bool {
        let comes = |edit: &Edit<'_>| edit.entry.is_some_and(|entry| entry.kind.is_coded());
        edits.iter().any(comes) || self.stays_coded(edits)
    }

    /// Whether a record is coded that `edits` leave as it is.
    fn stays_coded(&self, edits: &[Edit<'_>]) -> bool {
        let mut replaced = edits.iter().filter(|edit| edit.replaces).map(|edit| edit.place).peekable();
        let stays = |index: &usize| replaced.next_if_eq(index).is_none();
        self.is_coded() && (0..self.len()).filter(stays).any(|index| self.record(index).tag.kind().is_coded())
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
    usize::from(layout & SAME_TAG == 0) + entry.tag().field_bytes() + suffix_len + entry.payload.len()
}

/// Writes an offset or a length to `slot`, and moves on to the next one.
fn put_u16(number: usize, slot: &mut usize, out: &mut [u8]) {
    out[*slot..*slot + 2].copy_from_slice(&(number as u16).to_le_bytes());
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

    /// A pack that learned it later would code the values twice.
    #[test]
    fn a_body_tells_without_values_which_keys_need_another_layout() {
        let entries = [entry(b"key:1", b"value"), entry(b"key:3", b"value")];
        let body = Builder::default().build(&entries, None);
        let takes = |place, replaces, entry| body.takes(&[Edit { place, replaces, entry }], LIMITS);
        assert!(takes(1, false, Some(entry(b"key:2", b"another"))) && takes(0, true, None));
        assert!(!takes(0, false, Some(entry(b"kex:1", b"value"))), "another prefix");
        assert!(!takes(1, false, Some(entry(b"key:20", b"value"))), "a longer suffix");
        let ends = [0, 1].map(|place| Edit { place, replaces: true, entry: None });
        assert!(!body.takes(&ends, LIMITS), "no record is left");
        let limits = BodyLimits { records_max: 2, ..LIMITS };
        let more = Edit { place: 2, replaces: false, entry: Some(entry(b"key:4", b"value")) };
        assert!(body.takes(&[more], LIMITS) && !body.takes(&[more], limits));
    }

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
                Builder::default().build(&entries, None)
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
            if !body.takes(&edits, LIMITS) {
                continue;
            }
            let Some(revised) = body.revised(&edits, None, LIMITS, &mut Vec::new()) else { continue };
            assert_eq!((revised.len(), revised.is_coded()), (new.len(), built(&new).is_coded()));
            let tokens = Referents { tokens: true, codes: false, blocks: false, larges: 0, below: false };
            assert!(Body::from_untrusted(revised.bytes(), tokens).is_ok());
            for (index, (key, payload)) in new.iter().enumerate() {
                assert_eq!(revised.find(key, key_hash(key)), Some(index));
                assert_eq!(revised.record(index).payload, payload);
            }
        }
    }
}
