//! A generation: the dictionaries that many files share.
//!
//! Each file carries its generation, so that it can be read alone; who reads files finds by a hash of the bytes that a
//! generation is there already, so that a database with a thousand files holds a few. That matters for speed: eight token
//! tables at once miss the caches and triple the time of a decode.
//!
//! # As bytes
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | signature `zrdb` |
//! | 4 | 1 | version: 2; 1 is read, whose token dictionaries are not front-coded |
//! | 5 | 3 | zero |
//! | 8 | 4 | n, bytes of the packed token dictionary, 0 if there is none |
//! | 12 | 4 | bytes of the token dictionary, front-coded (`front_coding`) |
//! | 16 | 4 | m, bytes of the zstd dictionary, 0 if there is none |
//! | 20 | n | token dictionary, as `ziptier_codec::token` stores it, front-coded, as a zstd frame without its magic number |
//! | 20 + n | m | zstd dictionary, as `ziptier_codec::block` stores it |
//! | 20 + n + m | 4 | CRC32C of everything before |
//!
//! Numbers are little-endian.

mod front_coding;

use crate::contexts::Contexts;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use ziptier_codec::block::{self, Setting};
use ziptier_codec::checksum::crc32c;
use ziptier_codec::format::Format;
use ziptier_codec::token;

const SIGNATURE: [u8; 4] = *b"zrdb";
const VERSION: u8 = 2;
const VERSION_PLAIN: u8 = 1;
const HEADER_BYTES: usize = 20;
const CHECKSUM_BYTES: usize = 4;

/// The longest stored generation, and the longest token dictionary: beyond it lies none that this crate makes.
const BYTES_MAX: usize = 4 << 20;

/// Token dictionaries are packed once and carried by every file: 106 KB become about 40.
const PACKING_LEVEL: i32 = 19;

/// Dictionaries, ready for packing and unpacking.
pub struct Generation {
    bytes: Box<[u8]>,
    tokens: Option<token::Dictionary>,
    zstd: Option<Contexts>,
}

/// Why bytes are no generation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GenerationError {
    /// The bytes are something else, such as a dictionary of RocksDB's own.
    #[error("expected a dictionary of ziptier, found other bytes")]
    Foreign,
    /// A later version wrote them.
    #[error(
        "expected a dictionary of version {VERSION}, found version {0}; read the file with the ziptier that wrote it"
    )]
    Version(u8),
    /// They were changed, or cut.
    #[error("the dictionary of a file is damaged: {0}")]
    Damaged(String),
}

/// All generations of this process that are in use, by a hash of their bytes.
static IN_USE: Mutex<Option<HashMap<u128, Weak<Generation>>>> = Mutex::new(None);

impl Generation {
    /// Whether the bytes claim to be a generation.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&SIGNATURE)
    }

    /// The generation of these dictionaries, which share it with whoever has the same.
    pub(crate) fn new(
        tokens: Option<&token::Dictionary>,
        zstd: Option<&block::Dictionary>,
    ) -> Result<Arc<Generation>, GenerationError> {
        let tokens = tokens.map(token::Dictionary::to_bytes).unwrap_or_default();
        let tokens = front_coding::front_coded(&tokens).unwrap_or_default();
        let packed = if tokens.is_empty() { Vec::new() } else { packed(&tokens)? };
        let zstd = zstd.map(block::Dictionary::to_bytes).unwrap_or_default();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + packed.len() + zstd.len() + CHECKSUM_BYTES);
        bytes.extend_from_slice(&SIGNATURE);
        bytes.extend_from_slice(&[VERSION, 0, 0, 0]);
        for length in [packed.len(), tokens.len(), zstd.len()] {
            bytes.extend_from_slice(&(length as u32).to_le_bytes());
        }
        bytes.extend_from_slice(&packed);
        bytes.extend_from_slice(&zstd);
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        Generation::load(&bytes)
    }

    /// The generation that these bytes describe. Any bytes may be given; lengths are checked before anything is allocated.
    pub fn load(bytes: &[u8]) -> Result<Arc<Generation>, GenerationError> {
        let hash = xxhash_rust::xxh3::xxh3_128(bytes);
        let mut in_use = IN_USE.lock().unwrap_or_else(PoisonError::into_inner);
        let in_use = in_use.get_or_insert_default();
        if let Some(known) = in_use.get(&hash).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let loaded = Arc::new(Generation::parse(bytes)?);
        in_use.retain(|_, generation| generation.strong_count() > 0);
        in_use.insert(hash, Arc::downgrade(&loaded));
        Ok(loaded)
    }

    fn parse(bytes: &[u8]) -> Result<Generation, GenerationError> {
        let damaged = |what: &str| GenerationError::Damaged(what.to_owned());
        if !Generation::is_one(bytes) {
            return Err(GenerationError::Foreign);
        }
        let field = |at: usize| {
            let four = bytes.get(at..at + 4).ok_or_else(|| damaged("it ends within its header"))?;
            Ok(u32::from_le_bytes(four.try_into().expect("four bytes were taken")))
        };
        let (packed_bytes, token_bytes, zstd_bytes) =
            (field(8)? as usize, field(12)? as usize, field(16)? as usize);
        if !(VERSION_PLAIN..=VERSION).contains(&bytes[4]) {
            return Err(GenerationError::Version(bytes[4]));
        }
        if bytes.len().max(token_bytes) > BYTES_MAX
            || bytes.len() != HEADER_BYTES + packed_bytes + zstd_bytes + CHECKSUM_BYTES
        {
            return Err(damaged("its length is not what its header says"));
        }
        let (content, stored) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        if crc32c(content).to_le_bytes() != stored {
            return Err(damaged("its checksum does not match"));
        }
        let (packed, zstd) = content[HEADER_BYTES..].split_at(packed_bytes);
        let tokens = if packed.is_empty() { Vec::new() } else { unpacked(packed, token_bytes)? };
        let is_front_coded = bytes[4] == VERSION && !tokens.is_empty();
        let tokens = if is_front_coded { front_coding::restored(&tokens, BYTES_MAX) } else { Some(tokens) };
        let tokens = tokens.ok_or_else(|| damaged("its tokens are not front-coded"))?;
        let tokens = (!tokens.is_empty()).then(|| token::Dictionary::from_bytes(&tokens)).transpose();
        let zstd = (!zstd.is_empty()).then(|| block::Dictionary::from_bytes(zstd)).transpose();
        Ok(Generation {
            bytes: bytes.into(),
            tokens: tokens.map_err(|error| damaged(&error.to_string()))?,
            zstd: zstd.map_err(|error| damaged(&error.to_string()))?.map(contexts).transpose()?,
        })
    }

    /// The stored form.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The token dictionary.
    pub(crate) fn tokens(&self) -> Option<&token::Dictionary> {
        self.tokens.as_ref()
    }

    /// Contexts of zstd with the generation's dictionary.
    pub(crate) fn zstd(&self) -> Option<&Contexts> {
        self.zstd.as_ref()
    }

    /// Bytes of heap that it holds, contexts apart.
    pub fn memory_bytes(&self) -> usize {
        let tokens = self.tokens.as_ref().map_or(0, token::Dictionary::memory_bytes);
        let zstd = self.zstd.as_ref().map_or(0, |zstd| zstd.engine().memory_bytes());
        self.bytes.len() + tokens + zstd
    }
}

