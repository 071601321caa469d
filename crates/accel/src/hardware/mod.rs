//! Work queues of this machine, opened by this process.
//!
//! If the processor has the instruction and the kernel allows the mapping, a queue's page is mapped and a special
//! instruction stores descriptors to it. Otherwise `write` hands them to the kernel. Kernels since 6.9 refuse the
//! mapping to ordinary users on devices that are not safe against hostile submitters. The kernel ties an open queue to
//! the address space of the process. A child after `fork` must open the queue again; a [`Guarded`] queue returns an
//! error that says so.

mod in_flight;
mod instructions;
mod portal;
mod write_queue;

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::alone::{NoOutcome, run_alone};
use crate::completion::Status;
use crate::descriptor::{Descriptor, Opcode, operation};
use crate::device::{Capabilities, Device, SubmitError};
use crate::discovery::Usable;
use crate::guarded::Guarded;
use crate::memory::Pages;
use portal::Portal;
use write_queue::WriteQueue;

/// Why a queue could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// The device node does not open.
    Open(PathBuf, io::Error),
    /// The file is no device node.
    NotADevice(PathBuf),
    /// The queue refused the first descriptor, a no-op.
    Refused(PathBuf, SubmitError),
    /// The first descriptor, a no-op, ended with this status, or did not end at all.
    Silent(PathBuf, Option<u8>),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Open(path, error) if error.raw_os_error() == Some(16) => {
                write!(f, "cannot open {}: another process has this dedicated queue", path.display())
            }
            OpenError::Open(path, error) => write!(f, "cannot open {}: {error}", path.display()),
            OpenError::NotADevice(path) => {
                write!(f, "cannot use {} as a work queue: it is no device node", path.display())
            }
            OpenError::Refused(path, error) => write!(f, "cannot use {}: {error}", path.display()),
            OpenError::Silent(path, Some(status)) => {
                write!(
                    f,
                    "cannot use {}: a job that does nothing ended with status {status:#04x}",
                    path.display()
                )
            }
            OpenError::Silent(path, None) => {
                write!(f, "cannot use {}: a job that does nothing was not done", path.display())
            }
        }
    }
}

impl std::error::Error for OpenError {}

/// Opens a queue, by a mapping if possible, otherwise for `write`, and runs one no-op on it.
pub fn open(usable: &Usable<'_>) -> Result<Guarded, OpenError> {
    let path = &usable.queue.node;
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let file = opened.map_err(|error| OpenError::Open(path.clone(), error))?;
    if !file.metadata().is_ok_and(|metadata| metadata.file_type().is_char_device()) {
        return Err(OpenError::NotADevice(path.clone()));
    }
    let device = Guarded::new(device_of(file, usable.name(), usable.capabilities()));
    probe(&device, path.clone())?;
    Ok(device)
}

/// A device on an open queue.
fn device_of(file: File, name: String, capabilities: Capabilities) -> Arc<dyn Device> {
    match Portal::map(file, name, capabilities) {
        Ok(portal) => Arc::new(portal),
        Err((file, name, capabilities)) => Arc::new(WriteQueue::new(file, name, capabilities)),
    }
}

fn probe(device: &dyn Device, path: PathBuf) -> Result<(), OpenError> {
    let flags = operation::COMPLETION_ADDRESS_VALID | operation::REQUEST_COMPLETION;
    let nothing = Descriptor::new(Opcode::Noop, flags);
    // SAFETY: the descriptor names no buffer.
    match unsafe { run_alone(device, nothing, Pages::new(64)) } {
        Ok((outcome, _)) if outcome.status() == Some(Status::Success) => Ok(()),
        Ok((outcome, _)) => Err(OpenError::Silent(path, Some(outcome.status_number()))),
        Err(NoOutcome::Refused(error)) => Err(OpenError::Refused(path, error)),
        Err(NoOutcome::Silent) => Err(OpenError::Silent(path, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::NullDevice;

    #[test]
    fn a_device_that_does_nothing_is_probed() {
        probe(&NullDevice::new(), "/dev/iax/wq1.0".into()).unwrap();
    }

    #[test]
    #[cfg(not(miri))]
    fn a_file_that_refuses_descriptors_is_no_queue() {
        let file = File::open("/dev/null").unwrap();
        let device = device_of(file, "read-only".into(), NullDevice::new().capabilities().clone());
        let error = probe(&*device, "/dev/null".into()).unwrap_err();
        assert!(matches!(error, OpenError::Refused(_, SubmitError::Lost(_))), "{error}");
        assert!(error.to_string().starts_with("cannot use /dev/null: the work queue takes no descriptors"));
    }
}
