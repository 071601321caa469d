//! The whole page, of small real runs and of the examples, read by an HTML parser that is not a browser.

mod evaluations;

use std::collections::BTreeSet;

use html5gum::{Token, Tokenizer};
use serde_json::json;

use super::*;
use crate::bench::{Configuration, Outcome, Unavailable};
use crate::data::values::ValueOrder;
use crate::mbwu::{EXAMPLE, Origin, Round, init};
use crate::meters::Meters;
use crate::report::figure::{Axis, Kind, Place, Point, Scale, Shape};
use crate::results::folder::{Program, ResultsFolder, machine};
use crate::run::measurement::{Measurement, Sample};
use crate::run::spec::RunSpec;
use crate::run::steady::Steadiness;
use crate::statistics::Mean;
use crate::target::registry::Registry;
use crate::tco::EXAMPLES;
use crate::workload::pace::Pace;

/// A name that would be a program if it were not escaped.
const HOSTILE: &str = "</td><script>alert(1)</script>&amp;\"'";

/// A window of seconds may have no operation and one sample, while others have the processors. So this one ends by
/// count, and has three samples that are alike.
fn measured(spec: &RunSpec) -> Measurement {
    let meters = Meters::default();
    let registry = Registry::with(vec![]);
    let counted = RunSpec { operations: Some(100_000), ..spec.clone() };
    let mut measured = registry.find(&spec.target).unwrap().run(&counted, &meters, &|_| {}).unwrap();
    let part = Sample { operations: measured.operations / 3, machine: measured.machine.clone() };
    measured.samples = vec![part; 3];
    measured
}

fn spec(target: &str, threads: u64) -> RunSpec {
    let run = RunSpec::new(target, "json");
    RunSpec { keys: 1_000, seconds: 0.6, warmup_seconds: 0.0, threads, ..run }
}

/// Targets and threads.
const ALL: [(&str, u64); 4] = [("btreemap", 1), ("hashmap", 1), ("btreemap", 2), ("hashmap", 2)];

/// A folder of two rounds of each.
fn benchmark(folder: &Path, runs: &[(&str, u64)]) -> Vec<Configuration> {
    let configuration = |(target, threads): &(&str, u64)| {
        let spec = spec(target, *threads);
        let rounds = vec![measured(&spec), measured(&spec)];
        Configuration { spec, rounds, logs: vec![], is_harness: false }
    };
    let mut configurations: Vec<Configuration> = runs.iter().map(configuration).collect();
    configurations[0].rounds[0].saturation = Some(
        serde_json::from_value(json!({
            "points": [{ "load": 1, "throughputs": [90.0, 110.0] }, { "load": 2, "throughputs": [150.0] }],
            "peak_load": 2, "peak": { "mean": 150.0, "error": null, "samples": 1 }, "knee": 1.5, "knee_error": null,
            "enough_load": 2
        }))
        .unwrap(),
    );
    write_benchmark(folder, configurations.clone());
    configurations
}

fn write_benchmark(folder: &Path, configurations: Vec<Configuration>) {
    fs::create_dir_all(folder).unwrap();
    let unavailable = Unavailable { spec: spec("store", 1), reason: HOSTILE.into() };
    let outcome = Outcome { configurations, unavailable: vec![unavailable], failure: None, folder: None };
    let results = ResultsFolder::at(folder.to_owned());
    results.summary(&outcome, false).unwrap();
    let mut manifest = machine(&Program::default(), &[]);
    manifest["command"] = HOSTILE.into();
    manifest["started"] = "20260101T000000Z".into();
    results.write("manifest.json", &manifest.to_string()).unwrap();
    results.write("databases.tsv", &format!("name\tfigure\n{HOSTILE}\tNA\n")).unwrap();
}

