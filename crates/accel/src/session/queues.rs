//! The queues of a session. They take turns, and lost queues get no more jobs.

use std::io;
use std::sync::Arc;

use super::Counters;
use crate::descriptor::{Descriptor, operation};
use crate::device::{Capabilities, Device, SubmitError};
use crate::error::JobError;

/// Pauses of the processor before a full queue is asked again.
const PAUSES: u32 = 8;

pub(super) struct Queues {
    queues: Vec<Queue>,
    /// The queue whose turn it is.
    turn: usize,
    /// The common capabilities of all queues.
    capabilities: Capabilities,
    are_modelled: bool,
}

struct Queue {
    device: Arc<dyn Device>,
    /// Operation flags of this queue.
    flags: u32,
    is_lost: bool,
}

impl Queues {
    pub(super) fn new(devices: Vec<Arc<dyn Device>>) -> Queues {
        let common = devices.iter().map(|device| device.capabilities().clone()).reduce(common);
        let are_modelled = devices.iter().any(|device| device.is_modelled());
        let queue = |device: Arc<dyn Device>| {
            let flags = if device.capabilities().block_on_fault { operation::BLOCK_ON_FAULT } else { 0 };
            Queue { device, flags, is_lost: false }
        };
        let queues = devices.into_iter().map(queue).collect();
        Queues { queues, turn: 0, capabilities: common.expect("a session has a queue"), are_modelled }
    }

    /// Leaves no queues behind.
    pub(super) fn take(&mut self) -> Queues {
        let (queues, capabilities) = (std::mem::take(&mut self.queues), self.capabilities.clone());
        Queues { queues, turn: 0, capabilities, are_modelled: self.are_modelled }
    }

    pub(super) fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    pub(super) fn are_modelled(&self) -> bool {
        self.are_modelled
    }

    pub(super) fn device(&self, queue: usize) -> &dyn Device {
        &*self.queues[queue].device
    }

    /// Tries each queue, several times while it is full, and returns the queue that took the descriptor.
    ///
    /// # Safety
    ///
    /// As for [`Device::submit`].
    pub(super) unsafe fn submit(
        &mut self,
        descriptor: &Descriptor,
        tries: u32,
        counters: &mut Counters,
    ) -> Result<usize, JobError> {
        let count = self.queues.len();
        let mut lost = None;
        for index in (self.turn..count).chain(0..self.turn) {
            let queue = &mut self.queues[index];
            if queue.is_lost {
                continue;
            }
            let mut descriptor = *descriptor;
            descriptor.set_word(descriptor.word() | queue.flags);
            // SAFETY: the caller's.
            match unsafe { queue.ask(&descriptor, tries, counters) } {
                Ok(()) => {
                    self.turn = if index + 1 == count { 0 } else { index + 1 };
                    counters.descriptors += 1;
                    return Ok(index);
                }
                Err(SubmitError::Full) => {}
                Err(SubmitError::Lost(error)) => {
                    queue.is_lost = true;
                    counters.queues_lost += 1;
                    lost = Some(error);
                }
            }
        }
        if self.queues.iter().any(|queue| !queue.is_lost) {
            return Err(JobError::QueueFull);
        }
        Err(JobError::NoQueue(lost.unwrap_or_else(|| io::ErrorKind::NotConnected.into())))
    }
}

impl Queue {
    /// # Safety
    ///
    /// As for [`Device::submit`].
    unsafe fn ask(
        &self,
        descriptor: &Descriptor,
        tries: u32,
        counters: &mut Counters,
    ) -> Result<(), SubmitError> {
        for _ in 1..tries {
            // SAFETY: the caller's.
            match unsafe { self.device.submit(descriptor) } {
                Err(SubmitError::Full) => counters.queue_full += 1,
                other => return other,
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        // SAFETY: the caller's.
        let last = unsafe { self.device.submit(descriptor) };
        counters.queue_full += u64::from(matches!(last, Err(SubmitError::Full)));
        last
    }
}

/// The common capabilities of both.
fn common(one: Capabilities, other: Capabilities) -> Capabilities {
    Capabilities {
        generation: one.generation.min(other.generation),
        block_on_fault: one.block_on_fault && other.block_on_fault,
        transfer_bytes_max: one.transfer_bytes_max.min(other.transfer_bytes_max),
        depth: one.depth.saturating_add(other.depth),
        tells_full: one.tells_full && other.tells_full,
        opcodes: std::array::from_fn(|word| one.opcodes[word] & other.opcodes[word]),
        iaa_cap: one.iaa_cap & other.iaa_cap,
    }
}
