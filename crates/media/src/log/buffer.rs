//! What was appended and not yet written, and how far writing and syncing have come.

use super::format::{EntryHeader, SegmentHeader};
use super::segment::{Spare, payload_bytes_max};
use super::{LogError, Lsn};

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
    /// The segment that the next record goes into, and where.
    segment: SegmentHeader,
    offset: u64,
    pub(super) next_lsn: Lsn,
    pub(super) written_lsn: Lsn,
    /// Somebody is writing chunks.
    pub(super) writing: bool,
    /// Somebody is syncing the newest segment.
    pub(super) syncing: bool,
    pub(super) is_sealed: bool,
    /// The first failure of a write or sync.
    pub(super) failure: Option<String>,
    pub(super) records: u64,
    pub(super) syncs: u64,
}

impl Buffer {
    /// Goes on at `offset` of a segment, behind records that were all written.
    pub(super) fn new(segment: SegmentHeader, offset: u64, next_lsn: Lsn) -> Buffer {
        Buffer {
            chunks: Vec::new(),
            emptied: Vec::new(),
            buffered_bytes: 0,
            segment,
            offset,
            next_lsn,
            written_lsn: next_lsn - 1,
            writing: false,
            syncing: false,
            is_sealed: false,
            failure: None,
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

    /// Remembers the first failure, and tells it as one after which nothing is known: a full disk alone says that a record was refused.
    pub(super) fn poison(&mut self, error: LogError) -> LogError {
        let first = self.failure.get_or_insert_with(|| error.to_string()).clone();
        LogError::Poisoned { first }
    }

    /// The same for work on files that hold no records yet or any more: there a refusal leaves nothing in doubt. Any other failure does: of a disk
    /// that has failed to sync one file, nobody knows what it does to the next.
    pub(super) fn poison_unless_refused<T>(&mut self, outcome: Result<T, LogError>) -> Result<T, LogError> {
        outcome.map_err(|error| match error {
            LogError::Disk(error) if error.is_refusal() => LogError::Disk(error),
            error => self.poison(error),
        })
    }

    /// Whether the record may wait here; one that is longer than the bound waits for an empty buffer.
    pub(super) fn has_room(&self, payload_bytes: usize, bound_bytes: usize) -> bool {
        self.buffered_bytes == 0 || self.buffered_bytes + payload_bytes <= bound_bytes
    }

    /// Whether the record fits into the segment.
    pub(super) fn fits_segment(&self, payload_bytes: usize) -> bool {
        payload_bytes_max(self.segment.segment_bytes, self.offset).is_some_and(|max| payload_bytes <= max)
    }

    /// Further records go into the next segment.
    pub(super) fn switch_to(&mut self, spare: Spare) {
        self.segment = SegmentHeader {
            segment_bytes: spare.bytes,
            number: self.segment.number + 1,
            salt: self.segment.salt,
            first_lsn: self.next_lsn,
        };
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
            chunk.bytes.extend_from_slice(&header.encode());
            parts.iter().for_each(|part| chunk.bytes.extend_from_slice(part));
        }
        self.next_lsn += 1;
        self.records += 1;
        self.offset += header.entry_bytes();
        self.buffered_bytes += header.entry_bytes() as usize;
        lsn
    }

    /// The mark of a clean stop, behind the last record.
    pub(super) fn seal_entry(&self) -> EntryHeader {
        EntryHeader::new(None, 1, self.next_lsn, &self.segment, 0)
    }

    /// Everything that is to be written, and the LSN up to which it goes.
    pub(super) fn take(&mut self) -> (Vec<Chunk>, Lsn) {
        self.buffered_bytes = 0;
        (std::mem::take(&mut self.chunks), self.next_lsn - 1)
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
