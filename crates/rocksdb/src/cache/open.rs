//! Opens a cache: takes the folder, finds its segments, and brings the index back.

use super::format::{self, Header, HeaderFault};
use super::ghost::Ghosts;
use super::index::{Index, Place};
use super::packing::Packer;
use super::settings::{Admission, CacheError, Settings};
use super::slots::{Filled, Folder, Slot, read_header};
use super::tail::{CHUNK_BYTES, Tail};
use super::writer::Writer;
use super::{Cache, Counters, Shared, claim, hash_of, snapshot};
use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use ziptier_media::aligned::AlignedBytes;
use ziptier_media::disk::{Caching, Disk, DiskError, DiskFile, RealDisk};

/// The shared caches of this process, by their folder. An entry without a cache is one that is being opened or closed.
static OPEN: Mutex<Vec<(PathBuf, Weak<Cache>)>> = Mutex::new(Vec::new());

/// A cache has been opened, or has left [`OPEN`].
static CHANGED: Condvar = Condvar::new();

fn table() -> MutexGuard<'static, Vec<(PathBuf, Weak<Cache>)>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A cache's entry in [`OPEN`]; dropped when the cache has given up its folder.
pub(super) struct Shares(PathBuf);

impl Drop for Shares {
    fn drop(&mut self) {
        table().retain(|(path, _)| *path != self.0);
        CHANGED.notify_all();
    }
}

/// Counters of all caches that this process has [open and shared](Cache::open_shared), summed; `None` if there is none.
pub fn counters_of_all() -> Option<Counters> {
    // The last reference to a cache may be dropped below, without the lock.
    let caches: Vec<Arc<Cache>> = table().iter().filter_map(|(_, cache)| cache.upgrade()).collect();
    let sum = Counters::default();
    caches.iter().for_each(|cache| sum.add_all(cache.counters()));
    (!caches.is_empty()).then_some(sum)
}

/// A segment file that was found.
struct Found {
    file: Arc<dyn DiskFile>,
    header: Header,
    file_bytes: usize,
}

impl Cache {
    /// The cache of a folder, which all databases of the process share. Waits for one that is being opened or closed.
    pub fn open_shared(settings: &Settings) -> Result<Arc<Cache>, CacheError> {
        Cache::open_shared_on(Arc::new(RealDisk), settings)
    }

    /// [`Cache::open_shared`] on another disk.
    pub(super) fn open_shared_on(disk: Arc<dyn Disk>, settings: &Settings) -> Result<Arc<Cache>, CacheError> {
        settings.check()?;
        make_dir(&*disk, &settings.path)?;
        let path = settings.path.canonicalize().unwrap_or_else(|_| settings.path.clone());
        // Another database may name the folder by a link, or from another folder.
        let settings = &Settings { path: path.clone(), ..settings.clone() };
        let mut caches = table();
        while let Some((_, cache)) = caches.iter().find(|(other, _)| *other == path) {
            let Some(cache) = cache.upgrade() else {
                caches = CHANGED.wait(caches).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            // The guard is dropped first: if this was the last reference, closing the cache locks the table.
            drop(caches);
            let is_same = cache.settings == *settings;
            return if is_same { Ok(cache) } else { Err(CacheError::OtherOptions { path }) };
        }
        // To open a cache may take as long as to read all of its segments: others do not wait for the table.
        caches.push((path.clone(), Weak::new()));
        drop(caches);
        let shares = Shares(path.clone());
        let mut cache = Cache::open_on(disk, settings)?;
        cache.shares = Some(shares);
        let cache = Arc::new(cache);
        table()
            .iter_mut()
            .filter(|(other, _)| *other == path)
            .for_each(|entry| entry.1 = Arc::downgrade(&cache));
        CHANGED.notify_all();
        Ok(cache)
    }

    /// Opens the cache of a folder, and makes a missing folder. No other process may have the cache open.
    ///
    /// Without an index from a clean stop all segments are read.
    pub fn open(settings: &Settings) -> Result<Cache, CacheError> {
        Cache::open_on(Arc::new(RealDisk), settings)
    }

    /// [`Cache::open`] on another disk.
    pub fn open_on(disk: Arc<dyn Disk>, settings: &Settings) -> Result<Cache, CacheError> {
        settings.check()?;
        let dir = settings.path.clone();
        make_dir(&*disk, &dir)?;
        let lock = claim::take(&*disk, &dir)?;
        let caching = if settings.direct { Caching::Direct } else { Caching::Mapped };
        let counters = Counters::default();
        let (segment_bytes, found) = find_segments(&*disk, &dir, caching, settings, &counters)?;

        let slots: Vec<Slot> = (0..settings.slots(segment_bytes)).map(|_| Slot::default()).collect();
        let sequence = found.last().map_or(0, |found| found.header.sequence);
        let order: VecDeque<u32> = found.iter().map(|found| found.header.slot).collect();
        for Found { file, header, file_bytes } in found {
            slots[header.slot as usize].adopt(file, &header, file_bytes);
        }
        let segment_bytes = segment_bytes as usize;
        let shared = Arc::new(Shared {
            folder: Folder { disk, dir, caching, segment_bytes },
            slots,
            index: Index::new(),
            tail: Mutex::new(Tail::new(segment_bytes, settings.buffer_bytes.max(4 * CHUNK_BYTES))),
            wake: Condvar::new(),
            idle: Condvar::new(),
            counters,
            admits_all: settings.admission == Admission::All,
            ghosts: Ghosts::new(settings.capacity_bytes),
            packer: Packer::new(settings.codec)?,
        });
        shared.restore(&order, settings.index_bytes_max());
        shared.resume(&order);
        let mut writer = Writer::new(shared.clone(), order, sequence);
        writer.prepare();
        let thread = std::thread::Builder::new()
            .name("block cache".into())
            .spawn(move || writer.run())
            .map_err(|error| CacheError::Thread(error.to_string()))?;
        let (settings, process) = (settings.clone(), std::process::id());
        Ok(Cache { shared, settings, process, writer: Some(thread), _lock: lock, shares: None })
    }

    /// Called when no thread writes any more.
    pub(super) fn write_index(&self) {
        let Shared { folder, slots, index, .. } = &*self.shared;
        let filled = slots.iter().enumerate().map(|(at, slot)| slot.filled(at as u32));
        let mut segments: Vec<Filled> = filled.filter(|segment| segment.written > 0).collect();
        segments.sort_by_key(|segment| segment.sequence);
        let bytes_max = self.settings.index_bytes_max();
        // Without the file, the next start reads the segments.
        let _ = snapshot::write(&*folder.disk, &folder.dir, &segments, index, bytes_max);
    }
}

impl Shared {
    /// Brings the index back, from its file or else from the segments.
    fn restore(&self, order: &VecDeque<u32>, index_bytes_max: u64) {
        let segments: Vec<Filled> =
            order.iter().map(|&slot| self.slots[slot as usize].filled(slot)).collect();
        let Folder { disk, dir, segment_bytes, .. } = &self.folder;
        if let Some(written) = snapshot::take(&**disk, dir, &segments, &self.index, index_bytes_max) {
            for (segment, written) in segments.iter().zip(written) {
                self.slots[segment.slot as usize].set_written(written);
            }
            self.counters.restored_from_index.set(1);
        } else if !segments.is_empty()
            && let Some(mut pages) = AlignedBytes::try_zeroed(*segment_bytes)
        {
            // Without memory to read them, no entry of the segments is found.
            segments.iter().for_each(|segment| self.scan(segment, &mut pages));
        }
        self.counters.restored.set(self.index.len());
    }

