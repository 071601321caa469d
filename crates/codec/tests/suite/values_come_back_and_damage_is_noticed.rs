//! A coder that loses a byte, or takes damage for data, is worse than none. Real files, cut at every size that a store
//! meets, go through a dictionary that was stored and loaded again.

use ziptier_codec::conformance::{self, Damage, Tokens};
use ziptier_codec::token::{BITS, Dictionary, Effort, Encoder};

use crate::corpus::{Kind, files, files_of, is_tried, pieces};

fn tokens<'a>(dictionary: &'a Dictionary, encoder: &'a mut Encoder, effort: Effort) -> Tokens<'a> {
    Tokens { dictionary, encoder, effort }
}

/// Every value comes back, whichever way it was parsed.
fn check_both(
    dictionary: &Dictionary,
    encoder: &mut Encoder,
    values: &[&[u8]],
) -> Result<(), conformance::Failure> {
    for effort in [Effort::Fast, Effort::Dense] {
        conformance::check_values(&mut tokens(dictionary, encoder, effort), values)?;
    }
    Ok(())
}

fn trained(bytes: &[u8], bits: u32) -> Dictionary {
    let samples = pieces(bytes, 128, 2048);
    let dictionary = Dictionary::train(&samples, bits, 7).expect("these samples train");
    let loaded = Dictionary::from_bytes(&dictionary.to_bytes()).expect("what was stored loads");
    assert_eq!((loaded.bits(), loaded.generation(), loaded.tokens()), (bits, 7, dictionary.tokens()));
    assert_eq!(loaded.memory_bytes(), dictionary.memory_bytes());
    let expected = Dictionary::memory_bytes_expected(bits);
    assert!(
        loaded.memory_bytes() <= expected,
        "{bits} bits: {} bytes, {expected} expected",
        loaded.memory_bytes()
    );
    let (mut before, mut after) = (Vec::new(), Vec::new());
    dictionary.encode_group(
        &mut Encoder::new(),
        &samples[..8.min(samples.len())],
        &mut before,
        &mut Vec::new(),
    );
    loaded.encode_group(&mut Encoder::new(), &samples[..8.min(samples.len())], &mut after, &mut Vec::new());
    assert_eq!(before, after, "a loaded dictionary codes otherwise than the trained one");
    loaded
}

#[test]
fn every_file_at_every_size() {
    for (number, file) in files().into_iter().enumerate() {
        for bits in BITS.filter(|&bits| is_tried(4, [number, bits as usize])) {
            let dictionary = trained(&file.bytes, bits);
            let mut encoder = Encoder::new();
            for size in [1, 2, 3, 5, 15, 16, 17, 31, 64, 100, 128, 500, 1024, 4095, 16_384, 65_536] {
                let values = pieces(&file.bytes, size, (16_384 / size).clamp(2, 300));
                check_both(&dictionary, &mut encoder, &values).unwrap_or_else(|failure| {
                    panic!("{} at {bits} bits, {size} bytes: {failure}", file.name)
                });
            }
        }
    }
}

#[test]
fn every_byte_of_every_file() {
    for file in files() {
        let dictionary = trained(&file.bytes, 14);
        let mut encoder = Encoder::new();
        let values: Vec<&[u8]> = file.bytes.chunks(1000).collect();
        // In turns, as no byte depends on how the group before was parsed.
        for (group, effort) in values.chunks(64).zip([Effort::Fast, Effort::Dense].into_iter().cycle()) {
            conformance::check_values(&mut tokens(&dictionary, &mut encoder, effort), group)
                .unwrap_or_else(|failure| panic!("{}: {failure}", file.name));
        }
    }
}

#[test]
fn values_of_one_file_by_the_dictionary_of_another() {
    let files = files();
    let dictionary = trained(&files[0].bytes, 12);
    let mut encoder = Encoder::new();
    for file in &files {
        check_both(&dictionary, &mut encoder, &pieces(&file.bytes, 300, 100)).unwrap();
    }
    let every_byte: Vec<u8> = (0..=255).collect();
    check_both(&dictionary, &mut encoder, &[b"", b"\0", &every_byte, &[0; 999]]).unwrap();
}

