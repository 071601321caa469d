//! The manifest: which images make up the last checkpoint, and where the log goes on from there.
//!
//! It is written whole to another name, made durable, and renamed: there is always one, of one checkpoint. A header, then
//! chunks, each with a checksum that depends on its place and on the checkpoint, so that damage is found where it is.
//! `docs/FORMATS.md` draws it. A store of much cold data has a long one: it is put together chunk by chunk, in the bytes of the file,
//! and read in the same way.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ziptier_codec::checksum::{crc32c, crc32c_append};
use ziptier_media::disk::{Caching, Disk, DiskFile, read_full_at, write_all_at};
use ziptier_media::log::Lsn;
use ziptier_media::segments::Place;

use super::image::{read_place, write_place};
use super::reader::Reader;
use crate::Error;
use crate::cold::Part;
use crate::options::KEY_BYTES_MAX;
use crate::record::write_varint;

/// The manifest's name in a store's folder.
pub(crate) const NAME: &str = "MANIFEST";
/// A manifest that is being written.
const NEW_NAME: &str = "MANIFEST.new";

const SIGNATURE: &[u8; 8] = b"ziptrman";
/// The format that is written, and the only one that is read.
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 64;
const CHUNK_HEADER_BYTES: usize = 12;
/// A chunk ends behind the entry that makes it longer than this.
const CHUNK_BYTES: usize = 16 << 10;
const GENERATIONS_MAX: u32 = 1024;
const PATH_BYTES_MAX: usize = 4096;

const HAS_IMAGE: u8 = 1;
const HAS_PARTS: u8 = 1 << 1;
const IN_MEMORY: u8 = 1 << 2;

/// What a leaf held that owned the keys from `low` on, up to the next entry's, when a checkpoint came by. Without image and without
/// parts that is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) low: Box<[u8]>,
    /// The image of what lies above the parts, or of everything if there are none.
    pub(crate) image: Option<Place>,
    pub(crate) below: Option<Listed>,
}

/// Images of bodies that a leaf's records lie in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Listed {
    /// The one part was in memory, too.
    pub(crate) in_memory: bool,
    /// Bytes of keys and values of all parts.
    pub(crate) logical_bytes: u64,
    /// What the parts are coded with.
    pub(crate) generations: Vec<u32>,
    /// At least one; the first begins with the entry's key.
    pub(crate) parts: Vec<Part>,
}

/// What is known of a checkpoint besides its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Its number, one more than that of the checkpoint before.
    pub(crate) number: u64,
    /// The store's, drawn when its folder was made; its folder of segments has it, too.
    pub(crate) store: u64,
    /// The first record of the log that may not be in the images.
    pub(crate) start_lsn: Lsn,
    /// The newest record of the log that may be in the images: the log was durable up to here.
    pub(crate) durable_lsn: Lsn,
    /// Generations that the images need.
    pub(crate) generations: Vec<u32>,
    /// Where the segments are, if not within the store's folder.
    pub(crate) segments_dir: Option<PathBuf>,
}

/// The entries of a manifest that is being made, as the chunks of its file.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    chunks: Vec<Chunk>,
    count: u64,
}

#[derive(Debug)]
struct Chunk {
    /// Key of the first entry.
    low: Box<[u8]>,
    /// The last key in it.
    last: Vec<u8>,
    count: u32,
    payload: Vec<u8>,
}

impl Entries {
    /// Adds an entry, whose key is above those of all before.
    pub(crate) fn push(&mut self, entry: &Entry) {
        if self.chunks.last().is_none_or(|chunk| chunk.payload.len() > CHUNK_BYTES) {
            if let Some(full) = self.chunks.last_mut() {
                full.payload.shrink_to_fit();
                full.last = Vec::new();
            }
            let low = entry.low.clone();
            self.chunks.push(Chunk { low, last: Vec::new(), count: 0, payload: Vec::new() });
        }
        let chunk = self.chunks.last_mut().expect("one was added");
        write_entry(entry, chunk);
        chunk.count += 1;
        self.count += 1;
    }

    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// Takes back the entries of the chunk of `key` and all behind; the key of the first of them.
    pub(crate) fn back_to(&mut self, key: &[u8]) -> Vec<u8> {
        let mut low = Box::default();
        while let Some(chunk) = self.chunks.pop() {
            self.count -= u64::from(chunk.count);
            low = chunk.low;
            if *low <= *key {
                break;
            }
        }
        low.into()
    }
}

impl Head {
    /// Writes a manifest durably under another name; the bytes that were written. The folder's manifest is as it was.
    pub(crate) fn prepare(&self, entries: &Entries, disk: &dyn Disk, dir: &Path) -> Result<u64, Error> {
        let new = dir.join(NEW_NAME);
        match disk.remove(&new) {
            Err(error) if !error.is_not_found() => return Err(error.into()),
            _ => {}
        }
        let file = disk.create(&new, Caching::Cached)?;
        let written = self.write(entries, &*file)?;
        file.sync_data()?;
        Ok(written)
    }

