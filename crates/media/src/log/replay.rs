//! Reads a log from its oldest record to its end, and makes it ready to append behind the end.

use super::buffer::Buffer;
use super::format::{self, ENTRY_HEADER_BYTES, EntryHeader, HEADER_BYTES, SegmentHeader};
use super::reader::{Entry, SegmentReader};
use super::segment::{Live, Segments};
use super::writer::{SegmentFile, Writer};
use super::{Log, LogError, LogOptions, Lsn};
use crate::disk::{Caching, Disk, DiskFile, OpenDir, page_end, read_good_at, write_all_at};
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

/// The remains of unsynced writes at the end of an unsealed log. Replay drops them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The segment file.
    pub path: PathBuf,
    /// The offset in the file at which the log ends.
    pub offset: u64,
    /// Bytes behind the end that are recognizably remains.
    pub bytes: u64,
}

/// A damaged stretch that a salvage skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The segment file, which may be missing.
    pub path: PathBuf,
    /// The offset at which the damage begins.
    pub offset: u64,
    /// Skipped bytes; 0 if the file is missing.
    pub bytes: u64,
    /// The first LSN that is lost, if one is.
    pub first_lsn: Lsn,
    /// The LSN behind the last lost record, as far as known.
    pub next_lsn: Lsn,
    /// The reason.
    pub reason: String,
}

/// A segment file as opening found it.
struct Segment {
    path: PathBuf,
    header: SegmentHeader,
    file_bytes: u64,
    /// The end of its records, if the file still has to be cut there.
    cut_at: Option<u64>,
    /// Whether some part of it could not be read.
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
        let file_bytes = segment.cut_at.unwrap_or(segment.file_bytes);
        Live { number, first_lsn, segment_bytes, file_bytes, is_unread: segment.is_unread }
    }
}

/// An opened log that is being read. Dropping a replay changes nothing.
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
    /// The newest LSN that the caller or a record read so far states as durable.
    durable_lsn: Lsn,
    bytes_done: u64,
    is_sealed: bool,
    torn_tail: Option<TornTail>,
    skipped: Vec<Skipped>,
}

