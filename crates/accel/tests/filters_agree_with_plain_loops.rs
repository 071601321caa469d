//! Filters against loops over plain numbers: every operation, packing, width, order of bits, and compressed input.

#![allow(clippy::unwrap_used)]

mod jobs;

use jobs::{Buffer, Random, WHOLE_BLOCK, job, run, with_source2};
use ziptier_accel::aecs::{CompressState, FilterState};
use ziptier_accel::descriptor::{decompress, filter, operation};
use ziptier_accel::{Device, Opcode, Outcome, Status};

/// Packs numbers, from the low or the high bit of each byte.
fn pack(values: &[u32], width: u32, is_high: bool) -> Vec<u8> {
    let mut bytes = vec![0u8; (values.len() * width as usize).div_ceil(8)];
    let bits = values.iter().flat_map(|value| {
        (0..width).map(move |bit| value >> if is_high { width - 1 - bit } else { bit } & 1)
    });
    for (at, bit) in bits.enumerate() {
        bytes[at / 8] |= (bit as u8) << if is_high { 7 - at % 8 } else { at % 8 };
    }
    bytes
}

/// Parquet's runs: of each eight numbers a packed group, or a run if they are equal.
fn parquet(values: &[u32], width: u32) -> Vec<u8> {
    let mut bytes = vec![width as u8];
    for group in values.chunks(8) {
        if group.iter().all(|&value| value == group[0]) {
            bytes.push((group.len() as u8) << 1);
            bytes.extend_from_slice(&group[0].to_le_bytes()[..width.div_ceil(8) as usize]);
        } else {
            let mut full = group.to_vec();
            full.resize(8, 0);
            bytes.push(3);
            bytes.extend_from_slice(&pack(&full, width, false));
        }
    }
    bytes
}

struct Case {
    values: Vec<u32>,
    width: u32,
    parser: u32,
    output_width: u32,
    output_high: bool,
    inverts: bool,
    is_compressed: bool,
    source2_high: bool,
    low: u32,
    high: u32,
    drops: (u32, u32),
}

impl Case {
    fn random(random: &mut Random) -> Case {
        let width = 1 + random.below(32) as u32;
        let mask = (u64::MAX >> (64 - width)) as u32;
        let is_small = random.below(2) == 0;
        let mut values: Vec<u32> = (0..1 + random.below(300)).map(|_| random.next() as u32 & mask).collect();
        if is_small {
            values.iter_mut().for_each(|value| *value &= 3);
        }
        if random.below(3) == 0 {
            let first = values[0];
            values.iter_mut().take(40).for_each(|value| *value = first);
        }
        let pick =
            |random: &mut Random| if is_small { random.below(5) as u32 } else { random.next() as u32 & mask };
        let (a, b) = (pick(random), pick(random));
        let keep = 1 + random.below(width.min(15) as usize) as u32;
        let low = random.below((width - keep) as usize + 1) as u32;
        Case {
            width,
            parser: random.below(3) as u32,
            output_width: random.below(4) as u32,
            output_high: random.below(2) == 0,
            inverts: random.below(2) == 0,
            is_compressed: random.below(3) == 0,
            source2_high: random.below(2) == 0,
            low: a.min(b),
            high: a.max(b),
            drops: (low, width - keep - low),
            values,
        }
    }

    fn source1(&self, values: &[u32], width: u32, parser: u32) -> Vec<u8> {
        match parser {
            filter::PARSER_LITTLE_ENDIAN => pack(values, width, false),
            filter::PARSER_BIG_ENDIAN => pack(values, width, true),
            _ => parquet(values, width),
        }
    }

    fn flags(&self, width: u32, parser: u32) -> u32 {
        let stated = if parser == filter::PARSER_PARQUET_RLE { 0 } else { width - 1 };
        parser
            | stated << filter::SOURCE1_WIDTH_SHIFT
            | self.output_width << filter::OUTPUT_WIDTH_SHIFT
            | if self.output_high { filter::OUTPUT_BIG_ENDIAN } else { 0 }
    }

    /// Runs an operation; `source2` is the second input, or else the parameters are.
    fn run(
        &self,
        device: &dyn Device,
        opcode: Opcode,
        source1: &[u8],
        flags: u32,
        elements: usize,
        source2: Option<&[u8]>,
    ) -> (Outcome, Vec<u8>) {
        let packed;
        let mut kind = 0;
        let mut source1 = source1;
        if self.is_compressed {
            let state = CompressState::fixed(true);
            packed = jobs::compress(device, &state, source1, WHOLE_BLOCK, 2 * source1.len() + 64).unwrap();
            source1 = &packed;
            kind = decompress::WHOLE_STREAM;
        }
        let (mut source, mut target) = (Buffer::of(source1), Buffer::new(140_000));
        let mut second = Buffer::of(source2.unwrap_or(FilterState::range(self.low, self.high).as_bytes()));
        let reads =
            if source2.is_some() { operation::READ_SOURCE2_INPUT } else { operation::READ_SOURCE2_STATE };
        let mut descriptor = job(opcode, reads, &mut source, Some(&mut target));
        descriptor.set_filter_flags(flags).set_elements(elements as u32).set_kind_flags(kind);
        let bytes = second.bytes().len();
        let outcome = run(device, &with_source2(descriptor, &mut second, bytes));
        [&source, &target, &second].into_iter().for_each(Buffer::check);
        (outcome, target.bytes()[..outcome.output_bytes() as usize].to_vec())
    }

