//! Format `zstd`: one Zstandard frame (RFC 8878) without the fields that a store knows anyway.
//!
//! The frame has no magic number, no content size, no dictionary number and no checksum: its header is a zero byte and
//! the window descriptor. With the four bytes `28 B5 2F FD` in front it is a standard frame that any decoder reads,
//! given the dictionary.
//!
//! A context keeps its memory from block to block. If sizes differ widely, the library frees some after 128 small
//! blocks and allocates it again for the next large one.
//!
//! Levels below 0 trade ratio for speed. Levels below about -50 gain nothing more.

use super::context::{Coder, Context, Damage, Failure};
use super::setting::SettingError;
use super::{BlockCodec, BlockError, Counters, Dictionary, Engine};
use crate::format::Format;
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::sync::Arc;
use zstd_safe::{CCtx, CDict, CParameter, DCtx, DParameter, FrameFormat, WriteBuf, get_error_name};

/// Levels of the format. There is no level 0.
pub const LEVELS: RangeInclusive<i32> = -131_072..=22;

/// The bytes that turn a payload into a standard frame.
pub const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Bytes before the first block: frame descriptor and window descriptor.
const HEADER_BYTES: usize = 2;

/// The longest block inside a frame (RFC 8878, section 3.1.1.2.3).
const INNER_BLOCK_BYTES_MAX: usize = 128 << 10;

/// The error of libzstd for a target that is too small (`ZSTD_error_dstSize_tooSmall`).
const TARGET_TOO_SMALL: usize = 70_usize.wrapping_neg();

/// The engine of format `zstd`: the reference library on the CPU.
pub struct Zstd {
    level: i32,
    prepared: Option<Prepared>,
    counters: Counters,
}

struct Prepared {
    compress: CDict<'static>,
    dictionary: Arc<Dictionary>,
}

impl Zstd {
    /// An engine for a level and a dictionary. Prepares the dictionary for that level.
    pub fn new(level: i32, dictionary: Option<Arc<Dictionary>>) -> Result<Zstd, SettingError> {
        if !LEVELS.contains(&level) || level == 0 {
            return Err(SettingError::Level { engine: "cpu", format: Format::Zstd, level, levels: LEVELS });
        }
        let prepared = dictionary.map(|dictionary| {
            if dictionary.format() != Format::Zstd {
                let found = dictionary.format();
                return Err(SettingError::DictionaryFormat { found, expected: Format::Zstd });
            }
            let compress = CDict::try_create(dictionary.content(), level);
            let compress = compress.ok_or(SettingError::DictionaryRefused { format: Format::Zstd })?;
            Ok(Prepared { compress, dictionary })
        });
        Ok(Zstd { level, prepared: prepared.transpose()?, counters: Counters::new() })
    }
}

impl Engine for Zstd {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn format(&self) -> Format {
        Format::Zstd
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn bound(&self, raw_bytes: usize) -> usize {
        zstd_safe::compress_bound(raw_bytes)
    }

    fn memory_bytes(&self) -> usize {
        self.prepared.as_ref().map_or(0, |prepared| prepared.compress.sizeof())
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        let prepared = self.prepared.as_ref();
        let coder = ZstdCoder { level: self.level, prepared, compressor: None, decompressor: None };
        let fingerprint = prepared.map_or(0, |prepared| prepared.dictionary.fingerprint());
        Ok(Box::new(Context::new(coder, Format::Zstd, fingerprint, self.counters.open())))
    }
}

/// Either half is built when it is first needed, so that a reader holds no tables of an encoder.
struct ZstdCoder<'a> {
    level: i32,
    prepared: Option<&'a Prepared>,
    compressor: Option<CCtx<'a>>,
    decompressor: Option<DCtx<'a>>,
}

impl<'a> ZstdCoder<'a> {
    fn new_compressor(&self) -> Result<CCtx<'a>, BlockError> {
        let engine = |reason: &str| BlockError::Engine { engine: "cpu", reason: format!("zstd: {reason}") };
        let named = |code| engine(get_error_name(code));
        let mut context = CCtx::try_create().ok_or_else(|| engine("no memory for a compression context"))?;
        for parameter in [
            CParameter::CompressionLevel(self.level),
            CParameter::Format(FrameFormat::Magicless),
            CParameter::ContentSizeFlag(false),
            CParameter::DictIdFlag(false),
            CParameter::ChecksumFlag(false),
        ] {
            context.set_parameter(parameter).map_err(named)?;
        }
        if let Some(prepared) = self.prepared {
            context.ref_cdict(&prepared.compress).map_err(named)?;
        }
        Ok(context)
    }

    fn new_decompressor(&self) -> Result<DCtx<'a>, usize> {
        const NO_MEMORY: usize = 64_usize.wrapping_neg();
        let mut context = DCtx::try_create().ok_or(NO_MEMORY)?;
        context.set_parameter(DParameter::Format(FrameFormat::Magicless))?;
        if let Some(decompress) = self.prepared.and_then(|prepared| prepared.dictionary.zstd_decoder()) {
            context.ref_ddict(decompress)?;
        }
        Ok(context)
    }
}

