//! Choosing the bytes of a dictionary.

use super::{Dictionary, TrainError};
#[cfg(feature = "zstd")]
use crate::block::token::ROW_BYTES;
use crate::format::Format;
#[cfg(feature = "zstd")]
use crate::token::{self, packed};
#[cfg(feature = "zstd")]
use std::ops::RangeInclusive;
#[cfg(feature = "deflate")]
use ziptier_deflate as deflate;

/// zstd's trainer takes no less.
const BYTES_MIN: usize = 256;

/// Room for zstd's tables. Formats without tables drop them.
#[cfg(feature = "zstd")]
const TABLES_BYTES_MAX: usize = 1024;

/// Widths of tokens of blocks. More bits made blocks of strangers larger, and tables that leave the caches.
#[cfg(feature = "zstd")]
const TOKEN_BITS: RangeInclusive<u32> = 10..=14;

/// Bytes of samples for each token; with fewer, later blocks do not have the tokens.
#[cfg(feature = "zstd")]
const SAMPLE_BYTES_PER_TOKEN: usize = 48;

#[cfg(feature = "zstd")]
pub(super) fn train(format: Format, samples: &[&[u8]], max_bytes: usize) -> Result<Vec<u8>, TrainError> {
    let max_bytes = usable_bytes(format, max_bytes)?;
    let has_tables = format == Format::Zstd;
    let trained_bytes = if has_tables { max_bytes } else { max_bytes + TABLES_BYTES_MAX };
    let mut trained = Vec::with_capacity(trained_bytes);
    let joined = samples.concat();
    let sizes: Vec<usize> = samples.iter().map(|sample| sample.len()).collect();
    let refused = |reason| TrainError::Samples { samples: samples.len(), bytes: joined.len(), reason };
    if u32::try_from(samples.len()).is_err() {
        return Err(refused("more than 2^32"));
    }
    zstd_safe::train_from_buffer(&mut trained, &joined, &sizes)
        .map_err(|code| refused(zstd_safe::get_error_name(code)))?;
    if has_tables {
        return Ok(trained);
    }
    let content = &trained[tables_bytes(&trained).ok_or_else(|| refused("no tables"))?..];
    Ok(content[content.len().saturating_sub(max_bytes)..].to_vec())
}

#[cfg(not(feature = "zstd"))]
pub(super) fn train(format: Format, _: &[&[u8]], max_bytes: usize) -> Result<Vec<u8>, TrainError> {
    usable_bytes(format, max_bytes).map(|_| Vec::new())
}

/// History and canned codes.
#[cfg(feature = "deflate")]
pub(super) fn train_deflate(samples: &[&[u8]], max_bytes: usize) -> Result<deflate::Dictionary, TrainError> {
    let trained = deflate::Dictionary::train(samples, usable_bytes(Format::Deflate, max_bytes)?);
    if trained.history().is_empty() {
        let bytes = samples.iter().map(|sample| sample.len()).sum();
        return Err(TrainError::Samples {
            samples: samples.len(),
            bytes,
            reason: "they have nothing in common",
        });
    }
    Ok(trained)
}

/// Tokens, and the content that holds them.
#[cfg(feature = "zstd")]
pub(super) fn train_tokens(
    samples: &[&[u8]],
    max_bytes: usize,
) -> Result<(token::Dictionary, Vec<u8>), TrainError> {
    let max_bytes = usable_bytes(Format::Token, max_bytes)?;
    let bytes: usize = samples.iter().map(|sample| sample.len()).sum();
    let refused = |reason| TrainError::Samples { samples: samples.len(), bytes, reason };
    let rows: Vec<&[u8]> = samples.iter().flat_map(|sample| sample.chunks(ROW_BYTES)).collect();
    for bits in TOKEN_BITS.rev().filter(|bits| bytes >> *bits >= SAMPLE_BYTES_PER_TOKEN) {
        let trained = token::Dictionary::train(&rows, bits, 0).map_err(|_| refused("no tokens"))?;
        let tokens = packed::in_order(&trained).map_err(|_| TrainError::Unusable)?;
        let packed = packed::pack(&tokens).map_err(|_| TrainError::Unusable)?;
        if packed.bytes.len() + size_of::<u32>() <= max_bytes {
            let coded_bytes = (packed.coded_bytes as u32).to_le_bytes();
            return Ok((tokens, [&coded_bytes[..], &packed.bytes].concat()));
        }
    }
    Err(refused("too few for any tokens, or too few bytes allowed for the fewest"))
}

fn usable_bytes(format: Format, max_bytes: usize) -> Result<usize, TrainError> {
    let format_max = Dictionary::content_bytes_max(format);
    if format_max == 0 {
        return Err(TrainError::Format { format });
    }
    if !format.is_built() {
        return Err(TrainError::NotBuilt { format });
    }
    let max_bytes = max_bytes.min(format_max);
    if max_bytes < BYTES_MIN {
        return Err(TrainError::Size { max_bytes, min_bytes: BYTES_MIN });
    }
    Ok(max_bytes)
}

/// Bytes of a zstd dictionary before its content.
#[cfg(feature = "zstd")]
fn tables_bytes(dictionary: &[u8]) -> Option<usize> {
    // SAFETY: the dictionary is valid for its length, and the function only reads it.
    let bytes =
        unsafe { zstd_safe::zstd_sys::ZDICT_getDictHeaderSize(dictionary.as_ptr().cast(), dictionary.len()) };
    // An error is a number close to the greatest one.
    (bytes <= dictionary.len()).then_some(bytes)
}
