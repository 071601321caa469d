//! Reads a log from its oldest record to its end, and makes it ready to append behind that.

use super::buffer::Buffer;
use super::format::{self, ENTRY_HEADER_BYTES, EntryHeader, HEADER_BYTES, SegmentHeader};
use super::reader::{Entry, SegmentReader};
use super::segment::{Live, Segments};
use super::writer::{SegmentFile, Writer};
use super::{Log, LogError, LogOptions, Lsn};
use crate::disk::{Caching, Disk, DiskFile, read_full_at, write_all_at};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

/// Bytes that are written again at a time.
const PIECE_BYTES: u64 = 1 << 20;

/// A record as it was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number.
    pub lsn: Lsn,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// The remains of what was never synced, at the end of a log that was not sealed. They were dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The segment file.
    pub path: PathBuf,
    /// Where the log ends in it.
    pub offset: u64,
    /// Bytes behind that which can be told to be remains.
    pub bytes: u64,
}

/// What a salvage passed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The segment file, which may be missing.
    pub path: PathBuf,
    /// Where the damage begins.
    pub offset: u64,
    /// Bytes that were passed over; 0 if the file is missing.
    pub bytes: u64,
    /// The first LSN that is lost, if one is.
    pub first_lsn: Lsn,
    /// The LSN behind the last lost one, as far as it is known.
    pub next_lsn: Lsn,
    /// What was wrong.
    pub reason: String,
}

/// A segment file as it was found.
struct Segment {
    path: PathBuf,
    header: SegmentHeader,
    file_bytes: u64,
    /// Where its records end, if it is still to be cut there.
    cut_at: Option<u64>,
    /// Something of it could not be read.
    is_unread: bool,
}

impl Segment {
    fn is_uncut(&self) -> bool {
        self.file_bytes == self.header.segment_bytes
    }
}

impl From<&Segment> for Live {
    fn from(segment: &Segment) -> Live {
        let SegmentHeader { number, first_lsn, segment_bytes, .. } = segment.header;
        Live { number, first_lsn, segment_bytes, is_unread: segment.is_unread }
    }
}

/// An opened log that is being read. Dropping it leaves everything as it was.
pub struct Replay {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: LogOptions,
    segments: Vec<Segment>,
    /// Numbers of segments whose headers a salvage could not read.
    unreadable: Vec<u64>,
    spare_names: Vec<String>,
    /// Segments that an earlier salvage has set aside.
    unread_names: Vec<String>,
    /// The segment that is being read, and where.
    at: usize,
    reader: Option<SegmentReader>,
    offset: u64,
    next_lsn: Lsn,
    start_lsn: Lsn,
    /// Up to here the caller knows that records were durable, or a record that was read.
    durable_lsn: Lsn,
    bytes_done: u64,
    is_sealed: bool,
    torn_tail: Option<TornTail>,
    skipped: Vec<Skipped>,
}

/// What reading on led to.
enum Step {
    Record(u64, EntryHeader),
    NextSegment,
    End,
}

impl Replay {
    pub(super) fn open(disk: Arc<dyn Disk>, dir: &Path, options: LogOptions) -> Result<Replay, LogError> {
        if !(8 << 10..=1 << 30).contains(&options.segment_bytes) {
            return Err(LogError::SegmentOutOfRange { bytes: options.segment_bytes });
        }
        disk.create_dir(dir)?;
        let (mut numbers, mut spare_names, mut unread_names) = (Vec::new(), Vec::new(), Vec::new());
        for name in disk.list(dir)? {
            if let Some(number) = format::number_of(&name, "log-") {
                numbers.push(number);
            } else if format::number_of(&name, "spare-").is_some() {
                spare_names.push(name);
            } else if format::number_of(&name, "unread-").is_some() {
                unread_names.push(name);
            }
        }
        let mut replay = Replay {
            disk,
            dir: dir.to_path_buf(),
            options,
            segments: Vec::new(),
            unreadable: Vec::new(),
            spare_names,
            unread_names,
            at: 0,
            reader: None,
            offset: HEADER_BYTES,
            next_lsn: options.first_lsn.max(1),
            start_lsn: 0,
            durable_lsn: 0,
            bytes_done: 0,
            is_sealed: false,
            torn_tail: None,
            skipped: Vec::new(),
        };
        numbers.into_iter().try_for_each(|number| replay.add_segment(number))?;
        if let Some(first) = replay.segments.first() {
            replay.next_lsn = first.header.first_lsn;
        }
        Ok(replay)
    }

