//! Operations of the device as descriptors: one for most operations, two or three for some.

mod compress;
mod crc;
mod decompress;
mod filter;
#[cfg(test)]
mod golden;

use std::sync::Arc;

pub use compress::PART_ROOM_BYTES;
pub use crc::Crc64;
pub use filter::{Elements, Filter, FilterKind, OutputWidth, Parser};

use crate::aecs::{CompressState, Histogram};
use crate::completion::Outcome;
use crate::descriptor::{Descriptor, Opcode, operation};
use crate::device::{Capabilities, iaa_cap};
use crate::error::JobError;
use crate::jobs::{Addresses, JobPool, first_in_page};
use crate::preset::Preset;

/// An operation. Streams are raw DEFLATE in a window of 4 KiB, each complete in itself. Other programs may have made
/// them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Operation {
    /// Compresses the source.
    Compress {
        /// Which codes the stream has.
        codes: Codes,
        /// Whether the stream is decompressed afterwards, without output, and its CRC compared.
        verify: bool,
    },
    /// Compresses the source to a part of a stream, and verifies it. The part refers to nothing before it and ends at
    /// the end of a byte with [`PART_END`](ziptier_deflate::PART_END), so that another part can follow. The output must
    /// have room for [`PART_ROOM_BYTES`] more than the part itself.
    CompressPart(Codes),
    /// Decompresses the source.
    Decompress(Stream),
    /// A CRC64 of the source, whose result is [`Outcome::crc64`].
    Crc64(Crc64),
    /// An operation on packed integers.
    Filter(Filter),
}

/// The codes of a stream that is to be made.
#[derive(Debug, Clone)]
pub enum Codes {
    /// The codes of RFC 1951, section 3.2.6.
    Fixed,
    /// Codes made for the stream. Devices of generation 2 make them in one job. For generation 1 the host makes them
    /// between two jobs.
    Dynamic,
    /// The canned codes of a dictionary. The stream has no header.
    Canned(Arc<Preset>),
    /// The codes of RFC 1951, and matches in the history of a dictionary (generation 2).
    FixedBehind(Arc<Preset>),
    /// The canned codes of a dictionary, and matches in its history (generation 2).
    CannedBehind(Arc<Preset>),
}

impl Codes {
    /// The kind of stream that a reader must know.
    pub fn stream(&self) -> Stream {
        match self {
            Codes::Fixed | Codes::Dynamic => Stream::Plain,
            Codes::FixedBehind(preset) => Stream::History(preset.clone()),
            Codes::Canned(preset) | Codes::CannedBehind(preset) => Stream::Canned(preset.clone()),
        }
    }

    fn check(&self, can: &Capabilities) -> Result<(), JobError> {
        let behind = matches!(self, Codes::FixedBehind(_) | Codes::CannedBehind(_));
        if behind && !can.has_iaa(iaa_cap::DICTIONARY) {
            return Err(JobError::Unsupported("compression with a dictionary, before generation 2"));
        }
        match self {
            Codes::Canned(preset) | Codes::CannedBehind(preset) => check_canned(preset),
            _ => Ok(()),
        }
    }
}

fn check_canned(preset: &Preset) -> Result<(), JobError> {
    if preset.has_canned() {
        return Ok(());
    }
    Err(JobError::Unsupported("canned codes for a dictionary without any"))
}

/// The kind of a stream, which its reader must know beforehand.
#[derive(Debug, Clone)]
pub enum Stream {
    /// Nothing: an ordinary stream.
    Plain,
    /// An ordinary stream that refers to the history of a dictionary.
    History(Arc<Preset>),
    /// A stream with the canned codes of a dictionary, which may refer to its history.
    Canned(Arc<Preset>),
}

/// Flags of every descriptor that writes a destination: a completion record is wanted, and output goes to the cache.
const FLAGS: u32 =
    operation::COMPLETION_ADDRESS_VALID | operation::REQUEST_COMPLETION | operation::CACHE_CONTROL;

/// A job's sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) source: u32,
    /// Bytes of a second input, which lies behind the first at the next cache line.
    pub(crate) source2: u32,
    pub(crate) output_max: u32,
}

impl Sizes {
    /// The offset of the second input from the beginning of the first.
    pub(crate) fn source2_at(self) -> usize {
        (self.source as usize).next_multiple_of(64)
    }
}

/// Which descriptor of an operation is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The descriptor whose output is wanted.
    Last,
    /// The descriptor that counts symbols for the host.
    Count,
    /// The descriptor that counts symbols and makes codes.
    MakeCodes,
    /// The descriptor that reads the compressed stream back.
    Verify,
}

/// The step after a successful descriptor.
pub(crate) enum Next {
    /// Another descriptor.
    Submit(Step, Descriptor),
    /// Nothing: this is the outcome of the operation.
    Done(Outcome),
}

/// A job of the pool that is not under way.
pub(crate) struct Place<'a> {
    pub(crate) pool: &'a mut JobPool,
    pub(crate) job: usize,
    pub(crate) sizes: Sizes,
}

impl Place<'_> {
    fn addresses(&self) -> Addresses {
        self.pool.addresses(self.job)
    }
}

impl Operation {
    /// Refuses operations that these queues cannot do.
    pub(crate) fn check(&self, can: &Capabilities) -> Result<(), JobError> {
        let opcode = match self {
            Operation::Compress { codes, verify } => {
                codes.check(can)?;
                if *verify && can.has(Opcode::Compress) { Opcode::Decompress } else { Opcode::Compress }
            }
            Operation::CompressPart(Codes::Fixed | Codes::Dynamic) if can.has(Opcode::Compress) => {
                Opcode::Decompress
            }
            Operation::CompressPart(_) => {
                return Err(JobError::Unsupported("parts of streams of this kind"));
            }
            Operation::Decompress(stream) => {
                if let Stream::Canned(preset) = stream {
                    check_canned(preset)?;
                }
                Opcode::Decompress
            }
            Operation::Crc64(_) => Opcode::Crc64,
            Operation::Filter(filter) => filter.check(can)?,
        };
        if can.has(opcode) { Ok(()) } else { Err(JobError::Unsupported("an opcode that these queues lack")) }
    }

