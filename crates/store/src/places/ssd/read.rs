//! Look-ups that go on to the SSD: the reader ends its guard, reads and checks one image, and takes the record from it.
//!
//! Not for reads that need a fixed list. The places of a list may be released while they are read, when a segment is
//! cleaned or removed. That is no damage. The leaf has another list then, and a failed read is repeated with it.

use std::sync::Arc;
use std::sync::mpsc;

use super::Below;
use super::image::{Image, decode};
use crate::Error;
use crate::core::Core;
use crate::leaf::LeafState;
use crate::read::{Copied, Looked, copy_found};
use crate::record::{Fields, Found, Kind, Lookup, Meta, PutMeta, key_hash};
use crate::tree::Tree;
use crate::write::{Expected, NewValue};

/// Images that a look-up of many keys holds at a time.
const IMAGES_MAX: usize = 64;

#[cfg(test)]
std::thread_local! {
    /// The most images that this thread has read at the same time.
    static IMAGES_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A key that memory knows nothing of.
struct KeyBelow {
    list: Arc<Below>,
    /// The image of the list that owns the key.
    image: usize,
    /// The index of the key.
    index: usize,
}

impl KeyBelow {
    /// The image among those of all lists.
    fn owner(&self) -> (*const Below, usize) {
        (Arc::as_ptr(&self.list), self.image)
    }
}

impl Tree {
    /// Reads image `index` of `below`. The caller holds no guard.
    pub(crate) fn read_image(&self, below: &Below, index: usize) -> Result<Image, String> {
        let bytes =
            below.tier().files.segments.read(below.place(index)).map_err(|error| error.to_string())?;
        self.decode_read(&bytes, below, index)
    }

    /// Reads several images at once; they come in the order in which they were asked for.
    pub(crate) fn read_images(&self, wanted: &[(Arc<Below>, usize)]) -> Vec<Result<Image, String>> {
        #[cfg(test)]
        IMAGES_READ.set(IMAGES_READ.get().max(wanted.len()));
        if let [(below, index)] = wanted {
            return vec![self.read_image(below, *index)];
        }
        let (sender, receiver) = mpsc::channel();
        for (at, (below, index)) in wanted.iter().enumerate() {
            let sender = sender.clone();
            below.tier().files.segments.read_later(below.place(*index), move |read| {
                // Nobody waits any more only if the caller panicked.
                let _ = sender.send((at, read));
            });
        }
        drop(sender);
        let unanswered = || Err("the read was not answered".to_owned());
        let mut images: Vec<_> = wanted.iter().map(|_| unanswered()).collect();
        for (at, read) in receiver {
            images[at] = match read {
                Ok(bytes) => self.decode_read(&bytes, &wanted[at].0, wanted[at].1),
                Err(error) => Err(error.to_string()),
            };
        }
        images
    }

    /// Image `index` of `below`, whose `bytes` were read for the calling thread.
    fn decode_read(&self, bytes: &[u8], below: &Below, index: usize) -> Result<Image, String> {
        self.stats.own().image_bytes.add(bytes.len() as u64);
        decode(bytes, below, index)
    }

    /// Whether memory says nothing of `key`, and `below` is what lies below.
    pub(crate) fn lies_below(&self, state: &LeafState, key: &[u8], hash: u64, below: &Arc<Below>) -> bool {
        state.below.as_ref().is_some_and(|now| Arc::ptr_eq(now, below))
            && state.is_only_below(key, hash, &self.commits)
    }
}

impl Core {
    /// Goes on below, and in memory again if the leaf was changed meanwhile.
    #[cold]
    pub(crate) fn find_on_ssd<R>(
        &self,
        key: &[u8],
        mut below: Arc<Below>,
        mut take: impl FnMut(Found<'_>) -> R,
    ) -> Result<Option<R>, Error> {
        loop {
            self.tree.stats.own().ssd_reads.raise();
            let failed = match self.tree.read_image(&below, below.image_of(key)) {
                Ok(image) => {
                    let found = image.find(key).filter(|found| !self.tree.is_over(found.expires_at_ms));
                    let taken = found.map(take);
                    self.copy_up_again(key, found, &below);
                    return Ok(taken);
                }
                Err(reason) => reason,
            };
            let guard = self.tree.pin();
            match self.tree.look_up(key, &guard, &self.tree.commits, &mut take) {
                Looked::Found(taken) => return Ok(Some(taken)),
                Looked::Absent => return Ok(None),
                Looked::Below(now) if Arc::ptr_eq(&now, &below) => return Err(self.tree.unread(key, failed)),
                Looked::Below(now) => below = now,
            }
        }
    }

    /// Looks up keys that memory knows nothing of, each given by its index, and hands on their values in any order. Of
    /// a large value above `len_max` it hands on the meta alone. Each image is read once, and several at the same time.
    /// Returns whether all of them lay there; keys of other images were looked up once more.
    pub(crate) fn find_all_on_ssd<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        below: Vec<(usize, Arc<Below>)>,
        len_max: u64,
        mut each: impl FnMut(usize, Option<(Option<&[u8]>, Meta)>),
    ) -> Result<bool, Error> {
        let keys_below = below.into_iter().map(|(index, list)| {
            let image = list.image_of(keys[index].as_ref());
            KeyBelow { list, image, index }
        });
        let mut keys_below: Vec<KeyBelow> = keys_below.collect();
        // In key order, keys of one image stand beside each other, and images are read in the order of their keys.
        keys_below.sort_unstable_by(|a, b| keys[a.index].as_ref().cmp(keys[b.index].as_ref()));
        let by_image: Vec<&[KeyBelow]> = keys_below.chunk_by(|a, b| a.owner() == b.owner()).collect();
        let (mut lay_there, mut bytes) = (true, Vec::new());
        for group in by_image.chunks(IMAGES_MAX) {
            let wanted: Vec<_> = group.iter().map(|keys| (keys[0].list.clone(), keys[0].image)).collect();
            self.tree.stats.own().ssd_reads.add(wanted.len() as u64);
            let images = self.tree.read_images(&wanted);
            lay_there &= images.iter().all(Result::is_ok);
            for (of_image, image) in group.iter().zip(&images) {
                for KeyBelow { list, index, .. } in *of_image {
                    bytes.clear();
                    let (key, image) = (keys[*index].as_ref(), image.as_ref().ok());
                    let copied = self.copy_below(key, list, image, len_max, &mut bytes)?;
                    let value = |is_copied: bool| is_copied.then_some(bytes.as_slice());
                    each(*index, copied.map(|(is_copied, meta)| (value(is_copied), meta)));
                }
            }
        }
        Ok(lay_there)
    }

    /// Copies the value of `key` from its image, or from elsewhere if that could not be read. Returns whether it was
    /// copied, and its meta.
    fn copy_below(
        &self,
        key: &[u8],
        list: &Arc<Below>,
        image: Option<&Image>,
        len_max: u64,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<(bool, Meta)>, Error> {
        let copied = match image {
            Some(image) => {
                let found = image.find(key).filter(|found| !self.tree.is_over(found.expires_at_ms));
                let copied = found.map(|found| copy_found(found, bytes));
                self.copy_up_again(key, found, list);
                copied
            }
            None => self.find_value(key, |found| copy_found(found, bytes))?,
        };
        match copied {
            None => Ok(None),
            Some(Copied::Inline(meta)) => Ok(Some((true, Meta { len: bytes.len() as u64, ..meta }))),
            Some(Copied::Large(_, meta)) if meta.len > len_max => Ok(Some((false, meta))),
            Some(Copied::Large(large, meta)) => {
                self.tree.read_large(key, &large, bytes).map(|()| Some((true, meta)))
            }
            Some(Copied::Damaged(reason)) => Err(self.tree.damaged(key, reason)),
        }
    }

    /// Makes memory know what `key` holds, if that lies below: its record, or that there is none, is written above.
    /// The caller holds no guard.
    pub(crate) fn bring_up(&self, key: &[u8]) -> Result<(), Error> {
        let mut failed: Option<(Arc<Below>, String)> = None;
        loop {
            let below = {
                let guard = self.tree.pin();
                let (_, state) = self.tree.locate(key, &guard);
                let Some(below) = &state.below else { return Ok(()) };
                let found = state.find(key, key_hash(key), &self.tree.commits).0;
                match found {
                    Lookup::Absent => below.clone(),
                    _ => return Ok(()),
                }
            };
            if let Some((before, reason)) = failed
                && Arc::ptr_eq(&before, &below)
            {
                return Err(self.tree.unread(key, reason));
            }
            match self.tree.read_image(&below, below.image_of(key)) {
                Ok(image) => {
                    let record = image.find(key);
                    let found = record.filter(|found| !self.tree.is_over(found.expires_at_ms));
                    if record.is_some() && found.is_none() {
                        self.tree.note_dropped();
                    }
                    if self.copy_up(key, found, &below)? {
                        return Ok(());
                    }
                    failed = None;
                }
                Err(reason) => failed = Some((below, reason)),
            }
        }
    }

    /// Copies a record up that was read from SSD a moment ago, too.
    fn copy_up_again(&self, key: &[u8], found: Option<Found<'_>>, below: &Arc<Below>) {
        let Some(cold) = &self.cold else { return };
        if found.is_some() && cold.recent.is_again(key_hash(key)) && self.room().may_copy_up() {
            // A write that came meanwhile is newer, and a damaged record stays where it is.
            let copied = self.copy_up(key, found, below);
            self.tree.stats.copied_up.add(u64::from(copied == Ok(true)));
        }
    }

    /// Writes what `below` holds of `key` above it; `false` when the leaf is another one by now.
    fn copy_up(&self, key: &[u8], found: Option<Found<'_>>, below: &Arc<Below>) -> Result<bool, Error> {
        let expected = Expected::Below(below);
        let Some(found) = found else {
            return self.writes().append(
                key,
                Kind::Tombstone,
                Fields::default(),
                &mut NewValue::None,
                expected,
            );
        };
        let mut bytes = Vec::new();
        let meta = match copy_found(found, &mut bytes) {
            Copied::Inline(meta) => PutMeta { expires_at_ms: meta.expires_at_ms, flags: meta.flags },
            Copied::Large(..) => unreachable!("references to large values stay in memory"),
            Copied::Damaged(reason) => return Err(self.tree.damaged(key, reason)),
        };
        let mut value = NewValue::Inline(&bytes);
        self.writes().append(key, Kind::Raw, Fields::of(meta), &mut value, expected)
    }
}

// No unsafe code comes this way, and there is an SSD: not for Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use ziptier_media::placement::Side;
    use ziptier_media::testing::RecordingDisk;

    use super::*;
    use crate::batch::{Batch, Condition, Transferred};
    use crate::leaf::Leaf;
    use crate::multi_get::Values;
    use crate::places::Pick;
    use crate::places::ssd::core_over;
    use crate::update::{Update, Wanted};

    /// Calls for a decision after which the test gives up.
    const CALLS_MAX: u32 = 20;

    /// The log gave it in time. A start comes later, and finds the record on SSD, where the former expiry is over.
    #[test]
    fn a_recovery_gives_a_record_on_ssd_another_expiry_after_the_former_one() {
        let core = core_over(RecordingDisk::new());
        core.tree.recovering.store(true, Relaxed);
        let meta = PutMeta { expires_at_ms: Some(1), flags: 7 };
        core.put(b"key", b"value", meta).expect("no limit is set");
        assert_eq!(core.send_some_to_ssd(|| true), Ok(1));
        let mut calls = 0;
        let updated = core.modify(b"key", Wanted::Meta, |seen| {
            calls += 1;
            assert!(seen.is_some() && calls < CALLS_MAX, "{seen:?} in call {calls}");
            Update::Expire(None)
        });
        assert_eq!(updated, Ok(Update::Expire(None)));
        core.tree.recovering.store(false, Relaxed);
        let mut value = Vec::new();
        let meta = core.read(b"key", &mut value).expect("it is whole").expect("it is there");
        assert_eq!((value.as_slice(), meta.expires_at_ms, meta.flags), (&b"value"[..], None, 7));
    }

    /// A store with a record on SSD whose expiry is over, and the leaf of the record.
    fn with_expired_record() -> (Core, Arc<Leaf>) {
        let core = core_over(RecordingDisk::new());
        // The log may put the expiry off yet, so that the record goes to SSD.
        core.tree.recovering.store(true, Relaxed);
        let meta = PutMeta { expires_at_ms: Some(1), flags: 0 };
        core.put(b"brief", b"value", meta).expect("no limit is set");
        assert_eq!(core.send_some_to_ssd(|| true), Ok(1));
        core.tree.recovering.store(false, Relaxed);
        let (leaf, _) = core.share_at(b"");
        (core, leaf)
    }

    /// The log has a later delete of the key only then.
    #[test]
    fn an_expired_record_that_leaves_its_image_is_noted() {
        let ends: [fn(&Core, &Leaf); 3] = [
            |core: &Core, _: &Leaf| assert_eq!(core.bring_up(b"brief"), Ok(())),
            |core: &Core, leaf: &Leaf| assert!(core.promote_from_ssd(leaf)),
            |core: &Core, leaf: &Leaf| {
                core.put(b"other", b"value", PutMeta::default()).expect("no limit is set");
                assert!(core.write_to_ssd(leaf, Pick::All, Side::Dram).expect("there is room").any());
            },
        ];
        for (number, end) in ends.into_iter().enumerate() {
            let (core, leaf) = with_expired_record();
            assert!(!core.tree.has_dropped());
            end(&core, &leaf);
            assert!(core.tree.has_dropped(), "end {number}");
        }
    }

    /// All records were copied to memory before any condition was looked at. Where memory had no room for all of them,
    /// those that were copied first went down again, and the batch never ended.
    #[test]
    fn a_batch_reads_from_ssd_until_a_condition_does_not_hold() {
        let core = core_over(RecordingDisk::new());
        for n in 0..100_u8 {
            core.put(&[n], &[n; 1000], PutMeta::default()).expect("no limit is set");
        }
        core.settle();
        assert!(core.send_some_to_ssd(|| true).expect("there is room") > 2);
        let batch = (0..100_u8)
            .fold(Batch::new(), |batch, n| batch.put(&[n], b"new").require(&[n], Condition::Absent));
        assert_eq!(core.write(&batch), Ok(false));
        assert!(
            core.tree.gauges.landing.held() < 5_000,
            "{} bytes of landings",
            core.tree.gauges.landing.held()
        );
        // All are looked at if all hold.
        let holds = |n: u8| Batch::new().require(&[n], Condition::Exists).require(&[n, 0], Condition::Absent);
        assert!((0..100).all(|n| core.write(&holds(n)) == Ok(true)));
    }

    /// The first records went down again while the last ones came up, and the batch never ended.
    #[test]
    fn a_batch_whose_conditions_hold_on_more_than_memory_has_room_for_is_refused() {
        let core = core_over(RecordingDisk::new());
        let keys = || (0..400_u32).map(u32::to_be_bytes);
        for key in keys() {
            core.put(&key, &key.repeat(250), PutMeta::default()).expect("no limit is set");
        }
        core.settle();
        assert!(core.send_some_to_ssd(|| true).expect("there is room") > 2);
        core.tree.reclaim();
        let batch = keys().fold(Batch::new(), |batch, key| batch.require(&key, Condition::Exists));
        let batch = batch.put(b"new", b"value");
        // A tenth of the records has room.
        core.set_memory_limit(Some(core.tree.gauges.held() - core.tree.gauges.retired.held() + (40 << 10)));
        let refused = core.write(&batch).map_err(|error| error.kind());
        assert_eq!(refused, Err(crate::ErrorKind::NoRoom));
        assert_eq!(core.tree.count_keys(), 400);
        core.set_memory_limit(None);
        assert_eq!(core.write(&batch), Ok(true));
        assert_eq!(core.tree.count_keys(), 401);
    }

    /// A worker of the server read an image for each key of an MSETNX, while its other clients waited.
    #[test]
    fn a_batch_that_may_not_wait_reads_little_from_ssd() {
        let core = core_over(RecordingDisk::new());
        core.put(b"key", b"value", PutMeta::default()).expect("no limit is set");
        assert_eq!(core.send_some_to_ssd(|| true), Ok(1));
        let batch = |from: u8, to: u8| {
            (from..to).fold(Batch::new(), |batch, n| batch.put(&[n], b"new").require(&[n], Condition::Absent))
        };
        assert_eq!(core.writes().write_waiting(&batch(0, 10), false), Ok(Some(true)));
        assert_eq!(core.writes().write_waiting(&batch(10, 100), false), Ok(None));
        assert_eq!(core.tree.count_keys(), 11);
        assert_eq!(core.writes().write_waiting(&batch(10, 100), true), Ok(Some(true)));
        assert_eq!(core.tree.count_keys(), 101);
    }

    /// Puts a list below the leaf of all keys whose first image cannot be found.
    fn lose_image(core: &Core) -> Arc<Below> {
        let (leaf, _) = core.share_at(b"");
        let guard = core.tree.pin();
        let state = leaf.state(&guard);
        let own = state.below.as_ref().expect("it is cold");
        let mut parts = own.parts(b"");
        parts[0].place.segment += 1000;
        let lost = own.elsewhere(&parts);
        lost.hand_on();
        assert!(leaf.publish(state, LeafState { below: Some(lost.clone()), ..state.clone() }, &guard));
        lost
    }

    /// A put would have replaced it, too. Only a caller who asks whether there is a key needs the image.
    #[test]
    fn a_rename_replaces_a_key_whose_image_cannot_be_read() {
        let core = core_over(RecordingDisk::new());
        for key in [b"target", b"others"] {
            core.put(key, b"old", PutMeta::default()).expect("no limit is set");
        }
        assert_eq!(core.send_some_to_ssd(|| true), Ok(1));
        lose_image(&core);
        core.put(b"source", b"new", PutMeta::default()).expect("no limit is set");
        let kept = core.writes().transfer(b"source", b"target", true, false);
        assert!(matches!(kept, Err(Error::Unread { .. })), "{kept:?}");
        assert_eq!(core.writes().transfer(b"source", b"target", true, true), Ok(Transferred::Done));
        let mut value = Vec::new();
        assert!(core.read(b"target", &mut value).is_ok_and(|meta| meta.is_some()) && value == b"new");
        let deleted = core.modify(b"others", Wanted::Presence, |_| Update::Delete);
        assert!(matches!(deleted, Err(Error::Unread { .. })), "{deleted:?}");
        assert_eq!(core.write(&Batch::new().delete(b"others")), Ok(true));
        assert_eq!(core.read(b"others", &mut value), Ok(None));
    }

    #[test]
    fn a_look_up_of_many_keys_holds_a_bounded_number_of_images() {
        let core = core_over(RecordingDisk::new());
        let count = 4_000_u32;
        for n in 0..count {
            core.put(&n.to_be_bytes(), &n.to_be_bytes().repeat(250), PutMeta::default())
                .expect("no limit is set");
        }
        core.settle();
        let images = core.send_some_to_ssd(|| true).expect("there is room");
        assert!(images > 2 * IMAGES_MAX, "{images}");
        // Keys of one image are far from each other.
        let keys: Vec<[u8; 4]> = (0..count).map(|n| (n * 7 % count).to_be_bytes()).collect();
        let (mut values, before) = (Values::default(), core.tree.stats.stats().ssd_reads);
        IMAGES_READ.set(0);
        core.multi_get(&keys, u64::MAX, &mut values).expect("they are whole");
        assert!(IMAGES_READ.get() <= IMAGES_MAX, "{}", IMAGES_READ.get());
        assert_eq!(core.tree.stats.stats().ssd_reads - before, images as u64, "each image is read once");
        assert!((0..).zip(&keys).all(|(index, key)| values.get(index) == Some(key.repeat(250).as_slice())));
    }

    /// A long value took the place of a record while its image was read, and only short ones were asked for.
    #[test]
    fn a_value_that_is_longer_than_was_asked_for_is_not_read() {
        let core = core_over(RecordingDisk::new());
        core.put(b"key", b"below", PutMeta::default()).expect("no limit is set");
        assert_eq!(core.send_some_to_ssd(|| true), Ok(1));
        let lost = lose_image(&core);
        core.put(b"key", &[7; 5000], PutMeta::default()).expect("no limit is set");
        for (len_max, read) in [(4999, None), (5000, Some(5000))] {
            let mut lengths = Vec::new();
            let looked = core.find_all_on_ssd(&[b"key"], vec![(0, lost.clone())], len_max, |_, copied| {
                lengths.extend(copied.map(|(value, meta)| (value.map(<[u8]>::len), meta.len)));
            });
            assert_eq!((looked, lengths), (Ok(false), vec![(read, 5000)]));
        }
    }
}
