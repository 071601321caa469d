//! Cutting sorted entries into bodies: between two records, or between two blocks if the values are packed.

use std::ops::Range;

use crate::body::{BLOCKS_MAX, Blocks, Body, BodyLimits, Builder, Entry, EntryKey, Section};

/// So often the next cut is guessed from the bytes up to the last one. Further cuts are halfway.
const GUESSES_MAX: u32 = 4;

/// Entries in key order on their way into bodies.
#[derive(Clone, Copy)]
pub(super) struct Uncut<'e> {
    pub(super) entries: &'e [Entry<'e>],
    /// The blocks that the values are packed in, if they are.
    pub(super) blocks: Option<&'e Blocks>,
    pub(super) limits: BodyLimits,
}

/// The contents of one body.
pub(super) struct Part {
    pub(super) records: Range<usize>,
    /// The blocks; of values that are not packed, the records again.
    pub(super) units: Range<usize>,
}

impl Uncut<'_> {
    /// Cuts the entries into bodies, at least one, each with the lowest key that its leaf is to own. With `fill` the
    /// bodies are full ones and a rest. Otherwise they are of like size, if one body is not enough.
    pub(super) fn cut(&self, fill: bool, builder: &mut Builder) -> Vec<(Vec<u8>, Body)> {
        let all = self.units();
        let whole = Part { records: 0..self.entries.len(), units: 0..all };
        if all == 0 || !fill && self.fits_one_body(&whole) {
            return vec![(Vec::new(), self.build(&whole, builder))];
        }
        let mut bodies = Vec::new();
        let (mut start, mut from) = (0, 0);
        while from < all {
            let mut part = self.fitting(start, from);
            if !fill {
                let rest = self.entries.len() - start;
                let alike = rest.div_ceil(rest.div_ceil(part.records.len()));
                while part.units.len() > 1 && part.records.len() - self.count(part.units.end - 1) >= alike {
                    part.units.end -= 1;
                    part.records.end -= self.count(part.units.end);
                }
            }
            let low = match start {
                0 => Vec::new(),
                _ => separator(self.entries[start - 1].key, self.entries[start].key),
            };
            bodies.push((low, self.build(&part, builder)));
            (start, from) = (part.records.end, part.units.end);
        }
        bodies
    }

    /// The most units from `from` on, at least one, that fit a full body. The first record is the one at `start`.
    pub(super) fn fitting(&self, start: usize, from: usize) -> Part {
        let part = |to: usize| {
            let count: usize = (from..to).map(|unit| self.count(unit)).sum();
            Part { records: start..start + count, units: from..to }
        };
        let most = if self.blocks.is_some() { BLOCKS_MAX } else { self.limits.records_full };
        let (mut low, mut high) = (from + 1, self.units().min(from + most));
        let mut probe = low.midpoint(high);
        for probes in 1.. {
            if low >= high {
                break;
            }
            probe = probe.clamp(low + 1, high);
            let part = part(probe);
            let bytes = self.size(&part).max(1);
            if part.records.len() <= self.limits.records_full && bytes <= self.limits.bytes_full {
                low = probe;
            } else {
                high = probe - 1;
            }
            // Each size takes a look at all entries, and most are of like size.
            probe = match probes < GUESSES_MAX {
                true => from + (probe - from) * self.limits.bytes_full / bytes,
                false => low.midpoint(high),
            };
        }
        part(low)
    }

    /// The bytes of a body with this part.
    pub(super) fn size(&self, part: &Part) -> usize {
        Builder::size(&self.entries[part.records.clone()], self.section(part))
    }

    fn build(&self, part: &Part, builder: &mut Builder) -> Body {
        builder.build(&self.entries[part.records.clone()], self.section(part))
    }

    fn section(&self, part: &Part) -> Option<Section<'_>> {
        self.blocks.map(|blocks| blocks.section(part.units.start, part.units.end))
    }

    fn fits_one_body(&self, part: &Part) -> bool {
        part.records.len() <= self.limits.records_max
            && self.blocks.is_none_or(|_| part.units.len() <= BLOCKS_MAX)
            && self.size(part) <= self.limits.bytes_max
    }

    fn units(&self) -> usize {
        self.blocks.map_or(self.entries.len(), Blocks::len)
    }

    /// Records of a unit.
    fn count(&self, unit: usize) -> usize {
        self.blocks.map_or(1, |blocks| blocks.count(unit))
    }
}

/// The shortest key that is above `below` and not above `first`.
fn separator(below: EntryKey<'_>, first: EntryKey<'_>) -> Vec<u8> {
    let mut separator = first.to_vec();
    separator.truncate(below.shared(&first) + 1);
    separator
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::fingerprint;
    use crate::record::{Fields, Kind, key_hash};

    #[test]
    fn a_part_has_the_most_entries_that_stay_within_the_bytes() {
        let keys: Vec<_> = (0..100).map(|n| format!("key:{n:012}").into_bytes()).collect();
        let entry = |key| Entry {
            key: EntryKey::whole(key),
            fingerprint: fingerprint(key_hash(key)),
            kind: Kind::Raw,
            fields: Fields::default(),
            payload: &[0; 50],
        };
        let entries: Vec<_> = keys.iter().map(|key| entry(key)).collect();
        let most = |bytes_full| {
            let limits = BodyLimits { bytes_full, bytes_max: 1 << 16, records_full: 100, records_max: 100 };
            Uncut { entries: &entries, blocks: None, limits }.fitting(0, 0).records.end
        };
        assert!(Builder::size(&entries[..most(2048)], None) <= 2048);
        assert!(Builder::size(&entries[..=most(2048)], None) > 2048);
        assert_eq!(most(10), 1);
    }
}
