//! `ziptier rocksdb estimate` tells within a tenth what a rewrite gives, and leaves the database as it was.
//!
//! The failure to guard against: a user rewrites a large database for a saving that does not come, or an estimate
//! damages a database that it should only read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

use crate::support::{compiled, complaint, printed, with_plugin, ziptier};

const RECORDS: &str = "12000";

const FORMATS: [(&str, &str); 4] = [
    ("lz4", "compression_manager=nullptr;compression=kLZ4Compression"),
    ("zstd", "compression_manager=nullptr;compression=kZSTD"),
    ("ziptier: token", "compression_manager={id=ziptier;format=token};compression=kCustomCompression80"),
    (
        "ziptier: canned deflate",
        "compression_manager={id=ziptier;format=deflate;huffman=canned};compression=kCustomCompression82",
    ),
];

fn filled(dir: &Path, options: &str) {
    printed(with_plugin(&compiled("database.cc"), &["fill", dir.to_str().unwrap(), options, RECORDS]));
}

fn estimate(dir: &Path, more: &[&str]) -> std::process::Output {
    ziptier().args(["rocksdb", "estimate"]).arg(dir).args(more).output().unwrap()
}

/// Every file of a folder with its bytes.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(dir).unwrap().map(|file| file.unwrap().path());
    paths.map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

fn table_mib(dir: &Path) -> f64 {
    let tables = files(dir).into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "sst"));
    tables.map(|(_, bytes)| bytes.len()).sum::<usize>() as f64 / f64::from(1 << 20)
}

/// The figures of the line that begins with this name.
fn figures(report: &str, name: &str) -> Vec<f64> {
    let line = report.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("  "));
    let line = line.unwrap_or_else(|| panic!("no line of {name}:\n{report}"));
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn is_within(found: f64, wanted: f64, pct: f64) -> bool {
    (found - wanted).abs() <= wanted * pct / 100.0
}

/// Estimates a database, then rewrites it in each format.
fn holds(options: &str, more: &[&str]) {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    filled(dir.path(), options);
    let (before, now_mib) = (files(dir.path()), table_mib(dir.path()));
    let report = printed(estimate(dir.path(), more));
    assert!(files(dir.path()) == before, "the estimate changed the database");
    for (name, rewritten) in FORMATS {
        let [now, then, ratio, compress_ms, read_ms] = figures(&report, name)[..] else { panic!("{report}") };
        filled(dir.path(), &format!("{options};{rewritten}"));
        let is = table_mib(dir.path());
        assert!(is_within(now, now_mib, 1.0) && is_within(ratio, then / now, 2.0), "{now_mib}\n{report}");
        assert!(is_within(then, is, 10.0), "{options}: {name} came to {is} MiB\n{report}");
        assert!(compress_ms > 0.0 && read_ms > 0.0, "{report}");
    }
}

#[test]
fn of_a_database_that_is_sampled_whole() {
    let files = "write_buffer_size=4194304;target_file_size_base=2097152";
    holds(&format!("compression=kNoCompression;{files}"), &[]);
    holds(&format!("compression=kZSTD;block_based_table_factory={{block_size=16384}};{files}"), &[]);
}

#[test]
fn of_a_database_of_which_a_part_is_sampled() {
    holds("compression=kSnappyCompression;target_file_size_base=67108864", &["--sample", "4MiB"]);
}

#[test]
fn what_cannot_be_estimated_is_refused_in_a_sentence() {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let refused = |folder: &Path| complaint(estimate(folder, &[]));
    let missing = refused(&dir.path().join("none"));
    assert!(missing.contains("found no such folder; name the folder of the database"), "{missing}");
    let empty = refused(dir.path());
    assert!(empty.contains("found neither a file CURRENT nor OPTIONS-*"), "{empty}");
    printed(with_plugin(&compiled("database.cc"), &["fill", dir.path().to_str().unwrap(), "", "0"]));
    let new = refused(dir.path());
    assert!(new.contains("looked for records in files of") && new.contains("found none"), "{new}");
    let plain = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    filled(plain.path(), "table_factory={id=PlainTable;hash_table_ratio=0}");
    let without_blocks = refused(plain.path());
    assert!(without_blocks.contains("default, found files of the type PlainTable"), "{without_blocks}");
    for entry in fs::read_dir(dir.path()).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("OPTIONS-") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let without_options = refused(dir.path());
    assert!(without_options.contains("found a file CURRENT and no file OPTIONS-*"), "{without_options}");
}
