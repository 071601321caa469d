//! Recovery: it makes a store of a folder, from the last checkpoint and the log behind it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ziptier_media::disk::{DirLock, Disk, DiskError};
use ziptier_media::log::{Log, LogOptions};
use ziptier_media::segments::{SegmentError, SegmentOptions, Segments};

use super::checkpoint::{BACKUP_DIR, Checkpointer, InForce};
use super::generation::GenerationFiles;
use super::journal::WriteLog;
use super::loading::{Loaded, Loading};
use super::manifest::{self, Entries, Head, Manifest};
use super::replay::replay;
use super::restore::RESTORING;
use super::{DurableOptions, Recovered, Recovery, segments_dir};
use crate::Error;
use crate::core::Core;
use crate::image_files::ImageFiles;
use crate::operation::Operation;
use crate::options::Options;
use crate::places::ssd::{SsdOptions, segment_options};
use crate::range::{Keys, known};
use crate::read::LOST;
use crate::record::{Kind, PutMeta};
use crate::update::{Update, Wanted};

/// The folder of the log within the store's.
pub(crate) const LOG_DIR: &str = "log";
/// The folder of what images are decoded with.
pub(crate) const GENERATIONS_DIR: &str = "dictionaries";
/// Files that a store's folder may hold; anything else belongs to somebody else.
const OWN_FILES: [&str; 3] = ["LOCK", "MANIFEST", RESTORING];
/// Bytes of images between two calls for progress.
const BYTES_PER_REPORT: u64 = 4 << 20;
/// Keys of a range that are deleted at a time.
const KEYS_PER_STEP: usize = 256;

