//! Client libraries greet, name themselves, switch protocols and convert types: more than the commands alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use redis::{Commands, RedisResult, Value};

use crate::support::{TestServer, program, scratch};

on_every_backend!(
    redis_rs_works_in_both_protocols,
    redis_py_works_in_both_protocols,
    node_redis_works_in_both_protocols
);

/// The release that the script is written for, with hashes.
const REDIS_PY: &str = "tests/requirements.txt";

/// The beginning of the year 2100.
const MOMENT_S: i64 = 4_102_444_800;

fn redis_rs_works_in_both_protocols(server: &TestServer) {
    for protocol in ["resp2", "resp3"] {
        let client = redis::Client::open(format!("redis://{}/?protocol={protocol}", server.address)).unwrap();
        let mut connection = client.get_connection().unwrap();
        let _: () = redis::cmd("FLUSHALL").query(&mut connection).unwrap();

        let _: () = connection.set("name", "value").unwrap();
        assert_eq!(connection.get::<_, String>("name").unwrap(), "value");
        assert_eq!(connection.get::<_, Option<String>>("missing").unwrap(), None);
        let _: () = connection.set_ex("short", 7, 100_000).unwrap();
        let left_s: u64 = connection.ttl("short").unwrap();
        assert!((1..=100_000).contains(&left_s), "{left_s} s are left");
        // A moment, which stays the same however long each request takes.
        assert!(connection.expire_at::<_, bool>("short", MOMENT_S).unwrap());
        assert_eq!(connection.expire_time::<_, i64>("short").unwrap(), MOMENT_S);
        assert_eq!(connection.incr::<_, _, i64>("short", 1).unwrap(), 8);
        let _: () = connection.mset(&[("a", 1), ("b", 2)]).unwrap();
        let values: Vec<Option<i64>> = connection.mget(&["a", "b", "missing"]).unwrap();
        assert_eq!(values, [Some(1), Some(2), None]);
        assert_eq!(connection.del::<_, i64>(&["a", "missing"]).unwrap(), 1);
        assert!(connection.exists::<_, bool>("b").unwrap());
        assert_eq!(connection.append::<_, _, i64>("name", "!").unwrap(), 6);

        let (first, second): (String, i64) =
            redis::pipe().cmd("GET").arg("name").cmd("STRLEN").arg("name").query(&mut connection).unwrap();
        assert_eq!((first.as_str(), second), ("value!", 6));
        let mut keys: Vec<String> = connection.scan().unwrap().map(Result::unwrap).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["b", "name", "short"]);

        let refused: RedisResult<Value> = redis::cmd("INCR").arg("name").query(&mut connection);
        assert!(refused.unwrap_err().to_string().contains("not an integer"));
        let info: redis::InfoDict = redis::cmd("INFO").query(&mut connection).unwrap();
        assert!(info.get::<u64>("connected_clients").unwrap() >= 1);
    }
}

/// A Python with redis-py: the one that `make test` has set up and named, or one that is made once below the target
/// directory.
pub(crate) fn python() -> Command {
    if let Ok(python) = std::env::var("ZIPTIER_PYTHON")
        && knows_redis_py(Path::new(&python))
    {
        return Command::new(python);
    }
    let folder = scratch("redis-py");
    let _alone = alone("redis-py");
    let python = folder.join("bin/python");
    if !knows_redis_py(&python) {
        let made = program("python3").args(["-m", "venv", "--clear"]).arg(&folder).status().unwrap();
        assert!(made.success(), "install it with: apt-get install -y python3-venv");
        let installed = Command::new(&python)
            .args(["-m", "pip", "install", "--quiet", "--require-hashes", "-r", REDIS_PY])
            .status()
            .unwrap();
        assert!(installed.success(), "install it with: {} -m pip install -r {REDIS_PY}", python.display());
    }
    Command::new(python)
}

/// Lets one test at a time make a thing: tests are processes.
fn alone(thing: &str) -> std::fs::File {
    let lock = std::fs::File::create(scratch("locks").join(thing)).unwrap();
    lock.lock().unwrap();
    lock
}

fn knows_redis_py(python: &Path) -> bool {
    Command::new(python).args(["-c", "import redis"]).output().is_ok_and(|output| output.status.success())
}

fn redis_py_works_in_both_protocols(server: &TestServer) {
    for protocol in ["2", "3"] {
        // Tests start in the folder of their crate.
        let output = python().args(["tests/redis_py.py", &server.port(), protocol]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "RESP{protocol}: {said}");
    }
}

/// The folder of node-redis: the one that `make test` has set up and named, or one that is made once below the target
/// directory, at the versions of the lock file.
fn node_modules() -> PathBuf {
    if let Ok(folder) = std::env::var("ZIPTIER_NODE_MODULES")
        && Path::new(&folder).join("redis").is_dir()
    {
        return folder.into();
    }
    let folder = scratch("node-redis");
    let _alone = alone("node-redis");
    let modules = folder.join("node_modules");
    if !modules.join("redis").is_dir() {
        for file in ["package.json", "package-lock.json"] {
            std::fs::copy(Path::new("tests/node").join(file), folder.join(file)).unwrap();
        }
        let made =
            program("npm").args(["ci", "--no-audit", "--no-fund", "--prefix"]).arg(&folder).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    modules
}

fn node_redis_works_in_both_protocols(server: &TestServer) {
    for protocol in ["2", "3"] {
        let mut command = program("node");
        command.args(["tests/node/session.cjs", &server.port(), protocol]).env("NODE_PATH", node_modules());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "RESP{protocol}: {said}");
    }
}
