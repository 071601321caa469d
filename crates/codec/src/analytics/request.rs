//! Requests, and the check of a request that every executor makes before it begins.

use super::{Aggregates, AnalyticsError, Answer};
use std::ops::RangeInclusive;

/// Widths of an element in bits.
const WIDTHS: RangeInclusive<u32> = 1..=32;

/// The most bytes that one byte of DEFLATE can hold: a match of 258 bytes takes at least two bits.
const DEFLATE_RATIO_MAX: u64 = 4 * 258;

/// From which end a byte is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endian {
    /// The first element lies in the low bits of the first byte; integers of whole bytes are little-endian.
    Little,
    /// The first element lies in the high bits of the first byte; integers of whole bytes are big-endian.
    Big,
}

/// The bytes of a column.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// Uncompressed.
    Plain(&'a [u8]),
    /// One raw DEFLATE stream with a window of at most 4 KiB, which holds only the elements. An executor need not
    /// notice bytes behind the last element.
    Deflate(&'a [u8]),
}

/// Packed unsigned integers.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    /// The bytes.
    pub source: Source<'a>,
    /// Bits of an element, 1 to 32.
    pub width: u32,
    /// The order of the packing.
    pub endian: Endian,
    /// The number of elements or bits.
    pub count: u32,
}

impl<'a> Column<'a> {
    /// Uncompressed, little-endian elements.
    pub fn plain(bytes: &'a [u8], width: u32, count: u32) -> Column<'a> {
        Column { source: Source::Plain(bytes), width, endian: Endian::Little, count }
    }

    /// Bytes of all elements, uncompressed.
    pub fn raw_bytes(&self) -> u64 {
        (u64::from(self.count) * u64::from(self.width)).div_ceil(8)
    }
}

/// One bit for each of so many elements.
#[derive(Debug, Clone, Copy)]
pub struct BitMask<'a> {
    /// The bits.
    pub bytes: &'a [u8],
    /// The order of the packing.
    pub endian: Endian,
    /// The number of elements or bits.
    pub count: u32,
}

impl BitMask<'_> {
    /// How many bits are set.
    pub fn ones(&self) -> u32 {
        let (whole, rest) = (self.count as usize / 8, self.count % 8);
        let last = match self.endian {
            _ if rest == 0 => 0,
            Endian::Little => self.bytes[whole] & ((1 << rest) - 1),
            Endian::Big => self.bytes[whole] >> (8 - rest),
        };
        self.bytes[..whole].iter().map(|byte| byte.count_ones()).sum::<u32>() + last.count_ones()
    }
}

/// An operation on a column.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// Gives a bit for each element: 1 if the element is at least `low` and at most `high`. Negated, the bits are
    /// inverted.
    Scan {
        /// The smallest element of the range.
        low: u32,
        /// The largest element of the range. If it is below `low`, the range is empty.
        high: u32,
        /// Every bit is inverted.
        negate: bool,
    },
    /// The elements from an index to another, both included.
    Extract {
        /// The index of the first.
        first: u32,
        /// The index of the last.
        last: u32,
    },
    /// Gives the elements whose bit is set. The mask has a bit for each element.
    Select(BitMask<'a>),
    /// Gives an element for each bit of the mask: the column's next element for a set bit, 0 for any other.
    Expand(BitMask<'a>),
}

/// How wide an element of the output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutputWidth {
    /// As in the column; a bit for a scan.
    Nominal,
    /// 8 bits.
    Bits8,
    /// 16 bits.
    Bits16,
    /// 32 bits.
    Bits32,
}

impl OutputWidth {
    /// In bits, where `nominal` is the width of the column, or 1 for a scan.
    pub fn bits(self, nominal: u32) -> u32 {
        match self {
            OutputWidth::Nominal => nominal,
            OutputWidth::Bits8 => 8,
            OutputWidth::Bits16 => 16,
            OutputWidth::Bits32 => 32,
        }
    }
}

/// The form of the output.
///
/// Output whose elements have one bit is a *bit vector*. A width other than the nominal one turns a bit vector into the
/// indices of its ones, in that width. It turns any other output into wider integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Output {
    /// Bits of an element.
    pub width: OutputWidth,
    /// The order of the packing.
    pub endian: Endian,
}

/// An operation on a column.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The column to read.
    pub column: Column<'a>,
    /// The operation on the column.
    pub operation: Operation<'a>,
    /// The form of the output.
    pub output: Output,
    /// The most bytes of output that the caller accepts.
    pub output_bytes_max: usize,
}

