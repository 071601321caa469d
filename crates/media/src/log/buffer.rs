//! Holds appended records that are not yet written, and the progress of writing and syncing.

use super::format::{ENTRY_HEADER_BYTES, EntryHeader, SegmentHeader, VERSION};
use super::segment::{Spare, payload_bytes_max};
use super::{LogError, Lsn};
use crate::disk::DiskError;

/// Bytes for one segment, in the order of their LSNs.
pub(super) struct Chunk {
    /// The segment of this chunk, if it differs from that of the chunk before.
    pub(super) next: Option<(Spare, SegmentHeader)>,
    pub(super) bytes: Vec<u8>,
}

/// The state under the log's one lock.
pub(super) struct Buffer {
    chunks: Vec<Chunk>,
    /// An empty vector with memory, for reuse without an allocation.
    emptied: Vec<u8>,
    pub(super) buffered_bytes: usize,
    /// The segment and the offset of the next record. Until the first segment is begun, this is the last segment of the
    /// opened log, without room.
    segment: SegmentHeader,
    offset: u64,
    /// Of the segments to come.
    next_number: u64,
    salt: u64,
    pub(super) next_lsn: Lsn,
    pub(super) written_lsn: Lsn,
    /// Somebody is writing chunks.
    pub(super) writing: bool,
    /// Somebody is syncing the newest segment.
    pub(super) syncing: bool,
    pub(super) is_sealed: bool,
    /// The first failure of a write or sync.
    pub(super) failure: Option<String>,
    /// The reason why the last record was refused, if it was.
    pub(super) refusal: Option<String>,
    pub(super) records: u64,
    pub(super) syncs: u64,
}

impl Buffer {
    /// Continues behind a segment, in a new one with the number `next_number`.
    pub(super) fn behind(segment: SegmentHeader, next_number: u64, salt: u64, next_lsn: Lsn) -> Buffer {
        Buffer {
            chunks: Vec::new(),
            emptied: Vec::new(),
            buffered_bytes: 0,
            segment,
            offset: segment.segment_bytes,
            next_number,
            salt,
            next_lsn,
            written_lsn: next_lsn - 1,
            writing: false,
            syncing: false,
            is_sealed: false,
            failure: None,
            refusal: None,
            records: 0,
            syncs: 0,
        }
    }

    /// An error if a write or sync has failed.
    pub(super) fn check(&self) -> Result<(), LogError> {
        match &self.failure {
            Some(first) => Err(LogError::Poisoned { first: first.clone() }),
            None => Ok(()),
        }
    }

    /// Remembers the first failure, and returns it as [`LogError::Poisoned`]. The plain error of a full disk would mean
    /// that only a record was refused.
    pub(super) fn poison(&mut self, error: LogError) -> LogError {
        let first = self.failure.get_or_insert_with(|| error.to_string()).clone();
        LogError::Poisoned { first }
    }

    /// As [`Buffer::poison`], but passes a refusal on, because a refusal changes nothing. Any other failure poisons: a
    /// disk that has failed to sync one file may fail on the next.
    pub(super) fn poison_unless_refused<T>(&mut self, outcome: Result<T, LogError>) -> Result<T, LogError> {
        outcome.map_err(|error| match error {
            LogError::Disk(error) if error.is_refusal() => LogError::Disk(error),
            error => self.poison(error),
        })
    }

    /// Remembers the reason why there is no room for a record.
    pub(super) fn note_refusal<T>(&mut self, outcome: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(LogError::Disk(error)) = &outcome {
            self.refusal = Some(error.to_string());
        }
        outcome
    }

    /// As [`Buffer::note_refusal`], for a file that was to hold later records. Only a failed sync puts records in
    /// doubt.
    pub(super) fn note_unmade<T>(&mut self, outcome: Result<T, DiskError>) -> Result<T, LogError> {
        match outcome {
            Err(error) if error.is_of_sync() => Err(self.poison(error.into())),
            outcome => self.note_refusal(outcome.map_err(LogError::from)),
        }
    }

    /// Whether a record may enter the buffer. The length of the record does not matter, so the buffer may exceed its
    /// bound by one record. A long record that waited for an empty buffer might wait for ever while other threads
    /// append. Those threads may in turn wait for the locks of its caller.
    pub(super) fn has_room(&self, bound_bytes: usize) -> bool {
        self.buffered_bytes < bound_bytes
    }

    /// Whether the record fits into the segment.
    pub(super) fn fits_segment(&self, payload_bytes: usize) -> bool {
        payload_bytes_max(self.segment.segment_bytes, self.offset).is_some_and(|max| payload_bytes <= max)
    }

    /// Further records go into the next segment.
    pub(super) fn switch_to(&mut self, spare: Spare) {
        self.segment = SegmentHeader {
            version: VERSION,
            segment_bytes: spare.bytes,
            number: self.next_number,
            salt: self.salt,
            first_lsn: self.next_lsn,
        };
        self.next_number += 1;
        self.offset = super::format::HEADER_BYTES;
        self.chunks.push(Chunk { next: Some((spare, self.segment)), bytes: Vec::new() });
    }

    /// Appends a record that has room and fits.
    pub(super) fn push(
        &mut self,
        parts: &[&[u8]],
        payload_bytes: usize,
        payload_crc: u32,
        durable_lsn: Lsn,
    ) -> Lsn {
        let lsn = self.next_lsn;
        // The number fits: the unsynced part of a segment has fewer records than a segment has bytes.
        let unsynced = u32::try_from(lsn - durable_lsn).unwrap_or(u32::MAX);
        let header = EntryHeader::new(Some(payload_bytes as u32), unsynced, lsn, &self.segment, payload_crc);
        if self.chunks.is_empty() {
            let bytes = std::mem::take(&mut self.emptied);
            self.chunks.push(Chunk { next: None, bytes });
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.bytes.extend_from_slice(&header.encode(&self.segment));
            parts.iter().for_each(|part| chunk.bytes.extend_from_slice(part));
        }
        self.next_lsn += 1;
        self.records += 1;
        self.offset += header.entry_bytes();
        self.buffered_bytes += header.entry_bytes() as usize;
        lsn
    }

    /// The mark of a clean stop, behind the last record.
    pub(super) fn seal_entry(&self) -> [u8; ENTRY_HEADER_BYTES] {
        EntryHeader::new(None, 1, self.next_lsn, &self.segment, 0).encode(&self.segment)
    }

    /// Whether there is nothing to write and no segment to begin.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Everything that is to be written, and its last LSN.
    pub(super) fn take(&mut self) -> (Vec<Chunk>, Lsn) {
        self.buffered_bytes = 0;
        (std::mem::take(&mut self.chunks), self.next_lsn - 1)
    }

    /// Unwritten chunks go before the records that were appended since.
    pub(super) fn put_back(&mut self, mut chunks: Vec<Chunk>) {
        chunks.retain(|chunk| chunk.next.is_some() || !chunk.bytes.is_empty());
        self.buffered_bytes += chunks.iter().map(|chunk| chunk.bytes.len()).sum::<usize>();
        chunks.append(&mut self.chunks);
        self.chunks = chunks;
    }

    /// Keeps the memory of chunks that were written.
    pub(super) fn keep_memory(&mut self, mut chunks: Vec<Chunk>, bound_bytes: usize) {
        if let Some(mut chunk) = chunks.pop()
            && chunk.bytes.capacity() <= bound_bytes
        {
            chunk.bytes.clear();
            self.emptied = chunk.bytes;
        }
    }
}
