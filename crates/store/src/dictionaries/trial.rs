//! Measures how small a coding makes the values of a sample.

use ziptier_codec::token::entropy::{Codes, Recoder};
use ziptier_codec::token::{Dictionary, Encoder};

use crate::blocks::{BlockCoding, Effort, lay_out};

/// Bytes of `values` coded with `dictionary`, each raw where that is smaller.
pub(super) fn coded_bytes(dictionary: &Dictionary, values: &[&[u8]]) -> usize {
    let mut encoder = Encoder::default();
    let (mut coded, mut ends) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    for group in values.chunks(64) {
        coded.clear();
        ends.clear();
        dictionary.encode_group(&mut encoder, group, &mut coded, &mut ends);
        let mut start = 0;
        for (value, end) in group.iter().zip(&ends) {
            bytes += (*end as usize - start).min(value.len());
            start = *end as usize;
        }
    }
    bytes
}

/// Bytes of `values` coded with `dictionary`, and the same by entropy where that is smaller.
pub(super) fn recoded_bytes(dictionary: &Dictionary, codes: &Codes, values: &[&[u8]]) -> [usize; 2] {
    let (mut encoder, mut recoder) = (Encoder::default(), Recoder::new());
    let (mut coded, mut ends, mut recoded) = (Vec::new(), Vec::new(), Vec::new());
    dictionary.encode_group(&mut encoder, values, &mut coded, &mut ends);
    let mut sums = [0; 2];
    let mut start = 0;
    for end in ends {
        let value = &coded[start..end as usize];
        recoded.clear();
        recoder.recode(codes, dictionary, value, &mut recoded).expect("the dictionary has just coded it");
        sums[0] += value.len();
        sums[1] += recoded.len().min(value.len());
        start = end as usize;
    }
    sums
}

/// Bytes of `values` packed in blocks.
pub(super) fn packed_bytes(blocks: &BlockCoding, effort: Effort, values: &[&[u8]]) -> usize {
    let (mut contents, mut frames) = (Vec::new(), Vec::new());
    let mut bytes = 0;
    let mut rest = values;
    while !rest.is_empty() {
        let mut held = 0;
        let fits = |value: &&&[u8]| {
            held += value.len();
            held <= blocks.block_bytes(effort)
        };
        let count = rest.iter().take_while(fits).count().max(1);
        frames.clear();
        if lay_out(&rest[..count], &mut contents) {
            blocks.pack(effort, &contents, &mut frames);
        }
        bytes += frames.len();
        rest = &rest[count..];
    }
    bytes
}