/// A folder of an evaluation whose board has a hostile name and no watts.
fn evaluation(folder: &Path) {
    init(folder).unwrap();
    let own = "[work]\nbench = \"--target btreemap\"\n";
    let unit = format!(
        "workload = \"reads\"\nmedium = \"memory\"\nsoftware = \"x 1\"\nbench = \"--keys 1000\"\nrounds = 2\n{own}"
    );
    let board = format!("name = '''{HOSTILE}'''\nstage = \"integrated\"\nprice = 50\n{own}");
    let server = format!(
        "name = \"server\"\nstage = \"integrated\"\nprice = {{ value = 500, error = 9 }}\nlitres = 9\n\
         [power]\nidle_watts = 10\nbusy_watts = 20\n{own}"
    );
    let asked = spec("btreemap", 1);
    // The rounds of each side differ as two of one machine do.
    let both = [measured(&asked), measured(&asked)];
    for (file, text) in [("unit", unit), ("server", server), ("board", board)] {
        fs::write(folder.join(format!("{file}.toml")), text).unwrap();
        let results = folder.join("results").join(file);
        fs::create_dir_all(&results).unwrap();
        for number in 1..=5 {
            let mut measurement = both[number % 2].clone();
            measurement.machine.joules = None;
            let throughput = Mean { mean: 1_000.0, error: Some(9.0), samples: 20 };
            measurement.steadiness = Some(Steadiness::Steady { samples: 40, throughput });
            let round = Round { origin: Origin::of(asked.clone()), measurement };
            fs::write(results.join(format!("round-{number}.json")), json!(round).to_string()).unwrap();
        }
    }
}

/// The page about these inputs.
fn page_of(inputs: &[&Path]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let inputs: Vec<PathBuf> = inputs.iter().map(|input| (*input).to_owned()).collect();
    let [html, ..] = report(&inputs, &folder.path().join("page.html"), "ziptier report").unwrap();
    fs::read_to_string(html).unwrap()
}

/// What a page is made of: ids, references to ids, and the texts between tags. Fails if the page is not well-formed.
#[derive(Default)]
struct Parsed {
    ids: BTreeSet<String>,
    references: Vec<String>,
    tags: Vec<String>,
    text: String,
}

impl Parsed {
    fn of(page: &str) -> Self {
        const VOID: [&str; 2] = ["meta", "br"];
        let (mut parsed, mut open) = (Parsed::default(), Vec::new());
        for token in Tokenizer::new(page) {
            match token.unwrap() {
                Token::StartTag(tag) => {
                    let name = String::from_utf8_lossy(&tag.name).into_owned();
                    let attributes = tag.attributes.iter().map(|(name, value)| {
                        (
                            String::from_utf8_lossy(name).into_owned(),
                            String::from_utf8_lossy(value).into_owned(),
                        )
                    });
                    attributes.for_each(|(attribute, value)| parsed.attribute(&name, &attribute, &value));
                    if !tag.self_closing && !VOID.contains(&name.as_str()) {
                        open.push(name.clone());
                    }
                    parsed.tags.push(name);
                }
                Token::EndTag(tag) => {
                    let name = String::from_utf8_lossy(&tag.name).into_owned();
                    assert_eq!(open.pop(), Some(name), "tags are nested");
                }
                Token::String(text) => parsed.text += &String::from_utf8_lossy(&text),
                Token::Error(error) => panic!("{error:?}"),
                Token::Comment(_) | Token::Doctype(_) => {}
            }
        }
        assert_eq!(open, Vec::<String>::new(), "every tag is closed");
        for reference in &parsed.references {
            assert!(parsed.ids.contains(reference), "nothing has the id {reference}");
        }
        parsed
    }

    fn attribute(&mut self, tag: &str, name: &str, value: &str) {
        match name {
            "id" => assert!(self.ids.insert(value.to_owned()), "{value} is there twice"),
            "aria-labelledby" => self.references.extend(value.split(' ').map(str::to_owned)),
            "href" => self.references.push(value.strip_prefix('#').unwrap().to_owned()),
            "src" | "srcset" | "data" | "onload" | "xlink:href" => panic!("{tag} has {name}={value}"),
            _ => {
                let used = value.split("url(#").skip(1).filter_map(|rest| rest.split(')').next());
                self.references.extend(used.map(str::to_owned));
            }
        }
        assert!(!value.contains("url(h"), "{value}");
    }

    fn count(&self, tag: &str) -> usize {
        self.tags.iter().filter(|name| *name == tag).count()
    }
}

