//! Prints the cost and the use of blocks in parts, on modelled devices and on the CPU.
//!
//! ```text
//! cargo run --release -p ziptier-codec --example split_table -- book1 book2 [--bytes 16384,65536] [--split 1,2,4,8]
//!   [--devices 1,2,4] [--callers 1,8] [--rounds 6] [--slow 1000]
//! ```
//!
//! Files are raw, or compressed by zstd. A row is a size of blocks, a number of parts, of modelled devices and of
//! threads that wait for one block after the other. The model runs in slow motion, a thousand times slower than the
//! modelled device, and times are divided by that. So they are times of the device, to which the host adds next to
//! nothing. With `--slow 1 --rounds 200` the host has its true part in unpacking, which the model answers from memory.
//! Its packing takes the time of software then. Rows of `software` are the CPU alone: one thread, CPU time. MB/s are of
//! raw bytes, of all callers together.

mod measuring;

use measuring::best;
use std::error::Error;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use ziptier_accel::Timing;
use ziptier_codec::block::setting::SettingError;
use ziptier_codec::block::{BlockCodec, DeviceSource, Engine, ModelOptions, Path, Setting};
use ziptier_codec::format::Format;

/// Blocks of the CPU, of which the best of so many runs counts.
const CPU_BLOCKS: usize = 64;
const RUNS: usize = 5;

struct Plan {
    files: Vec<String>,
    bytes: Vec<usize>,
    splits: Vec<u32>,
    devices: Vec<u32>,
    callers: Vec<usize>,
    rounds: usize,
    slow: f64,
}

/// The median time of a block, and the rate of all callers.
struct Speed {
    us: f64,
    mb_per_s: f64,
}

/// The blocks of a table, with their bytes as a whole and in parts.
struct Blocks<'a> {
    raw: Vec<&'a [u8]>,
    packed: Vec<Vec<u8>>,
    whole_bytes: usize,
    split: u32,
}

fn plan() -> Result<Plan, Box<dyn Error>> {
    let mut plan = Plan {
        files: Vec::new(),
        bytes: vec![16 << 10, 64 << 10],
        splits: vec![1, 2, 4, 8],
        devices: vec![1, 2, 4],
        callers: vec![1, 8],
        rounds: 6,
        slow: 1000.0,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if !argument.starts_with("--") {
            plan.files.push(argument);
            continue;
        }
        let value = arguments.next().ok_or("every option has a value")?;
        let numbers: Vec<u32> = value.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let sizes = || numbers.iter().map(|&number| number as usize).collect();
        match argument.as_str() {
            "--bytes" => plan.bytes = sizes(),
            "--callers" => plan.callers = sizes(),
            "--split" => plan.splits = numbers,
            "--devices" => plan.devices = numbers,
            "--rounds" => plan.rounds = value.parse()?,
            "--slow" => plan.slow = value.parse()?,
            _ => return Err(format!("there is no option {argument}").into()),
        }
    }
    Ok(plan)
}

fn main() -> Result<(), Box<dyn Error>> {
    let plan = plan()?;
    let texts: Vec<u8> = measuring::read(&plan.files)?.into_iter().flat_map(|file| file.bytes).collect();
    println!(
        "{:8} {:>6} {:>5} {:>7} {:>7} {:>6} {:>6} {:>8} {:>7} {:>9} {:>7}",
        "worker",
        "block",
        "parts",
        "devices",
        "callers",
        "ratio",
        "+%",
        "pack us",
        "MB/s",
        "unpack us",
        "MB/s"
    );
    for (&bytes, &split) in plan.bytes.iter().flat_map(|bytes| plan.splits.iter().map(move |it| (bytes, it)))
    {
        let raw: Vec<&[u8]> = texts.chunks_exact(bytes).collect();
        let software = |split| setting(split).with_path(Path::Software).engine();
        let blocks = Blocks::new(raw.clone(), split, software)?;
        on_the_cpu(&*software(split)?, &blocks)?;
        let untimed = ModelOptions { is_synchronous: true, ..ModelOptions::default() };
        let blocks = Blocks::new(raw, split, |split| on_model(split, untimed.clone()).engine())?;
        for &devices in &plan.devices {
            let engine = on_model(split, slowed(devices, plan.slow)).engine()?;
            for &callers in &plan.callers {
                on_devices(&*engine, &blocks, [devices as usize, callers], &plan)?;
            }
        }
    }
    Ok(())
}

fn setting(split: u32) -> Setting {
    Setting::new(Format::Deflate).with_split(split)
}

fn on_model(split: u32, options: ModelOptions) -> Setting {
    setting(split).with_path(Path::Hardware).with_device(DeviceSource::Modelled(options))
}

/// A model that is so many times slower than the modelled device.
fn slowed(devices: u32, slow: f64) -> ModelOptions {
    let real = Timing::default();
    let timing = Timing {
        compress_gbps: real.compress_gbps / slow,
        decompress_gbps: real.decompress_gbps / slow,
        compress_latency: real.compress_latency.mul_f64(slow),
        decompress_latency: real.decompress_latency.mul_f64(slow),
        ..real
    };
    ModelOptions { devices, timing: Some(timing), ..ModelOptions::default() }
}

