//! Does again one operation of the log.
//!
//! Not for many puts and deletes of plain values, which `replay` brings to their leaves together.

use std::sync::atomic::Ordering;

use ziptier_tree::Error as TreeError;
use ziptier_tree::operation::Operation;
use ziptier_tree::range::{Keys, known};
use ziptier_tree::read::LOST;
use ziptier_tree::record::{Kind, PutMeta};
use ziptier_tree::seen::Wanted;
use ziptier_tree::update::Update;

use crate::Error;
use crate::core::Core;

/// Keys of a range that are deleted at a time.
const KEYS_PER_STEP: usize = 256;

/// Does again what the log says.
pub(super) struct Redo<'a> {
    pub(super) core: &'a Core,
}

impl Redo<'_> {
    /// Does what was logged, whatever is there now.
    pub(super) fn one(&self, operation: &Operation<'_>) -> Result<(), Error> {
        match *operation {
            Operation::Put { key, value, expires_at_ms, flags } => {
                match self.core.writes().put(key, value, PutMeta { expires_at_ms, flags }) {
                    // The value before must not stay in its place.
                    Err(TreeError::MemoryLimit(_)) if self.core.tree.evicts() => {
                        self.core.writes().append_bare(key, Kind::Tombstone, None)?;
                    }
                    outcome => outcome?,
                }
            }
            Operation::Delete { key } => self.core.writes().append_bare(key, Kind::Tombstone, None)?,
            // Above what lies on SSD a value is written again with its expiry, so it must be there. Any other one may
            // have been lost since.
            Operation::Expire { key, expires_at_ms } => {
                match self.core.writes().modify(key, Wanted::Presence, |_| Update::Expire(expires_at_ms)) {
                    // A lost value takes no new expiry. So the value was lost later, and its image has this expiry.
                    Err(TreeError::Damaged { reason, .. }) if reason == LOST => {}
                    redone => drop(redone?),
                }
            }
            Operation::DeleteRange { low, high } => {
                self.core.deletes_range.store(true, Ordering::Release);
                let deleted = self.delete_range(low, high);
                self.core.deletes_range.store(false, Ordering::Release);
                deleted?;
            }
        }
        Ok(())
    }

    /// Leaves and images that lie between the bounds go unread, as they did when this was logged: it does not matter
    /// whether they are whole. Only an image with a bound inside it is read.
    ///
    /// # Errors
    /// Such an image cannot be read. Its keys stay, and everything else in the range goes.
    fn delete_range(&self, low: &[u8], high: Option<&[u8]>) -> Result<(), Error> {
        [Some(low), high].into_iter().flatten().for_each(|key| self.core.moves().begin_leaf_at_image_of(key));
        if let Some(behind) = self.image_behind(low) {
            self.core.moves().begin_leaf_at_image_of(&behind);
        }
        let mut cursor = low.to_vec();
        let mut outcome = Ok(());
        loop {
            let (next, is_whole) = self.core.tree.with_leaf_of(&cursor, |leaf, guard| {
                let next = leaf.state(guard).high.clone();
                let is_whole =
                    *leaf.low() >= *low && next.as_deref().into_iter().chain(high).min() == next.as_deref();
                if is_whole {
                    self.core.writes().empty(leaf, guard)?;
                    // This thread waits for others next, who wait until what it retired is free.
                    guard.flush();
                }
                Ok::<_, Error>((next, is_whole))
            })?;
            if !is_whole {
                let end = next.as_deref().into_iter().chain(high).min();
                outcome = outcome.and(self.delete_keys(&cursor, end));
            }
            match next {
                Some(next) if high.is_none_or(|high| *next < *high) => cursor = next.to_vec(),
                _ => return outcome,
            }
        }
    }

    /// The lowest key of the image behind that of `key`, if the leaf is cold, begins below `key`, and has one more.
    fn image_behind(&self, key: &[u8]) -> Option<Vec<u8>> {
        let guard = self.core.tree.pin();
        let (leaf, state) = self.core.tree.locate(key, &guard);
        let below = state.below.as_ref().filter(|_| *leaf.low() < *key)?;
        below.low(below.image_of(key) + 1)
    }

    /// Deletes keys of one leaf: first those that memory knows, which need no image, and then the others.
    fn delete_keys(&self, low: &[u8], high: Option<&[u8]>) -> Result<(), Error> {
        let delete = |key: &Vec<u8>| self.core.writes().append_bare(key, Kind::Tombstone, None);
        let in_memory = {
            let guard = self.core.tree.pin();
            known(self.core.tree.locate(low, &guard).1, &self.core.tree)
        };
        let is_within =
            |key: &&Vec<u8>| key.as_slice() >= low && high.is_none_or(|high| key.as_slice() < high);
        in_memory.keys().filter(is_within).try_for_each(delete)?;
        let mut from = Some(low.to_vec());
        while let Some(low) = from {
            let Keys { keys, next } = self.core.tree.ranges().keys_from(&low, high, KEYS_PER_STEP)?;
            keys.iter().try_for_each(delete)?;
            from = next;
        }
        Ok(())
    }
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use std::sync::{Arc, OnceLock, Weak};

    use ziptier_media::testing::{FailingDisk, RecordingDisk};
    use ziptier_tree::body::{Builder, Entry, EntryKey, fingerprint};
    use ziptier_tree::codec_options::CodecChoice;
    use ziptier_tree::leaf::{LeafState, RightSibling};
    use ziptier_tree::record::{Fields, Found, Lookup, Payload, key_hash};

    use super::*;
    use crate::durable::DurableOptions;
    use crate::options::Options;
    use crate::places::ssd::SsdOptions;
    use crate::{DiskHandle, Store};
    use std::path::Path;

    /// Joins the first leaf with its neighbour, if both are on SSD; whether it did.
    fn join_first(core: &Core) -> bool {
        let guard = core.tree.pin();
        let leaf = core.tree.locate(b"", &guard).0;
        leaf.try_own().is_some_and(|_ownership| core.moves().join_cold(leaf, &guard))
    }

    /// The range begins within an image, and the next image, all of which goes, is damaged.
    #[test]
    fn leaves_that_a_deleted_range_has_cut_are_not_joined_before_it_is_gone() {
        let recording = RecordingDisk::new();
        let reads: Arc<OnceLock<Weak<Core>>> = Arc::default();
        let joins = {
            let reads = reads.clone();
            move |_: &Path| {
                if let Some(core) = reads.get().and_then(Weak::upgrade) {
                    let _ = join_first(&core);
                }
                false
            }
        };
        let disk = FailingDisk::with_bad_bytes(Arc::new(recording.clone()), joins, 0..u64::MAX);
        let mut durable = DurableOptions::new("/data");
        durable.disk = DiskHandle(Arc::new(disk));
        durable.log.segment_bytes = 1 << 20;
        let ssd = Some(SsdOptions { path: None, limit_bytes: 16 << 20 });
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let store = Store::open(Options { ssd, durable: Some(durable), ..options }).expect("it is new");
        let core = &store.core;
        for n in 0..40u8 {
            core.put(&[n], &[n; 1000], PutMeta::default()).expect("no limit is set");
        }
        core.settle();
        assert!(core.moves().send_some_to_ssd(|| true).expect("there is room") > 2);
        let second = core.tree.share_at(b"").1.expect("there are several leaves");
        assert!(join_first(core));
        store.checkpoint().expect("the disk works");
        let value = [second[0]; 1000];
        let mut segments = recording.paths().into_iter().filter(|path| path.starts_with("/data/segments"));
        let (path, at) = segments
            .find_map(|path| {
                let bytes = recording.contents(&path)?;
                let at = bytes.windows(value.len()).position(|found| found == value)?;
                Some((path, at))
            })
            .expect("a segment has the value");
        let mut bytes = recording.contents(&path).expect("it is there");
        bytes[at] ^= 1;
        recording.put(&path, bytes);
        core.tree.recovering.store(true, Ordering::Relaxed);
        reads.set(Arc::downgrade(core)).expect("it is set once");
        assert_eq!(Redo { core }.one(&Operation::DeleteRange { low: &[1], high: None }), Ok(()));
        core.tree.recovering.store(false, Ordering::Relaxed);
        assert_eq!(core.tree.ranges().keys_from(b"", None, 40), Ok(Keys { keys: vec![vec![0]], next: None }));
    }

    /// Gives an empty store the key `key`, whose value is lost.
    fn lose_a_value(core: &Core) {
        let guard = core.tree.pin();
        let (leaf, before) = core.tree.locate(b"", &guard);
        let entry = Entry {
            key: EntryKey::whole(b"key"),
            fingerprint: fingerprint(key_hash(b"key")),
            kind: Kind::Lost,
            fields: Fields::default(),
            payload: &[],
        };
        let state = LeafState::new(Builder::default().build(&[entry], None), None, RightSibling::none());
        assert!(leaf.publish(before, state, &guard));
    }

    /// The value had its expiry before a pack lost it, and the image of its leaf came later.
    #[test]
    fn the_expiry_of_a_lost_value_is_redone() {
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let core = Core::new(&options);
        core.tree.recovering.store(true, Ordering::Relaxed);
        lose_a_value(&core);
        let expires_at_ms = Some(1 << 44);
        assert_eq!(Redo { core: &core }.one(&Operation::Expire { key: b"key", expires_at_ms }), Ok(()));
        let guard = core.tree.pin();
        let (_, state) = core.tree.locate(b"key", &guard);
        let found = match state.find(b"key", key_hash(b"key"), &core.tree.commits).0 {
            Lookup::Found(Found { payload: Payload::Lost, expires_at_ms, .. }) => expires_at_ms,
            _ => None,
        };
        assert_eq!(found, expires_at_ms);
    }

    /// As before, and then the leaf went to SSD.
    #[test]
    fn the_expiry_of_a_lost_value_on_ssd_needs_no_salvage() {
        let mut durable = DurableOptions::new("/data");
        durable.disk = DiskHandle(Arc::new(RecordingDisk::new()));
        durable.log.segment_bytes = 1 << 20;
        let ssd = Some(SsdOptions { path: None, limit_bytes: 16 << 20 });
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let store = Store::open(Options { ssd, durable: Some(durable), ..options }).expect("it is new");
        let core = &store.core;
        lose_a_value(core);
        assert_eq!(core.moves().send_some_to_ssd(|| true), Ok(1));
        core.tree.recovering.store(true, Ordering::Relaxed);
        let expiry = Operation::Expire { key: b"key", expires_at_ms: Some(1 << 44) };
        assert_eq!(Redo { core }.one(&expiry), Ok(()));
        core.tree.recovering.store(false, Ordering::Relaxed);
        assert!(store.get(b"key").is_err(), "a lost value is told");
    }

    /// A thread that replays a range waits for other threads afterwards. These waited more than a second for each of
    /// their packs.
    #[test]
    fn others_free_the_memory_of_a_range_that_was_replayed() {
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let core = Core::new(&options);
        for n in 0..1000_u32 {
            core.put(&n.to_be_bytes(), &[7; 100], PutMeta::default()).expect("no limit is set");
        }
        core.settle();
        assert_eq!(Redo { core: &core }.one(&Operation::DeleteRange { low: b"", high: None }), Ok(()));
        assert_eq!(core.tree.ranges().count_keys(), 0);
        let reclaimed = std::thread::scope(|scope| scope.spawn(|| core.tree.reclaim()).join().is_ok());
        assert_eq!((reclaimed, core.tree.gauges.retired.held()), (true, 0));
    }
}
