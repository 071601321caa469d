//! A device must understand the driver's descriptors. Every operation runs on the model, which is written from the
//! interface and not from the driver.

#![allow(clippy::unwrap_used)]

mod numbers;

use std::ptr::with_exposed_provenance_mut;
use std::sync::Arc;

use numbers::Numbers;
use ziptier_accel::{
    Capabilities, Codes, CompletionRecord, Crc64, Descriptor, Device, Elements, Filter, FilterKind,
    Injection, JobError, Limits, Misfortune, Model, ModelOptions, Operation, OutputWidth, Parser, Preset,
    Session, Status, Stream, SubmitError,
};
use ziptier_deflate::{Decoder, Dictionary, Encoder, Huffman, Level, PART_END};

fn options(generation: u8) -> ModelOptions {
    ModelOptions { generation, is_synchronous: true, ..ModelOptions::default() }
}

fn device(generation: u8) -> Arc<dyn Device> {
    Arc::new(Model::open(&options(generation)).unwrap())
}

fn session(generation: u8) -> Session {
    Session::new(vec![device(generation)], Limits::default())
}

fn dictionary() -> Dictionary {
    let records: Vec<Vec<u8>> = (0..300).map(|seed| Numbers::new(seed).record()).collect();
    let samples: Vec<&[u8]> = records.iter().map(|record| &record[..]).collect();
    Dictionary::train(&samples, 1024)
}

fn run(session: &mut Session, operation: &Operation, source: &[u8], max: usize) -> Result<Vec<u8>, JobError> {
    session.run(operation, source, max, |result| result.map(|finished| finished.output.to_vec()))
}

#[test]
fn blocks_come_back_from_the_device_and_from_software() {
    let dictionary = dictionary();
    let mut decoder = Decoder::new(&dictionary);
    for generation in [1, 2] {
        let mut session = session(generation);
        let preset = Arc::new(Preset::new(&dictionary, &*device(generation)).unwrap());
        let modes = [
            (Codes::Fixed, Huffman::Dynamic),
            (Codes::Dynamic, Huffman::Dynamic),
            (Codes::Canned(preset.clone()), Huffman::Canned),
        ];
        for seed in 1..150 {
            let raw = Numbers::new(seed).block();
            for (codes, huffman) in &modes {
                let compress = Operation::Compress { codes: codes.clone(), verify: seed % 2 == 0 };
                let packed = run(&mut session, &compress, &raw, 16 << 10).unwrap();
                let mut out = Vec::new();
                decoder.decompress(*huffman, &packed, &mut out, raw.len()).unwrap();
                assert!(out == raw);
                let decompress = Operation::Decompress(codes.stream());
                assert!(run(&mut session, &decompress, &packed, raw.len()).unwrap() == raw);
            }
        }
    }
}

#[test]
fn own_codes_are_never_longer_than_fixed_ones() {
    for generation in [1, 2] {
        let mut session = session(generation);
        let (mut fixed_bytes, mut dynamic_bytes) = (0, 0);
        for seed in 1..60 {
            let raw = Numbers::new(seed).record();
            let mut length = |codes| {
                let compress = Operation::Compress { codes, verify: true };
                run(&mut session, &compress, &raw, 16 << 10).unwrap().len()
            };
            let (fixed, dynamic) = (length(Codes::Fixed), length(Codes::Dynamic));
            assert!(dynamic <= fixed || generation == 2);
            (fixed_bytes, dynamic_bytes) = (fixed_bytes + fixed, dynamic_bytes + dynamic);
        }
        assert!(10 * dynamic_bytes < 9 * fixed_bytes, "{dynamic_bytes} {fixed_bytes}");
    }
}

#[test]
fn blocks_of_software_with_history_come_back() {
    let dictionary = dictionary();
    let mut encoder = Encoder::new(&dictionary, Level::Lazy);
    for generation in [1, 2] {
        let mut session = session(generation);
        let learned = Preset::new(&dictionary, &*device(generation)).unwrap();
        for preset in [Arc::new(learned), Arc::new(Preset::written(&dictionary))] {
            for seed in 1..100 {
                let raw = Numbers::new(seed).record();
                for (huffman, stream) in [
                    (Huffman::Canned, Stream::Canned(preset.clone())),
                    (Huffman::Dynamic, Stream::History(preset.clone())),
                    (Huffman::Fixed, Stream::History(preset.clone())),
                ] {
                    let mut packed = Vec::new();
                    encoder.compress(huffman, &raw, &mut packed, 16 << 10).unwrap();
                    let operation = Operation::Decompress(stream);
                    assert!(run(&mut session, &operation, &packed, raw.len()).unwrap() == raw);
                }
            }
        }
    }
}

