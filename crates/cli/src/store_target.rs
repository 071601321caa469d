//! Our own store as a target of the benchmark.

use std::ops::Bound;

use ziptier::{BlockOptions, CodecChoice, DeviceSource, Huffman, ModelOptions, Options, Path, Store, Values};
use ziptier_codec::block::{Preloaded, Setting};
use ziptier_eval::{
    Batch, Config, ContextCache, Counters, EngineUnavailable, Huffman as AskedHuffman, Path as AskedPath,
    Records, Registration, Target, TargetError, TargetOptions,
};

/// Bytes of the blocks that the row of a preloaded accelerator has: Intel's takes none below 512, packed or not, and
/// blocks that are written to are half as large as this.
const ACCELERATED_BLOCK_BYTES: usize = 4096;

/// Codecs that the store has or will have; those that it accepts are offered.
const CODECS: [&str; 6] = ["auto", "none", "token", "lz4", "zstd", "deflate"];

/// The store, for the list of targets.
pub(crate) fn registration() -> Registration {
    let codecs: Vec<&str> = CODECS.into_iter().filter(|codec| codec.parse::<CodecChoice>().is_ok()).collect();
    let store = Registration::of::<StoreTarget>("store", "ziptier's compressed store, embedded", &codecs);
    let all = &[AskedHuffman::Dynamic, AskedHuffman::Fixed, AskedHuffman::Canned];
    let per_block = &[AskedHuffman::Fixed, AskedHuffman::Dynamic];
    store
        .with_engine("deflate", "software", all)
        .with_engine("deflate", "iaa", all)
        .on_paths(&[AskedPath::Hardware])
        .on_models()
        .with_engine("deflate", "qpl", per_block)
        .on_paths(&[AskedPath::Software, AskedPath::Hardware])
        .with_engine("deflate", "zlib", per_block)
        .with_preloaded("deflate", "zlib", ACCELERATED_BLOCK_BYTES)
}

/// The options of the store, as far as requested. The store takes every option.
fn options(config: &Config) -> Result<Options, TargetError> {
    let codec = config.codec.parse::<CodecChoice>()?;
    let usual = Options::default();
    let options = Options {
        codec,
        block: block_options(codec, &config.options)?,
        heating: config.heating,
        landing_bytes: config.landing_bytes.unwrap_or(usual.landing_bytes),
        background_packing: config.background.unwrap_or(usual.background_packing),
        background_threads: config.background_threads.unwrap_or(usual.background_threads),
        landing_watermark_pct: config.options.landing_watermark_pct.unwrap_or(usual.landing_watermark_pct),
        ..usual
    };
    options.check().map_err(|error| match error {
        ziptier::Error::EngineUnavailable { reason } => TargetError::from(EngineUnavailable(reason)),
        error => error.into(),
    })?;
    Ok(options)
}

/// The options for packing blocks, as far as requested.
fn block_options(codec: CodecChoice, asked: &TargetOptions) -> Result<BlockOptions, TargetError> {
    let usual = BlockOptions::default();
    let huffman = asked.huffman.map(|huffman| match huffman {
        AskedHuffman::Fixed => Huffman::Fixed,
        AskedHuffman::Dynamic => Huffman::Dynamic,
        AskedHuffman::Canned => Huffman::Canned,
    });
    Ok(BlockOptions {
        bytes: asked.block_bytes.unwrap_or(usual.bytes),
        level: asked.level,
        huffman: huffman.unwrap_or(usual.huffman),
        path: asked.path.map_or(usual.path, |path| match path {
            AskedPath::Auto => Path::Auto,
            AskedPath::Hardware => Path::Hardware,
            AskedPath::Software => Path::Software,
        }),
        device: asked.model.as_deref().map_or(Ok(DeviceSource::Discovered), |model| {
            model.parse::<ModelOptions>().map(DeviceSource::Modelled)
        })?,
        engine: asked.engine.as_deref().map(|name| engine_name(codec, name)).transpose()?,
        background_codec: asked.background_codec.as_deref().map(str::parse).transpose()?,
        context_cache: asked.context_cache.is_none_or(|cache| cache == ContextCache::Thread),
        ..usual
    })
}

