//! Dictionaries of blocks: bytes to which every block may refer as if they stood before it.
//!
//! Small blocks repeat little within themselves. A dictionary gives them the strings that their neighbours have in
//! common. The caller trains a dictionary on samples, stores it with its generation, and shares it read-only among all
//! threads. A block can be read only with its own dictionary. The fingerprint of that dictionary enters the checksum of
//! a [frame](super::frame), so that a wrong dictionary is noticed.
//!
//! | format | content | at most |
//! |---|---|---|
//! | `token` | tokens, [packed](crate::token::packed) behind the length of what is packed (4 bytes, little-endian) | 1 MiB |
//! | `lz4` | bytes, the most useful last | 64 KiB |
//! | `zstd` | tables for literals and sequences, then bytes | 128 KiB |
//! | `deflate` | bytes, the most useful last; trained ones have canned codes besides | 4 KiB |
//!
//! This module holds the data for decoding. The data for encoding depends on the level and lies in the
//! [engine](super::Engine).

mod error;
mod serial;
mod train;

pub use error::{DictionaryError, TrainError};

use crate::checksum::crc32c;
use crate::envelope;
use crate::format::Format;
#[cfg(feature = "zstd")]
use crate::token;
use std::fmt;
#[cfg(any(feature = "deflate", feature = "zstd"))]
use std::sync::Arc;
#[cfg(feature = "deflate")]
use ziptier_deflate as deflate;
#[cfg(feature = "zstd")]
use zstd_safe::DDict;

/// The history window of format `deflate`: that of Intel's accelerator.
pub(super) const DEFLATE_WINDOW_BYTES: usize = 4096;

/// A dictionary for blocks of one format. Immutable; put it in an `Arc`.
///
/// ```
/// use std::sync::Arc;
/// use ziptier_codec::block::{Dictionary, Setting};
/// use ziptier_codec::format::Format;
///
/// let samples: Vec<String> = (0..4000).map(|i| format!("{{\"user\":{i},\"state\":\"active\"}}")).collect();
/// let samples: Vec<&[u8]> = samples.iter().map(|sample| sample.as_bytes()).collect();
/// let dictionary = Dictionary::train(Format::Zstd, &samples, 4096, 1)?;
///
/// // The store keeps these bytes, and both directions work again after a restart.
/// let stored = dictionary.to_bytes();
/// let dictionary = Arc::new(Dictionary::from_bytes(&stored)?);
/// let engine = Setting::new(Format::Zstd).with_dictionary(Arc::clone(&dictionary)).engine()?;
/// let mut packed = Vec::new();
/// let block = samples[17..20].concat();
/// let length = engine.open()?.compress(&block, &mut packed, 1000)?;
/// assert!(length.is_some_and(|length| length < block.len() / 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Dictionary {
    format: Format,
    generation: u32,
    fingerprint: u32,
    content: Box<[u8]>,
    #[cfg(feature = "zstd")]
    zstd_decoder: Option<DDict<'static>>,
    #[cfg(feature = "zstd")]
    tokens: Option<Arc<token::Dictionary>>,
    #[cfg(feature = "deflate")]
    deflate: Option<Arc<deflate::Dictionary>>,
}

impl Dictionary {
    /// Bytes that [`to_bytes`](Self::to_bytes) adds to the content, canned codes apart.
    pub const ENVELOPE_BYTES: usize = envelope::HEADER_BYTES + envelope::CHECKSUM_BYTES;

    /// The most bytes of content that a format can use; 0 if the format has no dictionaries.
    pub fn content_bytes_max(format: Format) -> usize {
        match format {
            Format::None => 0,
            Format::Token => 1 << 20,
            Format::Lz4 => 64 << 10,
            Format::Zstd => 128 << 10,
            Format::Deflate => DEFLATE_WINDOW_BYTES,
        }
    }

