//! A block that a device packed must come back from every other engine, and the reverse. A block written with a device
//! today may be read without one tomorrow.

#![allow(clippy::unwrap_used)]

#[path = "jobs/blocks.rs"]
mod blocks;
mod jobs;
#[path = "../../deflate/tests/zlib/mod.rs"]
mod zlib;

use blocks::Engines;
use jobs::{Buffer, Random, WHOLE_BLOCK, job, run, with_source2};
use ziptier_accel::aecs::{CompressState, DecompressState};
use ziptier_accel::descriptor::{compress, compress2, decompress, operation};
use ziptier_accel::{ErrorCode, Opcode, Status};

#[test]
fn blocks_cross_in_every_direction() {
    let (engines, device) = (Engines::new(), jobs::model(1));
    let mut random = Random(1);
    for _ in 0..3_000 {
        let raw = random.block();
        engines.check(&device, &raw, |packed| {
            assert!(zlib::inflate(packed, b"", raw.len()).as_deref() == Some(&raw[..]));
        });
        for (level, strategy) in [(1, 0), (9, 0), (6, 4)] {
            let packed = zlib::deflate(&raw, b"", level, strategy);
            assert!(jobs::decompress(&device, None, &packed, raw.len()).as_deref() == Ok(&raw[..]));
        }
    }
}

#[test]
fn streams_with_history_come_from_zlib() {
    let device = jobs::model(1);
    let mut random = Random(2);
    for _ in 0..500 {
        let (history, raw) = (random.block(), random.block());
        let packed = zlib::deflate(&raw, &history, 9, 0);
        let mut state = DecompressState::new();
        state.set_history(&history);
        assert!(jobs::decompress(&device, Some(&state), &packed, raw.len()).as_deref() == Ok(&raw[..]));
    }
}

/// Appends what a job put out.
fn appended(out: &mut Vec<u8>, target: &Buffer, bytes: u32) {
    target.check();
    out.extend_from_slice(&target.bytes()[..bytes as usize]);
}

#[test]
fn a_block_is_compressed_chunk_by_chunk() {
    let device = jobs::model(1);
    let mut random = Random(3);
    for round in 0..300 {
        let raw = [random.block(), random.block(), random.block()].concat();
        let mut states = Buffer::new(2 * CompressState::BYTES);
        states.bytes_mut()[..CompressState::BYTES].copy_from_slice(CompressState::fixed(true).as_bytes());
        let (mut packed, mut crc) = (Vec::new(), 0);
        let chunks: Vec<&[u8]> = raw.chunks(1 + raw.len() / (1 + round % 5)).collect();
        for (number, chunk) in chunks.iter().enumerate() {
            let toggle = if number % 2 == 1 { operation::STATE_TOGGLE } else { 0 };
            let is_last = number + 1 == chunks.len();
            let (mut source, mut target) = (Buffer::of(chunk), Buffer::new(2 * chunk.len() + 64));
            let flags = operation::READ_SOURCE2_STATE | operation::WRITE_SOURCE2_ALWAYS | toggle;
            let mut descriptor = job(Opcode::Compress, flags, &mut source, Some(&mut target));
            descriptor.set_kind_flags(if is_last { WHOLE_BLOCK } else { 0 });
            let outcome = run(&device, &with_source2(descriptor, &mut states, CompressState::BYTES));
            assert_eq!(outcome.status(), Some(Status::Success), "{outcome:?}");
            states.check();
            crc = outcome.crc32();
            appended(&mut packed, &target, outcome.output_bytes());
        }
        assert!(zlib::inflate(&packed, b"", raw.len()).as_deref() == Some(&raw[..]));
        let whole =
            jobs::compress(&device, &CompressState::fixed(true), &raw, WHOLE_BLOCK, 2 * raw.len() + 64);
        assert!(jobs::decompress(&device, None, &whole.unwrap(), raw.len()).is_ok());
        assert_eq!(crc, libz_crc(&raw));
    }
}

fn libz_crc(raw: &[u8]) -> u32 {
    // SAFETY: the bytes are valid for their length.
    unsafe { libz_sys::crc32(0, raw.as_ptr(), raw.len() as u32) as u32 }
}

