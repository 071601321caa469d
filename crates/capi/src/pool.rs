//! Scratch memory that any thread takes for a call and gives back, so that no call allocates once the scratch has
//! grown.

use std::sync::{Mutex, PoisonError};

/// A call keeps no more scratch than this.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Scratch memory.
pub(crate) trait Scratch: Default {
    /// Bytes of heap that it holds.
    fn memory_bytes(&self) -> usize;
}

impl Scratch for Vec<u8> {
    fn memory_bytes(&self) -> usize {
        self.capacity()
    }
}

/// Scratch that no call uses just now.
#[derive(Debug, Default)]
pub(crate) struct Pool<T>(Mutex<Vec<T>>);

impl<T: Scratch> Pool<T> {
    /// Gives `work` scratch for its exclusive use. The scratch is dropped after a panic.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let mut scratch = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
        let result = work(&mut scratch);
        if scratch.memory_bytes() <= KEPT_BYTES_MAX {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
        }
        result
    }
}
