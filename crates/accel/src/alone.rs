//! Runs one job for a set-up, on its own memory, and waits for it.

use std::time::{Duration, Instant};

use crate::completion::{CompletionRecord, Outcome};
use crate::descriptor::{Descriptor, operation};
use crate::device::{Device, SubmitError};
use crate::memory::Pages;

/// How long such a job may take.
const TIME_MAX: Duration = Duration::from_secs(2);
/// The thread of a model may have had no processor.
const MODELLED_TIME_MAX: Duration = Duration::from_secs(60);

/// Why there is no outcome.
#[derive(Debug)]
pub(crate) enum NoOutcome {
    /// The queue did not take the descriptor.
    Refused(SubmitError),
    /// The job did not end.
    Silent,
}

/// Submits a descriptor whose buffers all lie in these pages and whose completion record will lie at their beginning,
/// and waits. If the job does not end, the pages are never freed.
///
/// # Safety
///
/// Every buffer of the descriptor lies in the pages, behind their first 64 bytes.
pub(crate) unsafe fn run_alone(
    device: &dyn Device,
    mut descriptor: Descriptor,
    pages: Pages,
) -> Result<(Outcome, Pages), NoOutcome> {
    let record = pages.at(0).cast::<CompletionRecord>();
    // SAFETY: the pages are ours, and a record is plain bytes.
    unsafe { record.write(CompletionRecord::new()) };
    let block = if device.capabilities().block_on_fault { operation::BLOCK_ON_FAULT } else { 0 };
    descriptor.set_word(descriptor.word() | block).set_completion(record.expose_provenance() as u64);
    let time_max = if device.is_modelled() { MODELLED_TIME_MAX } else { TIME_MAX };
    let start = Instant::now();
    // SAFETY: all buffers lie in the pages. No other code uses the pages, and they stay until the job has ended.
    while let Err(error) = unsafe { device.submit(&descriptor) } {
        if matches!(error, SubmitError::Lost(_)) || start.elapsed() > time_max {
            return Err(NoOutcome::Refused(error));
        }
        std::thread::yield_now();
    }
    loop {
        // Read before the look: a job that ends in time while this thread stands still is no silent one.
        let is_over = start.elapsed() > time_max;
        // SAFETY: the record is valid, and only the device writes to it.
        if let Some(outcome) = unsafe { CompletionRecord::poll(record) } {
            device.retire();
            return Ok((outcome, pages));
        }
        if is_over {
            std::mem::forget(pages);
            device.timed_out();
            return Err(NoOutcome::Silent);
        }
        std::thread::yield_now();
    }
}
