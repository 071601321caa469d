//! The descriptor: 64 little-endian bytes with one command for the device.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | process address space (0 from user space), privilege in bit 31 |
//! | 4 | 4 | operation flags in bits 0-23, opcode in bits 24-31 |
//! | 8 | 8 | address of the completion record, a multiple of 64 |
//! | 16 | 8 | address of source 1 |
//! | 24 | 8 | address of the destination |
//! | 32 | 4 | bytes of source 1 |
//! | 36 | 2 | interrupt handle, 0 |
//! | 38 | 2 | [compression](compress), [decompression](decompress) or [CRC](crc) flags |
//! | 40 | 8 | address of source 2: engine state or a second input |
//! | 48 | 4 | the most bytes of the destination |
//! | 52 | 4 | bytes of source 2 |
//! | 56 | 4 | [filter flags](filter), [second compression flags](compress2), or the low half of a polynomial |
//! | 60 | 4 | input elements, or the high half of a polynomial |
//!
//! Source: Intel's programming interface as it stands in the Linux header `linux/idxd.h` and the sources of its QPL
//! library.

use std::fmt;

/// The operation of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the interface's own")]
pub enum Opcode {
    Noop = 0x00,
    Drain = 0x02,
    MemMove = 0x03,
    Decompress = 0x42,
    Compress = 0x43,
    Crc64 = 0x44,
    ZeroDecompress32 = 0x48,
    ZeroDecompress16 = 0x49,
    ZeroCompress32 = 0x4C,
    ZeroCompress16 = 0x4D,
    Scan = 0x50,
    SetMembership = 0x51,
    Extract = 0x52,
    Select = 0x53,
    RleBurst = 0x54,
    FindUnique = 0x55,
    Expand = 0x56,
}

impl Opcode {
    /// Every opcode.
    pub const ALL: [Opcode; 17] = {
        use Opcode::*;
        [
            Noop,
            Drain,
            MemMove,
            Decompress,
            Compress,
            Crc64,
            ZeroDecompress32,
            ZeroDecompress16,
            ZeroCompress32,
            ZeroCompress16,
            Scan,
            SetMembership,
            Extract,
            Select,
            RleBurst,
            FindUnique,
            Expand,
        ]
    };

    /// The opcode of that number, if there is one.
    pub fn of(number: u8) -> Option<Opcode> {
        Opcode::ALL.into_iter().find(|&opcode| opcode as u8 == number)
    }
}

/// Operation flags: bits of the 24 at offset 4.
pub mod operation {
    /// Wait for all earlier descriptors of this queue.
    pub const FENCE: u32 = 0x1;
    /// The device waits while the kernel brings in a missing page.
    pub const BLOCK_ON_FAULT: u32 = 0x2;
    /// The address of the completion record is valid.
    pub const COMPLETION_ADDRESS_VALID: u32 = 0x4;
    /// A completion record is wanted.
    pub const REQUEST_COMPLETION: u32 = 0x8;
    /// An interrupt is wanted.
    pub const REQUEST_INTERRUPT: u32 = 0x10;
    /// The destination goes to the last-level cache rather than to memory.
    pub const CACHE_CONTROL: u32 = 0x100;
    /// All writes of this descriptor in order.
    pub const STRICT_ORDERING: u32 = 0x2000;
    /// The last write is read back before the completion is written.
    pub const DESTINATION_READBACK: u32 = 0x4000;
    /// Source 2 is read as engine state (AECS).
    pub const READ_SOURCE2_STATE: u32 = 1 << 16;
    /// Source 2 is read as a second input.
    pub const READ_SOURCE2_INPUT: u32 = 2 << 16;
    /// Both bits for the reading of source 2.
    pub const READ_SOURCE2_MASK: u32 = 3 << 16;
    /// Engine state is written back to source 2.
    pub const WRITE_SOURCE2_ALWAYS: u32 = 1 << 18;
    /// Engine state is written back to source 2 if the output overflows.
    pub const WRITE_SOURCE2_ON_OVERFLOW: u32 = 2 << 18;
    /// Both bits for the writing of source 2.
    pub const WRITE_SOURCE2_MASK: u32 = 3 << 18;
    /// The CRC uses the polynomial of RFC 3720 (CRC32C) instead of gzip's.
    pub const CRC32C: u32 = 1 << 21;
    /// Selects the half of a pair of engine states that is read: 0 for the first. The other half is written.
    pub const STATE_TOGGLE: u32 = 1 << 22;
}

