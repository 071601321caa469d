//! A device that completes every job at once and does nothing else. It shows the host's cost of a job.

use std::ptr::with_exposed_provenance_mut;

use crate::completion::{CompletionRecord, Outcome, Status};
use crate::descriptor::Descriptor;
use crate::device::{Capabilities, Device, SubmitError};

/// A device that reports success for every job, with as much output as the destination holds.
#[derive(Debug, Clone)]
pub struct NullDevice {
    capabilities: Capabilities,
}

impl NullDevice {
    /// A null device of generation 1 with every opcode.
    pub fn new() -> NullDevice {
        let capabilities = Capabilities {
            generation: 1,
            block_on_fault: true,
            transfer_bytes_max: 2 << 20,
            depth: 128,
            tells_full: true,
            opcodes: [u64::MAX; 4],
            iaa_cap: 0,
        };
        NullDevice { capabilities }
    }

    /// One with other capabilities.
    pub fn with(capabilities: Capabilities) -> NullDevice {
        NullDevice { capabilities }
    }
}

impl Default for NullDevice {
    fn default() -> NullDevice {
        NullDevice::new()
    }
}

impl Device for NullDevice {
    fn name(&self) -> &str {
        "null"
    }

    fn is_modelled(&self) -> bool {
        true
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), SubmitError> {
        let mut outcome = Outcome::new(Status::Success);
        outcome.set_source1_bytes(descriptor.source1_bytes());
        outcome.set_output_bytes(descriptor.destination_bytes_max());
        let record = with_exposed_provenance_mut::<CompletionRecord>(descriptor.completion() as usize);
        // SAFETY: the caller keeps the completion record valid and untouched until it has a status.
        unsafe { CompletionRecord::complete(record, &outcome) };
        Ok(())
    }
}
