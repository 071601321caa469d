//! Finds the RocksDB of its process, checks its version, and loads the plugin for it.
