//! Format `deflate`, engine `zlib`: the system's libz, with a window of 4 KiB.
//!
//! Callers select the engine by its name. libz is linked dynamically, so that an accelerator's library can replace it
//! (`LD_PRELOAD`). Without a libz of the system at build time, there is no engine `zlib`. The worker is
//! `zlib_accel_preload` if such a library is mapped, even if that library hands every block to libz. Otherwise the
//! worker is `zlib_system`. Intel's library takes blocks of more than 512 bytes, without a dictionary.
//!
//! Its encoder refers back at most 3,834 bytes (the window less 262). Of a longer dictionary only the end counts.

use super::context::{Coder, Context, Damage, Failure};
use super::heap;
use super::setting::{Huffman, SettingError};
use super::{BlockCodec, BlockError, Counters, Dictionary, Engine, Preloaded};
use crate::format::Format;
use libz_sys as ffi;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Levels of the library, without its level 0, which only stores.
pub const LEVELS: RangeInclusive<i32> = 1..=9;

/// The history window.
pub const WINDOW_BYTES: usize = super::dictionary::DEFLATE_WINDOW_BYTES;

/// Negative: a raw stream, without zlib's header and checksum.
const WINDOW_BITS: c_int = -12;

/// The size of the hash table (2^(n+7) entries of 2 bytes, cleared for every block) and of the symbol buffer (2^(n+6);
/// a DEFLATE block ends when it is full). The default, 8, would clear 64 KiB for each block, however small.
const MEMORY_LEVEL: c_int = 6;

const NAME: &str = "zlib";

/// The engine `zlib` of format `deflate`.
#[derive(Debug)]
pub struct Zlib {
    level: i32,
    huffman: Huffman,
    dictionary: Option<Arc<Dictionary>>,
    is_replaced: bool,
    counters: Counters,
}

impl Zlib {
    /// An engine for a level, a Huffman mode and a dictionary.
    pub fn new(
        level: i32,
        huffman: Huffman,
        dictionary: Option<Arc<Dictionary>>,
    ) -> Result<Zlib, SettingError> {
        if !LEVELS.contains(&level) {
            return Err(SettingError::Level { engine: NAME, format: Format::Deflate, level, levels: LEVELS });
        }
        match &dictionary {
            Some(dictionary) if dictionary.format() != Format::Deflate => {
                Err(SettingError::DictionaryFormat { found: dictionary.format(), expected: Format::Deflate })
            }
            _ if cfg!(libz_is_built_in) => Err(SettingError::Unavailable {
                engine: NAME,
                reason: "the program was built where there was no libz to link with; install zlib1g-dev and \
                         build it again"
                    .into(),
            }),
            _ => {
                let is_replaced = Preloaded::find().is_some();
                Ok(Zlib { level, huffman, dictionary, is_replaced, counters: Counters::new() })
            }
        }
    }
}

impl Engine for Zlib {
    fn name(&self) -> &'static str {
        NAME
    }

    fn format(&self) -> Format {
        Format::Deflate
    }

    fn worker(&self) -> &'static str {
        if self.is_replaced { "zlib_accel_preload" } else { "zlib_system" }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        let dictionary = self.dictionary.as_deref();
        let coder = ZlibCoder::new(self.level, self.huffman, dictionary);
        let fingerprint = dictionary.map_or(0, Dictionary::fingerprint);
        Ok(Box::new(Context::new(coder, Format::Deflate, fingerprint, self.counters.open())))
    }
}

/// Either half is built when it is first needed.
pub(super) struct ZlibCoder<'a> {
    level: i32,
    huffman: Huffman,
    dictionary: Option<&'a Dictionary>,
    compressor: Option<Stream>,
    decompressor: Option<Stream>,
}

impl<'a> ZlibCoder<'a> {
    pub(super) fn new(level: i32, huffman: Huffman, dictionary: Option<&'a Dictionary>) -> ZlibCoder<'a> {
        ZlibCoder { level, huffman, dictionary, compressor: None, decompressor: None }
    }
}

// SAFETY: `avail_out` begins at the length of the target, and zlib lowers it by every byte written.
unsafe impl Coder for ZlibCoder<'_> {
    type Error = Failure;

