//! A server whose disk is full: it refuses writes and says why, reads go on, and what it acknowledged is there when it is started
//! anew. On a real file system of limited size, which only root can mount; without that the test says so and ends.

#![allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A file system in memory, gone with this.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(mib: usize) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={mib}m");
        let mut mount = Command::new("mount");
        match mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).output() {
            Ok(output) if output.status.success() => Some(Self(folder)),
            Ok(output) => {
                eprintln!(
                    "skipped: no tmpfs can be mounted here: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
                None
            }
            Err(error) => {
                eprintln!("skipped: mount cannot be run: {error}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn grow(&self, mib: usize) {
        let options = format!("remount,size={mib}m");
        assert!(Command::new("mount").args(["-o", &options]).arg(self.path()).status().unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

/// A server, killed with this.
struct Server {
    child: Child,
    line: String,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ziptier(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ziptier"));
    command.args(["serve", "--port", "0", "--codec", "none", "--durability", "always", "--dir"]).arg(dir);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn start(dir: &Path) -> Server {
    let mut child = ziptier(dir).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_whitespace().find(|word| word.starts_with("127.0.0.1:"));
    let port = address.unwrap_or_else(|| panic!("{line:?}")).rsplit_once(':').unwrap().1.parse().unwrap();
    Server { child, line, port }
}

impl Server {
    fn ask(&self, request: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.write_all(request).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        reply
    }

    fn set(&self, key: usize, value: &[u8]) -> String {
        let name = format!("key:{key:06}");
        let head = format!("*3\r\n$3\r\nSET\r\n${}\r\n{name}\r\n${}\r\n", name.len(), value.len());
        String::from_utf8(self.ask(&[head.as_bytes(), value, b"\r\n"].concat())).unwrap()
    }

    fn assert_has(&self, keys: usize) {
        for key in 0..keys {
            let value = value(key);
            let wanted = [format!("${}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
            let found = self.ask(format!("GET key:{key:06}\r\n").as_bytes());
            assert!(found == wanted, "key {key}: {} bytes of {}", found.len(), wanted.len());
        }
    }
}

/// A megabyte that no other key has.
fn value(key: usize) -> Vec<u8> {
    format!("{key:08}").repeat(1 << 17).into_bytes()
}

#[test]
fn a_full_disk_is_told_and_nothing_acknowledged_is_lost() {
    // Two segments of the log and some more.
    let Some(disk) = Mounted::new(200) else { return };
    let dir = disk.path().join("data");
    let server = start(&dir);
    let mut keys = 0;
    let refused = loop {
        let reply = server.set(keys, &value(keys));
        if reply != "+OK\r\n" {
            break reply;
        }
        keys += 1;
        assert!(keys < 400, "the disk never becomes full");
    };
    assert!(keys > 40, "only {keys} megabytes were taken: {refused}");
    assert!(refused.starts_with("-ERR ") && refused.contains("full"), "{refused}");
    server.assert_has(keys);
    let saved = String::from_utf8(server.ask(b"SAVE\r\nPING\r\n")).unwrap();
    assert!(saved.ends_with("+PONG\r\n"), "{saved}");

    // Killed while it is full, it comes back when there is room.
    drop(server);
    disk.grow(400);
    let server = start(&dir);
    assert!(server.line.contains(&format!("recovered {keys} keys")), "{}", server.line);
    server.assert_has(keys);

    // Full again, it goes on by itself when there is room.
    let refused = loop {
        let reply = server.set(keys, &value(keys));
        if reply != "+OK\r\n" {
            break reply;
        }
        keys += 1;
        assert!(keys < 700, "the disk never becomes full");
    };
    assert!(refused.contains("full"), "{refused}");
    // Room for the log and for images of everything.
    disk.grow(1600);
    assert_eq!(server.set(keys, &value(keys)), "+OK\r\n");
    assert_eq!(server.ask(b"SAVE\r\n"), b"+OK\r\n");
    let mut server = server;
    assert_eq!(server.ask(b"SHUTDOWN\r\n"), b"");
    assert!(server.child.wait().unwrap().success());
    let server = start(&dir);
    server.assert_has(keys + 1);
}
