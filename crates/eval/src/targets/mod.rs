//! The yardsticks: uncompressed maps, any server that speaks RESP, and a target that costs nothing.

mod btreemap;
mod btreemap_inline;
mod hashmap;
mod locked_map;
mod null;
mod resp;
mod skiplist;

pub use btreemap::BTreeMapTarget;
pub use btreemap_inline::BTreeMapInlineTarget;
pub use hashmap::HashMapTarget;
pub use null::NullTarget;
pub(crate) use resp::NAME as RESP_NAME;
pub use resp::RespTarget;
pub use skiplist::SkipListTarget;
