//! Checks whether the device can execute a descriptor.
//!
//! The interface does not say which of several statuses comes first. The order here is: opcode, operation flags,
//! completion record, reserved fields, sizes, alignment, overlap, coding flags, filter flags. The model is strict:
//! fields that no user of the device sets must be 0.

use crate::aecs::{CompressState, DecompressState, FilterState, Histogram};
use crate::completion::{Outcome, Status};
use crate::descriptor::{Descriptor, Opcode, compress, compress2, crc, decompress, filter, operation};
use crate::device::{Capabilities, iaa_cap};

/// Flags that every operation may have.
const COMMON: u32 = operation::FENCE
    | operation::BLOCK_ON_FAULT
    | operation::COMPLETION_ADDRESS_VALID
    | operation::REQUEST_COMPLETION
    | operation::REQUEST_INTERRUPT
    | operation::CACHE_CONTROL
    | TRAFFIC_CLASSES
    | operation::STRICT_ORDERING
    | operation::DESTINATION_READBACK;

/// Selectors of traffic classes, of which the modelled queue has only the first.
const TRAFFIC_CLASSES: u32 = 0x1E00;

/// The smallest mapped address. Any access below it faults.
const LOWEST_ADDRESS: u64 = 4096;

/// The most input of a job that makes the header of its block in one pass.
const ONE_PASS_BYTES_MAX: u32 = 4096;

/// The widest key of a set, in bits.
pub(super) const KEY_BITS_MAX: u32 = 15;

pub(super) fn check(descriptor: &Descriptor, can: &Capabilities) -> Result<Opcode, Outcome> {
    let opcode = Opcode::of(descriptor.opcode()).filter(|&opcode| can.has(opcode));
    let opcode = opcode.ok_or_else(|| Outcome::new(Status::BadOpcode))?;
    let check = Check { descriptor, can, opcode };
    check.operation_flags()?;
    check.completion()?;
    check.reserved()?;
    if matches!(opcode, Opcode::Noop | Opcode::Drain) {
        return Ok(opcode);
    }
    check.sizes()?;
    check.memory()?;
    match opcode {
        Opcode::MemMove => {}
        Opcode::Crc64 => check.crc64()?,
        Opcode::Compress => check.compress()?,
        Opcode::Decompress => check.decompress()?,
        _ => check.filter()?,
    }
    Ok(opcode)
}

/// Whether the destination of such a job is an array of elements; otherwise it is a bit vector.
pub(super) fn makes_array(opcode: Opcode, filter_flags: u32) -> bool {
    match opcode {
        Opcode::Scan | Opcode::SetMembership | Opcode::FindUnique => false,
        Opcode::RleBurst => true,
        _ => {
            let is_bits = filter_flags & filter::PARSER_MASK != filter::PARSER_PARQUET_RLE
                && filter_flags >> filter::SOURCE1_WIDTH_SHIFT & 31 == 0;
            !is_bits || filter_flags & filter::FORCE_ARRAY != 0
        }
    }
}

fn failed(status: Status) -> Outcome {
    Outcome::new(status)
}

fn bad_flags(status: Status, invalid: u32) -> Outcome {
    let mut outcome = Outcome::new(status);
    outcome.set_invalid_flags(invalid);
    outcome
}

struct Check<'a> {
    descriptor: &'a Descriptor,
    can: &'a Capabilities,
    opcode: Opcode,
}

