use super::*;
use crate::run::saturation::Saturation;
use crate::statistics::Mean;
use crate::target::options::TargetOptions;
use crate::target::registry::{Registration, Registry};
use crate::targets::BTreeMapTarget;
use serde_json::json;

/// One round: operations in a CPU-second, bytes, and the 99th percentile of reads.
fn round([operations, bytes, p99_us]: [u64; 3]) -> Measurement {
    let usage = json!({
        "user_sec": 1.0, "sys_sec": 0.0, "ctx_switches_voluntary": 0, "ctx_switches_involuntary": 0, "max_rss_bytes": 0
    });
    let growth = json!({ "held_bytes": 0, "rss_bytes": 0 });
    let measurement = json!({
        "operations": operations, "wall_sec": 1.0, "usage": usage, "mismatches": 0, "keys": 10, "raw_bytes": 2000,
        "read": { "p50_us": 1.0, "p99_us": p99_us, "p999_us": 9.0 }, "memory": growth, "loaded_held_bytes": bytes,
        "loaded_keys": 10, "loaded_raw_bytes": 2000, "load_sec": 1.0, "load_cpu_sec": 2.0, "counters": { "files": 40 },
        "steps": [], "descriptions": [], "notes": []
    });
    serde_json::from_value(measurement).unwrap()
}

pub(crate) fn configuration(codec: &str, block_bytes: usize, rounds: &[[u64; 3]]) -> Configuration {
    let spec = RunSpec {
        codec: codec.into(),
        tunable: true,
        workload: Workload::named(FIGURE_4.0).unwrap(),
        value_bytes: ValueBytes { min: 256, max: 256 },
        options: TargetOptions { block_bytes: Some(block_bytes), ..TargetOptions::default() },
        ..RunSpec::new("rocksdb", "json")
    };
    let rounds = rounds.iter().copied().map(round).collect();
    Configuration { spec, rounds, logs: vec![], is_harness: false }
}

pub(crate) fn outcome(configurations: Vec<Configuration>) -> Outcome {
    Outcome { configurations, unavailable: vec![], failure: None, folder: None }
}

#[test]
fn ratios_are_of_equal_rounds_in_the_same_setting() {
    // The machine was half as fast in the second round, and slower still with small blocks.
    let all = outcome(vec![
        configuration(REFERENCE, 16384, &[[100, 1000, 80], [50, 1000, 160], [100, 1000, 80]]),
        configuration(FAST, 16384, &[[200, 1500, 40], [100, 1500, 80], [220, 1500, 40]]),
        configuration("ziptier", 16384, &[[200, 1040, 20], [100, 1040, 40], [240, 1040, 20]]),
        configuration(REFERENCE, 4096, &[[1, 1, 1]]),
        configuration("ziptier", 512, &[[1, 1, 1]]),
    ]);
    let compared = compared(&all);
    let ours = &compared[2];
    let throughput = ours.reference.throughput.unwrap();
    assert_eq!((throughput.median, throughput.spread_pct.map(f64::round)), (2.0, Some(20.0)));
    assert_eq!(ours.reference.size.unwrap().median, 1.04);
    assert_eq!(ours.reference.read_p99.unwrap().median, 0.25);
    assert_eq!(ours.reference.cores(), Some(0.5));
    assert_eq!(ours.fast.throughput.unwrap().median, 1.0);
    let usual: &[Vec<usize>] = &[vec![3], vec![3, 1], vec![3, 1, 0]];
    assert_eq!(growing(&[3, 1, 0]), usual);
    assert!(compared[4].reference.throughput.is_none(), "nothing to compare with at 512 bytes");
    assert_eq!(compared[3].reference.throughput.unwrap().median, 1.0);
}

#[test]
fn the_size_of_a_load_is_over_the_bytes_that_were_loaded() {
    let mut one = configuration(REFERENCE, 16384, &[[100, 1000, 80]]);
    // The window has inserted as many keys again.
    (one.rounds[0].keys, one.rounds[0].raw_bytes) = (20, 4000);
    assert_eq!(compared(&outcome(vec![one]))[0].held_per_raw(), Some(0.5));
}

