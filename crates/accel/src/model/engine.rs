//! One engine: executes a submitted job, and returns its outcome.

use super::checksum::{Checksums, Crc64, Polynomial};
use super::compress::Compressor;
use super::elements::Packing;
use super::filter::{self, Question};
use super::inflate::{End, Inflater, Rules};
use super::memo::{Asked, Memo};
use super::memory::JobMemory;
use super::validate;
use crate::aecs::{CompressState, DecompressState, FilterState};
use crate::completion::{ErrorCode, Outcome, Status};
use crate::descriptor::{Descriptor, Opcode, compress, crc, decompress, operation};
use crate::device::Capabilities;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Suppressed output, and the input of a filter, is decompressed in pieces or up to a bound.
const PIECE_BYTES: usize = 1 << 20;

/// The most bytes that a filter decompresses of Parquet's runs, whose length is not stated.
const RUN_BYTES_MAX: usize = 1 << 26;

pub(super) struct Engine {
    compressor: Compressor,
    inflater: Inflater,
    crc64: Crc64,
    source1: Vec<u8>,
    source2: Vec<u8>,
    output: Vec<u8>,
    /// Earlier decompressions, if the model is timed.
    memo: Option<Arc<Mutex<Memo>>>,
}

/// Uncompressed bytes that a job has produced or taken.
pub(super) struct Done {
    pub(super) outcome: Outcome,
    pub(super) raw_bytes: u64,
}

impl Engine {
    pub(super) fn new(memo: Option<Arc<Mutex<Memo>>>) -> Engine {
        Engine {
            compressor: Compressor::new(),
            inflater: Inflater::new(),
            crc64: Crc64::new(1),
            source1: Vec::new(),
            source2: Vec::new(),
            output: Vec::new(),
            memo,
        }
    }

    /// Executes a job, all but its completion.
    pub(super) fn execute(&mut self, memory: &JobMemory, can: &Capabilities) -> Done {
        let descriptor = *memory.descriptor();
        let opcode = match validate::check(&descriptor, can) {
            Ok(opcode) => opcode,
            Err(outcome) => return Done { outcome, raw_bytes: 0 },
        };
        if matches!(opcode, Opcode::Noop | Opcode::Drain) {
            return Done { outcome: Outcome::new(Status::Success), raw_bytes: 0 };
        }
        memory.read_source1(&mut self.source1);
        self.source2.clear();
        if descriptor.flags() & operation::READ_SOURCE2_MASK != 0 {
            memory.read_source2(&mut self.source2);
        }
        let mut outcome = match opcode {
            Opcode::MemMove => {
                memory.write_moved(&self.source1);
                Outcome::new(Status::Success)
            }
            Opcode::Crc64 => self.crc64(&descriptor),
            Opcode::Compress => self.compress(memory),
            Opcode::Decompress => self.recall(memory).unwrap_or_else(|| self.decompress(memory)),
            _ => self.filter(memory, opcode),
        };
        let is_success = outcome.status() == Some(Status::Success);
        let is_filter = opcode as u8 >= Opcode::Scan as u8;
        let raw_bytes = match opcode {
            Opcode::Decompress => u64::from(outcome.output_bytes()),
            _ if is_filter && is_success && descriptor.kind_flags() & decompress::ENABLE != 0 => {
                self.inflater.output().len() as u64
            }
            _ => u64::from(descriptor.source1_bytes()),
        };
        if is_success && opcode != Opcode::Decompress {
            outcome.set_source1_bytes(descriptor.source1_bytes());
        }
        Done { outcome, raw_bytes }
    }

    fn crc64(&mut self, descriptor: &Descriptor) -> Outcome {
        if self.crc64.polynomial() != descriptor.polynomial() {
            self.crc64 = Crc64::new(descriptor.polynomial());
        }
        let flags = descriptor.kind_flags();
        let is_big = flags & crc::BIG_ENDIAN != 0;
        let mut outcome = Outcome::new(Status::Success);
        outcome.set_crc64(self.crc64.of(&self.source1, is_big, flags & crc::INVERT != 0));
        outcome
    }

