//! How values are coded, as users ask for it.

use std::fmt;
use std::str::FromStr;

use ziptier_codec::block::{DeviceSource, Huffman, Path};
use ziptier_codec::format::Format;

/// The codec, and how it packs blocks.
#[derive(Debug, Default)]
pub struct CodecOptions {
    /// How bodies are coded.
    pub codec: CodecChoice,
    /// How values are packed in blocks, if `codec` does so.
    pub block: BlockOptions,
}

/// How bodies are coded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CodecChoice {
    /// Every body takes the form that a measured trade of bytes against nanoseconds gives it.
    #[default]
    Auto,
    /// Bodies stay raw.
    None,
    /// Values are coded by tokens wherever that saves a byte.
    Token,
    /// Values are packed in blocks of LZ4.
    Lz4,
    /// Values are packed in blocks of Zstandard.
    Zstd,
    /// Values are packed in blocks of raw DEFLATE.
    Deflate,
}

impl CodecChoice {
    /// All choices.
    pub const ALL: [Self; 6] = [Self::Auto, Self::None, Self::Token, Self::Lz4, Self::Zstd, Self::Deflate];

    fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Token => "token",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
            Self::Deflate => "deflate",
        }
    }

    /// The format of the blocks that every value is packed in, if that is forced.
    pub(crate) fn block_format(self) -> Option<Format> {
        match self {
            Self::Auto | Self::None | Self::Token => None,
            Self::Lz4 => Some(Format::Lz4),
            Self::Zstd => Some(Format::Zstd),
            Self::Deflate => Some(Format::Deflate),
        }
    }
}

/// How values are packed in blocks, by the codecs that do so. Each field names its default.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockOptions {
    /// Bytes of values in a block, 512 to 16,384; default 512. Larger blocks are smaller in all, and every get unpacks
    /// one. In leaves that are written to, blocks have half of that.
    pub bytes: usize,
    /// Level of the format, for whatever is packed. `None`, the default, stands for a fast one where values are
    /// written, and `dense_level` for what has been quiet since.
    pub level: Option<i32>,
    /// Level of the format for leaves that nobody writes to. `None`, the default, stands for `level`, or the format's
    /// own choice if that is not given either.
    pub dense_level: Option<i32>,
    /// Which Huffman codes `deflate` may use; default [`Huffman::Dynamic`].
    pub huffman: Huffman,
    /// The engine that does the work, by the name of one of the codec's engines. `None`, the default, stands for the
    /// one that the codec prefers.
    pub engine: Option<&'static str>,
    /// Whether a device may, must or must not do the work; default [`Path::Auto`]. With [`Path::Hardware`] the store
    /// does not open without a device. If a device fails later, new blocks stay raw, and software reads the old ones,
    /// so nothing is lost with a device.
    pub path: Path,
    /// The source of the devices of engine `iaa`; default [`DeviceSource::Discovered`]. A model is preferred to other
    /// engines of `deflate`.
    pub device: DeviceSource,
    /// Packs what background threads pack, at `dense_level` or its own choice: another codec with blocks. `None`, the
    /// default, stands for the same.
    pub background_codec: Option<CodecChoice>,
    /// Whether each thread keeps its contexts; default `true`. Without, every block pays for a fresh one: to measure
    /// that.
    pub context_cache: bool,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self {
            bytes: BLOCK_BYTES_DEFAULT,
            level: None,
            dense_level: None,
            huffman: Huffman::default(),
            engine: None,
            path: Path::default(),
            device: DeviceSource::default(),
            background_codec: None,
            context_cache: true,
        }
    }
}

const BLOCK_BYTES_DEFAULT: usize = 512;

/// A codec name that means nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no codec '{name}'; the codecs are auto, none, token, lz4, zstd and deflate")]
pub struct UnknownCodec {
    /// The name as given.
    pub name: String,
}

impl FromStr for CodecChoice {
    type Err = UnknownCodec;

    fn from_str(name: &str) -> Result<Self, UnknownCodec> {
        let named = Self::ALL.into_iter().find(|codec| codec.name() == name);
        named.ok_or_else(|| UnknownCodec { name: name.to_owned() })
    }
}

impl fmt::Display for CodecChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
