//! The trait between code that makes descriptors and devices that execute them.

use std::fmt;
use std::io;

use crate::descriptor::{Descriptor, Opcode};

/// The capabilities of a work queue and the device behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// 1 or 2: the major version of the device.
    pub generation: u8,
    /// Whether the queue lets a job wait while the kernel brings in a page.
    pub block_on_fault: bool,
    /// The most bytes of a source or a destination.
    pub transfer_bytes_max: u32,
    /// Jobs that the queue holds.
    pub depth: u32,
    /// Whether the queue tells a submitter that it is full. A dedicated queue does not, so its submitter counts the
    /// jobs.
    pub tells_full: bool,
    /// Bit *n* says that opcode *n* may be used.
    pub opcodes: [u64; 4],
    /// The device's IAACAP register; 0 for generation 1.
    pub iaa_cap: u64,
}

/// Bits of [`Capabilities::iaa_cap`].
pub mod iaa_cap {
    /// Output of filters can be forced to be an array.
    pub const FORCE_ARRAY: u64 = 1 << 3;
    /// Part of an engine state can be loaded.
    pub const PARTIAL_STATE: u64 = 1 << 4;
    /// Compression with a dictionary.
    pub const DICTIONARY: u64 = 1 << 7;
    /// The device makes Huffman codes and block headers.
    pub const HEADER_GENERATION: u64 = 1 << 8;
}

impl Capabilities {
    /// Whether an opcode may be used.
    pub fn has(&self, opcode: Opcode) -> bool {
        let number = usize::from(opcode as u8);
        self.opcodes[number / 64] >> (number % 64) & 1 == 1
    }

    /// Whether the device has all of these [bits](iaa_cap).
    pub fn has_iaa(&self, bits: u64) -> bool {
        self.iaa_cap & bits == bits
    }
}

/// A work queue that executes descriptors, opened by this process.
pub trait Device: Send + Sync {
    /// The name of the queue, such as `iax1/wq1.0` or `model`.
    fn name(&self) -> &str;

    /// Whether all its results must be labelled *modelled*.
    fn is_modelled(&self) -> bool {
        false
    }

    /// The capabilities of the queue.
    fn capabilities(&self) -> &Capabilities;

    /// Submits a descriptor. Its job then runs until its completion record has a status.
    ///
    /// # Safety
    ///
    /// Until then all buffers that the descriptor names are valid. Sources are valid for reads. The destination, the
    /// completion record and a state that is written back are valid for writes. No other code changes a source, or
    /// touches memory that the job writes. The completion record has been cleared.
    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), SubmitError>;

    /// Notes that a job's completion was seen. A queue that counts its jobs then counts one less.
    fn retire(&self) {}

    /// The same for a job that had been given up.
    fn retire_late(&self) {
        self.retire();
    }

    /// Notes that a job was given up because it did not end in time.
    fn timed_out(&self) {}

    /// Whether the queue is lost, so that waiting for jobs under way is useless.
    fn is_lost(&self) -> bool {
        false
    }
}

/// Why a descriptor was not taken.
#[derive(Debug)]
pub enum SubmitError {
    /// The queue is full. Try again, or try another one.
    Full,
    /// The queue is gone: the device was disabled, or the process has lost its right to the queue.
    Lost(io::Error),
}

impl fmt::Display for SubmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubmitError::Full => f.write_str("the work queue is full"),
            SubmitError::Lost(error) => write!(f, "the work queue takes no descriptors: {error}"),
        }
    }
}

impl std::error::Error for SubmitError {}
