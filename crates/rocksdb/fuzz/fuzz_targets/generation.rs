//! Loads any bytes as the generation of a file. The result must be an error, or a generation that packs, unpacks and is
//! the same when it is loaded again.
//!
//! The target corrects the checksum and supplies half of the tokens. Stated lengths may be false.

#![no_main]

mod support;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::sync::Arc;
use support::CODECS;
use ziptier_codec::checksum::crc32c;
use ziptier_rocksdb::codec::{CANNED, ENTROPY, ENTROPY_PARTS, TOKENS, ZSTD};
use ziptier_rocksdb::generation::Generation;

#[derive(Debug, Arbitrary)]
enum Tokens {
    None,
    Any(Vec<u8>),
    Packed(Vec<u8>),
    /// The 256 single bytes, and more tokens. Each shares some bytes with the token before, and continues with some of
    /// the given bytes.
    Sealed { bits: u8, more: Vec<(u8, u8, [u8; 16])> },
}

#[derive(Debug, Arbitrary)]
enum Blocks {
    None,
    Any(Vec<u8>),
    Sealed { format: u8, magic: bool, codes: bool, content: Vec<u8> },
}

#[derive(Debug, Arbitrary)]
enum Codes {
    /// A generation of version 1, without codes.
    None,
    Any(Vec<u8>),
    Packed(Vec<u8>),
    /// Codes of these tokens whose checksum is right: contexts, and 16 codes in which a token and the escape have a bit
    /// each. Some bytes are changed then.
    Sealed { tokens: [u8; 16], changes: Vec<(u16, u8)> },
}

#[derive(Debug, Arbitrary)]
struct Input {
    version: Option<u8>,
    claims: [Option<u32>; 5],
    tokens: Tokens,
    blocks: Blocks,
    codes: Codes,
    cut: u16,
    raw: Vec<u8>,
    packed: Vec<u8>,
    raw_bytes: u32,
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

/// Tokens one by one, and what front-coding makes of them.
struct Laid {
    tokens: Vec<Vec<u8>>,
    shared: Vec<u8>,
    rests: Vec<u8>,
    ends: Vec<u8>,
}

fn laid(more: &[(u8, u8, [u8; 16])]) -> Laid {
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    let (mut shared, mut rests) = (vec![0; 256], vec![1; 256]);
    let mut ends: Vec<u8> = (0..=255).collect();
    for (equal, rest, bytes) in more {
        let before = &tokens[tokens.len() - 1];
        let (equal, rest) = (usize::from(equal % 18).min(before.len()), usize::from(rest % 17));
        tokens.push([&before[..equal], &bytes[..rest]].concat());
        shared.push(equal as u8);
        rests.push(rest as u8);
        ends.extend_from_slice(&bytes[..rest]);
    }
    Laid { tokens, shared, rests, ends }
}

/// A token dictionary whose checksum is right, front-coded.
fn front_coded(bits: u8, more: &[(u8, u8, [u8; 16])]) -> Vec<u8> {
    let Laid { tokens, shared, rests, ends } = laid(more);
    let mut header = b"ztok\x01".to_vec();
    header.extend_from_slice(&[bits, 0, 0, 0, 0, 0, 0]);
    header.extend_from_slice(&(tokens.len() as u32).to_le_bytes());
    let lengths: Vec<u8> = tokens.iter().map(|token| token.len() as u8).collect();
    let checksum = crc32c(&[&header[..], &lengths, &tokens.concat()].concat());
    [&header[..], &shared, &rests, &ends, &checksum.to_le_bytes()].concat()
}

impl Tokens {
    /// The width of numbers, how many tokens there are, and their fingerprint, as far as they are known.
    fn described(&self) -> (u8, usize, u32) {
        let Tokens::Sealed { bits, more } = self else { return (12, 256, 0) };
        let (bits, tokens) = (12 + bits % 5, laid(more).tokens);
        let lengths = tokens.iter().map(|token| token.len() as u8);
        let content: Vec<u8> = std::iter::once(bits).chain(lengths).chain(tokens.concat()).collect();
        (bits, tokens.len(), crc32c(&content))
    }

