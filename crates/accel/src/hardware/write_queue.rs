//! A queue that takes descriptors by `write`, one system call each.

use std::fs::File;
use std::io;

use rustix::io::Errno;

use super::in_flight::InFlight;
use crate::descriptor::Descriptor;
use crate::device::{Capabilities, Device, SubmitError};

/// An open queue that is not mapped.
pub(super) struct WriteQueue {
    name: String,
    capabilities: Capabilities,
    /// Jobs of a dedicated queue. The kernel stores to it without a check for room.
    in_flight: Option<InFlight>,
    file: File,
}

impl WriteQueue {
    pub(super) fn new(file: File, name: String, capabilities: Capabilities) -> WriteQueue {
        let in_flight = (!capabilities.tells_full).then(|| InFlight::new(capabilities.depth));
        WriteQueue { name, capabilities, in_flight, file }
    }

    fn write(&self, descriptor: &Descriptor) -> Result<(), SubmitError> {
        match rustix::io::write(&self.file, descriptor.as_bytes()) {
            Ok(64) => Ok(()),
            Ok(written) => {
                let what = format!("the kernel took {written} of 64 bytes");
                Err(SubmitError::Lost(io::Error::new(io::ErrorKind::WriteZero, what)))
            }
            Err(Errno::AGAIN | Errno::INTR) => Err(SubmitError::Full),
            Err(error) => Err(SubmitError::Lost(error.into())),
        }
    }
}

impl Device for WriteQueue {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), SubmitError> {
        let Some(in_flight) = &self.in_flight else { return self.write(descriptor) };
        if !in_flight.take() {
            return Err(SubmitError::Full);
        }
        let written = self.write(descriptor);
        if written.is_err() {
            in_flight.give_back();
        }
        written
    }

    fn retire(&self) {
        if let Some(in_flight) = &self.in_flight {
            in_flight.give_back();
        }
    }
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::null::NullDevice;

    fn queue(tells_full: bool, depth: u32) -> (WriteQueue, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut capabilities = NullDevice::new().capabilities().clone();
        (capabilities.tells_full, capabilities.depth) = (tells_full, depth);
        (WriteQueue::new(File::from(OwnedFd::from(ours)), "socket".into(), capabilities), theirs)
    }

    fn submit(queue: &WriteQueue, byte: u8) -> Result<(), SubmitError> {
        // SAFETY: nobody executes the descriptor.
        unsafe { queue.submit(&Descriptor::from_bytes([byte; 64])) }
    }

    #[test]
    fn exactly_the_bytes_of_the_descriptor_arrive() {
        let (queue, mut theirs) = queue(true, 1);
        submit(&queue, 1).unwrap();
        submit(&queue, 2).unwrap();
        drop(queue);
        let mut arrived = Vec::new();
        theirs.read_to_end(&mut arrived).unwrap();
        assert_eq!(arrived, [[1; 64], [2; 64]].concat());
    }

    #[test]
    fn a_kernel_that_says_again_has_a_full_queue() {
        let (queue, mut theirs) = queue(true, 1);
        let mut taken = 0u8;
        let refused = loop {
            match submit(&queue, taken) {
                Ok(()) => taken = taken.wrapping_add(1),
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, SubmitError::Full), "{refused}");
        let mut arrived = [9; 64];
        theirs.read_exact(&mut arrived).unwrap();
        assert_eq!(arrived, [0; 64]);
    }

    #[test]
    fn a_queue_that_is_gone_is_lost() {
        let (queue, theirs) = queue(true, 1);
        drop(theirs);
        let refused = submit(&queue, 0).unwrap_err();
        assert!(matches!(refused, SubmitError::Lost(_)), "{refused}");
    }

    #[test]
    fn jobs_of_a_dedicated_queue_are_counted() {
        let (queue, theirs) = queue(false, 2);
        assert!(submit(&queue, 0).is_ok() && submit(&queue, 0).is_ok());
        assert!(matches!(submit(&queue, 0), Err(SubmitError::Full)));
        queue.retire();
        drop(theirs);
        assert!(matches!(submit(&queue, 0), Err(SubmitError::Lost(_))));
        // A descriptor that was not submitted is not counted.
        assert!(matches!(submit(&queue, 0), Err(SubmitError::Lost(_))));
    }
}
