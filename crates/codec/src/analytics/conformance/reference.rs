//! Computes the right answers bit by bit: slow, and plain enough to be trusted.

use crate::analytics::{Aggregates, AnalyticsError, Answer, Endian, Output, OutputWidth};
use ziptier_deflate::{Dictionary, Encoder, Huffman, Level};

/// A column as its integers.
pub(super) struct Elements {
    pub(super) values: Vec<u32>,
    pub(super) width: u32,
    pub(super) endian: Endian,
}

/// The operation. Its masks lie elsewhere.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operation {
    Scan { low: u32, high: u32, negate: bool },
    Extract { first: u32, last: u32 },
    Select,
    Expand,
}

impl Elements {
    pub(super) fn packed(&self) -> Vec<u8> {
        packed(&self.values, self.width, self.endian)
    }

    /// The answer, and the bytes of the output.
    pub(super) fn answer(
        &self,
        operation: Operation,
        mask: &[bool],
        output: Output,
    ) -> (Result<Answer, AnalyticsError>, Vec<u8>) {
        let (elements, nominal) = match operation {
            Operation::Scan { low, high, negate } => {
                let found = |value: &u32| u32::from((low <= *value && *value <= high) != negate);
                (self.values.iter().map(found).collect(), 1)
            }
            Operation::Extract { first, last } => {
                (self.values[first as usize..=last as usize].to_vec(), self.width)
            }
            Operation::Select => (self.selected(mask), self.width),
            Operation::Expand => (self.expanded(mask), self.width),
        };
        let aggregates = aggregates(&elements, nominal);
        let elements = match output.width {
            OutputWidth::Nominal => elements,
            _ if nominal == 1 => indices(&elements),
            _ => elements,
        };
        let width = output.width.bits(nominal);
        if elements.iter().any(|&element| u64::from(element) >= 1 << width) {
            return (Err(AnalyticsError::OutputTooNarrow { bits: width }), Vec::new());
        }
        let bytes = packed(&elements, width, output.endian);
        (Ok(Answer { count: elements.len() as u32, bytes: bytes.len(), aggregates }), bytes)
    }

    fn selected(&self, mask: &[bool]) -> Vec<u32> {
        self.values.iter().zip(mask).filter(|(_, bit)| **bit).map(|(value, _)| *value).collect()
    }

    fn expanded(&self, mask: &[bool]) -> Vec<u32> {
        let mut values = self.values.iter().copied();
        mask.iter().map(|bit| if *bit { values.next().unwrap_or(0) } else { 0 }).collect()
    }
}

fn indices(bits: &[u32]) -> Vec<u32> {
    (0..).zip(bits).filter(|(_, bit)| **bit == 1).map(|(index, _)| index).collect()
}

fn aggregates(elements: &[u32], nominal: u32) -> Aggregates {
    if nominal == 1 {
        let ones = indices(elements);
        let (first, last) = (ones.first().copied(), ones.last().copied());
        return Aggregates::Bits { ones: ones.len() as u32, first, last };
    }
    let sum = elements.iter().map(|&element| u64::from(element)).sum::<u64>() as u32;
    let [min, max] = [elements.iter().min(), elements.iter().max()].map(|found| found.copied().unwrap_or(0));
    Aggregates::Integers { min, max, sum }
}

/// Packs integers, one bit after the other.
pub(super) fn packed(values: &[u32], width: u32, endian: Endian) -> Vec<u8> {
    let width = width as usize;
    let mut bytes = vec![0; (values.len() * width).div_ceil(8)];
    for (index, &value) in values.iter().enumerate() {
        for bit in 0..width {
            if value >> bit & 1 == 0 {
                continue;
            }
            match endian {
                // Bits fill a byte from its low bit, the lowest bit of an element first.
                Endian::Little => {
                    let at = index * width + bit;
                    bytes[at / 8] |= 1 << (at % 8);
                }
                // Bits fill a byte from its high bit, the highest bit of an element first. Integers of whole bytes then
                // have their highest byte first.
                Endian::Big => {
                    let at = index * width + (width - 1 - bit);
                    bytes[at / 8] |= 0x80 >> (at % 8);
                }
            }
        }
    }
    bytes
}

/// A raw DEFLATE stream of these bytes.
pub(super) fn deflated(raw: &[u8]) -> Vec<u8> {
    let dictionary = Dictionary::new(b"");
    let mut out = Vec::new();
    let mut encoder = Encoder::new(&dictionary, Level::Fast);
    let length = encoder.compress(Huffman::Dynamic, raw, &mut out, raw.len() + raw.len() / 64 + 64);
    assert!(length.is_some(), "stored blocks always fit");
    out
}
