//! What ziptier does in an unmodified RocksDB, without RocksDB's classes: these are C++, in `ziptier-rocksdb-plugin`, and call
//! what is here.
//!
//! | module | what it owns |
//! |---|---|
//! | `host` | RocksDB, loaded at run time: its C API, and databases |

pub mod host;
