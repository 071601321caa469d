//! Streams of zlib (RFC 1950) around raw DEFLATE: what zlib's `inflate`, and every program on it, reads by itself.
//!
//! | bytes | field |
//! |---|---|
//! | 2 | header: DEFLATE with a window of 4 KiB |
//! | | raw DEFLATE |
//! | 4 | Adler-32 of the raw bytes, big-endian |
//! | 0 or 10 | [entry points](super::parts), which a reader that stops at the end of the stream does not see |
//!
//! A reader here takes anything else behind a stream for damage.

use super::libdeflate::adler32;
use super::parts::{Parts, stream_of};
use super::setting::SettingError;
use super::{BlockCodec, BlockError, Engine, Huffman, Setting};
use crate::format::Format;
use std::mem::MaybeUninit;
use std::sync::Arc;

const HEADER: [u8; 2] = [0x48, 0x89];
const CHECKSUM_BYTES: usize = 4;

/// Bytes that a stream has beside raw DEFLATE and entry points.
pub const EXTRA_BYTES: usize = HEADER.len() + CHECKSUM_BYTES;

/// The window of 4 KiB as the header has it: its logarithm, less 8.
const WINDOW: u8 = 4;

/// The engine for these streams in place of the one that the setting has for raw DEFLATE. On the CPU, whole blocks with
/// their own codes get entry points, so that they unpack faster.
///
/// # Errors
/// The setting is of another format, or its blocks need more than the stream to be read.
pub fn engine(setting: &Setting, raw: Arc<dyn Engine>) -> Result<Arc<dyn Engine>, SettingError> {
    let cannot = |what| SettingError::Unsupported { engine: raw.name(), format: setting.format, what };
    match setting.format {
        Format::Deflate if setting.dictionary.is_some() => Err(cannot("zlib streams with a dictionary")),
        Format::Deflate
            if raw.name() == "software" && setting.huffman == Huffman::Dynamic && setting.split == 1 =>
        {
            Ok(Arc::new(Parts::new(setting.level)?))
        }
        Format::Deflate => Ok(raw),
        _ => Err(cannot("zlib streams")),
    }
}

/// Compresses `raw` to the start of `target`, and returns the stream. `None` says that the target is too small.
///
/// # Errors
/// Those of the codec.
pub fn pack_into<'t>(
    codec: &mut dyn BlockCodec,
    raw: &[u8],
    target: &'t mut [MaybeUninit<u8>],
) -> Result<Option<&'t mut [u8]>, BlockError> {
    let Some(room) = target.len().checked_sub(EXTRA_BYTES) else { return Ok(None) };
    let Some(packed) = codec.compress_into(raw, &mut target[HEADER.len()..][..room])? else {
        return Ok(None);
    };
    let length = HEADER.len() + packed.len();
    let end = length - codec.entry_point_bytes().unwrap_or(0);
    target[..HEADER.len()].write_copy_of_slice(&HEADER);
    target.copy_within(end..length, end + CHECKSUM_BYTES);
    target[end..end + CHECKSUM_BYTES].write_copy_of_slice(&adler32(raw).to_be_bytes());
    // SAFETY: the codec wrote the bytes up to `length` behind the header. Header and checksum were written here, and
    // what stood behind the stream was moved behind the checksum.
    Ok(Some(unsafe { target[..length + CHECKSUM_BYTES].assume_init_mut() }))
}

/// Unpacks a stream to the start of `target`, and returns the block. `None` says that the block is longer than the
/// target.
///
/// # Errors
/// The stream is damaged, or has a window of more than 4 KiB where the engine may be a device; or the codec fails.
pub fn unpack_into<'t>(
    codec: &mut dyn BlockCodec,
    stream: &[u8],
    target: &'t mut [MaybeUninit<u8>],
) -> Result<Option<&'t mut [u8]>, BlockError> {
    let takes_entry_points = codec.entry_point_bytes().is_some();
    let packed = behind_header(stream, takes_entry_points)?;
    // One stream in 65,536 without entry points looks as if it had some.
    let ends = [stream_of(packed).len(), packed.len()];
    let mut result = Err(damaged(stream.len(), "no valid stream"));
    for end in &ends[usize::from(ends[0] == ends[1])..] {
        let Some((deflate, checksum)) = packed[..*end].split_last_chunk::<CHECKSUM_BYTES>() else { break };
        let deflate = if takes_entry_points && *end < packed.len() { packed } else { deflate };
        result = match codec.decompress_up_to(deflate, target) {
            Ok(Some(raw)) if adler32(raw).to_be_bytes() == *checksum => Ok(Some(raw.len())),
            Ok(Some(_)) => Err(damaged(HEADER.len() + end - CHECKSUM_BYTES, "another checksum")),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        if !matches!(result, Err(BlockError::Damaged { .. })) {
            break;
        }
    }
    // SAFETY: the codec has written as many bytes.
    Ok(result?.map(|length| unsafe { target[..length].assume_init_mut() }))
}

