//! CPU time of a write of a store alone, work of the background included: `write_cost KEYS VALUE_BYTES SETS FILE`.
//!
//! Keys `key:%012d`, loaded in a scattered order, then set by chance; values from hashed places of FILE. Prints
//! microseconds of CPU time of the process per record until the process is quiet, the part after the last write, the
//! bytes of values that were coded per byte that was written, and bytes held per raw byte.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::error::Error;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use ziptier::{Options, Store};

use common::{key, scattered};

/// As the program: see `heap.rs` there.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [keys, value_bytes, sets, file] = arguments.as_slice() else {
        return Err("usage: write_cost KEYS VALUE_BYTES SETS FILE".into());
    };
    let (keys, value_bytes, sets): (u64, u64, u64) = (keys.parse()?, value_bytes.parse()?, sets.parse()?);
    let text = std::fs::read(file)?;
    let store = Store::open(Options::default())?;
    let value = |n: u64| {
        let place = (scattered(n) % (text.len() as u64 - value_bytes)) as usize;
        &text[place..place + value_bytes as usize]
    };
    let held = || store.memory().total_bytes() as f64 / (keys * (16 + value_bytes)) as f64;
    phase(&store, "load", keys, || {
        for n in 0..keys {
            let n = (u128::from(n) * 2_654_435_761 % u128::from(keys)) as u64;
            store.put(&key(n), value(n)).unwrap();
        }
        println!("held per raw {:.3} at the last write", held());
    });
    println!("held per raw {:.3}", held());
    let mut random = fastrand::Rng::with_seed(1);
    phase(&store, "set", sets, || {
        for n in 0..sets {
            store.put(&key(random.u64(..keys)), value(keys + n)).unwrap();
        }
        println!("held per raw {:.3} at the last write", held());
    });
    println!("held per raw {:.3}", held());
    Ok(())
}

fn phase(store: &Store, name: &str, records: u64, work: impl FnOnce()) {
    let (before, coded_before) = (cpu_us(), coded_bytes(store));
    let written_before = store.stats().written_bytes;
    work();
    let worked = cpu_us();
    let mut last = worked;
    let mut quiet = 0;
    // A round over leaves that were written to waits for seconds at most.
    while quiet < 25 {
        std::thread::sleep(Duration::from_millis(300));
        let now = cpu_us();
        quiet = if now - last < 2_000.0 { quiet + 1 } else { 0 };
        last = now;
    }
    let per_record = |us: f64| us / records as f64;
    let written = store.stats().written_bytes - written_before;
    println!(
        "{name}: {:.2} us, {:.2} of them afterwards, {:.2} coded per byte written",
        per_record(last - before),
        per_record(last - worked),
        (coded_bytes(store) - coded_before) as f64 / written as f64
    );
}

fn coded_bytes(store: &Store) -> u64 {
    store.stats().coded_raw_bytes
}

fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
