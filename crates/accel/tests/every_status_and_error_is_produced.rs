//! Code that reads completion records must handle each status and each error. This test produces all of them: by a
//! descriptor or by data if the model can, by injection if only a real device could.

#![allow(clippy::unwrap_used)]

mod jobs;

use jobs::{Buffer, FLAGS, WHOLE_BLOCK, job, run, with_source2};
use std::collections::BTreeSet;
use ziptier_accel::aecs::{CompressState, DecompressState, FilterState, Parser};
use ziptier_accel::descriptor::{compress, decompress, filter, operation};
use ziptier_accel::{
    Descriptor, Device, ErrorCode, Injection, Misfortune, Model, ModelOptions, Opcode, Outcome, Status,
};

/// Statuses that no descriptor makes the model give: they come from the machine around a device.
const STATUSES_INJECTED: &[Status] = &[
    Status::PageRequestRefused,
    Status::Readback,
    Status::Hardware,
    Status::HardwareReadback,
    Status::Translation,
    Status::PageRequestTimeout,
    Status::Watchdog,
];

/// Errors that the model has no cause for: it does not do mini-blocks, verification and zero records.
const ERRORS_INJECTED: &[ErrorCode] = &[
    ErrorCode::LengthCrossesMiniBlock,
    ErrorCode::DistanceCrossesMiniBlock,
    ErrorCode::BadMiniBlockSize,
    ErrorCode::VerifyFailed,
    ErrorCode::ZeroRecordHeader,
];

/// Changes to a descriptor that is good.
type Change = fn(&mut Descriptor);

/// A good job of a kind, to be changed.
fn with_change(device: &dyn Device, opcode: Opcode, change: Change) -> Outcome {
    let mut source = Buffer::of(&[1; 64]);
    let (mut target, mut states) = (Buffer::new(128), Buffer::new(2 * DecompressState::BYTES));
    states.bytes_mut()[..CompressState::BYTES].copy_from_slice(CompressState::fixed(true).as_bytes());
    let mut descriptor = match opcode {
        Opcode::Noop => Descriptor::new(opcode, FLAGS),
        Opcode::MemMove => {
            let mut descriptor = job(opcode, 0, &mut source, Some(&mut target));
            descriptor.set_destination_bytes_max(0);
            descriptor
        }
        Opcode::Compress => {
            let descriptor = job(opcode, operation::READ_SOURCE2_STATE, &mut source, Some(&mut target));
            with_source2(descriptor, &mut states, CompressState::BYTES)
        }
        Opcode::Scan => {
            let descriptor = job(opcode, operation::READ_SOURCE2_STATE, &mut source, Some(&mut target));
            with_source2(descriptor, &mut states, FilterState::BYTES)
        }
        _ => job(opcode, 0, &mut source, Some(&mut target)),
    };
    match opcode {
        Opcode::Compress => _ = descriptor.set_kind_flags(WHOLE_BLOCK),
        Opcode::Decompress => _ = descriptor.set_kind_flags(decompress::WHOLE_STREAM),
        Opcode::Scan => _ = descriptor.set_filter_flags(7 << filter::SOURCE1_WIDTH_SHIFT).set_elements(64),
        _ => {}
    }
    change(&mut descriptor);
    let outcome = run(device, &descriptor);
    [&source, &target, &states].into_iter().for_each(Buffer::check);
    outcome
}

fn set_flag(descriptor: &mut Descriptor, flags: u32) {
    descriptor.set_word(descriptor.word() | flags);
}

#[test]
fn good_jobs_succeed() {
    let device = jobs::model(1);
    for opcode in [Opcode::Noop, Opcode::MemMove, Opcode::Compress, Opcode::Scan] {
        let outcome = with_change(&device, opcode, |_| {});
        assert_eq!(outcome.status(), Some(Status::Success), "{opcode:?} {outcome:?}");
    }
}

