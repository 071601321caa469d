//! Manifests as they are found.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ziptier_codec::checksum::{crc32c, crc32c_append};
use ziptier_media::disk::{Caching, Disk, DiskError, DiskFile, read_full_at, write_all_at};
use ziptier_tree::below::Part;
use ziptier_tree::fields::FieldReader;
use ziptier_tree::sizes::KEY_BYTES_MAX;

use super::write::{create_new, new_path};
use super::{
    CHUNK_HEADER_BYTES, COPY_NAME, Entry, GENERATIONS_MAX, HAS_IMAGE, HAS_PARTS, HEADER_BYTES, Head,
    IN_MEMORY, Listed, NAME, SIGNATURE, VERSION, VERSION_MIN, seed,
};
use crate::Error;
use crate::leaf_image::read_place;

const PATH_BYTES_MAX: usize = 4096;
/// Bytes of a file that are copied at a time.
const COPIED_BYTES: u64 = 1 << 20;

/// A folder's manifest, all of which was checked.
pub(crate) struct Manifest {
    pub(crate) head: Head,
    /// Segments that it names.
    pub(crate) named: BTreeSet<u64>,
    /// Whether it has leaves whose records were on SSD alone.
    pub(crate) has_cold: bool,
    /// Bytes of images that are loaded into memory if there is room.
    pub(crate) image_bytes: u64,
    /// Entries.
    pub(crate) count: u64,
    input: Input,
    /// The one of the two files that does not hold the same.
    other: Option<Unlike>,
}

/// A file that is not what it should be.
struct Unlike {
    name: &'static str,
    /// Damage, unless it is missing or of another checkpoint, as a crash may leave it.
    damage: Option<Error>,
}

impl Manifest {
    /// The folder's manifest, from whichever of its two files is whole; `None` if it has neither.
    ///
    /// # Errors
    /// Files of another version or none of ours ([`Error::FileForeign`]), damage of both ([`Error::FileDamaged`]), or
    /// the disk's.
    pub(crate) fn load(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>, Error> {
        let unlike = |name, damage| Some(Unlike { name, damage });
        let copy = Self::read(disk, dir.join(COPY_NAME));
        let (mut manifest, other) = match Self::read(disk, dir.join(NAME)) {
            Ok(Some(manifest)) => match copy {
                Ok(Some(copy)) if copy.head == manifest.head => (manifest, None),
                Ok(_) => (manifest, unlike(COPY_NAME, None)),
                Err(error) => (manifest, unlike(COPY_NAME, Some(damage_only(error)?))),
            },
            Ok(None) => match copy? {
                Some(copy) => (copy, unlike(NAME, None)),
                None => return Ok(None),
            },
            Err(error) => {
                let damage = damage_only(error)?;
                // A copy that could not be looked at may be whole.
                match copy.or_else(|error| damage_only(error).map(|_| None))? {
                    Some(copy) => (copy, unlike(NAME, Some(damage))),
                    None => return Err(damage),
                }
            }
        };
        manifest.other = other;
        Ok(Some(manifest))
    }

    /// The fault of the second file, for a folder in which neither is whole.
    pub(crate) fn damage_of_copy(disk: &dyn Disk, dir: &Path) -> Option<Error> {
        Self::read(disk, dir.join(COPY_NAME)).err()
    }

    /// The fault of the other of its two files.
    pub(crate) fn damage(&self) -> Option<&Error> {
        self.other.as_ref()?.damage.as_ref()
    }

    /// Makes the other of its two files anew if it does not hold the same; what was wrong with it.
    pub(crate) fn mend(&mut self, disk: &dyn Disk, dir: &Path) -> Result<Option<Error>, Error> {
        let Some(Unlike { name, damage }) = self.other.take() else { return Ok(None) };
        let file = create_new(disk, dir, name)?;
        let mut offset = 0;
        while offset < self.input.len {
            let mut bytes = vec![0; COPIED_BYTES.min(self.input.len - offset) as usize];
            if self.input.read(offset, &mut bytes)? < bytes.len() {
                return Err(self.input.damaged(offset, "it ends too early"));
            }
            write_all_at(&*file, offset, &bytes)?;
            offset += bytes.len() as u64;
        }
        file.sync_data().map_err(DiskError::of_new_file)?;
        disk.rename(&new_path(dir, name), &dir.join(name))?;
        disk.sync_dir(dir)?;
        Ok(damage)
    }

    fn read(disk: &dyn Disk, path: PathBuf) -> Result<Option<Self>, Error> {
        let of_read = |error| Error::of_read(error, &path, 0);
        let file = match disk.open(&path, Caching::Cached) {
            Err(error) if error.is_not_found() => return Ok(None),
            file => file.map_err(of_read)?,
        };
        let len = file.len().map_err(of_read)?;
        let mut input = Input { file, path, offset: 0, len };
        let (head, count) = input.head()?;
        let named = BTreeSet::new();
        let mut manifest = Self { head, named, has_cold: false, image_bytes: 0, count, input, other: None };
        manifest.check()?;
        Ok(Some(manifest))
    }

    /// All entries in key order, read anew.
    pub(crate) fn entries(&self) -> EntryReader {
        EntryReader {
            input: self.input.clone(),
            number: self.head.number,
            left: self.count,
            chunk: 1,
            chunk_at: 0,
            in_chunk: 0,
            payload: Vec::new(),
            at: 0,
            key: Vec::new(),
            before: None,
        }
    }

    /// Bytes of entries behind those that `reader` gave.
    pub(crate) fn bytes_behind(&self, reader: &EntryReader) -> u64 {
        self.input.len - reader.input.offset.min(self.input.len)
    }

    fn check(&mut self) -> Result<(), Error> {
        let mut entries = self.entries();
        while let Some(entry) = entries.next().transpose()? {
            let mut loads = entry.image;
            if let Some(below) = &entry.below {
                self.has_cold |= !below.in_memory;
                if below.in_memory {
                    loads = Some(below.parts[0].place);
                }
                self.named.extend(below.parts.iter().map(|part| part.place.segment));
                if !below.generations.iter().all(|number| self.head.generations.contains(number)) {
                    return Err(entries.damaged("an entry needs a generation that is not listed"));
                }
            }
            self.named.extend(entry.image.map(|place| place.segment));
            self.image_bytes += loads.map_or(0, |place| u64::from(place.bytes));
        }
        if entries.input.offset == entries.input.len {
            Ok(())
        } else {
            Err(entries.input.damaged(entries.input.offset, "it has another length than it says"))
        }
    }
}

/// The fault of a file; anything else is an error.
fn damage_only(error: Error) -> Result<Error, Error> {
    match error {
        Error::FileDamaged { .. } | Error::FileForeign { .. } => Ok(error),
        error => Err(error),
    }
}

/// Reads the entries of a manifest.
pub(crate) struct EntryReader {
    input: Input,
    number: u64,
    /// Entries that are still to come.
    left: u64,
    /// The next chunk.
    chunk: u64,
    chunk_at: u64,
    /// Entries of this chunk that are still to come.
    in_chunk: u32,
    payload: Vec<u8>,
    at: usize,
    key: Vec<u8>,
    before: Option<Box<[u8]>>,
}

impl EntryReader {
    fn damaged(&self, reason: &str) -> Error {
        self.input.damaged(self.chunk_at, reason)
    }

