//! redis-cli and redis-benchmark are what people try first.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::{TestServer, program};

on_every_backend!(redis_cli_stores_and_reads, redis_cli_scans, redis_benchmark_runs_quietly);

fn cli(server: &TestServer) -> Command {
    let mut command = program("redis-cli");
    command.args(["-p", &server.port()]);
    command
}

/// Standard output of a command that must succeed silently otherwise.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

fn redis_cli_stores_and_reads(server: &TestServer) {
    let value: Vec<u8> = (0..700_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut child =
        cli(server).args(["-x", "set", "file"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&value).unwrap();
    assert_eq!(child.wait_with_output().unwrap().stdout, b"OK\n");
    assert_eq!(output(cli(server).args(["strlen", "file"])), format!("{}\n", value.len()));
    // It prints a line end of its own behind the value.
    let printed = cli(server).args(["get", "file"]).output().unwrap().stdout;
    assert_eq!(printed[..value.len()], value);

    // A moment, which stays the same however long each of the programs takes.
    assert_eq!(output(cli(server).args(["-3", "set", "k", "v", "exat", "4102444800"])), "OK\n");
    assert_eq!(output(cli(server).args(["-3", "mget", "k", "missing"])), "v\n\n");
    assert_eq!(output(cli(server).args(["--no-raw", "expiretime", "k"])), "(integer) 4102444800\n");
    let info = output(cli(server).args(["info", "memory"]));
    for field in ["used_memory:", "logical_bytes:", "held_bytes:", "used_memory_rss:", "maxmemory:"] {
        assert!(info.contains(field), "{field} in {info}");
    }
    assert!(output(cli(server).args(["-3", "info"])).contains("# Codec"));
    assert!(output(cli(server).args(["command", "docs", "getrange"])).contains("Read a part of the value"));
    // It asks for the documentation of every command first.
    assert!(output(cli(server).args(["help", "getrange"])).contains("Read a part of the value"));
}

fn redis_cli_scans(server: &TestServer) {
    let mut commands = String::new();
    for number in 0..1000 {
        commands.push_str(&format!("SET key:{number} {number}\r\n"));
    }
    let mut pipe = cli(server).arg("--pipe").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    pipe.stdin.take().unwrap().write_all(commands.as_bytes()).unwrap();
    let printed = String::from_utf8(pipe.wait_with_output().unwrap().stdout).unwrap();
    assert!(printed.contains("errors: 0, replies: 1000"), "{printed}");

    let mut keys: Vec<_> = output(cli(server).args(["--scan"])).lines().map(str::to_owned).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 1000);
    assert_eq!(output(cli(server).args(["--scan", "--pattern", "key:99*"])).lines().count(), 11);
}

fn redis_benchmark_runs_quietly(server: &TestServer) {
    for (tests, pipeline) in [("ping,set,get,incr", "1"), ("set,get,mset", "16"), ("set,get", "1000")] {
        let mut command = program("redis-benchmark");
        command.args(["-p", &server.port(), "-t", tests, "-P", pipeline]);
        command.args(["-n", "8000", "-r", "1000", "-d", "128", "--csv"]);
        let table = output(&mut command);
        let rows = table.lines().filter(|line| line.starts_with('"')).count();
        let expected = tests.split(',').count() + usize::from(tests.contains("ping"));
        // One row per test, two for PING, and the heading.
        assert_eq!(rows, expected + 1, "{table}");
        assert!(!table.contains("WARN") && !table.contains("ERR"), "{table}");
    }
}