    fn compress(&mut self, memory: &JobMemory) -> Outcome {
        let descriptor = memory.descriptor();
        let mut state = CompressState::new();
        if !self.source2.is_empty() {
            state.as_mut_bytes().copy_from_slice(&self.source2);
        }
        let mut sums = sums_of(descriptor, state.crc(), state.xor());
        let flags = descriptor.kind_flags();
        let compressed = match self.compressor.run(&self.source1, flags, &mut state, &mut sums) {
            Ok(compressed) => compressed,
            Err(error) => return failed(error),
        };
        let is_counting = flags & compress::STATISTICS != 0;
        if compressed.output.len() > descriptor.destination_bytes_max() as usize {
            return failed(ErrorCode::UnrecoverableOverflow);
        }
        memory.write_destination(compressed.output);
        if descriptor.flags() & operation::WRITE_SOURCE2_MASK != 0 {
            if !is_counting {
                state.set_crc(sums.crc).set_xor(u32::from(sums.xor));
            }
            memory.write_state(state.as_bytes());
        }
        let mut outcome = Outcome::new(Status::Success);
        outcome.set_output_bytes(compressed.output.len() as u32).set_output_bits(compressed.last_bits);
        outcome.set_crc32(sums.crc).set_xor(sums.xor);
        outcome
    }

    /// Answers a repeated decompression from memory.
    fn recall(&self, memory: &JobMemory) -> Option<Outcome> {
        let descriptor = memory.descriptor();
        let asked = asked(descriptor, &self.source1, &self.source2)?;
        let memo = lock(self.memo.as_deref()?);
        let (outcome, output) = memo.find(&asked)?;
        if descriptor.kind_flags() & decompress::SUPPRESS_OUTPUT == 0 {
            if output.len() > descriptor.destination_bytes_max() as usize {
                return None;
            }
            memory.write_destination(output);
        }
        Some(outcome)
    }

    fn decompress(&mut self, memory: &JobMemory) -> Outcome {
        let descriptor = memory.descriptor();
        let flags = descriptor.kind_flags();
        let reads = !self.source2.is_empty();
        let mut state = DecompressState::new();
        state.as_mut_bytes()[..self.source2.len()].copy_from_slice(&self.source2);
        let mut sums = sums_of(descriptor, state.crc(), state.xor());
        if let Err(error) = self.inflater.begin(reads.then_some(&state)) {
            return failed(error);
        }
        let rules = rules_of(flags);
        let source = swapped(&mut self.source1, flags);
        let early = self.inflater.take_early();
        let mut bits = Inflater::input(&early, source, ignored_bits(flags));
        let is_suppressed = flags & decompress::SUPPRESS_OUTPUT != 0;
        let bytes_max = if is_suppressed { PIECE_BYTES } else { descriptor.destination_bytes_max() as usize };
        let mut output_bytes = 0;
        let end = loop {
            let end = self.inflater.run(&mut bits, bytes_max, rules);
            let output = self.inflater.output();
            sums.add(output);
            output_bytes += output.len();
            if !is_suppressed {
                memory.write_destination(output);
            }
            if end != Ok(End::Full) || !is_suppressed {
                break end;
            }
            self.inflater.forget();
        };
        let lacks_end = flags & decompress::CHECK_FOR_END_OF_BLOCK != 0 && !self.inflater.has_ended(rules);
        let mut outcome = match end {
            Err(error) => failed(error),
            Ok(End::Full) => Outcome::new(Status::OutputOverflow),
            Ok(End::Dry) if self.inflater.is_at_header() && bits.rest(true).is_none() => {
                failed(ErrorCode::HeaderTooLarge)
            }
            Ok(_) if lacks_end => failed(ErrorCode::NoEndOfBlock),
            Ok(_) => Outcome::new(Status::Success),
        };
        // After the end of a stream, the device reports all bytes as consumed, whatever follows.
        let is_all = end == Ok(End::Dry) || (end == Ok(End::Block) && self.inflater.is_over());
        let taken = if is_all { descriptor.source1_bytes() } else { bits.taken() as u32 };
        outcome.set_source1_bytes(taken).set_output_bytes(output_bytes as u32);
        outcome.set_crc32(sums.crc).set_xor(sums.xor);
        let writes = match descriptor.flags() & operation::WRITE_SOURCE2_MASK {
            operation::WRITE_SOURCE2_ALWAYS => end.is_ok(),
            operation::WRITE_SOURCE2_ON_OVERFLOW => end == Ok(End::Full),
            _ => false,
        };
        if writes && outcome.status() != Some(Status::Analytics) {
            state.set_crc(sums.crc).set_xor(u32::from(sums.xor));
            if self.inflater.save(&bits, end == Ok(End::Dry), &mut state).is_none() {
                return failed(ErrorCode::BadState);
            }
            memory.write_state(&state.as_bytes()[..descriptor.source2_bytes() as usize]);
        }
        if outcome.status() == Some(Status::Success)
            && self.inflater.output().len() == output_bytes
            && let Some(memo) = self.memo.as_deref()
            && let Some(asked) = asked(descriptor, &self.source1, &self.source2)
        {
            lock(memo).keep(&asked, &outcome, self.inflater.output());
        }
        outcome
    }

