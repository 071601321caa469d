//! Descriptors of any bytes, whose addresses are those of buffers with guard bytes.

use crate::jobs::{Buffer, FLAGS};
use ziptier_accel::aecs::DecompressState;
use ziptier_accel::descriptor::operation;
use ziptier_accel::{CompletionRecord, Descriptor, Device, Outcome};

/// Bytes of a source or destination at most.
const BYTES_MAX: u32 = 8192;

/// The parts of a job.
pub(crate) struct Wild<'a> {
    pub(crate) descriptor: [u8; 64],
    pub(crate) source1: &'a [u8],
    pub(crate) source2: &'a [u8],
}

impl Wild<'_> {
    /// Runs the job on a synchronous device. Fails if anything beside its destination and its states was written.
    pub(crate) fn run(&self, device: &dyn Device) -> Outcome {
        let mut source1 = Buffer::of(self.source1);
        let mut descriptor = Descriptor::from_bytes(self.descriptor);
        let word = descriptor.word() | FLAGS;
        let bytes = descriptor.source1_bytes().min(source1.len());
        descriptor.set_word(word).set_source1_bytes(bytes);
        if descriptor.source1_bytes() > 0 || descriptor.source1() != 0 {
            let address = source1.address();
            descriptor.set_source1(address);
        }
        let destination_bytes = match descriptor.opcode() {
            // A move says its size elsewhere.
            3 => descriptor.source1_bytes(),
            _ => descriptor.destination_bytes_max().min(BYTES_MAX),
        };
        let mut target = Buffer::new(destination_bytes as usize);
        if descriptor.opcode() != 3 {
            descriptor.set_destination_bytes_max(destination_bytes);
        }
        if descriptor.destination() != 0 {
            descriptor.set_destination(target.address());
        }
        let bytes = descriptor.source2_bytes().min(2 * DecompressState::BYTES as u32);
        descriptor.set_source2_bytes(bytes);
        let mut source2 = Buffer::new(2 * bytes as usize);
        let copied = self.source2.len().min(source2.bytes().len());
        source2.bytes_mut()[..copied].copy_from_slice(&self.source2[..copied]);
        let before = source2.bytes().to_vec();
        if descriptor.source2() != 0 {
            let misaligned = descriptor.source2() % 2 * 16 * u64::from(bytes >= 16);
            descriptor.set_source2(source2.address() + misaligned);
            // A misaligned source ends where its buffer does.
            descriptor.set_source2_bytes(bytes - misaligned as u32);
        }
        let mut record = Box::new(CompletionRecord::new());
        let record = &raw mut *record;
        descriptor.set_completion(record.expose_provenance() as u64);
        // SAFETY: all addresses are those of buffers that live until the end of this function, and the device executes
        // the job at once. Any other address is 0, which the device refuses.
        let outcome = unsafe {
            device.submit(&descriptor).unwrap();
            CompletionRecord::poll(record)
        };
        [&source1, &target, &source2].into_iter().for_each(Buffer::check);
        assert!(source1.bytes() == self.source1, "a source was written");
        let writes = descriptor.flags() & operation::WRITE_SOURCE2_MASK != 0;
        let half = bytes as usize;
        if !writes {
            assert!(source2.bytes() == before, "a source was written");
        } else if descriptor.flags() & operation::STATE_TOGGLE == 0 {
            assert!(source2.bytes()[..half] == before[..half], "the state that is read was written");
        } else {
            assert!(source2.bytes()[half..] == before[half..], "the state that is read was written");
        }
        let outcome = outcome.expect("the job has ended");
        assert!(outcome.status().is_some() && outcome.output_bytes() <= target.len().max(1 << 27));
        outcome
    }
}
