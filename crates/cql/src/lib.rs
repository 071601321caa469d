//! A cluster that speaks CQL, as a target of the benchmark: one table of Cassandra with a compressor.
//!
//! The crate compares compressors of Cassandra under the benchmark's own workloads, with each answer checked. It is no
//! driver for programs, and its tables are dropped at the end of a run.
//!
//! ```
//! use ziptier_cql::{Address, RowKind};
//!
//! let address: Address = "cql://127.0.0.1,127.0.0.2/timeseries".parse()?;
//! assert_eq!((address.clusters[0].len(), address.rows), (2, RowKind::Timeseries));
//! # Ok::<(), String>(())
//! ```
//!
//! | module | what |
//! |---|---|
//! | `address` | the address of a cluster, and the rows of the table |
//! | `compressor` | Cassandra's compressors and ziptier's, as options of a table |
//! | `timeseries` | rows after the workload cql-timeseries |
//! | `node_tool` | flush, compaction and sizes, by a command that the user names |
//! | `cluster`, `target` | the connection and the target, with the feature `driver` alone |
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod address;
#[cfg(feature = "driver")]
mod cluster;
mod compressor;
mod node_tool;
#[cfg(feature = "driver")]
mod target;
mod timeseries;

pub use address::{Address, Host, RowKind, SCHEME};
pub use compressor::{COMPRESSORS, Compressor, Trainer, chunk_kib, option_with_dictionary};
pub use node_tool::{NodeTool, TableFiles};
#[cfg(feature = "driver")]
pub use target::registration;
pub use timeseries::{Reading, Series};
