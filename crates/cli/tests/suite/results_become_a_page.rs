//! `ziptier report` as a user meets it: the page of a benchmark, the page that `ziptier mbwu run` ends with, and a
//! folder without results.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::support::{comes_true, ziptier};

fn run(folder: &Path, arguments: &[&str]) -> Output {
    ziptier().current_dir(folder).args(arguments).output().unwrap()
}

fn printed(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_benchmark_becomes_a_page_with_its_data_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let small =
        "bench --target btreemap --workload read_only --keys 1000 --seconds 0.2 --warmup 0 --out results";
    printed(folder.path(), &small.split(' ').collect::<Vec<_>>());
    let said = printed(folder.path(), &["report", "results", "--out", "page.html"]);
    assert_eq!(said, "written to page.html\nwritten to page.json\nwritten to page.tsv\n");
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("ziptier report results --out page.html"), "it says how to make it again");
    assert!(page.contains("--keys 1000 --seconds 0.2"), "and how to measure again");
    assert!(page.contains("Throughput and size"));
}

/// The words of the commands were joined by spaces, so that a shell cut them at other places.
#[test]
fn commands_of_a_page_can_be_given_again() {
    let folder = tempfile::tempdir().unwrap();
    let small = "bench --target btreemap --workload read_only --keys 1000 --operations 1000 --warmup 0 --out";
    printed(folder.path(), &small.split(' ').chain(["my results"]).collect::<Vec<_>>());
    printed(folder.path(), &["report", "my results", "--out", "page.html"]);
    let data = fs::read_to_string(folder.path().join("page.json")).unwrap();
    let data: serde_json::Value = serde_json::from_str(&data).unwrap();
    assert_eq!(data["command"], "ziptier report 'my results' --out page.html");
    let measured = data["sections"][0]["commands"][0].as_str().unwrap();
    assert!(measured.ends_with("--warmup 0 --out 'my results'"), "{measured}");
}

/// The files of the only benchmark whose results lie in `results`, as far as it is.
fn files_of(results: &Path) -> Vec<String> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap());
    let files = entries(results).flat_map(|folder| entries(&folder.path()).collect::<Vec<_>>());
    files.map(|file| file.file_name().into_string().unwrap()).collect()
}

/// A thousand rounds, of which a user waits for a few.
#[test]
fn an_interrupted_benchmark_keeps_the_rounds_before_and_its_page_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let endless = "bench --target btreemap --workload read_only --keys 1000 --seconds 0.1 --warmup 0 --rounds 1000 \
                   --out results";
    let mut command = ziptier();
    command.current_dir(folder.path()).args(endless.split(' ')).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut bench = command.spawn().unwrap();
    let files = || files_of(&folder.path().join("results"));
    let begun = comes_true(|| files().iter().any(|file| file.ends_with("round2.log")));
    assert!(Command::new("kill").args(["-INT", &bench.id().to_string()]).status().unwrap().success());
    let ended = comes_true(|| bench.try_wait().unwrap().is_some());
    if !ended {
        bench.kill().unwrap();
    }
    let output = bench.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(begun && ended && files().contains(&"summary.tsv".into()), "{begun}, {ended}: {said}");
    assert!(said.contains("error: interrupted; the results are those of the runs before"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
    printed(folder.path(), &["report", "results", "--out", "page.html"]);
    let page = fs::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(page.contains("The benchmark ended early: interrupted"), "{page}");
}

#[test]
fn a_folder_without_results_is_told_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path(), &["report", ".", "--out", "page.html"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count(), output.stdout.len()), (Some(2), 1, 0), "{said}");
    assert!(
        said.contains("neither unit.toml nor rounds.json; give a folder of `ziptier bench --out`"),
        "{said}"
    );
}

#[test]
fn an_evaluation_ends_with_a_page() {
    let folder = tempfile::tempdir().unwrap();
    printed(folder.path(), &["mbwu", "init", "evaluation"]);
    let evaluation = folder.path().join("evaluation");
    let work = "[work]\nbench = \"--target btreemap\"\n";
    let unit = "workload = \"reads\"\nmedium = \"memory\"\nsoftware = \"x 1\"\nrounds = 1\nrounds_max = 1\n\
                bench = \"--mix read=100 --keys 1000 --warmup 0 --warmup-max 0 --operations 200000\"\n\
                seconds = 1\nthreads_max = 1\n";
    fs::write(evaluation.join("unit.toml"), format!("{unit}{work}")).unwrap();
    fs::write(evaluation.join("server.toml"), format!("name = \"server\"\nstage = \"one\"\n{work}")).unwrap();
    fs::remove_file(evaluation.join("board.toml")).unwrap();
    let said = printed(folder.path(), &["mbwu", "run", "evaluation"]);
    assert!(said.ends_with("written to evaluation/report.tsv\n"), "{said}");
    let page = fs::read_to_string(evaluation.join("report.html")).unwrap();
    assert!(page.contains("What limits each side") && page.contains("server (one): "), "{page}");
    // The comparison is there although the page cannot be.
    fs::remove_file(evaluation.join("report.html")).unwrap();
    fs::create_dir(evaluation.join("report.html")).unwrap();
    let again = run(folder.path(), &["mbwu", "run", "evaluation"]);
    let (before, _) = said.split_once("written to ").unwrap();
    let compared = before.trim_end().rsplit("\n\n").next().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8(again.stdout).unwrap().contains(compared), "{compared}");
}
