use super::*;
use crate::alone::Alone;
use crate::codec_options::CodecChoice;
use crate::seen::Wanted;
use crate::tree::TreeOptions;
use crate::update::Update;

// Thousands of packs, which Miri sees elsewhere.
#[test]
#[cfg(not(miri))]
fn the_more_records_a_leaf_has_the_more_its_landing_takes() {
    let options = Alone::options(CodecChoice::Auto);
    let alone = Alone::with(&TreeOptions { landing_bytes: 256, ..options });
    let writes = 4_000;
    for n in 0u32..writes {
        alone.put(&(n * 7 % 200).to_be_bytes(), &[7; 20], PutMeta::default()).expect("no limit is set");
    }
    // Seven of these records take 256 bytes, and a twentieth of all are ten.
    let packs = alone.tree.stats.packs_foreground.get();
    assert!(packs <= u64::from(writes) / 9, "{packs}");
}

#[test]
#[cfg(not(miri))]
fn records_of_a_leaf_with_few_share_the_copy_of_its_body() {
    for (value_bytes, shared) in [(600, 3), (1_500, 2)] {
        let alone = Alone::new(CodecChoice::None);
        let writes = 1_200;
        for n in 0u32..writes {
            alone
                .put(&(n * 7 % 12).to_be_bytes(), &vec![7; value_bytes], PutMeta::default())
                .expect("no limit is set");
        }
        // A landing is sealed by the record that it has no room for.
        let packs = alone.tree.stats.packs_foreground.get();
        assert!(packs <= u64::from(writes / shared), "{packs} packs of values of {value_bytes} bytes");
    }
}

/// A key of a leaf of 20 is given another expiry in the open landing, and outlives the first one; the leaf is packed
/// then.
#[test]
#[cfg(not(miri))]
fn what_is_given_more_time_in_the_open_landing_stays() {
    use crate::clock::Clock;
    for value in [vec![7; 20], vec![7; 5000]] {
        for later in [None, Some(1 << 44)] {
            let clock = Clock::manual(1_000);
            let alone = Alone::with_clock(CodecChoice::Auto, clock.clone());
            for n in 0u32..20 {
                let expires_at_ms = (n == 7).then_some(1_040);
                alone
                    .put(&n.to_be_bytes(), &value, PutMeta { expires_at_ms, flags: 0 })
                    .expect("no limit is set");
            }
            alone.settle();
            let key = 7u32.to_be_bytes();
            let update =
                alone.writes().modify(&key, Wanted::Meta, |_| Update::Expire(later)).expect("it is there");
            assert_eq!(update, Update::Expire(later));
            clock.advance(std::time::Duration::from_millis(40));
            let guard = alone.tree.pin();
            let (leaf, _) = alone.tree.locate(&[], &guard);
            let ownership = leaf.try_own().expect("nobody maintains it");
            alone.pack(leaf, &guard);
            drop(ownership);
            drop(guard);
            let get = || alone.read(&7u32.to_be_bytes(), &mut Vec::new()).expect("it is whole");
            assert_eq!(get().map(|meta| meta.expires_at_ms), Some(later));
            alone.settle();
            assert_eq!(get().map(|meta| meta.expires_at_ms), Some(later));
        }
    }
}
