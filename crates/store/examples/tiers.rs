//! More data than DRAM may hold, in far memory and on SSD: `cargo run -p ziptier --example tiers`.
//!
//! An ordinary file stands for far memory here; `FarPlace` also names files on persistent memory and NUMA nodes.

use std::error::Error;

use ziptier::{CodecChoice, FarOptions, FarPlace, Options, SsdOptions, Store};

const DRAM_BYTES: u64 = 4 << 20;
const RECORDS: u64 = 40_000;

fn value(record: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(record);
    (0..500).map(|_| random.u8(..)).collect()
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let place = FarPlace::File(folder.path().join("far"));
    let store = Store::open(Options {
        memory_limit_bytes: Some(DRAM_BYTES),
        far: Some(FarOptions { place, capacity_bytes: 8 << 20, require_dax: false }),
        ssd: Some(SsdOptions { path: Some(folder.path().join("ssd")), limit_bytes: 64 << 20 }),
        // These values are noise, so that bytes are easy to reckon.
        codec: CodecChoice::None,
        ..Options::default()
    })?;
    for record in 0..RECORDS {
        store.put(&record.to_be_bytes(), &value(record))?;
    }
    store.settle()?;

    let far = store.far().expect("the store has far memory");
    let ssd = store.ssd().expect("the store has an SSD");
    let (raw, dram) = (store.memory().logical_bytes, store.memory().total_bytes());
    println!(
        "{raw} bytes of records: {dram} in DRAM, {} in far memory, {} on SSD",
        far.used_bytes, ssd.live_bytes
    );
    assert!(dram <= DRAM_BYTES && far.used_bytes > 0 && ssd.live_bytes > 0);
    for record in (0..RECORDS).step_by(97) {
        assert_eq!(store.get(&record.to_be_bytes())?, Some(value(record)));
    }
    Ok(())
}