/// The result of reading one step further.
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
            Err(LogError::Damaged { reason, .. }) if self.options.salvage => {
                self.unreadable.push(number);
                return self.fault(path, 0, 0, reason);
            }
            // The program that wrote a segment of another version reads it: a salvage may not set it aside.
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

    /// Damage ends the replay. A salvage takes note of it and continues.
    fn fault(&mut self, path: PathBuf, offset: u64, bytes: u64, reason: String) -> Result<(), LogError> {
        if !self.options.salvage {
            return Err(LogError::Damaged { path, offset, reason });
        }
        let lsn = self.next_lsn;
        self.skipped.push(Skipped { path, offset, bytes, first_lsn: lsn, next_lsn: lsn, reason });
        Ok(())
    }

    /// Skips the records before `lsn`, which the caller has elsewhere. Segments that hold only such records are not
    /// read, unless a crash interrupted the step from one of them to the last one: its end is still to be cut.
    ///
    /// Call it before the first [`Replay::next_record`]. It also declares the records before `lsn` durable, as
    /// [`Replay::expect_durable`] does.
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
        while self.segments.get(self.at + 1).is_some_and(|next| next.header.first_lsn <= lsn)
            && !(self.at + 2 == self.segments.len() && self.segments[self.at].is_uncut())
        {
            self.bytes_done += self.segments[self.at].file_bytes;
            self.go_to_next_segment();
        }
        Ok(())
    }

    /// Declares that all records up to `lsn` were durable. None of them can be in a torn tail, and a log that ends
    /// before `lsn` is damaged.
    ///
    /// Call it before the first [`Replay::next_record`].
    pub fn expect_durable(&mut self, lsn: Lsn) {
        self.durable_lsn = self.durable_lsn.max(lsn);
    }

    /// The next record, or `None` at the end of the log.
    ///
    /// # Errors
    ///
    /// [`LogError::Damaged`] at damage, unless [`LogOptions::salvage`] is set. Another call returns the same error.
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

    /// The header was readable at opening and no longer is.
    fn pass_over_segment(&mut self, path: PathBuf, reason: String) -> Result<Step, LogError> {
        let next_lsn = self.segments.get(self.at + 1).map(|next| next.header.first_lsn);
        self.fault(path, 0, self.segments[self.at].file_bytes, reason)?;
        self.segments[self.at].is_unread = true;
        if let (Some(skipped), Some(next_lsn)) = (self.skipped.last_mut(), next_lsn) {
            skipped.next_lsn = next_lsn;
        }
        self.leave_segment()
    }

    /// All records before the next segment were read. Only a seal may follow.
    fn finish_segment(&mut self) -> Result<Step, LogError> {
        let next_lsn = self.next_lsn;
        let Some(reader) = &mut self.reader else { return Ok(Step::End) };
        let rest = reader.file_bytes.saturating_sub(self.offset);
        let is_seal =
            rest == ENTRY_HEADER_BYTES as u64 && matches!(reader.entry(self.offset, next_lsn)?, Entry::Seal);
        let was_interrupted =
            reader.is_uncut() && self.is_followed_by_an_empty_segment()? && self.has_only_remains_behind()?;
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

    /// Whether a crash interrupted the step to the next segment: the next one is the last and has no records.
    fn is_followed_by_an_empty_segment(&self) -> Result<bool, LogError> {
        let [_, next] = &self.segments[self.at..] else { return Ok(false) };
        let mut reader = match SegmentReader::open(&*self.disk, &next.path) {
            Err(LogError::Damaged { .. }) if self.options.salvage => return Ok(false),
            reader => reader?,
        };
        Ok(next.is_uncut() && matches!(reader.entry(HEADER_BYTES, next.header.first_lsn)?, Entry::Invalid(_)))
    }

    /// Whether no record that was ever durable can stand behind the records that were read. A salvage begins a segment
    /// behind bytes that it cannot read, and these may become readable.
    fn has_only_remains_behind(&mut self) -> Result<bool, LogError> {
        let (offset, next_lsn) = (self.offset, self.next_lsn);
        let Some(reader) = &mut self.reader else { return Ok(false) };
        if matches!(reader.entry(offset, next_lsn)?, Entry::Record(_)) {
            return Ok(false);
        }
        let found = reader.search(offset, next_lsn, Lsn::MAX)?;
        Ok(found.durable_lsn < next_lsn && reader.unreadable(offset, reader.file_bytes).is_none())
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
            // Another seal takes the place of this one.
            segment.cut_at = Some(self.offset);
        } else if segment.file_bytes != end {
            let (path, rest) = (segment.path.clone(), segment.file_bytes - end);
            self.fault(path, end, rest, format!("{rest} bytes follow the seal"))?;
        }
        self.leave_segment()
    }

    /// The next entry is missing: this is the end of the log, a torn tail, or damage.
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
        // A salvage continues at the next entry, or else in the next segment.
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

    /// The LSN behind the last record that was read. At the end of the log, [`Log::append`] hands out this LSN first.
    pub fn next_lsn(&self) -> Lsn {
        self.next_lsn
    }

    /// Whether the folder had no segments.
    pub fn is_new(&self) -> bool {
        self.segments.is_empty()
    }

    /// Whether the log ends with the mark of a clean stop. Known after the last record was read.
    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// The torn tail that was dropped. Known after the last record was read.
    pub fn torn_tail(&self) -> Option<&TornTail> {
        self.torn_tail.as_ref()
    }

    /// The stretches that a salvage has skipped so far.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Bytes of the segments read so far, and of all segments.
    pub fn progress(&self) -> (u64, u64) {
        let read = if self.reader.is_some() { self.offset } else { 0 };
        (self.bytes_done + read, self.segments.iter().map(|segment| segment.file_bytes).sum())
    }

    /// Makes the log ready to append behind the last record, in a new segment. All replayed records are durable on
    /// return.
    ///
    /// If the disk has no room for a new segment, the log refuses appends. The first [`Log::append`] that finds room
    /// begins the segment.
    ///
    /// After a salvage the damaged segments are still there. [`Log::drop_before`] removes them after the next
    /// checkpoint, and sets segments with unreadable parts aside under the name `unread-N`. Without salvage, `into_log`
    /// removes segments that were set aside.
    ///
    /// # Errors
    ///
    /// [`LogError::NotReplayed`] before [`Replay::next_record`] returned `None`; errors of the disk.
    pub fn into_log(mut self) -> Result<Log, LogError> {
        if self.at < self.segments.len() {
            return Err(LogError::NotReplayed);
        }
        self.end()?;
        // A segment may be cut only when its successor is durable. The process that named the successor may have ended
        // before that name was durable.
        let names = self.disk.open_dir(&self.dir)?;
        names.sync_names()?;
        self.end_interrupted_step(&*names)?;
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
                // The next start tries a failed removal again.
                let _ = self.disk.remove(&self.dir.join(name));
            }
        }
        Ok(log)
    }

    /// Cuts the segment before the last one, if a crash interrupted the step to the last one. A disk with copies on
    /// write may refuse the cut. The last segment, which has no records, is then removed, and the log ends in the one
    /// before.
    fn end_interrupted_step(&mut self, names: &dyn OpenDir) -> Result<(), LogError> {
        let [.., before, last] = self.segments.as_slice() else { return Ok(()) };
        let Some(end) = before.cut_at else { return Ok(()) };
        // A salvage keeps what it could not read, and the numbers of files have no gap.
        let may_go = last.cut_at == Some(HEADER_BYTES) && self.unreadable.is_empty();
        match self.disk.open(&before.path, Caching::Cached)?.set_len(end) {
            Err(error) if error.is_refusal() && may_go => {
                self.disk.remove(&last.path)?;
                names.sync_names()?;
                self.segments.pop();
            }
            cut => cut?,
        }
        Ok(())
    }

    /// Makes all replayed records durable. Returns the last segment and its end, if it is still to be finished.
    ///
    /// The records may have come from the system's memory only. An earlier, failed sync may have left them there marked
    /// as durable (Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020). So this function
    /// rewrites all entries that no later record proves durable, and then syncs.
    fn make_durable(&self) -> Result<Option<(SegmentFile, u64)>, LogError> {
        let Some((last, earlier)) = self.segments.split_last() else { return Ok(None) };
        // The cut of the segment before the last may not be durable. Earlier segments were finished durably.
        if let Some(before) = earlier.last() {
            self.disk.open(&before.path, Caching::Cached)?.sync_data()?;
        }
        let file = self.disk.open(&last.path, Caching::Cached)?;
        if let Some(end) = last.cut_at {
            self.write_again(last, &*file, end)?;
        }
        file.sync_data()?;
        Ok(last.cut_at.map(|end| (SegmentFile::new(file, last.path.clone()), end)))
    }

    /// Rewrites, unchanged, the entries of the last segment that are not proved durable.
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
            match read_good_at(file, at, &mut piece[..wanted]) {
                Ok(count) => {
                    write_all_at(file, at, &piece[..count])?;
                    at += count.max(1) as u64;
                }
                // A salvage has skipped this page.
                Err(error) if self.options.salvage && error.unreadable().is_some() => at = page_end(at),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Every segment file, readable or not. An unreadable one is dropped together with its successor.
    fn live(&self) -> VecDeque<Live> {
        let mut live: Vec<Live> = self.segments.iter().map(Live::from).collect();
        for &number in &self.unreadable {
            let at = live.partition_point(|segment| segment.number < number);
            let first_lsn = live.get(at).map_or(self.next_lsn, |next| next.first_lsn);
            let unread = Live { number, first_lsn, segment_bytes: 0, file_bytes: 0, is_unread: true };
            live.insert(at, unread);
        }
        live.into()
    }
}
