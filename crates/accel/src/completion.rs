//! The completion record: 64 bytes that the device writes when a job is done.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | status; 0 while the job runs; bit 7: the access that faulted was a write |
//! | 1 | 1 | error code, with status 0x0A |
//! | 2 | 1 | fault information (generation 2) |
//! | 4 | 4 | bytes of source 1 that were taken |
//! | 8 | 8 | address of a page fault |
//! | 16 | 4 | mask of flags that are not valid |
//! | 24 | 4 | bytes of output |
//! | 28 | 1 | valid bits of the last byte of output, 0 for all |
//! | 30 | 2 | XOR of the 16-bit words of the uncompressed bytes |
//! | 32 | 4 | CRC-32 of the uncompressed bytes |
//! | 36 | 4 | smallest element, or index of the first 1 |
//! | 40 | 4 | largest element, or index of the last 1; low half of a CRC64 |
//! | 44 | 4 | sum of the elements, or count of ones; high half of a CRC64 |

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $number:literal $what:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum $name {
            $(#[doc = $what] $variant = $number,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            /// The variant with that number, if there is one.
            pub fn of(number: u8) -> Option<$name> {
                match number {
                    $($number => Some($name::$variant),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $($name::$variant => $what,)*
                })
            }
        }
    };
}

numbered! {
    /// How a job ended.
    Status {
        Success = 0x01 "success",
        PageFault = 0x03 "page fault",
        PageRequestRefused = 0x04 "page request refused",
        Analytics = 0x0A "error in the data",
        OutputOverflow = 0x0B "the output is full",
        BadOpcode = 0x10 "no such opcode",
        BadFlags = 0x11 "operation flags that are not valid",
        ReservedNotZero = 0x12 "a reserved field is not zero",
        BadSize = 0x13 "a size that is not valid",
        Overlap = 0x16 "buffers overlap",
        BadInterruptHandle = 0x19 "no such interrupt handle",
        CompletionUnreachable = 0x1A "the completion record cannot be reached",
        CompletionMisaligned = 0x1B "the completion record is not aligned to 64 bytes",
        StateMisaligned = 0x1C "the engine state is not aligned to 32 bytes",
        Privilege = 0x1D "privilege",
        TrafficClass = 0x1E "no such traffic class",
        Readback = 0x1F "reading back failed",
        Hardware = 0x20 "hardware error",
        HardwareReadback = 0x21 "hardware error while reading back",
        Translation = 0x22 "an address cannot be translated",
        PageRequestTimeout = 0x23 "a page request took too long",
        Watchdog = 0x24 "the watchdog ended the job",
        BadCodingFlags = 0x30 "compression or decompression flags that are not valid",
        BadFilterFlags = 0x31 "filter flags that are not valid",
        BadInputSize = 0x32 "an input size that is not valid",
        NoElements = 0x33 "no input elements",
        BadWidth = 0x34 "a width of source 1 that is not valid",
        InvertsNoBits = 0x35 "only a bit vector can be inverted",
    }
}

numbered! {
    /// The fault of the data, with [`Status::Analytics`].
    ErrorCode {
        HeaderTooLarge = 1 "the header is larger than the input",
        BadCodeLengthCode = 2 "a code of the code lengths that there is not",
        FirstLiteralRepeats = 3 "the first literal length repeats the one before",
        FirstDistanceRepeats = 4 "the first distance length repeats the one before",
        NoLiteralCodes = 5 "no literal codes",
        WrongLiteralCount = 6 "a wrong count of literal codes",
        WrongDistanceCount = 7 "a wrong count of distance codes",
        CodeLengthsOverSubscribed = 8 "more code-length codes than fit",
        LiteralsOverSubscribed = 9 "more literal codes than fit",
        DistancesOverSubscribed = 10 "more distance codes than fit",
        UndefinedLiteral = 11 "a literal code that is not defined",
        UndefinedDistance = 12 "a distance code that is not defined",
        BlockType = 13 "a block of type 3",
        StoredLength = 14 "the lengths of a stored block disagree",
        NoEndOfBlock = 15 "the end of the block is missing",
        BadLength = 16 "a match length that is not valid",
        BadDistance = 17 "a distance of 0 or beyond the window",
        BeforeStart = 18 "a distance before the start",
        NoProgress = 19 "no progress",
        ParquetFormat = 20 "not Parquet's run format",
        OutputTooNarrow = 21 "the output width is too small",
        BadState = 22 "an engine state that is not valid",
        Source1TooShort = 23 "source 1 is too short",
        Source2TooShort = 24 "source 2 is too short",
        UnrecoverableOverflow = 25 "the output does not fit",
        LengthCrossesMiniBlock = 26 "a match ends beyond its mini-block",
        DistanceCrossesMiniBlock = 27 "a match begins before its mini-block",
        BadMiniBlockSize = 28 "a mini-block size that is not valid",
        VerifyFailed = 29 "verifying failed",
        NoCodeForSymbol = 30 "a symbol without a code",
        ParquetWidth = 31 "a Parquet width above 32",
        TooFewElements = 32 "too few elements",
        ZeroRecordHeader = 34 "a zero-record header that is not valid",
        TooManyLiterals = 35 "more than 286 literal codes",
        TooManyDistances = 36 "more than 30 distance codes",
    }
}

/// A completion record. Its status byte is shared with the device; the rest belongs to the device until the status is
/// set.
#[repr(C, align(64))]
pub struct CompletionRecord {
    status: AtomicU8,
    rest: [u8; 63],
}

const _: () = assert!(size_of::<CompletionRecord>() == 64);

