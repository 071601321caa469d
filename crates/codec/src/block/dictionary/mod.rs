//! Dictionaries of blocks: bytes that every block may refer to as if they stood before it.
//!
//! Small blocks have little to repeat; a dictionary gives them what their neighbours have in common. It is trained on
//! samples, stored with its generation, and shared read-only by all threads. A block can be read only with the
//! dictionary it was written with: its fingerprint goes into the checksum of a [frame](super::frame), so that another
//! one is noticed.
//!
//! | format | content | at most |
//! |---|---|---|
//! | `lz4` | bytes, the most useful last | 64 KiB |
//! | `zstd` | tables for literals and sequences, then bytes | 128 KiB |
//! | `deflate` | bytes, the most useful last; trained ones have canned codes besides | 4 KiB |
//!
//! What an encoder needs of it depends on the level and lies in the [engine](super::Engine); what decoding needs is
//! here.

mod error;
mod serial;
mod train;

pub use error::{DictionaryError, TrainError};

use crate::checksum::crc32c;
use crate::format::Format;
use std::fmt;
#[cfg(feature = "deflate")]
use std::sync::Arc;
#[cfg(feature = "deflate")]
use ziptier_deflate as deflate;
#[cfg(feature = "zstd")]
use zstd_safe::DDict;

/// The history window of format `deflate`: what Intel's accelerator has.
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
    #[cfg(feature = "deflate")]
    deflate: Option<Arc<deflate::Dictionary>>,
}

impl Dictionary {
    /// The most bytes of content that a format can use; 0 if it knows no dictionaries.
    pub fn content_bytes_max(format: Format) -> usize {
        match format {
            Format::None | Format::Token => 0,
            Format::Lz4 => 64 << 10,
            Format::Zstd => 128 << 10,
            Format::Deflate => DEFLATE_WINDOW_BYTES,
        }
    }

    /// Trains a dictionary of at most `max_bytes` on `samples`, which should look like the blocks to come.
    ///
    /// The samples should be some 20 to 100 times as large as the dictionary; 1 to 4 MiB are plenty, and time grows
    /// with them (20 to 90 ms per MiB). `max_bytes` above what the format can use is cut to that. `generation` is the
    /// caller's number and is stored with it. The same samples give the same dictionary.
    ///
    /// Source of the method: zstd's trainer (COVER: Liao, Petri, Moffat, Wirth, "Effective Construction of Relative
    /// Lempel-Ziv Dictionaries", WWW 2016). `lz4` takes the bytes that it chose, without zstd's tables. `deflate` has a
    /// trainer of its own, of the same kind, which also gives canned codes for blocks of the samples' size.
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
        let content = train::train(format, samples, max_bytes)?;
        Dictionary::new(format, content, generation).map_err(|_| TrainError::Unusable)
    }

    /// A dictionary of the caller's own bytes, the most useful last.
    ///
    /// For `zstd` they may also be a dictionary as `zstd --train` makes it.
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
        Ok(Dictionary {
            format,
            generation,
            fingerprint: fingerprint(format, &content),
            #[cfg(feature = "zstd")]
            zstd_decoder: match format {
                Format::Zstd => Some(DDict::try_create(&content).ok_or(DictionaryError::Refused { format })?),
                _ => None,
            },
            #[cfg(feature = "deflate")]
            deflate: None,
            content,
        })
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
            deflate: Some(Arc::new(prepared)),
        }
    }

    /// The format it was made for.
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

    /// The bytes that blocks may refer to; for `zstd` with its tables in front, for `deflate` without canned codes.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Bytes of heap that the dictionary holds; what engines prepare from it they hold themselves.
    pub fn memory_bytes(&self) -> usize {
        let bytes = self.content.len();
        #[cfg(feature = "zstd")]
        let bytes = bytes + self.zstd_decoder.as_ref().map_or(0, DDict::sizeof);
        #[cfg(feature = "deflate")]
        let bytes = bytes + self.deflate.as_ref().map_or(0, |deflate| deflate.memory_bytes());
        bytes
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) of a dictionary with so many bytes of content will be.
    pub fn memory_bytes_expected(format: Format, content_bytes: usize) -> usize {
        let content_bytes = content_bytes.min(Dictionary::content_bytes_max(format));
        match format {
            // A copy, and 27 KiB of decoding tables.
            Format::Zstd => 2 * content_bytes + (28 << 10),
            // A copy, and tables of both directions.
            Format::Deflate => 2 * content_bytes + (88 << 10),
            _ => content_bytes,
        }
    }

    /// The dictionary as bytes that describe themselves: version, format, generation, content, CRC32C.
    pub fn to_bytes(&self) -> Vec<u8> {
        #[cfg(feature = "deflate")]
        if let Some(codes) = self.deflate.as_ref().and_then(|deflate| deflate.codes()) {
            return serial::to_bytes(self.format, self.generation, &self.content, &codes.to_bytes());
        }
        serial::to_bytes(self.format, self.generation, &self.content, &[])
    }

    /// Loads a stored dictionary, ready for reading *and* writing blocks.
    ///
    /// Any bytes may be given: lengths are checked before anything is allocated.
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

    /// What is prepared for format `deflate`.
    #[cfg(feature = "deflate")]
    pub(super) fn deflate(&self) -> Option<Arc<deflate::Dictionary>> {
        self.deflate.clone()
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

fn fingerprint(format: Format, content: &[u8]) -> u32 {
    let checksum = crate::checksum::crc32c_append(crc32c(&[format.number()]), content);
    // 0 stands for no dictionary.
    checksum.max(1)
}
