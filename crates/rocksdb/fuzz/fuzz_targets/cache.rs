//! Opens any bytes as the files of a block cache, with checksums corrected or not. The cache must open or state the
//! reason, return blocks or misses, and continue. Blocks stored afterwards must come back, also after another start.

#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;
use ziptier_media::testing::RecordingDisk;
use ziptier_rocksdb::cache::{Admission, CAPACITY_BYTES_MIN, Cache, Kind, Settings};

const SEGMENT_BYTES: u64 = 1 << 16;
const PAGE_BYTES: usize = 4096;
const DIR: &str = "/cache";

#[derive(Debug, Arbitrary)]
struct Segment {
    slot: u8,
    claimed_slot: Option<u32>,
    claimed_bytes: Option<u64>,
    sequence: u64,
    salt: u64,
    version: Option<u32>,
    is_sealed: bool,
    is_cut: bool,
    entries: Vec<Entry>,
}

#[derive(Debug, Arbitrary)]
struct Entry {
    key: u8,
    kind: [u8; 3],
    packing: u8,
    raw_bytes: u32,
    /// As many as there are, if none.
    packed_bytes: Option<u32>,
    key_bytes: Option<u8>,
    is_sealed: bool,
    packed: Vec<u8>,
}

#[derive(Debug, Arbitrary)]
struct Index {
    is_sealed: bool,
    version: Option<u32>,
    segments: Option<u32>,
    /// The written bytes of each segment.
    written: Vec<u64>,
    /// Table, tag, place.
    entries: Vec<(u8, u32, u64)>,
    /// The number of entries that a table claims to have.
    claim: Option<(u8, u32)>,
    cut: u8,
}

#[derive(Debug, Arbitrary)]
struct Input {
    segments: Vec<Segment>,
    index: Option<Index>,
    other: Vec<(u8, Vec<u8>)>,
}

fn key(number: u8) -> [u8; 16] {
    [number; 16]
}

impl Segment {
    fn laid_out(&self) -> Vec<u8> {
        let mut bytes = b"ziptrblk".to_vec();
        bytes.extend_from_slice(&self.version.unwrap_or(1).to_le_bytes());
        bytes.extend_from_slice(&self.claimed_slot.unwrap_or(self.slot.into()).to_le_bytes());
        bytes.extend_from_slice(&self.claimed_bytes.unwrap_or(SEGMENT_BYTES).to_le_bytes());
        bytes.extend_from_slice(&self.sequence.to_le_bytes());
        bytes.extend_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&bytes) ^ u32::from(!self.is_sealed);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.resize(PAGE_BYTES, 0);
        for entry in &self.entries {
            entry.append(self.salt, &mut bytes);
        }
        if !self.is_cut {
            bytes.resize(SEGMENT_BYTES as usize, 0);
        }
        bytes
    }
}

impl Entry {
    fn append(&self, salt: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(b"zblk\0\0\0\0");
        out.extend_from_slice(&self.packed_bytes.unwrap_or(self.packed.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.raw_bytes.to_le_bytes());
        out.extend_from_slice(&self.kind);
        out.extend_from_slice(&[self.packing % 4, self.key_bytes.unwrap_or(16), 0, 0, 0]);
        out.extend_from_slice(&key(self.key));
        out.extend_from_slice(&self.packed);
        out.resize(out.len().next_multiple_of(16), 0);
        let mut place = salt.to_le_bytes().to_vec();
        place.extend_from_slice(&(start as u64).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&place), &out[start + 8..]) ^ u32::from(!self.is_sealed);
        out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    }
}

impl Index {
    fn laid_out(&self, segments: &[Segment]) -> Vec<u8> {
        let mut bytes = b"ziptridx".to_vec();
        bytes.extend_from_slice(&self.version.unwrap_or(1).to_le_bytes());
        bytes.extend_from_slice(&self.segments.unwrap_or(segments.len() as u32).to_le_bytes());
        let mut order: Vec<&Segment> = segments.iter().collect();
        order.sort_by_key(|segment| segment.sequence);
        for (at, segment) in order.iter().enumerate() {
            let written = self.written.get(at).map_or(SEGMENT_BYTES, |written| written % (2 * SEGMENT_BYTES));
            for field in [segment.slot.into(), segment.sequence, segment.salt, written] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
        }
        for table in 0..64 {
            let entries: Vec<_> = self.entries.iter().filter(|entry| entry.0 % 64 == table).collect();
            let claim = self.claim.filter(|claim| claim.0 % 64 == table).map(|claim| claim.1);
            bytes.extend_from_slice(&claim.unwrap_or(entries.len() as u32).to_le_bytes());
            for (_, tag, place) in entries {
                bytes.extend_from_slice(&tag.to_le_bytes());
                bytes.extend_from_slice(&place.to_le_bytes());
            }
        }
        let crc = crc32c::crc32c(&bytes) ^ u32::from(!self.is_sealed);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.truncate(bytes.len() - usize::from(self.cut).min(bytes.len()));
        bytes
    }
}

fuzz_target!(|input: Input| {
    let disk = RecordingDisk::new();
    let dir = Path::new(DIR);
    for segment in &input.segments {
        disk.put(&dir.join(format!("blocks-{:05}", segment.slot)), segment.laid_out());
    }
    if let Some(index) = &input.index {
        disk.put(&dir.join("index"), index.laid_out(&input.segments));
    }
    for (slot, bytes) in input.other {
        disk.put(&dir.join(format!("blocks-{slot:05}")), bytes);
    }
    let settings = Settings { admission: Admission::All, ..Settings::new(DIR, CAPACITY_BYTES_MIN) };
    let open = || Cache::open_on(Arc::new(disk.clone()), &settings);
    let Ok(cache) = open() else { return };
    for number in 0..=255 {
        cache.get(&key(number), |_, block| assert!(block.len() as u64 <= SEGMENT_BYTES.max(1 << 20) / 2));
    }
    // Enough to use segments again that were found.
    let mut stored = Vec::new();
    for number in 0..8u8 {
        let block = [number; 3000];
        let is_stored = cache.put(&[&key(number)[..], b"new"].concat(), Kind::default(), &block);
        if is_stored {
            stored.push(number);
        }
    }
    let has = |cache: &Cache, number: u8| {
        let found = cache.get(&[&key(number)[..], b"new"].concat(), |_, block| assert_eq!(block, [number; 3000]));
        found.is_some()
    };
    assert!(stored.iter().all(|&number| has(&cache, number)));
    cache.flush();
    assert!(cache.counters().stopped.get() == 0);
    drop(cache);
    let cache = open().expect("it opened before");
    assert!(stored.iter().all(|&number| has(&cache, number)));
});
