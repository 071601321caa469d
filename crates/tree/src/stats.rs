//! Counters of the work that a store did since it was opened.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use thread_local::ThreadLocal;
use ziptier_codec::block::CountersSnapshot;

/// The work that a store did since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Reads answered from a raw value of a body.
    pub reads_raw: u64,
    /// Reads answered from a coded value.
    pub reads_coded: u64,
    /// Reads answered from a packed body: each unpacked one block.
    pub reads_packed: u64,
    /// Reads answered from a landing.
    pub reads_landing: u64,
    /// Reads of large values.
    pub reads_large: u64,
    /// Reads that memory could not answer, so that they looked at the SSD, whatever they found there.
    pub reads_below: u64,
    /// Images read from SSD for them.
    pub ssd_reads: u64,
    /// Reads that found no value in memory, and had nothing below to look at.
    pub misses: u64,
    /// Records appended.
    pub writes: u64,
    /// Bytes of keys and values in records appended.
    pub written_bytes: u64,
    /// Bytes of keys and values that were given to the log.
    pub logged_bytes: u64,
    /// Packs by background threads.
    pub packs_background: u64,
    /// Packs by writers, because no background thread exists or keeps up.
    pub packs_foreground: u64,
    /// Records evicted.
    pub evicted: u64,
    /// Leaves that were split.
    pub splits: u64,
    /// Leaves that were merged with their neighbour.
    pub merges: u64,
    /// Leaves made raw because they are hot.
    pub heated: u64,
    /// Hot leaves coded again.
    pub cooled: u64,
    /// Leaves coded anew, with a later dictionary or densely.
    pub recoded: u64,
    /// Leaves whose token numbers were coded by entropy, without another parse.
    pub condensed: u64,
    /// Leaves that were read so much that their token numbers have one width again.
    pub relaxed: u64,
    /// Leaves whose body went to far memory.
    pub sent_to_far: u64,
    /// Leaves whose body came back from there.
    pub raised_from_far: u64,
    /// Leaves sent to SSD.
    pub sent_to_ssd: u64,
    /// Cold leaves whose newer records were merged with what lies on SSD.
    pub merged_on_ssd: u64,
    /// Cold leaves brought back to memory.
    pub raised_from_ssd: u64,
    /// Records copied to memory because they were read from SSD twice.
    pub copied_up: u64,
    /// Large values copied to memory because they were read from SSD twice, and to DRAM because they were read from far
    /// memory all the time.
    pub values_raised: u64,
    /// Dictionaries trained.
    pub trainings: u64,
    /// Dictionaries taken into use.
    pub adoptions: u64,
    /// Generation of the dictionary in use, 0 for none.
    pub dictionary_generation: u32,
    /// Bits per token of the dictionary in use, 0 for none.
    pub dictionary_bits: u32,
    /// Values whose check failed.
    pub damaged: u64,
    /// Raw bytes of the values given to the encoder.
    pub coded_raw_bytes: u64,
    /// Bytes of them as coded, or raw if that was smaller; of tokens, by numbers of one width; of blocks, their frames.
    pub coded_bytes: u64,
    /// Blocks packed fast, where values are written.
    pub blocks_packed_fast: u64,
    /// Blocks packed densely, in leaves that nobody writes to.
    pub blocks_packed_dense: u64,
    /// Blocks unpacked because their leaf was packed anew; those that reads unpack are not among them.
    pub blocks_unpacked: u64,
    /// Blocks given to engine `qpl` to be compressed.
    pub qpl_compress_calls: u64,
    /// Blocks given to engine `qpl` to be decompressed.
    pub qpl_decompress_calls: u64,
    /// Blocks given to engine `iaa` to be compressed.
    pub iaa_compress_calls: u64,
    /// Blocks given to engine `iaa` to be decompressed.
    pub iaa_decompress_calls: u64,
    /// Blocks given to engine `zlib` to be compressed.
    pub zlib_compress_calls: u64,
    /// Blocks given to engine `zlib` to be decompressed.
    pub zlib_decompress_calls: u64,
    /// Blocks that an engine could not do and that another did, in software.
    pub engine_fallbacks: u64,
    /// Submissions that met a full queue.
    pub engine_queue_full_retries: u64,
    /// Errors of engines, and page faults of devices.
    pub engine_faults: u64,
}

