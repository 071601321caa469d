//! A block cache in files that survives restarts. It stands behind RocksDB's own cache in memory, and in front of the
//! SST files.
//!
//! The cache is a log of segment files of a fixed total length. When all segments are full, the cache overwrites the
//! oldest, and moves its entries on if they were read since they were written. Blocks are packed. Each entry names its
//! key and has a checksum that is valid only at its place. The index is in memory. It comes back by reading the
//! segments, or from a file written at a clean stop.
//!
//! The bytes of a RocksDB key never change, so no entry is ever updated. No entry need be durable: a lost or damaged
//! entry is a miss. `ziptier_media::segments` is made for bodies that must not be lost, and differs in all of that.
//! Both go through [`ziptier_media::disk`].
//!
//! ```
//! use ziptier_rocksdb::cache::{Cache, Kind, Settings};
//! let folder = tempfile::tempdir()?;
//! let settings = Settings::new(folder.path(), 8 << 20);
//! let cache = Cache::open(&settings)?;
//! cache.put(b"0123456789abcdef", Kind::default(), b"a block");
//! drop(cache);
//!
//! let cache = Cache::open(&settings)?;
//! assert_eq!(cache.get(b"0123456789abcdef", |_, block| block.to_vec()).unwrap(), b"a block");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod claim;
mod counters;
mod format;
mod ghost;
mod index;
mod open;
mod packing;
mod settings;
mod slots;
mod snapshot;
mod tail;
mod writer;

pub use counters::{Count, Counters};
pub use format::Kind;
pub use open::counters_of_all;
pub use settings::{Admission, CAPACITY_BYTES_MIN, CacheError, Codec, Settings};

