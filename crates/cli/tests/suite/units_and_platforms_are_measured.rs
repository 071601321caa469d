//! `ziptier mbwu` as a storage designer meets it: files to begin with, a run that goes on where it ended, and each
//! mistake.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

use crate::support::{comes_true, printed, ziptier};

/// The arguments of a command on a folder.
fn mbwu<'a>(arguments: &[&'a str], folder: &'a Path) -> Vec<&'a str> {
    [&["mbwu"][..], arguments, &[folder.to_str().unwrap()]].concat()
}

/// What a command on a folder prints, as words between single spaces.
fn printed_words(arguments: &[&str], folder: &Path) -> String {
    printed(&mbwu(arguments, folder)).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The lines that ziptier says with a status, without one about what it has removed: another test may have killed an
/// evaluation meanwhile, and remains are those of all evaluations of this machine.
fn said_with(status: i32, output: &Output) -> String {
    let said = std::str::from_utf8(&output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{said}");
    let is_other = |line: &&str| line.starts_with("removed what an evaluation that was killed had left: ");
    said.lines().filter(|line| !is_other(line)).collect::<Vec<_>>().join("\n")
}

/// The sentence that refuses these arguments, or a file that they name.
fn refused(arguments: &[&str]) -> String {
    let output = ziptier().args(arguments).output().unwrap();
    let said = said_with(2, &output);
    assert_eq!((said.lines().count(), output.stdout.len()), (1, 0), "{said}");
    said
}

/// The sentence that ziptier says where measuring the unit or a platform fails.
fn failed(arguments: &[&str]) -> String {
    let said = said_with(1, &ziptier().args(arguments).output().unwrap());
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// An evaluation in memory: no limits, no disk, two rounds of a moment.
fn evaluation(folder: &Path) {
    let unit = r#"
        workload = "reads"
        medium = "memory"
        software = "BTreeMap"
        bench = "--mix read=90,write=10 --keys 500 --corpus log --warmup 0 --warmup-max 0 --operations 2000"
        base = "large"
        rounds = 2
        rounds_max = 2
        seconds = 1
        threads_max = 2
        work = { bench = "--target btreemap" }
    "#;
    let large = "name = 'large'\nstage = 'integrated'\nprice = 900\nwatts = { value = 90, error = 1 }";
    let small = "name = 'small'\nstage = 'integrated'\nprice = 100\nwork = { cpus = [0] }\n\
                 power = { idle_watts = 5, busy_watts = 20 }";
    for (name, text) in [("unit.toml", unit), ("large.toml", large), ("small.toml", small)] {
        fs::write(folder.join(name), text).unwrap();
    }
}

fn replace(file: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(file, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn files_to_begin_with_are_read_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("new");
    let made = printed_words(&["init"], &place);
    assert!(made.ends_with(&format!("edit these, then: ziptier mbwu run {}", place.display())), "{made}");
    replace(&place.join("board.toml"), "price = 171", "price = 170");
    assert!(refused(&mbwu(&["init"], &place)).contains("it is there already; give a new folder"));
    assert!(fs::read_to_string(place.join("board.toml")).unwrap().contains("price = 170"));
    let told = refused(&mbwu(&["run"], folder.path()));
    assert!(
        told.contains("there is no unit.toml in it; give a folder that `ziptier mbwu init` made"),
        "{told}"
    );
    // They are read: what is missing is a measurement, not a field.
    let told = refused(&mbwu(&["compare"], &place));
    assert!(told.contains("its unit is not constructed yet") && told.contains("ziptier mbwu run"), "{told}");
}

#[test]
fn a_run_keeps_each_round_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    evaluation(place);
    let told = printed_words(&["run"], place);
    for part in ["unit: ", "large (integrated): ", "small (integrated): ", "modelled"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let why = "2 round(s) do not tell; give `rounds` = 5 or more";
    assert!(told.contains("leave out --operations") && told.contains(why), "{told}");
    assert!(
        told.contains("No verdict, since the unit itself has none: ")
            && told.contains("its windows end by a count"),
        "{told}"
    );
    assert!(!told.contains("small saves") && !told.contains("small takes"), "{told}");
    let round = |platform: &str, number: usize| {
        place.join("results").join(platform).join(format!("round-{number}.json"))
    };
    let written = |path: &Path| -> SystemTime { fs::metadata(path).unwrap().modified().unwrap() };
    let before = written(&round("large", 1));
    fs::remove_file(round("large", 2)).unwrap();
    // Everything but that round is there.
    let again = printed_words(&["run"], place);
    assert!(round("large", 2).exists() && written(&round("large", 1)) == before);
    assert_eq!(again.split("large").next(), told.split("large").next(), "the unit was not measured again");
    let rows = printed_words(&["compare", "--format", "json"], place);
    assert_eq!(rows.matches("\"price_per_mbwu\"").count(), 2, "{rows}");
    assert_eq!(rows.matches("\"mbwu\": null").count(), 2, "{rows}");
    assert_eq!(rows.matches("\"no_verdict\": \"No verdict, since the unit").count(), 2, "{rows}");
    // As if five rounds had been steady, and no search had ended while throughput grew.
    for platform in ["unit", "large", "small"] {
        let text = fs::read_to_string(round(platform, 1)).unwrap();
        let mut steady: serde_json::Value = serde_json::from_str(&text).unwrap();
        let mean = serde_json::json!({ "mean": 1_000.0, "error": 1.0, "samples": 20 });
        steady["measurement"]["steadiness"] =
            serde_json::json!({ "Steady": { "samples": 40, "throughput": mean } });
        steady["measurement"]["saturation"] = serde_json::Value::Null;
        (1..=5).for_each(|number| fs::write(round(platform, number), steady.to_string()).unwrap());
    }
    let told = printed_words(&["compare"], place);
    assert!(told.contains("small saves") && !told.contains("No verdict"), "the first is the base: {told}");
    let rows = printed_words(&["compare", "--format", "json"], place);
    // Watts of the model vary with the work, and those that were given do not.
    assert!(!rows.contains("\"watts_per_mbwu\": null"), "{rows}");

    replace(&place.join("unit.toml"), "--keys 500", "--keys 600");
    let told = refused(&mbwu(&["run"], place));
    assert!(told.contains("round 1 has `keys` = 500, and this command has 600"), "{told}");
    replace(&place.join("unit.toml"), "--keys 600", "--keys 500");
    fs::write(round("small", 1), "{").unwrap();
    let told = refused(&mbwu(&["compare"], place));
    assert!(told.contains("small/round-1.json") && told.contains("it is damaged"), "{told}");
}

/// The unit was measured first, for an hour.
#[test]
fn options_of_the_last_platform_are_checked_before_the_unit_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    evaluation(place);
    replace(&place.join("small.toml"), "cpus = [0]", "cpus = [4096]");
    assert!(refused(&mbwu(&["run"], place)).contains("bad work.cpus `4096`: this machine has"));
    replace(&place.join("small.toml"), "cpus = [4096]", "bench = '--target nothing'");
    assert!(refused(&mbwu(&["run"], place)).contains("unknown target `nothing`"));
    assert!(!place.join("results").exists());
}

#[test]
fn a_mistake_in_a_file_is_one_sentence_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    for (file, from, to, expected) in [
        ("large.toml", "price = 900", "price = 'much'", "large.toml: line 3: expected a number"),
        ("large.toml", "price = 900", "prize = 900", "line 3: unknown field `prize`"),
        ("large.toml", "price = 900", "price = -9", "large.toml: price is -9; give a number above 0"),
        ("large.toml", "name = 'large'\n", "", "missing field `name`"),
        ("large.toml", "'large'", "'small'", "large.toml has the same name and stage"),
        (
            "large.toml",
            "watts = {",
            "power = { idle_watts = 4 }\nlitres = {",
            "power needs either csv, or both",
        ),
        ("unit.toml", "base = \"large\"", "base = \"huge\"", "base is huge, and there is no huge.toml"),
        ("unit.toml", "rounds = 2", "rounds = 3", "rounds is 3, more than rounds_max, 2"),
        ("unit.toml", "rounds = 2", "rounds = 'two'", "string \"two\", expected a whole number"),
        ("unit.toml", "seconds = 1", "seconds = '1m'", "string \"1m\", expected a number"),
        ("unit.toml", "--keys 500", "--kees 500", "unexpected argument '--kees' found"),
        ("unit.toml", "--mix read=90,write=10 ", "", "they describe several runs"),
        ("unit.toml", "--target btreemap\"", "--target tape\"", "unknown target `tape`"),
        ("unit.toml", "--warmup-max 0", "--rate 1000", "a round is a closed loop"),
        (
            "small.toml",
            "cpus = [0]",
            "cpus = [0], disk = { reads_per_second = 9 }",
            "small.toml: work.disk has limits, and work.folder is missing",
        ),
        (
            "unit.toml",
            "--target btreemap\"",
            "--target btreemap\", cpus = [0, 65536]",
            "bad work.cpus `65536`: this machine has",
        ),
        (
            "unit.toml",
            "--target btreemap\"",
            "--target btreemap\", folder = '/no'",
            "work.folder is /no, which is no folder",
        ),
        (
            "unit.toml",
            "--target btreemap\"",
            "--target btreemap\", folder = []",
            "work.folder is a list of none; give a folder, or leave it out",
        ),
        (
            "unit.toml",
            "--target btreemap\"",
            "--target btreemap\", folder = ['/proc', '/sys', '/proc']",
            "work.folder has two folders on /proc, which is one medium; give a folder for each medium",
        ),
        (
            "unit.toml",
            "--target btreemap\"",
            "--target btreemap\", server = 'true', folder = ['/proc', '/sys']",
            "work.folder has several folders, and work.server is one server; give one folder",
        ),
        (
            "small.toml",
            "cpus = [0]",
            "cpus = [0], purge = []",
            "small.toml: work.purge is empty; give a command, or leave it out",
        ),
    ] {
        evaluation(place);
        replace(&place.join(file), from, to);
        let told = refused(&mbwu(&["run"], place));
        assert!(told.contains(expected), "{told}");
        assert!(!place.join("results").exists() || expected.contains("rounds"), "{told}");
    }
    evaluation(place);
    let output = ziptier().args(["mbwu", "measure"]).arg(place).arg("medium").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("unknown platform `medium`; known: large, small"), "{said}");
    let output = ziptier().args(["mbwu", "construct"]).arg(place).arg("small").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("unexpected argument 'small' found"), "no platform is constructed: {said}");
    fs::remove_file(place.join("large.toml")).unwrap();
    fs::remove_file(place.join("small.toml")).unwrap();
    replace(&place.join("unit.toml"), "base = \"large\"", "");
    assert!(refused(&mbwu(&["run"], place)).contains("it has no platform; add a file beside unit.toml"));
}

