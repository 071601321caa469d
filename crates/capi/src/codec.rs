//! Block codecs: one object for all threads, with an engine and contexts that wait for work.
//!
//! A call takes a context, or makes one if all are at work, and writes straight into the caller's memory. Not for
//! single small values: those are [`tokens`](crate::tokens).

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::str::FromStr;
use std::sync::Arc;

use ::ziptier_codec::block::{
    BlockError, Contexts, DeviceSource, Dictionary, Huffman, ModelOptions, Path, Setting, frame,
};
use ::ziptier_codec::format::Format;

use crate::arguments::{bytes, check_apart, object, options, own, result, room};
use crate::buffer::{ziptier_buffer, ziptier_option};
use crate::dictionary::ziptier_dictionary;
use crate::status::{Failure, ZIPTIER_DAMAGED, ZIPTIER_OK, ZIPTIER_TOO_SMALL, call, guarded, ziptier_status};

/// Compresses and decompresses blocks. One codec serves all threads.
pub struct ziptier_codec {
    contexts: Contexts,
    /// Whether each block is a frame.
    framed: bool,
    worker: CString,
}

/// The names of a codec's options.
const NAMES: [&str; 8] = ["format", "level", "huffman", "split", "engine", "path", "model", "frame"];

/// What a block became.
enum Unpacked {
    Bytes(usize),
    /// It needs so many bytes, 0 if it does not say.
    TooSmall(usize),
}

impl ziptier_codec {
    fn open(options: &[(&str, &str)], dictionary: Option<Arc<Dictionary>>) -> Result<ziptier_codec, Failure> {
        if let Some((name, _)) = options.iter().find(|(name, _)| !NAMES.contains(name)) {
            return Err(Failure::option(format_args!(
                "a codec has no option {name:?}: choose among {}",
                NAMES.join(", ")
            )));
        }
        let option = |name| options.iter().find(|(given, _)| *given == name).map(|(_, value)| (name, *value));
        let format = option("format").ok_or_else(|| {
            Failure::option("a codec needs the option format: choose one of none, token, lz4, zstd, deflate")
        })?;
        let mut setting = Setting::new(parsed(format)?);
        let of_deflate = ["huffman", "split", "model"].into_iter().find_map(option);
        if let Some((name, _)) = of_deflate.filter(|_| setting.format != Format::Deflate) {
            let format = setting.format;
            return Err(Failure::option(format_args!("format {format} has no option {name}: leave it out")));
        }
        if let Some(level) = option("level") {
            setting = setting.with_level(parsed(level)?);
        }
        if let Some(huffman) = option("huffman") {
            setting = setting.with_huffman(parsed::<Huffman>(huffman)?);
        }
        if let Some(split) = option("split") {
            setting = setting.with_split(parsed(split)?);
        }
        if let Some(path) = option("path") {
            setting = setting.with_path(parsed::<Path>(path)?);
        }
        if let Some(model) = option("model") {
            setting = setting.with_device(DeviceSource::Modelled(parsed::<ModelOptions>(model)?));
        }
        setting.dictionary = dictionary;
        let framed = match option("frame") {
            None | Some((_, "no")) => false,
            Some((_, "yes")) => true,
            Some((_, other)) => {
                return Err(Failure::option(format_args!("option frame is {other:?}: choose yes or no")));
            }
        };
        let engine = match option("engine") {
            Some((_, name)) => setting.engine_named(name)?,
            None => setting.engine_of_machine()?,
        };
        let worker = CString::new(engine.worker()).unwrap_or_default();
        Ok(ziptier_codec { contexts: Contexts::new(engine), framed, worker })
    }

    fn format(&self) -> Format {
        self.contexts.engine().format()
    }

    fn bound(&self, raw_bytes: usize) -> usize {
        match self.framed {
            true => raw_bytes.saturating_add(frame::HEADER_BYTES),
            false => self.contexts.engine().bound(raw_bytes),
        }
    }

