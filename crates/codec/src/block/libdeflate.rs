//! Format `deflate`, engine `software`: libdeflate, which works on whole blocks.
//!
//! libdeflate has no option for the window. A block of at most 4 KiB cannot refer further back than 4 KiB, so every
//! engine reads its stream. Longer blocks, and blocks in parts, go to ziptier's own encoder, whose window is always 4
//! KiB. The encoder puts entry points in front of whole blocks up to 16 KiB, and such a block is decoded from four
//! places at once ([`PartsDecoder`](ziptier_deflate::PartsDecoder)). libdeflate decodes all other blocks. It chooses
//! fixed or dynamic codes by itself and has no preset dictionary; the module [`deflate`](super::deflate) covers those
//! cases.

use super::context::{Coder, Context, Damage, Failure};
use super::deflate::{LEVELS, bound, copied, raw_bytes_max};
use super::heap;
use super::setting::SettingError;
use super::split::parts;
use super::{BlockCodec, BlockError, Counters, Engine};
use crate::format::Format;
use libdeflate_sys as ffi;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use ziptier_deflate as deflate;

const NAME: &str = "software";

/// The engine `software` of format `deflate`.
pub struct Libdeflate {
    level: i32,
    own: Own,
    /// The most parts of a block.
    split: u32,
    counters: Counters,
}

/// Ziptier's own encoder of ordinary streams, for a level of libdeflate.
pub(super) struct Own {
    level: deflate::Level,
    /// An empty one.
    dictionary: deflate::Dictionary,
}

impl Own {
    /// Level 1 is lazy, 2 to 9 deep, 10 and more densest.
    pub(super) fn new(level: i32) -> Own {
        let level = match level {
            ..2 => deflate::Level::Lazy,
            2..10 => deflate::Level::Deep,
            10.. => deflate::Level::Densest,
        };
        Own { level, dictionary: deflate::Dictionary::new(b"") }
    }

    pub(super) fn encoder(&self) -> deflate::Encoder<'_> {
        deflate::Encoder::new(&self.dictionary, self.level)
    }
}

impl Libdeflate {
    /// An engine for a level.
    pub fn new(level: i32) -> Result<Libdeflate, SettingError> {
        if !LEVELS.contains(&level) {
            let (engine, format) = (NAME, Format::Deflate);
            return Err(SettingError::Level { engine, format, level, levels: LEVELS });
        }
        Ok(Libdeflate { level, own: Own::new(level), split: 1, counters: Counters::new() })
    }

    /// The same for blocks of up to so many [parts](super::split).
    #[must_use]
    pub fn with_split(self, split: u32) -> Libdeflate {
        Libdeflate { split, ..self }
    }
}

impl Engine for Libdeflate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn format(&self) -> Format {
        Format::Deflate
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        let (level, own, split) = (self.level, &self.own, self.split);
        let coder = LibdeflateCoder {
            level,
            own,
            split,
            compressor: None,
            decompressor: None,
            from_entries: None,
            long: None,
            made: Vec::new(),
        };
        Ok(Box::new(Context::new(coder, Format::Deflate, 0, self.counters.open())))
    }
}

/// Each is built when it is first needed.
struct LibdeflateCoder<'a> {
    level: i32,
    own: &'a Own,
    split: u32,
    compressor: Option<Compressor>,
    decompressor: Option<Decompressor>,
    from_entries: Option<deflate::PartsDecoder>,
    /// Compresses blocks that have parts, or are longer than the window.
    long: Option<deflate::Encoder<'a>>,
    made: Vec<u8>,
}

// SAFETY: both methods return the number of bytes that a decoder wrote, or that were copied, from the start of the
// target.
unsafe impl Coder for LibdeflateCoder<'_> {
    type Error = Failure;

    const ENGINE: &'static str = NAME;

    fn bound(&self, raw_bytes: usize) -> usize {
        bound(raw_bytes)
    }

    fn raw_bytes_max(&self, packed: &[u8]) -> Result<usize, Damage> {
        Ok(raw_bytes_max(packed))
    }

    fn compress(&mut self, raw: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, BlockError> {
        let parts = parts(raw.len(), self.split);
        if raw.len() > deflate::WINDOW_BYTES || parts > 1 {
            let (own, room) = (self.own, target.len());
            let encoder = self.long.get_or_insert_with(|| own.encoder());
            let huffman = deflate::Huffman::Dynamic;
            return Ok(copied(&mut self.made, target, |made| match parts {
                1 => encoder.compress_with_preamble(raw, made, room),
                _ => encoder.compress_in_parts(huffman, raw, parts, made, room),
            }));
        }
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            None => {
                let compressor = Compressor::new(self.level).ok_or_else(no_memory)?;
                self.compressor.insert(compressor)
            }
        };
        Ok(compressor.compress(raw, target))
    }

    fn decompress(
        &mut self,
        packed: &[u8],
        target: &mut [MaybeUninit<u8>],
    ) -> Result<Option<usize>, Failure> {
        if deflate::has_preamble(packed)
            && let Some(length) =
                self.from_entries.get_or_insert_default().decompress_with_preamble(packed, target)
        {
            return Ok(Some(length));
        }
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            None => self.decompressor.insert(Decompressor::new()?),
        };
        match decompressor.decompress(packed, target)? {
            Some(Stream { read, .. }) if read < packed.len() => {
                Err(Damage { position: read, what: "bytes after the last block" }.into())
            }
            stream => Ok(stream.map(|stream| stream.written)),
        }
    }
}