    /// Packed, and how long it is unpacked.
    fn laid_out(&self) -> (Vec<u8>, usize) {
        match self {
            Tokens::None => (Vec::new(), 0),
            Tokens::Any(bytes) => (bytes.clone(), bytes.len()),
            Tokens::Packed(bytes) => (support::packed(bytes), bytes.len()),
            Tokens::Sealed { bits, more } => {
                let bytes = front_coded(12 + bits % 5, more);
                (support::packed(&bytes), bytes.len())
            }
        }
    }
}

impl Blocks {
    fn laid_out(&self) -> Vec<u8> {
        match self {
            Blocks::None => Vec::new(),
            Blocks::Any(bytes) => bytes.clone(),
            Blocks::Sealed { format, magic, codes, content } => {
                let mut content = content.clone();
                if *magic {
                    // The magic number of zstd's own dictionaries, and a dictionary number other than zero.
                    content.splice(0..0, [0x37, 0xA4, 0x30, 0xEC, 1, 0, 0, 0]);
                }
                let count = content.len() as u32;
                let code_bytes = if *codes { 155u8 } else { 0 };
                if *codes {
                    // Lengths of eight bits for everything are nearly complete codes.
                    content.extend(content.clone().into_iter().chain(std::iter::repeat(0x88)).take(155));
                }
                let mut bytes = b"zblk\x01".to_vec();
                bytes.extend_from_slice(&[2 + format % 3, code_bytes, 0, 9, 0, 0, 0]);
                bytes.extend_from_slice(&count.to_le_bytes());
                bytes.extend_from_slice(&content);
                with_checksum(bytes)
            }
        }
    }
}

impl Codes {
    /// Packed, and how long they are unpacked; `None` without any.
    fn laid_out(&self, tokens: &Tokens) -> Option<(Vec<u8>, usize)> {
        match self {
            Codes::None => None,
            Codes::Any(bytes) => Some((bytes.clone(), bytes.len())),
            Codes::Packed(bytes) => Some((support::packed(bytes), bytes.len())),
            Codes::Sealed { tokens: with_codes, changes } => {
                let (bits, count, fingerprint) = tokens.described();
                let mut content: Vec<u8> =
                    (0..(count + 1).div_ceil(2)).map(|at| (at * 7919 % 251) as u8).collect();
                if count % 2 == 0 {
                    *content.last_mut().expect("there are 256 tokens") &= 15;
                }
                for token in with_codes {
                    let counts = (0..12u16).map(|length| if length == 1 { 2 } else { 0 });
                    let numbers = counts.chain([u16::from(*token), u16::MAX]);
                    content.extend(numbers.flat_map(u16::to_le_bytes));
                }
                for (at, byte) in changes {
                    let at = usize::from(*at) % content.len();
                    content[at] = *byte;
                }
                let mut bytes = b"zent\x01".to_vec();
                bytes.extend_from_slice(&[bits, 0, 0]);
                bytes.extend_from_slice(&fingerprint.to_le_bytes());
                bytes.extend_from_slice(&(count as u32).to_le_bytes());
                bytes.extend_from_slice(&content);
                let bytes = support::differences(&with_checksum(bytes), 16 + (count + 1).div_ceil(2));
                Some((support::packed(&bytes), bytes.len()))
            }
        }
    }
}

fuzz_target!(|input: Input| {
    let ((packed, token_bytes), blocks) = (input.tokens.laid_out(), input.blocks.laid_out());
    let codes = input.codes.laid_out(&input.tokens);
    let mut lengths = vec![packed.len(), token_bytes, blocks.len()];
    lengths.extend(codes.iter().flat_map(|(packed, code_bytes)| [packed.len(), *code_bytes]));
    let claimed = lengths.iter().zip(input.claims).map(|(length, claim)| claim.unwrap_or(*length as u32));
    let claimed: Vec<u32> = claimed.collect();
    let version = input.version.unwrap_or(if codes.is_some() { 2 } else { 1 });
    let codes = codes.unwrap_or_default().0;
    let mut bytes = support::sealed(version, &claimed, &[&packed, &blocks, &codes]);
    bytes.truncate(bytes.len().saturating_sub(usize::from(input.cut)));
    let Ok(generation) = Generation::load(&bytes) else { return };
    assert_eq!(generation.as_bytes(), bytes);
    assert!(Arc::ptr_eq(&generation, &Generation::load(&bytes).expect("it was one before")));
    for (codec, packed_as) in [(0, TOKENS), (0, ZSTD), (1, CANNED), (4, ENTROPY), (4, ENTROPY_PARTS)] {
        let codec = &CODECS[codec];
        support::unpack(codec, packed_as, Some(&generation), &input.packed, input.raw_bytes as usize);
        let Some((made, packed)) = support::pack(codec, packed_as, Some(&generation), &input.raw) else { continue };
        let raw = support::unpack(codec, made, Some(&generation), &packed, input.raw.len());
        assert_eq!(raw.as_deref(), Some(&input.raw[..]));
    }
});
