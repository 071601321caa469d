//! Prints the ratio and both speeds of block formats, by file, format, level, dictionary and block size.
//!
//! ```text
//! cargo run --release -p ziptier-codec --example block_table -- dickens nci [--bytes 512,4096] [--dictionary 16384]
//!   [--alternate]
//! ```
//!
//! Files are raw, or compressed by zstd. Dictionaries are trained on samples of the first half of a file, and blocks
//! come from the second half. With `--alternate`, every other piece of 64 KiB is a sample, the rest is cut into blocks,
//! and only tokens have another level than the usual one. Blocks are stored as frames, so ratio and bytes include the
//! frame's header. All times are CPU time of this thread, counters and checksums included; MB/s are of raw bytes. The
//! last column is the share of blocks of format `token` that are zstd inside.

mod measuring;

use measuring::{File, best, cpu_time, random_order};
use std::sync::Arc;
use std::time::Duration;
use ziptier_codec::block::{Dictionary, Huffman, Setting, frame};
use ziptier_codec::format::Format;

/// Bytes of samples for training a dictionary.
const SAMPLE_BYTES: usize = 2 << 20;

/// Bytes of blocks that are measured.
const MEASURED_BYTES: usize = 2 << 20;

/// Bytes of a piece that is a sample, or is cut into blocks.
const PIECE_BYTES: usize = 64 << 10;

/// The first byte of a block of format `token` that is zstd inside, as docs/FORMATS.md says.
const ZSTD_INSIDE: u8 = 2;

/// The best of so many runs counts.
const RUNS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut files = Vec::new();
    let mut sizes = vec![512, 1024, 4096, 16_384];
    let mut dictionary_bytes = 16 << 10;
    let mut alternates = false;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bytes" => {
                let list = arguments.next().ok_or("--bytes needs a list")?;
                sizes = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            "--dictionary" => {
                dictionary_bytes = arguments.next().ok_or("--dictionary needs a number")?.parse()?;
            }
            "--alternate" => alternates = true,
            _ => files.push(argument),
        }
    }
    println!(
        "{:12} {:8} {:8} {:>5} {:8} {:>6} {:>6} {:>7} {:>8} {:>11} {:>8} {:>6}",
        "file",
        "format",
        "engine",
        "level",
        "huffman",
        "dict",
        "block",
        "ratio",
        "pack",
        "unpack MB/s",
        "train ms",
        "zstd %"
    );
    for File { name, bytes } in &measuring::read(&files)? {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let [even, odd] = [0, 1].map(|from| bytes.chunks_exact(PIECE_BYTES).skip(from).step_by(2));
        let (trained, cut) = match alternates {
            true => (even.collect(), odd.collect()),
            false => (vec![first], vec![second]),
        };
        for setting in settings(alternates) {
            for &size in &sizes {
                let blocks = spread(&cut, size, MEASURED_BYTES);
                if setting.format != Format::Token {
                    measure(name, &setting, &blocks, Duration::ZERO)?;
                }
                let samples = spread(&trained, size, SAMPLE_BYTES);
                let begun = cpu_time();
                match Dictionary::train(setting.format, &samples, dictionary_bytes, 1) {
                    Ok(dictionary) => {
                        let training = cpu_time() - begun;
                        let setting = setting.clone().with_dictionary(Arc::new(dictionary));
                        measure(name, &setting, &blocks, training)?;
                    }
                    Err(error) => eprintln!("{name}: {error}"),
                }
            }
        }
    }
    Ok(())
}

fn settings(usual: bool) -> Vec<Setting> {
    let all = |format, levels: &[i32]| {
        let with = |&level: &i32| Setting::new(format).with_level(level);
        levels.iter().map(with).collect::<Vec<_>>()
    };
    if usual {
        let formats = [Format::Lz4, Format::Zstd, Format::Deflate, Format::Token].map(Setting::new);
        return formats.into_iter().chain(all(Format::Token, &[2])).collect();
    }
    let fixed = |setting: Setting| setting.with_huffman(Huffman::Fixed);
    [
        all(Format::Lz4, &[-8, 1, 9, 12]),
        all(Format::Zstd, &[-5, -1, 1, 3, 6, 19]),
        all(Format::Deflate, &[1, 6]),
        all(Format::Deflate, &[1, 6]).into_iter().map(fixed).collect(),
        all(Format::Token, &[1, 2]),
    ]
    .concat()
}

/// Blocks of `size` bytes, about `bytes` in all.
fn spread<'a>(parts: &[&'a [u8]], size: usize, bytes: usize) -> Vec<&'a [u8]> {
    let blocks: Vec<&[u8]> = parts.iter().flat_map(|part| part.chunks_exact(size)).collect();
    let limit = (bytes / size).max(1);
    let step = (blocks.len() / limit).max(1);
    blocks.into_iter().step_by(step).take(limit).collect()
}

fn measure(
    name: &str,
    setting: &Setting,
    blocks: &[&[u8]],
    training: Duration,
) -> Result<(), Box<dyn std::error::Error>> {
    let engine = setting.engine()?;
    let mut codec = engine.open()?;
    let raw_bytes: usize = blocks.iter().map(|block| block.len()).sum();
    let block_bytes = blocks.first().map_or(1, |block| block.len());

    let mut frames: Vec<Vec<u8>> = Vec::new();
    for block in blocks {
        let mut stored = Vec::new();
        frame::pack(codec.as_mut(), setting.format, block, &mut stored)?;
        frames.push(stored);
    }
    let stored_bytes: usize = frames.iter().map(Vec::len).sum();
    let is_zstd = |frame: &&Vec<u8>| frame.get(frame::HEADER_BYTES) == Some(&ZSTD_INSIDE);
    let zstd_inside = match setting.format {
        Format::Token => format!("{}", 100 * frames.iter().filter(is_zstd).count() / frames.len().max(1)),
        _ => String::new(),
    };

    let mut stored = Vec::with_capacity(2 * block_bytes + 64);
    let mut failed = 0;
    let packing = best(RUNS, || {
        for block in blocks {
            stored.clear();
            failed += usize::from(frame::pack(codec.as_mut(), setting.format, block, &mut stored).is_err());
        }
    });

    // In random order, as a store reads them.
    let order = random_order(blocks.len());
    let mut raw = Vec::with_capacity(2 * block_bytes + 64);
    let unpacking = best(RUNS, || {
        for &index in &order {
            raw.clear();
            let result = frame::unpack(codec.as_mut(), setting.format, &frames[index], &mut raw, block_bytes);
            failed += usize::from(result.is_err());
        }
    });
    for &index in &order {
        raw.clear();
        frame::unpack(codec.as_mut(), setting.format, &frames[index], &mut raw, block_bytes)?;
        failed += usize::from(raw != blocks[index]);
    }
    if failed != 0 {
        return Err(format!("{failed} blocks of {name} came back wrong: {setting}").into());
    }

    let speed = |time: Duration| raw_bytes as f64 / 1e6 / time.as_secs_f64();
    println!(
        "{name:12} {:8} {:8} {:5} {:8} {:6} {block_bytes:6} {:7.3} {:8.0} {:11.0} {:8.0} {zstd_inside:>6}",
        setting.format,
        engine.name(),
        setting.level,
        if setting.format == Format::Deflate { setting.huffman.name() } else { "" },
        setting.dictionary.as_ref().map_or(0, |dictionary| dictionary.content().len()),
        raw_bytes as f64 / stored_bytes as f64,
        speed(packing),
        speed(unpacking),
        training.as_secs_f64() * 1e3,
    );
    Ok(())
}
