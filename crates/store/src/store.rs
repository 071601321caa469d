//! The store as its users see it.

// Documentation lists the calls in the order of these modules.
mod opening;
mod records;

mod checkpoints;
mod figures;
mod limits;
mod pieces;
mod range;

mod bounded;
mod places;

// Its threads.
mod checkpoint_thread;
mod packers;

use std::sync::Arc;

use crate::Error;
use crate::core::Core;
use crate::durable::Recovered;
#[cfg(doc)]
use crate::options::Options;
use checkpoint_thread::CheckpointThread;
use packers::Packers;
#[cfg(doc)]
use ziptier_tree::batch::Batch;
use ziptier_tree::host::ReadHost;
#[cfg(doc)]
use ziptier_tree::record::PutMeta;
#[cfg(doc)]
use ziptier_tree::stats::Stats;
use ziptier_tree::update::Update;

pub use bounded::OldValue;
pub use pieces::OpenValue;
pub use range::Range;

/// A compressed, ordered key-value store.
///
/// Keys have 1 to 65,536 bytes, values 0 bytes to 512 MiB. Every call is atomic per key, and linearizable. A [`Batch`]
/// writes several keys or none. `examples/basic.rs`, `durable.rs` and `tiers.rs` of this crate are whole programs.
///
/// ```
/// use ziptier::{Batch, Condition, Options, PutMeta, Store, Update};
///
/// let store = Store::open(Options::default())?;
/// store.put(b"user:1", b"Ada")?;
/// assert_eq!(store.get(b"user:1")?.as_deref(), Some(&b"Ada"[..]));
/// assert!(store.delete(b"user:1")?);
///
/// // A batch: both names, if there is no user 1.
/// let batch = Batch::new().require(b"user:1", Condition::Absent);
/// assert!(store.write(&batch.put(b"user:1", b"Ada").put(b"user:2", b"Grace"))?);
///
/// // A counter: the new value comes from the old one.
/// store.update(b"visits", |found| {
///     let before = found.and_then(|(bytes, _)| Some(u64::from_le_bytes(bytes.try_into().ok()?)));
///     Update::Put((before.unwrap_or(0) + 1).to_le_bytes().to_vec(), PutMeta::default())
/// })?;
///
/// // A prefix: each item is a `Result`, because a record may be damaged, or unreadable on SSD.
/// for record in store.prefix(b"user:") {
///     let (key, name) = record?;
///     assert!(key.starts_with(b"user:") && !name.is_empty());
/// }
/// # Ok::<(), ziptier::Error>(())
/// ```
///
/// # Options
///
/// [`Options::default`] is a store in DRAM, without a limit, that ends with its process.
///
/// | option | what it changes |
/// |---|---|
/// | [`Options::memory_limit_bytes`] | bounds the memory that the store holds |
/// | [`Options::eviction`] | makes the store a cache: at the limit records go, and writes are not refused |
/// | [`Options::durable`] | keeps the store in a folder |
/// | [`Options::far`], [`Options::ssd`] | takes leaves that DRAM has no room for; SSD and eviction exclude each other |
/// | [`Options::codec`] | names one form of bodies instead of the measured choice |
///
/// A store in a folder, with 64 MiB of DRAM and 1 GiB of SSD:
///
/// ```no_run
/// use ziptier::{Durability, DurableOptions, Options, SsdOptions, Store};
///
/// let mut durable = DurableOptions::new("/data/store");
/// durable.durability = Durability::Always;
/// let store = Store::open(Options {
///     memory_limit_bytes: Some(64 << 20),
///     ssd: Some(SsdOptions { path: None, limit_bytes: 1 << 30 }),
///     durable: Some(durable),
///     ..Options::default()
/// })?;
/// store.put(b"user:1", b"Ada")?;
/// store.close()?;
/// # Ok::<(), ziptier::Error>(())
/// ```
///
/// # Threads
///
/// Share the store between threads by reference or in an [`Arc`]. Readers take no lock. Writers of one leaf take turns,
/// and writers of different leaves do not wait for each other. [`Options::background_threads`] settle records and train
/// dictionaries; [`Store::settle`] does that work at once, before a measurement for example.
///
/// # When a dictionary is trained
///
/// Values stay raw until a dictionary pays, so a small store is not compressed. These are the thresholds for tokens,
/// the usual form; [`Stats::trainings`] and [`Stats::adoptions`] count what was done.
///
/// | step | threshold |
/// |---|---|
/// | first training | keys and values have 20 times the bytes of the smallest dictionary, about 1 MB in all |
/// | adoption | the dictionary saves 5 % of all bytes, its own included, on values that it was not trained on |
/// | first training again, after a refusal | keys and values have twice the bytes |
/// | a larger dictionary | the store has 32 times its bytes; after a refusal also four times those of the last training |
/// | one of 16 bits | the store has 32 times the bytes of the last training, too |
/// | new kinds of values | 1 MiB of fresh values takes 8 % more than the dictionary promised, and a sample 5 % more |
///
/// A training takes memory within the limit while it lasts, its sample included: at most 3 MB for the smallest
/// dictionary, of 10 bits, and 5, 14 and 32 MB for those of 12, 14 and 16 bits. A store without that room takes a
/// smaller sample. If that does not suffice, it keeps the dictionary that it has, or stays raw.
///
/// # Memory
///
/// The store counts the bytes that its allocations take in jemalloc's size classes; [`Store::memory`] has the figures.
/// [`Options::memory_limit_bytes`] bounds this count. The process holds more: the program itself, buffers of threads,
/// gaps of the allocator, and pages that the allocator keeps. The `ziptier` command measures the memory of its process
/// and lowers the store's limit by the difference. A program that embeds the store must do that itself, by
/// [`Store::set_memory_limit`], or set a limit with room to spare.
///
/// Another allocator rounds otherwise, and leaves other gaps. The command uses jemalloc with one arena and small thread
/// caches, because bodies and landings in caches and half-empty slabs cost memory. A program installs the same with the
/// crate `tikv-jemallocator`:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;
/// # fn main() {}
/// ```
///
/// The settings come from the environment, `_RJEM_MALLOC_CONF=narenas:1,tcache_max:64`, or from a symbol in the program
/// (`examples/resident.rs`). The command adds `background_thread:true,dirty_decay_ms:2000`, so that free pages go back
/// to the system within seconds.
///
/// A full cache with a limit of 8 MiB (8.4 MB), 300,000 records put by one thread, three runs on x86-64 with glibc:
///
/// | allocator | the process grew by, in MB | command |
/// |---|---|---|
/// | jemalloc as above | 10.7 to 11.5 | `cargo run -p ziptier --example resident -- 8` |
/// | Rust's default | 11.8 to 16.5 | `cargo run -p ziptier --example resident_system -- 8` |
///
/// Other data and more threads give other figures, so measure your own program. Each thread that packs gets an arena of
/// its own from glibc, and from jemalloc without these settings. With eight writers and a limit of 32 MiB such a
/// process grew by 106 MiB, and by 42 MiB with glibc's `MALLOC_ARENA_MAX=1` in its environment.
///
/// # Expiry
///
/// A key expires at a moment in absolute milliseconds since the Unix epoch, by [`Options::clock`]. [`Store::put_with`]
/// gives the moment with the value ([`PutMeta::expires_at_ms`]), [`Store::set_expiry`] changes or removes it, and
/// [`Store::put`] removes it. No call returns an expired key. [`Store::len`] counts such a key until the background
/// work has removed it.
///
/// ```
/// use std::time::{Duration, SystemTime, UNIX_EPOCH};
/// use ziptier::{Options, PutMeta, Store};
///
/// let store = Store::open(Options::default())?;
/// let in_an_hour = SystemTime::now().duration_since(UNIX_EPOCH)? + Duration::from_secs(3600);
/// let meta = PutMeta { expires_at_ms: Some(in_an_hour.as_millis() as u64), ..PutMeta::default() };
/// store.put_with(b"session:7", b"Ada", meta)?;
/// assert_eq!(store.meta(b"session:7")?.and_then(|meta| meta.expires_at_ms), meta.expires_at_ms);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # At the memory limit
///
/// A write that finds no room packs raw records and moves cold leaves to far memory or SSD, if the store has them. Only
/// if that does not suffice, the store refuses the write, and nothing is lost. The error names each place that is full:
/// [`Error::MemoryLimit`], [`Error::MemoryAndFarLimit`] or [`Error::MemoryAndSsdLimit`]. With
/// [`Options::eviction`], or after [`Store::set_eviction`], seldom read records go instead (S3-FIFO).
/// [`Store::set_memory_limit`] changes the limit.
///
/// # Durability and closing
///
/// With [`Options::durable`] a log in a folder has every write. [`Store::open`] recovers the contents of the folder,
/// and [`Store::checkpoint`] shortens the log before the store would do so itself. The table says which acknowledged
/// writes may be lost. A call that has returned is acknowledged; without
/// [`DurableOptions::waits`](crate::DurableOptions::waits) it is the return of [`Store::wait`].
///
/// | [`Durability`](crate::Durability) | the process is killed | the machine loses power |
/// |---|---|---|
/// | `Always` | none | none |
/// | `Everysec`, the default | none | those of about the last second |
/// | `No` | none | all that the system had not written to the medium |
/// | without a folder | all | all |
///
/// [`Store::close`] writes the log to the medium, marks a clean stop, and returns whether everything is durable. It
/// makes a checkpoint first if that shortens the next start, for up to a few seconds. Dropping the store, or the last
/// [`Arc`] of it, does the same and returns no error. `close` takes the store itself, so take it out of its `Arc` when
/// the other threads have ended:
///
/// ```
/// use std::sync::Arc;
/// use ziptier::{Options, Store};
///
/// let store = Arc::new(Store::open(Options::default())?);
/// let shared = Arc::clone(&store);
/// std::thread::spawn(move || shared.put(b"user:1", b"Ada")).join().expect("it does not panic")?;
/// Arc::into_inner(store).map_or(Ok(()), Store::close)?;
/// # Ok::<(), ziptier::Error>(())
/// ```
pub struct Store {
    /// Ends before the core goes away.
    _packers: Packers,
    pub(crate) core: Arc<Core>,
    /// Ends before the log is sealed.
    checkpoints: Option<CheckpointThread>,
    recovered: Option<Recovered>,
}

