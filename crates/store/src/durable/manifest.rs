//! The manifest: which images make up the last checkpoint, and where the log goes on from there.
//!
//! It is written whole to another name, made durable, and renamed: there is always one, of one checkpoint. A header, then
//! chunks, each with a checksum that depends on its place and on the checkpoint, so that damage is found where it is.
//! `docs/FORMATS.md` draws it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ziptier_codec::checksum::{crc32c, crc32c_append};
use ziptier_media::disk::{Caching, Disk, DiskFile, read_full_at, write_all_at};
use ziptier_media::log::Lsn;
use ziptier_media::segments::Place;

use super::image::{read_place, write_place};
use super::reader::Reader;
use crate::Error;
use crate::options::KEY_BYTES_MAX;
use crate::record::write_varint;

/// The manifest's name in a store's folder.
pub(crate) const NAME: &str = "MANIFEST";
/// A manifest that is being written.
const NEW_NAME: &str = "MANIFEST.new";

const SIGNATURE: &[u8; 8] = b"ziptrman";
/// The format that is written, and the only one that is read.
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
const CHUNK_HEADER_BYTES: usize = 12;
/// A chunk ends behind the entry that makes it longer than this.
const CHUNK_BYTES: usize = 64 << 10;
/// A chunk with one key more is no longer than this.
const CHUNK_BYTES_MAX: usize = CHUNK_BYTES + KEY_BYTES_MAX + 64;
const GENERATIONS_MAX: u32 = 1024;

/// The image of the leaf that owned `low` when a checkpoint came by. What it says of keys below `low`, or from the next
/// entry's on, is older than what its neighbours say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) low: Box<[u8]>,
    pub(crate) place: Place,
}

/// A checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Its number, one more than that of the checkpoint before.
    pub(crate) number: u64,
    /// The first record of the log that may not be in the images.
    pub(crate) start_lsn: Lsn,
    /// The newest record of the log that may be in the images: the log was durable up to here.
    pub(crate) durable_lsn: Lsn,
    /// Generations that the images need.
    pub(crate) generations: Vec<u32>,
    /// In key order. The first one begins with the empty key; none at all is an empty store.
    pub(crate) entries: Vec<Entry>,
}

impl Manifest {
    /// Writes it durably under another name; the bytes that were written. The folder's manifest is as it was.
    pub(crate) fn prepare(&self, disk: &dyn Disk, dir: &Path) -> Result<u64, Error> {
        let new = dir.join(NEW_NAME);
        match disk.remove(&new) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        let file = disk.create(&new, Caching::Cached)?;
        let written = self.write(&*file)?;
        file.sync_data()?;
        Ok(written)
    }

    /// Makes what was prepared the folder's manifest, durably. After an error the one before or this one is in force.
    pub(crate) fn commit(&self, disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
        disk.rename(&dir.join(NEW_NAME), &dir.join(NAME))?;
        Ok(disk.sync_dir(dir)?)
    }

    /// Makes this the folder's manifest.
    pub(crate) fn store(&self, disk: &dyn Disk, dir: &Path) -> Result<u64, Error> {
        let written = self.prepare(disk, dir)?;
        self.commit(disk, dir)?;
        Ok(written)
    }

    fn write(&self, file: &dyn DiskFile) -> Result<u64, Error> {
        let mut out = Output { file, number: self.number, written: 0, chunks: 0, buffer: self.header() };
        let mut chunk = Vec::with_capacity(CHUNK_BYTES_MAX);
        for generation in &self.generations {
            chunk.extend_from_slice(&generation.to_le_bytes());
        }
        out.chunk(&mut chunk, self.generations.len())?;
        let (mut count, mut before): (usize, &[u8]) = (0, &[]);
        for entry in &self.entries {
            write_entry(entry, before, &mut chunk);
            (count, before) = (count + 1, &entry.low);
            if chunk.len() > CHUNK_BYTES {
                out.chunk(&mut chunk, count)?;
                (count, before) = (0, &[]);
            }
        }
        if count > 0 {
            out.chunk(&mut chunk, count)?;
        }
        out.flush()?;
        Ok(out.written)
    }

    fn header(&self) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&(self.generations.len() as u32).to_le_bytes());
        for field in [self.number, self.start_lsn, self.durable_lsn, self.entries.len() as u64] {
            header.extend_from_slice(&field.to_le_bytes());
        }
        header.resize(HEADER_BYTES - 4, 0);
        header.extend_from_slice(&crc32c(&header).to_le_bytes());
        header
    }

    /// The folder's manifest; `None` if it has none.
    ///
    /// # Errors
    /// A file of another version or none of ours ([`Error::FileForeign`]), damage ([`Error::FileDamaged`]), or the disk's.
    pub(crate) fn load(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, Error> {
        let path = dir.join(NAME);
        let file = match disk.open(&path, Caching::Cached) {
            Err(error) if error.is_not_found() => return Ok(None),
            file => file?,
        };
        let len = file.len()?;
        Input { file, path, offset: 0, len }.manifest().map(Some)
    }
}

