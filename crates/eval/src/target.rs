//! The trait of a store under test.

pub(crate) mod conformance;
pub(crate) mod options;
pub(crate) mod registry;

use std::error::Error as StdError;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::data::oracle::Oracle;
use crate::servers::listening::own_processor_numbers;
use crate::target::options::TargetOptions;
use crate::targets::Connections;
use crate::workload::mix::Operation;

/// The error of a target, with its own message.
pub type TargetError = Box<dyn StdError + Send + Sync>;

/// How a target is to be opened.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The target as the user named it, for targets that are named by an address.
    pub target: String,
    /// Name of the codec; `none` for targets that have none.
    pub codec: String,
    /// Bytes of a leaf's write buffer, for targets that have one; `None` for the target's own default.
    pub landing_bytes: Option<usize>,
    /// Whether background threads compact what writers fill, rather than the writers themselves; `None` for the
    /// target's own default.
    pub background: Option<bool>,
    /// Threads for background work; `None` for the target's own default.
    pub background_threads: Option<usize>,
    /// Whether hot data is to be kept uncompressed where the target has that choice.
    pub heating: bool,
    /// Bytes of keys and values that will be loaded, for targets that are set up for a size.
    pub raw_bytes: u64,
    /// The number of this store among those side by side, from 0 on.
    pub instance: u64,
    /// Stores side by side.
    pub instances: u64,
    /// The connections of each thread that has several, by their numbers, for targets that have connections.
    pub connections: Vec<Range<u64>>,
    /// The folders that the files of these stores lie in, by turns; none for the folder for temporary files.
    pub folders: Vec<PathBuf>,
    /// Whether requests come from a trace, so that nobody knows the keys beforehand.
    pub is_replay: bool,
    /// Further options.
    pub options: TargetOptions,
    /// All keys and their right answers. Only a target that measures the harness itself may read the answers.
    pub oracles: Vec<Arc<Oracle>>,
}

impl Config {
    /// The folder for the files of this store.
    pub fn folder(&self) -> PathBuf {
        let place = self.instance as usize % self.folders.len().max(1);
        self.folders.get(place).cloned().unwrap_or_else(std::env::temp_dir)
    }
}

/// A key-value store under test, shared by the threads of a run.
///
/// A target is opened once per run, in a process of its own. Its calls may block, and may be made by several threads at
/// once; a put that has returned is seen by every later get.
pub trait Target: Sized + Send + Sync {
    /// The buffer for answers of [`Target::multi_get`], reused between calls. [`Answers`] serves targets without their
    /// own type.
    type Batch: Batch;

    /// The number of neighbouring keys that the final check of every key looks up at once. More than one saves time if
    /// each call decodes a whole block.
    const CHECKED_AT_ONCE: usize = 1;

    /// The number of keys that a call stores while keys are loaded.
    const LOADED_AT_ONCE: usize = 1;

    /// Whether a thread may have several connections to the store, and a call under way on each.
    const HAS_CONNECTIONS: bool = false;

    /// Checks whether [`Target::open`] would take these options, without opening anything. It refuses an option in one
    /// sentence that begins with "it". The default takes no options.
    fn check(config: &Config) -> Result<(), TargetError> {
        Ok(config.options.take_only(&[])?)
    }

    /// Opens an empty store.
    fn open(config: &Config) -> Result<Self, TargetError>;

    /// Puts the value of `key` into `value` (after clearing it) and returns true, or returns false.
    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError>;

    /// Looks up several keys at once.
    fn multi_get(&self, keys: &[&[u8]], batch: &mut Self::Batch) -> Result<(), TargetError>;

    /// Stores a value, replacing the old one.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError>;

    /// Removes a key; true if it existed.
    fn delete(&self, key: &[u8]) -> Result<bool, TargetError>;

    /// Appends up to `limit` records in key order, from `from` on, to `records`.
    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError>;

    /// The reason why this store has no such operation, in a sentence that begins with "it" or "its". A mix with the
    /// operation is refused before anything is loaded.
    fn refuses(&self, _: Operation) -> Option<String> {
        None
    }

    /// Whether the store may lose a key, as a cache does. The answers of a replay then need not find one.
    fn may_forget(&self) -> bool {
        false
    }

    /// Bytes that a value must contain for its record to be among those of a scan, if the store leaves out others. Such
    /// a scan looks at `limit` records, or at all to the end.
    fn filter(&self) -> Option<&[u8]> {
        None
    }

    /// Stores several values, of different keys, and replaces the old ones. A target without a call for several stores
    /// one after the other.
    fn multi_put(&self, records: &[(&[u8], &[u8])]) -> Result<(), TargetError> {
        records.iter().try_for_each(|(key, value)| self.put(key, value))
    }

    /// The connections with these numbers, for a thread that has several. A target that has connections refuses scans.
    fn connections(&self, _: Range<u64>) -> Result<Connections, TargetError> {
        Err("it has no connections of threads; leave out --connections".into())
    }

    /// Takes connections back, on which no call is under way, for the next window.
    fn keep(&self, _: Connections) {}

    /// Told once, when all keys are loaded: a target that is usually measured after it came to rest does so here. That
    /// counts as loading.
    fn loaded(&self) -> Result<(), TargetError> {
        Ok(())
    }

    /// Bytes that hold the data now, for a target that keeps it in files; `None` where the allocator's bytes do.
    fn held_bytes(&self) -> Option<u64> {
        None
    }

    /// The place of the work, and the CPU time that it took there so far.
    fn work(&self) -> Work {
        Work::Here
    }

