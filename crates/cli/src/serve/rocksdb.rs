//! Options of `ziptier serve` that choose the store behind the server.

use clap::{Args, ValueEnum};
use ziptier::{CodecChoice, DeviceSource, Huffman, Path};
use ziptier_server::raise_open_files;

use crate::rocksdb_backend;
use crate::rocksdb_target::{Compression, LibraryArgument};

/// The store behind the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// ziptier's own
    Store,
    /// A stock RocksDB, loaded at run time; needs --dir
    Rocksdb,
}

/// The store behind the server, and the options of RocksDB.
#[derive(Debug, Args)]
pub(crate) struct BackendArguments {
    /// Store behind the server
    #[arg(
        long,
        env = "ZIPTIER_BACKEND",
        value_enum,
        default_value_t = Backend::Store,
        help_heading = "Backend"
    )]
    backend: Backend,

    /// Compression of --backend rocksdb: builtin-lz4, builtin-zstd, builtin-zlib, builtin-none and the like, or
    /// ziptier's, as ziptier, ziptier-deflate and ziptier-lz4 [default: builtin-lz4]
    #[arg(long, env = "ZIPTIER_COMPRESSION", value_name = "NAME", help_heading = "Backend")]
    compression: Option<String>,

    #[command(flatten, next_help_heading = "Backend")]
    library: LibraryArgument,
}

impl BackendArguments {
    /// How to open RocksDB, if that is the backend. `options` are those of the store, of which only a few hold for
    /// RocksDB, too.
    ///
    /// # Errors
    ///
    /// If an option belongs to the other backend, or if RocksDB is not installed.
    pub(crate) fn rocksdb(
        &self,
        options: &ziptier::Options,
    ) -> Result<Option<rocksdb_backend::Options>, Box<dyn std::error::Error + Send + Sync>> {
        if self.backend == Backend::Store {
            if let Some(durable) = &options.durable
                && rocksdb_backend::has_databases_alone(&durable.dir)
            {
                let dir = durable.dir.display();
                return Err(format!(
                    "{dir} has databases of RocksDB; say --backend rocksdb, or name another --dir"
                )
                .into());
            }
            return match &self.compression {
                Some(_) => Err("--compression belongs to --backend rocksdb; the store has --codec".into()),
                None => Ok(None),
            };
        }
        if let Some(option) = of_the_store(options) {
            return Err(
                format!("{option} belongs to --backend store; RocksDB has nothing of the kind").into()
            );
        }
        let Some(durable) = &options.durable else {
            return Err("--backend rocksdb needs a folder; name one by --dir".into());
        };
        Ok(Some(rocksdb_backend::Options {
            library: self.library.load()?,
            dir: durable.dir.clone(),
            durability: durable.durability,
            compression: Compression::named(self.compression.as_deref().unwrap_or("builtin-lz4"))?,
            limit_bytes: options.memory_limit_bytes,
            open_files: raise_open_files(),
            salvage: durable.salvage,
        }))
    }
}

/// An option that is set and that only the store has.
fn of_the_store(options: &ziptier::Options) -> Option<&'static str> {
    let block = &options.block;
    let given = [
        ("--ssd", options.ssd.is_some()),
        ("--far", options.far.is_some()),
        ("--maxmemory-policy allkeys-s3fifo", options.eviction),
        ("--codec", options.codec != CodecChoice::Auto),
        ("--codec-engine", block.engine.is_some()),
        ("--path", block.path != Path::Auto),
        ("--model", matches!(block.device, DeviceSource::Modelled(_))),
        ("--huffman", block.huffman != Huffman::Dynamic),
    ];
    given.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
}
