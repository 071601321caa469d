//! Races of updates, batches and maintenance that one thread can play. The caller's closure, or the test while it owns
//! a leaf, does the work that another thread would do between two steps. The schedules (`schedules`) find races that
//! nobody thought of; each of these was one.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use ziptier_testing::until;
use ziptier_tree::batch::{Batch, Condition, Need, Transferred};
use ziptier_tree::codec_options::CodecChoice;
use ziptier_tree::landing::STEPS;
use ziptier_tree::leaf::{Leaf, NOWHERE};
use ziptier_tree::packing::Goal;
use ziptier_tree::record::{Found, Lookup, Payload, PutMeta, key_hash};
use ziptier_tree::seen::Wanted;
use ziptier_tree::update::{ATTEMPTS_MAX, Update};

use crate::core::Core;
use crate::durable::DurableOptions;
use crate::options::Options;
use crate::store::Store;

/// Calls of `decide` after which a test gives up.
const CALLS_MAX: u32 = 200;

fn options() -> Options {
    Options { codec: CodecChoice::None, background_threads: 0, landing_bytes: 256, ..Options::default() }
}

fn put(core: &Core, key: &[u8], value: &[u8]) {
    core.put(key, value, PutMeta::default()).expect("no limit is set");
}

fn get(core: &Core, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    core.read(key, &mut value).expect("nothing is damaged").map(|_| value)
}

fn leaf_of(core: &Core, key: &[u8]) -> Arc<Leaf> {
    let guard = core.tree.pin();
    core.tree.locate(key, &guard).0.share(&guard)
}

/// Appends a byte to `key`, with `meanwhile` between each decision and its write; how often it was decided.
fn append_byte(core: &Core, key: &[u8], meanwhile: impl Fn(u32)) -> u32 {
    let calls = Cell::new(0);
    let updated = core.modify(key, Wanted::Bytes, |seen| {
        calls.set(calls.get() + 1);
        assert!(calls.get() < CALLS_MAX, "the update starves");
        meanwhile(calls.get());
        let mut value = seen.map(|(value, _)| value.to_vec()).unwrap_or_default();
        value.push(b'+');
        Update::Put(value, PutMeta::default())
    });
    assert!(updated.is_ok());
    calls.get()
}

#[test]
fn an_update_is_decided_once_however_often_its_neighbours_are_written() {
    for len in [10, 300_000] {
        let core = Core::new(&options());
        put(&core, b"k1", &vec![7; len]);
        // More than a landing, so that the leaf is packed as well.
        let calls =
            append_byte(&core, b"k1", |_| (0..20u8).for_each(|n| put(&core, &[b'k', b'2', n], &[n; 60])));
        assert_eq!(calls, 1);
        assert_eq!(get(&core, b"k1"), Some([vec![7; len], vec![b'+']].concat()));
    }
}

#[test]
fn an_update_whose_key_is_written_is_decided_again() {
    let core = Core::new(&options());
    for (before, between) in [(&b"old"[..], &b"new"[..]), (&[1; 5000], &[2; 5000]), (b"small", &[3; 5000])] {
        put(&core, b"key", before);
        let calls = append_byte(&core, b"key", |call| {
            if call == 1 {
                put(&core, b"key", between);
            }
        });
        assert_eq!((calls, get(&core, b"key")), (2, Some([between, b"+"].concat())));
    }
    // A deletion, another expiry, and a key that came to be.
    let once = |work: &dyn Fn()| {
        append_byte(&core, b"key", |call| {
            if call == 1 {
                work()
            }
        })
    };
    assert_eq!(once(&|| drop(core.modify(b"key", Wanted::Presence, |_| Update::Delete))), 2);
    assert_eq!(get(&core, b"key").as_deref(), Some(&b"+"[..]));
    assert_eq!(once(&|| drop(core.modify(b"key", Wanted::Meta, |_| Update::Expire(Some(1 << 44))))), 2);
    core.modify(b"key", Wanted::Presence, |_| Update::Delete).expect("no limit is set");
    assert_eq!(once(&|| put(&core, b"key", b"there")), 2);
    assert_eq!(get(&core, b"key").as_deref(), Some(&b"there+"[..]));
}