#[test]
fn descriptors_get_the_status_that_they_deserve() {
    let device = jobs::model(1);
    let cases: &[(Status, Opcode, Change)] = &[
        (Status::BadOpcode, Opcode::Noop, |d| _ = d.set_word(0x4500_000C)),
        (Status::BadOpcode, Opcode::ZeroCompress16, |_| {}),
        (Status::BadFlags, Opcode::Compress, |d| set_flag(d, 0x80)),
        (Status::BadFlags, Opcode::Compress, |d| set_flag(d, operation::STATE_TOGGLE)),
        (Status::BadFlags, Opcode::Compress, |d| set_flag(d, operation::WRITE_SOURCE2_ON_OVERFLOW)),
        (Status::BadFlags, Opcode::Decompress, |d| set_flag(d, operation::READ_SOURCE2_INPUT)),
        (Status::BadFlags, Opcode::Scan, |d| _ = d.set_word(0x5000_000C)),
        (Status::BadFlags, Opcode::Select, |d| _ = d.set_elements(8)),
        (Status::TrafficClass, Opcode::Noop, |d| set_flag(d, 0x200)),
        (Status::Privilege, Opcode::Noop, |d| _ = d.set_address_space(1 << 31)),
        (Status::ReservedNotZero, Opcode::Noop, |d| _ = d.set_address_space(1 << 20)),
        (Status::ReservedNotZero, Opcode::Noop, |d| _ = d.set_elements(1)),
        (Status::ReservedNotZero, Opcode::MemMove, |d| _ = d.set_kind_flags(1)),
        (Status::ReservedNotZero, Opcode::Compress, |d| _ = d.set_elements(1)),
        (Status::ReservedNotZero, Opcode::Decompress, |d| _ = d.set_filter_flags(1)),
        (Status::ReservedNotZero, Opcode::Compress, |d| _ = d.set_interrupt(1)),
        (Status::BadInterruptHandle, Opcode::Noop, |d| {
            set_flag(d, operation::REQUEST_INTERRUPT);
            d.set_interrupt(9);
        }),
        (Status::BadSize, Opcode::Compress, |d| _ = d.set_source1_bytes(0)),
        (Status::BadSize, Opcode::Compress, |d| _ = d.set_source1_bytes((2 << 20) + 1)),
        (Status::BadSize, Opcode::Compress, |d| _ = d.set_destination_bytes_max(0)),
        (Status::BadSize, Opcode::Compress, |d| _ = d.set_destination_bytes_max(u32::MAX)),
        (Status::BadSize, Opcode::Compress, |d| _ = d.set_source2_bytes(0x600)),
        (Status::BadSize, Opcode::Compress, |d| _ = d.set_kind_flags(compress::STATISTICS)),
        (Status::BadSize, Opcode::Scan, |d| _ = d.set_source2_bytes(32 + 1)),
        (Status::StateMisaligned, Opcode::Compress, |d| _ = d.set_source2(d.source2() + 16)),
        (Status::Overlap, Opcode::Compress, |d| _ = d.set_destination(d.source1() + 63)),
        (Status::Overlap, Opcode::Compress, |d| _ = d.set_destination(d.source2() + 0x61F)),
        (Status::Overlap, Opcode::Compress, |d| _ = d.set_destination(d.source1() - 127)),
        (Status::PageFault, Opcode::Compress, |d| _ = d.set_source1(64)),
        (Status::PageFault, Opcode::Compress, |d| _ = d.set_destination(u64::MAX - 9)),
        (Status::BadCodingFlags, Opcode::Compress, |d| _ = d.set_kind_flags(WHOLE_BLOCK | 1 << 6)),
        (Status::BadCodingFlags, Opcode::Compress, |d| _ = d.set_kind_flags(WHOLE_BLOCK | 1 << 9)),
        (Status::BadCodingFlags, Opcode::Compress, |d| _ = d.set_kind_flags(WHOLE_BLOCK | 2 << 12)),
        (Status::BadCodingFlags, Opcode::Compress, |d| _ = d.set_kind_flags(compress::APPEND_STORED)),
        (Status::BadCodingFlags, Opcode::Compress, |d| _ = d.set_filter_flags(4)),
        (Status::BadCodingFlags, Opcode::Decompress, |d| _ = d.set_kind_flags(0)),
        (Status::BadCodingFlags, Opcode::Decompress, |d| _ = d.set_kind_flags(1 | 1 << 10)),
        (Status::BadCodingFlags, Opcode::Scan, |d| _ = d.set_kind_flags(decompress::SUPPRESS_OUTPUT)),
        (Status::BadCodingFlags, Opcode::Crc64, |d| _ = d.set_destination(0).set_destination_bytes_max(0)),
        (Status::BadInputSize, Opcode::Decompress, |d| {
            _ = d.set_kind_flags(1 | decompress::BIG_ENDIAN_16).set_source1_bytes(63);
        }),
        (Status::BadFilterFlags, Opcode::Scan, |d| _ = d.set_filter_flags(3)),
        (Status::BadFilterFlags, Opcode::Scan, |d| _ = d.set_filter_flags(1 << filter::DROP_LOW_SHIFT)),
        (Status::BadFilterFlags, Opcode::Scan, |d| _ = d.set_filter_flags(filter::FORCE_ARRAY)),
        (Status::NoElements, Opcode::Scan, |d| _ = d.set_elements(0)),
        (Status::BadWidth, Opcode::Scan, |d| _ = d.set_filter_flags(filter::PARSER_PARQUET_RLE | 4)),
        (Status::InvertsNoBits, Opcode::Extract, |d| {
            set_flag(d, operation::READ_SOURCE2_STATE);
            d.set_source2(d.source1() + 64 * 1024).set_source2_bytes(32);
            d.set_filter_flags(filter::INVERT_OUTPUT | 7 << filter::SOURCE1_WIDTH_SHIFT).set_elements(1);
        }),
    ];
    for (number, &(status, opcode, change)) in cases.iter().enumerate() {
        let outcome = with_change(&device, opcode, change);
        assert_eq!(outcome.status(), Some(status), "case {number}: {opcode:?} {outcome:?}");
    }
    let mut seen: BTreeSet<u8> = cases.iter().map(|case| case.0 as u8).collect();
    seen.extend([Status::Success, Status::Analytics, Status::OutputOverflow].map(|status| status as u8));
    // Told elsewhere, since the record cannot be written.
    seen.extend([Status::CompletionMisaligned, Status::CompletionUnreachable].map(|status| status as u8));
    let missing = Status::ALL.iter().filter(|&&status| !seen.contains(&(status as u8)));
    assert_eq!(missing.copied().collect::<Vec<_>>(), STATUSES_INJECTED);
}

