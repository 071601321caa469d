//! The SSTables of a folder, and the chunks of each.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::compression_info::{CHECKSUM_BYTES, CompressionInfo, OFFSET_BYTES};
use crate::compressor::{Decompressor, Decompressors};
use crate::error::Error;
use crate::transactions;

const DATA: &str = "-Data.db";
/// The first version of format `big` whose `CompressionInfo.db` has a bound for raw chunks: Cassandra 4.0. All versions
/// of format `bti` have the bound.
const BOUNDS_RAW_SINCE: &str = "na";
/// An SSTable that is not compressed is read in pieces of this length.
const PLAIN_CHUNK_BYTES: u32 = 1 << 16;

/// The SSTables of one table.
pub struct Table {
    folder: PathBuf,
    ss_tables: Vec<SsTable>,
}

/// One SSTable, open for reading.
pub struct SsTable {
    path: PathBuf,
    file: File,
    data_bytes: u64,
    written: SystemTime,
    packed: Option<Packed>,
}

struct Packed {
    info: CompressionInfo,
    decompressor: Arc<Decompressor>,
}

impl Packed {
    /// Opens the compression of an SSTable with a file `...-Data.db` of so many bytes.
    fn open(path: &Path, data_bytes: u64, decompressors: &mut Decompressors) -> Result<Packed, Error> {
        let info_path = part(path, "CompressionInfo.db");
        let bytes = fs::read(&info_path).map_err(Error::io(&info_path))?;
        let stem = stem_of(path).unwrap_or_default();
        let bounds_raw = stem.ends_with("-bti") || stem.split('-').next() >= Some(BOUNDS_RAW_SINCE);
        let info = CompressionInfo::parse(&bytes, bounds_raw)
            .map_err(|fault| Error::damaged(&info_path, fault.offset, fault.what))?;
        if info.offsets.last().is_some_and(|&last| last + CHECKSUM_BYTES > data_bytes) {
            let what = format!("the last chunk lies behind the {data_bytes} bytes of {}", path.display());
            return Err(Error::damaged(&info_path, bytes.len() as u64, what));
        }
        let decompressor =
            decompressors.of(&info).map_err(|what| Error::Unsupported { path: info_path, what })?;
        Ok(Packed { info, decompressor })
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::io(folder))?;
    entries.map(|entry| Ok(entry.map_err(Error::io(folder))?.path())).collect()
}

/// The name of an SSTable, `nb-1-big`, by its file of rows. `None` for any other file.
fn stem_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_suffix(DATA)
}

/// Another file of the SSTable with a file of rows.
fn part(path: &Path, name: &str) -> PathBuf {
    path.with_file_name(format!("{}-{name}", stem_of(path).unwrap_or_default()))
}

impl Table {
    /// Opens all SSTables of a folder such as `data/shop/orders-1b25...`. Folders in it, such as snapshots, are left
    /// alone, and so are SSTables that a node is writing or has replaced.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for the compressor of somebody else, [`Error::Damaged`] and [`Error::Io`].
    pub fn open(folder: &Path) -> Result<Table, Error> {
        let mut paths = files(folder)?;
        // The second list has the log of each SSTable in the first one: a log is older than its SSTables.
        let strays = transactions::strays(&files(folder)?)?;
        paths.retain(|path| stem_of(path).is_some_and(|stem| !strays.contains(stem)));
        paths.sort();
        let mut decompressors = Decompressors::default();
        let opened = paths.iter().map(|path| SsTable::open(path, &mut decompressors));
        let present = opened.filter(|opened| !opened.as_ref().is_err_and(Error::is_gone));
        Ok(Table { folder: folder.to_owned(), ss_tables: present.collect::<Result<_, _>>()? })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The SSTables, by name.
    pub fn ss_tables(&self) -> &[SsTable] {
        &self.ss_tables
    }

    /// The SSTable that was written last.
    pub fn newest(&self) -> Option<&SsTable> {
        self.ss_tables.iter().max_by_key(|ss_table| ss_table.written)
    }

    /// Bytes of all rows before compression, as SSTables hold them.
    pub fn raw_bytes(&self) -> u64 {
        self.ss_tables.iter().map(SsTable::raw_bytes).sum()
    }

    /// Bytes of the rows as they are stored, with the offsets of chunks.
    pub fn stored_bytes(&self) -> u64 {
        self.ss_tables.iter().map(SsTable::stored_bytes).sum()
    }
}

impl SsTable {
    /// Opens the SSTable of a file `...-Data.db`.
    fn open(path: &Path, decompressors: &mut Decompressors) -> Result<SsTable, Error> {
        let file = File::open(path).map_err(Error::io(path))?;
        let metadata = file.metadata().map_err(Error::io(path))?;
        let (data_bytes, written) = (metadata.len(), metadata.modified().map_err(Error::io(path))?);
        let packed = match Packed::open(path, data_bytes, decompressors) {
            // Cassandra gives only uncompressed SSTables a file of checksums.
            Err(error) if error.is_gone() && part(path, "CRC.db").exists() => None,
            opened => Some(opened?),
        };
        Ok(SsTable { path: path.to_owned(), file, data_bytes, written, packed })
    }

