//! The allocator refuses the memory for a copy of an array of Java. The call is an error, and the JVM goes on. Rust
//! would end the process.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use jni_sys::{JNIEnv, JNINativeInterface_, jarray, jlong, jobject, jsize};
use ziptier_capi::status::{ziptier_last_error, ziptier_status};
use ziptier_jni::analytics::Java_io_ziptier_codec_Native_analyticsRun;
use ziptier_jni::blocks::Java_io_ziptier_codec_Native_runGroup;
use ziptier_jni::objects::*;

/// The system's allocator, which refuses what is longer than [`LONGEST`].
struct Refusing;

static LONGEST: AtomicUsize = AtomicUsize::new(usize::MAX);

// SAFETY: every call goes on to the system's allocator as it came, or is refused, as any may be.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > LONGEST.load(Relaxed) {
            return null_mut();
        }
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// The elements of every array that the calls get.
const ELEMENTS: jsize = 8 << 20;

unsafe extern "system" fn elements(_: *mut JNIEnv, _: jarray) -> jsize {
    ELEMENTS
}

/// Any address: the environment tells one length of all arrays, and looks at none.
fn array() -> jobject {
    without_provenance_mut(16)
}

/// What a call gives while the allocator refuses a MiB, and its sentence.
fn refused(call: impl FnOnce(*mut JNIEnv) -> jlong) -> (jlong, String) {
    let mut functions = MaybeUninit::<JNINativeInterface_>::zeroed();
    // SAFETY: the entry lies within the table. The calls use this one alone.
    unsafe { (*functions.as_mut_ptr()).v1_1.GetArrayLength = elements };
    let mut env: JNIEnv = functions.as_ptr();
    LONGEST.store(1 << 20, Relaxed);
    let result = call(&raw mut env);
    LONGEST.store(usize::MAX, Relaxed);
    // SAFETY: the sentence lasts until the next error of this thread.
    let said = unsafe { CStr::from_ptr(ziptier_last_error()) }.to_str().unwrap();
    (result, said.to_owned())
}

#[test]
fn a_copy_without_memory_is_an_error() {
    let (class, object) = (null_mut(), array());
    let ints = 4 * ELEMENTS;
    // SAFETY: no call comes further than to the copy of its first array.
    let calls = unsafe {
        [
            (ELEMENTS, refused(|env| Java_io_ziptier_codec_Native_codecOpen(env, class, object, 0))),
            (ELEMENTS, refused(|env| Java_io_ziptier_codec_Native_analyticsOpen(env, class, object))),
            (ELEMENTS, refused(|env| Java_io_ziptier_codec_Native_dictionaryLoad(env, class, object))),
            (ELEMENTS, refused(|env| Java_io_ziptier_codec_Native_tokensLoad(env, class, object))),
            (
                ELEMENTS,
                refused(|env| Java_io_ziptier_codec_Native_tokensTrain(env, class, object, object, 12, 1)),
            ),
            (
                ELEMENTS,
                refused(|env| {
                    Java_io_ziptier_codec_Native_dictionaryTrain(env, class, object, object, object, 99, 1)
                }),
            ),
            (
                ints,
                refused(|env| {
                    Java_io_ziptier_codec_Native_runGroup(
                        env, class, 3, 0, 0, object, 0, 0, object, object, 0, 0, object,
                    )
                }),
            ),
            (
                ints,
                refused(|env| {
                    Java_io_ziptier_codec_Native_analyticsRun(env, class, 0, object, object, object)
                }),
            ),
        ]
    };
    for (bytes, (result, said)) in calls {
        assert_eq!(result, ziptier_status::ZIPTIER_UNAVAILABLE as jlong, "{said}");
        assert!(said.contains(&format!("no memory for copies of arrays of {bytes} bytes")), "{said}");
    }
}
