//! The yardsticks: uncompressed maps, any server that speaks RESP, a raw medium, any data access
//! function in a process of its own, and a target that costs nothing.

mod btreemap;
mod exec;
mod file;
mod hashmap;
mod locked_map;
mod null;
mod resp;
mod skiplist;

pub use btreemap::{BTreeMapInlineTarget, BTreeMapTarget};
pub use exec::ExecTarget;
pub(crate) use exec::NAME as EXEC_NAME;
pub use file::FileTarget;
pub(crate) use file::NAME as FILE_NAME;
pub use hashmap::HashMapTarget;
pub use null::NullTarget;
pub(crate) use resp::NAME as RESP_NAME;
pub use resp::{Replies, RespTarget};
pub use skiplist::SkipListTarget;

pub use crate::servers::resp::connections::Connections;
