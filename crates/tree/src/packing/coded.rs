//! Values as they are coded: by tokens, and from token numbers of one width to entropy and back.
//!
//! Not for choosing which values are coded, nor how densely: plans do that.

use ziptier_codec::token::entropy::Recoder;
use ziptier_codec::token::{Dictionary, Effort, Encoder};

use super::{Goal, Pieces, Planner};
use crate::body::Entry;
use crate::record::Kind;

/// Values one behind the other.
#[derive(Default)]
pub(super) struct Values {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Values {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.bytes[start as usize..end as usize])
    }

    fn value(&self, index: usize) -> &[u8] {
        self.get(index).expect("the encoder coded every value")
    }
}

/// A group of values as the encoder coded them.
#[derive(Default)]
pub(super) struct CodedValues {
    plain: Values,
    /// The same by entropy, if they were coded densely by a dictionary that has codes.
    recoded: Values,
    recoder: Recoder,
}

impl CodedValues {
    /// Frees what was laid out of codes.
    pub(super) fn release_codes(&mut self) {
        self.recoder = Recoder::new();
    }

    #[cfg(all(any(test, feature = "testing"), not(miri), not(shuttle)))]
    pub(super) fn codes_bytes(&self) -> usize {
        self.recoder.memory_bytes()
    }

    /// Codes `values` in place of what was here.
    pub(super) fn encode(
        &mut self,
        dictionary: &Dictionary,
        encoder: &mut Encoder,
        effort: Effort,
        values: &[&[u8]],
    ) {
        let Self { plain, recoded, recoder } = self;
        plain.clear();
        recoded.clear();
        dictionary.encode_group_with(encoder, effort, values, &mut plain.bytes, &mut plain.ends);
        let Some(codes) = dictionary.codes().filter(|_| effort == Effort::Dense) else { return };
        for index in 0..values.len() {
            let coded = recoder.recode(codes, dictionary, plain.value(index), &mut recoded.bytes);
            coded.expect("the dictionary has just coded it");
            recoded.ends.push(recoded.bytes.len() as u32);
        }
    }

    /// Gives those of `entries` that change by `goal` other token numbers, which lie in `renumbered` then. A damaged
    /// value stays as it is. Returns by how many bytes values grew.
    pub(super) fn renumber<'a>(
        &mut self,
        entries: &mut [Entry<'a>],
        goal: Goal,
        dictionary: &Dictionary,
        renumbered: &'a mut Values,
    ) -> u64 {
        let (Some(codes), Some((from, to))) = (dictionary.codes(), goal.renumbers()) else { return 0 };
        renumbered.clear();
        let (mut changed, mut grown_bytes) = (Vec::new(), 0);
        for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| entry.kind == from) {
            let (start, out) = (renumbered.bytes.len(), &mut renumbered.bytes);
            let written = match to {
                Kind::Recoded => self.recoder.recode(codes, dictionary, entry.payload, out),
                _ => self.recoder.restore(codes, dictionary, entry.payload, out),
            };
            if written.is_ok() && (to == Kind::Coded || out.len() - start < entry.payload.len()) {
                grown_bytes += (out.len() - start).saturating_sub(entry.payload.len()) as u64;
                renumbered.ends.push(out.len() as u32);
                changed.push(index);
            } else {
                out.truncate(start);
            }
        }
        let renumbered: &'a Values = renumbered;
        for (value, index) in changed.into_iter().enumerate() {
            (entries[index].kind, entries[index].payload) = (to, renumbered.value(value));
        }
        grown_bytes
    }
}

impl Planner<'_> {
    /// Codes the raw values of these entries in one group, those for which that pays.
    pub(super) fn code_values<'a>(
        &self,
        uncoded: Vec<&mut Entry<'a>>,
        dictionary: &Dictionary,
        effort: Effort,
        encoder: &mut Encoder,
        coded: &'a mut CodedValues,
        pieces: &mut Pieces,
    ) {
        let values: Vec<&[u8]> = uncoded.iter().map(|entry| entry.payload).collect();
        coded.encode(dictionary, encoder, effort, &values);
        let coded: &'a CodedValues = coded;
        for (index, entry) in uncoded.into_iter().enumerate() {
            let (raw_bytes, plain) = (entry.payload.len(), coded.plain.value(index));
            pieces.coded_raw_bytes += raw_bytes as u64;
            pieces.coded_bytes += plain.len().min(raw_bytes) as u64;
            let (kind, value) = match coded.recoded.get(index) {
                Some(recoded) if recoded.len() < plain.len() => (Kind::Recoded, recoded),
                _ => (Kind::Coded, plain),
            };
            if self.pays(raw_bytes, value.len()) {
                (entry.kind, entry.payload) = (kind, value);
            }
        }
    }
}
