//! Tables as the compressors of Cassandra write them must be read byte for byte, and damage must be named. The tables
//! are made here, as the formats are documented; a test of Cassandra's nodes reads those of a real node.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ziptier_cassandra::{
    CHUNK_BYTES, DICTIONARY_BYTES_MAX, DICTIONARY_BYTES_MAX_6, Dictionary, Estimate, Table, TokenOptions,
    dictionary_option, train,
};
use ziptier_codec::block::Setting;
use ziptier_codec::format::Format;

const CHUNK: usize = 16384;

/// Rows of words, and some noise that no compressor makes smaller.
fn rows(bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(5);
    let mut rows = Vec::new();
    while rows.len() < bytes {
        rows.extend(format!("sensor {} says {:.3}; ", random.u8(..), random.f64()).bytes());
        if random.u32(..400) == 0 {
            rows.extend((0..20_000).map(|_| random.u8(..)));
        }
    }
    rows.truncate(bytes);
    rows
}

fn block(format: Format, raw: &[u8]) -> Vec<u8> {
    let (engine, mut packed) = (Setting::new(format).engine().unwrap(), Vec::new());
    engine.open().unwrap().compress(raw, &mut packed, usize::MAX).unwrap();
    packed
}

fn packed(class: &str, raw: &[u8]) -> Vec<u8> {
    match class {
        "NoopCompressor" => raw.to_vec(),
        "SnappyCompressor" => snap::raw::Encoder::new().compress_vec(raw).unwrap(),
        "LZ4Compressor" => [&(raw.len() as u32).to_le_bytes()[..], &block(Format::Lz4, raw)].concat(),
        "ZstdCompressor" => {
            let mut encoder = zstd::bulk::Compressor::new(3).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.compress(raw).unwrap()
        }
        "DeflateCompressor" => [&[0x78, 0x9C][..], &block(Format::Deflate, raw), &[0; 4]].concat(),
        other => panic!("{other}"),
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

/// Writes an SSTable whose chunks of `raw_from` bytes or more are stored raw; its file of rows.
fn write(folder: &Path, number: u32, class: &str, rows: &[u8], raw_from: usize) -> PathBuf {
    write_with(folder, number, (class, &[]), rows, raw_from, &|chunk| packed(class, chunk))
}

/// As [`write`], with options and a function that packs. The last chunk has no bytes, as after a compaction.
fn write_with(
    folder: &Path,
    number: u32,
    (class, options): (&str, &[(&str, &str)]),
    rows: &[u8],
    raw_from: usize,
    packed: &dyn Fn(&[u8]) -> Vec<u8>,
) -> PathBuf {
    let (mut data, mut offsets) = (Vec::new(), Vec::new());
    for chunk in rows.chunks(CHUNK).chain([&[][..]]) {
        let packed = packed(chunk);
        let mut stored = packed;
        if stored.len() >= raw_from {
            stored = chunk.to_vec();
            stored.resize(chunk.len().max(raw_from), 0);
        }
        offsets.push(data.len() as u64);
        data.extend_from_slice(&stored);
        data.extend(crc32fast::hash(&stored).to_be_bytes());
    }
    let mut info = [text(class), (options.len() as u32).to_be_bytes().to_vec()].concat();
    options.iter().for_each(|(name, value)| info.extend([text(name), text(value)].concat()));
    info.extend((CHUNK as u32).to_be_bytes());
    info.extend((raw_from as u32).to_be_bytes());
    info.extend((rows.len() as u64).to_be_bytes());
    info.extend((offsets.len() as u32).to_be_bytes());
    offsets.iter().for_each(|offset| info.extend(offset.to_be_bytes()));
    let path = folder.join(format!("nb-{number}-big-Data.db"));
    fs::write(&path, data).unwrap();
    fs::write(folder.join(format!("nb-{number}-big-CompressionInfo.db")), info).unwrap();
    path
}

const CLASSES: [&str; 5] =
    ["LZ4Compressor", "SnappyCompressor", "DeflateCompressor", "ZstdCompressor", "NoopCompressor"];

#[test]
fn rows_of_every_compressor_come_back() {
    let rows = rows(300_000);
    let dir = tempfile::tempdir().unwrap();
    for (number, class) in CLASSES.iter().enumerate() {
        let raw_from = if number == 0 { CHUNK } else { i32::MAX as usize };
        write(dir.path(), number as u32, class, &rows, raw_from);
    }
    fs::write(dir.path().join("nb-9-big-Data.db"), &rows).unwrap();
    fs::write(dir.path().join("nb-9-big-CRC.db"), []).unwrap();
    fs::create_dir(dir.path().join("snapshots")).unwrap();
    let table = Table::open(dir.path()).unwrap();
    assert_eq!((table.ss_tables().len(), table.raw_bytes()), (6, 1_800_000));
    for ss_table in table.ss_tables() {
        for (offset, length) in
            [(0, rows.len()), (16_000, 1_000), (16_384, 16_384), (299_990, 99), (300_000, 5)]
        {
            let mut read = Vec::new();
            ss_table.read(offset as u64, length, &mut read).unwrap();
            let end = rows.len().min(offset + length);
            assert!(read == rows[offset..end], "{} from {offset}", ss_table.path().display());
        }
    }
}

/// Versions of BTI, from `da` on, have the bound for raw chunks, though `da` comes before `na`.
#[test]
fn rows_of_a_bti_table_come_back() {
    let rows = rows(100_000);
    let dir = tempfile::tempdir().unwrap();
    let data = write(dir.path(), 1, "LZ4Compressor", &rows, CHUNK);
    for part in ["Data.db", "CompressionInfo.db"] {
        let of_big = data.with_file_name(format!("nb-1-big-{part}"));
        fs::rename(of_big, dir.path().join(format!("da-1-bti-{part}"))).unwrap();
    }
    let (table, mut read) = (Table::open(dir.path()).unwrap(), Vec::new());
    table.ss_tables()[0].read(0, rows.len(), &mut read).unwrap();
    assert!(read == rows);
}

/// A compaction gives `Data.db` its final name long before it writes `CompressionInfo.db`. The packed bytes were taken
/// for rows, and a dictionary was trained on them.
#[test]
fn ss_tables_that_a_node_is_writing_or_has_replaced_are_left_out() {
    let rows = rows(50_000);
    let dir = tempfile::tempdir().unwrap();
    for number in 1..=4 {
        write(dir.path(), number, "LZ4Compressor", &rows, CHUNK);
    }
    let log = dir.path().join("nb_txn_compaction_5a1e4b20-0000-11ef-8000-000000000000.log");
    let record =
        |kind: &str, number: u32| format!("{kind}:[{}/nb-{number}-big-,0,8][1]\n", dir.path().display());
    let records = record("ADD", 3) + &record("REMOVE", 1) + &record("REMOVE", 2);
    let numbers = || {
        let table = Table::open(dir.path()).unwrap();
        let number = |path: &Path| path.file_name().unwrap().to_str().unwrap()[3..4].to_owned();
        table.ss_tables().iter().map(|ss_table| number(ss_table.path())).collect::<String>()
    };
    assert_eq!(numbers(), "1234");
    fs::write(&log, &records).unwrap();
    assert_eq!(numbers(), "124", "the compaction is writing 3");
    fs::write(&log, records + "COMMIT:[,0,0][1]\n").unwrap();
    assert_eq!(numbers(), "34", "the compaction has replaced 1 and 2");
    fs::remove_file(&log).unwrap();

    fs::remove_file(dir.path().join("nb-4-big-CompressionInfo.db")).unwrap();
    assert_eq!(numbers(), "123", "compressed rows without their offsets are on their way out");
    fs::write(dir.path().join("nb-4-big-CRC.db"), []).unwrap();
    assert_eq!(numbers(), "1234", "only an uncompressed SSTable has checksums of its own");
}

/// Cassandra pads a last chunk that is shorter than a raw one and cannot be packed.
#[test]
fn a_padded_last_chunk_has_no_more_rows() {
    const RAW_FROM: usize = 14_895;
    let mut random = fastrand::Rng::with_seed(5);
    let dir = tempfile::tempdir().unwrap();
    for (number, short) in [(1, 0), (2, 1), (3, 70)] {
        let rows: Vec<u8> = (0..CHUNK + RAW_FROM - short).map(|_| random.u8(..)).collect();
        write(dir.path(), number, "LZ4Compressor", &rows, RAW_FROM);
        let (table, mut read) = (Table::open(dir.path()).unwrap(), Vec::new());
        table.ss_tables()[number as usize - 1].read(0, rows.len(), &mut read).unwrap();
        assert!(read == rows, "{short}");
    }
}

/// A table is trained again on what ziptier wrote.
#[test]
fn rows_of_ziptier_come_back() {
    let rows = rows(300_000);
    let texts: Vec<&[u8]> = rows.chunks(4096).collect();
    let dictionary = Arc::new(Dictionary::train(Format::Token, &texts, 40_000, 0).unwrap());
    let option = dictionary_option(&dictionary);
    let engine = Setting::new(Format::Token).with_dictionary(dictionary).engine().unwrap();
    let token = |raw: &[u8]| {
        let mut packed = Vec::new();
        engine.open().unwrap().compress(raw, &mut packed, usize::MAX).unwrap();
        packed
    };
    let dir = tempfile::tempdir().unwrap();
    let never = i32::MAX as usize;
    let class = "ZiptierCompressor";
    for number in [1, 2] {
        let options = [("format", "token"), ("dictionary", option.as_str())];
        write_with(dir.path(), number, (class, &options), &rows, never, &token);
    }
    write_with(dir.path(), 3, (class, &[]), &rows, never, &|raw| packed("DeflateCompressor", raw));
    for (number, format, as_class) in [(4, "lz4", "LZ4Compressor"), (5, "zstd", "ZstdCompressor")] {
        write_with(dir.path(), number, (class, &[("format", format)]), &rows, never, &|raw| {
            packed(as_class, raw)
        });
    }
    let table = Table::open(dir.path()).unwrap();
    assert_eq!(table.ss_tables().len(), 5);
    for ss_table in table.ss_tables() {
        let mut read = Vec::new();
        ss_table.read(0, rows.len(), &mut read).unwrap();
        assert!(read == rows, "{}", ss_table.path().display());
    }
    train(&table, DICTIONARY_BYTES_MAX).unwrap();

    for (options, words) in [
        (&[("format", "lzma")][..], "its format is 'lzma', and deflate, lz4, token and zstd can be read"),
        (&[("format", "token")], "its tokens have no dictionary"),
        (&[("format", "token"), ("dictionary", "?")], "its dictionary of tokens is damaged: "),
        (&[("format", "token"), ("dictionary", &option[4..])], "its dictionary of tokens is damaged: "),
    ] {
        write_with(dir.path(), 6, (class, options), &rows, never, &token);
        let error = Table::open(dir.path()).err().unwrap().to_string();
        assert!(error.contains("nb-6-big-CompressionInfo.db") && error.contains(words), "{error}");
    }
}

#[test]
fn damage_is_named_and_never_given_out() {
    let rows = rows(60_000);
    for class in CLASSES {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), 1, class, &rows, i32::MAX as usize);
        let sound = fs::read(&path).unwrap();
        for at in (0..sound.len()).step_by(499) {
            let mut damaged = sound.clone();
            damaged[at] ^= 1 << (at % 8);
            fs::write(&path, &damaged).unwrap();
            let (table, mut read) = (Table::open(dir.path()).unwrap(), Vec::new());
            let error = table.ss_tables()[0].read(0, rows.len(), &mut read).unwrap_err();
            assert!(error.to_string().contains("nb-1-big-Data.db is damaged at byte"), "{error}");
        }
        fs::write(&path, &sound[..sound.len() / 2]).unwrap();
        let error = Table::open(dir.path()).err().unwrap().to_string();
        assert!(error.contains("the last chunk lies behind the"), "{error}");
    }
}