    fn filter(&mut self, memory: &JobMemory, opcode: Opcode) -> Outcome {
        let descriptor = memory.descriptor();
        let (flags, filter_flags) = (descriptor.kind_flags(), descriptor.filter_flags());
        let mut state = FilterState::new();
        let has_state = descriptor.flags() & operation::READ_SOURCE2_MASK == operation::READ_SOURCE2_STATE;
        if has_state {
            state.as_mut_bytes().copy_from_slice(&self.source2[..FilterState::BYTES]);
        }
        let mut sums = sums_of(descriptor, state.crc(), state.xor());
        let dropped = state.drop_initial_bytes() as usize;
        if dropped > 0xFFFF {
            return failed(ErrorCode::BadState);
        }
        let was_compressed = flags & decompress::ENABLE != 0;
        let raw = if was_compressed {
            let elements = descriptor.elements() as usize;
            let wanted = match filter::packing(filter_flags) {
                Packing::Low(width) | Packing::High(width) => (elements * width as usize).div_ceil(8),
                Packing::Parquet => (9 * elements + 16).min(RUN_BYTES_MAX),
            };
            match self.inflate_for_filter(flags, dropped + wanted) {
                Ok(()) => self.inflater.output(),
                Err(error) => return failed(error),
            }
        } else {
            &self.source1
        };
        sums.add(raw);
        let question = Question {
            opcode,
            flags: filter_flags,
            elements: descriptor.elements(),
            low: state.low(),
            high: state.high(),
            output_index: state.output_index(),
            source1: raw.get(dropped..).unwrap_or(&[]),
            source2: if has_state { &[] } else { &self.source2 },
            was_compressed,
            is_array: validate::makes_array(opcode, filter_flags),
            output_max: descriptor.destination_bytes_max() as usize,
        };
        let aggregates = match question.answer(&mut self.output) {
            Ok(aggregates) => aggregates,
            Err(error) => return failed(error),
        };
        memory.write_destination(&self.output);
        let mut outcome = Outcome::new(Status::Success);
        outcome.set_output_bytes(self.output.len() as u32).set_output_bits(aggregates.last_bits);
        outcome.set_minimum(aggregates.minimum).set_maximum(aggregates.maximum).set_sum(aggregates.sum);
        outcome.set_crc32(sums.crc).set_xor(sums.xor);
        outcome
    }

    /// Decompresses as many bytes as a filter can need, and ignores the rest.
    fn inflate_for_filter(&mut self, flags: u16, bytes_max: usize) -> Result<(), ErrorCode> {
        let state = self.source2.first_chunk::<{ DecompressState::BYTES }>();
        let state = state.map(|bytes| DecompressState::from_bytes(*bytes));
        self.inflater.begin(state.as_ref())?;
        let rules = rules_of(flags);
        let source = swapped(&mut self.source1, flags);
        let early = self.inflater.take_early();
        let mut bits = Inflater::input(&early, source, ignored_bits(flags));
        let end = self.inflater.run(&mut bits, bytes_max, rules)?;
        let lacks_end = flags & decompress::CHECK_FOR_END_OF_BLOCK != 0 && !self.inflater.has_ended(rules);
        if end == End::Dry && lacks_end { Err(ErrorCode::NoEndOfBlock) } else { Ok(()) }
    }
}

