//! Single values by tokens: each is read without its neighbours.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

use ziptier_codec::token::{CHECK_BYTES, DecodeError, Dictionary, Encoder};

use crate::arguments::{bytes, check_apart, items, object, own, result, room, slices};
use crate::buffer::{ziptier_buffer, ziptier_slice};
use crate::pool::{Pool, Scratch};
use crate::status::{Failure, ZIPTIER_OK, ZIPTIER_TOO_SMALL, call, guarded, ziptier_status};

/// A token dictionary, ready to encode and decode values. One serves all threads.
pub struct ziptier_tokens {
    dictionary: Dictionary,
    encoders: Pool<Encoding>,
}

/// What a call needs to encode.
#[derive(Default)]
struct Encoding {
    encoder: Encoder,
    coded: Vec<u8>,
    ends: Vec<u32>,
}

impl Scratch for Encoding {
    fn memory_bytes(&self) -> usize {
        self.encoder.memory_bytes() + self.coded.capacity() + self.ends.capacity() * size_of::<u32>()
    }
}

impl ziptier_tokens {
    fn into_raw(dictionary: Dictionary) -> *mut ziptier_tokens {
        Box::into_raw(Box::new(ziptier_tokens { dictionary, encoders: Pool::default() }))
    }

    /// The most bytes of a coded value: a token for each byte, and the check.
    fn bound(&self, value_bytes: usize) -> usize {
        let bits = value_bytes.saturating_mul(self.dictionary.bits() as usize);
        bits.div_ceil(8).saturating_add(CHECK_BYTES)
    }

    /// Encodes values one after the other. Sets `length` to the bytes of all, and the ends of each, if there is room
    /// for them.
    fn encode(
        &self,
        values: &[&[u8]],
        target: &mut [MaybeUninit<u8>],
        length: &mut usize,
        ends: &mut [MaybeUninit<usize>],
    ) -> Result<ziptier_status, Failure> {
        let most = values.iter().fold(0usize, |sum, value| sum.saturating_add(self.bound(value.len())));
        if u32::try_from(most).is_err() {
            let what =
                format_args!("the values could take {most} bytes, more than 4 GiB; encode fewer at once");
            return Err(Failure::argument(what));
        }
        self.encoders.with(|Encoding { encoder, coded, ends: coded_ends }| {
            coded.clear();
            coded_ends.clear();
            self.dictionary.encode_group(encoder, values, coded, coded_ends);
            *length = coded.len();
            let Some(target) = target.get_mut(..coded.len()) else { return Ok(ZIPTIER_TOO_SMALL) };
            target.write_copy_of_slice(coded);
            for (end, coded_end) in ends.iter_mut().zip(coded_ends) {
                end.write(*coded_end as usize);
            }
            Ok(ZIPTIER_OK)
        })
    }
}

/// Trains tokens of bits bits (10 to 16; 12 is usual for small values) on samples, which should look like the values
/// to come. 1 to 4 MB of them are plenty. generation is the caller's number for it.
///
/// Ownership: the caller frees the tokens with ziptier_tokens_free.
/// Threads: any. A training takes 60 to 200 ms for each MB of samples.
/// Errors: INVALID_ARGUMENT. *tokens is null then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_tokens_train(
    samples: *const ziptier_slice,
    samples_len: usize,
    bits: u32,
    generation: u32,
    tokens: *mut *mut ziptier_tokens,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (trained, samples) = unsafe {
            let trained = result("tokens", tokens, ptr::null_mut())?;
            (trained, slices("samples", samples, samples_len)?)
        };
        *trained = ziptier_tokens::into_raw(Dictionary::train(&samples, bits, generation)?);
        Ok(ZIPTIER_OK)
    })
}

/// Loads tokens from the bytes that ziptier_tokens_save gave. Any bytes may be passed.
///
/// Ownership: the caller frees the tokens with ziptier_tokens_free. The bytes are copied.
/// Threads: any.
/// Errors: DAMAGED, INVALID_ARGUMENT. *tokens is null then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_tokens_load(
    saved: *const c_void,
    saved_len: usize,
    tokens: *mut *mut ziptier_tokens,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (loaded, saved) =
            unsafe { (result("tokens", tokens, ptr::null_mut())?, bytes("saved", saved, saved_len)?) };
        *loaded = ziptier_tokens::into_raw(Dictionary::from_bytes(saved)?);
        Ok(ZIPTIER_OK)
    })
}

/// Gives tokens as bytes with a checksum, to be stored.
///
/// Ownership: the caller frees the buffer with ziptier_buffer_free.
/// Threads: any; the buffer belongs to one call at a time.
/// Errors: INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_tokens_save(
    tokens: *const ziptier_tokens,
    saved: *mut ziptier_buffer,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (tokens, saved) = unsafe { (object("tokens", tokens)?, own("saved", saved)?) };
        let stored = tokens.dictionary.to_bytes();
        // SAFETY: the caller's promise.
        unsafe { saved.fill(|saved| saved.extend_from_slice(&stored)) };
        Ok(ZIPTIER_OK)
    })
}

/// Frees tokens.
///
/// Ownership: the tokens are gone after the call. Null is allowed.
/// Threads: no other call may use the tokens any more.
/// Errors: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_tokens_free(tokens: *mut ziptier_tokens) {
    let _ = guarded(|| {
        if !tokens.is_null() {
            // SAFETY: this library made the box, and the caller gives it back.
            drop(unsafe { Box::from_raw(tokens) });
        }
        Ok(())
    });
}