impl Stats {
    /// The same with what engines counted.
    #[doc(hidden)]
    pub fn with_engines(mut self, totals: &[(&'static str, CountersSnapshot)]) -> Self {
        for (name, counted) in totals {
            let calls = match *name {
                "qpl" => Some((&mut self.qpl_compress_calls, &mut self.qpl_decompress_calls)),
                "iaa" => Some((&mut self.iaa_compress_calls, &mut self.iaa_decompress_calls)),
                "zlib" => Some((&mut self.zlib_compress_calls, &mut self.zlib_decompress_calls)),
                _ => None,
            };
            if let Some((compressed, decompressed)) = calls {
                *compressed = counted.compress_calls;
                *decompressed = counted.decompress_calls;
            }
            self.engine_fallbacks += counted.fallbacks;
            self.engine_queue_full_retries += counted.queue_full_retries;
            self.engine_faults += counted.faults;
        }
        self
    }
}

/// A counter that several threads raise now and then.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn raise(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counters that one thread raises at every operation: nobody else writes them.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ThreadCounters {
    /// Reads answered from a raw value of a body.
    pub reads_raw: OwnCounter,
    /// Reads answered from a coded value.
    pub reads_coded: OwnCounter,
    /// Reads answered from a packed body.
    pub reads_packed: OwnCounter,
    /// Reads answered from a landing.
    pub reads_landing: OwnCounter,
    /// Reads of large values.
    pub reads_large: OwnCounter,
    /// Reads that memory could not answer, so that they looked at the SSD, whatever they found there.
    pub reads_below: OwnCounter,
    /// Images read from SSD for them.
    pub ssd_reads: OwnCounter,
    /// Bytes of the images that it has read from SSD, for whatever purpose.
    pub image_bytes: OwnCounter,
    /// Reads that found no value in memory, and had nothing below to look at.
    pub misses: OwnCounter,
    /// Records appended.
    pub writes: OwnCounter,
    /// Bytes of keys and values in records appended.
    pub written_bytes: OwnCounter,
    /// Bytes of keys and values that were given to the log.
    pub logged_bytes: OwnCounter,
}

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct OwnCounter(AtomicU64);

impl OwnCounter {
    /// Adds one and returns the new count.
    #[inline]
    pub(crate) fn raise(&self) -> u64 {
        self.add(1)
    }

    /// Adds some and returns the new count.
    #[inline]
    pub(crate) fn add(&self, some: u64) -> u64 {
        let count = self.0.load(Relaxed) + some;
        self.0.store(count, Relaxed);
        count
    }

