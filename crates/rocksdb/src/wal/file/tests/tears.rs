//! Cuts the power at every write of a log, and reads the rest as RocksDB does in `kPointInTimeRecovery`.
//!
//! RocksDB must find a prefix of the appended batches, with all synced ones. Each append holds several batches, as with
//! `manual_wal_flush`, and reaches over several blocks now and then.

use super::*;
use std::collections::BTreeSet;

const NUMBER: u32 = 9;
const HEAD_BYTES: usize = 11;
const FULL: u8 = 5;
const FIRST: u8 = 6;
const MIDDLE: u8 = 7;
const LAST: u8 = 8;

#[derive(Clone)]
enum Step {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
    Sync,
}

/// A file in memory that keeps its writes. The steps before the last sync are durable. A mapped file is durable after
/// each write.
#[derive(Default)]
struct Tearing {
    is_mapped: bool,
    start: Vec<u8>,
    steps: Mutex<Vec<Step>>,
}

impl Tearing {
    fn add(&self, step: Step) {
        self.steps.lock().push(step);
    }

    fn now(&self) -> Vec<u8> {
        let mut bytes = self.start.clone();
        self.steps.lock().iter().for_each(|step| apply(step, &mut bytes));
        bytes
    }
}

impl DiskFile for Tearing {
    fn len(&self) -> Result<u64, DiskError> {
        Ok(self.now().len() as u64)
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<usize, DiskError> {
        unreachable!()
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError> {
        self.add(Step::Write { offset: offset as usize, bytes: bytes.to_vec() });
        Ok(bytes.len())
    }
    fn preallocate(&self, len: u64) -> Result<(), DiskError> {
        self.set_len(self.len()?.max(len))
    }
    fn set_len(&self, len: u64) -> Result<(), DiskError> {
        self.add(Step::SetLen(len as usize));
        Ok(())
    }
    fn sync_data(&self) -> Result<(), DiskError> {
        self.add(Step::Sync);
        Ok(())
    }
    fn is_direct(&self) -> bool {
        false
    }
    fn is_mapped(&self) -> bool {
        self.is_mapped
    }
    fn path(&self) -> &Path {
        unreachable!()
    }
}

fn apply(step: &Step, file: &mut Vec<u8>) {
    match step {
        Step::Write { offset, bytes } => {
            file.resize(file.len().max(offset + bytes.len()), 0);
            file[*offset..offset + bytes.len()].copy_from_slice(bytes);
        }
        Step::SetLen(len) => file.resize(*len, 0),
        Step::Sync => {}
    }
}

/// Batches as RocksDB writes them.
struct Batches {
    number: u32,
    /// Offset in the log.
    at: usize,
    count: u32,
}

impl Batches {
    fn new(number: u32) -> Batches {
        Batches { number, at: 0, count: 0 }
    }

    /// Bytes of a content after which no record fits into the block, if `spare` is short.
    fn content_to_block_end(&self, spare: usize) -> usize {
        (BLOCK_BYTES - self.at % BLOCK_BYTES).saturating_sub(HEAD_BYTES + spare)
    }

    /// The bytes of the next batch, whose content begins with its index.
    fn next(&mut self, content_bytes: usize) -> Vec<u8> {
        let mut content = self.count.to_le_bytes().to_vec();
        content.resize(content_bytes.max(4), 7);
        self.count += 1;
        let (mut left, mut is_first, mut bytes) = (&content[..], true, Vec::new());
        while is_first || !left.is_empty() {
            let mut gap = BLOCK_BYTES - (self.at + bytes.len()) % BLOCK_BYTES;
            if gap < HEAD_BYTES {
                bytes.resize(bytes.len() + gap, 0);
                gap = BLOCK_BYTES;
            }
            let (part, rest) = left.split_at(left.len().min(gap - HEAD_BYTES));
            let kind = [[MIDDLE, LAST], [FIRST, FULL]][usize::from(is_first)][usize::from(rest.is_empty())];
            let checked = [&[kind][..], &self.number.to_le_bytes(), part].concat();
            bytes.extend(check_of(&checked));
            bytes.extend((part.len() as u16).to_le_bytes());
            bytes.extend(checked);
            (left, is_first) = (rest, false);
        }
        self.at += bytes.len();
        bytes
    }
}

fn check_of(checked: &[u8]) -> [u8; 4] {
    crc32c::crc32c(checked).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

/// The indices of the batches that RocksDB's `log::Reader` finds up to the first corruption that it reports. Zeros
/// within a batch are a corruption; other zeros are the end of a block.
fn found_in(file: &[u8]) -> Vec<u32> {
    let (mut found, mut begun) = (Vec::new(), None::<Vec<u8>>);
    for block in file.chunks(BLOCK_BYTES) {
        let mut rest = block;
        while let Some(head) = rest.first_chunk::<7>() {
            let length = usize::from(u16::from_le_bytes([head[4], head[5]]));
            if (length, head[6]) == (0, 0) {
                if begun.is_some() {
                    return found;
                }
                break;
            }
            let Some(record) = rest.get(..HEAD_BYTES + length) else { return found };
            if record[7..HEAD_BYTES] != NUMBER.to_le_bytes() || head[..4] != check_of(&record[6..]) {
                return found;
            }
            let content = &record[HEAD_BYTES..];
            let batch = match (head[6], begun.take()) {
                (FULL, None) => content.to_vec(),
                (LAST, Some(before)) => [&before, content].concat(),
                (FIRST, None) => {
                    begun = Some(content.to_vec());
                    Vec::new()
                }
                (MIDDLE, Some(before)) => {
                    begun = Some([&before, content].concat());
                    Vec::new()
                }
                _ => return found,
            };
            found.extend(batch.first_chunk().map(|index| u32::from_le_bytes(*index)));
            rest = &rest[record.len()..];
        }
    }
    found
}

/// Offsets at which a write is cut: around its ends and the blocks in it, and some others.
fn cuts(offset: usize, count: usize, unit: usize) -> BTreeSet<usize> {
    let end = offset + count;
    let near =
        |at: usize| (0..6).map(move |n| at / unit * unit + n * unit).map(|at| at.saturating_sub(3 * unit));
    let blocks = (offset / BLOCK_BYTES..=end / BLOCK_BYTES).map(|block| block * BLOCK_BYTES);
    let some = (offset / unit * unit..end).step_by(unit * (count / unit / 16).max(1));
    let all = blocks.flat_map(near).chain(near(offset)).chain(near(end)).chain(some);
    all.filter(|at| (offset..end).contains(at)).chain([offset, end]).collect()
}

/// Calls `look` with the images of one write to a file: the bytes before a cut alone, those behind the cut alone, all
/// but one unit, and one unit alone. Bytes that make the file longer have nothing lost before them.
fn tear(file: &[u8], offset: usize, bytes: &[u8], unit: usize, look: &mut impl FnMut(&[u8])) {
    if offset > file.len() {
        return;
    }
    let end = offset + bytes.len();
    let in_room = end.min(file.len()).max(offset);
    for cut in cuts(offset, bytes.len(), unit) {
        let next = (cut / unit * unit + unit).min(end);
        for (from, to, is_there) in
            [(offset, cut, true), (cut, end, true), (cut, next, false), (cut, next, true)]
        {
            let mut image = file.to_vec();
            let write = |image: &mut Vec<u8>, from: usize, to: usize| {
                let bytes = bytes[from - offset..to - offset].to_vec();
                apply(&Step::Write { offset: from, bytes }, image);
            };
            // The room loses any bytes. What makes the file longer is there up to the cut.
            match is_there {
                true => write(&mut image, from.min(in_room), to.min(in_room)),
                false => {
                    write(&mut image, offset, from.min(in_room));
                    write(&mut image, to.min(in_room), in_room);
                }
            }
            look(&image);
            if in_room < end {
                write(&mut image, in_room, cut.max(in_room));
                look(&image);
            }
        }
    }
}

/// A log, and for each number of steps the batches that were durable by then.
struct Run {
    file: Arc<Tearing>,
    durable: Vec<(usize, u32)>,
}

fn run(is_mapped: bool, start: Vec<u8>, seed: u64) -> Run {
    let folder = tempfile::tempdir().unwrap();
    let path = empty(&folder, "000009.log");
    let file = Arc::new(Tearing { is_mapped, start, ..Tearing::default() });
    let (id, length) = live::begin(&path, || Claim::lay(&path, NUMBER)).unwrap();
    let state =
        State { room_bytes: file.start.len() as u64, synced_bytes: 0, synced_appends: 0, direct: None };
    let log = LogFile { file: file.clone(), id, length, state: Mutex::new(state) };
    let (mut batches, mut random) = (Batches::new(NUMBER), fastrand::Rng::with_seed(seed));
    let mut durable = Vec::new();
    for append in 0..60 {
        let (most, longest) = if append % 12 == 11 { (60, 4000) } else { (3, 400) };
        let longest = if append % 24 == 23 { 50_000 } else { longest };
        let bytes: Vec<u8> = (0..random.usize(1..=most.min(120_000 / longest + 1)))
            .flat_map(|_| {
                let to_end = batches.content_to_block_end(random.usize(..HEAD_BYTES + 2));
                let is_to_end = to_end < 2 * longest && random.bool();
                batches.next(if is_to_end { to_end } else { random.usize(4..longest) })
            })
            .collect();
        log.append(&bytes).unwrap();
        if is_mapped {
            durable.push((file.steps.lock().len(), batches.count));
        }
        if append % 20 < 15 {
            log.sync().unwrap();
            durable.push((file.steps.lock().len(), batches.count));
        }
    }
    drop(log);
    let end = durable.last().unwrap().0;
    file.steps.lock().truncate(end);
    Run { file, durable }
}

/// The records of a former log, none shorter than the new ones.
fn former() -> Vec<u8> {
    let mut batches = Batches::new(NUMBER - 1);
    (0..300).flat_map(|n| batches.next(100 + n * 7 % 3000)).collect()
}

fn assert_prefixes(is_mapped: bool, start: Vec<u8>, seed: u64) {
    let Run { file, durable } = run(is_mapped, start, seed);
    let steps = file.steps.lock();
    let (mut base, mut now) = (file.start.clone(), file.start.clone());
    let mut images = 0;
    for (index, step) in steps.iter().enumerate() {
        let wanted = durable.iter().rev().find(|(at, _)| *at <= index).map_or(0, |(_, count)| *count);
        let mut look = |image: &[u8]| {
            let found = found_in(image);
            let is_prefix = found.iter().copied().eq(0..found.len() as u32);
            images += 1;
            assert!(is_prefix, "a hole at step {index}, seed {seed}: {found:?}");
            assert!(found.len() >= wanted as usize, "{} of {wanted} at step {index}", found.len());
        };
        match step {
            Step::Write { offset, bytes } if is_mapped => tear(&now, *offset, bytes, 8, &mut look),
            Step::Write { offset, bytes } => {
                tear(&base, *offset, bytes, 512, &mut look);
                tear(&now, *offset, bytes, 512, &mut look);
            }
            Step::SetLen(_) | Step::Sync => {
                look(&now);
                look(&base);
            }
        }
        apply(step, &mut now);
        if is_mapped || matches!(step, Step::Sync) {
            base.clone_from(&now);
        }
    }
    assert!(images > 1000, "{images} images");
}

#[test]
fn a_power_cut_leaves_a_prefix_in_a_file_with_room() {
    for seed in 0..4 {
        assert_prefixes(false, Vec::new(), seed);
        assert_prefixes(false, former(), seed);
    }
}

#[test]
fn a_power_cut_leaves_a_prefix_in_a_mapped_file() {
    for seed in 0..4 {
        assert_prefixes(true, vec![0; ROOM_BYTES_MIN as usize], seed);
        assert_prefixes(true, former(), seed);
    }
}

#[test]
fn only_a_batch_that_begins_a_block_behind_another_may_leave_a_hole() {
    let mut batches = Batches::new(NUMBER);
    let long = batches.next(100_000);
    assert!(!may_leave_hole(0, &long), "one batch");
    let at = batches.at as u64;
    let to_end = batches.next(batches.content_to_block_end(5));
    let padded_at = batches.at as u64;
    let padded = batches.next(100);
    assert!(!may_leave_hole(padded_at, &padded), "padding alone before it");
    assert!(may_leave_hole(at, &[to_end, padded].concat()));
}
