use ziptier_tree::batch::Batch;
use ziptier_tree::codec_options::CodecChoice;
use ziptier_tree::far::FarMemory;
use ziptier_tree::record::{PutMeta, key_hash};
use ziptier_tree::sizes::CHUNK_BYTES;

use super::*;
use crate::core::Core;
use crate::options::{MEMORY_LIMIT_BYTES_MIN, Options};

/// Bytes of the bodies that the index leads to.
fn reachable_bytes(core: &Core) -> u64 {
    let (guard, mut cursor, mut bytes) = (core.tree.pin(), Some(Vec::new()), 0);
    while let Some(low) = cursor {
        let state = core.tree.locate(&low, &guard).1;
        bytes += ziptier_tree::memory::allocated_bytes(state.body.dram_bytes()) as u64;
        cursor = state.high.as_ref().map(|high| high.to_vec());
    }
    bytes
}

#[test]
fn bodies_of_leaves_that_were_joined_are_freed_and_count_as_retired_until_then() {
    let options = Options {
        memory_limit_bytes: Some(2 << 20),
        eviction: true,
        codec: CodecChoice::None,
        background_threads: 0,
        ..Options::default()
    };
    let core = Core::new(&options);
    for n in 0..40_000u64 {
        let key = n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        core.put(&key, &[7; 100], PutMeta::default()).expect("others go");
        if n % 5_000 == 4_999 {
            assert_eq!(core.tree.gauges.body_bytes(), reachable_bytes(&core), "after {n} records");
        }
    }
    core.settle();
    assert!(core.tree.stats.merges.get() > 100 && core.tree.stats.evicted.get() > 10_000);
    assert_eq!(core.tree.gauges.body_bytes(), reachable_bytes(&core));
}

#[test]
fn the_body_of_a_leaf_that_was_joined_counts_as_retired_while_somebody_reads() {
    let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
    let core = Core::new(&options);
    let put_all = |len| {
        (0..6u8).for_each(|n| {
            core.put(&[n], &vec![n; len], PutMeta::default()).expect("no limit is set");
        });
    };
    put_all(2_000);
    core.settle();
    put_all(20);
    let (guard, retired) = (core.tree.pin(), core.tree.gauges.retired.held());
    let (leaf, state) = core.tree.locate(&[], &guard);
    let right = state.right(&guard).expect("one body has no room for all");
    let right_bytes = ziptier_tree::memory::allocated_bytes(right.state(&guard).body.dram_bytes()) as u64;
    let _ownership = leaf.try_own().expect("nobody maintains it");
    core.upkeep()
        .with_packs(&mut core.upkeep().background_retention(), &guard, |packs| packs.join_right(leaf));
    assert_eq!(core.tree.stats.merges.get(), 1);
    assert_eq!(core.tree.gauges.body_bytes(), reachable_bytes(&core));
    assert!(core.tree.gauges.retired.held() >= retired + right_bytes);
}

/// A store that evicts. It has one leaf, whose records are in the main queue.
fn core_of_one_leaf() -> Core {
    let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
    let core = Core::new(&options);
    for n in 0..100u8 {
        core.put(&[n], &[n; 20], PutMeta::default()).expect("no limit is set");
    }
    core.settle();
    assert!(core.tree.locate(&[], &core.tree.pin()).1.high.is_none(), "one body has room for all");
    core.reclaimer().set_eviction(true).expect("there is no SSD");
    core
}

#[test]
fn a_leaf_whose_turn_comes_while_an_epoch_passes_is_visited() {
    let core = core_of_one_leaf();
    let turn = core.eviction.next_leaf(true).expect("the leaf waits");
    // Records come to the queue by way of another thread.
    core.eviction.main.number.fetch_add(1, Relaxed);
    core.reclaimer().visits().visit_waiting(&core.eviction, &turn, u64::MAX);
    assert!(core.tree.stats.evicted.get() > 0, "nobody will look at the leaf any more");
}

#[test]
fn marks_that_readers_put_back_do_not_hold_eviction_up() {
    let core = core_of_one_leaf();
    core.eviction.main.number.store(10, Relaxed);
    {
        let guard = core.tree.pin();
        let (leaf, state) = core.tree.locate(&[], &guard);
        let marks = || leaf.marks.all(&guard).iter().take(state.body.len());
        // Each reader found the mark of a record that was to go, and wrote it after the pack had.
        marks().for_each(|mark| mark.store(Mark(mark.load(Relaxed)).going().read().0, Relaxed));
        core.eviction.line_up(leaf, marks().map(|mark| Mark(mark.load(Relaxed))), &guard);
    }
    core.tree.gauges.set_limit(Some(core.tree.gauges.held() / 2));
    assert!((0..1000).any(|_| !core.reclaimer().evict_in_background()), "it visits the leaf for ever");
    assert!(core.tree.stats.evicted.get() > 0);
}

/// A batch that its leaf has no room for: the leaf is closed, and its records are merged a second time.
#[test]
fn a_key_that_comes_back_as_its_leaf_is_cut_goes_to_the_main_queue() {
    let core = core_of_one_leaf();
    let returning = key_hash(&[100]);
    core.eviction.ghosts.lock().resize(1_000, &core.tree.gauges);
    core.eviction.ghosts.lock().put(returning);
    let batch = (100..110u8).fold(Batch::new(), |batch, n| batch.put(&[n], &[n; 2_000]));
    assert_eq!(core.write(&batch), Ok(true));
    assert!(core.tree.stats.splits.get() > 0, "one body has room for all");
    let guard = core.tree.pin();
    let is_main = |key: u8| {
        let (leaf, state) = core.tree.locate(&[key], &guard);
        let place = state.body.find(&[key], key_hash(&[key])).expect("it was packed");
        Mark(leaf.marks.all(&guard)[place].load(Relaxed)).is_main()
    };
    assert!(is_main(100) && !is_main(101));
    assert!(!core.eviction.ghosts.lock().take(returning), "it is taken for a ghost again");
}

/// Far memory takes the first chunks of a value, refuses the last one, and has room for the first ones again.
#[test]
fn a_cache_evicts_when_far_memory_has_room_for_parts_of_values_alone() {
    let options = Options {
        memory_limit_bytes: Some(MEMORY_LIMIT_BYTES_MIN),
        eviction: true,
        codec: CodecChoice::None,
        background_threads: 0,
        ..Options::default()
    };
    let core = Core::with_far(&options, FarMemory::on_heap(CHUNK_BYTES as u64 * 3 / 2));
    for n in 0..4 * MEMORY_LIMIT_BYTES_MIN / (2 * CHUNK_BYTES as u64) {
        let put = core.put(&n.to_be_bytes(), &vec![n as u8; 2 * CHUNK_BYTES], PutMeta::default());
        assert_eq!(put, Ok(()), "value {n}, {:?}", core.tree.gauges.memory_use());
    }
    assert!(core.tree.stats.evicted.get() > 0);
}
