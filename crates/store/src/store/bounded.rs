//! Calls whose cost does not grow with the value or with the store: who serves many from one thread asks these.

use ziptier_tree::batch::{Batch, Need, Transferred};
use ziptier_tree::host::ReadHost;
use ziptier_tree::index::GROUP_KEYS;
use ziptier_tree::open_value;
use ziptier_tree::record::Meta;
use ziptier_tree::seen::Wanted;
use ziptier_tree::update::Update;

use super::{OpenValue, Store};
use crate::Error;

/// Leaves that [`Store::len_if_quick`] looks at, at most.
const QUICK_LEAVES_MAX: usize = 256;

/// A value that is to be changed.
#[derive(Debug)]
pub enum OldValue<'a> {
    /// All of its bytes: those of a value that lies in its leaf.
    Inline(&'a [u8]),
    /// A large value. Nothing of it has been read.
    Large(OpenValue),
}

/// # For servers
///
/// Calls whose cost does not grow with the value or with the store, and that need not wait for other writers: for a
/// thread that serves many clients.
impl Store {
    /// Announces writes to `keys`. The store prefetches the memory that these writes read for all keys at once, so that
    /// the waits for memory overlap. Nothing else happens.
    pub fn prepare_writes<K: AsRef<[u8]>>(&self, keys: &[K]) {
        let guard = self.core.tree.pin();
        keys.chunks(GROUP_KEYS).for_each(|group| self.core.tree.approach_writes(group, &guard));
    }

    /// The same for reads.
    pub fn prepare_reads<K: AsRef<[u8]>>(&self, keys: &[K]) {
        let guard = self.core.tree.pin();
        keys.chunks(GROUP_KEYS).for_each(|group| drop(self.core.tree.approach(group, &guard)));
    }

    /// As [`Store::update`], but a large value is opened and not read, so that `decide` may see first whether there is
    /// room for it. The rules for `decide` are those of [`Store::update`].
    ///
    /// # Errors
    /// As [`Store::update`].
    pub fn update_opened(
        &self,
        key: &[u8],
        mut decide: impl FnMut(Option<(OldValue<'_>, Meta)>) -> Update,
    ) -> Result<Update, Error> {
        self.modified(self.core.writes().modify_seen(key, Wanted::Opened, |seen, large| {
            decide(seen.map(|(bytes, meta)| match large {
                Some(large) => (
                    OldValue::Large(OpenValue(open_value::OpenValue::large(
                        &self.core.tree,
                        large,
                        meta,
                        key.len(),
                    ))),
                    meta,
                ),
                None => (OldValue::Inline(bytes), meta),
            }))
        }))
    }

    /// As [`Store::write`], but never waits for others who write to the same leaves and take long, nor for more than
    /// some reads of the SSD: `None` says that the write would, and that nothing was changed.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn write_if_free(&self, batch: &Batch) -> Result<Option<bool>, Error> {
        self.written(self.core.writes().write_waiting(batch, false))
    }

    /// Whether a write of `key` would wait for a long batch, which has its leaf just now, or for an update of the key
    /// that was decided in vain too often.
    pub fn holds_up(&self, key: &[u8]) -> bool {
        self.core.tree.is_held_up(key)
    }

    /// Whether a write that needs room may wait for a checkpoint just now, because DRAM and the SSD are nearly full. A
    /// thread that serves others, too, leaves such a write to another thread. Deletes never wait for room.
    pub fn may_wait_for_room(&self) -> bool {
        self.core.reclaimer().may_wait_for_room()
    }

    /// As [`Store::copy`] if `keep_source`, and as [`Store::rename`] otherwise, but asks `grant` before it waits for
    /// others who write to the same leaves, and before it reads a large value for the log. `grant` runs under no lock,
    /// and may be asked more than once. It must not write to this store: other writers of `source` may be waiting for
    /// this call. Where it says no, the outcome is [`Transferred::NotGranted`].
    ///
    /// # Errors
    /// As [`Store::rename`].
    pub fn transfer(
        &self,
        source: &[u8],
        target: &[u8],
        keep_source: bool,
        replace: bool,
        mut grant: impl FnMut(Need) -> bool,
    ) -> Result<Transferred, Error> {
        self.written(self.core.writes().transfer_granted(source, target, keep_source, replace, &mut grant))
    }

    /// Large values that are open, each as often as it is.
    pub fn open_values(&self) -> u64 {
        self.core.tree.gauges.open.get()
    }

    /// Keys in the store as [`Store::len`] counts them, if no more than some hundred leaves must be looked at for that
    /// and none on SSD. Otherwise the error is the number of settled records, which is near it.
    pub fn len_if_quick(&self) -> Result<u64, u64> {
        let count = self
            .core
            .tree
            .ranges()
            .count_keys_of(QUICK_LEAVES_MAX)
            .ok_or(self.core.tree.gauges.records.get());
        let _no_key_is_told = self.core.wait_for_seen();
        count
    }
}
