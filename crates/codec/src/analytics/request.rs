//! What is asked, and whether it makes sense: every executor checks a request here before it begins.

use super::AnalyticsError;
use std::ops::RangeInclusive;

/// Widths of an element in bits.
const WIDTHS: RangeInclusive<u32> = 1..=32;

/// The most bytes that one byte of DEFLATE can hold: a match of 258 bytes takes two bits at least.
const DEFLATE_RATIO_MAX: u64 = 4 * 258;

/// From which end a byte is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endian {
    /// The first element lies in the low bits of the first byte; integers of whole bytes are little-endian.
    Little,
    /// The first element lies in the high bits of the first byte; integers of whole bytes are big-endian.
    Big,
}

/// Where the bytes of a column are.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// Here, as they are.
    Plain(&'a [u8]),
    /// In one raw DEFLATE stream with a window of at most 4 KiB, which holds the elements and nothing else. Whether
    /// bytes behind the last element are noticed is up to the executor.
    Deflate(&'a [u8]),
}

/// Packed unsigned integers.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    /// The bytes.
    pub source: Source<'a>,
    /// Bits of an element, 1 to 32.
    pub width: u32,
    /// How they are packed.
    pub endian: Endian,
    /// How many they are.
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
    /// How they are packed.
    pub endian: Endian,
    /// How many they are.
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

/// What to do with a column.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// A bit for each element: whether it is at least `low` and at most `high`, or, negated, whether it is not.
    Scan {
        /// The smallest element of the range.
        low: u32,
        /// The largest one; below `low` the range is empty.
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
    /// The elements whose bit is set; the mask has a bit for each.
    Select(BitMask<'a>),
    /// An element for each bit of the mask: the column's next one where it is set, 0 elsewhere.
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
/// Output whose elements have one bit is a *bit vector*. Another width than the nominal one turns a bit vector into the
/// indices of its ones, in that width, and anything else into wider integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Output {
    /// Bits of an element.
    pub width: OutputWidth,
    /// How they are packed.
    pub endian: Endian,
}

/// An operation on a column.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What is read.
    pub column: Column<'a>,
    /// What is done with it.
    pub operation: Operation<'a>,
    /// The form of the output.
    pub output: Output,
    /// The most bytes of output that the caller takes.
    pub output_bytes_max: usize,
}

/// What is known of an answer beforehand.
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

    /// Whether it is the indices of a bit vector.
    pub(super) fn is_indices(&self) -> bool {
        self.is_bits() && self.width != 1
    }
}

impl<'a> Request<'a> {
    /// A request for little-endian output of nominal width, however long.
    pub fn new(column: Column<'a>, operation: Operation<'a>) -> Request<'a> {
        let output = Output { width: OutputWidth::Nominal, endian: Endian::Little };
        Request { column, operation, output, output_bytes_max: usize::MAX }
    }

    /// Says what will come out, or why nothing will. Compressed bytes are not looked at, but their number is.
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
        // How many ones there are is not known yet.
        if !plan.is_indices() && plan.bytes > self.output_bytes_max as u64 {
            return Err(AnalyticsError::OutputFull { bytes_max: self.output_bytes_max });
        }
        Ok(plan)
    }
}

/// How many elements come out of a column of so many.
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
