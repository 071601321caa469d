//! A verdict on each codec against `lz4`, the most common codec.
//!
//! A codec is worth having if it answers more operations per second, or as many with less of the processors. The
//! verdict uses ratios to the baseline in the same setting (workload, threads, landing size, background packing,
//! values, size of blocks, processors). For a codec as a whole it uses the geometric means of these ratios. Saved
//! memory stands beside the verdict and does not influence it.

use std::collections::BTreeMap;
use std::fmt;

use crate::bench::{Configuration, Outcome};
use crate::results::row::{Cell, Row, median_row};
use crate::results::table::{tabulated, tsv, wrapped};

/// Codecs that serve as baseline: the first of these that was measured.
const BASELINES: [&str; 2] = ["lz4", "none"];
/// Throughput is similar within this share, and fewer cores are at least this share fewer: less than that is noise.
const SIMILAR: f64 = 0.05;

/// The verdict on a codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// More operations per second, by more than 5 %.
    HigherThroughput,
    /// Throughput within 5 %, with at least 5 % less of the processors.
    FewerCores,
    /// Neither of these.
    Neither,
}

impl Verdict {
    /// The verdict on ratios to the baseline.
    fn on(throughput: f64, cores: f64) -> Self {
        if throughput > 1.0 + SIMILAR {
            Verdict::HigherThroughput
        } else if throughput >= 1.0 - SIMILAR && cores <= 1.0 - SIMILAR {
            Verdict::FewerCores
        } else {
            Verdict::Neither
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::HigherThroughput => "higher throughput",
            Verdict::FewerCores => "fewer cores",
            Verdict::Neither => "neither",
        })
    }
}

/// The setting that distinguishes runs of one codec.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Setting {
    workload: String,
    threads: u64,
    landing_bytes: Option<usize>,
    background: Option<bool>,
    value_bytes: String,
    value_order: String,
    block_bytes: Option<usize>,
    cpus: Vec<usize>,
}

/// The judged figures of a configuration.
#[derive(Debug, Clone)]
struct Figures {
    target: String,
    codec: String,
    /// With its Huffman mode.
    engine: Option<String>,
    setting: Setting,
    qps: f64,
    cpu_cores: f64,
    held_per_raw: f64,
    mismatches: u64,
}

impl Figures {
    /// The medians of a configuration; nothing if it was not measured.
    fn of(configuration: &Configuration) -> Option<Self> {
        let row = median_row(configuration);
        let number = |name: &str| row.iter().find(|(column, _)| *column == name)?.1.as_number();
        let spec = &configuration.spec;
        // The system's libz is no accelerator, and a model is no machine. Neither gets a headline.
        let engine = configuration.rounds.first()?.counters.engine.as_deref();
        if spec.is_published && matches!(engine, Some("zlib_system" | "modelled")) {
            return None;
        }
        Some(Figures {
            target: spec.target.clone(),
            codec: spec.codec.clone(),
            engine: spec.options.engine_in_words().map(|words| match spec.preload {
                Some(_) => words + "-preloaded",
                None => words,
            }),
            setting: Setting {
                workload: spec.workload.name.clone(),
                threads: spec.threads,
                landing_bytes: spec.landing_bytes,
                background: spec.background,
                value_bytes: spec.value_bytes.to_string(),
                value_order: spec.value_order.to_string(),
                block_bytes: spec.options.block_bytes,
                cpus: spec.cpus.clone(),
            },
            qps: number("qps")?,
            cpu_cores: number("cpu_cores")?,
            held_per_raw: number("held_per_raw").unwrap_or(f64::NAN),
            mismatches: number("mismatches")? as u64,
        })
    }

    fn coding(&self) -> (&str, Option<&str>) {
        (&self.codec, self.engine.as_deref())
    }
}

/// One codec, or one engine of it, against the baseline in one setting.
#[derive(Debug, Clone)]
struct Case {
    figures: Figures,
    baseline: Figures,
}

impl Case {
    fn throughput(&self) -> f64 {
        self.figures.qps / self.baseline.qps
    }

    fn cores(&self) -> f64 {
        self.figures.cpu_cores / self.baseline.cpu_cores
    }

