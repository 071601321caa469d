//! Data eight times the limit of DRAM, written and read for as long as it takes: `far_pressure OPERATIONS LIMIT_MIB
//! FAR`.
//!
//! Random puts and verified gets, half and half, of keys `key:%012d` whose values of 100 bytes say key and version.
//! Prints how far DRAM use went beyond the limit at most, as the store counts and as the system counts the process's
//! anonymous memory.
#![allow(clippy::unwrap_used, missing_docs)]

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use ziptier::{FarOptions, FarPlace, Options, Store};

/// As the program: see `heap.rs` there.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const KEY_BYTES: u64 = 16;
const VALUE_BYTES: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [operations, limit, far] = &arguments[..] else {
        return Err("usage: far_pressure OPERATIONS LIMIT_MIB FAR".into());
    };
    let (operations, limit_bytes): (u64, u64) = (operations.parse()?, limit.parse::<u64>()? << 20);
    let keys = 8 * limit_bytes / (KEY_BYTES + VALUE_BYTES as u64);
    let mut versions = vec![0u8; keys as usize];
    let own_bytes = anonymous_bytes();
    let far = FarOptions {
        place: FarPlace::File(far.into()),
        capacity_bytes: 16 * limit_bytes,
        require_dax: false,
    };
    let store =
        Store::open(Options { memory_limit_bytes: Some(limit_bytes), far: Some(far), ..Options::default() })?;
    println!("{}", store.far().unwrap());

    let (most_held, most_anonymous, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                // A watcher that loses its processor between two gauges sees what was never there.
                let held = (0..3).map(|_| store.memory().total_bytes()).min().unwrap();
                most_held.fetch_max(held, Relaxed);
                most_anonymous.fetch_max(anonymous_bytes().saturating_sub(own_bytes), Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            work(&store, operations, &mut versions)
        }));
        done.store(true, Relaxed);
        worked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    let per_cent = |bytes: &AtomicU64| 100.0 * bytes.load(Relaxed) as f64 / limit_bytes as f64;
    println!("{operations} operations in {:.0} s on {keys} keys", began.elapsed().as_secs_f64());
    println!(
        "held at most {:.1} % of the limit, anonymous memory {:.1} %",
        per_cent(&most_held),
        per_cent(&most_anonymous)
    );
    println!("{:?}\n{:?}", store.memory(), store.stats());
    if per_cent(&most_held) > 103.0 {
        return Err("the limit was passed by more than 3 %".into());
    }
    Ok(())
}

fn work(store: &Store, operations: u64, versions: &mut [u8]) {
    let mut random = fastrand::Rng::with_seed(5);
    let mut value = Vec::new();
    for operation in 0..operations {
        // First every key once, in a scattered order.
        let keys = versions.len() as u64;
        let n = if operation < keys {
            (u128::from(operation) * 2_654_435_761 % u128::from(keys)) as u64
        } else {
            random.u64(..keys)
        };
        let version = &mut versions[n as usize];
        if operation < keys || random.bool() {
            *version = version.wrapping_add(1);
            store.put(&key(n), &content(n, *version)).unwrap();
        } else {
            let found = store.get_into(&key(n), &mut value).unwrap().is_some();
            assert_eq!(found, *version > 0, "key {n}");
            assert!(!found || value == content(n, *version), "key {n}, version {version}");
        }
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

/// A third of it is random.
fn content(n: u64, version: u8) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n << 8 | u64::from(version));
    let mut value = format!("{{\"id\":{n},\"version\":{version},\"name\":\"").into_bytes();
    while value.len() < VALUE_BYTES {
        value.extend_from_slice(b"lorem ip");
        value.extend_from_slice(&random.u32(..).to_le_bytes());
    }
    value.truncate(VALUE_BYTES);
    value
}

/// Resident memory that belongs to no file.
fn anonymous_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Vec<u64> = statm.split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
    (pages[1] - pages[2]) * 4096
}