    /// The length of the packed block, if it fits.
    fn pack(&self, raw: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, Failure> {
        let too_long = || {
            let (format, length) = (self.format(), raw.len());
            Failure::argument(format_args!(
                "a block of {length} bytes is too long for format {format}: cut it"
            ))
        };
        if self.framed && raw.len() > frame::RAW_BYTES_MAX {
            return Err(too_long());
        }
        let room = target.len();
        let packed = match self.framed {
            true => self.contexts.with(|codec| {
                Ok(frame::pack_into(codec, self.format(), raw, target)?.map(|packed| packed.len()))
            }),
            false => {
                self.contexts.with(|codec| Ok(codec.compress_into(raw, target)?.map(|packed| packed.len())))
            }
        };
        match packed? {
            None if room >= self.bound(raw.len()) => Err(too_long()),
            packed => Ok(packed),
        }
    }

    /// Unpacks a block of at most as many bytes as the target has.
    fn unpack(&self, packed: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Unpacked, Failure> {
        if !self.framed {
            let unpacked =
                self.contexts.with(|codec| Ok(codec.decompress_up_to(packed, target)?.map(|raw| raw.len())));
            return Ok(unpacked?.map_or(Unpacked::TooSmall(0), Unpacked::Bytes));
        }
        let unpacked = self
            .contexts
            .with(|codec| frame::unpack_into(codec, self.format(), packed, target).map(|raw| raw.len()));
        match unpacked {
            Err(BlockError::TooLong { raw_bytes, .. }) => Ok(Unpacked::TooSmall(raw_bytes)),
            unpacked => Ok(Unpacked::Bytes(unpacked?)),
        }
    }

    /// Unpacks a block of exactly as many bytes as the target has.
    fn unpack_exact(&self, packed: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<(), Failure> {
        if !self.framed {
            return Ok(self.contexts.with(|codec| codec.decompress_into(packed, target).map(drop))?);
        }
        let expected = target.len();
        match self.unpack(packed, target)? {
            Unpacked::Bytes(found) if found == expected => Ok(()),
            Unpacked::Bytes(found) | Unpacked::TooSmall(found) => {
                let what =
                    format_args!("cannot unpack block: it has {found} bytes, {expected} were expected");
                Err(Failure::new(ZIPTIER_DAMAGED, what))
            }
        }
    }
}

/// The value of an option.
pub(crate) fn parsed<T: FromStr<Err: std::fmt::Display>>((name, value): (&str, &str)) -> Result<T, Failure> {
    value.parse().map_err(|error| Failure::option(format_args!("option {name} is {value:?}: {error}")))
}

/// Opens a codec for the options and, unless it is null, with the dictionary. The page docs/c.md lists the options:
/// format (none, token, lz4, zstd, deflate), level, huffman, split, engine, path, model, frame. Format token needs a
/// dictionary.
///
/// With "frame" = "yes" a block begins with its format, length and checksum. Then damage and a wrong dictionary are
/// always found, and no block grows by more than 9 bytes. Without, a block is the plain format.
///
/// Ownership: the caller closes the codec with ziptier_codec_close. The codec keeps a share of the dictionary, so the
/// caller may free its own.
/// Threads: any.
/// Errors: INVALID_OPTION, INVALID_ARGUMENT; UNAVAILABLE if the engine or a device is missing. *codec is null then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_codec_open(
    options: *const ziptier_option,
    options_len: usize,
    dictionary: *const ziptier_dictionary,
    codec: *mut *mut ziptier_codec,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (opened, options, dictionary) = unsafe {
            let opened = result("codec", codec, std::ptr::null_mut())?;
            (opened, self::options(options, options_len)?, dictionary.as_ref())
        };
        let dictionary = dictionary.map(ziptier_dictionary::share);
        *opened = Box::into_raw(Box::new(ziptier_codec::open(&options, dictionary)?));
        Ok(ZIPTIER_OK)
    })
}

/// Closes a codec and frees its contexts.
///
/// Ownership: the codec is gone after the call. Null is allowed.
/// Threads: no other call may use the codec any more.
/// Errors: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_codec_close(codec: *mut ziptier_codec) {
    let _ = guarded(|| {
        if !codec.is_null() {
            // SAFETY: `ziptier_codec_open` made the box, and the caller gives it back.
            drop(unsafe { Box::from_raw(codec) });
        }
        Ok(())
    });
}

/// Who does the work: "cpu", "software", "hardware", or "modelled" for a model of a device in software.
///
/// Ownership: the string lasts as long as the codec.
/// Threads: any.
/// Errors: null if the codec is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_codec_worker(codec: *const ziptier_codec) -> *const c_char {
    // SAFETY: the caller's promise.
    let worker = guarded(|| Ok(unsafe { object("codec", codec)? }.worker.as_ptr()));
    worker.unwrap_or(std::ptr::null())
}

/// The counters of a codec as text, one "name value" to a line: calls, bytes, nanoseconds, fallbacks from a device to
/// the CPU, faults. It begins with format, engine and worker. Later versions may add lines.
///
/// Ownership: the caller frees the buffer with ziptier_buffer_free.
/// Threads: any; the buffer belongs to one call at a time.
/// Errors: INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_codec_counters(
    codec: *const ziptier_codec,
    text: *mut ziptier_buffer,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (codec, text) = unsafe { (object("codec", codec)?, own("text", text)?) };
        let engine = codec.contexts.engine();
        // A snapshot prints as `name=value name=value`.
        let counters = engine.counters().snapshot().to_string().replace(' ', "\n").replace('=', " ");
        let (format, name, worker) = (engine.format(), engine.name(), engine.worker());
        let lines = format!("format {format}\nengine {name}\nworker {worker}\n{counters}\n");
        // SAFETY: the caller's promise.
        unsafe { text.fill(|text| text.extend_from_slice(lines.as_bytes())) };
        Ok(ZIPTIER_OK)
    })
}

