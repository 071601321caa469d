//! Identifies the process, because a forked child must not use the queues and the buffers of its parent.
//!
//! One page holds a number, and the kernel wipes that page in a forked child. Reading it costs a load; `getpid` is a
//! system call.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The identity of a process, distinct from that of the processes it was forked from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home(u64);

impl Home {
    /// The process that calls this.
    pub fn here() -> Home {
        // A child inherits the count and the homes up to it, so its own number is new to it.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Some(number) = number() else { return Home(std::process::id().into()) };
        match number.load(Relaxed) {
            0 => {
                let fresh = NEXT.fetch_add(1, Relaxed);
                Home(number.compare_exchange(0, fresh, Relaxed, Relaxed).err().unwrap_or(fresh))
            }
            known => Home(known),
        }
    }

    /// Whether this process is still that one.
    pub fn is_here(self) -> bool {
        Home::here() == self
    }
}

/// The number of this process, 0 before it has one; `None` on kernels that wipe no pages.
#[cfg(not(miri))]
fn number() -> Option<&'static AtomicU64> {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ptr::null_mut;
    use std::sync::OnceLock;

    const BYTES: usize = crate::memory::PAGE_BYTES;
    static NUMBER: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice overlaps nothing.
        let page = unsafe { mmap_anonymous(null_mut(), BYTES, access, MapFlags::PRIVATE) }.ok()?;
        // SAFETY: the page is ours, and nothing is in it yet.
        if unsafe { madvise(page, BYTES, Advice::LinuxWipeOnFork) }.is_err() {
            // SAFETY: as above.
            let _ = unsafe { munmap(page, BYTES) };
            return None;
        }
        // SAFETY: the page is aligned and zero, and stays for ever; a child finds zeros at the same place.
        Some(unsafe { &*page.cast::<AtomicU64>() })
    })
}

/// Miri has no forks.
#[cfg(miri)]
fn number() -> Option<&'static AtomicU64> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    Some(&NUMBER)
}
