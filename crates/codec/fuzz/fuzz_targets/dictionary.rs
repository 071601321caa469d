//! Loads any bytes as a stored dictionary. The result must be an error, or a dictionary that codes, decodes and stores
//! itself.
//!
//! The target corrects the checksum and supplies half of the tokens. The fuzzer chooses the rest: fields, lengths and
//! bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ziptier_codec::checksum::crc32c;
use ziptier_codec::token::{Dictionary, Encoder};

fuzz_target!(|input: (Option<(u8, Vec<(u8, [u8; 16])>)>, Vec<u8>)| {
    let (tokens, raw) = input;
    let bytes = match tokens {
        None => raw.clone(),
        Some((bits, tokens)) => {
            // A sound frame around the fuzzer's tokens.
            let mut bytes = b"ztok".to_vec();
            bytes.extend_from_slice(&[1, 12 + bits % 5, 0, 0, 0, 0, 0, 0]);
            bytes.extend_from_slice(&(256 + tokens.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&[1; 256]);
            bytes.extend(tokens.iter().map(|token| token.0 % 18));
            bytes.extend(0..=255u8);
            tokens.iter().for_each(|token| bytes.extend_from_slice(&token.1[..usize::from(token.0 % 18).min(16)]));
            let checksum = crc32c(&bytes);
            bytes.extend_from_slice(&checksum.to_le_bytes());
            bytes
        }
    };
    if let Ok(dictionary) = Dictionary::from_bytes(&bytes) {
        assert_eq!(dictionary.to_bytes(), bytes);
        let (mut coded, mut ends) = (Vec::new(), Vec::new());
        let values = [&raw[..], &bytes[..bytes.len().min(2000)], b""];
        dictionary.encode_group(&mut Encoder::new(), &values, &mut coded, &mut ends);
        let mut start = 0;
        for (value, end) in values.iter().zip(ends) {
            let mut out = Vec::new();
            let length = dictionary.decode_append(&coded[start..end as usize], &mut out, value.len());
            assert_eq!((length, &out[..]), (Ok(value.len()), *value));
            start = end as usize;
        }
    }
});