#[test]
fn a_job_without_a_usable_record_is_told_in_the_log() {
    let device = jobs::model(1);
    for (address, status) in [(0x1001, Status::CompletionMisaligned), (0x40, Status::CompletionUnreachable)] {
        let mut descriptor = Descriptor::new(Opcode::Noop, FLAGS);
        descriptor.set_completion(address);
        // SAFETY: a job that is refused names no memory that is touched.
        unsafe { device.submit(&descriptor) }.unwrap();
        let errors = device.take_errors();
        assert_eq!((errors.len(), errors[0].1.status()), (1, Some(status)));
        assert!(errors[0].0 == descriptor);
    }
}

#[test]
fn what_only_a_machine_can_do_is_injected() {
    let options = ModelOptions { is_synchronous: true, ..ModelOptions::default() };
    let statuses = STATUSES_INJECTED.iter().map(|&status| Misfortune::Status(status));
    let errors = ERRORS_INJECTED.iter().map(|&error| Misfortune::Error(error));
    let plan: Vec<(u64, Misfortune)> = (0..).zip(statuses.chain(errors)).collect();
    let device =
        Model::with_injection(&options, Injection { plan: plan.clone(), ..Injection::default() }).unwrap();
    for (_, misfortune) in plan {
        let outcome = run(&device, &Descriptor::new(Opcode::Noop, FLAGS));
        match misfortune {
            Misfortune::Status(status) => assert_eq!(outcome.status(), Some(status)),
            Misfortune::Error(error) => {
                assert_eq!((outcome.status(), outcome.error_code()), (Some(Status::Analytics), Some(error)));
            }
            _ => unreachable!(),
        }
    }
}

