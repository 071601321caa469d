//! Schedule exploration of the lock-free parts, by `shuttle`: thousands of interleavings of a few threads, each
//! replayable from the seed that a failure prints. Built with `--cfg shuttle` only (`make shuttle`).
//!
//! An exploration knows no weak memory: a load sees the newest store. `docs/architecture/orderings.md` argues for the
//! orderings instead.

mod places;
mod updates;

use std::sync::Arc;
use std::time::{Duration, Instant};

use shuttle::scheduler::PctScheduler;
use shuttle::thread;
use ziptier_tree::batch::Batch;
use ziptier_tree::body::Body;
use ziptier_tree::codec_options::CodecChoice;
use ziptier_tree::commits::Commits;
use ziptier_tree::far::FarMemory;
use ziptier_tree::form::Form;
use ziptier_tree::index::Index;
use ziptier_tree::landing::{Landing, RecordBytes};
use ziptier_tree::leaf::{Leaf, LeafState, Place, RightSibling};
use ziptier_tree::memory::Gauges;
use ziptier_tree::multi_get::Values;
use ziptier_tree::packing::Goal;
use ziptier_tree::placement::Side;
use ziptier_tree::reclaim::Epochs;
use ziptier_tree::record::{Fields, Found, Kind, Lookup, Payload, PutMeta, key_hash};

use crate::core::Core;
use crate::maintenance::Rounds;
use crate::options::Options;
use crate::places::{Demoted, Parts, Pick};

const SCHEDULES: usize = 2_000;

/// The number in a variable of the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// How many schedules are explored, and the seed that they come from: `ZIPTIER_SCHEDULES` times as many as asked for,
/// from `ZIPTIER_SEED`.
fn seeded(schedules: usize) -> (u64, usize) {
    let seed = number("ZIPTIER_SEED").unwrap_or(1);
    let schedules = schedules * number("ZIPTIER_SCHEDULES").unwrap_or(1) as usize;
    println!("{schedules} schedules; to repeat them: ZIPTIER_SEED={seed}");
    (seed, schedules)
}

/// Explores random schedules, in which every task goes on for a while.
fn explore(check: impl Fn() + Send + Sync + 'static, schedules: usize) {
    let (seed, schedules) = seeded(schedules);
    shuttle::check_random_with_seed(check, seed, schedules);
}

/// Explores schedules in which one task stands still while the others do much.
fn explore_rare(check: impl Fn() + Send + Sync + 'static, schedules: usize) {
    let (seed, schedules) = seeded(schedules);
    let scheduler = PctScheduler::new_from_seed(seed, 3, schedules);
    shuttle::Runner::new(scheduler, shuttle::Config::default()).run(check);
}

/// A store core without background threads: every step is one of the explored threads'.
fn core() -> Arc<Core> {
    let options =
        Options { codec: CodecChoice::None, background_threads: 0, landing_bytes: 256, ..Options::default() };
    Arc::new(Core::new(&options))
}

fn get(core: &Core, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    core.read(key, &mut value).expect("nothing is damaged").map(|_| value)
}

fn put(core: &Core, key: &[u8], value: &[u8]) {
    core.put(key, value, PutMeta::default()).expect("no limit is set");
}

#[test]
fn a_reader_of_a_landing_sees_whole_records_in_order() {
    explore(
        || {
            let landing = Arc::new(Landing::new(512));
            let writer = {
                let landing = landing.clone();
                thread::spawn(move || {
                    let mut record = RecordBytes::default();
                    for round in 1..=4u8 {
                        record.lay_out(Kind::Raw, &Fields::default(), b"key", &[round; 8]);
                        assert!(landing.append(&record, key_hash(b"key")));
                    }
                })
            };
            let mut last = 0;
            for _ in 0..4 {
                let none = Commits::default();
                if let Lookup::Found(Found { payload: Payload::Raw(value), .. }) =
                    landing.find(b"key", key_hash(b"key"), &none, || Lookup::Absent)
                {
                    assert!(value.iter().all(|byte| *byte == value[0]) && value[0] >= last);
                    last = value[0];
                }
                thread::yield_now();
            }
            writer.join().expect("the writer ends");
        },
        SCHEDULES,
    );
}

