//! Nanoseconds of a look-up in a settled store: `look_ups KEYS FILE [ROUNDS]`.
//!
//! Keys `key:%012d`, values of 128 bytes from hashed places of FILE, loaded in a scattered order. Prints CPU time of
//! the reading thread per key, alone and in groups of 16, the least and the median of the rounds, and what the
//! process's other threads did meanwhile.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::error::Error;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use ziptier::{Options, Store, Values};

use common::{key, scattered};

/// As the program: see `heap.rs` there.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const VALUE_BYTES: u64 = 128;
const GROUP: usize = 16;
const LOOK_UPS: u64 = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(keys), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: look_ups KEYS FILE [ROUNDS]".into());
    };
    let keys: u64 = keys.parse()?;
    let text = std::fs::read(file)?;
    let rounds: usize = arguments.next().map_or(Ok(5), |rounds| rounds.parse())?;

    let store = Store::open(Options::default())?;
    let began = Instant::now();
    for n in 0..keys {
        let n = (u128::from(n) * 2_654_435_761 % u128::from(keys)) as u64;
        let place = (scattered(n) % (text.len() as u64 - VALUE_BYTES)) as usize;
        store.put(&key(n), &text[place..place + VALUE_BYTES as usize])?;
    }
    println!("loaded in {:.1} s", began.elapsed().as_secs_f64());
    store.settle()?;
    let held = store.memory().total_bytes() as f64 / (keys * (16 + VALUE_BYTES)) as f64;
    println!("settled after {:.1} s, held per raw {held:.3}", began.elapsed().as_secs_f64());

    let mut random = fastrand::Rng::with_seed(1);
    let (mut value, mut values) = (Vec::new(), Values::default());
    let (mut single, mut grouped) = (Vec::new(), Vec::new());
    let (all_before, own_before) = (cpu_ns(ClockId::ProcessCPUTime), cpu_ns(ClockId::ThreadCPUTime));
    for _ in 0..rounds {
        single.push(timed(|| {
            for _ in 0..LOOK_UPS {
                store.get_into(&key(random.u64(..keys)), &mut value).unwrap();
                assert_eq!(value.len() as u64, VALUE_BYTES);
            }
        }));
        grouped.push(timed(|| {
            for _ in 0..LOOK_UPS / GROUP as u64 {
                let group: [_; GROUP] = std::array::from_fn(|_| key(random.u64(..keys)));
                store.multi_get(&group, &mut values).unwrap();
                assert!(values.get(GROUP - 1).is_some());
            }
        }));
    }
    let own = cpu_ns(ClockId::ThreadCPUTime) - own_before;
    let others = cpu_ns(ClockId::ProcessCPUTime) - all_before - own;
    for (name, ns) in [("get", &mut single), ("multi_get", &mut grouped)] {
        ns.sort_by(f64::total_cmp);
        println!("{name}: {:.0} ns a key at least, median {:.0}", ns[0], ns[rounds / 2]);
    }
    println!("other threads: {:.2} of the reader's CPU time", others / own);
    Ok(())
}

fn timed(work: impl FnOnce()) -> f64 {
    let before = cpu_ns(ClockId::ThreadCPUTime);
    work();
    (cpu_ns(ClockId::ThreadCPUTime) - before) / LOOK_UPS as f64
}

fn cpu_ns(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
