//! How a job can fail.

use std::fmt;
use std::io;

use crate::completion::{ErrorCode, Outcome, Status};

/// The reason why a job was not taken, or ended without a result. Only [`Damaged`](JobError::Damaged) says anything
/// against the data.
#[derive(Debug)]
#[non_exhaustive]
pub enum JobError {
    /// Every job of the session is under way: reap some.
    AllTaken,
    /// Every queue is full, and stayed so for a while.
    QueueFull,
    /// The last queue is gone.
    NoQueue(io::Error),
    /// The source has no bytes.
    Empty,
    /// More bytes than the session's buffers or the queues can hold.
    TooLarge {
        /// The requested bytes.
        bytes: usize,
        /// The most bytes possible.
        bytes_max: usize,
    },
    /// The queues cannot do this.
    Unsupported(&'static str),
    /// The output is longer than allowed.
    DoesNotFit,
    /// An element of the output, or an index, has more bits than the output is wide.
    TooNarrow,
    /// The source is damaged.
    Damaged(ErrorCode),
    /// Verification failed: the compressed stream does not give the source back.
    VerifyFailed,
    /// The device gave the job up after too long a time.
    Watchdog,
    /// A hardware error: the status.
    Hardware(Status),
    /// A page is missing again and again, or does not belong to the job.
    PageFault {
        /// Its address, as the device told it.
        address: u64,
        /// Whether the device wanted to write.
        for_write: bool,
    },
    /// The device rejected the descriptor: status and invalid flags.
    Rejected {
        /// The number of the status.
        status: u8,
        /// The number of the error code.
        error: u8,
        /// Flags that are not valid.
        flags: u32,
    },
    /// The device contradicts itself.
    Contradiction(&'static str),
    /// The job did not end in time. Its buffers are not used again before it does.
    TimedOut,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("accelerator: ")?;
        match self {
            JobError::AllTaken => f.write_str("every job of this session is under way"),
            JobError::QueueFull => f.write_str("every work queue is full"),
            JobError::NoQueue(error) => write!(f, "no work queue takes descriptors any more: {error}"),
            JobError::Empty => f.write_str("the source is empty"),
            JobError::TooLarge { bytes, bytes_max } => {
                write!(f, "{bytes} bytes are more than the {bytes_max} that a job takes")
            }
            JobError::Unsupported(what) => write!(f, "the work queues have no {what}"),
            JobError::DoesNotFit => f.write_str("the output does not fit"),
            JobError::TooNarrow => f.write_str("elements of the output do not fit its width"),
            JobError::Damaged(code) => write!(f, "damaged input: {code}"),
            JobError::VerifyFailed => f.write_str("what was compressed did not come back"),
            JobError::Watchdog => f.write_str("the watchdog of the device ended the job"),
            JobError::Hardware(status) => write!(f, "the device failed: {status}"),
            JobError::PageFault { address, for_write } => {
                let access = if *for_write { "writing" } else { "reading" };
                write!(f, "page fault when {access} at {address:#x}")
            }
            JobError::Rejected { status, error, flags } => {
                write!(
                    f,
                    "the device rejected the descriptor (status {status:#04x}, error {error}, flags {flags:#x})"
                )
            }
            JobError::Contradiction(what) => write!(f, "the device contradicts itself: {what}"),
            JobError::TimedOut => f.write_str("the job did not end in time"),
        }
    }
}

impl std::error::Error for JobError {}

/// The error for a status other than success, page fault and refused page request. The meaning depends on whether the
/// job compresses.
pub(crate) fn error_of(outcome: &Outcome, compresses: bool) -> JobError {
    let number = outcome.status_number();
    let rejected =
        JobError::Rejected { status: number, error: outcome.error_number(), flags: outcome.invalid_flags() };
    match Status::of(number) {
        Some(Status::Analytics) => match outcome.error_code() {
            Some(ErrorCode::UnrecoverableOverflow) => JobError::DoesNotFit,
            Some(ErrorCode::OutputTooNarrow) => JobError::TooNarrow,
            Some(ErrorCode::VerifyFailed) => JobError::VerifyFailed,
            // These errors concern the host's input to the device, not the source.
            None | Some(ErrorCode::BadState | ErrorCode::BadMiniBlockSize | ErrorCode::NoCodeForSymbol) => {
                rejected
            }
            Some(_) if compresses => rejected,
            Some(code) => JobError::Damaged(code),
        },
        Some(Status::OutputOverflow) => JobError::DoesNotFit,
        Some(Status::Watchdog) => JobError::Watchdog,
        Some(
            status @ (Status::Readback
            | Status::Hardware
            | Status::HardwareReadback
            | Status::Translation
            | Status::PageRequestTimeout),
        ) => JobError::Hardware(status),
        _ => rejected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_errors_of_the_data_blame_the_data() {
        for status in Status::ALL.iter().copied() {
            for code in ErrorCode::ALL.iter().copied() {
                for compresses in [false, true] {
                    let mut outcome = Outcome::new(status);
                    outcome.set_error_number(code as u8);
                    let error = error_of(&outcome, compresses);
                    let blames = matches!(error, JobError::Damaged(_));
                    assert!(!blames || (status == Status::Analytics && !compresses), "{status:?} {code:?}");
                }
            }
        }
        let error = |status, code, compresses| {
            let mut outcome = Outcome::new(status);
            outcome.set_error_number(code);
            error_of(&outcome, compresses)
        };
        assert!(matches!(error(Status::Analytics, 25, true), JobError::DoesNotFit));
        assert!(matches!(error(Status::OutputOverflow, 0, false), JobError::DoesNotFit));
        assert!(matches!(error(Status::Analytics, 17, false), JobError::Damaged(ErrorCode::BadDistance)));
        assert!(matches!(error(Status::Watchdog, 0, false), JobError::Watchdog));
        assert!(matches!(error(Status::Hardware, 0, false), JobError::Hardware(Status::Hardware)));
        assert!(matches!(error(Status::BadFlags, 0, false), JobError::Rejected { status: 0x11, .. }));
    }
}