#[test]
fn what_does_not_fit_or_is_damaged_is_told_apart() {
    let mut session = session(1);
    let noise = Numbers::new(7).noise(4096);
    let compress = Operation::Compress { codes: Codes::Dynamic, verify: true };
    let error = run(&mut session, &compress, &noise, 4096).unwrap_err();
    assert!(matches!(error, JobError::DoesNotFit), "{error}");
    let raw = Numbers::new(7).record();
    let packed = run(&mut session, &compress, &raw, 16 << 10).unwrap();
    let decompress = Operation::Decompress(Stream::Plain);
    let error = run(&mut session, &decompress, &packed, raw.len() - 1).unwrap_err();
    assert!(matches!(error, JobError::DoesNotFit), "{error}");
    let error = run(&mut session, &decompress, &packed[..packed.len() - 3], raw.len()).unwrap_err();
    assert!(matches!(error, JobError::Damaged(_)), "{error}");
    let error = run(&mut session, &decompress, &[0b111, 0, 0], 100).unwrap_err();
    assert!(matches!(error, JobError::Damaged(_)), "{error}");
    let behind = Codes::FixedBehind(Arc::new(Preset::written(&dictionary())));
    let error =
        run(&mut session, &Operation::Compress { codes: behind, verify: false }, &raw, 99).unwrap_err();
    assert!(matches!(error, JobError::Unsupported(_)), "{error}");
}

#[test]
fn crc64_has_its_check_value() {
    // CRC-64/ECMA-182 and CRC-64/XZ: their check values for "123456789".
    let mut session = session(1);
    let mut crc = |invert, big_endian| {
        let operation = Operation::Crc64(Crc64 { polynomial: 0x42F0_E1EB_A9EA_3693, invert, big_endian });
        session.run(&operation, b"123456789", 0, |result| result.unwrap().outcome.crc64())
    };
    assert_eq!(crc(false, true), 0x6C40_DF5F_0B49_7347);
    assert_eq!(crc(true, false), 0x995D_C9BB_DF19_39FA);
}

/// Integers of so many bits, from the low bit up.
fn pack(values: &[u32], bits: usize) -> Vec<u8> {
    let mut bytes = vec![0; (values.len() * bits).div_ceil(8)];
    for (index, value) in values.iter().enumerate() {
        (0..bits).for_each(|bit| {
            bytes[(index * bits + bit) / 8] |= ((value >> bit & 1) as u8) << ((index * bits + bit) % 8)
        });
    }
    bytes
}

#[test]
fn filters_answer_for_packed_and_for_compressed_integers() {
    let mut session = session(1);
    let mut numbers = Numbers::new(11);
    for round in 0..60usize {
        let bits = 2 + round % 31;
        let values: Vec<u32> = (0..500).map(|_| (numbers.next() >> (64 - bits)) as u32).collect();
        let mask: Vec<u32> = (0..500).map(|_| numbers.next() as u32 & 1).collect();
        let chosen = |keep: u32| values.iter().zip(&mask).filter(move |(_, bit)| **bit == keep);
        let packed = pack(&values, bits);
        let deflate = Operation::Compress { codes: Codes::Fixed, verify: false };
        let stream = run(&mut session, &deflate, &packed, 16 << 10).unwrap();
        let (low, high) = (values[3].min(values[4]), values[3].max(values[4]));
        let scanned = |invert: bool| -> Vec<u32> {
            values.iter().map(|value| u32::from((low..=high).contains(value) != invert)).collect()
        };
        let selected: Vec<u32> = chosen(1).map(|(value, _)| *value).collect();
        let mut next = values.iter();
        let expanded: Vec<u32> =
            mask.iter().map(|bit| if *bit == 1 { *next.next().unwrap() } else { 0 }).collect();
        let elements = Elements { parser: Parser::LittleEndian, bits: bits as u8, count: 500 };
        for (source, compressed) in [(&packed, false), (&stream, true)] {
            let mut check = |kind, output, mask: &[u8], expected: &[u8]| {
                let (mask_big_endian, output_big_endian, force_array) = (false, false, false);
                let filter = Filter {
                    kind,
                    elements,
                    compressed,
                    mask_big_endian,
                    output,
                    output_big_endian,
                    force_array,
                };
                session.run_with_mask(&Operation::Filter(filter), source, mask, 4096, |result| {
                    let finished = result.unwrap();
                    assert!(finished.output == expected, "{kind:?} {bits}");
                });
            };
            let nominal = OutputWidth::Nominal;
            let scan = |invert| FilterKind::Scan { low, high, invert };
            check(scan(false), nominal, &[], &pack(&scanned(false), 1));
            check(scan(true), nominal, &[], &pack(&scanned(true), 1));
            let extract = FilterKind::Extract { first: 17, last: 333 };
            check(extract, nominal, &[], &pack(&values[17..=333], bits));
            check(extract, OutputWidth::Bits32, &[], &pack(&values[17..=333], 32));
            let mask = pack(&mask, 1);
            check(FilterKind::Select, nominal, &mask, &pack(&selected, bits));
            check(FilterKind::Expand, nominal, &mask, &pack(&expanded, bits));
        }
    }
}

