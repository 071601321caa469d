//! Tables of Cassandra as they lie on disk, without a node: [`Table`] finds the SSTables of a folder, [`SsTable`] reads
//! their chunks, and [`Estimate`] tells what other compressors would make of them.
//!
//! Cassandra never changes an SSTable once it is written, so a node may run meanwhile. [`Table`] leaves out SSTables
//! that the node is writing, has replaced, or removes meanwhile.
//!
//! The formats are those of Cassandra 3.0 to 5.0, which the file names begin with: `ma` to `oa` (big) and `da` (BTI).
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let table = ziptier_cassandra::Table::open(folder)?;
//! assert_eq!(table.ss_tables().len(), 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod compression_info;
mod compressor;
mod error;
mod estimate;
mod statement;
mod table;
mod transactions;

pub use compression_info::CompressionInfo;
pub use compressor::dictionary_option;
pub use error::Error;
pub use estimate::{
    CHUNK_BYTES, DICTIONARY_BYTES_MAX, DICTIONARY_BYTES_MAX_6, Estimate, FormatEstimate, train,
};
pub use statement::TokenOptions;
pub use table::{SsTable, Table};
pub use ziptier_codec::block::Dictionary;
