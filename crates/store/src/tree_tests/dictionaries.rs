//! Dictionaries that the engine trains as its data grows and changes.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ziptier_tree::codec_options::CodecChoice;
use ziptier_tree::coding::Coding;
use ziptier_tree::dictionaries::{DRIFT_BYTES_MIN, GENERATIONS_MAX, TrainingHost, coded_share};
use ziptier_tree::form::Form;
use ziptier_tree::record::PutMeta;

use crate::core::Core;
use crate::options::Options;
use ziptier_codec::token::Dictionary;

/// Ten bits have room for all words, so a larger dictionary is refused.
#[test]
fn a_store_that_has_grown_gets_codes_for_the_tokens_that_it_has() {
    let options = Options { codec: CodecChoice::Auto, background_threads: 0, ..Options::default() };
    let store = crate::Store::open(options).expect("a store without a folder opens");
    let core = &store.core;
    let current = || core.tree.dictionaries.current().expect("a dictionary was adopted");
    let put = |keys: std::ops::Range<u64>| {
        for n in keys {
            store.put(format!("key:{n:09}").as_bytes(), &chain(n)).expect("no limit is set");
        }
    };
    put(0..4_000);
    let before = current();
    assert!(!before.has_codes() && before.tokens().is_some_and(|tokens| tokens.bits() == 10));
    let mut keys = 4_000;
    while !current().has_codes() {
        put(keys..keys + 1_000);
        keys += 1_000;
        assert!(keys < 100_000, "{} trainings", core.tree.stats.trainings.get());
    }
    let now = current();
    assert_eq!(now.generation(), before.generation() + 1);
    let [new_form, old_form] = [now, before].map(|coding| Form::of(Some(coding)));
    assert!(new_form.codes_as(&old_form) && !old_form.codes_as(&new_form));
    // Leaves take the new generation as they are, and are then coded by entropy.
    let held = store.memory().total_bytes();
    store.settle().expect("no limit is set");
    assert!(store.memory().total_bytes() < held * 9 / 10, "{held}: {:?}", store.memory());
    for n in 0..keys {
        let value = store.get(format!("key:{n:09}").as_bytes()).expect("nothing is damaged");
        assert_eq!(value, Some(chain(n)), "key {n}");
    }
}

/// Words as long as a token, of which each has four successors.
fn chain(n: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n);
    let (mut word, mut value) = (random.u32(0..300), Vec::new());
    while value.len() < 400 {
        value.extend_from_slice(format!("{word:03} is a number,").as_bytes());
        word = (word * 5 + random.u32(0..4)) % 300;
    }
    value
}

#[test]
fn a_store_with_as_many_dictionaries_as_may_live_wants_no_room_for_another_one() {
    let options =
        Options { codec: CodecChoice::Token, eviction: true, background_threads: 0, ..Options::default() };
    let core = Core::new(&options);
    let live = [1, 2, 3, 4, 5, 6, 7, 8].map(|generation| {
        let tokens = Dictionary::train(&[b"of the sheep in the parlour"], 12, generation);
        Coding::Tokens(Arc::new(tokens.expect("the sample is sound")))
    });
    live.iter().for_each(|coding| core.tree.dictionaries.adopt(coding.clone()));
    assert_eq!(core.tree.dictionaries.count_live(), GENERATIONS_MAX);
    assert!(core.reclaimer().ask_for_training_room(1 << 20));
    assert!(!core.reclaimer().maintain_dictionary());
    assert_eq!(core.eviction.training_bytes.load(Relaxed), 0);
}

/// Words of a language of 2,000 words, which 10 bits are too few for.
fn words(n: u64) -> Vec<u8> {
    let mut value = Vec::new();
    for index in 0..40_u64 {
        let mixed = (n * 40 + index).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let word = (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) % 2000;
        value.extend(format!("{:x} ", word.wrapping_mul(2_654_435_761) % 0xfff_ffff).bytes());
    }
    value
}

