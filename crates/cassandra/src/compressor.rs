//! Decompresses the chunks of Cassandra's own compressors, and of ziptier's.
//!
//! | class | a chunk |
//! |---|---|
//! | `LZ4Compressor` | its length before compression, 4 bytes little-endian, then an LZ4 block |
//! | `SnappyCompressor` | raw Snappy |
//! | `DeflateCompressor` | a zlib stream |
//! | `ZstdCompressor` | a zstd frame |
//! | `NoopCompressor` | the bytes |
//! | `ZiptierCompressor` | as the class of option `format`; with `token` a block of tokens |

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ziptier_codec::block::{Contexts, Dictionary, Setting};
use ziptier_codec::format::Format;

use crate::compression_info::CompressionInfo;

/// Bytes in front of and behind raw DEFLATE in a zlib stream.
const ZLIB_HEADER_BYTES: usize = 2;
const ZLIB_TRAILER_BYTES: usize = 4;

/// A dictionary as the option `dictionary` of a table.
pub fn dictionary_option(dictionary: &Dictionary) -> String {
    STANDARD.encode(dictionary.to_bytes())
}

/// What unpacks the chunks of an SSTable.
pub(crate) enum Decompressor {
    Noop,
    Snappy,
    Lz4(Contexts),
    Zstd,
    Deflate(Contexts),
    Token(Contexts),
}

/// A compressor's name, and names and values of its options.
type Named = (String, Vec<(String, String)>);

/// One decompressor for all SSTables with the same compressor and options: that of tokens takes a MB or two.
#[derive(Default)]
pub(crate) struct Decompressors {
    open: HashMap<Named, Arc<Decompressor>>,
}

impl Decompressors {
    /// That of an SSTable, or why there is none.
    pub(crate) fn of(&mut self, info: &CompressionInfo) -> Result<Arc<Decompressor>, String> {
        let key = (info.compressor.clone(), info.options.clone());
        if let Some(open) = self.open.get(&key) {
            return Ok(open.clone());
        }
        let opened = Arc::new(Decompressor::of(info)?);
        self.open.insert(key, opened.clone());
        Ok(opened)
    }
}

impl Decompressor {
    fn of(info: &CompressionInfo) -> Result<Decompressor, String> {
        match info.compressor.as_str() {
            "NoopCompressor" => Ok(Decompressor::Noop),
            "SnappyCompressor" => Ok(Decompressor::Snappy),
            "LZ4Compressor" => contexts(Setting::new(Format::Lz4)).map(Decompressor::Lz4),
            "ZstdCompressor" => Ok(Decompressor::Zstd),
            "DeflateCompressor" => contexts(Setting::new(Format::Deflate)).map(Decompressor::Deflate),
            "ZiptierCompressor" => Decompressor::of_ziptier(info),
            other => Err(format!(
                "its compressor is {other}, and those of LZ4Compressor, SnappyCompressor, DeflateCompressor, \
                 ZstdCompressor, NoopCompressor and ZiptierCompressor can be read"
            )),
        }
    }

    fn of_ziptier(info: &CompressionInfo) -> Result<Decompressor, String> {
        match info.option("format").unwrap_or("deflate") {
            "lz4" => contexts(Setting::new(Format::Lz4)).map(Decompressor::Lz4),
            "zstd" => Ok(Decompressor::Zstd),
            "deflate" => contexts(Setting::new(Format::Deflate)).map(Decompressor::Deflate),
            "token" => {
                let text = info.option("dictionary").ok_or("its tokens have no dictionary")?;
                let unreadable = |error: String| format!("its dictionary of tokens is damaged: {error}");
                let stored = STANDARD.decode(text).map_err(|error| unreadable(error.to_string()))?;
                let dictionary =
                    Dictionary::from_bytes(&stored).map_err(|error| unreadable(error.to_string()))?;
                let setting = Setting::new(Format::Token).with_dictionary(Arc::new(dictionary));
                contexts(setting).map(Decompressor::Token).map_err(unreadable)
            }
            other => Err(format!("its format is '{other}', and deflate, lz4, token and zstd can be read")),
        }
    }

    /// Fills `raw`, which the chunk decompresses to exactly, or says what is wrong with the chunk.
    pub(crate) fn decompress(&self, chunk: &[u8], raw: &mut Vec<u8>, raw_bytes: usize) -> Result<(), String> {
        raw.clear();
        let by = |contexts: &Contexts, block: &[u8], raw: &mut Vec<u8>| {
            let unpacked = contexts.with(|codec| codec.decompress(block, raw, raw_bytes));
            unpacked.map_err(|error| error.to_string())
        };
        match self {
            Decompressor::Noop => raw.extend_from_slice(chunk),
            Decompressor::Snappy => {
                let found = snap::raw::decompress_len(chunk).map_err(|error| error.to_string())?;
                if found == raw_bytes {
                    raw.resize(raw_bytes, 0);
                    snap::raw::Decoder::new().decompress(chunk, raw).map_err(|error| error.to_string())?;
                }
            }
            Decompressor::Lz4(contexts) => {
                let (length, block) = chunk.split_first_chunk().ok_or("it has no length")?;
                if u32::from_le_bytes(*length) as usize != raw_bytes {
                    return Err(format!("it says {} bytes", u32::from_le_bytes(*length)));
                }
                by(contexts, block, raw)?;
            }
            // The format of blocks reads no frames with a checksum.
            Decompressor::Zstd => {
                let found = zstd::bulk::decompress(chunk, raw_bytes).map_err(|error| error.to_string())?;
                *raw = found;
            }
            Decompressor::Token(contexts) => by(contexts, chunk, raw)?,
            Decompressor::Deflate(contexts) => {
                let end = chunk.len().checked_sub(ZLIB_TRAILER_BYTES);
                let block =
                    end.and_then(|end| chunk.get(ZLIB_HEADER_BYTES..end)).ok_or("it is no zlib stream")?;
                by(contexts, block, raw)?;
            }
        }
        match raw.len() == raw_bytes {
            true => Ok(()),
            false => Err(format!("it has {} bytes, {raw_bytes} were expected", raw.len())),
        }
    }
}

fn contexts(setting: Setting) -> Result<Contexts, String> {
    setting.engine().map(Contexts::new).map_err(|error| error.to_string())
}