    /// The numbers of the processors that the work may use, those that are offline included; `None` if nobody knows.
    fn processors(&self) -> Option<Vec<usize>> {
        own_processor_numbers()
    }

    /// Told once, after each timed window. A client of servers waits here until these have done what the window put
    /// off, because that CPU time counts for the window.
    fn rest(&self) -> Result<(), TargetError> {
        Ok(())
    }

    /// Finishes at once the work that would otherwise be done in the background. Timed runs never call it; a bypass run
    /// does, before its first operation.
    fn settle(&self) -> Result<(), TargetError> {
        Ok(())
    }

    /// A description of the target's state, for the log of the run.
    fn describe(&self) -> String {
        String::new()
    }

    /// The target's counters.
    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// The place of a target's work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// The process of the run.
    Here,
    /// Servers on this machine, and the CPU seconds of their processes so far; `None` if nobody may look into them. All
    /// stores of a run share these servers.
    Servers(Option<f64>),
    /// Servers on other machines. The meters of this one tell nothing of them.
    Elsewhere,
}

/// The answers of one multi-get.
pub trait Batch: Default + Send {
    /// The answer for the key at this position of the request.
    fn answer(&self, position: usize) -> Option<&[u8]>;
}

/// A plain [`Batch`]: one buffer and the ends of the values in it.
#[derive(Debug, Default)]
pub struct Answers {
    bytes: Vec<u8>,
    ranges: Vec<Option<(usize, usize)>>,
}

impl Answers {
    /// Forgets the last answers and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ranges.clear();
    }

    /// Adds the answer for the next key.
    pub fn push(&mut self, answer: Option<&[u8]>) {
        self.ranges.push(answer.map(|value| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(value);
            (start, self.bytes.len())
        }));
    }
}

impl Batch for Answers {
    fn answer(&self, position: usize) -> Option<&[u8]> {
        let (start, end) = (*self.ranges.get(position)?)?;
        Some(&self.bytes[start..end])
    }
}

/// Records that a scan found.
#[derive(Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}

impl Records {
    /// Forgets all records and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Adds a record.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The records, in the order in which they were found.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|&(_, end)| end));
        starts
            .zip(&self.ends)
            .map(|(start, &(key_end, end))| (&self.bytes[start..key_end], &self.bytes[key_end..end]))
    }
}

/// The reason why a target cannot be opened on this machine although the request is valid: an engine is not installed,
/// or there is no device. In the suite of codecs the row states this reason.
#[derive(Debug)]
pub struct EngineUnavailable(pub String);

impl std::fmt::Display for EngineUnavailable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for EngineUnavailable {}

/// The reason why a store answers no call any more: its server or its process has ended. Such an error of a call ends
/// the run.
#[derive(Debug)]
pub struct Gone(pub String);

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for Gone {}

/// A target's counters; `None` is printed as `NA`.
///
/// All are totals since the target was opened. For calls, compactions and reads by form, the runner takes the
/// difference over the timed window. For the codec's bytes it takes the end state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Counters {
    /// The worker that codes, such as `cpu`, `hardware`; `None` if no codec is used.
    pub engine: Option<String>,
    /// Huffman mode of a deflate engine.
    pub qpl_mode: Option<String>,
    /// Calls of the accelerator library's compressor.
    pub qpl_compress_calls: Option<u64>,
    /// Calls of its decompressor.
    pub qpl_decompress_calls: Option<u64>,
    /// Calls of zlib's compressor.
    pub zlib_compress_calls: Option<u64>,
    /// Calls of its decompressor.
    pub zlib_decompress_calls: Option<u64>,
    /// Calls of the compressor of an accelerator's own queues.
    pub iaa_compress_calls: Option<u64>,
    /// Calls of its decompressor.
    pub iaa_decompress_calls: Option<u64>,
    /// Calls that an engine could not do, and that another did in software.
    pub engine_fallbacks: Option<u64>,
    /// Submissions that met a full queue.
    pub engine_queue_full_retries: Option<u64>,
    /// Errors of engines, and page faults of devices.
    pub engine_faults: Option<u64>,
    /// Threads for background work.
    pub bg_threads: Option<u64>,
    /// Compactions (packings) done by background threads.
    pub bg_compactions: Option<u64>,
    /// Compactions done by the writer itself.
    pub fg_compactions: Option<u64>,
    /// Dictionaries trained.
    pub trainings: Option<u64>,
    /// Trainings whose dictionary was taken into use.
    pub adoptions: Option<u64>,
    /// Logical bytes of what is now stored in coded form.
    pub coded_raw_bytes: Option<u64>,
    /// Bytes the codec made of them.
    pub coded_bytes: Option<u64>,
    /// Files of data that there are now.
    pub files: Option<u64>,
    /// Reads answered from raw bytes.
    pub reads_raw: Option<u64>,
    /// Reads that decoded one value.
    pub reads_coded: Option<u64>,
    /// Reads that decoded a block.
    pub reads_packed: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_records_keep_order_and_bytes() {
        let mut answers = Answers::default();
        answers.push(Some(b"one"));
        answers.push(None);
        answers.push(Some(b""));
        assert_eq!([0, 1, 2, 3].map(|i| answers.answer(i)), [Some(&b"one"[..]), None, Some(&b""[..]), None]);
        let mut records = Records::default();
        records.push(b"a", b"1");
        records.push(b"bb", b"");
        let all: Vec<_> = records.iter().collect();
        assert_eq!(all, [(&b"a"[..], &b"1"[..]), (&b"bb"[..], &b""[..])]);
    }
}