// SAFETY: libzstd returns the number of bytes that it wrote from the start of the target.
unsafe impl Coder for ZstdCoder<'_> {
    type Error = Failure;

    fn bound(&self, raw_bytes: usize) -> usize {
        zstd_safe::compress_bound(raw_bytes)
    }

    fn raw_bytes_max(&self, packed: &[u8]) -> Result<usize, Damage> {
        walk(packed)
    }

    fn compress(&mut self, raw: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, BlockError> {
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            None => {
                let compressor = self.new_compressor()?;
                self.compressor.insert(compressor)
            }
        };
        match compressor.compress2(&mut Target::new(target), raw) {
            Ok(length) => Ok(Some(length)),
            Err(TARGET_TOO_SMALL) => Ok(None),
            Err(code) => {
                let reason = format!("zstd: {}", get_error_name(code));
                Err(BlockError::Engine { engine: "cpu", reason })
            }
        }
    }

    fn decompress(
        &mut self,
        packed: &[u8],
        target: &mut [MaybeUninit<u8>],
    ) -> Result<Option<usize>, Failure> {
        let no_context = |code| Failure::Engine(format!("zstd: {}", get_error_name(code)));
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            None => {
                let decompressor = self.new_decompressor().map_err(no_context)?;
                self.decompressor.insert(decompressor)
            }
        };
        match decompressor.decompress(&mut Target::new(target), packed) {
            Ok(length) => Ok(Some(length)),
            Err(TARGET_TOO_SMALL) => Ok(None),
            Err(code) => Err(Damage { position: packed.len(), what: get_error_name(code) }.into()),
        }
    }
}

/// The most bytes that a compressed block can hold, by the headers of the blocks inside; 0 if it is damaged.
pub fn raw_bytes_max(packed: &[u8]) -> usize {
    walk(packed).unwrap_or(0)
}

/// Follows the headers of the blocks inside a frame and returns the most bytes that they can hold.
///
/// It accepts only the kind of header that the encoder writes, and exactly one frame. libzstd would continue with a
/// second one.
fn walk(packed: &[u8]) -> Result<usize, Damage> {
    if packed.first().is_some_and(|&descriptor| descriptor != 0) {
        return Err(Damage { position: 0, what: "another frame descriptor" });
    }
    let (mut position, mut raw_bytes_max) = (HEADER_BYTES, 0usize);
    loop {
        let Some(&[low, middle, high]) = packed.get(position..position + 3) else {
            return Err(Damage { position: packed.len(), what: "the input ends" });
        };
        let header = u32::from_le_bytes([low, middle, high, 0]);
        let size = (header >> 3) as usize;
        let (stored, raw) = match header >> 1 & 3 {
            0 => (size, size),
            1 => (1, size),
            2 => (size, INNER_BLOCK_BYTES_MAX),
            _ => return Err(Damage { position, what: "a reserved kind of block" }),
        };
        position += 3;
        if stored > packed.len() - position {
            return Err(Damage { position: packed.len(), what: "the input ends" });
        }
        position += stored;
        raw_bytes_max = raw_bytes_max.saturating_add(raw.min(INNER_BLOCK_BYTES_MAX));
        if header & 1 == 1 {
            break;
        }
    }
    if position == packed.len() {
        Ok(raw_bytes_max)
    } else {
        Err(Damage { position, what: "bytes after the last block" })
    }
}

/// Memory to be written, as `zstd_safe` wants it.
struct Target<'a> {
    memory: &'a mut [MaybeUninit<u8>],
    written: usize,
}

impl<'a> Target<'a> {
    fn new(memory: &'a mut [MaybeUninit<u8>]) -> Target<'a> {
        Target { memory, written: 0 }
    }
}

// SAFETY: the pointer is that of `memory`, valid for writing its whole length, which is the capacity. Only bytes that
// `filled_until` vouched for are exposed.
unsafe impl WriteBuf for Target<'_> {
    fn as_slice(&self) -> &[u8] {
        // SAFETY: `filled_until` was told that these bytes have been written.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast(), self.written) }
    }

    fn capacity(&self) -> usize {
        self.memory.len()
    }

    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory.as_mut_ptr().cast()
    }

    // SAFETY: the caller vouches that the first `n` bytes have been written. An `n` above the length panics.
    unsafe fn filled_until(&mut self, n: usize) {
        assert!(n <= self.memory.len(), "libzstd writes inside its target");
        self.written = n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_one_frame_and_nothing_else() {
        let engine = Zstd::new(3, None).unwrap();
        let mut codec = engine.open().unwrap();
        let raw = b"one frame, one frame, one frame, one frame".repeat(9);
        let mut packed = Vec::new();
        codec.compress(&raw, &mut packed, raw.len()).unwrap().unwrap();
        assert_eq!(packed[0], 0);
        let mut out = Vec::new();
        codec.decompress(&packed, &mut out, raw.len()).unwrap();
        assert_eq!(out, raw);

        // An empty second frame adds no bytes, but the encoder did not write it.
        let two = [&packed[..], &[0, 0, 1, 0, 0]].concat();
        let error = codec.decompress(&two, &mut out, raw.len()).unwrap_err();
        let BlockError::Damaged { position, .. } = error else { panic!("{error}") };
        assert_eq!(position, packed.len());
        // With a magic number it is a standard frame.
        assert_eq!(zstd::decode_all(&*[&MAGIC[..], &packed].concat()).unwrap(), raw);
    }
}
