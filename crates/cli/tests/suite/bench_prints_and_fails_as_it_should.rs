//! `ziptier bench` as a user meets it: what it prints, which files it writes, and how it ends.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ziptier")).arg("bench").args(arguments).output().unwrap()
}

/// With small numbers, except those that the arguments give themselves.
fn quick(arguments: &[&str]) -> Output {
    let quick =
        [["--keys", "2000"], ["--operations", "4000"], ["--warmup", "0"], ["--target", "btreemap,null"]];
    let defaults = quick.iter().filter(|[name, _]| !arguments.contains(name)).flatten();
    bench(&defaults.chain(arguments).copied().collect::<Vec<_>>())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs quickly as TSV and returns the rows by column name.
fn rows(arguments: &[&str]) -> Vec<HashMap<String, String>> {
    let output = quick(&arguments.iter().chain(&["--format", "tsv"]).copied().collect::<Vec<_>>());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    parsed(&text(&output.stdout))
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

fn number(row: &HashMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} is {}", row[column]))
}

#[test]
fn an_argument_that_is_no_text_is_refused_in_one_sentence() {
    for option in ["--out", "--trace"] {
        let mut bench = Command::new(env!("CARGO_BIN_EXE_ziptier"));
        bench.args(["bench", "--target", "null", option]).arg(OsStr::from_bytes(b"/nowhere/\xff"));
        let output = bench.output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.contains("bad argument `/nowhere/") && said.contains("give text in UTF-8"), "{said}");
    }
}

#[test]
fn the_table_is_for_people() {
    let output = quick(&["--corpus", "json"]);
    let printed = text(&output.stdout);
    assert!(output.status.success());
    assert!(output.stderr.is_empty(), "no progress where nobody looks: {}", text(&output.stderr));
    for words in
        ["2,000 decimal keys", "per CPU-s", "held", "read_write_2_8, 1 thread", "btreemap", "null", "harness"]
    {
        assert!(printed.contains(words), "{words}:\n{printed}");
    }
    assert!(!printed.contains(" 0.0 "), "one round has no spread:\n{printed}");
    // A terminal of the usual width shows every line unbroken, with all columns.
    let output = quick(&[
        "--rounds",
        "2",
        "--settle",
        "0.01",
        "--target",
        "store,btreemap",
        "--workload",
        "read_write_5_5",
    ]);
    let all = text(&output.stdout);
    for words in ["spread", "ratio", "settled", "covers", "settle"] {
        assert!(all.contains(words), "{words}:\n{all}");
    }
    assert!(printed.lines().chain(all.lines()).all(|line| line.len() <= 80), "{printed}{all}");
}

#[test]
fn the_columns_are_those_of_the_published_evaluation_and_ours_after_them() {
    let output = quick(&["--workload", "read_only", "--format", "tsv"]);
    let header = text(&output.stdout).lines().next().unwrap().to_owned();
    let expected = "run workload threads codec engine qpl_mode qps mismatches ratio saved_pct read_p50_us \
        read_p99_us read_p999_us write_p50_us write_p99_us write_p999_us wall_sec user_sec sys_sec cpu_pct \
        cpu_cores qps_per_cpu_core qpl_compress_calls qpl_decompress_calls zlib_compress_calls \
        zlib_decompress_calls bg_threads bg_compactions fg_compactions log cpu_log raw_bytes held_bytes \
        rss_bytes held_per_raw keys codec_ratio codec_saved_pct reads_raw reads_coded reads_packed max_rss \
        ctx_switches_voluntary ctx_switches_involuntary";
    let expected = expected.split_whitespace().collect::<Vec<_>>().join("\t");
    assert!(header.starts_with(&expected), "{header}");
}

