//! Damages packed blocks, and counts the faults of their decoders: wrong bytes, or an output that an error left
//! changed. A crash ends the program.
//!
//! ```text
//! cargo run --release -p ziptier-codec --example damage -- 10000000 dickens xml
//! ```
//!
//! The program packs blocks of 1 byte to 16 KiB of the files in every format, by every engine, at several levels, with
//! and without a dictionary. Each damage takes one packed block. It flips bits, overwrites, inserts, removes or swaps
//! bytes, cuts the block off, joins it to another, or replaces it by random bytes. It may also read the block with
//! another dictionary or format. The program unpacks damaged frames, and also damaged payloads alone. No checksum
//! protects a payload: wrong bytes are no fault there, but their number must be right.

mod measuring;

use measuring::Random;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use ziptier_codec::block::{BlockCodec, DeviceSource, Dictionary, Engine, Huffman, Path, Setting, frame};
use ziptier_codec::format::Format;

/// Blocks of each setting.
const BLOCKS: usize = 60;
/// The largest block.
const BLOCK_BYTES_MAX: usize = 16 << 10;

/// A block, and its frame.
struct Packed {
    raw: Vec<u8>,
    frame: Vec<u8>,
}

/// An engine, and the blocks that it packed.
struct Subject {
    setting: Setting,
    engine: Arc<dyn Engine>,
    packed: Vec<Packed>,
}

/// The results of the damages.
#[derive(Default)]
struct Outcome {
    /// Frames that gave an error.
    noticed: u64,
    /// Damages without effect, such as a swap of equal bytes or the engine of another level: the block came back.
    harmless: u64,
    /// Frames that gave other bytes than were packed.
    wrong: u64,
    /// Payloads without frame that gave an error; `decoded` counts those that gave bytes.
    refused: u64,
    decoded: u64,
    /// Outputs that an error changed, or that have another length than asked for.
    broken: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().ok_or("give a number of damages, and files")?.parse()?;
    let files = measuring::read(&arguments.collect::<Vec<_>>())?;
    if files.is_empty() {
        return Err("give files to take blocks from".into());
    }
    let mut random = Random(count);
    let mut subjects = Vec::new();
    for file in &files {
        let settings = settings(&file.bytes)?;
        println!("{}: {} settings, {BLOCKS} blocks each", file.name, settings.len());
        for (setting, engine) in settings {
            subjects.push(Subject::new(setting, engine, &file.bytes, &mut random)?);
        }
    }
    let mut codecs = Vec::new();
    for subject in &subjects {
        codecs.push(subject.engine.open()?);
    }

    let mut outcome = Outcome::default();
    for done in 0..count {
        if done.is_multiple_of(100_000) && std::io::stderr().is_terminal() {
            eprint!("\r{done} of {count}, {} wrong ", outcome.wrong + outcome.broken);
            std::io::stderr().flush()?;
        }
        let subject = random.below(subjects.len());
        damage_one(&subjects, subject, &mut codecs, &mut random, &mut outcome);
    }
    let Outcome { noticed, harmless, wrong, refused, decoded, broken } = outcome;
    println!("frames: {noticed} errors, {harmless} damages without effect, {wrong} wrong");
    println!("payloads without checksum: {refused} errors, {decoded} decoded to the length asked for");
    println!("outputs changed by an error, or of another length: {broken}");
    if wrong + broken > 0 { Err("some damage went unnoticed".into()) } else { Ok(()) }
}

/// Every format, engine, and Huffman mode, at several levels, with a dictionary of the file and without.
fn settings(file: &[u8]) -> Result<Vec<(Setting, &'static str)>, Box<dyn std::error::Error>> {
    let samples: Vec<&[u8]> = file.chunks(512).take(4000).collect();
    let mut settings = vec![(Setting::new(Format::None), "cpu")];
    for (format, engine, levels) in [
        (Format::Lz4, "cpu", &[-8, 1, 6, 12][..]),
        (Format::Zstd, "cpu", &[-5, 1, 3, 19]),
        (Format::Deflate, "software", &[1, 6, 12]),
        (Format::Deflate, "zlib", &[1, 6, 9]),
        (Format::Deflate, "iaa", &[6]),
    ] {
        let dictionary = Arc::new(Dictionary::train(format, &samples, 4096, 1)?);
        for &level in levels {
            let mut setting = Setting::new(format).with_level(level);
            if engine == "iaa" {
                let model = DeviceSource::Modelled("timing=off".parse()?);
                setting = setting.with_device(model).with_path(Path::Hardware);
            }
            let with_dictionary = setting.clone().with_dictionary(Arc::clone(&dictionary));
            if format == Format::Deflate {
                settings.push((setting.clone().with_huffman(Huffman::Fixed), engine));
            }
            if engine == "software" || engine == "iaa" {
                settings.push((with_dictionary.clone().with_huffman(Huffman::Canned), engine));
            }
            settings.push((with_dictionary, engine));
            settings.push((setting, engine));
        }
    }
    settings.extend(with_library());
    Ok(settings)
}

