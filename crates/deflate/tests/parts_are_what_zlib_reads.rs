//! Four parts that are decoded side by side could be parts of another block. Whatever the bytes of stream and entry
//! points, the decoder of parts must give zlib's result or refuse.
#![allow(clippy::unwrap_used)]

mod blocks;
mod zlib;

use blocks::corpus::pieces;
use blocks::{SIZES, some_files};
use std::mem::MaybeUninit;
use ziptier_deflate::{Dictionary, Encoder, Level, PartsDecoder, has_preamble, stream_of};

/// Where entry points stand.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Behind,
    InFront,
}

use Place::{Behind, InFront};

impl Place {
    fn pack(self, encoder: &mut Encoder<'_>, raw: &[u8]) -> Vec<u8> {
        let (mut packed, room) = (Vec::new(), 2 * raw.len() + 64);
        let length = match self {
            Behind => encoder.compress_with_trailer(raw, &mut packed, room),
            InFront => encoder.compress_with_preamble(raw, &mut packed, room),
        };
        assert_eq!(length, Some(packed.len()));
        packed
    }

    fn has_entries(self, packed: &[u8]) -> bool {
        match self {
            Behind => stream_of(packed).len() < packed.len(),
            InFront => has_preamble(packed),
        }
    }

    fn by_parts(self, decoder: &mut PartsDecoder, packed: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
        let mut target = vec![MaybeUninit::new(0xA5); raw_bytes];
        let length = match self {
            Behind => decoder.decompress_with_trailer(packed, &mut target),
            InFront => decoder.decompress_with_preamble(packed, &mut target),
        }?;
        // SAFETY: all of it was written before.
        Some(target[..length].iter().map(|byte| unsafe { byte.assume_init() }).collect())
    }

    /// Zlib's result of at most so many bytes. Bytes may follow the stream if entry points do.
    fn by_zlib(self, packed: &[u8], max_bytes: usize) -> Option<Vec<u8>> {
        match self {
            Behind => zlib::inflate_start(packed, b"", max_bytes).map(|(raw, _)| raw),
            InFront => zlib::inflate(packed, b"", max_bytes),
        }
    }
}

/// A preamble by the letter of its description.
fn preamble(bits: [u16; 3]) -> Vec<u8> {
    let number =
        bits.iter().zip([0, 15, 30]).fold(0u64, |number, (&bits, at)| number | u64::from(bits) << at);
    let paddings = (0..9).map(|block| (number >> (5 * block) & 31) as u8);
    paddings.flat_map(|padding| [padding << 3, 0, 0, 0xFF, 0xFF]).collect()
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
    let mut decoder = PartsDecoder::default();
    for place in [Behind, InFront] {
        let (mut with_parts, mut without) = (0, 0);
        for file in &some_files() {
            for level in [Level::Fast, Level::Lazy, Level::Deep, Level::Dense] {
                let mut encoder = Encoder::new(&dictionary, level);
                for raw in SIZES.iter().flat_map(|&size| pieces(&file.bytes, size, 8)) {
                    let packed = place.pack(&mut encoder, raw);
                    assert!(zlib::inflate(stream_of(&packed), b"", raw.len()).as_deref() == Some(raw));
                    assert!(place.by_zlib(&packed, raw.len()).as_deref() == Some(raw));
                    let has_entries = place.has_entries(&packed);
                    let found = place.by_parts(&mut decoder, &packed, raw.len());
                    let (bytes, name) = (raw.len(), &file.name);
                    assert!(found.as_deref() == has_entries.then_some(raw), "{bytes} bytes of {name}");
                    *if has_entries { &mut with_parts } else { &mut without } += 1;
                }
            }
        }
        assert!(with_parts > 50 && without > 100, "{place:?}: {with_parts} with parts, {without} without");
    }
}

#[test]
fn with_any_bit_flipped_it_is_what_zlib_reads() {
    let dictionary = Dictionary::new(b"");
    let mut encoder = Encoder::new(&dictionary, Level::Deep);
    let mut decoder = PartsDecoder::default();
    let pieces_of_each = if std::env::var_os("ZIPTIER_SOAK").is_some() { 4 } else { 1 };
    for (place, size) in [(Behind, 4096), (InFront, 8192)] {
        let mut answers = [0; 2];
        for file in &some_files() {
            for raw in pieces(&file.bytes, size, pieces_of_each) {
                let mut packed = place.pack(&mut encoder, raw);
                let entries = match place {
                    Behind => 8 * stream_of(&packed).len()..8 * packed.len(),
                    InFront => 0..if has_preamble(&packed) { 8 * 45 } else { 0 },
                };
                for bit in 0..packed.len() * 8 {
                    packed[bit / 8] ^= 1 << (bit % 8);
                    let found = place.by_parts(&mut decoder, &packed, raw.len());
                    answers[usize::from(found.is_some())] += 1;
                    if let Some(found) = found {
                        assert!(Some(&found) == place.by_zlib(&packed, raw.len()).as_ref(), "bit {bit}");
                        assert!(!entries.contains(&bit) || found == raw, "bit {bit} of the entry points");
                    }
                    packed[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
        assert!(answers.iter().all(|&count| count > 100), "{place:?}: {answers:?}");
    }
}

#[test]
fn no_entry_points_make_other_bytes_of_a_stream() {
    let dictionary = Dictionary::new(b"");
    let mut encoder = Encoder::new(&dictionary, Level::Deep);
    let mut decoder = PartsDecoder::default();
    let mut state = 11u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut answers = [[0; 2]; 2];
    for file in &some_files() {
        for raw in [1500, 4096, 16_384].iter().flat_map(|&size| pieces(&file.bytes, size, 2)) {
            let packed = Behind.pack(&mut encoder, raw);
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
                let bits = [words[1], words[2], words[3]];
                let behind = [stream, &trailer(words[0] & 0x1FFF, late, bits)].concat();
                let in_front = [&preamble(bits.map(|bits| bits & 0x7FFF)), stream].concat();
                for (place, forged) in [(Behind, behind), (InFront, in_front)] {
                    let found = place.by_parts(&mut decoder, &forged, raw.len());
                    answers[place as usize][usize::from(found.is_some())] += 1;
                    assert!(found.is_none_or(|found| found == raw), "{place:?}");
                }
            }
        }
    }
    assert!(answers.iter().flatten().all(|&count| count > 100), "{answers:?}");
}
