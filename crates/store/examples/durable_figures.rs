//! What durability costs: bytes written for bytes accepted, and the time to recover.
//!
//! ```text
//! cargo run --release -p ziptier --example durable_figures -- \
//!   amplification DIR KEYS UPDATES VALUE_BYTES [uniform|skewed] [MEMORY_MIB]
//! cargo run --release -p ziptier --example durable_figures -- \
//!   recovery DIR KEYS LOG_MIB VALUE_BYTES [MEMORY_MIB]
//! ```
//!
//! With a limit of memory, what it has no room for goes to SSD, within the folder.
//!
//! DIR must not exist; the example removes it at the end. Values are cut from `calgary/book1` in the folder that
//! `ZIPTIER_CORPUS` names, or from the text of `make corpus`.

use std::error::Error;
use std::fs;
use std::time::Instant;

use ziptier::{Durability, DurableOptions, Options, SsdOptions, Store};

/// Values as the bench has them: bytes of a text at a place that depends on key and version.
struct Values {
    text: Vec<u8>,
    bytes: usize,
}

impl Values {
    fn get(&self, key: u64, version: u64) -> &[u8] {
        let mixed = (key ^ version << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let at = (mixed >> 20) as usize % (self.text.len() - self.bytes);
        &self.text[at..at + self.bytes]
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

/// Bytes that this process has caused to be written to block devices.
fn device_bytes() -> u64 {
    let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn open(
    dir: &str,
    checkpoint_log_bytes: Option<u64>,
    memory_limit_bytes: Option<u64>,
) -> Result<Store, Box<dyn Error>> {
    let mut durable = DurableOptions::new(dir);
    durable.durability = Durability::Everysec;
    durable.checkpoint_log_bytes = checkpoint_log_bytes;
    let ssd = memory_limit_bytes.map(|_| SsdOptions { path: None, limit_bytes: 8 << 30 });
    Ok(Store::open(Options { durable: Some(durable), memory_limit_bytes, ssd, ..Options::default() })?)
}

fn load(store: &Store, keys: u64, values: &Values) -> Result<(), Box<dyn Error>> {
    // In an order that is not that of the keys: an odd factor visits each once, modulo a power of two.
    let all = keys.next_power_of_two();
    for n in (0..all).map(|n| n.wrapping_mul(0x9e37_79b1) % all).filter(|n| *n < keys) {
        store.put(&key(n), values.get(n, 0))?;
    }
    store.settle()?;
    Ok(store.checkpoint()?)
}

fn amplification(
    dir: &str,
    keys: u64,
    updates: u64,
    values: &Values,
    skewed: bool,
    memory: Option<u64>,
) -> Result<(), Box<dyn Error>> {
    let store = open(dir, None, memory)?;
    load(&store, keys, values)?;
    let written = |store: &Store| {
        let log = store.durable_stats().map_or(0, |log| log.log_written_bytes);
        let checkpoints = store.checkpoint_stats().unwrap_or_default();
        [log, checkpoints.segment_written_bytes, checkpoints.other_written_bytes, checkpoints.cleaned_bytes]
    };
    let before = (written(&store), device_bytes(), store.stats().logged_bytes, cpu_seconds(), Instant::now());
    let mut random = fastrand::Rng::with_seed(1);
    for version in 0..updates {
        // A tenth of the keys takes nine tenths of the updates.
        let hot = skewed && random.u8(..10) > 0;
        let n = if hot { random.u64(..keys / 10) * 10 } else { random.u64(..keys) };
        store.put(&key(n), values.get(n, version + 1))?;
    }
    let seconds = before.4.elapsed().as_secs_f64();
    store.checkpoint()?;
    let (after, accepted) = (written(&store), store.stats().logged_bytes - before.2);
    let share = |index: usize| (after[index] - before.0[index]) as f64 / accepted as f64;
    let checkpoints = store.checkpoint_stats().unwrap_or_default();
    println!(
        "{keys} keys, {updates} updates of {} B: accepted {:.0} MB, held {:.0} MB, images {:.0} MB in {:.0} MB",
        values.bytes,
        accepted as f64 / 1e6,
        store.memory().total_bytes() as f64 / 1e6,
        checkpoints.segment_live_bytes as f64 / 1e6,
        checkpoints.segment_allocated_bytes as f64 / 1e6,
    );
    println!(
        "write amplification {:.2}: log {:.2}, segments {:.2} (of them cleaning {:.2}), manifests {:.2}; at \
         the device {:.2}",
        share(0) + share(1) + share(2),
        share(0),
        share(1),
        share(3),
        share(2),
        (device_bytes() - before.1) as f64 / accepted as f64,
    );
    println!(
        "{} checkpoints, the last in {} ms; {:.0} updates per second, {:.0} per CPU-second",
        checkpoints.checkpoints,
        checkpoints.last_took_ms,
        updates as f64 / seconds,
        updates as f64 / (cpu_seconds() - before.3),
    );
    Ok(store.close()?)
}

fn recovery(
    dir: &str,
    keys: u64,
    log_bytes: u64,
    values: &Values,
    memory: Option<u64>,
) -> Result<(), Box<dyn Error>> {
    let store = open(dir, Some(u64::MAX), memory)?;
    load(&store, keys, values)?;
    let log_written = |store: &Store| store.durable_stats().map_or(0, |log| log.log_written_bytes);
    let start = log_written(&store);
    let mut random = fastrand::Rng::with_seed(1);
    let mut version = 0;
    while log_written(&store) - start < log_bytes {
        for _ in 0..10_000 {
            version += 1;
            let n = random.u64(..keys);
            store.put(&key(n), values.get(n, version))?;
        }
    }
    store.close()?;
    for checkpointed in [false, true] {
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let store = open(dir, Some(u64::MAX), memory)?;
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        let recovered = store.recovered().cloned().unwrap_or_default();
        println!(
            "{} keys of {} B: {} images of {:.0} MB and {} records of {:.0} MB of log recovered in \
             {seconds:.2} s, {cpu:.2} CPU-seconds",
            store.len(),
            values.bytes,
            recovered.images,
            recovered.image_bytes as f64 / 1e6,
            recovered.records,
            recovered.log_bytes as f64 / 1e6,
        );
        if !checkpointed {
            let began = Instant::now();
            store.checkpoint()?;
            println!("a checkpoint of all of it: {:.2} s", began.elapsed().as_secs_f64());
        }
        store.close()?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, dir, keys, amount, bytes, rest @ ..] = arguments.as_slice() else {
        return Err(
            "say amplification or recovery, a new folder, keys, updates or MiB of log, bytes of a value"
                .into(),
        );
    };
    if fs::exists(dir)? {
        return Err(format!("{dir} is there").into());
    }
    let corpus = ziptier_testing::corpus();
    let mut texts = ["calgary/book1", "text"].iter().map(|name| corpus.join(name));
    let Some(text) = texts.find(|path| path.is_file()) else {
        return Err(
            format!("{} has neither calgary/book1 nor text; run make corpus", corpus.display()).into()
        );
    };
    let values = Values { text: fs::read(text)?, bytes: bytes.parse()? };
    let (keys, amount) = (keys.parse()?, amount.parse::<u64>()?);
    let skewed = rest.iter().any(|word| word == "skewed");
    let memory = rest.iter().find_map(|word| word.parse::<u64>().ok()).map(|mib| mib << 20);
    let outcome = match what.as_str() {
        "amplification" => amplification(dir, keys, amount, &values, skewed, memory),
        "recovery" => recovery(dir, keys, amount << 20, &values, memory),
        _ => Err("say amplification or recovery".into()),
    };
    fs::remove_dir_all(dir)?;
    outcome
}
