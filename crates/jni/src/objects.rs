//! Codecs, dictionaries, tokens and analytics: opening, storing, closing.

use jni_sys::{jbyteArray, jclass, jint, jintArray, jlong};
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use ziptier_capi::analytics::{
    ziptier_analytics, ziptier_analytics_close, ziptier_analytics_fallbacks, ziptier_analytics_open,
    ziptier_analytics_worker,
};
use ziptier_capi::buffer::{ziptier_buffer, ziptier_buffer_free, ziptier_option, ziptier_slice};
use ziptier_capi::codec::{ziptier_codec, ziptier_codec_close, ziptier_codec_counters, ziptier_codec_open};
use ziptier_capi::dictionary::{
    ziptier_dictionary, ziptier_dictionary_free, ziptier_dictionary_load, ziptier_dictionary_save,
    ziptier_dictionary_train,
};
use ziptier_capi::status::{guard, ziptier_last_error, ziptier_status};
use ziptier_capi::tokens::{
    ziptier_tokens, ziptier_tokens_free, ziptier_tokens_load, ziptier_tokens_save, ziptier_tokens_train,
};
use ziptier_capi::version::ziptier_version;

use crate::{Env, env, opened};

/// The text of a C string, or null after a panic.
///
/// # Safety
///
/// `env` is the environment of this thread, and `text` a C string.
unsafe fn text_of(env: Env, text: *const c_char) -> jbyteArray {
    // SAFETY: the caller's promise.
    guard(|| unsafe { env::new_bytes(env, CStr::from_ptr(text).to_bytes()) }).unwrap_or(ptr::null_mut())
}

/// What `fill` writes into a buffer, or null if it fails.
///
/// # Safety
///
/// `env` is the environment of this thread.
unsafe fn filled(env: Env, fill: impl FnOnce(*mut ziptier_buffer) -> ziptier_status) -> jbyteArray {
    let array = guard(|| {
        let mut buffer = ziptier_buffer { data: ptr::null_mut(), len: 0, capacity: 0 };
        let array = match fill(&mut buffer) {
            // SAFETY: the library has filled the buffer.
            ziptier_status::ZIPTIER_OK => unsafe {
                env::new_bytes(env, std::slice::from_raw_parts(buffer.data, buffer.len))
            },
            _ => ptr::null_mut(),
        };
        // SAFETY: the buffer is ours.
        unsafe { ziptier_buffer_free(&mut buffer) };
        array
    });
    array.unwrap_or(ptr::null_mut())
}

/// Samples that lie one behind the other. Other ends than that are a fault of the Java half, and a panic.
fn samples(bytes: &[u8], ends: &[i32]) -> Vec<ziptier_slice> {
    let mut start = 0;
    let slice = |end: &i32| {
        let sample = &bytes[start..*end as usize];
        start = *end as usize;
        ziptier_slice { data: sample.as_ptr().cast(), len: sample.len() }
    };
    ends.iter().map(slice).collect()
}

/// The sentence of this thread's last error.
///
/// # Safety
///
/// Java calls it.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_lastError(env: Env, _: jclass) -> jbyteArray {
    // SAFETY: the string lasts until the next error of this thread.
    unsafe { text_of(env, ziptier_last_error()) }
}

/// The version of the library.
///
/// # Safety
///
/// Java calls it.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_version(env: Env, _: jclass) -> jbyteArray {
    // SAFETY: the string lasts for ever.
    unsafe { text_of(env, ziptier_version()) }
}

/// Options of which each name and each value has a zero behind it.
struct Options(Vec<CString>);

impl Options {
    /// # Safety
    ///
    /// `env` is the environment of this thread, and `options` a byte array.
    unsafe fn read(env: Env, options: jbyteArray) -> Result<Options, ziptier_status> {
        // SAFETY: the caller's promise.
        let text = unsafe { env::bytes(env, options)? };
        let words = text.split(|byte| *byte == 0).map(|word| CString::new(word).unwrap_or_default());
        Ok(Options(words.collect()))
    }

    fn pairs(&self) -> Vec<ziptier_option> {
        let pairs = self.0.chunks_exact(2);
        pairs.map(|pair| ziptier_option { name: pair[0].as_ptr(), value: pair[1].as_ptr() }).collect()
    }
}

/// Opens a codec.
///
/// # Safety
///
/// Java calls it, with the address of an open dictionary or 0.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_codecOpen(
    env: Env,
    _: jclass,
    options: jbyteArray,
    dictionary: jlong,
) -> jlong {
    opened(|codec: &mut *mut ziptier_codec| {
        // SAFETY: the caller's promise; the words outlive the call.
        unsafe {
            let options = Options::read(env, options)?;
            let (pairs, dictionary) = (options.pairs(), dictionary as *const ziptier_dictionary);
            Ok(ziptier_codec_open(pairs.as_ptr(), pairs.len(), dictionary, codec))
        }
    })
}

/// Opens analytics.
///
/// # Safety
///
/// Java calls it.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_analyticsOpen(
    env: Env,
    _: jclass,
    options: jbyteArray,
) -> jlong {
    opened(|analytics: &mut *mut ziptier_analytics| {
        // SAFETY: the caller's promise; the words outlive the call.
        unsafe {
            let options = Options::read(env, options)?;
            let pairs = options.pairs();
            Ok(ziptier_analytics_open(pairs.as_ptr(), pairs.len(), analytics))
        }
    })
}

/// Closes analytics.
///
/// # Safety
///
/// Java calls it once for analytics, after all calls that use them.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_analyticsClose(
    _: Env,
    _: jclass,
    analytics: jlong,
) {
    // SAFETY: the caller's promise.
    unsafe { ziptier_analytics_close(analytics as *mut ziptier_analytics) };
}

