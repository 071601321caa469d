//! The ratio under mixes of sizes that break a stepped threshold.

use super::*;

const RATIOS: [(u32, u32); 5] = [(1, 3), (1, 1), (4, 1), (1, 8), (3, 5)];

/// Draws the size of value number `n`.
type Sizes = fn(&mut fastrand::Rng, u64) -> u64;

const MIXES: [(&str, Sizes); 8] = [
    ("uniform", |random, _| random.u64(32..2048)),
    ("one size", |_, _| 256),
    ("bimodal", |random, _| if random.bool() { 100 } else { 8192 }),
    ("few large", |random, _| if random.u8(..) < 16 { 4000 } else { 64 }),
    ("log-uniform", |random, _| (32.0 * 512f64.powf(random.f64())) as u64),
    ("zipf", |random, _| (64.0 / random.f64().max(0.01)) as u64),
    (
        "sizes that change",
        |random, n| if n < 30_000 { random.u64(32..200) } else { random.u64(4000..20_000) },
    ),
    (
        "sizes that shrink",
        |random, n| if n < 30_000 { random.u64(4000..20_000) } else { random.u64(32..200) },
    ),
];

/// How far the ratio is from the one that is set, relative to it.
fn error(placement: &Placement) -> f64 {
    let ratio = placement.bytes(Side::Far) as f64 / placement.bytes(Side::Dram) as f64;
    (ratio / (placement.far_parts as f64 / placement.dram_parts as f64) - 1.0).abs()
}

const WARM_UP: u64 = 5000;
const VALUES: u64 = 60_000;

#[test]
fn the_ratio_holds_for_every_mix_of_sizes() {
    for (mix, sizes) in MIXES {
        for (dram, far) in &RATIOS {
            let (placement, mut random) = (Placement::new(*dram, *far), fastrand::Rng::with_seed(5));
            for n in 0..VALUES {
                placement.place(sizes(&mut random, n));
                assert!(
                    n < WARM_UP || error(&placement) < 0.05,
                    "{mix} at {dram}:{far}, value {n}: {}",
                    error(&placement)
                );
            }
        }
    }
}

/// Values are freed at random, in one test the large ones half again as soon. The living values keep the ratio all the
/// same. (If far memory loses more bytes than are placed at all, no placement can keep the ratio.)
#[test]
fn the_ratio_holds_when_values_are_freed() {
    for (mix, sizes) in MIXES {
        for large_die_first in [false, true] {
            let (placement, mut random) = (Placement::new(1, 3), fastrand::Rng::with_seed(6));
            let mut live: Vec<(Side, u64)> = Vec::new();
            for n in 0..VALUES {
                let bytes = sizes(&mut random, n);
                live.push((placement.place(bytes), bytes));
                while live.len() > 16_000 {
                    let at = random.usize(..live.len());
                    if large_die_first && live[at].1 < 1000 && random.u8(..3) == 0 {
                        continue;
                    }
                    let (side, bytes) = live.swap_remove(at);
                    placement.uncount(side, bytes);
                }
                assert!(n < WARM_UP || error(&placement) < 0.05, "{mix}, value {n}: {}", error(&placement));
            }
        }
    }
}

/// A threshold means that values in DRAM are smaller than values in far memory.
#[test]
fn small_values_stay_in_dram() {
    let (placement, mut random) = (Placement::new(1, 1), fastrand::Rng::with_seed(7));
    let mut sums = [(0u64, 0u64); 2];
    for n in 0..VALUES {
        let bytes = random.u64(32..4096);
        let side = placement.place(bytes);
        if n >= WARM_UP {
            sums[side as usize].0 += bytes;
            sums[side as usize].1 += 1;
        }
    }
    let [dram, far] = sums.map(|(bytes, values)| bytes as f64 / values as f64);
    assert!(far > 1.9 * dram, "the mean is {dram} in DRAM and {far} in far memory");
    // Half of the bytes of sizes uniform up to 4096 lie above 4096 / sqrt 2.
    assert!((2600..3100).contains(&placement.threshold_bytes()), "{}", placement.threshold_bytes());
}

/// After every DRAM value is freed, new values fill DRAM until the ratio is right, and the bytes to move say so.
#[test]
fn a_ratio_that_frees_have_broken_is_mended() {
    let (placement, mut random) = (Placement::new(1, 1), fastrand::Rng::with_seed(8));
    for _ in 0..WARM_UP {
        placement.place(random.u64(32..4096));
    }
    let far = placement.bytes(Side::Far);
    placement.uncount(Side::Dram, placement.bytes(Side::Dram));
    assert_eq!(placement.excess(), (Side::Far, far - far / 2));
    while placement.bytes(Side::Dram) * 100 < far * 98 {
        placement.place(random.u64(32..4096));
        assert!(placement.bytes(Side::Far) < far * 105 / 100);
    }
    assert!(error(&placement) < 0.05);
}

#[test]
fn a_side_without_parts_gets_nothing() {
    for (dram, far, side) in [(1, 0, Side::Dram), (0, 1, Side::Far)] {
        let placement = Placement::new(dram, far);
        assert!((1..2000).all(|n| placement.place(n) == side));
    }
}

#[test]
fn classes_are_an_eighth_of_a_doubling() {
    for bytes in (0..5000).chain([1 << 20, (1 << 40) + 12345, u64::MAX]) {
        let class = class(bytes);
        assert!(class < CLASSES && class_start(class) <= bytes, "{bytes}");
        assert!(class + 1 == CLASSES || class_start(class + 1) > bytes, "{bytes}");
        assert!(bytes - class_start(class) <= bytes / 8);
    }
}

#[test]
fn many_threads_count_every_byte() {
    let (placement, rounds) = (Placement::new(1, 3), if cfg!(miri) { 300 } else { 50_000 });
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (placement, mut random) = (&placement, fastrand::Rng::with_seed(seed));
            scope.spawn(move || (0..rounds).for_each(|_| _ = placement.place(random.u64(32..4096))));
        }
    });
    let mut total = 0;
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        total += (0..rounds).map(|_| random.u64(32..4096)).sum::<u64>();
    }
    assert_eq!(placement.bytes(Side::Dram) + placement.bytes(Side::Far), total);
    assert!(cfg!(miri) || error(&placement) < 0.05, "{}", error(&placement));
}
