//! Format `lz4`: the block format of LZ4, by the reference library.
//!
//! Levels below 0 are *accelerated*: level -8 searches about every eighth position. Level 1 is LZ4's default, 2 to 12
//! are LZ4-HC. All give the same format, and decoding takes the same time whatever the level.
//!
//! An engine loads its dictionary once, and each block attaches it without copying. A block can refer to the last 64
//! KiB of dictionary and block together.

use super::context::{Coder, Context, Damage};
use super::setting::SettingError;
use super::{BlockCodec, BlockError, Counters, Dictionary, Engine};
use crate::format::Format;
use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Levels of the format: accelerated, default, HC. There is no level 0.
pub const LEVELS: RangeInclusive<i32> = -65_537..=12;

/// The longest block that the library takes (`LZ4_MAX_INPUT_SIZE`).
const RAW_BYTES_MAX: usize = 0x7E00_0000;

/// From this length on, the encoder's table is cleared for each block. Otherwise the library recognizes entries of
/// earlier blocks by their positions, which is slower for long blocks. Cleared and uncleared, in MB/s of text: 419 and
/// 295 for blocks of 4,095 bytes, 581 and 563 for 512, 616 and 685 for 256.
const CLEARED_FROM_BYTES: usize = 512;

/// Memory to point at where there is nothing to compress.
static EMPTY: [u8; 1] = [0];

/// The engine of format `lz4`: the reference library on the CPU.
#[derive(Debug)]
pub struct Lz4 {
    level: i32,
    prepared: Option<Prepared>,
    counters: Counters,
}

impl Lz4 {
    /// An engine for a level and a dictionary. Loads the dictionary for that level.
    pub fn new(level: i32, dictionary: Option<Arc<Dictionary>>) -> Result<Lz4, SettingError> {
        if !LEVELS.contains(&level) || level == 0 {
            return Err(SettingError::Level { engine: "cpu", format: Format::Lz4, level, levels: LEVELS });
        }
        let prepared = dictionary.map(|dictionary| Prepared::new(level, dictionary)).transpose()?;
        Ok(Lz4 { level, prepared, counters: Counters::new() })
    }
}

impl Engine for Lz4 {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn format(&self) -> Format {
        Format::Lz4
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn bound(&self, raw_bytes: usize) -> usize {
        bound(raw_bytes)
    }

    fn memory_bytes(&self) -> usize {
        self.prepared.as_ref().map_or(0, |prepared| prepared.stream.memory_bytes())
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        let coder = Lz4Coder { level: self.level, prepared: self.prepared.as_ref(), stream: None };
        let fingerprint = self.prepared.as_ref().map_or(0, |prepared| prepared.dictionary.fingerprint());
        Ok(Box::new(Context::new(coder, Format::Lz4, fingerprint, self.counters.open())))
    }
}

/// `LZ4_COMPRESSBOUND`.
fn bound(raw_bytes: usize) -> usize {
    raw_bytes.saturating_add(raw_bytes / 255 + 16)
}

/// A dictionary with the hash tables of its content, for one level.
#[derive(Debug)]
struct Prepared {
    /// The stream refers to the bytes of `dictionary` and never changes.
    stream: Stream,
    dictionary: Arc<Dictionary>,
}

impl Prepared {
    fn new(level: i32, dictionary: Arc<Dictionary>) -> Result<Prepared, SettingError> {
        if dictionary.format() != Format::Lz4 {
            return Err(SettingError::DictionaryFormat { found: dictionary.format(), expected: Format::Lz4 });
        }
        let mut stream = Stream::new(level);
        stream.load(dictionary.content());
        Ok(Prepared { stream, dictionary })
    }
}

struct Lz4Coder<'a> {
    level: i32,
    prepared: Option<&'a Prepared>,
    /// Built at the first compression, because decompression needs no stream.
    stream: Option<Stream>,
}

