//! `ZT.DB.OPEN` and its family. A client that writes to the database of another one destroys its data. A name that is a
//! path would let a client write anywhere in the file system.

use std::path::Path;

use crate::support::{Client, PROGRAM, Server, rocksdb, serve, serve_at};

fn start(dir: &Path, more: &[&str]) -> Option<Server> {
    Some(Server::start(serve().args(rocksdb()?).arg("--dir").arg(dir).args(more)))
}

fn say(client: &mut Client, line: &str) -> String {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    String::from_utf8(client.reply(&words).unwrap()).unwrap()
}

#[test]
fn each_database_has_keys_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = start(folder.path(), &["--durability", "always"]) else { return };
    let (mut one, mut other) = (server.connect(), server.connect());
    for line in ["ZT.DB.OPEN users", "ZT.DB.OPEN logs compression builtin-zstd", "ZT.DB.USE users"] {
        assert_eq!(say(&mut one, line), "+OK\r\n", "{line}");
    }
    assert_eq!(say(&mut other, "ZT.DB.USE logs"), "+OK\r\n");
    for (client, value) in [(&mut one, "of-users"), (&mut other, "of-logs")] {
        assert_eq!(say(client, &format!("MSET key {value} second {value}")), "+OK\r\n");
        // Another thread runs it, and the reply is made in pieces.
        let large = "v".repeat(400_000);
        assert_eq!(say(client, &format!("MSET large {large} name {value}")), "+OK\r\n");
        assert_eq!(say(client, "STRLEN large"), ":400000\r\n");
        assert!(say(client, "GET large").contains(&large));
        let range = say(client, "ZT.RANGE [key +");
        assert!(range.contains(&large) && range.matches(value).count() == 3, "{value}");
    }
    assert_eq!(server.ask(b"DBSIZE\r\nGET key\r\n"), ":0\r\n$-1\r\n");
    assert_eq!(say(&mut one, "GET key"), "$8\r\nof-users\r\n");
    assert_eq!(say(&mut other, "SCAN 0 MATCH k*"), "*2\r\n$1\r\n0\r\n*1\r\n$3\r\nkey\r\n");
    assert_eq!(say(&mut other, "FLUSHDB"), "+OK\r\n");
    assert_eq!((say(&mut one, "DBSIZE"), say(&mut other, "DBSIZE")), (":4\r\n".into(), ":0\r\n".into()));
    assert_eq!(say(&mut other, "RESET"), "+RESET\r\n");
    assert_eq!(say(&mut other, "SET key of-default"), "+OK\r\n");
    assert_eq!(say(&mut one, "ZT.DB.USE default"), "+OK\r\n");
    assert_eq!(say(&mut one, "GET key"), "$10\r\nof-default\r\n");
    assert!(server.ask(b"INFO codec\r\n").contains("rocksdb_databases:3\r\n"));

    // What was acknowledged is there after a kill.
    server.kill();
    let server = start(folder.path(), &[]).unwrap();
    let mut client = server.connect();
    let list =
        "*6\r\n$7\r\ndefault\r\n$4\r\nopen\r\n$4\r\nlogs\r\n$6\r\nclosed\r\n$5\r\nusers\r\n$6\r\nclosed\r\n";
    assert_eq!(say(&mut client, "ZT.DB.LIST"), list);
    assert!(say(&mut client, "ZT.DB.USE users").starts_with("-ERR the database users is not open; open it"));
    assert_eq!(say(&mut client, "ZT.DB.OPEN users"), "+OK\r\n");
    assert_eq!(say(&mut client, "ZT.DB.USE users"), "+OK\r\n");
    assert_eq!(say(&mut client, "MGET key name"), "*2\r\n$8\r\nof-users\r\n$8\r\nof-users\r\n");
    assert_eq!(say(&mut client, "FLUSHALL"), "+OK\r\n");
    assert_eq!((say(&mut client, "DBSIZE"), server.ask(b"DBSIZE\r\n")), (":0\r\n".into(), ":0\r\n".into()));
    server.stop();
}

#[test]
fn databases_in_use_stay_open() {
    let folder = tempfile::tempdir().unwrap();
    let Some(server) = start(folder.path(), &[]) else { return };
    let (mut user, mut admin) = (server.connect(), server.connect());
    assert_eq!(say(&mut admin, "ZT.DB.OPEN used"), "+OK\r\n");
    assert_eq!(say(&mut user, "ZT.DB.USE used"), "+OK\r\n");
    assert_eq!(say(&mut user, "SET key value"), "+OK\r\n");
    assert!(say(&mut admin, "ZT.DB.CLOSE used").starts_with("-ERR the database used is in use"));
    assert!(say(&mut admin, "ZT.DB.OPEN used").starts_with("-ERR the database used is open already"));
    assert_eq!(say(&mut user, "GET key"), "$5\r\nvalue\r\n");
    drop(user);
    // The server notices by itself that the client has gone.
    let mut said = String::new();
    ziptier_testing::until("the database closes", || {
        said = say(&mut admin, "ZT.DB.CLOSE used");
        said == "+OK\r\n"
    });
    assert!(say(&mut admin, "ZT.DB.CLOSE used").starts_with("-ERR the database used is not open"));
    // RocksDB lets another opener in only when it is closed.
    assert_eq!(say(&mut admin, "ZT.DB.OPEN used COMPRESSION builtin-none"), "+OK\r\n");
    assert_eq!(say(&mut admin, "ZT.DB.USE used"), "+OK\r\n");
    assert_eq!(say(&mut admin, "GET key"), "$5\r\nvalue\r\n");
    server.stop();
}

