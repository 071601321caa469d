//! A device that answers as the test says.

use std::io;
use std::ptr::with_exposed_provenance_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ziptier_accel::{
    Capabilities, CompletionRecord, Descriptor, Device, ErrorCode, Outcome, Status, SubmitError,
    null::NullDevice,
};

/// The answer to a descriptor.
pub(crate) enum Answer {
    /// Its job ends at once.
    Ends(Outcome),
    /// Its job runs until the test ends it.
    Runs,
    /// It is not taken.
    Full,
    /// It is not taken, nor is any other.
    Lost,
}

type Script = Box<dyn FnMut(&Descriptor) -> Answer + Send>;

pub(crate) struct Scripted {
    capabilities: Capabilities,
    script: Mutex<Script>,
    pub(crate) running: Mutex<Vec<Descriptor>>,
    pub(crate) retired: AtomicU32,
}

impl Scripted {
    pub(crate) fn new(script: impl FnMut(&Descriptor) -> Answer + Send + 'static) -> Arc<Scripted> {
        Scripted::with(script, |_| {})
    }

    pub(crate) fn with(
        script: impl FnMut(&Descriptor) -> Answer + Send + 'static,
        change: impl FnOnce(&mut Capabilities),
    ) -> Arc<Scripted> {
        let mut capabilities = NullDevice::new().capabilities().clone();
        change(&mut capabilities);
        let script: Mutex<Script> = Mutex::new(Box::new(script));
        Arc::new(Scripted { capabilities, script, running: Mutex::default(), retired: AtomicU32::new(0) })
    }

    /// Ends the oldest job that runs.
    pub(crate) fn end_oldest(&self, outcome: &Outcome) {
        let descriptor = self.running.lock().unwrap().remove(0);
        complete(&descriptor, outcome);
    }

    pub(crate) fn retired(&self) -> u32 {
        self.retired.load(Ordering::Relaxed)
    }
}

impl Device for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    unsafe fn submit(&self, descriptor: &Descriptor) -> Result<(), SubmitError> {
        match (self.script.lock().unwrap())(descriptor) {
            Answer::Ends(outcome) => complete(descriptor, &outcome),
            Answer::Runs => self.running.lock().unwrap().push(*descriptor),
            Answer::Full => return Err(SubmitError::Full),
            Answer::Lost => return Err(SubmitError::Lost(io::ErrorKind::BrokenPipe.into())),
        }
        Ok(())
    }

    fn retire(&self) {
        self.retired.fetch_add(1, Ordering::Relaxed);
    }
}

fn complete(descriptor: &Descriptor, outcome: &Outcome) {
    let record = with_exposed_provenance_mut::<CompletionRecord>(descriptor.completion() as usize);
    // SAFETY: the session keeps the record until it has a status.
    unsafe { CompletionRecord::complete(record, outcome) };
}

/// The bytes of a descriptor's first source.
pub(crate) fn source(descriptor: &Descriptor) -> Vec<u8> {
    let place = with_exposed_provenance_mut::<u8>(descriptor.source1() as usize);
    // SAFETY: the session keeps the source until the job has ended.
    unsafe { std::slice::from_raw_parts(place, descriptor.source1_bytes() as usize) }.to_vec()
}

/// Writes output, as the device would.
pub(crate) fn put_output(descriptor: &Descriptor, output: &[u8]) {
    assert!(output.len() <= descriptor.destination_bytes_max() as usize);
    let place = with_exposed_provenance_mut::<u8>(descriptor.destination() as usize);
    // SAFETY: the session keeps the destination until the job has ended.
    unsafe { place.copy_from_nonoverlapping(output.as_ptr(), output.len()) };
}

/// Success with so many bytes of output.
pub(crate) fn success(output_bytes: u32) -> Outcome {
    let mut outcome = Outcome::new(Status::Success);
    outcome.set_output_bytes(output_bytes);
    outcome
}

/// An error of the data.
pub(crate) fn analytics(code: ErrorCode) -> Outcome {
    let mut outcome = Outcome::new(Status::Analytics);
    outcome.set_error_number(code as u8);
    outcome
}

/// A page fault.
pub(crate) fn fault(address: u64, for_write: bool) -> Outcome {
    let mut outcome = Outcome::new(Status::PageFault);
    outcome.set_fault_address(address);
    if for_write {
        outcome.set_faulted_on_write();
    }
    outcome
}
