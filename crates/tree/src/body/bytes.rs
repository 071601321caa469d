//! The owner of a body's bytes: DRAM or far memory. Readers see no difference.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::far::{FAR_SHARE_BYTES, FarBytes, FarMemory};

/// Shared bytes that never change. The address stands here and not behind the owner, so that a read need not ask who
/// that is.
pub(super) struct BodyBytes {
    /// In DRAM, what [`Arc::into_raw`] gave: this holds a share of it.
    bytes: NonNull<[u8]>,
    /// The owner in far memory.
    far: Option<Arc<FarBytes>>,
}

// SAFETY: both owners may be shared and dropped by any thread, and nobody writes the bytes.
unsafe impl Send for BodyBytes {}
// SAFETY: as above.
unsafe impl Sync for BodyBytes {}

impl BodyBytes {
    /// A copy in far memory; `None` when it has no room.
    pub(super) fn put(memory: &Arc<FarMemory>, bytes: &[u8]) -> Option<Self> {
        let far = memory.put(bytes)?;
        Some(Self { bytes: far.start(), far: Some(Arc::new(far)) })
    }

    /// The owner in far memory, if that is where they lie.
    #[inline]
    pub(super) fn far(&self) -> Option<&FarBytes> {
        self.far.as_deref()
    }

    /// Bytes asked of the allocator.
    pub(super) fn dram_bytes(&self) -> usize {
        if self.far.is_some() { FAR_SHARE_BYTES } else { self.len() + 2 * size_of::<usize>() }
    }
}

impl From<&[u8]> for BodyBytes {
    fn from(bytes: &[u8]) -> Self {
        let bytes = Arc::into_raw(Arc::<[u8]>::from(bytes));
        Self { bytes: NonNull::new(bytes.cast_mut()).expect("an allocation has an address"), far: None }
    }
}

impl Deref for BodyBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: this holds a share of the owner, which keeps the bytes where they are.
        unsafe { self.bytes.as_ref() }
    }
}

impl Clone for BodyBytes {
    fn clone(&self) -> Self {
        if self.far.is_none() {
            // SAFETY: it came from `Arc::into_raw`, and this holds a share.
            unsafe { Arc::increment_strong_count(self.bytes.as_ptr()) };
        }
        Self { bytes: self.bytes, far: self.far.clone() }
    }
}

impl Drop for BodyBytes {
    fn drop(&mut self) {
        if self.far.is_none() {
            // SAFETY: the share that this holds, given back once.
            drop(unsafe { Arc::from_raw(self.bytes.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_live_as_long_as_their_last_share_in_either_place() {
        let memory = FarMemory::on_heap(100);
        let used = || memory.usage().used_bytes;
        let dram = BodyBytes::from(&b"in DRAM"[..]);
        let far = BodyBytes::put(&memory, b"in far memory").unwrap();
        for (bytes, text) in [(dram, &b"in DRAM"[..]), (far, b"in far memory")] {
            let share = bytes.clone();
            assert_eq!((&*bytes, &*share), (text, text));
            drop(bytes);
            let reader = std::thread::spawn(move || assert_eq!(&*share, text));
            reader.join().unwrap();
        }
        assert_eq!(used(), 0);
        assert!(BodyBytes::put(&memory, &[0; 101]).is_none() && memory.is_full());
        drop(BodyBytes::put(&memory, &[0; 100]).unwrap());
        assert!(!memory.is_full());
    }
}