    const ENGINE: &'static str = NAME;

    fn bound(&self, raw_bytes: usize) -> usize {
        // More than deflateBound() for any window and memory level: at most 9 bits per literal, and block headers.
        raw_bytes.saturating_add(raw_bytes / 8 + 64)
    }

    fn raw_bytes_max(&self, packed: &[u8]) -> Result<usize, Damage> {
        // A match of 258 bytes takes at least two bits.
        Ok(packed.len().saturating_mul(4 * 258).min(c_uint::MAX as usize))
    }

    fn compress(&mut self, raw: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, BlockError> {
        let (Ok(raw_bytes), Ok(room)) = (c_uint::try_from(raw.len()), c_uint::try_from(target.len())) else {
            return Ok(None);
        };
        let engine = |reason: String| BlockError::Engine { engine: NAME, reason };
        let stream = match &mut self.compressor {
            Some(stream) => stream,
            None => {
                let stream = Stream::deflate(self.level, self.huffman).map_err(engine)?;
                self.compressor.insert(stream)
            }
        };
        // SAFETY: the stream was set up for compression and is used by one caller at a time. Source, target and
        // dictionary are valid for the lengths given with them, and are not touched after the call.
        let result = unsafe {
            let z = stream.z();
            let mut result = ffi::deflateReset(z);
            if let (ffi::Z_OK, Some(dictionary)) = (result, self.dictionary) {
                let content = dictionary.content();
                result = ffi::deflateSetDictionary(z, content.as_ptr(), content.len() as c_uint);
            }
            if result == ffi::Z_OK {
                z.next_in = raw.as_ptr().cast_mut();
                z.avail_in = raw_bytes;
                z.next_out = target.as_mut_ptr().cast();
                z.avail_out = room;
                result = ffi::deflate(z, ffi::Z_FINISH);
            }
            result
        };
        match result {
            ffi::Z_STREAM_END => Ok(Some(target.len() - stream.z().avail_out as usize)),
            ffi::Z_OK | ffi::Z_BUF_ERROR => Ok(None),
            code => Err(engine(format!("deflate returned {code}"))),
        }
    }

    fn decompress(
        &mut self,
        packed: &[u8],
        target: &mut [MaybeUninit<u8>],
    ) -> Result<Option<usize>, Failure> {
        let (Ok(packed_bytes), Ok(raw_bytes)) =
            (c_uint::try_from(packed.len()), c_uint::try_from(target.len()))
        else {
            return Err(Damage::other_length(packed.len()).into());
        };
        let stream = match &mut self.decompressor {
            Some(stream) => stream,
            None => {
                let stream = Stream::inflate().map_err(Failure::Engine)?;
                self.decompressor.insert(stream)
            }
        };
        // SAFETY: the stream was set up for decompression and is used by one caller at a time. Source, target and
        // dictionary are valid for the lengths given with them, and are not touched after the call.
        let result = unsafe {
            let z = stream.z();
            let mut result = ffi::inflateReset(z);
            if let (ffi::Z_OK, Some(dictionary)) = (result, self.dictionary) {
                let content = dictionary.content();
                result = ffi::inflateSetDictionary(z, content.as_ptr(), content.len() as c_uint);
            }
            if result == ffi::Z_OK {
                z.next_in = packed.as_ptr().cast_mut();
                z.avail_in = packed_bytes;
                z.next_out = target.as_mut_ptr().cast();
                z.avail_out = raw_bytes;
                result = ffi::inflate(z, ffi::Z_FINISH);
            }
            result
        };
        let position = packed.len() - stream.z().avail_in as usize;
        let (left, room) = (stream.z().avail_in, stream.z().avail_out);
        let what = match result {
            ffi::Z_STREAM_END if left > 0 => "bytes after the last block",
            ffi::Z_STREAM_END => return Ok(Some(target.len() - room as usize)),
            ffi::Z_OK | ffi::Z_BUF_ERROR if room == 0 => return Ok(None),
            ffi::Z_OK | ffi::Z_BUF_ERROR => "the input ends",
            ffi::Z_MEM_ERROR => return Err(Failure::Engine("zlib: no memory for the window".into())),
            _ => "no valid stream",
        };
        Err(Damage { position, what }.into())
    }
}

/// A zlib stream, owned. It is boxed because zlib refers to it by address.
struct Stream {
    z: Box<ffi::z_stream>,
    end: unsafe extern "C" fn(ffi::z_streamp) -> c_int,
}

// SAFETY: a stream belongs to no thread, and the library keeps no state elsewhere. The buffers that it points to
// between calls are never used again, because every call sets them anew.
unsafe impl Send for Stream {}

impl Stream {
    fn deflate(level: i32, huffman: Huffman) -> Result<Stream, String> {
        let strategy = match huffman {
            Huffman::Dynamic => ffi::Z_DEFAULT_STRATEGY,
            Huffman::Fixed => ffi::Z_FIXED,
            Huffman::Canned => return Err("zlib knows no canned codes".into()),
        };
        let mut z = empty();
        // SAFETY: `z` names an allocator and no buffers; version and size are those it was declared with.
        let result = unsafe {
            ffi::deflateInit2_(
                &mut *z,
                level,
                ffi::Z_DEFLATED,
                WINDOW_BITS,
                MEMORY_LEVEL,
                strategy,
                version().as_ptr(),
                size_of::<ffi::z_stream>() as c_int,
            )
        };
        started("deflateInit2", result)?;
        Ok(Stream { z, end: ffi::deflateEnd })
    }