/// The engine of a codec by that name.
pub(crate) fn engine_name(codec: CodecChoice, name: &str) -> Result<&'static str, TargetError> {
    let known = codec.to_string().parse().map_or(&[][..], Setting::engine_names);
    let found = known.iter().find(|known| **known == name);
    Ok(*found.ok_or_else(|| match known {
        [] => {
            format!("codec {codec} has no engines: choose lz4, zstd or deflate, or leave --codec-engine out")
        }
        known => format!("codec {codec} has no engine {name}; it has: {}", known.join(", ")),
    })?)
}

struct StoreTarget {
    store: Store,
    /// Huffman mode, where Intel's library is the engine.
    qpl_mode: Option<&'static str>,
    background_threads: usize,
}

/// Values that a multi-get found.
#[derive(Default)]
struct Found(Values);

impl Batch for Found {
    #[inline]
    fn answer(&self, position: usize) -> Option<&[u8]> {
        self.0.get(position)
    }
}

impl Target for StoreTarget {
    type Batch = Found;

    fn check(config: &Config) -> Result<(), TargetError> {
        options(config).map(|_| ())
    }

    fn open(config: &Config) -> Result<Self, TargetError> {
        let options = options(config)?;
        let (huffman, background_threads) = (options.block.huffman, options.background_threads);
        let is_qpl = options.block.engine == Some("qpl");
        let store = Store::open(options)?;
        Ok(StoreTarget { store, qpl_mode: is_qpl.then(|| huffman.name()), background_threads })
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        Ok(self.store.get_into(key, value)?.is_some())
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Found) -> Result<(), TargetError> {
        Ok(self.store.multi_get(keys, &mut batch.0)?)
    }

    #[inline]
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        Ok(self.store.put(key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        Ok(self.store.delete(key)?)
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        for record in self.store.range((Bound::Included(from), Bound::Unbounded)).take(limit) {
            let (key, value) = record?;
            records.push(&key, &value);
        }
        Ok(())
    }

    fn settle(&self) -> Result<(), TargetError> {
        Ok(self.store.settle()?)
    }

    fn describe(&self) -> String {
        let preloaded = Preloaded::find().map(|found| format!("\nbefore libz: {}", found.to_text()));
        format!("{:?} {:?}{}", self.store.memory(), self.store.stats(), preloaded.unwrap_or_default())
    }

    fn counters(&self) -> Counters {
        let stats = self.store.stats();
        Counters {
            engine: Some(self.store.block_worker().unwrap_or("cpu").into()),
            qpl_mode: self.qpl_mode.map(str::to_owned),
            qpl_compress_calls: Some(stats.qpl_compress_calls),
            qpl_decompress_calls: Some(stats.qpl_decompress_calls),
            iaa_compress_calls: Some(stats.iaa_compress_calls),
            iaa_decompress_calls: Some(stats.iaa_decompress_calls),
            zlib_compress_calls: Some(stats.zlib_compress_calls),
            zlib_decompress_calls: Some(stats.zlib_decompress_calls),
            engine_fallbacks: Some(stats.engine_fallbacks),
            engine_queue_full_retries: Some(stats.engine_queue_full_retries),
            engine_faults: Some(stats.engine_faults),
            bg_threads: Some(self.background_threads as u64),
            bg_compactions: Some(stats.packs_background),
            fg_compactions: Some(stats.packs_foreground),
            trainings: Some(stats.trainings),
            adoptions: Some(stats.adoptions),
            coded_raw_bytes: Some(stats.coded_raw_bytes),
            coded_bytes: Some(stats.coded_bytes),
            files: None,
            // Landings and values outside the leaves are raw bytes, too.
            reads_raw: Some(stats.reads_raw + stats.reads_landing + stats.reads_large),
            reads_coded: Some(stats.reads_coded),
            reads_packed: Some(stats.reads_packed),
        }
    }
}
