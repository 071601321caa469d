//! Packs blocks for the cache, and unpacks them.

use super::format::Packing;
use super::settings::{CacheError, Codec};
use ziptier_codec::block::{BlockError, Contexts, Setting};
use ziptier_codec::format::Format;

/// An encoder may write so many bytes behind the longest packed block that is taken.
const SLACK_BYTES: usize = 64;

pub(super) struct Packer {
    codec: Codec,
    lz4: Contexts,
    zstd: Contexts,
}

impl Packer {
    pub(super) fn new(codec: Codec) -> Result<Packer, CacheError> {
        let open = |setting: Setting| {
            let engine = setting.engine().map_err(|error| CacheError::Codec(error.to_string()))?;
            Ok::<_, CacheError>(Contexts::new(engine))
        };
        let zstd = Setting::new(Format::Zstd).with_level(1);
        Ok(Packer { codec, lz4: open(Setting::new(Format::Lz4))?, zstd: open(zstd)? })
    }

    /// Appends the packed block. If packing saves less than a sixteenth, or if the allocator refuses the memory, leaves
    /// `out` unchanged and returns [`Packing::Raw`].
    pub(super) fn pack(&self, raw: &[u8], out: &mut Vec<u8>) -> Packing {
        let (contexts, packing) = match self.codec {
            Codec::Lz4 => (&self.lz4, Packing::Lz4),
            Codec::Zstd => (&self.zstd, Packing::Zstd),
            Codec::None => return Packing::Raw,
        };
        let limit = raw.len() - raw.len() / 16;
        if out.try_reserve(limit + SLACK_BYTES).is_err() {
            return Packing::Raw;
        }
        match contexts.with(|codec| codec.compress(raw, out, limit)) {
            Ok(Some(_)) => packing,
            Ok(None) | Err(_) => Packing::Raw,
        }
    }

    /// Appends the block to `out`, whatever codec is in use now.
    pub(super) fn unpack(
        &self,
        packing: Packing,
        packed: &[u8],
        raw_bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), BlockError> {
        match packing {
            Packing::Raw => {
                out.extend_from_slice(packed);
                Ok(())
            }
            Packing::Lz4 => self.lz4.with(|codec| codec.decompress(packed, out, raw_bytes)),
            Packing::Zstd => self.zstd.with(|codec| codec.decompress(packed, out, raw_bytes)),
        }
    }
}