/// Bits as a stream has them: numbers from their lowest bit, codes from their highest.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    bits: usize,
}

impl Stream {
    fn bit(&mut self, bit: u32) {
        if self.bits.is_multiple_of(8) {
            self.bytes.push(0);
        }
        self.bytes[self.bits / 8] |= (bit as u8) << (self.bits % 8);
        self.bits += 1;
    }

    fn number(mut self, value: u32, bits: u32) -> Stream {
        (0..bits).for_each(|bit| self.bit(value >> bit & 1));
        self
    }

    fn code(mut self, code: u32, bits: u32) -> Stream {
        (0..bits).rev().for_each(|bit| self.bit(code >> bit & 1));
        self
    }

    /// A header up to the code lengths, with the code 0 for symbol 0, 10 for 1, 110 for 16, 1110 for 17, 1111 for 18.
    fn header(literals: u32, distances: u32) -> Stream {
        let counts = Stream::default().number(0b101, 3).number(literals - 257, 5).number(distances - 1, 5);
        // Of 16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1.
        let lengths = [3, 4, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
        lengths.into_iter().fold(counts.number(14, 4), |stream, length| stream.number(length, 3))
    }

    fn zero(self) -> Stream {
        self.code(0, 1)
    }

    fn one(self) -> Stream {
        self.code(0b10, 2)
    }

    fn zeros(self, times: u32) -> Stream {
        if times <= 10 {
            self.code(0b1110, 4).number(times - 3, 3)
        } else {
            self.code(0b1111, 4).number(times - 11, 7)
        }
    }

    fn repeat(self, times: u32) -> Stream {
        self.code(0b110, 3).number(times - 3, 2)
    }

    /// Lengths of 257 literals, of which only the end of the block has a code.
    fn end_only(self) -> Stream {
        self.zeros(138).zeros(118).one()
    }

    fn pad(mut self, bytes: usize) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + bytes, 0);
        self.bytes
    }
}

fn fixed() -> Stream {
    Stream::default().number(0b011, 3)
}

