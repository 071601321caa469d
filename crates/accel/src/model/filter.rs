//! The analytic operations on elements.
//!
//! The interface leaves some points open. This module chooses:
//!
//! - Missing elements are [`Source1TooShort`](ErrorCode::Source1TooShort) if source 1 is packed and not compressed,
//!   else [`TooFewElements`](ErrorCode::TooFewElements).
//! - A vector without a 1 has [`u32::MAX`] as the index of its first 1 and 0 as that of its last.
//! - Sums are taken modulo 2^32.
//! - The counts of an RLE burst are plain counts at every width.

use super::elements::{Elements, Packing};
use super::validate::KEY_BITS_MAX;
use crate::completion::ErrorCode;
use crate::descriptor::{Opcode, filter};

/// The parameters of a filter.
pub(super) struct Question<'a> {
    pub(super) opcode: Opcode,
    pub(super) flags: u32,
    pub(super) elements: u32,
    pub(super) low: u32,
    pub(super) high: u32,
    pub(super) output_index: u32,
    pub(super) source1: &'a [u8],
    pub(super) source2: &'a [u8],
    /// Whether source 1 came compressed.
    pub(super) was_compressed: bool,
    pub(super) is_array: bool,
    pub(super) output_max: usize,
}

/// Results besides the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Aggregates {
    pub(super) minimum: u32,
    pub(super) maximum: u32,
    pub(super) sum: u32,
    /// Valid bits of the last byte of output, 0 for all.
    pub(super) last_bits: u8,
}

/// How source 1 is packed.
pub(super) fn packing(flags: u32) -> Packing {
    let width = (flags >> filter::SOURCE1_WIDTH_SHIFT & 31) + 1;
    match flags & filter::PARSER_MASK {
        filter::PARSER_LITTLE_ENDIAN => Packing::Low(width),
        filter::PARSER_BIG_ENDIAN => Packing::High(width),
        _ => Packing::Parquet,
    }
}

impl Question<'_> {
    pub(super) fn answer(&self, output: &mut Vec<u8>) -> Result<Aggregates, ErrorCode> {
        output.clear();
        let mut source = Elements::new(self.source1, packing(self.flags))?;
        let mut sink = Sink::new(self, source.width(), output);
        match self.opcode {
            Opcode::Scan => self.scan(&mut source, &mut sink)?,
            Opcode::Extract => self.extract(&mut source, &mut sink)?,
            Opcode::Select => self.select(&mut source, &mut sink)?,
            Opcode::Expand => self.expand(&mut source, &mut sink)?,
            Opcode::SetMembership => self.set_membership(&mut source, &mut sink)?,
            Opcode::FindUnique => self.find_unique(&mut source, &mut sink)?,
            _ => self.rle_burst(&mut source, &mut sink)?,
        }
        sink.finish()
    }

    fn element(&self, source: &mut Elements<'_>) -> Result<u32, ErrorCode> {
        let is_plain = matches!(source, Elements::Packed { .. }) && !self.was_compressed;
        let missing = if is_plain { ErrorCode::Source1TooShort } else { ErrorCode::TooFewElements };
        source.next()?.ok_or(missing)
    }

    /// The numbers of source 2.
    fn second(&self) -> Elements<'_> {
        let width = (self.flags >> filter::SOURCE2_WIDTH_SHIFT & 31) + 1;
        let is_high = self.flags & filter::SOURCE2_BIG_ENDIAN != 0;
        Elements::Packed { bytes: self.source2, width, is_high, at: 0 }
    }

    fn scan(&self, source: &mut Elements<'_>, sink: &mut Sink<'_>) -> Result<(), ErrorCode> {
        for _ in 0..self.elements {
            let value = self.element(source)?;
            sink.put(u32::from((self.low..=self.high).contains(&value)))?;
        }
        Ok(())
    }

    fn extract(&self, source: &mut Elements<'_>, sink: &mut Sink<'_>) -> Result<(), ErrorCode> {
        for index in 0..self.elements {
            let value = self.element(source)?;
            if (self.low..=self.high).contains(&index) {
                sink.put(value)?;
            }
        }
        Ok(())
    }

    fn select(&self, source: &mut Elements<'_>, sink: &mut Sink<'_>) -> Result<(), ErrorCode> {
        let mut mask = self.second();
        for _ in 0..self.elements {
            let value = self.element(source)?;
            if mask.next()?.ok_or(ErrorCode::Source2TooShort)? == 1 {
                sink.put(value)?;
            }
        }
        Ok(())
    }

    fn expand(&self, source: &mut Elements<'_>, sink: &mut Sink<'_>) -> Result<(), ErrorCode> {
        let mut mask = self.second();
        for _ in 0..self.elements {
            let is_set = mask.next()?.ok_or(ErrorCode::Source2TooShort)? == 1;
            sink.put(if is_set { self.element(source)? } else { 0 })?;
        }
        Ok(())
    }

    /// The bits of an element that choose a bit of a set.
    fn key(&self, value: u32, width: u32) -> Result<usize, ErrorCode> {
        let (low, high) =
            (self.flags >> filter::DROP_LOW_SHIFT & 31, self.flags >> filter::DROP_HIGH_SHIFT & 31);
        let bits = width.checked_sub(low + high).filter(|bits| (1..=KEY_BITS_MAX).contains(bits));
        let bits = bits.ok_or(ErrorCode::ParquetWidth)?;
        Ok((value >> low & ((1 << bits) - 1)) as usize)
    }

    fn set_membership(&self, source: &mut Elements<'_>, sink: &mut Sink<'_>) -> Result<(), ErrorCode> {
        let keys = self.key(u32::MAX, source.width())? + 1;
        let mut set = Vec::with_capacity(keys);
        let mut bits = self.second();
        for _ in 0..keys {
            set.push(bits.next()?.ok_or(ErrorCode::Source2TooShort)?);
        }
        for _ in 0..self.elements {
            let key = self.key(self.element(source)?, source.width())?;
            sink.put(set[key])?;
        }
        Ok(())
    }

    fn find_unique(&self, source: &mut Elements<'_>, sink: &mut Sink<'_>) -> Result<(), ErrorCode> {
        let mut set = vec![0; self.key(u32::MAX, source.width())? + 1];
        for _ in 0..self.elements {
            let key = self.key(self.element(source)?, source.width())?;
            set[key] = 1;
        }
        set.into_iter().try_for_each(|bit| sink.put(bit))
    }

    fn rle_burst(&self, source: &mut Elements<'_>, sink: &mut Sink<'_>) -> Result<(), ErrorCode> {
        let mut values = self.second();
        for _ in 0..self.elements {
            let times = self.element(source)?;
            let value = values.next()?.ok_or(ErrorCode::Source2TooShort)?;
            (0..times).try_for_each(|_| sink.put(value))?;
        }
        Ok(())
    }
}