/// The most bytes that ziptier_tokens_encode makes of a value of value_len bytes.
///
/// Ownership: nothing changes hands.
/// Threads: any.
/// Errors: 0 if the tokens are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_tokens_bound(tokens: *const ziptier_tokens, value_len: usize) -> usize {
    // SAFETY: the caller's promise.
    guarded(|| Ok(unsafe { object("tokens", tokens)? }.bound(value_len))).unwrap_or(0)
}

/// Encodes a value, and sets *coded_len to the bytes that it takes. Values that repeat nothing grow, to twice their
/// length and two bytes at most: compare the lengths, and keep such a value as it is.
///
/// Ownership: all memory stays the caller's, and none is used after the call. value and coded must not overlap.
/// Threads: any number at once.
/// Errors: TOO_SMALL, where *coded_len is the capacity needed; INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_tokens_encode(
    tokens: *const ziptier_tokens,
    value: *const c_void,
    value_len: usize,
    coded: *mut c_void,
    coded_capacity: usize,
    coded_len: *mut usize,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (length, tokens, value, target) = unsafe {
            let length = result("coded_len", coded_len, 0)?;
            let target = room("coded", coded.cast(), coded_capacity)?;
            (length, object("tokens", tokens)?, bytes("value", value, value_len)?, target)
        };
        check_apart(value, target)?;
        tokens.encode(&[value], target, length, &mut [])
    })
}

/// Decodes a value, and sets *value_len to its length. All bytes within the capacity may change, also after an error.
/// It is fastest with a capacity of 16 bytes for each token.
///
/// Ownership: all memory stays the caller's, and none is used after the call. coded and value must not overlap.
/// Threads: any number at once.
/// Errors: TOO_SMALL, where *value_len is the capacity needed; DAMAGED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_tokens_decode(
    tokens: *const ziptier_tokens,
    coded: *const c_void,
    coded_len: usize,
    value: *mut c_void,
    value_capacity: usize,
    value_len: *mut usize,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (length, tokens, coded, target) = unsafe {
            let length = result("value_len", value_len, 0)?;
            let target = room("value", value.cast(), value_capacity)?;
            (length, object("tokens", tokens)?, bytes("coded", coded, coded_len)?, target)
        };
        check_apart(coded, target)?;
        match tokens.dictionary.decode_into(coded, target) {
            Ok(value) => *length = value.len(),
            Err(DecodeError::TooLong { raw_bytes, .. }) => {
                *length = raw_bytes;
                return Ok(ZIPTIER_TOO_SMALL);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(ZIPTIER_OK)
    })
}

/// Encodes several values, as ziptier_tokens_encode does each, without gaps. ends gets the end of each in coded, and
/// *coded_len the bytes of all.
///
/// Ownership: all memory stays the caller's; ends has room for values_len numbers. values and coded must not overlap.
/// Threads: any number at once.
/// Errors: TOO_SMALL, where *coded_len is the capacity needed and ends is undefined; INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_tokens_encode_group(
    tokens: *const ziptier_tokens,
    values: *const ziptier_slice,
    values_len: usize,
    coded: *mut c_void,
    coded_capacity: usize,
    coded_len: *mut usize,
    ends: *mut usize,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (length, tokens, values, target, ends) = unsafe {
            let length = result("coded_len", coded_len, 0)?;
            let (target, ends) =
                (room("coded", coded.cast(), coded_capacity)?, room("ends", ends, values_len)?);
            (length, object("tokens", tokens)?, slices("values", values, values_len)?, target, ends)
        };
        values.iter().try_for_each(|value| check_apart(value, target))?;
        tokens.encode(&values, target, length, ends)
    })
}

/// Decodes what ziptier_tokens_encode_group gave, without gaps. value_ends gets the end of each value in values, and
/// *values_len the bytes of all.
///
/// Ownership: all memory stays the caller's; value_ends has room for count numbers. coded and values must not overlap,
/// nor must ends and value_ends.
/// Threads: any number at once.
/// Errors: TOO_SMALL, where *values_len is the capacity needed and value_ends is undefined; DAMAGED, INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_tokens_decode_group(
    tokens: *const ziptier_tokens,
    coded: *const c_void,
    coded_len: usize,
    ends: *const usize,
    count: usize,
    values: *mut c_void,
    values_capacity: usize,
    values_len: *mut usize,
    value_ends: *mut usize,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (length, tokens, coded, ends) = unsafe {
            let length = result("values_len", values_len, 0)?;
            let (coded, ends) = (bytes("coded", coded, coded_len)?, items("ends", ends, count)?);
            (length, object("tokens", tokens)?, coded, ends)
        };
        // SAFETY: the caller's promise.
        let (target, value_ends) = unsafe {
            (room("values", values.cast(), values_capacity)?, room("value_ends", value_ends, count)?)
        };
        check_apart(coded, target)?;
        check_apart(ends, value_ends)?;
        let dictionary = &tokens.dictionary;
        let (mut start, mut needed) = (0, 0);
        for (end, value_end) in ends.iter().zip(value_ends) {
            let value = coded.get(start..*end).ok_or_else(|| {
                Failure::argument(format_args!(
                    "argument ends has {end} after {start} in {coded_len} coded bytes; pass the ends of the encoder"
                ))
            })?;
            start = *end;
            needed += match dictionary.decode_into(value, target.get_mut(needed..).unwrap_or_default()) {
                Ok(value) => value.len(),
                Err(DecodeError::TooLong { raw_bytes, .. }) => raw_bytes,
                Err(error) => return Err(error.into()),
            };
            value_end.write(needed);
        }
        *length = needed;
        Ok(if needed <= values_capacity { ZIPTIER_OK } else { ZIPTIER_TOO_SMALL })
    })
}
