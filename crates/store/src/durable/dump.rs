//! A folder as one stream: the last checkpoint and the log behind it, also of a store that is open and written to.
//!
//! 1. The dump holds the lock of the folder `backup`. The checkpointer of an open store removes nothing meanwhile, so
//!    everything that the manifest names stays where it is. The log only grows.
//! 2. A store may be opened meanwhile, and removes nothing either.
//! 3. The end of the log is read as after a crash: it is the last record that is whole.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use ziptier_media::disk::{DirLock, Disk, DiskError};
use ziptier_media::log::{Log, LogOptions, Lsn};
use ziptier_media::segments::Segments;
use ziptier_tree::codec_options::CodecOptions;
use ziptier_tree::extent::Extent;

use super::checkpoint::BACKUP_DIR;
use super::folder::{GENERATIONS_DIR, LOG_DIR, no_store};
use super::generation::GenerationFiles;
use super::manifest::{Entry, Head, Manifest};
use super::stream::{Kind, Output};
use super::{DurableOptions, segments_dir};
use crate::Error;
use crate::image_files::place_of;
use crate::leaf_image::{LeafImage, StoredLarge};

/// Bytes that are written while they are read may look damaged for a moment.
const LOG_ROUNDS: u32 = 100;
const LOG_PAUSE: Duration = Duration::from_millis(20);
/// How often the lock is tried: for ten seconds, after which somebody else is dumping.
const LOCK_ROUNDS: u32 = 5000;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// The contents of a dump, or of a restored one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpSummary {
    /// Leaves of the checkpoint.
    pub leaves: u64,
    /// Records of the log behind it.
    pub log_records: u64,
    /// The newest of them: every write up to it is there, and none after.
    pub last_lsn: Lsn,
    /// Bytes of the stream.
    pub bytes: u64,
}

/// Writes what the folder of a store holds to a stream, from which [`restore`](crate::restore) makes a folder. The
/// store may be open, in another process or in this one.
///
/// # Errors
/// Damage, a folder that is not a store's or from which somebody else is dumping, or the stream's.
pub fn dump(options: &DurableOptions, to: &mut dyn Write) -> Result<DumpSummary, Error> {
    let (disk, dir) = (options.disk(), &options.dir);
    if Manifest::load(&*disk, dir)?.is_none() {
        return Err(no_store(&*disk, dir));
    }
    // Another user's folder is refused before anything is made there. The lock is not kept: a store may be opened while
    // the dump is made, and removes nothing either.
    drop(lock_if_closed(&*disk, dir)?);
    disk.create_dir(&dir.join(BACKUP_DIR))?;
    let _nothing_is_removed = lock_backup(&*disk, &dir.join(BACKUP_DIR))?;
    // Only this one's needs are safe.
    let manifest = Manifest::load(&*disk, dir)?.ok_or_else(|| no_store(&*disk, dir))?;
    let mut dump = Dump { options, pieces: 0, output: Output::begin(to)?, summary: DumpSummary::default() };
    dump.output.frame(
        Kind::Start,
        &[&manifest.head.start_lsn.to_le_bytes(), &manifest.head.durable_lsn.to_le_bytes()],
    )?;
    let mut generations = GenerationFiles::open(disk.clone(), &dir.join(GENERATIONS_DIR))?;
    for number in &manifest.head.generations {
        let found = generations.read(*number, &CodecOptions::default(), None)?;
        dump.output.frame(Kind::Generation, &[&found.bytes])?;
    }
    let remembered = manifest.head.segments_dir.as_ref();
    let segments_dir = segments_dir::path_of(dir, remembered, options.segments_dir.as_ref());
    if !manifest.named.is_empty() {
        segments_dir::verify(&*disk, &segments_dir, dir, manifest.head.store)?;
        let (segments, _unopened) =
            segments_dir::open_needed(disk.clone(), &segments_dir, options.segments, &manifest.named)?;
        for entry in manifest.entries() {
            dump.leaf(&segments, &entry?)?;
        }
    }
    dump.log(&manifest.head)?;
    let bytes = dump.output.end()?;
    Ok(DumpSummary { bytes, ..dump.summary })
}

