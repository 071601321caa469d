//! Updates beside everything else that changes what they were decided on.

use shuttle::thread;
use ziptier_tree::batch::{Batch, Transferred};
use ziptier_tree::clock::Clock;
use ziptier_tree::codec_options::CodecChoice;
use ziptier_tree::packing::Goal;
use ziptier_tree::record::PutMeta;
use ziptier_tree::seen::Wanted;
use ziptier_tree::update::Update;

use super::{SCHEDULES, core, explore, get, put};
use crate::core::Core;
use crate::options::Options;
use std::sync::Arc;

/// Adds one to the number that `key` has; the sum.
fn increment(core: &Core, key: &[u8]) -> u8 {
    match core.modify(key, Wanted::Bytes, |seen| {
        let number = seen.map_or(0, |(value, _)| value[0]);
        Update::Put(vec![number + 1], PutMeta::default())
    }) {
        Ok(Update::Put(value, _)) => value[0],
        other => panic!("a number is put: {other:?}"),
    }
}

/// Three increments of `key` in each of two threads, beside `work`: every one counts, and no two give the same number.
fn count_beside(core: &Arc<Core>, key: &'static [u8], work: impl FnOnce(&Core) + Send + 'static) {
    let counters: Vec<_> = (0..2)
        .map(|_| {
            let core = core.clone();
            thread::spawn(move || [(); 3].map(|()| increment(&core, key)))
        })
        .collect();
    let worker = {
        let core = core.clone();
        thread::spawn(move || work(&core))
    };
    let mut numbers: Vec<u8> =
        counters.into_iter().flat_map(|counter| counter.join().expect("it ends")).collect();
    worker.join().expect("it ends");
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert_eq!(get(core, key).as_deref(), Some(&[6][..]));
}

#[test]
fn an_update_beside_a_batch_of_its_key_undoes_nothing() {
    explore(
        || {
            let core = core();
            put(&core, b"a", &[0]);
            let batch = {
                let core = core.clone();
                thread::spawn(move || core.write(&Batch::new().put(b"a", &[5]).put(b"b", &[5])))
            };
            increment(&core, b"a");
            assert_eq!(batch.join().expect("it ends"), Ok(true));
            let a = get(&core, b"a");
            assert!(matches!(a.as_deref(), Some([5 | 6])), "{a:?}");
        },
        SCHEDULES,
    );
}

#[test]
fn an_update_beside_a_rename_to_its_key_undoes_nothing() {
    explore(
        || {
            let core = core();
            put(&core, b"a", &[5]);
            put(&core, b"x", &[0]);
            let rename = {
                let core = core.clone();
                thread::spawn(move || core.writes().transfer(b"a", b"x", false, true))
            };
            increment(&core, b"x");
            assert_eq!(rename.join().expect("it ends"), Ok(Transferred::Done));
            let x = get(&core, b"x");
            assert!(matches!(x.as_deref(), Some([5 | 6])), "{x:?}");
            assert_eq!(get(&core, b"a"), None);
        },
        SCHEDULES,
    );
}

#[test]
fn an_update_beside_a_rename_from_its_key_undoes_nothing() {
    explore(
        || {
            let core = core();
            put(&core, b"a", &[5]);
            put(&core, b"x", &[0]);
            let rename = {
                let core = core.clone();
                thread::spawn(move || core.writes().transfer(b"a", b"x", false, true))
            };
            let sum = increment(&core, b"a");
            assert_eq!(rename.join().expect("it ends"), Ok(Transferred::Done));
            // The value that was added to goes along, or the source is gone and the sum begins anew.
            let left = (get(&core, b"a"), get(&core, b"x"));
            let expected = if sum == 6 { (None, Some(vec![6])) } else { (Some(vec![1]), Some(vec![5])) };
            assert_eq!(left, expected, "the sum was {sum}");
        },
        SCHEDULES,
    );
}

#[test]
fn batches_beside_each_other_do_not_take_the_same_room() {
    explore(
        || {
            let core = core();
            put(&core, b"a", &[0]);
            core.settle();
            let batch =
                |from: u8| (from..from + 10).fold(Batch::new(), |batch, n| batch.put(&[n], &[n; 1500]));
            // Each takes 16 kB in a landing, and as much again while that is packed.
            core.tree.gauges.set_limit(Some(core.tree.gauges.held() + 40_000));
            let other = {
                let core = core.clone();
                thread::spawn(move || core.write(&batch(100)))
            };
            let written = [core.write(&batch(0)), other.join().expect("it ends")];
            assert!(written.iter().filter(|written| written.is_ok()).count() <= 1, "{written:?}");
        },
        SCHEDULES / 4,
    );
}

