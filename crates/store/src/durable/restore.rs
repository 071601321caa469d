//! Makes a folder from the stream of a dump. The manifest comes last, so the folder is no store's before everything
//! else is durable.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use ziptier_media::disk::Disk;
use ziptier_media::log::{Log, LogOptions};
use ziptier_media::segments::{Purpose, SegmentOptions, Segments};
use ziptier_tree::below::Part;
use ziptier_tree::codec_options::CodecOptions;
use ziptier_tree::extent::Extent;
use ziptier_tree::fields::FieldReader;
use ziptier_tree::sizes::KEY_BYTES_MAX;

use super::dump::DumpSummary;
use super::generation::{self, GenerationFiles};
use super::manifest::{self, Entries, Entry, GENERATIONS_MAX, Head, Listed};
use super::operation::Operations;
use crate::image_files::extent_of;
use crate::leaf_image::{LeafImage, StoredLarge};

use super::folder::{GENERATIONS_DIR, LOG_DIR, new_store};
use super::stream::{Input, Kind};
use super::{DurableOptions, segments_dir};
use crate::Error;

/// No log comes as far: at a record each nanosecond it would take 292 years.
const LSN_MAX: u64 = i64::MAX as u64;

/// Is in a folder until everything was restored, and has the number of the store that it is to be. It goes when the
/// manifest is there.
pub(super) const RESTORING: &str = "RESTORING";

/// Makes a folder of what [`dump`](crate::dump) wrote; the folder is new or empty, or one in which a restore has not
/// ended.
///
/// # Errors
/// A folder with something in it, a stream that is damaged or ends too early, or the disk's. The folder is empty then,
/// as far as the disk allows, or says that a restore has not ended. The restore can be repeated either way. Only a disk
/// that fails at the very end, and again when the folder is cleared, may leave a whole store.
pub fn restore(options: &DurableOptions, from: &mut dyn Read) -> Result<DumpSummary, Error> {
    let (disk, dir) = (options.disk(), &options.dir);
    let mut input = Input::begin(from)?;
    let segments_dir = segments_dir::path_of(dir, None, options.segments_dir.as_ref());
    let inside = [dir.clone(), dir.join(LOG_DIR), dir.join(GENERATIONS_DIR)];
    let look = || -> Result<Option<u64>, Error> {
        let former = former_attempt(&*disk, dir)?;
        let is_formers =
            former.map_or(Ok(false), |store| segments_dir::is_given(&*disk, &segments_dir, store))?;
        let segments = (!is_formers).then_some(&segments_dir);
        inside
            .iter()
            .filter(|_| former.is_none())
            .chain(segments)
            .try_for_each(|dir| refuse_files(&*disk, dir))?;
        Ok(former)
    };
    // A folder with something in it gets no lock file.
    look()?;
    disk.create_dir(dir)?;
    let _lock = disk.lock_dir(dir)?;
    disk.create_dir(&segments_dir)?;
    let is_elsewhere = segments_dir::remembered(dir, &segments_dir).is_some();
    let _segments_lock = is_elsewhere.then(|| disk.lock_dir(&segments_dir)).transpose()?;
    // Another restore may have ended before this one had the lock.
    let former = look()?;
    let clear = || {
        remove_manifests(&*disk, dir)?;
        let all = inside[1..].iter().chain([&segments_dir, dir]);
        all.into_iter().try_for_each(|dir| remove_files(&*disk, dir))
    };
    if former.is_some() {
        clear()?;
    }
    let store = new_store();
    // From here on the folder says what it is.
    segments_dir::write(&*disk, dir, RESTORING, store)?;
    let restored = segments_dir::give(&*disk, &segments_dir, store)
        .and_then(|()| take_all(options, &disk, &segments_dir, store, &mut input));
    match &restored {
        // The store is there, durably, and a start removes a mark beside a manifest.
        Ok(_) => drop(disk.remove(&dir.join(RESTORING)).and_then(|()| disk.sync_dir(dir))),
        // The next attempt clears files that stay.
        Err(_) => drop(clear()),
    }
    restored
}

