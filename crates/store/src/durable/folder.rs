//! The folder of a store: whose it is, its locks, and its files by name.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;

use ziptier_media::disk::{DirLock, Disk, DiskError};
use ziptier_media::segments::{SegmentError, SegmentOptions, Segments};

use super::checkpoint::BACKUP_DIR;
use super::manifest::{self, Entries, Head, Manifest};
use super::restore::RESTORING;
use super::{DurableOptions, segments_dir};
use crate::Error;
use crate::image_files::ImageFiles;
use crate::places::ssd::{SsdOptions, segment_options};

/// The folder of the log within the store's.
pub(crate) const LOG_DIR: &str = "log";
/// The folder of what images are decoded with.
pub(crate) const GENERATIONS_DIR: &str = "dictionaries";
/// Files that a store's folder may hold; anything else belongs to somebody else.
const OWN_FILES: [&str; 3] = ["LOCK", "MANIFEST", RESTORING];

/// A store's folder, locked, and what its manifest says; nothing of its images was read yet.
pub(crate) struct Folder {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) locks: Vec<Box<dyn DirLock>>,
    pub(crate) manifest: Manifest,
    pub(crate) has_both_manifests: bool,
    pub(crate) files: Arc<ImageFiles>,
    /// How segments are laid out.
    pub(crate) layout: SegmentOptions,
    pub(crate) skipped: Vec<String>,
}

impl Folder {
    /// Opens a folder, which is made if it is missing. Another one's is refused and left as it is.
    pub(crate) fn open(options: &DurableOptions, ssd: Option<&SsdOptions>) -> Result<Self, Error> {
        let (disk, dir) = (options.disk(), &options.dir);
        ssd.map_or(Ok(()), SsdOptions::check)?;
        check_folder(&*disk, dir)?;
        disk.create_dir(dir)?;
        let mut locks = vec![disk.lock_dir(dir)?];
        let found = restored(&*disk, dir).and_then(|()| manifest_of(&*disk, dir))?;
        let remembered = found.as_ref().and_then(|manifest| manifest.head.segments_dir.as_ref());
        let wanted = ssd.and_then(|ssd| ssd.path.as_ref());
        let segments_dir = segments_dir::path_of(dir, remembered, wanted);
        let mut skipped = Vec::new();
        let is_new = || segments_dir::is_new(&*disk, &segments_dir, dir, found.as_ref());
        if segments_dir::remembered(dir, &segments_dir).is_some() {
            // Another store's folder stays as it is. One that is nobody's yet is claimed by whoever has its lock.
            is_new().map(drop).or_else(|error| if options.salvage { Ok(()) } else { Err(error) })?;
            disk.create_dir(&segments_dir)?;
            locks.push(disk.lock_dir(&segments_dir)?);
        }
        let is_new = match is_new() {
            // Another folder that does not say whose it is may be another store's.
            Err(error @ Error::FileDamaged { .. }) if options.salvage => {
                skipped.push(segments_dir::despite(error, &segments_dir, dir, found.as_ref())?.mended());
                true
            }
            is_new => is_new?,
        };
        let mut manifest = match found {
            Some(manifest) => manifest,
            None => new_manifest(&*disk, dir)?,
        };
        if is_new {
            segments_dir::give(&*disk, &segments_dir, manifest.head.store)?;
        }
        manifest.head.segments_dir = segments_dir::remembered(dir, &segments_dir);
        // On a full disk there is one until the next checkpoint, and nothing that the other one names may go.
        let has_both_manifests = match manifest.mend(&*disk, dir) {
            Err(error) if error.is_refusal() => false,
            mended => {
                skipped.extend(mended?.as_ref().map(Error::mended));
                true
            }
        };
        let layout = ssd.map_or(options.segments, |ssd| segment_options(ssd.limit_bytes));
        let (named, salvage) = (&manifest.named, options.salvage);
        let segments = open_segments(&disk, &segments_dir, layout, named, salvage, &mut skipped)?;
        let (named, readers) = (manifest.named.clone(), dir.join(BACKUP_DIR));
        disk.create_dir(&readers)?;
        let files = ImageFiles::of_checkpoint(segments, named, disk.clone(), readers);
        Ok(Self { disk, locks, manifest, has_both_manifests, files, layout, skipped })
    }

