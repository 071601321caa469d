//! The functions that the compression manager calls.

use super::{bytes, guarded, text, write_message};
use std::ffi::c_char;
use std::ptr;
use std::slice;
use std::sync::Arc;
use ziptier_rocksdb::codec::{Codec, Guidance, Packed, UnpackError};
use ziptier_rocksdb::generation::{Generation, GenerationError};
use ziptier_rocksdb::settings::Settings;

/// # Safety
///
/// The strings are C strings; `error_bytes` bytes may be written at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_codec_open(
    format: *const c_char,
    path: *const c_char,
    huffman: *const c_char,
    level: i32,
    verify: bool,
    model: *const c_char,
    error: *mut c_char,
    error_bytes: usize,
) -> *const Codec {
    let opened = guarded(Err("opening the codec panicked".to_owned()), || {
        // SAFETY: the caller's promise.
        let (format, path, huffman, model) =
            unsafe { (text(format), text(path), text(huffman), text(model)) };
        let settings = Settings::parse(&format, &path, &huffman, level, &model)?;
        Codec::open(Settings { verify, ..settings })
    });
    match opened {
        Ok(codec) => Arc::into_raw(Arc::new(codec)),
        Err(reason) => {
            // SAFETY: the caller's promise.
            unsafe { write_message(&reason, error, error_bytes) };
            ptr::null()
        }
    }
}

/// # Safety
///
/// `codec` came from [`zt_codec_open`] and is not used after this.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_codec_close(codec: *const Codec) {
    // SAFETY: the caller's promise.
    guarded((), || drop(unsafe { Arc::from_raw(codec) }));
}

/// # Safety
///
/// `codec` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_codec_takes(codec: *const Codec, preferred: u8, force: bool) -> i32 {
    // SAFETY: the caller's promise.
    let codec = unsafe { &*codec };
    codec.takes(preferred, force).map_or(-1, i32::from)
}

/// # Safety
///
/// `codec` is open.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_codec_unpacks_standard(codec: *const Codec, packed_as: u8) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*codec }.unpacks_standard(packed_as)
}

/// # Safety
///
/// `codec` is open; `sample_bytes` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_codec_guidance(
    codec: *const Codec,
    may_sample: bool,
    sample_bytes: *mut usize,
) -> *const Generation {
    // SAFETY: the caller's promise.
    let codec = unsafe { &*codec };
    let (generation, asked) = match guarded(Guidance::Plain, || codec.guidance(may_sample)) {
        Guidance::Use(generation) => (Arc::into_raw(generation), 0),
        Guidance::Sample(bytes) => (ptr::null(), bytes),
        Guidance::Plain => (ptr::null(), 0),
    };
    // SAFETY: the caller's promise.
    unsafe { *sample_bytes = asked };
    generation
}

/// # Safety
///
/// `codec` is open; `lengths` has `count` lengths, and `samples` as many bytes as they sum up to.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_codec_train(
    codec: *const Codec,
    samples: *const c_char,
    lengths: *const usize,
    count: usize,
) -> *const Generation {
    // SAFETY: the caller's promise.
    let (codec, lengths) = unsafe { (&*codec, slice::from_raw_parts(lengths, count)) };
    // SAFETY: the caller's promise.
    let mut rest = unsafe { bytes(samples, lengths.iter().sum()) };
    let blocks: Vec<&[u8]> = lengths
        .iter()
        .map(|&length| {
            let (block, after) = rest.split_at(length);
            rest = after;
            block
        })
        .collect();
    guarded(None, || codec.train(&blocks)).map_or(ptr::null(), Arc::into_raw)
}

/// # Safety
///
/// `length` bytes may be read at `start`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_generation_is_one(start: *const c_char, length: usize) -> bool {
    // SAFETY: the caller's promise.
    Generation::is_one(unsafe { bytes(start, length) })
}

/// # Safety
///
/// `length` bytes may be read at `start`; `*is_damaged` may be written, and `error_bytes` bytes at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_generation_load(
    start: *const c_char,
    length: usize,
    is_damaged: *mut bool,
    error: *mut c_char,
    error_bytes: usize,
) -> *const Generation {
    let panicked = GenerationError::Engine("loading panicked".to_owned());
    let loaded = guarded(Err(panicked), || {
        // SAFETY: the caller's promise.
        Generation::load(unsafe { bytes(start, length) })
    });
    match loaded {
        Ok(generation) => Arc::into_raw(generation),
        Err(reason) => {
            // SAFETY: the caller's promise.
            unsafe {
                *is_damaged = !matches!(reason, GenerationError::Engine(_));
                write_message(&reason.to_string(), error, error_bytes);
            }
            ptr::null()
        }
    }
}