    fn read(&mut self) -> Result<Entry, Error> {
        if self.in_chunk == 0 {
            self.chunk_at = self.input.offset;
            let (count, payload) = self.input.chunk(self.number, self.chunk)?;
            self.chunk += 1;
            (self.in_chunk, self.payload, self.at) = (count, payload, 0);
            self.key.clear();
        }
        let none = "its entries are none";
        if self.in_chunk == 0 || u64::from(self.in_chunk) > self.left {
            return Err(self.damaged(none));
        }
        let payload = std::mem::take(&mut self.payload);
        let mut reader = FieldReader(&payload[self.at..]);
        let entry = read_entry(&mut reader, &mut self.key);
        self.at = payload.len() - reader.0.len();
        self.payload = payload;
        let entry = entry.ok_or_else(|| self.damaged(none))?;
        self.in_chunk -= 1;
        self.left -= 1;
        let is_next = match &self.before {
            Some(before) => **before < *entry.low,
            None => entry.low.is_empty(),
        };
        if !is_next || (self.in_chunk == 0 && self.at != self.payload.len()) {
            return Err(self.damaged(none));
        }
        self.before = Some(self.key.as_slice().into());
        Ok(entry)
    }
}

impl Iterator for EntryReader {
    type Item = Result<Entry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let entry = self.read();
        if entry.is_err() {
            self.left = 0;
        }
        Some(entry)
    }
}

/// Reads a manifest, which may be anything.
#[derive(Clone)]
struct Input {
    file: Arc<dyn DiskFile>,
    path: PathBuf,
    offset: u64,
    len: u64,
}

