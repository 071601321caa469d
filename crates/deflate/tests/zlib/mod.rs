//! zlib as judge: raw streams with a window of 4 KiB.

// Each test file uses a part of it.
#![allow(dead_code)]

use libz_sys as ffi;
use std::ffi::{c_int, c_uint, c_void};

/// Negative for raw streams.
const WINDOW_BITS: c_int = -12;

/// The contents of a stream, if it is sound, ends with its input, and holds at most `max_bytes`.
pub(crate) fn inflate(packed: &[u8], history: &[u8], max_bytes: usize) -> Option<Vec<u8>> {
    inflate_start(packed, history, max_bytes).filter(|(_, left)| *left == 0).map(|(out, _)| out)
}

/// The same for a stream with bytes behind it, and the number of those bytes.
pub(crate) fn inflate_start(packed: &[u8], history: &[u8], max_bytes: usize) -> Option<(Vec<u8>, usize)> {
    let mut out = vec![0u8; max_bytes + 1];
    // SAFETY: the stream has an allocator; history, input and output are valid for the lengths given
    // with them, and the stream is ended before they go.
    unsafe {
        let mut z = empty();
        let size = size_of::<ffi::z_stream>() as c_int;
        assert_eq!(ffi::inflateInit2_(&mut z, WINDOW_BITS, ffi::zlibVersion(), size), ffi::Z_OK);
        if !history.is_empty() {
            let result = ffi::inflateSetDictionary(&mut z, history.as_ptr(), history.len() as c_uint);
            assert_eq!(result, ffi::Z_OK);
        }
        z.next_in = packed.as_ptr().cast_mut();
        z.avail_in = packed.len() as c_uint;
        z.next_out = out.as_mut_ptr();
        z.avail_out = out.len() as c_uint;
        let result = ffi::inflate(&mut z, ffi::Z_FINISH);
        let (left, room) = (z.avail_in, z.avail_out as usize);
        ffi::inflateEnd(&mut z);
        out.truncate(max_bytes + 1 - room);
        (result == ffi::Z_STREAM_END && room > 0).then_some((out, left as usize))
    }
}

/// zlib's stream of a block.
pub(crate) fn deflate(raw: &[u8], history: &[u8], level: c_int, strategy: c_int) -> Vec<u8> {
    let mut out = vec![0u8; raw.len() + raw.len() / 8 + 1024];
    // SAFETY: as above.
    unsafe {
        let mut z = empty();
        let size = size_of::<ffi::z_stream>() as c_int;
        let method = ffi::Z_DEFLATED;
        let version = ffi::zlibVersion();
        let result = ffi::deflateInit2_(&mut z, level, method, WINDOW_BITS, 8, strategy, version, size);
        assert_eq!(result, ffi::Z_OK);
        if !history.is_empty() {
            let result = ffi::deflateSetDictionary(&mut z, history.as_ptr(), history.len() as c_uint);
            assert_eq!(result, ffi::Z_OK);
        }
        z.next_in = raw.as_ptr().cast_mut();
        z.avail_in = raw.len() as c_uint;
        z.next_out = out.as_mut_ptr();
        z.avail_out = out.len() as c_uint;
        assert_eq!(ffi::deflate(&mut z, ffi::Z_FINISH), ffi::Z_STREAM_END);
        let room = z.avail_out as usize;
        ffi::deflateEnd(&mut z);
        out.truncate(out.len() - room);
    }
    out
}

/// A stream that allocates by Rust's allocator, since the bindings do not allow for zlib's own.
fn empty() -> ffi::z_stream {
    ffi::z_stream {
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
    }
}

/// The size stands in the first of these words.
const WORD: usize = 16;

extern "C" fn zalloc(_: *mut c_void, items: c_uint, bytes: c_uint) -> *mut c_void {
    let words = (items as usize * bytes as usize).div_ceil(WORD) + 1;
    let memory = Box::leak(vec![0u128; words].into_boxed_slice());
    memory[0] = words as u128;
    memory.as_mut_ptr().wrapping_add(1).cast()
}

extern "C" fn zfree(_: *mut c_void, address: *mut c_void) {
    // SAFETY: zlib frees what `zalloc` gave it, once; the word before it holds the length.
    unsafe {
        let start = address.cast::<u128>().sub(1);
        drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, *start as usize)));
    }
}
