//! The suites of `ziptier bench` as a user meets them. Users would also believe a suite that leaves out a codec, takes
//! an unknown option, or writes half of its files.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ziptier")).arg("bench").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn parsed(tsv: &str) -> Vec<HashMap<String, String>> {
    let mut lines = tsv.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
    let names = lines.next().unwrap();
    lines
        .map(|cells| {
            assert_eq!(cells.len(), names.len());
            names.iter().cloned().zip(cells).collect()
        })
        .collect()
}

fn only_folder(parent: &Path) -> PathBuf {
    let made: Vec<_> = fs::read_dir(parent).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [made] = made.as_slice() else { panic!("{made:?}") };
    made.clone()
}

fn file(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The expected rows of verdicts for a summary. There is one for each setting with both a coding and the baseline, and
/// one for each coding with such a setting.
fn expected_verdicts(summary: &[HashMap<String, String>], baseline: &str) -> usize {
    // The system's libz is no accelerator.
    let ran: Vec<_> = summary.iter().filter(|row| row["engine"] != "zlib_system").collect();
    let setting = |row: &HashMap<String, String>| {
        ["workload", "threads", "landing_bytes", "background"].map(|name| row[name].clone())
    };
    let (beside, judged): (Vec<_>, Vec<_>) = ran.into_iter().partition(|row| row["codec"] == baseline);
    let known: HashSet<_> = beside.into_iter().map(setting).collect();
    let cases: Vec<_> = judged.into_iter().filter(|row| known.contains(&setting(row))).collect();
    let codings: HashSet<_> = cases.iter().map(|row| coding(row)).collect();
    cases.len() + codings.len()
}

/// The fields that distinguish runs in one setting.
fn coding(row: &HashMap<String, String>) -> [String; 5] {
    ["run", "codec", "engine_asked", "path", "huffman"].map(|name| row[name].clone())
}

/// Workloads are one of the dimensions of the matrix. `ZIPTIER_SOAK`, as in `make soak`, has two of them, for each of
/// which all codecs run in every other setting.
#[test]
fn the_matrix_is_announced_checked_measured_and_judged() {
    let workloads = match std::env::var_os("ZIPTIER_SOAK") {
        Some(_) => &["read_only", "write_only"][..],
        None => &["read_write_5_5"],
    };
    let parent = tempfile::tempdir().unwrap();
    let tiny = ["--keys", "2000", "--operations", "6000", "--warmup", "0", "--threads", "1,2"];
    let joined = workloads.join(",");
    let narrow = ["--suite", "codecs", "--workload", &joined];
    let out = ["--out", parent.path().to_str().unwrap()];
    let output = bench(&[&narrow[..], &tiny, &out].concat());
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    // Lines are broken to fit a terminal.
    let unbroken = printed.replace('\n', " ");

    let folder = only_folder(parent.path());
    let summary = parsed(&file(&folder, "summary.tsv"));
    let (summary, unavailable): (Vec<_>, Vec<_>) =
        summary.into_iter().partition(|row| row["status"] == "measured");
    let mut codecs: Vec<&str> = summary.iter().map(|row| row["codec"].as_str()).collect();
    codecs.dedup();
    codecs.sort_unstable();
    codecs.dedup();
    assert!(["auto", "none", "token"].iter().all(|codec| codecs.contains(codec)), "{codecs:?}");
    let codings: HashSet<_> = summary.iter().map(coding).collect();
    // This machine may have the library and the device, or not: the rows are there in either case.
    for run in ["iaa_fixed", "iaa_dynamic", "iaa_canned"] {
        let row = summary.iter().chain(&unavailable).find(|row| row["run"] == run);
        let row = row.unwrap_or_else(|| panic!("no row {run}"));
        assert_eq!(
            ["codec", "engine", "qpl_mode"].map(|name| row[name].as_str()),
            ["deflate", "hardware", "NA"]
        );
        let why = "unavailable: engine iaa cannot work here: path hardware needs a device, but ";
        assert!(row["status"] == "measured" || row["status"].starts_with(why), "{row:?}");
    }
    for run in ["software_fixed", "software_dynamic", "qpl_iaa_fixed", "qpl_iaa_dynamic", "zlib_accel"] {
        let named = |row: &&HashMap<String, String>| row["run"] == run && row["codec"] != "lz4";
        let Some(row) = summary.iter().chain(&unavailable).find(named) else { panic!("no row {run}") };
        let said = row["status"] == "measured" || row["status"].starts_with("unavailable: ");
        assert!(said && (row["status"] == "measured" || unbroken.contains(&row["status"])), "{row:?}");
        let right = match run {
            "zlib_accel" => ["zlib_accel", "zlib_accel_preload", "NA"],
            "software_fixed" => ["qpl", "software", "fixed"],
            "software_dynamic" => ["qpl", "software", "dynamic"],
            "qpl_iaa_fixed" => ["qpl", "hardware", "fixed"],
            _ => ["qpl", "hardware", "dynamic"],
        };
        assert_eq!(["codec", "engine", "qpl_mode"].map(|name| row[name].as_str()), right);
    }
    assert!(
        summary
            .iter()
            .any(|row| [&row["run"], &row["codec"], &row["engine"]] == ["software_fixed", "lz4", "cpu"])
    );
    for deflate in [["software", "dynamic"], ["software", "canned"], ["zlib", "dynamic"], ["zlib", "fixed"]] {
        let there = summary.iter().any(|row| [&row["engine_asked"], &row["huffman"]] == deflate);
        assert!(there, "{deflate:?}");
    }
    // Of each workload, one and two threads, with background packing and without.
    let settings = workloads.len() * 2 * 2;
    assert_eq!(summary.len(), codings.len() * settings);
    assert!(summary.iter().all(|row| row["mismatches"] == "0" && row["target"] == "store"));

    let verdicts = parsed(&file(&folder, "verdicts.tsv"));
    let baseline = if codecs.contains(&"lz4") { "lz4" } else { "none" };
    assert_eq!(verdicts.len(), expected_verdicts(&summary, baseline));
    assert!(summary.iter().any(|row| row["engine"] == "zlib_system"));
    for row in &verdicts {
        let known = ["higher throughput", "fewer cores", "neither"].contains(&row["verdict"].as_str());
        assert!(known && row["baseline"] == baseline, "{row:?}");
        let held: f64 = row["held_per_raw"].parse().unwrap();
        // Contexts of one library take 700 KiB, and this store has 300 KB.
        assert!(held > 0.1 && held < 50.0, "{row:?}");
    }
    assert!(
        printed.contains(&format!("\nstore against {baseline}\n")) && printed.contains("\nauto "),
        "{printed}"
    );
    assert!(printed.lines().all(|line| line.chars().count() <= 80), "{printed}");

    let first = said.lines().next().unwrap();
    assert!(first.starts_with(&format!("{} runs, ", summary.len())) && first.contains("about"), "{first}");
    let checks: Vec<&str> = said.lines().filter(|line| line.starts_with("ok: ")).collect();
    for check in ["codec deflate round-trips", "btreemap answers like its model", "null answers rightly"] {
        assert!(checks.iter().any(|line| line[4..].starts_with(check)), "{said}");
    }
    assert!(checks.len() > 20 && checks.iter().all(|line| line.len() <= 80), "{said}");
}

#[test]
fn a_short_bypass_run_leaves_series_summary_and_plot() {
    let parent = tempfile::tempdir().unwrap();
    let tiny = ["--keys", "5000", "--operations", "6000", "--interval-operations", "100"];
    let suite = ["--suite", "bypass", "--codec", "auto,token", "--format", "tsv"];
    let output = bench(&[&suite[..], &tiny, &["--out", parent.path().to_str().unwrap()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with("2 runs of two phases of 6,000 operations: about "));
    let folder = only_folder(parent.path());
    let summary = parsed(&text(&output.stdout));
    assert_eq!(text(&output.stdout), file(&folder, "bypass-summary.tsv"));
    assert_eq!(summary.iter().map(|row| &row["codec"]).collect::<Vec<_>>(), ["auto", "token"]);
    for row in &summary {
        assert_eq!(row["mismatches"], "0");
        assert_eq!(row["distribution"], "hot:1:95");
        assert!(row["p50_cold_us"].parse::<f64>().unwrap() > 0.0);
        let series = parsed(&file(&folder, &format!("bypass-{}.tsv", row["run"])));
        assert_eq!(series.last().unwrap()["operations"], row["operations"]);
        let jumped = series.iter().filter(|interval| interval["jumped"] == "1").count();
        assert_eq!((series.len(), jumped), (120, 60));
        for (index, interval) in series.iter().enumerate() {
            let number = |name: &str| interval[name].parse::<f64>().unwrap();
            assert_eq!(number("operations"), (index as f64 + 1.0) * 100.0);
            assert!(number("p99_us") >= number("p50_us") && number("p50_us") > 0.0);
            let reads = number("reads_raw") + number("reads_coded") + number("reads_packed");
            assert_eq!(reads, 100.0, "{interval:?}");
        }
    }
    let svg = file(&folder, "bypass.svg");
    assert!(svg.contains("store_token") && svg.contains("the jump"));
}

#[test]
fn what_a_suite_or_target_does_not_take_ends_with_2_and_one_sentence() {
    for (arguments, words) in [
        (&["--suite", "everything"][..], "codecs, rocksdb, cassandra, bypass"),
        (&["--suite", "cassandra"], "suite cassandra measures one cluster, such as cql://127.0.0.1"),
        (&["--suite", "cassandra", "--target", "store"], "suite cassandra measures one cluster"),
        (&["--suite", "codecs", "--codec", "snappy"], "unknown codec `snappy`; known: auto"),
        (&["--suite", "codecs", "--codec-engine", "abacus"], "abacus"),
        (&["--target", "store", "--huffman", "static"], "fixed, dynamic"),
        (&["--target", "store", "--context-cache", "process"], "thread, none"),
        (&["--target", "store", "--block-bytes", "1"], "give 64 to 16777216"),
        (&["--target", "store", "--landing-watermark-pct", "0"], "give 1 to 100 per cent"),
        (&["--target", "store", "--background-codec", "snappy"], "known: auto"),
        (&["--target", "btreemap", "--level", "3"], "no target of this benchmark compresses"),
        (&["--target", "btreemap,null", "--codec", "lz4"], "bad option `--codec lz4`: no target of this"),
        (&["--target", "store", "--interval-operations", "9"], "it is for suite bypass"),
        (&["--suite", "bypass", "--threads", "2"], "has one thread"),
        (&["--suite", "bypass", "--workload", "write_only"], "reads and nothing else"),
        (&["--suite", "bypass", "--multi-get", "16"], "one by one"),
        (&["--suite", "bypass", "--distribution", "uniform"], "keys that stay hot"),
        (&["--suite", "bypass", "--distribution", "hot:100:95"], "above 0 and below 100"),
        (&["--suite", "bypass", "--interval-operations", "0"], "give 1 to 1000000000"),
        (&["--suite", "bypass", "--rounds", "3"], "no medians"),
        (&["--suite", "bypass", "--value-bytes", "32,64"], "one shape"),
    ] {
        let output = bench(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn options_that_the_store_cannot_follow_are_refused_before_the_first_run() {
    for (arguments, words) in [
        (&["--codec", "lz4", "--background-codec", "token"][..], "choose lz4, zstd or deflate"),
        (&["--codec", "deflate", "--codec-engine", "zlib", "--huffman", "canned"], "canned codes"),
        (&["--codec", "zstd", "--level", "99"], "99"),
    ] {
        for suite in [&["--target", "store"][..], &["--suite", "codecs"], &["--suite", "bypass"]] {
            let output = bench(&[suite, arguments].concat());
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{suite:?} {arguments:?}: {said}");
            let sentence = said.starts_with("error: the target store did not open: ") && said.contains(words);
            assert!(sentence && said.lines().count() == 1 && output.stdout.is_empty(), "{said}");
        }
    }
}

#[test]
fn an_engine_that_is_missing_is_named_and_nothing_takes_its_place() {
    let run = [
        "--target",
        "store",
        "--keys",
        "1000",
        "--operations",
        "1000",
        "--workload",
        "read_only",
        "--codec",
        "deflate",
    ];
    let without = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ziptier"));
        command.arg("bench").args(run).args(arguments).env("ZIPTIER_QPL", "/nonexistent/libqpl.so");
        command.output().unwrap()
    };
    for arguments in [&["--codec-engine", "qpl"][..], &["--codec-engine", "qpl", "--path", "hardware"]] {
        let output = without(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("engine qpl cannot work here: libqpl is not installed (/nonexistent/libqpl.so: "),
            "{said}"
        );
        assert!(said.lines().count() == 1 && output.stdout.is_empty(), "{said}");
    }
    let hardware = bench(&["--target", "store", "--codec", "lz4", "--path", "hardware"]);
    assert!(
        hardware.status.code() == Some(2)
            && text(&hardware.stderr).contains("cannot be told to use a device")
    );
    let token = bench(&["--target", "store", "--codec", "token", "--path", "hardware"]);
    assert!(token.status.code() == Some(2) && text(&token.stderr).contains("knows no device"));
}

#[test]
fn what_a_model_did_is_called_modelled() {
    let run = ["--target", "store", "--keys", "2000", "--workload", "read_write_8_2", "--format", "tsv"];
    let engine = ["--codec", "deflate", "--codec-engine", "iaa", "--model", "devices=2,timing=off"];
    for huffman in ["fixed", "dynamic", "canned"] {
        let how = ["--huffman", huffman, "--path", "hardware", "--operations", "5000", "--warmup", "0"];
        let output = bench(&[&run[..], &engine, &how].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let [row] = parsed(&text(&output.stdout)).try_into().unwrap_or_else(|rows| panic!("{rows:?}"));
        let said = ["run", "engine", "engine_fallbacks", "engine_faults", "mismatches"]
            .map(|name| row[name].as_str());
        let name = format!("store_deflate-iaa-hardware-{huffman}-modelled-devices2-timingoff");
        assert_eq!(said, [&name, "modelled", "0", "0", "0"]);
        assert!(row["iaa_decompress_calls"].parse::<u64>().unwrap() > 0, "{row:?}");
    }
    let lz4 = bench(&["--target", "store", "--codec", "lz4", "--model", "timing=off"]);
    assert!(lz4.status.code() == Some(2) && text(&lz4.stderr).contains("a model is for engine iaa"));
}

#[test]
fn options_of_blocks_reach_the_store() {
    let run =
        ["--target", "store", "--keys", "2000", "--operations", "20000", "--workload", "read_write_8_2"];
    let blocks =
        ["--codec", "deflate", "--huffman", "fixed", "--block-bytes", "4096", "--context-cache", "none"];
    let output = bench(&[&run[..], &blocks].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let background = ["--background-codec", "zstd", "--background", "1", "--landing-watermark-pct", "75"];
    let output = bench(&[&run[..], &["--codec", "lz4", "--format", "tsv"], &background].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let [row] = parsed(&text(&output.stdout)).try_into().unwrap_or_else(|rows| panic!("{rows:?}"));
    let asked =
        ["engine", "background_codec", "landing_watermark_pct", "mismatches"].map(|name| row[name].as_str());
    assert_eq!(asked, ["cpu", "zstd", "75", "0"]);
}