/// The store that a restore which has not ended was making in a folder.
fn former_attempt(disk: &dyn Disk, dir: &Path) -> Result<Option<u64>, Error> {
    let names = match disk.list(dir) {
        Err(error) if error.is_not_found() => return Ok(None),
        names => names?,
    };
    let is_there = |name: &str| names.iter().any(|other| other == name);
    let is_unfinished = is_there(RESTORING) && !is_there(manifest::NAME) && !is_there(manifest::COPY_NAME);
    is_unfinished.then(|| segments_dir::read(disk, dir.join(RESTORING))).transpose()
}

/// Takes the manifests of a restore that failed behind them, durably: a start with a manifest needs what lies beside
/// it.
fn remove_manifests(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
    for name in [manifest::NAME, manifest::COPY_NAME] {
        match disk.remove(&dir.join(name)) {
            Err(error) if error.is_not_found() => {}
            removed => removed?,
        }
    }
    Ok(disk.sync_dir(dir)?)
}

/// Takes everything that is in a folder, which is a restore's, the files that say so last.
fn remove_files(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
    let names = match disk.list(dir) {
        Err(error) if error.is_not_found() => return Ok(()),
        names => names?,
    };
    let says_whose = |name: &String| [RESTORING, segments_dir::NAME].contains(&name.as_str());
    let (last, first): (Vec<_>, Vec<_>) =
        names.into_iter().filter(|name| name != "LOCK").partition(says_whose);
    for names in [first, last] {
        for name in &names {
            disk.remove(&dir.join(name))?;
        }
        disk.sync_dir(dir)?;
    }
    Ok(())
}

/// Takes the stream into folders that have nothing but what says whose they are.
fn take_all(
    options: &DurableOptions,
    disk: &Arc<dyn Disk>,
    segments_dir: &Path,
    store: u64,
    input: &mut Input<'_>,
) -> Result<DumpSummary, Error> {
    let dir = &options.dir;
    let start = match input.frame()? {
        (Kind::Start, payload) => start_of(payload),
        _ => None,
    };
    let (start_lsn, durable_lsn) =
        start.ok_or_else(|| input.damaged("it does not begin with a start that a log can have"))?;
    let segment_options = SegmentOptions { limit_bytes: u64::MAX, ..options.segments };
    let mut restoring = Restoring {
        former_leaves: input.version == 1,
        generations: GenerationFiles::open(disk.clone(), &dir.join(GENERATIONS_DIR))?,
        segments: Segments::open(disk.clone(), segments_dir, segment_options)?,
        log: Log::open(
            disk.clone(),
            &dir.join(LOG_DIR),
            LogOptions { first_lsn: start_lsn, salvage: false, ..options.log },
        )?
        .into_log()?,
        pieces: Vec::new(),
        parts: Vec::new(),
        part_generations: BTreeSet::new(),
        before: None,
        head: Head {
            number: 1,
            store,
            start_lsn,
            durable_lsn,
            generations: Vec::new(),
            segments_dir: segments_dir::remembered(dir, segments_dir),
        },
        entries: Entries::default(),
        summary: DumpSummary { last_lsn: start_lsn.saturating_sub(1), ..DumpSummary::default() },
    };
    loop {
        let (kind, payload) = input.frame()?;
        if kind == Kind::End {
            break;
        }
        let taken = restoring.take(kind, payload)?;
        taken.map_err(|reason| input.damaged(&reason))?;
    }
    if restoring.summary.last_lsn < durable_lsn {
        return Err(input.damaged("its log ends too early"));
    }
    restoring.finish(disk.clone(), dir)
}

fn refuse_files(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
    let names = match disk.list(dir) {
        Err(error) if error.is_not_found() => return Ok(()),
        names => names?,
    };
    // A claim that was not made in the end holds nothing, and is written anew.
    let is_nothing = |name: &String| ["LOCK", "STORE.new", "RESTORING.new"].contains(&name.as_str());
    match names.into_iter().find(|name| !is_nothing(name)) {
        Some(name) => Err(Error::NotEmpty { path: dir.join(name) }),
        None => Ok(()),
    }
}

