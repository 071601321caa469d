//! Batches step by step, at moments that schedules do not find.

use super::*;
use crate::alone::Alone;
use crate::codec_options::CodecChoice;
use crate::tree::TreeOptions;

#[test]
fn a_batch_that_no_landing_could_hold_is_refused() {
    assert_eq!(check_landed_bytes(LANDED_BYTES_MAX), Ok(()));
    let refused = check_landed_bytes(LANDED_BYTES_MAX + 1);
    assert!(matches!(refused, Err(Error::BatchTooLarge { .. })), "{refused:?}");
}

/// A long batch holds the locks of its leaves for a second: others must not wait for it.
#[test]
fn a_batch_of_other_leaves_is_written_while_a_long_one_is() {
    let alone = Alone::new(CodecChoice::None);
    alone.set_memory_limit(Some(64 << 20));
    // More than one body.
    (0..12u8).for_each(|n| alone.put(&[n], &[0; 2000], PutMeta::default()).expect("there is room"));
    let guard = alone.tree.pin();
    let _one_long = alone.tree.long_batches.lock();
    let locked = alone.tree.lock_leaf(&[0], &guard);
    assert!(!locked.leaf.state(&guard).covers(&[11]));
    let number = alone.tree.commits.begin();
    let other = Batch::new().put(&[10], b"new").put(&[11], b"new");
    assert_eq!(alone.writes().write_waiting(&other, false), Ok(Some(true)));
    let transferred = alone.writes().transfer_granted(&[10], &[11], true, true, &mut |_| false);
    assert_eq!(transferred, Ok(Transferred::Done));
    let value = |key: u8| {
        let mut value = Vec::new();
        alone.read(&[key], &mut value).expect("nothing is damaged").expect("it was put");
        value
    };
    assert_eq!((value(10), value(11)), (b"new".to_vec(), b"new".to_vec()));
    // Single writes ask before they wait.
    assert!(alone.tree.is_held_up(&[0]) && !alone.tree.is_held_up(&[11]));
    alone.writes().commit(number, vec![locked], &guard);
    assert!(!alone.tree.is_held_up(&[0]));
    // A landing that grew for a batch takes as long to pack, and single writes would wait for that, too.
    alone.put(&[0], b"small", PutMeta::default()).expect("there is room");
    let locked = alone.tree.lock_leaf(&[0], &guard);
    alone.writes().grow_landing(locked.leaf, 100_000, &guard);
    assert!(alone.tree.seal_grown(locked.leaf, &guard));
    drop(locked);
    assert!(alone.tree.is_held_up(&[0]));
}

/// The moment is too short for schedules to find it: the records of a batch are published and do not exist yet.
#[test]
fn an_update_that_is_decided_before_a_batch_is_committed_is_decided_again() {
    let alone = Alone::new(CodecChoice::None);
    alone.put(b"key", b"old", PutMeta::default()).expect("no limit is set");
    let guard = alone.tree.pin();
    let locked = alone.tree.lock_leaf(b"key", &guard);
    let number = alone.tree.commits.begin();
    let mut record = RecordBytes::default();
    let fields = Fields { batch: Some(number), ..Fields::default() };
    NewValue::Inline(b"batch").lay_out(&mut record, fields, b"key", Kind::Raw);
    alone.writes().append_growing(locked.leaf, &record, key_hash(b"key"), &guard);
    let mut uncommitted = Some(vec![locked]);
    let mut seen_values = Vec::new();
    let updated = alone.writes().modify(b"key", crate::seen::Wanted::Bytes, |seen| {
        if let Some(locked) = uncommitted.take() {
            alone.writes().commit(number, locked, &guard);
        }
        seen_values.push(seen.map(|(value, _)| value.to_vec()).unwrap_or_default());
        crate::update::Update::Put(b"update".to_vec(), PutMeta::default())
    });
    assert!(updated.is_ok());
    assert_eq!(seen_values, [&b"old"[..], b"batch"]);
}

/// Each landing had room for later writes, too, for which nothing was reserved.
#[test]
fn a_batch_of_many_leaves_keeps_to_the_limit() {
    let alone = Alone::new(CodecChoice::None);
    (0..20_000_u32).for_each(|n| {
        alone.put(&n.to_be_bytes(), &[7; 100], PutMeta::default()).expect("no limit is set");
    });
    alone.settle();
    let limit_bytes = alone.tree.gauges.held() + (96 << 10);
    alone.set_memory_limit(Some(limit_bytes));
    let batch =
        (0..20_000).step_by(50).fold(Batch::new(), |batch, n: u32| batch.put(&n.to_be_bytes(), b"new"));
    assert_eq!(alone.write(&batch), Ok(true));
    alone.tree.reclaim();
    assert!(alone.tree.gauges.held() <= limit_bytes, "{} of {limit_bytes}", alone.tree.gauges.held());
    let mut value = Vec::new();
    assert!(
        alone.read(&50_u32.to_be_bytes(), &mut value).is_ok_and(|meta| meta.is_some()) && value == b"new"
    );
}