/// The output of a filter, an array or a bit vector.
struct Sink<'a> {
    output: &'a mut Vec<u8>,
    output_max: usize,
    /// Bits of an element that is written; of a bit vector 1, or those of an index.
    width: u32,
    is_array: bool,
    /// Whether a bit vector becomes a list of the indices of its ones.
    lists: bool,
    inverts: bool,
    is_high: bool,
    word: u64,
    filled: u32,
    index: u32,
    position: u32,
    aggregates: Aggregates,
}

impl<'a> Sink<'a> {
    fn new(question: &Question<'_>, width: u32, output: &'a mut Vec<u8>) -> Sink<'a> {
        let is_array = question.is_array;
        let stated = [0, 8, 16, 32][(question.flags >> filter::OUTPUT_WIDTH_SHIFT & 3) as usize];
        let width = match question.opcode {
            Opcode::RleBurst => (question.flags >> filter::SOURCE2_WIDTH_SHIFT & 31) + 1,
            _ => width,
        };
        let nominal = if is_array { width } else { 1 };
        Sink {
            output,
            output_max: question.output_max,
            width: if stated == 0 { nominal } else { stated },
            is_array,
            lists: !is_array && stated != 0,
            inverts: question.flags & filter::INVERT_OUTPUT != 0,
            is_high: question.flags & filter::OUTPUT_BIG_ENDIAN != 0,
            word: 0,
            filled: 0,
            index: question.output_index,
            position: 0,
            aggregates: Aggregates { minimum: u32::MAX, maximum: 0, sum: 0, last_bits: 0 },
        }
    }

    #[inline]
    fn put(&mut self, value: u32) -> Result<(), ErrorCode> {
        if self.is_array {
            self.aggregate(value);
            return self.write(value);
        }
        let bit = (value & 1) ^ u32::from(self.inverts);
        let position = self.position;
        self.position = position.wrapping_add(1);
        if bit == 1 {
            self.aggregates.minimum = self.aggregates.minimum.min(position);
            self.aggregates.maximum = position;
            self.aggregates.sum = self.aggregates.sum.wrapping_add(1);
        }
        match self.lists {
            false => self.write(bit),
            true if bit == 1 => {
                let index = self.index.checked_add(position).ok_or(ErrorCode::OutputTooNarrow)?;
                self.write(index)
            }
            true => Ok(()),
        }
    }

    fn aggregate(&mut self, value: u32) {
        let aggregates = &mut self.aggregates;
        aggregates.minimum = aggregates.minimum.min(value);
        aggregates.maximum = aggregates.maximum.max(value);
        aggregates.sum = aggregates.sum.wrapping_add(value);
    }

    #[inline]
    fn write(&mut self, value: u32) -> Result<(), ErrorCode> {
        let (value, width) = (u64::from(value), self.width);
        if value >> width != 0 {
            return Err(ErrorCode::OutputTooNarrow);
        }
        // Big-endian output is filled from the high bit down, so that whole bytes come highest first.
        self.word |= if self.is_high { value << (64 - width - self.filled) } else { value << self.filled };
        self.filled += width;
        while self.filled >= 8 {
            self.flush_byte()?;
        }
        Ok(())
    }

    fn flush_byte(&mut self) -> Result<(), ErrorCode> {
        if self.output.len() == self.output_max {
            return Err(ErrorCode::UnrecoverableOverflow);
        }
        if self.is_high {
            self.output.push((self.word >> 56) as u8);
            self.word <<= 8;
        } else {
            self.output.push(self.word as u8);
            self.word >>= 8;
        }
        self.filled = self.filled.saturating_sub(8);
        Ok(())
    }

    fn finish(mut self) -> Result<Aggregates, ErrorCode> {
        self.aggregates.last_bits = self.filled as u8;
        if self.filled > 0 {
            self.flush_byte()?;
        }
        Ok(self.aggregates)
    }
}