#[test]
fn a_stream_is_decompressed_piece_by_piece() {
    let device = jobs::model(1);
    let mut random = Random(4);
    for round in 0..400usize {
        let raw = [random.block(), random.block(), random.block(), random.block()].concat();
        let packed = match round % 4 {
            0 => zlib::deflate(&raw, b"", 9, 4),
            1 => zlib::deflate(&raw, b"", 0, 0),
            _ => zlib::deflate(&raw, b"", 6, 0),
        };
        let mut states = Buffer::new(2 * DecompressState::BYTES);
        let (mut out, mut at, mut crc, mut xor) = (Vec::new(), 0, 0, 0);
        let mut number = 0;
        let mut is_over = false;
        while !is_over {
            let rest = &packed[at..packed.len().min(at + 1 + random.below(2000))];
            let is_last = at + rest.len() == packed.len();
            let (mut source, mut target) = (Buffer::of(rest), Buffer::new(1 + random.below(3000)));
            let reads = if number > 0 { operation::READ_SOURCE2_STATE } else { 0 };
            let toggle = if number % 2 == 1 { operation::STATE_TOGGLE } else { 0 };
            let flags = reads | operation::WRITE_SOURCE2_ALWAYS | toggle;
            let mut descriptor = job(Opcode::Decompress, flags, &mut source, Some(&mut target));
            let end = if is_last { decompress::WHOLE_STREAM } else { decompress::ENABLE };
            descriptor.set_kind_flags(
                end | decompress::STOP_ON_END_OF_BLOCK | decompress::SELECT_FINAL_END_OF_BLOCK,
            );
            let outcome = run(&device, &with_source2(descriptor, &mut states, DecompressState::BYTES));
            states.check();
            let status = outcome.status();
            assert!(matches!(status, Some(Status::Success | Status::OutputOverflow)), "{outcome:?}");
            appended(&mut out, &target, outcome.output_bytes());
            at += outcome.source1_bytes() as usize;
            (crc, xor) = (outcome.crc32(), outcome.xor());
            is_over = is_last && status == Some(Status::Success);
            number += 1;
        }
        assert!(out == raw, "round {round}");
        assert_eq!(crc, libz_crc(&raw));
        let words = raw.chunks(2).fold(0, |xor, pair| {
            xor ^ u16::from(pair[0]) ^ pair.get(1).map_or(0, |&high| u16::from(high) << 8)
        });
        // Pieces of an odd length begin words of their own.
        assert!(number > 1 || xor == words);
    }
}

#[test]
fn generation_2_makes_headers_itself() {
    let device = jobs::model(2);
    let mut random = Random(5);
    for _ in 0..300 {
        let raw = random.block();
        let bytes_max = 2 * raw.len() + 400;
        if raw.len() <= 4096 {
            let (mut source, mut target) = (Buffer::of(&raw), Buffer::new(bytes_max));
            let mut descriptor = job(Opcode::Compress, 0, &mut source, Some(&mut target));
            descriptor.set_kind_flags(WHOLE_BLOCK | compress::HEADER_ONE_PASS_FINAL);
            let outcome = run(&device, &descriptor);
            assert_eq!(outcome.status(), Some(Status::Success), "{outcome:?}");
            let packed = &target.bytes()[..outcome.output_bytes() as usize];
            assert!(zlib::inflate(packed, b"", raw.len()).as_deref() == Some(&raw[..]));
        }
        let mut states = Buffer::new(2 * CompressState::BYTES);
        let mut source = Buffer::of(&raw);
        let mut descriptor = job(Opcode::Compress, operation::WRITE_SOURCE2_ALWAYS, &mut source, None);
        descriptor.set_kind_flags(
            compress::STATISTICS | compress::APPEND_END_OF_BLOCK | compress::HEADER_TWO_PASS_FINAL,
        );
        descriptor.set_filter_flags(compress2::WRITE_HUFFMAN_TABLES);
        let outcome = run(&device, &with_source2(descriptor, &mut states, CompressState::BYTES));
        assert_eq!(outcome.status(), Some(Status::Success), "{outcome:?}");
        states.check();
        let state = CompressState::from_bytes(states.bytes()[CompressState::BYTES..].try_into().unwrap());
        let packed = jobs::compress(&device, &state, &raw, WHOLE_BLOCK, bytes_max).unwrap();
        assert!(zlib::inflate(&packed, b"", raw.len()).as_deref() == Some(&raw[..]));
    }
}

