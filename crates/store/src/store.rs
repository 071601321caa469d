//! The store as its users see it.

mod bounded;
mod checkpoints;
mod figures;
mod limits;
mod pieces;
mod places;

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use ziptier_media::disk::{Disk, RealDisk};
use ziptier_media::far::Fit;

use crate::Error;
use crate::batch::{Batch, Transferred};
use crate::cold::{Cold, Tier};
use crate::core::{Core, check_key, found_len};
use crate::durable::{CheckpointThread, Folder, Journal, Recovered, Recovery, recover};
use crate::far::FarMemory;
use crate::index::GROUP_KEYS;
use crate::maintenance::Packers;
use crate::memory::Gauges;
use crate::multi_get::Values;
use crate::options::Options;
use crate::range::{Range, prefix_end};
use crate::record::{Meta, PutMeta};
#[cfg(doc)]
use crate::stats::Stats;
use crate::update::Update;

pub use bounded::OldValue;

/// A compressed, ordered key-value store.
///
/// Keys have 1 to 65,536 bytes, values 0 bytes to 512 MiB. Every call is atomic per key, and linearizable. A [`Batch`]
/// writes several keys or none. `examples/basic.rs`, `durable.rs` and `tiers.rs` of this crate are whole programs.
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
/// | a larger dictionary | the store has four times the bytes of the last training, and 20 times those of the dictionary |
/// | new kinds of values | 1 MiB of fresh values takes 8 % more than the dictionary promised |
///
/// A training takes a few MB within the memory limit. A store without that room stays raw.
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
/// if that does not suffice, the store refuses the write with [`Error::MemoryLimit`], and nothing is lost. With
/// [`Options::eviction`], or after [`Store::set_eviction`], seldom read records go instead (S3-FIFO).
/// [`Store::set_memory_limit`] changes the limit.
///
/// # Durability and closing
///
/// With [`Options::durable`] a log in a folder has every write. [`Durability`](crate::Durability) says when a write is
/// durable: by default the system has it at once, and the medium within about a second. [`Store::open`] recovers the
/// contents of the folder, and [`Store::checkpoint`] shortens the log before the store would do so itself.
/// [`Store::close`] returns whether everything is durable. Dropping a store ends it in the same way, without an answer.
pub struct Store {
    /// Ends before the core goes away.
    _packers: Packers,
    pub(crate) core: Arc<Core>,
    /// Ends before the log is sealed.
    checkpoints: Option<CheckpointThread>,
    recovered: Option<Recovered>,
}

impl Store {
    /// Opens an empty store, or with [`Options::durable`] the store in its folder.
    ///
    /// # Errors
    /// An option out of range, far memory that differs from the request, or a thread that the system refuses. Also a
    /// folder that is in use, damaged, or not that of a store.
    pub fn open(options: Options) -> Result<Self, Error> {
        Self::open_with(options, |_| {})
    }

