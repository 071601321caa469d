//! Operators take the script of `docs/server.md` to move a cache, and look fields of `INFO` up there. If the script
//! loses expiries, the cache fills with keys that should be gone. A field that the page lacks is not found at all.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::client_libraries_work::python;
use crate::support::{Connection, PATIENCE, RealRedis, TestServer};

on_every_backend!(the_script_moves_a_cache_there_and_back);

/// More than one batch.
const KEYS: usize = 1500;
const PASSWORD: &str = "sesame";

fn page() -> String {
    std::fs::read_to_string("../../docs/server.md").unwrap()
}

/// Runs the script, and returns its last line.
fn copy(source: &str, target: &str) -> String {
    let page = page();
    let script = page.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let output = python().args(["-c", script]).env("SOURCE", source).env("TARGET", target).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A moment of expiry; a negative number for none.
fn expires_at(connection: &mut Connection, key: &str) -> i64 {
    let reply = connection.text(&format!("PEXPIRETIME {key}"));
    reply.strip_prefix(':').unwrap().trim_end().parse().unwrap()
}

/// All keys have the same values, and expiries are late by `lag` at most.
fn check(source: &mut Connection, target: &mut Connection, lag: Duration) {
    for key in (0..KEYS).map(|number| format!("key:{number}")) {
        let get: &[&[u8]] = &[b"GET", key.as_bytes()];
        assert_eq!(target.ask(get), source.ask(get), "{key}");
        let (before, after) = (expires_at(source, &key), expires_at(target, &key));
        let late_ms = after - before;
        // Each server reads its clock in milliseconds.
        assert!((-2..=lag.as_millis() as i64 + 2).contains(&late_ms), "{key}: {before} became {after}");
    }
}

fn the_script_moves_a_cache_there_and_back(server: &TestServer) {
    let (first, last) = (RealRedis::start_with_password(PASSWORD), RealRedis::start());
    let mut before = Connection::to(first.address);
    assert_eq!(before.text(&format!("AUTH {PASSWORD}")), "+OK\r\n");
    for number in 0..KEYS {
        let (key, value) = (format!("key:{number}"), [b'\r', b'\n', 0xff, number as u8].repeat(number % 40));
        let expiry: &[&[u8]] = if number % 3 == 0 { &[b"PX", b"100000000"] } else { &[] };
        assert_eq!(before.ask(&[&[b"SET", key.as_bytes(), &value], expiry].concat()), b"+OK\r\n");
    }
    before.text("RPUSH list element");
    // On a busy machine an answer may take its time.
    let wait_s = PATIENCE.as_secs();
    let url = |user: &str, address: SocketAddr| {
        format!("redis://{user}{address}?socket_timeout={wait_s}&socket_connect_timeout={wait_s}")
    };
    let ours = url("", server.address);
    let (first, last_url) = (url(&format!(":{PASSWORD}@"), first.address), url("", last.address));

    let began = Instant::now();
    let said = copy(&first, &ours);
    assert!(
        said.contains("'WRONGTYPE Operation against a key holding the wrong kind of value': 1"),
        "{said}"
    );
    assert!(said.ends_with(&format!("keys: {} in SOURCE, {KEYS} in TARGET\n", KEYS + 1)), "{said}");
    check(&mut before, &mut server.connect(), began.elapsed());

    let said = copy(&ours, &last_url);
    assert_eq!(said, format!("{{'copied': {KEYS}}} keys: {KEYS} in SOURCE, {KEYS} in TARGET\n"));
    check(&mut before, &mut Connection::to(last.address), began.elapsed());
}

#[test]
fn the_page_lists_the_fields_of_info() {
    let server = TestServer::start_durable();
    let mut connection = server.connect();
    connection.text("SET k v");
    let info = connection.text("INFO");
    let printed: Vec<_> = info.lines().filter_map(|line| Some(line.split_once(':')?.0)).collect();
    assert!(printed.len() > 100, "{info}");
    let page = page();
    let list = page.split("### Fields of INFO").nth(1).unwrap().split("\n### ").next().unwrap();

    // One row stands for the same fields of three engines.
    let engine = |name: &str| ["qpl_", "iaa_", "zlib_"].into_iter().find(|engine| name.starts_with(engine));
    let is_listed = |name: &str| {
        let written = engine(name).map_or(name.to_owned(), |engine| format!("{engine}..."));
        list.contains(&format!("`{written}`")) || list.contains(&format!("`{name}:"))
    };
    let missing: Vec<_> = printed.iter().filter(|name| !is_listed(name)).collect();
    assert!(missing.is_empty(), "{missing:?} are not in the page");

    // The first column of all tables but the first one, which begins with sections.
    let tables = list.split_once("`INFO memory`").unwrap().1;
    let cells = tables.lines().filter(|line| line.starts_with("| `")).filter_map(|row| row.split('|').nth(1));
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    // Those are there only with far memory, while the store loads, or for one engine.
    let is_always =
        |name: &&str| !name.contains("...") && !name.starts_with("loading_") && !name.ends_with("_calls");
    let stale: Vec<_> = names.filter(is_always).filter(|name| !printed.contains(name)).collect();
    assert!(stale.is_empty(), "{stale:?} are not in INFO");
}