impl<'a> Blocks<'a> {
    fn new(
        raw: Vec<&'a [u8]>,
        split: u32,
        engine: impl Fn(u32) -> Result<Arc<dyn Engine>, SettingError>,
    ) -> Result<Blocks<'a>, Box<dyn Error>> {
        let pack = |split| {
            let engine = engine(split)?;
            let mut codec = engine.open()?;
            let packed = raw.iter().map(|block| pack(&mut *codec, block));
            packed.collect::<Result<Vec<_>, Box<dyn Error>>>()
        };
        let (whole, packed) = (pack(1)?, pack(split)?);
        Ok(Blocks { raw, packed, whole_bytes: whole.iter().map(Vec::len).sum(), split })
    }

    fn print(&self, worker: &str, [devices, callers]: [usize; 2], pack: &Speed, unpack: &Speed) {
        let raw_bytes: usize = self.raw.iter().map(|block| block.len()).sum();
        let packed_bytes: usize = self.packed.iter().map(Vec::len).sum();
        println!(
            "{worker:8} {:6} {:5} {devices:7} {callers:7} {:6.3} {:6.2} {:8.1} {:7.0} {:9.1} {:7.0}",
            self.raw[0].len(),
            self.split,
            raw_bytes as f64 / packed_bytes as f64,
            (packed_bytes as f64 / self.whole_bytes as f64 - 1.0) * 100.0,
            pack.us,
            pack.mb_per_s,
            unpack.us,
            unpack.mb_per_s,
        );
    }
}

fn pack(codec: &mut dyn BlockCodec, block: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut packed = Vec::new();
    codec.compress(block, &mut packed, 2 * block.len())?.ok_or("a block does not fit")?;
    Ok(packed)
}

/// The best CPU time of one thread.
fn on_the_cpu(engine: &dyn Engine, blocks: &Blocks<'_>) -> Result<(), Box<dyn Error>> {
    let (mut codec, mut out, mut failed) = (engine.open()?, Vec::new(), 0);
    let raw = &blocks.raw[..blocks.raw.len().min(CPU_BLOCKS)];
    let packing = best(RUNS, || {
        for block in raw {
            out.clear();
            failed += usize::from(codec.compress(block, &mut out, 2 * block.len()).is_err());
        }
    });
    let unpacking = best(RUNS, || {
        for (block, packed) in raw.iter().zip(&blocks.packed) {
            out.clear();
            let result = codec.decompress(packed, &mut out, block.len());
            failed += usize::from(result.is_err() || out != *block);
        }
    });
    if failed > 0 {
        return Err("a block of the CPU did not come back".into());
    }
    let speed = |time: Duration| {
        let us = time.as_secs_f64() * 1e6 / raw.len() as f64;
        Speed { us, mb_per_s: raw[0].len() as f64 / us }
    };
    blocks.print(engine.worker(), [0, 1], &speed(packing), &speed(unpacking));
    Ok(())
}

fn on_devices(
    engine: &dyn Engine,
    blocks: &Blocks<'_>,
    [devices, callers]: [usize; 2],
    plan: &Plan,
) -> Result<(), Box<dyn Error>> {
    let packing = threads(engine, callers, plan, &|codec, index| {
        let block = blocks.raw[index % blocks.raw.len()];
        let packed = pack(codec, block).expect("a device compresses every block");
        assert!(packed.len() < block.len(), "text shrinks");
        block.len()
    })?;
    let unpacking = threads(engine, callers, plan, &|codec, index| {
        let index = index % blocks.raw.len();
        let (block, mut out) = (blocks.raw[index], Vec::new());
        codec.decompress(&blocks.packed[index], &mut out, block.len()).expect("every block is sound");
        assert!(out == block, "every block comes back");
        block.len()
    })?;
    blocks.print(engine.worker(), [devices, callers], &packing, &unpacking);
    Ok(())
}

/// Lets threads work on blocks, one after the other, after a round that does not count: it makes sessions, and the
/// model keeps its answers. `work` returns the raw bytes of the block of a number.
fn threads(
    engine: &dyn Engine,
    callers: usize,
    plan: &Plan,
    work: &(dyn Fn(&mut dyn BlockCodec, usize) -> usize + Sync),
) -> Result<Speed, Box<dyn Error>> {
    let barrier = Barrier::new(callers + 1);
    let mut contexts = (0..callers).map(|_| engine.open()).collect::<Result<Vec<_>, _>>()?;
    let (mut times, mut bytes) = (Vec::new(), 0);
    let wall = std::thread::scope(|scope| {
        let working: Vec<_> = contexts
            .iter_mut()
            .enumerate()
            .map(|(caller, codec)| {
                let (barrier, rounds) = (&barrier, caller * plan.rounds..(caller + 1) * plan.rounds);
                scope.spawn(move || {
                    rounds.clone().for_each(|index| _ = work(&mut **codec, index));
                    barrier.wait();
                    let timed = |index| {
                        let begun = Instant::now();
                        (work(&mut **codec, index), begun.elapsed())
                    };
                    rounds.map(timed).collect::<Vec<_>>()
                })
            })
            .collect();
        barrier.wait();
        let begun = Instant::now();
        for thread in working {
            for (of_block, time) in thread.join().expect("a caller ends") {
                bytes += of_block;
                times.push(time);
            }
        }
        begun.elapsed()
    });
    times.sort_unstable();
    let median = times[times.len() / 2].as_secs_f64();
    Ok(Speed { us: median * 1e6 / plan.slow, mb_per_s: bytes as f64 / 1e6 / wall.as_secs_f64() * plan.slow })
}
