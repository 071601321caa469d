//! Format `deflate`, engine `software`: ziptier's own coder, for the modes that libdeflate lacks. These are fixed codes
//! only, a preset dictionary, and canned codes. Without the feature `libdeflate` this coder does all the work.
//!
//! The engine prepares history and codes once per dictionary, and all contexts share them. A block loads nothing, and
//! builds no tables unless it has its own codes.

use super::context::{Coder, Context, Damage, Failure};
use super::setting::{Huffman, SettingError};
use super::split::parts;
use super::{BlockCodec, BlockError, Counters, Dictionary, Engine};
use crate::format::Format;
use crate::scratch::trim;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::sync::Arc;
use ziptier_deflate as deflate;

/// Levels of engine `software`: those of libdeflate, without its level 0, which only stores.
pub const LEVELS: RangeInclusive<i32> = 1..=12;

/// Makes the checksum of a canned block differ from that of another block with the same dictionary. Neither kind can be
/// read as the other.
const CANNED_FINGERPRINT: u32 = 0x6361_6E6E;

/// The engine `software` of format `deflate` with a dictionary, fixed codes or canned codes.
pub struct Deflate {
    level: deflate::Level,
    huffman: deflate::Huffman,
    shared: Arc<deflate::Dictionary>,
    /// The most parts of a block.
    split: u32,
    fingerprint: u32,
    counters: Counters,
}

impl Deflate {
    /// An engine for a level, a Huffman mode and a dictionary. Level 1 is fast, 2 to 5 lazy, 6 to 9 dense, 10 and above
    /// densest.
    pub fn new(
        level: i32,
        huffman: Huffman,
        dictionary: Option<Arc<Dictionary>>,
    ) -> Result<Deflate, SettingError> {
        let level = match level {
            1 => deflate::Level::Fast,
            2..=5 => deflate::Level::Lazy,
            6..=9 => deflate::Level::Dense,
            10..=12 => deflate::Level::Densest,
            _ => {
                let (engine, format) = ("software", Format::Deflate);
                return Err(SettingError::Level { engine, format, level, levels: LEVELS });
            }
        };
        let fingerprint = dictionary.as_ref().map_or(0, |dictionary| dictionary.fingerprint());
        let shared = match dictionary.as_deref() {
            None => Arc::new(deflate::Dictionary::new(b"")),
            Some(dictionary) => dictionary.deflate().ok_or(SettingError::DictionaryFormat {
                found: dictionary.format(),
                expected: Format::Deflate,
            })?,
        };
        let (huffman, fingerprint) = match huffman {
            Huffman::Fixed => (deflate::Huffman::Fixed, fingerprint),
            Huffman::Dynamic => (deflate::Huffman::Dynamic, fingerprint),
            Huffman::Canned if shared.codes().is_none() => return Err(SettingError::NoCannedCodes),
            Huffman::Canned => (deflate::Huffman::Canned, fingerprint ^ CANNED_FINGERPRINT),
        };
        Ok(Deflate { level, huffman, shared, split: 1, fingerprint, counters: Counters::new() })
    }

    /// The same for blocks of up to so many [parts](super::split), without a dictionary.
    #[must_use]
    pub fn with_split(self, split: u32) -> Deflate {
        Deflate { split, ..self }
    }
}

impl Engine for Deflate {
    fn name(&self) -> &'static str {
        "software"
    }

    fn format(&self) -> Format {
        Format::Deflate
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        let Deflate { level, huffman, split, .. } = *self;
        let (shared, made) = (&*self.shared, Vec::new());
        let coder = DeflateCoder { huffman, level, shared, split, encoder: None, decoder: None, made };
        Ok(Box::new(Context::new(coder, Format::Deflate, self.fingerprint, self.counters.open())))
    }
}

/// Either half is built when it is first needed.
struct DeflateCoder<'a> {
    huffman: deflate::Huffman,
    level: deflate::Level,
    shared: &'a deflate::Dictionary,
    split: u32,
    encoder: Option<deflate::Encoder<'a>>,
    decoder: Option<deflate::Decoder<'a>>,
    made: Vec<u8>,
}

/// The most bytes that the encoder makes of `raw_bytes` bytes: no code of a byte is longer than 15 bits.
pub(super) fn bound(raw_bytes: usize) -> usize {
    raw_bytes.saturating_mul(2).saturating_add(64)
}

