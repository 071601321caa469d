//! A block that was cut short or damaged must never panic, exceed its limit, or be read differently by the two
//! decoders. (Whether its bytes are right is for a checksum above to say.)
#![allow(clippy::unwrap_used)]

mod blocks;
mod zlib;

use blocks::corpus::{is_tried, pieces};
use blocks::{MODES, in_pieces, pack, some_files, trained, unpack};
use ziptier_deflate::{Decoder, Dictionary, Encoder, Fault, Huffman, Level};

#[test]
fn cut_short_it_is_an_error() {
    for (file_number, file) in some_files().iter().enumerate() {
        let dictionary = trained(file, 4096);
        let mut encoder = Encoder::new(&dictionary, Level::Lazy);
        let mut decoder = Decoder::new(&dictionary);
        let raw = [1, 512, 4096, 65_536].iter().flat_map(|&size| pieces(&file.bytes, size, 1));
        for (number, raw) in raw.enumerate() {
            let modes = MODES.into_iter().enumerate();
            for (_, huffman) in modes.filter(|(mode, _)| is_tried(3, [file_number, number, *mode])) {
                let packed = pack(&mut encoder, huffman, raw);
                let far = (0..256).map(|i| 4096 + i * packed.len().saturating_sub(4096) / 256);
                let cuts = (0..packed.len().min(4096)).chain(far.filter(|&at| at < packed.len()));
                for cut in cuts {
                    assert_eq!(unpack(&mut decoder, &dictionary, huffman, &packed[..cut], raw.len()), None);
                }
                let longer = [&packed[..], &[0]].concat();
                assert_eq!(unpack(&mut decoder, &dictionary, huffman, &longer, raw.len()), None);
            }
        }
    }
}

/// Flips every bit of 1,000 blocks, also against zlib. This crate must refuse every stream that zlib refuses, and read
/// every stream within the window as zlib does.
#[test]
fn with_any_bit_flipped_it_stays_within_its_limit() {
    let files = some_files();
    let mut flips = [0u32; 2];
    for file in &files {
        let dictionary = trained(file, 4096);
        let mut encoder = Encoder::new(&dictionary, Level::Fast);
        let mut decoder = Decoder::new(&dictionary);
        for raw in pieces(&file.bytes, 96, 1000 / 3 / files.len() + 1) {
            for huffman in MODES {
                let mut packed = pack(&mut encoder, huffman, raw);
                for bit in 0..packed.len() * 8 {
                    packed[bit / 8] ^= 1 << (bit % 8);
                    let ours = unpack(&mut decoder, &dictionary, huffman, &packed, raw.len() + 50);
                    flips[usize::from(ours.is_some())] += 1;
                    if huffman != Huffman::Canned {
                        let theirs = zlib::inflate(&packed, dictionary.history(), raw.len() + 50);
                        let result = decoder.decompress(huffman, &packed, &mut Vec::new(), raw.len() + 50);
                        let is_far = result.is_err_and(|error| error.fault == Fault::BeyondWindow);
                        assert!(ours == theirs || is_far, "bit {bit}: {result:?}");
                    }
                    packed[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
    }
    assert!(flips.iter().all(|&count| count > 1000), "{flips:?}");
}

#[test]
fn split_anywhere_it_comes_back() {
    for file in &some_files() {
        let dictionary = trained(file, 4096);
        let mut encoder = Encoder::new(&dictionary, Level::Dense);
        for raw in [1, 300, 5000].iter().flat_map(|&size| pieces(&file.bytes, size, 1)) {
            for huffman in MODES {
                let packed = pack(&mut encoder, huffman, raw);
                for first in 1..=packed.len() {
                    let found = in_pieces(&dictionary, huffman, &packed, raw.len(), first, raw.len());
                    assert!(found.as_deref() == Some(raw), "input in pieces of {first}");
                }
                for first in (1..=raw.len()).step_by(raw.len() / 200 + 1) {
                    let found = in_pieces(&dictionary, huffman, &packed, raw.len(), 7, first);
                    assert!(found.as_deref() == Some(raw), "output in pieces of {first}");
                }
            }
        }
    }
}

#[test]
fn random_bytes_are_read_alike() {
    let mut state = 1u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    };
    let history: Vec<u8> = (0..777).map(|_| random() as u8 & 15).collect();
    let dictionary = Dictionary::train(&[&history], 4096);
    let mut decoder = Decoder::new(&dictionary);
    for _ in 0..20_000 {
        let mut packed: Vec<u8> = (0..random() % 200).map(|_| random() as u8).collect();
        if let Some(first) = packed.first_mut() {
            // Types of blocks that get far.
            *first = *first & !7 | [3, 5, 4, 2][random() as usize % 4];
        }
        let huffman = MODES[random() as usize % 3];
        let max_bytes = random() as usize % 40_000;
        let ours = unpack(&mut decoder, &dictionary, huffman, &packed, max_bytes);
        if huffman != Huffman::Canned && ours.is_some() {
            assert!(ours == zlib::inflate(&packed, dictionary.history(), max_bytes));
        }
    }
}

#[test]
fn faults_are_named() {
    let dictionary = Dictionary::new(b"");
    let fault = |packed: &[u8]| {
        let result = Decoder::new(&dictionary).decompress(Huffman::Dynamic, packed, &mut Vec::new(), 1000);
        result.map_err(|error| (error.fault, error.position))
    };
    assert_eq!(fault(&[]), Err((Fault::InputEnds, 0)));
    assert_eq!(fault(&[7]), Err((Fault::BlockType, 1)));
    assert_eq!(fault(&[1, 1, 0, 0, 0]), Err((Fault::StoredLength, 5)));
    assert_eq!(fault(&[1, 1, 0, 0xFE, 0xFF]), Err((Fault::InputEnds, 5)));
    assert_eq!(fault(&[3, 0]), Ok(0));
    assert_eq!(fault(&[3, 0, 0]), Err((Fault::BytesAfterEnd, 2)));
    // A match of three bytes at distance 1 at the very start.
    assert_eq!(fault(&[3, 2, 0]).unwrap_err().0, Fault::BeforeStart);
    assert_eq!(fault(&[0b1111_1101, 31]).unwrap_err().0, Fault::TooManyCodes);
    let error =
        Decoder::new(&dictionary).decompress(Huffman::Dynamic, &[7], &mut Vec::new(), 10).unwrap_err();
    assert_eq!(error.to_string(), "cannot decompress deflate block: an unknown type of block at byte 1");
}
