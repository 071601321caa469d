//! Prints how much denser entropy-coded values are than coded ones, and what they cost, by file and width.
//!
//! ```text
//! cargo run --release -p ziptier-codec --example entropy_table -- FILE... [--value-bytes 128] [--bits 12,14]
//! ```
//!
//! Files are raw, or compressed by zstd. Dictionary and codes are trained on every second value of the file, spread
//! over 2 MB, and the others are measured. Values are coded densely, as in a settled store. Bytes include checks. Times
//! are CPU time of this thread, the best of seven runs: decoding in random order, as a store reads; *cold* with other
//! memory read before each value, so that no table is in a cache.

mod measuring;

use measuring::{File, best, cpu_time, random_order};
use std::hint::black_box;
use std::time::Duration;
use ziptier_codec::token::entropy::{Codes, Recoder};
use ziptier_codec::token::{Dictionary, Effort, Encoder};

/// Bytes of samples for training.
const SAMPLE_BYTES: usize = 2 << 20;

/// Memory for training codes.
const TRAINING_BYTES_MAX: usize = 64 << 20;

/// Values that are measured.
const VALUES_MAX: usize = 50_000;

/// Values that are read with cold tables.
const COLD_VALUES: usize = 500;

/// Other memory that is read before each of them: more than the second and the third cache hold.
const OTHER_BYTES: usize = 64 << 20;

/// The best of so many runs counts.
const RUNS: usize = 7;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut files = Vec::new();
    let mut value_bytes = 128;
    let mut widths = vec![12, 14];
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--value-bytes" => {
                value_bytes = arguments.next().ok_or("--value-bytes needs a number")?.parse()?
            }
            "--bits" => {
                let list = arguments.next().ok_or("--bits needs a list")?;
                widths = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            _ => files.push(argument),
        }
    }
    println!(
        "{:12} {:>4} {:>7} {:>7} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6}",
        "file",
        "bits",
        "ratio",
        "entropy",
        "saved",
        "ns",
        "entropy",
        "ns cold",
        "entropy",
        "recode",
        "restore",
        "ms/MB",
        "KB"
    );
    for File { name, bytes } in &measuring::read(&files)? {
        let values: Vec<&[u8]> = bytes.chunks_exact(value_bytes).collect();
        for &bits in &widths {
            measure(name, bits, &values)?;
        }
    }
    Ok(())
}

/// Every n-th value, so that at most `limit` are left.
fn spread<'a>(values: impl ExactSizeIterator<Item = &'a [u8]>, limit: usize) -> Vec<&'a [u8]> {
    let step = (values.len() / limit.max(1)).max(1);
    values.step_by(step).take(limit).collect()
}

/// Values in one piece.
#[derive(Default)]
struct Run {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Run {
    fn value(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[index] as usize]
    }

    /// Makes each value of another run anew.
    fn refill(
        &mut self,
        from: &Run,
        mut make: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), ziptier_codec::token::DecodeError>,
    ) -> Result<(), ziptier_codec::token::DecodeError> {
        self.bytes.clear();
        self.ends.clear();
        for index in 0..from.ends.len() {
            make(from.value(index), &mut self.bytes)?;
            self.ends.push(self.bytes.len() as u32);
        }
        Ok(())
    }
}

fn measure(name: &str, bits: u32, values: &[&[u8]]) -> Result<(), Box<dyn std::error::Error>> {
    let value_bytes = values.first().map_or(1, |value| value.len());
    let samples = spread(values.iter().copied().step_by(2), SAMPLE_BYTES / value_bytes);
    let values = spread(values.iter().copied().skip(1).step_by(2), VALUES_MAX);
    let raw_bytes: usize = values.iter().map(|value| value.len()).sum();
    let mut encoder = Encoder::new();
    let dictionary = Dictionary::train(&samples, bits, 0)?;
    let begun = cpu_time();
    let codes = Codes::train(&dictionary, &mut encoder, Effort::Dense, &samples, TRAINING_BYTES_MAX);
    let training = cpu_time() - begun;
    let sample_bytes: usize = samples.iter().map(|sample| sample.len()).sum();

    let mut plain = Run::default();
    for group in values.chunks(64) {
        dictionary.encode_group_with(&mut encoder, Effort::Dense, group, &mut plain.bytes, &mut plain.ends);
    }
    let (mut dense, mut restored, mut recoder) = (Run::default(), Run::default(), Recoder::new());
    let mut failed = 0;
    let recoding = best(RUNS, || {
        let done = dense.refill(&plain, |value, out| recoder.recode(&codes, &dictionary, value, out));
        failed += usize::from(done.is_err());
    });
    let restoring = best(RUNS, || {
        let done = restored.refill(&dense, |value, out| recoder.restore(&codes, &dictionary, value, out));
        failed += usize::from(done.is_err());
    });
    failed += usize::from(restored.bytes != plain.bytes);

    let order = random_order(values.len());
    let mut out = Vec::with_capacity(1 << 17);
    for &index in &order {
        out.clear();
        codes.decode_append(&dictionary, dense.value(index), &mut out, 1 << 16)?;
        failed += usize::from(out != values[index]);
    }
    let other = vec![1u8; OTHER_BYTES];
    let mut time = |run: &Run, decode: &dyn Fn(&[u8], &mut Vec<u8>) -> bool| {
        let warm = best(RUNS, || {
            for &index in &order {
                out.clear();
                failed += usize::from(!decode(run.value(index), &mut out));
            }
        });
        let cold: Duration = order
            .iter()
            .take(COLD_VALUES)
            .map(|&index| {
                black_box(other.iter().step_by(64).map(|&byte| u64::from(byte)).sum::<u64>());
                out.clear();
                let begun = cpu_time();
                failed += usize::from(!decode(run.value(index), &mut out));
                cpu_time() - begun
            })
            .sum();
        let nothing: Duration = (0..COLD_VALUES)
            .map(|_| {
                let begun = cpu_time();
                cpu_time() - begun
            })
            .sum();
        [
            warm.as_secs_f64() / order.len() as f64,
            cold.saturating_sub(nothing).as_secs_f64() / COLD_VALUES as f64,
        ]
        .map(|seconds| seconds * 1e9)
    };
    let [plain_ns, plain_cold] =
        time(&plain, &|value, out| dictionary.decode_append(value, out, 1 << 16).is_ok());
    let [dense_ns, dense_cold] =
        time(&dense, &|value, out| codes.decode_append(&dictionary, value, out, 1 << 16).is_ok());
    if failed != 0 {
        return Err(format!("{failed} values of {name} came back wrong").into());
    }
    let ns = |time: Duration| time.as_secs_f64() * 1e9 / values.len() as f64;
    println!(
        "{name:12} {bits:4} {:7.3} {:7.3} {:5.1}% {plain_ns:8.0} {dense_ns:8.0} {plain_cold:8.0} \
         {dense_cold:8.0} {:8.0} {:8.0} {:8.1} {:6.0}",
        raw_bytes as f64 / plain.bytes.len() as f64,
        raw_bytes as f64 / dense.bytes.len() as f64,
        100.0 - 100.0 * dense.bytes.len() as f64 / plain.bytes.len() as f64,
        ns(recoding),
        ns(restoring),
        training.as_secs_f64() * 1e3 / (sample_bytes as f64 / 1e6),
        codes.memory_bytes() as f64 / 1e3,
    );
    Ok(())
}