/// As [`unpack_into`], a block of exactly `raw_bytes` bytes, appended to `out`.
///
/// # Errors
/// As there, or the block has another length.
pub fn unpack(
    codec: &mut dyn BlockCodec,
    stream: &[u8],
    out: &mut Vec<u8>,
    raw_bytes: usize,
) -> Result<(), BlockError> {
    out.reserve(raw_bytes);
    match unpack_into(codec, stream, &mut out.spare_capacity_mut()[..raw_bytes])? {
        Some(raw) if raw.len() == raw_bytes => {
            // SAFETY: so many bytes behind the old length were reserved and written.
            unsafe { out.set_len(out.len() + raw_bytes) };
            Ok(())
        }
        _ => Err(damaged(stream.len(), "another length")),
    }
}

fn behind_header(stream: &[u8], any_window: bool) -> Result<&[u8], BlockError> {
    let Some((&[method, flags], packed)) = stream.split_first_chunk::<2>() else {
        return Err(damaged(stream.len(), "no header of zlib"));
    };
    let is_zlib = method & 0xf == 8 && u16::from_be_bytes([method, flags]).is_multiple_of(31);
    match is_zlib && flags & 0x20 == 0 && method >> 4 < 8 {
        true if any_window || method >> 4 <= WINDOW => Ok(packed),
        true => Err(damaged(0, "a window of more than 4 KiB")),
        false => Err(damaged(0, "no header of zlib")),
    }
}