/// The copy counted for no limit until the landing was freed.
#[test]
fn a_batch_copies_no_landing_that_memory_has_no_room_for() {
    let alone = Alone::new(CodecChoice::None);
    let open = || alone.tree.locate(&[], &alone.tree.pin()).1.open.clone().expect("a record lies there");
    let batch = Batch::new().put(b"key", b"new");
    let needed_bytes = LANDED_HEAD_BYTES + 6;
    let filled = (0..100_u32).any(|n| {
        alone.put(&n.to_be_bytes(), &[7; 20], PutMeta::default()).expect("no limit is set");
        open().capacity() - open().used_bytes() < needed_bytes
    });
    let before = open();
    assert!(filled && before.len() > 1, "it was sealed with room for the batch");
    alone.tree.reclaim();
    alone.set_memory_limit(Some(alone.tree.gauges.held() + 3 * needed_bytes as u64));
    assert_eq!(alone.write(&batch), Ok(true));
    let guard = alone.tree.pin();
    let (_, state) = alone.tree.locate(&[], &guard);
    assert!(state.sealed.as_ref().is_some_and(|sealed| Arc::ptr_eq(sealed, &before)));
    assert_eq!(state.open.as_ref().map(|open| open.len()), Some(1));
}

/// A condition lays no record down, and nothing was reserved for its leaf.
#[test]
fn the_leaf_of_a_condition_gets_no_landing() {
    let alone = Alone::new(CodecChoice::None);
    // More than one body.
    (0..12u8).for_each(|n| alone.put(&[n], &[0; 2000], PutMeta::default()).expect("no limit is set"));
    alone.settle();
    alone.tree.reclaim();
    // Too little for the landings of single writes.
    alone.set_memory_limit(Some(alone.tree.gauges.held() + 8 * LANDED_HEAD_BYTES as u64));
    let batch = Batch::new().require(&[0], Condition::Exists).put(&[11], b"new");
    assert_eq!(alone.write(&batch), Ok(true));
    let guard = alone.tree.pin();
    let [(_, asked), (_, written)] = [0, 11].map(|n| alone.tree.locate(&[n], &guard));
    assert!(asked.open.is_none() && written.open.is_some());
}

/// The allocator gives a landing more bytes than were asked for.
#[test]
fn a_landing_of_single_writes_is_not_taken_for_one_that_a_batch_grew() {
    let alone = Alone::with(&TreeOptions { landing_bytes: 300, ..Alone::options(CodecChoice::None) });
    alone.put(b"key", b"value", PutMeta::default()).expect("no limit is set");
    // While memory is short, landings are as small as they may be.
    alone.set_memory_limit(Some(alone.tree.gauges.held()));
    let guard = alone.tree.pin();
    let open = alone.tree.locate(b"key", &guard).1.open.as_ref().expect("the record lies there");
    assert_eq!((open.capacity(), alone.tree.landing_bytes_max()), (320, 300));
    assert!(!alone.tree.is_grown(open));
}

#[test]
fn a_batch_that_may_not_wait_packs_no_landing_of_another_one() {
    let alone = Alone::new(CodecChoice::None);
    let batch =
        |from: u32| (from..from + 1_000).fold(Batch::new(), |batch, n| batch.put(&n.to_be_bytes(), b"value"));
    {
        let guard = alone.tree.pin();
        let _ownership = alone.tree.locate(&[], &guard).0.try_own().expect("nobody maintains it");
        // Both landings of the leaf grow, and nobody packs them meanwhile.
        assert_eq!((alone.write(&batch(0)), alone.write(&batch(1_000))), (Ok(true), Ok(true)));
    }
    assert_eq!(alone.writes().write_waiting(&batch(2_000), false), Ok(None));
    assert_eq!(alone.writes().write_waiting(&batch(2_000), true), Ok(Some(true)));
    assert_eq!(alone.tree.ranges().count_keys(), 3_000);
}

