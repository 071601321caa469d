//! A lost job hangs its owner. A job that ends twice gives one owner the bytes of another.

#![allow(clippy::unwrap_used)]

mod soak;

#[test]
fn under_injected_faults() {
    let tally = soak::soak(100_000, 0x0005_EED0_F1A1);
    assert_eq!((tally.taken, tally.lost, tally.twice, tally.wrong), (100_000, 0, 0, 0), "{tally:?}");
    assert_eq!(tally.ends.values().sum::<u64>(), 100_000);
    for end in ["success", "watchdog", "hardware", "does not fit", "damaged", "page fault", "contradiction"] {
        assert!(tally.ends.contains_key(end), "{end}: {tally:?}");
    }
    assert!(tally.counters.page_faults > 0 && tally.counters.queue_full > 0);
}
