//! An operator sets a ratio under a stock Redis, looks whether it holds, and changes it. A process that cannot be
//! served must be told with its reason, or the operator tunes a program that never had the library.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use ziptier_alloc::configuration::Configuration;
use ziptier_alloc::page::{FarKind, SharedPage, VERSION};
use ziptier_alloc::programs::Program;
use ziptier_testing::{not_run, until, until_seen};

use crate::support::ziptier;

/// The library, where Cargo has built it; nothing where only this package was built.
fn library() -> Option<PathBuf> {
    let library = PathBuf::from(env!("CARGO_BIN_EXE_ziptier")).with_file_name("libziptier_alloc.so");
    if library.exists() {
        return Some(library);
    }
    not_run("libziptier_alloc.so", "run cargo build --package ziptier-alloc-preload");
    None
}

/// A redis-server with the library on a socket of its own, killed with this.
struct Redis {
    child: Child,
    stream: BufReader<UnixStream>,
    _folder: tempfile::TempDir,
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Redis {
    /// Nothing where there is no redis-server, or no library.
    fn start(options: &[&str]) -> Option<Redis> {
        library()?;
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            not_run("redis-server", "install redis-server");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let mut command = ziptier();
        command.args(["alloc", "run"]).args(options).args([
            "--",
            "redis-server",
            "--port",
            "0",
            "--save",
            "",
        ]);
        command.arg("--unixsocket").arg(&socket).arg("--dir").arg(folder.path()).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        until("redis-server listens", || UnixStream::connect(&socket).is_ok());
        let stream = BufReader::new(UnixStream::connect(&socket).unwrap());
        Some(Redis { child, stream, _folder: folder })
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Sets `keys` values of `bytes` bytes.
    fn fill(&mut self, prefix: &str, keys: u32, bytes: usize) {
        let value = "v".repeat(bytes);
        for first in (0..keys).step_by(100) {
            let last = keys.min(first + 100);
            let requests: String =
                (first..last).map(|key| format!("SET {prefix}{key} {value}\r\n")).collect();
            self.stream.get_mut().write_all(requests.as_bytes()).unwrap();
            for _ in first..last {
                assert_eq!(self.line(), "+OK");
            }
        }
    }

    /// Waits until the library has obeyed all changes. It looks for them while the program allocates.
    fn obey(&mut self) {
        let pid = self.pid();
        let look = || {
            self.fill("o", 100, 1000);
            json(&pid)
        };
        until_seen("changes are obeyed", look, |stat| stat["changes_obeyed"] == stat["changes_wanted"]);
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// A figure of INFO.
    fn info(&mut self, name: &str) -> u64 {
        self.stream.get_mut().write_all(b"INFO memory\r\n").unwrap();
        let bytes: usize = self.line()[1..].parse().unwrap();
        let mut text = vec![0; bytes + 2];
        self.stream.read_exact(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
        line.parse().unwrap()
    }
}

fn alloc(arguments: &[&str]) -> Output {
    ziptier().arg("alloc").args(arguments).output().unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = alloc(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What the command says when it fails.
fn refused(arguments: &[&str]) -> String {
    let output = alloc(arguments);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn json(pid: &str) -> Value {
    serde_json::from_str(&said(&["stat", pid, "--json"])).unwrap()
}

fn bytes(stat: &Value, medium: &str) -> f64 {
    stat[medium]["live_bytes"].as_f64().unwrap()
}

#[test]
fn a_redis_keeps_the_ratio_and_takes_another_one() {
    let Some(mut redis) = Redis::start(&["ratio=1:3", "far=simulated"]) else { return };
    redis.fill("a", 24_000, 1000);
    // The sizes are counted once in each period, by who allocates then.
    std::thread::sleep(Duration::from_millis(150));
    redis.fill("z", 1000, 1000);
    let pid = redis.pid();
    let stat = json(&pid);
    let ratio = stat["far_to_dram"].as_f64().unwrap();
    assert!((2.7..3.3).contains(&ratio), "{stat:#}");
    assert_eq!((&stat["policy"], &stat["far_memory"]["is_simulated"]), (&"ratio".into(), &true.into()));
    let (live, used) = (bytes(&stat, "dram") + bytes(&stat, "far"), redis.info("used_memory") as f64);
    assert!((0.95..1.1).contains(&(live / used)), "the library counts {live} bytes, Redis {used}");
    let by_size: u64 = stat["far"]["sizes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|size| size["live_bytes"].as_u64().unwrap())
        .sum();
    assert!((0.9..1.1).contains(&(by_size as f64 / bytes(&stat, "far"))), "{stat:#}");

    let screen = said(&["stat", &pid]);
    for part in
        ["ratio 1:3", "simulated: ordinary memory that is counted as far", "far memory", "redis-server"]
    {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    let listed = said(&["list"]);
    let line = listed.lines().find(|line| line.contains(&format!(" {pid} "))).unwrap();
    assert!(line.starts_with("redis-server") && line.contains("simulated"), "{listed}");
    let metrics = said(&["stat", &pid, "--prometheus"]);
    let sample =
        format!("ziptier_alloc_live_bytes{{process=\"{pid}\",program=\"redis-server\",medium=\"far\"}} ");
    assert!(metrics.lines().any(|line| line.starts_with(&sample)), "{metrics}");
    assert!(metrics.contains("ziptier_alloc_far_is_simulated{"), "{metrics}");

    let answer = said(&["set", &pid, "ratio=1:1"]);
    assert!(answer.starts_with(&format!("process {pid} (redis-server) ")), "{answer}");
    redis.obey();
    redis.fill("b", 60_000, 1000);
    let stat = json(&pid);
    let ratio = stat["far_to_dram"].as_f64().unwrap();
    assert!((0.9..1.15).contains(&ratio), "{stat:#}");

    said(&["set", &pid, "far-limit=1MiB"]);
    redis.obey();
    redis.fill("c", 5_000, 1000);
    let stat = json(&pid);
    assert!(stat["far"]["spills"].as_u64().unwrap() > 0, "{stat:#}");
    assert_eq!(stat["far"]["limit_bytes"], 1 << 20);
    assert!(refused(&["set", &pid, "ratio=x"]).contains("the change has `ratio=x`: a ratio is DRAM:FAR"));
}

#[test]
fn a_watch_ends_with_its_program() {
    let Some(redis) = Redis::start(&["ratio=1:3", "far=simulated"]) else { return };
    let mut watch = ziptier();
    watch.args(["alloc", "stat", &redis.pid(), "--watch", "0.02"]).stdout(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().contains("in far memory"));
    assert!(lines.next().unwrap().contains("MiB"));
    let pid = redis.pid();
    drop(redis);
    assert_eq!(lines.last().unwrap(), format!("process {pid} (redis-server) has ended"));
    assert!(watch.wait().unwrap().success());
}

/// As `head` closes the pipe: the shell would wait for as long as the program runs.
#[test]
fn a_watch_ends_with_its_reader() {
    let Some(redis) = Redis::start(&["ratio=1:3", "far=simulated"]) else { return };
    let mut watch = ziptier();
    watch.args(["alloc", "stat", &redis.pid(), "--watch", "0.02"]).stdout(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watch.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("in far memory"), "{line}");
    let mut ended = None;
    until("the watch ends", || {
        ended = watch.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success());
}

/// The largest number of 64 bits stood there, and ran into the column before.
#[test]
fn no_threshold_is_told_as_none() {
    let Some(redis) = Redis::start(&["ratio=1:0"]) else { return };
    let screen = said(&["stat", &redis.pid()]);
    assert!(screen.lines().any(|line| line == "threshold   none"), "{screen}");
    assert!(json(&redis.pid())["threshold_bytes"].is_null());
    let metrics = said(&["stat", &redis.pid(), "--prometheus"]);
    let has_none = |line: &str| line.starts_with("ziptier_alloc_threshold_bytes{") && line.ends_with(" +Inf");
    assert!(metrics.lines().any(has_none), "{metrics}");
    let mut watch = ziptier();
    watch.args(["alloc", "stat", &redis.pid(), "--watch", "0.02"]).stdout(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let line = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap).nth(1).unwrap();
    watch.kill().unwrap();
    watch.wait().unwrap();
    assert!(line.split_whitespace().any(|word| word == "none"), "{line}");
}

#[test]
fn wrong_options_in_the_environment_leave_a_program_in_dram_that_says_why() {
    let Some(library) = library() else { return };
    let mut command = Command::new("cat");
    command
        .env("LD_PRELOAD", library)
        .env("ZIPTIER_ALLOC", "ratio=1;3")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut cat = command.spawn().unwrap();
    let mut error = String::new();
    BufReader::new(cat.stderr.as_mut().unwrap()).read_line(&mut error).unwrap();
    assert!(error.contains("ZIPTIER_ALLOC has `ratio=1`: a ratio is DRAM:FAR"), "{error}");
    let pid = cat.id().to_string();
    until("cat tells", || alloc(&["stat", &pid]).status.success());
    let screen = said(&["stat", &pid]);
    cat.kill().unwrap();
    cat.wait().unwrap();
    assert!(screen.contains("only-dram"), "{screen}");
    assert!(
        screen.contains("wrong options, and everything lies in DRAM: ZIPTIER_ALLOC has `ratio=1`"),
        "{screen}"
    );
}

/// A program that allocates nothing decides nothing. Its figures looked like those of now.
#[test]
fn old_figures_tell_their_age() {
    let Some(library) = library() else { return };
    let mut command = Command::new("cat");
    command.env("LD_PRELOAD", library).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut cat = command.spawn().unwrap();
    // From its answer on, the program waits and allocates nothing.
    cat.stdin.as_mut().unwrap().write_all(b"line\n").unwrap();
    BufReader::new(cat.stdout.as_mut().unwrap()).read_line(&mut String::new()).unwrap();
    let pid = cat.id().to_string();
    // As if the last decision fell into the first second of this system.
    Program::of(cat.id()).unwrap().page().told.ticked_ms.store(1, std::sync::atomic::Ordering::Relaxed);
    let (screen, stat) = (said(&["stat", &pid]), json(&pid));
    cat.kill().unwrap();
    cat.wait().unwrap();
    assert!(screen.contains(" s old: the program has allocated little since"), "{screen}");
    assert!(stat["age_ms"].as_u64().unwrap() >= 10_000, "{stat:#}");
}

/// A filter of system calls that kills who binds memory, as Debian's service of Redis has it.
const FILTER: &str = r#"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int count, char **words) {
  struct sock_filter code[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof *code, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 1;
  return execvp(words[1], words + 1);
}
"#;

#[test]
fn a_service_that_forbids_binding_gets_simulated_far_memory() {
    let Some(library) = library() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (source, filter) = (folder.path().join("filter.c"), folder.path().join("filter"));
    fs::write(&source, FILTER).unwrap();
    if !Command::new("cc").arg("-o").arg(&filter).arg(&source).status().is_ok_and(|status| status.success()) {
        not_run("a C compiler", "install gcc and libc6-dev");
        return;
    }
    let mut command = Command::new(&filter);
    command
        .arg("env")
        .arg(format!("LD_PRELOAD={}", library.display()))
        .args(["ZIPTIER_ALLOC=far=node:0", "cat"]);
    let mut cat = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut error = String::new();
    BufReader::new(cat.stderr.as_mut().unwrap()).read_line(&mut error).unwrap();
    assert!(
        error.contains("memory cannot be bound to the nodes of far memory, which is simulated now"),
        "{error}"
    );
    let pid = cat.id().to_string();
    until("cat tells", || alloc(&["stat", &pid]).status.success());
    let stat = json(&pid);
    drop(cat.stdin.take());
    assert!(cat.wait().unwrap().success());
    assert_eq!(stat["far_memory"]["is_simulated"], true, "{stat:#}");
}

#[test]
fn a_process_that_cannot_be_served_is_told_why() {
    let mut sleep = Command::new("sleep").arg("100").spawn().unwrap();
    let pid = sleep.id().to_string();
    until("the program runs", || fs::read_to_string(format!("/proc/{pid}/comm")).unwrap() == "sleep\n");
    let answers = [refused(&["stat", &pid]), refused(&["set", &pid, "ratio=1:3"])];
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    for answer in answers {
        assert!(
            answer.starts_with(&format!("error: process {pid} (sleep) runs without the library")),
            "{answer}"
        );
    }
    assert!(refused(&["stat", &pid]).contains("there is no such process"));
    // The command itself has its allocator inside.
    let own = ziptier().args(["serve", "--port", "0"]).stdout(Stdio::piped()).spawn().unwrap();
    let pid = own.id().to_string();
    let mut own = own;
    let mut line = String::new();
    BufReader::new(own.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let answer = refused(&["stat", &pid]);
    own.kill().unwrap();
    own.wait().unwrap();
    assert!(answer.contains("cannot be served: the executable has an allocator of its own"), "{answer}");
}

#[test]
fn a_page_of_another_version_is_told() {
    let page = SharedPage::create().unwrap();
    page.told.set_far(FarKind::Simulated, &Default::default());
    page.publish(std::process::id(), "9.9.9", &Configuration::DEFAULT);
    page.version.store(VERSION + 1, std::sync::atomic::Ordering::Relaxed);
    let own = std::process::id().to_string();
    let sentence = format!("its library has version {} of the shared page", VERSION + 1);
    let answer = refused(&["stat", &own]);
    assert!(answer.contains(&sentence), "{answer}");
    let listed = said(&["list"]);
    let is_told = |line: &str| line.starts_with(&format!("process {own} (")) && line.contains(&sentence);
    assert!(listed.lines().any(is_told), "{listed}");
}

#[test]
fn a_program_is_not_started_with_wrong_options() {
    let answer = refused(&["run", "ration=1:3", "--", "true"]);
    assert!(answer.starts_with("error: ZIPTIER_ALLOC has `ration=1:3`, which is no option"), "{answer}");
    let answer = refused(&["run", "--library", "/none.so", "--", "true"]);
    assert!(answer.contains("/none.so"), "{answer}");
    let folder = tempfile::tempdir().unwrap();
    for name in ["a b.so", "a:b.so"] {
        let path = folder.path().join(name);
        fs::write(&path, "").unwrap();
        let answer = refused(&["run", "--library", path.to_str().unwrap(), "--", "true"]);
        assert!(
            answer.contains(&format!("{name}: the loader splits LD_PRELOAD at colons and blanks")),
            "{answer}"
        );
    }
    if library().is_none() {
        return;
    }
    assert!(refused(&["run", "--", "/none/program"]).starts_with("error: /none/program: "));
    let shown =
        said(&["run", "ratio=1:4", "pin=64", "--", "sh", "-c", "echo $ZIPTIER_ALLOC; echo $LD_PRELOAD"]);
    assert!(shown.starts_with("ratio=1:4,pin=64\n/") && shown.ends_with("/libziptier_alloc.so\n"), "{shown}");
}

#[test]
fn classes_are_made_listed_changed_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("classes");
    let file = file.to_str().unwrap();
    let class = |arguments: &[&str]| said(&[&["class"], arguments, &["--file", file]].concat());
    let not = |arguments: &[&str]| refused(&[&["class"], arguments, &["--file", file]].concat());
    assert!(not(&["list"]).contains("there is no file of classes; make a class by: ziptier alloc class set"));
    class(&["set", "gold", "ratio=3:1", "dram-limit=1GiB"]);
    class(&["set", "basic", "ratio=1:4, far-limit=2GiB"]);
    class(&["set", "gold", "far-limit=4GiB"]);
    let listed: Value = serde_json::from_str(&class(&["list", "--json"])).unwrap();
    assert_eq!((&listed[0]["name"], &listed[0]["ratio"]), (&"basic".into(), &"1:4".into()));
    assert_eq!(listed[0]["far_limit_bytes"], 2u64 << 30);
    assert_eq!((&listed[1]["ratio"], &listed[1]["dram_limit_bytes"]), (&"3:1".into(), &(1u64 << 30).into()));
    assert_eq!(listed[1]["far_limit_bytes"], 4u64 << 30);
    class(&["set", "gold", "ratio=none", "dram-limit=none"]);
    let listed = class(&["list"]);
    let gold: Vec<&str> =
        listed.lines().find(|line| line.starts_with("gold")).unwrap().split_whitespace().collect();
    assert_eq!(gold[..3], ["gold", "own", "0"], "{listed}");
    for (wrong, expected) in [
        (["set", "Gold", "ratio=1:1"], "`Gold` is no name of a class"),
        (["set", "gold", "ratio=1"], "the change has `ratio=1`: a ratio is DRAM:FAR"),
        (["set", "gold", "pin=1"], "`pin=1`: a class has ratio=, dram-limit= and far-limit= alone"),
        (["set", "gold", "foo=1"], "`foo=1`: a class has ratio=, dram-limit= and far-limit= alone"),
    ] {
        let answer = not(&wrong);
        assert!(answer.contains(expected), "{answer}");
    }
    class(&["delete", "basic"]);
    assert!(not(&["delete", "basic"]).contains("the file has no such class"));
    fs::write(file, "something else").unwrap();
    assert!(not(&["list"]).contains("the file holds no classes of this version"));
}
