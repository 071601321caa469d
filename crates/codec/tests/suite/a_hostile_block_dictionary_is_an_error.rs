//! A stored dictionary comes from a disk or a peer: damage is an error, and so is malice with a correct checksum.

use std::sync::Arc;
use ziptier_codec::block::dictionary::{DictionaryError, TrainError};
use ziptier_codec::block::setting::SettingError;
use ziptier_codec::block::{Dictionary, Setting};
use ziptier_codec::checksum::crc32c;
use ziptier_codec::format::Format;

const FORMATS: [Format; 4] = [Format::Token, Format::Lz4, Format::Zstd, Format::Deflate];

fn trained(format: Format) -> Dictionary {
    let samples: Vec<String> =
        (0..5000).map(|i| format!("item {} of {}, ", i * 7919 % 1000, i % 13)).collect();
    let samples: Vec<&[u8]> = samples.iter().map(|sample| sample.as_bytes()).collect();
    Dictionary::train(format, &samples, 2048, 5).expect("trains")
}

/// The same bytes with a checksum that is right.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 4;
    let checksum = crc32c(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn error(bytes: &[u8]) -> DictionaryError {
    Dictionary::from_bytes(bytes).expect_err("a damaged dictionary loads")
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    for format in FORMATS {
        let mut bytes = trained(format).to_bytes();
        for at in 0..bytes.len() {
            error(&bytes[..at]);
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            error(&bytes);
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn fields_out_of_range_are_named() {
    let bytes = trained(Format::Lz4).to_bytes();
    let with = |at: usize, value: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        error(&sealed(bytes))
    };
    assert_eq!(with(0, b'Z'), DictionaryError::NotADictionary);
    assert_eq!(with(4, 2), DictionaryError::Version { version: 2 });
    assert_eq!(with(5, 0), DictionaryError::Format { number: 0 });
    assert_eq!(with(5, 1), DictionaryError::Refused { format: Format::Token });
    assert_eq!(with(5, 77), DictionaryError::Format { number: 77 });
    assert_eq!(with(6, 1), DictionaryError::Reserved { value: 1 });
    assert!(matches!(with(15, 0xff), DictionaryError::Length { .. }));
    assert!(with(15, 0xff).to_string().contains("bytes"));

    for format in [Format::Lz4, Format::Zstd, Format::Deflate] {
        let max = Dictionary::content_bytes_max(format);
        assert!(Dictionary::new(format, vec![7; max], 0).is_ok());
        assert!(matches!(Dictionary::new(format, vec![7; max + 1], 0), Err(DictionaryError::Length { .. })));
        assert!(Dictionary::new(format, [], 0).is_err());
    }
    assert!(Dictionary::new(Format::None, [1], 0).is_err());
    for content in [&[1][..], &[0; 40], &[0xff; 40]] {
        let refused = Dictionary::new(Format::Token, content, 0).err();
        assert_eq!(refused, Some(DictionaryError::Refused { format: Format::Token }));
    }
}

/// Behind a sound header the packed tokens may be anything: they load and work, or they are refused.
#[test]
fn crafted_tokens_are_refused_or_work() {
    let dictionary = trained(Format::Token);
    let (mut loaded, mut refused) = (0, 0);
    for bit in 0..dictionary.content().len() * 8 {
        let mut content = dictionary.content().to_vec();
        content[bit / 8] ^= 1 << (bit % 8);
        let Ok(dictionary) = Dictionary::new(Format::Token, content, 1) else {
            refused += 1;
            continue;
        };
        loaded += 1;
        let engine = Setting::new(Format::Token).with_dictionary(Arc::new(dictionary)).engine().unwrap();
        let (mut codec, mut packed, mut raw) = (engine.open().unwrap(), Vec::new(), Vec::new());
        let block = b"item 7 of 3, item 8 of 3";
        codec.compress(block, &mut packed, 100).unwrap().unwrap();
        codec.decompress(&packed, &mut raw, block.len()).unwrap();
        assert_eq!(raw, block);
    }
    assert!(refused > 1000, "{loaded} loaded, {refused} refused");
}

/// Behind a sound header zstd's own tables may be anything: they load and work, or they are refused.
#[test]
fn crafted_tables_are_refused_or_work() {
    let dictionary = trained(Format::Zstd);
    let (mut loaded, mut refused) = (0, 0);
    for bit in 0..200 * 8 {
        let mut content = dictionary.content().to_vec();
        content[bit / 8] ^= 1 << (bit % 8);
        let Ok(dictionary) = Dictionary::new(Format::Zstd, content, 1) else {
            refused += 1;
            continue;
        };
        loaded += 1;
        match Setting::new(Format::Zstd).with_dictionary(Arc::new(dictionary)).engine() {
            Err(error) => assert_eq!(error, SettingError::DictionaryRefused { format: Format::Zstd }),
            Ok(engine) => {
                let mut codec = engine.open().unwrap();
                let raw = b"item 13 of 7, item 26 of 8, item 39 of 9".repeat(3);
                let (mut packed, mut out) = (Vec::new(), Vec::new());
                codec.compress(&raw, &mut packed, 1000).unwrap().unwrap();
                codec.decompress(&packed, &mut out, raw.len()).unwrap();
                assert_eq!(out, raw);
            }
        }
    }
    assert!(loaded > 0 && refused > 0, "{loaded} loaded, {refused} refused");
}

#[test]
fn training_says_why_it_cannot() {
    let samples: [&[u8]; 2] = [b"too", b"few"];
    for format in FORMATS {
        assert!(matches!(Dictionary::train(format, &samples, 4096, 0), Err(TrainError::Samples { .. })));
        assert!(matches!(Dictionary::train(format, &[], 4096, 0), Err(TrainError::Samples { .. })));
        assert!(matches!(Dictionary::train(format, &samples, 10, 0), Err(TrainError::Size { .. })));
    }
    assert!(matches!(Dictionary::train(Format::None, &samples, 4096, 0), Err(TrainError::Format { .. })));
}

#[test]
fn training_gives_the_same_twice_and_keeps_its_bounds() {
    for format in FORMATS {
        let (one, two) = (trained(format), trained(format));
        assert_eq!(one.to_bytes(), two.to_bytes());
        assert!(one.content().len() <= 2048 && one.generation() == 5);
    }
    let other = Setting::new(Format::Lz4).with_dictionary(Arc::new(trained(Format::Zstd)));
    assert!(other.engine().is_err_and(|error| error.to_string().contains("made for format zstd")));
}
