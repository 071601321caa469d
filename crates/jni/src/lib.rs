//! The native half of ziptier's Java library: the native methods of the class `io.ziptier.codec.Native`.
//!
//! Java programs use the jar, and `docs/java.md` is the page for them. The functions here pass on to the C interface,
//! which checks options, keeps contexts, and has the sentences of errors.
//!
//! Three rules hold for every function:
//!
//! 1. Java has checked positions and lengths, and keeps the object open during the call.
//! 2. A function throws nothing into Java, and no panic leaves it. Its result is 0 and more, or a status below 0.
//! 3. A function copies arrays. It never holds one in a critical section, where it would stop the garbage collector
//!    for as long as a codec or a device works.
//!
//! | module | claim |
//! |---|---|
//! | `env` | arrays and buffers of Java as bytes |
//! | [`objects`] | codecs, dictionaries, tokens and analytics: open, store, close |
//! | [`blocks`] | one block or value, or a group of values |
//! | [`analytics`] | batches of jobs on packed integers |

#![deny(missing_docs)]

pub mod analytics;
pub mod blocks;
mod env;
pub mod objects;

use jni_sys::{jclass, jint, jlong};
use ziptier_capi::status::{guard, ziptier_status};

/// Java's environment of a thread.
type Env = *mut jni_sys::JNIEnv;

/// The result of work, or the status of a panic.
fn call(work: impl FnOnce() -> jlong) -> jlong {
    guard(work).unwrap_or_else(|status| status as jlong)
}

/// The address of what a call has made, or its status. An error is the status of memory that is refused before.
fn opened<T>(open: impl FnOnce(&mut *mut T) -> Result<ziptier_status, ziptier_status>) -> jlong {
    call(|| {
        let mut object = std::ptr::null_mut();
        match open(&mut object) {
            Ok(ziptier_status::ZIPTIER_OK) => object as jlong,
            Ok(failed) | Err(failed) => failed as jlong,
        }
    })
}

/// The greatest result that says that the output is too small. It is less by the bytes that the output needs.
const TOO_SMALL: jlong = -256;

/// A length, or the status of the call that should have set it.
fn outcome(status: ziptier_status, length: usize) -> jlong {
    match status {
        ziptier_status::ZIPTIER_OK => length as jlong,
        ziptier_status::ZIPTIER_TOO_SMALL => TOO_SMALL - length as jlong,
        failed => failed as jlong,
    }
}

/// The most bytes that an operation makes of so many.
///
/// # Safety
///
/// The object is one of the operation, and open.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn Java_io_ziptier_codec_Native_bound(
    _: Env,
    _: jclass,
    operation: jint,
    object: jlong,
    length: jint,
) -> jlong {
    // SAFETY: the caller's promise.
    call(|| unsafe { blocks::bound(operation, object, length as usize) } as jlong)
}
