//! Programs that were not written for the library run with it, as their users run them. The long tests are those of
//! `make test-alloc`.

use std::path::{Path, PathBuf};
use std::process::Command;

use ziptier_testing::until;

use crate::a_stock_redis_keeps_its_values::{Port, Redis};
use crate::support::{library, with_library};

/// A program, its arguments, and what it prints.
type Run = (&'static str, &'static [&'static str], &'static str);

const RUNS: [Run; 5] = [
    ("sort", &["--version"], "sort (GNU coreutils)"),
    (
        "python3",
        &["-c", "print(sum(len(str(n) * 50) for n in range(20000)), bytearray(10**7)[9])"],
        "4444500 0",
    ),
    (
        "sqlite3",
        &[
            ":memory:",
            "with recursive n(v) as (select 1 union all select v+1 from n where v < 50000) \
        select sum(length(hex(v))) from n",
        ],
        "477788",
    ),
    (
        "node",
        &["-e", "console.log(Array.from({length: 1e5}, (_, n) => Buffer.alloc(n % 999)).length)"],
        "100000",
    ),
    ("gcc", &["-O2", "-x", "c", "-E", "/dev/null"], "\"/dev/null\""),
];

#[test]
fn short_ones() {
    for (program, arguments, expected) in RUNS {
        for options in ["ratio=1:3", "policy=only-far"] {
            let Ok(output) = with_library(program, options).args(arguments).output() else {
                ziptier_testing::not_run(program, "install it");
                break;
            };
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && said.contains(expected), "{program}: {output:?}");
        }
    }
}

