//! Dictionaries of blocks: trained on samples, stored, loaded, and shared by codecs.

use std::ffi::{c_char, c_void};
use std::ptr;
use std::sync::Arc;

use ziptier_codec::block::Dictionary;
use ziptier_codec::format::Format;

use crate::arguments::{bytes, object, own, result, slices, text};
use crate::buffer::{ziptier_buffer, ziptier_slice};
use crate::status::{Failure, ZIPTIER_OK, call, guarded, ziptier_status};

/// Bytes that blocks of one format share. A block can only be read with the dictionary that it was made with.
pub struct ziptier_dictionary(Arc<Dictionary>);

impl ziptier_dictionary {
    pub(crate) fn share(&self) -> Arc<Dictionary> {
        Arc::clone(&self.0)
    }

    fn into_raw(dictionary: Dictionary) -> *mut ziptier_dictionary {
        Box::into_raw(Box::new(ziptier_dictionary(Arc::new(dictionary))))
    }
}

/// Trains a dictionary of at most max_bytes for blocks of a format (token, lz4, zstd, deflate). The samples should look
/// like the blocks to come, and have 20 to 100 times max_bytes together. generation is the caller's number for it.
///
/// Ownership: the caller frees the dictionary with ziptier_dictionary_free.
/// Threads: any. A training takes 20 to 90 ms for each MiB of samples.
/// Errors: INVALID_ARGUMENT, also for samples that have nothing in common. *dictionary is null then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_dictionary_train(
    format: *const c_char,
    samples: *const ziptier_slice,
    samples_len: usize,
    max_bytes: usize,
    generation: u32,
    dictionary: *mut *mut ziptier_dictionary,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (trained, format, samples) = unsafe {
            let trained = result("dictionary", dictionary, ptr::null_mut())?;
            (trained, text("format", format)?, slices("samples", samples, samples_len)?)
        };
        let format = format.parse::<Format>().map_err(Failure::argument)?;
        *trained = ziptier_dictionary::into_raw(Dictionary::train(format, &samples, max_bytes, generation)?);
        Ok(ZIPTIER_OK)
    })
}

/// Loads a dictionary from the bytes that ziptier_dictionary_save gave. Any bytes may be passed.
///
/// Ownership: the caller frees the dictionary with ziptier_dictionary_free. The bytes are copied.
/// Threads: any.
/// Errors: DAMAGED, INVALID_ARGUMENT. *dictionary is null then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_dictionary_load(
    saved: *const c_void,
    saved_len: usize,
    dictionary: *mut *mut ziptier_dictionary,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (loaded, saved) = unsafe {
            let loaded = result("dictionary", dictionary, ptr::null_mut())?;
            (loaded, bytes("saved", saved, saved_len)?)
        };
        *loaded = ziptier_dictionary::into_raw(Dictionary::from_bytes(saved)?);
        Ok(ZIPTIER_OK)
    })
}

/// Gives a dictionary as bytes with a checksum, to be stored.
///
/// Ownership: the caller frees the buffer with ziptier_buffer_free.
/// Threads: any; the buffer belongs to one call at a time.
/// Errors: INVALID_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_dictionary_save(
    dictionary: *const ziptier_dictionary,
    saved: *mut ziptier_buffer,
) -> ziptier_status {
    call(|| {
        // SAFETY: the caller's promise.
        let (dictionary, saved) = unsafe { (object("dictionary", dictionary)?, own("saved", saved)?) };
        let stored = dictionary.0.to_bytes();
        // SAFETY: the caller's promise.
        unsafe { saved.fill(|saved| saved.extend_from_slice(&stored)) };
        Ok(ZIPTIER_OK)
    })
}

/// Frees the caller's share of a dictionary. Codecs that use it keep theirs.
///
/// Ownership: the dictionary is gone for the caller after the call. Null is allowed.
/// Threads: no other call may use this pointer any more.
/// Errors: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ziptier_dictionary_free(dictionary: *mut ziptier_dictionary) {
    let _ = guarded(|| {
        if !dictionary.is_null() {
            // SAFETY: this library made the box, and the caller gives it back.
            drop(unsafe { Box::from_raw(dictionary) });
        }
        Ok(())
    });
}