    /// Continues the newest segment that holds entries. A segment that was begun as its successor is ready.
    fn resume(&self, order: &VecDeque<u32>) {
        let is_empty = |slot: u32| self.slots[slot as usize].filled(slot).written <= format::PAGE_BYTES;
        let mut newest = order.iter().rev().copied();
        let mut tail = self.tail();
        let mut open = newest.next();
        if let Some(slot) = open.filter(|&slot| is_empty(slot)) {
            tail.ready = Some(slot);
            open = newest.next();
        }
        if let Some(slot) = open {
            tail.resume(slot, self.slots[slot as usize].filled(slot).written);
        }
    }

    /// Enters every whole entry of a segment. The written part ends behind the last one.
    fn scan(&self, segment: &Filled, pages: &mut AlignedBytes) {
        let slot = &self.slots[segment.slot as usize];
        let start = format::PAGE_BYTES;
        let bytes = slot.read(start, segment.written.saturating_sub(start), pages).unwrap_or_default();
        let end = format::walk(bytes, segment.salt, start, |entry, offset, length| {
            self.index.put(hash_of(entry.key), Place::new(segment.slot, offset, length));
        });
        slot.set_written(end.next_multiple_of(format::PAGE_BYTES));
    }
}

/// Makes the folder, for this user alone if it is new.
fn make_dir(disk: &dyn Disk, dir: &Path) -> Result<(), DiskError> {
    let is_new = !dir.exists();
    disk.create_dir(dir)?;
    if is_new {
        restrict(dir, 0o700);
    }
    Ok(())
}

/// Takes all rights from other users, because blocks lie here in plain text, even if the database's files are
/// encrypted. A file system without rights is no reason to refuse the cache.
pub(super) fn restrict(path: &Path, mode: u32) {
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
}

/// The segments of a folder, the oldest first, and how long they are. Removes unusable files.
fn find_segments(
    disk: &dyn Disk,
    dir: &Path,
    caching: Caching,
    settings: &Settings,
    counters: &Counters,
) -> Result<(u64, Vec<Found>), CacheError> {
    let (mut found, mut useless) = (Vec::<Found>::new(), Vec::new());
    for name in disk.list(dir)? {
        let Some(slot) = format::slot_of(&name) else { continue };
        let path = dir.join(name);
        let (file, page) = read_header(disk, &path, caching)?;
        match Header::decode(&page) {
            Ok(header) if header.slot == slot => {
                let file_bytes = file.len()?.min(header.segment_bytes) as usize;
                found.push(Found { file, header, file_bytes });
            }
            Err(HeaderFault::Version(version)) => {
                return Err(CacheError::Version { path, found: version });
            }
            Ok(_) | Err(HeaderFault::Damaged) => {
                counters.damaged_segments.one();
                useless.push(path);
            }
        }
    }
    found.sort_by_key(|found| found.header.sequence);
    let newest = found.last().map(|found| found.header.segment_bytes);
    let segment_bytes =
        newest.filter(|&bytes| settings.takes_segments_of(bytes)).unwrap_or(settings.segment_bytes());
    let fits = |found: &Found| {
        found.header.segment_bytes == segment_bytes
            && u64::from(found.header.slot) < settings.slots(segment_bytes)
            && found.file_bytes as u64 == segment_bytes
    };
    useless.extend(found.iter().filter(|found| !fits(found)).map(|found| found.file.path().to_path_buf()));
    found.retain(fits);
    useless
        .iter()
        .try_for_each(|path| disk.remove(path))
        .map_err(|error: DiskError| CacheError::Disk(error))?;
    Ok((segment_bytes, found))
}