    /// Trains a dictionary of at most `max_bytes` on `samples`. The samples should look like the blocks to come.
    ///
    /// The samples should be some 20 to 100 times as large as the dictionary. 1 to 4 MiB are plenty, and time grows
    /// with them (20 to 90 ms per MiB). `max_bytes` is cut to the most that the format can use. `generation` is the
    /// caller's number, stored with the dictionary. The same samples give the same dictionary.
    ///
    /// Source of the method: zstd's trainer (COVER: Liao, Petri, Moffat, Wirth, "Effective Construction of Relative
    /// Lempel-Ziv Dictionaries", WWW 2016). `lz4` uses the bytes that zstd's trainer chose, without zstd's tables.
    /// `deflate` has a trainer of its own, of the same kind, which also gives canned codes for blocks of the samples'
    /// size. `token` takes the widest tokens, of 14 bits at most, that the samples are enough for and whose dictionary
    /// is not longer than `max_bytes`.
    pub fn train(
        format: Format,
        samples: &[&[u8]],
        max_bytes: usize,
        generation: u32,
    ) -> Result<Dictionary, TrainError> {
        #[cfg(feature = "deflate")]
        if format == Format::Deflate {
            let trained = train::train_deflate(samples, max_bytes)?;
            return Ok(Dictionary::of_deflate(trained, generation));
        }
        #[cfg(feature = "zstd")]
        if format == Format::Token {
            let (tokens, content) = train::train_tokens(samples, max_bytes)?;
            return Ok(Dictionary::of_tokens(tokens, content.into(), generation));
        }
        let content = train::train(format, samples, max_bytes)?;
        Dictionary::new(format, content, generation).map_err(|_| TrainError::Unusable)
    }

    /// A dictionary of the caller's own bytes, the most useful last.
    ///
    /// For `zstd` the bytes may also be a dictionary made by `zstd --train`. For `token` they are the
    /// [content](Self::content) of another one.
    pub fn new(
        format: Format,
        content: impl Into<Box<[u8]>>,
        generation: u32,
    ) -> Result<Dictionary, DictionaryError> {
        let content = content.into();
        let max = Dictionary::content_bytes_max(format);
        if max == 0 {
            return Err(DictionaryError::Format { number: format.number() });
        }
        if content.is_empty() || content.len() > max {
            return Err(DictionaryError::Length { max, found: content.len() });
        }
        if !format.is_built() {
            return Err(DictionaryError::NotBuilt { format });
        }
        #[cfg(feature = "deflate")]
        if format == Format::Deflate {
            return Ok(Dictionary::of_deflate(deflate::Dictionary::new(&content), generation));
        }
        #[cfg(feature = "zstd")]
        if format == Format::Token {
            let tokens = tokens_of(&content).ok_or(DictionaryError::Refused { format })?;
            return Ok(Dictionary::of_tokens(tokens, content, generation));
        }
        Ok(Dictionary {
            format,
            generation,
            fingerprint: fingerprint(format, &content),
            #[cfg(feature = "zstd")]
            zstd_decoder: match format {
                Format::Zstd => Some(DDict::try_create(&content).ok_or(DictionaryError::Refused { format })?),
                _ => None,
            },
            #[cfg(feature = "zstd")]
            tokens: None,
            #[cfg(feature = "deflate")]
            deflate: None,
            content,
        })
    }

    #[cfg(feature = "zstd")]
    fn of_tokens(tokens: token::Dictionary, content: Box<[u8]>, generation: u32) -> Dictionary {
        Dictionary {
            format: Format::Token,
            generation,
            fingerprint: fingerprint(Format::Token, &content),
            zstd_decoder: None,
            tokens: Some(Arc::new(tokens)),
            #[cfg(feature = "deflate")]
            deflate: None,
            content,
        }
    }

    #[cfg(feature = "deflate")]
    fn of_deflate(prepared: deflate::Dictionary, generation: u32) -> Dictionary {
        let (format, content) = (Format::Deflate, Box::from(prepared.history()));
        let codes = prepared.codes().map(|codes| codes.to_bytes());
        let of_content = fingerprint(format, &content);
        let fingerprint =
            codes.map_or(of_content, |codes| crate::checksum::crc32c_append(of_content, &codes).max(1));
        Dictionary {
            format,
            generation,
            fingerprint,
            content,
            #[cfg(feature = "zstd")]
            zstd_decoder: None,
            #[cfg(feature = "zstd")]
            tokens: None,
            deflate: Some(Arc::new(prepared)),
        }
    }