/// The most bytes that a stream can hold: a match of 258 bytes takes at least two bits.
pub(super) fn raw_bytes_max(packed: &[u8]) -> usize {
    packed.len().saturating_mul(4 * 258)
}

/// Empties `made`, lets `encode` append to it, and copies the returned number of bytes to the start of the target.
pub(super) fn copied(
    made: &mut Vec<u8>,
    target: &mut [MaybeUninit<u8>],
    encode: impl FnOnce(&mut Vec<u8>) -> Option<usize>,
) -> Option<usize> {
    made.clear();
    let length = encode(made);
    if let Some(length) = length {
        target[..length].write_copy_of_slice(made);
    }
    trim(made);
    length
}

// SAFETY: both methods return the bytes that they copied to the start of the target.
unsafe impl Coder for DeflateCoder<'_> {
    type Error = Failure;

    const ENGINE: &'static str = "software";

    fn bound(&self, raw_bytes: usize) -> usize {
        bound(raw_bytes)
    }

    fn raw_bytes_max(&self, packed: &[u8]) -> Result<usize, Damage> {
        Ok(raw_bytes_max(packed))
    }

    fn compress(&mut self, raw: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, BlockError> {
        let (shared, level, room) = (self.shared, self.level, target.len());
        let encoder = self.encoder.get_or_insert_with(|| deflate::Encoder::new(shared, level));
        let parts = parts(raw.len(), self.split);
        Ok(copied(&mut self.made, target, |made| {
            encoder.compress_in_parts(self.huffman, raw, parts, made, room)
        }))
    }

    fn decompress(
        &mut self,
        packed: &[u8],
        target: &mut [MaybeUninit<u8>],
    ) -> Result<Option<usize>, Failure> {
        let decoder = self.decoder.get_or_insert_with(|| deflate::Decoder::new(self.shared));
        self.made.clear();
        // The decoder makes no more than this.
        if self.made.try_reserve(target.len()).is_err() {
            let bytes = target.len();
            return Err(Failure::Engine(format!("{bytes} bytes of memory for a block were refused")));
        }
        let decompressed = match decoder.decompress(self.huffman, packed, &mut self.made, target.len()) {
            Ok(length) => {
                target[..length].write_copy_of_slice(&self.made);
                Ok(Some(length))
            }
            Err(deflate::DecodeError { fault: deflate::Fault::OutputTooLong, .. }) => Ok(None),
            Err(error) => Err(Damage { position: error.position, what: error.fault.what() }.into()),
        };
        trim(&mut self.made);
        decompressed
    }
}

// Long blocks: Miri would only be slow.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::scratch::SCRATCH_BYTES_MAX;

    #[test]
    fn a_long_block_that_is_read_leaves_no_scratch() {
        let shared = deflate::Dictionary::new(b"");
        let huffman = deflate::Huffman::Fixed;
        let (raw, mut packed) = (vec![7; 2 * SCRATCH_BYTES_MAX], Vec::new());
        let mut encoder = deflate::Encoder::new(&shared, deflate::Level::Fast);
        encoder.compress(huffman, &raw, &mut packed, raw.len()).unwrap();
        let (level, made) = (deflate::Level::Fast, Vec::new());
        let mut coder =
            DeflateCoder { huffman, level, shared: &shared, split: 1, encoder: None, decoder: None, made };
        let mut target = vec![MaybeUninit::uninit(); raw.len()];
        assert_eq!(coder.decompress(&packed, &mut target).ok().flatten(), Some(raw.len()));
        assert_eq!(coder.made.capacity(), 0);
    }

    #[test]
    fn a_long_block_leaves_no_scratch() {
        let mut target = vec![MaybeUninit::uninit(); 2 * SCRATCH_BYTES_MAX];
        let (mut made, len) = (Vec::new(), target.len());
        for length in [Some(len), None] {
            let encode = |made: &mut Vec<u8>| {
                made.resize(len, 7);
                length
            };
            assert_eq!(copied(&mut made, &mut target, encode), length);
            assert_eq!(made.capacity(), 0);
        }
        assert_eq!(copied(&mut made, &mut target, |made| Some(made.write(b"short").unwrap())), Some(5));
        assert!(made.capacity() >= 5);
    }
}