fn damaged(position: usize, what: &'static str) -> BlockError {
    BlockError::Damaged { format: Format::Deflate, position, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zlib_rs::{DeflateConfig, DeflateFlush, Inflate, InflateFlush, Status};

    /// Words of random letters, some of which come again.
    fn text(bytes: usize) -> Vec<u8> {
        let mut state = 7u64;
        let mut next = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut text = Vec::new();
        while text.len() < bytes {
            match text.len() > 200 && next(3) == 0 {
                true => {
                    let from = text.len() - 20 - next(180) as usize;
                    text.extend_from_within(from..from + 8);
                }
                false => text.extend((0..5).map(|_| b'a' + next(16) as u8)),
            }
        }
        text.truncate(bytes);
        text
    }

    fn engine_of(setting: Setting) -> Arc<dyn Engine> {
        engine(&setting, setting.engine().unwrap()).unwrap()
    }

    fn packed(codec: &mut dyn BlockCodec, raw: &[u8]) -> Vec<u8> {
        let mut target = vec![MaybeUninit::uninit(); 2 * raw.len() + 100];
        pack_into(codec, raw, &mut target).unwrap().expect("there is room").to_vec()
    }

    /// The block, and the bytes behind the stream.
    fn inflated(stream: &[u8], raw_bytes: usize) -> (Vec<u8>, usize) {
        let mut inflate = Inflate::new(true, 15);
        let mut raw = vec![0; raw_bytes + 1];
        assert_eq!(inflate.decompress(stream, &mut raw, InflateFlush::Finish), Ok(Status::StreamEnd));
        raw.truncate(inflate.total_out() as usize);
        (raw, stream.len() - inflate.total_in() as usize)
    }

    #[test]
    fn an_independent_zlib_reads_what_each_engine_writes() {
        for huffman in [Huffman::Dynamic, Huffman::Fixed] {
            let engine = engine_of(Setting::new(Format::Deflate).with_huffman(huffman));
            let mut codec = engine.open().unwrap();
            for bytes in [0, 1, 100, 4096, 16_384, 65_536] {
                let raw = text(bytes);
                let stream = packed(&mut *codec, &raw);
                let (found, behind) = inflated(&stream, bytes);
                assert!(found == raw, "{huffman}, {bytes} bytes");
                let has_entries = huffman == Huffman::Dynamic && (4096..=16_384).contains(&bytes);
                assert_eq!(behind, if has_entries { 10 } else { 0 }, "{huffman}, {bytes} bytes");
                let mut back = b"before".to_vec();
                unpack(&mut *codec, &stream, &mut back, bytes).unwrap();
                assert!(back.strip_prefix(b"before") == Some(&raw[..]));
                assert!(unpack(&mut *codec, &stream, &mut back, bytes + 1).is_err());
                assert_eq!(back.len(), 6 + bytes);
            }
        }
    }

    #[test]
    fn each_engine_reads_what_others_wrote() {
        let raw = text(16_384);
        let fixed = engine_of(Setting::new(Format::Deflate).with_huffman(Huffman::Fixed));
        let own = engine_of(Setting::new(Format::Deflate));
        let split = engine_of(Setting::new(Format::Deflate).with_split(4));
        let plain = Setting::new(Format::Deflate).engine().unwrap();
        let with_entries = packed(&mut *own.open().unwrap(), &raw);
        let of_others = [&fixed, &split].map(|engine| packed(&mut *engine.open().unwrap(), &raw));
        for engine in [&fixed, &own, &plain, &split] {
            for stream in of_others.iter().chain([&with_entries]) {
                let mut back = Vec::new();
                unpack(&mut *engine.open().unwrap(), stream, &mut back, raw.len()).unwrap();
                assert!(back == raw, "{}", engine.name());
            }
        }
        // A window of 32 KiB, which only a decoder on the CPU has.
        let mut deflate = zlib_rs::Deflate::new_with_config(DeflateConfig::default());
        let mut foreign = vec![0; raw.len()];
        deflate.compress(&raw, &mut foreign, DeflateFlush::Finish).unwrap();
        foreign.truncate(deflate.total_out() as usize);
        let mut back = Vec::new();
        unpack(&mut *own.open().unwrap(), &foreign, &mut back, raw.len()).unwrap();
        assert!(back == raw);
        let refusal = unpack(&mut *fixed.open().unwrap(), &foreign, &mut back, raw.len()).unwrap_err();
        assert!(refusal.to_string().contains("window"), "{refusal}");
    }

    #[test]
    fn each_flipped_bit_and_each_cut_is_told() {
        let raw = text(4096);
        let engine = engine_of(Setting::new(Format::Deflate));
        let mut codec = engine.open().unwrap();
        let stream = packed(&mut *codec, &raw);
        assert!(stream_of(&stream).len() < stream.len(), "it has entry points");
        for bit in 0..8 * stream.len() {
            let mut damaged = stream.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let mut back = Vec::new();
            let result = unpack(&mut *codec, &damaged, &mut back, raw.len());
            // Spare bits of the last byte of DEFLATE, and a smaller or larger window in the header, change nothing.
            assert!(result.is_err() || back == raw, "bit {bit}");
        }
        for length in 0..stream.len() {
            // The stream is whole without its entry points.
            let is_whole = length == stream.len() - 10;
            let result = unpack(&mut *codec, &stream[..length], &mut Vec::new(), raw.len());
            assert_eq!(result.is_ok(), is_whole, "{length} of {} bytes", stream.len());
        }
        let longer = [&stream[..], b"x"].concat();
        assert!(unpack(&mut *codec, &longer, &mut Vec::new(), raw.len()).is_err());
    }

    #[test]
    fn a_target_without_room_is_told() {
        let raw = text(4096);
        let engine = engine_of(Setting::new(Format::Deflate));
        let mut codec = engine.open().unwrap();
        let mut target = vec![MaybeUninit::uninit(); 100];
        assert!(pack_into(&mut *codec, &raw, &mut target).unwrap().is_none());
        assert!(pack_into(&mut *codec, &raw, &mut target[..5]).unwrap().is_none());
        let stream = packed(&mut *codec, &raw);
        let mut back = vec![MaybeUninit::uninit(); 4095];
        assert!(unpack_into(&mut *codec, &stream, &mut back).unwrap().is_none());
    }
}