#[test]
fn misfortunes_of_the_model_are_overcome_or_named() {
    let injection = Injection {
        seed: 5,
        one_in: vec![
            (9, Misfortune::QueueFull),
            (7, Misfortune::PageFault { is_write: false, offset: 0 }),
            (7, Misfortune::PageFault { is_write: true, offset: 1 }),
            (31, Misfortune::Status(Status::Watchdog)),
            (37, Misfortune::Status(Status::Hardware)),
            (41, Misfortune::Late { jobs: 3 }),
        ],
        ..Injection::default()
    };
    let options = ModelOptions { block_on_fault: false, generation: 1, ..ModelOptions::default() };
    let model = Model::with_injection(&options, injection).unwrap();
    let time_max = std::time::Duration::from_secs(600);
    let mut session = Session::new(vec![Arc::new(model)], Limits { time_max, ..Limits::default() });
    let compress = Operation::Compress { codes: Codes::Dynamic, verify: true };
    let mut ended = [0u8; 2000];
    let (mut good, mut tag) = (0, 0);
    let dictionary = Dictionary::new(b"");
    while tag < ended.len() || session.under_way() > 0 {
        while tag < ended.len() {
            match session.submit(&compress, tag as u64, &Numbers::new(tag as u64).record(), 16 << 10) {
                Ok(()) => tag += 1,
                Err(JobError::QueueFull | JobError::AllTaken) => break,
                Err(error) => panic!("{error}"),
            }
        }
        session.reap_some(|tag, result| {
            ended[tag as usize] += 1;
            match result {
                Ok(finished) => {
                    assert!(finished.is_modelled);
                    let mut raw = Vec::new();
                    let mut decoder = Decoder::new(&dictionary);
                    decoder.decompress(Huffman::Dynamic, finished.output, &mut raw, 16 << 10).unwrap();
                    assert!(raw == Numbers::new(tag).record());
                    good += 1;
                }
                Err(JobError::Watchdog | JobError::Hardware(Status::Hardware)) => {}
                Err(error) => panic!("{error}"),
            }
        });
    }
    assert!(ended.iter().all(|&times| times == 1) && good > 1000, "{good}");
    assert!(session.counters().page_faults > 100 && session.counters().queue_full > 10);
}

#[test]
fn parts_make_one_stream_and_each_is_read_by_itself() {
    for generation in [1, 2] {
        let limits = Limits { source_bytes_max: 64 << 10, output_bytes_max: 64 << 10, ..Limits::default() };
        let mut session = Session::new(vec![device(generation)], limits);
        let mut bits = [false; 8];
        for (seed, codes) in (1..150).flat_map(|seed| [(seed, Codes::Fixed), (seed, Codes::Dynamic)]) {
            let (one, other) = (Numbers::new(seed).block(), Numbers::new(seed + 1000).block());
            let part = Operation::CompressPart(codes.clone());
            let part = session.run(&part, &one, 32 << 10, |result| {
                let finished = result.unwrap();
                bits[usize::from(finished.outcome.output_bits())] = true;
                finished.output.to_vec()
            });
            assert!(part.ends_with(&PART_END));
            let last = Operation::Compress { codes, verify: true };
            let stream = [part.clone(), run(&mut session, &last, &other, 32 << 10).unwrap()].concat();
            let mut read = |stream: &[u8], raw: &[u8]| {
                let inflate = Operation::Decompress(Stream::Plain);
                assert!(run(&mut session, &inflate, stream, raw.len()).unwrap() == raw);
            };
            read(&stream, &[one.clone(), other].concat());
            read(&[&part[..], &[3, 0]].concat(), &one);
        }
        assert_eq!(bits, [true; 8]);
    }
}

/// A model that tells another number of bits of the last byte.
struct Misreporting {
    model: Model,
    bits: u8,
}

impl Device for Misreporting {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn capabilities(&self) -> &Capabilities {
        self.model.capabilities()
    }

    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), SubmitError> {
        // SAFETY: the caller's.
        unsafe { self.model.submit(descriptor) }?;
        let record = with_exposed_provenance_mut::<CompletionRecord>(descriptor.completion() as usize);
        // SAFETY: the model has completed the job, and nobody has looked at the record.
        if let Some(mut outcome) = unsafe { CompletionRecord::poll(record) } {
            outcome.set_output_bits(self.bits);
            // SAFETY: as above.
            unsafe { CompletionRecord::complete(record, &outcome) };
        }
        Ok(())
    }
}

#[test]
fn a_part_that_would_not_join_is_an_error() {
    let (mut good, mut failed) = (0, 0);
    for bits in 0..=9 {
        let device = Misreporting { model: Model::open(&options(1)).unwrap(), bits };
        let mut session = Session::new(vec![Arc::new(device)], Limits::default());
        for seed in 1..40 {
            let raw = Numbers::new(seed).record();
            match run(&mut session, &Operation::CompressPart(Codes::Fixed), &raw, 16 << 10) {
                Ok(part) => {
                    let mut out = Vec::new();
                    let stream = [&part[..], &[3, 0]].concat();
                    let dictionary = Dictionary::new(b"");
                    let mut decoder = Decoder::new(&dictionary);
                    decoder.decompress(Huffman::Dynamic, &stream, &mut out, raw.len()).unwrap();
                    assert!(out == raw);
                    good += 1;
                }
                Err(JobError::VerifyFailed | JobError::Contradiction(_)) => failed += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(good > 50 && failed > 50, "{good} {failed}");
}
