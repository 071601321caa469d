//! Arrays and direct buffers of Java as bytes.

use jni_sys::{JNINativeInterface_, jarray, jbyteArray, jintArray, jlong, jlongArray, jobject, jobjectArray};
use std::ptr;

use crate::Env;

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

/// A copy of an array.
///
/// # Safety
///
/// `array` is a byte array of Java.
pub(crate) unsafe fn bytes(env: Env, array: jbyteArray) -> Vec<u8> {
    let mut bytes = Vec::new();
    // SAFETY: the range is the whole array, and the vector has room for it.
    unsafe {
        let length = length(env, array);
        bytes.reserve_exact(length);
        read(env, array, 0, length, bytes.as_mut_ptr());
        bytes.set_len(length);
    }
    bytes
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

/// Fills a vector with the numbers of an array.
///
/// # Safety
///
/// `array` is an int array of Java.
pub(crate) unsafe fn read_ints(env: Env, array: jintArray, ints: &mut Vec<i32>) {
    ints.clear();
    // SAFETY: the range is the whole array, and the vector has room for it.
    unsafe {
        let length = length(env, array);
        ints.reserve(length);
        (functions(env).v1_1.GetIntArrayRegion)(env, array, 0, length as i32, ints.as_mut_ptr());
        ints.set_len(length);
    }
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
