//! Pages about evaluations: verdicts, what a unit and its energy are, and results that do not belong together.

use super::*;
use crate::mbwu::{read, render};
use crate::results::table::Format;

/// Units are throughputs over that of the unit, and watts of a unit are watts over units.
#[test]
fn units_and_their_energy_are_as_modelled_as_the_throughputs_behind_them() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    let change = |file: &str, change: &dyn Fn(&mut Round)| {
        for number in 1..=5 {
            let path = folder.path().join(format!("results/{file}/round-{number}.json"));
            let mut round = Round::read(&path).unwrap().unwrap();
            change(&mut round);
            fs::write(&path, json!(round).to_string()).unwrap();
        }
    };
    let kinds = || {
        let figures = section(folder.path()).unwrap().figures;
        ["Units", "Energy of a unit"].map(|title| {
            let figure = figures.iter().find(|figure| figure.title == title).unwrap();
            figure.points.iter().find(|point| point.x == Place::Named(HOSTILE.into())).unwrap().kind
        })
    };
    change("board", &|round| {
        let machine = &mut round.measurement.machine;
        machine.joules = Some(7.0 * machine.sec);
        machine.joules_of = vec!["package-0".into()];
    });
    assert_eq!(kinds(), [Kind::Measured; 2]);
    let is_modelled = |round: &mut Round| round.origin.asked.options.model = Some("iaa".into());
    for modelled in ["board", "unit"] {
        change(modelled, &is_modelled);
        assert_eq!(kinds(), [Kind::Modelled; 2], "{modelled}");
        change(modelled, &|round| round.origin.asked.options.model = None);
    }
}

#[test]
fn a_platform_that_is_not_steady_has_no_verdict_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    let page = |changed: &str| {
        let path = folder.path().join(format!("results/{changed}/round-4.json"));
        let kept = fs::read_to_string(&path).unwrap();
        let mut round = Round::read(&path).unwrap().unwrap();
        round.measurement.steadiness = Some(Steadiness::Changing { change: -0.38 });
        fs::write(&path, json!(round).to_string()).unwrap();
        let page = Parsed::of(&page_of(&[folder.path()])).text;
        fs::write(&path, kept).unwrap();
        page
    };
    let told = page("board");
    assert!(told.contains("integrated: No verdict on server beside"), "{told}");
    assert!(
        told.contains("in one, throughput still changed by 38 %")
            && !told.contains("the money for each unit"),
        "{told}"
    );
    let told = page("unit");
    assert!(told.contains("No verdict, since the unit itself has none"), "{told}");
    assert!(
        told.contains("Units: no platform has a number for it") && !told.contains("the money for each unit"),
        "{told}"
    );
    let told = Parsed::of(&page_of(&[folder.path()])).text;
    assert!(told.contains("the money for each unit") && !told.contains("No verdict"), "{told}");
}

/// A platform with larger values does fewer operations, and a folder that was copied may have rounds of two programs.
#[test]
fn results_that_do_not_belong_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    let refused = |file: &str, change: &dyn Fn(&mut Origin)| {
        let path = folder.path().join(format!("results/{file}.json"));
        let kept = fs::read_to_string(&path).unwrap();
        let mut round = Round::read(&path).unwrap().unwrap();
        change(&mut round.origin);
        fs::write(&path, json!(round).to_string()).unwrap();
        let out = folder.path().join("page.html");
        let compared = read(folder.path()).map(|_| ()).unwrap_err().to_string();
        let told = report(&[folder.path().to_owned()], &out, "x").unwrap_err().to_string();
        fs::write(&path, kept).unwrap();
        assert_eq!(compared, told);
        told
    };
    let told = refused("board/round-3", &|origin| origin.asked.keys = 77);
    assert!(
        told.contains("round 1 has `keys` = 1000, and round 3 has 77, so that both do not belong"),
        "{told}"
    );
    (1..=5).for_each(|number| {
        let path = folder.path().join(format!("results/server/round-{number}.json"));
        let mut round = Round::read(&path).unwrap().unwrap();
        round.origin.commit = Some("b".into());
        fs::write(&path, json!(round).to_string()).unwrap();
    });
    let told = refused("unit/round-1", &|origin| origin.commit = Some("a".into()));
    assert!(told.contains("the unit has `commit` = \"a\", and server has \"b\""), "{told}");
    assert!(read(folder.path()).is_ok(), "nobody knows the commit of the others");
}

/// Otherwise, results would go by the words of files that somebody edited after measuring.
#[test]
fn results_of_files_that_were_edited_after_measuring_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    let unit = json!({ "workload": "reads", "medium": "memory", "software": "x 1", "bench": "--keys 1000" });
    for place in ["unit", "server", "board"].map(|file| folder.path().join("results").join(file)) {
        for number in 1..=5 {
            let path = place.join(format!("round-{number}.json"));
            let mut round: Json = parsed(&path).unwrap();
            round["unit"] = unit.clone();
            round["work"] = json!({ "bench": "--target btreemap" });
            fs::write(&path, round.to_string()).unwrap();
        }
    }
    let edited = |file: &str, from: &str, to: &str| {
        let path = folder.path().join(file);
        let kept = fs::read_to_string(&path).unwrap();
        assert!(kept.contains(from), "{kept}");
        fs::write(&path, kept.replacen(from, to, 1)).unwrap();
        let compared = read(folder.path()).map(|_| ());
        fs::write(&path, kept).unwrap();
        compared.map_err(|error| error.to_string())
    };
    assert_eq!(edited("unit.toml", "--keys 1000", " --keys  1000"), Ok(()), "the same options");
    let told = edited("unit.toml", "--keys 1000", "--keys 2000").unwrap_err();
    assert!(
        told.contains("round 1 has `bench` = \"--keys 1000\", and unit.toml has \"--keys 2000\", so that"),
        "{told}"
    );
    assert!(told.contains("results/unit") && told.contains("write back what was changed, or move"), "{told}");
    let told = edited("unit.toml", "x 1", "x 2").unwrap_err();
    assert!(told.contains("round 1 has `software` = \"x 1\", and unit.toml has \"x 2\""), "{told}");
    let told = edited("board.toml", "--target btreemap", "--target hashmap").unwrap_err();
    assert!(told.contains("results/board") && told.contains("board.toml with unit.toml has"), "{told}");
}

