//! Checks all of a folder without changing anything: whether every byte that matters is as it was written.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ziptier_media::disk::Disk;
use ziptier_media::log::{Log, LogError, LogOptions, Skipped};
use ziptier_media::segments::{SegmentError, Segments};
use ziptier_tree::codec_options::{CodecChoice, CodecOptions};
use ziptier_tree::coding::Coding;
use ziptier_tree::extent::Extent;
use ziptier_tree::leaf::Leaf;
use ziptier_tree::packing::{settled, upper_records};

use crate::Error;
use crate::core::Core;
use crate::durable::{
    DurableOptions, Entry, GENERATIONS_DIR, GenerationFiles, LOG_DIR, Manifest, Operations, check_folder,
    no_store, segments_dir,
};
use crate::image_files::{ImageFiles, place_of};
use crate::leaf_image::LeafImage;
use crate::options::Options;
use crate::recovery::loading::{LoadedLarges, Source, is_within};

/// Records of the log between two calls for progress.
const RECORDS_EACH: u64 = 1024;

/// Something that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The offset in the file.
    pub offset: u64,
    /// The expectation and the finding.
    pub reason: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}: {}", self.path.display(), self.offset, self.reason)
    }
}

/// The findings of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// The damage.
    pub damages: Vec<Damage>,
    /// Leaves of the last checkpoint.
    pub leaves: u64,
    /// Their records, each of which was decoded.
    pub records: u64,
    /// Bytes of their keys and values.
    pub record_bytes: u64,
    /// Dictionary generations, of which there are two files each.
    pub generations: u64,
    /// Bodies in all segments, those included that nothing needs any more.
    pub bodies: u64,
    /// Records of the log that a start replays. Those that the checkpoint has are verified, too.
    pub log_records: u64,
    /// Whether the log ends with the mark of a clean stop.
    pub is_sealed: bool,
}

/// Verifies the folder of a store that is not open.
///
/// # Errors
/// The folder is in use, is not a store's, has a file that is none of a store, or cannot be read. Damage is no error:
/// it is in the report.
pub fn check(options: &DurableOptions) -> Result<CheckReport, Error> {
    check_with(options, |_| {})
}

/// As [`check`], and tells the findings so far behind each leaf, each body, and some records of the log.
///
/// # Errors
/// As [`check`].
pub fn check_with(
    options: &DurableOptions,
    mut progress: impl FnMut(&CheckReport),
) -> Result<CheckReport, Error> {
    let (disk, dir) = (options.disk(), &options.dir);
    let load = || Manifest::load(&*disk, dir).map_or_else(|error| Some(Err(error)), |found| found.map(Ok));
    let no_store = || no_store(&*disk, dir);
    // A folder that is no store's gets no lock file.
    drop(load().ok_or_else(no_store)?);
    check_folder(&*disk, dir)?;
    let _lock = disk.lock_dir(dir)?;
    // A store that was open until now may have made another checkpoint.
    let loaded = load().ok_or_else(no_store)?;
    let mut check = Check { disk, dir, report: CheckReport::default(), progress: &mut progress };
    let manifest = match loaded {
        Ok(manifest) => {
            manifest.damage().into_iter().try_for_each(|damage| check.note(damage.clone()))?;
            Some(manifest)
        }
        Err(error) => {
            check.note(error)?;
            let of_copy = Manifest::damage_of_copy(&*check.disk, dir);
            of_copy.into_iter().try_for_each(|damage| check.note(damage))?;
            None
        }
    };
    check.log(manifest.as_ref())?;
    let codings = match &manifest {
        Some(manifest) => check.generations(manifest)?,
        None => BTreeMap::new(),
    };
    check.segments(manifest.as_ref(), &codings, options)?;
    Ok(check.report)
}

struct Check<'a> {
    disk: Arc<dyn Disk>,
    dir: &'a Path,
    report: CheckReport,
    progress: &'a mut dyn FnMut(&CheckReport),
}

