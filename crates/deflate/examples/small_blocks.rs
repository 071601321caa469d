//! Prints ratio and both speeds of small blocks, beside zstd with a dictionary, libdeflate and zlib.
//!
//! ```text
//! cargo run --release -p ziptier-deflate --example small_blocks -- FILE_OR_FOLDER... [--bytes 512,1024,4096]
//! ```
//!
//! Files are raw, or compressed by zstd; a folder stands for its files one behind the other. Dictionaries are trained
//! on 2 MiB of blocks of the first half: 4 KiB and canned codes for this crate, 16 KiB for zstd. 1 MiB of blocks of the
//! second half is measured, in MB/s of raw bytes. The time is CPU time of this thread, the best of several rounds in
//! which all codecs take turns. A zstd frame is counted without its magic number. The last lines are geometric means
//! over all files.

use libdeflate_sys as libdeflate;
use std::error::Error;
use std::path::Path;
use std::time::Duration;
use ziptier_deflate::{Decoder, Dictionary, Encoder, Huffman, Level, WINDOW_BYTES};

const SAMPLE_BYTES: usize = 2 << 20;
const MEASURED_BYTES: usize = 1 << 20;
const ROUNDS: usize = 7;

/// Appends what it makes of the bytes.
type Compress<'a> = Box<dyn FnMut(&[u8], &mut Vec<u8>) + 'a>;

/// The same, given the number of raw bytes.
type Decompress<'a> = Box<dyn FnMut(&[u8], &mut Vec<u8>, usize) + 'a>;

/// A codec: a name, and both directions.
struct Codec<'a> {
    name: &'static str,
    compress: Compress<'a>,
    decompress: Decompress<'a>,
}

#[derive(Clone, Copy)]
struct Figures {
    ratio: f64,
    compress_mb_s: f64,
    decompress_mb_s: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut paths, mut sizes) = (Vec::new(), vec![512, 1024, 4096]);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--bytes" => {
                let list = arguments.next().ok_or("--bytes needs a list")?;
                sizes = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            _ => paths.push(argument),
        }
    }
    println!(
        "{:14} {:>6} {:16} {:>6} {:>8} {:>9} MB/s",
        "file", "block", "codec", "ratio", "compress", "decompress"
    );
    for &size in &sizes {
        let mut all: Vec<Vec<(&str, Figures)>> = Vec::new();
        for path in &paths {
            let mut bytes = Vec::new();
            read(Path::new(path), &mut bytes)?;
            let (first, second) = bytes.split_at(bytes.len() / 2);
            let figures = measure(&spread(first, size, SAMPLE_BYTES), &spread(second, size, MEASURED_BYTES))?;
            print(path.rsplit('/').next().unwrap_or(path), size, &figures);
            all.push(figures);
        }
        let count = all.len() as f64;
        let mean = |codec: usize, of: fn(&Figures) -> f64| {
            (all.iter().map(|figures| of(&figures[codec].1).ln()).sum::<f64>() / count).exp()
        };
        let names = all.first().map_or(&[][..], |figures| &figures[..]);
        let means = names.iter().enumerate().map(|(codec, (name, _))| {
            let figures = Figures {
                ratio: mean(codec, |figures| figures.ratio),
                compress_mb_s: mean(codec, |figures| figures.compress_mb_s),
                decompress_mb_s: mean(codec, |figures| figures.decompress_mb_s),
            };
            (*name, figures)
        });
        print("geometric mean", size, &means.collect::<Vec<_>>());
    }
    Ok(())
}

fn read(path: &Path, bytes: &mut Vec<u8>) -> Result<(), Box<dyn Error>> {
    if path.is_dir() {
        let mut inside: Vec<_> =
            std::fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        inside.sort();
        return inside.iter().try_for_each(|path| read(path, bytes));
    }
    let file = std::fs::read(path)?;
    let is_packed = path.extension().is_some_and(|extension| extension == "zst");
    bytes.extend(if is_packed { zstd::decode_all(&*file)? } else { file });
    Ok(())
}

