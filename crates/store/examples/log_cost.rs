//! What the log costs a store: `log_cost DIR [MIB [VALUE_BYTES]]`.
//!
//! Puts text until the log has so many MiB (1,024) in each mode, and without a folder; prints operations per CPU-second
//! of the process, background work included. Then opens the last log again, and prints how long that takes.

#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use ziptier::{Durability, DurableOptions, Options, Store};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Puts between two waits: what a server's round has.
const ROUND: u64 = 16;

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn options(dir: &Path, durability: Option<Durability>) -> Options {
    let durable = durability.map(|durability| {
        let mut durable = DurableOptions::new(dir);
        (durable.durability, durable.waits) = (durability, false);
        durable
    });
    Options { durable, ..Options::default() }
}

/// Words in an order that does not repeat, as text compresses.
fn value(number: u64, len: usize, out: &mut Vec<u8>) {
    const WORDS: [&str; 16] = [
        "market ", "river ", "of ", "the ", "and ", "seven ", "window ", "morning ", "to ", "a ", "house ",
        "said ", "under ", "light ", "never ", "paper ",
    ];
    out.clear();
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    while out.len() < len {
        mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB);
        out.extend_from_slice(WORDS[(mixed >> 60) as usize].as_bytes());
    }
    out.truncate(len);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().expect("DIR"));
    let mib: u64 = arguments.next().map_or(1024, |text| text.parse().unwrap());
    let value_bytes: usize = arguments.next().map_or(128, |text| text.parse().unwrap());
    let puts = (mib << 20) / (value_bytes as u64 + 44);
    let mut bytes = Vec::new();
    for durability in [None, Some(Durability::No), Some(Durability::Everysec)] {
        let _ = std::fs::remove_dir_all(&dir);
        let store = Store::open(options(&dir, durability)).unwrap();
        let began = cpu_seconds();
        for number in 0..puts {
            value(number, value_bytes, &mut bytes);
            let key = format!("key:{:012}", number.wrapping_mul(0x9E37_79B9) % puts);
            store.put(key.as_bytes(), &bytes).unwrap();
            if number % ROUND == 0 {
                store.wait().unwrap();
            }
        }
        store.wait().unwrap();
        let per_second = puts as f64 / (cpu_seconds() - began);
        println!(
            "{:8} {per_second:9.0} puts per CPU-second, {} bytes of log",
            durability.map_or("none".to_owned(), |durability| durability.to_string()),
            store.durable_stats().map_or(0, |stats| stats.log_written_bytes)
        );
        if durability == Some(Durability::Everysec) {
            // As after a kill: nothing is sealed.
            std::mem::forget(store);
        }
    }
    drop_lock(&dir);
    let (began, cpu_began) = (Instant::now(), cpu_seconds());
    let store = Store::open(options(&dir, Some(Durability::Everysec))).unwrap();
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu_began);
    let recovered = store.recovered().unwrap();
    println!(
        "replay: {} records of {} bytes in {seconds:.2} s, {cpu:.2} s of CPU; {} keys",
        recovered.records,
        recovered.log_bytes,
        store.len()
    );
    let _ = std::fs::remove_dir_all(&dir);
}

/// The forgotten store still holds its folder's lock; another file has none.
fn drop_lock(dir: &Path) {
    let _ = std::fs::remove_file(dir.join("LOCK"));
}
