//! Work on one block or value, or on a group of values.
//!
//! Direct buffers are used in place. Arrays are copied through scratch of the thread, which it keeps for the next call.

use jni_sys::{jclass, jint, jintArray, jlong, jobject};
use std::cell::RefCell;
use std::ffi::c_void;
use ziptier_capi::buffer::ziptier_slice;
use ziptier_capi::codec::{
    ziptier_codec, ziptier_compress, ziptier_compress_bound, ziptier_decompress, ziptier_decompress_exact,
};
use ziptier_capi::status::ziptier_status;
use ziptier_capi::tokens::{
    ziptier_tokens, ziptier_tokens_bound, ziptier_tokens_decode, ziptier_tokens_decode_group,
    ziptier_tokens_encode, ziptier_tokens_encode_group,
};

use crate::{Env, call, env, outcome};

// The operations, as the class `Native` numbers them.
const COMPRESS: jint = 0;
const DECOMPRESS: jint = 1;
const DECOMPRESS_EXACT: jint = 2;
const ENCODE: jint = 3;
const DECODE: jint = 4;

// The bits of `arrays`.
const INPUT_IS_ARRAY: jint = 1;
const OUTPUT_IS_ARRAY: jint = 2;

/// A thread keeps no more scratch than this for an array: blocks of 64 KiB that do not shrink, and some.
const SCRATCH_BYTES_MAX: usize = 128 << 10;

/// A thread's copies of arrays. Only the vectors' memory is used for bytes, never their lengths.
struct Scratch {
    input: Vec<u8>,
    output: Vec<u8>,
    ints: Vec<i32>,
    slices: Vec<ziptier_slice>,
    ends: Vec<usize>,
    output_ends: Vec<usize>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = const {
        RefCell::new(Scratch {
            input: Vec::new(),
            output: Vec::new(),
            ints: Vec::new(),
            slices: Vec::new(),
            ends: Vec::new(),
            output_ends: Vec::new(),
        })
    };
}

/// Part of a direct buffer or of an array.
struct Part {
    object: jobject,
    is_array: bool,
    start: usize,
    length: usize,
}

impl Part {
    fn new(object: jobject, is_array: bool, start: jint, length: jint) -> Part {
        Part { object, is_array, start: start as usize, length: length as usize }
    }

    /// Where the bytes lie: in place, or room for them in the scratch.
    ///
    /// # Safety
    ///
    /// The part lies within its buffer or array.
    unsafe fn memory(&self, env: Env, scratch: &mut Vec<u8>) -> Result<*mut u8, ziptier_status> {
        if self.is_array {
            return env::room(scratch, self.length);
        }
        // An empty mapping of a file has no address. SAFETY: the caller's promise.
        Ok(unsafe { env::address(env, self.object).wrapping_add(self.start) })
    }
}

/// Lets `work` read the input and write the output. Its result is the bytes that it has written, or less than 0.
///
/// # Safety
///
/// The parts lie within their buffers or arrays.
unsafe fn with_memory(
    env: Env,
    scratch: (&mut Vec<u8>, &mut Vec<u8>),
    input: &Part,
    output: &Part,
    work: impl FnOnce(*const c_void, *mut c_void) -> jlong,
) -> jlong {
    // SAFETY: the caller's promise.
    let memory = unsafe { (input.memory(env, scratch.0), output.memory(env, scratch.1)) };
    let (source, target) = match memory {
        (Ok(source), Ok(target)) => (source, target),
        (Err(refused), _) | (_, Err(refused)) => return refused as jlong,
    };
    // SAFETY: the caller's promise, and the scratch has room for the parts.
    unsafe {
        if input.is_array {
            env::read(env, input.object, input.start, input.length, source);
        }
        let result = work(source.cast(), target.cast());
        if output.is_array && result > 0 {
            env::write(env, output.object, output.start, result as usize, target);
        }
        result
    }
}

pub(crate) fn trim<T>(scratch: &mut Vec<T>) {
    if scratch.capacity() * size_of::<T>() > SCRATCH_BYTES_MAX {
        *scratch = Vec::new();
    }
}

/// The most bytes that an operation makes of so many.
///
/// # Safety
///
/// The object is one of the operation, and open.
pub(crate) unsafe fn bound(operation: jint, object: jlong, length: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe {
        match operation {
            COMPRESS => ziptier_compress_bound(object as *const ziptier_codec, length),
            _ => ziptier_tokens_bound(object as *const ziptier_tokens, length),
        }
    }
}