/// Compression flags (offset 38).
pub mod compress {
    /// Counts symbols instead of compressing; the destination takes the histogram.
    pub const STATISTICS: u16 = 1 << 0;
    /// Writes the last, partial byte of the output.
    pub const FLUSH_OUTPUT: u16 = 1 << 1;
    /// Appends the end-of-block code.
    pub const APPEND_END_OF_BLOCK: u16 = 1 << 2;
    /// Appends the end-of-block code and the header of a stored block that is not the last.
    pub const APPEND_STORED: u16 = 2 << 2;
    /// Appends the end-of-block code and the header of a stored block that is the last.
    pub const APPEND_FINAL_STORED: u16 = 3 << 2;
    /// All bits for the appended codes.
    pub const APPEND_MASK: u16 = 3 << 2;
    /// Makes literals only, no matches.
    pub const LITERALS_ONLY: u16 = 1 << 4;
    /// The output is in 16-bit big-endian words.
    pub const BIG_ENDIAN_16: u16 = 1 << 5;
    /// The position of the dictionary's level: 0 none, 1 to 3 (generation 2).
    pub const DICTIONARY_SHIFT: u16 = 10;
    /// The device makes the header of the block in the same pass (generation 2).
    pub const HEADER_ONE_PASS: u16 = 2 << 12;
    /// The same for the last block of a stream.
    pub const HEADER_ONE_PASS_FINAL: u16 = 3 << 12;
    /// The device makes codes and header in a first pass of two (generation 2).
    pub const HEADER_TWO_PASS: u16 = 6 << 12;
    /// The same for the last block of a stream.
    pub const HEADER_TWO_PASS_FINAL: u16 = 7 << 12;
    /// All bits of header generation.
    pub const HEADER_MASK: u16 = 7 << 12;
}

/// Second compression flags (offset 56).
pub mod compress2 {
    /// The codes that were made are written to the engine state.
    pub const WRITE_HUFFMAN_TABLES: u32 = 1 << 1;
}

/// Decompression flags (offset 38).
pub mod decompress {
    /// The input is compressed. Without it, filters read it as it is.
    pub const ENABLE: u16 = 1 << 0;
    /// Writes the rest of the output accumulator.
    pub const FLUSH_OUTPUT: u16 = 1 << 1;
    /// Stops behind an end-of-block code.
    pub const STOP_ON_END_OF_BLOCK: u16 = 1 << 2;
    /// An end-of-block code must have been met.
    pub const CHECK_FOR_END_OF_BLOCK: u16 = 1 << 3;
    /// Both mean the end of the block that is marked as the last one.
    pub const SELECT_FINAL_END_OF_BLOCK: u16 = 1 << 4;
    /// The input is in 16-bit big-endian words.
    pub const BIG_ENDIAN_16: u16 = 1 << 5;
    /// The position of the count of bits to ignore at the end, 0 to 7.
    pub const IGNORE_END_BITS_SHIFT: u16 = 6;
    /// The three bits of that count.
    pub const IGNORE_END_BITS_MASK: u16 = 7 << 6;
    /// Nothing is written: to verify, or to read a header.
    pub const SUPPRESS_OUTPUT: u16 = 1 << 9;
    /// The fourth bit of the count of bits to ignore (generation 2).
    pub const IGNORE_END_BITS_HIGH: u16 = 1 << 14;
    /// The flags for decompressing a whole raw stream of one or more blocks.
    pub const WHOLE_STREAM: u16 =
        ENABLE | FLUSH_OUTPUT | STOP_ON_END_OF_BLOCK | CHECK_FOR_END_OF_BLOCK | SELECT_FINAL_END_OF_BLOCK;
}

/// CRC64 flags (offset 38).
pub mod crc {
    /// The register begins and ends inverted.
    pub const INVERT: u16 = 1 << 14;
    /// Bits of a byte are taken from the high end.
    pub const BIG_ENDIAN: u16 = 1 << 15;
}

/// Filter flags (offset 56).
pub mod filter {
    /// The elements of source 1 are packed from the low bit up. The other parsers exclude one another.
    pub const PARSER_LITTLE_ENDIAN: u32 = 0;
    /// The elements are packed from the high bit down.
    pub const PARSER_BIG_ENDIAN: u32 = 1;
    /// The elements are Parquet's runs (RLE and bit-packed), behind a byte that states their width.
    pub const PARSER_PARQUET_RLE: u32 = 2;
    /// All bits of the parser.
    pub const PARSER_MASK: u32 = 3;
    /// The position of the width of an element of source 1, less 1.
    pub const SOURCE1_WIDTH_SHIFT: u32 = 2;
    /// The position of the width of an element of source 2, less 1.
    pub const SOURCE2_WIDTH_SHIFT: u32 = 7;
    /// Source 2 is packed from the high bit down.
    pub const SOURCE2_BIG_ENDIAN: u32 = 1 << 12;
    /// The position of the width of the output: 0 for nominal, 1, 2, 3 for 8, 16, 32 bits.
    pub const OUTPUT_WIDTH_SHIFT: u32 = 13;
    /// The output is big-endian.
    pub const OUTPUT_BIG_ENDIAN: u32 = 1 << 15;
    /// A bit vector is inverted.
    pub const INVERT_OUTPUT: u32 = 1 << 16;
    /// The position of the count of low bits to drop.
    pub const DROP_LOW_SHIFT: u32 = 17;
    /// The position of the count of high bits to drop.
    pub const DROP_HIGH_SHIFT: u32 = 22;
    /// Elements of one bit stay an array (generation 2).
    pub const FORCE_ARRAY: u32 = 1 << 27;
}

