//! From a folder to a store that is ready: what the last checkpoint holds, then the log behind it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_epoch::pin;
use ziptier_media::disk::{Disk, DiskError};
use ziptier_media::log::{Log, LogOptions};
use ziptier_media::segments::{SegmentError, Segments};

use super::checkpoint::{Checkpointer, InForce, remove_dead};
use super::generation::GenerationFiles;
use super::journal::Journal;
use super::loading::{Loaded, Loading};
use super::manifest::{self, Manifest};
use super::operation::Operation;
use super::replay::replay;
use super::{DurableOptions, Recovered, Recovery};
use crate::Error;
use crate::core::Core;
use crate::options::Options;
use crate::record::{Kind, PutMeta};

/// The folder of the log within the store's.
pub(crate) const LOG_DIR: &str = "log";
/// The folder of images.
pub(crate) const SEGMENTS_DIR: &str = "segments";
/// The folder of what images are decoded with.
pub(crate) const GENERATIONS_DIR: &str = "dictionaries";
/// Files that a store's folder may hold; anything else belongs to somebody else.
const OWN_FILES: [&str; 2] = ["LOCK", "MANIFEST"];
/// Bytes of images between two calls for progress.
const BYTES_PER_REPORT: u64 = 4 << 20;
/// Keys of a range that are deleted at a time.
const KEYS_PER_STEP: usize = 256;

/// Fills an empty store from its folder, and opens the log that its writes go to. Lifts the memory limit for that, unless the store
/// evicts.
pub(crate) fn recover(
    core: &Core,
    store_options: &Options,
    options: &DurableOptions,
    progress: &mut dyn FnMut(Recovery),
) -> Result<Recovered, Error> {
    if core.eviction.is_none() {
        core.gauges.set_limit(None);
    }
    let disk = options.disk();
    check_folder(&*disk, &options.dir)?;
    disk.create_dir(&options.dir)?;
    let lock = disk.lock_dir(&options.dir)?;
    let (manifest, in_force, loaded) = load(core, store_options, options, &disk, progress)?;
    core.loading.store(false, Ordering::Release);
    let start_lsn = manifest.start_lsn;

    let log_options = LogOptions { salvage: options.salvage, first_lsn: start_lsn, ..options.log };
    let mut log = Log::open(disk.clone(), &options.dir.join(LOG_DIR), log_options)?;
    log.start_at(start_lsn)?;
    let limit_bytes = store_options.memory_limit_bytes;
    let mut recovered = replay(core, &mut log, options.salvage, limit_bytes, progress)?;
    let log = log.into_log()?;
    check_end(&log, &manifest, options, &mut recovered)?;
    recovered.images = loaded.images;
    recovered.image_bytes = loaded.bytes;
    recovered.skipped.splice(..0, loaded.skipped);
    let log_bytes = recovered.log_bytes;
    let checkpointer =
        Checkpointer::new(disk, &options.dir, options.checkpoint_log_bytes, in_force, log_bytes)?;
    let journal = Journal::start(log, options.durability, options.waits, lock)?;
    core.recovering.store(false, Ordering::Relaxed);
    let is_first = core.journal.set(journal).is_ok();
    assert!(is_first && core.checkpointer.set(checkpointer).is_ok(), "a store recovers once");
    Ok(recovered)
}

