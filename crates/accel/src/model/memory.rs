//! The memory that a job may touch: only the buffers that its descriptor names.
//!
//! All access to foreign memory is in this module. The rest of the model works on copies.

use crate::completion::{CompletionRecord, Outcome};
use crate::descriptor::{Descriptor, operation};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

/// A job's buffers, from its submission to its completion.
pub(super) struct JobMemory {
    descriptor: Descriptor,
}

impl JobMemory {
    /// # Safety
    ///
    /// The contract of [`Device::submit`](crate::Device::submit) holds until [`complete`](Self::complete) or the end of
    /// this value.
    pub(super) unsafe fn new(descriptor: Descriptor) -> JobMemory {
        JobMemory { descriptor }
    }

    pub(super) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    /// Copies source 1.
    pub(super) fn read_source1(&self, into: &mut Vec<u8>) {
        self.read(self.descriptor.source1(), self.descriptor.source1_bytes() as usize, into);
    }

    /// Copies source 2, or of a pair of states the one that is read.
    pub(super) fn read_source2(&self, into: &mut Vec<u8>) {
        let bytes = self.descriptor.source2_bytes() as usize;
        let flags = self.descriptor.flags();
        // Only a job that also writes a state has a pair; the toggle is refused elsewhere.
        let is_second = flags & operation::STATE_TOGGLE != 0;
        self.read(self.descriptor.source2() + if is_second { bytes as u64 } else { 0 }, bytes, into);
    }

    /// Writes the state of a pair that is not read: the second, or toggled the first.
    pub(super) fn write_state(&self, state: &[u8]) {
        let bytes = self.descriptor.source2_bytes() as usize;
        assert!(state.len() <= bytes, "a state is written within its bounds");
        let is_second = self.descriptor.flags() & operation::STATE_TOGGLE == 0;
        let address = self.descriptor.source2() + if is_second { bytes as u64 } else { 0 };
        self.write(address, state);
    }

    /// Writes the beginning of the destination.
    pub(super) fn write_destination(&self, output: &[u8]) {
        let bytes = self.descriptor.destination_bytes_max() as usize;
        assert!(output.len() <= bytes, "output is written within its bounds");
        self.write(self.descriptor.destination(), output);
    }

    /// Writes a destination that is as long as source 1.
    pub(super) fn write_moved(&self, output: &[u8]) {
        assert!(
            output.len() <= self.descriptor.source1_bytes() as usize,
            "as many bytes are moved as stated"
        );
        self.write(self.descriptor.destination(), output);
    }

    /// Answers the job. Nothing of its memory is touched afterwards.
    pub(super) fn complete(self, outcome: &Outcome) {
        let record = self.descriptor.completion();
        assert!(record != 0 && record.is_multiple_of(64), "a completion record was checked");
        let record = with_exposed_provenance_mut::<CompletionRecord>(record as usize);
        // SAFETY: by the contract of `new` the record is valid for writes and nobody else touches it before its status
        // is set.
        unsafe { CompletionRecord::complete(record, outcome) };
    }

    fn read(&self, address: u64, bytes: usize, into: &mut Vec<u8>) {
        into.clear();
        if bytes == 0 {
            return;
        }
        into.reserve(bytes);
        // SAFETY: the range is a source that the descriptor names. By the contract of `new` it is valid for reads and
        // does not change. The target has room for it.
        unsafe {
            let source = with_exposed_provenance::<u8>(address as usize);
            source.copy_to_nonoverlapping(into.as_mut_ptr(), bytes);
            into.set_len(bytes);
        }
    }

    fn write(&self, address: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let target = with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: the range lies in the destination or in a state that the job writes. By the contract of `new` it is
        // valid for writes, and no other code touches it.
        unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}