    /// Makes what was prepared the folder's manifest, durably. After an error the one before or this one is in force.
    pub(crate) fn commit(&self, disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
        disk.rename(&dir.join(NEW_NAME), &dir.join(NAME))?;
        Ok(disk.sync_dir(dir)?)
    }

    /// Makes this the folder's manifest.
    pub(crate) fn store(&self, entries: &Entries, disk: &dyn Disk, dir: &Path) -> Result<u64, Error> {
        let written = self.prepare(entries, disk, dir)?;
        self.commit(disk, dir)?;
        Ok(written)
    }

    fn write(&self, entries: &Entries, file: &dyn DiskFile) -> Result<u64, Error> {
        let mut out =
            Output { file, number: self.number, written: 0, chunks: 0, buffer: self.header(entries.count) };
        let mut payload = Vec::new();
        for generation in &self.generations {
            payload.extend_from_slice(&generation.to_le_bytes());
        }
        if let Some(dir) = &self.segments_dir {
            payload.extend_from_slice(dir.as_os_str().as_bytes());
        }
        out.chunk(&payload, self.generations.len() as u32)?;
        entries.chunks.iter().try_for_each(|chunk| out.chunk(&chunk.payload, chunk.count))?;
        out.flush()?;
        Ok(out.written)
    }

    fn header(&self, entries: u64) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&(self.generations.len() as u32).to_le_bytes());
        for field in [self.number, self.start_lsn, self.durable_lsn, entries, self.store] {
            header.extend_from_slice(&field.to_le_bytes());
        }
        header.resize(HEADER_BYTES - 4, 0);
        header.extend_from_slice(&crc32c(&header).to_le_bytes());
        header
    }
}

fn write_entry(entry: &Entry, chunk: &mut Chunk) {
    write_key(&entry.low, chunk);
    let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
    let in_memory = entry.below.as_ref().is_some_and(|below| below.in_memory);
    chunk.payload.push(
        flag(entry.image.is_some(), HAS_IMAGE)
            | flag(entry.below.is_some(), HAS_PARTS)
            | flag(in_memory, IN_MEMORY),
    );
    if let Some(place) = entry.image {
        write_place(place, &mut chunk.payload);
    }
    let Some(below) = &entry.below else { return };
    chunk.payload.extend_from_slice(&below.logical_bytes.to_le_bytes());
    write_varint(below.generations.len() as u32, &mut chunk.payload);
    for generation in &below.generations {
        chunk.payload.extend_from_slice(&generation.to_le_bytes());
    }
    write_varint(below.parts.len() as u32, &mut chunk.payload);
    for (index, part) in below.parts.iter().enumerate() {
        if index > 0 {
            write_key(&part.low, chunk);
        }
        chunk.payload.extend_from_slice(&part.records.to_le_bytes());
        write_place(part.place, &mut chunk.payload);
    }
}

