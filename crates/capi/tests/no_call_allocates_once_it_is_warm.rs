//! A call of the C interface that allocates pays more for that than for a small block. All memory comes from Rust's
//! allocator, which this test counts.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::CString;
use std::ptr;

use ziptier_capi::buffer::{ziptier_buffer, ziptier_option, ziptier_slice};
use ziptier_capi::codec::*;
use ziptier_capi::status::ziptier_status::*;
use ziptier_capi::store::*;
use ziptier_capi::tokens::*;

struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The allocations of a hundred calls, after some that warm up.
fn allocations(mut call: impl FnMut()) -> usize {
    (0..10).for_each(|_| call());
    let before = CALLS.get();
    (0..100).for_each(|_| call());
    CALLS.get() - before
}

fn text(bytes: usize) -> Vec<u8> {
    (0..)
        .flat_map(|i: u32| format!("item {} of {}, ", i * 7919 % 1000, i % 13).into_bytes())
        .take(bytes)
        .collect()
}

#[test]
fn blocks() {
    let raw = text(4096);
    for (format, frame) in [("none", "no"), ("lz4", "no"), ("zstd", "no"), ("zstd", "yes"), ("deflate", "no")]
    {
        let words = ["format", format, "frame", frame].map(|word| CString::new(word).unwrap());
        let option = |at: usize| ziptier_option { name: words[at].as_ptr(), value: words[at + 1].as_ptr() };
        let (options, mut codec) = ([option(0), option(2)], ptr::null_mut());
        let (mut packed, mut unpacked) = (vec![0u8; 10_000], vec![0u8; 5000]);
        let (mut packed_len, mut raw_len) = (0, 0);
        // SAFETY: the options live until the codec is open; sources and targets are as long as said.
        unsafe {
            assert_eq!(ziptier_codec_open(options.as_ptr(), 2, ptr::null(), &mut codec), ZIPTIER_OK);
            let calls = allocations(|| {
                let (source, target) = (raw.as_ptr().cast(), packed.as_mut_ptr().cast());
                let status =
                    ziptier_compress(codec, source, raw.len(), target, packed.len(), &mut packed_len);
                assert_eq!(status, ZIPTIER_OK);
                let (source, target) = (packed.as_ptr().cast(), unpacked.as_mut_ptr().cast());
                let status =
                    ziptier_decompress(codec, source, packed_len, target, unpacked.len(), &mut raw_len);
                assert_eq!(status, ZIPTIER_OK);
                let status = ziptier_decompress_exact(codec, source, packed_len, target, raw_len);
                assert_eq!(status, ZIPTIER_OK);
            });
            assert_eq!((calls, raw_len), (0, raw.len()), "format {format}, frame {frame}");
            ziptier_codec_close(codec);
        }
    }
}

#[test]
fn values() {
    let samples = text(200_000);
    let samples: Vec<ziptier_slice> = samples
        .chunks(100)
        .map(|value| ziptier_slice { data: value.as_ptr().cast(), len: value.len() })
        .collect();
    let (mut tokens, mut store) = (ptr::null_mut(), ptr::null_mut());
    let (mut coded, mut value, mut coded_len, mut value_len) = ([0u8; 400], [0u8; 4000], 0, 0);
    let mut buffer = ziptier_buffer { data: ptr::null_mut(), len: 0, capacity: 0 };
    let sample = samples[7];
    // SAFETY: the samples live on; sources and targets are as long as said.
    unsafe {
        assert_eq!(ziptier_tokens_train(samples.as_ptr(), samples.len(), 12, 1, &mut tokens), ZIPTIER_OK);
        assert_eq!(ziptier_open(ptr::null(), 0, &mut store), ZIPTIER_OK);
        assert_eq!(ziptier_put(store, c"key".as_ptr().cast(), 3, sample.data, sample.len, 0, 0), ZIPTIER_OK);
        let calls = allocations(|| {
            let target = coded.as_mut_ptr().cast();
            let status =
                ziptier_tokens_encode(tokens, sample.data, sample.len, target, coded.len(), &mut coded_len);
            assert_eq!(status, ZIPTIER_OK);
            let (source, target) = (coded.as_ptr().cast(), value.as_mut_ptr().cast());
            let status =
                ziptier_tokens_decode(tokens, source, coded_len, target, value.len(), &mut value_len);
            assert_eq!(status, ZIPTIER_OK);
        });
        assert_eq!((calls, value_len), (0, sample.len));
        let calls = allocations(|| {
            let (key, target) = (c"key".as_ptr().cast(), value.as_mut_ptr().cast());
            let status = ziptier_get(store, key, 3, target, value.len(), &mut value_len, ptr::null_mut());
            assert_eq!(status, ZIPTIER_OK);
            assert_eq!(ziptier_get_buffer(store, key, 3, &mut buffer, ptr::null_mut()), ZIPTIER_OK);
        });
        assert_eq!((calls, value_len, buffer.len), (0, sample.len, sample.len));
        ziptier_capi::buffer::ziptier_buffer_free(&mut buffer);
        ziptier_tokens_free(tokens);
        assert_eq!(ziptier_close(store), ZIPTIER_OK);
    }
}
