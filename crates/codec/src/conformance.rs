//! The suite that every format and engine passes.
//!
//! A format of single values implements [`ValueCodec`] and goes through [`check_values`], [`check_truncations`] and
//! [`check_flips`]. A block engine goes through [`check_engine`], [`check_block_truncations`] and
//! [`check_block_flips`]. The functions return the first [`Failure`], so that a test can also show that the suite
//! catches a broken codec.

use crate::block::{BlockCodec, BlockError, Done, Engine, Job, Task, frame};
use crate::token::{Dictionary, Effort, Encoder};
use std::fmt;
use std::mem::MaybeUninit;

/// A format that codes every value alone.
pub trait ValueCodec {
    /// Appends the coded bytes of each value to `coded`, and its end in `coded` to `ends`.
    fn encode_group(&mut self, values: &[&[u8]], coded: &mut Vec<u8>, ends: &mut Vec<u32>);

    /// Appends the value to `out`. An error leaves `out` unchanged and states the reason.
    fn decode_append(&mut self, coded: &[u8], out: &mut Vec<u8>, max_bytes: usize) -> Result<usize, String>;

    /// The length of the value.
    fn raw_len(&mut self, coded: &[u8]) -> Result<usize, String>;
}

/// The token format with one effort of its encoder.
#[derive(Debug)]
pub struct Tokens<'a> {
    /// Codes and decodes.
    pub dictionary: &'a Dictionary,
    /// Scratch.
    pub encoder: &'a mut Encoder,
    /// How values are parsed.
    pub effort: Effort,
}

impl ValueCodec for Tokens<'_> {
    fn encode_group(&mut self, values: &[&[u8]], coded: &mut Vec<u8>, ends: &mut Vec<u32>) {
        self.dictionary.encode_group_with(self.encoder, self.effort, values, coded, ends);
    }

    fn decode_append(&mut self, coded: &[u8], out: &mut Vec<u8>, max_bytes: usize) -> Result<usize, String> {
        self.dictionary.decode_append(coded, out, max_bytes).map_err(|error| error.to_string())
    }

    fn raw_len(&mut self, coded: &[u8]) -> Result<usize, String> {
        self.dictionary.raw_len(coded).map_err(|error| error.to_string())
    }
}

/// The fault of a codec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    what: String,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Failure {
        Failure { what: what.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

/// Bytes that lie in an output buffer before decoding, and must lie there afterwards.
pub(crate) const BEFORE: &[u8] = b"kept";

pub(crate) fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::new(what())) }
}

/// Codes `values` as a group and one by one, and reads them back under exact, ample and too small limits.
///
/// Returns the coded bytes.
pub fn check_values(codec: &mut dyn ValueCodec, values: &[&[u8]]) -> Result<usize, Failure> {
    let (mut coded, mut ends) = (Vec::from(BEFORE), Vec::new());
    codec.encode_group(values, &mut coded, &mut ends);
    expect(ends.len() == values.len() && coded.starts_with(BEFORE), || "a group lost its ends".into())?;
    let mut start = BEFORE.len();
    let mut out = Vec::new();
    for (index, (value, &end)) in values.iter().zip(&ends).enumerate() {
        let end = end as usize;
        let in_group = coded.get(start..end).ok_or_else(|| Failure::new("ends are out of order"))?;
        start = end;
        let at = || format!("value {index} of {} bytes", value.len());

        let (mut alone, mut alone_ends) = (Vec::new(), Vec::new());
        codec.encode_group(&[value], &mut alone, &mut alone_ends);
        expect(alone_ends == [alone.len() as u32], || format!("{}: wrong end when coded alone", at()))?;
        expect(alone == in_group, || format!("{}: coded otherwise alone than in a group", at()))?;

        out.clear();
        out.extend_from_slice(BEFORE);
        let length = codec.decode_append(in_group, &mut out, value.len());
        expect(length == Ok(value.len()), || format!("{}: decoding says {length:?}", at()))?;
        expect(out.starts_with(BEFORE) && out[BEFORE.len()..] == **value, || {
            format!("{}: other bytes came back", at())
        })?;

        let mut fresh = Vec::new();
        let length = codec.decode_append(in_group, &mut fresh, usize::MAX);
        expect(length == Ok(value.len()) && fresh == *value, || format!("{}: without a limit", at()))?;
        let length = codec.raw_len(in_group);
        expect(length == Ok(value.len()), || format!("{}: raw_len says {length:?}", at()))?;

        if let Some(too_small) = value.len().checked_sub(1) {
            let result = codec.decode_append(in_group, &mut out, too_small);
            expect(result.is_err(), || format!("{}: a limit of {too_small} bytes is ignored", at()))?;
            expect(out.len() == BEFORE.len() + value.len(), || format!("{}: output left longer", at()))?;
        }
    }
    expect(start == coded.len(), || "bytes after the last end".into())?;
    Ok(coded.len() - BEFORE.len())
}

