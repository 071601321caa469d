//! A codec that is tested only with itself may be wrong twice. Every block goes through both decoders of this crate and
//! through zlib, and zlib's blocks go through both.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used)]

mod blocks;
mod zlib;

use blocks::corpus::pieces;
use blocks::{SIZES, for_each_block, pack, some_files, trained, unpack, with_header};
use libz_sys as ffi;
use ziptier_deflate::{Decoder, Dictionary, Huffman};

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
        for &level in ziptier_deflate::Level::ALL {
            let mut encoder = ziptier_deflate::Encoder::new(&dictionary, level);
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
