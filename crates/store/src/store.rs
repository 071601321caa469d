//! The store as its users see it.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_epoch::pin;

use crate::Error;
use crate::batch::{Batch, Transferred, committed_now};
use crate::coding::Coding;
use crate::core::{Copied, Core, check_key, copy_found, found_len};
use crate::far::{FarMemory, FarStatus};
use crate::index::GROUP_KEYS;
use crate::maintenance::Packers;
use crate::memory::MemoryUse;
use crate::open_value::OpenValue;
use crate::options::Options;
use crate::range::{Range, prefix_end};
use crate::record::{Meta, Payload, PutMeta};
use crate::stats::Stats;
use crate::write::Update;

/// Rounds in which a multi-get tries to see one moment while batches are committed, before it holds them up.
const MULTI_GET_ROUNDS: usize = 8;

/// A compressed, ordered key-value store in memory. Share it between threads by reference or `Arc`.
///
/// Keys are 1 to 65,536 bytes, values 0 bytes to 512 MiB. Every call is atomic per key, and linearizable.
pub struct Store {
    /// Ends before the core goes away.
    _packers: Packers,
    core: Arc<Core>,
}

/// Values that [`Store::multi_get`] found; reuse it from call to call.
#[derive(Debug, Default)]
pub struct Values {
    bytes: Vec<u8>,
    spans: Vec<Option<Span>>,
}

/// Where a value lies among the bytes, and what is known of it; nowhere when it is longer than was asked for.
#[derive(Debug)]
struct Span {
    range: Option<std::ops::Range<usize>>,
    meta: Meta,
}

impl Values {
    /// The value of the key at `index` in the call; `None` when there was none, when it is longer than
    /// [`Store::multi_get_up_to`] was asked for, or when there is no such index.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let range = self.spans.get(index)?.as_ref()?.range.clone()?;
        Some(&self.bytes[range])
    }

    /// What is known of the value of the key at `index`, however long it is; `None` when there was none.
    pub fn meta(&self, index: usize) -> Option<Meta> {
        Some(self.spans.get(index)?.as_ref()?.meta)
    }

    /// Bytes of memory held for values.
    pub fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.spans.capacity() * size_of::<Option<Span>>()
    }

    /// Keys asked for.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether no key was asked for.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }
}

impl Store {
    /// Opens an empty store.
    ///
    /// # Errors
    /// An option out of range, far memory that is not as it was asked for, or a thread that the system refuses.
    pub fn open(options: Options) -> Result<Self, Error> {
        options.check()?;
        let far = options.far.as_ref().map(|far| FarMemory::open(far, options.far_ratio)).transpose()?;
        let core = Arc::new(Core::over(&options, far));
        let packers = Packers::start(&core, options.background_threads)?;
        Ok(Self { _packers: packers, core })
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// A key that is none, or damage.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.map(|_| value))
    }

    /// Replaces the contents of `value` by the value of `key`; leaves it empty when there is none.
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
    /// As [`Store::get`]; `out` is as it was then.
    #[inline]
    pub fn append_to(&self, key: &[u8], out: &mut Vec<u8>) -> Result<Option<Meta>, Error> {
        check_key(key)?;
        self.core.read(key, out)
    }