    /// The count so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// All counters of a store.
#[derive(Debug, Default)]
pub struct Counters {
    /// The counters of each thread, also of threads that have ended.
    pub threads: ThreadLocal<ThreadCounters>,
    /// Packs by background threads.
    pub packs_background: Counter,
    /// Packs by writers, because no background thread exists or keeps up.
    pub packs_foreground: Counter,
    /// Records evicted.
    pub evicted: Counter,
    /// Leaves that were split.
    pub splits: Counter,
    /// Leaves that were merged with their neighbour.
    pub merges: Counter,
    /// Leaves made raw because they are hot.
    pub heated: Counter,
    /// Hot leaves coded again.
    pub cooled: Counter,
    /// Leaves coded anew, with a later dictionary or densely.
    pub recoded: Counter,
    /// Leaves whose token numbers were coded by entropy, without another parse.
    pub condensed: Counter,
    /// Leaves that were read so much that their token numbers have one width again.
    pub relaxed: Counter,
    /// Bytes that values grew by when they were relaxed.
    pub relaxed_bytes: Counter,
    /// Leaves whose body went to far memory.
    pub sent_to_far: Counter,
    /// Leaves whose body came back from there.
    pub raised_from_far: Counter,
    /// Leaves sent to SSD.
    pub sent_to_ssd: Counter,
    /// Cold leaves whose newer records were merged with what lies on SSD.
    pub merged_on_ssd: Counter,
    /// Cold leaves brought back to memory.
    pub raised_from_ssd: Counter,
    /// Records copied to memory because they were read from SSD twice.
    pub copied_up: Counter,
    /// Landings and overlays that were merged with what lies below them, whatever came of it.
    #[cfg(any(test, feature = "testing"))]
    pub tried_merges: Counter,
    /// Rounds in which threads waited for retired bytes.
    #[cfg(any(test, feature = "testing"))]
    pub retired_waits: Counter,
    /// Large values copied to memory from SSD, and to DRAM from far memory, because they were read.
    pub values_raised: Counter,
    /// Dictionaries trained.
    pub trainings: Counter,
    /// Dictionaries taken into use.
    pub adoptions: Counter,
    /// Shared with values that are open for reading.
    pub damaged: Arc<Counter>,
    /// Blocks packed fast, where values are written.
    pub blocks_packed_fast: Counter,
    /// Blocks packed densely, in leaves that nobody writes to.
    pub blocks_packed_dense: Counter,
    /// Blocks unpacked because their leaf was packed anew.
    pub blocks_unpacked: Counter,
}

impl Counters {
    /// The calling thread's own counters.
    #[inline]
    pub fn own(&self) -> &ThreadCounters {
        self.threads.get_or_default()
    }

    /// Reads that found a value in a body, or beside it.
    pub fn body_reads(&self) -> u64 {
        let reads = |thread: &ThreadCounters| {
            [&thread.reads_raw, &thread.reads_coded, &thread.reads_packed, &thread.reads_large]
                .map(|counter| counter.0.load(Relaxed))
        };
        self.threads.iter().flat_map(reads).sum()
    }

    /// The counts of all threads so far. Figures that dictionaries and engines keep themselves are 0.
    pub fn stats(&self) -> Stats {
        let sum = |pick: fn(&ThreadCounters) -> &OwnCounter| {
            self.threads.iter().map(|thread| pick(thread).0.load(Relaxed)).sum()
        };
        Stats {
            reads_raw: sum(|thread| &thread.reads_raw),
            reads_coded: sum(|thread| &thread.reads_coded),
            reads_packed: sum(|thread| &thread.reads_packed),
            reads_landing: sum(|thread| &thread.reads_landing),
            reads_large: sum(|thread| &thread.reads_large),
            reads_below: sum(|thread| &thread.reads_below),
            ssd_reads: sum(|thread| &thread.ssd_reads),
            misses: sum(|thread| &thread.misses),
            writes: sum(|thread| &thread.writes),
            written_bytes: sum(|thread| &thread.written_bytes),
            logged_bytes: sum(|thread| &thread.logged_bytes),
            packs_background: self.packs_background.get(),
            packs_foreground: self.packs_foreground.get(),
            evicted: self.evicted.get(),
            splits: self.splits.get(),
            merges: self.merges.get(),
            heated: self.heated.get(),
            cooled: self.cooled.get(),
            recoded: self.recoded.get(),
            condensed: self.condensed.get(),
            relaxed: self.relaxed.get(),
            sent_to_far: self.sent_to_far.get(),
            raised_from_far: self.raised_from_far.get(),
            sent_to_ssd: self.sent_to_ssd.get(),
            merged_on_ssd: self.merged_on_ssd.get(),
            raised_from_ssd: self.raised_from_ssd.get(),
            copied_up: self.copied_up.get(),
            values_raised: self.values_raised.get(),
            trainings: self.trainings.get(),
            adoptions: self.adoptions.get(),
            dictionary_generation: 0,
            dictionary_bits: 0,
            damaged: self.damaged.get(),
            coded_raw_bytes: 0,
            coded_bytes: 0,
            blocks_packed_fast: self.blocks_packed_fast.get(),
            blocks_packed_dense: self.blocks_packed_dense.get(),
            blocks_unpacked: self.blocks_unpacked.get(),
            ..Stats::default()
        }
    }
}
