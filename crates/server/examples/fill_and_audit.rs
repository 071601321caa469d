//! Fills a server with pieces of real files, reading back as it goes, and audits every key afterwards.
//!
//! ```text
//! cargo run --release -p ziptier-server --example fill_and_audit -- fill PORT MIB BYTES_MAX FILE...
//! cargo run --release -p ziptier-server --example fill_and_audit -- audit PORT MIB BYTES_MAX FILE...
//! ```
//!
//! The value of key `n` is 64 to BYTES_MAX bytes of the files, at most 4,159, at a place that follows from `n`. So an
//! audit needs only the same arguments, and another process can run it after the server was killed. Every failure is a
//! sentence and a status of 1.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Clients at the same time.
const CLIENTS: u64 = 8;
/// Requests of a client before it reads replies.
const PIPELINE: u64 = 64;
/// Of this many written keys, one is read back.
const READ_BACK: u64 = 16;

/// The source of values.
struct Values {
    text: Vec<u8>,
    bytes_max: usize,
}

impl Values {
    fn of(files: &[String], bytes_max: usize) -> Outcome<Values> {
        let read =
            |file: &String| std::fs::read(file).map_err(|error| format!("cannot read {file}: {error}"));
        let text = files.iter().map(read).collect::<Result<Vec<_>, _>>()?.concat();
        if text.len() < 1 << 16 || bytes_max < 64 {
            return Err("give files of at least 64 KiB, and values of at least 64 bytes".into());
        }
        Ok(Values { text, bytes_max })
    }

    fn get(&self, key: u64) -> &[u8] {
        let mixed = mix(key);
        // As many around 64 bytes as around 128, 256, ... 4,096.
        let len = ((64 << (mixed % 7)) + (mixed >> 8) as usize % 64).min(self.bytes_max);
        let at = (mixed >> 16) as usize % (self.text.len() - len);
        &self.text[at..at + len]
    }

    /// The number of keys whose values have `bytes` bytes together.
    fn keys(&self, bytes: u64) -> u64 {
        let mut sum = 0;
        (0..)
            .find(|key| {
                sum += self.get(*key).len() as u64;
                sum >= bytes
            })
            .unwrap_or(0)
    }
}

/// SplitMix64.
fn mix(key: u64) -> u64 {
    let mixed = key.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Keys in an order that is not that of their numbers.
fn name(key: u64) -> String {
    format!("{:016x}", mix(key ^ 0x5EED))
}

/// Reads keys and compares them.
fn read_back(connection: &mut redis::Connection, values: &Values, keys: &[u64]) -> Outcome<()> {
    let names: Vec<String> = keys.iter().map(|key| name(*key)).collect();
    let found: Vec<Option<Vec<u8>>> = redis::cmd("MGET").arg(&names).query(connection)?;
    for (key, found) in keys.iter().zip(found) {
        match found {
            Some(found) if found == values.get(*key) => {}
            Some(found) => {
                return Err(format!("key {key} has {} other bytes than were set", found.len()).into());
            }
            None => return Err(format!("key {key} is lost").into()),
        }
    }
    Ok(())
}

/// The work of one client: the keys from `first`, in steps of `CLIENTS * PIPELINE`.
fn work(fills: bool, port: u16, values: &Values, first: u64, keys: u64, done: &AtomicU64) -> Outcome<()> {
    let mut connection = redis::Client::open(("127.0.0.1", port))?.get_connection()?;
    for start in (first..keys).step_by((CLIENTS * PIPELINE) as usize) {
        let group: Vec<u64> = (start..keys.min(start + PIPELINE)).collect();
        if fills {
            let mut pipeline = redis::pipe();
            for key in &group {
                pipeline.cmd("SET").arg(name(*key)).arg(values.get(*key)).ignore();
            }
            pipeline.query::<()>(&mut connection)?;
            // Groups of this client that were acknowledged, recent and old ones.
            let groups = (start - first) / (CLIENTS * PIPELINE) + 1;
            let earlier = |n| first + mix(start + n) % groups * CLIENTS * PIPELINE;
            read_back(&mut connection, values, &(0..READ_BACK).map(earlier).collect::<Vec<_>>())?;
        } else {
            read_back(&mut connection, values, &group)?;
        }
        done.fetch_add(group.len() as u64, Relaxed);
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, port, mib, bytes_max, files @ ..] = arguments.as_slice() else {
        return Err("usage: fill_and_audit fill|audit PORT MIB BYTES_MAX FILE...".into());
    };
    let fills = match what.as_str() {
        "fill" => true,
        "audit" => false,
        _ => return Err("say fill or audit first".into()),
    };
    let (port, bytes): (u16, u64) = (port.parse()?, mib.parse::<u64>()? << 20);
    let values = Values::of(files, bytes_max.parse()?)?;
    let keys = values.keys(bytes);
    let (done, failure, began) = (AtomicU64::new(0), Mutex::new(None), Instant::now());
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (values, done, failure) = (&values, &done, &failure);
                scope.spawn(move || {
                    if let Err(error) = work(fills, port, values, client * PIPELINE, keys, done) {
                        failure.lock().expect("no client panics").get_or_insert(error);
                    }
                })
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            thread::sleep(std::time::Duration::from_millis(200));
            if std::io::stderr().is_terminal() {
                let _ = write!(std::io::stderr(), "\r{} of {keys} keys", done.load(Relaxed));
            }
        }
    });
    let done = done.into_inner();
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{done} of {keys} keys {} in {seconds:.0} s",
        if fills { "set, some read back," } else { "as they were set" }
    );
    failure.into_inner()?.map_or(Ok(()), Err)
}
