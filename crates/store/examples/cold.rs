//! What an SSD below memory costs: write amplification, reads per get, memory over its limit, and the index.
//!
//! `cargo run --release -p ziptier --example cold -- FOLDER [MEMORY_MIB] [TIMES] [VALUE_BYTES] [text|noise]`:
//! loads `TIMES` as many bytes as there is memory, replaces each key once in random order, then reads at random.

use std::path::PathBuf;
use std::time::Instant;

use ziptier::{Error, Options, SsdOptions, Store};

const MIB: u64 = 1 << 20;

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().unwrap_or_else(|| "/tmp/ziptier-cold".to_owned()));
    let mut number = |usual| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (memory, times, value_bytes) = (number(32) * MIB, number(4), number(64) as usize);
    let is_text = arguments.next().as_deref() != Some("noise");
    let keys = memory * times / (16 + value_bytes as u64);
    let store = Store::open(Options {
        memory_limit_bytes: Some(memory),
        ssd: Some(SsdOptions { path: Some(path), limit_bytes: 4 * memory * times }),
        ..Options::default()
    })?;
    let mut run = Run { store, text: text(is_text), value_bytes, most_held: 0, random: 1 };
    let limit = format!(
        "{keys} keys, values of {value_bytes} bytes, {} MiB of memory, data {times} times that",
        memory / MIB
    );
    println!("{limit}");
    run.phase("load", memory, keys, |run, n| run.put(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys, 0))?;
    run.phase("update", memory, keys, |run, _| {
        let n = run.random(keys);
        run.put(n, 1)
    })?;
    run.phase("read", memory, keys / 8, |run, _| {
        let n = run.random(keys);
        run.store.get(&key(n)).map(|_| ())
    })?;
    println!("{:?}", run.store.ssd());
    Ok(())
}

struct Run {
    store: Store,
    text: Vec<u8>,
    value_bytes: usize,
    most_held: u64,
    random: u64,
}

impl Run {
    fn put(&mut self, n: u64, version: u64) -> Result<(), Error> {
        let start = (n.wrapping_mul(7919).wrapping_add(version.wrapping_mul(104_729))) as usize;
        let start = start % (self.text.len() - self.value_bytes);
        self.store.put(&key(n), &self.text[start..start + self.value_bytes])
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn phase(
        &mut self,
        name: &str,
        memory: u64,
        count: u64,
        mut step: impl FnMut(&mut Self, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (before, ssd_before) = (self.store.stats(), self.store.ssd().unwrap_or_default());
        let began = Instant::now();
        self.most_held = 0;
        for n in 0..count {
            step(self, n)?;
            if n % 256 == 0 {
                self.most_held = self.most_held.max(self.store.memory().total_bytes());
            }
        }
        let (after, ssd) = (self.store.stats(), self.store.ssd().unwrap_or_default());
        let ratio = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        println!(
            "{name}: {:.0} operations/s, memory at most {:.3} of the limit, \
             write amplification {:.2} (cleaning {:.2}), \
             {:.3} reads of the SSD per get that missed memory ({:.3} of all), \
             index {:.2} % of {} MiB on SSD in {} leaves",
            ratio(count * 1000, began.elapsed().as_millis() as u64),
            ratio(self.most_held, memory),
            ratio(ssd.written_bytes - ssd_before.written_bytes, after.written_bytes - before.written_bytes),
            ratio(ssd.cleaned_bytes - ssd_before.cleaned_bytes, after.written_bytes - before.written_bytes),
            ratio(after.ssd_reads - before.ssd_reads, after.reads_below - before.reads_below),
            ratio(after.reads_below - before.reads_below, count),
            100.0 * ratio(ssd.index_bytes, ssd.live_bytes),
            ssd.live_bytes / MIB,
            ssd.leaves,
        );
        Ok(())
    }
}

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:012}").into_bytes()
}

/// Lines of words and numbers, or noise.
fn text(is_text: bool) -> Vec<u8> {
    let mut random = 7u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let words: Vec<String> = (0..600)
        .map(|_| (0..3 + next() % 8).map(|_| char::from(b'a' + (next() % 26) as u8)).collect())
        .collect();
    let mut text = Vec::new();
    while text.len() < 4 << 20 {
        if is_text {
            // Some words are more common than others.
            let word = (next() % 600).min(next() % 600).min(next() % 600) as usize;
            text.extend_from_slice(words[word].as_bytes());
            text.push(b' ');
        } else {
            text.extend_from_slice(&next().to_le_bytes());
        }
    }
    text
}