#[test]
fn names_and_options_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("data");
    let Some(server) = start(&dir, &[]) else { return };
    let mut client = server.connect();
    for name in
        ["", ".", "..", "../escaped", "a/b", "/tmp/escaped", "-option", "a.b", "a\0b", &"x".repeat(65)]
    {
        for command in ["OPEN", "USE", "CLOSE"] {
            let command = format!("ZT.DB.{command}");
            let reply = client.reply(&[command.as_bytes(), name.as_bytes()]).unwrap();
            assert!(
                reply.starts_with(b"-ERR a database has a name of 1 to 64 ASCII letters"),
                "{command} {name:?}"
            );
        }
    }
    for (line, words) in [
        ("ZT.DB.OPEN default", "is always open"),
        ("ZT.DB.CLOSE default", "is always open"),
        ("ZT.DB.CLOSE other", "is not open"),
        ("ZT.DB.OPEN other COMPRESSION", "syntax error"),
        ("ZT.DB.OPEN other COMPRESSION lz77", "there is no compression lz77"),
        ("ZT.DB.OPEN other CACHE 1", "a database has one option, COMPRESSION"),
    ] {
        let said = say(&mut client, line);
        assert!(said.starts_with("-ERR ") && said.contains(words), "{line}: {said}");
    }
    let entries = |path: &Path| std::fs::read_dir(path).unwrap().count();
    assert_eq!((entries(folder.path()), entries(&dir)), (1, 1));
    for number in 0..16 {
        assert_eq!(say(&mut client, &format!("ZT.DB.OPEN db{number}")), "+OK\r\n");
    }
    assert!(say(&mut client, "ZT.DB.OPEN more").starts_with("-ERR 16 databases are open"));
    // The folder of the first database and those of the others.
    for number in 17..1_000 {
        let closed = dir.join(format!("closed{number}"));
        std::fs::create_dir(&closed).unwrap();
        std::fs::write(closed.join("LOG"), "").unwrap();
    }
    // A crash left it, and it does not count.
    std::fs::create_dir(dir.join("empty")).unwrap();
    assert_eq!(say(&mut client, "ZT.DB.CLOSE db3"), "+OK\r\n");
    for line in ["ZT.DB.OPEN more", "ZT.DB.OPEN empty"] {
        let said = say(&mut client, line);
        assert!(said.contains(" has 1000 databases, the most there may be"), "{line}: {said}");
    }
    assert!(!dir.join("more").exists());
    assert_eq!(say(&mut client, "ZT.DB.OPEN db3"), "+OK\r\n");
    assert_eq!(say(&mut client, "ZT.DB.CLOSE db3"), "+OK\r\n");
    std::fs::remove_dir_all(dir.join("closed17")).unwrap();
    assert_eq!(say(&mut client, "ZT.DB.OPEN more"), "+OK\r\n");
    server.stop();
}

/// Every try of a client with other names would leave a folder.
#[test]
fn a_database_without_its_plugin_leaves_no_folder() {
    let Some(rocksdb) = rocksdb() else { return };
    let dir = tempfile::tempdir().unwrap();
    // The plugin lies beside the program, and not beside this copy.
    let bare = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = bare.path().join("ziptier");
    std::fs::hard_link(PROGRAM, &program).unwrap();
    let server = Server::start(serve_at(&program).args(rocksdb).arg("--dir").arg(dir.path()));
    let mut client = server.connect();
    let said = say(&mut client, "ZT.DB.OPEN users COMPRESSION ziptier");
    assert!(said.starts_with("-ERR ziptier's classes for RocksDB were not loaded from"), "{said}");
    assert!(!dir.path().join("users").exists());
    assert_eq!(say(&mut client, "ZT.DB.OPEN users"), "+OK\r\n");
    server.stop();
}

#[test]
fn the_store_has_one_database() {
    let server = Server::start(&mut serve());
    for line in ["ZT.DB.OPEN a", "ZT.DB.LIST", "ZT.DB.USE a", "ZT.DB.CLOSE a"] {
        let said = server.ask(format!("{line}\r\n").as_bytes());
        assert_eq!(
            said, "-ERR this backend has one database; serve --backend rocksdb for more\r\n",
            "{line}"
        );
    }
    server.stop();
}
