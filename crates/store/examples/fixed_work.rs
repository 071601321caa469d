//! The same calls of a store each time, for counting instructions:
//! `valgrind --tool=callgrind fixed_work CODEC KEYS FILE`.
//!
//! One thread and no background. Values of 100 to 299 bytes from FILE are loaded in a scattered order. Then keys are
//! overwritten, deleted, given an expiry and read, one by one and in batches, and all are walked. CODEC is a codec of
//! `ziptier serve`; `auto-evicting` is `auto` at a limit of 72 bytes for each of KEYS, where records are evicted.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use std::error::Error;

use ziptier::{Batch, CodecChoice, Options, Store, Update};

use common::{key, scattered};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [codec, keys, file] = arguments.as_slice() else {
        return Err("usage: fixed_work CODEC KEYS FILE".into());
    };
    let (keys, text): (u64, _) = (keys.parse()?, std::fs::read(file)?);
    let (codec, evicts) =
        codec.strip_suffix("-evicting").map_or((codec.as_str(), false), |codec| (codec, true));
    let store = Store::open(Options {
        codec: codec.parse::<CodecChoice>()?,
        background_threads: 0,
        eviction: evicts,
        memory_limit_bytes: evicts.then_some(keys * 72),
        ..Options::default()
    })?;
    let value = |n: u64| {
        let len = 100 + scattered(n) % 200;
        let place = (scattered(n + 1) % (text.len() as u64 - len)) as usize;
        &text[place..place + len as usize]
    };
    let place = |n: u64| scattered(n) % keys;
    for n in 0..keys {
        store.put(&key(place(n)), value(n))?;
    }
    store.settle()?;
    let mut found = Vec::new();
    for n in 0..keys {
        match n % 8 {
            0 => drop(store.delete(&key(place(n)))?),
            1 => drop(store.update(&key(place(n)), |_| Update::Expire(Some(u64::MAX / 2)))?),
            2 => drop(
                store.write(&Batch::new().put(&key(place(n)), value(n)).put(&key(place(n + 1)), value(n)))?,
            ),
            3 | 4 => store.put(&key(place(n)), value(keys + n))?,
            _ => drop(store.get_into(&key(place(n)), &mut found)?),
        }
    }
    store.settle()?;
    let bytes: usize =
        store.range(..).map(|record| record.map(|(_, value)| value.len())).sum::<Result<_, _>>()?;
    println!("{} keys, {bytes} bytes of values, {} held", store.len(), store.memory().total_bytes());
    Ok(())
}