#[test]
fn rounds_of_other_work_and_rounds_behind_a_missing_one_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    evaluation(place);
    served(place, "");
    printed(&mbwu(&["construct"], place));
    // What limits a server is no option of its clients.
    let unit = place.join("unit.toml");
    let limited = fs::read_to_string(&unit).unwrap() + "\ncpus = [0]\n";
    let before = fs::read_to_string(&unit).unwrap();
    fs::write(&unit, limited).unwrap();
    let told = refused(&mbwu(&["construct"], place));
    assert!(told.contains("round 1 has `cpus` = null, and this command has [0]"), "{told}");
    fs::write(&unit, before).unwrap();

    let round = |number: usize| place.join(format!("results/unit/round-{number}.json"));
    let text = fs::read_to_string(round(2)).unwrap();
    fs::write(round(3), &text).unwrap();
    fs::remove_file(round(1)).unwrap();
    printed(&mbwu(&["construct"], place));
    assert!(round(2).exists() && !round(3).exists(), "a round of an earlier search counts");

    let mut other: serde_json::Value = serde_json::from_str(&text).unwrap();
    // Nobody knows the commit of a program that was built outside a checkout.
    if other["commit"].is_string() {
        other["commit"] = "another".into();
        fs::write(round(1), other.to_string()).unwrap();
        fs::remove_file(round(2)).unwrap();
        let told = refused(&mbwu(&["construct"], place));
        assert!(told.contains("round 1 has `commit` = \"another\", and this command has"), "{told}");
    }
}

