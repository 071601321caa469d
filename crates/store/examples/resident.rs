//! A store's memory limit beside the memory of its process, with jemalloc as the `ziptier` command sets it:
//! `cargo run -p ziptier --example resident`. `resident_system` is the same with Rust's default allocator.

#[path = "resident/load.rs"]
mod load;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// One arena, and thread caches for the smallest objects only: bodies and landings in caches and half-empty slabs cost
/// memory.
// SAFETY: it is the name and the type that jemalloc documents for its configuration, and nothing else defines it.
#[unsafe(export_name = "_rjem_malloc_conf")]
static MALLOC_CONF: Settings = Settings(c"narenas:1,tcache_max:64".as_ptr());

#[repr(transparent)]
struct Settings(*const std::ffi::c_char);

// SAFETY: it points at a constant string that no code writes.
unsafe impl Sync for Settings {}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    load::measure()
}
