//! Leaves that keep the background awake for nothing.

use std::sync::Arc;
use std::time::Duration;

use ziptier_codec::token::Dictionary;
use ziptier_tree::body::{Builder, Entry, EntryKey, fingerprint};
use ziptier_tree::codec_options::CodecChoice;
use ziptier_tree::coding::Coding;
use ziptier_tree::form::Form;
use ziptier_tree::leaf::{LeafState, RightSibling};
use ziptier_tree::record::{Fields, Kind, PutMeta, key_hash};

use super::*;
use crate::core::Core;
use crate::options::Options;

#[test]
fn a_damaged_value_that_keeps_its_leaf_in_its_coding_lets_the_sweep_rest() {
    let options = Options { codec: CodecChoice::Token, background_threads: 0, ..Options::default() };
    let core = Core::new(&options);
    let [older, current] = [1, 2].map(|generation| {
        let tokens = Dictionary::train(&[b"abcabcabcabc"], 12, generation).expect("the sample is sound");
        Coding::Tokens(Arc::new(tokens))
    });
    core.tree.dictionaries.adopt(current);
    {
        let guard = core.tree.pin();
        let (leaf, before) = core.tree.locate(&[], &guard);
        let entry = Entry {
            key: EntryKey::whole(b"key"),
            fingerprint: fingerprint(key_hash(b"key")),
            kind: Kind::Coded,
            fields: Fields::default(),
            payload: &[0xff; 9],
        };
        let state = LeafState::new(Builder::default().build(&[entry], None), None, RightSibling::none());
        assert!(leaf.publish(before, LeafState { form: Form::of(Some(older)), ..state }, &guard));
    }
    let mut sweep = Sweep::default();
    let laps = [(); 3].map(|()| {
        assert!(core.reclaimer().sweep(&mut sweep, 1), "there is one leaf");
        std::mem::take(&mut sweep.worked)
    });
    // The first lap finds out that nobody writes there.
    assert_eq!(laps[1..], [false, false]);
    let mut of_all = Sweep::of_all();
    assert!(core.reclaimer().sweep(&mut of_all, 1) && !of_all.worked);
    assert_eq!((core.tree.stats.recoded.get(), core.tree.stats.damaged.get()), (0, 1));
    // A write may have taken the place of the damaged value.
    core.put(b"key", b"value", PutMeta::default()).expect("no limit is set");
    core.settle();
    let guard = core.tree.pin();
    assert_eq!(core.tree.locate(&[], &guard).1.form.generation(), core.tree.dictionaries.generation());
}

#[test]
fn a_background_thread_rests_above_a_limit_for_which_nothing_can_go() {
    let options =
        Options { codec: CodecChoice::None, eviction: true, background_threads: 0, ..Options::default() };
    let core = Core::new(&options);
    for n in 0..1000_u32 {
        core.put(&n.to_be_bytes(), &[7; 100], PutMeta::default()).expect("no limit is set");
    }
    // Not even an empty store keeps to it.
    core.set_memory_limit(Some(1));
    let now = Instant::now();
    let mut work = Background::new(true, now);
    let later = now + Duration::from_secs(60);
    assert!((0..100_000).any(|_| !core.maintenance().do_next(&mut work, later)), "it goes on for ever");
    assert!(core.tree.stats.evicted.get() > 0);
}