    /// The format of the dictionary.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The caller's number of this dictionary.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// A checksum of format and content: equal for dictionaries that work alike, whatever their generation. Never 0.
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    /// The bytes to which blocks may refer: for `zstd` with its tables in front, for `deflate` without canned codes.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Bytes of heap that the dictionary holds. Engines hold their own prepared data.
    pub fn memory_bytes(&self) -> usize {
        let bytes = self.content.len();
        #[cfg(feature = "zstd")]
        let bytes = bytes
            + self.zstd_decoder.as_ref().map_or(0, DDict::sizeof)
            + self.tokens.as_ref().map_or(0, |tokens| tokens.memory_bytes());
        #[cfg(feature = "deflate")]
        let bytes = bytes + self.deflate.as_ref().map_or(0, |deflate| deflate.memory_bytes());
        bytes
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) can be for a dictionary with `content_bytes` bytes of
    /// content.
    pub fn memory_bytes_expected(format: Format, content_bytes: usize) -> usize {
        let content_bytes = content_bytes.min(Dictionary::content_bytes_max(format));
        match format {
            // A copy, and 27 KiB of decoding tables.
            Format::Zstd => 2 * content_bytes + (28 << 10),
            // Tables of both directions. Tokens of 14 bits take 40 KB of content.
            Format::Token => 32 * content_bytes + (256 << 10),
            // A copy, and tables of both directions.
            Format::Deflate => 2 * content_bytes + (88 << 10),
            _ => content_bytes,
        }
    }

    /// The dictionary as self-describing bytes: version, format, generation, content, CRC32C.
    pub fn to_bytes(&self) -> Vec<u8> {
        #[cfg(feature = "deflate")]
        if let Some(codes) = self.deflate.as_ref().and_then(|deflate| deflate.codes()) {
            return serial::to_bytes(self.format, self.generation, &self.content, &codes.to_bytes());
        }
        serial::to_bytes(self.format, self.generation, &self.content, &[])
    }

    /// Loads a stored dictionary, ready for reading *and* writing blocks.
    ///
    /// The bytes may be any: the loader checks lengths before it allocates.
    pub fn from_bytes(bytes: &[u8]) -> Result<Dictionary, DictionaryError> {
        let stored = serial::parse(bytes)?;
        let Some(codes) = stored.codes else {
            return Dictionary::new(stored.format, stored.content, stored.generation);
        };
        let max = Dictionary::content_bytes_max(stored.format);
        if stored.content.len() > max {
            return Err(DictionaryError::Length { max, found: stored.content.len() });
        }
        Dictionary::with_codes(&stored, codes)
    }

    #[cfg(feature = "deflate")]
    fn with_codes(
        stored: &serial::Stored<'_>,
        codes: &[u8; serial::CODES_BYTES],
    ) -> Result<Dictionary, DictionaryError> {
        let refused = |_| DictionaryError::Refused { format: stored.format };
        let codes = deflate::CannedLengths::from_bytes(codes).map_err(refused)?;
        let prepared = deflate::Dictionary::new(stored.content).with_codes(&codes);
        Ok(Dictionary::of_deflate(prepared, stored.generation))
    }

    #[cfg(not(feature = "deflate"))]
    fn with_codes(
        stored: &serial::Stored<'_>,
        _: &[u8; serial::CODES_BYTES],
    ) -> Result<Dictionary, DictionaryError> {
        Err(DictionaryError::NotBuilt { format: stored.format })
    }

    /// The prepared data for format `deflate`.
    #[cfg(feature = "deflate")]
    pub(super) fn deflate(&self) -> Option<Arc<deflate::Dictionary>> {
        self.deflate.clone()
    }

    /// The tokens for format `token`.
    #[cfg(feature = "zstd")]
    pub(super) fn tokens(&self) -> Option<Arc<token::Dictionary>> {
        self.tokens.clone()
    }

    #[cfg(feature = "zstd")]
    pub(super) fn zstd_decoder(&self) -> Option<&DDict<'static>> {
        self.zstd_decoder.as_ref()
    }
}

impl fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dictionary")
            .field("format", &self.format)
            .field("generation", &self.generation)
            .field("fingerprint", &format_args!("{:#010x}", self.fingerprint))
            .field("content_bytes", &self.content.len())
            .finish()
    }
}

/// The tokens of a dictionary's content, which may be any bytes.
#[cfg(feature = "zstd")]
fn tokens_of(content: &[u8]) -> Option<token::Dictionary> {
    let (coded_bytes, packed) = content.split_first_chunk()?;
    token::packed::unpack(packed, u32::from_le_bytes(*coded_bytes) as usize).ok()
}

fn fingerprint(format: Format, content: &[u8]) -> u32 {
    let checksum = crate::checksum::crc32c_append(crc32c(&[format.number()]), content);
    // 0 stands for no dictionary.
    checksum.max(1)
}
