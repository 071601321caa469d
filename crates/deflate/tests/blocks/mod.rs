//! Blocks of real files, dictionaries for them, and canned blocks as ordinary streams.

// Each test file uses a part of it.
#![allow(dead_code)]

#[path = "../../../codec/tests/suite/corpus/mod.rs"]
pub(crate) mod corpus;

use corpus::{File, Kind, files_of, is_tried, pieces};
use ziptier_deflate::{
    CannedLengths, Decoder, Dictionary, Encoder, Huffman, Level, ResumableDecoder, Status,
};

/// Sizes of blocks: the smallest, and around the window and the parts in which encoder and decoder work.
pub(crate) const SIZES: [usize; 14] =
    [1, 2, 3, 4, 5, 63, 512, 1024, 4095, 4096, 4097, 16_384, 16_385, 65_536];

pub(crate) const MODES: [Huffman; 3] = [Huffman::Fixed, Huffman::Dynamic, Huffman::Canned];

/// A few files of different kinds.
pub(crate) fn some_files() -> Vec<File> {
    files_of(&[Kind::Text, Kind::Code, Kind::Bitmap, Kind::Xml])
}

/// A dictionary with canned codes, trained on blocks of 1 KiB.
pub(crate) fn trained(file: &File, max_bytes: usize) -> Dictionary {
    let samples = pieces(&file.bytes, 1024, 256);
    Dictionary::train(&samples, max_bytes)
}

pub(crate) fn pack(encoder: &mut Encoder<'_>, huffman: Huffman, raw: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let length = encoder.compress(huffman, raw, &mut packed, 2 * raw.len() + 100).expect("fits");
    assert_eq!(packed.len(), length);
    packed
}

/// A canned block as an ordinary stream: behind its header.
pub(crate) fn with_header(lengths: &CannedLengths, packed: &[u8]) -> Vec<u8> {
    let (mut stream, bits) = lengths.header();
    let shift = bits % 8;
    if shift == 0 {
        stream.extend_from_slice(packed);
        return stream;
    }
    for &byte in packed {
        let last = stream.last_mut().expect("a header has bytes");
        *last |= byte << shift;
        stream.push(byte >> (8 - shift));
    }
    stream
}

/// Both decoders' answer: bytes, or `None` for an error; they must agree.
pub(crate) fn unpack(
    decoder: &mut Decoder<'_>,
    dictionary: &Dictionary,
    huffman: Huffman,
    packed: &[u8],
    max_bytes: usize,
) -> Option<Vec<u8>> {
    let mut out = b"kept".to_vec();
    let result = decoder.decompress(huffman, packed, &mut out, max_bytes);
    assert!(out.starts_with(b"kept"));
    assert_eq!(out.len() - 4, result.unwrap_or(0));
    if let Err(error) = result {
        assert!(error.position <= packed.len(), "{error}");
    }
    let fast = result.ok().map(|_| out.split_off(4));
    let slow = in_pieces(dictionary, huffman, packed, max_bytes, packed.len().max(1), max_bytes.max(1));
    assert!(fast == slow, "the decoders disagree: {result:?}, {:?}", slow.map(|bytes| bytes.len()));
    fast
}

/// The resumable decoder's answer when it gets the input and the output in pieces.
pub(crate) fn in_pieces(
    dictionary: &Dictionary,
    huffman: Huffman,
    packed: &[u8],
    max_bytes: usize,
    input_bytes: usize,
    output_bytes: usize,
) -> Option<Vec<u8>> {
    let mut decoder = ResumableDecoder::new(dictionary, huffman);
    let (mut out, mut read) = (Vec::new(), 0);
    loop {
        let input = &packed[read..packed.len().min(read + input_bytes)];
        let mut piece = vec![0; output_bytes.min(max_bytes - out.len())];
        let progress = decoder.decode(input, &mut piece).ok()?;
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

/// Blocks of files, packed at each level in each mode, go to `judge`: a third of all sizes by dictionary, level and
/// file.
pub(crate) fn for_each_block(mut judge: impl FnMut(&Dictionary, Huffman, Level, &mut Encoder<'_>, &[u8])) {
    for (file_number, file) in some_files().iter().enumerate() {
        let own = trained(file, 4096);
        let codes = own.codes().expect("trained codes").clone();
        // A history that does not fill the window, and none.
        let short = Dictionary::new(&file.bytes[..1000.min(file.bytes.len())]).with_codes(&codes);
        let empty = Dictionary::new(b"").with_codes(&codes);
        for (which, dictionary) in [&own, &short, &empty].into_iter().enumerate() {
            for (number, &level) in Level::ALL.iter().enumerate() {
                let mut encoder = Encoder::new(dictionary, level);
                let sizes = SIZES.into_iter().enumerate();
                let sizes = sizes.filter(|(size, _)| is_tried(3, [file_number, which, number, *size]));
                for (_, size) in sizes {
                    let count = if size > 4096 { 1 } else { 3 };
                    for raw in pieces(&file.bytes, size, count) {
                        MODES
                            .iter()
                            .for_each(|&huffman| judge(dictionary, huffman, level, &mut encoder, raw));
                    }
                }
            }
        }
    }
}
