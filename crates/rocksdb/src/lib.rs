//! What ziptier does in an unmodified RocksDB, without RocksDB's classes: these are C++, in `ziptier-rocksdb-plugin`,
//! and call what is here.
//!
//! | module | what it owns |
//! |---|---|
//! | [`settings`] | the options of a compression manager |
//! | [`codec`] | a compression manager at work: which block becomes what |
//! | [`generation`] | the dictionaries that files carry and share |
//! | [`cache`] | the block cache that survives a restart |
//! | `lifecycle` | when new files get a new generation |
//! | [`rows`] | how a block is cut for the token encoder |
//! | [`wal`] | the write-ahead log, in files with room, stored where memory persists |
//! | [`counters`] | what was done, counted |
//! | [`host`] | RocksDB itself, loaded at run time: its C API, and databases |

#![deny(missing_docs)]

pub mod cache;
pub mod codec;
mod contexts;
pub mod counters;
pub mod generation;
pub mod host;
mod lifecycle;
pub mod rows;
pub mod settings;
pub mod wal;
