//! Reads and writes of keys that lie on SSD.

use std::sync::atomic::Ordering::Relaxed;

use ziptier_media::testing::RecordingDisk;
use ziptier_tree::batch::{Batch, Condition, Transferred};
use ziptier_tree::below::Below;
use ziptier_tree::leaf::{Leaf, LeafState};
use ziptier_tree::multi_get::Values;
use ziptier_tree::placement::Side;
use ziptier_tree::range::Keys;
use ziptier_tree::read::{IMAGES_MAX, IMAGES_READ};
use ziptier_tree::record::PutMeta;
use ziptier_tree::seen::Wanted;
use ziptier_tree::update::Update;

use super::*;
use crate::core::Core;

/// A store with an SSD on `disk`, small landings and no background thread.
pub(crate) fn core_over(disk: impl Disk + 'static) -> Core {
    use ziptier_tree::codec_options::CodecChoice;

    use crate::options::Options;
    let options =
        Options { codec: CodecChoice::None, background_threads: 0, landing_bytes: 256, ..Options::default() };
    let gauges = Arc::new(Gauges::new(None));
    let ssd = SsdOptions { path: Some("/ssd".into()), limit_bytes: 16 << 20 };
    let cold = Cold::open(Arc::new(disk), &ssd, &gauges, |_, _| Ok(())).expect("the folder is empty");
    Core::with_places(&options, gauges, None, Some(cold))
}

/// A store with 20 records on SSD, of a byte and its thousand copies each: its first leaf, the next one, and the key
/// where that one begins.
pub(crate) fn with_cold_neighbours() -> (Core, [Arc<Leaf>; 2], Arc<[u8]>) {
    let core = core_over(ziptier_media::testing::RecordingDisk::new());
    for n in 0..20u8 {
        core.put(&[n], &[n; 1000], ziptier_tree::record::PutMeta::default()).expect("no limit is set");
    }
    core.settle();
    assert!(core.moves().send_some_to_ssd(|| true).expect("there is room") > 1);
    let (left, high) = core.tree.share_at(&[]);
    let high = high.expect("there are several leaves");
    let (right, _) = core.tree.share_at(&high);
    (core, [left, right], high)
}

/// Calls for a decision after which the test gives up.
const CALLS_MAX: u32 = 20;

/// The log gave it in time. A start comes later, and finds the record on SSD, where the former expiry is over.
#[test]
fn a_recovery_gives_a_record_on_ssd_another_expiry_after_the_former_one() {
    let core = core_over(RecordingDisk::new());
    core.tree.recovering.store(true, Relaxed);
    let meta = PutMeta { expires_at_ms: Some(1), flags: 7 };
    core.put(b"key", b"value", meta).expect("no limit is set");
    assert_eq!(core.moves().send_some_to_ssd(|| true), Ok(1));
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
    assert_eq!(core.moves().send_some_to_ssd(|| true), Ok(1));
    core.tree.recovering.store(false, Relaxed);
    let (leaf, _) = core.tree.share_at(b"");
    (core, leaf)
}

