//! Token dictionaries as short as files need them: front-coded, then packed by zstd. 106 KB
//! become about 40.

use super::Dictionary;
use super::front_coding::{front_coded, restored};
use crate::block::{BlockError, Setting};
use crate::format::Format;

/// A dictionary is packed once and read many times.
const LEVEL: i32 = 19;

/// One token in this many keeps its place among the most used, which share cache lines. The others are sorted, so that
/// neighbours share their beginnings.
const HOT_SHARE: usize = 16;

/// The longest stored dictionary that [`unpack`] makes.
const BYTES_MAX: usize = 4 << 20;

/// A packed dictionary.
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
}

impl std::fmt::Display for UnpackError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            UnpackError::Frame(error) => error.fmt(f),
            UnpackError::NotFrontCoded => write!(f, "its tokens are not front-coded"),
            UnpackError::Dictionary(error) => error.fmt(f),
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
    let coded = front_coded(&dictionary.to_bytes()).unwrap_or_default();
    let mut bytes = Vec::new();
    zstd()?.open()?.compress(&coded, &mut bytes, BYTES_MAX)?;
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
    let mut coded = Vec::new();
    let unpacked = zstd().and_then(|zstd| zstd.open()?.decompress(packed, &mut coded, coded_bytes));
    unpacked.map_err(UnpackError::Frame)?;
    let stored = restored(&coded, BYTES_MAX).ok_or(UnpackError::NotFrontCoded)?;
    Dictionary::from_bytes(&stored).map_err(UnpackError::Dictionary)
}

fn zstd() -> Result<std::sync::Arc<dyn crate::block::Engine>, BlockError> {
    let engine = Setting::new(Format::Zstd).with_level(LEVEL).engine();
    engine.map_err(|error| BlockError::Engine { engine: "cpu", reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

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
