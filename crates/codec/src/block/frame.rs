//! The stored form of a block.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | [number of the format](Format::number): 0 raw, otherwise the engine's |
//! | 1 | 4 | raw bytes of the block |
//! | 5 | 4 | CRC32C of the five bytes before and of the payload, seeded with the fingerprint of the dictionary if there is one |
//! | 9 | | payload |
//!
//! Numbers are little-endian. The length of the payload is not stored, because the keeper of a frame knows its end. The
//! checksum reveals a wrong end and a wrong dictionary.

use super::{Batches, Begun, BlockCodec, BlockError, Done, Task};
use crate::checksum::crc32c_append;
use crate::format::Format;
use std::mem::MaybeUninit;

/// Bytes before the payload. A frame is never larger than its block plus this header.
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

/// As [`pack`], to the start of `target`. Returns the frame, or `None` if the target is too small.
/// `raw.len() + HEADER_BYTES` bytes always suffice.
///
/// # Panics
///
/// If `raw` is longer than [`RAW_BYTES_MAX`].
pub fn pack_into<'t>(
    codec: &mut dyn BlockCodec,
    format: Format,
    raw: &[u8],
    target: &'t mut [MaybeUninit<u8>],
) -> Result<Option<&'t mut [u8]>, BlockError> {
    let raw_bytes = u32::try_from(raw.len()).expect("a block is smaller than 4 GiB");
    let Some((header, payload)) = target.split_at_mut_checked(HEADER_BYTES) else { return Ok(None) };
    let room = payload.len();
    let packed = match raw.len().checked_sub(1) {
        Some(max_bytes) if format != Format::None => {
            codec.compress_into(raw, &mut payload[..room.min(max_bytes)])?.map(|packed| &*packed)
        }
        _ => None,
    };
    let (number, payload) = match packed {
        Some(packed) => (format.number(), packed),
        None => match payload.get_mut(..raw.len()) {
            Some(payload) => (Format::None.number(), &*payload.write_copy_of_slice(raw)),
            None => return Ok(None),
        },
    };
    let mut fields = [number, 0, 0, 0, 0, 0, 0, 0, 0];
    fields[1..5].copy_from_slice(&raw_bytes.to_le_bytes());
    let checksum = checksum_of(codec, &fields[..5], payload);
    fields[5..].copy_from_slice(&checksum.to_le_bytes());
    header.write_copy_of_slice(&fields);
    let length = HEADER_BYTES + payload.len();
    // SAFETY: the header has been written, and so has the payload, which lies right behind it.
    Ok(Some(unsafe { target[..length].assume_init_mut() }))
}

/// Begins to pack a block beside others. [`finish_pack`] returns its frame.
///
/// # Panics
///
/// If `raw` is longer than [`RAW_BYTES_MAX`].
pub fn begin_pack(codec: &mut dyn BlockCodec, batches: &mut Batches, format: Format, raw: Vec<u8>) -> Begun {
    let raw_bytes = u32::try_from(raw.len()).expect("a block is smaller than 4 GiB");
    let mut output = Vec::with_capacity(HEADER_BYTES + raw.len());
    output.push(format.number());
    output.extend_from_slice(&raw_bytes.to_le_bytes());
    output.extend_from_slice(&[0; 4]);
    let task = Task::Compress { max_bytes: raw.len().saturating_sub(1) };
    batches.begin(codec, task, raw, output)
}

