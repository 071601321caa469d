//! The stored form of a block.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | [number of the format](Format::number): 0 raw, otherwise the engine's |
//! | 1 | 4 | raw bytes of the block |
//! | 5 | 4 | CRC32C of the five bytes before and of the payload, seeded with the fingerprint of the dictionary if there is one |
//! | 9 | | payload |
//!
//! Numbers are little-endian. The length of the payload is not stored: whoever keeps a frame knows where it ends, and
//! the checksum notices if he does not. It notices another dictionary, too.

use super::{BlockCodec, BlockError, Done, Job, Task};
use crate::checksum::crc32c_append;
use crate::format::Format;

/// Bytes before the payload: a frame is never larger than its block and this.
pub const HEADER_BYTES: usize = 9;

/// The largest block that a frame can hold.
pub const RAW_BYTES_MAX: usize = u32::MAX as usize;

/// Appends the frame of `raw` to `out` and returns its length. A block that does not shrink is stored raw.
///
/// # Panics
///
/// If `raw` is longer than [`RAW_BYTES_MAX`].
pub fn pack(
    codec: &mut dyn BlockCodec,
    format: Format,
    raw: &[u8],
    out: &mut Vec<u8>,
) -> Result<usize, BlockError> {
    let raw_bytes = u32::try_from(raw.len()).expect("a block is smaller than 4 GiB");
    let start = out.len();
    out.push(format.number());
    out.extend_from_slice(&raw_bytes.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let packed = match raw.len().checked_sub(1) {
        Some(max_bytes) if format != Format::None => codec.compress(raw, out, max_bytes),
        _ => Ok(None),
    };
    match packed {
        Ok(Some(_)) => {}
        Ok(None) => {
            out[start] = Format::None.number();
            out.extend_from_slice(raw);
        }
        Err(error) => {
            out.truncate(start);
            return Err(error);
        }
    }
    let checksum = checksum(codec, &out[start..]);
    out[start + 5..start + HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    Ok(out.len() - start)
}

/// The frames of several blocks, in their order, packed as one batch: a device has them all before the first is asked for again.
/// Blocks that do not shrink, and those that the engine fails at, are stored raw.
///
/// # Panics
///
/// If a block is longer than [`RAW_BYTES_MAX`], or an engine loses a job.
pub fn pack_batch(codec: &mut dyn BlockCodec, format: Format, blocks: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let mut frames = vec![Vec::new(); blocks.len()];
    let mut done = Vec::new();
    for (tag, input) in blocks.into_iter().enumerate() {
        let raw_bytes = u32::try_from(input.len()).expect("a block is smaller than 4 GiB");
        let mut output = Vec::with_capacity(HEADER_BYTES + input.len());
        output.push(format.number());
        output.extend_from_slice(&raw_bytes.to_le_bytes());
        output.extend_from_slice(&[0; 4]);
        let task = Task::Compress { max_bytes: input.len().saturating_sub(1) };
        let mut job = Some(Job { tag: tag as u64, task, input, output });
        while let Some(waiting) = job.take() {
            job = codec.submit(waiting).err();
            if job.is_some() {
                codec.reap(&mut done, false);
            }
        }
    }
    codec.reap(&mut done, true);
    for Done { job, result } in done {
        let mut frame = job.output;
        if !matches!(result, Ok(Some(_))) {
            frame.truncate(HEADER_BYTES);
            frame[0] = Format::None.number();
            frame.extend_from_slice(&job.input);
        }
        let checksum = checksum(codec, &frame);
        frame[5..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
        frames[job.tag as usize] = frame;
    }
    assert!(frames.iter().all(|frame| !frame.is_empty()), "an engine gives every job back");
    frames
}

/// Appends the block of a frame to `out` and returns its length.
///
/// On an error `out` is as it was. A block longer than `max_bytes` is an error before anything is allocated.
pub fn unpack(
    codec: &mut dyn BlockCodec,
    format: Format,
    frame: &[u8],
    out: &mut Vec<u8>,
    max_bytes: usize,
) -> Result<usize, BlockError> {
    let damaged = |position, what| BlockError::Damaged { format, position, what };
    if frame.len() < HEADER_BYTES {
        return Err(damaged(frame.len(), "the header ends"));
    }
    let (header, payload) = frame.split_at(HEADER_BYTES);
    let raw_bytes = u32::from_le_bytes([header[1], header[2], header[3], header[4]]) as usize;
    let stored = u32::from_le_bytes([header[5], header[6], header[7], header[8]]);
    let computed = checksum(codec, frame);
    if stored != computed {
        return Err(BlockError::Checksum { stored, computed });
    }
    if raw_bytes > max_bytes {
        return Err(BlockError::TooLong { raw_bytes, max_bytes });
    }
    let found = header[0];
    if found == Format::None.number() {
        if payload.len() != raw_bytes {
            return Err(damaged(frame.len(), "a raw payload of another length"));
        }
        out.extend_from_slice(payload);
    } else if found == format.number() {
        codec.decompress(payload, out, raw_bytes)?;
    } else {
        return Err(BlockError::WrongFormat { found, engine: format });
    }
    Ok(raw_bytes)
}

fn checksum(codec: &dyn BlockCodec, frame: &[u8]) -> u32 {
    crc32c_append(crc32c_append(codec.dictionary_fingerprint(), &frame[..5]), &frame[HEADER_BYTES..])
}
