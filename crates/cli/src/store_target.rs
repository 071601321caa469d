//! Our own store as a target of the benchmark.

use std::ops::Bound;

use ziptier::{BlockOptions, CodecChoice, Huffman, Options, Store, Values};
use ziptier_codec::block::Setting;
use ziptier_eval::{
    Batch, Config, ContextCache, Counters, Huffman as AskedHuffman, Key, Records, Registration, Target,
    TargetError, TargetOptions,
};

/// Codecs that the store has or will have; those that it accepts are offered.
const CODECS: [&str; 6] = ["auto", "none", "token", "lz4", "zstd", "deflate"];

/// The store, for the list of targets.
pub(crate) fn registration() -> Registration {
    let codecs: Vec<&str> = CODECS.into_iter().filter(|codec| codec.parse::<CodecChoice>().is_ok()).collect();
    let store = Registration::of::<StoreTarget>("store", "ziptier's compressed store, embedded", &codecs);
    let all = &[AskedHuffman::Dynamic, AskedHuffman::Fixed, AskedHuffman::Canned];
    store.with_engine("deflate", "software", all).with_engine(
        "deflate",
        "zlib",
        &[AskedHuffman::Dynamic, AskedHuffman::Fixed],
    )
}

/// How the store is opened, as far as that was asked for. It takes every option that there is.
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
    options.check()?;
    Ok(options)
}

/// How blocks are packed, as far as that was asked for.
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
        engine: asked.engine.as_deref().map(|name| engine_name(codec, name)).transpose()?,
        background_codec: asked.background_codec.as_deref().map(str::parse).transpose()?,
        context_cache: asked.context_cache.is_none_or(|cache| cache == ContextCache::Thread),
        ..usual
    })
}

fn engine_name(codec: CodecChoice, name: &str) -> Result<&'static str, TargetError> {
    let known = codec.to_string().parse().map_or(&[][..], Setting::engine_names);
    let found = known.iter().find(|known| **known == name);
    Ok(*found.ok_or_else(|| format!("codec {codec} has no engine {name}; it has: {}", known.join(", ")))?)
}

/// Who does the work in the foreground.
fn engine_at_work(options: &Options) -> &'static str {
    let preferred = || {
        let setting = Setting::new(options.codec.to_string().parse().ok()?);
        // Canned codes come later, and from the engine that has the others.
        let huffman = Some(options.block.huffman).filter(|huffman| *huffman != Huffman::Canned);
        Some(setting.with_huffman(huffman.unwrap_or_default()).engine().ok()?.name())
    };
    options.block.engine.or_else(preferred).unwrap_or("cpu")
}

struct StoreTarget {
    store: Store,
    /// Who does the foreground's work.
    engine: &'static str,
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
        let engine = engine_at_work(&options);
        let background_threads = options.background_threads;
        Ok(StoreTarget { store: Store::open(options)?, engine, background_threads })
    }

    #[inline]
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        Ok(self.store.get_into(key, value)?.is_some())
    }

    fn multi_get(&self, keys: &[Key], batch: &mut Found) -> Result<(), TargetError> {
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
        format!("{:?} {:?}", self.store.memory(), self.store.stats())
    }

    fn counters(&self) -> Counters {
        let stats = self.store.stats();
        Counters {
            engine: Some(self.engine.into()),
            bg_threads: Some(self.background_threads as u64),
            bg_compactions: Some(stats.packs_background),
            fg_compactions: Some(stats.packs_foreground),
            coded_raw_bytes: Some(stats.coded_raw_bytes),
            coded_bytes: Some(stats.coded_bytes),
            // Landings and values outside the leaves are raw bytes, too.
            reads_raw: Some(stats.reads_raw + stats.reads_landing + stats.reads_large),
            reads_coded: Some(stats.reads_coded),
            reads_packed: Some(stats.reads_packed),
            ..Counters::default()
        }
    }
}
