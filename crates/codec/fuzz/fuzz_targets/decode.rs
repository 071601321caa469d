//! Decodes any bytes as a coded value. The result must be an error or a value, never more bytes than allowed, and
//! `raw_len` must agree.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use ziptier_codec::checksum::check16;
use ziptier_codec::token::{BITS, Dictionary, Encoder};

static DICTIONARIES: LazyLock<Vec<Dictionary>> = LazyLock::new(|| {
    let text: String = (0..3000).map(|i| format!("item {} of {}, ", i * 7919 % 1000, i % 13)).collect();
    let samples: Vec<&[u8]> = text.as_bytes().chunks(100).collect();
    BITS.map(|bits| Dictionary::train(&samples, bits, 0).expect("trains")).collect()
});

fuzz_target!(|input: (u8, u16, bool, Vec<u8>)| {
    let (which, max_bytes, sealed, mut coded) = input;
    let dictionary = &DICTIONARIES[usize::from(which) % DICTIONARIES.len()];
    if sealed {
        // Adds the right check, so that the decoder reads the bytes before it.
        let check = check16(dictionary.fingerprint(), &coded);
        coded.extend_from_slice(&check.to_le_bytes());
    }
    let mut out = b"kept".to_vec();
    let decoded = dictionary.decode_append(&coded, &mut out, max_bytes.into());
    let measured = dictionary.raw_len(&coded);
    assert!(out.starts_with(b"kept"));
    match decoded {
        Ok(length) => {
            assert!(length <= usize::from(max_bytes) && out.len() == 4 + length);
            assert_eq!(measured, Ok(length));
            // A decoded value can be coded again, and comes back.
            let (mut again, mut ends) = (Vec::new(), Vec::new());
            dictionary.encode_group(&mut Encoder::new(), &[&out[4..]], &mut again, &mut ends);
            let mut back = Vec::new();
            assert_eq!(dictionary.decode_append(&again, &mut back, length), Ok(length));
            assert_eq!(back, out[4..]);
        }
        Err(_) => assert_eq!(out, b"kept"),
    }
});
