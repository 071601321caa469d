//! What scripts and service managers rely on: one line when the server is ready, one sentence and a failing status
//! when it can't start, and a clean end when it is told to.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

fn ziptier() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ziptier"));
    command.arg("serve").stdout(Stdio::piped()).stderr(Stdio::piped());
    for variable in [
        "PORT",
        "BIND",
        "MEMORY",
        "CODEC",
        "THREADS",
        "PROTECTED_MODE",
        "MAX_CLIENTS",
        "CODEC_ENGINE",
        "MODEL",
        "DIR",
        "DURABILITY",
        "SALVAGE",
    ] {
        command.env_remove(format!("ZIPTIER_{variable}"));
    }
    command
}

/// A running server, its first line and its port.
struct Running {
    child: Child,
    line: String,
    port: u16,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address =
            line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap_or_else(|| {
                let mut words = String::new();
                child.stderr.as_mut().unwrap().read_to_string(&mut words).unwrap();
                panic!("no address in {line:?}: {words}")
            });
        let port = address.rsplit_once(':').unwrap().1.parse().unwrap();
        Self { child, line, port }
    }

    fn ask(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    fn end(mut self) -> Output {
        drop(self.child.stdin.take());
        self.child.wait_with_output().unwrap()
    }
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

fn refused(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn one_line_says_where_and_how_much() {
    let server = Running::start(ziptier().args(["--port", "0", "--memory", "64MiB", "--threads", "2"]));
    let expected = format!(
        "ziptier {} listens on 127.0.0.1:{} with 64 MiB of memory, codec auto, 2 threads\n",
        env!("CARGO_PKG_VERSION"),
        server.port
    );
    assert_eq!(server.line, expected);
    assert_eq!(server.ask(b"SET k v\r\nGET k\r\n"), "+OK\r\n$1\r\nv\r\n");
    assert_eq!(server.ask(b"CONFIG GET maxmemory\r\n"), "*2\r\n$9\r\nmaxmemory\r\n$8\r\n67108864\r\n");
    assert_eq!(server.ask(b"SHUTDOWN\r\n"), "");
    let output = server.end();
    assert!(output.status.success());
    assert_eq!((output.stdout, output.stderr), (Vec::new(), Vec::new()));
}

#[test]
fn the_line_says_who_packs_if_it_is_not_the_plain_processor() {
    for (args, words) in [
        (&["--codec", "deflate", "--model", "devices=1,timing=off"][..], ", codec deflate (iaa, modelled), "),
        (
            &["--codec", "deflate", "--codec-engine", "iaa", "--model", "timing=off"],
            ", codec deflate (iaa, modelled), ",
        ),
        (&["--codec", "deflate"], ", codec deflate, "),
        (&["--codec", "zstd"], ", codec zstd, "),
    ] {
        let server = Running::start(ziptier().args(["--port", "0"]).args(args));
        assert!(server.line.contains(words), "{args:?}: {}", server.line);
        signal(&server.child, "-TERM");
        assert!(server.end().status.success());
    }
}

#[test]
fn the_environment_sets_what_flags_do_not() {
    let mut command = ziptier();
    command.env("ZIPTIER_PORT", "0").env("ZIPTIER_CODEC", "none").env("ZIPTIER_MEMORY", "1GB");
    let server = Running::start(command.args(["--codec", "token"]));
    assert!(
        server.line.contains("codec token") && server.line.contains("1000000000 bytes"),
        "{}",
        server.line
    );
    signal(&server.child, "-TERM");
    assert!(server.end().status.success());
}

#[test]
fn signals_stop_it_cleanly() {
    for name in ["-TERM", "-INT"] {
        let server = Running::start(ziptier().args(["--port", "0"]));
        let _idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        signal(&server.child, name);
        let output = server.end();
        assert!(output.status.success(), "{name}");
        assert_eq!(output.stderr, b"");
    }
}

#[test]
fn what_prevents_a_start_is_said_in_one_sentence() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (args, words) in [
        (&["--port", &port][..], "another process already does"),
        (&["--bind", "0.0.0.0", "--port", "0"], "say --protected-mode no"),
        (&["--bind", "::", "--port", "0"], "say --protected-mode no"),
        (
            &["--bind", "192.0.2.1", "--port", "0", "--protected-mode", "no"],
            "could not listen on 192.0.2.1:0",
        ),
        (&["--memory", "1KiB", "--port", "0"], "too small"),
        (&["--threads", "0", "--port", "0"], "ask for at least 1"),
    ] {
        let said = refused(ziptier().args(args));
        assert!(said.starts_with("ziptier serve: ") && said.contains(words), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    for (args, words) in [
        (["--codec", "gzip"], "there is no codec 'gzip'"),
        (["--memory", "lots"], "whole number of bytes"),
        (["--protected-mode", "maybe"], "say yes or no"),
        (["--port", "70000"], "70000"),
    ] {
        let said = refused(ziptier().args(args));
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn other_machines_are_let_in_when_both_flags_say_so() {
    let mut child =
        ziptier().args(["--bind", "0.0.0.0", "--port", "0", "--protected-mode", "no"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("listens on 0.0.0.0:"), "{line}");
    signal(&child, "-TERM");
    assert!(child.wait().unwrap().success());
}

#[test]
fn far_memory_is_named_as_what_it_is_or_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let far = format!("16MiB:{}", folder.path().join("far").display());
    let running = Running::start(ziptier().args(["--port", "0", "--far", &far, "--far-ratio", "1:3"]));
    assert!(
        running.line.contains("far memory of 16 MiB: ") && running.line.contains("no DAX"),
        "{}",
        running.line
    );
    // The file is taken while the server runs.
    let second = ziptier().args(["--port", "0", "--far", &far]).output().unwrap();
    assert!(String::from_utf8(second.stderr).unwrap().contains("in use by another process"));
    signal(&running.child, "-TERM");
    assert!(running.end().status.success());

    for (arguments, word) in [
        (&["--far", &far, "--far-require-dax"][..], "DAX was demanded"),
        (&["--far", "16MiB:node=99"][..], "no NUMA node 99"),
        (&["--far", "16MiB:/no/such/folder/far"][..], "No such file"),
        (&["--far", &format!("1000000GiB:{}", folder.path().join("other").display())][..], "free"),
        (&["--far", &format!("16MiB:{}", folder.path().display())][..], "a folder"),
    ] {
        let output = ziptier().args(["--port", "0"]).args(arguments).output().unwrap();
        let words = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && words.contains(word), "{arguments:?}: {words}");
        assert_eq!(words.trim_end().lines().count(), 1, "{words}");
    }
    assert!(!folder.path().join("other").exists());
}
