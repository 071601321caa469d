//! A suite that has never failed proves nothing. These codecs have one fault each, and the suite must catch every one.

use std::cmp::Ordering;
use std::mem::MaybeUninit;
use ziptier_codec::block::none::Copying;
use ziptier_codec::block::{
    BlockCodec, BlockError, ContextCounters, Counters, Done, Engine, ImmediateQueue, Job, run_job,
};
use ziptier_codec::conformance::{self, Damage, Failure, ValueCodec};
use ziptier_codec::format::Format;
use ziptier_codec::token::{Dictionary, Encoder};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    None,
    LosesTheLastByte,
    DependsOnItsNeighbours,
    IgnoresTheLimit,
    LeavesOutputOnError,
    ReplacesOutput,
    AcceptsDamage,
    MeasuresWrongly,
}

struct Broken {
    dictionary: Dictionary,
    encoder: Encoder,
    fault: Fault,
}

impl ValueCodec for Broken {
    fn encode_group(&mut self, values: &[&[u8]], coded: &mut Vec<u8>, ends: &mut Vec<u32>) {
        let mut values = values.to_vec();
        if self.fault == Fault::LosesTheLastByte {
            values.iter_mut().for_each(|value| *value = &value[..value.len().saturating_sub(1)]);
        }
        if self.fault == Fault::DependsOnItsNeighbours && values.len() > 1 {
            values.rotate_left(1);
        }
        self.dictionary.encode_group(&mut self.encoder, &values, coded, ends);
    }

    fn decode_append(&mut self, coded: &[u8], out: &mut Vec<u8>, max_bytes: usize) -> Result<usize, String> {
        let max_bytes = if self.fault == Fault::IgnoresTheLimit { usize::MAX } else { max_bytes };
        if self.fault == Fault::ReplacesOutput {
            out.clear();
        }
        let result = self.dictionary.decode_append(coded, out, max_bytes).map_err(|error| error.to_string());
        if result.is_err() && self.fault == Fault::LeavesOutputOnError {
            out.push(0);
        }
        if result.is_err() && self.fault == Fault::AcceptsDamage {
            return Ok(0);
        }
        result
    }

    fn raw_len(&mut self, coded: &[u8]) -> Result<usize, String> {
        let wrong = usize::from(self.fault == Fault::MeasuresWrongly);
        let length = self.dictionary.raw_len(coded).map(|length| length + wrong);
        length.map_err(|error| error.to_string())
    }
}

fn suite(fault: Fault) -> Result<(), Failure> {
    let values: Vec<String> = (0..300).map(|i| format!("value {} of many, {i}", i % 17)).collect();
    let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
    let dictionary = Dictionary::train(&values, 12, 0).expect("these samples train");
    let mut codec = Broken { dictionary, encoder: Encoder::new(), fault };
    conformance::check_values(&mut codec, &values)?;
    let mut damage = Damage::default();
    for value in &values {
        conformance::check_flips(&mut codec, value)?;
        damage.add(conformance::check_truncations(&mut codec, value)?);
    }
    assert!(damage.is_chance_of_16_bits());
    Ok(())
}

#[test]
fn sound_values_pass() {
    suite(Fault::None).unwrap();
}

#[test]
fn every_fault_of_a_value_codec_is_caught() {
    for fault in [
        Fault::LosesTheLastByte,
        Fault::DependsOnItsNeighbours,
        Fault::IgnoresTheLimit,
        Fault::LeavesOutputOnError,
        Fault::ReplacesOutput,
        Fault::AcceptsDamage,
        Fault::MeasuresWrongly,
    ] {
        assert!(suite(fault).is_err(), "{fault:?} gets through");
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum EngineFault {
    None,
    FlipsABit,
    ExceedsTheLimit,
    LeavesWhatDoesNotFit,
    AcceptsAnyLength,
    LosesAJob,
    DoesNotCount,
    RefusesWhatFitsExactly,
    IgnoresBytesAfterTheEnd,
    FillsUpTruncatedInput,
    LeavesOutputOnError,
    GrabsMemory,
    IgnoresTheRawLength,
    ExceedsItsBound,
    FillsTheTarget,
    CutsOffWhatDoesNotFit,
}

/// Keeps every byte as its complement, with one fault.
struct Complement {
    fault: EngineFault,
    counters: Counters,
}

impl Engine for Complement {
    fn name(&self) -> &'static str {
        "complement"
    }

    fn format(&self) -> Format {
        Format::Token
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn bound(&self, raw_bytes: usize) -> usize {
        raw_bytes - usize::from(raw_bytes > 0 && self.fault == EngineFault::ExceedsItsBound)
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        let (counters, queue) = (self.counters.open(), ImmediateQueue::default());
        Ok(Box::new(ComplementContext { engine: self, counters, queue, submitted: 0 }))
    }
}

struct ComplementContext<'a> {
    engine: &'a Complement,
    counters: ContextCounters<'a>,
    queue: ImmediateQueue,
    submitted: usize,
}

impl ComplementContext<'_> {
    fn has(&self, fault: EngineFault) -> bool {
        self.engine.fault == fault
    }
}