impl Check<'_> {
    /// Notes damage; anything else ends the check.
    fn note(&mut self, error: Error) -> Result<(), Error> {
        let (path, offset, reason) = match error {
            Error::FileDamaged { path, offset, reason } => (path, offset, reason),
            Error::FileForeign { path, reason } => (path, 0, reason),
            Error::Segments(SegmentError::Damaged { path, offset, reason })
            | Error::Log(LogError::Damaged { path, offset, reason }) => (path, offset, reason),
            Error::Segments(SegmentError::Foreign { path, reason })
            | Error::Log(LogError::Foreign { path, reason }) => (path, 0, reason),
            Error::Segments(SegmentError::Missing { .. })
            | Error::LogRecord { .. }
            | Error::Damaged { .. } => (self.dir.to_path_buf(), 0, error.to_string()),
            error => return Err(error),
        };
        let damage = Damage { path, offset, reason };
        if !self.report.damages.contains(&damage) {
            self.report.damages.push(damage);
        }
        Ok(())
    }

    fn log(&mut self, manifest: Option<&Manifest>) -> Result<(), Error> {
        if let Err(error) = self.read_log(manifest) {
            self.note(error)?;
        }
        Ok(())
    }

    /// Every record of the log, those before the checkpoint included. Damage is passed over as by a salvage, so that
    /// each piece of it is noted.
    fn read_log(&mut self, manifest: Option<&Manifest>) -> Result<(), Error> {
        let path = self.dir.join(LOG_DIR);
        let options = LogOptions { salvage: true, ..LogOptions::default() };
        let mut replay = Log::open(self.disk.clone(), &path, options)?;
        let start_lsn = manifest.map_or(0, |manifest| manifest.head.start_lsn);
        if let Some(Manifest { head, .. }) = manifest {
            replay.expect_durable(head.durable_lsn);
            let (first, wanted) = (replay.first_lsn(), head.start_lsn);
            if first > wanted {
                let reason = format!("it begins with record {first}, and those from {wanted} on are needed");
                self.note(Error::FileDamaged { path, offset: 0, reason })?;
            }
        }
        while let Some(record) = replay.next_record()? {
            let operations = Operations::of(record.payload)
                .and_then(|operations| operations.collect::<Result<Vec<_>, _>>().map_err(str::to_owned));
            match operations {
                Ok(_) => self.report.log_records += u64::from(record.lsn >= start_lsn),
                Err(reason) => self.note(Error::LogRecord { lsn: record.lsn, reason })?,
            }
            if record.lsn.is_multiple_of(RECORDS_EACH) {
                (self.progress)(&self.report);
            }
        }
        for Skipped { path, offset, reason, .. } in replay.skipped() {
            let (path, offset, reason) = (path.clone(), *offset, reason.clone());
            self.note(Error::FileDamaged { path, offset, reason })?;
        }
        self.report.is_sealed = replay.is_sealed();
        Ok(())
    }

    fn generations(&mut self, manifest: &Manifest) -> Result<BTreeMap<u32, Coding>, Error> {
        let mut files = GenerationFiles::open(self.disk.clone(), &self.dir.join(GENERATIONS_DIR))?;
        let mut codings = BTreeMap::new();
        for number in &manifest.head.generations {
            self.report.generations += 1;
            match files.read(*number, &CodecOptions::default(), None) {
                Ok(found) => {
                    if let Some(damage) = found.damage {
                        self.note(damage)?;
                    }
                    codings.insert(*number, found.coding);
                }
                Err(error) => self.note(error)?,
            }
        }
        Ok(codings)
    }

    fn segments(
        &mut self,
        manifest: Option<&Manifest>,
        codings: &BTreeMap<u32, Coding>,
        options: &DurableOptions,
    ) -> Result<(), Error> {
        let remembered = manifest.and_then(|manifest| manifest.head.segments_dir.as_ref());
        let path = segments_dir::path_of(self.dir, remembered, options.segments_dir.as_ref());
        if let Some(manifest) = manifest {
            match segments_dir::verify(&*self.disk, &path, self.dir, manifest.head.store) {
                // A store that ended before it had any.
                Err(Error::Ssd { .. }) if manifest.named.is_empty() => {}
                Err(error @ Error::FileDamaged { .. }) => self.note(error)?,
                verified => verified?,
            }
        }
        let (segments, damaged) = Segments::salvage(self.disk.clone(), &path, options.segments)?;
        for (_, error) in damaged {
            self.note(error.into())?;
        }
        let files = ImageFiles::new(segments);
        let core =
            Core::new(&Options { codec: CodecChoice::None, background_threads: 0, ..Options::default() });
        let mut needed = BTreeSet::new();
        if let Some(manifest) = manifest {
            self.leaves(manifest, &core, &files, codings, &mut needed)?;
        }
        for number in files.segments.numbers() {
            if let Err(error) = self.bodies(&files.segments, number)
                // Bytes that were never synced are no damage: a checkpoint that was cut off left them, in this life of
                // the store or in an earlier one. Nothing that is needed lies behind them.
                && needed.iter().any(|place| is_behind(*place, &error, &files.segments))
            {
                self.note(error.into())?;
            }
        }
        Ok(())
    }

    /// Reads all images; `needed` gets their places.
    fn leaves(
        &mut self,
        manifest: &Manifest,
        core: &Core,
        files: &Arc<ImageFiles>,
        codings: &BTreeMap<u32, Coding>,
        needed: &mut BTreeSet<Extent>,
    ) -> Result<(), Error> {
        let mut entries = manifest.entries().peekable();
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return self.note(error),
            };
            self.report.leaves += 1;
            let high = entries.peek().and_then(|next| next.as_ref().ok()).map(|next| next.low.clone());
            let checker = LeafCheck { core, files, codings, high: high.as_deref() };
            for outcome in checker.leaf(&entry, needed) {
                match outcome {
                    Ok((records, bytes)) => {
                        self.report.records += records;
                        self.report.record_bytes += bytes;
                    }
                    Err(error) => self.note(error)?,
                }
            }
            (self.progress)(&self.report);
        }
        Ok(())
    }

    fn bodies(&mut self, segments: &Segments, number: u64) -> Result<(), SegmentError> {
        let mut blocks = segments.blocks(number)?;
        while blocks.next_block()?.is_some() {
            self.report.bodies += 1;
            (self.progress)(&self.report);
        }
        Ok(())
    }
}