#[test]
fn literals_stored_appends_and_swapped_words() {
    let device = jobs::model(1);
    let raw = b"some bytes, some bytes, some bytes, some bytes";
    let state = CompressState::fixed(false);
    let literals = WHOLE_BLOCK | compress::LITERALS_ONLY;
    let packed = jobs::compress(&device, &CompressState::fixed(true), raw, literals, 100).unwrap();
    assert!(packed.len() > 46 && zlib::inflate(&packed, b"", 100).as_deref() == Some(raw));
    for (append, is_final) in [(compress::APPEND_STORED, false), (compress::APPEND_FINAL_STORED, true)] {
        let mut packed = jobs::compress(&device, &state, raw, compress::FLUSH_OUTPUT | append, 100).unwrap();
        assert!(packed.ends_with(&[0, 0, 0xFF, 0xFF]));
        if !is_final {
            packed.extend_from_slice(&[3, 0]);
        }
        assert!(zlib::inflate(&packed, b"", 100).as_deref() == Some(raw));
    }
    let swapped = WHOLE_BLOCK | compress::BIG_ENDIAN_16;
    let mut packed = jobs::compress(&device, &CompressState::fixed(true), raw, swapped, 100).unwrap();
    assert_eq!(packed.len() % 2, 0);
    let flags = decompress::WHOLE_STREAM | decompress::BIG_ENDIAN_16;
    assert_eq!(jobs::decompress_with(&device, None, &packed, flags, 100).as_deref(), Ok(&raw[..]));
    packed.chunks_mut(2).for_each(|pair| pair.swap(0, 1));
    assert_eq!(jobs::decompress(&device, None, &packed, 100).as_deref(), Ok(&raw[..]));
}

#[test]
fn a_header_parsed_once_serves_many_blocks() {
    let device = jobs::model(1);
    let engines = Engines::new();
    let codes = engines.dictionary.codes().unwrap();
    let (header, bits) = codes.header();
    let (mut source, mut states) = (Buffer::of(&header), Buffer::new(2 * DecompressState::BYTES));
    let mut descriptor = job(Opcode::Decompress, operation::WRITE_SOURCE2_ALWAYS, &mut source, None);
    let ignored = (8 * header.len() - bits) as u16;
    descriptor.set_kind_flags(
        decompress::ENABLE | decompress::SUPPRESS_OUTPUT | ignored << decompress::IGNORE_END_BITS_SHIFT,
    );
    let outcome = run(&device, &with_source2(descriptor, &mut states, DecompressState::BYTES));
    assert_eq!((outcome.status(), outcome.output_bytes()), (Some(Status::Success), 0), "{outcome:?}");
    let state = DecompressState::from_bytes(states.bytes()[DecompressState::BYTES..].try_into().unwrap());
    let compressing = CompressState::canned(codes.literals(), codes.distances()).unwrap();
    let mut random = Random(6);
    for _ in 0..50 {
        let raw = random.block();
        let packed = jobs::compress(&device, &compressing, &raw, WHOLE_BLOCK, 2 * raw.len() + 400).unwrap();
        assert!(jobs::decompress(&device, Some(&state), &packed, raw.len()).as_deref() == Ok(&raw[..]));
    }
}

#[test]
fn damaged_streams_end_like_zlibs_or_are_refused() {
    let device = jobs::model(1);
    let mut random = Random(8);
    let (mut same, mut refused) = (0, 0);
    for _ in 0..3_000 {
        let raw = random.block();
        let mut packed = zlib::deflate(&raw, b"", 6, 0);
        let at = random.below(packed.len());
        packed[at] ^= 1 << random.below(8);
        let bytes_max = 2 * raw.len() + 100;
        let ours = jobs::decompress(&device, None, &packed, bytes_max);
        // The device does not say where a stream ended, and takes codes that are not complete.
        match (zlib::inflate(&packed, b"", bytes_max), ours) {
            (Some(theirs), Ok(ours)) => {
                assert!(theirs == ours);
                same += 1;
            }
            (Some(_), Err(error)) => {
                let crosses = [ErrorCode::WrongLiteralCount, ErrorCode::FirstDistanceRepeats];
                assert!(error.error_code().is_some_and(|error| crosses.contains(&error)), "{error:?}");
            }
            _ => refused += 1,
        }
    }
    assert!(same > 100 && refused > 100, "{same} {refused}");
}