/// Blocks of `size` bytes, about `bytes` in all.
fn spread(file: &[u8], size: usize, bytes: usize) -> Vec<&[u8]> {
    let blocks: Vec<&[u8]> = file.chunks_exact(size).collect();
    let limit = (bytes / size).max(1);
    let step = (blocks.len() / limit).max(1);
    blocks.into_iter().step_by(step).take(limit).collect()
}

fn print(name: &str, size: usize, figures: &[(&str, Figures)]) {
    for (codec, Figures { ratio, compress_mb_s, decompress_mb_s }) in figures {
        println!("{name:14} {size:6} {codec:16} {ratio:6.3} {compress_mb_s:8.0} {decompress_mb_s:9.0}");
    }
}

fn measure(samples: &[&[u8]], blocks: &[&[u8]]) -> Result<Vec<(&'static str, Figures)>, Box<dyn Error>> {
    let dictionary = Dictionary::train(samples, WINDOW_BYTES);
    let lengths: Vec<usize> = samples.iter().map(|sample| sample.len()).collect();
    let of_zstd = zstd::dict::from_continuous(&samples.concat(), &lengths, 16 << 10)?;
    let mut codecs = vec![by_zstd(&of_zstd)?, by_libdeflate(1), by_zlib()];
    let levels = [
        ("canned fast", Huffman::Canned, Level::Fast),
        ("canned lazy", Huffman::Canned, Level::Lazy),
        ("canned dense", Huffman::Canned, Level::Dense),
        ("canned densest", Huffman::Canned, Level::Densest),
        ("fixed fast", Huffman::Fixed, Level::Fast),
        ("dynamic lazy", Huffman::Dynamic, Level::Lazy),
    ];
    codecs.extend(levels.map(|(name, huffman, level)| ours(name, &dictionary, huffman, level)));

    let raw_bytes: usize = blocks.iter().map(|block| block.len()).sum();
    let mut out = Vec::with_capacity(2 * blocks.first().map_or(0, |block| block.len()) + 1024);
    let mut packed: Vec<Vec<Vec<u8>>> = Vec::new();
    for codec in &mut codecs {
        let mut all = Vec::new();
        for block in blocks {
            let mut one = Vec::with_capacity(2 * block.len() + 1024);
            (codec.compress)(block, &mut one);
            out.clear();
            (codec.decompress)(&one, &mut out, block.len());
            if out != *block {
                return Err(format!("{}: other bytes came back", codec.name).into());
            }
            all.push(one);
        }
        packed.push(all);
    }
    let mut best = vec![(Duration::MAX, Duration::MAX); codecs.len()];
    for _ in 0..ROUNDS {
        for ((codec, packed), best) in codecs.iter_mut().zip(&packed).zip(&mut best) {
            best.0 = best.0.min(time(|| {
                blocks.iter().for_each(|block| {
                    out.clear();
                    (codec.compress)(block, &mut out);
                })
            }));
            best.1 = best.1.min(time(|| {
                packed.iter().zip(blocks).for_each(|(packed, block)| {
                    out.clear();
                    (codec.decompress)(packed, &mut out, block.len());
                })
            }));
        }
    }
    let speed = |time: Duration| raw_bytes as f64 / 1e6 / time.as_secs_f64();
    let figures = codecs.iter().zip(&packed).zip(&best).map(|((codec, packed), best)| {
        let magic = if codec.name.starts_with("zstd") { 4 * packed.len() } else { 0 };
        let packed_bytes = packed.iter().map(Vec::len).sum::<usize>() - magic;
        let ratio = raw_bytes as f64 / packed_bytes as f64;
        (codec.name, Figures { ratio, compress_mb_s: speed(best.0), decompress_mb_s: speed(best.1) })
    });
    Ok(figures.collect())
}