    /// Whether it has leaves whose records are on SSD alone.
    pub(crate) fn has_cold(&self) -> bool {
        self.manifest.has_cold
    }
}

/// Opens a folder's segments. A salvage takes them with damaged headers, because bodies need none. It notes the faults
/// of headers and writes these anew where that is possible.
fn open_segments(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    layout: SegmentOptions,
    named: &BTreeSet<u64>,
    salvage: bool,
    skipped: &mut Vec<String>,
) -> Result<Segments, Error> {
    if !salvage {
        let opened = segments_dir::open_needed(disk.clone(), dir, layout, named);
        let (segments, unopened) = opened.map_err(|error| Error::from(error).at_start())?;
        skipped.extend(unopened.iter().map(|error| format!("{error}; nothing needs it, and it stays there")));
        return Ok(segments);
    }
    let (segments, damaged) = Segments::salvage(disk.clone(), dir, layout)?;
    // The bodies in a segment of another version are sound: the program that wrote them reads them.
    if let Some((_, error)) = damaged.iter().find(|(_, error)| matches!(error, SegmentError::Foreign { .. }))
    {
        return Err(error.clone().into());
    }
    let opened = segments.numbers();
    for (number, error) in damaged {
        skipped.push(error.to_string());
        if matches!(error, SegmentError::Damaged { .. }) && opened.contains(&number) {
            skipped.extend(segments.mend(number).err().map(|error| error.to_string()));
        }
    }
    Ok(segments)
}

/// Refuses a folder in which a restore has not ended.
fn restored(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
    let names = disk.list(dir)?;
    let is_there = |name: &str| names.iter().any(|other| other == name);
    if !is_there(RESTORING) {
        return Ok(());
    }
    if !is_there(manifest::NAME) && !is_there(manifest::COPY_NAME) {
        return Err(Error::RestoreUnfinished { path: dir.to_path_buf() });
    }
    // The manifest comes last.
    disk.remove(&dir.join(RESTORING))?;
    Ok(disk.sync_dir(dir)?)
}

/// The error for a folder without a manifest, outside of a start.
pub(crate) fn no_store(disk: &dyn Disk, dir: &Path) -> Error {
    let is_unfinished = disk.list(dir).is_ok_and(|names| names.iter().any(|name| name == RESTORING));
    let path = dir.to_path_buf();
    if is_unfinished { Error::RestoreUnfinished { path } } else { Error::NoStore { path } }
}

/// The folder's manifest; a new folder has none yet.
fn manifest_of(disk: &dyn Disk, dir: &Path) -> Result<Option<Manifest>, Error> {
    let found = Manifest::load(disk, dir)?;
    if found.is_none() && has_files(disk, &dir.join(LOG_DIR))? {
        let reason = "it is missing, and there is a log".to_owned();
        return Err(Error::FileDamaged { path: dir.join(manifest::NAME), offset: 0, reason });
    }
    if found.is_some() {
        // The thread that stored it may have ended before its name was durable, and files that it does not name are
        // removed.
        disk.sync_dir(dir)?;
    }
    Ok(found)
}

fn has_files(disk: &dyn Disk, dir: &Path) -> Result<bool, Error> {
    match disk.list(dir) {
        Err(error) if error.is_not_found() => Ok(false),
        names => Ok(!names?.is_empty()),
    }
}

/// Gives a new folder its manifest.
fn new_manifest(disk: &dyn Disk, dir: &Path) -> Result<Manifest, Error> {
    let head = Head { start_lsn: 1, store: new_store(), ..Head::default() };
    head.store(&Entries::default(), disk, dir)?;
    let made = Manifest::load(disk, dir)?;
    Ok(made.expect("it was made just now"))
}

/// A number that no other store has.
pub(super) fn new_store() -> u64 {
    RandomState::new().hash_one("store")
}

/// Refuses a folder that is not a store's.
pub(crate) fn check_folder(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
    let names = match disk.list(dir) {
        Err(error) if error.is_not_found() => return Ok(()),
        names => names?,
    };
    let is_own = |name: &String| OWN_FILES.iter().any(|own| name.starts_with(own));
    match names.into_iter().find(|name| !is_own(name)) {
        Some(name) => Err(Error::ForeignFile { path: dir.join(name) }),
        None => Ok(()),
    }
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Self {
        Self::Log(error.into())
    }
}