/// The numbers of damaged inputs, and of those that decoded nevertheless.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Damaged inputs tried.
    pub tried: usize,
    /// Damaged inputs that decoded without an error.
    pub unnoticed: usize,
}

impl Damage {
    /// Adds another count.
    pub fn add(&mut self, other: Damage) {
        self.tried += other.tried;
        self.unnoticed += other.unnoticed;
    }

    /// Whether the unnoticed damages are no more than a 16-bit check misses by chance: one in 65,536, with a margin.
    pub fn is_chance_of_16_bits(&self) -> bool {
        self.unnoticed <= 3 + self.tried / 16_384
    }

    fn count(&mut self, codec: &mut dyn ValueCodec, coded: &[u8], what: &str) -> Result<bool, Failure> {
        self.tried += 1;
        let mut out = Vec::from(BEFORE);
        let result = codec.decode_append(coded, &mut out, 1 << 20);
        let measured = codec.raw_len(coded);
        match result {
            Ok(length) => {
                self.unnoticed += 1;
                expect(out.len() == BEFORE.len() + length && measured == Ok(length), || {
                    format!("{what}: decoded with a wrong length")
                })?;
            }
            Err(_) => {
                expect(out == BEFORE, || format!("{what}: an error left the output changed"))?;
                expect(measured.is_err(), || format!("{what}: decoding fails, raw_len does not"))?;
            }
        }
        Ok(result.is_ok())
    }
}

/// Cuts the coded value short: after every byte up to 4 KiB, and at 256 places beyond.
///
/// A check of 16 bits misses some by chance. The caller sums up and calls [`Damage::is_chance_of_16_bits`].
pub fn check_truncations(codec: &mut dyn ValueCodec, value: &[u8]) -> Result<Damage, Failure> {
    let coded = encode_one(codec, value);
    let mut damage = Damage::default();
    let near = 0..coded.len().min(4096);
    let far = (0..256).map(|i| 4096 + i * coded.len().saturating_sub(4096) / 256);
    for at in near.chain(far.filter(|&at| at < coded.len())) {
        damage.count(codec, &coded[..at], &format!("cut at byte {at} of {}", coded.len()))?;
    }
    Ok(damage)
}

/// Flips every bit of the coded value, one at a time: each must be noticed.
pub fn check_flips(codec: &mut dyn ValueCodec, value: &[u8]) -> Result<Damage, Failure> {
    let mut coded = encode_one(codec, value);
    let mut damage = Damage::default();
    for bit in 0..coded.len() * 8 {
        coded[bit / 8] ^= 1 << (bit % 8);
        let unnoticed = damage.count(codec, &coded, &format!("bit {bit} flipped"))?;
        expect(!unnoticed, || format!("flipped bit {bit} of {} bytes went unnoticed", coded.len()))?;
        coded[bit / 8] ^= 1 << (bit % 8);
    }
    Ok(damage)
}

fn encode_one(codec: &mut dyn ValueCodec, value: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    codec.encode_group(&[value], &mut coded, &mut Vec::new());
    coded
}

