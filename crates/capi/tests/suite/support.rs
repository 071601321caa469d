//! The functions of the header as a test calls them: each output lies in memory of its own, and what stands behind the
//! capacity must stay as it was.

use std::ffi::{CStr, CString};
use std::ptr;

use ziptier_capi::buffer::{ziptier_buffer, ziptier_buffer_free, ziptier_option, ziptier_slice};
use ziptier_capi::codec::*;
use ziptier_capi::dictionary::{ziptier_dictionary, ziptier_dictionary_free, ziptier_dictionary_train};
use ziptier_capi::status::ziptier_last_error;
use ziptier_capi::status::ziptier_status::{self, *};

const BEHIND: [u8; 64] = [0xA5; 64];

/// The sentence of the last error.
pub(crate) fn last_error() -> String {
    // SAFETY: the string lasts until the next error of this thread.
    unsafe { CStr::from_ptr(ziptier_last_error()) }.to_str().unwrap().to_owned()
}

/// Options, and the strings that they point to.
pub(crate) struct Options {
    _strings: Vec<CString>,
    pub(crate) options: Vec<ziptier_option>,
}

impl Options {
    pub(crate) fn new(given: &[(&str, &str)]) -> Options {
        let strings: Vec<CString> = given
            .iter()
            .flat_map(|(name, value)| [*name, *value])
            .map(|text| CString::new(text).unwrap())
            .collect();
        let options = strings.chunks(2);
        let options =
            options.map(|pair| ziptier_option { name: pair[0].as_ptr(), value: pair[1].as_ptr() }).collect();
        Options { _strings: strings, options }
    }
}

pub(crate) fn slice(bytes: &[u8]) -> ziptier_slice {
    ziptier_slice { data: bytes.as_ptr().cast(), len: bytes.len() }
}

/// Calls `call` with memory of `capacity` bytes, and returns its status, the length that it tells, and the memory.
pub(crate) fn into(
    capacity: usize,
    call: impl FnOnce(*mut u8, &mut usize) -> ziptier_status,
) -> (ziptier_status, usize, Vec<u8>) {
    let mut memory = vec![0x5A; capacity];
    memory.extend_from_slice(&BEHIND);
    let mut length = usize::MAX;
    let status = call(memory.as_mut_ptr(), &mut length);
    assert!(memory.ends_with(&BEHIND), "written behind {capacity} bytes");
    memory.truncate(if status == ZIPTIER_OK { length } else { capacity });
    (status, length, memory)
}

/// A codec that is closed with the test.
#[derive(Debug)]
pub(crate) struct Codec(pub(crate) *mut ziptier_codec);

// SAFETY: the header says that one codec serves all threads.
unsafe impl Sync for Codec {}

impl Codec {
    pub(crate) fn open(
        given: &[(&str, &str)],
        dictionary: *const ziptier_dictionary,
    ) -> Result<Codec, (ziptier_status, String)> {
        let options = Options::new(given);
        let mut codec = ptr::null_mut();
        // SAFETY: the options and their strings live until the call has returned.
        let status = unsafe {
            ziptier_codec_open(options.options.as_ptr(), options.options.len(), dictionary, &mut codec)
        };
        assert_eq!(codec.is_null(), status != ZIPTIER_OK);
        if status == ZIPTIER_OK { Ok(Codec(codec)) } else { Err((status, last_error())) }
    }

    pub(crate) fn bound(&self, length: usize) -> usize {
        // SAFETY: the codec is open.
        unsafe { ziptier_compress_bound(self.0, length) }
    }

    pub(crate) fn compress(&self, raw: &[u8], capacity: usize) -> (ziptier_status, usize, Vec<u8>) {
        // SAFETY: the codec is open; source and target are as long as said.
        into(capacity, |target, length| unsafe {
            ziptier_compress(self.0, raw.as_ptr().cast(), raw.len(), target.cast(), capacity, length)
        })
    }

    pub(crate) fn packed(&self, raw: &[u8]) -> Vec<u8> {
        let (status, _, packed) = self.compress(raw, self.bound(raw.len()));
        assert_eq!(status, ZIPTIER_OK, "{}", last_error());
        packed
    }

    pub(crate) fn decompress(&self, packed: &[u8], capacity: usize) -> (ziptier_status, usize, Vec<u8>) {
        // SAFETY: the codec is open; source and target are as long as said.
        into(capacity, |target, length| unsafe {
            ziptier_decompress(self.0, packed.as_ptr().cast(), packed.len(), target.cast(), capacity, length)
        })
    }