#[test]
fn figures_agree_with_each_other() {
    let arguments = ["--workload", "read_only,write_only", "--target", "btreemap", "--settle", "0.1"];
    let rows = rows(&[&arguments[..], &["--operations", "200000"]].concat());
    let [read, write] = rows.as_slice() else { panic!("{rows:?}") };
    for row in [read, write] {
        assert_eq!(row["mismatches"], "0");
        assert_eq!(number(row, "keys"), 2_000.0);
        assert_eq!(number(row, "raw_bytes"), 2_000.0 * 144.0);
        let held_per_raw = number(row, "held_bytes") / number(row, "raw_bytes");
        assert!((number(row, "held_per_raw") - held_per_raw).abs() < 0.001);
        assert!((number(row, "ratio") * held_per_raw - 1.0).abs() < 0.01);
        assert!(
            (1.0..4.0).contains(&held_per_raw),
            "an uncompressed map holds more than its raw bytes: {held_per_raw}"
        );
        assert_eq!(number(row, "operations"), 200_000.0);
        // Columns are rounded: times to the millisecond, and rates to a whole number.
        let agree = |rate: f64, seconds: &[f64]| {
            let (sum, rounded) = (seconds.iter().sum::<f64>(), 0.000_6 * seconds.len() as f64);
            assert!((rate * sum - 200_000.0).abs() <= rate * rounded + sum, "{rate} {seconds:?}");
        };
        agree(number(row, "qps"), &[number(row, "wall_sec")]);
        agree(number(row, "qps_per_cpu_core"), &[number(row, "user_sec"), number(row, "sys_sec")]);
        assert!(number(row, "settled_held_bytes") > 0.0 && number(row, "settle_cpu_sec") >= 0.0);
        assert_eq!(row["qps_spread_pct"], "NA", "one round has no spread");
        // 2,000 values of 128 bytes from a generated corpus of 16 MiB.
        assert_eq!(row["coverage"], "0.02");
    }
    assert!(read["write_p50_us"] == "NA" && write["read_p50_us"] == "NA");
    assert!(number(read, "read_p50_us") > 0.0);
    assert!(number(write, "write_p999_us") >= number(write, "write_p99_us"));
}

#[test]
fn keys_have_the_length_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let medium = format!("file:{}", folder.path().join("medium").display());
    let targets = format!("store,btreemap,btreemap-inline,hashmap,skiplist,null,{medium}");
    let usual = ["--mix", "read=60,write=30,delete=10", "--multi-get", "4", "--multi-put", "4"];
    for (shape, bytes) in [("decimal", "44"), ("random", "250"), ("ycsb-ordered", "23"), ("ycsb", "40")] {
        let asked = ["--target", targets.as_str(), "--key-shape", shape, "--key-bytes", bytes];
        let rows = rows(&[&usual[..], &asked].concat());
        assert_eq!(rows.len(), 7);
        for row in rows {
            assert_eq!(
                (row["mismatches"].as_str(), row["key_bytes"].as_str()),
                ("0", bytes),
                "{}",
                row["run"]
            );
            let each = number(&row, "raw_bytes") / number(&row, "keys");
            assert_eq!(each, 128.0 + bytes.parse::<f64>().unwrap());
        }
    }
}

#[test]
fn rounds_have_a_spread() {
    let [row] =
        rows(&["--workload", "read_only", "--target", "null", "--rounds", "2", "--operations", "100000"])
            .try_into()
            .unwrap_or_else(|rows| panic!("{rows:?}"));
    assert!(number(&row, "qps_spread_pct") >= 0.0);
}

