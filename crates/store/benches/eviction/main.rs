//! Hit ratios: real and synthetic requests through a store that evicts, and through plain simulators of LRU, S3-FIFO
//! and W-TinyLFU at equal bytes.
//!
//! All records have one size and do not compress, so that equal bytes are equally many records: the store runs first,
//! within a limit in bytes, and the simulators get as many records as it held on average once it was full. What the
//! store spends on keys, index, landings and eviction is therefore not part of the comparison; it is printed as bytes
//! per record.
//!
//! `ZIPTIER_TRACES` names the folder of the traces OLTP and P3 (N. Megiddo and D. S. Modha, "ARC: A Self-Tuning, Low
//! Overhead Replacement Cache", USENIX FAST 2003). Without it, or with `--synthetic`, only synthetic requests are
//! replayed; names of series as arguments replay only these. With `--restart` each series meets a restart of the cache
//! in the middle instead: see `restart`.

mod policies;
mod requests;
mod restart;

use std::collections::HashSet;
use std::time::Instant;

use policies::{Cache, Lru, S3Fifo, WTinyLfu};
use ziptier::{CodecChoice, Options, Store};

/// Bytes of a value.
const VALUE_BYTES: usize = 200;
/// Cache sizes, in thousandths of all keys that are asked for.
const SIZES_PER_MILLE: [usize; 4] = [25, 50, 100, 250];
/// How often the records of the store are counted.
const COUNTS: usize = 200;

/// What the store did with a trace.
struct Replayed {
    hit_pct: f64,
    /// Records held on average, once records were evicted.
    records: usize,
    bytes_per_record: f64,
    eviction_bits_per_record: f64,
    ns_per_request: f64,
    /// Bytes held at most, per byte of the limit.
    held_max: f64,
}

fn main() {
    let restarts = std::env::args().any(|argument| argument == "--restart");
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let series = requests::all()
        .into_iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|it| it == name));
    if restarts {
        restart::print_head();
        for (name, requests) in series {
            let keys = requests.iter().collect::<HashSet<_>>().len();
            for per_mille in SIZES_PER_MILLE {
                restart::print_row(name, &requests, keys * per_mille / 1000);
            }
        }
        return;
    }
    println!(
        "{:<18}{:>9}{:>9} | {:>7}{:>8}{:>9}{:>11} | {:>8}{:>8}{:>8} | {:>7}{:>6}{:>7}{:>7}",
        "requests",
        "count",
        "records",
        "store",
        "LRU",
        "S3-FIFO",
        "W-TinyLFU",
        "-LRU",
        "-S3",
        "-WTLFU",
        "B/rec",
        "bits",
        "ns",
        "held"
    );
    for (name, requests) in series {
        let keys = requests.iter().collect::<HashSet<_>>().len();
        for per_mille in SIZES_PER_MILLE {
            let store = replay(&requests, keys * per_mille / 1000);
            let lru = hit_pct(&mut Lru::new(store.records), &requests);
            // The paper's text and its simulator differ in how often a record must be read to leave probation: the
            // better counts.
            let s3_fifo = [1, 2]
                .map(|reads| hit_pct(&mut S3Fifo::new(store.records, reads), &requests))
                .into_iter()
                .fold(0.0, f64::max);
            let w_tiny_lfu = hit_pct(&mut WTinyLfu::new(store.records), &requests);
            println!(
                "{name:<18}{:>9}{:>9} | {:>7.2}{lru:>8.2}{s3_fifo:>9.2}{w_tiny_lfu:>11.2} | \
                 {:>+8.2}{:>+8.2}{:>+8.2} | {:>7.0}{:>6.1}{:>7.0}{:>7.3}",
                requests.len(),
                store.records,
                store.hit_pct,
                store.hit_pct - lru,
                store.hit_pct - s3_fifo,
                store.hit_pct - w_tiny_lfu,
                store.bytes_per_record,
                store.eviction_bits_per_record,
                store.ns_per_request,
                store.held_max,
            );
        }
    }
}

fn hit_pct(cache: &mut impl Cache, requests: &[u64]) -> f64 {
    let hits = requests.iter().filter(|key| cache.request(**key)).count();
    100.0 * hits as f64 / requests.len() as f64
}

fn name(key: u64) -> Vec<u8> {
    format!("key:{key:012}").into_bytes()
}

fn lay_out(key: u64, value: &mut Vec<u8>) {
    let mut random = fastrand::Rng::with_seed(key);
    value.clear();
    value.resize(VALUE_BYTES, 0);
    random.fill(value);
}

fn options(limit_bytes: Option<u64>) -> Options {
    Options {
        memory_limit_bytes: limit_bytes,
        eviction: limit_bytes.is_some(),
        codec: CodecChoice::None,
        ..Options::default()
    }
}

fn open(limit_bytes: Option<u64>) -> Store {
    Store::open(options(limit_bytes)).expect("the limit is above the least")
}

/// Memory that about `records` records of those that are asked for take.
fn limit_for(requests: &[u64], records: usize) -> u64 {
    let mut value = Vec::new();
    let filled = open(None);
    let mut seen = HashSet::new();
    for key in requests.iter().filter(|key| seen.len() < records && seen.insert(**key)) {
        lay_out(*key, &mut value);
        filled.put(&name(*key), &value).expect("no limit is set");
    }
    filled.memory().total_bytes().max(ziptier::MEMORY_LIMIT_BYTES_MIN)
}

/// How requests went.
struct Asked {
    hits: u64,
    ns: f64,
}

/// Gets every key, and puts it after a miss; `each` is told the number of every request.
fn ask(store: &Store, requests: &[u64], mut each: impl FnMut(usize)) -> Asked {
    let (mut value, mut found, mut hits) = (Vec::new(), Vec::new(), 0);
    let began = Instant::now();
    for (index, key) in requests.iter().enumerate() {
        let name = name(*key);
        lay_out(*key, &mut value);
        if store.get_into(&name, &mut found).expect("values are sound").is_some() {
            hits += 1;
            assert!(found == value, "another value than was put");
        } else {
            store.put(&name, &value).expect("a full store evicts");
        }
        each(index);
    }
    Asked { hits, ns: began.elapsed().as_nanos() as f64 }
}

/// Sends `requests` to a store that has about as much memory as `records` records take.
fn replay(requests: &[u64], records: usize) -> Replayed {
    let limit_bytes = limit_for(requests, records);
    let store = open(Some(limit_bytes));
    let mut counted: Vec<(u64, f64, f64)> = Vec::new();
    let mut held_max = 0;
    let Asked { hits, ns } = ask(&store, requests, |index| {
        if index % (requests.len() / COUNTS) == 0 {
            let memory = store.memory();
            held_max = held_max.max(memory.total_bytes());
            if store.stats().evicted > 0 {
                let records = store.len();
                let per_record = |bytes: u64| bytes as f64 / records as f64;
                counted.push((records, per_record(memory.total_bytes()), per_record(memory.eviction_bytes)));
            }
        }
    });
    let mean = |pick: fn(&(u64, f64, f64)) -> f64| {
        counted.iter().map(pick).sum::<f64>() / counted.len().max(1) as f64
    };
    Replayed {
        hit_pct: 100.0 * hits as f64 / requests.len() as f64,
        records: mean(|counts| counts.0 as f64).round() as usize,
        bytes_per_record: mean(|counts| counts.1),
        eviction_bits_per_record: 8.0 * mean(|counts| counts.2),
        ns_per_request: ns / requests.len() as f64,
        held_max: held_max as f64 / limit_bytes as f64,
    }
}
