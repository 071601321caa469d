//! Format `deflate` with entry points: streams for a reader that ignores bytes behind the stream, as RocksDB does.
//!
//! Ziptier's own encoder packs the blocks. For blocks up to 16 KiB, a trailer behind the stream states the starts of
//! its parts, so that the parts are decoded side by side ([`PartsDecoder`](ziptier_deflate::PartsDecoder)). libdeflate
//! decodes everything else. Unlike all other engines of the format, this one ignores bytes behind a stream. The others
//! read its streams by [`stream_of`].
//!
//! No [`Setting`](super::Setting) selects this engine. A caller that uses it must know that its readers stop at the end
//! of a stream.

use super::context::{Coder, Context, Damage, Failure};
use super::deflate::{LEVELS, bound, copied, raw_bytes_max};
use super::libdeflate::{Decompressor, Own};
use super::setting::SettingError;
use super::{BlockCodec, BlockError, Counters, Engine};
use crate::format::Format;
use std::mem::MaybeUninit;
use ziptier_deflate as deflate;

pub use ziptier_deflate::stream_of;

/// The engine's name. It differs from `software`, although the same code does the work.
pub const NAME: &str = "parts";

/// The engine for streams with entry points.
pub struct Parts {
    own: Own,
    counters: Counters,
}

impl Parts {
    /// An engine for a level: 1 is lazy, 2 to 9 deep, 10 and more densest.
    pub fn new(level: i32) -> Result<Parts, SettingError> {
        if !LEVELS.contains(&level) {
            let (engine, format) = ("software", Format::Deflate);
            return Err(SettingError::Level { engine, format, level, levels: LEVELS });
        }
        Ok(Parts { own: Own::new(level), counters: Counters::new() })
    }
}

impl Engine for Parts {
    fn name(&self) -> &'static str {
        NAME
    }

    fn worker(&self) -> &'static str {
        "software"
    }

    fn format(&self) -> Format {
        Format::Deflate
    }

    /// Bytes behind a stream are no error here.
    fn checks_end(&self) -> bool {
        false
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        let coder = PartsCoder { own: &self.own, encoder: None, made: Vec::new(), parts: None, whole: None };
        Ok(Box::new(Context::new(coder, Format::Deflate, 0, self.counters.open())))
    }
}

/// Each is built when it is first needed.
struct PartsCoder<'a> {
    own: &'a Own,
    encoder: Option<deflate::Encoder<'a>>,
    made: Vec<u8>,
    parts: Option<deflate::PartsDecoder>,
    whole: Option<Decompressor>,
}

// SAFETY: `compress` returns the bytes that it copied to the start of the target. Both decoders return the bytes that
// they wrote.
unsafe impl Coder for PartsCoder<'_> {
    type Error = Failure;

    const ENGINE: &'static str = NAME;

    fn bound(&self, raw_bytes: usize) -> usize {
        bound(raw_bytes)
    }

    fn raw_bytes_max(&self, packed: &[u8]) -> Result<usize, Damage> {
        Ok(raw_bytes_max(packed))
    }

    fn compress(&mut self, raw: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, BlockError> {
        let (own, room) = (self.own, target.len());
        let encoder = self.encoder.get_or_insert_with(|| own.encoder());
        Ok(copied(&mut self.made, target, |made| encoder.compress_with_trailer(raw, made, room)))
    }

    fn decompress(
        &mut self,
        packed: &[u8],
        target: &mut [MaybeUninit<u8>],
    ) -> Result<Option<usize>, Failure> {
        if let Some(length) = self.parts.get_or_insert_default().decompress_with_trailer(packed, target) {
            return Ok(Some(length));
        }
        let whole = match &mut self.whole {
            Some(whole) => whole,
            None => self.whole.insert(Decompressor::new()?),
        };
        Ok(whole.decompress(packed, target)?.map(|stream| stream.written))
    }
}
