//! Faults that a test puts into the store, to see that the simulation finds them.
//!
//! The store asks for them where they take effect, in builds for tests alone.

use std::cell::Cell;

/// A fault. Each loses, keeps or brings back something that it should not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectedFault {
    /// A leaf goes down to an image that a checkpoint wrote, whatever was written since.
    LostDemotion,
    /// There is always room.
    RoomWithoutEnd,
    /// A segment is removed that the checkpoint in force names.
    NamedImageFreed,
    /// The delete of a key that memory does not have is not logged, though the key may lie in a checkpoint.
    TombstoneForgotten,
    /// A recovery passes over all windows of the log but the last.
    WindowSkipped,
}

impl InjectedFault {
    /// All faults.
    #[cfg(all(not(miri), not(shuttle)))]
    pub const ALL: [Self; 5] = [
        Self::LostDemotion,
        Self::RoomWithoutEnd,
        Self::NamedImageFreed,
        Self::TombstoneForgotten,
        Self::WindowSkipped,
    ];
}

std::thread_local! {
    static PUT_IN: Cell<Option<InjectedFault>> = const { Cell::new(None) };
}

/// Whether this thread's stores have the fault.
pub fn has(fault: InjectedFault) -> bool {
    PUT_IN.get() == Some(fault)
}

/// Gives this thread's stores a fault, or none.
#[cfg(all(not(miri), not(shuttle)))]
pub fn put_in(fault: Option<InjectedFault>) {
    PUT_IN.set(fault);
}