/// A stranger can make the checksum anew. Then the compressor finds the damage, or gives other bytes of that length.
#[test]
fn damage_behind_a_sound_checksum_has_the_length_of_its_chunk() {
    let rows = rows(CHUNK);
    for class in CLASSES {
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), 1, class, &rows, i32::MAX as usize);
        let mut sound = fs::read(&path).unwrap();
        let empty = sound.split_off(sound.len() - packed(class, &[]).len() - 4);
        let mut refused = 0;
        for at in (0..sound.len() - 4).step_by(41) {
            let mut chunk = sound[..sound.len() - 4].to_vec();
            chunk[at] ^= 1 << (at % 8);
            let checksum = crc32fast::hash(&chunk).to_be_bytes();
            fs::write(&path, [&chunk[..], &checksum, &empty].concat()).unwrap();
            let mut read = Vec::new();
            match Table::open(dir.path()).unwrap().ss_tables()[0].read(0, CHUNK, &mut read) {
                Ok(()) => assert_eq!(read.len(), CHUNK),
                Err(error) => {
                    assert!(
                        error.to_string().contains(&format!("a chunk of {class} cannot be read")),
                        "{error}"
                    );
                    refused += 1;
                }
            }
        }
        assert!(refused > 0 || class == "NoopCompressor", "{class}");
    }
}

