//! Token dictionaries as short as files need them: front-coded, then packed by zstd. 106 KB become about 40.
//!
//! Their codes are packed by zstd, too. They are mostly numbers that ascend, so differences stand in place of numbers
//! from the first code on: all lower bytes, and then all higher ones.

use super::Dictionary;
use super::entropy::Codes;
use super::front_coding::{front_coded, restored};
use crate::block::{BlockError, Setting};
use crate::envelope::HEADER_BYTES;
use crate::format::Format;

/// A dictionary is packed once and read many times.
const LEVEL: i32 = 19;

/// One token in this many keeps its place among the most used, which share cache lines. The others are sorted, so that
/// neighbours share their beginnings.
const HOT_SHARE: usize = 16;

/// The longest stored dictionary that [`unpack`] makes.
const BYTES_MAX: usize = 4 << 20;

/// A packed dictionary, or its packed codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// A zstd frame without its magic number.
    pub bytes: Vec<u8>,
    /// The length of what the frame holds.
    pub coded_bytes: usize,
}

/// The reason why packed bytes are no dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnpackError {
    /// zstd's frame is damaged, or zstd cannot work.
    Frame(BlockError),
    /// The contents are no front-coded dictionary of a sensible length.
    NotFrontCoded,
    /// The dictionary is damaged.
    Dictionary(super::DictionaryError),
    /// The codes have no sensible length.
    LongCodes,
    /// The codes are damaged, or of another dictionary.
    Codes(super::CodesError),
}