    pub(crate) fn decompress_exact(&self, packed: &[u8], raw_bytes: usize) -> (ziptier_status, Vec<u8>) {
        // SAFETY: the codec is open; source and target are as long as said.
        let (status, _, raw) = into(raw_bytes, |target, length| unsafe {
            *length = raw_bytes;
            ziptier_decompress_exact(self.0, packed.as_ptr().cast(), packed.len(), target.cast(), raw_bytes)
        });
        (status, raw)
    }

    /// A counter by its name.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        // SAFETY: the codec is open.
        let text = text_of(|text| unsafe { ziptier_codec_counters(self.0, text) });
        figure(&text, name)
    }
}

impl Drop for Codec {
    fn drop(&mut self) {
        // SAFETY: the codec is open, and nobody uses it any more.
        unsafe { ziptier_codec_close(self.0) };
    }
}

/// The number in the line of a name.
pub(crate) fn figure(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// The text that a call puts into a buffer.
pub(crate) fn text_of(call: impl FnOnce(*mut ziptier_buffer) -> ziptier_status) -> String {
    let mut buffer = ziptier_buffer { data: ptr::null_mut(), len: 0, capacity: 0 };
    assert_eq!(call(&mut buffer), ZIPTIER_OK, "{}", last_error());
    // SAFETY: the call has filled the buffer, which is freed once.
    let text = unsafe { std::slice::from_raw_parts(buffer.data, buffer.len) }.to_vec();
    // SAFETY: as above.
    unsafe { ziptier_buffer_free(&mut buffer) };
    String::from_utf8(text).unwrap()
}

/// A dictionary that is freed with the test.
pub(crate) struct Dictionary(pub(crate) *mut ziptier_dictionary);

impl Dictionary {
    pub(crate) fn train(format: &str, samples: &[Vec<u8>]) -> Dictionary {
        let format = CString::new(format).unwrap();
        let samples: Vec<ziptier_slice> = samples.iter().map(|sample| slice(sample)).collect();
        let mut dictionary = ptr::null_mut();
        // SAFETY: format and samples live until the call has returned.
        let status = unsafe {
            ziptier_dictionary_train(
                format.as_ptr(),
                samples.as_ptr(),
                samples.len(),
                4096,
                1,
                &mut dictionary,
            )
        };
        assert_eq!(status, ZIPTIER_OK, "{}", last_error());
        Dictionary(dictionary)
    }
}

impl Drop for Dictionary {
    fn drop(&mut self) {
        // SAFETY: nobody uses the pointer any more.
        unsafe { ziptier_dictionary_free(self.0) };
    }
}

/// Records that have much in common.
pub(crate) fn records(count: usize) -> Vec<Vec<u8>> {
    let state = |i| ["active", "away", "asleep"][i * 7 % 3];
    let record = |i: usize| {
        format!("{{\"user\":{},\"state\":\"{}\",\"visits\":{}}}", i * 7919 % 10_007, state(i), i % 97)
    };
    (0..count).map(|i| record(i).into_bytes()).collect()
}

/// Bytes that do not shrink.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 9u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// The options of a codec, the format first, and whether it has a dictionary.
pub(crate) type Row = (&'static [(&'static str, &'static str)], bool);

/// Every format, with frames and without.
pub(crate) const CODECS: [Row; 11] = [
    (&[("format", "none")], false),
    (&[("format", "lz4")], false),
    (&[("format", "lz4"), ("level", "9")], true),
    (&[("format", "lz4"), ("frame", "yes")], false),
    (&[("format", "zstd")], false),
    (&[("format", "zstd"), ("level", "-3"), ("frame", "yes")], true),
    (&[("format", "deflate")], false),
    (&[("format", "deflate"), ("huffman", "fixed"), ("path", "software")], true),
    (&[("format", "deflate"), ("huffman", "canned"), ("frame", "yes")], true),
    (&[("format", "deflate"), ("model", "timing=off")], false),
    (&[("format", "deflate"), ("split", "4"), ("model", "timing=off,devices=2")], false),
];

/// The codec of a row.
pub(crate) fn codec_of((options, with_dictionary): Row) -> Codec {
    let dictionary = with_dictionary.then(|| Dictionary::train(options[0].1, &records(2000)));
    let dictionary = dictionary.as_ref().map_or(ptr::null(), |dictionary| dictionary.0.cast_const());
    Codec::open(options, dictionary).unwrap_or_else(|error| panic!("{options:?}: {error:?}"))
}
