//! `ziptier bench --target redis://...` on real servers. A benchmark that emptied a database in use would lose a user's
//! keys, and one that took its own CPU time for the server's would praise the slower server.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{Client, Server, serve, ziptier};

/// A Redis of this test's own, killed with this.
struct Redis {
    child: Child,
    address: SocketAddr,
}

impl Redis {
    fn start(arguments: &[&str]) -> Self {
        let address = ziptier_testing::free_address();
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let child = Command::new("redis-server")
            .args(["--port", &port, "--bind", &ip, "--save", "", "--appendonly", "no"])
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .expect("make test installs redis-server");
        ziptier_testing::until("redis-server answers", || Client::to(address).is_ok());
        Redis { child, address }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Threads of a benchmark.
const THREADS: usize = 4;

/// A short benchmark of the server at this address.
fn bench(address: SocketAddr, database: &str, arguments: &[&str]) -> Command {
    let mut command = ziptier();
    let target = format!("redis://{address}{database}");
    command.args(["bench", "--target", &target, "--format", "tsv", "--warmup", "0", "--keys", "2000"]);
    command.args(["--threads", &THREADS.to_string()]).args(arguments).env_remove("REDISCLI_AUTH");
    command
}

/// Waits until the last request of so many clients was this one.
fn wait_for(client: &mut Client, command: &str, clients: usize) {
    ziptier_testing::until(command, || {
        client.request(&[b"CLIENT", b"LIST"]);
        client.send().unwrap();
        String::from_utf8_lossy(&client.bulk().unwrap().unwrap()).matches(command).count() >= clients
    });
}

/// Waits until the server holds a write of each thread of the benchmark back.
fn wait_for_writes(client: &mut Client) {
    wait_for(client, "cmd=set", THREADS);
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn number(output: &Output, column: &str) -> f64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let [names, row] = text.lines().collect::<Vec<_>>().try_into().unwrap_or_else(|_| panic!("{text}"));
    let place = names.split('\t').position(|name| name == column).unwrap();
    let cell = row.split('\t').nth(place).unwrap();
    cell.parse().unwrap_or_else(|_| panic!("{column} is {cell}"))
}

#[test]
fn every_answer_is_checked_and_the_database_is_empty_afterwards() {
    let (redis, ours) = (Redis::start(&[]), Server::start(&mut serve()));
    for address in [redis.address, (Ipv4Addr::LOCALHOST, ours.port).into()] {
        for arguments in [
            &["--mix", "read=50,write=30,delete=20", "--operations", "20000"][..],
            &[
                "--mix",
                "read=50,write=30,delete=10,insert=5,rmw=5",
                "--connections",
                "13",
                "--multi-get",
                "4",
                "--multi-put",
                "3",
                "--operations",
                "20000",
            ],
            &[
                "--workload",
                "read_only",
                "--multi-get",
                "16",
                "--operations",
                "100000",
                "--value-bytes",
                "0..3000",
            ],
        ] {
            let output = bench(address, "", arguments).output().unwrap();
            assert!(output.status.success(), "{}", said(&output));
            assert_eq!(number(&output, "mismatches"), 0.0);
            // What the server holds, and its CPU time, are not those of the client.
            assert!(number(&output, "qps_per_cpu_core") > 0.0);
            let held = number(&output, "held_per_raw");
            assert!((0.1..8.0).contains(&held), "{held}");
            assert_eq!(Client::to(address).unwrap().ask(&[b"DBSIZE"]).unwrap(), ":0");
        }
    }
}

/// A command whose limits of open files these are, by options of `ulimit`.
fn with_files(command: &Command, limits: &[&str]) -> Command {
    let limits: String = limits.iter().map(|limit| format!("ulimit {limit} && ")).collect();
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("{limits} exec \"$@\""), "sh"]).arg(command.get_program());
    limited.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// Shells mostly have a soft limit of 1,024 files, and a far higher hard one.
#[test]
fn more_connections_than_open_files_are_made_or_refused_before_anything_starts() {
    let redis = Redis::start(&[]);
    let target = format!("redis://{}", redis.address);
    for many in [["--connections", "200"], ["--threads", "200"]] {
        let mut command = ziptier();
        command.args([
            "bench",
            "--target",
            &target,
            "--keys",
            "2000",
            "--warmup",
            "0",
            "--workload",
            "read_only",
        ]);
        command.args(["--operations", "2000"]).args(many).env_remove("REDISCLI_AUTH");
        let output = with_files(&command, &["-Sn 100"]).output().unwrap();
        assert!(output.status.success(), "{many:?}: {}", said(&output));
        let output = with_files(&command, &["-Sn 100", "-Hn 100"]).output().unwrap();
        let told = said(&output);
        assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{told}");
        let expected = format!("bad {} `200`: this needs 26", many[0]);
        assert!(told.contains(&expected) && told.contains("hard limit of this process is 100"), "{told}");
    }
}

#[test]
fn a_database_with_keys_is_refused_and_keeps_them() {
    let redis = Redis::start(&[]);
    let mut client = Client::to(redis.address).unwrap();
    assert_eq!(client.ask(&[b"SET", b"order:1", b"a user's"]).unwrap(), "+OK");
    let output = bench(redis.address, "", &["--operations", "2000"]).output().unwrap();
    let told = said(&output);
    assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{told}");
    assert!(told.contains("DBSIZE 1") && told.contains(&format!(":{}/1", redis.address.port())), "{told}");
    assert_eq!(client.get("order:1").unwrap().as_deref(), Some(&b"a user's"[..]));
    // The next database is another one.
    let output =
        bench(redis.address, "/1", &["--workload", "read_only", "--operations", "2000"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(client.get("order:1").unwrap().as_deref(), Some(&b"a user's"[..]));
}

/// Somebody else uses the database while the benchmark runs.
#[test]
fn keys_of_others_stay() {
    let redis = Redis::start(&[]);
    let mut client = Client::to(redis.address).unwrap();
    assert_eq!(client.ask(&[b"CLIENT", b"PAUSE", b"600000", b"WRITE"]).unwrap(), "+OK");
    let mut command = bench(redis.address, "", &["--workload", "read_only", "--operations", "2000"]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_writes(&mut client);
    assert_eq!(client.ask(&[b"CLIENT", b"UNPAUSE"]).unwrap(), "+OK");
    assert_eq!(client.ask(&[b"SET", b"order:1", b"a user's"]).unwrap(), "+OK");
    let output = running.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(client.ask(&[b"DBSIZE"]).unwrap(), ":1");
    assert_eq!(client.get("order:1").unwrap().as_deref(), Some(&b"a user's"[..]));
}

#[test]
fn a_password_comes_from_the_environment_and_is_never_shown() {
    let redis = Redis::start(&["--requirepass", "hunter2"]);
    let run = |password: &str| {
        let mut command = bench(redis.address, "", &["--workload", "read_only", "--operations", "2000"]);
        command.env("REDISCLI_AUTH", password).output().unwrap()
    };
    let output = run("hunter2");
    assert!(output.status.success(), "{}", said(&output));
    let output = run("hunter3");
    let told = said(&output);
    assert_eq!((output.status.code(), told.lines().count()), (Some(2), 1), "{told}");
    assert!(told.contains("it refused AUTH: ") && !told.contains("hunter"), "{told}");
    let output = bench(redis.address, "", &["--operations", "2000"]).output().unwrap();
    assert!(said(&output).contains("it refused DBSIZE: NOAUTH"), "{}", said(&output));
}

#[test]
fn a_server_that_dies_in_the_middle_fails_the_benchmark() {
    let mut redis = Redis::start(&[]);
    let mut client = Client::to(redis.address).unwrap();
    // No write is answered, so that the benchmark cannot end before the server does.
    assert_eq!(client.ask(&[b"CLIENT", b"PAUSE", b"600000", b"WRITE"]).unwrap(), "+OK");
    let mut command = bench(redis.address, "", &["--workload", "read_only", "--operations", "2000"]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for_writes(&mut client);
    redis.child.kill().unwrap();
    let output = running.wait_with_output().unwrap();
    let told = said(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("has ended: it closed the connection, and no server answers"), "{told}");
}

/// A window of a day.
#[test]
fn a_server_that_dies_in_a_window_ends_the_benchmark_at_once() {
    let mut redis = Redis::start(&[]);
    let mut client = Client::to(redis.address).unwrap();
    let mut command = bench(redis.address, "", &["--workload", "read_only", "--seconds", "80000"]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&mut client, "cmd=get", 1);
    redis.child.kill().unwrap();
    let output = running.wait_with_output().unwrap();
    let told = said(&output);
    assert_eq!((output.status.code(), told.lines().count()), (Some(1), 1), "{told}");
    assert!(told.contains("has ended: ") && told.contains("no server answers"), "{told}");
}
