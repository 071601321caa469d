//! The allocator of this program, and what it holds.

use tikv_jemalloc_ctl::{epoch, stats};
use ziptier_media::huge_pages;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The allocator's configuration, which the allocator reads at start-up: one arena, and thread caches for the smallest
/// objects only. Larger caches and more arenas would leave bodies and landings in caches and half-empty slabs. That
/// memory costs more than the time of a lock. A thread of the allocator gives free pages back to the system within
/// seconds, also while the program is idle and calls the allocator no more.
// SAFETY: it is the name and the type that jemalloc documents for its configuration, and nothing else defines it.
#[unsafe(export_name = "_rjem_malloc_conf")]
static MALLOC_CONF: Configuration =
    Configuration(c"narenas:1,tcache_max:64,background_thread:true,dirty_decay_ms:2000".as_ptr());

/// A C string for the allocator.
#[repr(transparent)]
struct Configuration(*const std::ffi::c_char);

// SAFETY: it points at a constant string that no code writes.
unsafe impl Sync for Configuration {}

/// Bytes in pages that the allocator has in use; 0 if it does not tell.
pub(crate) fn held_bytes() -> u64 {
    // The statistics stand still until the epoch is advanced.
    epoch::advance().and_then(|_| stats::active::read()).map_or(0, |bytes| bytes as u64)
}

/// Gives the free pages that the allocator keeps back to the system.
pub(crate) fn release() {
    // Its documentation: `arena.<i>.purge`, with MALLCTL_ARENAS_ALL (4096) for all arenas, takes and gives nothing.
    let name = c"arena.4096.purge".as_ptr();
    let nothing = std::ptr::null_mut();
    // SAFETY: the name is a constant C string; the call reads and writes nothing else of ours. Failure changes nothing.
    unsafe { tikv_jemalloc_sys::mallctl(name, nothing, std::ptr::null_mut(), nothing, 0) };
}

/// An empty vector with room for so many bytes, on huge pages if the kernel has any.
pub(crate) fn room(bytes: usize) -> Vec<u8> {
    let mut room = Vec::with_capacity(bytes);
    huge_pages::prefer(room.spare_capacity_mut());
    room
}

/// The allocator's own version.
pub(crate) fn version() -> String {
    tikv_jemalloc_ctl::version::read().map_or_else(|_| "unknown".into(), str::to_owned)
}