#[test]
fn values_that_must_not_overlap_are_refused_beyond_the_corpus() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("lines");
    fs::write(&corpus, (0..3_000).map(|line| format!("line {line:03}\n")).collect::<String>()).unwrap();
    let corpus = corpus.to_str().unwrap();
    let all = [
        "--workload",
        "read_write_5_5",
        "--corpus",
        corpus,
        "--target",
        "btreemap,btreemap-inline,hashmap,store",
    ];
    for order in ["apart", "records", "drift"] {
        let rows = rows(&[&all[..], &["--value-order", order, "--value-bytes", "9"]].concat());
        assert_eq!(rows.len(), 4);
        for row in &rows {
            assert_eq!((row["mismatches"].as_str(), row["value_order"].as_str()), ("0", order));
            let coverage = number(row, "coverage");
            assert!(
                if order == "drift" { coverage > 4.0 } else { (0.5..=1.0).contains(&coverage) },
                "{coverage}"
            );
        }
    }
    let output = quick(&[&all[..], &["--value-order", "apart", "--value-bytes", "30"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("values (apart) that do not overlap; give so many keys or fewer"), "{said}");
}

#[test]
fn every_option_works() {
    for arguments in [
        &["--mix", "read=50,write=30,delete=10,scan=10", "--threads", "1,2"][..],
        &["--multi-get", "16", "--workload", "read_only,read_write_8_2"],
        &[
            "--value-bytes",
            "1..500",
            "--key-shape",
            "random",
            "--distribution",
            "zipfian:0.9",
            "--workload",
            "read_write_5_5",
        ],
        &["--distribution", "latest", "--workload", "read_write_8_2", "--threads", "2"],
        &["--corpus", "random:0.5", "--workload", "read_only", "--instances", "2", "--latency", "off"],
        &[
            "--corpus",
            "timeseries",
            "--train-on",
            "first-half",
            "--settle",
            "0.1",
            "--workload",
            "write_only",
        ],
        &[
            "--target",
            "skiplist",
            "--workload",
            "read_write_2_8",
            "--threads",
            "3",
            "--cpus",
            "0",
            "--rounds",
            "3",
        ],
        &["--mix", "scan=100", "--key-shape", "random"],
        &["--rate", "200000", "--threads", "2", "--workload", "read_write_8_2"],
        &[
            "--target",
            "store",
            "--codec",
            "auto,none,token",
            "--mix",
            "read=50,write=40,delete=5,scan=5",
            "--threads",
            "2",
        ],
        &[
            "--target",
            "store",
            "--landing-bytes",
            "512,2048",
            "--background",
            "0,1",
            "--workload",
            "write_only",
        ],
        &[
            "--target",
            "store",
            "--background-threads",
            "0",
            "--multi-get",
            "16",
            "--workload",
            "read_write_8_2",
        ],
    ] {
        for row in rows(arguments) {
            assert_eq!(row["mismatches"], "0", "{arguments:?}");
            // A multi-get that has begun is finished.
            assert!((4_000.0..4_100.0).contains(&number(&row, "operations")), "{arguments:?}");
        }
    }
}

#[test]
fn memory_of_the_second_half_alone_is_on_its_account() {
    let arguments = [
        "--train-on",
        "first-half",
        "--settle",
        "0.1",
        "--workload",
        "read_only",
        "--keys",
        "20000",
        "--target",
        "btreemap",
    ];
    let [row] = rows(&arguments).try_into().unwrap_or_else(|rows| panic!("{rows:?}"));
    assert_eq!(number(&row, "keys"), 20_000.0);
    assert!((1.0..2.0).contains(&number(&row, "held_per_raw")), "{}", row["held_per_raw"]);
}

#[test]
fn a_property_file_of_ycsb_is_a_workload() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("workloadx");
    let properties = "recordcount=3000\noperationcount=5000\nfieldcount=2\nfieldlength=30\nreadproportion=0.5\n\
                      updateproportion=0\ninsertproportion=0.5\nrequestdistribution=latest\nthreadcount=2\n";
    fs::write(&file, properties).unwrap();
    let asked = ["bench", "--workload-file", file.to_str().unwrap(), "--warmup", "0", "--target", "btreemap"];
    let measured = |more: &[&str]| {
        let arguments = [&asked[1..], &["--format", "tsv"], more].concat();
        parsed(&text(&bench(&arguments).stdout)).remove(0)
    };
    let row = measured(&[]);
    for (column, value) in [
        ("workload", "workloadx"),
        ("threads", "2"),
        ("operations", "5000"),
        ("value_bytes", "60"),
        ("key_shape", "ycsb"),
        ("key_bytes", "NA"),
        ("distribution", "ycsb-latest"),
        ("mismatches", "0"),
    ] {
        assert_eq!(row[column], value, "{column}");
    }
    // Half of the operations are inserts.
    assert!((5_300.0..5_700.0).contains(&number(&row, "keys")), "{}", row["keys"]);
    let row =
        measured(&["--keys", "900", "--operations", "1000", "--threads", "1", "--key-shape", "decimal"]);
    assert!((1_300.0..1_500.0).contains(&number(&row, "keys")), "{}", row["keys"]);
    assert_eq!([&row["operations"], &row["threads"], &row["key_shape"]], ["1000", "1", "decimal"]);
}

#[test]
fn several_rates_are_steps_of_one_row() {
    let arguments = ["--workload", "read_only", "--rate", "20000..80000:3", "--target", "btreemap"];
    let printed = text(&quick(&arguments).stdout);
    assert!(printed.contains("offered rates (open loop"), "{printed}");
    for rate in ["20,000", "40,000", "80,000"] {
        assert!(printed.contains(&format!("offered {rate} per s")), "{printed}");
    }
    assert!(printed.lines().all(|line| line.len() <= 80), "{printed}");
    assert_eq!(rows(&arguments)[0]["offered_qps"], "80000");
}