#[test]
fn an_unknown_compressor_and_a_missing_folder_are_named() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 1, "LZ4Compressor", &rows(1_000), CHUNK);
    let info = dir.path().join("nb-1-big-CompressionInfo.db");
    let named = [&text("QPLCompressor")[..], &fs::read(&info).unwrap()[15..]].concat();
    fs::write(&info, named).unwrap();
    let error = Table::open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("its compressor is QPLCompressor, and those of LZ4Compressor"), "{error}");
    let error = Table::open(&dir.path().join("none")).err().unwrap().to_string();
    assert!(error.starts_with("cannot read ") && error.contains("/none"), "{error}");
}

#[test]
fn an_estimate_is_near_what_the_compressor_wrote() {
    let rows = rows(2_000_000);
    for (class, name) in
        [("LZ4Compressor", "LZ4"), ("ZstdCompressor", "zstd"), ("DeflateCompressor", "deflate")]
    {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), 1, class, &rows[..1_200_000], i32::MAX as usize);
        write(dir.path(), 2, class, &rows[1_200_000..], i32::MAX as usize);
        let table = Table::open(dir.path()).unwrap();
        for sample_bytes in [500_000, u64::MAX] {
            let estimate = Estimate::of(&table, sample_bytes, |_, _| ()).unwrap();
            assert_eq!(estimate.formats.len() % CHUNK_BYTES.len(), 0);
            let same =
                estimate.formats.iter().find(|f| f.name.contains(name) && f.chunk_bytes == CHUNK).unwrap();
            let ratio = same.bytes as f64 / estimate.bytes as f64;
            // Half of the rows train tokens.
            let off = if sample_bytes == u64::MAX { 0.03 } else { 0.1 };
            assert!((ratio - 1.0).abs() < off, "{class}: {ratio} from {} bytes", estimate.sample_bytes);
        }
    }
    let empty = tempfile::tempdir().unwrap();
    let error =
        Estimate::of(&Table::open(empty.path()).unwrap(), 1 << 20, |_, _| ()).unwrap_err().to_string();
    assert!(
        error.starts_with("looked for SSTables (...-Data.db) in ") && error.contains("found none"),
        "{error}"
    );
}