#[test]
fn a_leaf_that_is_written_to_during_a_round_is_settled_by_a_later_one() {
    explore(
        || {
            // The test is its thread in the background.
            let options = Options { codec: CodecChoice::None, background_threads: 1, ..Options::default() };
            let core = Arc::new(Core::new(&options));
            let mut rounds = Rounds::new(Instant::now());
            let mut now = Instant::now();
            let mut round = |core: &Core| {
                now += Duration::from_secs(3_600);
                if rounds.is_due(&core.backlog, &core.tree, now) {
                    core.maintenance().settle_some(&mut rounds, 8);
                }
            };
            let writer = {
                let core = core.clone();
                thread::spawn(move || (0..3).for_each(|number| put(&core, b"key", &[number])))
            };
            (0..3).for_each(|_| round(&core));
            writer.join().expect("the writer ends");
            (0..3).for_each(|_| round(&core));
            assert_eq!(core.tree.gauges.landing.held(), 0, "the leaf is on no list");
            assert_eq!(get(&core, b"key"), Some(vec![2]));
        },
        SCHEDULES,
    );
}

#[test]
fn of_two_states_published_over_one_the_later_loses() {
    explore(
        || {
            let gauges = Arc::new(Gauges::new(None));
            let state = LeafState::new(Body::empty(), None, RightSibling::none());
            let leaf = Leaf::new(Arc::from(&b""[..]), state, gauges);
            let epochs = Arc::new(Epochs::default());
            let wins: Vec<_> = (0..2)
                .map(|_| {
                    let (leaf, epochs) = (leaf.clone(), epochs.clone());
                    thread::spawn(move || {
                        let guard = epochs.pin();
                        let seen = leaf.state(&guard);
                        thread::yield_now();
                        leaf.publish(seen, LeafState { form: Form::Hot, ..seen.clone() }, &guard)
                            || leaf.state(&guard).form.is_hot()
                    })
                })
                .collect();
            assert!(wins.into_iter().all(|thread| thread.join().expect("it ends")));
        },
        SCHEDULES,
    );
}

#[test]
fn a_lookup_beside_a_split_of_the_index_finds_a_leaf_at_or_left_of_the_key() {
    explore(
        || {
            let gauges = Arc::new(Gauges::new(None));
            let epochs = Arc::new(Epochs::default());
            let leaf = |low: &[u8]| {
                let state = LeafState::new(Body::empty(), None, RightSibling::none());
                Leaf::new(Arc::from(low), state, gauges.clone())
            };
            let index = Arc::new(Index::new(leaf(b""), gauges.clone()));
            for n in 0..64u8 {
                index.change(None, vec![leaf(&[b'a', n])], &epochs.pin());
            }
            let added = leaf(b"b");
            let changer = {
                let (index, epochs) = (index.clone(), epochs.clone());
                thread::spawn(move || {
                    let guard = epochs.pin();
                    index.change(None, vec![added], &guard);
                    index.change(Some(index.find(&[b'a', 63], &guard)), Vec::new(), &guard);
                })
            };
            for _ in 0..3 {
                let guard = epochs.pin();
                assert!(&*index.find(b"b", &guard).low() <= b"b".as_slice());
                assert_eq!(*index.find(&[b'a', 7], &guard).low(), [b'a', 7]);
                thread::yield_now();
            }
            changer.join().expect("the changer ends");
            assert_eq!(*index.find(&[b'a', 63], &epochs.pin()).low(), [b'a', 62]);
        },
        SCHEDULES / 4,
    );
}

#[test]
fn an_acknowledged_write_is_read_whatever_maintenance_does() {
    explore(
        || {
            let core = core();
            for n in 0..6u8 {
                put(&core, &[b'k', n], &[n; 60]);
            }
            let writers: Vec<_> = (0..2u8)
                .map(|writer| {
                    let core = core.clone();
                    thread::spawn(move || {
                        for round in 0..4u8 {
                            put(&core, &[b'k', writer], &[round; 60]);
                            assert_eq!(get(&core, &[b'k', writer]).as_deref(), Some(&[round; 60][..]));
                        }
                    })
                })
                .collect();
            let sweeper = {
                let core = core.clone();
                thread::spawn(move || core.settle())
            };
            assert_eq!(get(&core, &[b'k', 5]).as_deref(), Some(&[5; 60][..]));
            for thread in writers.into_iter().chain([sweeper]) {
                thread.join().expect("it ends");
            }
            core.settle();
            for n in 0..6u8 {
                let expected = if n < 2 { 3 } else { n };
                assert_eq!(get(&core, &[b'k', n]).as_deref(), Some(&[expected; 60][..]));
            }
        },
        SCHEDULES,
    );
}

