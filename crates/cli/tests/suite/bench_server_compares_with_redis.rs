//! `ziptier bench-server` as a user meets it: the table, the rows, and that nothing goes on when it has ended.

use std::process::{Command, Output, Stdio};

use crate::support::{Server, serve};

fn bench_server(arguments: &[&str]) -> Output {
    command(arguments).args(["--rounds", "1"]).output().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let small = [
        "--keys",
        "2000",
        "--requests",
        "4000",
        "--quiet-seconds",
        "0",
        "--rate",
        "0",
        "--value-bytes",
        "128",
    ];
    let mut command = Command::new(env!("CARGO_BIN_EXE_ziptier"));
    command.arg("bench-server").args(small).args(["--key-shape", "random"]).args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn both_servers_get_the_same_requests_and_all_rows_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let rows = folder.path().join("new/rows.tsv");
    let mut command = command(&["--out", rows.to_str().unwrap(), "--rounds", "1"]);
    let output = command.env("ZIPTIER_CODEC", "lz4").env("ZIPTIER_MEMORY", "1GiB").output().unwrap();
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && said.is_empty(), "{said}");
    assert!(
        printed.contains("values of 128 B, random keys") && printed.lines().all(|line| line.len() <= 80),
        "{printed}"
    );
    // The limit comes from an argument.
    let inherited = "Options that ziptier took from the environment: ZIPTIER_CODEC.\n";
    assert!(printed.ends_with(inherited), "{printed}");
    let rows = std::fs::read_to_string(rows).unwrap();
    let mut lines = rows.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let column =
        |line: &[&str], name: &str| line[names.iter().position(|other| *other == name).unwrap()].to_owned();
    let all: Vec<_> = lines.collect();
    let phases: Vec<_> =
        all.iter().map(|line| [column(line, "server"), column(line, "phase")].join(": ")).collect();
    let expected: Vec<_> = ["load, P 16", "GET, P 16", "GET, P 1", "SET, P 16", "SET, P 1"]
        .iter()
        .flat_map(|phase| [format!("redis-server: {phase}"), format!("ziptier: {phase}")])
        .collect();
    assert_eq!(phases, expected);
    let counts: Vec<_> = all.iter().map(|line| column(line, "operations")).collect();
    assert_eq!(counts, ["2000", "4000", "1000", "4000", "1000"].map(|count| [count; 2]).concat());
    assert!(
        all.iter().all(|line| column(line, "rss_bytes") != "0" && column(line, "used_bytes") != "0"),
        "{rows}"
    );
}

#[test]
fn an_interrupted_run_keeps_the_rows_that_it_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.tsv");
    let rows = || std::fs::read_to_string(&path).unwrap_or_default().lines().count();
    // It would go on for hours.
    let mut command = command(&["--rounds", "1000", "--out", path.to_str().unwrap()]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    ziptier_testing::until("two servers are loaded", || rows() > 2);
    assert!(Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap().success());
    let output = running.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
    assert_eq!(said, "error: interrupted; the file of --out has the rows of the phases before\n");
    assert!(rows() > 2);
}

/// Nobody stays logged in for the hour that it takes.
#[test]
fn a_run_under_nohup_outlives_its_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.tsv");
    let rows = || std::fs::read_to_string(&path).unwrap_or_default().lines().count();
    let bench = command(&["--rounds", "1000", "--out", path.to_str().unwrap()]);
    let mut nohup = Command::new("sh");
    nohup.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(bench.get_program()).args(bench.get_args());
    let running = nohup.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &running.id().to_string()]).status().unwrap().success());
    };
    ziptier_testing::until("two servers are loaded", || rows() > 2);
    signal("-HUP");
    let before = rows();
    ziptier_testing::until("it goes on", || rows() > before + 2);
    signal("-TERM");
    assert!(!running.wait_with_output().unwrap().status.success());
}

/// The server was started, and refused it.
#[test]
fn a_memory_that_is_no_size_is_refused_before_a_server_starts() {
    let output = bench_server(&["--redis", "/no/such/server", "--memory", "5x"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("invalid value '5x' for '--memory <BYTES>'"), "{said}");
}

/// The environment of a shell that read the options of a service.
#[test]
fn the_keys_of_a_folder_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let store = || Server::start(serve().arg("--dir").arg(folder.path().join("store")));
    let server = store();
    assert_eq!(server.ask(b"SET key:000000000042 mine\r\n"), "+OK\r\n");
    server.stop();
    let mut command = command(&["--rounds", "1"]);
    let output = command.env("ZIPTIER_DIR", folder.path().join("store")).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("ziptier: it has 1 keys at its start") && said.contains("ZIPTIER_DIR"), "{said}");
    let server = store();
    assert_eq!(server.ask(b"DBSIZE\r\nGET key:000000000042\r\n"), ":1\r\n$4\r\nmine\r\n");
    server.stop();
}

#[test]
fn what_cannot_be_compared_ends_with_2_and_one_sentence() {
    for (arguments, words) in [
        (&["--redis", "/no/such/server"][..], "cannot start /no/such/server: "),
        (&["--connections", "0"], "give 1 to 10000"),
        (&["--corpus", "no/such/file"], "there is no such file or folder"),
    ] {
        let output = bench_server(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(words) && said.lines().count() == 1, "{arguments:?}: {said}");
    }
}