#[test]
fn a_dictionary_fits_into_the_statement_that_sets_it() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 1, "LZ4Compressor", &rows(2_000_000), CHUNK);
    let table = Table::open(dir.path()).unwrap();
    let [stored, short] = [DICTIONARY_BYTES_MAX, 8_000].map(|bytes_max| {
        let stored = train(&table, bytes_max).unwrap().to_bytes();
        assert!(stored.len() <= bytes_max, "{} bytes", stored.len());
        stored
    });
    assert!(short.len() < stored.len());
    // The option of a table, and in Cassandra 6 the whole statement.
    let characters = |bytes: usize| bytes.div_ceil(3) * 4;
    assert!(
        characters(DICTIONARY_BYTES_MAX) < 1 << 16 && characters(DICTIONARY_BYTES_MAX_6) + 1_000 < 1 << 15
    );
    assert_eq!(Dictionary::from_bytes(&stored).unwrap().format(), Format::Token);
    let estimate = Estimate::of(&table, 1 << 20, |_, _| ()).unwrap();
    assert!(estimate.formats.iter().any(|format| format.name == "ziptier: token"));

    let small = tempfile::tempdir().unwrap();
    write(small.path(), 1, "LZ4Compressor", &rows(1_000), CHUNK);
    let error = train(&Table::open(small.path()).unwrap(), DICTIONARY_BYTES_MAX).err().unwrap().to_string();
    assert!(error.starts_with("the rows of the table give no dictionary: "), "{error}");
}