#[test]
fn splits_and_fills_beside_writers_lose_nothing() {
    explore(
        || {
            let core = core();
            // A body that is almost too large already: the first pack of a landing splits it, while the landing
            // that is open has room for a late writer.
            for n in 0..5u8 {
                put(&core, &[b'k', n], &[n; 2_000]);
            }
            core.settle();
            let writers: Vec<_> = (0..2u8)
                .map(|writer| {
                    let core = core.clone();
                    thread::spawn(move || {
                        for round in 0..5u8 {
                            let n = 10 + round * 2 + writer;
                            put(&core, &[b'k', n], &[n; 60]);
                        }
                    })
                })
                .collect();
            let sweeper = {
                let core = core.clone();
                thread::spawn(move || {
                    core.settle();
                    core.settle();
                })
            };
            for thread in writers.into_iter().chain([sweeper]) {
                thread.join().expect("it ends");
            }
            for n in 0..20u8 {
                let expected = match n {
                    0..5 => Some(vec![n; 2_000]),
                    5..10 => None,
                    _ => Some(vec![n; 60]),
                };
                assert_eq!(get(&core, &[b'k', n]), expected, "key {n}");
            }
            assert_eq!(core.tree.ranges().count_keys(), 15);
            assert!(core.tree.stats.splits.get() > 0);
        },
        SCHEDULES / 2,
    );
}

#[test]
fn leaves_that_a_split_makes_are_maintained_by_others_once_they_are_in_the_index() {
    // One thread has to stand still while the other does much: that is what this scheduler is for.
    explore_rare(
        || {
            let core = core();
            let splitter = {
                let core = core.clone();
                thread::spawn(move || {
                    // One landing of three bodies.
                    let put = |batch: Batch, n: u8| batch.put(&[b'k', n], &[n; 2_000]);
                    assert_eq!(core.write(&(0..12).fold(Batch::new(), put)), Ok(true));
                })
            };
            let joiner = {
                let core = core.clone();
                thread::spawn(move || {
                    for _ in 0..40 {
                        let guard = core.tree.pin();
                        let mut at = Some(core.tree.locate(b"", &guard).0);
                        while let Some(leaf) = at {
                            if let Some(_ownership) = leaf.try_own()
                                && !leaf.state(&guard).closed
                            {
                                core.upkeep().with_packs(
                                    &mut core.upkeep().background_retention(),
                                    &guard,
                                    |packs| packs.join_right(leaf),
                                );
                            }
                            at = leaf.state(&guard).right(&guard);
                        }
                    }
                })
            };
            for thread in [splitter, joiner] {
                thread.join().expect("it ends");
            }
            for n in 0..12u8 {
                assert_eq!(get(&core, &[b'k', n]), Some(vec![n; 2_000]), "key {n}");
            }
        },
        SCHEDULES,
    );
}

#[test]
fn small_neighbours_that_are_joined_beside_writers_lose_nothing() {
    explore(
        || {
            let core = core();
            // Too much for one body: two leaves, which deletions make small.
            (0..6u8).for_each(|n| put(&core, &[b'k', n], &[n; 2_000]));
            core.settle();
            (0..6u8).for_each(|n| put(&core, &[b'k', n], &[n; 20]));
            assert!(core.tree.stats.splits.get() > 0);
            let writers: Vec<_> = (0..2u8)
                .map(|writer| {
                    let core = core.clone();
                    thread::spawn(move || {
                        for round in 0..4u8 {
                            let key = [b'k', writer * 5];
                            put(&core, &key, &[round; 60]);
                            assert_eq!(get(&core, &key).as_deref(), Some(&[round; 60][..]));
                        }
                    })
                })
                .collect();
            let joiner = {
                let core = core.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        let guard = core.tree.pin();
                        let (leaf, _) = core.tree.locate(b"", &guard);
                        if let Some(_ownership) = leaf.try_own()
                            && !leaf.state(&guard).closed
                        {
                            core.upkeep().with_packs(
                                &mut core.upkeep().background_retention(),
                                &guard,
                                |packs| packs.join_right(leaf),
                            );
                        }
                    }
                })
            };
            for thread in writers.into_iter().chain([joiner]) {
                thread.join().expect("it ends");
            }
            for n in 0..6u8 {
                let expected = if n % 5 == 0 { vec![3; 60] } else { vec![n; 20] };
                assert_eq!(get(&core, &[b'k', n]), Some(expected), "key {n}");
            }
            core.settle();
            assert_eq!(core.tree.ranges().count_keys(), 6);
            assert!(core.tree.stats.merges.get() > 0);
        },
        SCHEDULES,
    );
}