    /// Nothing if one of the two answered wrongly: then its speed means nothing.
    fn verdict(&self) -> Option<Verdict> {
        let right = self.figures.mismatches + self.baseline.mismatches == 0;
        right.then(|| Verdict::on(self.throughput(), self.cores()))
    }
}

/// All settings of one codec, or of one engine of it.
#[derive(Debug, Clone)]
struct Judgement {
    target: String,
    codec: String,
    engine: Option<String>,
    baseline: &'static str,
    cases: Vec<Case>,
}

impl Judgement {
    fn name(&self) -> String {
        match &self.engine {
            Some(engine) => format!("{}-{engine}", self.codec),
            None => self.codec.clone(),
        }
    }

    fn throughput(&self) -> f64 {
        geometric_mean(self.cases.iter().map(Case::throughput))
    }

    fn cores(&self) -> f64 {
        geometric_mean(self.cases.iter().map(Case::cores))
    }

    fn held_per_raw(&self) -> (f64, f64) {
        let mean =
            |held: fn(&Case) -> f64| self.cases.iter().map(held).sum::<f64>() / self.cases.len() as f64;
        (mean(|case| case.figures.held_per_raw), mean(|case| case.baseline.held_per_raw))
    }

    /// Nothing if any answer was wrong.
    fn verdict(&self) -> Option<Verdict> {
        let all_right = self.cases.iter().all(|case| case.verdict().is_some());
        (all_right && !self.cases.is_empty()).then(|| Verdict::on(self.throughput(), self.cores()))
    }

    fn cases_with(&self, verdict: Verdict) -> usize {
        self.cases.iter().filter(|case| case.verdict() == Some(verdict)).count()
    }
}

fn geometric_mean(ratios: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = ratios.fold((0.0, 0), |(sum, count), ratio| (sum + ratio.ln(), count + 1));
    (sum / f64::from(count)).exp()
}

/// The verdicts on every codec of a benchmark.
#[derive(Debug, Clone)]
pub struct Verdicts {
    judged: Vec<Judgement>,
    /// Targets without a baseline.
    without_baseline: Vec<String>,
}

impl Verdicts {
    /// Judges what was measured.
    pub fn of(outcome: &Outcome) -> Self {
        Self::on(&outcome.configurations.iter().filter_map(Figures::of).collect::<Vec<_>>())
    }

    fn on(all: &[Figures]) -> Self {
        let mut verdicts = Verdicts { judged: Vec::new(), without_baseline: Vec::new() };
        let mut targets: Vec<&str> = Vec::new();
        for figures in all {
            if !targets.contains(&figures.target.as_str()) {
                targets.push(&figures.target);
            }
        }
        for target in targets {
            let own: Vec<&Figures> = all.iter().filter(|figures| figures.target == target).collect();
            let of_baseline = |codec: &&str| own.iter().find(|figures| figures.codec == *codec);
            let Some((baseline, first)) =
                BASELINES.iter().find_map(|codec| Some((*codec, of_baseline(codec)?)))
            else {
                verdicts.without_baseline.push(target.to_owned());
                continue;
            };
            let by_setting: BTreeMap<&Setting, &Figures> = own
                .iter()
                .filter(|figures| figures.coding() == first.coding())
                .map(|figures| (&figures.setting, *figures))
                .collect();
            for figures in own.iter().filter(|figures| figures.coding() != first.coding()) {
                // A benchmark that ended early may have one of the two alone, and a window may be too short for a
                // single operation.
                // The accelerator that is preloaded has blocks of its own where nobody asks for a size.
                let usual = || by_setting.get(&Setting { block_bytes: None, ..figures.setting.clone() });
                let Some(&beside) = by_setting.get(&figures.setting).or_else(usual) else { continue };
                if figures.qps <= 0.0 || beside.qps <= 0.0 {
                    continue;
                }
                let case = Case { figures: (*figures).clone(), baseline: beside.clone() };
                let known = verdicts.judged.iter_mut().find(|judgement| {
                    judgement.target == target
                        && (judgement.codec.as_str(), judgement.engine.as_deref()) == figures.coding()
                });
                match known {
                    Some(judgement) => judgement.cases.push(case),
                    None => verdicts.judged.push(Judgement {
                        target: target.to_owned(),
                        codec: figures.codec.clone(),
                        engine: figures.engine.clone(),
                        baseline,
                        cases: vec![case],
                    }),
                }
            }
        }
        verdicts
    }