/// A store's folder, locked, and what its manifest says; nothing of its images was read yet.
pub(crate) struct Folder {
    disk: Arc<dyn Disk>,
    locks: Vec<Box<dyn DirLock>>,
    manifest: Manifest,
    has_both_manifests: bool,
    pub(crate) files: Arc<ImageFiles>,
    /// How segments are laid out.
    pub(crate) layout: SegmentOptions,
    skipped: Vec<String>,
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

/// Fills an empty store from its folder, and opens the log that its writes go to. Lifts the memory limit for that if
/// nothing can go elsewhere or be evicted. Otherwise the store keeps to its limit at the end, which may take a
/// checkpoint. A salvage that left something out makes none.
pub(crate) fn recover(
    core: &Core,
    store_options: &Options,
    options: &DurableOptions,
    folder: Folder,
    progress: &mut dyn FnMut(Recovery),
) -> Result<Recovered, Error> {
    if !core.room().can_make_room() {
        core.tree.gauges.set_limit(None);
    }
    let Folder { disk, locks, manifest, has_both_manifests, files, skipped, .. } = folder;
    let log_options = LogOptions { salvage: options.salvage, first_lsn: 1, ..options.log };
    let mut log = Log::open(disk.clone(), &options.dir.join(LOG_DIR), log_options)?;
    log.expect_durable(manifest.head.durable_lsn);
    log.start_at(manifest.head.start_lsn)?;
    let (image_bytes, (_, log_bytes)) = (manifest.image_bytes, log.progress());
    let mut loads = |done_bytes| progress(Recovery { done_bytes, all_bytes: image_bytes + log_bytes });
    let (mut generations, loaded) =
        load(core, store_options, options, &disk, &manifest, &files, skipped, &mut loads)?;
    core.loading.store(false, Ordering::Release);
    let limit_bytes = store_options.memory_limit_bytes;
    let mut replays = |log: Recovery| {
        let (done_bytes, all_bytes) = (image_bytes + log.done_bytes, image_bytes + log.all_bytes);
        progress(Recovery { done_bytes, all_bytes });
    };
    let mut recovered = replay(core, &mut log, options.salvage, limit_bytes, &mut replays)?;
    // Everything that can be refused was read. The folder changes from here on.
    if !options.salvage && has_both_manifests {
        remove_unneeded(&*disk, &options.dir, &manifest.head, &files, &mut generations)?;
    }
    let log = log.into_log()?;
    if !recovered.skipped.is_empty() {
        files.keep_all();
    }
    let keeps_all = files.keeps_all();
    recovered.images = loaded.images;
    recovered.image_bytes = loaded.bytes;
    recovered.skipped.splice(..0, loaded.skipped);
    // The next start may find the bytes that a salvage left out, so no checkpoint is made of the replayed records
    // alone.
    let log_bytes = if keeps_all { 0 } else { recovered.log_bytes };
    let in_force = InForce { files, generations, head: manifest.head };
    let checkpointer = Checkpointer::new(
        disk,
        &options.dir,
        options.checkpoint_log_bytes,
        options.stop_time_max,
        in_force,
        log_bytes,
    )?;
    let journal = WriteLog::start(log, options.durability, options.waits, locks)?;
    core.tree.recovering.store(false, Ordering::Relaxed);
    let is_first = core.journal.set(journal).is_ok();
    assert!(is_first && core.checkpointer.set(checkpointer).is_ok(), "a store recovers once");
    if !keeps_all {
        // Other threads may have had the leaves that would have made room. What cannot go stays.
        let _ = core.make_room(0);
    }
    Ok(recovered)
}

/// Fills the store with what the last checkpoint holds.
#[expect(clippy::too_many_arguments, reason = "the parts of a folder, each used once")]
fn load(
    core: &Core,
    store_options: &Options,
    options: &DurableOptions,
    disk: &Arc<dyn Disk>,
    manifest: &Manifest,
    files: &Arc<ImageFiles>,
    mut skipped: Vec<String>,
    progress: &mut dyn FnMut(u64),
) -> Result<(GenerationFiles, Loaded), Error> {
    let mut generations = GenerationFiles::open(disk.clone(), &options.dir.join(GENERATIONS_DIR))?;
    let first = core.tree.dictionaries.current();
    let mut codings = BTreeMap::new();
    for number in &manifest.head.generations {
        match generations.read(*number, store_options, first.as_ref()) {
            Ok(found) => {
                // The other copy is whole: nothing is lost, and there are two again, unless the disk is full.
                generations.mend(*number, &found).or_else(|error| error.pass_refusal())?;
                skipped.extend(found.damage.as_ref().map(Error::mended));
                codings.insert(*number, found.coding);
            }
            // These bytes are sound: a program with their format, or a newer one, reads them.
            Err(error @ (Error::EngineUnavailable { .. } | Error::FileForeign { .. })) => return Err(error),
            Err(error) if options.salvage => skipped.push(error.to_string()),
            Err(error) => return Err(error),
        }
    }
    let restored = core.tree.dictionaries.restore(core.tree.codec, codings.values(), generations.left_out());
    if let Some(cold) = &core.cold {
        cold.tier.set_foreign(restored.foreign.clone());
    }
    let loading =
        Loading { core, files, codings: &codings, foreign: &restored.foreign, salvage: options.salvage };
    let mut reported = 0;
    let mut loaded = loading.run(manifest, |done_bytes| {
        if done_bytes - reported >= BYTES_PER_REPORT {
            reported = done_bytes;
            progress(done_bytes);
        }
    })?;
    if restored.has_own {
        core.tree.dictionaries.loaded(core.tree.gauges.logical.get());
    }
    loaded.skipped.splice(..0, skipped);
    Ok((generations, loaded))
}

/// Removes what the checkpoint in force does not need. Files that another process may be reading are removed after the
/// next checkpoint.
fn remove_unneeded(
    disk: &dyn Disk,
    dir: &Path,
    head: &Head,
    files: &ImageFiles,
    generations: &mut GenerationFiles,
) -> Result<(), Error> {
    files.remove_dead()?;
    let _nobody_reads = match disk.lock_dir(&dir.join(BACKUP_DIR)) {
        Err(DiskError::Locked { .. }) => return Ok(()),
        lock => lock?,
    };
    generations.keep_only(&head.generations.iter().copied().collect())
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
pub(super) fn no_store(disk: &dyn Disk, dir: &Path) -> Error {
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
pub(crate) fn new_store() -> u64 {
    RandomState::new().hash_one("store")
}

/// Refuses a folder that is not a store's.
pub(super) fn check_folder(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
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
                match self.writes().put(key, value, PutMeta { expires_at_ms, flags }) {
                    // The value before must not stay in its place.
                    Err(Error::MemoryLimit { .. }) if self.tree.evicts() => {
                        self.writes().append_bare(key, Kind::Tombstone, None)
                    }
                    outcome => outcome,
                }
            }
            Operation::Delete { key } => self.writes().append_bare(key, Kind::Tombstone, None),
            // Above what lies on SSD a value is written again with its expiry, so it must be there. Any other one may
            // have been lost since.
            Operation::Expire { key, expires_at_ms } => {
                match self.writes().modify(key, Wanted::Presence, |_| Update::Expire(expires_at_ms)) {
                    // A lost value takes no new expiry. So the value was lost later, and its image has this expiry.
                    Err(Error::Damaged { reason, .. }) if reason == LOST => Ok(()),
                    redone => redone.map(|_| ()),
                }
            }
            Operation::DeleteRange { low, high } => {
                self.deletes_range.store(true, Ordering::Release);
                let deleted = self.delete_range(low, high);
                self.deletes_range.store(false, Ordering::Release);
                deleted
            }
        }
    }

