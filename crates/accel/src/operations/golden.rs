//! Descriptors byte by byte, taken from the interface's tables and not from this crate's output.

use std::sync::Arc;

use ziptier_deflate::Dictionary;

use super::*;
use crate::aecs::{CompressState, DISTANCES, DecompressState, LITERALS};

const AT: Addresses = Addresses {
    completion: 0x11_0000_0040,
    input: 0x22_0000_1000,
    output: 0x33_0000_2000,
    state: 0x44_0000_0100,
    histogram: 0x55_0000_0500,
};

const SIZES: Sizes = Sizes { source: 4096, source2: 3, output_max: 5000 };

#[track_caller]
fn check(descriptor: Descriptor, golden: &str) {
    let bytes = golden.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap());
    assert_eq!(descriptor.as_bytes()[..], bytes.collect::<Vec<u8>>()[..]);
}

#[test]
fn compress_with_a_state() {
    check(
        compress::with_own_state(AT, SIZES),
        "00 00 00 00  0C 01 01 43  40 00 00 00 11 00 00 00
         00 10 00 00 22 00 00 00  00 20 00 00 33 00 00 00
         00 10 00 00  00 00  06 00  00 01 00 00 44 00 00 00
         88 13 00 00  20 06 00 00  00 00 00 00  00 00 00 00",
    );
    let shared = compress::with_state(AT, SIZES, crate::preset::fixed());
    assert_eq!(shared.source2() % 32, 0);
    let mut own = compress::with_own_state(AT, SIZES);
    assert_eq!(own.set_source2(shared.source2()), &shared);
}

#[test]
fn compress_in_two_passes_of_generation_1() {
    check(
        compress::counting(AT, SIZES),
        "00 00 00 00  0C 01 00 43  40 00 00 00 11 00 00 00
         00 10 00 00 22 00 00 00  00 05 00 00 55 00 00 00
         00 10 00 00  00 00  07 00  00 00 00 00 00 00 00 00
         00 05 00 00  00 00 00 00  00 00 00 00  00 00 00 00",
    );
}

#[test]
fn compress_of_generation_2() {
    check(
        compress::one_pass(AT, SIZES),
        "00 00 00 00  0C 01 00 43  40 00 00 00 11 00 00 00
         00 10 00 00 22 00 00 00  00 20 00 00 33 00 00 00
         00 10 00 00  00 00  06 30  00 00 00 00 00 00 00 00
         88 13 00 00  00 00 00 00  00 00 00 00  00 00 00 00",
    );
    check(
        compress::making_codes(AT, SIZES),
        "00 00 00 00  0C 01 04 43  40 00 00 00 11 00 00 00
         00 10 00 00 22 00 00 00  00 00 00 00 00 00 00 00
         00 10 00 00  00 00  05 70  00 01 00 00 44 00 00 00
         00 00 00 00  20 06 00 00  02 00 00 00  00 00 00 00",
    );
    check(
        compress::with_made_codes(AT, SIZES),
        "00 00 00 00  0C 01 01 43  40 00 00 00 11 00 00 00
         00 10 00 00 22 00 00 00  00 20 00 00 33 00 00 00
         00 10 00 00  00 00  06 00  20 07 00 00 44 00 00 00
         88 13 00 00  20 06 00 00  00 00 00 00  00 00 00 00",
    );
}

#[test]
fn compress_behind_history() {
    for (bytes, golden) in [
        (
            2048,
            "00 00 00 00  0C 01 01 43  40 00 00 00 11 00 00 00
             00 10 00 00 22 00 00 00  00 20 00 00 33 00 00 00
             00 10 00 00  00 00  06 04  00 01 00 00 00 00 00 00
             88 13 00 00  20 1E 00 00  00 00 00 00  00 00 00 00",
        ),
        (
            2049,
            "00 00 00 00  0C 01 01 43  40 00 00 00 11 00 00 00
             00 10 00 00 22 00 00 00  00 20 00 00 33 00 00 00
             00 10 00 00  00 00  06 0C  00 01 00 00 00 00 00 00
             88 13 00 00  20 36 00 00  00 00 00 00  00 00 00 00",
        ),
    ] {
        let preset = Preset::written(&Dictionary::new(&vec![7; bytes]));
        let mut job = compress::behind_history(AT, SIZES, preset.fixed_behind());
        assert_eq!(job.source2() % 32, 0);
        check(*job.set_source2(0x0100), golden);
    }
}

#[test]
fn decompress_and_verify() {
    check(
        decompress::stream(AT, SIZES, &Stream::Plain),
        "00 00 00 00  0C 01 00 42  40 00 00 00 11 00 00 00
         00 10 00 00 22 00 00 00  00 20 00 00 33 00 00 00
         00 10 00 00  00 00  1F 00  00 00 00 00 00 00 00 00
         88 13 00 00  00 00 00 00  00 00 00 00  00 00 00 00",
    );
    check(
        decompress::verification(AT, SIZES, 777, &Stream::Plain),
        "00 00 00 00  0C 01 00 42  40 00 00 00 11 00 00 00
         00 20 00 00 33 00 00 00  00 10 00 00 22 00 00 00
         09 03 00 00  00 00  1F 02  00 00 00 00 00 00 00 00
         00 10 00 00  00 00 00 00  00 00 00 00  00 00 00 00",
    );
    let preset = Arc::new(Preset::written(&Dictionary::train(&[b"one two three", b"two three four"], 64)));
    for stream in [Stream::History(preset.clone()), Stream::Canned(preset)] {
        let mut job = decompress::stream(AT, SIZES, &stream);
        assert_eq!(job.source2() % 32, 0);
        job.set_source2(0x0100);
        check(
            job,
            "00 00 00 00  0C 01 01 42  40 00 00 00 11 00 00 00
             00 10 00 00 22 00 00 00  00 20 00 00 33 00 00 00
             00 10 00 00  00 00  1F 00  00 01 00 00 00 00 00 00
             88 13 00 00  00 15 00 00  00 00 00 00  00 00 00 00",
        );
    }
}

