//! The form of the output: integers of any width, a bit vector, or the indices of its ones.

use super::kernels::{Bits, CHUNK, Kernels, Packing, Totals};
use super::portable;
use super::request::Plan;
use super::{Aggregates, AnalyticsError, Answer, Endian, Request};

/// Takes integers or bits and appends them in the requested form.
pub(super) struct Writer<'a> {
    kernels: Kernels,
    plan: Plan,
    packing: Packing,
    bytes_max: usize,
    out: &'a mut Vec<u8>,
    /// The start of the output in the buffer.
    start: usize,
    /// Integers that are not a whole chunk yet.
    staged: [u32; CHUNK],
    staged_count: usize,
    totals: Totals,
    /// Bits written so far, as bits or as indices.
    bits: u32,
    ones: u32,
    first: Option<u32>,
    last: Option<u32>,
}

impl<'a> Writer<'a> {
    /// A writer behind the end of `out`. It reserves room for the output whose length is certain.
    pub(super) fn new(
        kernels: Kernels,
        request: &Request<'_>,
        plan: Plan,
        out: &'a mut Vec<u8>,
    ) -> Writer<'a> {
        if !plan.is_indices() {
            out.reserve(plan.bytes as usize);
        }
        Writer {
            kernels,
            plan,
            packing: Packing { width: plan.width, endian: request.output.endian },
            bytes_max: request.output_bytes_max,
            start: out.len(),
            out,
            staged: [0; CHUNK],
            staged_count: 0,
            totals: Totals::NONE,
            bits: 0,
            ones: 0,
            first: None,
            last: None,
        }
    }

    /// Takes at most a chunk of integers.
    pub(super) fn push(&mut self, values: &[u32]) -> Result<(), AnalyticsError> {
        if self.staged_count == 0 && values.len() == CHUNK {
            return self.write(values);
        }
        let fitting = values.len().min(CHUNK - self.staged_count);
        let (now, later) = values.split_at(fitting);
        self.staged[self.staged_count..][..fitting].copy_from_slice(now);
        self.staged_count += fitting;
        if self.staged_count == CHUNK {
            let staged = self.staged;
            self.write(&staged)?;
            self.staged[..later.len()].copy_from_slice(later);
            self.staged_count = later.len();
        }
        Ok(())
    }

    /// Takes the first `count` bits of a chunk. Only the last chunk may be shorter.
    pub(super) fn push_bits(&mut self, mut bits: Bits, count: usize) -> Result<(), AnalyticsError> {
        clear_behind(&mut bits, count);
        for (index, &word) in bits.iter().enumerate().filter(|(_, word)| **word != 0) {
            let at = self.bits + 64 * index as u32;
            self.ones += word.count_ones();
            self.first.get_or_insert(at + word.trailing_zeros());
            self.last = Some(at + 63 - word.leading_zeros());
        }
        if self.plan.is_indices() {
            self.write_indices(&bits)?;
        } else {
            let mut bytes = [0; CHUNK / 8];
            for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(bits) {
                *bytes = match self.packing.endian {
                    Endian::Little => word.to_le_bytes(),
                    Endian::Big => word.reverse_bits().to_be_bytes(),
                };
            }
            self.check_room(count.div_ceil(8))?;
            self.out.extend_from_slice(&bytes[..count.div_ceil(8)]);
        }
        self.bits += count as u32;
        Ok(())
    }

    fn write_indices(&mut self, bits: &Bits) -> Result<(), AnalyticsError> {
        let (mut indices, mut count) = ([0; CHUNK], 0);
        for (index, &word) in bits.iter().enumerate() {
            let mut word = word;
            while word != 0 {
                indices[count] = self.bits + 64 * index as u32 + word.trailing_zeros();
                count += 1;
                word &= word - 1;
            }
        }
        let indices = &indices[..count];
        if indices.last().is_some_and(|&last| last > self.packing.element_max()) {
            return Err(AnalyticsError::OutputTooNarrow { bits: self.packing.width });
        }
        self.pack(indices)
    }

    /// Writes a chunk of integers, or the last ones.
    fn write(&mut self, values: &[u32]) -> Result<(), AnalyticsError> {
        if self.plan.is_bits() {
            let mut chunk = [0; CHUNK];
            chunk[..values.len()].copy_from_slice(values);
            return self.push_bits(portable::between(&chunk, 1, 1), values.len());
        }
        self.kernels.total(values, &mut self.totals);
        self.pack(values)
    }

    /// Packs elements behind the others.
    fn pack(&mut self, elements: &[u32]) -> Result<(), AnalyticsError> {
        self.check_room(self.packing.bytes(elements.len()))?;
        self.kernels.pack(elements, self.packing, self.out);
        Ok(())
    }

    /// Refuses more output than was asked for: more indices, or elements of bits of a mask that another thread has set
    /// since they were counted.
    fn check_room(&self, bytes: usize) -> Result<(), AnalyticsError> {
        if self.out.len() - self.start + bytes > self.bytes_max {
            return Err(AnalyticsError::OutputFull { bytes_max: self.bytes_max });
        }
        Ok(())
    }

    /// Writes the rest.
    pub(super) fn finish(mut self) -> Result<Answer, AnalyticsError> {
        let staged = self.staged;
        self.write(&staged[..self.staged_count])?;
        let bytes = self.out.len() - self.start;
        let Writer { ones, first, last, totals, plan, .. } = self;
        let (count, aggregates) = if plan.is_bits() {
            (if plan.is_indices() { ones } else { plan.elements }, Aggregates::Bits { ones, first, last })
        } else {
            let min = if plan.elements == 0 { 0 } else { totals.min };
            (plan.elements, Aggregates::Integers { min, max: totals.max, sum: totals.sum })
        };
        Ok(Answer { count, bytes, aggregates })
    }
}

/// Clears the bits from an index on.
pub(super) fn clear_behind(bits: &mut Bits, count: usize) {
    for (index, word) in bits.iter_mut().enumerate() {
        let kept = count.saturating_sub(64 * index);
        if kept < 64 {
            *word &= (1 << kept) - 1;
        }
    }
}
