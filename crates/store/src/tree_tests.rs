//! Tests of the tree that need an engine around it: its limits, its eviction, its media, or what its background does.

#[cfg(not(any(miri, shuttle)))]
mod batch;
#[cfg(not(any(miri, shuttle)))]
mod counted;
#[cfg(not(any(miri, shuttle)))]
mod dictionaries;
#[cfg(not(any(miri, shuttle)))]
mod fill_blocks;
#[cfg(not(any(miri, shuttle)))]
mod open_value;
#[cfg(not(any(miri, shuttle)))]
mod packing;
#[cfg(not(any(miri, shuttle)))]
mod transfer;
#[cfg(not(shuttle))]
mod write;
