//! Arrays and direct buffers of Java as bytes.

use jni_sys::{JNINativeInterface_, jarray, jbyteArray, jintArray, jlong, jlongArray, jobject, jobjectArray};
use std::ptr;
use ziptier_capi::status::{no_memory, ziptier_status};

use crate::Env;

/// Room for copies of arrays, or the status of memory that is refused.
pub(crate) fn room<T>(scratch: &mut Vec<T>, count: usize) -> Result<*mut T, ziptier_status> {
    match scratch.try_reserve(count) {
        Ok(()) => Ok(scratch.as_mut_ptr()),
        Err(_) => Err(no_memory(format_args!(
            "copies of arrays of {} bytes; pass direct buffers, or fewer bytes at once",
            count.saturating_mul(size_of::<T>())
        ))),
    }
}

/// # Safety
///
/// `env` is the environment of this thread.
unsafe fn functions<'a>(env: Env) -> &'a JNINativeInterface_ {
    // SAFETY: Java's environment begins with the address of its functions.
    unsafe { &**env }
}

/// # Safety
///
/// `array` is an array of Java.
unsafe fn length(env: Env, array: jarray) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (functions(env).v1_1.GetArrayLength)(env, array) as usize }
}

/// A copy of an array, or the status of memory that is refused.
///
/// # Safety
///
/// `array` is a byte array of Java.
pub(crate) unsafe fn bytes(env: Env, array: jbyteArray) -> Result<Vec<u8>, ziptier_status> {
    let mut bytes = Vec::new();
    // SAFETY: the range is the whole array, and the vector has room for it.
    unsafe {
        let length = length(env, array);
        let copy = room(&mut bytes, length)?;
        read(env, array, 0, length, copy);
        bytes.set_len(length);
    }
    Ok(bytes)
}

/// Copies part of an array.
///
/// # Safety
///
/// The range lies within the byte array, and the target has room for it.
pub(crate) unsafe fn read(env: Env, array: jbyteArray, start: usize, length: usize, target: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe {
        (functions(env).v1_1.GetByteArrayRegion)(env, array, start as i32, length as i32, target.cast());
    }
}

/// Copies bytes into an array.
///
/// # Safety
///
/// The range lies within the byte array, and the source has as many bytes.
pub(crate) unsafe fn write(env: Env, array: jbyteArray, start: usize, length: usize, source: *const u8) {
    // SAFETY: the caller's promise.
    unsafe {
        (functions(env).v1_1.SetByteArrayRegion)(env, array, start as i32, length as i32, source.cast());
    }
}

/// Fills a vector with the numbers of an array, or gives the status of memory that is refused.
///
/// # Safety
///
/// `array` is an int array of Java.
pub(crate) unsafe fn read_ints(
    env: Env,
    array: jintArray,
    ints: &mut Vec<i32>,
) -> Result<(), ziptier_status> {
    ints.clear();
    // SAFETY: the range is the whole array, and the vector has room for it.
    unsafe {
        let length = length(env, array);
        let copy = room(ints, length)?;
        (functions(env).v1_1.GetIntArrayRegion)(env, array, 0, length as i32, copy);
        ints.set_len(length);
    }
    Ok(())
}

/// Copies numbers to the start of an array.
///
/// # Safety
///
/// The int array has room for them.
pub(crate) unsafe fn write_ints(env: Env, array: jintArray, ints: &[i32]) {
    // SAFETY: the caller's promise.
    unsafe {
        (functions(env).v1_1.SetIntArrayRegion)(env, array, 0, ints.len() as i32, ints.as_ptr());
    }
}

/// As [`write_ints`], of long numbers.
///
/// # Safety
///
/// The long array has room for them.
pub(crate) unsafe fn write_longs(env: Env, array: jlongArray, longs: &[jlong]) {
    // SAFETY: the caller's promise.
    unsafe {
        (functions(env).v1_1.SetLongArrayRegion)(env, array, 0, longs.len() as i32, longs.as_ptr());
    }
}

/// Lets `work` use an element of an array of objects. The reference to the element ends with it, so that a long array
/// does not fill Java's table of references.
///
/// # Safety
///
/// The array has the element.
pub(crate) unsafe fn with_element<T>(
    env: Env,
    array: jobjectArray,
    at: usize,
    work: impl FnOnce(jobject) -> T,
) -> T {
    // SAFETY: the caller's promise; the reference is deleted once, and null may be.
    unsafe {
        let element = (functions(env).v1_1.GetObjectArrayElement)(env, array, at as i32);
        let result = work(element);
        (functions(env).v1_1.DeleteLocalRef)(env, element);
        result
    }
}

/// A new array of Java. It is null, and Java throws, if Java has no memory for it.
///
/// # Safety
///
/// `env` is the environment of this thread.
pub(crate) unsafe fn new_bytes(env: Env, bytes: &[u8]) -> jbyteArray {
    let Ok(length) = i32::try_from(bytes.len()) else { return ptr::null_mut() };
    // SAFETY: a new array has room for as many bytes as it was made for.
    unsafe {
        let array = (functions(env).v1_1.NewByteArray)(env, length);
        if !array.is_null() {
            write(env, array, 0, bytes.len(), bytes.as_ptr());
        }
        array
    }
}

/// The address of a direct buffer, from which its positions count.
///
/// # Safety
///
/// `buffer` is a direct buffer of Java. The address may be used until the call into Java's thread ends.
pub(crate) unsafe fn address(env: Env, buffer: jobject) -> *mut u8 {
    // SAFETY: the caller's promise.
    unsafe { (functions(env).v1_4.GetDirectBufferAddress)(env, buffer).cast() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use ziptier_capi::status::ziptier_last_error;

    /// No machine has room for half of all addresses.
    #[test]
    fn copies_that_memory_refuses_are_an_error() {
        let mut scratch = Vec::<u8>::new();
        assert_eq!(room(&mut scratch, isize::MAX as usize), Err(ziptier_status::ZIPTIER_UNAVAILABLE));
        // SAFETY: the sentence lasts until the next call of this thread.
        let said = unsafe { CStr::from_ptr(ziptier_last_error()) }.to_str().unwrap();
        assert!(said.contains("no memory for copies of arrays of 9223372036854775807 bytes"), "{said}");
        assert!(room(&mut scratch, 100).is_ok_and(|start| !start.is_null()));
    }
}