    /// As [`Store::open`], and reports the progress of the recovery.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_with(options: Options, progress: impl FnMut(Recovery)) -> Result<Self, Error> {
        Self::open_on(Arc::new(RealDisk), options, progress)
    }

    /// As [`Store::open_with`], with the SSD on a disk of a test.
    #[doc(hidden)]
    pub fn open_on(
        disk: Arc<dyn Disk>,
        options: Options,
        mut progress: impl FnMut(Recovery),
    ) -> Result<Self, Error> {
        options.check()?;
        let gauges = Arc::new(Gauges::new(options.memory_limit_bytes));
        // A body without a slot of its size goes to SSD, or others are evicted for it.
        let fit = if options.ssd.is_some() || options.eviction { Fit::Close } else { Fit::Any };
        let far = options.far.as_ref().map(|far| FarMemory::open(far, options.far_ratio, fit)).transpose()?;
        let ssd = options.ssd.as_ref();
        let folder = options.durable.as_ref().map(|durable| Folder::open(durable, ssd)).transpose()?;
        if options.eviction && folder.as_ref().is_some_and(Folder::has_cold) {
            let reason = "the folder has leaves on SSD, where a store that evicts keeps nothing; open it \
                          without eviction";
            return Err(Error::Ssd { reason: reason.to_owned() });
        }
        let cold = match (&folder, ssd) {
            (Some(folder), _) if ssd.is_some() || folder.has_cold() => {
                let tier = Tier::over(folder.files.clone(), folder.layout, gauges.clone());
                Some(Cold::over(tier, &gauges))
            }
            (None, Some(ssd)) => Some(Cold::open(disk, ssd, &gauges)?),
            _ => None,
        };
        let core = Arc::new(Core::with_places(&options, gauges, far, cold));
        let packers = Packers::start(&core, options.background_threads)?;
        let mut store = Self { _packers: packers, core, checkpoints: None, recovered: None };
        if let (Some(durable), Some(folder)) = (&options.durable, folder) {
            store.recovered = Some(recover(&store.core, &options, durable, folder, &mut progress)?);
            store.checkpoints = Some(CheckpointThread::start(store.core.clone())?);
            store.core.set_memory_limit(options.memory_limit_bytes);
        }
        Ok(store)
    }

    /// The findings of the recovery of the folder; `None` without a folder.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// Returns when everything that the caller has written or seen is as durable as [`DurableOptions::durability`]
    /// says; at once without a folder. For callers with [`DurableOptions::waits`] off.
    ///
    /// [`DurableOptions::durability`]: crate::DurableOptions::durability
    /// [`DurableOptions::waits`]: crate::DurableOptions::waits
    ///
    /// # Errors
    /// The log failed: writes since the last successful call may or may not be there when the store is opened anew.
    #[inline]
    pub fn wait(&self) -> Result<(), Error> {
        self.core.journal.get().map_or(Ok(()), Journal::wait)
    }

    /// Ends the store with the mark of a clean stop, as dropping it does, and returns whether everything is durable.
    /// The store spends up to a few seconds on a checkpoint, so that the next start is quick.
    ///
    /// # Errors
    /// The log failed, now or earlier.
    pub fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        let is_first = self.checkpoints.take().is_some();
        let (Some(journal), Some(checkpointer)) = (self.core.journal.get(), self.core.checkpointer.get())
        else {
            return Ok(());
        };
        let sealed = journal.seal();
        if is_first && sealed.is_ok() {
            checkpointer.checkpoint_at_stop(&self.core, journal);
        }
        sealed.and(checkpointer.close())
    }

    /// A read has ended: waits until the writes that it has seen are durable.
    #[inline]
    fn seen<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        self.core.wait_for_seen().and(outcome)
    }

    /// An update has ended, which may have left things as they were.
    #[inline]
    fn modified(&self, outcome: Result<Update, Error>) -> Result<Update, Error> {
        if matches!(outcome, Ok(Update::Keep)) { self.seen(outcome) } else { self.written(outcome) }
    }

    /// A write has ended: waits until it is durable.
    #[inline]
    fn written<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        match self.core.journal.get() {
            Some(journal) if outcome.is_ok() && journal.waits() => journal.wait().and(outcome),
            _ => outcome,
        }
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// An invalid key, damage, or with the durability `always` a failed log, because the value may not last.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.map(|_| value))
    }

    /// Replaces the contents of `value` by the value of `key`, or empties `value` if there is none.
    ///
    /// # Errors
    /// As [`Store::get`]; `value` is empty then.
    #[inline]
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        value.clear();
        self.append_to(key, value)
    }

    /// Appends the value of `key` to `out`.
    ///
    /// # Errors
    /// As [`Store::get`]; an error leaves `out` unchanged.
    #[inline]
    pub fn append_to(&self, key: &[u8], out: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        check_key(key)?;
        let before = out.len();
        let read = self.core.read(key, out);
        self.seen(read).inspect_err(|_| out.truncate(before))
    }

    /// What is known of `key` without its value.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn meta(&self, key: &[u8]) -> Result<Option<Meta>, Error> {
        check_key(key)?;
        let meta = self.core.find_value(key, |found| {
            let len = found_len(&found)?;
            Ok(Meta { len, expires_at_ms: found.expires_at_ms, flags: found.flags })
        })?;
        self.seen(meta.transpose().map_err(|reason| self.core.damaged(key, reason)))
    }

    /// Announces writes to `keys`. The store prefetches the memory that these writes read for all keys at once, so that
    /// the waits for memory overlap. Nothing else happens.
    pub fn prepare_writes<K: AsRef<[u8]>>(&self, keys: &[K]) {
        let guard = self.core.pin();
        keys.chunks(GROUP_KEYS).for_each(|group| self.core.approach_writes(group, &guard));
    }

    /// The same for reads.
    pub fn prepare_reads<K: AsRef<[u8]>>(&self, keys: &[K]) {
        let guard = self.core.pin();
        keys.chunks(GROUP_KEYS).for_each(|group| drop(self.core.approach(group, &guard)));
    }

    /// The values of several keys, as of one moment with respect to batches.
    ///
    /// # Errors
    /// As [`Store::get`], for any of the keys; `values` is empty then.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K], values: &mut Values) -> Result<(), Error> {
        self.multi_get_up_to(keys, u64::MAX, values)
    }

    /// As [`Store::multi_get`], but for large values longer than `len_max` returns only [`Values::meta`]. So the caller
    /// can bound the memory that it may need.
    ///
    /// # Errors
    /// As [`Store::multi_get`].
    pub fn multi_get_up_to<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        len_max: u64,
        values: &mut Values,
    ) -> Result<(), Error> {
        values.clear();
        keys.iter().try_for_each(|key| check_key(key.as_ref()))?;
        let read = self.core.multi_get(keys, len_max, values);
        self.seen(read).inspect_err(|_| values.clear())
    }

    /// Puts `value` under `key`, without expiry.
    ///
    /// # Errors
    /// A key or value out of range, or the memory limit; nothing is changed then.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.written(self.core.put(key, value, PutMeta::default()))
    }

    /// Puts `value` under `key`, with expiry and flags.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_with(&self, key: &[u8], value: &[u8], meta: PutMeta) -> Result<(), Error> {
        self.written(self.core.put(key, value, meta))
    }

    /// Gives `key` another expiry without touching its value; `false` when there is no such key.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn set_expiry(&self, key: &[u8], expires_at_ms: Option<u64>) -> Result<bool, Error> {
        let done = self.modified(self.core.modify(key, false, |_| Update::Expire(expires_at_ms)))?;
        Ok(done != Update::Keep)
    }

    /// Deletes `key`; `true` when it existed.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        let mut existed = false;
        self.modified(self.core.modify(key, false, |found| {
            existed = found.is_some();
            if existed || self.core.forgets() { Update::Delete } else { Update::Keep }
        }))?;
        Ok(existed)
    }

    /// Atomically replaces, deletes or keeps `key`, as `decide` chooses from its value and meta. `decide` holds no
    /// lock, and runs again if another write came between. Returns the change.
    ///
    /// # Errors
    /// As [`Store::put`] and [`Store::get`].
    pub fn update(
        &self,
        key: &[u8],
        decide: impl FnMut(Option<(&[u8], Meta)>) -> Update,
    ) -> Result<Update, Error> {
        self.modified(self.core.modify(key, true, decide))
    }

    /// As [`Store::update`], for decisions that need only the meta: a large value is not read.
    ///
    /// # Errors
    /// As [`Store::update`].
    pub fn update_meta(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<Meta>) -> Update,
    ) -> Result<Update, Error> {
        self.modified(self.core.modify(key, false, |found| decide(found.map(|(_, meta)| meta))))
    }

    /// Gives `target` the value, expiry and flags of `source`, and deletes `source`, in one step for every reader.
    /// An existing target is kept unless `replace` says otherwise. The same key twice is left alone.
    ///
    /// # Errors
    /// As [`Store::put`] and [`Store::get`]; nothing is changed then.
    pub fn rename(&self, source: &[u8], target: &[u8], replace: bool) -> Result<Transferred, Error> {
        self.written(self.core.transfer(source, target, false, replace))
    }

    /// As [`Store::rename`], but `source` stays. A large value is shared, not copied.
    ///
    /// # Errors
    /// As [`Store::rename`].
    pub fn copy(&self, source: &[u8], target: &[u8], replace: bool) -> Result<Transferred, Error> {
        self.written(self.core.transfer(source, target, true, replace))
    }

    /// Makes all writes of `batch`, or none: `false` when one of its conditions did not hold. Every reader sees
    /// all of them or none.
    ///
    /// # Errors
    /// As [`Store::put`], for any of the writes; nothing is changed then.
    pub fn write(&self, batch: &Batch) -> Result<bool, Error> {
        self.written(self.core.write(batch))
    }

    /// The records whose keys lie in `range`, in key order, from either end. No snapshot: a key that is present
    /// throughout appears exactly once and in order, one that is written meanwhile at most once.
    pub fn range<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Range<'_> {
        let own = |bound: Bound<&&[u8]>| bound.map(|key| key.to_vec());
        Range::new(&self.core, own(range.start_bound()), own(range.end_bound()))
    }

    /// The records whose keys begin with `prefix`; see [`Store::range`].
    pub fn prefix(&self, prefix: &[u8]) -> Range<'_> {
        let end = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        Range::new(&self.core, Bound::Included(prefix.to_vec()), end)
    }

    /// Up to `limit` keys from `from` on, in key order, without their values.
    ///
    /// # Errors
    /// Damage.
    pub fn keys_from(&self, from: Bound<&[u8]>, limit: usize) -> Result<Vec<(Vec<u8>, Meta)>, Error> {
        self.seen(self.core.keys_from(from, limit))
    }

    /// A random key; `None` if there is none, or if a failed log forbids an answer. Leaves have about equal chances,
    /// and so do the keys of a leaf. The call takes the time of a few reads. `random` gives any numbers.
    pub fn random_key(&self, random: impl FnMut() -> u64) -> Option<Vec<u8>> {
        self.core.random_key(random).filter(|_| self.core.wait_for_seen().is_ok())
    }

    /// Keys in the store; expired ones count until they are swept. While writes are unsettled, the call visits every
    /// leaf; otherwise it takes no time.
    pub fn len(&self) -> u64 {
        let count = self.core.count_keys();
        let _no_key_is_told = self.core.wait_for_seen();
        count
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Deletes every key that is there when it begins. Keys that are written meanwhile may stay or go.
    ///
    /// # Errors
    /// The log's; some keys may be gone then.
    pub fn clear(&self) -> Result<(), Error> {
        self.written(self.core.clear())
    }

    /// Packs every landing now, and brings every leaf to its final form. Leaves that would grow stay as they are if
    /// neither DRAM nor far memory has room.
    ///
    /// # Errors
    /// None today.
    pub fn settle(&self) -> Result<(), Error> {
        self.core.settle();
        Ok(())
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
