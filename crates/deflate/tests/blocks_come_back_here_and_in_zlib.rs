//! A codec that is tested only with itself may be wrong twice. Every block goes through both decoders of this crate and
//! through zlib, and zlib's blocks go through both.
#![allow(clippy::unwrap_used)]

mod blocks;
mod zlib;

use blocks::corpus::pieces;
use blocks::{SIZES, for_each_block, pack, some_files, trained, unpack, with_header};
use libz_sys as ffi;
use ziptier_deflate::{Decoder, Dictionary, Encoder, Huffman, Level, PART_END};

#[test]
fn ours_by_us_and_by_zlib() {
    for_each_block(|dictionary, huffman, level, encoder, raw| {
        let what = format!("{} bytes, {huffman:?}, {level:?}", raw.len());
        let packed = pack(encoder, huffman, raw);
        let mut decoder = Decoder::new(dictionary);
        assert!(
            unpack(&mut decoder, dictionary, huffman, &packed, raw.len()).as_deref() == Some(raw),
            "{what}"
        );
        let by_zlib = match huffman {
            Huffman::Canned => {
                let stream = with_header(dictionary.codes().unwrap(), &packed);
                // The header's bits may have moved the end into the last byte, or not.
                let shorter = &stream[..stream.len() - 1];
                let inflate = |stream| zlib::inflate(stream, dictionary.history(), raw.len());
                inflate(&stream).or_else(|| inflate(shorter))
            }
            _ => zlib::inflate(&packed, dictionary.history(), raw.len()),
        };
        assert!(by_zlib.as_deref() == Some(raw), "zlib: {what}");
        // The limit is exact, and nothing is left of what exceeds it.
        let mut out = b"kept".to_vec();
        assert_eq!(encoder.compress(huffman, raw, &mut out, packed.len()), Some(packed.len()), "{what}");
        assert!(out[4..] == packed);
        out.truncate(4);
        for limit in [packed.len() - 1, packed.len() / 2, 0] {
            assert_eq!(encoder.compress(huffman, raw, &mut out, limit), None, "{what}");
            assert_eq!(out, b"kept");
        }
        if raw.len() > 1 {
            assert_eq!(unpack(&mut decoder, dictionary, huffman, &packed, raw.len() - 1), None, "{what}");
        }
    });
}

#[test]
fn zlibs_by_us() {
    for file in &some_files() {
        let own = trained(file, 4096);
        for dictionary in [&own, &Dictionary::new(b"")] {
            let mut decoder = Decoder::new(dictionary);
            for raw in SIZES.iter().flat_map(|&size| pieces(&file.bytes, size, 2)) {
                for strategy in [ffi::Z_DEFAULT_STRATEGY, ffi::Z_FIXED, ffi::Z_HUFFMAN_ONLY, ffi::Z_RLE] {
                    for level in [0, 1, 6, 9] {
                        let packed = zlib::deflate(raw, dictionary.history(), level, strategy);
                        let found = unpack(&mut decoder, dictionary, Huffman::Dynamic, &packed, raw.len());
                        assert!(found.as_deref() == Some(raw), "{} bytes of {}", raw.len(), file.name);
                    }
                }
            }
        }
    }
}

#[test]
fn nothing_and_noise() {
    let noise: Vec<u8> =
        (0..70_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 ^ (i >> 9) as u8).collect();
    let samples: Vec<&[u8]> = noise.chunks(512).collect();
    for dictionary in [Dictionary::train(&samples, 4096), Dictionary::train(&[], 4096)] {
        for &level in Level::ALL {
            let mut encoder = Encoder::new(&dictionary, level);
            for raw in [&[][..], &noise, &[7; 70_000]] {
                for huffman in blocks::MODES {
                    let packed = pack(&mut encoder, huffman, raw);
                    let mut decoder = Decoder::new(&dictionary);
                    let found = unpack(&mut decoder, &dictionary, huffman, &packed, raw.len());
                    assert!(found.as_deref() == Some(raw), "{} bytes, {huffman:?}, {level:?}", raw.len());
                    if huffman == Huffman::Dynamic {
                        assert!(packed.len() <= raw.len() + 5 * raw.len().div_ceil(16_384) + 5);
                    }
                }
            }
        }
    }
}

#[test]
fn parts_make_one_stream_and_each_is_read_by_itself() {
    let dictionary = Dictionary::new(b"");
    let noise: Vec<u8> = (0..40_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let files = some_files();
    let texts = files.iter().map(|file| &file.bytes[..file.bytes.len().min(70_001)]);
    for raw in texts.chain([&noise[..], &[7; 40_000], b"abcde", b""]) {
        for (&level, parts) in Level::ALL.iter().flat_map(|level| [2, 3, 8].map(|parts| (level, parts))) {
            for huffman in [Huffman::Fixed, Huffman::Dynamic] {
                let (mut encoder, mut packed) = (Encoder::new(&dictionary, level), Vec::new());
                let bound = 2 * raw.len() + 100;
                let length = encoder.compress_in_parts(huffman, raw, parts, &mut packed, bound).unwrap();
                assert_eq!(packed.len(), length);
                assert!(zlib::inflate(&packed, b"", raw.len()).as_deref() == Some(raw), "{level:?} {parts}");
                // An empty last block with fixed codes completes a part.
                let mut left = &packed[..];
                for part in raw.chunks(raw.len().div_ceil(parts).max(1)).rev().skip(1).rev() {
                    let end = left.windows(4).position(|bytes| bytes == PART_END).unwrap() + 4;
                    let stream = [&left[..end], &[3, 0]].concat();
                    assert!(zlib::inflate(&stream, b"", part.len()).as_deref() == Some(part), "{level:?}");
                    left = &left[end..];
                }
                assert!(!left.windows(4).any(|bytes| bytes == PART_END));
                let mut out = b"kept".to_vec();
                let again = encoder.compress_in_parts(huffman, raw, parts, &mut out, length);
                assert_eq!((again, &out[4..]), (Some(length), &packed[..]));
                out.truncate(4);
                assert_eq!(encoder.compress_in_parts(huffman, raw, parts, &mut out, length - 1), None);
                assert_eq!(out, b"kept");
            }
        }
    }
}

#[test]
fn parts_whose_ends_are_longer_than_they_are_fit() {
    let (dictionary, raw, mut packed) = (Dictionary::new(b""), [0xA5; 100], Vec::new());
    let mut encoder = Encoder::new(&dictionary, Level::Lazy);
    let length = encoder.compress_in_parts(Huffman::Dynamic, &raw, raw.len(), &mut packed, 1000);
    assert_eq!(length, Some(packed.len()));
    assert!(zlib::inflate(&packed, b"", raw.len()).as_deref() == Some(&raw[..]));
}