#[test]
fn a_landing_that_is_sealed_while_its_leaf_changes_form_is_kept() {
    explore(
        || {
            let core = core();
            put(&core, b"k", &[1; 60]);
            core.settle();
            // The next record does not fit the landing any more.
            (0..3u8).for_each(|n| put(&core, &[b'k', n], &[n; 60]));
            let owner = {
                let core = core.clone();
                thread::spawn(move || {
                    let guard = core.tree.pin();
                    let (leaf, _) = core.tree.locate(b"k", &guard);
                    if let Some(_ownership) = leaf.try_own() {
                        core.upkeep().pack(leaf, Goal::Heat, &mut core.upkeep().retention(), &guard);
                    }
                })
            };
            put(&core, &[b'k', 3], &[3; 60]);
            owner.join().expect("it ends");
            for n in 0..4u8 {
                assert_eq!(get(&core, &[b'k', n]).as_deref(), Some(&[n; 60][..]));
            }
        },
        SCHEDULES,
    );
}

#[test]
fn batches_of_other_leaves_are_seen_whole_in_whatever_order_they_are_committed() {
    explore(
        || {
            let core = core();
            // Too much for one body: two leaves.
            (0..6u8).for_each(|n| put(&core, &[b'k', n], &[0; 2_000]));
            let pairs = [[[b'k', 0], [b'k', 1]], [[b'k', 4], [b'k', 5]]];
            let writers = pairs.map(|pair| {
                let core = core.clone();
                thread::spawn(move || {
                    for round in 1..=2u8 {
                        let put = |batch: Batch, key: &[u8; 2]| batch.put(key, &[round; 100]);
                        assert_eq!(core.write(&pair.iter().fold(Batch::new(), put)), Ok(true));
                    }
                })
            });
            let mut values = Values::default();
            for _ in 0..2 {
                core.multi_get(pairs.as_flattened(), u64::MAX, &mut values).expect("nothing is damaged");
                let rounds: Vec<_> = (0..4).map(|n| values.get(n).map(|value| value[0])).collect();
                assert!(rounds[0] == rounds[1] && rounds[2] == rounds[3], "{rounds:?}");
            }
            writers.into_iter().for_each(|writer| writer.join().expect("it ends"));
            for key in pairs.as_flattened() {
                assert_eq!(get(&core, key), Some(vec![2; 100]));
            }
        },
        SCHEDULES,
    );
}

#[test]
fn a_batch_is_seen_whole() {
    explore(
        || {
            let core = core();
            let writer = {
                let core = core.clone();
                thread::spawn(move || {
                    for round in 1..=2u8 {
                        let batch = Batch::new().put(b"a", &[round; 100]).put(b"z", &[round; 100]);
                        assert!(core.write(&batch).expect("no limit is set"));
                    }
                })
            };
            let other = {
                let core = core.clone();
                thread::spawn(move || put(&core, b"m", &[9; 100]))
            };
            for _ in 0..3 {
                // A write that was seen of the later key must already hold for the other.
                let z = get(&core, b"z").map_or(0, |value| value[0]);
                let a = get(&core, b"a").map_or(0, |value| value[0]);
                assert!(a >= z, "half a batch was seen: a {a}, z {z}");
            }
            writer.join().expect("the writer ends");
            other.join().expect("the writer ends");
            assert_eq!(get(&core, b"a"), get(&core, b"z"));
            assert!(core.tree.commits.has(2));
        },
        SCHEDULES,
    );
}

#[test]
fn a_leaf_that_moves_to_far_memory_and_back_loses_no_write() {
    explore(
        || {
            let options = Options {
                codec: CodecChoice::None,
                background_threads: 0,
                landing_bytes: 256,
                ..Options::default()
            };
            let core = Arc::new(Core::with_far(&options, FarMemory::on_heap(1 << 20)));
            put(&core, b"k", &[1; 60]);
            core.settle();
            let mover = {
                let core = core.clone();
                thread::spawn(move || {
                    for demotes in [true, false, true] {
                        let guard = core.tree.pin();
                        let (leaf, _) = core.tree.locate(b"k", &guard);
                        if demotes {
                            let parts =
                                Parts { from: Side::Dram, records: true, larges: Pick::All, densely: false };
                            assert_ne!(core.moves().demote(leaf, Place::Far, parts), Demoted::Full);
                        } else {
                            core.moves().promote(leaf, Place::Far);
                        }
                    }
                })
            };
            let writer = {
                let core = core.clone();
                thread::spawn(move || (0..6u8).for_each(|n| put(&core, &[b'k', n], &[n; 60])))
            };
            assert_eq!(get(&core, b"k").as_deref(), Some(&[1; 60][..]));
            mover.join().expect("it ends");
            writer.join().expect("it ends");
            for n in 0..6u8 {
                assert_eq!(get(&core, &[b'k', n]).as_deref(), Some(&[n; 60][..]));
            }
        },
        SCHEDULES,
    );
}
