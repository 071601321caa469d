//! A stored dictionary comes from a disk or a peer: damage is an error, and so is malice with a correct checksum.

use ziptier_codec::checksum::crc32c;
use ziptier_codec::token::{Dictionary, DictionaryError, Encoder};

const HEADER_BYTES: usize = 16;

/// A dictionary file with these tokens, its checksum correct whatever they are.
fn file(bits: u8, tokens: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = b"ztok".to_vec();
    bytes.extend_from_slice(&[1, bits, 0, 0, 5, 0, 0, 0]);
    bytes.extend_from_slice(&(tokens.len() as u32).to_le_bytes());
    bytes.extend(tokens.iter().map(|token| token.len() as u8));
    tokens.iter().for_each(|token| bytes.extend_from_slice(token));
    sealed(bytes)
}

fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    bytes
}

fn single_bytes() -> Vec<Vec<u8>> {
    (0..=255).map(|byte| vec![byte]).collect()
}

fn with(mut tokens: Vec<Vec<u8>>, more: &[&[u8]]) -> Vec<Vec<u8>> {
    tokens.extend(more.iter().map(|token| token.to_vec()));
    tokens
}

#[test]
fn a_sound_one_loads() {
    let dictionary = Dictionary::from_bytes(&file(12, &with(single_bytes(), &[b"ab", b"abc"]))).unwrap();
    assert_eq!((dictionary.tokens(), dictionary.generation(), dictionary.bits()), (258, 5, 12));
    assert_eq!(dictionary.token(257), Some(&b"abc"[..]));
    assert_eq!(dictionary.token(258), None);
}

#[test]
fn damage_is_an_error() {
    let good = file(14, &with(single_bytes(), &[b"the ", b"and "]));
    for cut in 0..good.len() {
        assert!(Dictionary::from_bytes(&good[..cut]).is_err(), "cut at {cut}");
    }
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Dictionary::from_bytes(&bytes).is_err(), "bit {bit}");
    }
}

#[test]
fn malice_is_an_error() {
    type Case = (&'static str, Vec<u8>, fn(&DictionaryError) -> bool);
    let damaged_header = |at: usize, value: u8| {
        let mut bytes = file(12, &single_bytes());
        bytes.truncate(bytes.len() - 4);
        bytes[at] = value;
        sealed(bytes)
    };
    let cases: Vec<Case> = vec![
        ("nothing", Vec::new(), |e| *e == DictionaryError::NotADictionary),
        ("signature", damaged_header(0, b'x'), |e| *e == DictionaryError::NotADictionary),
        ("version", damaged_header(4, 2), |e| *e == DictionaryError::Version { version: 2 }),
        ("9 bits", damaged_header(5, 9), |e| matches!(e, DictionaryError::Field { value: 9, .. })),
        ("255 bits", damaged_header(5, 255), |e| matches!(e, DictionaryError::Field { value: 255, .. })),
        ("reserved", damaged_header(7, 1), |e| matches!(e, DictionaryError::Field { .. })),
        ("4 billion tokens", damaged_header(15, 255), |e| matches!(e, DictionaryError::Field { .. })),
        ("length 0", damaged_header(HEADER_BYTES, 0), |e| {
            matches!(e, DictionaryError::Field { value: 0, .. })
        }),
        ("length 17", damaged_header(HEADER_BYTES, 17), |e| {
            matches!(e, DictionaryError::Field { value: 17, .. })
        }),
        ("longer than it is", damaged_header(HEADER_BYTES, 2), |e| {
            matches!(e, DictionaryError::Length { .. })
        }),
        ("255 tokens", file(12, &single_bytes()[1..]), |e| matches!(e, DictionaryError::Field { .. })),
        (
            "no byte 7",
            file(12, &with([&single_bytes()[..7], &single_bytes()[8..]].concat(), &[b"ab"])),
            |e| *e == DictionaryError::MissingByte { byte: 7 },
        ),
        (
            "byte 7 only in a longer one",
            file(12, &with([&single_bytes()[..7], &single_bytes()[8..]].concat(), &[b"\x07b"])),
            |e| *e == DictionaryError::MissingByte { byte: 7 },
        ),
        ("twice the same", file(12, &with(single_bytes(), &[b"ab", b"ab"])), |e| {
            *e == DictionaryError::Duplicate { token: 257 }
        }),
        ("a byte twice", file(12, &with(single_bytes(), &[b"a"])), |e| {
            *e == DictionaryError::Duplicate { token: 256 }
        }),
    ];
    for (what, bytes, expected) in cases {
        let error = Dictionary::from_bytes(&bytes).expect_err(what);
        assert!(expected(&error), "{what}: {error}");
        assert!(error.to_string().starts_with("cannot load token dictionary: "), "{error}");
    }
}

/// Runs of 128 tokens go on with one byte, the next 128 with another one, so that half of each block of the index stays
/// free.
#[test]
fn an_index_of_too_many_slots_is_an_error() {
    let mut tokens = single_bytes();
    tokens.extend((0..40_000u32).map(|i| {
        let mut token = vec![0x80 * (i / 128 % 2) as u8; 16];
        token[..2].copy_from_slice(&(i as u16).to_be_bytes());
        token
    }));
    let error = Dictionary::from_bytes(&file(16, &tokens)).unwrap_err();
    assert!(matches!(error, DictionaryError::TooLarge { slots, .. } if slots > 1 << 20), "{error}");
}

/// As many nodes as tokens can have: every one 16 bytes long, and no prefix shared beyond two bytes.
#[test]
fn the_widest_trie_loads_and_codes() {
    let mut tokens = single_bytes();
    for i in 0..4096u32 - 256 {
        let mut token = vec![(i % 251) as u8, (i / 251) as u8];
        token.extend((0..14u32).map(|k| (i.wrapping_mul(0x9E37_79B9).rotate_left(k * 5) >> 24) as u8));
        tokens.push(token);
    }
    let dictionary = Dictionary::from_bytes(&file(12, &tokens)).unwrap();
    let value = tokens[300..400].concat();
    let mut coded = Vec::new();
    dictionary.encode_group(&mut Encoder::new(), &[&value], &mut coded, &mut Vec::new());
    assert_eq!(coded.len(), 100 * 12 / 8 + 2);
    let mut out = Vec::new();
    dictionary.decode_append(&coded, &mut out, value.len()).unwrap();
    assert_eq!(out, value);
}

/// Tokens that all begin alike, zeros that look like padding, and a long tail of each.
#[test]
fn nested_tokens_and_zeros() {
    let mut tokens = single_bytes();
    for length in 2..=16 {
        tokens.push(vec![0; length]);
        tokens.push(vec![b'a'; length]);
        tokens.push([vec![b'a'; length - 1], vec![0]].concat());
    }
    let dictionary = Dictionary::from_bytes(&file(13, &tokens)).unwrap();
    let mut encoder = Encoder::new();
    for length in 0..70 {
        for value in [vec![0; length], vec![b'a'; length], [vec![b'a'; length], vec![0; 3]].concat()] {
            let mut coded = Vec::new();
            dictionary.encode_group(&mut encoder, &[&value], &mut coded, &mut Vec::new());
            let mut out = Vec::new();
            assert_eq!(dictionary.decode_append(&coded, &mut out, value.len()), Ok(value.len()));
            assert_eq!(out, value);
        }
    }
}