    /// Checks an array of these numbers, each of so many bits.
    fn check_array(&self, what: &str, (outcome, output): (Outcome, Vec<u8>), values: &[u32], width: u32) {
        let stated = [width, 8, 16, 32][self.output_width as usize];
        if values.iter().any(|&value| u64::from(value) >> stated != 0) {
            assert_eq!(outcome.error_number(), 21, "{what}: {outcome:?}");
            return;
        }
        assert_eq!(outcome.status(), Some(Status::Success), "{what}: {outcome:?}");
        assert_eq!(output, pack(values, stated, self.output_high), "{what}");
        assert_eq!(u32::from(outcome.output_bits()), values.len() as u32 * stated % 8, "{what}");
        let sum = values.iter().fold(0u32, |sum, value| sum.wrapping_add(*value));
        assert_eq!(outcome.sum(), sum, "{what}");
        if let (Some(&minimum), Some(&maximum)) = (values.iter().min(), values.iter().max()) {
            assert_eq!((outcome.minimum(), outcome.maximum()), (minimum, maximum), "{what}");
        }
    }

    /// Checks a vector of bits, or the list of its ones.
    fn check_bits(&self, what: &str, (outcome, output): (Outcome, Vec<u8>), bits: &[bool]) {
        let bits: Vec<u32> = bits.iter().map(|&bit| u32::from(bit != self.inverts)).collect();
        let ones: Vec<u32> = (0..).zip(&bits).filter(|(_, bit)| **bit == 1).map(|(index, _)| index).collect();
        if self.output_width == 1 && ones.last().is_some_and(|&last| last > 255) {
            assert_eq!(outcome.error_number(), 21, "{what}: {outcome:?}");
            return;
        }
        assert_eq!(outcome.status(), Some(Status::Success), "{what}: {outcome:?}");
        let expected = match self.output_width {
            0 => pack(&bits, 1, self.output_high),
            width => pack(&ones, 4 << width, self.output_high),
        };
        assert_eq!(output, expected, "{what}");
        assert_eq!(outcome.sum() as usize, ones.len(), "{what}");
        if let (Some(&first), Some(&last)) = (ones.first(), ones.last()) {
            assert_eq!((outcome.minimum(), outcome.maximum()), (first, last), "{what}");
        }
    }

    fn invert(&self) -> u32 {
        if self.inverts { filter::INVERT_OUTPUT } else { 0 }
    }

    fn scan_and_extract(&self, device: &dyn Device) {
        let source1 = self.source1(&self.values, self.width, self.parser);
        let (flags, elements) = (self.flags(self.width, self.parser), self.values.len());
        let result = self.run(device, Opcode::Scan, &source1, flags | self.invert(), elements, None);
        let bits: Vec<bool> =
            self.values.iter().map(|value| (self.low..=self.high).contains(value)).collect();
        self.check_bits("scan", result, &bits);
        if self.width > 1 {
            let result = self.run(device, Opcode::Extract, &source1, flags, elements, None);
            let in_range =
                (0..).zip(&self.values).filter(|(index, _)| (self.low..=self.high).contains(index));
            let values: Vec<u32> = in_range.map(|(_, value)| *value).collect();
            self.check_array("extract", result, &values, self.width);
        }
    }

    fn select_and_expand(&self, device: &dyn Device, random: &mut Random) {
        let mask: Vec<u32> = (0..self.values.len()).map(|_| random.below(2) as u32).collect();
        let second = pack(&mask, 1, self.source2_high);
        let order = if self.source2_high { filter::SOURCE2_BIG_ENDIAN } else { 0 };
        let source1 = self.source1(&self.values, self.width, self.parser);
        let (flags, elements) = (self.flags(self.width, self.parser) | order, self.values.len());
        if self.width == 1 && self.parser != filter::PARSER_PARQUET_RLE {
            let result =
                self.run(device, Opcode::Select, &source1, flags | self.invert(), elements, Some(&second));
            let kept = self.values.iter().zip(&mask).filter(|(_, bit)| **bit == 1);
            self.check_bits("select", result, &kept.map(|(value, _)| *value == 1).collect::<Vec<_>>());
            return;
        }
        let result = self.run(device, Opcode::Select, &source1, flags, elements, Some(&second));
        let kept = self.values.iter().zip(&mask).filter(|(_, bit)| **bit == 1);
        self.check_array("select", result, &kept.map(|(value, _)| *value).collect::<Vec<_>>(), self.width);
        let result = self.run(device, Opcode::Expand, &source1, flags, elements, Some(&second));
        let mut values = self.values.iter();
        let expanded: Vec<u32> =
            mask.iter().map(|&bit| if bit == 1 { *values.next().unwrap() } else { 0 }).collect();
        self.check_array("expand", result, &expanded, self.width);
    }