/// Fills the store with what the last checkpoint holds.
fn load(
    core: &Core,
    store_options: &Options,
    options: &DurableOptions,
    disk: &Arc<dyn Disk>,
    progress: &mut dyn FnMut(Recovery),
) -> Result<(Manifest, InForce, Loaded), Error> {
    let dir = &options.dir;
    let manifest = manifest_of(&**disk, options)?;
    let segments_dir = dir.join(SEGMENTS_DIR);
    let (segments, damaged) = if options.salvage {
        Segments::salvage(disk.clone(), &segments_dir, options.segments)?
    } else {
        (Segments::open(disk.clone(), &segments_dir, options.segments)?, Vec::new())
    };
    let mut generations = GenerationFiles::open(disk.clone(), &dir.join(GENERATIONS_DIR))?;
    let first = core.dictionaries.current();
    let mut codings = BTreeMap::new();
    let mut skipped: Vec<String> = damaged.iter().map(|(_, error)| error.to_string()).collect();
    for (number, error) in damaged {
        if matches!(error, SegmentError::Damaged { .. }) {
            segments.mend(number)?;
        }
    }
    for number in &manifest.generations {
        match generations.read(*number, store_options, first.as_ref()) {
            Ok(found) => {
                if let Some(damage) = found.damage {
                    // The other copy is whole: nothing is lost, and there are two again.
                    generations.write_bytes(*number, &found.bytes)?;
                    skipped.push(format!("{damage}; it was written anew from its copy"));
                }
                codings.insert(*number, found.coding);
            }
            Err(error) if options.salvage => skipped.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let restored = core.dictionaries.restore(core.codec, codings.values());
    let loading = Loading {
        core,
        segments: &segments,
        codings: &codings,
        foreign: &restored.foreign,
        salvage: options.salvage,
    };
    let all_bytes = manifest.entries.iter().map(|entry| u64::from(entry.place.bytes)).sum();
    let mut reported = 0;
    let mut loaded = loading.run(&manifest, |done_bytes| {
        if done_bytes - reported >= BYTES_PER_REPORT {
            reported = done_bytes;
            progress(Recovery { done_bytes, all_bytes });
        }
    })?;
    if restored.has_own {
        core.dictionaries.loaded(core.gauges.logical.get());
    }
    loaded.skipped.splice(..0, skipped);
    for place in &loaded.places {
        segments.keep(*place)?;
    }
    if !options.salvage {
        remove_dead(&segments)?;
        generations.keep_only(&manifest.generations.iter().copied().collect())?;
    }
    let places = std::mem::take(&mut loaded.places).into_iter().collect();
    let Manifest { number, start_lsn, .. } = manifest;
    let in_force = InForce { segments, generations, number, start_lsn, places };
    Ok((manifest, in_force, loaded))
}

/// The folder's manifest; a new folder is given one.
fn manifest_of(disk: &dyn Disk, options: &DurableOptions) -> Result<Manifest, Error> {
    let dir = &options.dir;
    let damage = match Manifest::load(disk, dir) {
        Ok(Some(manifest)) => return Ok(manifest),
        Ok(None) if disk.list(&dir.join(LOG_DIR)).map_or(true, |names| names.is_empty()) => {
            let manifest = Manifest { start_lsn: 1, ..Manifest::default() };
            manifest.store(disk, dir)?;
            return Ok(manifest);
        }
        Ok(None) => {
            let reason = "it is missing, and there is a log".to_owned();
            Error::FileDamaged { path: dir.join(manifest::NAME), offset: 0, reason }
        }
        Err(error) => error,
    };
    Err(damage)
}

/// The log must reach as far as it was durable when the checkpoint was made.
fn check_end(
    log: &Log,
    manifest: &Manifest,
    options: &DurableOptions,
    recovered: &mut Recovered,
) -> Result<(), Error> {
    if log.last_lsn() >= manifest.durable_lsn {
        return Ok(());
    }
    let (last, wanted) = (log.last_lsn(), manifest.durable_lsn);
    let reason = format!("it ends with record {last}, and was durable up to {wanted}");
    let damage = Error::FileDamaged { path: options.dir.join(LOG_DIR), offset: 0, reason };
    if !options.salvage {
        return Err(damage);
    }
    recovered.skipped.push(damage.to_string());
    Ok(())
}

/// Refuses a folder that is not a store's.
fn check_folder(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
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

impl Core {
    /// Does what was logged, whatever is there now.
    pub(super) fn redo(&self, operation: &Operation<'_>) -> Result<(), Error> {
        match *operation {
            Operation::Put { key, value, expires_at_ms, flags } => {
                match self.put(key, value, PutMeta { expires_at_ms, flags }) {
                    // The value before must not stay in its place.
                    Err(Error::MemoryLimit { .. } | Error::MemoryAndFarLimit { .. })
                        if self.eviction.is_some() =>
                    {
                        self.append_bare(key, Kind::Tombstone, None)
                    }
                    outcome => outcome,
                }
            }
            Operation::Delete { key } => self.append_bare(key, Kind::Tombstone, None),
            Operation::Expire { key, expires_at_ms } => self.append_bare(key, Kind::Touch, expires_at_ms),
            Operation::DeleteRange { low, high } => self.delete_range(low, high),
        }
    }

    fn delete_range(&self, low: &[u8], high: Option<&[u8]>) -> Result<(), Error> {
        self.note_range(low, high);
        let mut from = Bound::Included(low.to_vec());
        loop {
            let keys = self.keys_from(from.as_ref().map(Vec::as_slice), KEYS_PER_STEP)?;
            let Some((last, _)) = keys.last() else { return Ok(()) };
            from = Bound::Excluded(last.clone());
            for (key, _) in keys {
                if high.is_some_and(|high| key.as_slice() >= high) {
                    return Ok(());
                }
                self.append_bare(&key, Kind::Tombstone, None)?;
            }
        }
    }

    /// Has no leaf with keys of this range keep its image: what the image has may have been evicted since it was loaded.
    fn note_range(&self, low: &[u8], high: Option<&[u8]>) {
        let mut cursor: Arc<[u8]> = low.into();
        while high.is_none_or(|high| &*cursor < high) {
            let guard = pin();
            let locked = self.lock_leaf(&cursor, &guard);
            locked.leaf.note_append();
            match &locked.leaf.state(&guard).high {
                Some(next) => cursor = next.clone(),
                None => return,
            }
        }
    }
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Self {
        Self::Log(error.into())
    }
}
