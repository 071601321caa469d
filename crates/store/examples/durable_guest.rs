//! What the guest of `tests/vm/run` does with stores of several times their DRAM, the rest of which lies in far memory:
//! on a NUMA node one is filled and read back; one with a folder and far memory on DAX is written to until the machine
//! is killed, and checked after the next start. Every failure is a sentence and a status of 1.

use std::error::Error;

use ziptier::{Durability, DurableOptions, FarOptions, FarPlace, Options, Store};

type Outcome = Result<(), Box<dyn Error>>;

/// Keys that are written again and again; about 4 MiB, two thirds of them in large values.
const KEYS: u64 = 3000;
const DRAM_BYTES: u64 = 1 << 20;
const FAR_BYTES: u64 = 64 << 20;

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["node", node] => use_node(node.parse()?),
        ["fill", dir, far] => fill(dir, far),
        ["check", dir, far, acknowledged] => check(dir, far, acknowledged.parse()?),
        _ => Err("usage: durable_guest node NUMBER | fill DIR FAR | check DIR FAR ACKNOWLEDGED".into()),
    }
}

fn durable(dir: &str) -> DurableOptions {
    let mut durable = DurableOptions::new(dir);
    durable.durability = Durability::Always;
    durable.checkpoint_log_bytes = Some(4 << 20);
    durable.log.segment_bytes = 1 << 20;
    durable.segments.segment_bytes = 1 << 20;
    durable
}

fn open(durable: Option<DurableOptions>, place: FarPlace) -> Result<Store, Box<dyn Error>> {
    let require_dax = matches!(place, FarPlace::File(_));
    let far = Some(FarOptions { place, capacity_bytes: FAR_BYTES, require_dax });
    let store =
        Store::open(Options { memory_limit_bytes: Some(DRAM_BYTES), far, durable, ..Options::default() })?;
    println!("far memory of the store: {}", store.far().ok_or("the store has no far memory")?);
    if let Some(durable) = store.durable_stats() {
        println!("the log: {}", durable.durable_after);
    }
    Ok(store)
}

fn key(write: u64) -> Vec<u8> {
    format!("key:{:06}", write % KEYS).into_bytes()
}

/// The number of the write, and bytes that follow from it. Every 20th key has a large value.
fn value(write: u64) -> Vec<u8> {
    let len = if (write % KEYS).is_multiple_of(20) { 3000 + write * 7919 % 30_000 } else { write % 900 };
    let mut value = write.to_le_bytes().to_vec();
    value.extend((0..len).map(|n| (write.wrapping_mul(n + 7) >> 3) as u8));
    value
}

/// Writes write number `write`, and reads another key.
fn put(store: &Store, write: u64) -> Outcome {
    store.put(&key(write), &value(write))?;
    let read = write - write * 31 % KEYS.min(write + 1);
    match store.get(&key(read))? {
        Some(found) if found == value(read) => Ok(()),
        _ => Err(format!("write {read} was lost before the machine was killed").into()),
    }
}

/// What DRAM has no room for lies in far memory, bodies and large values alike.
fn check_places(store: &Store) -> Outcome {
    let memory = store.memory();
    let is_kept = memory.total_bytes() <= DRAM_BYTES + DRAM_BYTES / 8;
    let is_below = memory.far_body_bytes > 0 && memory.far_large_bytes > 0;
    if !(is_kept && is_below && memory.logical_bytes > 3 * DRAM_BYTES) {
        return Err(format!("DRAM and far memory do not share the data: {memory:?}").into());
    }
    let (bodies, larges) = (memory.far_body_bytes, memory.far_large_bytes);
    let logical = memory.logical_bytes;
    println!("of {logical} bytes {} lie in far memory, {bodies} of them of bodies", bodies + larges);
    Ok(())
}

fn use_node(node: u32) -> Outcome {
    let store = open(None, FarPlace::Node(node))?;
    (0..2 * KEYS).try_for_each(|write| put(&store, write))?;
    check_places(&store)?;
    for write in KEYS..2 * KEYS {
        if store.get(&key(write))? != Some(value(write)) {
            return Err(format!("write {write} reads back differently").into());
        }
    }
    Ok(())
}

/// Writes 0, 1, 2, ... and says after each hundred how many are acknowledged, until it is killed.
fn fill(dir: &str, far: &str) -> Outcome {
    let store = open(Some(durable(dir)), FarPlace::File(far.into()))?;
    for write in 0.. {
        put(&store, write)?;
        if write % KEYS == KEYS - 1 {
            check_places(&store)?;
        }
        if write % 100 == 99 {
            println!("KEPT {}", write + 1);
        }
    }
    Ok(())
}

/// Each key has what was written last, as far as was acknowledged, or something newer; and the folder is whole.
fn check(dir: &str, far: &str, acknowledged: u64) -> Outcome {
    let report = ziptier::check(&durable(dir))?;
    if let Some(damage) = report.damages.first() {
        return Err(format!("damaged: {damage}").into());
    }
    let store = open(Some(durable(dir)), FarPlace::File(far.into()))?;
    let recovered = store.recovered().ok_or("nothing was recovered")?;
    println!("{} images, {} records of the log", recovered.images, recovered.records);
    let mut newest = 0;
    for first in 0..KEYS.min(acknowledged) {
        let written = (acknowledged - 1 - first) / KEYS * KEYS + first;
        let found = store.get(&key(first))?.ok_or(format!("acknowledged key {first} is lost"))?;
        let number = u64::from_le_bytes(found.get(..8).ok_or("a value without a number")?.try_into()?);
        if number < written || number % KEYS != first || found != value(number) {
            return Err(format!("key {first} has write {number}, {written} was acknowledged").into());
        }
        newest = newest.max(number + 1);
    }
    println!("{newest} writes found, {acknowledged} acknowledged");
    check_places(&store)
}