fn no_memory() -> BlockError {
    BlockError::Engine { engine: NAME, reason: "libdeflate: no memory for an encoder".into() }
}

/// Memory from Rust's allocator, see [`heap`].
const OPTIONS: ffi::libdeflate_options = ffi::libdeflate_options {
    sizeof_options: size_of::<ffi::libdeflate_options>(),
    malloc_func: Some(malloc),
    free_func: Some(free),
};

// SAFETY: the function has no requirements; the library's type makes it unsafe.
unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    heap::allocate(bytes)
}

// SAFETY: the caller hands in what `malloc` gave it, once.
unsafe extern "C" fn free(address: *mut c_void) {
    // SAFETY: libdeflate frees what `malloc` gave it, once.
    unsafe { heap::release(address) }
}

/// libdeflate's encoder, owned.
struct Compressor(NonNull<ffi::libdeflate_compressor>);

// SAFETY: it belongs to no thread; the library keeps no state elsewhere.
unsafe impl Send for Compressor {}

impl Compressor {
    fn new(level: i32) -> Option<Compressor> {
        // SAFETY: the options name functions that work like `malloc` and `free`; a level out of range gives null.
        NonNull::new(unsafe { ffi::libdeflate_alloc_compressor_ex(level as c_int, &OPTIONS) }).map(Compressor)
    }

    fn compress(&mut self, raw: &[u8], target: &mut [MaybeUninit<u8>]) -> Option<usize> {
        // SAFETY: the compressor is alive and used by one caller at a time; source and target are valid for the
        // lengths given with them.
        let written = unsafe {
            ffi::libdeflate_deflate_compress(
                self.0.as_ptr(),
                raw.as_ptr().cast(),
                raw.len(),
                target.as_mut_ptr().cast(),
                target.len(),
            )
        };
        // Zero means that the stream does not fit: even the empty stream has two bytes.
        (written > 0).then_some(written)
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        // SAFETY: it was allocated by `new` and is not used afterwards.
        unsafe { ffi::libdeflate_free_compressor(self.0.as_ptr()) }
    }
}

/// The bytes of a decoded stream, and of its contents.
pub(super) struct Stream {
    read: usize,
    pub(super) written: usize,
}

/// libdeflate's decoder, owned.
pub(super) struct Decompressor(NonNull<ffi::libdeflate_decompressor>);

// SAFETY: it belongs to no thread; the library keeps no state elsewhere.
unsafe impl Send for Decompressor {}

impl Decompressor {
    pub(super) fn new() -> Result<Decompressor, Failure> {
        // SAFETY: the options name functions that work like `malloc` and `free`.
        let new = NonNull::new(unsafe { ffi::libdeflate_alloc_decompressor_ex(&OPTIONS) });
        new.map(Decompressor).ok_or_else(|| Failure::Engine("libdeflate: no memory for a decoder".into()))
    }

    /// Decodes a stream, behind which more bytes may follow; `None` if the target is too small for its contents.
    pub(super) fn decompress(
        &mut self,
        packed: &[u8],
        target: &mut [MaybeUninit<u8>],
    ) -> Result<Option<Stream>, Damage> {
        let (mut read, mut written) = (0, 0);
        // SAFETY: the decompressor is alive and used by one caller at a time. Source and target are valid for the
        // lengths given with them. The library goes past neither, whatever the bytes are.
        let result = unsafe {
            ffi::libdeflate_deflate_decompress_ex(
                self.0.as_ptr(),
                packed.as_ptr().cast(),
                packed.len(),
                target.as_mut_ptr().cast(),
                target.len(),
                &mut read,
                &mut written,
            )
        };
        match result {
            ffi::libdeflate_result_LIBDEFLATE_SUCCESS => Ok(Some(Stream { read, written })),
            ffi::libdeflate_result_LIBDEFLATE_INSUFFICIENT_SPACE => Ok(None),
            // The library does not report the position of damage.
            _ => Err(Damage { position: packed.len(), what: "no valid stream" }),
        }
    }
}

impl Drop for Decompressor {
    fn drop(&mut self) {
        // SAFETY: it was allocated by `new` and is not used afterwards.
        unsafe { ffi::libdeflate_free_decompressor(self.0.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::parts::Parts;

    #[test]
    fn a_decoder_without_memory_is_no_damage() {
        heap::tests::memory_that_is_refused_is_no_damage(&Libdeflate::new(1).expect("a level"));
        heap::tests::memory_that_is_refused_is_no_damage(&Parts::new(1).expect("a level"));
    }
}