    fn inflate() -> Result<Stream, String> {
        let mut z = empty();
        // SAFETY: as above.
        let result = unsafe {
            let size = size_of::<ffi::z_stream>() as c_int;
            ffi::inflateInit2_(&mut *z, WINDOW_BITS, version().as_ptr(), size)
        };
        started("inflateInit2", result)?;
        Ok(Stream { z, end: ffi::inflateEnd })
    }

    fn z(&mut self) -> &mut ffi::z_stream {
        &mut self.z
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the stream was set up by the counterpart of `end` and is not used afterwards.
        unsafe { (self.end)(&mut *self.z) };
    }
}

fn started(function: &str, result: c_int) -> Result<(), String> {
    match result {
        ffi::Z_OK => Ok(()),
        ffi::Z_MEM_ERROR => Err(format!("zlib: no memory for {function}")),
        other => Err(format!("{function} returned {other}")),
    }
}

fn version() -> &'static CStr {
    // SAFETY: zlib returns a constant string.
    unsafe { CStr::from_ptr(ffi::zlibVersion()) }
}

/// A stream that only knows where to get memory from.
fn empty() -> Box<ffi::z_stream> {
    Box::new(ffi::z_stream {
        next_in: std::ptr::null_mut(),
        avail_in: 0,
        total_in: 0,
        next_out: std::ptr::null_mut(),
        avail_out: 0,
        total_out: 0,
        msg: std::ptr::null_mut(),
        state: std::ptr::null_mut(),
        zalloc,
        zfree,
        opaque: std::ptr::null_mut(),
        data_type: 0,
        adler: 0,
        reserved: 0,
    })
}

extern "C" fn zalloc(_opaque: *mut c_void, items: c_uint, bytes: c_uint) -> *mut c_void {
    (items as usize).checked_mul(bytes as usize).map_or(std::ptr::null_mut(), heap::allocate)
}

extern "C" fn zfree(_opaque: *mut c_void, address: *mut c_void) {
    // SAFETY: zlib frees what `zalloc` gave it, once.
    unsafe { heap::release(address) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decoder_without_memory_is_no_damage() {
        let Ok(engine) = Zlib::new(6, Huffman::Dynamic, None) else { return };
        heap::tests::memory_that_is_refused_is_no_damage(&engine);
    }
}