/// Packs and unpacks `blocks` through an engine: one by one, as a batch, under limits, cut short and damaged.
///
/// Returns the bytes of all frames.
pub fn check_engine(engine: &dyn Engine, blocks: &[&[u8]]) -> Result<usize, Failure> {
    let fail = |error: BlockError| Failure::new(error.to_string());
    let mut codec = engine.open().map_err(fail)?;
    let codec = codec.as_mut();
    let mut total = 0;
    for (index, raw) in blocks.iter().enumerate() {
        let at = || format!("block {index} of {} bytes", raw.len());
        let mut stored = Vec::from(BEFORE);
        let length = frame::pack(codec, engine.format(), raw, &mut stored).map_err(fail)?;
        expect(stored.len() == BEFORE.len() + length && stored.starts_with(BEFORE), || {
            format!("{}: wrong length of a frame", at())
        })?;
        expect(length <= raw.len() + frame::HEADER_BYTES, || format!("{}: has grown", at()))?;
        total += length;
        check_frame(codec, engine, &stored[BEFORE.len()..], raw)
            .map_err(|f| Failure::new(format!("{}: {f}", at())))?;
        check_payload(codec, engine, raw).map_err(|f| Failure::new(format!("{}: {f}", at())))?;
        check_targets(codec, engine, raw).map_err(|f| Failure::new(format!("{}: {f}", at())))?;
    }
    check_batch(codec, blocks)?;
    let counters = engine.counters().snapshot();
    expect(blocks.is_empty() || counters.compress_calls > 0 && counters.decompress_calls > 0, || {
        "the engine does not count what it does".into()
    })?;
    Ok(total)
}

/// Checks that a frame comes back, and that no damaged frame does.
fn check_frame(
    codec: &mut dyn BlockCodec,
    engine: &dyn Engine,
    stored: &[u8],
    raw: &[u8],
) -> Result<(), Failure> {
    let format = engine.format();
    let mut out = Vec::from(BEFORE);
    let length = frame::unpack(codec, format, stored, &mut out, raw.len());
    expect(length == Ok(raw.len()), || format!("unpacking says {length:?}"))?;
    expect(out.starts_with(BEFORE) && out[BEFORE.len()..] == *raw, || "other bytes came back".into())?;
    out.truncate(BEFORE.len());
    if let Some(too_small) = raw.len().checked_sub(1) {
        let result = frame::unpack(codec, format, stored, &mut out, too_small);
        expect(result.is_err() && out == BEFORE, || "a limit is ignored".into())?;
    }
    let mut damaged = stored.to_vec();
    let step = (stored.len() / 256).max(1);
    for at in (0..stored.len()).step_by(step) {
        let result = frame::unpack(codec, format, &stored[..at], &mut out, raw.len());
        expect(result.is_err() && out == BEFORE, || format!("cut at byte {at}: unnoticed"))?;
        damaged[at] ^= 1 << (at % 8);
        let result = frame::unpack(codec, format, &damaged, &mut out, raw.len());
        expect(result.is_err() && out == BEFORE, || format!("bit {} flipped: unnoticed", at * 8 + at % 8))?;
        damaged[at] ^= 1 << (at % 8);
    }
    Ok(())
}

/// The most bytes that any encoder may need for a block that does not shrink: the block, and an eighth and 1 KiB more.
fn ample(raw: &[u8]) -> usize {
    raw.len() + raw.len() / 8 + 1024
}

/// The payload of a block, outside a frame.
fn payload(codec: &mut dyn BlockCodec, raw: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut packed = Vec::new();
    let length =
        codec.compress(raw, &mut packed, ample(raw)).map_err(|error| Failure::new(error.to_string()))?;
    let length =
        length.ok_or_else(|| Failure::new("does not fit into an eighth more than the raw length"))?;
    expect(packed.len() == length, || "compress reports a wrong length".into())?;
    expect(packed.capacity() <= ample(raw) + 64, || "compress takes more memory than its limit".into())?;
    Ok(packed)
}

