//! The yardsticks: uncompressed maps, and a target that costs nothing.

mod btreemap;
mod null;
mod skiplist;

pub use btreemap::BTreeMapTarget;
pub use null::NullTarget;
pub use skiplist::SkipListTarget;
