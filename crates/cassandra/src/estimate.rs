//! What other compressors would make of a table, by trying them on a sample of its rows.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use ziptier_codec::block::dictionary::TrainError;
use ziptier_codec::block::setting::SettingError;
use ziptier_codec::block::{BlockError, Dictionary, Engine, Setting};
use ziptier_codec::format::Format;

use crate::compression_info::{CHECKSUM_BYTES, OFFSET_BYTES};
use crate::error::Error;
use crate::table::Table;

/// The lengths of chunks that are tried.
pub const CHUNK_BYTES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];
/// The rows of a sample are read in pieces of the longest chunk.
const PIECE_BYTES: usize = CHUNK_BYTES[2];

/// What a table takes, and what it would take.
#[derive(Debug)]
pub struct Estimate {
    /// Bytes of all SSTables now, their rows and the offsets of chunks; indexes and filters do not change.
    pub bytes: u64,
    /// Bytes of rows that were tried.
    pub sample_bytes: u64,
    /// A row for each format and length of chunks.
    pub formats: Vec<FormatEstimate>,
}

/// What a format makes of a table.
#[derive(Debug)]
pub struct FormatEstimate {
    /// Name of the format and its level.
    pub name: String,
    /// Bytes of a chunk before compression.
    pub chunk_bytes: usize,
    /// Bytes of all SSTables.
    pub bytes: u64,
    /// CPU time to compress the sample.
    pub compress: Duration,
    /// CPU time to decompress it.
    pub decompress: Duration,
}

/// The most bytes of a stored dictionary on nodes of Cassandra 5. As text it is an option of the table, of at most
/// 65,535 bytes.
pub const DICTIONARY_BYTES_MAX: usize = 49_149;

/// The same on nodes of Cassandra 6. They keep the whole statement that changes a table, of at most 32,767 bytes, and
/// 1,023 of these are left for its other words.
pub const DICTIONARY_BYTES_MAX_6: usize = (32_767 - 1_023) / 4 * 3;

/// Rows that a dictionary is trained on.
const TRAINING_BYTES: u64 = 4 << 20;

/// Trains tokens for a table on pieces of its rows at equal distances. The stored dictionary has at most `bytes_max`
/// bytes.
///
/// # Errors
///
/// As [`SsTable::read`](crate::SsTable::read); [`Error::Training`] if the rows have too little in common, or are too
/// few.
pub fn train(table: &Table, bytes_max: usize) -> Result<Dictionary, Error> {
    trained(&sample(table, TRAINING_BYTES)?, bytes_max).map_err(Error::Training)
}

fn trained(pieces: &[Vec<u8>], bytes_max: usize) -> Result<Dictionary, TrainError> {
    let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    Dictionary::train(Format::Token, &pieces, bytes_max - Dictionary::ENVELOPE_BYTES, 0)
}

/// A compressor as Cassandra has it.
struct Candidate {
    name: &'static str,
    engine: Arc<dyn Engine>,
    /// Bytes of a chunk beside the block: lengths, magic numbers, checksums of the format.
    frame_bytes: u64,
}

impl Candidate {
    /// The compressors, and tokens if the training has some for `chunk_bytes`.
    fn all(tokens: Option<Arc<Dictionary>>) -> Result<Vec<Candidate>, SettingError> {
        let of = |name, setting: Setting, frame_bytes| {
            Ok::<_, SettingError>(Candidate { name, engine: setting.engine()?, frame_bytes })
        };
        // An LZ4 chunk begins with its length; a zstd frame has a magic number, its length, and a checksum; a zlib
        // stream has a header and a checksum.
        let mut all = vec![
            of("LZ4", Setting::new(Format::Lz4), 4)?,
            of("zstd", Setting::new(Format::Zstd), 4 + 2 + 4)?,
            of("ziptier: deflate", Setting::new(Format::Deflate), 2 + 4)?,
        ];
        if let Some(tokens) = tokens {
            all.push(of("ziptier: token", Setting::new(Format::Token).with_dictionary(tokens), 0)?);
        }
        Ok(all)
    }

