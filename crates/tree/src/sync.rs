//! The few synchronisation primitives of the store, and the points at which a schedule explorer may interrupt them.
//!
//! Under `--cfg shuttle`, locks and threads are the explorer's, and another thread may run at each `interleave`.
//! Otherwise both cost nothing beyond the primitive.

#[cfg(not(shuttle))]
pub use parking_lot::{Mutex, MutexGuard};

#[cfg(not(shuttle))]
pub use std::thread_local;

#[cfg(shuttle)]
pub use explored::{Mutex, MutexGuard};
#[cfg(shuttle)]
pub use shuttle::thread_local;

/// A point between two steps of a lock-free protocol.
#[inline(always)]
pub(crate) fn interleave() {
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
}

/// The round from which on [`back_off`] sleeps.
pub const SLEEPS_FROM: u32 = 256;

/// Waits a moment for another thread's step: `round` grows with every call of one wait.
pub fn back_off(round: u32) {
    #[cfg(shuttle)]
    {
        let _ = round;
        shuttle::thread::yield_now();
    }
    #[cfg(not(shuttle))]
    match round {
        0..4 => (0..1 << round).for_each(|_| std::hint::spin_loop()),
        4..SLEEPS_FROM => std::thread::yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(50)),
    }
}

#[cfg(shuttle)]
mod explored {
    pub use shuttle::sync::MutexGuard;

    /// `parking_lot`'s interface over the explorer's mutex.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// A mutex that nobody holds.
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }

        /// Whether a thread holds it.
        pub fn is_locked(&self) -> bool {
            self.try_lock().is_none()
        }

        /// Waits until no other thread holds it, and takes it.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no holder of a store's lock panics")
        }
    }
}
