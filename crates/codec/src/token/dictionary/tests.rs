use super::*;
use crate::scratch::SCRATCH_BYTES_MAX;

/// The single bytes and a few more, without training: small enough for an interpreter that watches every access.
fn small(bits: u32) -> Dictionary {
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    tokens.extend(
        [&b"ab"[..], b"abc", b"abcabcabcabcabca", b"bcabcabcabcabc", b"\0\0", b"end"].map(<[u8]>::to_vec),
    );
    Dictionary::from_tokens(&tokens, bits, 1).unwrap()
}

/// A coded value of these numbers, with the right check.
fn coded_from(dictionary: &Dictionary, numbers: &[u16]) -> Vec<u8> {
    let mut coded = Vec::new();
    numbers::pack(numbers, dictionary.bits(), &mut coded);
    seal(dictionary, coded)
}

fn seal(dictionary: &Dictionary, mut payload: Vec<u8>) -> Vec<u8> {
    let check = check16(dictionary.fingerprint, &payload);
    payload.extend_from_slice(&check.to_le_bytes());
    payload
}

#[test]
fn values_of_all_short_lengths() {
    let text = b"abcabcabcabcabcabcend\0\0\0\xff-abcabcabcabcabcabcab";
    let widths: &[u32] = if cfg!(miri) { &[12] } else { &[10, 11, 12, 13, 14, 15, 16] };
    for &bits in widths {
        let dictionary = small(bits);
        let mut encoder = Encoder::new();
        for length in (0..text.len()).step_by(if cfg!(miri) { 23 } else { 1 }) {
            let value = &text[..length];
            let (mut coded, mut ends) = (vec![9], Vec::new());
            dictionary.encode_group(&mut encoder, &[value, value], &mut coded, &mut ends);
            assert_eq!(coded[1..ends[0] as usize], coded[ends[0] as usize..]);
            // Without capacity, and with just enough.
            for mut out in [Vec::new(), Vec::with_capacity(length)] {
                let coded = &coded[1..ends[0] as usize];
                assert_eq!(dictionary.decode_append(coded, &mut out, length), Ok(length));
                assert_eq!(out, value);
                assert_eq!(dictionary.raw_len(coded), Ok(length));
            }
            // With room for one pass, for the measured length and the last copy, and for the value alone.
            for room in [dictionary.spare_bytes(ends[0] as usize), length + 16, length] {
                let mut target = vec![MaybeUninit::new(7); room];
                let coded = &coded[1..ends[0] as usize];
                assert_eq!(dictionary.decode_into(coded, &mut target).unwrap(), value);
            }
            if let Some(max_bytes) = length.checked_sub(1) {
                let mut target = vec![MaybeUninit::new(7); max_bytes];
                let error = dictionary.decode_into(&coded[1..ends[0] as usize], &mut target).unwrap_err();
                assert_eq!(error, DecodeError::TooLong { raw_bytes: length, max_bytes });
            }
        }
    }
}

#[test]
fn large_values_reserve_what_they_need() {
    let dictionary = small(12);
    let value = vec![b'x'; 20_000];
    let mut coded = Vec::new();
    dictionary.encode_group(&mut Encoder::new(), &[&value], &mut coded, &mut Vec::new());
    let mut out = Vec::new();
    assert_eq!(dictionary.decode_append(&coded, &mut out, value.len()), Ok(value.len()));
    assert!(out == value && out.capacity() <= value.len() + RESERVE_FREELY_BYTES);
    let mut none = Vec::new();
    let error = dictionary.decode_append(&coded, &mut none, value.len() - 1).unwrap_err();
    assert_eq!(error, DecodeError::TooLong { raw_bytes: value.len(), max_bytes: value.len() - 1 });
    assert!(none.capacity() <= RESERVE_FREELY_BYTES);
}

#[test]
fn numbers_past_the_tokens_are_errors() {
    let dictionary = small(12);
    let tokens = dictionary.tokens() as u16;
    for length in 1..20 {
        for position in 0..length {
            let mut numbers = vec![u16::from(b'x'); length];
            numbers[position] = if position % 2 == 0 { tokens } else { 4095 };
            let coded = coded_from(&dictionary, &numbers);
            let expected = DecodeError::Token { position, number: numbers[position].into() };
            let mut out = b"kept".to_vec();
            assert_eq!(dictionary.decode_append(&coded, &mut out, 1 << 20), Err(expected.clone()));
            assert_eq!(out, b"kept");
            assert_eq!(dictionary.raw_len(&coded), Err(expected));
        }
    }
}

