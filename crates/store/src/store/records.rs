//! Records: one, several, and those of a range.

use std::ops::{Bound, RangeBounds};

use ziptier_tree::batch::{Batch, Transferred};
use ziptier_tree::host::ReadHost;
use ziptier_tree::multi_get::Values;
use ziptier_tree::range::{Keys, prefix_end};
use ziptier_tree::read::found_len;
use ziptier_tree::record::{Meta, PutMeta, check_key};
use ziptier_tree::seen::Wanted;
use ziptier_tree::update::Update;

use super::{Range, Store};
use crate::Error;

/// # Get, put, delete
impl Store {
    /// The value of `key`.
    ///
    /// # Errors
    /// An invalid key, damage, or with the durability `always` a failed log, because the value may not last.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.map(|_| value))
    }

    /// Puts `value` under `key`, without expiry.
    ///
    /// # Errors
    /// A key or value out of range, or the memory limit; nothing is changed then.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        self.written(self.core.writes().put(key, value, PutMeta::default()))
    }

    /// Deletes `key`; `true` when it existed. A key whose value is damaged in memory can be deleted, too. A batch
    /// deletes a key whose image on SSD cannot be read. The log has the delete of a key that has expired.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn delete(&self, key: &[u8]) -> Result<bool, Error> {
        let mut existed = false;
        self.modified(self.core.writes().modify(key, Wanted::Presence, |found| {
            existed = found.is_some();
            Update::Delete
        }))?;
        Ok(existed)
    }

    /// Atomically replaces, deletes or keeps `key`, as `decide` chooses from its value and meta. `decide` runs under no
    /// lock of a leaf, and runs again if another write of the key came between. Returns the change.
    ///
    /// `decide` may read this store, and must not write to it. After some attempts in vain other writers of the key
    /// wait for this update, so a write by `decide` would wait for ever.
    ///
    /// # Panics
    /// If `decide` panics. Nothing is changed then, and no other writer waits any longer.
    ///
    /// # Errors
    /// As [`Store::put`] and [`Store::get`].
    pub fn update(
        &self,
        key: &[u8],
        decide: impl FnMut(Option<(&[u8], Meta)>) -> Update,
    ) -> Result<Update, Error> {
        self.modified(self.core.writes().modify(key, Wanted::Bytes, decide))
    }

    /// Makes all writes of `batch`, or none: `false` when one of its conditions did not hold. Every reader sees
    /// all of them or none.
    ///
    /// # Errors
    /// As [`Store::put`], for any of the writes; nothing is changed then. A batch is also refused for want of room if
    /// all its conditions hold so far, and memory has no room for the records on SSD that they ask for.
    pub fn write(&self, batch: &Batch) -> Result<bool, Error> {
        self.written(self.core.writes().write(batch))
    }

    /// The records whose keys lie in `range`, in key order, from either end. Each is a [`Result`] of key and value,
    /// because a record may be damaged, or unreadable on SSD; the iterator then goes on behind it. After a failed log
    /// with the durability `always` it ends.
    ///
    /// No snapshot: a key that is present throughout appears exactly once and in order, one that is written meanwhile
    /// at most once.
    pub fn range<'k>(&self, range: impl RangeBounds<&'k [u8]>) -> Range<'_> {
        let own = |bound: Bound<&&[u8]>| bound.map(|key| key.to_vec());
        Range(self.core.reads().range(own(range.start_bound()), own(range.end_bound())))
    }

    /// The records whose keys begin with `prefix`; see [`Store::range`].
    pub fn prefix(&self, prefix: &[u8]) -> Range<'_> {
        let end = prefix_end(prefix).map_or(Bound::Unbounded, Bound::Excluded);
        Range(self.core.reads().range(Bound::Included(prefix.to_vec()), end))
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
        let read = self.core.reads().read(key, out);
        self.seen(read).inspect_err(|_| out.truncate(before))
    }

    /// What is known of `key` without its value.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn meta(&self, key: &[u8]) -> Result<Option<Meta>, Error> {
        check_key(key)?;
        let meta = self.core.reads().find_value(key, |found| {
            let len = found_len(&found)?;
            Ok(Meta { len, expires_at_ms: found.expires_at_ms, flags: found.flags })
        })?;
        self.seen(meta.transpose().map_err(|reason| self.core.tree.damaged(key, reason)))
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
        let read = self.core.reads().multi_get(keys, len_max, values);
        self.seen(read).inspect_err(|_| values.clear())
    }

    /// Puts `value` under `key`, with expiry and flags.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_with(&self, key: &[u8], value: &[u8], meta: PutMeta) -> Result<(), Error> {
        self.written(self.core.writes().put(key, value, meta))
    }

    /// Gives `key` another expiry without touching its value; `false` when there is no such key.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn set_expiry(&self, key: &[u8], expires_at_ms: Option<u64>) -> Result<bool, Error> {
        let done =
            self.modified(self.core.writes().modify(key, Wanted::Meta, |_| Update::Expire(expires_at_ms)))?;
        Ok(done != Update::Keep)
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
        self.modified(
            self.core.writes().modify(key, Wanted::Meta, |found| decide(found.map(|(_, meta)| meta))),
        )
    }

    /// Gives `target` the value, expiry and flags of `source`, and deletes `source`, in one step for every reader.
    /// An existing target is kept unless `replace` says otherwise. The same key twice is left alone.
    ///
    /// # Errors
    /// As [`Store::put`] and [`Store::get`]; nothing is changed then.
    pub fn rename(&self, source: &[u8], target: &[u8], replace: bool) -> Result<Transferred, Error> {
        self.written(self.core.writes().transfer(source, target, false, replace))
    }

    /// As [`Store::rename`], but `source` stays. A large value is shared, not copied.
    ///
    /// # Errors
    /// As [`Store::rename`].
    pub fn copy(&self, source: &[u8], target: &[u8], replace: bool) -> Result<Transferred, Error> {
        self.written(self.core.writes().transfer(source, target, true, replace))
    }

    /// Up to `limit` keys, at least one, from `from` on, in key order. A key whose value is damaged is among them. A
    /// call looks at a bounded part of the store, so that there may be fewer keys, or none, before the end.
    ///
    /// # Errors
    /// The next keys lie on SSD and cannot be read. [`Store::keys_behind`] tells where to go on.
    pub fn keys_from(&self, from: &[u8], limit: usize) -> Result<Keys, Error> {
        self.seen(self.core.tree.ranges().keys_from(from, None, limit))
    }

    /// The place behind keys that [`Store::keys_from`] cannot read from `from` on; `None` if nothing lies behind them.
    /// Keys between the two that lie in memory are passed over, too: [`Store::range`] tells them.
    pub fn keys_behind(&self, from: &[u8]) -> Option<Vec<u8>> {
        self.core.tree.ranges().keys_behind(from)
    }

    /// A random key; `None` if there is none, or if a failed log forbids an answer. Leaves have about equal chances,
    /// and so do the keys of a leaf. The call takes the time of a few reads, unless the keys of many leaves have
    /// expired. `random` gives any numbers.
    pub fn random_key(&self, random: impl FnMut() -> u64) -> Option<Vec<u8>> {
        self.random_key_while(random, || true).flatten()
    }

    /// As [`Store::random_key`], but asks `goes_on` at each leaf that it visits. `None` once the answer is no.
    pub fn random_key_while(
        &self,
        random: impl FnMut() -> u64,
        goes_on: impl FnMut() -> bool,
    ) -> Option<Option<Vec<u8>>> {
        let drawn = self.core.tree.ranges().random_key(random, goes_on)?;
        Some(drawn.filter(|_| self.core.wait_for_seen().is_ok()))
    }

    /// Keys in the store; expired ones count until they are swept. While writes are unsettled, the call visits every
    /// leaf; otherwise it takes no time.
    pub fn len(&self) -> u64 {
        let count = self.core.tree.ranges().count_keys();
        let _no_key_is_told = self.core.wait_for_seen();
        count
    }

    /// As [`Store::len`], but asks `goes_on` at each leaf that it visits, since leaves on SSD take long. `None` once
    /// the answer is no.
    pub fn len_while(&self, goes_on: impl Fn() -> bool) -> Option<u64> {
        let count = self.core.tree.ranges().count_keys_while(&goes_on);
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
        self.core.maintenance().clear()?;
        self.written(Ok(()))
    }
}