    /// The first descriptor. The input is in its place.
    pub(crate) fn first(&self, place: &mut Place<'_>, can: &Capabilities) -> (Step, Descriptor) {
        let (at, sizes) = (place.addresses(), place.sizes);
        match self {
            Operation::Compress { codes, .. } | Operation::CompressPart(codes) => match codes {
                Codes::Fixed => (Step::Last, compress::with_state(at, sizes, crate::preset::fixed())),
                Codes::Canned(preset) => {
                    let state = preset.canned().expect("canned codes were checked for");
                    (Step::Last, compress::with_state(at, sizes, state))
                }
                Codes::FixedBehind(preset) => {
                    (Step::Last, compress::behind_history(at, sizes, preset.fixed_behind()))
                }
                Codes::CannedBehind(preset) => {
                    let state = preset.canned_behind().expect("canned codes were checked for");
                    (Step::Last, compress::behind_history(at, sizes, state))
                }
                Codes::Dynamic if !can.has_iaa(iaa_cap::HEADER_GENERATION) => {
                    (Step::Count, compress::counting(at, sizes))
                }
                Codes::Dynamic if sizes.source <= compress::ONE_PASS_BYTES_MAX => {
                    (Step::Last, compress::one_pass(at, sizes))
                }
                Codes::Dynamic => (Step::MakeCodes, compress::making_codes(at, sizes)),
            },
            Operation::Decompress(stream) => (Step::Last, decompress::stream(at, sizes, stream)),
            Operation::Crc64(crc) => (Step::Last, crc.descriptor(at, sizes)),
            Operation::Filter(filter) => {
                // SAFETY: the job is not under way.
                let state_bytes = unsafe { filter.write_state(place.pool, place.job) };
                (Step::Last, filter.descriptor(at, sizes, state_bytes))
            }
        }
    }

    /// The step after a successful descriptor of this step. `before` is the outcome of the descriptor before.
    pub(crate) fn next(
        &self,
        step: Step,
        outcome: Outcome,
        before: Option<Outcome>,
        place: &mut Place<'_>,
    ) -> Result<Next, JobError> {
        let (at, sizes) = (place.addresses(), place.sizes);
        match (step, self) {
            (Step::Count, _) => {
                // SAFETY: the job is not under way.
                let histogram: Histogram = unsafe { place.pool.histogram(place.job) }.clone();
                // SAFETY: as above.
                compress::codes_of(&histogram, unsafe { place.pool.state_mut(place.job) });
                Ok(Next::Submit(Step::Last, compress::with_own_state(at, sizes)))
            }
            (Step::MakeCodes, _) => Ok(Next::Submit(Step::Last, compress::with_made_codes(at, sizes))),
            (Step::Last, Operation::Compress { codes, verify: true }) => {
                let packed = outcome.output_bytes();
                Ok(Next::Submit(Step::Verify, decompress::verification(at, sizes, packed, &codes.stream())))
            }
            (Step::Last, Operation::CompressPart(_)) => {
                // SAFETY: the job is not under way.
                let output = unsafe { place.pool.output_mut(place.job, sizes.output_max as usize) };
                let packed = compress::end_part(output, &outcome)?;
                Ok(Next::Submit(Step::Verify, decompress::verification(at, sizes, packed, &Stream::Plain)))
            }
            (Step::Verify, _) => {
                let mut compressed = before.expect("a stream was made before it is verified");
                if outcome.crc32() != compressed.crc32() {
                    return Err(JobError::VerifyFailed);
                }
                if let Operation::CompressPart(_) = self {
                    compressed.set_output_bytes(compress::part_bytes(&compressed));
                }
                Ok(Next::Done(compressed))
            }
            (Step::Last, _) => Ok(Next::Done(outcome)),
        }
    }

    /// The first byte, in the page of an address, of the shared read-only states outside the pool.
    pub(crate) fn shared_byte(&self, address: u64) -> Option<u64> {
        let fixed = std::ptr::from_ref(crate::preset::fixed()).addr() as u64;
        let find = |preset: &Preset| preset.parts().find_map(|part| first_in_page(part, address));
        match self {
            Operation::Compress { codes: Codes::Fixed, .. } | Operation::CompressPart(Codes::Fixed) => {
                first_in_page((fixed, fixed + CompressState::BYTES as u64), address)
            }
            Operation::Compress {
                codes: Codes::Canned(preset) | Codes::FixedBehind(preset) | Codes::CannedBehind(preset),
                ..
            } => find(preset),
            Operation::Decompress(Stream::History(preset) | Stream::Canned(preset)) => find(preset),
            _ => None,
        }
    }
}

/// A descriptor of this job: completion record, source and destination.
fn descriptor(opcode: Opcode, flags: u32, at: Addresses, sizes: Sizes) -> Descriptor {
    let mut descriptor = Descriptor::new(opcode, flags);
    descriptor.set_completion(at.completion).set_source1(at.input).set_source1_bytes(sizes.source);
    descriptor.set_destination(at.output).set_destination_bytes_max(sizes.output_max);
    descriptor
}

/// The address of a state that is shared by jobs.
fn address_of<S>(state: &S) -> u64 {
    std::ptr::from_ref(state).expose_provenance() as u64
}
