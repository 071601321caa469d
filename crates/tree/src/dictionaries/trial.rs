//! Measures how small a coding makes the values of a sample.

use ziptier_codec::token::entropy::{Codes, Recoder};
use ziptier_codec::token::{Dictionary, Encoder};

use crate::blocks::{BlockCoding, Effort, lay_out};
use crate::coding::Coding;

/// The part of their bytes that `values` take if they are coded so, blocks fast.
pub fn coded_share(coding: Option<&Coding>, values: &[&[u8]]) -> f64 {
    let bytes: usize = values.iter().map(|value| value.len()).sum();
    let coded = match coding {
        None => bytes,
        Some(Coding::Tokens(dictionary)) => coded_bytes(dictionary, values),
        Some(Coding::Blocks(blocks)) => packed_bytes(blocks, Effort::Fast, values),
    };
    coded as f64 / bytes.max(1) as f64
}

/// Bytes of `values` coded with `dictionary`, each raw where that is smaller.
fn coded_bytes(dictionary: &Dictionary, values: &[&[u8]]) -> usize {
    let mut bytes = 0;
    for_each_coded(dictionary, values, |value, coded| bytes += coded.len().min(value.len()));
    bytes
}

/// Bytes of `values` coded with `dictionary`, and the same by entropy where that is smaller.
pub(super) fn recoded_bytes(dictionary: &Dictionary, codes: &Codes, values: &[&[u8]]) -> [usize; 2] {
    let (mut recoder, mut recoded, mut bytes) = (Recoder::new(), Vec::new(), [0; 2]);
    for_each_coded(dictionary, values, |_, coded| {
        recoded.clear();
        recoder.recode(codes, dictionary, coded, &mut recoded).expect("the dictionary has just coded it");
        bytes[0] += coded.len();
        bytes[1] += recoded.len().min(coded.len());
    });
    bytes
}

/// Gives each value, and its coded bytes, to `take`.
fn for_each_coded(dictionary: &Dictionary, values: &[&[u8]], mut take: impl FnMut(&[u8], &[u8])) {
    let mut encoder = Encoder::default();
    let (mut coded, mut ends) = (Vec::new(), Vec::new());
    for group in values.chunks(64) {
        coded.clear();
        ends.clear();
        dictionary.encode_group(&mut encoder, group, &mut coded, &mut ends);
        let mut start = 0;
        for (value, end) in group.iter().zip(&ends) {
            take(value, &coded[start..*end as usize]);
            start = *end as usize;
        }
    }
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