impl Check<'_> {
    fn flag(&self, flag: u32) -> bool {
        self.descriptor.flags() & flag != 0
    }

    fn reads(&self) -> u32 {
        self.descriptor.flags() & operation::READ_SOURCE2_MASK
    }

    fn writes(&self) -> u32 {
        self.descriptor.flags() & operation::WRITE_SOURCE2_MASK
    }

    fn is_filter(&self) -> bool {
        self.opcode as u8 >= Opcode::Scan as u8
    }

    /// Whether source 2 is a second input that the operation cannot do without.
    fn needs_input2(&self) -> bool {
        use Opcode::{Expand, RleBurst, Select, SetMembership};
        matches!(self.opcode, Select | Expand | SetMembership | RleBurst)
    }

    fn operation_flags(&self) -> Result<(), Outcome> {
        let own = match self.opcode {
            Opcode::Compress | Opcode::Decompress => {
                operation::READ_SOURCE2_STATE
                    | operation::WRITE_SOURCE2_MASK
                    | operation::CRC32C
                    | operation::STATE_TOGGLE
            }
            _ if self.needs_input2() => operation::READ_SOURCE2_INPUT | operation::CRC32C,
            _ if self.is_filter() => operation::READ_SOURCE2_STATE | operation::CRC32C,
            _ => 0,
        };
        let mut invalid = self.descriptor.flags() & !(COMMON | own);
        if self.flag(operation::BLOCK_ON_FAULT) && !self.can.block_on_fault {
            invalid |= operation::BLOCK_ON_FAULT;
        }
        if self.flag(operation::REQUEST_COMPLETION) && !self.flag(operation::COMPLETION_ADDRESS_VALID) {
            invalid |= operation::REQUEST_COMPLETION;
        }
        let writes = self.writes();
        let no_write = match self.opcode {
            Opcode::Compress => writes > operation::WRITE_SOURCE2_ALWAYS,
            _ => writes == operation::WRITE_SOURCE2_MASK,
        };
        if no_write {
            invalid |= operation::WRITE_SOURCE2_MASK;
        }
        if self.flag(operation::STATE_TOGGLE) && writes == 0 {
            invalid |= operation::STATE_TOGGLE;
        }
        if self.needs_input2() && self.reads() != operation::READ_SOURCE2_INPUT {
            invalid |= operation::READ_SOURCE2_MASK;
        }
        if matches!(self.opcode, Opcode::Scan | Opcode::Extract) && self.reads() == 0 {
            invalid |= operation::READ_SOURCE2_MASK;
        }
        match invalid {
            0 if self.flag(TRAFFIC_CLASSES) => Err(failed(Status::TrafficClass)),
            0 => Ok(()),
            invalid => Err(bad_flags(Status::BadFlags, invalid)),
        }
    }

    fn completion(&self) -> Result<(), Outcome> {
        if !self.flag(operation::COMPLETION_ADDRESS_VALID) {
            return Ok(());
        }
        match self.descriptor.completion() {
            address if !address.is_multiple_of(64) => Err(failed(Status::CompletionMisaligned)),
            address if address < LOWEST_ADDRESS => Err(failed(Status::CompletionUnreachable)),
            _ => Ok(()),
        }
    }

    fn reserved(&self) -> Result<(), Outcome> {
        let descriptor = self.descriptor;
        if descriptor.address_space() >> 31 == 1 {
            return Err(failed(Status::Privilege));
        }
        if self.flag(operation::REQUEST_INTERRUPT) && descriptor.interrupt() != 0 {
            return Err(failed(Status::BadInterruptHandle));
        }
        let rest = &descriptor.as_bytes()[16..];
        let (destination, kind, tail) = (descriptor.destination(), descriptor.kind_flags(), &rest[24..]);
        let is_set = descriptor.address_space() != 0
            || (descriptor.interrupt() != 0 && !self.flag(operation::REQUEST_INTERRUPT))
            || match self.opcode {
                Opcode::Noop | Opcode::Drain => rest.iter().any(|&byte| byte != 0),
                // Behind the flags lie source 2, the sizes, and the fields of special kinds of jobs.
                Opcode::MemMove => kind != 0 || tail.iter().any(|&byte| byte != 0),
                Opcode::Crc64 => destination != 0 || tail[..16].iter().any(|&byte| byte != 0),
                Opcode::Compress => descriptor.elements() != 0,
                Opcode::Decompress => descriptor.elements() != 0 || descriptor.filter_flags() != 0,
                _ => false,
            };
        if is_set { Err(failed(Status::ReservedNotZero)) } else { Ok(()) }
    }

    /// Bytes of the destination that a job may write.
    fn destination_bytes(&self) -> u64 {
        match self.opcode {
            Opcode::MemMove => u64::from(self.descriptor.source1_bytes()),
            Opcode::Crc64 => 0,
            _ => u64::from(self.descriptor.destination_bytes_max()),
        }
    }

    fn has_output(&self) -> bool {
        let flags = self.descriptor.kind_flags();
        match self.opcode {
            Opcode::Compress => flags & compress::STATISTICS == 0 || flags & compress::HEADER_MASK == 0,
            Opcode::Decompress => flags & decompress::SUPPRESS_OUTPUT == 0,
            Opcode::Crc64 => false,
            _ => true,
        }
    }

    fn sizes(&self) -> Result<(), Outcome> {
        let descriptor = self.descriptor;
        let resumes = self.opcode == Opcode::Decompress && self.reads() == operation::READ_SOURCE2_STATE;
        let destination = self.destination_bytes();
        let is_counted = self.opcode == Opcode::Compress
            && descriptor.kind_flags() & (compress::STATISTICS | compress::HEADER_MASK)
                == compress::STATISTICS;
        let is_one_pass = self.opcode == Opcode::Compress
            && descriptor.kind_flags() & compress::HEADER_MASK & !(1 << 12) == compress::HEADER_ONE_PASS;
        let is_bad = (descriptor.source1_bytes() == 0 && !resumes)
            || descriptor.source1_bytes() > self.can.transfer_bytes_max
            || destination > u64::from(self.can.transfer_bytes_max)
            || (self.has_output() != (destination > 0) && self.opcode != Opcode::Decompress)
            || (self.has_output() && destination == 0)
            || (is_counted && destination < Histogram::BYTES as u64)
            || (is_one_pass && descriptor.source1_bytes() > ONE_PASS_BYTES_MAX)
            || self.has_bad_source2();
        if is_bad { Err(failed(Status::BadSize)) } else { Ok(()) }
    }

    fn has_bad_source2(&self) -> bool {
        let bytes = self.descriptor.source2_bytes() as usize;
        if self.reads() == operation::READ_SOURCE2_INPUT {
            return bytes == 0 || bytes > self.can.transfer_bytes_max as usize;
        }
        if self.reads() == 0 && self.writes() == 0 {
            return false;
        }
        let has_partial = self.can.has_iaa(iaa_cap::PARTIAL_STATE);
        let is_good = match self.opcode {
            Opcode::Compress => bytes == CompressState::BYTES,
            Opcode::Decompress => {
                bytes == DecompressState::BYTES || (bytes == DecompressState::PARTIAL_BYTES && has_partial)
            }
            _ => bytes == FilterState::BYTES || bytes == DecompressState::BYTES,
        };
        !is_good
    }

    fn memory(&self) -> Result<(), Outcome> {
        let descriptor = self.descriptor;
        let (reads, writes) = (self.reads(), self.writes());
        let is_state = reads == operation::READ_SOURCE2_STATE || writes != 0;
        if is_state && !descriptor.source2().is_multiple_of(32) {
            return Err(failed(Status::StateMisaligned));
        }
        let halves = if writes != 0 { 2 } else { 1 };
        let source1 = (descriptor.source1(), u64::from(descriptor.source1_bytes()));
        let uses_source2 = reads != 0 || writes != 0;
        let source2_bytes = if uses_source2 { halves * u64::from(descriptor.source2_bytes()) } else { 0 };
        let source2 = (descriptor.source2(), source2_bytes);
        let destination = (descriptor.destination(), self.destination_bytes());
        let record = match self.flag(operation::COMPLETION_ADDRESS_VALID) {
            true => (descriptor.completion(), 64),
            false => (0, 0),
        };
        for (range, is_written) in [(source1, false), (source2, false), (destination, true)] {
            if range.1 > 0 && (range.0 < LOWEST_ADDRESS || range.0.checked_add(range.1).is_none()) {
                let mut outcome = failed(Status::PageFault);
                outcome.set_fault_address(range.0);
                if is_written {
                    outcome.set_faulted_on_write();
                }
                return Err(outcome);
            }
        }
        let overlap = |a: (u64, u64), b: (u64, u64)| {
            a.1 > 0 && b.1 > 0 && a.0 < b.0.saturating_add(b.1) && b.0 < a.0.saturating_add(a.1)
        };
        let moves = self.opcode == Opcode::MemMove;
        let is_bad = (overlap(source1, destination) && !moves)
            || overlap(source2, destination)
            || (writes != 0 && overlap(source1, source2))
            || [source1, source2, destination].into_iter().any(|range| overlap(range, record));
        if is_bad { Err(failed(Status::Overlap)) } else { Ok(()) }
    }

    fn crc64(&self) -> Result<(), Outcome> {
        let invalid = self.descriptor.kind_flags() & !(crc::INVERT | crc::BIG_ENDIAN);
        let is_bad = invalid != 0 || self.descriptor.polynomial() == 0;
        if is_bad { Err(bad_flags(Status::BadCodingFlags, u32::from(invalid))) } else { Ok(()) }
    }

    fn compress(&self) -> Result<(), Outcome> {
        let flags = self.descriptor.kind_flags();
        // Mini-blocks and dictionaries are not modelled.
        let mut invalid = flags
            & !(compress::STATISTICS
                | compress::FLUSH_OUTPUT
                | compress::APPEND_MASK
                | compress::LITERALS_ONLY
                | compress::BIG_ENDIAN_16
                | compress::HEADER_MASK);
        let header = flags & compress::HEADER_MASK;
        let (reads, writes) = (self.reads(), self.writes());
        let counts = flags & compress::STATISTICS != 0;
        let is_two_pass = header & !(1 << 12) == compress::HEADER_TWO_PASS;
        let is_good = match header {
            0 if counts => writes == 0,
            0 => reads == operation::READ_SOURCE2_STATE,
            compress::HEADER_ONE_PASS | compress::HEADER_ONE_PASS_FINAL => !counts,
            compress::HEADER_TWO_PASS | compress::HEADER_TWO_PASS_FINAL => counts && writes != 0,
            _ => false,
        };
        let can_make_headers = header == 0 || self.can.has_iaa(iaa_cap::HEADER_GENERATION);
        if !is_good || !can_make_headers {
            invalid |= compress::HEADER_MASK | compress::STATISTICS;
        }
        // Bits that are neither written nor kept would be lost.
        if !counts && flags & compress::FLUSH_OUTPUT == 0 && writes == 0 {
            invalid |= compress::FLUSH_OUTPUT;
        }
        let tables = self.descriptor.filter_flags();
        let wants_tables = is_two_pass as u32 * compress2::WRITE_HUFFMAN_TABLES;
        let is_bad = invalid != 0 || tables & !compress2::WRITE_HUFFMAN_TABLES != 0 || tables < wants_tables;
        if is_bad { Err(bad_flags(Status::BadCodingFlags, u32::from(invalid))) } else { Ok(()) }
    }

    fn decompress(&self) -> Result<(), Outcome> {
        self.decompress_flags(decompress::SUPPRESS_OUTPUT)?;
        if self.descriptor.kind_flags() & decompress::ENABLE == 0 {
            return Err(bad_flags(Status::BadCodingFlags, u32::from(decompress::ENABLE)));
        }
        Ok(())
    }

    fn decompress_flags(&self, own: u16) -> Result<(), Outcome> {
        let flags = self.descriptor.kind_flags();
        let mut known =
            decompress::WHOLE_STREAM | decompress::BIG_ENDIAN_16 | decompress::IGNORE_END_BITS_MASK | own;
        if self.can.generation >= 2 {
            known |= decompress::IGNORE_END_BITS_HIGH;
        }
        let invalid = if flags & decompress::ENABLE == 0 { flags } else { flags & !known };
        if invalid != 0 {
            return Err(bad_flags(Status::BadCodingFlags, u32::from(invalid)));
        }
        let is_odd = !self.descriptor.source1_bytes().is_multiple_of(2);
        if flags & decompress::BIG_ENDIAN_16 != 0 && is_odd {
            return Err(failed(Status::BadInputSize));
        }
        Ok(())
    }

    fn filter(&self) -> Result<(), Outcome> {
        self.decompress_flags(0)?;
        let flags = self.descriptor.filter_flags();
        if self.descriptor.elements() == 0 {
            return Err(failed(Status::NoElements));
        }
        let width = (flags >> filter::SOURCE1_WIDTH_SHIFT & 31) + 1;
        let parser = flags & filter::PARSER_MASK;
        if (parser == filter::PARSER_PARQUET_RLE && width != 1)
            || (self.opcode == Opcode::RleBurst
                && (parser == filter::PARSER_PARQUET_RLE || ![8, 16, 32].contains(&width)))
        {
            return Err(failed(Status::BadWidth));
        }
        let width2 = (flags >> filter::SOURCE2_WIDTH_SHIFT & 31) + 1;
        let (low, high) = (flags >> filter::DROP_LOW_SHIFT & 31, flags >> filter::DROP_HIGH_SHIFT & 31);
        let drops = matches!(self.opcode, Opcode::SetMembership | Opcode::FindUnique);
        let is_prle = parser == filter::PARSER_PARQUET_RLE;
        let key_bits = width.checked_sub(low + high).filter(|&bits| bits > 0);
        let array = makes_array(self.opcode, flags);
        let is_bad = parser == 3
            || flags >> 28 != 0
            || (flags & filter::FORCE_ARRAY != 0 && !self.can.has_iaa(iaa_cap::FORCE_ARRAY))
            || (!drops && (low != 0 || high != 0))
            || (drops && !is_prle && key_bits.is_none_or(|bits| bits > KEY_BITS_MAX))
            || (self.opcode != Opcode::RleBurst && width2 != 1)
            || (!self.needs_input2() && flags & filter::SOURCE2_BIG_ENDIAN != 0);
        if is_bad {
            return Err(bad_flags(Status::BadFilterFlags, flags));
        }
        if flags & filter::INVERT_OUTPUT != 0 && array {
            return Err(failed(Status::InvertsNoBits));
        }
        Ok(())
    }
}