#[test]
fn streams_get_the_error_that_they_deserve() {
    let device = jobs::model(1);
    let raw_header = |cl: [u32; 4]| {
        let counts = Stream::default().number(0b101, 3).number(0, 14);
        cl.into_iter().fold(counts, |stream, length| stream.number(length, 3))
    };
    let cases: Vec<(ErrorCode, Vec<u8>)> = vec![
        // Two codes of three bits leave others undefined.
        (ErrorCode::BadCodeLengthCode, raw_header([3, 3, 0, 0]).number(0b111, 3).pad(9)),
        (ErrorCode::FirstLiteralRepeats, Stream::header(257, 1).repeat(3).pad(9)),
        (ErrorCode::FirstDistanceRepeats, Stream::header(257, 4).end_only().repeat(3).pad(9)),
        (ErrorCode::NoLiteralCodes, Stream::header(257, 1).zeros(138).zeros(119).zero().pad(9)),
        (ErrorCode::WrongLiteralCount, Stream::header(257, 1).zeros(138).zeros(120).pad(9)),
        (ErrorCode::WrongDistanceCount, Stream::header(257, 2).end_only().zeros(3).pad(9)),
        (ErrorCode::CodeLengthsOverSubscribed, raw_header([1, 1, 1, 0]).pad(9)),
        (
            ErrorCode::LiteralsOverSubscribed,
            Stream::header(257, 1).one().one().zeros(138).zeros(116).one().zero().pad(9),
        ),
        (ErrorCode::DistancesOverSubscribed, Stream::header(257, 3).end_only().one().one().one().pad(9)),
        (ErrorCode::UndefinedLiteral, Stream::header(257, 1).end_only().zero().code(1, 1).pad(9)),
        // Length 3 has a code, no distance has one.
        (
            ErrorCode::UndefinedDistance,
            Stream::header(258, 1).zeros(138).zeros(118).one().one().zero().code(1, 1).pad(9),
        ),
        (ErrorCode::BlockType, Stream::default().number(0b111, 3).pad(9)),
        (ErrorCode::StoredLength, Stream::default().number(0b001, 8).number(5, 16).number(5, 16).pad(9)),
        (ErrorCode::NoEndOfBlock, fixed().code(0x30, 8).bytes),
        (ErrorCode::NoEndOfBlock, Stream::header(257, 1).bytes),
        // Symbol 286 has a code, but means nothing.
        (ErrorCode::BadLength, fixed().code(0xC6, 8).pad(9)),
        // Distance symbol 24 is 4097 and more.
        (ErrorCode::BadDistance, fixed().code(1, 7).code(24, 5).pad(9)),
        (ErrorCode::BadDistance, fixed().code(1, 7).code(30, 5).pad(9)),
        (ErrorCode::BeforeStart, fixed().code(1, 7).code(0, 5).pad(9)),
        (ErrorCode::TooManyLiterals, Stream::default().number(0b101, 3).number(30, 5).pad(9)),
        (ErrorCode::TooManyDistances, Stream::default().number(0b101, 3).number(0, 5).number(30, 5).pad(9)),
    ];
    for (number, (error, packed)) in cases.iter().enumerate() {
        let outcome = jobs::decompress(&device, None, packed, 100).unwrap_err();
        assert_eq!(outcome.status(), Some(Status::Analytics), "case {number}: {outcome:?}");
        assert_eq!(outcome.error_code(), Some(*error), "case {number}: {outcome:?}");
    }
    let overflow = fixed().code(0x30, 8).code(0x31, 8).code(0, 7).pad(0);
    let outcome = jobs::decompress(&device, None, &overflow, 1).unwrap_err();
    assert_eq!((outcome.status(), outcome.output_bytes()), (Some(Status::OutputOverflow), 1));

    let mut seen: BTreeSet<u8> = cases.iter().map(|(error, _)| *error as u8).collect();
    seen.extend(ERRORS_INJECTED.iter().map(|&error| error as u8));
    seen.extend(ERRORS_OF_JOBS.iter().map(|&error| error as u8));
    assert_eq!(seen, ErrorCode::ALL.iter().map(|&error| error as u8).collect());
}

/// The errors of the next two tests.
const ERRORS_OF_JOBS: &[ErrorCode] = &[
    ErrorCode::HeaderTooLarge,
    ErrorCode::NoProgress,
    ErrorCode::BadState,
    ErrorCode::NoCodeForSymbol,
    ErrorCode::UnrecoverableOverflow,
    ErrorCode::ParquetFormat,
    ErrorCode::ParquetWidth,
    ErrorCode::OutputTooNarrow,
    ErrorCode::Source1TooShort,
    ErrorCode::Source2TooShort,
    ErrorCode::TooFewElements,
];

