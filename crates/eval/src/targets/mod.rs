//! The yardsticks: uncompressed maps, and a target that costs nothing.

mod btreemap;
mod btreemap_inline;
mod hashmap;
mod locked_map;
mod null;
mod skiplist;

pub use btreemap::BTreeMapTarget;
pub use btreemap_inline::BTreeMapInlineTarget;
pub use hashmap::HashMapTarget;
pub use null::NullTarget;
pub use skiplist::SkipListTarget;
