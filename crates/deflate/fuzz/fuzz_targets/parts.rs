//! Blocks with entry points must come back. From any bytes with any trailer, the decoder of parts must give zlib's
//! result or refuse.

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
            .compress_with_entries(&raw, &mut packed, 2 * raw.len() + 64)
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
});

fn parts(packed: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
    let mut target = vec![MaybeUninit::new(0xA5); raw_bytes];
    let is_whole = PartsDecoder::default().decompress(packed, &mut target);
    // SAFETY: all of it was written before.
    is_whole.then(|| target.iter().map(|byte| unsafe { byte.assume_init() }).collect())
}