/// The log has a later delete of the key only then.
#[test]
fn an_expired_record_that_leaves_its_image_is_noted() {
    let ends: [fn(&Core, &Leaf); 3] = [
        |core: &Core, _: &Leaf| assert_eq!(core.writes().bring_up(b"brief"), Ok(())),
        |core: &Core, leaf: &Leaf| assert!(core.moves().promote_from_ssd(leaf)),
        |core: &Core, leaf: &Leaf| {
            core.put(b"other", b"value", PutMeta::default()).expect("no limit is set");
            assert!(core.moves().write_to_ssd(leaf, Pick::All, Side::Dram).expect("there is room").any());
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
    assert!(core.moves().send_some_to_ssd(|| true).expect("there is room") > 2);
    let batch =
        (0..100_u8).fold(Batch::new(), |batch, n| batch.put(&[n], b"new").require(&[n], Condition::Absent));
    assert_eq!(core.write(&batch), Ok(false));
    assert!(core.tree.gauges.landing.held() < 5_000, "{} bytes of landings", core.tree.gauges.landing.held());
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
    assert!(core.moves().send_some_to_ssd(|| true).expect("there is room") > 2);
    core.tree.reclaim();
    let batch = keys().fold(Batch::new(), |batch, key| batch.require(&key, Condition::Exists));
    let batch = batch.put(b"new", b"value");
    // A tenth of the records has room.
    core.set_memory_limit(Some(core.tree.gauges.held() - core.tree.gauges.retired.held() + (40 << 10)));
    let refused = core.write(&batch).map_err(|error| error.kind());
    assert_eq!(refused, Err(crate::ErrorKind::NoRoom));
    assert_eq!(core.tree.ranges().count_keys(), 400);
    core.set_memory_limit(None);
    assert_eq!(core.write(&batch), Ok(true));
    assert_eq!(core.tree.ranges().count_keys(), 401);
}

/// A worker of the server read an image for each key of an MSETNX, while its other clients waited.
#[test]
fn a_batch_that_may_not_wait_reads_little_from_ssd() {
    let core = core_over(RecordingDisk::new());
    core.put(b"key", b"value", PutMeta::default()).expect("no limit is set");
    assert_eq!(core.moves().send_some_to_ssd(|| true), Ok(1));
    let batch = |from: u8, to: u8| {
        (from..to).fold(Batch::new(), |batch, n| batch.put(&[n], b"new").require(&[n], Condition::Absent))
    };
    assert_eq!(core.writes().write_waiting(&batch(0, 10), false), Ok(Some(true)));
    assert_eq!(core.writes().write_waiting(&batch(10, 100), false), Ok(None));
    assert_eq!(core.tree.ranges().count_keys(), 11);
    assert_eq!(core.writes().write_waiting(&batch(10, 100), true), Ok(Some(true)));
    assert_eq!(core.tree.ranges().count_keys(), 101);
}

/// Puts a list below the leaf of all keys whose first image cannot be found.
fn lose_image(core: &Core, leaf: &Leaf) -> Arc<Below> {
    let guard = core.tree.pin();
    let state = leaf.state(&guard);
    let own = state.below.as_ref().expect("it is cold");
    let mut parts = own.parts(&leaf.low());
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
    assert_eq!(core.moves().send_some_to_ssd(|| true), Ok(1));
    lose_image(&core, &core.tree.share_at(b"").0);
    core.put(b"source", b"new", PutMeta::default()).expect("no limit is set");
    let kept = core.writes().transfer(b"source", b"target", true, false);
    assert!(matches!(kept, Err(ziptier_tree::Error::Unread { .. })), "{kept:?}");
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
    let images = core.moves().send_some_to_ssd(|| true).expect("there is room");
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
    assert_eq!(core.moves().send_some_to_ssd(|| true), Ok(1));
    let lost = lose_image(&core, &core.tree.share_at(b"").0);
    core.put(b"key", &[7; 5000], PutMeta::default()).expect("no limit is set");
    for (len_max, read) in [(4999, None), (5000, Some(5000))] {
        let mut lengths = Vec::new();
        let looked = core.reads().find_all_below(&[b"key"], vec![(0, lost.clone())], len_max, |_, copied| {
            lengths.extend(copied.map(|(value, meta)| (value.map(<[u8]>::len), meta.len)));
        });
        assert_eq!((looked, lengths), (Ok(false), vec![(read, 5000)]));
    }
}

#[test]
fn a_walk_tells_the_keys_before_an_image_that_cannot_be_read() {
    let (core, [_, right], high) = with_cold_neighbours();
    lose_image(&core, &right);
    let keys = (0..high[0]).map(|n| vec![n]).collect();
    let before = Ok(Keys { keys, next: Some(high.to_vec()) });
    // A walk that has all keys that it wants ends there, too.
    for limit in [100, usize::from(high[0])] {
        assert_eq!(core.tree.ranges().keys_from(b"", None, limit), before, "at most {limit} keys");
    }
    let refusal = core.tree.ranges().keys_from(&high, None, 100);
    assert!(matches!(refusal, Err(ziptier_tree::Error::Unread { .. })), "{refusal:?}");
    assert_eq!(core.tree.ranges().keys_behind(b""), Some(high.to_vec()));
    let end = right.state(&core.tree.pin()).high.as_deref().map(<[u8]>::to_vec);
    assert_eq!(core.tree.ranges().keys_behind(&high), end);
}

/// The next call begins at the image. An error would name a place that lies before it.
#[test]
fn a_walk_that_meets_no_key_before_an_image_that_cannot_be_read_ends_there() {
    let (core, [_, right], high) = with_cold_neighbours();
    let deletes = (0..high[0]).fold(Batch::new(), |batch, n| batch.delete(&[n]));
    assert_eq!(core.write(&deletes), Ok(true));
    lose_image(&core, &right);
    let none = Keys { keys: Vec::new(), next: Some(high.to_vec()) };
    assert_eq!(core.tree.ranges().keys_from(b"", None, 100), Ok(none));
    let refusal = core.tree.ranges().keys_from(&high, None, 100);
    assert!(matches!(refusal, Err(ziptier_tree::Error::Unread { .. })), "{refusal:?}");
}

#[test]
fn a_walk_goes_on_behind_an_image_at_the_next_one_of_its_leaf() {
    let (core, [left, _], high) = with_cold_neighbours();
    {
        let guard = core.tree.pin();
        let _ownership = left.try_own().expect("nobody maintains it");
        assert!(core.moves().join_cold(&left, &guard));
    }
    assert_eq!(core.tree.ranges().keys_behind(b""), Some(high.to_vec()));
    let end = left.state(&core.tree.pin()).high.as_deref().map(<[u8]>::to_vec);
    assert_eq!(core.tree.ranges().keys_behind(&high), end);
}
