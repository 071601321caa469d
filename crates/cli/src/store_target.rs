//! Our own store as a target of the benchmark.

use std::ops::Bound;

use ziptier::{BlockOptions, CodecChoice, Huffman, Options, Store, Values};
use ziptier_eval::{
    Batch, Config, ContextCache, Counters, Huffman as AskedHuffman, Key, Records, Registration, Target,
    TargetError, TargetOptions,
};

/// Codecs that the store has or will have; those that it accepts are offered.
const CODECS: [&str; 6] = ["auto", "none", "token", "lz4", "zstd", "deflate"];

/// What else it may be asked for, of the options that `ziptier bench` has for targets.
const OPTIONS: [&str; 4] = ["--block-bytes", "--level", "--huffman", "--context-cache"];

/// The store, for the list of targets.
pub(crate) fn registration() -> Registration {
    let codecs: Vec<&str> = CODECS.into_iter().filter(|codec| codec.parse::<CodecChoice>().is_ok()).collect();
    Registration::of::<StoreTarget>("store", "ziptier's compressed store, embedded", &codecs)
}

/// How blocks are packed, as far as that was asked for.
fn block_options(asked: &TargetOptions) -> BlockOptions {
    let mut block = BlockOptions { level: asked.level, ..BlockOptions::default() };
    if let Some(bytes) = asked.block_bytes {
        block.bytes = bytes;
    }
    if let Some(huffman) = asked.huffman {
        block.huffman = match huffman {
            AskedHuffman::Fixed => Huffman::Fixed,
            AskedHuffman::Dynamic => Huffman::Dynamic,
            AskedHuffman::Canned => Huffman::Canned,
        };
    }
    if let Some(cache) = asked.context_cache {
        block.context_cache = cache == ContextCache::Thread;
    }
    block
}

struct StoreTarget {
    store: Store,
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
        Ok(config.options.take_only(&OPTIONS)?)
    }

    fn open(config: &Config) -> Result<Self, TargetError> {
        Self::check(config)?;
        let block = block_options(&config.options);
        let mut options =
            Options { codec: config.codec.parse::<CodecChoice>()?, block, ..Options::default() };
        if let Some(bytes) = config.landing_bytes {
            options.landing_bytes = bytes;
        }
        if let Some(background) = config.background {
            options.background_packing = background;
        }
        if let Some(threads) = config.background_threads {
            options.background_threads = threads;
        }
        let background_threads = options.background_threads;
        Ok(StoreTarget { store: Store::open(options)?, background_threads })
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
            engine: Some("cpu".into()),
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
