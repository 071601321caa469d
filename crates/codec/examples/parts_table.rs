//! Prints how fast blocks of tokens decode whole: by numbers, by codes, and by codes in parts that are decoded side by
//! side; and what the parts cost, by file and size of blocks.
//!
//! ```text
//! cargo run --release -p ziptier-codec --example parts_table -- FILE... [--block-bytes 4096,16384] [--bits 14]
//! ```
//!
//! Files are raw, or compressed by zstd. A block is cut into rows of 256 bytes. Dictionary and codes are trained on
//! every second block of the file, spread over 2 MB, and the others are measured. Times are CPU time of this thread for
//! each byte of a block, in random order. The forms take turns, and the best of 15 rounds counts.

mod measuring;

use measuring::{File, cpu_time, random_order};
use std::time::Duration;
use ziptier_codec::token::entropy::{Codes, Recoder};
use ziptier_codec::token::{DecodeError, Dictionary, Effort, Encoder};

/// Bytes of samples for training.
const SAMPLE_BYTES: usize = 2 << 20;

/// Memory for training codes.
const TRAINING_BYTES_MAX: usize = 16 << 20;

/// Bytes of all blocks that are measured.
const MEASURED_BYTES: usize = 2 << 20;

const ROW_BYTES: usize = 256;

/// The best of so many rounds counts.
const ROUNDS: usize = 15;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut files = Vec::new();
    let mut block_bytes = vec![4096, 16_384];
    let mut bits = 14;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--block-bytes" => {
                let list = arguments.next().ok_or("--block-bytes needs a list")?;
                block_bytes = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
            }
            "--bits" => bits = arguments.next().ok_or("--bits needs a number")?.parse()?,
            _ => files.push(argument),
        }
    }
    println!(
        "{:10} {:>6} {:>7} {:>7} {:>7} {:>7} {:>8} {:>8} {:>8} {:>7}",
        "file", "block", "tokens", "ratio", "codes", "parts", "ns/B", "codes", "parts", "parts/c"
    );
    for File { name, bytes } in &measuring::read(&files)? {
        for &block_bytes in &block_bytes {
            let blocks: Vec<&[u8]> = bytes.chunks_exact(block_bytes).collect();
            measure(name, bits, &blocks, block_bytes)?;
        }
    }
    Ok(())
}

/// Every second block, so that at most `limit` bytes are left.
fn spread<'a>(blocks: &[&'a [u8]], first: usize, limit: usize) -> Vec<&'a [u8]> {
    let bytes: usize = blocks.iter().map(|block| block.len()).sum();
    let step = (bytes / 2 / limit).max(1);
    blocks.iter().copied().skip(first).step_by(2 * step).collect()
}

fn measure(
    name: &str,
    bits: u32,
    blocks: &[&[u8]],
    block_bytes: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let (samples, blocks) = (spread(blocks, 0, SAMPLE_BYTES), spread(blocks, 1, MEASURED_BYTES));
    let rows: Vec<&[u8]> = samples.iter().flat_map(|block| block.chunks(ROW_BYTES)).collect();
    let dictionary = Dictionary::train(&rows, bits, 0)?;
    let samples = by_numbers(&dictionary, &samples);
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    let codes = Codes::train_coded(&dictionary, &samples, TRAINING_BYTES_MAX)?;
    let numbers = by_numbers(&dictionary, &blocks);
    let (mut whole, mut parts, mut recoder) = (Vec::new(), Vec::new(), Recoder::new());
    for numbers in &numbers {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        recoder.recode(&codes, &dictionary, numbers, &mut one)?;
        if !recoder.recode_block(&codes, &dictionary, numbers, &mut other)? {
            return Err(format!("a block of {name} is too short for parts").into());
        }
        whole.push(one);
        parts.push(other);
    }

    let decode_numbers =
        |packed: &[u8], out: &mut Vec<u8>| dictionary.decode_append(packed, out, block_bytes);
    let decode_whole =
        |packed: &[u8], out: &mut Vec<u8>| codes.decode_append(&dictionary, packed, out, block_bytes);
    let decode_parts =
        |packed: &[u8], out: &mut Vec<u8>| codes.decode_parts(&dictionary, packed, out, block_bytes);
    let spare_bytes = dictionary.spare_bytes(2 * block_bytes);
    let forms: [(&[Vec<u8>], &Decode<'_>); 3] =
        [(&numbers, &decode_numbers), (&whole, &decode_whole), (&parts, &decode_parts)];
    let times = times(&blocks, forms, spare_bytes)?;
    let raw_bytes = (blocks.len() * block_bytes) as f64;
    let bytes = |packed: &[Vec<u8>]| packed.iter().map(Vec::len).sum::<usize>() as f64;
    let [numbers_ns, whole_ns, parts_ns] = times.map(|time| time.as_secs_f64() * 1e9 / raw_bytes);
    println!(
        "{name:10} {block_bytes:6} {:7.0} {:7.3} {:7.3} {:7.3} {numbers_ns:8.3} {whole_ns:8.3} {parts_ns:8.3} \
         {:7.2}",
        bytes(&numbers) * 8.0 / f64::from(bits) / blocks.len() as f64,
        raw_bytes / bytes(&numbers),
        raw_bytes / bytes(&whole),
        raw_bytes / bytes(&parts),
        parts_ns / whole_ns,
    );
    Ok(())
}

/// Appends a block to an empty buffer.
type Decode<'a> = dyn Fn(&[u8], &mut Vec<u8>) -> Result<usize, DecodeError> + 'a;

/// The blocks by numbers, each cut into rows.
fn by_numbers(dictionary: &Dictionary, blocks: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut encoder = Encoder::new();
    let coded = |block: &&[u8]| {
        let mut coded = Vec::new();
        dictionary.encode_block(&mut encoder, Effort::Dense, block, ROW_BYTES, &mut coded);
        coded
    };
    blocks.iter().map(coded).collect()
}

/// The least time in which all blocks of each form are decoded.
fn times<const FORMS: usize>(
    blocks: &[&[u8]],
    forms: [(&[Vec<u8>], &Decode<'_>); FORMS],
    spare_bytes: usize,
) -> Result<[Duration; FORMS], Box<dyn std::error::Error>> {
    let mut out = Vec::with_capacity(spare_bytes);
    for (packed, decode) in forms {
        for (block, packed) in blocks.iter().zip(packed) {
            out.clear();
            decode(packed, &mut out)?;
            if out != *block {
                return Err("a block came back wrong".into());
            }
        }
    }
    let order = random_order(blocks.len());
    let mut best = [Duration::MAX; FORMS];
    for _ in 0..ROUNDS {
        for (best, (packed, decode)) in best.iter_mut().zip(forms) {
            let begun = cpu_time();
            for &index in &order {
                out.clear();
                decode(&packed[index], &mut out)?;
            }
            *best = (cpu_time() - begun).min(*best);
        }
    }
    Ok(best)
}
