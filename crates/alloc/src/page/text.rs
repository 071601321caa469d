//! Text in a shared page: words of eight bytes.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

/// At most `8 * WORDS` bytes of text, filled up with zeros.
#[derive(Debug)]
#[repr(C)]
pub struct Text<const WORDS: usize> {
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Text<WORDS> {
    /// No text.
    #[allow(clippy::new_without_default, reason = "a static needs it")]
    pub const fn new() -> Self {
        Text { words: [const { AtomicU64::new(0) }; WORDS] }
    }

    /// Stores a text, or the beginning of it that has room.
    pub fn set(&self, text: &[u8]) {
        let mut rest = text;
        for word in &self.words {
            let (now, later) = rest.split_at(rest.len().min(8));
            let mut bytes = [0; 8];
            bytes[..now.len()].copy_from_slice(now);
            word.store(u64::from_le_bytes(bytes), Relaxed);
            rest = later;
        }
    }

    /// Copies the text into `buffer`, and returns the part of it before the first zero.
    pub fn get<'a>(&self, buffer: &'a mut [[u8; 8]; WORDS]) -> &'a [u8] {
        for (bytes, word) in buffer.iter_mut().zip(&self.words) {
            *bytes = word.load(Relaxed).to_le_bytes();
        }
        let bytes = buffer.as_flattened();
        let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        &bytes[..len]
    }
}