    /// Its file of rows.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it is compressed, `None` if it is not.
    pub fn compression(&self) -> Option<&CompressionInfo> {
        self.packed.as_ref().map(|packed| &packed.info)
    }

    /// Bytes of all chunks before compression.
    pub fn raw_bytes(&self) -> u64 {
        self.compression().map_or(self.data_bytes, |info| info.raw_bytes)
    }

    /// Bytes of the rows as they are stored, with the offsets of chunks.
    pub fn stored_bytes(&self) -> u64 {
        self.data_bytes + self.compression().map_or(0, |info| info.offsets.len() as u64 * OFFSET_BYTES)
    }

    /// Bytes of a chunk before compression; the last one may be shorter.
    pub fn chunk_bytes(&self) -> u64 {
        self.compression().map_or(PLAIN_CHUNK_BYTES, |info| info.chunk_bytes).into()
    }

    /// Puts the rows from `offset` on into `rows`, `length` bytes or as many as there are.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if the checksum of a chunk does not match or a chunk cannot be decompressed, [`Error::Io`].
    pub fn read(&self, offset: u64, length: usize, rows: &mut Vec<u8>) -> Result<(), Error> {
        rows.clear();
        let end = self.raw_bytes().min(offset.saturating_add(length as u64));
        let (mut at, mut chunk) = (offset, Vec::new());
        while at < end {
            let number = at / self.chunk_bytes();
            self.read_chunk(number, &mut chunk)?;
            let begin = number * self.chunk_bytes();
            let taken = &chunk[(at - begin) as usize..((end - begin) as usize).min(chunk.len())];
            rows.extend_from_slice(taken);
            at += taken.len() as u64;
        }
        Ok(())
    }

    fn read_chunk(&self, number: u64, raw: &mut Vec<u8>) -> Result<(), Error> {
        let begin = number * self.chunk_bytes();
        let raw_bytes = self.chunk_bytes().min(self.raw_bytes() - begin) as usize;
        let Some(Packed { info, decompressor }) = &self.packed else {
            raw.resize(raw_bytes, 0);
            return self.file.read_exact_at(raw, begin).map_err(Error::io(&self.path));
        };
        let stored_at = info.offsets[number as usize];
        let stored_end = info.offsets.get(number as usize + 1).copied().unwrap_or(self.data_bytes);
        let mut stored = vec![0; (stored_end - stored_at) as usize];
        self.file.read_exact_at(&mut stored, stored_at).map_err(Error::io(&self.path))?;
        let damaged = |what: String| Error::damaged(&self.path, stored_at, what);
        let (chunk, checksum) = stored.split_at(stored.len() - CHECKSUM_BYTES as usize);
        if crc32fast::hash(chunk).to_be_bytes() != checksum {
            return Err(damaged("the checksum of a chunk does not match".into()));
        }
        if chunk.len() as u64 >= info.raw_from_bytes.into() {
            // Cassandra pads the last chunk with zeros to the length from which chunks are raw.
            let is_padded = begin + raw_bytes as u64 == self.raw_bytes()
                && chunk.len() > raw_bytes
                && chunk.len() as u64 == info.raw_from_bytes.into();
            raw.clear();
            raw.extend_from_slice(&chunk[..chunk.len().min(raw_bytes)]);
            return match chunk.len() == raw_bytes || is_padded {
                true => Ok(()),
                false => Err(damaged(format!("a raw chunk has {} bytes, not {raw_bytes}", chunk.len()))),
            };
        }
        decompressor
            .decompress(chunk, raw, raw_bytes)
            .map_err(|what| damaged(format!("a chunk of {} cannot be read: {what}", info.compressor)))
    }
}