/// Without the checksum of a frame a damaged payload may give other bytes, but never more, and never a panic.
fn check_payload(codec: &mut dyn BlockCodec, engine: &dyn Engine, raw: &[u8]) -> Result<(), Failure> {
    let mut packed = payload(codec, raw)?;
    let length = packed.len();
    for max_bytes in [length, length.saturating_sub(1), length / 2] {
        let mut out = Vec::from(BEFORE);
        let result =
            codec.compress(raw, &mut out, max_bytes).map_err(|error| Failure::new(error.to_string()))?;
        expect(
            result.is_none_or(|length| length <= max_bytes && out.len() == BEFORE.len() + length),
            || "compress exceeds its limit".into(),
        )?;
        expect(result.is_some() || max_bytes < length || is_unsteady(codec, raw, length)?, || {
            "what fits exactly is refused".into()
        })?;
        expect(result.is_some() || out == BEFORE, || "what does not fit is left in the output".into())?;
    }
    let mut out = Vec::new();
    let result = codec.decompress(&packed, &mut out, raw.len());
    expect(result.is_ok() && out == raw, || format!("outside a frame, decompressing gives {result:?}"))?;
    expect(out.capacity() <= raw.len() + 64, || "decompress takes more memory than the block".into())?;
    for wrong in [raw.len() + 1, raw.len() * 2 + 100, raw.len().saturating_sub(1)] {
        let result = codec.decompress(&packed, &mut out, wrong);
        expect(wrong == raw.len() || result.is_err() && out == raw, || {
            format!("decompresses to {wrong} bytes as well")
        })?;
    }
    if engine.checks_end() {
        packed.push(0);
        let result = codec.decompress(&packed, &mut out, raw.len());
        expect(result.is_err() && out == raw, || "a byte after the payload is ignored".into())?;
        packed.pop();
    }
    let step = (packed.len() / 64).max(1);
    for at in (0..packed.len()).step_by(step) {
        packed[at] ^= 1 << (at % 8);
        check_damaged_payload(codec, &packed, &mut out, raw.len())?;
        packed[at] ^= 1 << (at % 8);
    }
    Ok(())
}

/// Room that an encoder may leave unused when it says that a block does not fit.
const UNUSED_BYTES_MAX: usize = 16;

/// Packs and unpacks in the caller's memory: ample, exact and too small.
fn check_targets(codec: &mut dyn BlockCodec, engine: &dyn Engine, raw: &[u8]) -> Result<(), Failure> {
    let fail = |error: BlockError| Failure::new(error.to_string());
    let mut target = vec![MaybeUninit::uninit(); engine.bound(raw.len())];
    let packed = codec.compress_into(raw, &mut target).map_err(fail)?;
    let packed = packed.ok_or_else(|| Failure::new("a block does not fit into its bound"))?.to_vec();
    let enough = packed.len() + UNUSED_BYTES_MAX;
    for room in [enough, packed.len(), packed.len() / 2] {
        let mut target = vec![MaybeUninit::uninit(); room];
        let again = codec.compress_into(raw, &mut target).map_err(fail)?;
        let fits = again.is_some();
        expect(fits || room < enough || is_unsteady(codec, raw, packed.len())?, || {
            format!("a block of {} bytes does not fit into {room}", packed.len())
        })?;
    }
    for room in [raw.len(), raw.len() + 1, raw.len().saturating_sub(1)] {
        let mut target = vec![MaybeUninit::uninit(); room];
        match codec.decompress_into(&packed, &mut target) {
            Ok(unpacked) => {
                expect(*unpacked == *raw, || format!("into {room} bytes, other bytes came back"))?
            }
            Err(error) => expect(room != raw.len(), || format!("decompress_into fails: {error}"))?,
        }
    }
    let mut target = vec![MaybeUninit::uninit(); raw.len() + frame::HEADER_BYTES];
    let framed = frame::pack_into(codec, engine.format(), raw, &mut target).map_err(fail)?;
    let framed = framed.ok_or_else(|| Failure::new("a frame is larger than its block and its header"))?;
    let mut target = vec![MaybeUninit::uninit(); raw.len()];
    let unpacked = frame::unpack_into(codec, engine.format(), framed, &mut target).map_err(fail)?;
    expect(*unpacked == *raw, || "a frame in the caller's memory gives other bytes".into())?;
    check_unknown_length(codec, &packed, raw)
}

