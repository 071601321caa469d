//! Descriptors of the operations on packed integers.

use super::{FLAGS, Sizes, descriptor};
use crate::aecs::{DecompressState, FilterState};
use crate::descriptor::{Descriptor, Opcode, decompress, filter, operation};
use crate::device::{Capabilities, iaa_cap};
use crate::error::JobError;
use crate::jobs::{Addresses, JobPool};

/// An operation on packed unsigned integers. For an array its outcome also has the smallest, largest and sum of the
/// elements. For a bit vector it has the first, last and count of the ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The operation.
    pub kind: FilterKind,
    /// The integers.
    pub elements: Elements,
    /// Whether the source is a DEFLATE stream of them.
    pub compressed: bool,
    /// Whether the bits of the second source lie from the high bit down.
    pub mask_big_endian: bool,
    /// How wide an element of the output is.
    pub output: OutputWidth,
    /// Whether output lies from the high bit down, or in big-endian integers.
    pub output_big_endian: bool,
    /// Elements of one bit stay an array, so that a wider output has an element for each bit (generation 2).
    pub force_array: bool,
}

/// The operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterKind {
    /// One bit for each element: 1 if the element lies within both bounds. Inverted, the bits are flipped.
    Scan {
        /// The lowest value.
        low: u32,
        /// The highest value.
        high: u32,
        /// Whether the bits are inverted.
        invert: bool,
    },
    /// The elements from one index to another.
    Extract {
        /// The first index.
        first: u32,
        /// The last index.
        last: u32,
    },
    /// The elements whose bit in the second source is 1.
    Select,
    /// For each 1 in the second source the next element, for each 0 a zero. [`Elements::count`] counts bits of the
    /// second source.
    Expand,
}

/// Integers of the first source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elements {
    /// The packing of the elements.
    pub parser: Parser,
    /// Bits of each, 1 to 32; of no meaning to [`Parser::ParquetRle`].
    pub bits: u8,
    /// How many.
    pub count: u32,
}

/// How integers lie in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parser {
    /// From the low bit up.
    LittleEndian,
    /// From the high bit down.
    BigEndian,
    /// Parquet's runs, behind a byte that states their width.
    ParquetRle,
}

/// The width of an element of the output. If it is wider than a bit, a bit vector becomes a list of indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputWidth {
    /// As it comes: a bit, or the width of the source.
    Nominal,
    /// 8 bits.
    Bits8,
    /// 16 bits.
    Bits16,
    /// 32 bits.
    Bits32,
}

impl Filter {
    /// The opcode, if the device supports the operation.
    pub(super) fn check(&self, can: &Capabilities) -> Result<Opcode, JobError> {
        if self.force_array && !can.has_iaa(iaa_cap::FORCE_ARRAY) {
            return Err(JobError::Unsupported("arrays of single bits, before generation 2"));
        }
        if !(1..=32).contains(&self.elements.bits) {
            return Err(JobError::Unsupported("elements that have not 1 to 32 bits"));
        }
        Ok(self.opcode())
    }

    fn opcode(&self) -> Opcode {
        match self.kind {
            FilterKind::Scan { .. } => Opcode::Scan,
            FilterKind::Extract { .. } => Opcode::Extract,
            FilterKind::Select => Opcode::Select,
            FilterKind::Expand => Opcode::Expand,
        }
    }

    /// Writes the parameters, if any, into the job's state, and returns the number of valid bytes.
    ///
    /// # Safety
    ///
    /// The job is not under way.
    pub(super) unsafe fn write_state(&self, pool: &mut JobPool, job: usize) -> u32 {
        let (low, high) = match self.kind {
            FilterKind::Scan { low, high, .. } => (low, high),
            FilterKind::Extract { first, last } => (first, last),
            FilterKind::Select | FilterKind::Expand => return 0,
        };
        if self.compressed {
            // SAFETY: the caller's.
            let state: &mut DecompressState = unsafe { pool.state_mut(job) };
            *state = DecompressState::new();
            state.set_filter_low(low).set_filter_high(high);
            DecompressState::BYTES as u32
        } else {
            // SAFETY: the caller's.
            *unsafe { pool.state_mut(job) } = FilterState::range(low, high);
            FilterState::BYTES as u32
        }
    }

    pub(super) fn descriptor(&self, at: Addresses, sizes: Sizes, state_bytes: u32) -> Descriptor {
        let mut job = descriptor(self.opcode(), FLAGS, at, sizes);
        if state_bytes > 0 {
            job.set_word(job.word() | operation::READ_SOURCE2_STATE);
            job.set_source2(at.state).set_source2_bytes(state_bytes);
        } else {
            job.set_word(job.word() | operation::READ_SOURCE2_INPUT);
            job.set_source2(at.input + sizes.source2_at() as u64).set_source2_bytes(sizes.source2);
        }
        let kind = if self.compressed { decompress::WHOLE_STREAM } else { 0 };
        job.set_kind_flags(kind).set_filter_flags(self.flags()).set_elements(self.elements.count);
        job
    }

    fn flags(&self) -> u32 {
        let parser = match self.elements.parser {
            Parser::LittleEndian => filter::PARSER_LITTLE_ENDIAN,
            Parser::BigEndian => filter::PARSER_BIG_ENDIAN,
            Parser::ParquetRle => filter::PARSER_PARQUET_RLE,
        };
        let width = match self.elements.parser {
            Parser::ParquetRle => 0,
            _ => u32::from(self.elements.bits) - 1,
        };
        let output = match self.output {
            OutputWidth::Nominal => 0,
            OutputWidth::Bits8 => 1,
            OutputWidth::Bits16 => 2,
            OutputWidth::Bits32 => 3,
        };
        let invert = matches!(self.kind, FilterKind::Scan { invert: true, .. });
        // A mask of single bits has width 1, which is 0 in its field.
        parser
            | width << filter::SOURCE1_WIDTH_SHIFT
            | output << filter::OUTPUT_WIDTH_SHIFT
            | if self.mask_big_endian { filter::SOURCE2_BIG_ENDIAN } else { 0 }
            | if self.output_big_endian { filter::OUTPUT_BIG_ENDIAN } else { 0 }
            | if invert { filter::INVERT_OUTPUT } else { 0 }
            | if self.force_array { filter::FORCE_ARRAY } else { 0 }
    }
}
