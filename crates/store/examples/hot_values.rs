//! What reads of large values cost where most of them lie on SSD: gets per CPU-second, reads of the SSD per get, bytes
//! written meanwhile.
//!
//! `cargo run --release -p ziptier --example hot_values -- FOLDER [MEMORY_MIB] [TIMES] [VALUE_BYTES]`: puts half
//! as many bytes as there is memory and reads them at random; puts `TIMES` as many, and reads at random a set that is a
//! quarter of memory, then all.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use rustix::time::{ClockId, clock_gettime};
use ziptier::{Options, SsdOptions, Store};

const MIB: u64 = 1 << 20;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().unwrap_or_else(|| "/tmp/ziptier-hot-values".to_owned()));
    let mut number = |usual| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (memory, times, value_bytes) = (number(64) * MIB, number(8), number(20_000));
    let options = Options {
        memory_limit_bytes: Some(memory),
        ssd: Some(SsdOptions { path: Some(path), limit_bytes: 4 * memory * times }),
        ..Options::default()
    };
    println!("values of {value_bytes} bytes, {} MiB of memory, data {times} times that", memory / MIB);
    let keys = |bytes: u64| bytes / value_bytes;
    let mut run = Run { store: Store::open(options).unwrap(), value_bytes: value_bytes as usize, random: 1 };
    run.put(0..keys(memory / 2));
    run.read("half of memory", keys(memory / 2), 1, 200_000);
    run.put(0..keys(memory * times));
    let hot = keys(memory / 4);
    run.read("the hot set at first", hot, 4 * times, 4 * hot);
    run.read("the hot set", hot, 4 * times, 100_000);
    run.read("all", keys(memory * times), 1, 100_000);
}

struct Run {
    store: Store,
    value_bytes: usize,
    random: u64,
}

impl Run {
    fn put(&mut self, keys: std::ops::Range<u64>) {
        for n in keys {
            let mut random = fastrand::Rng::with_seed(n);
            let value: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(self.value_bytes).collect();
            self.store.put(&key(n), &value).unwrap();
        }
    }

    /// Reads `gets` times one of `keys` keys, every `step`th.
    fn read(&mut self, name: &str, keys: u64, step: u64, gets: u64) {
        let written = |store: &Store| store.ssd().unwrap().written_bytes;
        let (reads, wrote, cpu) = (reads_of_files(), written(&self.store), cpu_seconds());
        let (mut value, mut most_held) = (Vec::new(), 0);
        for get in 0..gets {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let n = self.random % keys * step;
            self.store.get_into(&key(n), &mut value).unwrap().unwrap();
            assert_eq!(value.len(), self.value_bytes);
            if get % 64 == 0 {
                most_held = most_held.max(self.store.memory().total_bytes());
            }
        }
        println!(
            "{name}: {:.0} gets per CPU-second, {:.3} reads of files per get, {:.1} MiB written, {:.1} MiB \
             held at most",
            gets as f64 / (cpu_seconds() - cpu),
            (reads_of_files() - reads) as f64 / gets as f64,
            (written(&self.store) - wrote) as f64 / MIB as f64,
            most_held as f64 / MIB as f64
        );
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

/// CPU time of all threads.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Calls of this process that read from files.
fn reads_of_files() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap();
    let count = text.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap();
    count.parse().unwrap()
}