    /// Looks at the header of a segment; numbers ascend.
    fn add_segment(&mut self, number: u64) -> Result<(), LogError> {
        let path = self.dir.join(format::segment_name(number));
        let before = self.segments.last().map(|segment| segment.header);
        let newest = before.map(|before| before.number).max(self.unreadable.last().copied());
        let missing = newest.map_or(number, |newest| newest + 1);
        if missing < number {
            let path = self.dir.join(format::segment_name(missing));
            self.fault(path, 0, 0, "the segment is missing".to_string())?;
        }
        let reader = match SegmentReader::open(&*self.disk, &path) {
            Ok(reader) => reader,
            Err(LogError::Damaged { reason, .. } | LogError::Foreign { reason, .. })
                if self.options.salvage =>
            {
                self.unreadable.push(number);
                return self.fault(path, 0, 0, reason);
            }
            Err(error) => return Err(error),
        };
        let header = reader.header;
        let is_in_order = before.is_none_or(|before| before.first_lsn <= header.first_lsn);
        if header.number != number || !is_in_order || reader.file_bytes > header.segment_bytes {
            self.unreadable.push(number);
            return self.fault(path, 0, reader.file_bytes, "the header belongs to another file".to_string());
        }
        let file_bytes = reader.file_bytes;
        self.segments.push(Segment { path, header, file_bytes, cut_at: None, is_unread: false });
        Ok(())
    }

    /// Damage ends the replay, but a salvage takes note and goes on.
    fn fault(&mut self, path: PathBuf, offset: u64, bytes: u64, reason: String) -> Result<(), LogError> {
        if !self.options.salvage {
            return Err(LogError::Damaged { path, offset, reason });
        }
        let lsn = self.next_lsn;
        self.skipped.push(Skipped { path, offset, bytes, first_lsn: lsn, next_lsn: lsn, reason });
        Ok(())
    }

    /// Leaves out the records before `lsn`, all of which the caller has elsewhere: whole segments of them are not read.
    ///
    /// Call it before the first [`Replay::next_record`]. The records before `lsn` were durable, as
    /// [`Replay::expect_durable`] says.
    ///
    /// # Errors
    ///
    /// [`LogError::Damaged`] if the log begins behind `lsn`.
    pub fn start_at(&mut self, lsn: Lsn) -> Result<(), LogError> {
        let lsn = lsn.max(1);
        if self.first_lsn() > lsn {
            let reason = format!(
                "the log begins at record {}, but records from {lsn} on are needed",
                self.first_lsn()
            );
            let (path, first_lsn) = (self.dir.clone(), self.first_lsn());
            self.fault(path, 0, 0, reason)?;
            if let Some(skipped) = self.skipped.last_mut() {
                (skipped.first_lsn, skipped.next_lsn) = (lsn, first_lsn);
            }
        }
        self.start_lsn = lsn;
        self.expect_durable(lsn - 1);
        while self.segments.get(self.at + 1).is_some_and(|next| next.header.first_lsn <= lsn) {
            self.bytes_done += self.segments[self.at].file_bytes;
            self.go_to_next_segment();
        }
        Ok(())
    }

    /// Tells that all records up to `lsn` were durable: none of them is in a torn tail, and a log that ends before is
    /// damaged.
    ///
    /// Call it before the first [`Replay::next_record`].
    pub fn expect_durable(&mut self, lsn: Lsn) {
        self.durable_lsn = self.durable_lsn.max(lsn);
    }