#[test]
fn deletes_that_are_made_together_are_never_refused() {
    let alone = Alone::new(CodecChoice::None);
    (0..100_u32).for_each(|n| {
        alone.put(&n.to_be_bytes(), &[7; 100], PutMeta::default()).expect("no limit is set");
    });
    alone.settle();
    alone.set_memory_limit(Some(alone.tree.gauges.held() / 2));
    let batch = |from: u32| (from..100).fold(Batch::new(), |batch, n| batch.delete(&n.to_be_bytes()));
    let refused = alone.write(&batch(0).put(b"key", b"value"));
    assert!(matches!(refused, Err(Error::MemoryLimit(_))), "{refused:?}");
    assert_eq!(alone.tree.ranges().count_keys(), 100);
    let condition = batch(50).require(&0_u32.to_be_bytes(), Condition::Exists);
    assert_eq!((alone.write(&condition), alone.tree.ranges().count_keys()), (Ok(true), 50));
    assert_eq!((alone.write(&batch(0)), alone.tree.ranges().count_keys()), (Ok(true), 0));
}

/// It stayed open, and nobody packed it while its leaf was written to.
#[test]
fn a_landing_that_grows_beside_a_sealed_one_is_packed_after_it() {
    let alone = Alone::new(CodecChoice::None);
    alone.put(b"key", b"value", PutMeta::default()).expect("no limit is set");
    {
        // As if another thread had owned the leaf when this landing was sealed.
        let guard = alone.tree.pin();
        alone.tree.locate(b"key", &guard).0.seal(&guard);
    }
    let batch = (0..1_000_u32).fold(Batch::new(), |batch, n| batch.put(&n.to_be_bytes(), b"value"));
    assert_eq!((alone.write(&batch), alone.tree.ranges().count_keys()), (Ok(true), 1_001));
    let guard = alone.tree.pin();
    assert!(!alone.tree.locate(&0_u32.to_be_bytes(), &guard).1.is_unsettled());
}

/// The turn of an update lasts as long as it takes to read and code a value of hundreds of megabytes.
#[test]
fn writes_to_a_key_that_has_its_turn_are_held_up() {
    let alone = Alone::new(CodecChoice::Auto);
    let turn = alone.tree.turns.take(key_hash(b"key"));
    assert!(alone.tree.is_held_up(b"key") && !alone.tree.is_held_up(b"other"));
    drop(turn);
    assert!(!alone.tree.is_held_up(b"key"));
}

/// Others would wait for the locks while hundreds of megabytes are decoded.
#[test]
fn a_long_value_is_compared_before_its_leaf_is_locked() {
    let alone = Alone::new(CodecChoice::Auto);
    let long = vec![7; 1 << 20];
    alone.put(b"key", &long, PutMeta::default()).expect("no limit is set");
    {
        let guard = alone.tree.pin();
        let locked = [alone.tree.lock_leaf(b"key", &guard)];
        let condition = Operation::Require(Condition::ValueIs(long.clone()));
        let Operation::Require(Condition::ValueIs(wanted)) = &condition else { unreachable!("it is one") };
        let operations = [(&b"key"[..], &condition, NewValue::None)];
        let holds = |compared: &Compared| alone.tree.all_hold(&operations, &[0], &locked, compared, &guard);
        let mut compared = Compared::after(1);
        assert_eq!(holds(&compared), Ok(None));
        assert_eq!(alone.writes().compare_apart(b"key", wanted, &mut compared), Ok(()));
        assert_eq!(holds(&compared), Ok(Some(true)));
        // Others replaced the value after each comparison.
        assert_eq!(holds(&Compared::after(crate::update::ATTEMPTS_MAX)), Ok(Some(true)));
    }
    let mut other = long.clone();
    other[1 << 19] = 8;
    for (value, is_same) in [(other, false), (long, true)] {
        let batch = Batch::new().require(b"key", Condition::ValueIs(value)).put(b"other", b"value");
        assert_eq!(alone.write(&batch), Ok(is_same));
    }
}

/// The second condition got the outcome of the first.
#[test]
fn conditions_on_names_of_one_large_value_are_told_apart() {
    let alone = Alone::new(CodecChoice::Auto);
    let (long, other) = (vec![7; 1 << 20], vec![8; 1 << 20]);
    alone.put(b"a", &long, PutMeta::default()).expect("no limit is set");
    assert_eq!(alone.writes().transfer(b"a", b"b", true, true), Ok(Transferred::Done));
    for (of_a, of_b, holds) in [(&long, &other, false), (&other, &long, false), (&long, &long, true)] {
        let value_is = |value: &[u8]| Condition::ValueIs(value.to_vec());
        let batch = Batch::new().require(b"a", value_is(of_a)).require(b"b", value_is(of_b));
        assert_eq!(alone.write(&batch.put(b"c", b"value")), Ok(holds));
    }
    let twice = Batch::new().require(b"a", Condition::ValueIs(long)).require(b"a", Condition::ValueIs(other));
    assert_eq!(alone.write(&twice), Ok(false));
}
