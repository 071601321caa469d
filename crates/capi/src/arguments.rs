//! From the pointers and lengths of C to slices, options and objects. A null pointer and an impossible length are
//! errors that name the argument.

use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::slice;

use crate::buffer::{ziptier_option, ziptier_slice};
use crate::status::Failure;

/// No object of C is longer.
const LEN_MAX: usize = isize::MAX as usize;

fn null(name: &str, what: &str) -> Failure {
    Failure::argument(format_args!("argument {name} is null; pass {what}"))
}

fn check_len(name: &str, len: usize, item_bytes: usize) -> Result<(), Failure> {
    if len <= LEN_MAX / item_bytes {
        return Ok(());
    }
    Err(Failure::argument(format_args!(
        "the length of argument {name} is {len}, more than memory can have; pass the length in bytes, or of the array"
    )))
}

/// The bytes at `start`. Null is allowed where the length is 0.
///
/// # Safety
///
/// `len` bytes may be read at `start` while the result lives.
pub(crate) unsafe fn bytes<'a>(name: &str, start: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller's promise.
    unsafe { items(name, start.cast(), len) }
}

/// The array at `start`. Null is allowed where the length is 0.
///
/// # Safety
///
/// `len` items may be read at `start` while the result lives.
pub(crate) unsafe fn items<'a, T>(name: &str, start: *const T, len: usize) -> Result<&'a [T], Failure> {
    check_len(name, len, size_of::<T>())?;
    match (start.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(name, "the address of as many items as its length says")),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { slice::from_raw_parts(start, len) }),
    }
}

/// The memory at `start` for output. Null is allowed where the capacity is 0.
///
/// # Safety
///
/// `capacity` items may be written at `start` while the result lives, and nobody else uses them.
pub(crate) unsafe fn room<'a, T>(
    name: &str,
    start: *mut T,
    capacity: usize,
) -> Result<&'a mut [MaybeUninit<T>], Failure> {
    check_len(name, capacity, size_of::<T>())?;
    match (start.is_null(), capacity) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(null(name, "the address of as much memory as its capacity says")),
        // SAFETY: the caller's promise.
        (false, _) => Ok(unsafe { slice::from_raw_parts_mut(start.cast(), capacity) }),
    }
}

/// An object that the library made.
///
/// # Safety
///
/// The object is open while the result lives.
pub(crate) unsafe fn object<'a, T>(name: &str, object: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { object.as_ref() }.ok_or_else(|| null(name, "an object that the library has opened"))
}

/// An object that only the caller uses, or a place for a result, set to something before.
///
/// # Safety
///
/// It may be read and written while the result lives, and nobody else uses it.
pub(crate) unsafe fn own<'a, T>(name: &str, object: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { object.as_mut() }.ok_or_else(|| null(name, "its address"))
}

/// A place for a result, which gets `value` at once, so that it has no other after an error.
///
/// # Safety
///
/// A `T` may be written there while the result lives, and nobody else uses it.
pub(crate) unsafe fn result<'a, T>(name: &str, place: *mut T, value: T) -> Result<&'a mut T, Failure> {
    if place.is_null() {
        return Err(null(name, "the address of a variable for the result"));
    }
    // SAFETY: the caller's promise; the variable is initialised by the write.
    unsafe {
        place.write(value);
        Ok(&mut *place)
    }
}

/// A C string.
///
/// # Safety
///
/// It is null, or a C string that nobody changes while the result lives.
pub(crate) unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(null(name, "a string"));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| {
        Failure::argument(format_args!("argument {name} is {text:?}, which is no UTF-8; pass UTF-8"))
    })
}

/// Names and values. A name that comes twice is an error.
///
/// # Safety
///
/// `len` options may be read at `start`, and their strings are C strings, while the result lives.
pub(crate) unsafe fn options<'a>(
    start: *const ziptier_option,
    len: usize,
) -> Result<Vec<(&'a str, &'a str)>, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { items("options", start, len)? };
    let mut options: Vec<(&str, &str)> = Vec::with_capacity(len);
    for option in given {
        // SAFETY: the caller's promise.
        let name = unsafe { text("options[].name", option.name)? };
        // SAFETY: the caller's promise.
        let value = unsafe { text("options[].value", option.value)? };
        if options.iter().any(|(other, _)| *other == name) {
            return Err(Failure::option(format_args!("option {name} is given twice; give it once")));
        }
        options.push((name, value));
    }
    Ok(options)
}

/// The slices of an array.
///
/// # Safety
///
/// `len` slices may be read at `start`, and the bytes of each, while the result lives.
pub(crate) unsafe fn slices<'a>(
    name: &str,
    start: *const ziptier_slice,
    len: usize,
) -> Result<Vec<&'a [u8]>, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { items(name, start, len)? };
    // SAFETY: the caller's promise.
    given.iter().map(|slice| unsafe { bytes(name, slice.data, slice.len) }).collect()
}

/// Refuses an output that overlaps the input: a coder would read what it has written.
pub(crate) fn check_apart<S, T>(input: &[S], output: &[MaybeUninit<T>]) -> Result<(), Failure> {
    let (input, output) = (input.as_ptr_range(), output.as_ptr_range());
    let (input_start, input_end) = (input.start.cast::<u8>(), input.end.cast::<u8>());
    let (output_start, output_end) = (output.start.cast::<u8>(), output.end.cast::<u8>());
    let is_empty = input_start == input_end || output_start == output_end;
    if !is_empty && input_start < output_end && output_start < input_end {
        return Err(Failure::argument("input and output overlap; pass memory of its own for the output"));
    }
    Ok(())
}
