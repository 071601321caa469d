//! Decompresses the chunks of Cassandra's own compressors.
//!
//! | class | a chunk |
//! |---|---|
//! | `LZ4Compressor` | its length before compression, 4 bytes little-endian, then an LZ4 block |
//! | `SnappyCompressor` | raw Snappy |
//! | `DeflateCompressor` | a zlib stream |
//! | `ZstdCompressor` | a zstd frame |
//! | `NoopCompressor` | the bytes |

use ziptier_codec::block::{Contexts, Setting};
use ziptier_codec::format::Format;

/// Bytes in front of and behind raw DEFLATE in a zlib stream.
const ZLIB_HEADER_BYTES: usize = 2;
const ZLIB_TRAILER_BYTES: usize = 4;

/// What unpacks the chunks of an SSTable.
pub(crate) enum Decompressor {
    Noop,
    Snappy,
    Lz4(Contexts),
    Zstd,
    Deflate(Contexts),
}

/// The classes whose chunks can be read.
pub(crate) const CLASSES: &str =
    "LZ4Compressor, SnappyCompressor, DeflateCompressor, ZstdCompressor and NoopCompressor";

impl Decompressor {
    /// That of a class, `None` if the class is not one of [`CLASSES`].
    pub(crate) fn of(class: &str) -> Option<Decompressor> {
        let contexts = |format| Setting::new(format).engine().ok().map(Contexts::new);
        Some(match class {
            "NoopCompressor" => Decompressor::Noop,
            "SnappyCompressor" => Decompressor::Snappy,
            "LZ4Compressor" => Decompressor::Lz4(contexts(Format::Lz4)?),
            "ZstdCompressor" => Decompressor::Zstd,
            "DeflateCompressor" => Decompressor::Deflate(contexts(Format::Deflate)?),
            _ => return None,
        })
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