impl Store {
    fn end(&mut self) -> Result<(), Error> {
        let is_first = self.checkpoints.take().is_some();
        let (Some(journal), Some(checkpointer)) = (self.core.journal.get(), self.core.checkpointer.get())
        else {
            return Ok(());
        };
        let sealed = journal.seal();
        if is_first && sealed.is_ok() {
            checkpointer.checkpoint_at_stop(self.core.moves(), journal);
        }
        sealed.and(checkpointer.close())
    }

    /// A read has ended: waits until the writes that it has seen are durable.
    #[inline]
    fn seen<T, E>(&self, outcome: Result<T, E>) -> Result<T, Error>
    where
        Error: From<E>,
    {
        self.core.wait_for_seen()?;
        Ok(outcome?)
    }

    /// An update has ended, which may have left things as they were.
    #[inline]
    fn modified(&self, outcome: Result<Update, ziptier_tree::Error>) -> Result<Update, Error> {
        if matches!(outcome, Ok(Update::Keep)) { self.seen(outcome) } else { self.written(outcome) }
    }

    /// A write has ended: waits until it is durable.
    #[inline]
    fn written<T>(&self, outcome: Result<T, ziptier_tree::Error>) -> Result<T, Error> {
        let outcome = outcome?;
        match self.core.journal.get() {
            Some(journal) if journal.waits() => journal.wait().map(|()| outcome),
            _ => Ok(outcome),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // A drop cannot return a failure. The next start then finds a log without the mark of a clean stop.
        let _ = self.end();
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("memory", &self.memory()).finish_non_exhaustive()
    }
}
