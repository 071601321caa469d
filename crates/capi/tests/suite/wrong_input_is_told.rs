//! A wrong argument of a C program must be a sentence. It must not be undefined behaviour where the library can see it.

use std::ffi::{CString, c_void};
use std::ptr;

use ziptier_capi::buffer::{ziptier_option, ziptier_slice};
use ziptier_capi::codec::*;
use ziptier_capi::dictionary::*;
use ziptier_capi::iterator::*;
use ziptier_capi::status::ziptier_status::{self, *};
use ziptier_capi::store::*;
use ziptier_capi::tokens::*;

use crate::support::{Codec, Options, codec_of, last_error, records, slice};

const NO_BYTES: *const c_void = ptr::null();

/// The status of a call, and its sentence.
fn told(status: ziptier_status) -> (ziptier_status, String) {
    (status, last_error())
}

fn assert_names(told: (ziptier_status, String), status: ziptier_status, words: &str) {
    assert_eq!(told.0, status, "{}", told.1);
    assert!(told.1.contains(words), "{:?} does not say {words:?}", told.1);
}

#[test]
fn wrong_options_of_a_codec_are_named() {
    for (given, status, words) in [
        (&[][..], ZIPTIER_INVALID_OPTION, "a codec needs the option format"),
        (
            &[("format", "lz4"), ("levle", "3")],
            ZIPTIER_INVALID_OPTION,
            "no option \"levle\": choose among format, level",
        ),
        (&[("format", "lz4"), ("level", "fast")], ZIPTIER_INVALID_OPTION, "option level is \"fast\""),
        (&[("format", "lz4"), ("level", "13")], ZIPTIER_INVALID_OPTION, "has no level 13 of format lz4"),
        (
            &[("format", "lz4"), ("level", "1"), ("level", "2")],
            ZIPTIER_INVALID_OPTION,
            "level is given twice",
        ),
        (&[("format", "token")], ZIPTIER_INVALID_OPTION, "blocks of format token need a dictionary"),
        (&[("format", "deflate"), ("huffman", "canned")], ZIPTIER_INVALID_OPTION, "train a dictionary"),
        (&[("format", "deflate"), ("engine", "abacus")], ZIPTIER_INVALID_OPTION, "unknown engine \"abacus\""),
        (&[("format", "deflate"), ("model", "devices=many")], ZIPTIER_INVALID_OPTION, "option model is"),
        (
            &[("format", "lz4"), ("path", "hardware")],
            ZIPTIER_INVALID_OPTION,
            "cannot be told to use a device",
        ),
        (&[("format", "lz4"), ("frame", "maybe")], ZIPTIER_INVALID_OPTION, "choose yes or no"),
        (
            &[("format", "lz4"), ("huffman", "fixed")],
            ZIPTIER_INVALID_OPTION,
            "format lz4 has no option huffman",
        ),
        (&[("format", "zstd"), ("split", "2")], ZIPTIER_INVALID_OPTION, "format zstd has no option split"),
        (
            &[("format", "deflate"), ("split", "0")],
            ZIPTIER_INVALID_OPTION,
            "split into 0 parts: choose 1 to 16",
        ),
        (&[("format", "deflate"), ("split", "two")], ZIPTIER_INVALID_OPTION, "option split is \"two\""),
    ] {
        assert_names(Codec::open(given, ptr::null()).unwrap_err(), status, words);
    }
}

#[test]
fn wrong_options_of_a_store_are_named() {
    for (given, status, words) in [
        (&[("memroy", "1GiB")][..], ZIPTIER_INVALID_OPTION, "no option \"memroy\""),
        (&[("memory", "1KiB")], ZIPTIER_INVALID_OPTION, "a memory limit of 1024 bytes is too small"),
        (&[("codec", "lz5")], ZIPTIER_INVALID_OPTION, "no codec 'lz5'"),
        (&[("dir", "/dev/null/store")], ZIPTIER_IO, "/dev/null/store"),
    ] {
        let options = Options::new(given);
        let mut store = ptr::null_mut();
        // SAFETY: the options live until the call has returned.
        let status_told =
            unsafe { ziptier_open(options.options.as_ptr(), options.options.len(), &mut store) };
        assert_names(told(status_told), status, words);
        assert!(store.is_null());
    }
}

