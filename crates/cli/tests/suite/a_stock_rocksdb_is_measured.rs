//! RocksDB as a target of `ziptier bench`. A benchmark that measured RocksDB's block cache, its memtables or another
//! codec would show figures that are too good. A benchmark that left its databases behind would fill the disk.

use std::collections::HashMap;
use std::path::Path;
use std::process::{Command, Output};

/// Benchmarks with databases in that folder; nothing where RocksDB is not installed.
fn bench(folder: &Path, arguments: &[&str]) -> Option<Output> {
    let quick = [["--keys", "10000"], ["--operations", "5000"], ["--warmup", "0"], ["--corpus", "log"]];
    let small = quick.iter().filter(|[name, _]| !arguments.contains(name)).flatten();
    let output = Command::new(env!("CARGO_BIN_EXE_ziptier"))
        .env("TMPDIR", folder)
        .arg("bench")
        .args(small)
        .args(arguments)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("RocksDB is not installed") {
        ziptier_testing::not_run("rocksdb", "run make setup-rocksdb, and set ZIPTIER_ROCKSDB_LIBRARY");
        return None;
    }
    assert!(output.status.success(), "{said}");
    Some(output)
}

fn rows(output: &Output) -> Vec<HashMap<String, String>> {
    parsed(&String::from_utf8(output.stdout.clone()).unwrap())
}

fn parsed(text: &str) -> Vec<HashMap<String, String>> {
    let mut lines = text.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
    let names = lines.next().unwrap();
    lines.map(|cells| names.iter().cloned().zip(cells).collect()).collect()
}

fn number(row: &HashMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} is {}", row[column]))
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

#[test]
fn rows_tell_files_and_their_bytes_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let codecs = "builtin-none,builtin-zstd,builtin-zstd-1,builtin-zstd-9,builtin-zstd-dict,builtin-lz4,\
                  builtin-lz4-dict,builtin-zlib";
    let rest = ["--target", "rocksdb", "--workload", "readrandom", "--format", "tsv"];
    let Some(output) = bench(folder.path(), &[&["--codec", codecs][..], &rest].concat()) else { return };
    let rows = rows(&output);
    assert_eq!(rows.len(), 8);
    let per_raw = |row: &HashMap<String, String>| number(row, "loaded_held_bytes") / number(row, "raw_bytes");
    for row in &rows {
        assert_eq!((row["mismatches"].as_str(), number(row, "operations")), ("0", 5_000.0));
        assert!(number(row, "files") > 1.0, "{row:?}");
        let expected = if row["codec"] == "builtin-none" { 0.95..1.1 } else { 0.1..0.8 };
        assert!(expected.contains(&per_raw(row)), "{}: {}", row["codec"], per_raw(row));
    }
    // A dictionary or a level that did not reach RocksDB would leave the size as it is. Files of 64 KiB do not pay for
    // dictionaries of 16.
    let size = |codec: &str| per_raw(rows.iter().find(|row| row["codec"] == codec).unwrap());
    for (codec, without) in [("builtin-lz4-dict", "builtin-lz4"), ("builtin-zstd-dict", "builtin-zstd")] {
        assert!(size(codec) > 1.03 * size(without), "{codec}: {} and {}", size(codec), size(without));
    }
    let (fast, dense) = (size("builtin-zstd-1"), size("builtin-zstd-9"));
    assert!(dense < 0.97 * fast, "{dense} and {fast}");
    assert!(is_empty(folder.path()));
}

#[test]
fn several_databases_and_multi_gets_answer_rightly() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--target", "rocksdb", "--instances", "2", "--threads", "3", "--multi-get", "16"];
    let mix = ["--mix", "read=70,write=20,delete=5,scan=5", "--block-bytes", "1024,8192", "--format", "tsv"];
    let Some(output) = bench(folder.path(), &[&arguments[..], &mix].concat()) else { return };
    let rows = rows(&output);
    assert_eq!(rows.iter().map(|row| row["block_bytes"].as_str()).collect::<Vec<_>>(), ["1024", "8192"]);
    assert!(rows.iter().all(|row| row["mismatches"] == "0"));
    assert!(is_empty(folder.path()));
}

#[test]
fn the_suite_prints_ratios_to_the_built_in_codecs() {
    let folder = tempfile::tempdir().unwrap();
    let narrow = ["--suite", "rocksdb", "--codec", "builtin-zstd,builtin-lz4", "--value-bytes", "256"];
    let rest = ["--value-order", "neighbours", "--block-bytes", "16384", "--threads", "1", "--rounds", "2"];
    let Some(output) = bench(folder.path(), &[&narrow[..], &rest].concat()) else { return };
    let printed = String::from_utf8(output.stdout).unwrap();
    for words in ["readrandom, values of 256 B (neighbours), blocks of 16,384 B", "Figure 4", "extrapolated"]
    {
        assert!(printed.contains(words), "{words}:\n{printed}");
    }
    let zstd = printed.lines().find(|line| line.starts_with("builtin-zstd")).unwrap();
    assert_eq!(zstd.split_whitespace().nth(2), Some("1.00"), "{printed}");
}

#[test]
fn modelled_rows_stand_beside_measured_ones_and_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let results = tempfile::tempdir().unwrap();
    let out = ["--out", results.path().to_str().unwrap()];
    let codecs = ["--codec", "builtin-zstd,ziptier-deflate", "--model", "devices=1,2", "--cpus", "0"];
    let narrow = ["--suite", "rocksdb", "--value-bytes", "256", "--value-order", "neighbours"];
    let rest = ["--block-bytes", "16384", "--threads", "1", "--workload", "readrandom"];
    let Some(output) = bench(folder.path(), &[&narrow[..], &codecs, &rest, &out].concat()) else { return };
    let printed = String::from_utf8(output.stdout).unwrap();
    if printed.contains("unavailable") {
        ziptier_testing::not_run(
            "rocksdb",
            "run make tested-rocksdb-plugin, and set ZIPTIER_ROCKSDB_LIBRARY",
        );
        return;
    }
    assert!(printed.contains("Figure 6"), "{printed}");
    // Lines may break anywhere.
    assert!(printed.replace('\n', " ").contains(" ops/s; "), "{printed}");
    assert!(printed.lines().all(|line| line.len() <= 80), "{printed}");
    let folder = std::fs::read_dir(results.path()).unwrap().next().unwrap().unwrap().path();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let rows = parsed(&read("databases.tsv"));
    let column = |name: &str| rows.iter().map(|row| row[name].as_str()).collect::<Vec<_>>();
    assert_eq!(column("status"), ["measured", "measured", "modelled", "modelled"]);
    assert_eq!(column("model"), ["NA", "NA", "devices=1", "devices=2"]);
    assert_eq!(column("mismatches"), ["0"; 4]);
    assert_eq!(rows[1]["modelled_cpu_sec"], "NA");
    assert!(read("scaling.svg").contains("ziptier-deflate modelled devices=2"));
    assert!(number(&rows[2], "modelled_cpu_sec") > 0.0);
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_ziptier"))
        .args(["bench", "--target", "rocksdb", "--rocksdb-library", "/no/such/librocksdb.so"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("RocksDB is not installed (/no/such/librocksdb.so"), "{said}");
    assert_eq!(said.lines().count(), 1);
}