#[test]
fn named_workloads_are_listed() {
    let listed = text(&bench(&["--list-workloads"]).stdout);
    for name in ["read_only", "fillseq", "ycsb-a", "ycsb-f", "mbwu-slides", "twitter-cluster17"] {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{name}: {listed}");
    }
    let output = quick(&["--workload", "twitter-cluster17,twitter-cluster14", "--target", "store"]);
    let printed = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(output.status.success(), "{printed}");
    for words in [
        "twitter-cluster17, zipfian:2.1106, keys of 19 B, values of 212 B, 1 thread",
        "twitter-cluster14, zipfian:1.2959, keys of 96 B, values of 414 B, 1 thread",
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
}

/// With a simulated clock, `ziptier-eval` tests which rate is found; here, that each step follows from the latency
/// before it.
#[test]
fn the_offered_rate_is_raised_until_it_is_too_slow() {
    // A thread that loses its processor for a moment keeps the limit. Operations that wait for thousands before them
    // exceed it.
    const LIMIT_US: f64 = 20_000.0;
    const OPERATIONS: f64 = 100_000.0;
    let (limit, operations) = (LIMIT_US.to_string(), OPERATIONS.to_string());
    let arguments = ["--workload", "read_only", "--operations", &operations, "--until-p99", &limit];
    let output = quick(&[&arguments[..], &["--target", "btreemap", "--format", "json"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps = rows[0]["latency_steps"].as_array().unwrap();
    let figure = |step: &serde_json::Value, name: &str| step[name].as_f64().unwrap();
    let next =
        |step| figure(step, "offered_per_sec") * if figure(step, "p99_us") <= LIMIT_US { 1.25 } else { 0.5 };
    for pair in steps.windows(2) {
        let growth = figure(&pair[1], "offered_per_sec") / next(&pair[0]);
        assert!((growth - 1.0).abs() < 1e-9, "{steps:?}");
    }
    // A search ends before a window of more than ten seconds. One that stood still in the first window has no other.
    assert!(steps.len() > 1 || OPERATIONS / next(&steps[0]) > 10.0, "{steps:?}");
    let held = steps.iter().filter(|step| figure(step, "p99_us") <= LIMIT_US);
    match held.map(|step| figure(step, "offered_per_sec")).reduce(f64::max) {
        Some(best) => assert!((rows[0]["offered_qps"].as_f64().unwrap() - best).abs() <= 1.0, "{rows}"),
        None => assert_eq!(rows[0]["offered_qps"].as_f64(), Some(0.0), "{rows}"),
    }
}

#[test]
fn a_rate_is_offered_however_fast_the_target_is() {
    let arguments = ["--workload", "read_only", "--rate", "20000", "--threads", "2"];
    for row in rows(&arguments) {
        assert_eq!(number(&row, "offered_qps"), 20_000.0);
        // A busy machine may do less; the closed loop does a hundred times as much.
        assert!(number(&row, "qps") < 30_000.0, "{}", row["qps"]);
    }
}

#[test]
fn json_is_json() {
    let output = quick(&["--workload", "read_only", "--rounds", "2", "--format", "json"]);
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows[0]["target"], "btreemap");
    assert_eq!(rows[0]["round_rows"].as_array().unwrap().len(), 2);
    assert_eq!((rows[0]["mismatches"].as_u64(), rows[0]["operations"].as_u64()), (Some(0), Some(4_000)));
    assert!(rows[0]["write_p50_us"].is_null());
    assert!(rows[0]["qps"].as_f64().unwrap() > 0.0);
}

#[test]
fn result_files_tell_everything() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let output = quick(&["--workload", "read_only", "--rounds", "2", "--out", out]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let made: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [made] = made.as_slice() else { panic!("{made:?}") };
    let file =
        |name: &str| fs::read_to_string(Path::new(made).join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let summary = parsed(&file("summary.tsv"));
    assert_eq!(summary.len(), 2);
    assert_eq!(parsed(&file("rounds.tsv")).len(), 4);
    assert!(file(&summary[0]["log"]).contains("\"keys\": 2000"));
    let manifest: serde_json::Value = serde_json::from_str(&file("manifest.json")).unwrap();
    assert!(manifest["command"].as_str().unwrap().contains("--rounds 2"));
    assert!(manifest["libraries"]["jemalloc"].is_string() && manifest["kernel"].is_string());
    assert!(manifest["libraries"]["zstd-sys"].is_string() && manifest["libraries"]["redis"].is_null());
    assert!(manifest["commit"].as_str().is_none_or(|commit| commit.len() >= 40), "{}", manifest["commit"]);
}

#[test]
fn bad_requests_end_with_2_and_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = folder.path().join("tiny");
    fs::write(&tiny, "0123456789").unwrap();
    let tiny = tiny.to_str().unwrap();
    for (arguments, words) in [
        (&["--corpus", "no/such/file"][..], "there is no such file or folder"),
        (&["--corpus", tiny], "has 10 bytes, fewer than a value of 128"),
        (&["--corpus", tiny, "--value-bytes", "8", "--train-on", "first-half"], "5 bytes in each half"),
        (&["--codec", "snappy"], "unknown codec `snappy`; known: "),
        (&["--target", "redis"], "unknown target `redis`; known: "),
        (&["--workload", "read_mostly"], "unknown workload `read_mostly`; known: read_only"),
        (&["--mix", "read=90"], "add up to 100"),
        (&["--keys", "0"], "at least one key per thread"),
        (&["--threads", "0"], "give 1 to 1024"),
        (&["--cpus", "4096"], "processors"),
        (&["--value-bytes", "9..1"], "or a range"),
        (&["--key-shape", "uuid"], "decimal, random, ycsb, ycsb-ordered"),
        (&["--key-bytes", "15"], "decimal keys have 16 to 250 bytes"),
        (&["--key-bytes", "251", "--key-shape", "ycsb"], "ycsb keys have 5 to 250 bytes"),
        (&["--distribution", "zipfian:0"], "above 0"),
        (&["--distribution", "latest", "--mix", "read=90,insert=10"], "give ycsb-latest"),
        (&["--workload-file", "no/such/file"], "cannot read no/such/file"),
        (&["--workload-file", tiny], "line 1, 0123456789=: no property of YCSB"),
        (&["--seconds", "-1"], ""),
        (&["--seconds", "0"], "give seconds"),
        (&["--operations", "0"], "at least one operation per thread"),
        (&["--operations", "9", "--threads", "10"], "at least one operation per thread"),
        (&["--operations", "9", "--seconds", "1"], "cannot be used with"),
        (&["--value-order", "sorted"], "strangers, neighbours, apart, records, drift"),
        (&["--rounds", "0"], "give 1 to 1000"),
        (&["--multi-get", "0"], "keys per call"),
        (&["--connections", "8"], "the target store has no connections"),
        (
            &["--target", "redis://127.0.0.1:1", "--threads", "4", "--connections", "3"],
            "at least one connection per thread",
        ),
        (&["--target", "redis://127.0.0.1:1", "--connections", "10001"], "at most 10,000"),
        (&["--connections", "8", "--saturate", "4"], "cannot be used with"),
        (&["--until-p99", "0"], "give microseconds"),
        (&["--rate", "0"], "give operations per second"),
        (&["--rate", "9..1:3"], "such as 1000..50000:8"),
        (&["--rate", "9", "--until-p99", "1ms"], "cannot be used with"),
        (&["--rate", "9", "--workload", "fillseq"], "loading is offered no rates"),
        (
            &["--target", "store", "--landing-bytes", "5", "--keys", "10"],
            "a landing of 5 bytes was asked for",
        ),
        (&["--format", "xml"], "table, tsv, json"),
        (&["--background", "2"], "give 0 or 1"),
        (&["--latency", "maybe"], "give on or off"),
    ] {
        let output = bench(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let output = quick(&["--workload", "read_only", "--out", "/proc/nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cannot create /proc/nowhere"), "{}", text(&output.stderr));
}

/// The test of the suite of codecs sees every check pass, for they come before its first run. `ZIPTIER_SOAK`, as in
/// `make soak`, waits for them here, too.
#[test]
fn the_smoke_test_checks_codecs_and_targets() {
    if std::env::var_os("ZIPTIER_SOAK").is_none() {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ziptier"));
        let mut smoke = command.args(["bench", "--smoke"]).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(smoke.stdout.take().unwrap()).lines();
        let printed: Vec<String> = lines.map(Result::unwrap).take(6).collect();
        smoke.kill().unwrap();
        smoke.wait().unwrap();
        assert!(printed.iter().all(|line| line.starts_with("ok: ")), "{printed:?}");
        assert!(
            printed.last().is_some_and(|line| line.starts_with("ok: store with codec auto ")),
            "{printed:?}"
        );
        return;
    }
    let output = bench(&["--smoke"]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    assert!(
        printed.contains("ok: btreemap") && printed.lines().all(|line| line.starts_with("ok: ")),
        "{printed}"
    );
}

#[test]
fn a_reader_that_goes_away_early_is_no_failure_and_a_full_disk_is_told() {
    let run = |output: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ziptier"));
        command.args([
            "bench",
            "--keys",
            "2000",
            "--operations",
            "4000",
            "--warmup",
            "0",
            "--target",
            "null",
        ]);
        command.stdout(output).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut left = run(Stdio::piped());
    drop(left.stdout.take());
    let left = left.wait_with_output().unwrap();
    assert!(left.status.success() && left.stderr.is_empty(), "{}", text(&left.stderr));
    let full = run(fs::File::create("/dev/full").unwrap().into()).wait_with_output().unwrap();
    assert_eq!(full.status.code(), Some(1));
    assert!(text(&full.stderr).starts_with("error: cannot print the results: "), "{}", text(&full.stderr));
}