    fn sets(&self, device: &dyn Device, random: &mut Random) {
        let (low, high) = self.drops;
        let keys = 1usize << (self.width - low - high);
        let key = |value: u32| (value >> low) as usize & (keys - 1);
        let set: Vec<u32> = (0..keys).map(|_| random.below(2) as u32).collect();
        let second = pack(&set, 1, self.source2_high);
        let order = if self.source2_high { filter::SOURCE2_BIG_ENDIAN } else { 0 };
        let drops = low << filter::DROP_LOW_SHIFT | high << filter::DROP_HIGH_SHIFT | self.invert();
        let source1 = self.source1(&self.values, self.width, self.parser);
        let (flags, elements) = (self.flags(self.width, self.parser) | drops, self.values.len());
        let result =
            self.run(device, Opcode::SetMembership, &source1, flags | order, elements, Some(&second));
        let bits: Vec<bool> = self.values.iter().map(|&value| set[key(value)] == 1).collect();
        self.check_bits("set membership", result, &bits);
        let result = self.run(device, Opcode::FindUnique, &source1, flags, elements, None);
        let mut bits = vec![false; keys];
        self.values.iter().for_each(|&value| bits[key(value)] = true);
        self.check_bits("find unique", result, &bits);
    }

    fn bursts(&self, device: &dyn Device, random: &mut Random) {
        let counts: Vec<u32> = self.values.iter().take(100).map(|_| random.below(9) as u32).collect();
        let count_width = [8, 16, 32][random.below(3)];
        let parser = self.parser % 2;
        let source1 = self.source1(&counts, count_width, parser);
        let second = pack(&self.values[..counts.len()], self.width, self.source2_high);
        let order = if self.source2_high { filter::SOURCE2_BIG_ENDIAN } else { 0 };
        let flags = self.flags(count_width, parser) | order | (self.width - 1) << filter::SOURCE2_WIDTH_SHIFT;
        let result = self.run(device, Opcode::RleBurst, &source1, flags, counts.len(), Some(&second));
        let burst: Vec<u32> = counts
            .iter()
            .zip(&self.values)
            .flat_map(|(&count, &value)| std::iter::repeat_n(value, count as usize))
            .collect();
        self.check_array("burst", result, &burst, self.width);
    }
}

#[test]
fn every_operation_gives_what_a_loop_gives() {
    let device = jobs::model(1);
    let mut random = Random(11);
    for _ in 0..2_000 {
        let case = Case::random(&mut random);
        case.scan_and_extract(&device);
        case.select_and_expand(&device, &mut random);
        case.sets(&device, &mut random);
        case.bursts(&device, &mut random);
    }
}

#[test]
fn initial_bytes_are_dropped_and_indices_begin_where_they_should() {
    let device = jobs::model(2);
    let mut source = Buffer::of(&[9, 9, 9, 1, 2, 3, 2]);
    let mut target = Buffer::new(64);
    let mut state = FilterState::range(2, 2);
    state.set_drop_initial_bytes(3).set_output_index(1000);
    let mut state = Buffer::of(state.as_bytes());
    let mut descriptor = job(Opcode::Scan, operation::READ_SOURCE2_STATE, &mut source, Some(&mut target));
    let flags = 7 << filter::SOURCE1_WIDTH_SHIFT | 2 << filter::OUTPUT_WIDTH_SHIFT;
    descriptor.set_filter_flags(flags).set_elements(4);
    let outcome = run(&device, &with_source2(descriptor, &mut state, FilterState::BYTES));
    assert_eq!(outcome.status(), Some(Status::Success), "{outcome:?}");
    assert_eq!(target.bytes()[..4], [0xE9, 0x03, 0xEB, 0x03]);
    assert_eq!((outcome.minimum(), outcome.maximum(), outcome.sum()), (1, 3, 2));
    // Bits that are forced to be an array have a sum.
    let mut source = Buffer::of(&[0b1011]);
    let mut descriptor = job(Opcode::Extract, operation::READ_SOURCE2_STATE, &mut source, Some(&mut target));
    descriptor.set_filter_flags(filter::FORCE_ARRAY | 1 << filter::OUTPUT_WIDTH_SHIFT).set_elements(4);
    let mut state = Buffer::of(FilterState::range(0, 3).as_bytes());
    let outcome = run(&device, &with_source2(descriptor, &mut state, FilterState::BYTES));
    assert_eq!((outcome.status(), outcome.sum()), (Some(Status::Success), 3), "{outcome:?}");
    assert_eq!(target.bytes()[..4], [1, 1, 0, 1]);
}