/// Unpacks without the length, if the engine does so.
fn check_unknown_length(codec: &mut dyn BlockCodec, packed: &[u8], raw: &[u8]) -> Result<(), Failure> {
    for room in [raw.len() + 1000, raw.len()] {
        let mut target = vec![MaybeUninit::uninit(); room];
        match codec.decompress_up_to(packed, &mut target) {
            Ok(Some(unpacked)) => expect(*unpacked == *raw, || format!("up to {room} bytes: other bytes"))?,
            Err(BlockError::Engine { .. }) => return Ok(()),
            other => return Err(Failure::new(format!("up to {room} bytes: {other:?}"))),
        }
    }
    let Some(too_small) = raw.len().checked_sub(1) else { return Ok(()) };
    let mut target = vec![MaybeUninit::uninit(); too_small];
    let answer = codec.decompress_up_to(packed, &mut target);
    expect(matches!(answer, Ok(None)), || {
        format!("{too_small} bytes are too few, and the answer is {answer:?}")
    })
}

/// Whether an encoder makes another length of the same block at another time. Some do, because earlier blocks leave
/// entries in their tables.
fn is_unsteady(codec: &mut dyn BlockCodec, raw: &[u8], length: usize) -> Result<bool, Failure> {
    for _ in 0..32 {
        if payload(codec, raw)?.len() != length {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a damaged payload decodes; if it does, to the right length.
fn check_damaged_payload(
    codec: &mut dyn BlockCodec,
    packed: &[u8],
    out: &mut Vec<u8>,
    raw_bytes: usize,
) -> Result<bool, Failure> {
    out.clear();
    out.extend_from_slice(BEFORE);
    out.reserve_exact(raw_bytes);
    let capacity = out.capacity();
    let result = codec.decompress(packed, out, raw_bytes);
    let grown = if result.is_ok() { raw_bytes } else { 0 };
    expect(out.len() == BEFORE.len() + grown && out.starts_with(BEFORE), || {
        "a damaged payload leaves a wrong length".into()
    })?;
    expect(out.capacity() == capacity, || "a damaged payload takes more memory than the block".into())?;
    Ok(result.is_ok())
}

/// The lengths of shortened inputs: every length up to 4 KiB, and 256 lengths beyond.
fn cuts(length: usize) -> impl Iterator<Item = usize> {
    let far = (0..256).map(move |i| 4096 + i * length.saturating_sub(4096) / 256);
    (0..length.min(4096)).chain(far.filter(move |&at| at < length))
}

/// Cuts frame and payload of a block short: after every byte up to 4 KiB, and at 256 places beyond. Each is an error.
///
/// Returns how many were tried.
pub fn check_block_truncations(engine: &dyn Engine, raw: &[u8]) -> Result<usize, Failure> {
    let fail = |error: BlockError| Failure::new(error.to_string());
    let mut codec = engine.open().map_err(fail)?;
    let codec = codec.as_mut();
    let mut stored = Vec::new();
    frame::pack(codec, engine.format(), raw, &mut stored).map_err(fail)?;
    let packed = payload(codec, raw)?;
    let (mut out, mut scratch) = (Vec::from(BEFORE), Vec::new());
    let mut tried = 0;
    for at in cuts(stored.len()) {
        let result = frame::unpack(codec, engine.format(), &stored[..at], &mut out, raw.len());
        expect(result.is_err() && out == BEFORE, || {
            format!("frame cut at byte {at} of {}: unnoticed", stored.len())
        })?;
        tried += 1;
    }
    for at in cuts(packed.len()) {
        let noticed = !check_damaged_payload(codec, &packed[..at], &mut scratch, raw.len())?
            || !engine.checks_end() && scratch[BEFORE.len()..] == *raw;
        expect(noticed, || format!("payload cut at byte {at} of {}: unnoticed", packed.len()))?;
        tried += 1;
    }
    Ok(tried)
}

/// Flips every bit of a block's frame, one at a time: each is an error. Then flips every bit of its payload without the
/// frame, which may give other bytes, but no other length.
///
/// Returns the flips tried, and those of the payload that went unnoticed.
pub fn check_block_flips(engine: &dyn Engine, raw: &[u8]) -> Result<Damage, Failure> {
    let fail = |error: BlockError| Failure::new(error.to_string());
    let mut codec = engine.open().map_err(fail)?;
    let codec = codec.as_mut();
    let mut stored = Vec::new();
    frame::pack(codec, engine.format(), raw, &mut stored).map_err(fail)?;
    let mut packed = payload(codec, raw)?;
    let (mut out, mut scratch) = (Vec::from(BEFORE), Vec::new());
    let mut damage = Damage::default();
    for bit in 0..stored.len() * 8 {
        stored[bit / 8] ^= 1 << (bit % 8);
        let result = frame::unpack(codec, engine.format(), &stored, &mut out, raw.len());
        expect(result.is_err() && out == BEFORE, || format!("bit {bit} of a frame flipped: unnoticed"))?;
        stored[bit / 8] ^= 1 << (bit % 8);
        damage.tried += 1;
    }
    for bit in 0..packed.len() * 8 {
        packed[bit / 8] ^= 1 << (bit % 8);
        damage.unnoticed += usize::from(check_damaged_payload(codec, &packed, &mut scratch, raw.len())?);
        packed[bit / 8] ^= 1 << (bit % 8);
        damage.tried += 1;
    }
    Ok(damage)
}

/// Checks that a batch gives the results of single calls, and returns every job once.
fn check_batch(codec: &mut dyn BlockCodec, blocks: &[&[u8]]) -> Result<(), Failure> {
    let jobs = blocks.iter().enumerate().map(|(tag, raw)| Job {
        tag: tag as u64,
        task: Task::Compress { max_bytes: ample(raw) },
        input: raw.to_vec(),
        output: Vec::new(),
    });
    let mut unpack = Vec::new();
    for done in run_batch(codec, jobs.collect())? {
        let tag = done.job.tag;
        expect(done.result == Ok(Some(done.job.output.len())), || format!("job {tag}: {:?}", done.result))?;
        let raw_bytes = blocks[tag as usize].len();
        let task = Task::Decompress { raw_bytes };
        unpack.push(Job { tag, task, input: done.job.output, output: Vec::new() });
    }
    for done in run_batch(codec, unpack)? {
        let tag = done.job.tag as usize;
        expect(done.job.output == blocks[tag], || format!("job {tag}: other bytes came back"))?;
    }
    Ok(())
}

fn run_batch(codec: &mut dyn BlockCodec, jobs: Vec<Job>) -> Result<Vec<Done>, Failure> {
    let submitted = jobs.len();
    let mut seen = vec![false; submitted];
    let mut done = Vec::with_capacity(submitted);
    for job in jobs {
        let mut job = Some(job);
        for _ in 0..1000 {
            match job.take().map(|job| codec.submit(job)) {
                Some(Err(back)) => job = Some(back),
                _ => break,
            }
            codec.reap(&mut done, true);
        }
        expect(job.is_none(), || "the queue stays full although it is reaped".into())?;
    }
    codec.reap(&mut done, true);
    for one in &done {
        let first = seen.get_mut(one.job.tag as usize).is_some_and(|seen| !std::mem::replace(seen, true));
        expect(first, || format!("job {} came back twice, or was never submitted", one.job.tag))?;
    }
    expect(done.len() == submitted, || format!("{} of {submitted} jobs came back", done.len()))?;
    Ok(done)
}
