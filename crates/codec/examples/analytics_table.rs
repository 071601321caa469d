//! Prints the speed of analytic operations: GB/s of packed input, by operation, width, order and executor.
//!
//! ```text
//! cargo run --release -p ziptier-codec --example analytics_table -- \
//!   [--elements 262144] [--widths 1,8,17] [--big-endian]
//! ```
//!
//! Elements are random. A scan finds about half of them, and an extraction takes all but the first 100. Masks for
//! select and expand have half of their bits set at random. `scan 1 %` writes the indices of one element in a hundred
//! in 32 bits. `extract 32` widens to 32 bits. `inflate+scan` decompresses elements, three in four of which repeat the
//! one before. Executors take turns, and a device takes part if this process may use one; waiting for the device
//! counts. The best CPU time of seven runs counts. Answers are compared before they are timed.

mod measuring;

use measuring::{Random, cpu_time};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use ziptier_accel::discovery::{Discovery, Places};
use ziptier_accel::{Device, Limits};
use ziptier_codec::analytics::{
    Accelerated, BitMask, Column, Cpu, Endian, Executor, Operation, Output, OutputWidth, Request, Source,
};
use ziptier_deflate::{Dictionary, Encoder, Huffman, Level};

/// The best of so many rounds counts.
const ROUNDS: usize = 7;

/// A round repeats a request until it has read this many bytes.
const ROUND_BYTES: usize = 16 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut elements = 1 << 18;
    let mut widths = vec![1, 4, 8, 11, 12, 16, 17, 24, 27, 32];
    let mut endian = Endian::Little;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--elements" => elements = arguments.next().ok_or("--elements needs a number")?.parse()?,
            "--widths" => {
                let list = arguments.next().ok_or("--widths needs a list")?;
                widths = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            "--big-endian" => endian = Endian::Big,
            other => return Err(format!("unknown argument `{other}`").into()),
        }
    }
    let mut executors: Vec<Box<dyn Executor>> = vec![Box::new(Cpu::portable())];
    executors.extend(Cpu::avx512().map(|cpu| Box::new(cpu) as Box<dyn Executor>));
    executors.extend(device(elements).map(|device| Box::new(device) as Box<dyn Executor>));
    print!("{:13} {:>5}", "operation", "width");
    executors.iter().for_each(|executor| print!(" {:>9}", executor.name()));
    println!();
    for &width in &widths {
        for measured in ["scan", "scan 1 %", "extract", "extract 32", "select", "expand", "inflate+scan"] {
            let bytes = Bytes::new(elements, width, measured == "inflate+scan");
            let request = bytes.request(measured, width, endian);
            let rates = measure(&mut executors, &request, bytes.plain.len())?;
            print!("{measured:13} {width:5}");
            rates.iter().for_each(|rate| print!(" {rate:9.2}"));
            println!();
        }
    }
    Ok(())
}

/// The accelerator's queues that this process may use, if there are any.
fn device(elements: u32) -> Option<Accelerated> {
    let found = Discovery::read(&Places::default());
    let opened = found.usable().filter_map(|usable| ziptier_accel::hardware::open(&usable).ok());
    let queues: Vec<Arc<dyn Device>> = opened.map(|queue| Arc::new(queue) as Arc<dyn Device>).collect();
    let bytes = elements as usize * 5 + 64;
    let limits = Limits { jobs: 1, source_bytes_max: bytes, output_bytes_max: bytes, ..Limits::default() };
    (!queues.is_empty()).then(|| Accelerated::new(queues, limits))
}

/// The bytes to which requests refer.
struct Bytes {
    elements: u32,
    plain: Vec<u8>,
    compressed: Vec<u8>,
    mask: Vec<u8>,
}

impl Bytes {
    fn new(elements: u32, width: u32, repetitive: bool) -> Bytes {
        let mut random = Random(u64::from(width));
        let mut last = 0;
        let mut byte = || {
            if !repetitive || random.below(4) == 0 {
                last = random.below(256) as u8;
            }
            last
        };
        let length = (u64::from(elements) * u64::from(width)).div_ceil(8);
        let plain: Vec<u8> = (0..length).map(|_| byte()).collect();
        let mut compressed = Vec::new();
        if repetitive {
            let dictionary = Dictionary::new(b"");
            Encoder::new(&dictionary, Level::Fast).compress(
                Huffman::Dynamic,
                &plain,
                &mut compressed,
                2 * plain.len() + 64,
            );
        }
        let mask = (0..elements.div_ceil(8)).map(|_| random.below(256) as u8).collect();
        Bytes { elements, plain, compressed, mask }
    }

    fn request(&self, measured: &str, width: u32, endian: Endian) -> Request<'_> {
        let count = self.elements;
        let largest = u32::MAX >> (32 - width);
        let (half, hundredth) = (largest / 2, largest / 100);
        let source = match measured {
            "inflate+scan" => Source::Deflate(&self.compressed),
            _ => Source::Plain(&self.plain),
        };
        let mask = BitMask { bytes: &self.mask, endian, count };
        let operation = match measured {
            "extract" | "extract 32" => Operation::Extract { first: 100, last: count - 1 },
            "select" => Operation::Select(mask),
            "expand" => Operation::Expand(mask),
            "scan 1 %" => Operation::Scan { low: 0, high: hundredth, negate: false },
            _ => Operation::Scan { low: 0, high: half, negate: false },
        };
        let output_width = match measured {
            "scan 1 %" | "extract 32" => OutputWidth::Bits32,
            _ => OutputWidth::Nominal,
        };
        let column = Column { source, width, endian, count };
        let output = Output { width: output_width, endian };
        Request { output, ..Request::new(column, operation) }
    }
}

/// GB/s of uncompressed input, by executor.
fn measure(
    executors: &mut [Box<dyn Executor>],
    request: &Request<'_>,
    input_bytes: usize,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let mut outputs = vec![Vec::new(); executors.len()];
    for (executor, output) in executors.iter_mut().zip(&mut outputs) {
        executor.run(request, output)?;
    }
    if outputs.windows(2).any(|two| two[0] != two[1]) {
        return Err("executors disagree".into());
    }
    let repeats = (ROUND_BYTES / input_bytes.max(1)).max(1);
    let mut best = vec![Duration::MAX; executors.len()];
    for _ in 0..ROUNDS {
        for ((executor, output), best) in executors.iter_mut().zip(&mut outputs).zip(&mut best) {
            let begun = cpu_time();
            for _ in 0..repeats {
                output.clear();
                executor.run(request, output)?;
            }
            *best = (*best).min(cpu_time() - begun);
        }
    }
    Ok(best.iter().map(|best| (repeats * input_bytes) as f64 / 1e9 / best.as_secs_f64()).collect())
}