#[test]
fn an_update_whose_key_is_written_all_the_time_gets_its_turn() {
    let core = Core::new(&options());
    put(&core, b"key", b"first");
    std::thread::scope(|scope| {
        let calls = append_byte(&core, b"key", |call| {
            if call <= ATTEMPTS_MAX {
                return put(&core, b"key", format!("{call}").as_bytes());
            }
            // Now another writer has to wait until the update is made.
            let other = scope.spawn(|| put(&core, b"key", b"other"));
            while core.tree.turns.waiting() == 0 && !other.is_finished() {
                std::thread::yield_now();
            }
            // A batch and a rename do so, too.
            let batch = scope.spawn(|| core.write(&Batch::new().put(b"key", b"batch").put(b"b", b"batch")));
            while core.tree.turns.waiting() == 1 && !batch.is_finished() {
                std::thread::yield_now();
            }
        });
        assert_eq!(calls, ATTEMPTS_MAX + 1);
    });
    assert_eq!(core.tree.turns.waiting(), 0);
    assert!(matches!(get(&core, b"key").as_deref(), Some(b"other" | b"batch")));
}

/// Only a log needs the bytes of a large value that goes to another key.
#[test]
fn a_rename_whose_large_source_is_written_all_the_time_gets_its_turn() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let durable = Some(DurableOptions::new(folder.path()));
    let store = Store::open(Options { durable, ..options() }).expect("the folder is empty");
    let core = &store.core;
    put(core, b"source", &[0; 5000]);
    std::thread::scope(|scope| {
        let mut reads = 0;
        let renamed = core.writes().transfer_granted(b"source", b"target", false, true, &mut |need| {
            assert_eq!(need, Need::Bytes(5000));
            reads += 1;
            if reads <= ATTEMPTS_MAX {
                put(core, b"source", &[reads as u8; 5000]);
                return true;
            }
            assert_eq!(reads, ATTEMPTS_MAX + 1, "the rename starves");
            // Now another writer has to wait until the rename is done.
            let other = scope.spawn(|| put(core, b"source", b"other"));
            while core.tree.turns.waiting() == 0 && !other.is_finished() {
                std::thread::yield_now();
            }
            true
        });
        assert_eq!(renamed, Ok(Transferred::Done));
    });
    assert_eq!(get(core, b"target"), Some(vec![ATTEMPTS_MAX as u8; 5000]));
    assert_eq!(get(core, b"source").as_deref(), Some(&b"other"[..]));
}

/// A key leaves its leaf by a split, is written there, and comes back by a join.
#[test]
fn an_update_is_decided_again_when_its_key_was_written_in_another_leaf() {
    let core = Core::new(&options());
    (0..5u8).for_each(|n| put(&core, &[b'k', n], &[n; 2000]));
    core.settle();
    // One body has no room for it.
    put(&core, &[b'k', 2, 0], &[9; 1900]);
    let key = [b'k', 4];
    let before = leaf_of(&core, &key);
    let calls = append_byte(&core, &key, |call| {
        if call > 1 {
            return;
        }
        let guard = core.tree.pin();
        {
            let _ownership = before.try_own().expect("nobody maintains it");
            before.seal(&guard);
            core.upkeep().pack(&before, Goal::Keep, &mut core.upkeep().retention(), &guard);
        }
        assert!(!Arc::ptr_eq(&before, &leaf_of(&core, &key)), "the leaf was not split before the key");
        put(&core, &key, b"v2");
        // The others of its leaf become short as well, so that one leaf has room for all.
        let low = leaf_of(&core, &key).low();
        let others = [&[b'k', 2, 0][..], &[b'k', 3]];
        others.into_iter().filter(|other| **other >= *low).for_each(|other| put(&core, other, b"short"));
        let _ownership = before.try_own().expect("nobody maintains it");
        core.upkeep()
            .with_packs(&mut core.upkeep().background_retention(), &guard, |packs| packs.join_right(&before));
        assert!(Arc::ptr_eq(&before, &leaf_of(&core, &key)), "the key did not come back");
    });
    assert_eq!((calls, get(&core, &key).as_deref()), (2, Some(&b"v2+"[..])));
}

#[test]
fn a_key_that_expires_before_its_update_is_written_does_not_come_back() {
    let clock = crate::Clock::manual(1_000);
    let core = Core::new(&Options { clock: clock.clone(), ..options() });
    let meta = PutMeta { expires_at_ms: Some(2_000), flags: 0 };
    core.put(b"key", b"old", meta).expect("no limit is set");
    let calls = append_byte(&core, b"key", |call| {
        if call == 1 {
            clock.advance(Duration::from_secs(1));
            assert_eq!(get(&core, b"key"), None);
        }
    });
    assert_eq!((calls, get(&core, b"key").as_deref()), (2, Some(&b"+"[..])));
}