    /// For people: one line per codec, target by target.
    pub fn to_text(&self) -> String {
        const HEADINGS: [(&str, &str); 7] = [
            ("codec", ""),
            ("verdict", ""),
            ("ops/s", "ratio"),
            ("cores", "ratio"),
            ("held", "/raw"),
            ("baseline", "held/raw"),
            ("settings", "h/f/n"),
        ];
        let line = |judgement: &Judgement| {
            let (held, baseline_held) = judgement.held_per_raw();
            let count = |verdict| judgement.cases_with(verdict);
            [
                judgement.name(),
                judgement.verdict().map_or("wrong answers".into(), |verdict| verdict.to_string()),
                format!("{:.2}", judgement.throughput()),
                format!("{:.2}", judgement.cores()),
                format!("{held:.2}"),
                format!("{baseline_held:.2}"),
                format!(
                    "{}/{}/{}",
                    count(Verdict::HigherThroughput),
                    count(Verdict::FewerCores),
                    count(Verdict::Neither)
                ),
            ]
        };
        let mut text = String::new();
        if !self.judged.is_empty() {
            text += &wrapped(&format!(
                "\nverdicts: higher throughput is more than {pct:.0} % more; fewer cores is at least {pct:.0} % fewer \
                 with throughput within {pct:.0} %. Geometric means over the settings; held: means. h/f/n: settings \
                 with higher throughput, fewer cores, neither.",
                pct = SIMILAR * 100.0
            ));
        }
        for of_target in self.judged.chunk_by(|one, other| one.target == other.target) {
            text += &format!("\n{} against {}\n", of_target[0].target, of_target[0].baseline);
            text += &tabulated(&HEADINGS, of_target.iter().map(line).collect(), 2);
        }
        for target in &self.without_baseline {
            text += &format!("no verdict on the codecs of {target}: neither lz4 nor none was measured\n");
        }
        text
    }

    /// For programs: one row per codec (`workload` is `all`), then one per codec and setting.
    pub(crate) fn to_tsv(&self) -> String {
        let whole = self.judged.iter().map(|judgement| {
            let (held, baseline_held) = judgement.held_per_raw();
            row(
                judgement,
                None,
                judgement.verdict(),
                judgement.throughput(),
                judgement.cores(),
                [held, baseline_held],
            )
        });
        let single = self.judged.iter().flat_map(|judgement| {
            judgement.cases.iter().map(move |case| {
                let held = [case.figures.held_per_raw, case.baseline.held_per_raw];
                row(judgement, Some(case), case.verdict(), case.throughput(), case.cores(), held)
            })
        });
        tsv(whole.chain(single))
    }
}

