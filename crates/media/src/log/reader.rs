//! Reads one segment through a window, entry by entry, and looks for entries behind damage. The reader remembers pages
//! that the medium does not return, and takes them for zeros, in which no entry stands.

use super::format::{
    ENTRY_HEADER_BYTES, ENTRY_LSN_AT, EntryHeader, HEADER_BYTES, HeaderFault, SegmentHeader,
};
use super::{LogError, Lsn};
use crate::disk::{Disk, DiskError, DiskFile, page_end, page_start, read_full_at, read_good_at};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 1 << 20;

/// A search for entries may compute checksums over at most this many times the bytes of a segment. In a segment of
/// version 1, a client's bytes may look like the headers of many long records, which would make the search quadratic. A
/// search that reaches the bound has proved nothing.
const SEARCH_BYTES_FACTOR: u64 = 8;

/// The finding at an offset where an entry with a certain LSN was expected.
pub(super) enum Entry {
    Record(EntryHeader),
    Seal,
    /// Neither of them, with the reason.
    Invalid(&'static str),
}

/// The findings of a search behind an invalid entry.
pub(super) struct Found {
    /// The offset of the first valid entry, and its LSN.
    pub(super) first: Option<(u64, Lsn)>,
    /// The end of the last valid entry.
    pub(super) end: u64,
    /// The newest LSN that a valid entry states as durable.
    pub(super) durable_lsn: Lsn,
}

/// One segment file.
pub(super) struct SegmentReader {
    file: Arc<dyn DiskFile>,
    pub(super) header: SegmentHeader,
    pub(super) file_bytes: u64,
    window: Vec<u8>,
    window_start: u64,
    /// Offsets of unreadable pages, each with the reason.
    bad: BTreeMap<u64, String>,
}

impl SegmentReader {
    pub(super) fn open(disk: &dyn Disk, path: &Path) -> Result<SegmentReader, LogError> {
        let of_read = |error| LogError::of_read(error, path, 0);
        let file = disk.open(path, crate::disk::Caching::Cached).map_err(of_read)?;
        let mut bytes = vec![0; HEADER_BYTES as usize];
        let count = read_full_at(&*file, 0, &mut bytes).map_err(of_read)?;
        let header = SegmentHeader::decode(&bytes[..count]).map_err(|fault| match fault {
            HeaderFault::Foreign(reason) => LogError::Foreign { path: path.to_path_buf(), reason },
            HeaderFault::Damaged => LogError::Damaged {
                path: path.to_path_buf(),
                offset: 0,
                reason: "the header of the segment fails its check".to_string(),
            },
        })?;
        let file_bytes = file.len().map_err(of_read)?;
        let (window, bad) = (Vec::new(), BTreeMap::new());
        Ok(SegmentReader { file, header, file_bytes, window, window_start: 0, bad })
    }

    /// Whether some page of the segment could not be read.
    pub(super) fn has_unreadable(&self) -> bool {
        !self.bad.is_empty()
    }

    /// The reason of the first unreadable page from `offset` to `end`, if there is one.
    pub(super) fn unreadable(&self, offset: u64, end: u64) -> Option<String> {
        let (at, reason) = self.bad.range(page_start(offset)..end).next()?;
        Some(format!("from byte {} on {reason}", offset.max(*at)))
    }

    /// Whether the file has its full size. Such a segment was the newest, or the one before, at the last write.
    pub(super) fn is_uncut(&self) -> bool {
        self.file_bytes == self.header.segment_bytes
    }

    /// Reads the entry at `offset`, which should have the LSN `expected`.
    pub(super) fn entry(&mut self, offset: u64, expected: Lsn) -> Result<Entry, DiskError> {
        let Some(header) = self.entry_header(offset)? else {
            return Ok(Entry::Invalid("the file ends before the entry"));
        };
        if header.lsn != expected {
            return Ok(Entry::Invalid("no entry with the next number stands there"));
        }
        self.checked(offset, header)
    }

    /// The next offset, in this window or at its end, where an entry with an LSN from `lowest` to `highest` may stand.
    fn skip_to_number(&mut self, at: u64, lowest: Lsn, highest: Lsn) -> Result<u64, DiskError> {
        if self.bytes(at, ENTRY_HEADER_BYTES)?.is_none() {
            return Ok(at);
        }
        let numbers = &self.window[(at - self.window_start) as usize + ENTRY_LSN_AT..];
        let mask = self.header.lsn_mask();
        let is_number = |bytes: &[u8]| {
            let is_likely = |bytes| (lowest..=highest).contains(&(u64::from_le_bytes(bytes) ^ mask));
            bytes.first_chunk().is_some_and(|bytes| is_likely(*bytes))
        };
        // The next window begins a little before the end of this one.
        let last = self.window.len() as u64 + self.window_start - ENTRY_HEADER_BYTES as u64;
        Ok(numbers
            .windows(8)
            .position(is_number)
            .map_or(last, |skipped| at + skipped as u64)
            .clamp(at, last.max(at)))
    }

