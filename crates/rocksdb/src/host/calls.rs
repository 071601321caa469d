//! Calls across the border: errors and strings that RocksDB allocated, and objects that it made.

use std::ffi::{CStr, CString, c_char};
use std::ptr::NonNull;

use super::Error;
use super::functions::Functions;

/// Calls a function that leaves an error in its last argument.
macro_rules! checked {
    ($functions:expr, $action:literal, $function:ident($($argument:expr),*)) => {{
        let mut status: *mut std::ffi::c_char = std::ptr::null_mut();
        // SAFETY: every object is alive and was made by this library, and all addresses come with their lengths.
        let result = unsafe { ($functions.$function)($($argument,)* &raw mut status) };
        $crate::host::calls::take_error($functions, $action, status).map(|()| result)
    }};
}

/// Makes an error of what a function left, and frees it.
pub(super) fn take_error(
    functions: &Functions,
    action: &'static str,
    status: *mut c_char,
) -> Result<(), Error> {
    match taken(functions, status) {
        None => Ok(()),
        Some(status) => Err(Error::Status { action, status }),
    }
}

/// A string that RocksDB allocated; nothing if there is none.
pub(super) fn taken(functions: &Functions, text: *mut c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: it is a string of the library's, ended by a zero, and ours to free; nobody has it afterwards.
    let owned = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: as above.
    unsafe { (functions.free)(text.cast()) };
    Some(owned)
}

pub(super) fn c_string(text: impl Into<Vec<u8>>) -> Result<CString, Error> {
    CString::new(text)
        .map_err(|error| Error::ZeroByte { text: String::from_utf8_lossy(&error.into_vec()).into_owned() })
}

pub(super) fn made<T>(object: *mut T) -> NonNull<T> {
    NonNull::new(object).expect("RocksDB allocates or ends the process")
}

pub(super) use checked;