fn lock(memo: &Mutex<Memo>) -> MutexGuard<'_, Memo> {
    memo.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The key of a decompress job that only produces output.
fn asked<'a>(descriptor: &Descriptor, source: &'a [u8], state: &'a [u8]) -> Option<Asked<'a>> {
    let (flags, kind) = (descriptor.flags(), descriptor.kind_flags());
    let is_plain = flags & operation::WRITE_SOURCE2_MASK == 0 && kind & decompress::BIG_ENDIAN_16 == 0;
    let flags = u64::from(flags & (operation::CRC32C | operation::READ_SOURCE2_MASK));
    let flags = flags | u64::from(kind & !decompress::SUPPRESS_OUTPUT) << 32;
    is_plain.then_some(Asked { flags, source, state })
}

pub(super) fn failed(error: ErrorCode) -> Outcome {
    let mut outcome = Outcome::new(Status::Analytics);
    outcome.set_error_number(error as u8);
    outcome
}

fn sums_of(descriptor: &Descriptor, crc: u32, xor: u32) -> Checksums {
    let is_castagnoli = descriptor.flags() & operation::CRC32C != 0;
    let polynomial = if is_castagnoli { Polynomial::Castagnoli } else { Polynomial::Gzip };
    Checksums { polynomial, crc, xor: xor as u16 }
}

fn rules_of(flags: u16) -> Rules {
    Rules {
        stop: flags & decompress::STOP_ON_END_OF_BLOCK != 0,
        final_only: flags & decompress::SELECT_FINAL_END_OF_BLOCK != 0,
    }
}

fn ignored_bits(flags: u16) -> usize {
    let low = (flags & decompress::IGNORE_END_BITS_MASK) >> decompress::IGNORE_END_BITS_SHIFT;
    usize::from(low) + if flags & decompress::IGNORE_END_BITS_HIGH != 0 { 8 } else { 0 }
}

/// The source with its bytes in the order of the stream.
fn swapped(source: &mut [u8], flags: u16) -> &[u8] {
    if flags & decompress::BIG_ENDIAN_16 != 0 {
        source.as_chunks_mut::<2>().0.iter_mut().for_each(|pair| pair.swap(0, 1));
    }
    source
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::filter::SOURCE1_WIDTH_SHIFT;
    use crate::device::Device;
    use crate::null::NullDevice;
    use ziptier_deflate::{Dictionary, Encoder, Huffman, Level};

    /// The rates of a modelled device are those of uncompressed bytes.
    #[test]
    fn a_filter_of_a_compressed_column_takes_the_time_of_its_elements() {
        let (column, dictionary, mut packed) = ([7; 1000], Dictionary::new(b""), Vec::new());
        let packed_bytes =
            Encoder::new(&dictionary, Level::Fast).compress(Huffman::Fixed, &column, &mut packed, 100);
        let (state, mut output) = (FilterState::range(7, 7), [0u8; 125]);
        let mut job = Descriptor::new(Opcode::Scan, operation::READ_SOURCE2_STATE);
        job.set_source1(packed.as_ptr().expose_provenance() as u64);
        job.set_source1_bytes(packed_bytes.expect("it shrinks") as u32);
        job.set_source2(state.as_bytes().as_ptr().expose_provenance() as u64);
        job.set_source2_bytes(FilterState::BYTES as u32);
        job.set_destination(output.as_mut_ptr().expose_provenance() as u64).set_destination_bytes_max(125);
        job.set_kind_flags(decompress::WHOLE_STREAM);
        job.set_filter_flags(7 << SOURCE1_WIDTH_SHIFT).set_elements(1000);
        // SAFETY: the buffers outlive the job, and nobody else uses them meanwhile.
        let memory = unsafe { JobMemory::new(job) };
        let done = Engine::new(None).execute(&memory, NullDevice::new().capabilities());
        assert_eq!((done.outcome.status(), done.raw_bytes), (Some(Status::Success), 1000));
        assert_eq!(output, [0xFF; 125]);
    }
}