    /// Leaves and images that lie between the bounds go unread, as they did when this was logged: it does not matter
    /// whether they are whole. Only an image with a bound inside it is read.
    ///
    /// # Errors
    /// Such an image cannot be read. Its keys stay, and everything else in the range goes.
    fn delete_range(&self, low: &[u8], high: Option<&[u8]>) -> Result<(), Error> {
        [Some(low), high].into_iter().flatten().for_each(|key| self.moves().begin_leaf_at_image_of(key));
        if let Some(behind) = self.image_behind(low) {
            self.moves().begin_leaf_at_image_of(&behind);
        }
        let mut cursor = low.to_vec();
        let mut outcome = Ok(());
        loop {
            let (next, is_whole) = self.tree.with_leaf_of(&cursor, |leaf, guard| {
                let next = leaf.state(guard).high.clone();
                let is_whole =
                    *leaf.low() >= *low && next.as_deref().into_iter().chain(high).min() == next.as_deref();
                if is_whole {
                    self.empty(leaf, guard)?;
                    // This thread waits for others next, who wait until what it retired is free.
                    guard.flush();
                }
                Ok::<_, Error>((next, is_whole))
            })?;
            if !is_whole {
                let end = next.as_deref().into_iter().chain(high).min();
                outcome = outcome.and(self.delete_keys(&cursor, end));
            }
            match next {
                Some(next) if high.is_none_or(|high| *next < *high) => cursor = next.to_vec(),
                _ => return outcome,
            }
        }
    }

    /// The lowest key of the image behind that of `key`, if the leaf is cold, begins below `key`, and has one more.
    fn image_behind(&self, key: &[u8]) -> Option<Vec<u8>> {
        let guard = self.tree.pin();
        let (leaf, state) = self.tree.locate(key, &guard);
        let below = state.below.as_ref().filter(|_| *leaf.low() < *key)?;
        below.low(below.image_of(key) + 1)
    }

    /// Deletes keys of one leaf: first those that memory knows, which need no image, and then the others.
    fn delete_keys(&self, low: &[u8], high: Option<&[u8]>) -> Result<(), Error> {
        let delete = |key: &Vec<u8>| self.writes().append_bare(key, Kind::Tombstone, None);
        let in_memory = {
            let guard = self.tree.pin();
            known(self.tree.locate(low, &guard).1, &self.tree)
        };
        let is_within =
            |key: &&Vec<u8>| key.as_slice() >= low && high.is_none_or(|high| key.as_slice() < high);
        in_memory.keys().filter(is_within).try_for_each(delete)?;
        let mut from = Some(low.to_vec());
        while let Some(low) = from {
            let Keys { keys, next } = self.tree.keys_from(&low, high, KEYS_PER_STEP)?;
            keys.iter().try_for_each(delete)?;
            from = next;
        }
        Ok(())
    }
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Self {
        Self::Log(error.into())
    }
}

