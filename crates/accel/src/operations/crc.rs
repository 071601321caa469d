//! Descriptors of CRC64.

use super::{FLAGS, Sizes, descriptor};
use crate::descriptor::{Descriptor, Opcode, crc, operation};
use crate::jobs::Addresses;

/// The parameters of a CRC64, or of a narrower CRC whose polynomial is aligned to the left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crc64 {
    /// The polynomial without its highest term, highest bit first.
    pub polynomial: u64,
    /// Whether the register begins and ends inverted.
    pub invert: bool,
    /// Whether the bits of a byte are taken from the high end.
    pub big_endian: bool,
}

impl Crc64 {
    pub(super) fn descriptor(self, at: Addresses, sizes: Sizes) -> Descriptor {
        let mut job = descriptor(Opcode::Crc64, FLAGS & !operation::CACHE_CONTROL, at, sizes);
        job.set_destination(0).set_destination_bytes_max(0);
        let invert = if self.invert { crc::INVERT } else { 0 };
        let big_endian = if self.big_endian { crc::BIG_ENDIAN } else { 0 };
        job.set_kind_flags(invert | big_endian).set_polynomial(self.polynomial);
        job
    }
}