impl Input {
    /// Header and generations, and how many entries follow.
    fn head(&mut self) -> Result<(Head, u64), Error> {
        let header = self.take(HEADER_BYTES.min(self.len as usize))?;
        if header.get(..SIGNATURE.len()) != Some(&SIGNATURE[..]) {
            return Err(self.foreign("it has not the signature of a manifest".to_owned()));
        }
        let mut reader = FieldReader(&header[SIGNATURE.len()..]);
        match reader.u32() {
            Some(VERSION_MIN..=VERSION) => {}
            Some(version) => {
                return Err(self.foreign(format!(
                    "it has version {version}, and this program reads versions {VERSION_MIN} to {VERSION}"
                )));
            }
            None => return Err(self.damaged(0, "the header ends")),
        }
        let checksum = header.get(HEADER_BYTES - 4..).and_then(|end| FieldReader(end).u32());
        if checksum.is_none_or(|checksum| checksum != crc32c(&header[..HEADER_BYTES - 4])) {
            return Err(self.damaged(0, "the header fails its check"));
        }
        let mut fields = || -> Option<_> {
            let generations = reader.u32()?;
            let [number, start_lsn, durable_lsn, count, store] =
                [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
            let head = Head { number, store, start_lsn, durable_lsn, ..Head::default() };
            Some((head, generations, count))
        };
        let (mut head, generations, count) = fields().ok_or_else(|| self.damaged(0, "the header ends"))?;
        if generations > GENERATIONS_MAX {
            return Err(self.damaged(12, "it has too many generations"));
        }
        (head.generations, head.segments_dir) = self.generations(head.number, generations)?;
        Ok((head, count))
    }

    /// Generations, and where the segments are.
    fn generations(&mut self, number: u64, count: u32) -> Result<(Vec<u32>, Option<PathBuf>), Error> {
        let at = self.offset;
        let (found, payload) = self.chunk(number, 0)?;
        let mut reader = FieldReader(&payload);
        let generations: Option<Vec<u32>> = (0..count).map(|_| reader.u32()).collect();
        let dir = (!reader.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(reader.0)));
        match generations {
            Some(generations)
                if found == count
                    && reader.0.len() <= PATH_BYTES_MAX
                    && generations.is_sorted_by(|a, b| a < b) =>
            {
                Ok((generations, dir))
            }
            _ => Err(self.damaged(at, "its generations are none")),
        }
    }

    /// Entries of the next chunk, and the bytes that they are in.
    fn chunk(&mut self, number: u64, index: u64) -> Result<(u32, Vec<u8>), Error> {
        let at = self.offset;
        let header = self.take(CHUNK_HEADER_BYTES)?;
        let mut reader = FieldReader(&header);
        let mut field = || reader.u32().unwrap_or_default();
        let (bytes, count, stored) = (field(), field(), field());
        let payload = self.take(bytes as usize)?;
        if stored != crc32c_append(crc32c_append(seed(number, index), &header[..8]), &payload) {
            return Err(self.damaged(at, "a chunk fails its check"));
        }
        Ok((count, payload))
    }

    fn take(&mut self, bytes: usize) -> Result<Vec<u8>, Error> {
        let ends = "it ends too early";
        if bytes as u64 > self.len.saturating_sub(self.offset) {
            return Err(self.damaged(self.offset, ends));
        }
        let mut taken = vec![0; bytes];
        if self.read(self.offset, &mut taken)? < bytes {
            return Err(self.damaged(self.offset, ends));
        }
        self.offset += bytes as u64;
        Ok(taken)
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, Error> {
        read_full_at(&*self.file, offset, into).map_err(|error| Error::of_read(error, &self.path, offset))
    }

    fn damaged(&self, offset: u64, reason: &str) -> Error {
        Error::FileDamaged { path: self.path.clone(), offset, reason: reason.to_owned() }
    }

    fn foreign(&self, reason: String) -> Error {
        Error::FileForeign { path: self.path.clone(), reason }
    }
}

/// The next entry; `key` is the last key that was read, and becomes the last of this entry.
fn read_entry(reader: &mut FieldReader<'_>, key: &mut Vec<u8>) -> Option<Entry> {
    read_key(reader, key)?;
    let low: Box<[u8]> = key.as_slice().into();
    let flags = reader.u8().filter(|flags| flags & !(HAS_IMAGE | HAS_PARTS | IN_MEMORY) == 0)?;
    let image = match flags & HAS_IMAGE {
        0 => None,
        _ => Some(read_place(reader)?),
    };
    let below = match flags & HAS_PARTS {
        0 => None,
        _ => Some(read_listed(reader, key, flags & IN_MEMORY != 0)?),
    };
    let is_sound = match &below {
        Some(below) => !below.in_memory || (below.parts.len() == 1 && image.is_none()),
        None => flags & IN_MEMORY == 0,
    };
    is_sound.then_some(Entry { low, image, below })
}

fn read_listed(reader: &mut FieldReader<'_>, key: &mut Vec<u8>, in_memory: bool) -> Option<Listed> {
    let logical_bytes = reader.u64()?;
    let generations = reader.varint().filter(|count| *count <= GENERATIONS_MAX)?;
    let generations: Option<Vec<u32>> = (0..generations).map(|_| reader.u32()).collect();
    let count = reader.varint().filter(|count| *count > 0)?;
    let mut parts: Vec<Part> = Vec::new();
    for index in 0..count {
        if index > 0 {
            read_key(reader, key)?;
        }
        let (low, records) = (key.clone(), reader.u16()?);
        let place = read_place(reader).filter(|place| u32::try_from(place.segment).is_ok())?;
        if parts.last().is_some_and(|before| before.low >= low) {
            return None;
        }
        parts.push(Part { low, place, records });
    }
    Some(Listed { in_memory, logical_bytes, generations: generations?, parts })
}

/// Turns `key` into the next one.
fn read_key(reader: &mut FieldReader<'_>, key: &mut Vec<u8>) -> Option<()> {
    let shared = reader.varint().filter(|shared| *shared as usize <= key.len())?;
    key.truncate(shared as usize);
    key.extend_from_slice(reader.string()?);
    (key.len() <= KEY_BYTES_MAX).then_some(())
}
