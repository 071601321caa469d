//! Fills a cache whose limit is an argument in MiB, 32 without, and prints its count beside the memory of the process.

use std::error::Error;

use ziptier::{Options, Store};

const RECORDS: u64 = 300_000;
const RECORDS_PER_LOOK: u64 = 1_000;

/// Memory of this process that belongs to no file.
fn anonymous_bytes() -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kib =
        line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("the system does not tell RssAnon")?;
    Ok(kib.parse::<u64>()? << 10)
}

pub(crate) fn measure() -> Result<(), Box<dyn Error>> {
    let limit_mib: u64 = std::env::args().nth(1).map_or(Ok(32), |mib| mib.parse())?;
    let options = Options { memory_limit_bytes: Some(limit_mib << 20), eviction: true, ..Options::default() };
    let before_bytes = anonymous_bytes()?;
    let store = Store::open(options)?;
    let (mut counted_max, mut grown_max) = (0, 0);
    for n in 0..RECORDS {
        store.put(format!("page:{n:08}").as_bytes(), page(n).as_bytes())?;
        if n % RECORDS_PER_LOOK == 0 {
            counted_max = counted_max.max(store.memory().total_bytes());
            grown_max = grown_max.max(anonymous_bytes()?.saturating_sub(before_bytes));
        }
    }
    store.settle()?;
    let (counted, grown) = (store.memory().total_bytes(), anonymous_bytes()?.saturating_sub(before_bytes));
    println!(
        "MB, limit {:.1}: counted at most {}, process grown at most by {}",
        mb(limit_mib << 20),
        mb(counted_max),
        mb(grown_max)
    );
    println!("MB, at the end: counted {}, process grown by {}, {} keys", mb(counted), mb(grown), store.len());
    Ok(())
}

fn mb(bytes: u64) -> f64 {
    (bytes as f64 / 1e5).round() / 10.0
}

/// A record as a web shop might cache it, with parts that differ and parts that do not.
fn page(n: u64) -> String {
    let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let (user, item, token) = (mixed % 5_000, mixed >> 20 & 0xFFFF, mixed ^ mixed >> 29);
    let (whole, cents) = (mixed >> 40 & 0x3FF, mixed >> 50 & 0x3F);
    [
        format!(r#"{{"user":"user-{user}","page":"/products/{item}","session":"{token:016x}","#),
        format!(r#""title":"Product {item} of our shop","status":200,"cached":true,"language":"en","#),
        format!(r#""referrer":"https://example.com/search?q={item}","price":{whole}.{cents:02}}}"#),
    ]
    .concat()
}