/// Returns the frame of a block that was begun. A block is stored raw if it does not shrink or if the engine fails.
///
/// # Panics
///
/// If an engine loses the job.
pub fn finish_pack(codec: &mut dyn BlockCodec, batches: &mut Batches, begun: Begun) -> Vec<u8> {
    let Done { job, result } = batches.finish(codec, begun);
    let mut frame = job.output;
    if !matches!(result, Ok(Some(_))) {
        frame.truncate(HEADER_BYTES);
        frame[0] = Format::None.number();
        frame.extend_from_slice(&job.input);
    }
    let checksum = checksum(codec, &frame);
    frame[5..HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
    frame
}

/// Unpacks several frames side by side, each as [`unpack`] does, and returns their blocks in order.
///
/// # Panics
///
/// If an engine loses a job.
pub fn unpack_batch(
    codec: &mut dyn BlockCodec,
    batches: &mut Batches,
    format: Format,
    frames: &[&[u8]],
    max_bytes: usize,
) -> Vec<Result<Vec<u8>, BlockError>> {
    enum Unpacking {
        Ended(Result<Vec<u8>, BlockError>),
        Begun(Begun),
    }
    let mut begin = |frame: &&[u8]| match checked(codec, format, frame, max_bytes) {
        Ok(Payload::Packed(packed, raw_bytes)) => {
            let output = Vec::with_capacity(raw_bytes);
            let task = Task::Decompress { raw_bytes };
            Unpacking::Begun(batches.begin(codec, task, packed.to_vec(), output))
        }
        Ok(Payload::Raw(raw)) => Unpacking::Ended(Ok(raw.to_vec())),
        Err(error) => Unpacking::Ended(Err(error)),
    };
    let blocks: Vec<Unpacking> = frames.iter().map(&mut begin).collect();
    let finish = |block| match block {
        Unpacking::Ended(result) => result,
        Unpacking::Begun(begun) => {
            let Done { job, result } = batches.finish(codec, begun);
            result.map(|_| job.output)
        }
    };
    blocks.into_iter().map(finish).collect()
}

/// Appends the block of a frame to `out` and returns its length.
///
/// An error leaves `out` unchanged. A block longer than `max_bytes` is an error before anything is allocated.
pub fn unpack(
    codec: &mut dyn BlockCodec,
    format: Format,
    frame: &[u8],
    out: &mut Vec<u8>,
    max_bytes: usize,
) -> Result<usize, BlockError> {
    match checked(codec, format, frame, max_bytes)? {
        Payload::Raw(raw) => {
            out.extend_from_slice(raw);
            Ok(raw.len())
        }
        Payload::Packed(packed, raw_bytes) => {
            codec.decompress(packed, out, raw_bytes)?;
            Ok(raw_bytes)
        }
    }
}

/// As [`unpack`], to the start of `target`, whose length is the limit. Returns the block.
pub fn unpack_into<'t>(
    codec: &mut dyn BlockCodec,
    format: Format,
    frame: &[u8],
    target: &'t mut [MaybeUninit<u8>],
) -> Result<&'t mut [u8], BlockError> {
    match checked(codec, format, frame, target.len())? {
        Payload::Raw(raw) => Ok(target[..raw.len()].write_copy_of_slice(raw)),
        Payload::Packed(packed, raw_bytes) => codec.decompress_into(packed, &mut target[..raw_bytes]),
    }
}

/// The payload of a sound frame.
enum Payload<'a> {
    Raw(&'a [u8]),
    /// And the bytes of the block.
    Packed(&'a [u8], usize),
}

#[inline]
fn checked<'a>(
    codec: &dyn BlockCodec,
    format: Format,
    frame: &'a [u8],
    max_bytes: usize,
) -> Result<Payload<'a>, BlockError> {
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
    match header[0] {
        number if number == Format::None.number() => match payload.len() == raw_bytes {
            true => Ok(Payload::Raw(payload)),
            false => Err(damaged(frame.len(), "a raw payload of another length")),
        },
        number if number == format.number() => Ok(Payload::Packed(payload, raw_bytes)),
        found => Err(BlockError::WrongFormat { found, engine: format }),
    }
}

fn checksum(codec: &dyn BlockCodec, frame: &[u8]) -> u32 {
    checksum_of(codec, &frame[..5], &frame[HEADER_BYTES..])
}

fn checksum_of(codec: &dyn BlockCodec, format_and_length: &[u8], payload: &[u8]) -> u32 {
    crc32c_append(crc32c_append(codec.dictionary_fingerprint(), format_and_length), payload)
}
