//! Runs ten million jobs, or as many as the first argument says, on two devices that fail in every possible way: `cargo
//! run --release -p ziptier-accel --example injected_faults`.

#![allow(clippy::unwrap_used)]

#[path = "../tests/soak/mod.rs"]
mod soak;

fn main() {
    let jobs = std::env::args().nth(1).map_or(Ok(10_000_000), |jobs| jobs.parse()).expect("a number of jobs");
    let tally = soak::soak(jobs, 0x0005_EED0_F1A1);
    let mut ends: Vec<_> = tally.ends.iter().collect();
    ends.sort_unstable();
    ends.iter().for_each(|(end, count)| println!("{end}: {count}"));
    println!("{:?}", tally.counters);
    println!("{} jobs: {} lost, {} ended twice, {} wrong", tally.taken, tally.lost, tally.twice, tally.wrong);
    assert_eq!((tally.lost, tally.twice, tally.wrong), (0, 0, 0));
}
