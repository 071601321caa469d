//! Prints ratio, encoding speed, decoding time, training time and memory of token coding, by file and width.
//!
//! ```text
//! cargo run --release -p ziptier-codec --example token_table -- FILE... [--value-bytes 128] [--bits 12,14] \
//!   [--group 8]
//! ```
//!
//! Files are raw, or compressed by zstd. `in` trains on samples of the whole file, `out` on the first half and measures
//! on the second. Values are coded in groups, densely and fast, and alone, fast. All times are CPU time of
//! this thread; bytes are coded bytes, checks included.

mod measuring;

use measuring::{File, best, cpu_time, random_order};
use std::time::Duration;
use ziptier_codec::token::{Dictionary, Effort, Encoder};

/// Bytes of samples for training a dictionary.
const SAMPLE_BYTES: usize = 2 << 20;

/// Values that are measured.
const VALUES_MAX: usize = 50_000;

/// The best of so many runs counts.
const RUNS: usize = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut files = Vec::new();
    let mut value_bytes = 128;
    let mut widths = vec![12, 13, 14, 15, 16];
    let mut group = 8;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--value-bytes" => {
                value_bytes = arguments.next().ok_or("--value-bytes needs a number")?.parse()?
            }
            "--group" => group = arguments.next().ok_or("--group needs a number")?.parse()?,
            "--bits" => {
                let list = arguments.next().ok_or("--bits needs a list")?;
                widths = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            _ => files.push(argument),
        }
    }
    println!(
        "{:12} {:4} {:>4} {:>6} {:>6} {:>7} {:>7} {:>8} {:>8} {:>6} {:>8} {:>7} {:>7} {:>7}",
        "file",
        "from",
        "bits",
        "tokens",
        "ratio",
        "no chk",
        "MB/s",
        "fast",
        "alone",
        "ratio",
        "ns/value",
        "ns len",
        "ms/MB",
        "KB"
    );
    for File { name, bytes } in &measuring::read(&files)? {
        let values: Vec<&[u8]> = bytes.chunks_exact(value_bytes).collect();
        for &bits in &widths {
            measure(name, "in", bits, group, &values, &values)?;
            let (first, second) = values.split_at(values.len() / 2);
            measure(name, "out", bits, group, first, second)?;
        }
    }
    Ok(())
}

/// Every n-th value, so that at most `limit` are left.
fn spread<'a>(values: &[&'a [u8]], limit: usize) -> Vec<&'a [u8]> {
    values.iter().copied().step_by((values.len() / limit.max(1)).max(1)).take(limit).collect()
}

fn measure(
    name: &str,
    from: &str,
    bits: u32,
    group: usize,
    train_on: &[&[u8]],
    values: &[&[u8]],
) -> Result<(), Box<dyn std::error::Error>> {
    let value_bytes = values.first().map_or(1, |value| value.len());
    let samples = spread(train_on, SAMPLE_BYTES / value_bytes);
    let sample_bytes: usize = samples.iter().map(|sample| sample.len()).sum();
    let begun = cpu_time();
    let dictionary = Dictionary::train(&samples, bits, 0)?;
    let training = cpu_time() - begun;

    let values = spread(values, VALUES_MAX);
    let raw_bytes: usize = values.iter().map(|value| value.len()).sum();
    let mut encoder = Encoder::new();
    let (mut coded, mut ends) = (Vec::new(), Vec::new());
    let grouped = best(RUNS, || {
        coded.clear();
        ends.clear();
        values
            .chunks(group)
            .for_each(|group| dictionary.encode_group(&mut encoder, group, &mut coded, &mut ends));
    });
    let (mut fast_coded, mut fast_ends) = (Vec::new(), Vec::new());
    let fast = best(RUNS, || {
        fast_coded.clear();
        fast_ends.clear();
        values.chunks(group).for_each(|group| {
            dictionary.encode_group_with(&mut encoder, Effort::Fast, group, &mut fast_coded, &mut fast_ends);
        });
    });

    let alone = best(RUNS, || {
        fast_coded.clear();
        fast_ends.clear();
        values.iter().for_each(|value| {
            dictionary.encode_group_with(
                &mut encoder,
                Effort::Fast,
                &[value],
                &mut fast_coded,
                &mut fast_ends,
            );
        });
    });

    // Values in random order, as a store reads them.
    let starts: Vec<u32> = std::iter::once(0).chain(ends.iter().copied()).collect();
    let order = random_order(values.len());
    let slice = |index: usize| &coded[starts[index] as usize..starts[index + 1] as usize];
    let mut out = Vec::with_capacity(1 << 17);
    let mut failed = 0;
    let decoding = best(RUNS, || {
        for &index in &order {
            out.clear();
            failed += usize::from(dictionary.decode_append(slice(index), &mut out, 1 << 16).is_err());
        }
    });
    let measuring = best(RUNS, || {
        for &index in &order {
            failed += usize::from(dictionary.raw_len(slice(index)) != Ok(values[index].len()));
        }
    });
    for &index in &order {
        out.clear();
        dictionary.decode_append(slice(index), &mut out, 1 << 16)?;
        failed += usize::from(out != values[index]);
    }
    if failed != 0 {
        return Err(format!("{failed} values of {name} came back wrong").into());
    }

    let per_value = |time: Duration| time.as_secs_f64() * 1e9 / values.len() as f64;
    let speed = |time: Duration| raw_bytes as f64 / 1e6 / time.as_secs_f64();
    println!(
        "{name:12} {from:4} {bits:4} {:6} {:6.3} {:7.3} {:7.0} {:8.0} {:8.0} {:6.3} {:8.1} {:7.1} {:7.1} {:7.0}",
        dictionary.tokens(),
        raw_bytes as f64 / coded.len() as f64,
        raw_bytes as f64 / (coded.len() - 2 * values.len()) as f64,
        speed(grouped),
        speed(fast),
        speed(alone),
        raw_bytes as f64 / fast_coded.len() as f64,
        per_value(decoding),
        per_value(measuring),
        training.as_secs_f64() * 1e3 / (sample_bytes as f64 / 1e6),
        dictionary.memory_bytes() as f64 / 1e3,
    );
    Ok(())
}