/// The processes that another one started.
fn children(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let parent_of = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

/// Lets an evaluation measure a server of ours at the returned address.
fn served(place: &Path, more: &str) -> SocketAddr {
    let address = ziptier_testing::free_address();
    let (program, ip, port) = (env!("CARGO_BIN_EXE_ziptier"), address.ip(), address.port());
    let server = format!("server = '{program} serve --bind {ip} --port {port}'");
    let bench = format!("bench = '--target redis://{address}'");
    replace(
        &place.join("unit.toml"),
        "work = { bench = \"--target btreemap\" }",
        &format!("[work]\n{bench}\n{server}\n{more}"),
    );
    address
}

/// Lets an evaluation measure a server of ours in windows of a day, so that it cannot end before a test looks at it.
fn served_for_long(place: &Path, more: &str) {
    let unit = place.join("unit.toml");
    replace(&unit, " --operations 2000", "");
    replace(&unit, "seconds = 1", "seconds = 80000");
    served(place, more);
}

/// Replaces the command that starts the server of an evaluation with `other` of it.
fn served_by(place: &Path, other: impl Fn(&str) -> String) {
    let unit = place.join("unit.toml");
    let text = fs::read_to_string(&unit).unwrap();
    let (before, rest) = text.split_once("server = '").unwrap();
    let (command, after) = rest.split_once('\'').unwrap();
    fs::write(&unit, format!("{before}server = {}{after}", other(command))).unwrap();
}

/// Interrupts an evaluation whose process has begun what `has_begun` looks for. The evaluation ends and says so.
fn interrupt(place: &Path, has_begun: impl Fn(u32) -> bool) {
    let mut command = ziptier();
    command.args(["mbwu", "construct"]).arg(place);
    let mut evaluation = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let begun = comes_true(|| has_begun(evaluation.id()));
    assert!(Command::new("kill").args(["-INT", &evaluation.id().to_string()]).status().unwrap().success());
    let ended = comes_true(|| evaluation.try_wait().unwrap().is_some());
    if !ended {
        evaluation.kill().unwrap();
    }
    let output = evaluation.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(begun && ended, "{begun}, {ended}: {said}");
    assert!(said.contains("interrupted; what was measured is kept, and the same command goes on"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
}

#[test]
fn neither_a_server_nor_a_run_outlives_what_started_it() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    served_for_long(folder.path(), "");
    let mut command = ziptier();
    // Evaluations of other tests would find what this one leaves, and tell it.
    command.args(["mbwu", "construct"]).arg(folder.path()).env("TMPDIR", folder.path());
    let mut evaluation = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The server, and the run that asks it.
    let begun = comes_true(|| children(evaluation.id()).len() == 2);
    let started = children(evaluation.id());
    evaluation.kill().unwrap();
    evaluation.wait().unwrap();
    assert!(begun, "{started:?}");
    let is_there = |pid: &u32| Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok();
    assert!(comes_true(|| !started.iter().any(is_there)), "{started:?}");
}

#[test]
fn what_a_killed_evaluation_left_is_removed_by_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let (unit, media) = (folder.path().join("unit.toml"), folder.path().join("media"));
    fs::create_dir(&media).unwrap();
    evaluation(folder.path());
    let (short, long) = (" --operations 2000\"", "\"");
    replace(&unit, short, long);
    replace(&unit, "seconds = 1\n", "seconds = 80000\n");
    let construct = || {
        let mut command = ziptier();
        command.args(["mbwu", "construct"]).arg(folder.path()).env("TMPDIR", &media).stdout(Stdio::null());
        command
    };
    let left = || fs::read_dir(&media).unwrap().count();
    let mut killed = construct().stderr(Stdio::null()).spawn().unwrap();
    let begun = comes_true(|| children(killed.id()).len() == 1 && left() == 1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(begun && left() == 1, "{begun}");
    replace(&unit, "--warmup-max 0\"", &format!("--warmup-max 0{short}"));
    replace(&unit, "seconds = 80000\n", "seconds = 1\n");
    let output = construct().stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = format!("{}/ziptier-eval-run-", media.display());
    assert!(output.status.success() && said.lines().count() == 1, "{said}");
    // A test beside this one may have left a process.
    assert!(said.starts_with("removed what an evaluation") && said.contains(&expected), "{said}");
    assert_eq!(left(), 0);
}

#[test]
fn an_interrupted_evaluation_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let medium = place.join("medium");
    fs::create_dir(&medium).unwrap();
    evaluation(place);
    served_for_long(place, &format!("folder = '{}'", medium.display()));
    let filled = || fs::read_dir(&medium).unwrap().count();
    interrupt(place, |evaluation| children(evaluation).len() == 2 && filled() == 1);
    assert_eq!(filled(), 0);
}

/// A shell that has more to do has its server in a process of its own. If that is left over, the next round is refused.
#[test]
fn a_server_that_a_shell_starts_ends_with_its_round() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    let address = served(folder.path(), "");
    served_by(folder.path(), |command| format!("['sh', '-c', '{command}; true']"));
    printed(&mbwu(&["construct"], folder.path()));
    assert!(folder.path().join("results/unit/round-2.json").exists());
    assert!(TcpStream::connect(address).is_err(), "the last server is left over");
}

