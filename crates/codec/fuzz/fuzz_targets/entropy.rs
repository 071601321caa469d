//! Loads any bytes as stored codes, and decodes any bytes as an entropy-coded value and as a block in parts. The result
//! must be an error or a value, never more bytes than allowed, and `raw_len` must agree.
//!
//! The target changes sound codes and corrects their checksum. It also gives the bytes a right check.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use ziptier_codec::checksum::{check16, crc32c};
use ziptier_codec::token::entropy::{Codes, Recoder};
use ziptier_codec::token::{Dictionary, Effort, Encoder};

static SOUND: LazyLock<(Dictionary, Vec<u8>)> = LazyLock::new(|| {
    let text: String = (0..3000).map(|i| format!("item {} of {}, ", i * 7919 % 1000, i % 13)).collect();
    let samples: Vec<&[u8]> = text.as_bytes().chunks(100).collect();
    let dictionary = Dictionary::train(&samples, 10, 0).expect("trains");
    let codes = Codes::train(&dictionary, &mut Encoder::new(), Effort::Fast, &samples, 1 << 24);
    let stored = codes.to_bytes(&dictionary);
    (dictionary, stored)
});

fuzz_target!(|input: (Vec<(u16, u8)>, u16, Vec<u8>)| {
    let (changes, max_bytes, coded) = input;
    let (dictionary, sound) = &*SOUND;
    let mut stored = sound[..sound.len() - 4].to_vec();
    for (at, byte) in changes {
        let at = usize::from(at) % stored.len();
        stored[at] = byte;
    }
    let checksum = crc32c(&stored);
    stored.extend_from_slice(&checksum.to_le_bytes());
    let Ok(codes) = Codes::from_bytes(dictionary, &stored) else { return };
    assert_eq!(codes.to_bytes(dictionary), stored);

    // The seed of checks covers what stored codes have between header and checksum.
    let check = check16(dictionary.fingerprint() ^ crc32c(&stored[16..stored.len() - 4]), &coded);
    let sealed = [&coded[..], &check.to_le_bytes()].concat();
    for coded in [&coded, &sealed] {
        for in_parts in [false, true] {
            let mut out = b"kept".to_vec();
            let (decoded, length) = if in_parts {
                let decoded = codes.decode_parts(dictionary, coded, &mut out, max_bytes.into());
                (decoded, codes.parts_raw_len(dictionary, coded))
            } else {
                let decoded = codes.decode_append(dictionary, coded, &mut out, max_bytes.into());
                (decoded, codes.raw_len(dictionary, coded))
            };
            assert!(out.starts_with(b"kept"));
            match decoded {
                Ok(bytes) => {
                    assert!(bytes <= usize::from(max_bytes) && out.len() == 4 + bytes);
                    assert_eq!(length, Ok(bytes));
                }
                Err(_) => assert_eq!(out, b"kept"),
            }
        }
    }
    // The bytes as a value come back from the form and from the form before it.
    let (mut plain, mut ends, mut dense, mut restored, mut value) = Default::default();
    dictionary.encode_group(&mut Encoder::new(), &[&coded], &mut plain, &mut ends);
    let mut recoder = Recoder::new();
    recoder.recode(&codes, dictionary, &plain, &mut dense).expect("the dictionary coded it");
    assert_eq!(codes.decode_append(dictionary, &dense, &mut value, coded.len()), Ok(coded.len()));
    assert_eq!(value, coded);
    recoder.restore(&codes, dictionary, &dense, &mut restored).expect("the codes coded it");
    assert_eq!(restored, plain);
    // And, long enough for several groups of parts, from parts.
    let long = coded.repeat(1 + (usize::from(max_bytes) >> 2) / coded.len().max(1));
    let (mut plain, mut ends, mut parts, mut value) = Default::default();
    dictionary.encode_group(&mut Encoder::new(), &[&long], &mut plain, &mut ends);
    let has_parts = recoder.recode_block(&codes, dictionary, &plain, &mut parts).expect("the dictionary coded it");
    let decoded = if has_parts {
        codes.decode_parts(dictionary, &parts, &mut value, long.len())
    } else {
        codes.decode_append(dictionary, &parts, &mut value, long.len())
    };
    assert_eq!((decoded, value), (Ok(long.len()), long));
});
