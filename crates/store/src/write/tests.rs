use super::*;
use crate::codec_options::CodecChoice;
use crate::core::Core;
use crate::options::Options;
use crate::seen::Wanted;
use crate::update::Update;

// Thousands of packs, which Miri sees elsewhere.
#[test]
#[cfg(not(miri))]
fn the_more_records_a_leaf_has_the_more_its_landing_takes() {
    let options = Options { background_threads: 0, landing_bytes: 256, ..Options::default() };
    let core = Core::new(&options);
    let writes = 4_000;
    for n in 0u32..writes {
        core.put(&(n * 7 % 200).to_be_bytes(), &[7; 20], PutMeta::default()).expect("no limit is set");
    }
    // Seven of these records take 256 bytes, and a twentieth of all are ten.
    let packs = core.tree.stats.packs_foreground.get();
    assert!(packs <= u64::from(writes) / 9, "{packs}");
}

#[test]
#[cfg(not(miri))]
fn records_of_a_leaf_with_few_share_the_copy_of_its_body() {
    for (value_bytes, shared) in [(600, 3), (1_500, 2)] {
        let options = Options { background_threads: 0, codec: CodecChoice::None, ..Options::default() };
        let core = Core::new(&options);
        let writes = 1_200;
        for n in 0u32..writes {
            core.put(&(n * 7 % 12).to_be_bytes(), &vec![7; value_bytes], PutMeta::default())
                .expect("no limit is set");
        }
        // A landing is sealed by the record that it has no room for.
        let packs = core.tree.stats.packs_foreground.get();
        assert!(packs <= u64::from(writes / shared), "{packs} packs of values of {value_bytes} bytes");
    }
}

/// A key of a leaf of 20 is given another expiry in the open landing, and outlives the first one; the leaf is packed
/// then.
#[test]
#[cfg(not(miri))]
fn what_is_given_more_time_in_the_open_landing_stays() {
    use crate::clock::Clock;
    use crate::packing::Goal;
    for value in [vec![7; 20], vec![7; 5000]] {
        for later in [None, Some(1 << 44)] {
            let clock = Clock::manual(1_000);
            let core =
                Core::new(&Options { background_threads: 0, clock: clock.clone(), ..Options::default() });
            for n in 0u32..20 {
                let expires_at_ms = (n == 7).then_some(1_040);
                core.put(&n.to_be_bytes(), &value, PutMeta { expires_at_ms, flags: 0 })
                    .expect("no limit is set");
            }
            core.settle();
            let key = 7u32.to_be_bytes();
            let update = core.modify(&key, Wanted::Meta, |_| Update::Expire(later)).expect("it is there");
            assert_eq!(update, Update::Expire(later));
            clock.advance(std::time::Duration::from_millis(40));
            let guard = core.tree.pin();
            let (leaf, _) = core.tree.locate(&[], &guard);
            let ownership = leaf.try_own().expect("nobody maintains it");
            core.upkeep().pack(leaf, Goal::Keep, &mut core.upkeep().retention(), &guard);
            drop(ownership);
            drop(guard);
            let get = || core.read(&7u32.to_be_bytes(), &mut Vec::new()).expect("it is whole");
            assert_eq!(get().map(|meta| meta.expires_at_ms), Some(later));
            core.settle();
            assert_eq!(get().map(|meta| meta.expires_at_ms), Some(later));
        }
    }
}

#[test]
fn a_landing_above_the_watermark_waits_for_a_packer_and_takes_appends_meanwhile() {
    let options = Options {
        landing_bytes: 1024,
        background_packing: true,
        landing_watermark_pct: 50,
        ..Options::default()
    };
    // No packer is started.
    let core = Core::new(&options);
    for n in 0u32..8 {
        core.put(&n.to_be_bytes(), &[7; 100], PutMeta::default()).expect("no limit is set");
        let guard = core.tree.pin();
        let (leaf, state) = core.tree.locate(&[], &guard);
        assert_eq!(core.tree.is_over_watermark(state), n >= 4, "{n}");
        assert!(state.sealed.is_none());
        assert_eq!(leaf.enqueue(), n < 4, "{n}");
        if n < 4 {
            leaf.dequeue();
        }
    }
}