#[test]
fn a_server_that_cannot_start_is_told() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    served(folder.path(), "");
    replace(&folder.path().join("unit.toml"), env!("CARGO_BIN_EXE_ziptier"), "/no/such/server");
    let output = ziptier().args(["mbwu", "construct"]).arg(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot start /no/such/server: "), "{said}");
    assert!(said.contains("at its start, it ended (exit status: 127)"), "{said}");
}

/// Adds lines to the work of the unit.
fn add_to_work(place: &Path, more: &str) {
    let work = format!("[work]\nbench = '--target btreemap'\n{more}");
    replace(&place.join("unit.toml"), "work = { bench = \"--target btreemap\" }", &work);
}

/// A command of a shell, as a list of a sheet. `$1` in it stands for a fresh folder.
fn shell(script: &str) -> String {
    format!("['sh', '-c', '{script}', 'sh', '{{folder}}']")
}

#[test]
fn each_round_purges_and_preconditions_the_medium_before_its_load() {
    let folder = tempfile::tempdir().unwrap();
    let (place, medium) = (folder.path(), folder.path().join("medium"));
    fs::create_dir(&medium).unwrap();
    evaluation(place);
    let log = place.join("log");
    let logs = |name: &str| format!("test -d \"$1\" && echo {name} \"$1\" >> \"{}\"", log.display());
    let more = format!("precondition = {}\npurge = {}", shell(&logs("precondition")), shell(&logs("purge")));
    served(place, &more);
    // The server begins a round's load.
    served_by(place, |command| shell(&format!("{}; exec {command}", logs("load"))));

    // Without a folder in the sheet, the medium is that of temporary files, and no raw load follows.
    let output = ziptier().args(mbwu(&["construct"], place)).env("TMPDIR", &medium).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}{}", String::from_utf8_lossy(&output.stderr));
    let said = fs::read_to_string(&log).unwrap();
    let lines: Vec<(&str, &str)> = said.lines().map(|line| line.split_once(' ').unwrap()).collect();
    let names: Vec<&str> = lines.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["purge", "precondition", "load", "purge", "precondition", "load"], "{said}");
    for (number, (_, fresh)) in lines.iter().enumerate() {
        assert_eq!(Path::new(fresh).parent(), Some(medium.as_path()), "{said}");
        assert!(!lines[..number].iter().any(|(_, other)| other == fresh), "a folder was not fresh: {said}");
        assert!(!Path::new(fresh).exists(), "{fresh} is left over");
    }
    assert!(told.replace('\n', " ").contains("Medium: purged by `sh -c test -d"), "{told}");
}