#[test]
fn cut_values_are_noticed() {
    let mut damage = Damage::default();
    for (number, file) in files().into_iter().enumerate() {
        let dictionary = trained(&file.bytes, 14);
        let mut encoder = Encoder::new();
        for (size_number, size) in [1, 50, 128, 1000, 10_000, 65_536].into_iter().enumerate() {
            if !is_tried(3, [number, size_number]) {
                continue;
            }
            for value in pieces(&file.bytes, size, 3) {
                damage.add(
                    conformance::check_truncations(
                        &mut tokens(&dictionary, &mut encoder, Effort::Dense),
                        value,
                    )
                    .unwrap(),
                );
            }
        }
    }
    assert!(damage.is_chance_of_16_bits(), "{damage:?}");
}

#[test]
fn every_flipped_bit_of_a_thousand_values_is_noticed() {
    let files = files();
    let mut values = 0;
    for (index, file) in files.iter().enumerate() {
        let dictionary = trained(&file.bytes, 12 + index as u32 % 5);
        let mut encoder = Encoder::new();
        for value in pieces(&file.bytes, 128, 1000 / files.len() + 1) {
            conformance::check_flips(&mut tokens(&dictionary, &mut encoder, Effort::Dense), value).unwrap();
            values += 1;
        }
        // Longer than 8 KiB in coded form; sampled in a debugger's time, whole in a release build.
        let long = &file.bytes[..file.bytes.len().min(if cfg!(debug_assertions) { 600 } else { 20_000 })];
        conformance::check_flips(&mut tokens(&dictionary, &mut encoder, Effort::Dense), long).unwrap();
    }
    assert!(values >= 1000 || files.iter().any(|file| file.bytes.len() < 128 * 100), "{values} values");
}

#[test]
fn another_dictionary_is_noticed() {
    let files = files_of(&[Kind::Text, Kind::Code]);
    if files.len() < 2 {
        return;
    }
    let (one, other) = (trained(&files[0].bytes, 12), trained(&files[1].bytes, 12));
    let (mut coded, mut ends) = (Vec::new(), Vec::new());
    let values = pieces(&files[0].bytes, 100, 500);
    one.encode_group(&mut Encoder::new(), &values, &mut coded, &mut ends);
    let mut start = 0;
    let mut unnoticed = 0;
    for end in ends {
        unnoticed +=
            usize::from(other.decode_append(&coded[start..end as usize], &mut Vec::new(), 1 << 20).is_ok());
        start = end as usize;
    }
    assert!(unnoticed <= 1, "{unnoticed} of {} values decoded by the wrong dictionary", values.len());
}

/// Almost each number has a token of 16 bytes, and the tokens share no beginnings: an index of all that are tried would
/// be too large.
#[test]
fn small_numbers_of_many_bytes_train() {
    let mut state = 9u64;
    let numbers = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i128::from((state >> 48) as i16).to_le_bytes()
    });
    let numbers: Vec<[u8; 16]> = numbers.take(300_000).collect();
    let samples: Vec<&[u8]> = numbers.iter().map(|number| &number[..]).collect();
    let dictionary = Dictionary::train(&samples, 16, 0).unwrap();
    check_both(&dictionary, &mut Encoder::new(), &samples[..1000]).unwrap();
}

#[test]
fn noise_trains_and_comes_back() {
    let mut state = 9u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(1 << 20)
    .collect();
    for bits in [12, 14, 16] {
        let dictionary = trained(&noise, bits);
        check_both(&dictionary, &mut Encoder::new(), &pieces(&noise, 128, 100)).unwrap();
    }
    for samples in [&[][..], &[&b""[..]], &[&b"x"[..]]] {
        assert_eq!(Dictionary::train(samples, 12, 0).unwrap().tokens(), 256);
    }
    for bits in [0, 9, 17, u32::MAX] {
        assert!(Dictionary::train(&[], bits, 0).is_err());
    }
}