/// An `ALTER TABLE` sets every option of compression that it does not name back to its default.
#[test]
fn a_statement_keeps_the_options_of_the_newest_ss_table() {
    let rows = rows(100_000);
    let texts: Vec<&[u8]> = rows.chunks(4096).collect();
    let dictionary = Dictionary::train(Format::Token, &texts, 40_000, 0).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let statement = || {
        let options = TokenOptions::of(&Table::open(dir.path()).unwrap());
        let statement = options.statement("shop.orders", &dictionary);
        let end = format!(", 'dictionary': '{}'}};", dictionary_option(&dictionary));
        let begin =
            "ALTER TABLE shop.orders WITH compression = {'class': 'ZiptierCompressor', 'format': 'token', ";
        statement.strip_prefix(begin).and_then(|rest| rest.strip_suffix(&end)).expect(&statement).to_owned()
    };
    assert_eq!(statement(), "'chunk_length_in_kb': 16");

    let write_at = |number, class: (&str, &[(&str, &str)]), raw_from, seconds| {
        let path = write_with(dir.path(), number, class, &rows, raw_from, &<[u8]>::to_vec);
        let written = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
        path
    };
    // A bound of 14,895 bytes is that of a ratio of 1.1. The level is one of zstd.
    write_at(9, ("ZstdCompressor", &[("compression_level", "3")]), 14_895, 2_000);
    assert_eq!(statement(), "'chunk_length_in_kb': 16, 'min_compress_ratio': '1.1'");

    let option = dictionary_option(&dictionary);
    let of_token = [("format", "token"), ("level", "2"), ("dictionary", option.as_str()), ("o'clock", "'")];
    write_at(10, ("ZiptierCompressor", &of_token), i32::MAX as usize, 1_000);
    assert_eq!(statement(), "'chunk_length_in_kb': 16, 'min_compress_ratio': '1.1'");
    let path = write_at(10, ("ZiptierCompressor", &of_token), i32::MAX as usize, 3_000);
    assert_eq!(statement(), "'chunk_length_in_kb': 16, 'level': '2', 'o''clock': ''''");

    let path = path.with_file_name("nb-10-big-CompressionInfo.db");
    let mut info = fs::read(&path).unwrap();
    let at = info.windows(4).position(|four| four == (CHUNK as u32).to_be_bytes()).unwrap();
    info[at..at + 4].copy_from_slice(&(4 * CHUNK as u32).to_be_bytes());
    fs::write(&path, info).unwrap();
    assert_eq!(statement(), "'chunk_length_in_kb': 64, 'level': '2', 'o''clock': ''''");
}