/// Who does the work of analytics.
///
/// # Safety
///
/// Java calls it with open analytics.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_analyticsWorker(
    env: Env,
    _: jclass,
    analytics: jlong,
) -> jbyteArray {
    // SAFETY: the caller's promise; the string lasts as long as the analytics.
    unsafe { text_of(env, ziptier_analytics_worker(analytics as *const ziptier_analytics)) }
}

/// Jobs that a device should have done, and the CPU did.
///
/// # Safety
///
/// Java calls it with open analytics.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_analyticsFallbacks(
    _: Env,
    _: jclass,
    analytics: jlong,
) -> jlong {
    // SAFETY: the caller's promise.
    unsafe { ziptier_analytics_fallbacks(analytics as *const ziptier_analytics) as jlong }
}

/// Closes a codec.
///
/// # Safety
///
/// Java calls it once for a codec, after all calls that use the codec.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_codecClose(_: Env, _: jclass, codec: jlong) {
    // SAFETY: the caller's promise.
    unsafe { ziptier_codec_close(codec as *mut ziptier_codec) };
}

/// The counters of a codec as lines.
///
/// # Safety
///
/// Java calls it with an open codec.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_codecCounters(
    env: Env,
    _: jclass,
    codec: jlong,
) -> jbyteArray {
    // SAFETY: the caller's promise.
    unsafe { filled(env, |buffer| ziptier_codec_counters(codec as *const ziptier_codec, buffer)) }
}

/// Trains a dictionary of samples that lie one behind the other.
///
/// # Safety
///
/// Java calls it, with rising ends of which the last one is the length of the samples.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_dictionaryTrain(
    env: Env,
    _: jclass,
    format: jbyteArray,
    bytes: jbyteArray,
    ends: jintArray,
    bytes_max: jint,
    generation: jint,
) -> jlong {
    opened(|dictionary: &mut *mut ziptier_dictionary| {
        // SAFETY: the caller's promise; the samples outlive the call.
        unsafe {
            let format = CString::new(env::bytes(env, format)?).unwrap_or_default();
            let (bytes, mut sample_ends) = (env::bytes(env, bytes)?, Vec::new());
            env::read_ints(env, ends, &mut sample_ends)?;
            let samples = samples(&bytes, &sample_ends);
            let (max, number) = (bytes_max as usize, generation as u32);
            Ok(ziptier_dictionary_train(
                format.as_ptr(),
                samples.as_ptr(),
                samples.len(),
                max,
                number,
                dictionary,
            ))
        }
    })
}

/// Loads a dictionary.
///
/// # Safety
///
/// Java calls it.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_dictionaryLoad(
    env: Env,
    _: jclass,
    stored: jbyteArray,
) -> jlong {
    opened(|dictionary: &mut *mut ziptier_dictionary| {
        // SAFETY: the caller's promise.
        unsafe {
            let stored = env::bytes(env, stored)?;
            Ok(ziptier_dictionary_load(stored.as_ptr().cast(), stored.len(), dictionary))
        }
    })
}

/// Stores a dictionary.
///
/// # Safety
///
/// Java calls it with an open dictionary.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_dictionaryStore(
    env: Env,
    _: jclass,
    dictionary: jlong,
) -> jbyteArray {
    // SAFETY: the caller's promise.
    unsafe { filled(env, |buffer| ziptier_dictionary_save(dictionary as *const ziptier_dictionary, buffer)) }
}

/// Frees a dictionary.
///
/// # Safety
///
/// Java calls it once for a dictionary, after all calls that use the dictionary.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_dictionaryFree(
    _: Env,
    _: jclass,
    dictionary: jlong,
) {
    // SAFETY: the caller's promise.
    unsafe { ziptier_dictionary_free(dictionary as *mut ziptier_dictionary) };
}

/// Trains tokens on samples that lie one behind the other.
///
/// # Safety
///
/// Java calls it, with rising ends of which the last one is the length of the samples.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_tokensTrain(
    env: Env,
    _: jclass,
    bytes: jbyteArray,
    ends: jintArray,
    bits: jint,
    generation: jint,
) -> jlong {
    opened(|tokens: &mut *mut ziptier_tokens| {
        // SAFETY: the caller's promise; the samples outlive the call.
        unsafe {
            let (bytes, mut sample_ends) = (env::bytes(env, bytes)?, Vec::new());
            env::read_ints(env, ends, &mut sample_ends)?;
            let samples = samples(&bytes, &sample_ends);
            let (bits, number) = (bits as u32, generation as u32);
            Ok(ziptier_tokens_train(samples.as_ptr(), samples.len(), bits, number, tokens))
        }
    })
}

/// Loads tokens.
///
/// # Safety
///
/// Java calls it.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_tokensLoad(
    env: Env,
    _: jclass,
    stored: jbyteArray,
) -> jlong {
    opened(|tokens: &mut *mut ziptier_tokens| {
        // SAFETY: the caller's promise.
        unsafe {
            let stored = env::bytes(env, stored)?;
            Ok(ziptier_tokens_load(stored.as_ptr().cast(), stored.len(), tokens))
        }
    })
}

/// Stores tokens.
///
/// # Safety
///
/// Java calls it with open tokens.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_tokensStore(
    env: Env,
    _: jclass,
    tokens: jlong,
) -> jbyteArray {
    // SAFETY: the caller's promise.
    unsafe { filled(env, |buffer| ziptier_tokens_save(tokens as *const ziptier_tokens, buffer)) }
}

/// Frees tokens.
///
/// # Safety
///
/// Java calls it once for tokens, after all calls that use them.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_tokensFree(_: Env, _: jclass, tokens: jlong) {
    // SAFETY: the caller's promise.
    unsafe { ziptier_tokens_free(tokens as *mut ziptier_tokens) };
}
