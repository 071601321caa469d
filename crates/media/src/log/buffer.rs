//! What was appended and not yet written, and how far writing and syncing have come.

use super::format::{ENTRY_HEADER_BYTES, EntryHeader, SegmentHeader, VERSION};
use super::segment::{Spare, payload_bytes_max};
use super::{LogError, Lsn};
use crate::disk::DiskError;

/// Bytes for one segment, in the order of their LSNs.
pub(super) struct Chunk {
    /// The segment to go on in, if it is not the one of the chunk before.
    pub(super) next: Option<(Spare, SegmentHeader)>,
    pub(super) bytes: Vec<u8>,
}

/// The state under the log's one lock.
pub(super) struct Buffer {
    chunks: Vec<Chunk>,
    /// An emptied vector, to be filled again without asking the allocator.
    emptied: Vec<u8>,
    pub(super) buffered_bytes: usize,
    /// The segment that the next record goes into, and where. Until the first was begun it is that which the log ended
    /// in, and has no room.
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
    /// Why the last record was refused, if it was.
    pub(super) refusal: Option<String>,
    pub(super) records: u64,
    pub(super) syncs: u64,
}

impl Buffer {
    /// Goes on behind a segment, in one with the number `next_number`.
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

    /// Remembers the first failure, and tells it as one after which nothing is known: a full disk alone says that a
    /// record was refused.
    pub(super) fn poison(&mut self, error: LogError) -> LogError {
        let first = self.failure.get_or_insert_with(|| error.to_string()).clone();
        LogError::Poisoned { first }
    }

    /// The same where a refusal leaves nothing in doubt. Any other failure does: of a disk that has failed to sync one
    /// file, nobody knows what it does to the next.
    pub(super) fn poison_unless_refused<T>(&mut self, outcome: Result<T, LogError>) -> Result<T, LogError> {
        outcome.map_err(|error| match error {
            LogError::Disk(error) if error.is_refusal() => LogError::Disk(error),
            error => self.poison(error),
        })
    }

    /// Remembers why there is no room for a record.
    pub(super) fn note_refusal<T>(&mut self, outcome: Result<T, LogError>) -> Result<T, LogError> {
        if let Err(LogError::Disk(error)) = &outcome {
            self.refusal = Some(error.to_string());
        }
        outcome
    }

    /// The same for a file that was to be made for records to come: none is in doubt, but for a failed sync.
    pub(super) fn note_unmade<T>(&mut self, outcome: Result<T, DiskError>) -> Result<T, LogError> {
        match outcome {
            Err(error) if error.is_of_sync() => Err(self.poison(error.into())),
            outcome => self.note_refusal(outcome.map_err(LogError::from)),
        }
    }

    /// Whether a record may wait here. Its own length does not matter: a long record that waited for an empty buffer
    /// might wait for ever while others append, and they wait for it under their locks. So the buffer exceeds its bound
    /// by one record at most.
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
        // The part of a segment that is not durable has fewer records than a segment has bytes, so this fits.
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

    /// Whether nothing is to be written, and no segment to be begun.
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Everything that is to be written, and the LSN up to which it goes.
    pub(super) fn take(&mut self) -> (Vec<Chunk>, Lsn) {
        self.buffered_bytes = 0;
        (std::mem::take(&mut self.chunks), self.next_lsn - 1)
    }

    /// What could not be written yet goes before what was appended since.
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