/// The promises that C cannot keep for itself: null, and lengths that no memory has.
#[test]
fn null_and_impossible_lengths_are_named() {
    let codec = codec_of((&[("format", "lz4")], false));
    let (raw, mut packed, mut length) = ([7; 100], [0u8; 200], 0);
    let (source, target): (*const c_void, *mut c_void) = (raw.as_ptr().cast(), packed.as_mut_ptr().cast());
    let compress = |codec, source, source_len, target, capacity, length| {
        // SAFETY: the library refuses the wrong one of these arguments before it uses it.
        told(unsafe { ziptier_compress(codec, source, source_len, target, capacity, length) })
    };
    let wrong = ZIPTIER_INVALID_ARGUMENT;
    assert_names(
        compress(ptr::null(), source, 100, target, 200, &mut length),
        wrong,
        "argument codec is null",
    );
    assert_names(compress(codec.0, NO_BYTES, 100, target, 200, &mut length), wrong, "argument raw is null");
    assert_names(
        compress(codec.0, source, 100, ptr::null_mut(), 200, &mut length),
        wrong,
        "argument packed is null",
    );
    assert_names(
        compress(codec.0, source, 100, target, 200, ptr::null_mut()),
        wrong,
        "argument packed_len is null",
    );
    assert_names(
        compress(codec.0, source, usize::MAX, target, 200, &mut length),
        wrong,
        "the length of argument raw is",
    );
    assert_names(
        compress(codec.0, source, 100, target, usize::MAX, &mut length),
        wrong,
        "the length of argument packed",
    );
    assert_names(compress(codec.0, target, 100, target, 200, &mut length), wrong, "input and output overlap");
    // Where there is nothing, null is allowed.
    assert_eq!(compress(codec.0, NO_BYTES, 0, target, 200, &mut length).0, ZIPTIER_OK);
    assert_eq!(
        (compress(codec.0, source, 100, ptr::null_mut(), 0, &mut length).0, length),
        (ZIPTIER_TOO_SMALL, 0)
    );

    // SAFETY: null is what these calls refuse, or allow.
    unsafe {
        assert_eq!(ziptier_compress_bound(ptr::null(), 100), 0);
        assert!(ziptier_codec_worker(ptr::null()).is_null());
        assert_names(told(ziptier_codec_counters(codec.0, ptr::null_mut())), wrong, "argument text is null");
        assert_names(
            told(ziptier_codec_open(ptr::null(), 3, ptr::null(), &mut ptr::null_mut())),
            wrong,
            "argument options",
        );
        assert_names(
            told(ziptier_codec_open(ptr::null(), 0, ptr::null(), ptr::null_mut())),
            wrong,
            "argument codec is null",
        );
        assert_names(
            told(ziptier_put(ptr::null(), source, 1, source, 1, 0, 0)),
            wrong,
            "argument store is null",
        );
        let (mut key, mut value) = (slice(b"the last"), slice(b"record"));
        assert_names(told(ziptier_next(ptr::null_mut(), &mut key, &mut value)), wrong, "argument iterator");
        assert!(key.data.is_null() && value.len == 0);
        assert_eq!(ziptier_close(ptr::null_mut()), ZIPTIER_OK);
        ziptier_codec_close(ptr::null_mut());
        ziptier_dictionary_free(ptr::null_mut());
        ziptier_tokens_free(ptr::null_mut());
        ziptier_iterator_free(ptr::null_mut());
    }
}

#[test]
fn names_that_are_no_utf_8_are_named() {
    let (name, value) = (CString::new("format").unwrap(), CString::new(vec![b'l', 0xff]).unwrap());
    let option = ziptier_option { name: name.as_ptr(), value: value.as_ptr() };
    let mut codec = ptr::null_mut();
    // SAFETY: the strings live until the calls have returned.
    unsafe {
        let wrong = ZIPTIER_INVALID_ARGUMENT;
        assert_names(told(ziptier_codec_open(&option, 1, ptr::null(), &mut codec)), wrong, "no UTF-8");
        let none = ziptier_option { name: ptr::null(), value: value.as_ptr() };
        assert_names(
            told(ziptier_codec_open(&none, 1, ptr::null(), &mut codec)),
            wrong,
            "options[].name is null",
        );
    }
}

#[test]
fn samples_and_stored_dictionaries_are_checked() {
    let records = records(100);
    let samples: Vec<ziptier_slice> = records.iter().map(|record| slice(record)).collect();
    let format = CString::new("lz5").unwrap();
    let (mut dictionary, mut tokens) = (ptr::null_mut(), ptr::null_mut());
    let wrong = ZIPTIER_INVALID_ARGUMENT;
    // SAFETY: the samples live until the calls have returned.
    unsafe {
        let train = |format: &CString, count, max, dictionary: &mut _| {
            told(ziptier_dictionary_train(format.as_ptr(), samples.as_ptr(), count, max, 1, dictionary))
        };
        assert_names(train(&format, 100, 4096, &mut dictionary), wrong, "unknown format \"lz5\"");
        let format = CString::new("zstd").unwrap();
        assert_names(train(&format, 1, 4096, &mut dictionary), wrong, "1 samples of");
        assert_names(train(&format, 100, 10, &mut dictionary), wrong, "10 bytes allowed");
        let null = ziptier_slice { data: ptr::null(), len: 9 };
        let status = ziptier_dictionary_train(format.as_ptr(), &null, 1, 4096, 1, &mut dictionary);
        assert_names(told(status), wrong, "argument samples is null");
        assert_names(
            told(ziptier_tokens_train(samples.as_ptr(), 100, 9, 1, &mut tokens)),
            wrong,
            "choose 10 to 16",
        );
        let bytes = slice(b"no dictionary at all, whatever it says");
        let damaged = ZIPTIER_DAMAGED;
        assert_names(
            told(ziptier_dictionary_load(bytes.data, bytes.len, &mut dictionary)),
            damaged,
            "signature",
        );
        assert_names(told(ziptier_tokens_load(bytes.data, bytes.len, &mut tokens)), damaged, "signature");
        assert!(dictionary.is_null() && tokens.is_null());
    }
}