/// The lock of a store's folder; `None` while the store is open.
fn lock_if_closed(disk: &dyn Disk, dir: &Path) -> Result<Option<Box<dyn DirLock>>, DiskError> {
    match disk.lock_dir(dir) {
        Err(DiskError::Locked { .. }) => Ok(None),
        lock => lock.map(Some),
    }
}

/// A checkpoint that removes something holds the lock for a moment.
fn lock_backup(disk: &dyn Disk, dir: &Path) -> Result<Box<dyn DirLock>, Error> {
    let mut round = 0;
    loop {
        match disk.lock_dir(dir) {
            Err(DiskError::Locked { .. }) if round < LOCK_ROUNDS => std::thread::sleep(LOCK_PAUSE),
            lock => return Ok(lock?),
        }
        round += 1;
    }
}

struct Dump<'a> {
    options: &'a DurableOptions,
    pieces: u64,
    output: Output<'a>,
    summary: DumpSummary,
}

impl Dump<'_> {
    fn leaf(&mut self, segments: &Segments, entry: &Entry) -> Result<(), Error> {
        for part in entry.below.iter().flat_map(|below| &below.parts) {
            let low_len = (part.low.len() as u32).to_le_bytes();
            self.output.frame(
                Kind::Part,
                &[&low_len, &part.low, &part.records.to_le_bytes(), &segments.read(place_of(part.place))?],
            )?;
        }
        let image = entry.image.map(|place| self.image(segments, place)).transpose()?.unwrap_or_default();
        let low_len = (entry.low.len() as u32).to_le_bytes();
        let in_memory = u8::from(entry.below.as_ref().is_some_and(|below| below.in_memory));
        let logical_bytes = entry.below.as_ref().map_or(0, |below| below.logical_bytes).to_le_bytes();
        self.summary.leaves += 1;
        self.output.frame(Kind::Leaf, &[&low_len, &entry.low, &[in_memory], &logical_bytes, &image])
    }

    /// The image at a place; the pieces of its large values come before it.
    fn image(&mut self, segments: &Segments, place: Extent) -> Result<Vec<u8>, Error> {
        let bytes = segments.read(place_of(place))?;
        let mut image = LeafImage::read(&bytes).map_err(|fault| {
            Error::of_bytes(fault, segments.path_of(place.segment), u64::from(place.offset))
        })?;
        for large in &mut image.larges {
            let mut numbered = Vec::with_capacity(large.pieces.len());
            for place in large.pieces.iter() {
                self.output.frame(Kind::Piece, &[&segments.read(place_of(*place))?])?;
                numbered.push(Extent { segment: self.pieces, offset: 0, bytes: place.bytes });
                self.pieces += 1;
            }
            *large = StoredLarge { pieces: numbered.into(), ..large.clone() };
        }
        let mut written = Vec::new();
        image.write(&mut written);
        Ok(written)
    }

    /// The log from the checkpoint on; of an open store up to wherever it is by then.
    fn log(&mut self, head: &Head) -> Result<(), Error> {
        self.summary.last_lsn = head.start_lsn.saturating_sub(1);
        let (mut round, mut closed) = (0, None);
        loop {
            let failure = match self.read_log(head.durable_lsn) {
                Err(error) if !matches!(error, Error::Stream { .. }) => error,
                done => return done,
            };
            round += 1;
            if closed.is_some() || round > LOG_ROUNDS {
                return Err(failure);
            }
            // Nobody writes to the log of a closed store, so it is read once more at once.
            closed = lock_if_closed(&*self.options.disk(), &self.options.dir)?;
            if closed.is_none() {
                std::thread::sleep(LOG_PAUSE);
            }
        }
    }

    /// The bytes behind the last record that was read. The log was durable up to `durable_lsn`.
    fn read_log(&mut self, durable_lsn: Lsn) -> Result<(), Error> {
        let path = self.options.dir.join(LOG_DIR);
        let mut replay = Log::open(self.options.disk(), &path, LogOptions::default())?;
        replay.expect_durable(durable_lsn);
        replay.start_at(self.summary.last_lsn + 1)?;
        while let Some(record) = replay.next_record()? {
            self.output.frame(Kind::Record, &[&record.lsn.to_le_bytes(), record.payload])?;
            self.summary.last_lsn = record.lsn;
            self.summary.log_records += 1;
        }
        Ok(())
    }
}
