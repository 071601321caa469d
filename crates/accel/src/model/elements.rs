//! The elements of a filter's input: unsigned numbers of 1 to 32 bits.

use crate::completion::ErrorCode;

/// How elements are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Packing {
    /// From the low bit of each byte up.
    Low(u32),
    /// From the high bit of each byte down.
    High(u32),
    /// Parquet's runs, behind a byte that states the width.
    Parquet,
}

pub(super) enum Elements<'a> {
    Packed { bytes: &'a [u8], width: u32, is_high: bool, at: usize },
    Runs(Runs<'a>),
}

impl<'a> Elements<'a> {
    pub(super) fn new(bytes: &'a [u8], packing: Packing) -> Result<Elements<'a>, ErrorCode> {
        match packing {
            Packing::Low(width) => Ok(Elements::Packed { bytes, width, is_high: false, at: 0 }),
            Packing::High(width) => Ok(Elements::Packed { bytes, width, is_high: true, at: 0 }),
            Packing::Parquet => {
                let (&width, bytes) = bytes.split_first().ok_or(ErrorCode::ParquetFormat)?;
                if !(1..=32).contains(&width) {
                    return Err(ErrorCode::ParquetWidth);
                }
                Ok(Elements::Runs(Runs {
                    bytes,
                    width: u32::from(width),
                    run: Run::Repeated { value: 0, left: 0 },
                }))
            }
        }
    }

    /// Bits of an element.
    pub(super) fn width(&self) -> u32 {
        match self {
            Elements::Packed { width, .. } => *width,
            Elements::Runs(runs) => runs.width,
        }
    }

    /// The next element; `None` at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<u32>, ErrorCode> {
        match self {
            Elements::Packed { bytes, width, is_high, at } => {
                let value = packed(bytes, *at, *width, *is_high);
                *at += *width as usize;
                Ok(value)
            }
            Elements::Runs(runs) => runs.next(),
        }
    }
}

/// The number of so many bits that begins at a bit.
#[inline]
fn packed(bytes: &[u8], at: usize, width: u32, is_high: bool) -> Option<u32> {
    let (first, shift) = (at / 8, (at % 8) as u32);
    if at + width as usize > 8 * bytes.len() {
        return None;
    }
    let mut chunk = [0; 8];
    let used = &bytes[first..bytes.len().min(first + 8)];
    chunk[..used.len()].copy_from_slice(used);
    let value = match is_high {
        false => u64::from_le_bytes(chunk) >> shift,
        true => u64::from_be_bytes(chunk) << shift >> (64 - width),
    };
    Some((value & ((1 << width) - 1)) as u32)
}

/// Parquet's hybrid of runs and packed groups of eight.
pub(super) struct Runs<'a> {
    bytes: &'a [u8],
    width: u32,
    run: Run<'a>,
}

enum Run<'a> {
    Repeated { value: u32, left: u32 },
    Packed { groups: &'a [u8], at: usize, left: u32 },
}

impl<'a> Runs<'a> {
    fn next(&mut self) -> Result<Option<u32>, ErrorCode> {
        loop {
            match &mut self.run {
                Run::Repeated { value, left } if *left > 0 => {
                    *left -= 1;
                    return Ok(Some(*value));
                }
                Run::Packed { groups, at, left } if *left > 0 => {
                    let value = packed(groups, *at, self.width, false);
                    *at += self.width as usize;
                    *left -= 1;
                    return value.ok_or(ErrorCode::ParquetFormat).map(Some);
                }
                _ if self.bytes.is_empty() => return Ok(None),
                _ => self.run = self.next_run()?,
            }
        }
    }

    fn next_run(&mut self) -> Result<Run<'a>, ErrorCode> {
        let header = self.varint()?;
        let count = header >> 1;
        if count == 0 {
            return Err(ErrorCode::ParquetFormat);
        }
        if header & 1 == 1 {
            // The last group may be cut off behind the last requested element.
            let bytes = (count as usize * self.width as usize).min(self.bytes.len());
            let (groups, rest) = self.bytes.split_at(bytes);
            self.bytes = rest;
            return Ok(Run::Packed { groups, at: 0, left: count.saturating_mul(8) });
        }
        let bytes = self.width.div_ceil(8) as usize;
        let (value, rest) = self.bytes.split_at_checked(bytes).ok_or(ErrorCode::ParquetFormat)?;
        self.bytes = rest;
        let value = value.iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte));
        if value >> self.width != 0 {
            return Err(ErrorCode::ParquetFormat);
        }
        Ok(Run::Repeated { value: value as u32, left: count })
    }

    /// A number of at most four bytes of seven bits, the lowest first.
    fn varint(&mut self) -> Result<u32, ErrorCode> {
        let mut number = 0;
        for shift in [0, 7, 14, 21] {
            let (&byte, rest) = self.bytes.split_first().ok_or(ErrorCode::ParquetFormat)?;
            self.bytes = rest;
            number |= u32::from(byte & 127) << shift;
            if byte & 128 == 0 {
                return Ok(number);
            }
        }
        Err(ErrorCode::ParquetFormat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], packing: Packing) -> Result<Vec<u32>, ErrorCode> {
        let mut elements = Elements::new(bytes, packing)?;
        let mut values = Vec::new();
        while let Some(value) = elements.next()? {
            values.push(value);
        }
        Ok(values)
    }

    #[test]
    fn packed_numbers_are_read_from_both_ends() {
        assert_eq!(all(&[0b1010_0011, 0b11], Packing::Low(5)), Ok(vec![0b00011, 0b11101, 0]));
        assert_eq!(all(&[0b1010_0011, 0b1100_0000], Packing::High(5)), Ok(vec![0b10100, 0b01111, 0]));
        assert_eq!(all(&[1, 2, 3, 4, 5], Packing::Low(32)), Ok(vec![0x0403_0201]));
        assert_eq!(all(&[1, 2, 3, 4], Packing::High(32)), Ok(vec![0x0102_0304]));
        assert_eq!(all(&[0b10], Packing::Low(1)), Ok(vec![0, 1, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn parquet_runs_are_those_of_its_format() {
        // Its documentation's example: 0 to 7 in 3 bits; then five times 4.
        let bytes = [3, 0b11, 0b1000_1000, 0b1100_0110, 0b1111_1010, 10, 4];
        assert_eq!(all(&bytes, Packing::Parquet), Ok(vec![0, 1, 2, 3, 4, 5, 6, 7, 4, 4, 4, 4, 4]));
        assert_eq!(all(&[12, 0x82, 0x01, 0xFF, 0x0F], Packing::Parquet), Ok(vec![0xFFF; 65]));
        for faulty in [&[][..], &[3, 0], &[3, 10], &[3, 10, 8], &[3, 128, 128, 128, 128, 1], &[3, 3, 1, 1]] {
            assert_eq!(all(faulty, Packing::Parquet), Err(ErrorCode::ParquetFormat), "{faulty:?}");
        }
        assert_eq!(all(&[33, 10, 4], Packing::Parquet), Err(ErrorCode::ParquetWidth));
        assert_eq!(all(&[0, 10, 4], Packing::Parquet), Err(ErrorCode::ParquetWidth));
    }
}