fn start_of(payload: &[u8]) -> Option<(u64, u64)> {
    let mut reader = FieldReader(payload);
    let start = (reader.u64()?, reader.u64()?);
    (reader.is_empty() && (1..=LSN_MAX).contains(&start.0)).then_some(start)
}

/// A key behind its length in four bytes.
fn key_of<'a>(reader: &mut FieldReader<'a>) -> Option<&'a [u8]> {
    let len = reader.u32()?;
    reader.bytes(len as usize).filter(|key| key.len() <= KEY_BYTES_MAX)
}

struct Restoring {
    /// Leaves are those of version 1 of the stream.
    former_leaves: bool,
    generations: GenerationFiles,
    segments: Segments,
    log: Log,
    /// The places of the pieces of large values, by their number.
    pieces: Vec<Extent>,
    /// The images below the next leaf.
    parts: Vec<Part>,
    /// Their codings.
    part_generations: BTreeSet<u32>,
    /// The last key that was taken.
    before: Option<Vec<u8>>,
    head: Head,
    entries: Entries,
    summary: DumpSummary,
}

impl Restoring {
    /// Takes a frame; the inner error is the frame's.
    fn take(&mut self, kind: Kind, payload: &[u8]) -> Result<Result<(), String>, Error> {
        match kind {
            Kind::Generation => self.generation(payload),
            Kind::Piece => {
                self.pieces.push(extent_of(self.segments.append(payload, Purpose::New)?));
                Ok(Ok(()))
            }
            Kind::Part => self.part(payload),
            Kind::Leaf => self.leaf(payload),
            Kind::Record => self.record(payload),
            Kind::Start | Kind::End => Ok(Err("a frame is out of its order".to_owned())),
        }
    }

    fn generation(&mut self, payload: &[u8]) -> Result<Result<(), String>, Error> {
        let number = FieldReader(payload.get(12..).unwrap_or_default()).u32().unwrap_or_default();
        if let Err(fault) = generation::from_bytes(payload, number, &CodecOptions::default(), None)? {
            return Ok(Err(fault.into()));
        }
        if self.head.generations.len() >= GENERATIONS_MAX as usize {
            return Ok(Err(format!("it has more than {GENERATIONS_MAX} generations of dictionaries")));
        }
        self.generations.write_bytes(number, payload)?;
        self.head.generations.push(number);
        Ok(Ok(()))
    }

    fn part(&mut self, payload: &[u8]) -> Result<Result<(), String>, Error> {
        let mut reader = FieldReader(payload);
        let fields = || Some((key_of(&mut reader)?, reader.u16()?, reader.0));
        let mut fields = fields;
        let Some((low, records, image)) = fields() else {
            return Ok(Err("a part of a leaf has no key".to_owned()));
        };
        let generation = match LeafImage::read(image) {
            Ok(image) if image.landing_records == 0 && image.larges.is_empty() => image.generation,
            Ok(_) => return Ok(Err("a part of a leaf is more than a body".to_owned())),
            Err(fault) => return Ok(Err(fault.into())),
        };
        // The leaf's own key is that of its first part.
        let is_next = self.before.as_deref().is_none_or(|before| before < low);
        if !is_next || !generation.iter().all(|number| self.head.generations.contains(number)) {
            return Ok(Err("a part of a leaf is out of its order".to_owned()));
        }
        let place = extent_of(self.segments.append(image, Purpose::New)?);
        self.before = Some(low.to_vec());
        self.parts.push(Part { low: low.to_vec(), place, records });
        self.part_generations.extend(generation);
        Ok(Ok(()))
    }

