use std::time::Duration;

use super::*;
use crate::alone::Alone;
use crate::clock::Clock;
use crate::record::PutMeta;

/// The log has a later delete of the key only then.
#[test]
fn an_expired_record_that_goes_as_leaves_are_joined_is_noted() {
    let clock = Clock::manual(1_000);
    let alone = Alone::with_clock(CodecChoice::None, clock.clone());
    let put = |n: u8, len: usize, expires_at_ms: Option<u64>| {
        let meta = PutMeta { expires_at_ms, flags: 0 };
        alone.put(&[n], &vec![n; len], meta).expect("no limit is set");
    };
    // Too much for one body: two leaves, which are small after that.
    (0..6).for_each(|n| put(n, 2_000, None));
    alone.settle();
    (0..6).for_each(|n| put(n, 20, (n == 5).then_some(2_000)));
    let (left, right) = (alone.tree.share_at(&[0]).0, alone.tree.share_at(&[5]).0);
    assert!(!Arc::ptr_eq(&left, &right), "one body has room for all");
    clock.advance(Duration::from_secs(1));
    assert!(!alone.tree.has_dropped());
    {
        let guard = alone.tree.pin();
        let _ownership = left.try_own().expect("nobody maintains it");
        assert!(alone.join(&left, &guard));
    }
    assert!(alone.tree.has_dropped());
    assert_eq!(alone.tree.ranges().count_keys(), 5);
}