use format::Entry;
use ghost::Ghosts;
use index::{Index, Place};
use packing::Packer;
use slots::{Folder, Slot};
use std::cell::Cell;
use std::io::{ErrorKind, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use tail::Tail;
use ziptier_media::aligned::AlignedBytes;
use ziptier_media::disk::{DirLock, DiskError};

/// The longest block that is stored.
const BLOCK_BYTES_MAX: usize = 64 << 20;

/// A thread keeps no more scratch than this between two lookups.
const SCRATCH_BYTES_MAX: usize = 4 << 20;

/// A cache in a folder. All methods may be called from any thread.
///
/// Dropping the cache writes the buffered blocks and the index.
pub struct Cache {
    shared: Arc<Shared>,
    settings: Settings,
    /// The process that opened the cache. A forked child has none of its threads.
    process: u32,
    writer: Option<JoinHandle<()>>,
    _lock: Box<dyn DirLock>,
    /// Declared behind the lock, so that it is dropped after the lock.
    shares: Option<open::Shares>,
}

/// State that callers and the writing thread share.
struct Shared {
    folder: Folder,
    slots: Vec<Slot>,
    index: Index,
    tail: Mutex<Tail>,
    /// The writer has work.
    wake: Condvar,
    /// The writer has done some.
    idle: Condvar,
    counters: Counters,
    admits_all: bool,
    ghosts: Ghosts,
    packer: Packer,
}

/// The scratch that a thread keeps between blocks.
struct Scratch {
    pages: AlignedBytes,
    bytes: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Scratch {
        Scratch { pages: AlignedBytes::zeroed(0), bytes: Vec::new() }
    }
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Lets `work` have the thread's scratch; a call within a call gets a new one. So does a call in the destructors of an
/// ending thread, which has no scratch any more.
fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    let mut scratch = SCRATCH.try_with(Cell::take).ok().flatten().unwrap_or_default();
    let result = work(&mut scratch);
    if scratch.pages.len() + scratch.bytes.capacity() <= SCRATCH_BYTES_MAX {
        let _ = SCRATCH.try_with(|kept| kept.set(Some(scratch)));
    }
    result
}

fn hash_of(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

impl Cache {
    /// The settings of the cache.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether a block should be [put](Cache::put): the cache lacks it, and `force` is set or the block was evicted
    /// before.
    pub fn wants(&self, key: &[u8], force: bool) -> bool {
        let hash = hash_of(key);
        if self.shared.index.contains(hash) {
            return false;
        }
        let is_admitted = force || self.shared.admits_all || self.shared.ghosts.knows(hash);
        if !is_admitted {
            self.shared.counters.turned_away.one();
        }
        is_admitted
    }

    /// Stores a block, if there is room now, and returns whether it did. The key has at most 255 bytes.
    pub fn put(&self, key: &[u8], kind: Kind, block: &[u8]) -> bool {
        let shared = &self.shared;
        if block.len() > shared.block_bytes_max() || key.len() > usize::from(u8::MAX) {
            shared.counters.too_long.one();
            return false;
        }
        with_scratch(|scratch| {
            let Scratch { bytes, .. } = scratch;
            bytes.clear();
            let mut entry = shared.encode(key, kind, block, bytes);
            let is_stored = entry.as_mut().is_some_and(|entry| shared.append(hash_of(key), entry));
            if let Some(entry) = entry.filter(|_| is_stored) {
                shared.counters.stored.one();
                shared.counters.stored_raw_bytes.add(block.len() as u64);
                shared.counters.stored_packed_bytes.add(entry.len() as u64);
            } else {
                shared.counters.dropped.one();
            }
            is_stored
        })
    }

    /// Lets `take` have a block, if it is there and whole.
    pub fn get<T>(&self, key: &[u8], take: impl FnOnce(Kind, &[u8]) -> T) -> Option<T> {
        with_scratch(|scratch| {
            let found = self.shared.read(key, scratch);
            let counter =
                if found.is_some() { &self.shared.counters.hits } else { &self.shared.counters.misses };
            counter.one();
            found.map(|kind| take(kind, &scratch.bytes))
        })
    }

    /// Forgets a key. After a restart without a clean stop it may be there again.
    pub fn remove(&self, key: &[u8]) {
        self.shared.index.remove(hash_of(key));
    }

    /// Waits until everything that was stored is in files.
    pub fn flush(&self) {
        let shared = &self.shared;
        let mut tail = shared.tail();
        tail.flush();
        while tail.next().is_some() {
            shared.wake.notify_one();
            tail = shared.idle.wait(tail).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The counters since the cache was opened.
    pub fn counters(&self) -> &Counters {
        let counters = &self.shared.counters;
        counters.entries.set(self.shared.index.len());
        counters.index_bytes.set(self.shared.index.memory_bytes() + self.shared.ghosts.memory_bytes());
        counters.buffered_bytes.set(self.shared.tail().buffered_bytes());
        counters
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            // The files belong to the parent. A lock that a thread held at the fork is held for ever in this child.
            std::mem::forget((self.writer.take(), self.shares.take()));
            return;
        }
        {
            let mut tail = self.shared.tail();
            tail.flush();
            tail.is_stopping = true;
        }
        self.shared.wake.notify_one();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        self.write_index();
    }
}

impl Shared {
    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The longest block that is stored here.
    fn block_bytes_max(&self) -> usize {
        BLOCK_BYTES_MAX.min(self.folder.segment_bytes / 2)
    }

    /// The entry of a block, which is packed into `packed`; `None` if the allocator refuses the memory.
    fn encode(&self, key: &[u8], kind: Kind, block: &[u8], packed: &mut Vec<u8>) -> Option<Vec<u8>> {
        let packing = self.packer.pack(block, packed);
        let packed = if packing == format::Packing::Raw { block } else { packed };
        let mut entry = Vec::new();
        entry.try_reserve_exact(format::entry_bytes(key.len(), packed.len())).ok()?;
        Entry { key, kind, packing, raw_bytes: block.len() as u32, packed }.encode(&mut entry);
        Some(entry)
    }

    fn append(&self, hash: u64, entry: &mut [u8]) -> bool {
        self.append_to(&mut self.tail(), hash, entry)
    }

    fn append_to(&self, tail: &mut Tail, hash: u64, entry: &mut [u8]) -> bool {
        let place = tail.append(&self.slots, entry);
        if let Some(place) = place {
            self.index.put(hash, place);
        }
        if tail.next().is_some() || tail.wants_segment() {
            self.wake.notify_one();
        }
        place.is_some()
    }

    /// The cache writes nothing more, and still reads its files.
    fn fail(&self, error: &DiskError) {
        self.tail().fail();
        self.idle.notify_all();
        if self.counters.stopped.get() == 0 {
            self.counters.stopped.set(1);
            let sentence = "the block cache stores nothing more, and serves what it has";
            // Not `eprintln!`, which would panic if standard error cannot be written.
            let _ = writeln!(std::io::stderr(), "ziptier: {sentence}: {error}");
        }
    }

    /// Reads a block into the scratch. A damaged entry is forgotten.
    fn read(&self, key: &[u8], scratch: &mut Scratch) -> Option<Kind> {
        let hash = hash_of(key);
        // Once more, if the segment was used again while it was read.
        for _ in 0..3 {
            let place = self.index.get(hash)?;
            let slot = self.slots.get(place.slot() as usize)?;
            let salt = slot.salt();
            let Scratch { pages, bytes } = scratch;
            bytes.clear();
            let read = self.unpack_at(place, salt, key, pages, bytes);
            match read {
                Read::Block(kind) => return Some(kind),
                Read::OtherKey | Read::NoMemory => return None,
                Read::Nothing if salt == slot.salt() && self.index.remove_at(hash, place) => {
                    self.counters.damaged.one();
                    return None;
                }
                Read::Nothing => {}
            }
        }
        None
    }

    fn unpack_at(
        &self,
        place: Place,
        salt: u64,
        key: &[u8],
        pages: &mut AlignedBytes,
        out: &mut Vec<u8>,
    ) -> Read {
        let slot = &self.slots[place.slot() as usize];
        let pending;
        let entry = if slot.has_written(place) {
            slot.read(place.offset(), place.bytes(), pages)
        } else {
            let copied = self.tail().get(place).map(try_copied);
            match copied {
                Some(Some(bytes)) => {
                    pending = bytes;
                    Ok(&pending[..])
                }
                Some(None) => return Read::NoMemory,
                // It may have been written meanwhile.
                None if slot.has_written(place) => slot.read(place.offset(), place.bytes(), pages),
                None => return Read::Nothing,
            }
        };
        let entry = match entry {
            Err(DiskError::Failed { kind: ErrorKind::OutOfMemory, .. }) => return Read::NoMemory,
            entry => entry.unwrap_or_default(),
        };
        let Some((entry, _)) = Entry::decode(entry, salt, place.offset()) else { return Read::Nothing };
        if entry.key != key {
            return Read::OtherKey;
        }
        let raw_bytes = entry.raw_bytes as usize;
        if raw_bytes > self.block_bytes_max() {
            return Read::Nothing;
        }
        if out.try_reserve(raw_bytes).is_err() {
            return Read::NoMemory;
        }
        if self.packer.unpack(entry.packing, entry.packed, raw_bytes, out).is_err() || out.len() != raw_bytes
        {
            return Read::Nothing;
        }
        Read::Block(entry.kind)
    }
}

/// The finding at the place of a block.
enum Read {
    Block(Kind),
    /// An entry of a key with the same hash.
    OtherKey,
    Nothing,
    /// The allocator refuses the memory for the block, which may be sound.
    NoMemory,
}

/// A copy; `None` if the allocator refuses the memory.
fn try_copied(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut copied = Vec::new();
    copied.try_reserve_exact(bytes.len()).ok()?;
    copied.extend_from_slice(bytes);
    Some(copied)
}

#[cfg(test)]
#[allow(unsafe_code, reason = "a test that forks")]
mod tests;