#[test]
fn a_purge_that_fails_ends_its_round_and_the_same_command_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    evaluation(place);
    let flag = place.join("flag");
    let script = format!(
        "test ! -e \"{0}\" && touch \"{0}\" && exit; echo no; echo first >&2; echo the medium is gone >&2; exit 3",
        flag.display()
    );
    add_to_work(place, &format!("purge = {}", shell(&script)));
    let construct = mbwu(&["construct"], place);
    let told = failed(&construct);
    assert!(told.contains("unit, round 2: work.purge of unit.toml: sh -c test ! -e"), "{told}");
    assert!(told.ends_with(": it ended (exit status: 3): the medium is gone"), "{told}");
    let round = |number: usize| place.join(format!("results/unit/round-{number}.json"));
    let written = || fs::metadata(round(1)).unwrap().modified().unwrap();
    let before = written();
    assert!(!round(2).exists());
    fs::remove_file(&flag).unwrap();
    printed(&construct);
    assert!(round(2).exists() && written() == before, "the first round was measured again");
}

#[test]
fn a_command_that_cannot_start_names_the_file_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    evaluation(place);
    add_to_work(place, "precondition = '/no/such/fill'");
    replace(&place.join("small.toml"), "cpus = [0]", "cpus = [0], precondition = 'false'");
    let told = failed(&mbwu(&["construct"], place));
    let expected = "unit, round 1: work.precondition of unit.toml: /no/such/fill: it ended (exit status: 127): cannot \
                    start /no/such/fill: ";
    assert!(told.contains(expected), "{told}");
    let path = place.to_str().unwrap();
    let told = failed(&["mbwu", "measure", path, "large"]);
    assert!(told.contains("large, round 1: work.precondition of unit.toml: /no/such/fill"), "{told}");
    let told = failed(&["mbwu", "measure", path, "small"]);
    assert!(told.contains("small, round 1: work.precondition of small.toml: false: it ended"), "{told}");
}

