//! `ziptier predict` as a planner meets it: runs of `ziptier bench` in, predictions out; the examples; and each mistake
//! in a file or folder.

use std::path::Path;

use crate::support::{printed, refused, run};

fn file(folder: &Path, text: &str) -> String {
    let path = folder.join("file.toml");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn runs_are_predicted_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    let measured = run(&[
        "bench",
        "--target",
        "btreemap,hashmap",
        "--workload",
        "read_only",
        "--threads",
        "1,2,4",
        "--cpus",
        "0",
        "--operations",
        "20000",
        "--warmup",
        "0",
        "--keys",
        "1000",
        "--rounds",
        "2",
        "--out",
        runs,
    ]);
    assert!(measured.status.success(), "{}", String::from_utf8_lossy(&measured.stderr));
    let table = printed(&["predict", "throughput", runs]);
    assert!(
        table.contains("btreemap") && table.contains("predicted") && table.contains("measured"),
        "{table}"
    );
    let rows: serde_json::Value = serde_json::from_str(&printed(&[
        "predict",
        "throughput",
        runs,
        "--threads",
        "8",
        "--cores",
        "2,4",
        "--format",
        "json",
    ]))
    .unwrap();
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!(
            (row["status"].as_str(), row["beyond_measured_cores"].as_str()),
            (Some("predicted"), Some("yes"))
        );
        assert!(row["qps"].as_f64().unwrap() > 0.0 && row["deviation_pct"].is_number(), "{row}");
    }
    let held = printed(&["predict", "throughput", runs, "--hold-out", "each", "--format", "tsv"]);
    assert_eq!(held.lines().count(), 7, "{held}");
    let text = printed(&["predict", "throughput", runs, "--hold-out", "every-second", "--shared-machine"]);
    assert!(
        text.contains("error of ops/s: median ") && text.contains("error of CPU time: median "),
        "{text}"
    );
    let cases = file(folder.path(), &printed(&["predict", "example", "what-if"]).replace("500_000", "5"));
    let text = printed(&["predict", "throughput", runs, "--what-if", &cases]);
    assert!(text.contains("16 cores, 4 devices (modelled)") && text.contains("SSD"), "{text}");
    let cores = printed(&["predict", "cores", runs, "--base", "hashmap", "--format", "tsv"]);
    assert!(cores.starts_with("base\tseries\tstatus\tbase_cores") && cores.lines().count() == 2, "{cores}");
}

#[test]
fn simulations_give_the_same_figures_for_the_same_seed() {
    let folder = tempfile::tempdir().unwrap();
    for (name, fewer) in [
        ("shards", [("10_000_000", "20_000"), ("1_000_000", "2_000")]),
        ("memory-mode", [("5_000_000", "20_000"), ("200_000", "2_000")]),
    ] {
        let text = printed(&["predict", "example", name]);
        let small = fewer.iter().fold(text, |text, (from, to)| text.replace(from, to));
        let path = file(folder.path(), &small);
        let table = printed(&["predict", name, &path]);
        assert!(
            table.contains("predicted") && table.lines().all(|line| line.chars().count() <= 80),
            "{table}"
        );
        let rows = printed(&["predict", name, &path, "--format", "tsv"]);
        assert_eq!(rows, printed(&["predict", name, &path, "--format", "tsv"]));
        let other = file(folder.path(), &small.replace("seed = 1", "seed = 2"));
        assert_ne!(rows, printed(&["predict", name, &other, "--format", "tsv"]));
        assert_eq!(rows.matches("\tpredicted\t").count(), rows.lines().count() - 1, "{rows}");
    }
}

#[test]
fn a_mistake_is_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().to_str().unwrap();
    assert!(refused(&["predict", "throughput", empty]).contains("there is no rounds.tsv in it"));
    assert!(refused(&["predict", "throughput", "/nowhere"]).contains("cannot read /nowhere: "));
    let shards = printed(&["predict", "example", "shards"]);
    let line = 1 + shards.lines().position(|line| line.starts_with("keys")).unwrap();
    let path = file(folder.path(), &shards.replacen("keys = 1_000_000", "keys = \"many\"", 1));
    let told = refused(&["predict", "shards", &path]);
    assert!(told.contains(&path) && told.contains(&format!("line {line}: ")), "{told}");
    let memory = printed(&["predict", "example", "memory-mode"]);
    let path = file(folder.path(), &memory.replacen("objects = 200_000\n", "", 1));
    assert!(refused(&["predict", "memory-mode", &path]).contains("give objects and distribution, or trace"));
    let path = file(
        folder.path(),
        &memory.replacen("distribution = \"zipfian:0.99\"", "trace = \"none.lis\"", 1).replacen(
            "objects = 200_000\n",
            "",
            1,
        ),
    );
    assert!(refused(&["predict", "memory-mode", &path]).contains("cannot read the trace "));
}