#[test]
fn a_page_of_all_inputs_is_well_formed_and_says_what_it_must() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    benchmark(&at("bench"), &ALL);
    evaluation(&at("evaluation"));
    fs::write(at("servers.toml"), EXAMPLES[0].1).unwrap();
    fs::write(at("slides.toml"), EXAMPLE).unwrap();
    let inputs = ["bench", "evaluation", "servers.toml", "slides.toml"].map(at);
    let page = page_of(&inputs.each_ref().map(PathBuf::as_path));
    let parsed = Parsed::of(&page);
    assert_eq!(parsed.count("script"), 0, "everything of a file is escaped");
    assert!(parsed.text.contains(HOSTILE), "and yet there to read");
    for words in [
        "Throughput and size",
        "Latency, read_only, 2 threads",
        "Scaling, read_only",
        "Saturation",
        "Busy processors",
        "Page cache",
        "Price of a unit",
        "Energy of a unit",
        "What limits each side",
        "What matters most for the money that server saves beside",
        "Costs",
        "saves 64.0 % of the money",
        "power is modelled from its busy processors, not measured",
        "power is missing",
        "without a meter: ",
        "The machine",
        "Table databases.tsv",
        "File unit.toml",
        "ziptier mbwu run",
    ] {
        assert!(parsed.text.contains(words), "{words}");
    }
    let plots = if cfg!(feature = "plots") { parsed.count("figure") } else { 0 };
    assert_eq!(parsed.count("svg"), plots, "every figure that has points is drawn");
    assert_eq!((parsed.count("main"), parsed.count("h1"), parsed.count("nav")), (1, 1, 1));
    assert!(page.len() < 2_000_000, "{}", page.len());
}

#[test]
fn json_and_tsv_have_the_points_of_the_page() {
    let folder = tempfile::tempdir().unwrap();
    benchmark(folder.path(), &ALL[..2]);
    let out = folder.path().join("page.html");
    let [_, json, tsv] = report(&[folder.path().to_owned()], &out, "x").unwrap();
    let json: Json = parsed(&json).unwrap();
    let figures = json["sections"][0]["figures"].as_array().unwrap();
    let points: usize = figures.iter().map(|figure| figure["points"].as_array().unwrap().len()).sum();
    let tsv = fs::read_to_string(tsv).unwrap();
    assert_eq!(tsv.lines().count(), points + 1);
    let columns = |line: &str| line.split('\t').count();
    assert!(tsv.lines().all(|line| columns(line) == 10), "{tsv}");
    let latency = figures.iter().find(|figure| figure["title"] == "Latency, read_only, 1 thread").unwrap();
    let share = |point: &Json| point["x"].as_f64().unwrap();
    let ends: Vec<f64> = latency["points"].as_array().unwrap().iter().map(share).collect();
    assert!(ends.contains(&100.0) && ends.len() > 4 * 20, "{}", ends.len());
}

#[test]
fn percentiles_near_the_slowest_call_are_told_apart() {
    let point = |(share, us)| Point::new("reads", Kind::Measured, Place::At(share), Some(us));
    let points = [(99.9, 5.0), (99.9969, 60.0), (99.999_237, 700.0)].map(point);
    let x = Axis { name: "percentile".into(), scale: Scale::Percentiles };
    let figure = Figure::new("latency", Shape::Lines, x, Axis::linear("microseconds"), points.into());
    let page =
        super::page::page(&[Section { figures: vec![figure], ..Section::default() }], "ziptier report");
    for share in ["99.9", "99.9969", "99.999237"] {
        assert!(page.contains(&format!("<td class=\"number\">{share}</td>")), "{page}");
    }
}

#[test]
fn a_meter_that_is_missing_is_told_and_not_drawn_as_zero() {
    let folder = tempfile::tempdir().unwrap();
    let mut configurations = benchmark(folder.path(), &ALL[..2]);
    for round in configurations.iter_mut().flat_map(|one| &mut one.rounds) {
        round.machine.page_cache_bytes = None;
        round.machine.cores = None;
        round.samples.iter_mut().for_each(|part| part.machine = round.machine.clone());
        round.steadiness = Some(Steadiness::Unsure { change_max: None });
    }
    write_benchmark(folder.path(), configurations);
    let page = Parsed::of(&page_of(&[folder.path()])).text;
    assert!(page.contains("btreemap; hashmap: without a meter: processors, page cache"), "{page}");
    assert!(!page.contains("Page cache") && !page.contains("Busy processors"), "{page}");
    assert!(page.contains("NOT STEADY") && !page.contains("NaN"), "{page}");
}

#[test]
fn a_ratio_to_a_modelled_run_is_modelled() {
    let folder = tempfile::tempdir().unwrap();
    let mut configurations = benchmark(folder.path(), &ALL[..2]);
    assert!(page_of(&[folder.path()]).contains(" of btreemap (measured)"));
    configurations[0].spec.options.model = Some("iaa".into());
    write_benchmark(folder.path(), configurations);
    assert!(page_of(&[folder.path()]).contains(" of btreemap (modelled)"));
}

