//! The yardsticks: uncompressed maps, and a target that costs nothing.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::keys::{KEY_BYTES, Key};
use crate::target::TargetError;

mod btreemap;
mod btreemap_inline;
mod hashmap;
mod null;
mod skiplist;

pub use btreemap::BTreeMapTarget;
pub use btreemap_inline::BTreeMapInlineTarget;
pub use hashmap::HashMapTarget;
pub use null::NullTarget;
pub use skiplist::SkipListTarget;

/// The key as a map keeps it in place.
fn fixed(key: &[u8]) -> Result<&Key, TargetError> {
    key.try_into().map_err(|_| {
        format!("it keeps keys of {KEY_BYTES} bytes in place, and one of {} came", key.len()).into()
    })
}

fn read<M>(map: &RwLock<M>) -> RwLockReadGuard<'_, M> {
    map.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<M>(map: &RwLock<M>) -> RwLockWriteGuard<'_, M> {
    map.write().unwrap_or_else(PoisonError::into_inner)
}