#[test]
fn conditions_of_a_batch_are_checked_in_steps_that_grow_with_the_batch() {
    let core = Core::new(&options());
    let leaf = leaf_of(&core, b"");
    // Nobody packs what the first batch landed, as while another thread is at it.
    let ownership = leaf.try_own().expect("nobody maintains it");
    let keys = 5_000u32;
    let batch = |from: u32, put_only: bool| {
        (from..from + keys).fold(Batch::new(), |batch, n| {
            let batch = batch.put(&n.to_be_bytes(), b"value");
            if put_only { batch } else { batch.require(&n.to_be_bytes(), Condition::Absent) }
        })
    };
    assert_eq!(core.write(&batch(0, true)), Ok(true));
    let before = STEPS.get();
    assert_eq!(core.write(&batch(keys, false)), Ok(true));
    let steps = STEPS.get() - before;
    assert!(steps < 20 * u64::from(keys), "{steps} slots were compared for {keys} conditions");
    // The answers are those of single searches.
    let one = |n: u32, condition| core.write(&Batch::new().require(&n.to_be_bytes(), condition));
    assert_eq!((one(7, Condition::Absent), one(7, Condition::Exists)), (Ok(false), Ok(true)));
    let many = |condition: &Condition, last: u32| {
        (0..100)
            .chain([last])
            .fold(Batch::new(), |batch, n: u32| batch.require(&n.to_be_bytes(), condition.clone()))
    };
    let is = |value: &[u8]| Condition::ValueIs(value.to_vec());
    assert_eq!(core.write(&many(&Condition::Exists, 9_999)), Ok(true));
    assert_eq!(core.write(&many(&Condition::Exists, 10_000)), Ok(false));
    assert_eq!(core.write(&many(&is(b"value"), 9_999)), Ok(true));
    core.modify(&9_999u32.to_be_bytes(), Wanted::Presence, |_| Update::Delete).expect("no limit is set");
    assert_eq!(core.write(&many(&is(b"value"), 9_999)), Ok(false));
    drop(ownership);
    core.settle();
    assert_eq!(core.write(&many(&is(b"value"), 9_998)), Ok(true));
    assert_eq!(core.tree.ranges().count_keys(), 9_999);
}

#[test]
fn a_leaf_that_was_closed_when_its_turn_came_waits_for_its_next_one() {
    let core = Core::new(&Options { eviction: true, ..options() });
    (0..200u8).for_each(|n| put(&core, &[b'k', n], &[n; 20]));
    core.settle();
    let leaf = leaf_of(&core, b"");
    let waits = || leaf.waits.iter().any(|stamp| stamp.load(std::sync::atomic::Ordering::Relaxed) != NOWHERE);
    assert!(waits());
    let ownership = leaf.try_own().expect("nobody maintains it");
    leaf.close(&core.tree.pin());
    core.tree.gauges.set_limit(Some(core.tree.gauges.held() / 2));
    core.reclaimer().evict_in_background();
    let guard = core.tree.pin();
    leaf.reopen(leaf.state(&guard), &guard);
    drop(ownership);
    drop(guard);
    assert!(waits(), "nobody will look at the leaf any more");
    while core.reclaimer().evict_in_background() {}
    assert!(core.tree.stats.evicted.get() > 0);
}

#[test]
fn writers_do_not_wait_for_the_reader_of_a_value_that_is_gone() {
    let core = Core::new(&options());
    put(&core, b"key", &[7; 1 << 20]);
    core.settle();
    let guard = core.tree.pin();
    let (leaf, state) = core.tree.locate(b"key", &guard);
    let Lookup::Found(Found { payload: Payload::Large(large), .. }) =
        state.find(b"key", key_hash(b"key"), &core.tree.commits).0
    else {
        panic!("a value of this length is a large one")
    };
    let ownership = leaf.try_own().expect("nobody maintains it");
    put(&core, b"key", b"small");
    leaf.seal(&guard);
    core.upkeep().pack(leaf, Goal::Keep, &mut core.upkeep().retention(), &guard);
    assert!(core.tree.gauges.retired_soon_free() >= 1 << 20);
    let share = large.share();
    drop(ownership);
    drop(guard);
    core.tree.reclaim();
    assert!(core.tree.gauges.retired.held() >= 1 << 20, "the reader has it still");
    assert!(core.tree.gauges.retired_soon_free() < 1 << 16, "{} bytes", core.tree.gauges.retired_soon_free());
    drop(share);
    core.tree.reclaim();
    assert_eq!((core.tree.gauges.retired.held(), core.tree.gauges.retired_shared.held()), (0, 0));
}

