//! Any process that can write to the queue can send a descriptor. Whatever its bytes, the model must neither panic nor
//! touch memory that the descriptor does not name.

#![allow(clippy::unwrap_used)]

mod jobs;
#[path = "jobs/wild.rs"]
mod wild;

use jobs::Random;
use std::collections::BTreeMap;
use wild::Wild;
use ziptier_accel::aecs::{CompressState, DecompressState, FilterState};
use ziptier_accel::descriptor::{compress, decompress, operation};
use ziptier_accel::{Descriptor, Opcode, Status};

/// A descriptor that is mostly good, with a few changes.
fn descriptor(random: &mut Random, source1: &[u8]) -> Descriptor {
    let opcodes = &Opcode::ALL;
    let opcode = opcodes[random.below(opcodes.len())];
    let mut descriptor = Descriptor::new(opcode, 0);
    descriptor.set_source1_bytes(source1.len() as u32);
    let (reads, bytes) = match opcode {
        Opcode::Compress => (operation::READ_SOURCE2_STATE, CompressState::BYTES),
        Opcode::Decompress => (operation::READ_SOURCE2_STATE, DecompressState::BYTES),
        Opcode::Scan | Opcode::Extract => (operation::READ_SOURCE2_STATE, FilterState::BYTES),
        Opcode::Noop | Opcode::Drain | Opcode::MemMove | Opcode::Crc64 => (0, 0),
        _ => (operation::READ_SOURCE2_INPUT, 1 + random.below(600)),
    };
    let writes = if bytes > 1000 { (random.below(3) as u32) << 18 } else { 0 };
    let toggle = if writes != 0 && random.below(2) == 0 { operation::STATE_TOGGLE } else { 0 };
    descriptor.set_word(descriptor.word() | reads | writes | toggle);
    if bytes > 0 {
        descriptor.set_source2(2).set_source2_bytes(bytes as u32);
    }
    match opcode {
        Opcode::Noop | Opcode::Drain => _ = descriptor.set_source1_bytes(0),
        Opcode::MemMove => _ = descriptor.set_destination(1),
        Opcode::Crc64 => {
            _ = descriptor.set_polynomial(random.next()).set_kind_flags((random.next() as u16) & 0xC000)
        }
        Opcode::Compress => {
            _ = descriptor.set_kind_flags(random.next() as u16 & 0x3F | compress::FLUSH_OUTPUT);
        }
        Opcode::Decompress => {
            _ = descriptor.set_kind_flags(random.next() as u16 & 0x1FF | decompress::ENABLE)
        }
        _ => {
            let compressed = if random.below(3) == 0 { random.next() as u16 & 0x1F | 1 } else { 0 };
            descriptor.set_kind_flags(compressed).set_elements(1 + random.below(2000) as u32);
            descriptor.set_filter_flags(random.next() as u32 & 0x1FFFF & !0xF80);
        }
    }
    if !matches!(opcode, Opcode::Noop | Opcode::Drain | Opcode::MemMove | Opcode::Crc64) {
        descriptor.set_destination(1).set_destination_bytes_max(random.below(5000) as u32);
    }
    descriptor
}

/// A source: noise, a stream, or a stream with damage.
fn source1(random: &mut Random) -> Vec<u8> {
    let noise =
        |random: &mut Random| (0..random.below(300)).map(|_| random.next() as u8).collect::<Vec<u8>>();
    if random.below(2) == 0 {
        return noise(random);
    }
    let raw = random.block();
    let dictionary = ziptier_deflate::Dictionary::new(b"");
    let mut packed = Vec::new();
    let huffman = [ziptier_deflate::Huffman::Fixed, ziptier_deflate::Huffman::Dynamic][random.below(2)];
    ziptier_deflate::Encoder::new(&dictionary, ziptier_deflate::Level::Fast)
        .compress(huffman, &raw, &mut packed, 2 * raw.len() + 400)
        .unwrap();
    if random.below(2) == 0 {
        let at = random.below(packed.len());
        packed[at] ^= 1 << random.below(8);
    }
    packed
}

/// A state: of fixed codes, with a few bytes changed, or noise.
fn source2(random: &mut Random, opcode: u8) -> Vec<u8> {
    let lengths =
        (ziptier_accel::aecs::fixed_literal_lengths(), ziptier_accel::aecs::fixed_distance_lengths());
    let mut state = if opcode == Opcode::Compress as u8 {
        CompressState::fixed(true).as_bytes().to_vec()
    } else if opcode == Opcode::Decompress as u8 && random.below(2) == 0 {
        DecompressState::canned(&lengths.0, &lengths.1).unwrap().set_history(b"history").as_bytes().to_vec()
    } else if opcode == Opcode::Decompress as u8 {
        DecompressState::new().as_bytes().to_vec()
    } else {
        FilterState::range(1, 1000).as_bytes().to_vec()
    };
    state = state.repeat(2);
    for _ in 0..[0, 0, 1, 4, 5000][random.below(5)] {
        let at = random.below(state.len());
        state[at] = random.next() as u8;
    }
    state
}

#[test]
fn whatever_the_bytes_nothing_else_is_touched() {
    let devices = [jobs::model(1), jobs::model(2)];
    let mut random = Random(21);
    let mut ends = BTreeMap::new();
    let jobs = if cfg!(miri) { 5 } else { 60_000 };
    for number in 0..jobs {
        let source1 = source1(&mut random);
        let mut bytes = *descriptor(&mut random, &source1).as_bytes();
        for _ in 0..[0, 0, 1, 2, 60][random.below(5)] {
            bytes[random.below(64)] = random.next() as u8;
        }
        let source2 = source2(&mut random, bytes[7]);
        let wild = Wild { descriptor: bytes, source1: &source1, source2: &source2 };
        let outcome = wild.run(&devices[number % 2]);
        *ends.entry(outcome.as_bytes()[0]).or_insert(0u32) += 1;
    }
    // Not all jobs are refused at submission.
    let good = ends.get(&(Status::Success as u8)).copied().unwrap_or(0);
    assert!(cfg!(miri) || (good as usize > jobs / 20 && ends.len() > 5), "{ends:?}");
}