impl BlockCodec for ComplementContext<'_> {
    fn compress(
        &mut self,
        raw: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<Option<usize>, BlockError> {
        let spare = usize::from(self.has(EngineFault::RefusesWhatFitsExactly));
        let fits = raw.len() + spare <= max_bytes || self.has(EngineFault::ExceedsTheLimit);
        if self.has(EngineFault::GrabsMemory) {
            out.reserve(1 << 20);
        }
        if fits || self.has(EngineFault::LeavesWhatDoesNotFit) {
            out.extend(raw.iter().map(|byte| !byte));
        }
        if !self.has(EngineFault::DoesNotCount) {
            self.counters.compressed(raw.len(), fits.then_some(raw.len()), None);
        }
        Ok(fits.then_some(raw.len()))
    }

    fn decompress(&mut self, packed: &[u8], out: &mut Vec<u8>, raw_bytes: usize) -> Result<(), BlockError> {
        if !self.has(EngineFault::DoesNotCount) {
            self.counters.decompressed(packed.len(), Some(raw_bytes), None);
        }
        let start = out.len();
        let filled;
        let packed = match packed.len().cmp(&raw_bytes) {
            Ordering::Greater if self.has(EngineFault::IgnoresBytesAfterTheEnd) => &packed[..raw_bytes],
            Ordering::Less if self.has(EngineFault::FillsUpTruncatedInput) => {
                filled = [packed, &vec![0; raw_bytes - packed.len()]].concat();
                &filled
            }
            Ordering::Less | Ordering::Greater if self.has(EngineFault::IgnoresTheRawLength) => packed,
            Ordering::Equal => packed,
            _ => {
                if self.has(EngineFault::LeavesOutputOnError) {
                    out.push(0);
                }
                return Err(BlockError::Damaged {
                    format: Format::Token,
                    position: 0,
                    what: "another length",
                });
            }
        };
        out.extend(packed.iter().map(|byte| !byte));
        if self.has(EngineFault::FlipsABit) && raw_bytes > 1000 {
            out[start + 1000] ^= 1;
        }
        if self.has(EngineFault::AcceptsAnyLength) {
            out.push(0);
        }
        Ok(())
    }

    fn decompress_up_to<'t>(
        &mut self,
        packed: &[u8],
        target: &'t mut [MaybeUninit<u8>],
    ) -> Result<Option<&'t mut [u8]>, BlockError> {
        let mut raw: Vec<u8> = packed.iter().map(|byte| !byte).collect();
        match self.engine.fault {
            EngineFault::FillsTheTarget => raw.resize(target.len(), 0),
            EngineFault::CutsOffWhatDoesNotFit => raw.truncate(target.len()),
            _ => {}
        }
        let fits = target.get_mut(..raw.len());
        Ok(fits.map(|target| target.write_copy_of_slice(&raw)))
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        if self.queue.is_full() {
            return Err(job);
        }
        self.submitted += 1;
        if self.has(EngineFault::LosesAJob) && self.submitted == 2 {
            return Ok(());
        }
        let done = run_job(self, job);
        self.queue.push(done);
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>, _wait: bool) {
        self.queue.drain_into(done);
    }
}

fn engine_suite(fault: EngineFault) -> Result<usize, Failure> {
    let blocks: Vec<Vec<u8>> = (0..300).map(|i| vec![i as u8; i * 7]).collect();
    let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
    let engine = Complement { fault, counters: Counters::new() };
    let bytes = conformance::check_engine(&engine, &blocks)?;
    for block in &blocks[..20] {
        conformance::check_block_truncations(&engine, block)?;
        conformance::check_block_flips(&engine, block)?;
    }
    Ok(bytes)
}

#[test]
fn sound_engines_pass() {
    engine_suite(EngineFault::None).unwrap();
    let blocks: [&[u8]; 4] = [b"", b"x", &[7; 4096], b"a few bytes"];
    conformance::check_engine(&Copying::new(), &blocks).unwrap();
}

#[test]
fn every_fault_of_an_engine_is_caught() {
    for fault in [
        EngineFault::FlipsABit,
        EngineFault::ExceedsTheLimit,
        EngineFault::LeavesWhatDoesNotFit,
        EngineFault::AcceptsAnyLength,
        EngineFault::LosesAJob,
        EngineFault::DoesNotCount,
        EngineFault::RefusesWhatFitsExactly,
        EngineFault::IgnoresBytesAfterTheEnd,
        EngineFault::FillsUpTruncatedInput,
        EngineFault::LeavesOutputOnError,
        EngineFault::GrabsMemory,
        EngineFault::IgnoresTheRawLength,
        EngineFault::ExceedsItsBound,
        EngineFault::FillsTheTarget,
        EngineFault::CutsOffWhatDoesNotFit,
    ] {
        assert!(engine_suite(fault).is_err(), "{fault:?} gets through");
    }
}
