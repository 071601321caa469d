//! Manifests as they are written.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ziptier_codec::checksum::{crc32c, crc32c_append};
use ziptier_media::disk::{Caching, Disk, DiskError, DiskFile, write_all_at};
use ziptier_tree::numbers::write_varint;

use super::{
    COPY_NAME, Entry, HAS_IMAGE, HAS_PARTS, HEADER_BYTES, Head, IN_MEMORY, NAME, NEW_SUFFIX, SIGNATURE,
    VERSION, seed,
};
use crate::Error;
use crate::leaf_image::write_place;

/// A chunk ends behind the entry that makes it longer than this.
const CHUNK_BYTES: usize = 16 << 10;

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
    /// Writes a manifest and its copy durably under other names; the bytes that were written. The folder's manifest is
    /// as it was.
    pub(crate) fn prepare(&self, entries: &Entries, disk: &dyn Disk, dir: &Path) -> Result<u64, Error> {
        let mut written = 0;
        for name in [NAME, COPY_NAME] {
            let file = create_new(disk, dir, name)?;
            written += self.write(entries, &*file)?;
            file.sync_data()?;
        }
        Ok(written)
    }

    /// Makes what was prepared the folder's manifest, durably. After an error, or a crash on the way, the manifest
    /// before or this one is in force. Everything that either needs must still be there.
    pub(crate) fn commit(&self, disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
        for name in [COPY_NAME, NAME] {
            disk.rename(&new_path(dir, name), &dir.join(name))?;
        }
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

/// The path at which a file of this name is written first.
pub(super) fn new_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}{NEW_SUFFIX}"))
}

/// Begins a file that will have this name; one that was begun earlier is gone.
pub(super) fn create_new(disk: &dyn Disk, dir: &Path, name: &str) -> Result<Arc<dyn DiskFile>, DiskError> {
    let path = new_path(dir, name);
    match disk.remove(&path) {
        Err(error) if !error.is_not_found() => return Err(error),
        _ => {}
    }
    disk.create(&path, Caching::Cached)
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
