//! Engine state (AECS, "analytics engine configuration and state"): what a job needs beyond its descriptor.
//!
//! It lies at the descriptor's source 2, aligned to 32 bytes. Software fills it with codes, history or parameters; the
//! device may write it back, so that the next job goes on where this one stopped. Jobs that both read and write states
//! take them from a pair that lies back to back, `[CompressState; 2]` or `[DecompressState; 2]`, and
//! [`STATE_TOGGLE`](crate::descriptor::operation::STATE_TOGGLE) says which half is read.
//!
//! | state | bytes | for |
//! |---|---|---|
//! | [`CompressState`] | 0x620 | compress: Huffman codes, bits to begin the output with |
//! | [`Histogram`] | 0x500 | what compress writes when it only counts symbols |
//! | [`DecompressState`] | 0x1500 | decompress, and filters of compressed input: parser, codes, history |
//! | [`FilterState`] | 0x20 | filters of uncompressed input: their parameters |
//!
//! Offsets are those of Linux's `iaa_crypto` driver and of Intel's QPL library. Some fields of the decompressor are
//! known only by name; where one had to be given a place or a meaning, its documentation says *chosen here*, and only
//! the model is sure to understand it. The way that does not depend on them is to let the device parse a block's header
//! once, with [`SUPPRESS_OUTPUT`](crate::descriptor::decompress::SUPPRESS_OUTPUT), and to keep the state that it
//! writes.

mod code;
mod compress;
mod decompress;
mod packed;

pub use code::{
    BITS_MAX, CodeLengthError, DISTANCES, LITERALS, fixed_distance_lengths, fixed_literal_lengths,
};
pub use compress::{CompressState, Histogram};
pub use decompress::{DecompressState, FilterState, HISTORY_BYTES, Parser};

pub(crate) use code::words_of;

/// What every state has: all bytes 0 at first, seen as bytes by the device.
macro_rules! state {
    ($name:ident, $bytes:literal, $align:literal) => {
        const _: () = assert!(size_of::<$name>() == $bytes && align_of::<$name>() == $align);

        impl $name {
            /// Its size.
            pub const BYTES: usize = $bytes;

            /// A state of any bytes, as a device meets it.
            pub fn from_bytes(bytes: [u8; $bytes]) -> $name {
                $name(bytes)
            }

            /// The bytes that the device reads.
            pub fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }

            /// The bytes that the device writes.
            pub fn as_mut_bytes(&mut self) -> &mut [u8; $bytes] {
                &mut self.0
            }

            #[allow(dead_code)]
            fn dword(&self, at: usize) -> u32 {
                let mut bytes = [0; 4];
                bytes.copy_from_slice(&self.0[at..at + 4]);
                u32::from_le_bytes(bytes)
            }

            #[allow(dead_code)]
            fn set_dword(&mut self, at: usize, value: u32) {
                self.0[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use state;