/// The most bytes that ziptier_compress makes of raw_len bytes. With such a capacity every block fits.
///
/// Ownership: nothing changes hands.
/// Threads: any.
/// Errors: 0 if the codec is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_compress_bound(codec: *const ziptier_codec, raw_len: usize) -> usize {
    // SAFETY: the caller's promise.
    guarded(|| Ok(unsafe { object("codec", codec)? }.bound(raw_len))).unwrap_or(0)
}

/// Compresses the block raw into packed, and sets *packed_len to the bytes written.
///
/// TOO_SMALL says that the block does not fit, or fills all but the last 16 bytes of the capacity; store it raw then,
/// or give ziptier_compress_bound bytes. The contents of packed are undefined then.
///
/// Ownership: all memory stays the caller's, and none is used after the call. raw and packed must not overlap.
/// Threads: any number at once. The first call of a thread that meets no free context allocates one.
/// Errors: TOO_SMALL, INVALID_ARGUMENT; UNAVAILABLE if a device fails on path hardware. *packed_len is 0 then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_compress(
    codec: *const ziptier_codec,
    raw: *const c_void,
    raw_len: usize,
    packed: *mut c_void,
    packed_capacity: usize,
    packed_len: *mut usize,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (length, codec, raw, target) = unsafe {
            let length = result("packed_len", packed_len, 0)?;
            let target = room("packed", packed.cast(), packed_capacity)?;
            (length, object("codec", codec)?, bytes("raw", raw, raw_len)?, target)
        };
        check_apart(raw, target)?;
        match codec.pack(raw, target)? {
            Some(packed) => *length = packed,
            None => return Ok(ZIPTIER_TOO_SMALL),
        }
        Ok(ZIPTIER_OK)
    })
}

/// Decompresses a block whose length the caller does not know, and sets *raw_len to its length.
///
/// TOO_SMALL says that the block has more bytes than the capacity. *raw_len is the capacity that it needs if the block
/// says so, as blocks with "frame" do, and 0 otherwise. Prefer ziptier_decompress_exact where the length is known:
/// without a frame, damage can make a block shorter, and only the length reveals that.
///
/// Ownership: all memory stays the caller's, and none is used after the call. packed and raw must not overlap.
/// Threads: any number at once.
/// Errors: TOO_SMALL, DAMAGED, INVALID_ARGUMENT; UNAVAILABLE on path hardware if a device fails, or if the engine must
/// know the length. The contents of raw are undefined then, also within the capacity.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_decompress(
    codec: *const ziptier_codec,
    packed: *const c_void,
    packed_len: usize,
    raw: *mut c_void,
    raw_capacity: usize,
    raw_len: *mut usize,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (length, codec, packed, target) = unsafe {
            let length = result("raw_len", raw_len, 0)?;
            let target = room("raw", raw.cast(), raw_capacity)?;
            (length, object("codec", codec)?, bytes("packed", packed, packed_len)?, target)
        };
        check_apart(packed, target)?;
        let (unpacked, status) = match codec.unpack(packed, target)? {
            Unpacked::Bytes(length) => (length, ZIPTIER_OK),
            Unpacked::TooSmall(needed) => (needed, ZIPTIER_TOO_SMALL),
        };
        *length = unpacked;
        Ok(status)
    })
}

/// Decompresses a block of exactly raw_len bytes. A block of another length is damaged.
///
/// Ownership: all memory stays the caller's, and none is used after the call. packed and raw must not overlap.
/// Threads: any number at once.
/// Errors: DAMAGED, INVALID_ARGUMENT; UNAVAILABLE on path hardware if a device fails. The contents of raw are undefined
/// then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_decompress_exact(
    codec: *const ziptier_codec,
    packed: *const c_void,
    packed_len: usize,
    raw: *mut c_void,
    raw_len: usize,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (codec, packed, target) = unsafe {
            let target = room("raw", raw.cast(), raw_len)?;
            (object("codec", codec)?, bytes("packed", packed, packed_len)?, target)
        };
        check_apart(packed, target)?;
        codec.unpack_exact(packed, target)?;
        Ok(ZIPTIER_OK)
    })
}