impl std::fmt::Display for UnpackError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UnpackError::Frame(error) => error.fmt(f),
            UnpackError::NotFrontCoded => write!(f, "its tokens are not front-coded"),
            UnpackError::Dictionary(error) => error.fmt(f),
            UnpackError::LongCodes => write!(f, "its codes are too long"),
            UnpackError::Codes(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for UnpackError {}

/// The same tokens in the order in which they pack best.
///
/// # Errors
///
/// As of [`Dictionary::sorted_behind`].
pub fn in_order(dictionary: &Dictionary) -> Result<Dictionary, super::DictionaryError> {
    dictionary.sorted_behind(dictionary.tokens() / HOT_SHARE)
}

/// Packs a dictionary, best one that is [`in_order`].
///
/// # Errors
///
/// zstd has no memory.
pub fn pack(dictionary: &Dictionary) -> Result<Packed, BlockError> {
    packed(&front_coded(&dictionary.to_bytes()).unwrap_or_default())
}

/// Packs the codes of a dictionary.
///
/// # Errors
///
/// zstd has no memory.
pub fn pack_codes(codes: &Codes, dictionary: &Dictionary) -> Result<Packed, BlockError> {
    packed(&differences(&codes.to_bytes(dictionary), codes_at(dictionary)))
}

fn packed(coded: &[u8]) -> Result<Packed, BlockError> {
    let mut bytes = Vec::new();
    zstd()?.open()?.compress(coded, &mut bytes, BYTES_MAX)?;
    Ok(Packed { bytes, coded_bytes: coded.len() })
}

/// Loads a packed dictionary. The bytes and the length may be any.
///
/// # Errors
///
/// As [`UnpackError`] says.
pub fn unpack(packed: &[u8], coded_bytes: usize) -> Result<Dictionary, UnpackError> {
    if coded_bytes > BYTES_MAX {
        return Err(UnpackError::NotFrontCoded);
    }
    let coded = unpacked(packed, coded_bytes)?;
    let stored = restored(&coded, BYTES_MAX).ok_or(UnpackError::NotFrontCoded)?;
    Dictionary::from_bytes(&stored).map_err(UnpackError::Dictionary)
}

/// Loads packed codes of a dictionary. The bytes and the length may be any.
///
/// # Errors
///
/// As [`UnpackError`] says.
pub fn unpack_codes(
    dictionary: &Dictionary,
    packed: &[u8],
    coded_bytes: usize,
) -> Result<Codes, UnpackError> {
    if coded_bytes > BYTES_MAX {
        return Err(UnpackError::LongCodes);
    }
    let stored = sums(&unpacked(packed, coded_bytes)?, codes_at(dictionary));
    Codes::from_bytes(dictionary, &stored).map_err(UnpackError::Codes)
}

fn unpacked(packed: &[u8], coded_bytes: usize) -> Result<Vec<u8>, UnpackError> {
    let mut coded = Vec::new();
    let unpacked = zstd().and_then(|zstd| zstd.open()?.decompress(packed, &mut coded, coded_bytes));
    unpacked.map_err(UnpackError::Frame)?;
    Ok(coded)
}

/// The place of the first code, behind the contexts of all tokens and of the beginning of a value.
fn codes_at(dictionary: &Dictionary) -> usize {
    HEADER_BYTES + (dictionary.tokens() + 1).div_ceil(2)
}

/// The bytes with differences in place of the numbers from `from` on.
fn differences(stored: &[u8], from: usize) -> Vec<u8> {
    let (head, numbers) = stored.split_at(from.min(stored.len()));
    let (numbers, end) = numbers.as_chunks();
    let mut before = 0u16;
    let differences = numbers.iter().map(|&number| {
        let number = u16::from_le_bytes(number);
        let difference = number.wrapping_sub(before);
        before = number;
        difference.to_le_bytes()
    });
    let (low, high): (Vec<u8>, Vec<u8>) = differences.map(|[low, high]| (low, high)).unzip();
    [head, &low, &high, end].concat()
}

/// The bytes of which these are the [differences].
fn sums(coded: &[u8], from: usize) -> Vec<u8> {
    let (head, rest) = coded.split_at(from.min(coded.len()));
    let (low, rest) = rest.split_at(rest.len() / 2);
    let (high, end) = rest.split_at(low.len());
    let mut number = 0u16;
    let numbers = low.iter().zip(high).flat_map(|(&low, &high)| {
        number = number.wrapping_add(u16::from_le_bytes([low, high]));
        number.to_le_bytes()
    });
    head.iter().copied().chain(numbers).chain(end.iter().copied()).collect()
}

fn zstd() -> Result<std::sync::Arc<dyn crate::block::Engine>, BlockError> {
    let engine = Setting::new(Format::Zstd).with_level(LEVEL).engine();
    engine.map_err(|error| BlockError::Engine { engine: "cpu", reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::{Effort, Encoder};

    #[test]
    fn codes_come_back_shorter_and_damage_is_an_error() {
        let samples: Vec<String> =
            (0..3000).map(|i| format!("row {} of the table", i * 7919 % 1000)).collect();
        let samples: Vec<&[u8]> = samples.iter().map(|sample| sample.as_bytes()).collect();
        let dictionary = in_order(&Dictionary::train(&samples, 10, 0).unwrap()).unwrap();
        let codes = Codes::train(&dictionary, &mut Encoder::new(), Effort::Dense, &samples, 1 << 24);
        let packed = pack_codes(&codes, &dictionary).unwrap();
        let stored = codes.to_bytes(&dictionary);
        assert!(packed.bytes.len() * 2 < stored.len(), "{} of {}", packed.bytes.len(), stored.len());
        let loaded = |bytes: &[u8], coded_bytes| {
            unpack_codes(&dictionary, bytes, coded_bytes).map(|codes| codes.to_bytes(&dictionary))
        };
        assert_eq!(loaded(&packed.bytes, packed.coded_bytes), Ok(stored.clone()));
        assert!(loaded(&packed.bytes, packed.coded_bytes + 1).is_err());
        assert_eq!(loaded(&packed.bytes, usize::MAX), Err(UnpackError::LongCodes));
        for at in 0..packed.bytes.len() {
            let mut damaged = packed.bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let loaded = loaded(&damaged, packed.coded_bytes);
            assert!(loaded.is_err() || loaded.as_ref() == Ok(&stored), "byte {at}");
        }
    }

    #[test]
    fn differences_are_summed_up_again() {
        let bytes: Vec<u8> = (0..200u32).map(|at| ((at * at * 31) >> 3) as u8).collect();
        for length in 0..bytes.len() {
            for from in [0, 1, 16, 300] {
                assert_eq!(sums(&differences(&bytes[..length], from), from), bytes[..length]);
            }
        }
    }

    #[test]
    fn a_dictionary_comes_back_shorter_and_damage_is_an_error() {
        let samples: Vec<String> =
            (0..3000).map(|i| format!("row {} of the table", i * 7919 % 1000)).collect();
        let samples: Vec<&[u8]> = samples.iter().map(|sample| sample.as_bytes()).collect();
        let dictionary = in_order(&Dictionary::train(&samples, 12, 0).unwrap()).unwrap();
        let packed = pack(&dictionary).unwrap();
        let stored = dictionary.to_bytes();
        assert!(packed.bytes.len() < stored.len() * 3 / 4, "{} of {}", packed.bytes.len(), stored.len());
        assert_eq!(unpack(&packed.bytes, packed.coded_bytes).unwrap().to_bytes(), stored);
        assert!(unpack(&packed.bytes, packed.coded_bytes + 1).is_err());
        assert_eq!(unpack(&packed.bytes, usize::MAX).err(), Some(UnpackError::NotFrontCoded));
        for at in 0..packed.bytes.len() {
            let mut damaged = packed.bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let loaded = unpack(&damaged, packed.coded_bytes).map(|dictionary| dictionary.to_bytes());
            assert!(loaded.is_err() || loaded.as_ref() == Ok(&stored), "byte {at}");
        }
    }
}
