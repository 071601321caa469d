//! What the guest of `tests/vm/run` does with a store whose folder is on persistent memory: writes to it until the machine is killed, and
//! checks it after the next start. Every failure is a sentence and a status of 1.

use std::error::Error;

use ziptier::{Durability, DurableOptions, Options, Store};

type Outcome = Result<(), Box<dyn Error>>;

/// Keys that are written again and again.
const KEYS: u64 = 3000;

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["fill", dir] => fill(dir),
        ["check", dir, acknowledged] => check(dir, acknowledged.parse()?),
        _ => Err("usage: durable_guest fill DIR | check DIR ACKNOWLEDGED".into()),
    }
}

fn durable(dir: &str) -> DurableOptions {
    let mut durable = DurableOptions::new(dir);
    durable.durability = Durability::Always;
    durable.checkpoint_log_bytes = Some(1 << 20);
    durable.log.segment_bytes = 1 << 20;
    durable.segments.segment_bytes = 1 << 20;
    durable
}

fn open(dir: &str) -> Result<Store, Box<dyn Error>> {
    let store = Store::open(Options { durable: Some(durable(dir)), ..Options::default() })?;
    let after = store.durable_stats().ok_or("the store is not durable")?.durable_after;
    println!("the log: {after}");
    Ok(store)
}

fn key(write: u64) -> Vec<u8> {
    format!("key:{:06}", write % KEYS).into_bytes()
}

/// The number of the write, and bytes that follow from it.
fn value(write: u64) -> Vec<u8> {
    let mut value = write.to_le_bytes().to_vec();
    value.extend((0..write % 900).map(|n| (write.wrapping_mul(n + 7) >> 3) as u8));
    value
}

/// Writes 0, 1, 2, ... and says after each hundred how many are acknowledged, until it is killed.
fn fill(dir: &str) -> Outcome {
    let store = open(dir)?;
    for write in 0.. {
        store.put(&key(write), &value(write))?;
        if write % 100 == 99 {
            println!("KEPT {}", write + 1);
        }
    }
    Ok(())
}

/// Each key has what was written last, as far as was acknowledged, or something newer; and the folder is whole.
fn check(dir: &str, acknowledged: u64) -> Outcome {
    let report = ziptier::check(&durable(dir))?;
    if let Some(damage) = report.damages.first() {
        return Err(format!("damaged: {damage}").into());
    }
    let store = open(dir)?;
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
    Ok(())
}