/// Reads all images of one leaf.
struct LeafCheck<'a> {
    core: &'a Core,
    files: &'a Arc<ImageFiles>,
    codings: &'a BTreeMap<u32, Coding>,
    /// The key behind the leaf.
    high: Option<&'a [u8]>,
}

impl LeafCheck<'_> {
    /// Records and bytes of each image.
    fn leaf(&self, entry: &Entry, needed: &mut BTreeSet<Extent>) -> Vec<Result<(u64, u64), Error>> {
        let mut found = Vec::new();
        if let Some(place) = entry.image {
            found.push(self.image(place, &entry.low, self.high, entry.below.is_some(), None, needed));
        }
        let parts = entry.below.iter().flat_map(|below| &below.parts);
        let lows = parts.clone().skip(1).map(|part| Some(part.low.as_slice())).chain([self.high]);
        for (part, high) in parts.zip(lows) {
            found.push(self.image(part.place, &part.low, high, false, Some(part.records), needed));
        }
        found
    }

    /// Reads an image, all of whose keys lie from `low` on and below `high`. For a part of a list, the manifest names
    /// the number of its `records`.
    fn image(
        &self,
        place: Extent,
        low: &[u8],
        high: Option<&[u8]>,
        is_upper: bool,
        records: Option<u16>,
        needed: &mut BTreeSet<Extent>,
    ) -> Result<(u64, u64), Error> {
        let (core, files) = (self.core, self.files);
        needed.insert(place);
        let bytes = files.segments.read(place_of(place))?;
        let source = Source { core, files, codings: self.codings, place, is_upper, salvage: false };
        let leaf = source.load(&bytes, &mut LoadedLarges::new())?;
        let at = leaf.at.expect("it was read");
        let larges = LeafImage::read(&bytes).map_or(Vec::new(), |image| image.larges);
        needed.extend(larges.iter().flat_map(|large| large.pieces.iter()));
        let counted = leaf.logical_bytes;
        let is_within = is_within(&leaf.state, low, high);
        let leaf = Leaf::new(low.into(), leaf.state, core.tree.gauges.clone());
        let guard = core.tree.pin();
        let state = leaf.state(&guard);
        let found = if is_upper { upper_records(state) } else { settled(state) }.1;
        let (mut count, mut record_bytes) = (0, 0);
        let mut outcome = Ok(());
        for record in core.tree.ranges().records(state, &Bound::Unbounded, &Bound::Unbounded, &guard) {
            match record {
                Ok((key, value, _)) => {
                    count += 1;
                    record_bytes += (key.len() + value.len()) as u64;
                }
                Err(error) => outcome = Err(Error::from(error).to_string()),
            }
        }
        if outcome.is_ok() && found != counted {
            outcome = Err(format!("its records have {found} bytes, and it says {counted}"));
        }
        if outcome.is_ok() && !is_within {
            outcome = Err("it has keys that are not of its leaf".to_owned());
        }
        let has = state.body.len();
        if outcome.is_ok()
            && records.is_some_and(|records| usize::from(records) != has || at.plain().is_none())
        {
            outcome = Err(format!("it is not a body of {} records", records.unwrap_or_default()));
        }
        ziptier_tree::merge::large_references(state)
            .into_iter()
            .for_each(|reference| core.tree.release_large(reference, &guard));
        let damaged = |reason| Error::FileDamaged {
            path: files.segments.path_of(place.segment),
            offset: u64::from(place.offset),
            reason,
        };
        outcome.map(|()| (count, record_bytes)).map_err(damaged)
    }
}

/// Whether a place lies in the damaged file behind the damage: then what is damaged was synced.
fn is_behind(place: Extent, error: &SegmentError, segments: &Segments) -> bool {
    match error {
        SegmentError::Damaged { path, offset, .. } => {
            u64::from(place.offset) >= *offset && segments.path_of(place.segment) == *path
        }
        _ => true,
    }
}