#[test]
fn throughput_over_time_is_as_modelled_as_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let mut configurations = benchmark(folder.path(), &ALL[..1]);
    configurations[0].spec.options.model = Some("iaa".into());
    write_benchmark(folder.path(), configurations);
    let figures = section(folder.path()).unwrap().figures;
    let kinds = |title: &str| {
        let figure = figures.iter().find(|figure| figure.title == title).unwrap();
        figure.series().into_iter().map(|(_, kind)| kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds("Throughput"), [Kind::Modelled]);
    assert_eq!(kinds("Busy processors"), [Kind::Measured], "these are the machine's");
}

#[test]
fn a_row_is_steady_only_if_all_of_its_rounds_were() {
    let folder = tempfile::tempdir().unwrap();
    let mut configurations = benchmark(folder.path(), &ALL[..1]);
    let throughput = Mean { mean: 1_000.0, error: Some(9.0), samples: 20 };
    let steady = Steadiness::Steady { samples: 40, throughput };
    for (last, word) in [(steady, "steady"), (Steadiness::Changing { change: 0.3 }, "changing")] {
        for (round, found) in configurations[0].rounds.iter_mut().zip([steady, last]) {
            round.steadiness = Some(found);
        }
        write_benchmark(folder.path(), configurations.clone());
        let text = fs::read_to_string(folder.path().join("summary.tsv")).unwrap();
        let mut lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let (names, row) = (lines.next().unwrap(), lines.next().unwrap());
        let place = names.iter().position(|name| *name == "window_throughput").unwrap();
        assert_eq!(row[place], word);
    }
}

#[test]
fn a_measurement_without_a_size_is_missing_in_its_plot() {
    let folder = tempfile::tempdir().unwrap();
    let mut configurations = benchmark(folder.path(), &ALL[..2]);
    configurations[1].rounds.iter_mut().for_each(|round| round.raw_bytes = 0);
    write_benchmark(folder.path(), configurations);
    let page = Parsed::of(&page_of(&[folder.path()])).text;
    assert!(page.contains("Missing: hashmap."), "{page}");
}

/// As summary.tsv of a benchmark lies beside summary.html.
#[test]
fn a_file_that_no_report_wrote_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let [input, rows, out] = ["costs.toml", "costs.tsv", "costs.html"].map(|name| folder.path().join(name));
    fs::write(&input, EXAMPLES[0].1).unwrap();
    fs::write(&rows, "rows").unwrap();
    let write = || report(std::slice::from_ref(&input), &out, "x").map_err(|error| error.to_string());
    let told = write().unwrap_err();
    assert!(told.contains("costs.tsv is there already, and no report wrote it"), "{told}");
    assert_eq!(fs::read_to_string(&rows).unwrap(), "rows");
    assert!(!out.exists());
    fs::remove_file(&rows).unwrap();
    // A report writes over what a former one wrote.
    write().and_then(|_| write()).unwrap();
}

#[test]
fn a_second_report_leaves_out_the_points_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    benchmark(folder.path(), &ALL[..1]);
    report(&[folder.path().to_owned()], &folder.path().join("page.html"), "x").unwrap();
    let tables = section(folder.path()).unwrap().tables;
    let names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["databases.tsv"]);
}

/// The threads that were asked for do not work in the window.
#[test]
fn a_figure_of_a_search_does_not_name_the_threads_that_were_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let mut configurations = benchmark(folder.path(), &ALL[..1]);
    configurations[0].spec.pace = Pace::Saturated(8);
    write_benchmark(folder.path(), configurations);
    let figures = section(folder.path()).unwrap().figures;
    let latency = figures.iter().find(|figure| figure.title.starts_with("Latency")).unwrap();
    assert_eq!(latency.title, "Latency, read_only, up to 8 threads");
}

/// Figures of one title would mix the rows of different values.
#[test]
fn figures_of_different_work_have_different_titles() {
    let folder = tempfile::tempdir().unwrap();
    let mut configurations = benchmark(folder.path(), &ALL);
    configurations.truncate(2);
    let apart = |mut one: Configuration| {
        one.spec.value_order = ValueOrder::Apart;
        one
    };
    let of_other_order: Vec<_> = configurations.iter().cloned().map(apart).collect();
    let mut threads = configurations.clone();
    threads.iter_mut().for_each(|one| one.spec.threads = 2);
    let all = [configurations, of_other_order, threads].concat();
    write_benchmark(folder.path(), all);
    let figures = section(folder.path()).unwrap().figures;
    let titles: Vec<&str> = figures.iter().map(|figure| figure.title.as_str()).collect();
    assert!(titles.contains(&"Latency, read_only, apart, 1 thread"), "{titles:?}");
    assert!(titles.contains(&"Scaling, read_only, values of 128 B, strangers"), "{titles:?}");
    assert_eq!(titles.iter().collect::<BTreeSet<_>>().len(), titles.len(), "{titles:?}");
}