/// Rounds on a fresh medium and on a used one are not the same work.
#[test]
fn the_unit_tells_how_its_medium_was_prepared() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    let measured = |work: Json| {
        for number in 1..=5 {
            let path = folder.path().join(format!("results/unit/round-{number}.json"));
            let mut round: Json = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            round["work"] = work.clone();
            fs::write(&path, round.to_string()).unwrap();
        }
        let page = Parsed::of(&page_of(&[folder.path()])).text;
        let text = render(&[read(folder.path()).unwrap()], Format::Table);
        (page, text.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let (page, text) = measured(json!({ "bench": "--target btreemap" }));
    let neither = "Medium: purged by no command, preconditioned by the load alone.";
    assert!(page.contains(neither) && text.contains(neither), "{text}");
    let unit = folder.path().join("unit.toml");
    let sheet = fs::read_to_string(&unit).unwrap();
    fs::write(&unit, format!("{sheet}purge = \"fstrim /x\"\n")).unwrap();
    let (page, text) = measured(json!({ "bench": "--target btreemap", "purge": "fstrim /x" }));
    let purged = "Medium: purged by `fstrim /x`, preconditioned by the load alone.";
    assert!(page.contains(purged) && text.contains(purged), "{text}");
    fs::write(&unit, sheet).unwrap();
    let told = read(folder.path()).map(|_| ()).unwrap_err().to_string();
    assert!(told.contains("has `purge` = \"fstrim /x\", and unit.toml has null"), "{told}");
}

/// The server is the machine of the unit at another time.
#[test]
fn a_platform_on_another_machine_shows_how_that_differs() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    for (file, cpu, load) in [("unit", "X", "0.1"), ("server", "X", "0.2"), ("board", "Y", "0.3")] {
        let machine = json!({ "cpu": cpu, "processors": 8, "load_average": load });
        fs::write(folder.path().join(format!("results/{file}/machine.json")), machine.to_string()).unwrap();
    }
    let facts = section(folder.path()).unwrap().facts;
    let of_board = format!("{HOSTILE}: cpu");
    let expected = [("cpu", "X"), ("load average", "0.1"), ("processors", "8"), (of_board.as_str(), "Y")];
    assert_eq!(facts, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert!(page_of(&[folder.path()]).contains("The machine"));
}

/// Otherwise one line would go through the rounds of both.
#[test]
fn a_platform_at_two_stages_has_two_names() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    let text = fs::read_to_string(folder.path().join("board.toml")).unwrap();
    let remote = text.replace(&format!("'''{HOSTILE}'''"), "\"server\"").replace("integrated", "network");
    fs::write(folder.path().join("board.toml"), remote).unwrap();
    let section = section(folder.path()).unwrap();
    let figure = |title: &str| section.figures.iter().find(|figure| figure.title == title).unwrap();
    let series: Vec<&str> =
        figure("Throughput of each round").series().into_iter().map(|(name, _)| name).collect();
    assert_eq!(series, ["unit", "server, network", "server, integrated"]);
    let named = |name: &str| Place::Named(name.to_owned());
    let shares = &figure("What limits each side").points;
    assert!(shares.iter().any(|point| point.x == named("server, network: medium")), "{shares:?}");
}

#[test]
fn a_power_that_was_measured_names_its_meters() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    for number in 1..=5 {
        let path = folder.path().join(format!("results/board/round-{number}.json"));
        let mut round = Round::read(&path).unwrap().unwrap();
        let machine = &mut round.measurement.machine;
        machine.joules = Some(7.0 * machine.sec);
        machine.joules_of = ["package-0", "package-0/dram"].map(str::to_owned).into();
        fs::write(&path, json!(round).to_string()).unwrap();
    }
    let told = section(folder.path()).unwrap().verdicts.join(" ");
    assert!(told.contains(" Power: 7.0 W, measured by package-0, package-0/dram."), "{told}");
    assert!(told.contains(" W, modelled."), "{told}");
}

#[test]
fn an_evaluation_that_has_only_begun_says_so() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    fs::remove_dir_all(folder.path().join("results/board")).unwrap();
    fs::remove_dir_all(folder.path().join("results/server")).unwrap();
    let page = Parsed::of(&page_of(&[folder.path()])).text;
    assert!(
        page.contains("Nothing can be compared yet") && page.contains("no platform is measured yet"),
        "{page}"
    );
    fs::remove_dir_all(folder.path().join("results")).unwrap();
    let out = folder.path().join("page.html");
    let told = report(&[folder.path().to_owned()], &out, "x").unwrap_err().to_string();
    assert!(told.contains("its unit is not constructed yet"), "{told}");
}
