//! Blocks with entry points must come back. From any bytes with any trailer or preamble, the decoder of parts must give
//! zlib's result or refuse.

#![no_main]

#[path = "../../tests/zlib/mod.rs"]
mod zlib;

use libfuzzer_sys::fuzz_target;
use std::mem::MaybeUninit;
use ziptier_deflate::{Dictionary, Encoder, Level, PartsDecoder, stream_of};

fuzz_target!(|input: (bool, u8, [u16; 4], bool, Vec<(u16, u8)>, u16, Vec<u8>)| {
    let (pack, repeat, words, forge, flips, raw_bytes, bytes) = input;
    let (mut packed, mut raw_bytes) = (bytes.clone(), usize::from(raw_bytes));
    if pack {
        // Text of few different bytes, so that there are steps enough for a trailer.
        let raw: Vec<u8> = bytes
            .iter()
            .flat_map(|&byte| (0..repeat % 64).map(move |i| byte.rotate_left(i.into()) & 31))
            .collect();
        let dictionary = Dictionary::new(b"");
        packed.clear();
        Encoder::new(&dictionary, Level::Deep)
            .compress_with_trailer(&raw, &mut packed, 2 * raw.len() + 64)
            .expect("fits");
        raw_bytes = raw.len();
        let has_trailer = stream_of(&packed).len() < packed.len();
        match parts(&packed, raw_bytes) {
            Some(found) => assert!(has_trailer && found == raw),
            // Without a trailer, or with a code of one distance, it is for another decoder.
            None => {
                let by_zlib = zlib::inflate_start(&packed, b"", raw_bytes).map(|(raw, _)| raw);
                assert!(by_zlib == Some(raw));
            }
        }
    }
    if forge {
        packed.truncate(stream_of(&packed).len());
        let mut trailer: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let word = u64::from_le_bytes(trailer[..].try_into().expect("four words"));
        trailer.extend_from_slice(&((word.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48) as u16).to_le_bytes());
        packed.extend_from_slice(&trailer);
    }
    let length = packed.len().max(1);
    for (at, mask) in flips {
        if let Some(byte) = packed.get_mut(usize::from(at) % length) {
            *byte ^= mask;
        }
    }
    if let Some(found) = parts(&packed, raw_bytes) {
        let by_zlib = zlib::inflate_start(&packed, b"", raw_bytes).map(|(raw, _)| raw);
        assert!(by_zlib == Some(found));
    }
    // The same parts of the same stream, in front.
    let number = u64::from(words[1]) | u64::from(words[2]) << 15 | u64::from(words[3]) << 30;
    let mut in_front: Vec<u8> =
        (0..9).flat_map(|block| [(number >> (5 * block) << 3) as u8, 0, 0, 0xFF, 0xFF]).collect();
    in_front.extend_from_slice(stream_of(&packed));
    let mut target = vec![MaybeUninit::new(0xA5); raw_bytes];
    if let Some(length) = PartsDecoder::default().decompress_with_preamble(&in_front, &mut target) {
        assert!(zlib::inflate(&in_front, b"", raw_bytes) == Some(bytes_of(&target[..length])));
    }
});

fn parts(packed: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
    let mut target = vec![MaybeUninit::new(0xA5); raw_bytes];
    let length = PartsDecoder::default().decompress_with_trailer(packed, &mut target)?;
    Some(bytes_of(&target[..length]))
}

fn bytes_of(target: &[MaybeUninit<u8>]) -> Vec<u8> {
    // SAFETY: all of it was written before.
    target.iter().map(|byte| unsafe { byte.assume_init() }).collect()
}