    fn leaf(&mut self, payload: &[u8]) -> Result<Result<(), String>, Error> {
        let mut reader = FieldReader(payload);
        let former = self.former_leaves;
        let mut fields = || match (key_of(&mut reader)?, former) {
            (low, true) => Some((low, 0, 0, reader.0)),
            (low, false) => Some((low, reader.u8()?, reader.u64()?, reader.0)),
        };
        let Some((low, in_memory, logical_bytes, image)) = fields() else {
            return Ok(Err("a leaf has no key".to_owned()));
        };
        let is_next = match self.parts.first() {
            Some(first) => first.low == low,
            None if self.entries.len() == 0 => low.is_empty(),
            None => self.before.as_deref().is_some_and(|before| before < low),
        };
        if !is_next || (in_memory == 1 && (self.parts.len() != 1 || !image.is_empty())) || in_memory > 1 {
            return Ok(Err("a leaf is out of its order".to_owned()));
        }
        if self.parts.is_empty() {
            self.before = Some(low.to_vec());
        }
        let image = match image {
            [] => None,
            image => match self.image(image)? {
                Ok(place) => Some(place),
                Err(reason) => return Ok(Err(reason)),
            },
        };
        let parts = std::mem::take(&mut self.parts);
        let generations = std::mem::take(&mut self.part_generations).into_iter().collect();
        let listed = Listed { in_memory: in_memory == 1, logical_bytes, generations, parts };
        let below = (!listed.parts.is_empty()).then_some(listed);
        self.entries.push(&Entry { low: low.into(), image, below });
        self.summary.leaves += 1;
        Ok(Ok(()))
    }

    /// Appends an image whose large values' pieces came before; the inner error is the image's.
    fn image(&mut self, bytes: &[u8]) -> Result<Result<Extent, String>, Error> {
        let mut image = match LeafImage::read(bytes) {
            Ok(image) => image,
            Err(fault) => return Ok(Err(fault.into())),
        };
        for large in &mut image.larges {
            let place = |numbered: &Extent| self.pieces.get(usize::try_from(numbered.segment).ok()?).copied();
            let Some(pieces) = large.pieces.iter().map(place).collect::<Option<Vec<_>>>() else {
                return Ok(Err("a leaf refers to what is not there".to_owned()));
            };
            *large = StoredLarge { pieces: pieces.into(), ..large.clone() };
        }
        if !image.generations().all(|number| self.head.generations.contains(&number)) {
            return Ok(Err("a leaf is out of its order".to_owned()));
        }
        let mut written = Vec::new();
        image.write(&mut written);
        Ok(Ok(extent_of(self.segments.append(&written, Purpose::New)?)))
    }

    fn record(&mut self, payload: &[u8]) -> Result<Result<(), String>, Error> {
        let mut reader = FieldReader(payload);
        if reader.u64() != Some(self.summary.last_lsn + 1) {
            return Ok(Err("a record of the log is missing".to_owned()));
        }
        let read = Operations::of(reader.0)
            .and_then(|operations| operations.collect::<Result<Vec<_>, _>>().map_err(str::to_owned));
        if let Err(reason) = read {
            return Ok(Err(reason));
        }
        self.summary.last_lsn = self.log.append(&[reader.0])?;
        self.summary.log_records += 1;
        Ok(Ok(()))
    }

    fn finish(mut self, disk: Arc<dyn Disk>, dir: &Path) -> Result<DumpSummary, Error> {
        self.head.generations.sort_unstable();
        self.head.generations.dedup();
        self.segments.close()?;
        self.log.seal()?;
        self.head.store(&self.entries, &*disk, dir)?;
        Ok(self.summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_begins_with_a_number_that_leaves_room_for_more() {
        let start = |lsn: u64| start_of(&[lsn.to_le_bytes(), 7_u64.to_le_bytes()].concat());
        assert_eq!(start(1), Some((1, 7)));
        assert_eq!(start(LSN_MAX), Some((LSN_MAX, 7)));
        assert_eq!([0, LSN_MAX + 1, u64::MAX].map(start), [None; 3]);
    }
}
