//! Turns ziptier's compression on for a database of the crate `rocksdb`: `ziptier-rocksdb-example DIR`.

use rocksdb::{DB, Options};
use std::error::Error;

const RECORDS: u64 = 50_000;

fn key(i: u64) -> String {
    format!("key:{i:012}")
}

fn value(i: u64) -> String {
    let state = if i.is_multiple_of(3) { "suspended" } else { "active" };
    format!("{{\"user\":{},\"state\":\"{state}\"}}", i * 7919 % 100_003)
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: ziptier-rocksdb-example DIR")?;
    ziptier_rocksdb_plugin::register();

    let mut options = Options::default();
    options.create_if_missing(true);
    let options = options.get_options_from_string(
        "compression_manager={id=ziptier;format=token};compression=kCustomCompression80",
    )?;

    let db = DB::open(&options, &dir)?;
    for i in 0..RECORDS {
        db.put(key(i), value(i))?;
    }
    db.compact_range::<&[u8], &[u8]>(None, None);
    drop(db);

    let db = DB::open(&options, &dir)?;
    for i in 0..RECORDS {
        if db.get(key(i))?.as_deref() != Some(value(i).as_bytes()) {
            return Err(format!("record {i} has another value").into());
        }
    }
    println!("{}", ziptier_rocksdb_plugin::counters());
    Ok(())
}
