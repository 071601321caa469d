//! Reads any bytes as an SSTable. The result must be an error, or as many bytes as the SSTable says.
//!
//! The target corrects checksums, and lays out the file of chunks. Stated lengths may be false.

#![no_main]

use std::fs;
use std::sync::LazyLock;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;
use ziptier_cassandra::Table;

static FOLDER: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a folder for the table"));

const CLASSES: [&str; 7] = [
    "LZ4Compressor",
    "SnappyCompressor",
    "DeflateCompressor",
    "ZstdCompressor",
    "NoopCompressor",
    "QPLCompressor",
    "ZiptierCompressor",
];

#[derive(Debug, Arbitrary)]
struct Input {
    class: u8,
    chunk_log: u8,
    raw_from: u32,
    raw_bytes: Option<u32>,
    chunks: Vec<Vec<u8>>,
    wrong_checksum: bool,
    cut: u8,
    is_old: bool,
}

fn info(input: &Input, offsets: &[u64], chunk_bytes: u32) -> Vec<u8> {
    let class = CLASSES[usize::from(input.class) % CLASSES.len()];
    let raw_bytes = input.raw_bytes.map_or(u64::from(chunk_bytes) * offsets.len() as u64, u64::from);
    let mut info = [&(class.len() as u16).to_be_bytes()[..], class.as_bytes(), &[0; 4]].concat();
    info.extend(chunk_bytes.to_be_bytes());
    if !input.is_old {
        info.extend(input.raw_from.to_be_bytes());
    }
    info.extend(raw_bytes.to_be_bytes());
    info.extend((offsets.len() as u32).to_be_bytes());
    offsets.iter().for_each(|offset| info.extend(offset.to_be_bytes()));
    info.truncate(info.len().saturating_sub(usize::from(input.cut)));
    info
}

fuzz_target!(|input: Input| {
    let (mut data, mut offsets) = (Vec::new(), Vec::new());
    for chunk in &input.chunks {
        offsets.push(data.len() as u64);
        data.extend_from_slice(chunk);
        data.extend((crc32fast::hash(chunk) ^ u32::from(input.wrong_checksum)).to_be_bytes());
    }
    let stem = if input.is_old { "mc-1-big" } else { "nb-1-big" };
    let path = |part: &str| FOLDER.path().join(format!("{stem}-{part}.db"));
    fs::write(path("CompressionInfo"), info(&input, &offsets, 1 << (input.chunk_log % 20)))
        .expect("a full disk");
    fs::write(path("Data"), &data).expect("a full disk");
    let Ok(table) = Table::open(FOLDER.path()) else { return };
    for ss_table in table.ss_tables() {
        let length = ss_table.raw_bytes().min(1 << 22) as usize;
        let mut rows = Vec::new();
        if ss_table.read(0, length, &mut rows).is_ok() {
            assert_eq!(rows.len(), length);
        }
    }
});
