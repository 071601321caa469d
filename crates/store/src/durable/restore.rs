//! A folder from the stream of a dump. It has no manifest, and so is no store's, before everything else is durable.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use ziptier_media::disk::Disk;
use ziptier_media::log::{Log, LogOptions};
use ziptier_media::segments::{Place, Purpose, SegmentOptions, Segments};

use super::dump::DumpSummary;
use super::generation::{self, GenerationFiles};
use super::image::{LeafImage, StoredLarge};
use super::manifest::{Entries, Entry, GENERATIONS_MAX, Head, Listed};
use super::operation::Operations;
use super::reader::Reader;
use super::recovery::{GENERATIONS_DIR, LOG_DIR, new_store};
use super::stream::{Input, Kind};
use super::{DurableOptions, segments_dir};
use crate::Error;
use crate::cold::Part;
use crate::options::{KEY_BYTES_MAX, Options};

/// No log comes as far: at a record each nanosecond it would take 292 years.
const LSN_MAX: u64 = i64::MAX as u64;

/// Makes a folder of what [`dump`](crate::dump) wrote; the folder is new or empty.
///
/// # Errors
/// A folder with something in it, a stream that is damaged or ends too early, or the disk's. The folder is then no
/// store's, and may be removed.
pub fn restore(options: &DurableOptions, from: &mut dyn Read) -> Result<DumpSummary, Error> {
    let (disk, dir) = (options.disk(), &options.dir);
    let mut input = Input::begin(from)?;
    let segments_dir = segments_dir::path_of(dir, None, options.segments_dir.as_ref());
    for inside in [dir.clone(), dir.join(LOG_DIR), segments_dir.clone(), dir.join(GENERATIONS_DIR)] {
        refuse_files(&*disk, &inside)?;
    }
    disk.create_dir(dir)?;
    let _lock = disk.lock_dir(dir)?;
    let store = new_store();
    segments_dir::give(&*disk, &segments_dir, store)?;
    let start = match input.frame()? {
        (Kind::Start, payload) => start_of(payload),
        _ => None,
    };
    let (start_lsn, durable_lsn) =
        start.ok_or_else(|| input.damaged("it does not begin with a start that a log can have"))?;
    let segment_options = SegmentOptions { limit_bytes: u64::MAX, ..options.segments };
    let mut restoring = Restoring {
        generations: GenerationFiles::open(disk.clone(), &dir.join(GENERATIONS_DIR))?,
        segments: Segments::open(disk.clone(), &segments_dir, segment_options)?,
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
            segments_dir: segments_dir::remembered(dir, &segments_dir),
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
    restoring.finish(disk, dir)
}

fn refuse_files(disk: &dyn Disk, dir: &Path) -> Result<(), Error> {
    let names = match disk.list(dir) {
        Err(error) if error.is_not_found() => return Ok(()),
        names => names?,
    };
    match names.into_iter().find(|name| name != "LOCK") {
        Some(name) => Err(Error::NotEmpty { path: dir.join(name) }),
        None => Ok(()),
    }
}

fn start_of(payload: &[u8]) -> Option<(u64, u64)> {
    let mut reader = Reader(payload);
    let start = (reader.u64()?, reader.u64()?);
    (reader.is_empty() && (1..=LSN_MAX).contains(&start.0)).then_some(start)
}

/// A key behind its length in four bytes.
fn key_of<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len = reader.u32()?;
    reader.bytes(len as usize).filter(|key| key.len() <= KEY_BYTES_MAX)
}

struct Restoring {
    generations: GenerationFiles,
    segments: Segments,
    log: Log,
    /// Where the pieces of large values are, by their number.
    pieces: Vec<Place>,
    /// Those of the leaf that comes next, and what they are coded with.
    parts: Vec<Part>,
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
                self.pieces.push(self.segments.append(payload, Purpose::New)?);
                Ok(Ok(()))
            }
            Kind::Part => self.part(payload),
            Kind::Leaf => self.leaf(payload),
            Kind::Record => self.record(payload),
            Kind::Start | Kind::End => Ok(Err("a frame is out of its order".to_owned())),
        }
    }

    fn generation(&mut self, payload: &[u8]) -> Result<Result<(), String>, Error> {
        let number = Reader(payload.get(12..).unwrap_or_default()).u32().unwrap_or_default();
        if let Err(reason) = generation::from_bytes(payload, number, &Options::default(), None) {
            return Ok(Err(reason));
        }
        if self.head.generations.len() >= GENERATIONS_MAX as usize {
            return Ok(Err(format!("it has more than {GENERATIONS_MAX} generations of dictionaries")));
        }
        self.generations.write_bytes(number, payload)?;
        self.head.generations.push(number);
        Ok(Ok(()))
    }

    fn part(&mut self, payload: &[u8]) -> Result<Result<(), String>, Error> {
        let mut reader = Reader(payload);
        let fields = || Some((key_of(&mut reader)?, reader.u16()?, reader.0));
        let mut fields = fields;
        let Some((low, records, image)) = fields() else {
            return Ok(Err("a part of a leaf has no key".to_owned()));
        };
        let generation = match LeafImage::read(image) {
            Ok(image) if image.landing_records == 0 && image.larges.is_empty() => image.generation,
            Ok(_) => return Ok(Err("a part of a leaf is more than a body".to_owned())),
            Err(reason) => return Ok(Err(reason)),
        };
        // The leaf's own key is that of its first part.
        let is_next = self.before.as_deref().is_none_or(|before| before < low);
        if !is_next || !generation.iter().all(|number| self.head.generations.contains(number)) {
            return Ok(Err("a part of a leaf is out of its order".to_owned()));
        }
        let place = self.segments.append(image, Purpose::New)?;
        self.before = Some(low.to_vec());
        self.parts.push(Part { low: low.to_vec(), place, records });
        self.part_generations.extend(generation);
        Ok(Ok(()))
    }

    fn leaf(&mut self, payload: &[u8]) -> Result<Result<(), String>, Error> {
        let mut reader = Reader(payload);
        let fields = || Some((key_of(&mut reader)?, reader.u8()?, reader.u64()?, reader.0));
        let mut fields = fields;
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
    fn image(&mut self, bytes: &[u8]) -> Result<Result<Place, String>, Error> {
        let mut image = match LeafImage::read(bytes) {
            Ok(image) => image,
            Err(reason) => return Ok(Err(reason)),
        };
        for large in &mut image.larges {
            let place = |numbered: &Place| self.pieces.get(usize::try_from(numbered.segment).ok()?).copied();
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
        Ok(Ok(self.segments.append(&written, Purpose::New)?))
    }

    fn record(&mut self, payload: &[u8]) -> Result<Result<(), String>, Error> {
        let mut reader = Reader(payload);
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