#[test]
fn increments_beside_packs_all_count() {
    explore(
        || {
            let core = core();
            (0..3u8).for_each(|n| put(&core, &[b'k', n], &[n; 60]));
            count_beside(&core, b"k", |core| core.settle());
        },
        SCHEDULES,
    );
}

#[test]
fn increments_beside_splits_and_joins_all_count() {
    explore(
        || {
            let core = core();
            (0..5u8).for_each(|n| put(&core, &[b'k', n], &[n; 2_000]));
            core.settle();
            put(&core, &[b'k', 2, 0], &[9; 1900]);
            // The last key goes to another leaf, and comes back.
            count_beside(&core, &[b'k', 4, 0], |core| {
                for _ in 0..2 {
                    let guard = core.tree.pin();
                    let (leaf, _) = core.tree.locate(b"", &guard);
                    if let Some(_ownership) = leaf.try_own()
                        && !leaf.state(&guard).closed
                    {
                        leaf.seal(&guard);
                        core.upkeep().pack(leaf, Goal::Keep, &mut core.upkeep().retention(), &guard);
                        core.upkeep().with_packs(
                            &mut core.upkeep().background_retention(),
                            &guard,
                            |packs| packs.join_right(leaf),
                        );
                    }
                }
            });
        },
        SCHEDULES,
    );
}

#[test]
fn increments_beside_batches_of_their_neighbours_all_count() {
    explore(
        || {
            let core = core();
            count_beside(&core, b"k", |core| {
                for round in 0..3u8 {
                    let batch = Batch::new().put(b"j", &[round; 100]).put(b"l", &[round; 100]);
                    assert_eq!(core.write(&batch), Ok(true));
                }
            });
        },
        SCHEDULES,
    );
}

#[test]
fn of_two_who_set_a_key_that_is_not_there_one_does() {
    explore(
        || {
            let core = core();
            let batch = {
                let core = core.clone();
                thread::spawn(move || {
                    let absent = ziptier_tree::batch::Condition::Absent;
                    core.write(&Batch::new().require(b"lock", absent).put(b"lock", b"batch"))
                })
            };
            let mut is_mine = false;
            let updated = core.modify(b"lock", Wanted::Meta, |seen| {
                is_mine = seen.is_none();
                if is_mine { Update::Put(b"update".to_vec(), PutMeta::default()) } else { Update::Keep }
            });
            assert!(updated.is_ok());
            let is_theirs = batch.join().expect("it ends").expect("no limit is set");
            assert!(is_mine != is_theirs, "mine {is_mine}, theirs {is_theirs}");
            let expected: &[u8] = if is_mine { b"update" } else { b"batch" };
            assert_eq!(get(&core, b"lock").as_deref(), Some(expected));
        },
        SCHEDULES,
    );
}

#[test]
fn a_clear_beside_increments_happens_at_one_moment() {
    explore(
        || {
            let core = core();
            put(&core, b"k", &[100]);
            let clearing = {
                let core = core.clone();
                thread::spawn(move || core.maintenance().clear())
            };
            let numbers = [(); 3].map(|()| increment(&core, b"k"));
            assert_eq!(clearing.join().expect("it ends"), Ok(()));
            // So many increments came before it.
            let before = numbers.iter().filter(|number| **number > 100).count();
            let expected: Vec<u8> = (101..101 + before as u8).chain(1..=(3 - before as u8)).collect();
            assert_eq!(numbers.as_slice(), expected);
            let last = (before < 3).then(|| vec![3 - before as u8]);
            assert!(get(&core, b"k") == last, "{numbers:?}, and then {:?}", get(&core, b"k"));
        },
        SCHEDULES,
    );
}

#[test]
fn another_expiry_beside_a_pack_that_drops_what_expired_is_kept_or_refused() {
    explore(
        || {
            let clock = Clock::manual(1_000);
            let options = Options {
                codec: CodecChoice::None,
                background_threads: 0,
                landing_bytes: 256,
                clock: clock.clone(),
                ..Options::default()
            };
            let core = Arc::new(Core::new(&options));
            let meta = PutMeta { expires_at_ms: Some(2_000), flags: 0 };
            assert_eq!(core.put(b"k", b"value", meta), Ok(()));
            core.settle();
            let packing = {
                let (core, clock) = (core.clone(), clock.clone());
                thread::spawn(move || {
                    clock.advance(std::time::Duration::from_millis(1_000));
                    core.settle();
                })
            };
            let updated = core.modify(b"k", Wanted::Meta, |_| Update::Expire(None));
            packing.join().expect("it ends");
            core.settle();
            let expected = (updated == Ok(Update::Expire(None))).then(|| b"value".to_vec());
            assert_eq!(get(&core, b"k"), expected);
        },
        SCHEDULES,
    );
}