/// The next free descriptor is the program's, as it would be without the library.
#[test]
fn with_few_descriptors() {
    let mut shell = with_library("sh", "ratio=1:3");
    let output = shell.args(["-c", "ulimit -n 64; exec ls -l /proc/self/fd"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let page = said.lines().find(|line| line.contains("/memfd:ziptier-alloc")).unwrap();
    let number = page.split_once(" -> ").unwrap().0.rsplit(' ').next().unwrap();
    assert!((56..64).contains(&number.parse::<i32>().unwrap()), "{said}");
}

fn benchmark(redis: &Redis) {
    let status = Command::new("redis-benchmark")
        .args(["-p", &redis.port.to_string(), "-n", "20000", "-r", "10000", "-P", "16", "-q"])
        .output();
    assert!(status.unwrap().status.success());
}

#[test]
#[ignore = "minutes; make test-alloc runs it"]
fn redis_through_its_own_benchmark() {
    let folder = tempfile::tempdir().unwrap();
    for options in ["ratio=1:3", "policy=only-far"] {
        let Some(mut redis) = Redis::start(folder.path(), Some(options), &[]) else { return };
        benchmark(&redis);
        assert!(redis.ask(&["MEMORY", "DOCTOR"]).contains("Sam"), "the doctor says nothing");
    }
}

#[test]
#[ignore = "minutes; make test-alloc runs it"]
fn redis_with_its_log_rewritten_under_writes() {
    const KEYS: usize = 20_000;
    let folder = tempfile::tempdir().unwrap();
    let value = |key: usize, round: usize| format!("{round} {key} ").repeat(1 + key % 200).into_bytes();
    let more = ["--appendonly", "yes"];
    {
        let Some(mut redis) = Redis::start(folder.path(), Some("ratio=1:3"), &more) else { return };
        for round in 0..4 {
            redis.ask(&["BGREWRITEAOF"]);
            redis.set_all(KEYS, |key| value(key, round));
            until("the log is rewritten", || redis.info("persistence", "aof_rewrite_in_progress") == 0);
        }
        assert!(redis.info("persistence", "aof_current_size") > 0);
    }
    let mut plain = Redis::start(folder.path(), None, &more).unwrap();
    until("the log is loaded", || plain.info("persistence", "loading") == 0);
    assert_eq!(plain.differing(KEYS, |key| value(key, 3)), 0);
}

#[test]
#[ignore = "minutes; make test-alloc runs it"]
fn redis_with_a_replica() {
    const KEYS: usize = 20_000;
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let value = |key: usize| format!("{key} ").repeat(1 + key % 300).into_bytes();
    let Some(mut redis) = Redis::start(folder.path(), Some("ratio=1:3"), &[]) else { return };
    redis.set_all(KEYS, value);
    let mut replica = Redis::start(other.path(), Some("ratio=3:1"), &[]).unwrap();
    replica.ask(&["REPLICAOF", "127.0.0.1", &redis.port.to_string()]);
    redis.set_all(KEYS, |key| value(key + 1));
    until("the replica has caught up", || {
        replica.ask(&["INFO", "replication"]).contains("master_link_status:up")
            && replica.info("replication", "master_repl_offset")
                == redis.info("replication", "master_repl_offset")
    });
    assert_eq!(replica.differing(KEYS, |key| value(key + 1)), 0);
}

fn redis_cli(arguments: &[&str]) {
    let output = Command::new("redis-cli").args(arguments).output().unwrap();
    assert!(output.status.success(), "redis-cli {arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
}

/// A member, and the port at which it talks with the others.
fn cluster_member(folder: &Path) -> Option<(Redis, Port)> {
    let held = Port::new();
    let port = held.number.to_string();
    let more = ["--cluster-enabled", "yes", "--cluster-node-timeout", "15000", "--cluster-port", &port];
    Redis::start(folder, Some("ratio=1:3"), &more).map(|member| (member, held))
}

#[test]
#[ignore = "minutes; make test-alloc runs it"]
fn redis_cluster_of_three_that_is_resharded() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let started = folders.iter().map(|folder| cluster_member(folder.path())).collect::<Option<Vec<_>>>();
    let Some((mut members, _ports)) =
        started.map(|started| started.into_iter().unzip::<_, _, Vec<_>, Vec<_>>())
    else {
        return;
    };
    let nodes: Vec<String> = members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
    redis_cli(&["--cluster", "create", &nodes[0], &nodes[1], &nodes[2], "--cluster-yes"]);
    until("the cluster is up", || {
        members.iter_mut().all(|member| member.ask(&["CLUSTER", "INFO"]).contains("cluster_state:ok"))
    });
    let port = members[0].port.to_string();
    let fill = Command::new("redis-benchmark")
        .args(["-p", &port, "--cluster", "-t", "set", "-d", "500", "-n", "50000", "-r", "20000", "-q"])
        .output();
    assert!(fill.unwrap().status.success());
    let keys = |members: &mut [Redis]| -> u64 {
        members.iter_mut().map(|member| member.ask(&["DBSIZE"])[1..].parse::<u64>().unwrap()).sum()
    };
    let before = keys(&mut members);
    let [from, to] = [0, 1].map(|index: usize| members[index].ask(&["CLUSTER", "MYID"]));
    redis_cli(&[
        "--cluster",
        "reshard",
        &nodes[0],
        "--cluster-from",
        &from,
        "--cluster-to",
        &to,
        "--cluster-slots",
        "1000",
        "--cluster-yes",
    ]);
    assert_eq!(keys(&mut members), before);
    redis_cli(&["--cluster", "check", &nodes[0]]);
}

#[test]
#[ignore = "minutes; make test-alloc runs it"]
fn a_compiler_and_a_sort_of_much() {
    let folder = tempfile::tempdir().unwrap();
    let script = "seq 2000000 | shuf | sort -n | tail -1; \
        printf '#include <map>\\n#include <string>\\nint main() { std::map<std::string, int> m; m[\"a\"]; }' >a.cc && \
        g++ -O2 a.cc -o a && ./a && echo compiled";
    let mut shell = with_library("sh", "ratio=1:3");
    let output =
        shell.args(["-c", script]).current_dir(folder.path()).env("LD_PRELOAD", library()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2000000\ncompiled\n");
}

#[test]
#[ignore = "minutes; make test-alloc runs it"]
fn valkey() {
    const KEYS: usize = 5_000;
    let folder = tempfile::tempdir().unwrap();
    let value = |key: usize| format!("{key} ").repeat(1 + key % 300).into_bytes();
    let Some(mut server) = Redis::start_program("valkey-server", folder.path(), Some("ratio=1:3"), &[])
    else {
        return;
    };
    server.set_all(KEYS, value);
    assert_eq!(server.differing(KEYS, value), 0);
    assert!(server.info("memory", "allocator_allocated") > 1_000_000);
}

/// Adds a member to a value of each type. Values of collections outgrow their compact forms.
fn add(redis: &mut Redis, member: usize) {
    let (name, number, text) = (format!("m{member}"), member.to_string(), "x".repeat(member % 300));
    let degrees = (member % 80).to_string();
    for words in [
        &["APPEND", "string", &text][..],
        &["SETBIT", "bits", &number, "1"],
        &["PFADD", "count", &name],
        &["RPUSH", "list", &text],
        &["HSET", "hash", &name, &text],
        &["SADD", "set", &name],
        &["ZADD", "sorted", &number, &name],
        &["GEOADD", "places", &degrees, &degrees, &name],
        &["XADD", "stream", "*", &name, &text],
    ] {
        redis.ask(words);
    }
}

#[test]
#[ignore = "minutes; make test-alloc runs it"]
fn redis_with_values_of_each_type() {
    const QUESTIONS: [&[&str]; 12] = [
        &["STRLEN", "string"],
        &["BITCOUNT", "bits"],
        &["PFCOUNT", "count"],
        &["LLEN", "list"],
        &["LINDEX", "list", "-1"],
        &["HLEN", "hash"],
        &["HGET", "hash", "m1999"],
        &["SCARD", "set"],
        &["SISMEMBER", "set", "m1999"],
        &["ZSCORE", "sorted", "m1999"],
        &["GEODIST", "places", "m1001", "m1999"],
        &["XLEN", "stream"],
    ];
    let folder = tempfile::tempdir().unwrap();
    let Some(mut redis) = Redis::start(folder.path(), Some("ratio=1:3"), &[]) else { return };
    (0..2000).for_each(|member| add(&mut redis, member));
    for member in 0..1000 {
        let name = format!("m{member}");
        for words in [["HDEL", "hash", &name], ["SREM", "set", &name], ["ZREM", "sorted", &name]] {
            assert_eq!(redis.ask(&words), ":1");
        }
        redis.ask(&["LPOP", "list"]);
    }
    let answers = QUESTIONS.map(|words| redis.ask(words));
    assert_eq!(
        [3, 5, 7, 11].map(|question: usize| &answers[question][..]),
        [":1000", ":1000", ":1000", ":2000"]
    );
    assert_eq!(redis.ask(&["SAVE"]), "+OK");
    drop(redis);
    let mut plain = Redis::start(folder.path(), None, &[]).unwrap();
    until("the snapshot is loaded", || plain.info("persistence", "loading") == 0);
    assert_eq!(QUESTIONS.map(|words| plain.ask(words)), answers);
}

/// RocksDB asks for the usable sizes of its blocks, and frees them in other threads.
#[test]
#[ignore = "minutes; make test-alloc runs it"]
fn the_db_bench_of_a_rocksdb() {
    let library = std::env::var_os("ZIPTIER_ROCKSDB_LIBRARY").map(PathBuf::from).unwrap_or_default();
    let program = library.with_file_name("tools").join("db_bench");
    if !program.exists() {
        return ziptier_testing::not_run("db_bench", "run make rocksdb-tools");
    }
    let folder = tempfile::tempdir().unwrap();
    for options in ["ratio=1:3", "policy=only-far"] {
        let output = with_library(program.to_str().unwrap(), options)
            .args(["--benchmarks=fillrandom,overwrite,compact,readrandom,verifychecksum", "--num=100000"])
            .args([
                "--threads=4",
                "--value_size=400",
                "--write_buffer_size=4194304",
                "--compression_type=none",
            ])
            .arg(format!("--db={}", folder.path().display()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("readrandom"), "{output:?}");
    }
}