#[test]
fn clearing_a_store_holds_no_epoch_while_it_waits_for_a_leaf() {
    let core = Core::new(&options());
    put(&core, b"key", b"value");
    core.settle();
    let leaf = leaf_of(&core, b"key");
    let ownership = leaf.try_own().expect("nobody maintains it");
    std::thread::scope(|scope| {
        let clearing = scope.spawn(|| core.maintenance().clear());
        // The other thread comes to wait for the leaf, and what is retired meanwhile is freed again and again.
        for _ in 0..200 {
            let guard = core.tree.pin();
            let closed = leaf.close(&guard);
            leaf.reopen(closed, &guard);
            drop(guard);
            until("nothing is held back", || {
                core.tree.reclaim();
                core.tree.gauges.retired.held() == 0
            });
        }
        drop(ownership);
        assert_eq!(clearing.join().expect("it ends"), Ok(()));
    });
    assert_eq!(core.tree.ranges().count_keys(), 0);
}

/// A visit of the sweep ended after a thousand rounds, and the leaf kept its landing.
#[test]
fn a_settle_waits_for_a_thread_that_maintains_a_leaf_as_long_as_that_takes() {
    let core = Core::new(&options());
    put(&core, b"key", b"value");
    let leaf = leaf_of(&core, b"key");
    let ownership = leaf.try_own().expect("nobody maintains it");
    std::thread::scope(|scope| {
        let settling = scope.spawn(|| core.settle());
        // Two visits would have ended by then.
        std::thread::sleep(Duration::from_millis(500));
        assert!(!settling.is_finished(), "the leaf was left as it was");
        drop(ownership);
    });
    assert_eq!(core.tree.gauges.landing.held(), 0);
}

/// A store of two leaves with little in them, and its left one. The first key is `k0`, and the last one `k5`.
fn with_two_leaves() -> (Core, Arc<Leaf>) {
    let core = Core::new(&options());
    // Too much for one body: two leaves, which are small after that.
    (0..6u8).for_each(|n| put(&core, &[b'k', n], &[n; 2_000]));
    core.settle();
    (0..6u8).for_each(|n| put(&core, &[b'k', n], &[n; 20]));
    let leaf = leaf_of(&core, &[b'k', 0]);
    assert!(!Arc::ptr_eq(&leaf, &leaf_of(&core, &[b'k', 5])));
    (core, leaf)
}

/// Writes both keys in a batch after `leaf` was joined with its neighbour and before the index knows, and once more
/// after that. `is_joined` tells of the leaf. A batch that is written is read at once.
fn write_beside_a_join(core: &Core, leaf: &Leaf, [near, last]: [&[u8]; 2], is_joined: impl Fn() -> bool) {
    let batch = Batch::new().put(near, b"new").put(last, b"new");
    let written = |waits| {
        let written = core.writes().write_waiting(&batch, waits).expect("no limit is set").is_some();
        assert!(!written || get(core, last).as_deref() == Some(&b"new"[..]), "the value before was read");
        written
    };
    std::thread::scope(|scope| {
        let index = core.tree.index.hold();
        let joining = scope.spawn(|| {
            let guard = core.tree.pin();
            let _ownership = leaf.try_own().expect("nobody maintains it");
            core.upkeep()
                .with_packs(&mut core.upkeep().background_retention(), &guard, |packs| packs.join_right(leaf))
        });
        while !is_joined() && !joining.is_finished() {
            std::thread::yield_now();
        }
        written(false);
        drop(index);
        assert_eq!(joining.join().ok(), Some(true));
    });
    assert!(written(true));
}

#[test]
fn a_batch_in_a_leaf_that_absorbs_its_neighbour_is_read_at_once() {
    let (core, leaf) = with_two_leaves();
    let (first, last) = ([b'k', 0], [b'k', 5]);
    write_beside_a_join(&core, &leaf, [&first, &last], || leaf.state(&core.tree.pin()).covers(&last));
}

#[test]
fn a_batch_in_a_new_leaf_with_keys_of_a_leaf_that_is_gone_is_read_at_once() {
    let (core, leaf) = with_two_leaves();
    let (near, last) = ([b'k', 0, 19], [b'k', 5]);
    {
        // The landing waits to be packed: the left leaf alone has more than a body.
        let _ownership = leaf.try_own().expect("nobody maintains it");
        let long = (0..20u8).fold(Batch::new(), |batch, n| batch.put(&[b'k', 0, n], &[n; 1_000]));
        assert_eq!(core.write(&long), Ok(true));
    }
    write_beside_a_join(&core, &leaf, [&near, &last], || {
        let guard = core.tree.pin();
        let is_joined = !leaf.state(&guard).covers(&near);
        assert!(
            !is_joined || core.tree.locate(&near, &guard).1.covers(&last),
            "no new leaf has keys of both"
        );
        is_joined
    });
}
