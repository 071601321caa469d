//! Four parts that are decoded side by side could be parts of another block. Whatever the bytes of stream and trailer,
//! the decoder of parts must give zlib's result or refuse.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)]

mod blocks;
mod zlib;

use blocks::corpus::pieces;
use blocks::{SIZES, some_files};
use std::mem::MaybeUninit;
use ziptier_deflate::{Dictionary, Encoder, Level, PartsDecoder, stream_of};

fn packed(encoder: &mut Encoder<'_>, raw: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let length = encoder.compress_with_entries(raw, &mut packed, 2 * raw.len() + 64).expect("fits");
    assert_eq!(packed.len(), length);
    packed
}

fn parts(decoder: &mut PartsDecoder, packed: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
    let mut target = vec![MaybeUninit::new(0xA5); raw_bytes];
    let is_whole = decoder.decompress(packed, &mut target);
    // SAFETY: all of it was written before.
    is_whole.then(|| target.iter().map(|byte| unsafe { byte.assume_init() }).collect())
}

/// Zlib's result for a stream, whatever follows it, if the result has `raw_bytes` bytes.
fn by_zlib(packed: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
    zlib::inflate_start(packed, b"", raw_bytes).map(|(raw, _)| raw).filter(|raw| raw.len() == raw_bytes)
}

/// A trailer by the letter of its description.
fn trailer(quarter: u16, late: [bool; 3], bits: [u16; 3]) -> Vec<u8> {
    let marks = late.iter().zip(13..).fold(quarter, |marks, (&late, bit)| marks | u16::from(late) << bit);
    let mut bytes: Vec<u8> =
        [marks, bits[0], bits[1], bits[2]].iter().flat_map(|word| word.to_le_bytes()).collect();
    let word = u64::from_le_bytes(bytes[..].try_into().unwrap());
    let check = (word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as u16;
    bytes.extend_from_slice(&check.to_le_bytes());
    bytes
}

#[test]
fn blocks_come_back_by_parts_and_by_zlib() {
    let dictionary = Dictionary::new(b"");
    let (mut with_parts, mut without) = (0, 0);
    for file in &some_files() {
        for level in [Level::Fast, Level::Lazy, Level::Deep, Level::Dense] {
            let mut encoder = Encoder::new(&dictionary, level);
            let mut decoder = PartsDecoder::default();
            for raw in SIZES.iter().flat_map(|&size| pieces(&file.bytes, size, 8)) {
                let packed = packed(&mut encoder, raw);
                assert!(zlib::inflate(stream_of(&packed), b"", raw.len()).as_deref() == Some(raw));
                assert!(by_zlib(&packed, raw.len()).as_deref() == Some(raw));
                let has_trailer = stream_of(&packed).len() < packed.len();
                let found = parts(&mut decoder, &packed, raw.len());
                assert!(
                    found.as_deref() == has_trailer.then_some(raw),
                    "{} bytes of {}",
                    raw.len(),
                    file.name
                );
                *if has_trailer { &mut with_parts } else { &mut without } += 1;
            }
        }
    }
    assert!(with_parts > 100 && without > 100, "{with_parts} with parts, {without} without");
}

#[test]
fn with_any_bit_flipped_it_is_what_zlib_reads() {
    let dictionary = Dictionary::new(b"");
    let mut encoder = Encoder::new(&dictionary, Level::Deep);
    let mut decoder = PartsDecoder::default();
    let mut answers = [0; 2];
    for file in &some_files() {
        for raw in pieces(&file.bytes, 4096, 2) {
            let mut packed = packed(&mut encoder, raw);
            let stream_bits = 8 * stream_of(&packed).len();
            for bit in 0..packed.len() * 8 {
                packed[bit / 8] ^= 1 << (bit % 8);
                let found = parts(&mut decoder, &packed, raw.len());
                answers[usize::from(found.is_some())] += 1;
                if let Some(found) = found {
                    assert!(Some(&found) == by_zlib(&packed, raw.len()).as_ref(), "bit {bit}");
                    assert!(bit < stream_bits || found == raw, "bit {bit} of the trailer");
                }
                packed[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
    assert!(answers.iter().all(|&count| count > 100), "{answers:?}");
}

#[test]
fn no_trailer_makes_other_bytes_of_a_stream() {
    let dictionary = Dictionary::new(b"");
    let mut encoder = Encoder::new(&dictionary, Level::Deep);
    let mut decoder = PartsDecoder::default();
    let mut state = 11u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut answers = [0; 2];
    for file in &some_files() {
        for raw in [1500, 4096, 16_384].iter().flat_map(|&size| pieces(&file.bytes, size, 2)) {
            let packed = packed(&mut encoder, raw);
            let stream = stream_of(&packed);
            if stream.len() == packed.len() {
                continue;
            }
            let honest: Vec<u16> =
                packed[stream.len()..].chunks(2).map(|word| u16::from_le_bytes([word[0], word[1]])).collect();
            for _ in 0..2000 {
                let mut words = [honest[0], honest[1], honest[2], honest[3]];
                for _ in 0..random(3) {
                    words[random(4)] = match random(3) {
                        0 => random(1 << 16) as u16,
                        _ => honest[random(4)].wrapping_add(random(9) as u16).wrapping_sub(4),
                    };
                }
                let late = [13, 14, 15].map(|bit| words[0] >> bit & 1 == 1);
                let forged = trailer(words[0] & 0x1FFF, late, [words[1], words[2], words[3]]);
                let found = parts(&mut decoder, &[stream, &forged].concat(), raw.len());
                answers[usize::from(found.is_some())] += 1;
                assert!(found.is_none_or(|found| found == raw));
            }
        }
    }
    assert!(answers.iter().all(|&count| count > 100), "{answers:?}");
}