/// The properties of an answer that are known before the work begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Plan {
    /// Bits of an element before the output's width is applied.
    pub(super) nominal: u32,
    /// Bits of an element of the output.
    pub(super) width: u32,
    /// Elements before a bit vector is turned into indices.
    pub(super) elements: u32,
    /// The most bytes of output there can be.
    pub(super) bytes: u64,
}

impl Plan {
    /// Whether the output is a bit vector or its indices.
    pub(super) fn is_bits(&self) -> bool {
        self.nominal == 1
    }

    /// Whether the output is the indices of a bit vector.
    pub(super) fn is_indices(&self) -> bool {
        self.is_bits() && self.width != 1
    }

    /// The answer if there is no output. No executor reads the column then: devices refuse such a request.
    pub(super) fn answer_without_output(&self) -> Option<Answer> {
        let aggregates = if self.is_bits() {
            Aggregates::Bits { ones: 0, first: None, last: None }
        } else {
            Aggregates::Integers { min: 0, max: 0, sum: 0 }
        };
        (self.elements == 0).then_some(Answer { count: 0, bytes: 0, aggregates })
    }
}

impl<'a> Request<'a> {
    /// A request for little-endian output of nominal width, however long.
    pub fn new(column: Column<'a>, operation: Operation<'a>) -> Request<'a> {
        let output = Output { width: OutputWidth::Nominal, endian: Endian::Little };
        Request { column, operation, output, output_bytes_max: usize::MAX }
    }

    /// The most bytes of output that the request can have, whatever the caller accepts, or the reason why it has none.
    pub fn output_bytes_bound(&self) -> Result<u64, AnalyticsError> {
        Request { output_bytes_max: usize::MAX, ..*self }.plan().map(|plan| plan.bytes)
    }

    /// Computes the properties of the answer, or the reason why there is none. The check reads the number of compressed
    /// bytes, not the bytes.
    pub(super) fn plan(&self) -> Result<Plan, AnalyticsError> {
        let Request { column, operation, output, .. } = *self;
        if !WIDTHS.contains(&column.width) {
            return Err(AnalyticsError::Width { bits: column.width });
        }
        let bytes_max = match column.source {
            Source::Plain(bytes) => bytes.len() as u64,
            Source::Deflate(packed) => packed.len() as u64 * DEFLATE_RATIO_MAX,
        };
        if bytes_max < column.raw_bytes() {
            return Err(AnalyticsError::SourceTooShort { bytes_needed: column.raw_bytes() });
        }
        let elements = elements(column.count, operation)?;
        let nominal = if matches!(operation, Operation::Scan { .. }) { 1 } else { column.width };
        let width = output.width.bits(nominal);
        if width < nominal {
            return Err(AnalyticsError::OutputTooNarrow { bits: width });
        }
        let plan =
            Plan { nominal, width, elements, bytes: (u64::from(elements) * u64::from(width)).div_ceil(8) };
        // The number of ones is not known yet.
        if !plan.is_indices() && plan.bytes > self.output_bytes_max as u64 {
            return Err(AnalyticsError::OutputFull { bytes_max: self.output_bytes_max });
        }
        Ok(plan)
    }
}

/// The number of elements that the operation gives for a column of `count` elements.
fn elements(count: u32, operation: Operation<'_>) -> Result<u32, AnalyticsError> {
    match operation {
        Operation::Scan { .. } => Ok(count),
        Operation::Extract { first, last } if first <= last && last < count => Ok(last - first + 1),
        Operation::Extract { first, last } => Err(AnalyticsError::Range { first, last, count }),
        Operation::Select(mask) => {
            check_mask(&mask)?;
            if mask.count != count {
                return Err(AnalyticsError::MaskCount { bits: mask.count, count });
            }
            Ok(mask.ones())
        }
        Operation::Expand(mask) => {
            check_mask(&mask)?;
            let ones = mask.ones();
            if ones > count {
                return Err(AnalyticsError::TooFewElements { ones, count });
            }
            Ok(mask.count)
        }
    }
}

fn check_mask(mask: &BitMask<'_>) -> Result<(), AnalyticsError> {
    let bytes_needed = mask.count.div_ceil(8);
    if mask.bytes.len() < bytes_needed as usize {
        return Err(AnalyticsError::MaskTooShort { bytes_needed });
    }
    Ok(())
}
