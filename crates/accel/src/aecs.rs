//! Engine state (AECS, "analytics engine configuration and state"): the data that a job needs beyond its descriptor.
//!
//! The state lies at the descriptor's source 2, aligned to 32 bytes. Software fills it with codes, history or
//! parameters. The device may write it back, so that the next job continues where this one stopped. Jobs that both read
//! and write states use an adjacent pair, `[CompressState; 2]` or `[DecompressState; 2]`.
//! [`STATE_TOGGLE`](crate::descriptor::operation::STATE_TOGGLE) selects the half that is read.
//!
//! | state | bytes | for |
//! |---|---|---|
//! | [`CompressState`] | 0x620 | compress: Huffman codes, bits to begin the output with |
//! | [`Histogram`] | 0x500 | what compress writes when it only counts symbols |
//! | [`DecompressState`] | 0x1500 | decompress, and filters of compressed input: parser, codes, history |
//! | [`FilterState`] | 0x20 | filters of uncompressed input: their parameters |
//!
//! Offsets are those of Linux's `iaa_crypto` driver and of Intel's QPL library. Some fields of the decompressor are
//! known only by name. If this code had to choose a place or a meaning, the documentation says *chosen here*, and only
//! the model is sure to understand the field. A device can write those fields itself. Let it parse a block's header
//! once, with [`SUPPRESS_OUTPUT`](crate::descriptor::decompress::SUPPRESS_OUTPUT), and keep the written state.

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

/// The common methods of states: all bytes are 0 at first, and the device sees a state as bytes.
macro_rules! state {
    ($name:ident, $bytes:literal, $align:literal) => {
        const _: () = assert!(size_of::<$name>() == $bytes && align_of::<$name>() == $align);

        impl $name {
            /// Its size.
            pub const BYTES: usize = $bytes;

            /// A state from any bytes, as a device sees it.
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
