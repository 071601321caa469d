//! Packs any bytes as a block, with any history. The packed block must come back here and in zlib, and zlib's block
//! must come back here.

#![no_main]

#[path = "../../tests/zlib/mod.rs"]
mod zlib;

use libfuzzer_sys::fuzz_target;
use ziptier_deflate::{Decoder, Dictionary, Encoder, Huffman, Level};

fuzz_target!(|input: (u8, bool, Vec<u8>, Vec<u8>)| {
    let (which, repeat, history, raw) = input;
    let raw = if repeat { raw.repeat(40) } else { raw };
    let samples: Vec<&[u8]> = history.chunks(64).collect();
    let codes = Dictionary::train(&samples, 200);
    let dictionary = Dictionary::new(&history).with_codes(codes.codes().expect("trained"));
    let level = Level::ALL[usize::from(which) % Level::ALL.len()];
    let mut encoder = Encoder::new(&dictionary, level);
    let mut decoder = Decoder::new(&dictionary);
    for huffman in [Huffman::Fixed, Huffman::Dynamic, Huffman::Canned] {
        let (mut packed, mut out) = (Vec::new(), Vec::new());
        let length = encoder.compress(huffman, &raw, &mut packed, 2 * raw.len() + 64).expect("fits");
        assert_eq!(length, packed.len());
        assert_eq!(decoder.decompress(huffman, &packed, &mut out, raw.len()), Ok(raw.len()));
        assert!(out == raw);
        if huffman != Huffman::Canned {
            let by_zlib = zlib::inflate(&packed, dictionary.history(), raw.len());
            assert!(by_zlib.as_deref() == Some(&raw[..]));
        }
        let mut again = Vec::new();
        assert_eq!(encoder.compress(huffman, &raw, &mut again, length), Some(length));
        assert_eq!(encoder.compress(huffman, &raw, &mut again, length - 1), None);
        assert!(again == packed);
    }
    for (level, strategy) in [(1, 0), (9, 0), (6, 4)] {
        let packed = zlib::deflate(&raw, dictionary.history(), level, strategy);
        let mut out = Vec::new();
        assert_eq!(decoder.decompress(Huffman::Dynamic, &packed, &mut out, raw.len()), Ok(raw.len()));
        assert!(out == raw);
    }
});
