use super::*;
use std::convert::Infallible;

const NUMBER: u32 = 0x0102_0304;

/// Writes a log as RocksDB does.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    is_numbered: bool,
    /// The ends of batches, and of records that are no batches.
    ends: Vec<u64>,
}

impl Writer {
    fn new(is_numbered: bool) -> Writer {
        Writer { is_numbered, ..Writer::default() }
    }

    fn head_bytes(&self) -> usize {
        if self.is_numbered { NUMBERED_HEAD_BYTES } else { HEAD_BYTES }
    }

    fn gap(&self) -> usize {
        gap_at(self.bytes.len() as u64)
    }

    fn pad_if_below(&mut self, bytes: usize) {
        if self.gap() < bytes {
            self.bytes.extend(vec![0; self.gap()]);
        }
    }

    fn put(&mut self, kind: u8, number: u32, content: &[u8]) {
        let mut checked = vec![kind];
        if head_bytes(kind) == NUMBERED_HEAD_BYTES {
            checked.extend(number.to_le_bytes());
        }
        checked.extend(content);
        self.bytes.extend(masked(crc32c::crc32c(&checked)).to_le_bytes());
        self.bytes.extend((content.len() as u16).to_le_bytes());
        self.bytes.extend(checked);
    }

    fn batch(&mut self, number: u32, mut content: &[u8]) {
        let mut is_first = true;
        loop {
            self.pad_if_below(self.head_bytes());
            let (fragment, left) = content.split_at(content.len().min(self.gap() - self.head_bytes()));
            let kind = match (is_first, left.is_empty()) {
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => 3,
                (false, true) => 4,
            };
            self.put(kind + if self.is_numbered { 4 } else { 0 }, number, fragment);
            (content, is_first) = (left, false);
            if content.is_empty() {
                break;
            }
        }
        self.ends.push(self.bytes.len() as u64);
    }

    fn timestamps(&mut self, number: u32, content: &[u8]) {
        self.pad_if_below(self.head_bytes() + content.len());
        self.put(if self.is_numbered { 11 } else { 10 }, number, content);
        self.ends.push(self.bytes.len() as u64);
    }
}

fn advance(walk: &mut Walk, bytes: &[u8]) -> u64 {
    let read = |offset: u64, target: &mut [u8]| {
        let left = bytes.get(offset as usize..).unwrap_or_default();
        let count = left.len().min(target.len());
        target[..count].copy_from_slice(&left[..count]);
        Ok::<_, Infallible>(count)
    };
    walk.advance(read).unwrap()
}

fn random_log(random: &mut fastrand::Rng, is_numbered: bool) -> Writer {
    let mut log = Writer::new(is_numbered);
    for n in 0..300 {
        let longest = if n % 40 == 0 { 100_000 } else { 900 };
        let mut content = vec![0; random.usize(1..longest)];
        random.fill(&mut content);
        match random.u8(..) {
            0..20 => log.timestamps(NUMBER, &content[..content.len().min(500)]),
            // Batches that leave each gap at the end of a block.
            20..60 if log.gap() > 2 * log.head_bytes() + 12 => {
                let count = log.gap() - log.head_bytes() - random.usize(0..12);
                log.batch(NUMBER, &vec![7; count]);
            }
            _ => log.batch(NUMBER, &content),
        }
    }
    log
}

#[test]
fn a_log_that_grows_byte_by_byte_is_seen_batch_by_batch_before_zeros_and_before_a_former_log() {
    let mut random = fastrand::Rng::with_seed(1);
    for is_numbered in [false, true] {
        let log = random_log(&mut random, is_numbered);
        let mut former = vec![0; log.bytes.len() + 70_000];
        if is_numbered {
            let mut other = Writer::new(true);
            while other.bytes.len() < former.len() {
                other.batch(NUMBER - 1, &vec![3; random.usize(1..1000)]);
            }
            former = other.bytes;
        }
        let mut file = former;
        let mut walk = Walk::new(NUMBER);
        let mut written = 0;
        while written < log.bytes.len() {
            let more = (written + random.usize(1..3000)).min(log.bytes.len());
            file[written..more].copy_from_slice(&log.bytes[written..more]);
            written = more;
            let expected = log.ends.iter().rev().find(|end| **end <= written as u64).copied().unwrap_or(0);
            assert_eq!(advance(&mut walk, &file), expected, "{written} bytes, numbered {is_numbered}");
            // A walk from the beginning sees the same, and so does one over a file that ends here.
            if random.u8(..) < 20 {
                assert_eq!(advance(&mut Walk::new(NUMBER), &file), expected);
                assert_eq!(advance(&mut Walk::new(NUMBER), &file[..written]), expected);
            }
        }
        assert_eq!(walk.whole_bytes(), *log.ends.last().unwrap());
    }
}

/// Heads are stored last in a mapped file, those of later blocks before those of earlier ones.
#[test]
fn blocks_that_are_there_before_a_record_in_front_of_them_are_not_reached() {
    for is_numbered in [false, true] {
        let mut log = Writer::new(is_numbered);
        log.batch(NUMBER, &[1; 100]);
        let at = log.bytes.len();
        log.batch(NUMBER, &[2; 3 * BLOCK_BYTES]);
        for zeros in [at..at + 8, at..BLOCK_BYTES, at..BLOCK_BYTES + 8] {
            let mut file = log.bytes.clone();
            file[zeros].fill(0);
            let mut walk = Walk::new(NUMBER);
            assert_eq!(advance(&mut walk, &file), at as u64);
            assert_eq!(advance(&mut walk, &log.bytes), log.bytes.len() as u64);
        }
    }
}

#[test]
fn a_damaged_record_is_the_end() {
    let mut random = fastrand::Rng::with_seed(2);
    for is_numbered in [false, true] {
        let log = random_log(&mut random, is_numbered);
        for _ in 0..300 {
            let at = random.usize(..log.bytes.len());
            let mut file = log.bytes.clone();
            file[at] ^= 1 << random.u8(..8);
            let end = advance(&mut Walk::new(NUMBER), &file);
            let expected = log.ends.iter().rev().find(|end| **end <= at as u64).copied().unwrap_or(0);
            assert_eq!(end, expected, "byte {at}");
        }
    }
}

#[test]
fn the_record_that_names_the_compression_comes_first_or_not_at_all() {
    let mut log = Writer::new(true);
    log.put(kind::COMPRESSION, 0, &[7, 0, 0, 0]);
    let named = log.bytes.len() as u64;
    log.batch(NUMBER, b"batch");
    let end = log.bytes.len() as u64;
    log.put(kind::COMPRESSION, 0, &[7, 0, 0, 0]);
    assert_eq!(advance(&mut Walk::new(NUMBER), &log.bytes), end);
    assert_eq!(advance(&mut Walk::new(NUMBER + 1), &log.bytes), named);
    // Records of the other kind are what was in the file before.
    let mut log = Writer::new(true);
    log.batch(NUMBER, b"batch");
    let end = log.bytes.len() as u64;
    log.put(1, 0, b"batch");
    assert_eq!(advance(&mut Walk::new(NUMBER), &log.bytes), end);
}

/// The check is RocksDB's.
#[test]
fn a_record_has_the_bytes_that_rocksdb_writes() {
    let mut log = Writer::new(false);
    log.put(1, 0, b"foo");
    assert_eq!(log.bytes[4..], [3, 0, 1, b'f', b'o', b'o']);
    assert_eq!(masked(0), 0xa282_ead8);
}