#[test]
fn a_line_over_processors_goes_through_the_fastest_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let [one] = benchmark(folder.path(), &ALL[..1]).try_into().unwrap();
    let run = |cpus: &[usize], threads, operations| {
        let mut run = one.clone();
        (run.spec.cpus, run.spec.threads) = (cpus.to_vec(), threads);
        run.rounds.iter_mut().for_each(|round| (round.operations, round.wall_sec) = (operations, 1.0));
        run
    };
    write_benchmark(folder.path(), vec![run(&[0], 1, 100), run(&[0, 1], 1, 300), run(&[0, 1], 2, 200)]);
    let figures = section(folder.path()).unwrap().figures;
    let scaling = figures.iter().find(|figure| figure.title.starts_with("Scaling")).unwrap();
    let points: Vec<_> = scaling.points.iter().map(|point| (point.x.number(), point.y)).collect();
    assert_eq!(points, [(Some(1.0), Some(100.0)), (Some(2.0), Some(300.0))]);
}

#[test]
fn an_input_without_results_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("page.html");
    let told = |input: &Path, out: &Path| {
        let told = report(&[input.to_owned()], out, "x").unwrap_err().to_string();
        assert!(!told.contains('\n'), "{told}");
        told
    };
    assert!(
        told(folder.path(), &out).contains("the folder has neither unit.toml nor rounds.json; give a folder")
    );
    assert!(told(&folder.path().join("none"), &out).contains("cannot read"));
    let file = folder.path().join("file.toml");
    fs::write(&file, "a = 1").unwrap();
    assert!(told(&file, &out).contains("neither [[design]] nor [unit]"));
    fs::write(&file, "a = [").unwrap();
    assert!(told(&file, &out).contains("file.toml"));
    fs::write(folder.path().join("summary.tsv"), "").unwrap();
    assert!(told(folder.path(), &out).contains("of an older ziptier"));
    let bypass = folder.path().join("20250101T000000Z");
    fs::create_dir(&bypass).unwrap();
    fs::write(bypass.join(BYPASS_SUMMARY), "").unwrap();
    assert!(told(folder.path(), &out).contains("of suite bypass, which has a plot of its own"));
    let damaged = folder.path().join("20260101T000000Z");
    benchmark(&damaged, &ALL[..1]);
    assert!(told(folder.path(), &folder.path().join("page")).contains("ends with .html"));
    fs::write(damaged.join(KEPT), "{").unwrap();
    let told = told(folder.path(), &out);
    assert!(told.contains("20260101T000000Z/rounds.json: it is damaged"), "{told}");
    assert!(!out.exists(), "nothing is written");
}

#[test]
fn a_newer_benchmark_that_was_interrupted_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    benchmark(&at("20260101T000000Z"), &ALL[..2]);
    let told = || Parsed::of(&page_of(&[folder.path()])).text;
    assert!(!told().contains("has no results"));
    fs::create_dir(at("20260102T000000Z")).unwrap();
    fs::write(at("20260102T000000Z").join(MANIFEST), "{}").unwrap();
    fs::write(at("20260102T000000Z").join(BYPASS_SUMMARY), "").unwrap();
    assert!(!told().contains("has no results"), "its results are no section of a page");
    fs::remove_file(at("20260102T000000Z").join(BYPASS_SUMMARY)).unwrap();
    let page = told();
    assert!(page.contains("A newer benchmark has no results") && page.contains("20260102T000000Z"), "{page}");
}

#[test]
fn a_fact_without_a_value_is_told_in_words() {
    let machine = json!({ "corpus": { "bytes": null, "name": "json" }, "disks": [], "governor": "unknown" });
    let facts = facts_of(&machine);
    let told: Vec<_> = facts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(told, [("corpus", "name: json"), ("disks", "none"), ("governor", "missing")]);
}

/// Each of the last calls stood there three times.
#[test]
fn a_percentile_stands_once_and_throughput_is_the_works_own() {
    let spec = spec("btreemap", 1);
    let measured = measured(&spec);
    let all = &measured.percentiles.read;
    assert!(all.len() > 10 && all.windows(2).all(|pair| pair[0] != pair[1]), "{all:?}");
    let runs = runs::Runs { name: "btreemap", spec: &spec, rounds: &[&measured] };
    let meters = runs::meters(&[runs]);
    assert_eq!(meters[0].title, "Throughput");
    assert!(meters[0].description.ends_with("of the work alone."), "{}", meters[0].description);
}