    /// Compresses the pieces in chunks, decompresses them again, and compares.
    fn tried_on(&self, pieces: &[Vec<u8>], chunk_bytes: usize) -> Result<Tried, BlockError> {
        let mut tried = Tried::default();
        let mut codec = self.engine.open()?;
        let (mut packed, mut ends, mut raw) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            packed.clear();
            ends.clear();
            raw.clear();
            let began = cpu_time();
            for chunk in piece.chunks(chunk_bytes) {
                codec.compress(chunk, &mut packed, usize::MAX)?;
                ends.push(packed.len());
            }
            let compressed = cpu_time();
            let mut start = 0;
            for (chunk, end) in piece.chunks(chunk_bytes).zip(&ends) {
                codec.decompress(&packed[start..*end], &mut raw, chunk.len())?;
                start = *end;
            }
            tried.decompress += cpu_time().saturating_sub(compressed);
            tried.compress += compressed.saturating_sub(began);
            assert!(raw == *piece, "format {} gave other bytes back", self.name);
            let per_chunk_bytes = self.frame_bytes + CHECKSUM_BYTES + OFFSET_BYTES;
            tried.bytes += packed.len() as u64 + ends.len() as u64 * per_chunk_bytes;
        }
        Ok(tried)
    }
}

#[derive(Default)]
struct Tried {
    bytes: u64,
    compress: Duration,
    decompress: Duration,
}

impl Estimate {
    /// Tries the formats on about `sample_bytes` of the table's rows, taken at equal distances. Half of them train
    /// tokens, and all formats are tried on the others. Calls `progress` with the steps that are done, and their
    /// number.
    ///
    /// # Errors
    ///
    /// As [`SsTable::read`](crate::SsTable::read). Pieces of SSTables that compaction has removed meanwhile are still
    /// there, since the files are open.
    pub fn of(
        table: &Table,
        sample_bytes: u64,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Estimate, Error> {
        let mut pieces = sample(table, sample_bytes)?;
        // Tokens are judged by rows that they were not trained on.
        let training: Vec<Vec<u8>> = if pieces.len() > 1 {
            let mut number = 0;
            pieces
                .extract_if(.., |_| {
                    number += 1;
                    number % 2 == 0
                })
                .collect()
        } else {
            Vec::new()
        };
        let candidates = Candidate::all(trained(&training, DICTIONARY_BYTES_MAX).ok().map(Arc::new))
            .map_err(Error::Setting)?;
        let steps = candidates.len() * CHUNK_BYTES.len();
        let sample_bytes = pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let scale = table.raw_bytes() as f64 / sample_bytes.max(1) as f64;
        let mut formats = Vec::with_capacity(steps);
        for candidate in &candidates {
            for chunk_bytes in CHUNK_BYTES {
                progress(formats.len(), steps);
                let tried = candidate.tried_on(&pieces, chunk_bytes).map_err(Error::Format)?;
                formats.push(FormatEstimate {
                    name: candidate.name.to_owned(),
                    chunk_bytes,
                    bytes: (tried.bytes as f64 * scale) as u64,
                    compress: tried.compress,
                    decompress: tried.decompress,
                });
            }
        }
        Ok(Estimate { bytes: table.stored_bytes(), sample_bytes, formats })
    }
}

/// Pieces of the table's rows at equal distances; all of them if there are no more.
fn sample(table: &Table, sample_bytes: u64) -> Result<Vec<Vec<u8>>, Error> {
    let pieces_of = |bytes: u64| bytes.div_ceil(PIECE_BYTES as u64);
    let all = table.ss_tables().iter().map(|ss_table| pieces_of(ss_table.raw_bytes())).sum::<u64>();
    if all == 0 {
        return Err(Error::Empty { folder: table.folder().to_owned() });
    }
    let wanted = pieces_of(sample_bytes).clamp(1, all);
    (0..wanted)
        .map(|piece| piece_at(table, (u128::from(piece) * u128::from(all) / u128::from(wanted)) as u64))
        .collect()
}

/// The rows of a piece, by its number among those of all SSTables.
fn piece_at(table: &Table, mut number: u64) -> Result<Vec<u8>, Error> {
    let mut rows = Vec::new();
    for ss_table in table.ss_tables() {
        let pieces = ss_table.raw_bytes().div_ceil(PIECE_BYTES as u64);
        if number < pieces {
            ss_table.read(number * PIECE_BYTES as u64, PIECE_BYTES, &mut rows)?;
            break;
        }
        number -= pieces;
    }
    Ok(rows)
}

/// CPU time of the calling thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}
