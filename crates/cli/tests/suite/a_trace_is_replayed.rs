//! `ziptier bench --trace` as a user meets it: requests of a file in, a row with hits out; and traces that are cut,
//! malformed or none at all.

use std::fmt::Write as _;
use std::path::Path;

use crate::support::{printed, refused, run};

/// Requests like those of a cache at Twitter: most are gets of a few keys, and each miss is followed by a set.
fn twitter(requests: u64) -> String {
    let mut text = String::new();
    for at in 0..requests {
        let number = at * at % 101;
        let key = format!("ns:u:{number:0width$}", width = 10 + number as usize % 40);
        let operation = if at / 101 == 0 || at % 10 == 0 { "set" } else { "get" };
        let (bytes, lifetime) = (200 + number * 70, if operation == "set" { 3_600 } else { 0 });
        writeln!(text, "{},{key},{},{bytes},{},{operation},{lifetime}", at / 500, key.len(), at % 7).unwrap();
    }
    text
}

fn file(folder: &Path, name: &str, bytes: &[u8]) -> String {
    let path = folder.join(name);
    std::fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

fn rows(arguments: &[&str]) -> Vec<serde_json::Value> {
    let text = printed(&[&["bench"][..], arguments, &["--corpus", "log", "--format", "json"]].concat());
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_trace_gives_a_row_with_its_hits() {
    let folder = tempfile::tempdir().unwrap();
    let text = twitter(20_000);
    let plain = file(folder.path(), "cluster.csv", text.as_bytes());
    let packed = file(folder.path(), "cluster.zst", &zstd::encode_all(text.as_bytes(), 3).unwrap());
    let targets = ["--target", "store,btreemap-inline,skiplist,null", "--threads", "2", "--settle", "0.1"];
    let rows_of = |path: &str| rows(&[&["--trace", path][..], &targets].concat());
    for (path, name) in [(&plain, "cluster.csv"), (&packed, "cluster.zst")] {
        let rows = rows_of(path);
        assert_eq!(rows.len(), 4);
        for row in &rows {
            assert_eq!((row["workload"].as_str(), row["trace"].as_str()), (Some(name), Some(path.as_str())));
            let count = |column: &str| row[column].as_u64().unwrap();
            assert_eq!(
                [count("operations"), count("trace_requests"), count("mismatches")],
                [20_000, 20_000, 0]
            );
            assert_eq!(count("trace_bytes"), std::fs::metadata(path).unwrap().len());
            assert_eq!(row["trace_hash"].as_str().unwrap().len(), 32);
            assert!(row["key_shape"].is_null() && row["value_bytes"].is_null(), "{row}");
            let is_null = row["run"] == "null";
            let hits = row["hit_pct"].as_f64().unwrap();
            assert!(if is_null { hits == 0.0 } else { hits > 99.0 }, "{row}");
        }
        assert!(rows[1]["held_bytes"].as_i64().unwrap() > 0 && rows[0]["keys"].as_u64().unwrap() > 40);
    }
    let table = printed(&["bench", "--trace", &plain, "--target", "store", "--operations", "5000"]);
    for told in
        ["hits", "5,000 requests were read", "had a lifetime", "keys and lengths of values of the trace"]
    {
        assert!(table.contains(told), "{told}: {table}");
    }
}

#[test]
fn requests_arrive_at_the_times_of_the_trace() {
    let folder = tempfile::tempdir().unwrap();
    let lines = [(0, "set a 9"), (5_000, "get a"), (10_000, "get b 5"), (15_000, "get b")];
    let lines = lines.map(|(seconds, request)| format!("{} {request}\n", 1_700_000_000 + seconds));
    let requests = format!("ziptier-trace 1\n{}", lines.concat());
    let path = file(folder.path(), "paced", requests.as_bytes());
    let arguments = ["--trace", path.as_str(), "--target", "btreemap", "--speed", "50000", "--fill"];
    let rows = rows(&arguments);
    // At the speed of the trace, or from the time 0 on, it would take hours.
    let seconds = rows[0]["wall_sec"].as_f64().unwrap();
    assert!(seconds >= 0.3, "{seconds}");
    assert_eq!(
        (rows[0]["hit_pct"].as_f64(), rows[0]["trace_speed"].as_f64()),
        (Some(66.667), Some(50_000.0))
    );
}

#[test]
fn what_was_measured_before_a_fault_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let text = twitter(2_000);
    let out = folder.path().join("out");
    let end = text.lines().take(1_500).map(|line| line.len() + 1).sum::<usize>() + 9;
    let cut = file(folder.path(), "cut.csv", &text.as_bytes()[..end]);
    let malformed = file(folder.path(), "malformed.csv", text.replacen(",get,", ",git,", 1_000).as_bytes());
    for (path, told, requests) in [
        (&cut, "line 1501, field 2 (key): the trace is cut", 1_500..1_501),
        (&malformed, "field 6 (operation): `git` is no operation", 101..102),
    ] {
        let arguments = [
            "bench",
            "--trace",
            path,
            "--target",
            "btreemap",
            "--out",
            out.to_str().unwrap(),
            "--format",
            "json",
        ];
        let output = run(&arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let sentence = said.lines().find(|line| line.starts_with("error: ")).unwrap();
        assert!(sentence.contains(path.as_str()) && sentence.contains(told), "{sentence}");
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
        let done = rows[0]["operations"].as_u64().unwrap();
        assert!(requests.contains(&done) && rows[0]["mismatches"] == 0, "{done}");
        let kept = std::fs::read_dir(&out).unwrap().next().unwrap().unwrap().path().join("rounds.json");
        assert!(std::fs::read_to_string(kept).unwrap().contains(told));
        std::fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn what_is_no_trace_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let none = file(folder.path(), "text", b"once upon a time\n");
    let told = refused(&["bench", "--trace", &none]);
    assert!(told.contains(&none) && told.contains("line 1, field 2 (key): it is missing"), "{told}");
    assert!(refused(&["bench", "--trace", "/nowhere/trace"]).contains("cannot take /nowhere/trace: "));
    for option in [&["--speed", "2"][..], &["--fill"]] {
        let told = refused(&[&["bench", "--workload", "read_only"][..], option].concat());
        assert!(told.contains("name one by --trace"), "{told}");
    }
    let trace = file(folder.path(), "trace", b"ziptier-trace 1\n0 set a 1\n");
    let medium = format!("file:{}", folder.path().join("medium").display());
    let refusals: [(&[&str], &str); 3] = [
        (&["--speed", "0"], "bad --speed `0`: give a factor"),
        (&["--target", &medium], "it has slots for keys that are known beforehand"),
        (&["--threads", "0"], "give 1 to 1024"),
    ];
    for (arguments, expected) in refusals {
        let told = refused(&[&["bench", "--trace", &trace][..], arguments].concat());
        assert!(told.contains(expected), "{told}");
    }
    let both = run(&["bench", "--trace", &trace, "--distribution", "latest"]);
    assert_eq!(both.status.code(), Some(2));
}