#[test]
fn rounds_of_another_purge_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    evaluation(place);
    add_to_work(place, "purge = 'true'");
    printed(&mbwu(&["construct"], place));
    replace(&place.join("unit.toml"), "purge = 'true'", "purge = 'true now'");
    let told = refused(&mbwu(&["construct"], place));
    assert!(told.contains("round 1 has `purge` = \"true\", and this command has \"true now\""), "{told}");
    replace(&place.join("unit.toml"), "purge = 'true now'", "");
    let told = refused(&mbwu(&["construct"], place));
    assert!(told.contains("round 1 has `purge` = \"true\", and this command has null"), "{told}");
}

#[test]
fn an_interrupted_evaluation_ends_a_command_that_prepares_the_medium() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    evaluation(place);
    let pids = place.join("pids");
    // The shell stays, and sleep is its child.
    let script = format!(
        "echo $$ > \"{0}.new\"; sleep 600 & echo $! >> \"{0}.new\"; mv \"{0}.new\" \"{0}\"; wait",
        pids.display()
    );
    add_to_work(place, &format!("purge = {}", shell(&script)));
    interrupt(place, |_| pids.exists());
    let started = fs::read_to_string(&pids).unwrap();
    let is_there = |pid: &str| Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok();
    assert!(comes_true(|| !started.lines().any(is_there)), "{started}");
}

/// It needs root.
#[test]
#[ignore = "make test-mbwu"]
fn a_server_that_is_killed_for_its_memory_limit_is_told() {
    let folder = tempfile::tempdir().unwrap();
    evaluation(folder.path());
    replace(&folder.path().join("unit.toml"), "--keys 500", "--keys 50000 --value-bytes 4096");
    served(folder.path(), "memory_bytes = 50_000_000");
    let output = ziptier().args(["mbwu", "construct"]).arg(folder.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = "its server was killed for its memory limit of 50,000,000 bytes; give more memory_bytes";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn readings_of_a_meter_must_cover_what_was_measured() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    evaluation(place);
    replace(&place.join("large.toml"), "watts = { value = 90, error = 1 }", "power = { csv = 'power.csv' }");
    printed_words(&["construct"], place);
    fs::write(place.join("power.csv"), "100,90\n").unwrap();
    let output = ziptier().args(["mbwu", "measure"]).arg(place).arg("large").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains("power.csv: the readings cover 0 s"), "{said}");
    // The rounds are kept, and better readings are read without a new measurement.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let readings: String = (now - 600..now + 600).step_by(5).map(|at| format!("{at},42.5\n")).collect();
    fs::write(place.join("power.csv"), readings).unwrap();
    let told = printed_words(&["compare", "--format", "tsv"], place);
    assert!(told.contains("large"), "{told}");
    let told = printed_words(&["compare"], place);
    assert!(told.contains("small is not measured yet; `ziptier mbwu measure"), "{told}");
    let output = ziptier().args(["mbwu", "measure"]).arg(place).arg("large").output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let words = told.replace('\n', " ");
    assert!(words.contains("Power: 42.5 W, measured by power.csv."), "{told}");
    assert!(told.lines().all(|line| line.len() <= 80), "a terminal shows each line unbroken: {told}");
}