/// A descriptor. Every field is 0 until it is set.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Descriptor([u8; 64]);

const _: () = assert!(size_of::<Descriptor>() == 64);

impl Descriptor {
    /// A descriptor of this opcode with these [operation flags](operation).
    pub fn new(opcode: Opcode, flags: u32) -> Descriptor {
        let mut descriptor = Descriptor([0; 64]);
        descriptor.set_word(u32::from(opcode as u8) << 24 | flags);
        descriptor
    }

    /// A descriptor from any bytes, as a device sees it.
    pub fn from_bytes(bytes: [u8; 64]) -> Descriptor {
        Descriptor(bytes)
    }

    /// The bytes that the device reads.
    pub fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }

    /// The number of the opcode.
    pub fn opcode(&self) -> u8 {
        (self.word() >> 24) as u8
    }

    /// The [operation flags](operation).
    pub fn flags(&self) -> u32 {
        self.word() & 0x00FF_FFFF
    }

    fields! {
        /// Process address space and privilege: 0 from user space.
        address_space set_address_space 0 u32;
        /// Flags and opcode.
        word set_word 4 u32;
        /// Address of the completion record.
        completion set_completion 8 u64;
        /// Address of source 1.
        source1 set_source1 16 u64;
        /// Address of the destination.
        destination set_destination 24 u64;
        /// Bytes of source 1.
        source1_bytes set_source1_bytes 32 u32;
        /// Interrupt handle.
        interrupt set_interrupt 36 u16;
        /// [Compression](compress), [decompression](decompress) or [CRC](crc) flags.
        kind_flags set_kind_flags 38 u16;
        /// Address of source 2.
        source2 set_source2 40 u64;
        /// The most bytes of the destination.
        destination_bytes_max set_destination_bytes_max 48 u32;
        /// Bytes of source 2.
        source2_bytes set_source2_bytes 52 u32;
        /// [Filter flags](filter), or [second compression flags](compress2).
        filter_flags set_filter_flags 56 u32;
        /// Input elements.
        elements set_elements 60 u32;
        /// Polynomial of a CRC64, left-aligned.
        polynomial set_polynomial 56 u64;
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptor")
            .field("opcode", &Opcode::of(self.opcode()))
            .field("flags", &format_args!("{:#x}", self.flags()))
            .field("source1_bytes", &self.source1_bytes())
            .field("destination_bytes_max", &self.destination_bytes_max())
            .field("kind_flags", &format_args!("{:#x}", self.kind_flags()))
            .field("source2_bytes", &self.source2_bytes())
            .field("filter_flags", &format_args!("{:#x}", self.filter_flags()))
            .field("elements", &self.elements())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_lie_where_the_interface_has_them() {
        let mut descriptor = Descriptor::new(Opcode::Compress, 0x0001_010E);
        descriptor
            .set_completion(0x1111_2222_3333_4440)
            .set_source1(0x0102_0304_0506_0708)
            .set_destination(0x1112_1314_1516_1718)
            .set_source1_bytes(4096)
            .set_kind_flags(compress::FLUSH_OUTPUT | compress::APPEND_END_OF_BLOCK)
            .set_source2(0x2122_2324_2526_2728)
            .set_destination_bytes_max(5000)
            .set_source2_bytes(0x620);
        #[rustfmt::skip]
        let golden: [u8; 64] = [
            0, 0, 0, 0, 0x0E, 0x01, 0x01, 0x43, 0x40, 0x44, 0x33, 0x33, 0x22, 0x22, 0x11, 0x11,
            8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
            0, 0x10, 0, 0, 0, 0, 0x06, 0, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21,
            0x88, 0x13, 0, 0, 0x20, 0x06, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(descriptor.as_bytes(), &golden);
        assert_eq!((descriptor.opcode(), descriptor.flags()), (0x43, 0x0001_010E));
    }

    #[test]
    fn opcodes_have_their_numbers() {
        assert_eq!(Opcode::of(0x56), Some(Opcode::Expand));
        assert_eq!(Opcode::of(0x45), None);
    }
}