#[test]
fn models_come_beside_what_takes_them_and_are_named() {
    let target = Registration::of::<BTreeMapTarget>("rocksdb", "", &["builtin-zstd", "ziptier-deflate"]);
    let target = Registration { check: |_| Ok(()), ..target }.with_models_for(["ziptier-deflate"]);
    let registry = Registry::with(vec![target]);
    let plan = |codecs: &[&str]| {
        let asked = Plan {
            targets: vec!["rocksdb".into()],
            codecs: codecs.iter().map(|codec| (*codec).to_owned()).collect(),
            models: vec!["devices=1".into(), "devices=4".into()],
            cpus: vec![vec![0]],
            block_bytes: vec![4096],
            ..crate::suites::codec::tests::asked()
        };
        database_suite(asked).unwrap().runs(&registry)
    };
    let runs = plan(&["builtin-zstd", "ziptier-deflate"]).unwrap();
    let labels: Vec<String> = runs[..4].iter().map(label).collect();
    let modelled = ["ziptier-deflate modelled devices=1", "ziptier-deflate modelled devices=4"];
    assert_eq!(labels, [&["builtin-zstd", "ziptier-deflate"][..], &modelled].concat());
    assert_eq!(runs[3].name(), "rocksdb_ziptier-deflate-modelled-devices4_b4096");
    assert!(runs.iter().all(|run| run.cpus == [0]));
    let refused = plan(&["builtin-zstd"]).unwrap_err().to_string();
    assert!(refused.contains("--model"), "{refused}");
}

/// Jobs that are late for half a second hold up each of two threads for a quarter.
#[test]
fn the_row_of_a_saturated_run_is_that_of_the_threads_that_it_found() {
    let mut one = configuration("ziptier-deflate", 16384, &[[100, 1000, 80]]);
    let round = &mut one.rounds[0];
    round.modelled = ModelledWork { jobs: 10, late_jobs: 5, late_sec: 0.5, ..ModelledWork::default() };
    assert_eq!(round.qps_without_lateness(&one.spec), Some(200.0));
    round.saturation = Some(Saturation {
        points: Vec::new(),
        peak_load: 2,
        peak: Mean::of(&[100.0]).unwrap(),
        knee: 2.0,
        knee_error: None,
        enough_load: 2,
    });
    assert_eq!(round.qps_without_lateness(&one.spec), Some(100.0 / 0.75));
    let all = outcome(vec![one]);
    let threads = compared(&all)[0].row().into_iter().find(|(name, _)| *name == "threads").unwrap().1;
    assert_eq!(threads.to_tsv(), "2");
}

#[test]
fn the_published_setting_has_its_own_figure() {
    let rounds = [[100, 1000, 80]];
    let large = [REFERENCE, FAST, "ziptier"].map(|codec| configuration(codec, 16384, &rounds));
    let small = configuration(REFERENCE, 4096, &rounds);
    let all = outcome(large.into_iter().chain([small]).collect());
    let plan = crate::suites::codec::tests::asked();
    let text = render_databases(&plan, &all, Format::Table);
    assert_eq!(text.matches("Figure 4, readrandomwriterandom, values of 256 B").count(), 1, "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    let rows = render_databases(&plan, &all, Format::Tsv);
    assert_eq!(rows.lines().count(), 5);
}

#[test]
fn a_modelled_row_tells_what_the_model_predicts() {
    let rounds = [[100, 1000, 80]; 3];
    let mut modelled = configuration("ziptier-deflate", 16384, &rounds);
    modelled.spec.options.model = Some("devices=4".into());
    for round in &mut modelled.rounds {
        round.modelled = ModelledWork { jobs: 10, late_jobs: 5, late_sec: 0.5, ..ModelledWork::default() };
    }
    let all = outcome(vec![configuration(REFERENCE, 16384, &rounds), modelled]);
    let text = render_databases(&crate::suites::codec::tests::asked(), &all, Format::Table);
    let unwrapped = text.replace('\n', " ");
    let predicted = "readrandomwriterandom: predicted 100 to 200 ops/s; 50 % of jobs late, all by 50000.0 us";
    assert_eq!(unwrapped.matches(predicted).count(), 1, "{text}");
    assert_eq!(text.matches("modelled: software stands in").count(), 1, "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert_eq!(predictions(&all.configurations[..1]), "");
}

#[test]
fn what_is_left_open_is_as_published() {
    let asked = Plan {
        workloads: vec![],
        value_bytes: vec![],
        value_orders: vec![],
        ..crate::suites::codec::tests::asked()
    };
    let plan = database_suite(asked).unwrap();
    let names: Vec<&str> = plan.workloads.iter().map(|workload| workload.name.as_str()).collect();
    assert_eq!(names, ["readrandom", "readrandomwriterandom"]);
    assert_eq!(
        (plan.value_bytes.len(), plan.value_orders.len(), plan.block_bytes),
        (2, 2, vec![4096, 16384])
    );
}