    fn checked(&mut self, offset: u64, header: EntryHeader) -> Result<Entry, DiskError> {
        let Some(payload) = self.bytes(offset + ENTRY_HEADER_BYTES as u64, header.payload_bytes())? else {
            return Ok(Entry::Invalid("the length of the entry leads beyond the end of the file"));
        };
        let payload_crc = crc32c::crc32c(payload);
        if header.checksum(&self.header, payload_crc) != header.crc {
            return Ok(Entry::Invalid("the entry fails its check"));
        }
        Ok(if header.length.is_some() { Entry::Record(header) } else { Entry::Seal })
    }

    /// The payload of a record that [`SegmentReader::entry`] has just found at `offset`.
    pub(super) fn payload(&mut self, offset: u64, header: &EntryHeader) -> Result<&[u8], DiskError> {
        Ok(self.bytes(offset + ENTRY_HEADER_BYTES as u64, header.payload_bytes())?.unwrap_or_default())
    }

    /// Looks for entries behind an invalid one at `offset`, with LSNs from `expected` to before `limit`.
    pub(super) fn search(&mut self, offset: u64, expected: Lsn, limit: Lsn) -> Result<Found, DiskError> {
        let mut found = Found { first: None, end: offset, durable_lsn: 0 };
        let mut budget = SEARCH_BYTES_FACTOR * self.file_bytes;
        let (mut at, mut lowest) = (offset + 1, expected);
        let limit = limit.min(expected.saturating_add(self.file_bytes / ENTRY_HEADER_BYTES as u64));
        loop {
            at = self.skip_to_number(at, lowest, limit)?;
            let Some(header) = self.entry_header(at)? else { break };
            // Between the two offsets lie at most as many records as headers fit there.
            let highest = expected.saturating_add((at - offset) / ENTRY_HEADER_BYTES as u64 + 1).min(limit);
            let is_plausible = (lowest..=highest).contains(&header.lsn)
                && header.unsynced > 0
                && header.entry_bytes() <= self.file_bytes - at;
            if is_plausible {
                let Some(rest) = budget.checked_sub(header.entry_bytes()) else { break };
                budget = rest;
                if !matches!(self.checked(at, header)?, Entry::Invalid(_)) {
                    found.first.get_or_insert((at, header.lsn));
                    found.durable_lsn = found.durable_lsn.max(header.durable_lsn());
                    at += header.entry_bytes();
                    found.end = at;
                    lowest = header.lsn + 1;
                    continue;
                }
            }
            at += 1;
        }
        Ok(found)
    }

    /// The header at `offset`, whatever it says.
    pub(super) fn entry_header(&mut self, offset: u64) -> Result<Option<EntryHeader>, DiskError> {
        let segment = self.header;
        let bytes = self.bytes(offset, ENTRY_HEADER_BYTES)?;
        Ok(bytes.and_then(|bytes| bytes.first_chunk()).map(|bytes| EntryHeader::decode(bytes, &segment)))
    }

    /// Reads until the window is full or the file ends, and returns the number of bytes in it.
    fn fill_window(&mut self) -> Result<usize, DiskError> {
        let mut done = 0;
        while done < self.window.len() {
            let at = self.window_start + done as u64;
            match read_good_at(&*self.file, at, &mut self.window[done..]) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) => {
                    let reason = error.unreadable().ok_or(error)?;
                    self.bad.insert(at, reason);
                    let end = self.window.len().min((page_end(at) - self.window_start) as usize);
                    self.window[done..end].fill(0);
                    done = end;
                }
            }
        }
        Ok(done)
    }

    /// Bytes of the file, unless it ends before.
    fn bytes(&mut self, offset: u64, count: usize) -> Result<Option<&[u8]>, DiskError> {
        if offset.checked_add(count as u64).is_none_or(|end| end > self.file_bytes) {
            return Ok(None);
        }
        let is_inside = offset >= self.window_start
            && offset + count as u64 <= self.window_start + self.window.len() as u64;
        if !is_inside {
            let wanted = count.max(WINDOW_BYTES).min((self.file_bytes - offset) as usize);
            self.window.resize(wanted, 0);
            self.window_start = offset;
            let read = self.fill_window()?;
            self.window.truncate(read);
        }
        let start = (offset - self.window_start) as usize;
        Ok(self.window.get(start..start + count))
    }
}
