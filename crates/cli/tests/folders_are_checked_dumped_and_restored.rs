//! A backup is taken of a server that goes on serving, and is worth nothing if it cannot be checked and served itself.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

fn ziptier(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ziptier")).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn serve(dir: &Path) -> (Child, TcpStream) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ziptier"))
        .args(["serve", "--port", "0", "--memory", "64MiB", "--dir"])
        .arg(dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:")).unwrap();
    (child, TcpStream::connect(address).unwrap())
}

/// Sends inline commands and reads as many one-line replies.
fn ask(stream: &mut TcpStream, commands: &[String]) -> Vec<String> {
    stream.write_all(commands.concat().as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let reply = |_| {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        line
    };
    (0..commands.len()).map(reply).collect()
}

fn set(from: u32, to: u32) -> Vec<String> {
    (from..to).map(|n| format!("SET key:{n} value-of-{n}\r\n")).collect()
}

#[test]
fn a_running_server_is_dumped_and_its_dump_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, copy, file) =
        (folder.path().join("store"), folder.path().join("copy"), folder.path().join("dump"));
    let [dir_name, copy_name, file_name] = [&dir, &copy, &file].map(|path| path.to_str().unwrap());
    let (mut server, mut stream) = serve(&dir);
    assert!(ask(&mut stream, &set(0, 5000)).iter().all(|reply| reply == "+OK\r\n"));

    let refused = ziptier(&["check", dir_name]);
    assert!(
        !refused.status.success() && text(&refused.stderr).contains("in use"),
        "{}",
        text(&refused.stderr)
    );
    let dumped = ziptier(&["dump", dir_name, file_name]);
    assert!(dumped.status.success(), "{}", text(&dumped.stderr));
    assert!(ask(&mut stream, &set(5000, 6000)).iter().all(|reply| reply == "+OK\r\n"));
    assert!(!ziptier(&["dump", dir_name, file_name]).status.success(), "a file is never overwritten");

    let restored = ziptier(&["restore", file_name, copy_name]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    assert!(!ziptier(&["restore", file_name, copy_name]).status.success(), "a folder is never overwritten");
    let checked = ziptier(&["check", copy_name]);
    assert!(
        checked.status.success() && text(&checked.stdout).ends_with("; 0 damages\n"),
        "{}",
        text(&checked.stdout)
    );
    let (mut copied, mut copied_stream) = serve(&copy);
    let replies = ask(&mut copied_stream, &["DBSIZE\r\n".to_owned(), "STRLEN key:4999\r\n".to_owned()]);
    assert_eq!(replies, [":5000\r\n", ":13\r\n"]);

    for (child, mut stream) in [(&mut server, stream), (&mut copied, copied_stream)] {
        stream.write_all(b"SHUTDOWN\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        assert!(child.wait().unwrap().success());
    }
    assert!(ziptier(&["check", dir_name]).status.success());

    // Damage is named by file and offset.
    let log = fs::read_dir(dir.join("log")).unwrap().map(|entry| entry.unwrap().path());
    let log = log.filter(|path| path.to_string_lossy().contains("/log-")).max().unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    fs::write(&log, bytes).unwrap();
    let checked = ziptier(&["check", dir_name]);
    let found = text(&checked.stdout);
    assert!(
        !checked.status.success() && found.contains(log.to_str().unwrap()) && found.contains("at byte"),
        "{found}"
    );
    let refused = ziptier(&["check", folder.path().to_str().unwrap()]);
    assert!(text(&refused.stderr).contains("holds no store"), "{}", text(&refused.stderr));
}
