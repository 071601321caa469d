//! The version of the header, as constants, and the version of the library that is loaded.

use std::ffi::{CStr, c_char};

/// The major version of this header. The library's soname has the same number.
pub const ZIPTIER_VERSION_MAJOR: u32 = 0;
/// The minor version of this header. A version with more functions has a greater one.
pub const ZIPTIER_VERSION_MINOR: u32 = 2;
/// The patch version of this header.
pub const ZIPTIER_VERSION_PATCH: u32 = 0;

const LOADED: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero byte"),
};

/// The version of the library that is loaded, such as "0.2.0".
///
/// Ownership: the string is the library's, and constant.
/// Threads: any.
/// Errors: none.
#[unsafe(no_mangle)]
pub extern "C" fn ziptier_version() -> *const c_char {
    LOADED.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_constants_are_the_version_of_the_package() {
        let constants = format!("{ZIPTIER_VERSION_MAJOR}.{ZIPTIER_VERSION_MINOR}.{ZIPTIER_VERSION_PATCH}");
        assert_eq!(constants, env!("CARGO_PKG_VERSION"));
    }
}
