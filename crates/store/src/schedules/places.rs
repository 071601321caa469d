//! Records that leave, or change their place, beside those who read and write them.

use std::sync::Arc;

use shuttle::thread;
use ziptier_media::testing::RecordingDisk;
use ziptier_tree::batch::Transferred;
use ziptier_tree::codec_options::CodecChoice;
use ziptier_tree::large::{ChunkPlace, Large};
use ziptier_tree::memory::Gauges;
use ziptier_tree::packing::Goal;

use super::{SCHEDULES, core, explore, get, put};
use crate::core::Core;
use crate::options::Options;
use crate::places::ssd::{Cold, SsdOptions};

fn options() -> Options {
    Options { codec: CodecChoice::None, background_threads: 0, landing_bytes: 256, ..Options::default() }
}

/// The version in a value, all of whose bytes are the same; 0 for none.
fn version(value: Option<Vec<u8>>) -> u8 {
    value.map_or(0, |value| {
        assert!(value.iter().all(|byte| *byte == value[0]), "a value is torn: {value:?}");
        value[0]
    })
}

#[test]
fn an_evicted_key_may_be_gone_and_is_never_an_older_value() {
    explore(
        || {
            let core = Arc::new(Core::new(&Options { eviction: true, ..options() }));
            (0..20u8).for_each(|n| put(&core, &[b'a', n], &[n; 60]));
            put(&core, b"k", &[1; 60]);
            core.settle();
            core.tree.gauges.set_limit(Some(core.tree.gauges.held()));
            let evictor = {
                let core = core.clone();
                thread::spawn(move || {
                    core.tree.gauges.set_limit(Some(core.tree.gauges.held() * 3 / 4));
                    core.reclaimer().evict_in_background();
                    core.tree.gauges.set_limit(None);
                })
            };
            let writer = {
                let core = core.clone();
                thread::spawn(move || {
                    for round in 2..5u8 {
                        // At its limit, a store that evicts may refuse what finds no room.
                        let _ = core.put(b"k", &[round; 60], Default::default());
                        let found = version(get(&core, b"k"));
                        assert!(found == 0 || found == round, "{found} after {round}");
                    }
                })
            };
            let mut newest = 0;
            for _ in 0..4 {
                let found = version(get(&core, b"k"));
                assert!(found == 0 || found >= newest, "{found} after {newest}");
                newest = newest.max(found);
                thread::yield_now();
            }
            evictor.join().expect("it ends");
            writer.join().expect("it ends");
            core.settle();
            assert!(matches!(version(get(&core, b"k")), 0 | 4));
        },
        SCHEDULES / 2,
    );
}

#[test]
fn a_leaf_that_moves_to_ssd_and_back_loses_no_write() {
    explore(
        || {
            let gauges = Arc::new(Gauges::new(None));
            let ssd = SsdOptions { path: Some("/ssd".into()), limit_bytes: 16 << 20 };
            let cold = Cold::open(Arc::new(RecordingDisk::new()), &ssd, &gauges, |_, _| Ok(()))
                .expect("the disk is empty");
            let core = Arc::new(Core::with_places(&options(), gauges, None, Some(cold)));
            (0..3u8).for_each(|n| put(&core, &[b'k', n], &[1; 60]));
            core.settle();
            let mover = {
                let core = core.clone();
                thread::spawn(move || {
                    for sends in [true, false, true] {
                        if sends {
                            assert!(core.moves().send_some_to_ssd(|| true).is_ok());
                        } else {
                            core.moves().raise_some_from_ssd(|| true);
                        }
                    }
                })
            };
            let writer = {
                let core = core.clone();
                thread::spawn(move || {
                    for round in 2..5u8 {
                        put(&core, &[b'k', 0], &[round; 60]);
                        assert_eq!(version(get(&core, &[b'k', 0])), round);
                    }
                })
            };
            for _ in 0..3 {
                assert_eq!(version(get(&core, &[b'k', 2])), 1);
            }
            mover.join().expect("it ends");
            writer.join().expect("it ends");
            assert_eq!([0, 1, 2].map(|n| version(get(&core, &[b'k', n]))), [4, 1, 1]);
        },
        SCHEDULES / 4,
    );
}

#[test]
fn a_copy_beside_a_merge_on_ssd_finds_its_source_and_its_target() {
    explore(
        || {
            let gauges = Arc::new(Gauges::new(None));
            let ssd = SsdOptions { path: Some("/ssd".into()), limit_bytes: 16 << 20 };
            let cold = Cold::open(Arc::new(RecordingDisk::new()), &ssd, &gauges, |_, _| Ok(()))
                .expect("the disk is empty");
            let core = Arc::new(Core::with_places(&options(), gauges, None, Some(cold)));
            put(&core, b"k", &[1; 60]);
            assert!(core.moves().send_some_to_ssd(|| true).is_ok());
            // Above what lies on SSD, until a merge.
            put(&core, b"source", &[2; 60]);
            put(&core, b"target", &[3; 60]);
            core.settle();
            let merger = {
                let core = core.clone();
                thread::spawn(move || assert!(core.moves().send_some_to_ssd(|| true).is_ok()))
            };
            assert_eq!(
                core.writes().transfer(b"source", b"target", true, false),
                Ok(Transferred::TargetExists)
            );
            assert_eq!(core.writes().transfer(b"source", b"other", true, true), Ok(Transferred::Done));
            merger.join().expect("it ends");
            assert_eq!([&b"target"[..], b"other"].map(|key| version(get(&core, key))), [3, 2]);
        },
        SCHEDULES,
    );
}

#[test]
fn a_share_of_a_large_value_is_whole_whoever_replaces_it() {
    explore(
        || {
            let core = core();
            put(&core, b"k", &[1; 5_000]);
            let writer = {
                let core = core.clone();
                thread::spawn(move || {
                    for round in 2..4u8 {
                        put(&core, b"k", &[round; 5_000]);
                        let guard = core.tree.pin();
                        let (leaf, _) = core.tree.locate(b"k", &guard);
                        if let Some(_ownership) = leaf.try_own() {
                            leaf.seal(&guard);
                            core.upkeep().pack(leaf, Goal::Keep, &mut core.upkeep().retention(), &guard);
                        }
                        drop(guard);
                        core.tree.reclaim();
                    }
                })
            };
            let mut newest = 1;
            for _ in 0..4 {
                let found = version(get(&core, b"k"));
                assert!(found >= newest, "{found} after {newest}");
                newest = found;
                thread::yield_now();
            }
            writer.join().expect("it ends");
            core.settle();
            assert_eq!(version(get(&core, b"k")), 3);
            assert_eq!((core.tree.gauges.retired.held(), core.tree.gauges.retired_shared.held()), (0, 0));
        },
        SCHEDULES,
    );
}

/// Two threads pack the leaves of two names of a value.
#[test]
fn a_large_value_that_two_threads_code_anew_becomes_one_value() {
    explore(
        || {
            let gauges = Arc::new(Gauges::new(None));
            let large =
                || Arc::new(Large::new(&[7; 3000], None, ChunkPlace::Dram, gauges.reserve(0), &gauges));
            let old = large();
            let coded = [large(), large()].map(|new| {
                let old = old.clone();
                thread::spawn(move || old.note_recoded(1, Some(new)))
            });
            let [one, other] =
                coded.map(|thread| thread.join().expect("it ends").expect("it was coded anew"));
            assert!(Arc::ptr_eq(&one, &other));
        },
        SCHEDULES,
    );
}