impl CompletionRecord {
    /// A record of a job that has not been submitted.
    pub const fn new() -> CompletionRecord {
        CompletionRecord { status: AtomicU8::new(0), rest: [0; 63] }
    }

    /// Makes the record ready for the next job.
    pub fn clear(&mut self) {
        *self.status.get_mut() = 0;
    }

    /// The outcome, or `None` while the job runs.
    ///
    /// # Safety
    ///
    /// `record` points to a record that is valid for reads, and only the device writes to it meanwhile.
    #[inline]
    pub unsafe fn poll(record: *const CompletionRecord) -> Option<Outcome> {
        // SAFETY: the caller's pointer is valid; the status is only touched atomically while the job runs.
        let status = unsafe { &(*record).status }.load(Ordering::Acquire);
        if status == 0 {
            return None;
        }
        let mut bytes = [0; 64];
        bytes[0] = status;
        // SAFETY: the status is not 0 and was read with acquire ordering. So the device has written the rest and is
        // done with the record.
        bytes[1..].copy_from_slice(unsafe { &(*record).rest });
        Some(Outcome(bytes))
    }

    /// Writes an answer, as a device does: the status last.
    ///
    /// # Safety
    ///
    /// `record` points to a record that is valid for writes. No other code reads more than its status before the status
    /// is set.
    pub unsafe fn complete(record: *mut CompletionRecord, outcome: &Outcome) {
        // SAFETY: the caller's pointer is valid, and nobody reads these bytes yet.
        unsafe {
            (&raw mut (*record).rest).cast::<u8>().copy_from_nonoverlapping(outcome.0[1..].as_ptr(), 63)
        };
        // SAFETY: as above; the status is only touched atomically.
        unsafe { &(*record).status }.store(outcome.0[0], Ordering::Release);
    }
}

impl Default for CompletionRecord {
    fn default() -> CompletionRecord {
        CompletionRecord::new()
    }
}

/// A copy of a completion record whose job has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Outcome([u8; 64]);

impl Outcome {
    /// An answer of this status, all else 0.
    pub fn new(status: Status) -> Outcome {
        let mut bytes = [0; 64];
        bytes[0] = status as u8;
        Outcome(bytes)
    }

    pub(crate) fn from_bytes(bytes: [u8; 64]) -> Outcome {
        Outcome(bytes)
    }

    /// The bytes as they lie in memory.
    pub fn as_bytes(&self) -> &[u8; 64] {
        &self.0
    }

    /// How the job ended; `None` for a number that this interface does not have.
    pub fn status(&self) -> Option<Status> {
        Status::of(self.0[0] & 0x7F)
    }

    /// The number of the status, without the bit that says whether a write faulted.
    pub fn status_number(&self) -> u8 {
        self.0[0] & 0x7F
    }

    /// Whether the access that faulted was a write.
    pub fn faulted_on_write(&self) -> bool {
        self.0[0] & 0x80 != 0
    }

    /// Says that the access that faulted was a write.
    pub fn set_faulted_on_write(&mut self) -> &mut Outcome {
        self.0[0] |= 0x80;
        self
    }

    /// The fault of the data, if the status says that there is one.
    pub fn error_code(&self) -> Option<ErrorCode> {
        ErrorCode::of(self.error_number())
    }

    fields! {
        /// The number of the error code.
        error_number set_error_number 1 u8;
        /// Fault information (generation 2): bit 0, the fault address is valid.
        fault_information set_fault_information 2 u8;
        /// Bytes of source 1 that were taken.
        source1_bytes set_source1_bytes 4 u32;
        /// Address of a page fault.
        fault_address set_fault_address 8 u64;
        /// Flags that are not valid.
        invalid_flags set_invalid_flags 16 u32;
        /// Bytes of output.
        output_bytes set_output_bytes 24 u32;
        /// Valid bits of the last byte of output, 0 for all.
        output_bits set_output_bits 28 u8;
        /// XOR of the 16-bit words of the uncompressed bytes.
        xor set_xor 30 u16;
        /// CRC-32 of the uncompressed bytes.
        crc32 set_crc32 32 u32;
        /// Smallest element, or index of the first 1.
        minimum set_minimum 36 u32;
        /// Largest element, or index of the last 1.
        maximum set_maximum 40 u32;
        /// Sum of the elements, or count of ones.
        sum set_sum 44 u32;
        /// A CRC64.
        crc64 set_crc64 40 u64;
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome")
            .field("status", &format_args!("{:#04x}", self.status_number()))
            .field("error", &self.error_number())
            .field("source1_bytes", &self.source1_bytes())
            .field("output_bytes", &self.output_bytes())
            .field("crc32", &format_args!("{:#010x}", self.crc32()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let mut record = CompletionRecord::new();
        // SAFETY: the record is valid and nobody else has it.
        assert!(unsafe { CompletionRecord::poll(&raw const record) }.is_none());
        let mut outcome = Outcome::new(Status::PageFault);
        outcome.set_faulted_on_write().set_fault_address(0xFF00).set_output_bytes(77).set_sum(3);
        // SAFETY: as above.
        unsafe { CompletionRecord::complete(&raw mut record, &outcome) };
        // SAFETY: as above.
        let read = unsafe { CompletionRecord::poll(&raw const record) }.expect("a status was written");
        assert_eq!(read, outcome);
        assert_eq!((read.as_bytes()[0], read.status()), (0x83, Some(Status::PageFault)));
        assert_eq!((read.as_bytes()[9], read.as_bytes()[24], read.as_bytes()[44]), (0xFF, 77, 3));
        record.clear();
        // SAFETY: as above.
        assert!(unsafe { CompletionRecord::poll(&raw const record) }.is_none());
    }
}
