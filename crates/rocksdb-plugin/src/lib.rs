//! RocksDB's classes over [`ziptier_rocksdb`], for the RocksDB 11.8.1 of the process.