#[test]
fn crc64() {
    let ecma = Crc64 { polynomial: 0x42F0_E1EB_A9EA_3693, invert: true, big_endian: true };
    check(
        ecma.descriptor(AT, SIZES),
        "00 00 00 00  0C 00 00 44  40 00 00 00 11 00 00 00
         00 10 00 00 22 00 00 00  00 00 00 00 00 00 00 00
         00 10 00 00  00 00  00 C0  00 00 00 00 00 00 00 00
         00 00 00 00  00 00 00 00  93 36 EA A9 EB E1 F0 42",
    );
}

fn filter(kind: FilterKind, parser: Parser, bits: u8) -> Filter {
    let elements = Elements { parser, bits, count: 1000 };
    Filter {
        kind,
        elements,
        compressed: false,
        mask_big_endian: false,
        output: OutputWidth::Nominal,
        output_big_endian: false,
        force_array: false,
    }
}

#[test]
fn filters_with_parameters() {
    let mut pool = JobPool::new(1, 4096, 64);
    let mut scan =
        filter(FilterKind::Scan { low: 0x0102_0304, high: 0x1112_1314, invert: true }, Parser::BigEndian, 12);
    scan.output = OutputWidth::Bits32;
    // SAFETY: no job is under way.
    let bytes = unsafe { scan.write_state(&mut pool, 0) };
    check(
        scan.descriptor(AT, SIZES, bytes),
        "00 00 00 00  0C 01 01 50  40 00 00 00 11 00 00 00
         00 10 00 00 22 00 00 00  00 20 00 00 33 00 00 00
         00 10 00 00  00 00  00 00  00 01 00 00 44 00 00 00
         88 13 00 00  20 00 00 00  2D 60 01 00  E8 03 00 00",
    );
    // SAFETY: as above.
    let state: &mut DecompressState = unsafe { pool.state_mut(0) };
    assert_eq!(state.as_bytes()[8..16], [4, 3, 2, 1, 0x14, 0x13, 0x12, 0x11]);

    let mut extract = filter(FilterKind::Extract { first: 5, last: 9 }, Parser::LittleEndian, 32);
    extract.compressed = true;
    // SAFETY: as above.
    let bytes = unsafe { extract.write_state(&mut pool, 0) };
    check(
        extract.descriptor(AT, SIZES, bytes),
        "00 00 00 00  0C 01 01 52  40 00 00 00 11 00 00 00
         00 10 00 00 22 00 00 00  00 20 00 00 33 00 00 00
         00 10 00 00  00 00  1F 00  00 01 00 00 44 00 00 00
         88 13 00 00  00 15 00 00  7C 00 00 00  E8 03 00 00",
    );
    // SAFETY: as above.
    let state: &mut DecompressState = unsafe { pool.state_mut(0) };
    assert_eq!((state.filter_low(), state.filter_high(), state.as_bytes()[0x434]), (5, 9, 1));
}

#[test]
fn filters_with_a_mask() {
    let mut select = filter(FilterKind::Select, Parser::ParquetRle, 7);
    (select.compressed, select.force_array) = (true, true);
    check(
        select.descriptor(AT, SIZES, 0),
        "00 00 00 00  0C 01 02 53  40 00 00 00 11 00 00 00
         00 10 00 00 22 00 00 00  00 20 00 00 33 00 00 00
         00 10 00 00  00 00  1F 00  00 20 00 00 22 00 00 00
         88 13 00 00  03 00 00 00  02 00 00 08  E8 03 00 00",
    );
    let mut expand = filter(FilterKind::Expand, Parser::LittleEndian, 1);
    (expand.mask_big_endian, expand.output_big_endian) = (true, true);
    check(
        expand.descriptor(AT, SIZES, 0),
        "00 00 00 00  0C 01 02 56  40 00 00 00 11 00 00 00
         00 10 00 00 22 00 00 00  00 20 00 00 33 00 00 00
         00 10 00 00  00 00  00 00  00 20 00 00 22 00 00 00
         88 13 00 00  03 00 00 00  00 90 00 00  E8 03 00 00",
    );
}

#[test]
fn codes_are_made_of_what_was_counted() {
    let (mut literals, mut distances) = ([0; LITERALS], [0; DISTANCES]);
    let mut histogram = Histogram::new();
    let mut state = CompressState::new();
    // Three symbols, of which the end has the longest code: own codes pay.
    (literals[97], literals[98], distances[0]) = (4000, 50, 0);
    histogram.set(&literals, &distances);
    compress::codes_of(&histogram, &mut state);
    assert_eq!(state.literal_code(97), 1 << 15);
    assert_eq!((state.literal_code(98), state.literal_code(256)), (0b10 | 2 << 15, 0b11 | 2 << 15));
    assert_eq!(state.literal_code(99), 0);
    assert_eq!((state.accumulator()[0] & 7, state.accumulator_bits() > 40), (0b101, true));
    // Few bytes: the fixed codes are shorter than any header.
    (literals[97], literals[98], distances[4]) = (1, 1, 1);
    histogram.set(&literals, &distances);
    compress::codes_of(&histogram, &mut state);
    assert!(state == CompressState::fixed(true));
}
