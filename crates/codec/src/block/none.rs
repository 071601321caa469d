//! Format `none`: the engine that copies.

use super::context::{Coder, Context, Damage};
use super::{BlockCodec, BlockError, Counters, Engine};
use crate::format::Format;
use std::mem::MaybeUninit;

/// The engine of format `none`.
///
/// ```
/// use ziptier_codec::block::{Engine, frame, none::Copying};
///
/// let engine = Copying::new();
/// let mut codec = engine.open()?;
/// let mut stored = Vec::new();
/// frame::pack(codec.as_mut(), engine.format(), b"some records", &mut stored)?;
/// let mut raw = Vec::new();
/// frame::unpack(codec.as_mut(), engine.format(), &stored, &mut raw, 4096)?;
/// assert_eq!(raw, b"some records");
/// # Ok::<(), ziptier_codec::block::BlockError>(())
/// ```
#[derive(Debug, Default)]
pub struct Copying {
    counters: Counters,
}

impl Copying {
    /// An engine whose counters are at zero.
    pub fn new() -> Copying {
        Copying { counters: Counters::new() }
    }
}

impl Engine for Copying {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn format(&self) -> Format {
        Format::None
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn bound(&self, raw_bytes: usize) -> usize {
        raw_bytes
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        Ok(Box::new(Context::new(CopyingCoder, Format::None, 0, self.counters.open())))
    }
}

struct CopyingCoder;

// SAFETY: both methods fill their target with as many bytes as they return.
unsafe impl Coder for CopyingCoder {
    type Error = Damage;

    fn bound(&self, raw_bytes: usize) -> usize {
        raw_bytes
    }

    fn raw_bytes_max(&self, packed: &[u8]) -> Result<usize, Damage> {
        Ok(packed.len())
    }

    fn compress(&mut self, raw: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, BlockError> {
        let fits = target.get_mut(..raw.len());
        Ok(fits.map(|target| target.write_copy_of_slice(raw).len()))
    }

    fn decompress(&mut self, packed: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, Damage> {
        let fits = target.get_mut(..packed.len());
        Ok(fits.map(|target| target.write_copy_of_slice(packed).len()))
    }
}