fn ours<'a>(name: &'static str, dictionary: &'a Dictionary, huffman: Huffman, level: Level) -> Codec<'a> {
    let mut encoder = Encoder::new(dictionary, level);
    let mut decoder = Decoder::new(dictionary);
    Codec {
        name,
        compress: Box::new(move |raw, out| {
            encoder.compress(huffman, raw, out, 2 * raw.len() + 64).expect("fits");
        }),
        decompress: Box::new(move |packed, out, raw_bytes| {
            decoder.decompress(huffman, packed, out, raw_bytes).expect("is sound");
        }),
    }
}

fn by_zstd<'a>(dictionary: &[u8]) -> Result<Codec<'a>, Box<dyn Error>> {
    let mut compressor = zstd::bulk::Compressor::with_dictionary(1, dictionary)?;
    compressor.include_checksum(false)?;
    compressor.include_dictid(false)?;
    compressor.include_contentsize(false)?;
    let mut decompressor = zstd::bulk::Decompressor::with_dictionary(dictionary)?;
    Ok(Codec {
        name: "zstd-1+16K",
        compress: Box::new(move |raw, out| {
            compressor.compress_to_buffer(raw, out).expect("fits");
        }),
        decompress: Box::new(move |packed, out, _| {
            decompressor.decompress_to_buffer(packed, out).expect("is sound");
        }),
    })
}

fn by_libdeflate<'a>(level: i32) -> Codec<'a> {
    // SAFETY: both are made once, and kept until the program ends.
    let (compressor, decompressor) = unsafe {
        (libdeflate::libdeflate_alloc_compressor(level), libdeflate::libdeflate_alloc_decompressor())
    };
    assert!(!compressor.is_null() && !decompressor.is_null(), "libdeflate has no memory");
    Codec {
        name: "libdeflate-1",
        compress: Box::new(move |raw, out| {
            out.resize(2 * raw.len() + 64, 0);
            // SAFETY: source and target are valid for the lengths given with them.
            let written = unsafe {
                let target = out.as_mut_ptr().cast();
                libdeflate::libdeflate_deflate_compress(
                    compressor,
                    raw.as_ptr().cast(),
                    raw.len(),
                    target,
                    out.len(),
                )
            };
            out.truncate(written);
        }),
        decompress: Box::new(move |packed, out, raw_bytes| {
            out.resize(raw_bytes, 0);
            // SAFETY: as above; a null pointer asks for the exact length.
            let result = unsafe {
                let (source, target) = (packed.as_ptr().cast(), out.as_mut_ptr().cast());
                let none = std::ptr::null_mut();
                libdeflate::libdeflate_deflate_decompress(
                    decompressor,
                    source,
                    packed.len(),
                    target,
                    raw_bytes,
                    none,
                )
            };
            assert_eq!(result, libdeflate::libdeflate_result_LIBDEFLATE_SUCCESS);
        }),
    }
}

fn by_zlib<'a>() -> Codec<'a> {
    Codec {
        name: "zlib-rs-6",
        compress: Box::new(|raw, out| {
            let config = zlib_rs::DeflateConfig { window_bits: -12, ..Default::default() };
            let mut deflate = zlib_rs::Deflate::new_with_config(config);
            out.resize(raw.len() + raw.len() / 8 + 64, 0);
            deflate.compress(raw, out, zlib_rs::DeflateFlush::Finish).expect("fits");
            out.truncate(deflate.total_out() as usize);
        }),
        decompress: Box::new(|packed, out, raw_bytes| {
            out.resize(raw_bytes, 0);
            let mut inflate = zlib_rs::Inflate::new(false, 12);
            inflate.decompress(packed, out, zlib_rs::InflateFlush::Finish).expect("is sound");
        }),
    }
}

/// CPU time of this thread.
fn time(run: impl FnOnce()) -> Duration {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let begun = now();
    run();
    now() - begun
}