fn row(
    judgement: &Judgement,
    case: Option<&Case>,
    verdict: Option<Verdict>,
    throughput: f64,
    cores: f64,
    [held, baseline_held]: [f64; 2],
) -> Row {
    let setting = case.map(|case| &case.figures.setting);
    let figure = |figure: fn(&Case) -> f64, decimals| Cell::number(case.map(figure), decimals);
    vec![
        ("target", Cell::text(Some(&judgement.target))),
        ("codec", Cell::text(Some(&judgement.codec))),
        ("engine", Cell::text(judgement.engine.as_deref())),
        ("baseline", Cell::text(Some(judgement.baseline))),
        ("workload", Cell::text(Some(setting.map_or("all", |setting| &setting.workload)))),
        ("threads", Cell::count(setting.map(|setting| setting.threads))),
        ("landing_bytes", Cell::count(setting.and_then(|setting| Some(setting.landing_bytes? as u64)))),
        ("background", Cell::count(setting.and_then(|setting| Some(setting.background?.into())))),
        ("verdict", Cell::text(Some(&verdict.map_or("wrong answers".into(), |verdict| verdict.to_string())))),
        ("throughput_ratio", Cell::number(Some(throughput), 4)),
        ("cores_ratio", Cell::number(Some(cores), 4)),
        ("held_per_raw", Cell::number(Some(held), 4)),
        ("baseline_held_per_raw", Cell::number(Some(baseline_held), 4)),
        ("qps", figure(|case| case.figures.qps, 0)),
        ("baseline_qps", figure(|case| case.baseline.qps, 0)),
        ("cpu_cores", figure(|case| case.figures.cpu_cores, 3)),
        ("baseline_cpu_cores", figure(|case| case.baseline.cpu_cores, 3)),
        ("value_bytes", Cell::text(setting.map(|setting| setting.value_bytes.as_str()))),
        ("value_order", Cell::text(setting.map(|setting| setting.value_order.as_str()))),
        ("block_bytes", Cell::count(setting.and_then(|setting| Some(setting.block_bytes? as u64)))),
        ("cpus", Cell::count(setting.map(|setting| setting.cpus.len() as u64).filter(|cpus| *cpus > 0))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::values::ValueBytes;
    use crate::suites::database::tests::{configuration, outcome};

    fn figures(codec: &str, workload: &str, qps: f64, cpu_cores: f64) -> Figures {
        Figures {
            target: "store".into(),
            codec: codec.into(),
            engine: None,
            setting: Setting {
                workload: workload.into(),
                threads: 4,
                landing_bytes: None,
                background: Some(false),
                value_bytes: "128".into(),
                value_order: "strangers".into(),
                block_bytes: None,
                cpus: Vec::new(),
            },
            qps,
            cpu_cores,
            held_per_raw: 0.5,
            mismatches: 0,
        }
    }

    /// The verdict on one setting, against an lz4 of 1,000,000 operations per second on 4 cores.
    fn verdict(qps: f64, cpu_cores: f64) -> Option<Verdict> {
        let rows = [figures("lz4", "read_only", 1e6, 4.0), figures("zstd", "read_only", qps, cpu_cores)];
        Verdicts::on(&rows).judged[0].verdict()
    }

    #[test]
    fn each_verdict_has_its_ratios() {
        for (qps, cores, expected) in [
            (2.00e6, 4.0, Verdict::HigherThroughput),
            (1.06e6, 8.0, Verdict::HigherThroughput),
            (1.06e6, 1.0, Verdict::HigherThroughput),
            (1.04e6, 4.0, Verdict::Neither),
            (1.04e6, 2.0, Verdict::FewerCores),
            (0.96e6, 3.7, Verdict::FewerCores),
            (0.96e6, 3.9, Verdict::Neither),
            (1.00e6, 5.0, Verdict::Neither),
            (0.94e6, 0.1, Verdict::Neither),
        ] {
            assert_eq!(verdict(qps, cores), Some(expected), "{qps} operations per second on {cores} cores");
        }
    }

    #[test]
    fn a_codec_as_a_whole_is_judged_by_geometric_means() {
        let rows = [
            figures("zstd", "read_only", 4e6, 4.0),
            figures("lz4", "read_only", 1e6, 4.0),
            figures("lz4", "write_only", 1e6, 4.0),
            figures("zstd", "write_only", 0.5e6, 4.0),
        ];
        let verdicts = Verdicts::on(&rows);
        let [zstd] = verdicts.judged.as_slice() else { panic!("{verdicts:?}") };
        assert!((zstd.throughput() - 2f64.sqrt()).abs() < 1e-9 && zstd.cases.len() == 2);
        assert_eq!(zstd.verdict(), Some(Verdict::HigherThroughput));
        assert_eq!((zstd.cases_with(Verdict::HigherThroughput), zstd.cases_with(Verdict::Neither)), (1, 1));
        let tsv = verdicts.to_tsv();
        let lines: Vec<Vec<&str>> = tsv.lines().map(|line| line.split('\t').collect()).collect();
        assert_eq!(lines.len(), 1 + 1 + 2);
        assert_eq!(lines[1][4..9], ["all", "NA", "NA", "NA", "higher throughput"]);
        assert_eq!(lines[3][4..9], ["write_only", "4", "NA", "0", "neither"]);
        assert!(verdicts.to_text().contains("store against lz4"), "{}", verdicts.to_text());
    }

    #[test]
    fn without_lz4_the_baseline_is_none_and_without_that_there_is_no_verdict() {
        let rows = [figures("auto", "read_only", 2e6, 4.0), figures("none", "read_only", 1e6, 4.0)];
        let verdicts = Verdicts::on(&rows);
        assert_eq!((verdicts.judged[0].codec.as_str(), verdicts.judged[0].baseline), ("auto", "none"));
        let verdicts = Verdicts::on(&rows[..1]);
        assert!(verdicts.judged.is_empty());
        assert_eq!(
            verdicts.to_text(),
            "no verdict on the codecs of store: neither lz4 nor none was measured\n"
        );
    }

    #[test]
    fn a_run_without_operations_is_not_compared() {
        let rows = [figures("lz4", "read_only", 0.0, 4.0), figures("zstd", "read_only", 1e6, 4.0)];
        assert!(Verdicts::on(&rows).judged.is_empty());
    }

    #[test]
    fn wrong_answers_are_not_judged_however_fast() {
        let wrong = Figures { mismatches: 1, ..figures("zstd", "read_only", 9e6, 1.0) };
        let rows = [figures("lz4", "read_only", 1e6, 4.0), wrong];
        let verdicts = Verdicts::on(&rows);
        assert_eq!(verdicts.judged[0].verdict(), None);
        assert!(verdicts.to_text().contains("wrong answers") && verdicts.to_tsv().contains("wrong answers"));
    }

    /// The throughputs of two codecs to each other, for values and blocks of these sizes.
    fn ratios(all: [(&str, Option<usize>, u64, u64); 4]) -> Vec<f64> {
        let one = |(codec, block_bytes, value_bytes, operations)| {
            let mut one = configuration(codec, 4096, &[[operations, 1, 1]]);
            one.spec.options.block_bytes = block_bytes;
            one.spec.value_bytes = ValueBytes { min: value_bytes, max: value_bytes };
            one
        };
        let verdicts = Verdicts::of(&outcome(all.map(one).into()));
        let [judged] = verdicts.judged.as_slice() else { panic!("{verdicts:?}") };
        judged.cases.iter().map(Case::throughput).collect()
    }

    #[test]
    fn values_and_blocks_of_other_sizes_are_no_baseline() {
        let (small, large) = (Some(4096), Some(16384));
        let values = [
            ("lz4", None, 128, 900),
            ("zstd", None, 128, 900),
            ("lz4", None, 600, 9),
            ("zstd", None, 600, 9),
        ];
        let blocks = [
            ("lz4", small, 128, 900),
            ("zstd", small, 128, 900),
            ("lz4", large, 128, 9),
            ("zstd", large, 128, 9),
        ];
        assert_eq!([values, blocks].map(ratios), [[1.0, 1.0], [1.0, 1.0]]);
        // One with blocks of its own.
        let own = [
            ("lz4", None, 128, 900),
            ("zstd", small, 128, 90),
            ("lz4", None, 600, 9),
            ("zstd", None, 600, 9),
        ];
        assert_eq!(ratios(own), [0.1, 1.0]);
    }

    #[test]
    fn other_processors_are_no_baseline() {
        let on = |codec, operations, cpus: &[usize]| {
            let mut one = configuration(codec, 4096, &[[operations, 1, 1]]);
            one.spec.cpus = cpus.to_vec();
            one
        };
        let rows = [on("lz4", 900, &[0]), on("zstd", 900, &[0]), on("lz4", 9, &[1]), on("zstd", 9, &[1])];
        let verdicts = Verdicts::of(&outcome(rows.into()));
        let [judged] = verdicts.judged.as_slice() else { panic!("{verdicts:?}") };
        assert_eq!(judged.cases.iter().map(Case::throughput).collect::<Vec<_>>(), [1.0, 1.0]);
    }

    #[test]
    fn only_equal_settings_are_compared_and_engines_apart() {
        let engine = |engine: &str, qps| Figures {
            engine: Some(engine.into()),
            ..figures("deflate", "read_only", qps, 4.0)
        };
        let rows = [
            figures("lz4", "read_only", 1e6, 4.0),
            engine("software", 0.5e6),
            engine("zlib", 2e6),
            figures("zstd", "write_only", 9e6, 4.0),
        ];
        let judged = Verdicts::on(&rows).judged;
        let all: Vec<_> = judged.iter().map(|one| (one.name(), one.verdict())).collect();
        let expected = [
            ("deflate-software".to_owned(), Some(Verdict::Neither)),
            ("deflate-zlib".to_owned(), Some(Verdict::HigherThroughput)),
        ];
        assert_eq!(all, expected);
    }
}