// SAFETY: LZ4 returns the number of bytes that it wrote from the start of the target.
unsafe impl Coder for Lz4Coder<'_> {
    type Error = Damage;

    fn bound(&self, raw_bytes: usize) -> usize {
        bound(raw_bytes)
    }

    fn raw_bytes_max(&self, packed: &[u8]) -> Result<usize, Damage> {
        // A byte adds at most 255 to the length of a match. A sequence without such a byte gives at most 19 bytes of
        // match for three bytes.
        Ok(packed.len().saturating_mul(255).min(RAW_BYTES_MAX))
    }

    fn compress(&mut self, raw: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, BlockError> {
        if raw.len() > RAW_BYTES_MAX {
            return Ok(None);
        }
        let level = self.level;
        let stream = self.stream.get_or_insert_with(|| Stream::new(level));
        Ok(stream.compress(self.prepared, raw, target))
    }

    fn decompress(&mut self, packed: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, Damage> {
        let (Ok(packed_bytes), Ok(raw_bytes)) =
            (c_int::try_from(packed.len()), c_int::try_from(target.len()))
        else {
            return Err(Damage::other_length(packed.len()));
        };
        let (room, source, target) = (target.len(), packed.as_ptr().cast(), target.as_mut_ptr().cast());
        let written = match self.prepared {
            // SAFETY: source and target are valid for the lengths given with them. The function reads and writes
            // nothing else, whatever the bytes are.
            None => unsafe { ffi::LZ4_decompress_safe(source, target, packed_bytes, raw_bytes) },
            Some(prepared) => {
                let content = prepared.dictionary.content();
                // SAFETY: as above, and the dictionary is valid for its length. The length is at most 64 KiB, so it
                // fits.
                unsafe {
                    ffi::LZ4_decompress_safe_usingDict(
                        source,
                        target,
                        packed_bytes,
                        raw_bytes,
                        content.as_ptr().cast(),
                        content.len() as c_int,
                    )
                }
            }
        };
        match usize::try_from(written) {
            Ok(written) => Ok(Some(written)),
            Err(_) if raw_bytes_stated(packed).is_some_and(|stated| stated > room) => Ok(None),
            // The library returns the position, negated, less one.
            Err(_) => Err(Damage {
                position: (written.unsigned_abs() as usize - 1).min(packed.len()),
                what: "no valid sequence",
            }),
        }
    }
}

/// The bytes that the sequences of a block state together; `None` if the sequences do not end with the block. The
/// library does not tell a small target from damage.
#[cold]
fn raw_bytes_stated(packed: &[u8]) -> Option<usize> {
    let (mut at, mut raw_bytes) = (0, 0);
    loop {
        let lengths = *packed.get(at)?;
        at += 1;
        let literals = length_stated(packed, &mut at, lengths >> 4)?;
        at += literals;
        raw_bytes += literals;
        if at == packed.len() {
            return Some(raw_bytes);
        }
        at += OFFSET_BYTES;
        raw_bytes += MATCH_BYTES_MIN + length_stated(packed, &mut at, lengths & 15)?;
    }
}

/// The bytes of the distance of a match, and the length of the shortest match.
const OFFSET_BYTES: usize = 2;
const MATCH_BYTES_MIN: usize = 4;

/// A length that begins with four bits. If these are all ones, it goes on in bytes, of which the last is not 255.
fn length_stated(packed: &[u8], at: &mut usize, first: u8) -> Option<usize> {
    let mut length = usize::from(first);
    let mut goes_on = first == 15;
    while goes_on {
        let more = *packed.get(*at)?;
        *at += 1;
        length += usize::from(more);
        goes_on = more == u8::MAX;
    }
    Some(length)
}

/// The working memory of the encoder: 16 KiB, or 256 KiB for HC.
#[derive(Debug)]
struct Stream {
    /// Initialised by the library, aligned like its own type.
    words: Box<[u64]>,
    level: i32,
}

impl Stream {
    fn new(level: i32) -> Stream {
        let high = level >= 2;
        // SAFETY: these functions only return constants.
        let bytes = unsafe { if high { ffi::LZ4_sizeofStateHC() } else { ffi::LZ4_sizeofState() } };
        let bytes = usize::try_from(bytes).expect("the size of a state is positive");
        let mut words = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
        let state: *mut c_void = words.as_mut_ptr().cast();
        // SAFETY: `state` has at least `bytes` bytes and the alignment of a pointer.
        let initialised = unsafe {
            if high { ffi::LZ4_initStreamHC(state, bytes) } else { ffi::LZ4_initStream(state, bytes) }
        };
        assert!(!initialised.is_null(), "a state of the size and alignment that LZ4 asks for is accepted");
        Stream { words, level }
    }

    fn is_high(&self) -> bool {
        self.level >= 2
    }

    fn acceleration(&self) -> c_int {
        self.level.saturating_neg().max(1)
    }

    fn memory_bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    /// Makes a dictionary of this stream. `content` must outlive it unchanged: see [`Prepared`].
    fn load(&mut self, content: &[u8]) {
        let length = c_int::try_from(content.len()).expect("a dictionary has at most 64 KiB");
        let (source, state): (*const c_char, *mut c_void) =
            (content.as_ptr().cast(), self.words.as_mut_ptr().cast());
        // SAFETY: the state was initialised by `new`, `source` is valid for `length` bytes. The level is set before
        // the dictionary is loaded, since it decides on the shape of the tables.
        unsafe {
            if self.is_high() {
                ffi::LZ4_resetStreamHC_fast(state, self.level);
                ffi::LZ4_loadDictHC(state, source, length);
            } else {
                ffi::LZ4_loadDictSlow(state, source, length);
            }
        }
    }

    fn compress(
        &mut self,
        prepared: Option<&Prepared>,
        raw: &[u8],
        target: &mut [MaybeUninit<u8>],
    ) -> Option<usize> {
        // Rust gives nothing the address 1. LZ4's densest search subtracts from the address and would wrap around.
        let raw = if raw.is_empty() { &EMPTY[..0] } else { raw };
        let raw_bytes = c_int::try_from(raw.len()).ok()?;
        let room = c_int::try_from(target.len()).unwrap_or(c_int::MAX);
        let state: *mut c_void = self.words.as_mut_ptr().cast();
        let dictionary: Option<*const c_void> =
            prepared.map(|prepared| prepared.stream.words.as_ptr().cast());
        let (source, target) = (raw.as_ptr().cast(), target.as_mut_ptr().cast());
        // SAFETY: `new` initialised the state and only LZ4 has touched it since. Source and target are valid for the
        // lengths given with them. An attached dictionary is a stream of the same kind, loaded by `load`. It is only
        // read, and outlives the call together with its content. Every kind of reset drops every reference to the block
        // before and to its dictionary. After a failure the library resets in full by itself.
        let written = unsafe {
            match (self.is_high(), dictionary) {
                (false, None) if raw.len() >= CLEARED_FROM_BYTES => ffi::LZ4_compress_fast_extState(
                    state,
                    source,
                    target,
                    raw_bytes,
                    room,
                    self.acceleration(),
                ),
                (false, None) => ffi::LZ4_compress_fast_extState_fastReset(
                    state,
                    source,
                    target,
                    raw_bytes,
                    room,
                    self.acceleration(),
                ),
                (false, Some(dictionary)) => {
                    ffi::LZ4_resetStream_fast(state);
                    ffi::LZ4_attach_dictionary(state, dictionary);
                    ffi::LZ4_compress_fast_continue(
                        state,
                        source,
                        target,
                        raw_bytes,
                        room,
                        self.acceleration(),
                    )
                }
                (true, None) => ffi::LZ4_compress_HC_extStateHC_fastReset(
                    state, source, target, raw_bytes, room, self.level,
                ),
                (true, Some(dictionary)) => {
                    ffi::LZ4_resetStreamHC_fast(state, self.level);
                    ffi::LZ4_attach_HC_dictionary(state, dictionary);
                    ffi::LZ4_compress_HC_continue(state, source, target, raw_bytes, room)
                }
            }
        };
        // Zero means that the block does not fit: even the empty block has one byte.
        usize::try_from(written).ok().filter(|&written| written > 0)
    }
}

/// `lz4.h` and `lz4hc.h` of LZ4 1.10, which `lz4-sys` builds and links but declares in part only.
#[allow(non_snake_case)]
mod ffi {
    use lz4_sys as _;
    use std::ffi::{c_char, c_int, c_void};

    // SAFETY: these are the declarations of the headers, with `LZ4_stream_t*` and its kin as untyped pointers.
    unsafe extern "C" {
        pub(super) fn LZ4_sizeofState() -> c_int;
        pub(super) fn LZ4_initStream(state: *mut c_void, bytes: usize) -> *mut c_void;
        pub(super) fn LZ4_resetStream_fast(state: *mut c_void);
        pub(super) fn LZ4_loadDictSlow(state: *mut c_void, dictionary: *const c_char, bytes: c_int) -> c_int;
        pub(super) fn LZ4_attach_dictionary(state: *mut c_void, dictionary: *const c_void);
        pub(super) fn LZ4_compress_fast_continue(
            state: *mut c_void,
            source: *const c_char,
            target: *mut c_char,
            source_bytes: c_int,
            target_bytes: c_int,
            acceleration: c_int,
        ) -> c_int;
        pub(super) fn LZ4_compress_fast_extState(
            state: *mut c_void,
            source: *const c_char,
            target: *mut c_char,
            source_bytes: c_int,
            target_bytes: c_int,
            acceleration: c_int,
        ) -> c_int;
        pub(super) fn LZ4_compress_fast_extState_fastReset(
            state: *mut c_void,
            source: *const c_char,
            target: *mut c_char,
            source_bytes: c_int,
            target_bytes: c_int,
            acceleration: c_int,
        ) -> c_int;
        pub(super) fn LZ4_decompress_safe(
            source: *const c_char,
            target: *mut c_char,
            source_bytes: c_int,
            target_bytes: c_int,
        ) -> c_int;
        pub(super) fn LZ4_decompress_safe_usingDict(
            source: *const c_char,
            target: *mut c_char,
            source_bytes: c_int,
            target_bytes: c_int,
            dictionary: *const c_char,
            dictionary_bytes: c_int,
        ) -> c_int;

        pub(super) fn LZ4_sizeofStateHC() -> c_int;
        pub(super) fn LZ4_initStreamHC(state: *mut c_void, bytes: usize) -> *mut c_void;
        pub(super) fn LZ4_resetStreamHC_fast(state: *mut c_void, level: c_int);
        pub(super) fn LZ4_loadDictHC(state: *mut c_void, dictionary: *const c_char, bytes: c_int) -> c_int;
        pub(super) fn LZ4_attach_HC_dictionary(state: *mut c_void, dictionary: *const c_void);
        pub(super) fn LZ4_compress_HC_continue(
            state: *mut c_void,
            source: *const c_char,
            target: *mut c_char,
            source_bytes: c_int,
            target_bytes: c_int,
        ) -> c_int;
        pub(super) fn LZ4_compress_HC_extStateHC_fastReset(
            state: *mut c_void,
            source: *const c_char,
            target: *mut c_char,
            source_bytes: c_int,
            target_bytes: c_int,
            level: c_int,
        ) -> c_int;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_a_block_at_every_level() {
        for level in [-10, 1, 3, 9, 10, 11, 12] {
            let engine = Lz4::new(level, None).unwrap();
            let mut codec = engine.open().unwrap();
            let mut packed = Vec::new();
            assert_eq!(codec.compress(&[], &mut packed, 16).unwrap(), Some(1), "level {level}");
            assert_eq!(packed, [0]);
        }
    }
}