/// Works on one block or value.
///
/// # Safety
///
/// Java calls it with an open object of the operation, and with parts that lie within their buffers or arrays.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_run(
    env: Env,
    _: jclass,
    operation: jint,
    object: jlong,
    arrays: jint,
    input: jobject,
    start: jint,
    length: jint,
    output: jobject,
    output_start: jint,
    room: jint,
) -> jlong {
    let input = Part::new(input, arrays & INPUT_IS_ARRAY != 0, start, length);
    let output = Part::new(output, arrays & OUTPUT_IS_ARRAY != 0, output_start, room);
    let (codec, tokens) = (object as *const ziptier_codec, object as *const ziptier_tokens);
    let (length, room) = (input.length, output.length);
    call(|| {
        SCRATCH.with_borrow_mut(|Scratch { input: source, output: target, .. }| {
            // SAFETY: the caller's promise.
            let result = unsafe {
                with_memory(env, (source, target), &input, &output, |from, to| {
                    let mut written = 0;
                    let status = match operation {
                        COMPRESS => ziptier_compress(codec, from, length, to, room, &mut written),
                        DECOMPRESS => ziptier_decompress(codec, from, length, to, room, &mut written),
                        DECOMPRESS_EXACT => {
                            written = room;
                            ziptier_decompress_exact(codec, from, length, to, room)
                        }
                        ENCODE => ziptier_tokens_encode(tokens, from, length, to, room, &mut written),
                        DECODE => ziptier_tokens_decode(tokens, from, length, to, room, &mut written),
                        _ => unreachable!("the class `Native` has no operation {operation}"),
                    };
                    outcome(status, written)
                })
            };
            trim(source);
            trim(target);
            result
        })
    })
}

/// Encodes or decodes values that lie one behind the other.
///
/// # Safety
///
/// Java calls it with open tokens, with parts that lie within their buffers or arrays, with ends that rise to the
/// length of the input, and with room for as many output ends.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_runGroup(
    env: Env,
    _: jclass,
    operation: jint,
    tokens: jlong,
    arrays: jint,
    input: jobject,
    start: jint,
    length: jint,
    ends: jintArray,
    output: jobject,
    output_start: jint,
    room: jint,
    output_ends: jintArray,
) -> jlong {
    let input = Part::new(input, arrays & INPUT_IS_ARRAY != 0, start, length);
    let output = Part::new(output, arrays & OUTPUT_IS_ARRAY != 0, output_start, room);
    call(|| {
        SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { input: source, output: target, ints, slices, ends: starts, output_ends: out } =
                scratch;
            // SAFETY: the caller's promise.
            if let Err(refused) = unsafe { env::read_ints(env, ends, ints) } {
                return refused as jlong;
            }
            let group = Group { tokens: tokens as *const ziptier_tokens, ends: ints, length: input.length };
            // SAFETY: the caller's promise.
            let result = unsafe {
                with_memory(env, (source, target), &input, &output, |from, to| match operation {
                    ENCODE => group.encode(from, to, output.length, slices, out),
                    _ => group.decode(from, to, output.length, starts, out),
                })
            };
            if result >= 0 {
                ints.clear();
                ints.extend(out.iter().map(|end| *end as i32));
                // SAFETY: there are as many as of the input, for which Java has room.
                unsafe { env::write_ints(env, output_ends, ints) };
            }
            trim(source);
            trim(target);
            trim(ints);
            trim(slices);
            trim(starts);
            trim(out);
            result
        })
    })
}

/// Values, or coded values, that lie one behind the other.
struct Group<'a> {
    tokens: *const ziptier_tokens,
    ends: &'a [i32],
    length: usize,
}

impl Group<'_> {
    /// # Safety
    ///
    /// The group lies at `from`, and `to` has the room.
    unsafe fn encode(
        &self,
        from: *const c_void,
        to: *mut c_void,
        room: usize,
        slices: &mut Vec<ziptier_slice>,
        coded_ends: &mut Vec<usize>,
    ) -> jlong {
        let mut start = 0;
        slices.clear();
        for &end in self.ends {
            // Another thread may have changed them since Java looked.
            let end = usize::try_from(end).unwrap_or(usize::MAX);
            if end < start || end > self.length {
                return outcome(ziptier_status::ZIPTIER_INVALID_ARGUMENT, 0);
            }
            slices.push(ziptier_slice { data: from.wrapping_byte_add(start), len: end - start });
            start = end;
        }
        coded_ends.clear();
        coded_ends.resize(slices.len(), 0);
        let (values, count, mut written) = (slices.as_ptr(), slices.len(), 0);
        // SAFETY: the caller's promise.
        let status = unsafe {
            let ends = coded_ends.as_mut_ptr();
            ziptier_tokens_encode_group(self.tokens, values, count, to, room, &mut written, ends)
        };
        slices.clear();
        outcome(status, written)
    }

    /// # Safety
    ///
    /// As for [`Group::encode`].
    unsafe fn decode(
        &self,
        from: *const c_void,
        to: *mut c_void,
        room: usize,
        ends: &mut Vec<usize>,
        value_ends: &mut Vec<usize>,
    ) -> jlong {
        ends.clear();
        ends.extend(self.ends.iter().map(|end| *end as usize));
        value_ends.clear();
        value_ends.resize(ends.len(), 0);
        let (count, mut written) = (ends.len(), 0);
        // SAFETY: the caller's promise.
        let status = unsafe {
            let (ends, value_ends) = (ends.as_ptr(), value_ends.as_mut_ptr());
            ziptier_tokens_decode_group(
                self.tokens,
                from,
                self.length,
                ends,
                count,
                to,
                room,
                &mut written,
                value_ends,
            )
        };
        outcome(status, written)
    }
}