#[test]
fn rows_decode_as_one_value() {
    let rows: [&[u8]; 5] = [b"abcabcend", b"", b"abc", b"bcabcabcabcabcab", b"\0"];
    for bits in super::super::BITS {
        let dictionary = small(bits);
        for effort in [Effort::Fast, Effort::Dense] {
            let (mut encoder, mut coded) = (Encoder::new(), vec![7]);
            dictionary.encode_rows(&mut encoder, effort, &rows, &mut coded);
            let mut again = vec![7];
            dictionary.try_encode_rows(&mut encoder, effort, &rows, &mut again).unwrap();
            assert_eq!(again, coded);
            let mut value = Vec::new();
            dictionary.decode_append(&coded[1..], &mut value, 1 << 20).unwrap();
            assert_eq!(value, rows.concat());
        }
    }
}

#[test]
fn a_long_block_leaves_no_scratch() {
    let (dictionary, mut encoder) = (small(12), Encoder::new());
    let mut kept = |bytes: usize| {
        let block = vec![b'x'; bytes];
        dictionary.encode_block(&mut encoder, Effort::Fast, &block, 512, &mut Vec::new());
        encoder.memory_bytes()
    };
    let short = kept(4096);
    assert!(kept(SCRATCH_BYTES_MAX) < short + SCRATCH_BYTES_MAX / 4);
}

#[test]
fn long_values_leave_no_scratch() {
    let (dictionary, long) = (small(12), vec![b'x'; 4 * SCRATCH_BYTES_MAX]);
    for effort in [Effort::Fast, Effort::Dense] {
        // One value is cut into pieces, and many values are parsed side by side.
        for group in [vec![&long[..]], vec![&long[..SCRATCH_BYTES_MAX]; 9], vec![b"x"; SCRATCH_BYTES_MAX]] {
            let mut encoder = Encoder::new();
            dictionary.encode_group_with(&mut encoder, effort, &group, &mut Vec::new(), &mut Vec::new());
            assert!(encoder.memory_bytes() < SCRATCH_BYTES_MAX, "{} values", group.len());
        }
    }
}

#[test]
fn filled_padding_is_an_error() {
    let dictionary = small(13);
    let mut coded = coded_from(&dictionary, &[1, 2, 3]);
    coded.truncate(coded.len() - CHECK_BYTES);
    *coded.last_mut().unwrap() |= 0x80;
    let coded = seal(&dictionary, coded);
    assert_eq!(dictionary.decode_append(&coded, &mut Vec::new(), 100), Err(DecodeError::Padding));
    assert_eq!(dictionary.raw_len(&coded), Err(DecodeError::Padding));
}

#[test]
fn impossible_lengths_are_errors() {
    let dictionary = small(12);
    for length in [0, 1, 3, 6] {
        let error = dictionary.decode_append(&vec![0; length], &mut Vec::new(), 100).unwrap_err();
        assert_eq!(error, DecodeError::Length { coded_bytes: length });
    }
}

#[test]
fn the_parse_looks_ahead() {
    // The longest token first would take "abc" and then single bytes; "ab" lets the long one follow.
    let mut tokens: Vec<Vec<u8>> = (0..=255).map(|byte| vec![byte]).collect();
    tokens.extend([&b"ab"[..], b"abc", b"cdefgh"].map(<[u8]>::to_vec));
    let dictionary = Dictionary::from_tokens(&tokens, 16, 0).unwrap();
    let mut coded = Vec::new();
    dictionary.encode_group(&mut Encoder::new(), &[b"abcdefgh"], &mut coded, &mut Vec::new());
    assert_eq!(coded.len(), 2 * 2 + CHECK_BYTES);
}

#[test]
fn a_renumbered_dictionary_reads_what_the_other_one_wrote() {
    let one = small(12);
    let other = one.renumbered(7).unwrap();
    assert!(other.is_renumbered(&one) && one.is_renumbered(&other) && !one.is_renumbered(&small(12)));
    let (mut coded, mut value) = (Vec::new(), Vec::new());
    one.encode_group(&mut Encoder::new(), &[b"abcend"], &mut coded, &mut Vec::new());
    other.decode_append(&coded, &mut value, 10).unwrap();
    assert_eq!((&value[..], other.generation()), (&b"abcend"[..], 7));
}

#[test]
fn the_fingerprint_is_of_the_content() {
    let one = small(12);
    let same = Dictionary::from_tokens(
        &(0..one.tokens()).map(|number| one.token(number).unwrap().to_vec()).collect::<Vec<_>>(),
        12,
        99,
    )
    .unwrap();
    assert_eq!(one.fingerprint, same.fingerprint);
    assert_ne!(one.fingerprint, small(13).fingerprint);
}