#[test]
fn fresh_values_in_bodies_of_a_former_dictionary_are_no_reason_to_train() {
    let options = Options { codec: CodecChoice::Token, background_threads: 0, ..Options::default() };
    let core = Core::new(&options);
    let put = |n: u64, version: u64| {
        core.put(&n.to_be_bytes(), &words(version << 32 | n), PutMeta::default()).expect("no limit is set");
    };
    let mut keys = 0;
    while core.tree.stats.adoptions.get() < 2 {
        put(keys, 0);
        keys += 1;
        assert!(keys < 1 << 20, "{} trainings", core.tree.stats.trainings.get());
    }
    // Nobody codes their leaves anew.
    let first = keys / 8;
    for version in 1..100 {
        (0..first).for_each(|n| put(n, version));
    }
    let schedule = core.tree.dictionaries.schedule.lock();
    assert!(schedule.drift_bytes > DRIFT_BYTES_MIN, "no drift was suspected");
    assert_eq!(core.tree.stats.trainings.get(), 2);
}

fn slices(values: &[Vec<u8>]) -> Vec<&[u8]> {
    values.iter().map(Vec::as_slice).collect()
}

/// Its writers evicted for a training that the sample then told to be of no use.
#[test]
fn a_cache_makes_room_for_a_training_only_once_a_sample_tells_that_its_data_has_changed() {
    let options = Options {
        codec: CodecChoice::Token,
        eviction: true,
        memory_limit_bytes: Some(16 << 20),
        background_threads: 0,
        ..Options::default()
    };
    let core = Core::new(&options);
    // No first dictionary is looked for, so that all values lie raw.
    core.tree.dictionaries.first_bytes.store(u64::MAX, Relaxed);
    core.tree.dictionaries.schedule.lock().trained_at_bytes = 1 << 50;
    let value = |n: u64| words(n).repeat(4);
    let mut keys = 0_u64;
    while core.tree.stats.evicted.get() == 0 {
        core.put(&keys.to_be_bytes(), &value(keys), PutMeta::default()).expect("it evicts");
        keys += 1;
        assert!(keys < 1 << 20, "nothing was evicted");
    }
    let (known, fresh): (Vec<_>, Vec<_>) =
        ((0..400).map(value).collect(), (1 << 30..(1 << 30) + 400).map(value).collect());
    let tokens = Dictionary::train(&slices(&known), 10, 1).expect("the sample is sound");
    core.tree.dictionaries.adopt(Coding::Tokens(Arc::new(tokens)));
    let share = coded_share(core.tree.dictionaries.current().as_ref(), &slices(&fresh));
    // As if as much as the store holds had been written since, and had been coded badly.
    let logical_bytes = core.tree.gauges.logical.get() as i64;
    core.tree.dictionaries.fresh_raw.change(2 * logical_bytes);
    for (promised, is_wanted) in [(share, false), (share / 2.0, true)] {
        {
            let mut schedule = core.tree.dictionaries.schedule.lock();
            schedule.seen.0 = core.tree.dictionaries.fresh_raw.get();
            (schedule.promised, schedule.drift) = (promised, Some(0.5));
        }
        assert!(!core.reclaimer().maintain_dictionary());
        assert_eq!(core.eviction.training_bytes.load(Relaxed) > 0, is_wanted);
        assert_eq!(core.tree.dictionaries.schedule.lock().drift.is_some(), is_wanted);
    }
    assert_eq!(core.tree.stats.trainings.get(), 0);
}

/// A cache at rest keeps its records, whatever its background would like to train.
#[test]
fn writers_make_the_room_for_a_training_and_the_training_evicts_nothing() {
    const LIMIT_BYTES: u64 = 4 << 20;
    const TRAINING_BYTES: usize = 1 << 20;
    let options = Options {
        memory_limit_bytes: Some(LIMIT_BYTES),
        eviction: true,
        codec: CodecChoice::None,
        background_threads: 0,
        ..Options::default()
    };
    let core = Core::new(&options);
    let put = |n: u64| core.put(&n.to_be_bytes(), &[n as u8; 200], PutMeta::default()).expect("it evicts");
    (0..LIMIT_BYTES / 150).for_each(put);
    let evicted = core.tree.stats.evicted.get();
    assert!(evicted > 0);
    for _ in 0..100 {
        assert!(!core.reclaimer().has_room_to_train(TRAINING_BYTES));
        core.settle();
        while core.reclaimer().evict_in_background() {}
    }
    assert_eq!(core.tree.stats.evicted.get(), evicted);
    assert!(!core.reclaimer().has_room_to_train(TRAINING_BYTES));
    let needed = (0..).find(|n| {
        put(1 << 40 | n);
        core.reclaimer().has_room_to_train(TRAINING_BYTES)
    });
    assert!(needed.is_some_and(|writes| writes < LIMIT_BYTES / 150), "{needed:?}");
    assert!(core.tree.stats.evicted.get() > evicted);
}