    /// What is known of `key` without its value.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn meta(&self, key: &[u8]) -> Result<Option<Meta>, Error> {
        check_key(key)?;
        let guard = pin();
        let meta = self.core.look_up(key, &guard, &self.core.committed, |found| {
            let len = found_len(&found)?;
            Ok(Meta { len, expires_at_ms: found.expires_at_ms, flags: found.flags })
        });
        meta.transpose().map_err(|reason| self.core.damaged(key, reason))
    }

    /// The values of several keys, as of one moment with respect to batches.
    ///
    /// # Errors
    /// As [`Store::get`], for any of the keys; `values` is empty then.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K], values: &mut Values) -> Result<(), Error> {
        self.multi_get_up_to(keys, u64::MAX, values)
    }

    /// As [`Store::multi_get`], but of large values longer than `len_max` only what [`Values::meta`] tells, so that
    /// the caller knows what it may have to hold.
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
        for key in keys {
            check_key(key.as_ref())?;
        }
        let core = &*self.core;
        for _ in 0..MULTI_GET_ROUNDS {
            let before = core.committed.load(Ordering::Acquire);
            self.read_all(keys, len_max, values)?;
            if core.committed.load(Ordering::Acquire) == before {
                return Ok(());
            }
        }
        let _no_batch = core.batches.lock();
        self.read_all(keys, len_max, values)
    }

    fn read_all<K: AsRef<[u8]>>(&self, keys: &[K], len_max: u64, values: &mut Values) -> Result<(), Error> {
        let core = &*self.core;
        values.clear();
        let committed = committed_now(core);
        let mut large = Vec::new();
        let guard = pin();
        let approached = keys.chunks(GROUP_KEYS).flat_map(|group| core.approach(group, &guard));
        for (key, (leaf, hash)) in keys.iter().zip(approached) {
            let key = key.as_ref();
            let start = values.bytes.len();
            let copied = core.look_up_from(leaf, key, hash, &guard, &committed, |found| {
                copy_found(found, &mut values.bytes)
            });
            values.spans.push(match copied {
                None => None,
                Some(Copied::Inline(meta)) => {
                    let range = start..values.bytes.len();
                    Some(Span { meta: Meta { len: range.len() as u64, ..meta }, range: Some(range) })
                }
                Some(Copied::Large(share, meta)) => {
                    if meta.len <= len_max {
                        large.push((values.spans.len(), share));
                    }
                    Some(Span { range: None, meta })
                }
                Some(Copied::Damaged(reason)) => {
                    values.clear();
                    return Err(core.damaged(key, reason));
                }
            });
        }
        drop(guard);
        for (index, share) in large {
            let start = values.bytes.len();
            if let Err(reason) = share.read_at(0, usize::MAX, &mut values.bytes) {
                values.clear();
                return Err(core.damaged(keys[index].as_ref(), reason));
            }
            if let Some(span) = &mut values.spans[index] {
                span.range = Some(start..values.bytes.len());
            }
        }
        Ok(())
    }

    /// Replaces the contents of `out` by up to `len` bytes of the value of `key`, from `offset` on. Of a large
    /// value only the chunks that are asked for are decoded.
    ///
    /// # Errors
    /// As [`Store::get`]; `out` is empty then.
    pub fn read_at(
        &self,
        key: &[u8],
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<Option<Meta>, Error> {
        check_key(key)?;
        out.clear();
        let guard = pin();
        let copied = self.core.look_up(key, &guard, &self.core.committed, |found| match found.payload {
            Payload::Raw(bytes) => {
                let start = bytes.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
                let end = bytes.len().min(start.saturating_add(len));
                out.extend_from_slice(&bytes[start..end]);
                let meta =
                    Meta { len: bytes.len() as u64, expires_at_ms: found.expires_at_ms, flags: found.flags };
                (Copied::Inline(meta), false)
            }
            _ => (copy_found(found, out), true),
        });
        drop(guard);
        let failed = |out: &mut Vec<u8>, reason| {
            out.clear();
            Err(self.core.damaged(key, reason))
        };
        match copied {
            None => Ok(None),
            Some((Copied::Inline(meta), false)) => Ok(Some(meta)),
            Some((Copied::Inline(meta), true)) => {
                let meta = Meta { len: out.len() as u64, ..meta };
                let start = out.len().min(usize::try_from(offset).unwrap_or(usize::MAX));
                out.drain(..start);
                out.truncate(len);
                Ok(Some(meta))
            }
            Some((Copied::Large(large, meta), _)) => match large.read_at(offset, len, out) {
                Ok(()) => Ok(Some(meta)),
                Err(reason) => failed(out, reason),
            },
            Some((Copied::Damaged(reason), _)) => failed(out, reason),
        }
    }

    /// Opens the value of `key` for reading in pieces, which all come from this one value.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn open_value(&self, key: &[u8]) -> Result<Option<OpenValue>, Error> {
        check_key(key)?;
        let mut value = Vec::new();
        let copied = {
            let guard = pin();
            self.core.look_up(key, &guard, &self.core.committed, |found| copy_found(found, &mut value))
        };
        match copied {
            None => Ok(None),
            Some(Copied::Inline(meta)) => {
                let meta = Meta { len: value.len() as u64, ..meta };
                Ok(Some(OpenValue::inline(value, meta)))
            }
            Some(Copied::Large(large, meta)) => Ok(Some(OpenValue::large(large, meta, key.len()))),
            Some(Copied::Damaged(reason)) => Err(self.core.damaged(key, reason)),
        }
    }

    /// Puts `value` under `key`, without expiry.
    ///
    /// # Errors
    /// A key or value out of range, or the memory limit; nothing is changed then.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.core.put(key, value, PutMeta::default())
    }

    /// Puts `value` under `key`, with expiry and flags.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_with(&self, key: &[u8], value: &[u8], meta: PutMeta) -> Result<(), Error> {
        self.core.put(key, value, meta)
    }

    /// Gives `key` another expiry without touching its value; `false` when there is no such key.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn set_expiry(&self, key: &[u8], expires_at_ms: Option<u64>) -> Result<bool, Error> {
        let done = self.core.modify(key, false, |_| Update::Expire(expires_at_ms))?;
        Ok(done != Update::Keep)
    }

    /// Deletes `key`; `true` when it existed.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        let done = self.core.modify(key, false, |found| match found {
            Some(_) => Update::Delete,
            None => Update::Keep,
        })?;
        Ok(done == Update::Delete)
    }

    /// Replaces, deletes or keeps `key` as `decide` says of its value and meta, atomically. `decide` runs again
    /// when another write came between, and under no lock. Returns what was done.
    ///
    /// # Errors
    /// As [`Store::put`] and [`Store::get`].
    pub fn update(
        &self,
        key: &[u8],
        decide: impl FnMut(Option<(&[u8], Meta)>) -> Update,
    ) -> Result<Update, Error> {
        self.core.modify(key, true, decide)
    }

    /// As [`Store::update`], for decisions that need only what is known of the value: a large value is not read.
    ///
    /// # Errors
    /// As [`Store::update`].
    pub fn update_meta(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<Meta>) -> Update,
    ) -> Result<Update, Error> {
        self.core.modify(key, false, |found| decide(found.map(|(_, meta)| meta)))
    }

    /// Gives `target` the value, expiry and flags of `source`, and deletes `source`, in one step for every reader.
    /// An existing target is kept unless `replace` says otherwise. The same key twice is left alone.
    ///
    /// # Errors
    /// As [`Store::put`] and [`Store::get`]; nothing is changed then.
    pub fn rename(&self, source: &[u8], target: &[u8], replace: bool) -> Result<Transferred, Error> {
        self.core.transfer(source, target, false, replace)
    }

    /// As [`Store::rename`], but `source` stays. A large value is shared, not copied.
    ///
    /// # Errors
    /// As [`Store::rename`].
    pub fn copy(&self, source: &[u8], target: &[u8], replace: bool) -> Result<Transferred, Error> {
        self.core.transfer(source, target, true, replace)
    }

    /// Makes all writes of `batch`, or none: `false` when one of its conditions did not hold. Every reader sees
    /// all of them or none.
    ///
    /// # Errors
    /// As [`Store::put`], for any of the writes; nothing is changed then.
    pub fn write(&self, batch: &Batch) -> Result<bool, Error> {
        self.core.write(batch)
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
        self.core.keys_from(from, limit)
    }

    /// Some key, `None` when there is none. Leaves are drawn with about equal chances, and so are the keys of a leaf:
    /// it takes the time of a few reads. `random` gives any numbers.
    pub fn random_key(&self, random: impl FnMut() -> u64) -> Option<Vec<u8>> {
        self.core.random_key(random)
    }

    /// Keys in the store; expired ones count until they are swept. Takes time only while writes are unsettled:
    /// then it looks at every leaf.
    pub fn len(&self) -> u64 {
        self.core.count_keys()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Deletes every key that is there when it begins. Keys that are written meanwhile may stay or go.
    ///
    /// # Errors
    /// None today.
    pub fn clear(&self) -> Result<(), Error> {
        self.core.clear();
        Ok(())
    }

    /// Merges every landing now, and brings every leaf to the form it would take by itself in quiet times.
    ///
    /// # Errors
    /// None today.
    pub fn settle(&self) -> Result<(), Error> {
        self.core.settle();
        Ok(())
    }

    /// What the store holds, by purpose, in allocator bytes.
    pub fn memory(&self) -> MemoryUse {
        self.core.dictionaries.count_live();
        let far = self.core.far.as_ref().map(|far| far.usage());
        MemoryUse {
            far_used_bytes: far.map_or(0, |far| far.used_bytes),
            far_limit_bytes: far.map_or(0, |far| far.capacity_bytes),
            ..self.core.gauges.memory_use()
        }
    }

    /// What far memory is in force, if any.
    pub fn far(&self) -> Option<FarStatus> {
        Some(self.core.far.as_ref()?.status())
    }

    /// What the store did since it was opened.
    pub fn stats(&self) -> Stats {
        let current = self.core.dictionaries.current();
        let (coded_raw_bytes, coded_bytes) = self.core.dictionaries.coded_bytes();
        let engines = current.as_ref().and_then(Coding::blocks).map(|blocks| blocks.totals().by_engine());
        let stats = Stats {
            coded_raw_bytes,
            coded_bytes,
            dictionary_generation: current.as_ref().map_or(0, Coding::generation),
            dictionary_bits: current.as_ref().and_then(Coding::tokens).map_or(0, |tokens| tokens.bits()),
            ..self.core.stats.stats()
        };
        stats.with_engines(&engines.unwrap_or_default())
    }

    /// Who packs blocks where values are written, in the words of result tables (`cpu`, `software`, `hardware`, `modelled`,
    /// `zlib_system`, `zlib_accel_preload`); `None` for codecs without blocks.
    pub fn block_worker(&self) -> Option<&'static str> {
        Some(self.core.dictionaries.current()?.blocks()?.worker())
    }

    /// Changes the memory limit; `None` lifts it.
    pub fn set_memory_limit(&self, bytes: Option<u64>) {
        self.core.set_memory_limit(bytes);
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("memory", &self.memory()).finish_non_exhaustive()
    }
}
