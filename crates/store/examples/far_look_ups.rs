//! Nanoseconds of a look-up in far memory beside one in DRAM: `far_look_ups KEYS FILE FAR [ROUNDS]`.
//!
//! Two settled stores with the same records (keys `key:%012d`, values of 128 bytes from hashed places of FILE): one in
//! DRAM, one whose bodies lie in the file FAR. Rounds alternate between them; prints CPU time of the reading thread per
//! key, least and median, and the median ratio.
#![allow(clippy::unwrap_used, missing_docs)]

use std::error::Error;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use ziptier::{FarOptions, FarPlace, Options, Store};

/// As the program: see `heap.rs` there.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const VALUE_BYTES: u64 = 128;
const LOOK_UPS: u64 = 1 << 18;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [keys, file, far, rest @ ..] = &arguments[..] else {
        return Err("usage: far_look_ups KEYS FILE FAR [ROUNDS]".into());
    };
    let keys: u64 = keys.parse()?;
    let text = std::fs::read(file)?;
    let rounds = rest.first().map_or(Ok(15), |rounds| rounds.parse())?;

    let dram = filled(Options::default(), keys, &text)?;
    let held = dram.memory().total_bytes();
    let place = FarPlace::File(far.into());
    let capacity_bytes = (2 * held).max(64 << 20);
    let options =
        Options { far: Some(FarOptions { place, capacity_bytes, require_dax: false }), ..Options::default() };
    let far = filled(options, keys, &text)?;
    send_all_to_far(&far);
    println!("{}: {:?}", far.far().unwrap(), far.memory());

    let mut random = fastrand::Rng::with_seed(1);
    let mut times = [Vec::new(), Vec::new()];
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let seed = random.u64(..);
        let first = round % 2;
        for which in [first, 1 - first] {
            let mut random = fastrand::Rng::with_seed(seed);
            times[which].push(timed([&dram, &far][which], keys, &mut random));
        }
        ratios.push(times[1][round] / times[0][round]);
    }
    for (name, times) in ["DRAM", "far"].iter().zip(&mut times) {
        times.sort_by(f64::total_cmp);
        println!("{name}: {:.0} ns a get at least, median {:.0}", times[0], times[rounds / 2]);
    }
    ratios.sort_by(f64::total_cmp);
    println!("far over DRAM: {:.3} ({:.3}-{:.3})", ratios[rounds / 2], ratios[0], ratios[rounds - 1]);
    Ok(())
}

fn filled(options: Options, keys: u64, text: &[u8]) -> Result<Store, ziptier::Error> {
    let store = Store::open(options)?;
    for n in 0..keys {
        let n = (u128::from(n) * 2_654_435_761 % u128::from(keys)) as u64;
        let place = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16) % (text.len() as u64 - VALUE_BYTES);
        store.put(&key(n), &text[place as usize..(place + VALUE_BYTES) as usize])?;
    }
    store.settle()?;
    Ok(store)
}

/// Sets a limit that leaves no room for bodies, and waits until they are in far memory.
fn send_all_to_far(store: &Store) {
    let memory = store.memory();
    let bodies = memory.raw_body_bytes + memory.coded_body_bytes + memory.packed_body_bytes;
    let began = Instant::now();
    store.set_memory_limit(Some((memory.total_bytes() - bodies) * 11 / 10 + (1 << 20)));
    while store.memory().far_body_bytes < bodies / 100 * 97 && began.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("sent to far memory in {:.2} s", began.elapsed().as_secs_f64());
}

fn timed(store: &Store, keys: u64, random: &mut fastrand::Rng) -> f64 {
    let mut value = Vec::new();
    let before = cpu_ns();
    for _ in 0..LOOK_UPS {
        store.get_into(&key(random.u64(..keys)), &mut value).unwrap();
        assert_eq!(value.len() as u64, VALUE_BYTES);
    }
    (cpu_ns() - before) / LOOK_UPS as f64
}

fn key(n: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let mut left = n;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    key
}

fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