// No unsafe code comes this way: Miri would only be slow.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use std::sync::{OnceLock, Weak};

    use ziptier_media::testing::{FailingDisk, RecordingDisk};

    use super::*;
    use crate::body::{Builder, Entry, EntryKey, fingerprint};
    use crate::codec_options::CodecChoice;
    use crate::leaf::{LeafState, RightSibling};
    use crate::record::{Fields, Found, Lookup, Payload, key_hash};
    use crate::{DiskHandle, Store};

    /// Joins the first leaf with its neighbour, if both are on SSD; whether it did.
    fn join_first(core: &Core) -> bool {
        let guard = core.tree.pin();
        let leaf = core.tree.locate(b"", &guard).0;
        leaf.try_own().is_some_and(|_ownership| core.moves().join_cold(leaf, &guard))
    }

    /// The range begins within an image, and the next image, all of which goes, is damaged.
    #[test]
    fn leaves_that_a_deleted_range_has_cut_are_not_joined_before_it_is_gone() {
        let recording = RecordingDisk::new();
        let reads: Arc<OnceLock<Weak<Core>>> = Arc::default();
        let joins = {
            let reads = reads.clone();
            move |_: &Path| {
                if let Some(core) = reads.get().and_then(Weak::upgrade) {
                    let _ = join_first(&core);
                }
                false
            }
        };
        let disk = FailingDisk::with_bad_bytes(Arc::new(recording.clone()), joins, 0..u64::MAX);
        let mut durable = DurableOptions::new("/data");
        durable.disk = DiskHandle(Arc::new(disk));
        durable.log.segment_bytes = 1 << 20;
        let ssd = Some(SsdOptions { path: None, limit_bytes: 16 << 20 });
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let store = Store::open(Options { ssd, durable: Some(durable), ..options }).expect("it is new");
        let core = &store.core;
        for n in 0..40u8 {
            core.put(&[n], &[n; 1000], PutMeta::default()).expect("no limit is set");
        }
        core.settle();
        assert!(core.moves().send_some_to_ssd(|| true).expect("there is room") > 2);
        let second = core.tree.share_at(b"").1.expect("there are several leaves");
        assert!(join_first(core));
        store.checkpoint().expect("the disk works");
        let value = [second[0]; 1000];
        let mut segments = recording.paths().into_iter().filter(|path| path.starts_with("/data/segments"));
        let (path, at) = segments
            .find_map(|path| {
                let bytes = recording.contents(&path)?;
                let at = bytes.windows(value.len()).position(|found| found == value)?;
                Some((path, at))
            })
            .expect("a segment has the value");
        let mut bytes = recording.contents(&path).expect("it is there");
        bytes[at] ^= 1;
        recording.put(&path, bytes);
        core.tree.recovering.store(true, Ordering::Relaxed);
        reads.set(Arc::downgrade(core)).expect("it is set once");
        assert_eq!(core.redo(&Operation::DeleteRange { low: &[1], high: None }), Ok(()));
        core.tree.recovering.store(false, Ordering::Relaxed);
        assert_eq!(core.tree.keys_from(b"", None, 40), Ok(Keys { keys: vec![vec![0]], next: None }));
    }

    /// Gives an empty store the key `key`, whose value is lost.
    fn lose_a_value(core: &Core) {
        let guard = core.tree.pin();
        let (leaf, before) = core.tree.locate(b"", &guard);
        let entry = Entry {
            key: EntryKey::whole(b"key"),
            fingerprint: fingerprint(key_hash(b"key")),
            kind: Kind::Lost,
            fields: Fields::default(),
            payload: &[],
        };
        let state = LeafState::new(Builder::default().build(&[entry], None), None, RightSibling::none());
        assert!(leaf.publish(before, state, &guard));
    }

    /// The value had its expiry before a pack lost it, and the image of its leaf came later.
    #[test]
    fn the_expiry_of_a_lost_value_is_redone() {
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let core = Core::new(&options);
        core.tree.recovering.store(true, Ordering::Relaxed);
        lose_a_value(&core);
        let expires_at_ms = Some(1 << 44);
        assert_eq!(core.redo(&Operation::Expire { key: b"key", expires_at_ms }), Ok(()));
        let guard = core.tree.pin();
        let (_, state) = core.tree.locate(b"key", &guard);
        let found = match state.find(b"key", key_hash(b"key"), &core.tree.commits).0 {
            Lookup::Found(Found { payload: Payload::Lost, expires_at_ms, .. }) => expires_at_ms,
            _ => None,
        };
        assert_eq!(found, expires_at_ms);
    }

    /// As before, and then the leaf went to SSD.
    #[test]
    fn the_expiry_of_a_lost_value_on_ssd_needs_no_salvage() {
        let mut durable = DurableOptions::new("/data");
        durable.disk = DiskHandle(Arc::new(RecordingDisk::new()));
        durable.log.segment_bytes = 1 << 20;
        let ssd = Some(SsdOptions { path: None, limit_bytes: 16 << 20 });
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let store = Store::open(Options { ssd, durable: Some(durable), ..options }).expect("it is new");
        let core = &store.core;
        lose_a_value(core);
        assert_eq!(core.moves().send_some_to_ssd(|| true), Ok(1));
        core.tree.recovering.store(true, Ordering::Relaxed);
        let expiry = Operation::Expire { key: b"key", expires_at_ms: Some(1 << 44) };
        assert_eq!(core.redo(&expiry), Ok(()));
        core.tree.recovering.store(false, Ordering::Relaxed);
        assert!(store.get(b"key").is_err(), "a lost value is told");
    }

    /// A thread that replays a range waits for other threads afterwards. These waited more than a second for each of
    /// their packs.
    #[test]
    fn others_free_the_memory_of_a_range_that_was_replayed() {
        let options = Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() };
        let core = Core::new(&options);
        for n in 0..1000_u32 {
            core.put(&n.to_be_bytes(), &[7; 100], PutMeta::default()).expect("no limit is set");
        }
        core.settle();
        assert_eq!(core.redo(&Operation::DeleteRange { low: b"", high: None }), Ok(()));
        assert_eq!(core.tree.count_keys(), 0);
        let reclaimed = std::thread::scope(|scope| scope.spawn(|| core.tree.reclaim()).join().is_ok());
        assert_eq!((reclaimed, core.tree.gauges.retired.held()), (true, 0));
    }
}