/// # Safety
///
/// `codec` and `generation` are open.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_codec_adopt(codec: *const Codec, generation: *const Generation) {
    // SAFETY: the caller's promise; the count that is taken here is given back with the `Arc`.
    let (codec, generation) = unsafe {
        Arc::increment_strong_count(generation);
        (&*codec, Arc::from_raw(generation))
    };
    guarded((), || codec.adopt(&generation));
}

/// # Safety
///
/// `generation` is open, and is not used after this.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_generation_close(generation: *const Generation) {
    // SAFETY: the caller's promise.
    guarded((), || drop(unsafe { Arc::from_raw(generation) }));
}

/// # Safety
///
/// `generation` is open, and stays so while the bytes are used; `length` may be written.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_generation_bytes(generation: *const Generation, length: *mut usize) -> *const c_char {
    // SAFETY: the caller's promise.
    let bytes = unsafe { &*generation }.as_bytes();
    // SAFETY: the caller's promise.
    unsafe { *length = bytes.len() };
    bytes.as_ptr().cast()
}

/// # Safety
///
/// `codec` is open, `generation` is or is null; `raw_bytes` bytes may be read at `raw`, and `*out_bytes` written at
/// `out`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_pack(
    codec: *const Codec,
    generation: *const Generation,
    packed_as: u8,
    raw: *const c_char,
    raw_bytes: usize,
    out: *mut c_char,
    out_bytes: *mut usize,
) -> i32 {
    // SAFETY: the caller's promise.
    let (codec, generation, raw) = unsafe { (&*codec, generation.as_ref(), bytes(raw, raw_bytes)) };
    // SAFETY: the caller's promise.
    let room = unsafe { *out_bytes };
    let write = |packed: &[u8]| {
        // SAFETY: what was packed fits the room, which the caller promises may be written.
        unsafe { ptr::copy_nonoverlapping(packed.as_ptr(), out.cast(), packed.len()) }
    };
    match guarded(Packed::Declined, || codec.pack(packed_as, generation, raw, room, write)) {
        Packed::Into(made, length) => {
            // SAFETY: the caller's promise.
            unsafe { *out_bytes = length };
            made.into()
        }
        Packed::Declined => -1,
    }
}

/// The most bytes that a packed block can hold, by the packed bytes behind its length. 0 for an unknown type.
///
/// # Safety
///
/// `packed_bytes` bytes may be read at `packed`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_raw_bytes_max(packed_as: u8, packed: *const c_char, packed_bytes: usize) -> usize {
    // SAFETY: the caller's promise.
    let packed = unsafe { bytes(packed, packed_bytes) };
    guarded(0, || Codec::raw_bytes_max(packed_as, packed))
}

/// # Safety
///
/// `codec` is open, `generation` is or is null; `packed_bytes` bytes may be read at `packed`, `out_bytes` written at
/// `out` and `error_bytes` at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_unpack(
    codec: *const Codec,
    generation: *const Generation,
    packed_as: u8,
    packed: *const c_char,
    packed_bytes: usize,
    out: *mut c_char,
    out_bytes: usize,
    error: *mut c_char,
    error_bytes: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    let (codec, generation, packed) = unsafe { (&*codec, generation.as_ref(), bytes(packed, packed_bytes)) };
    let write = |block: &[u8]| {
        // SAFETY: the block has as many bytes as the caller promises may be written.
        unsafe { ptr::copy_nonoverlapping(block.as_ptr(), out.cast(), block.len()) }
    };
    let unpacked = guarded(Err(UnpackError::Engine("unpacking a block panicked".to_owned())), || {
        codec.unpack(packed_as, generation, packed, out_bytes, write)
    });
    let Err(reason) = unpacked else { return 0 };
    // SAFETY: the caller's promise.
    unsafe { write_message(&reason.to_string(), error, error_bytes) };
    match reason {
        UnpackError::Damaged(_) => 1,
        UnpackError::Engine(_) => 2,
    }
}
