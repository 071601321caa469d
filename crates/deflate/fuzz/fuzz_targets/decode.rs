//! Decodes any bytes as a stream. Both decoders must agree, whatever the pieces, and agree with zlib on all streams
//! within the window.

#![no_main]

#[path = "../../tests/zlib/mod.rs"]
mod zlib;

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use ziptier_deflate::{Decoder, Dictionary, Fault, Huffman, ResumableDecoder, Status};

static DICTIONARY: LazyLock<Dictionary> = LazyLock::new(|| {
    let text: String = (0..3000).map(|i| format!("item {} of {}, ", i * 7919 % 1000, i % 13)).collect();
    Dictionary::train(&text.as_bytes().chunks(100).collect::<Vec<_>>(), 1000)
});

fuzz_target!(|input: (bool, u16, u8, u8, Vec<u8>)| {
    let (canned, max_bytes, input_bytes, output_bytes, packed) = input;
    let huffman = if canned { Huffman::Canned } else { Huffman::Dynamic };
    let max_bytes = usize::from(max_bytes);
    let mut out = b"kept".to_vec();
    let result = Decoder::new(&DICTIONARY).decompress(huffman, &packed, &mut out, max_bytes);
    assert!(out.starts_with(b"kept"));
    assert_eq!(out.len() - 4, result.unwrap_or(0));
    let fast = result.ok().map(|_| out[4..].to_vec());
    let pieces = (usize::from(input_bytes) + 1, usize::from(output_bytes) + 1);
    assert!(fast == in_pieces(huffman, &packed, max_bytes, pieces), "{result:?}");
    let is_far = result.is_err_and(|error| error.fault == Fault::BeyondWindow);
    if !canned && !is_far {
        assert!(fast == zlib::inflate(&packed, DICTIONARY.history(), max_bytes), "{result:?}");
    }
});

fn in_pieces(huffman: Huffman, packed: &[u8], max_bytes: usize, pieces: (usize, usize)) -> Option<Vec<u8>> {
    let mut decoder = ResumableDecoder::new(&DICTIONARY, huffman);
    let (mut out, mut read) = (Vec::new(), 0);
    loop {
        let mut piece = vec![0; pieces.1.min(max_bytes - out.len())];
        let end = packed.len().min(read + pieces.0);
        let progress = decoder.decode(&packed[read..end], &mut piece).ok()?;
        read += progress.read;
        out.extend_from_slice(&piece[..progress.written]);
        match progress.status {
            Status::Done => return (read == packed.len()).then_some(out),
            Status::NeedsInput if read == packed.len() => return None,
            Status::NeedsOutput if out.len() == max_bytes => return None,
            _ => {}
        }
    }
}
