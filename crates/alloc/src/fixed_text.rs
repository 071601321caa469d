//! Text in a buffer of fixed size, for code that must not allocate.

use core::ffi::CStr;
use core::fmt;

/// At most `BYTES - 1` bytes of text.
///
/// ```
/// use std::fmt::Write;
/// use ziptier_alloc::fixed_text::FixedText;
///
/// let mut text = FixedText::<16>::new();
/// write!(text, "/proc/{}/stat", 42).unwrap();
/// assert_eq!(text.as_c_str(), c"/proc/42/stat");
/// write!(text, " and more").unwrap();
/// assert_eq!(text.as_bytes(), b"/proc/42/stat a");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct FixedText<const BYTES: usize> {
    bytes: [u8; BYTES],
    len: usize,
}

impl<const BYTES: usize> FixedText<BYTES> {
    /// No text.
    #[allow(clippy::new_without_default, reason = "a static needs it")]
    pub const fn new() -> Self {
        FixedText { bytes: [0; BYTES], len: 0 }
    }

    /// The text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The text up to its first zero, as C has it.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or_default()
    }
}

/// Never fails: the end of a text without room is cut off.
impl<const BYTES: usize> fmt::Write for FixedText<BYTES> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = BYTES - 1 - self.len;
        let mut fits = text.len().min(room);
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        self.bytes[self.len..self.len + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.len += fits;
        Ok(())
    }
}