/// Intel's library, if it is installed: it has neither dictionaries nor ziptier's canned codes.
fn with_library() -> Vec<(Setting, &'static str)> {
    let deflate = Setting::new(Format::Deflate).with_path(Path::Software);
    if let Err(error) = deflate.engine_named("qpl") {
        println!("without qpl: {error}");
        return Vec::new();
    }
    let settings = [1, 6].into_iter().flat_map(|level| {
        [Huffman::Fixed, Huffman::Dynamic]
            .map(|huffman| (deflate.clone().with_level(level).with_huffman(huffman), "qpl"))
    });
    settings.collect()
}

impl Subject {
    fn new(
        setting: Setting,
        engine: &str,
        file: &[u8],
        random: &mut Random,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let engine = setting.engine_named(engine)?;
        let mut packed = Vec::new();
        {
            let mut codec = engine.open()?;
            for _ in 0..BLOCKS {
                // As many small ones as large ones.
                let most = (BLOCK_BYTES_MAX >> random.below(14)).min(file.len());
                let bytes = 1 + random.below(most);
                let start = random.below(file.len() - bytes + 1);
                let raw = file[start..start + bytes].to_vec();
                let mut frame = Vec::new();
                frame::pack(codec.as_mut(), setting.format, &raw, &mut frame)?;
                packed.push(Packed { raw, frame });
            }
        }
        Ok(Self { setting, engine, packed })
    }
}

/// Damages one block of a subject and unpacks it, by the subject's engine or, sometimes, by another one.
fn damage_one(
    subjects: &[Subject],
    subject: usize,
    codecs: &mut [Box<dyn BlockCodec + '_>],
    random: &mut Random,
    outcome: &mut Outcome,
) {
    let own = &subjects[subject];
    let Packed { raw, frame } = &own.packed[random.below(own.packed.len())];
    if random.below(16) == 0 {
        // Whole, but read with another dictionary or format.
        let other = random.below(subjects.len());
        return unpack(&subjects[other], codecs[other].as_mut(), frame, raw, outcome);
    }
    let other = &own.packed[random.below(own.packed.len())];
    let beside = &other.frame;
    if random.below(4) == 0 && frame[0] == own.setting.format.number() {
        let payload = damaged(&frame[frame::HEADER_BYTES..], beside, random);
        return decompress(codecs[subject].as_mut(), &payload, raw.len(), outcome);
    }
    let frame = damaged(frame, beside, random);
    // Joining two frames that begin alike may give exactly the second one.
    let raw = if frame == *beside { &other.raw } else { raw };
    unpack(own, codecs[subject].as_mut(), &frame, raw, outcome);
}

/// `bytes` with some damage.
fn damaged(bytes: &[u8], beside: &[u8], random: &mut Random) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    let at = random.below(bytes.len());
    match random.below(9) {
        0..3 => {
            for _ in 0..1 + random.below(4) {
                damaged[random.below(bytes.len())] ^= 1 << random.below(8);
            }
        }
        3 => damaged.truncate(at),
        4 => {
            // Joins the beginning of this frame to the end of another.
            damaged.truncate(at);
            damaged.extend_from_slice(&beside[random.below(beside.len())..]);
        }
        5 => {
            let end = (at + 1 + random.below(32)).min(bytes.len());
            damaged[at..end].fill_with(|| random.below(256) as u8);
        }
        6 => damaged.insert(at, random.below(256) as u8),
        7 => damaged.swap(at, random.below(bytes.len())),
        _ => damaged = (0..random.below(600)).map(|_| random.below(256) as u8).collect(),
    }
    damaged
}

const BEFORE: &[u8] = b"before";

/// Unpacks a frame. The result must be an error or the block.
fn unpack(subject: &Subject, codec: &mut dyn BlockCodec, frame: &[u8], raw: &[u8], outcome: &mut Outcome) {
    let mut out = BEFORE.to_vec();
    match frame::unpack(codec, subject.setting.format, frame, &mut out, BLOCK_BYTES_MAX) {
        Err(_) if out == BEFORE => outcome.noticed += 1,
        Err(_) => outcome.broken += 1,
        Ok(_) if out[BEFORE.len()..] == *raw => outcome.harmless += 1,
        Ok(_) => outcome.wrong += 1,
    }
}

/// Decompresses a payload. The result must be an error or the requested number of bytes.
fn decompress(codec: &mut dyn BlockCodec, payload: &[u8], raw_bytes: usize, outcome: &mut Outcome) {
    let mut out = BEFORE.to_vec();
    match codec.decompress(payload, &mut out, raw_bytes) {
        Err(_) if out == BEFORE => outcome.refused += 1,
        Ok(()) if out.len() == BEFORE.len() + raw_bytes => outcome.decoded += 1,
        _ => outcome.broken += 1,
    }
}
