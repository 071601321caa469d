//! The disk of a server is full. The server refuses writes with the reason, and still serves reads. After a restart,
//! also on the full disk, every acknowledged write is there. The test needs a real file system of limited size, which
//! only root can mount. Otherwise it says so and ends.

use std::path::Path;
use std::process::Command;

use crate::support::{Server, serve};

/// A file system in memory, gone with this.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(mib: usize) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={mib}m");
        let mut mount = Command::new("mount");
        match mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path()).output() {
            Ok(output) if output.status.success() => Some(Self(folder)),
            refused => {
                eprintln!("mount -t tmpfs: {refused:?}");
                ziptier_testing::not_run("mount", "a full disk needs a user who may mount a tmpfs");
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

/// Takes all room that is left on a disk.
fn fill_up(dir: &Path) -> std::fs::File {
    let mut file = std::fs::File::create(dir.join("rest")).unwrap();
    let page = [1; 4096];
    while std::io::Write::write_all(&mut file, &page).is_ok() {}
    file
}

fn start(dir: &Path) -> Server {
    Server::start(serve().args(["--codec", "none", "--durability", "always", "--dir"]).arg(dir))
}

fn set(server: &Server, key: usize, value: &str) -> String {
    let name = format!("key:{key:06}");
    let (name_bytes, bytes) = (name.len(), value.len());
    server.ask(format!("*3\r\n$3\r\nSET\r\n${name_bytes}\r\n{name}\r\n${bytes}\r\n{value}\r\n").as_bytes())
}

/// Sets key after key until one is refused, and how.
fn fill(server: &Server, keys: &mut usize, most: usize) -> String {
    loop {
        let reply = set(server, *keys, &value(*keys));
        if reply != "+OK\r\n" {
            return reply;
        }
        *keys += 1;
        assert!(*keys < most, "the disk never becomes full");
    }
}

fn assert_has(server: &Server, keys: usize) {
    for key in 0..keys {
        let value = value(key);
        let found = server.ask(format!("GET key:{key:06}\r\n").as_bytes());
        let is_there = found == format!("${}\r\n{value}\r\n", value.len());
        assert!(is_there, "key {key}: {} bytes", found.len());
    }
}

/// A megabyte that no other key has.
fn value(key: usize) -> String {
    format!("{key:08}").repeat(1 << 17)
}

#[test]
fn a_full_disk_is_told_and_nothing_acknowledged_is_lost() {
    // Two segments of the log and some more.
    let Some(disk) = Mounted::new(200) else { return };
    let dir = disk.path().join("data");
    let server = start(&dir);
    let mut keys = 0;
    let refused = fill(&server, &mut keys, 400);
    assert!(keys > 40, "only {keys} megabytes were taken: {refused}");
    assert!(refused.starts_with("-ERR ") && refused.contains("full"), "{refused}");
    assert_has(&server, keys);
    let saved = server.ask(b"SAVE\r\nPING\r\n");
    assert!(saved.ends_with("+PONG\r\n"), "{saved}");

    // Killed while it is full, it comes back on the full disk, without room for another file of the log.
    drop(server);
    for entry in std::fs::read_dir(dir.join("log")).unwrap() {
        let path = entry.unwrap().path();
        if path.to_string_lossy().contains("/spare-") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let _rest = fill_up(disk.path());
    let server = start(&dir);
    assert!(server.said.contains(&format!("recovered {keys} keys")), "{}", server.said);
    assert!(server.said.contains("writes are refused until there is room"), "{}", server.said);
    assert_has(&server, keys);
    let refused = set(&server, keys, &value(keys));
    assert!(refused.starts_with("-ERR ") && refused.contains("the disk is full"), "{refused}");
    let info = server.ask(b"INFO persistence\r\n");
    assert!(info.contains("aof_last_write_status:err"), "{info}");
    // By itself, when there is room.
    disk.grow(400);
    assert_eq!(set(&server, keys, &value(keys)), "+OK\r\n");
    keys += 1;
    let info = server.ask(b"INFO persistence\r\n");
    assert!(info.contains("aof_last_write_status:ok"), "{info}");
    drop(server);
    let server = start(&dir);
    assert_has(&server, keys);

    // Full again, it goes on by itself when there is room.
    let refused = fill(&server, &mut keys, 700);
    assert!(refused.contains("full"), "{refused}");
    // Room for the log and for images of everything.
    disk.grow(1600);
    assert_eq!(set(&server, keys, &value(keys)), "+OK\r\n");
    // It tries by itself, too, and once more at most: one that succeeds leaves nothing to do.
    let saved = (0..3)
        .map(|_| {
            ziptier_testing::until("no checkpoint is being made", || {
                server.ask(b"INFO persistence\r\n").contains("rdb_bgsave_in_progress:0\r\n")
            });
            server.ask(b"SAVE\r\n")
        })
        .find(|saved| !saved.contains("already in progress"));
    assert_eq!(saved.as_deref(), Some("+OK\r\n"));
    server.stop();
    let server = start(&dir);
    assert_has(&server, keys + 1);
}
