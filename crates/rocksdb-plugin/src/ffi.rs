//! What the classes in C++ call. Each function says in `shim/rust.h` what it takes; none lets a panic out.
//!
//! Pointers that are given out are `Arc`s: whoever has one closes it once.

mod wal;

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::slice;
use std::sync::Arc;
use ziptier_rocksdb::codec::{Codec, Guidance, Packed};
use ziptier_rocksdb::generation::Generation;
use ziptier_rocksdb::settings::Settings;

/// Runs `work`; a panic gives `otherwise`.
fn guarded<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// Writes a message as a C string, cut to the room there is.
///
/// # Safety
///
/// `room` bytes may be written at `target`, or `room` is 0.
unsafe fn write_message(message: &str, target: *mut c_char, room: usize) {
    let Some(length) = room.checked_sub(1) else { return };
    let length = length.min(message.len());
    // SAFETY: `length` and a zero are `room` at most, which the caller promises.
    unsafe {
        ptr::copy_nonoverlapping(message.as_ptr().cast(), target, length);
        *target.add(length) = 0;
    }
}

/// The bytes at `start`, or none if there are none.
///
/// # Safety
///
/// `length` bytes may be read at `start` for as long as the result lives, or `length` is 0.
unsafe fn bytes<'a>(start: *const c_char, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(start.cast(), length) }
}

/// # Safety
///
/// `text` is a C string.
unsafe fn text(text: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

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
unsafe extern "C" fn zt_codec_guidance(codec: *const Codec, sample_bytes: *mut usize) -> *const Generation {
    // SAFETY: the caller's promise.
    let codec = unsafe { &*codec };
    let (generation, asked) = match guarded(Guidance::Plain, || codec.guidance()) {
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
/// `length` bytes may be read at `start`, and `error_bytes` written at `error`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_generation_load(
    start: *const c_char,
    length: usize,
    error: *mut c_char,
    error_bytes: usize,
) -> *const Generation {
    let loaded = guarded(Err("loading the dictionary panicked".to_owned()), || {
        // SAFETY: the caller's promise.
        Generation::load(unsafe { bytes(start, length) }).map_err(|error| error.to_string())
    });
    match loaded {
        Ok(generation) => Arc::into_raw(generation),
        Err(reason) => {
            // SAFETY: the caller's promise.
            unsafe { write_message(&reason, error, error_bytes) };
            ptr::null()
        }
    }
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
/// `codec` is open, `generation` is or is null; `raw_bytes` bytes may be read at `raw`, and `*out_bytes` written at `out`.
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
    // SAFETY: the caller's promise; `u8` needs no initialised memory to be written, and is only written here.
    let out = unsafe { slice::from_raw_parts_mut(out.cast::<u8>(), *out_bytes) };
    match guarded(Packed::Declined, || codec.pack(packed_as, generation, raw, out)) {
        Packed::Into(made, length) => {
            // SAFETY: the caller's promise.
            unsafe { *out_bytes = length };
            made.into()
        }
        Packed::Declined => -1,
    }
}

/// # Safety
///
/// `codec` is open, `generation` is or is null; `packed_bytes` bytes may be read at `packed`, `out_bytes` written at `out` and
/// `error_bytes` at `error`.
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
) -> bool {
    // SAFETY: the caller's promise.
    let (codec, generation, packed) = unsafe { (&*codec, generation.as_ref(), bytes(packed, packed_bytes)) };
    // SAFETY: the caller's promise; the bytes are only written here.
    let out = unsafe { slice::from_raw_parts_mut(out.cast::<u8>(), out_bytes) };
    let unpacked = guarded(Err("unpacking a block panicked".to_owned()), || {
        codec.unpack(packed_as, generation, packed, out).map_err(|error| error.to_string())
    });
    if let Err(reason) = &unpacked {
        // SAFETY: the caller's promise.
        unsafe { write_message(reason, error, error_bytes) };
    }
    unpacked.is_ok()
}

/// Writes the counters of this process, one `name value` to a line, as a C string cut to `room`; the bytes they take, the zero
/// included.
///
/// # Safety
///
/// `room` bytes may be written at `target`.
#[unsafe(no_mangle)]
unsafe extern "C" fn zt_counters(target: *mut c_char, room: usize) -> usize {
    let counters = guarded(String::new(), crate::counters);
    // SAFETY: the caller's promise.
    unsafe { write_message(&counters, target, room) };
    counters.len() + 1
}