fn write_entry(entry: &Entry, before: &[u8], out: &mut Vec<u8>) {
    let shared = before.iter().zip(&entry.low).take_while(|(a, b)| a == b).count();
    write_varint(shared as u32, out);
    write_varint((entry.low.len() - shared) as u32, out);
    out.extend_from_slice(&entry.low[shared..]);
    write_place(entry.place, out);
}

/// What the checksum of a chunk begins with: a chunk of another manifest, or at another place, fails.
fn seed(number: u64, index: u64) -> u32 {
    crc32c_append(crc32c(&number.to_le_bytes()), &index.to_le_bytes())
}

/// Writes chunk after chunk, in large pieces.
struct Output<'a> {
    file: &'a dyn DiskFile,
    number: u64,
    written: u64,
    chunks: u64,
    buffer: Vec<u8>,
}

impl Output<'_> {
    /// Writes what is in `payload` and empties it.
    fn chunk(&mut self, payload: &mut Vec<u8>, count: usize) -> Result<(), Error> {
        let mut head = [0; 8];
        head[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&(count as u32).to_le_bytes());
        let checksum = crc32c_append(crc32c_append(seed(self.number, self.chunks), &head), payload);
        self.chunks += 1;
        self.buffer.extend_from_slice(&head);
        self.buffer.extend_from_slice(&checksum.to_le_bytes());
        self.buffer.append(payload);
        if self.buffer.len() < 1 << 20 { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), Error> {
        write_all_at(self.file, self.written, &self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Reads a manifest, which may be anything.
struct Input {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    offset: u64,
    len: u64,
}

impl Input {
    fn manifest(mut self) -> Result<Manifest, Error> {
        let header = self.take(HEADER_BYTES.min(self.len as usize))?;
        if header.get(..SIGNATURE.len()) != Some(&SIGNATURE[..]) {
            return Err(self.foreign("it has not the signature of a manifest".to_owned()));
        }
        let mut reader = Reader(&header[SIGNATURE.len()..]);
        match reader.u32() {
            Some(VERSION) => {}
            Some(version) => {
                let reason = format!("it has version {version}, and this program reads version {VERSION}");
                return Err(self.foreign(reason));
            }
            None => return Err(self.damaged(0, "the header ends")),
        }
        let checksum = header.get(HEADER_BYTES - 4..).and_then(|end| Reader(end).u32());
        if checksum.is_none_or(|checksum| checksum != crc32c(&header[..HEADER_BYTES - 4])) {
            return Err(self.damaged(0, "the header fails its check"));
        }
        let fields = || -> Option<_> {
            Some((reader.u32()?, reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?))
        };
        let mut fields = fields;
        let (generations, number, start_lsn, durable_lsn, count) =
            fields().ok_or_else(|| self.damaged(0, "the header ends"))?;
        if generations > GENERATIONS_MAX {
            return Err(self.damaged(12, "it has too many generations"));
        }
        let generations = self.generations(number, generations)?;
        let entries = self.entries(number, count)?;
        Ok(Manifest { number, start_lsn, durable_lsn, generations, entries })
    }

    fn generations(&mut self, number: u64, count: u32) -> Result<Vec<u32>, Error> {
        let at = self.offset;
        let (found, payload) = self.chunk(number, 0)?;
        let mut reader = Reader(&payload);
        let generations: Option<Vec<u32>> = (0..count).map(|_| reader.u32()).collect();
        match generations {
            Some(generations)
                if found == count && reader.is_empty() && generations.is_sorted_by(|a, b| a < b) =>
            {
                Ok(generations)
            }
            _ => Err(self.damaged(at, "its generations are none")),
        }
    }

    fn entries(&mut self, number: u64, count: u64) -> Result<Vec<Entry>, Error> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut index = 1;
        while (entries.len() as u64) < count {
            let at = self.offset;
            let (in_chunk, payload) = self.chunk(number, index)?;
            let mut reader = Reader(&payload);
            let mut key: Vec<u8> = Vec::new();
            for _ in 0..in_chunk {
                let read = read_entry(&mut reader, &mut key);
                let is_next = match entries.last() {
                    Some(before) => *before.low < *key,
                    None => key.is_empty(),
                };
                match read {
                    Some(place) if is_next => entries.push(Entry { low: key.as_slice().into(), place }),
                    _ => return Err(self.damaged(at, "its entries are none")),
                }
            }
            if in_chunk == 0 || !reader.is_empty() {
                return Err(self.damaged(at, "its entries are none"));
            }
            index += 1;
        }
        if entries.len() as u64 == count && self.offset == self.len {
            Ok(entries)
        } else {
            Err(self.damaged(self.offset, "it has another length than it says"))
        }
    }

    /// Entries of the next chunk, and the bytes that they are in.
    fn chunk(&mut self, number: u64, index: u64) -> Result<(u32, Vec<u8>), Error> {
        let at = self.offset;
        let header = self.take(CHUNK_HEADER_BYTES)?;
        let mut reader = Reader(&header);
        let mut field = || reader.u32().unwrap_or_default();
        let (bytes, count, stored) = (field() as usize, field(), field());
        if bytes > CHUNK_BYTES_MAX {
            return Err(self.damaged(at, "a chunk is too long"));
        }
        let payload = self.take(bytes)?;
        if stored != crc32c_append(crc32c_append(seed(number, index), &header[..8]), &payload) {
            return Err(self.damaged(at, "a chunk fails its check"));
        }
        Ok((count, payload))
    }

    fn take(&mut self, bytes: usize) -> Result<Vec<u8>, Error> {
        let mut taken = vec![0; bytes];
        let count = read_full_at(&*self.file, self.offset, &mut taken)?;
        if count < bytes {
            return Err(self.damaged(self.offset, "it ends too early"));
        }
        self.offset += bytes as u64;
        Ok(taken)
    }

    fn damaged(&self, offset: u64, reason: &str) -> Error {
        Error::FileDamaged { path: self.path.clone(), offset, reason: reason.to_owned() }
    }

    fn foreign(&self, reason: String) -> Error {
        Error::FileForeign { path: self.path.clone(), reason }
    }
}

/// Turns `key` into the entry's.
fn read_entry(reader: &mut Reader<'_>, key: &mut Vec<u8>) -> Option<Place> {
    let shared = reader.varint().filter(|shared| *shared as usize <= key.len())?;
    key.truncate(shared as usize);
    key.extend_from_slice(reader.string()?);
    if key.len() > KEY_BYTES_MAX {
        return None;
    }
    read_place(reader)
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use ziptier_media::testing::RecordingDisk;

    const DIR: &str = "/d";

    fn manifest(entries: usize) -> Manifest {
        let entries = (0..entries).map(|n| Entry {
            low: if n == 0 { Box::default() } else { format!("key:{n:09}").into_bytes().into() },
            place: Place { segment: 3 + n as u64 / 100, offset: n as u32 * 8, bytes: 8000 },
        });
        Manifest {
            number: 9,
            start_lsn: 1000,
            durable_lsn: 1005,
            generations: vec![1, 2, 7],
            entries: entries.collect(),
        }
    }

    fn stored(manifest: &Manifest) -> (RecordingDisk, Vec<u8>) {
        let disk = RecordingDisk::new();
        let written = manifest.store(&disk, Path::new(DIR)).unwrap();
        let bytes = disk.contents(&Path::new(DIR).join(NAME)).unwrap();
        assert_eq!(bytes.len() as u64, written);
        (disk, bytes)
    }

    #[test]
    fn a_manifest_comes_back() {
        for entries in [0, 1, 2, 10_000] {
            let manifest = manifest(entries);
            let (disk, _) = stored(&manifest);
            assert_eq!(Manifest::load(&disk, Path::new(DIR)).unwrap(), Some(manifest));
        }
        assert_eq!(Manifest::load(&RecordingDisk::new(), Path::new(DIR)).unwrap(), None);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let manifest = manifest(3000);
        let (disk, bytes) = stored(&manifest);
        let path = Path::new(DIR).join(NAME);
        let step = if cfg!(miri) { 9001 } else { 37 };
        for bit in (0..8 * bytes.len()).step_by(step) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            disk.put(&path, damaged);
            let error = Manifest::load(&disk, Path::new(DIR)).unwrap_err();
            let named = matches!(&error, Error::FileDamaged { .. } | Error::FileForeign { .. });
            assert!(named, "bit {bit}: {error}");
        }
        for end in (0..bytes.len()).step_by(step) {
            disk.put(&path, bytes[..end].to_vec());
            assert!(Manifest::load(&disk, Path::new(DIR)).is_err(), "{end}");
        }
        disk.put(&path, [&bytes[..], &[0]].concat());
        assert!(Manifest::load(&disk, Path::new(DIR)).is_err());
    }

    #[test]
    fn another_version_is_named() {
        let (disk, mut bytes) = stored(&manifest(3));
        bytes[8] = 2;
        disk.put(&Path::new(DIR).join(NAME), bytes);
        let error = Manifest::load(&disk, Path::new(DIR)).unwrap_err().to_string();
        assert!(error.contains("version 2") && error.contains("version 1"), "{error}");
    }
}
