//! A whole store in one thread: callers, background, log, checkpoints and disk take turns, drawn from a seed.
//!
//! Not for threads that race: `races`, `schedules` and the histories have those. Images are read in this thread where
//! the kernel has `io_uring`, and elsewhere by threads whose answers have the order of the questions.
//!
//! 1. A seed draws a store (`setup`) and its steps (`steps`): calls, work in the background, time that passes, a
//!    checkpoint, a disk that is full or fails, a kill, a power cut, a clean stop, a dump that is restored.
//! 2. The disk, far memory and both clocks are simulated. A step takes no time; time passes between steps.
//! 3. A model says after each step what the store must answer (`model`). After each start all keys are compared.
//! 4. The same seed takes the same steps with the same outcomes. A failure names the seed and the step, and
//!    `ZIPTIER_SEED=SEED ZIPTIER_SIMULATIONS=1` repeats it.

mod model;
mod reached;
mod setup;
mod steps;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use ziptier_testing::{count, seed};

use reached::Reached;
use world::World;
use ziptier_tree::clock::simulated;
use ziptier_tree::faults::{self, InjectedFault};

/// Steps of a simulation.
const STEPS: u64 = 10_000;
/// Stores that together reach all that any does.
const STORES_THAT_REACH_ALL: u64 = 100;
/// Simulations until a fault must have been found.
const SEEDS_PER_FAULT: u64 = 1000;

/// Simulates a store for so many steps. Returns a hash of all outcomes, and adds what was `reached`.
fn simulate(seed: u64, steps: u64, reached: &mut Reached) -> u64 {
    simulated::NOW.set(Some(Instant::now()));
    let mut world = World::new(seed, std::mem::take(reached));
    for step in 0..steps {
        world.step(step);
    }
    let (outcomes, sums) = world.end();
    *reached = sums;
    outcomes
}

/// Simulates the stores of a part of all seeds, one in four.
fn simulate_part(part: u64) {
    let (first, seeds) = (seed(), count("ZIPTIER_SIMULATIONS", 1000));
    let (mut reached, mut stores) = (Reached::default(), 0);
    for n in (part..seeds).step_by(4) {
        simulate(first + n, STEPS, &mut reached);
        stores += 1;
    }
    let missing = reached.missing(stores);
    assert!(missing.is_empty() || stores < STORES_THAT_REACH_ALL, "no store reached {missing:?}");
}

#[test]
fn a_store_answers_as_its_model_does_whatever_fails_in_part_0() {
    simulate_part(0);
}

#[test]
fn a_store_answers_as_its_model_does_whatever_fails_in_part_1() {
    simulate_part(1);
}

#[test]
fn a_store_answers_as_its_model_does_whatever_fails_in_part_2() {
    simulate_part(2);
}

#[test]
fn a_store_answers_as_its_model_does_whatever_fails_in_part_3() {
    simulate_part(3);
}

#[test]
fn the_same_seed_has_the_same_outcomes() {
    for seed in seed()..seed() + 8 {
        let outcomes = || simulate(seed, STEPS, &mut Reached::default());
        assert_eq!(outcomes(), outcomes(), "seed {seed}");
    }
}

#[test]
fn each_fault_that_is_put_in_is_found() {
    let outcomes_of = |seed| simulate(seed, STEPS, &mut Reached::default());
    for fault in InjectedFault::ALL {
        faults::put_in(Some(fault));
        let found = (0..SEEDS_PER_FAULT)
            .find(|n| catch_unwind(AssertUnwindSafe(|| outcomes_of(seed() + n))).is_err());
        faults::put_in(None);
        eprintln!("{fault:?} was found by simulation {found:?}");
        let found = found.unwrap_or_else(|| panic!("{fault:?} was not found in {SEEDS_PER_FAULT}"));
        // The fault alone is to blame.
        outcomes_of(seed() + found);
    }
}