#[test]
fn states_get_the_error_that_they_deserve() {
    let device = jobs::model(1);
    let error = |state: &DecompressState, packed: &[u8]| {
        jobs::decompress(&device, Some(state), packed, 100).unwrap_err().error_code()
    };
    let mut state = DecompressState::new();
    state.set_parser(Parser::Ended);
    assert_eq!(error(&state, &[0; 9]), Some(ErrorCode::NoProgress));
    let mut state = DecompressState::new();
    state.as_mut_bytes()[0x434] = 3;
    assert_eq!(error(&state, &[0; 9]), Some(ErrorCode::BadState));
    let mut state = DecompressState::new();
    state.as_mut_bytes()[0x1B8] = 65;
    assert_eq!(error(&state, &[0; 9]), Some(ErrorCode::BadState));
    let mut state = DecompressState::canned(&[1, 1], &[]).unwrap();
    state.as_mut_bytes()[0x328] = 1;
    assert_eq!(error(&state, &[0; 9]), Some(ErrorCode::BadState));
    // A header of more than 256 bytes whose end has not come: all code lengths take seven bits.
    let counts = Stream::default().number(0b101, 3).number(29, 5).number(29, 5).number(15, 4);
    let header = (0..19).fold(counts, |stream, _| stream.number(7, 3));
    let header = (0..314).fold(header, |stream, _| stream.code(0, 7)).bytes;
    let outcome = jobs::decompress_with(&device, None, &header, decompress::ENABLE, 100).unwrap_err();
    assert_eq!(outcome.error_code(), Some(ErrorCode::HeaderTooLarge));

    let mut codes = CompressState::fixed(true);
    codes.set_literal_code(65, 0);
    let error = |state: &CompressState, bytes_max| {
        jobs::compress(&device, state, b"ABC", WHOLE_BLOCK, bytes_max).unwrap_err().error_code()
    };
    assert_eq!(error(&codes, 100), Some(ErrorCode::NoCodeForSymbol));
    assert_eq!(error(&CompressState::fixed(true), 4), Some(ErrorCode::UnrecoverableOverflow));
    codes.set_accumulator_bits(2049);
    assert_eq!(error(&codes, 100), Some(ErrorCode::BadState));
}

#[test]
fn filters_get_the_error_that_they_deserve() {
    let device = jobs::model(1);
    let width = |bits: u32| (bits - 1) << filter::SOURCE1_WIDTH_SHIFT;
    let narrow = 1 << filter::OUTPUT_WIDTH_SHIFT;
    let prle = filter::PARSER_PARQUET_RLE;
    let packed = fixed().code(0x30, 8).code(0, 7).bytes;
    type Case<'a> = (ErrorCode, Opcode, &'a [u8], &'a [u8], u32, u32, u16);
    let cases: &[Case<'_>] = &[
        (ErrorCode::Source1TooShort, Opcode::Extract, &[1, 2], &[], width(8), 3, 0),
        (ErrorCode::TooFewElements, Opcode::Extract, &packed, &[], width(8), 3, decompress::WHOLE_STREAM),
        (ErrorCode::TooFewElements, Opcode::Extract, &[8, 4, 1], &[], prle, 3, 0),
        (ErrorCode::ParquetFormat, Opcode::Extract, &[8, 4], &[], prle, 3, 0),
        (ErrorCode::ParquetWidth, Opcode::Extract, &[33, 4, 1], &[], prle, 3, 0),
        (ErrorCode::OutputTooNarrow, Opcode::Extract, &[0, 1], &[], width(16) | narrow, 1, 0),
        (ErrorCode::Source2TooShort, Opcode::Select, &[0; 9], &[1], width(8), 9, 0),
        (ErrorCode::UnrecoverableOverflow, Opcode::RleBurst, &[255; 9], &[1; 9], width(8), 9, 0),
    ];
    for (number, &(error, opcode, source1, source2, flags, elements, kind)) in cases.iter().enumerate() {
        let (mut source, mut target) = (Buffer::of(source1), Buffer::new(64));
        let is_input = !source2.is_empty();
        let mut second =
            if is_input { Buffer::of(source2) } else { Buffer::of(FilterState::range(0, 9).as_bytes()) };
        let reads = if is_input { operation::READ_SOURCE2_INPUT } else { operation::READ_SOURCE2_STATE };
        let mut descriptor = job(opcode, reads, &mut source, Some(&mut target));
        descriptor.set_filter_flags(flags).set_elements(elements).set_kind_flags(kind);
        let bytes = second.bytes().len();
        let outcome = run(&device, &with_source2(descriptor, &mut second, bytes));
        target.check();
        assert_eq!(outcome.error_code(), Some(error), "case {number}: {outcome:?}");
    }
}