/// Writes what a key does not share with the one before in the chunk.
fn write_key(key: &[u8], chunk: &mut Chunk) {
    let shared = chunk.last.iter().zip(key).take_while(|(a, b)| a == b).count();
    write_varint(shared as u32, &mut chunk.payload);
    write_varint((key.len() - shared) as u32, &mut chunk.payload);
    chunk.payload.extend_from_slice(&key[shared..]);
    chunk.last.truncate(shared);
    chunk.last.extend_from_slice(&key[shared..]);
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
    fn chunk(&mut self, payload: &[u8], count: u32) -> Result<(), Error> {
        let mut head = [0; 8];
        head[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&count.to_le_bytes());
        let checksum = crc32c_append(crc32c_append(seed(self.number, self.chunks), &head), payload);
        self.chunks += 1;
        self.buffer.extend_from_slice(&head);
        self.buffer.extend_from_slice(&checksum.to_le_bytes());
        self.buffer.extend_from_slice(payload);
        if self.buffer.len() < 1 << 20 { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), Error> {
        write_all_at(self.file, self.written, &self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

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
}

impl Manifest {
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
        let mut input = Input { file, path, offset: 0, len };
        let (head, count) = input.head()?;
        let mut manifest =
            Self { head, named: BTreeSet::new(), has_cold: false, image_bytes: 0, count, input };
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
        let mut reader = Reader(&payload[self.at..]);
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
        let mut reader = Reader(&payload);
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
        let mut reader = Reader(&header);
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
        let count = read_full_at(&*self.file, self.offset, &mut taken)?;
        if count < bytes {
            return Err(self.damaged(self.offset, ends));
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

/// The next entry; `key` is the last key that was read, and becomes the last of this entry.
fn read_entry(reader: &mut Reader<'_>, key: &mut Vec<u8>) -> Option<Entry> {
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

fn read_listed(reader: &mut Reader<'_>, key: &mut Vec<u8>, in_memory: bool) -> Option<Listed> {
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
fn read_key(reader: &mut Reader<'_>, key: &mut Vec<u8>) -> Option<()> {
    let shared = reader.varint().filter(|shared| *shared as usize <= key.len())?;
    key.truncate(shared as usize);
    key.extend_from_slice(reader.string()?);
    (key.len() <= KEY_BYTES_MAX).then_some(())
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use super::*;
    use ziptier_media::testing::RecordingDisk;

    const DIR: &str = "/d";

    fn entry(n: usize) -> Entry {
        let key = |n: usize| format!("key:{n:09}").into_bytes();
        let place = |n: usize| Place { segment: 3 + n as u64 / 100, offset: n as u32 * 8, bytes: 8000 };
        let part = |n: usize| Part { low: key(n), place: place(n), records: n as u16 };
        let low: Box<[u8]> = if n == 0 { Box::default() } else { key(10 * n).into() };
        let first = Part { low: low.to_vec(), ..part(10 * n) };
        let below = match n % 5 {
            0 | 1 => None,
            2 => {
                Some(Listed { in_memory: true, logical_bytes: 77, generations: vec![2], parts: vec![first] })
            }
            _ => Some(Listed {
                in_memory: false,
                logical_bytes: n as u64,
                generations: vec![1, 7],
                parts: [first].into_iter().chain((1..n % 7).map(|at| part(10 * n + at))).collect(),
            }),
        };
        Entry { low, image: matches!(n % 5, 0 | 3).then(|| place(n)), below }
    }

    fn head() -> Head {
        Head {
            number: 9,
            store: 0x1234_5678_9abc_def0,
            start_lsn: 1000,
            durable_lsn: 1005,
            generations: vec![1, 2, 7],
            segments_dir: Some("/mnt/ssd/\u{e9}".into()),
        }
    }

    fn stored(entries: usize) -> (RecordingDisk, Vec<u8>) {
        let disk = RecordingDisk::new();
        let mut made = Entries::default();
        (0..entries).for_each(|n| made.push(&entry(n)));
        let written = head().store(&made, &disk, Path::new(DIR)).unwrap();
        let bytes = disk.contents(&Path::new(DIR).join(NAME)).unwrap();
        assert_eq!(bytes.len() as u64, written);
        (disk, bytes)
    }

    #[test]
    fn a_manifest_comes_back() {
        for entries in [0, 1, 2, 10_000] {
            let (disk, _) = stored(entries);
            let manifest = Manifest::load(&disk, Path::new(DIR)).unwrap().unwrap();
            assert_eq!(manifest.head, head());
            let found: Result<Vec<Entry>, Error> = manifest.entries().collect();
            assert!(found.unwrap() == (0..entries).map(entry).collect::<Vec<_>>());
            assert_eq!(manifest.has_cold, entries > 3);
            assert_eq!(manifest.named.is_empty(), entries == 0);
        }
        assert!(Manifest::load(&RecordingDisk::new(), Path::new(DIR)).unwrap().is_none());
    }

    #[test]
    fn entries_are_taken_back_by_chunks() {
        let mut entries = Entries::default();
        let mut lows: Vec<Vec<u8>> = Vec::new();
        let mut add = |entries: &mut Entries, from: usize| {
            lows.truncate(from);
            (from..8000).for_each(|n| {
                entries.push(&entry(n));
                lows.push(entry(n).low.into());
            });
            lows.clone()
        };
        let mut lows = add(&mut entries, 0);
        for key in [lows[7999].clone(), b"key:000040005".to_vec(), lows[1].clone(), Vec::new()] {
            let low = entries.back_to(&key);
            assert!(low <= key, "{low:?}");
            let at = lows.iter().position(|known| *known == low).unwrap();
            assert_eq!(entries.len(), at as u64);
            lows = add(&mut entries, at);
        }
        let disk = RecordingDisk::new();
        head().store(&entries, &disk, Path::new(DIR)).unwrap();
        let manifest = Manifest::load(&disk, Path::new(DIR)).unwrap().unwrap();
        assert!(manifest.entries().map(Result::unwrap).eq((0..8000).map(entry)));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let (disk, bytes) = stored(1000);
        let path = Path::new(DIR).join(NAME);
        let step = if cfg!(miri) { 9001 } else { 37 };
        for bit in (0..8 * bytes.len()).step_by(step) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            disk.put(&path, damaged);
            let error = Manifest::load(&disk, Path::new(DIR)).err().unwrap();
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
        let (disk, mut bytes) = stored(3);
        bytes[8] = 1;
        disk.put(&Path::new(DIR).join(NAME), bytes);
        let error = Manifest::load(&disk, Path::new(DIR)).err().unwrap().to_string();
        assert!(error.contains("version 1") && error.contains("version 2"), "{error}");
    }
}