/// A token dictionary as every file carries it.
fn packed(tokens: &[u8]) -> Result<Vec<u8>, GenerationError> {
    let damaged = |error: &dyn std::error::Error| GenerationError::Damaged(error.to_string());
    let engine =
        Setting::new(Format::Zstd).with_level(PACKING_LEVEL).engine().map_err(|error| damaged(&error))?;
    let mut out = Vec::new();
    let mut codec = engine.open().map_err(|error| damaged(&error))?;
    codec.compress(tokens, &mut out, BYTES_MAX).map_err(|error| damaged(&error))?;
    Ok(out)
}

/// The token dictionary of so many bytes that was packed.
fn unpacked(packed: &[u8], token_bytes: usize) -> Result<Vec<u8>, GenerationError> {
    let damaged = |error: &dyn std::error::Error| GenerationError::Damaged(error.to_string());
    let engine = Setting::new(Format::Zstd).engine().map_err(|error| damaged(&error))?;
    let mut tokens = Vec::new();
    let mut codec = engine.open().map_err(|error| damaged(&error))?;
    codec.decompress(packed, &mut tokens, token_bytes).map_err(|error| damaged(&error))?;
    Ok(tokens)
}

fn contexts(dictionary: block::Dictionary) -> Result<Contexts, GenerationError> {
    let engine = Setting::new(Format::Zstd).with_dictionary(Arc::new(dictionary)).engine();
    Ok(Contexts::new(engine.map_err(|error| GenerationError::Damaged(error.to_string()))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Arc<Generation> {
        let samples: Vec<String> =
            (0..3000).map(|i| format!("row {} of the table", i * 7919 % 1000)).collect();
        let samples: Vec<&[u8]> = samples.iter().map(|sample| sample.as_bytes()).collect();
        let tokens = token::Dictionary::train(&samples, 12, 0).unwrap();
        let zstd = block::Dictionary::train(Format::Zstd, &samples, 1024, 0).unwrap();
        Generation::new(Some(&tokens), Some(&zstd)).unwrap()
    }

    #[test]
    fn equal_bytes_are_one_generation() {
        let first = one();
        assert!(Arc::ptr_eq(&first, &one()));
        assert!(Arc::ptr_eq(&first, &Generation::load(first.as_bytes()).unwrap()));
        let bytes = first.as_bytes().to_vec();
        drop(first);
        assert_eq!(Generation::load(&bytes).unwrap().as_bytes(), bytes);
    }

    #[test]
    fn dictionaries_that_are_not_front_coded_are_read() {
        let current = one();
        let tokens = current.tokens().unwrap().to_bytes();
        let packed = packed(&tokens).unwrap();
        let mut bytes = [&SIGNATURE[..], &[VERSION_PLAIN, 0, 0, 0]].concat();
        for length in [packed.len(), tokens.len(), 0] {
            bytes.extend_from_slice(&(length as u32).to_le_bytes());
        }
        bytes.extend_from_slice(&packed);
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        let plain = Generation::load(&bytes).unwrap();
        assert_eq!(plain.tokens().unwrap().to_bytes(), tokens);
        assert!(plain.as_bytes()[4] == VERSION_PLAIN && current.as_bytes()[4] == VERSION);
    }

    #[test]
    fn damage_is_named() {
        let sound = one().as_bytes().to_vec();
        for at in (0..sound.len()).step_by(7) {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            assert!(Generation::load(&bytes).is_err(), "byte {at}");
        }
        for length in (0..sound.len()).step_by(11) {
            assert!(Generation::load(&sound[..length]).is_err());
        }
        assert_eq!(Generation::load(b"a dictionary of zstd").err(), Some(GenerationError::Foreign));
    }
}
