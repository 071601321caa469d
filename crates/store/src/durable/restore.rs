//! A folder from the stream of a dump. It has no manifest, and so is no store's, before everything else is durable.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use ziptier_media::disk::Disk;
use ziptier_media::log::{Log, LogOptions};
use ziptier_media::segments::{Place, Purpose, SegmentOptions, Segments};

use super::DurableOptions;
use super::dump::DumpSummary;
use super::generation::{self, GenerationFiles};
use super::image::{LeafImage, StoredLarge};
use super::manifest::{Entry, Manifest};
use super::operation::Operations;
use super::reader::Reader;
use super::recovery::{GENERATIONS_DIR, LOG_DIR, SEGMENTS_DIR};
use super::stream::{Input, Kind};
use crate::Error;
use crate::options::Options;

/// Makes a folder of what [`dump`](crate::dump) wrote; the folder is new or empty.
///
/// # Errors
/// A folder with something in it, a stream that is damaged or ends too early, or the disk's. The folder is then no
/// store's, and may be removed.
pub fn restore(options: &DurableOptions, from: &mut dyn Read) -> Result<DumpSummary, Error> {
    let (disk, dir) = (options.disk(), &options.dir);
    let mut input = Input::begin(from)?;
    for inside in [dir.clone(), dir.join(LOG_DIR), dir.join(SEGMENTS_DIR), dir.join(GENERATIONS_DIR)] {
        refuse_files(&*disk, &inside)?;
    }
    disk.create_dir(dir)?;
    let _lock = disk.lock_dir(dir)?;
    let start = match input.frame()? {
        (Kind::Start, payload) => start_of(payload),
        _ => None,
    };
    let (start_lsn, durable_lsn) = start.ok_or_else(|| input.damaged("it does not begin with its start"))?;
    let segment_options = SegmentOptions { limit_bytes: u64::MAX, ..options.segments };
    let mut restoring = Restoring {
        generations: GenerationFiles::open(disk.clone(), &dir.join(GENERATIONS_DIR))?,
        segments: Segments::open(disk.clone(), &dir.join(SEGMENTS_DIR), segment_options)?,
        log: Log::open(
            disk.clone(),
            &dir.join(LOG_DIR),
            LogOptions { first_lsn: start_lsn, salvage: false, ..options.log },
        )?
        .into_log()?,
        pieces: Vec::new(),
        manifest: Manifest { number: 1, start_lsn, durable_lsn, ..Manifest::default() },
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
    (reader.is_empty() && start.0 > 0).then_some(start)
}

struct Restoring {
    generations: GenerationFiles,
    segments: Segments,
    log: Log,
    /// Where the pieces of large values are, by their number.
    pieces: Vec<Place>,
    manifest: Manifest,
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
        self.generations.write_bytes(number, payload)?;
        self.manifest.generations.push(number);
        Ok(Ok(()))
    }

    fn leaf(&mut self, payload: &[u8]) -> Result<Result<(), String>, Error> {
        let mut reader = Reader(payload);
        let low = reader.u32().and_then(|len| reader.bytes(len as usize));
        let Some(low) = low else { return Ok(Err("a leaf has no key".to_owned())) };
        let mut image = match LeafImage::read(reader.0) {
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
        let is_next = match self.manifest.entries.last() {
            Some(before) => *before.low < *low,
            None => low.is_empty(),
        };
        let knows = |number| self.manifest.generations.contains(&number);
        if !is_next || !image.generations().all(knows) {
            return Ok(Err("a leaf is out of its order".to_owned()));
        }
        let mut written = Vec::new();
        image.write(&mut written);
        let place = self.segments.append(&written, Purpose::New)?;
        self.manifest.entries.push(Entry { low: low.into(), place });
        self.summary.leaves += 1;
        Ok(Ok(()))
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
        self.manifest.generations.sort_unstable();
        self.manifest.generations.dedup();
        self.segments.close()?;
        self.log.seal()?;
        self.manifest.store(&*disk, dir)?;
        Ok(self.summary)
    }
}