    /// The next record, or `None` at the end of the log.
    ///
    /// # Errors
    ///
    /// [`LogError::Damaged`] at damage, unless [`LogOptions::salvage`] is set; the same again if it is called again.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, LogError> {
        let (offset, header) = loop {
            match self.step()? {
                Step::Record(offset, header) if header.lsn >= self.start_lsn => break (offset, header),
                Step::Record(..) | Step::NextSegment => {}
                Step::End => return Ok(None),
            }
        };
        match &mut self.reader {
            Some(reader) => Ok(Some(Record { lsn: header.lsn, payload: reader.payload(offset, &header)? })),
            None => Ok(None),
        }
    }

    fn step(&mut self) -> Result<Step, LogError> {
        let Some(segment) = self.segments.get(self.at) else {
            return self.end();
        };
        if self.reader.is_none() {
            match SegmentReader::open(&*self.disk, &segment.path) {
                Err(LogError::Damaged { path, reason, .. }) => return self.pass_over_segment(path, reason),
                reader => self.reader = Some(reader?),
            }
        }
        if self.segments.get(self.at + 1).is_some_and(|next| next.header.first_lsn <= self.next_lsn) {
            return self.finish_segment();
        }
        let Some(reader) = &mut self.reader else { return Ok(Step::End) };
        match reader.entry(self.offset, self.next_lsn)? {
            Entry::Record(header) => {
                let offset = self.offset;
                self.offset += header.entry_bytes();
                self.next_lsn += 1;
                self.durable_lsn = self.durable_lsn.max(header.durable_lsn());
                Ok(Step::Record(offset, header))
            }
            Entry::Seal => self.finish_sealed(),
            Entry::Invalid(reason) => self.finish_invalid(reason),
        }
    }

    /// The header, which was read when the log was opened, cannot be read again.
    fn pass_over_segment(&mut self, path: PathBuf, reason: String) -> Result<Step, LogError> {
        let next_lsn = self.segments.get(self.at + 1).map(|next| next.header.first_lsn);
        self.fault(path, 0, self.segments[self.at].file_bytes, reason)?;
        self.segments[self.at].is_unread = true;
        if let (Some(skipped), Some(next_lsn)) = (self.skipped.last_mut(), next_lsn) {
            skipped.next_lsn = next_lsn;
        }
        self.leave_segment()
    }

    /// All records before the next segment were read: nothing but a seal may follow.
    fn finish_segment(&mut self) -> Result<Step, LogError> {
        let next_lsn = self.next_lsn;
        let Some(reader) = &mut self.reader else { return Ok(Step::End) };
        let rest = reader.file_bytes.saturating_sub(self.offset);
        let is_seal =
            rest == ENTRY_HEADER_BYTES as u64 && matches!(reader.entry(self.offset, next_lsn)?, Entry::Seal);
        let was_interrupted = reader.is_uncut() && self.is_followed_by_an_empty_segment()?;
        let segment = &mut self.segments[self.at];
        if was_interrupted {
            segment.cut_at = Some(self.offset);
        } else if rest > 0 && !is_seal {
            let (path, offset) = (segment.path.clone(), self.offset);
            let unreadable = self.reader.as_ref().and_then(|reader| reader.unreadable(offset, offset + rest));
            let follows = || format!("{rest} bytes follow the last record of the segment");
            self.fault(path, offset, rest, unreadable.unwrap_or_else(follows))?;
        }
        self.leave_segment()
    }

    /// Whether going to the next segment was interrupted: that one is the last, and has nothing yet.
    fn is_followed_by_an_empty_segment(&self) -> Result<bool, LogError> {
        let [_, next] = &self.segments[self.at..] else { return Ok(false) };
        let mut reader = match SegmentReader::open(&*self.disk, &next.path) {
            Err(LogError::Damaged { .. }) if self.options.salvage => return Ok(false),
            reader => reader?,
        };
        Ok(next.is_uncut() && matches!(reader.entry(HEADER_BYTES, next.header.first_lsn)?, Entry::Invalid(_)))
    }

    /// A seal stands behind the last record of the last segment.
    fn finish_sealed(&mut self) -> Result<Step, LogError> {
        let end = self.offset + ENTRY_HEADER_BYTES as u64;
        if self.at + 1 < self.segments.len() {
            return self.finish_invalid("a seal stands where more records should follow");
        }
        self.is_sealed = true;
        let segment = &mut self.segments[self.at];
        if segment.is_uncut() {
            segment.cut_at = Some(end);
        } else if segment.file_bytes != end {
            let (path, rest) = (segment.path.clone(), segment.file_bytes - end);
            self.fault(path, end, rest, format!("{rest} bytes follow the seal"))?;
        }
        self.leave_segment()
    }

    /// No entry stands where the next should: the end of the log, a torn tail, or damage.
    fn finish_invalid(&mut self, reason: &'static str) -> Result<Step, LogError> {
        let next = self.segments.get(self.at + 1).map(|next| next.header.first_lsn);
        let (offset, next_lsn) = (self.offset, self.next_lsn);
        let Some(reader) = &mut self.reader else { return Ok(Step::End) };
        let found = reader.search(offset, next_lsn, next.unwrap_or(Lsn::MAX))?;
        let is_cut = !reader.is_uncut();
        let torn_header = reader.entry_header(offset)?.filter(|header| header.lsn == next_lsn);
        let file_bytes = reader.file_bytes;
        let is_whole = reader.unreadable(offset, file_bytes).is_none();
        let behind = next.unwrap_or(next_lsn.max(self.durable_lsn.saturating_add(1)));
        let (to, lsn) = found.first.unwrap_or((file_bytes, behind));
        let unreadable = reader.unreadable(offset, to);
        let path = self.segments[self.at].path.clone();
        let durable_lsn = found.durable_lsn.max(self.durable_lsn);
        let is_tail = next.is_none() && !is_cut && is_whole && durable_lsn < next_lsn;
        if is_tail {
            let torn_end = torn_header.map_or(offset, |header| offset.saturating_add(header.entry_bytes()));
            let end = torn_end.max(found.end).min(file_bytes);
            if end > offset {
                self.torn_tail = Some(TornTail { path, offset, bytes: end - offset });
            }
            self.segments[self.at].cut_at = Some(offset);
            return self.leave_segment();
        }
        // In a salvage, go on at the next entry, or else in the next segment.
        let reason = match (&unreadable, next) {
            (Some(unreadable), _) => unreadable,
            _ if !is_cut || offset < file_bytes => reason,
            (_, None) => "the log was finished here, but neither a seal nor another segment follows",
            (_, Some(_)) => "records are missing between this segment and the next",
        };
        self.fault(path, offset, to.saturating_sub(offset), format!("{reason} (record {next_lsn})"))?;
        if let Some(skipped) = self.skipped.last_mut() {
            skipped.next_lsn = lsn;
        }
        (self.offset, self.next_lsn) = (to, lsn);
        match found.first {
            Some(_) => Ok(Step::NextSegment),
            None => self.leave_segment(),
        }
    }

    fn go_to_next_segment(&mut self) {
        self.at += 1;
        self.reader = None;
        self.offset = HEADER_BYTES;
        if let Some(segment) = self.segments.get(self.at) {
            self.next_lsn = segment.header.first_lsn;
        }
    }

    fn leave_segment(&mut self) -> Result<Step, LogError> {
        let segment = &mut self.segments[self.at];
        segment.is_unread |= self.reader.as_ref().is_some_and(SegmentReader::has_unreadable);
        self.bytes_done += segment.file_bytes;
        self.go_to_next_segment();
        Ok(Step::NextSegment)
    }

    /// The last segment was read.
    fn end(&mut self) -> Result<Step, LogError> {
        let (ends, durable_lsn) = (self.next_lsn, self.durable_lsn);
        if ends <= durable_lsn {
            let reason = format!("the log ends before record {ends}, but was durable up to {durable_lsn}");
            self.fault(self.dir.clone(), 0, 0, reason)?;
            self.next_lsn = durable_lsn.saturating_add(1);
            if let Some(skipped) = self.skipped.last_mut() {
                skipped.next_lsn = self.next_lsn;
            }
        }
        Ok(Step::End)
    }

    /// The LSN of the oldest record that the log has, or of the first that will be appended to an empty one.
    pub fn first_lsn(&self) -> Lsn {
        self.segments.first().map_or(self.next_lsn, |segment| segment.header.first_lsn)
    }

    /// The LSN behind the last record that was read; at the end, the first that [`Log::append`] will hand out.
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// Whether the folder had no segments.
    pub fn is_new(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether the log ends with the mark of a clean stop; known at its end.
    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// What was dropped at the end of the log; known there.
    pub fn torn_tail(&self) -> Option<&TornTail> {
        self.torn_tail.as_ref()
    }

    /// What a salvage has passed over so far.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Bytes of segments that were read, and of all segments.
    pub fn progress(&self) -> (u64, u64) {
        let read = if self.reader.is_some() { self.offset } else { 0 };
        (self.bytes_done + read, self.segments.iter().map(|segment| segment.file_bytes).sum())
    }

    /// Makes the log ready to append behind the last record, in a new segment. Everything that was replayed is durable
    /// then.
    ///
    /// Where there is no room for a new segment, the first [`Log::append`] that finds some begins it; until then
    /// appends are refused.
    ///
    /// After a salvage the damaged segments are still there; [`Log::drop_before`] the checkpoint that follows removes
    /// them, but for those of which something cannot be read: these it sets aside, under the name `unread-N`. Without
    /// salvage this removes what was set aside.
    ///
    /// # Errors
    ///
    /// [`LogError::NotReplayed`] before [`Replay::next_record`] said `None`; those of the disk.
    pub fn into_log(mut self) -> Result<Log, LogError> {
        if self.at < self.segments.len() {
            return Err(LogError::NotReplayed);
        }
        self.end()?;
        // A segment is cut behind a successor that is durable, and whoever named that may have ended before its name
        // was.
        let names = self.disk.open_dir(&self.dir)?;
        names.sync_names()?;
        let (live, salt) = (self.live(), RandomState::new().hash_one(self.next_lsn));
        let next_number = live.back().map_or(1, |newest| newest.number + 1);
        let last = self.make_durable()?;
        let ends_in = self.segments.last().map_or(SegmentHeader::none(self.next_lsn), |last| last.header);
        let segment_bytes = self.options.segment_bytes;
        let segments =
            Segments::new(self.disk.clone(), &self.dir, names, segment_bytes, live, &self.spare_names);
        let log = Log {
            segments,
            buffer: Mutex::new(Buffer::behind(ends_in, next_number, salt, self.next_lsn)),
            durable_lsn: AtomicU64::new(self.next_lsn - 1),
            waiting_bytes: AtomicUsize::new(0),
            changed: Condvar::new(),
            writer: Mutex::new(Writer::behind(last)),
            buffer_bytes: self.options.buffer_bytes,
        };
        log.begin_segment()?;
        if !self.options.salvage {
            for name in &self.unread_names {
                // What does not go now is tried again at the next start.
                let _ = self.disk.remove(&self.dir.join(name));
            }
        }
        Ok(log)
    }

    /// Makes everything that was replayed durable. The last segment and where it ends, if it is still to be finished.
    ///
    /// What was read may have been in the system's memory only, and a sync that has failed before may have left it
    /// there as if it were durable (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020). So what
    /// no later record proves to be durable is written again, and then synced.
    fn make_durable(&self) -> Result<Option<(SegmentFile, u64)>, LogError> {
        let Some((last, earlier)) = self.segments.split_last() else { return Ok(None) };
        // The one before the last may have been cut by a process that ended before the cut was durable; those before
        // that are long finished.
        for (behind, segment) in earlier.iter().rev().enumerate() {
            if segment.cut_at.is_some() || behind == 0 {
                let file = self.disk.open(&segment.path, Caching::Cached)?;
                segment.cut_at.map_or(Ok(()), |offset| file.set_len(offset))?;
                file.sync_data()?;
            }
        }
        let file = self.disk.open(&last.path, Caching::Cached)?;
        if let Some(end) = last.cut_at {
            self.write_again(last, &*file, end)?;
        }
        file.sync_data()?;
        Ok(last.cut_at.map(|end| (SegmentFile::new(file, last.path.clone()), end)))
    }

    /// Writes the entries of the last segment that are not proved to be durable again as they are.
    fn write_again(&self, segment: &Segment, file: &dyn DiskFile, end: u64) -> Result<(), LogError> {
        let mut reader = SegmentReader::open(&*self.disk, &segment.path)?;
        let mut at = HEADER_BYTES;
        while at < end {
            match reader.entry_header(at)? {
                Some(header) if header.lsn <= self.durable_lsn => at += header.entry_bytes(),
                _ => break,
            }
        }
        let mut piece = vec![0; end.saturating_sub(at).min(PIECE_BYTES) as usize];
        while at < end {
            let wanted = piece.len().min((end - at) as usize);
            let count = read_full_at(file, at, &mut piece[..wanted])?;
            write_all_at(file, at, &piece[..count])?;
            at += count.max(1) as u64;
        }
        Ok(())
    }

    /// Every segment file, readable or not; one that is not goes with its successor.
    fn live(&self) -> VecDeque<Live> {
        let mut live: Vec<Live> = self.segments.iter().map(Live::from).collect();
        for &number in &self.unreadable {
            let at = live.partition_point(|segment| segment.number < number);
            let first_lsn = live.get(at).map_or(self.next_lsn, |next| next.first_lsn);
            live.insert(at, Live { number, first_lsn, segment_bytes: 0, is_unread: true });
        }
        live.into()
    }
}
