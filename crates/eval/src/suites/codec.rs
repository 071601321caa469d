//! The suite that compares codecs. It runs every available codec and engine over the workloads and thread counts of the
//! published evaluation, with background packing off and on.
//!
//! This module names no codec. Each target's registration lists its codecs, so the suite also measures a codec that is
//! added there.

use crate::bench::plan::Plan;
use crate::target::registry::Registry;

/// Thread counts of the published evaluation.
const THREADS: [u64; 4] = [4, 8, 16, 32];

/// The plan of the suite: `asked`, with its open parts (empty lists) filled in.
pub fn codec_suite(asked: Plan, registry: &Registry) -> Plan {
    let mut plan = Plan { compares_codecs: true, names_unavailable: true, ..asked };
    if plan.targets.is_empty() {
        plan.targets = registry.compressing();
    }
    if plan.threads.is_empty() {
        plan.threads = THREADS.to_vec();
    }
    if plan.background.is_empty() {
        plan.background = vec![false, true];
    }
    plan
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::run::spec::RunSpec;
    use crate::target::Config;
    use crate::target::options::{Huffman, TargetOptions};
    use crate::target::registry::Registration;
    use crate::targets::BTreeMapTarget;
    use crate::workload::Workload;

    fn registry(codecs: &[&'static str]) -> Registry {
        let store = Registration::of::<BTreeMapTarget>("store", "", codecs);
        let taken = |config: &Config| {
            Ok(config.options.take_only(&["--codec-engine", "--huffman", "--path", "--block-bytes"])?)
        };
        let store = Registration { check: taken, ..store }
            .with_engine("deflate", "software", &[Huffman::Dynamic])
            .with_engine("deflate", "zlib", &[Huffman::Dynamic, Huffman::Fixed]);
        Registry::with(vec![store])
    }

    pub(crate) fn asked() -> Plan {
        let usual = RunSpec::new("", "json");
        Plan {
            targets: vec![],
            codecs: vec![],
            engines: vec![],
            compares_codecs: false,
            names_unavailable: false,
            workloads: Workload::usual(),
            threads: vec![],
            landing_bytes: vec![],
            background: vec![],
            background_threads: None,
            models: vec![],
            models_beside: false,
            options: TargetOptions::default(),
            rounds: 1,
            keys: 50_000,
            key_bytes: None,
            key_shape: usual.key_shape,
            multi_get: 1,
            multi_put: 1,
            connections: None,
            value_bytes: vec![usual.value_bytes],
            value_orders: vec![usual.value_order],
            block_bytes: vec![],
            corpus: usual.corpus,
            train_on: usual.train_on,
            distribution: usual.distribution,
            seconds: 5.0,
            operations: None,
            warmup_seconds: 0.5,
            settle_seconds: 0.0,
            cpus: vec![],
            instances: 1,
            pace: usual.pace,
            warmup_seconds_max: None,
            until_steady: false,
            perf_control: None,
            latency: true,
            zlib_accel: None,
            out: None,
            command: String::new(),
        }
    }

    fn runs(asked: Plan, codecs: &[&'static str]) -> Vec<RunSpec> {
        let registry = registry(codecs);
        codec_suite(asked, &registry).runs(&registry).unwrap()
    }

    /// The different values of something among the runs, in their order.
    fn different<T: PartialEq>(runs: &[RunSpec], what: impl Fn(&RunSpec) -> T) -> Vec<T> {
        let mut all: Vec<T> = Vec::new();
        for value in runs.iter().map(what) {
            if !all.contains(&value) {
                all.push(value);
            }
        }
        all
    }

    #[test]
    fn the_matrix_is_every_codec_in_every_setting() {
        let all = runs(asked(), &["auto", "none", "token"]);
        assert_eq!(all.len(), 3 * 5 * 4 * 2);
        assert_eq!(different(&all, |run| run.target.clone()), ["store"]);
        assert_eq!(different(&all, |run| run.codec.clone()), ["auto", "none", "token"]);
        assert_eq!(different(&all, |run| run.workload.name.clone()).len(), 5);
        assert_eq!(different(&all, |run| run.threads), [4, 8, 16, 32]);
        assert_eq!(different(&all, |run| run.background), [Some(false), Some(true)]);
        assert_eq!(
            different(&all, |run| run.name() + &run.workload.name + &run.threads.to_string()).len(),
            120
        );
        assert!(all.iter().all(|run| (run.seconds, run.keys, run.value_bytes.max) == (5.0, 50_000, 128)));
    }

    #[test]
    fn a_codec_that_is_registered_is_measured_with_each_of_its_engines_and_their_modes() {
        let codecs = ["auto", "lz4", "deflate"];
        let all = runs(asked(), &codecs);
        assert_eq!(all.len(), (1 + 1 + 3) * 5 * 4 * 2);
        let names = |asked| different(&runs(asked, &codecs), |run| run.name().replace("store_", ""));
        assert_eq!(
            names(Plan { background: vec![true], ..asked() }),
            [
                "auto_bg1",
                "lz4_bg1",
                "deflate-software-dynamic_bg1",
                "deflate-zlib-dynamic_bg1",
                "deflate-zlib-fixed_bg1"
            ]
        );
        let deflate = Plan { background: vec![true], codecs: vec!["deflate".into()], ..asked() };
        let fixed = TargetOptions { huffman: Some(Huffman::Fixed), ..TargetOptions::default() };
        assert_eq!(names(Plan { options: fixed.clone(), ..deflate.clone() }), ["deflate-zlib-fixed_bg1"]);
        let zlib = Plan { engines: vec!["zlib".into()], ..deflate.clone() };
        assert_eq!(names(zlib), ["deflate-zlib-dynamic_bg1", "deflate-zlib-fixed_bg1"]);
        // Whether an engine that is asked for by name can do it, the target says.
        let software = Plan { engines: vec!["software".into()], options: fixed, ..deflate };
        assert_eq!(names(software), ["deflate-software-fixed_bg1"]);
    }

    #[test]
    fn what_is_asked_for_replaces_the_default() {
        let asked = Plan {
            codecs: vec!["lz4".into()],
            threads: vec![2],
            background: vec![false],
            landing_bytes: vec![512, 1024],
            workloads: vec![Workload::named("read_only").unwrap()],
            ..asked()
        };
        let all = runs(asked, &["auto", "lz4"]);
        assert_eq!(different(&all, RunSpec::name), ["store_lz4_l512_bg0", "store_lz4_l1024_bg0"]);
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn codecs_with_blocks_of_one_size_are_side_by_side() {
        let asked =
            Plan { codecs: vec!["auto".into(), "lz4".into()], block_bytes: vec![4096, 16384], ..asked() };
        let asked =
            Plan { workloads: vec![Workload::named("read_only").unwrap()], threads: vec![1], ..asked };
        let names = runs(asked, &["auto", "lz4"]).iter().map(RunSpec::name).collect::<Vec<_>>();
        let blocks = |bytes| ["auto", "lz4"].map(|codec| format!("store_{codec}_b{bytes}"));
        let sides = |bytes: usize| {
            blocks(bytes).map(|name| ["_bg0", "_bg1"].map(|bg| format!("{name}{bg}"))).concat()
        };
        assert_eq!(names, [sides(4096), sides(16384)].concat());
    }

    #[test]
    fn options_that_nobody_takes_are_refused_before_the_first_run() {
        let options = TargetOptions { level: Some(9), ..TargetOptions::default() };
        let asked = Plan { options, ..asked() };
        let registry = registry(&["auto"]);
        let error = codec_suite(asked.clone(), &registry).runs(&registry).unwrap_err();
        assert_eq!(
            (error.exit_status(), error.to_string().as_str()),
            (2, "the target store did not open: it does not take --level 9; leave it out")
        );
        let uncompressed = Plan { targets: vec!["btreemap".into()], ..asked };
        let error = codec_suite(uncompressed, &registry).runs(&registry).unwrap_err();
        assert!(error.exit_status() == 2 && error.to_string().contains("--level 9"), "{error}");
        let engines = Plan { engines: vec!["iaa".into()], ..self::asked() };
        let error = codec_suite(engines, &registry).runs(&registry).unwrap_err();
        assert!(error.exit_status() == 2 && error.to_string().contains("no codec"), "{error}");
    }

    #[test]
    fn the_announcement_says_how_long_it_takes() {
        let registry = registry(&["auto", "none", "token"]);
        let plan = codec_suite(asked(), &registry);
        assert_eq!(plan.announcement(&registry).unwrap(), "120 runs, 6.1 s each: about 12 min in all");
    }
}
