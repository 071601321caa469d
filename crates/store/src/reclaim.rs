//! What readers may still hold is freed by way of an epoch (`crossbeam-epoch`), and this carries it there.

/// A pointer to something that new readers cannot reach, on its way to be freed by whatever thread moves the epoch.
pub(crate) struct Unreachable<T>(*mut T);

// SAFETY: this is the one owner of what it points to, and everything the store retires may be dropped anywhere.
unsafe impl<T: Send + Sync> Send for Unreachable<T> {}

impl<T> Unreachable<T> {
    pub(crate) fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    pub(crate) fn into_raw(self) -> *mut T {
        self.0
    }
}
