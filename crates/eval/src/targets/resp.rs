//! `redis://HOST[:PORT][/DATABASE]`: a server that speaks RESP and that somebody else started, such as Redis, Valkey or
//! `ziptier serve`.
//!
//! A benchmark takes no database in which there are keys, and removes its own keys in the end, one by one: a key that
//! somebody else has stored meanwhile stays. Memory is the server's own figure, `used_memory`: a process that has given
//! memory back may keep it for a while.

use std::net::SocketAddr;
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::data::oracle::Oracle;
use crate::servers::listening::{LocalServers, RESTLESS, address_of, host_and_port, own_processors};
use crate::servers::quiet::Quiet;
use crate::servers::resp::connections::Connections;
use crate::servers::resp::{self, Connection, Endpoint, PASSWORD, Reply, done};
use crate::target::{Batch, Config, Gone, Records, Target, TargetError, Work};
use crate::workload::mix::Operation;

/// The name of the target in lists: any address of its scheme means it.
pub(crate) const NAME: &str = "redis://HOST[:PORT][/DATABASE]";
const SCHEME: &str = "redis://";
const NO_SCAN: &str = "it keeps keys in the order of a hash and cannot scan them; leave scan out of --mix";
const PORT: u16 = 6379;
/// Requests that are sent before their replies are read. They and the replies to SETs fit into the buffers of a socket,
/// so that a server that stops reading while its replies lie unread can't make both sides wait.
const PIPELINE_MAX: usize = 512;
/// Places for connections that rest. Threads beyond so many share places.
const PLACES: usize = 64;
/// What a server answers while it reads what it kept.
const LOADING: &str = ": LOADING ";
/// The longest time that this may take it.
const LOAD_MAX: Duration = Duration::from_secs(300);
/// The longest wait for work that the server has left in the background.
const WORK_MAX: Duration = Duration::from_secs(300);

#[derive(Debug, PartialEq, Eq)]
struct Address {
    host: String,
    port: u16,
    database: u32,
}

impl FromStr for Address {
    type Err = String;

    /// The error is a sentence that begins with "it".
    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| format!("it does not begin with {SCHEME}"))?;
        let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
        if host.contains('@') {
            return Err(format!(
                "it has a password in its address, which results would show; put the password into {PASSWORD}"
            ));
        }
        let (host, port) = host_and_port(host, PORT)?;
        let database = match database {
            "" => 0,
            number => number.parse().map_err(|_| {
                format!("it has no database `{number}`; give a number, such as {SCHEME}{host}/1")
            })?,
        };
        Ok(Address { host, port, database })
    }
}

/// Connections that rest. Their place shares a cache line with nothing that other threads write.
#[derive(Debug)]
#[repr(align(128))]
struct Place(Mutex<Vec<Connection>>);

/// A database of a server, and the connections that no thread uses now.
#[derive(Debug)]
struct Database {
    endpoint: Endpoint,
    /// At the places of the threads that used them last.
    idle: [Place; PLACES],
}

impl Database {
    fn new(socket: SocketAddr, database: u32) -> Self {
        let endpoint = Endpoint { socket, database };
        Database { endpoint, idle: [const { Place(Mutex::new(Vec::new())) }; PLACES] }
    }

    /// Calls `with` with a connection of this thread's own. The thread gets its last one if that rests, since the
    /// buffers of that are in the caches of its processor. One that failed is not used again. The server is gone if no
    /// other can take its place, or if it hangs: the system would go on taking connections for it.
    fn ask<R>(&self, with: impl FnOnce(&mut Connection) -> Result<R, String>) -> Result<R, TargetError> {
        let own = own_place();
        let idle = |place: usize| self.idle[place % PLACES].0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = (own..own + PLACES).find_map(|place| idle(place).pop());
        let mut connection = taken.map_or_else(|| self.endpoint.connect(), Ok).map_err(Gone)?;
        let answer = with(&mut connection).and_then(|answer| connection.forget().map(|()| answer));
        if let Err(error) = &answer {
            if connection.hangs() {
                return Err(Gone(error.clone()).into());
            }
            connection = self.endpoint.connect().map_err(|reason| Gone(format!("{error}, and {reason}")))?;
        }
        idle(own).push(connection);
        Ok(answer?)
    }

    /// The number of keys.
    fn len(&self) -> Result<i64, TargetError> {
        self.ask(|connection| match connection.ask(&[b"DBSIZE"])? {
            Reply::Integer(keys) => Ok(keys),
            other => Err(other.unexpected("DBSIZE")),
        })
    }

    /// The number of keys, once the server has loaded what it kept.
    fn len_once_loaded(&self) -> Result<i64, TargetError> {
        let began = Instant::now();
        loop {
            match self.len() {
                Err(error) if error.to_string().contains(LOADING) && began.elapsed() < LOAD_MAX => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                answer => return answer,
            }
        }
    }

    /// Whether it evicts keys when its memory is full.
    fn evicts(&self) -> bool {
        let is_set = |field, unset| self.info("memory", field).is_some_and(|value| value != unset);
        is_set("maxmemory", "0") && is_set("maxmemory_policy", "noeviction")
    }

    /// Removes the keys of an oracle, which are those of the benchmark.
    fn remove(&self, oracle: &Oracle) -> Result<(), TargetError> {
        let (end, mut room) = (oracle.used(), oracle.room());
        (0..end).step_by(PIPELINE_MAX).try_for_each(|first| {
            let group = first..(first + PIPELINE_MAX as u64).min(end);
            self.ask(|connection| {
                let keys = group.clone();
                keys.for_each(|index| connection.add(&[b"DEL", oracle.key_in(index, &mut room)]));
                connection.send()?;
                for _ in group {
                    removed(&connection.reply()?)?;
                }
                Ok(())
            })
        })
    }

    /// A line of INFO.
    fn info(&self, section: &str, name: &str) -> Option<String> {
        let page = self.ask(|connection| match connection.ask(&[b"INFO", section.as_bytes()])? {
            Reply::Value(page) => Ok(String::from_utf8_lossy(page).into_owned()),
            other => Err(other.unexpected("INFO")),
        });
        let page = page.ok()?;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        Some(line.trim().to_owned())
    }
}

/// The place of the connections of this thread.
fn own_place() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static OWN: usize = THREADS.fetch_add(1, Ordering::Relaxed) % PLACES);
    OWN.with(|own| *own)
}

/// A database that was empty when it was opened.
#[derive(Debug)]
pub struct RespTarget {
    database: Database,
    /// The keys to remove in the end.
    oracles: Vec<Arc<Oracle>>,
    server: Option<LocalServers>,
    /// Whether it evicts keys when its memory is full.
    evicts: bool,
    /// Whether it was not quiet in time.
    is_restless: AtomicBool,
    /// The connections of threads that have several, between two windows.
    connections: Mutex<Vec<Connections>>,
}

impl RespTarget {
    fn wait_until_quiet(&self) {
        let is_quiet =
            self.waited_for_work() && self.server.as_ref().is_none_or(LocalServers::wait_until_quiet);
        self.is_restless.fetch_or(!is_quiet, Ordering::Relaxed);
    }

    /// Waits as long as the server says that it has work left in the background, or for [`WORK_MAX`]. Whether it has
    /// none then. ziptier rests for seconds between two parts of its work; other servers say nothing.
    fn waited_for_work(&self) -> bool {
        let began = Instant::now();
        while self.database.info("stats", "background_work").is_some_and(|left| left != "0") {
            if began.elapsed() > WORK_MAX {
                return false;
            }
            std::thread::sleep(Quiet::BETWEEN_WINDOWS.period);
        }
        true
    }
}

/// The answers to GETs, in the memory that received them.
#[derive(Debug, Default)]
pub struct Replies {
    bytes: Vec<u8>,
    places: Vec<Option<Range<usize>>>,
}

impl Batch for Replies {
    #[inline]
    fn answer(&self, position: usize) -> Option<&[u8]> {
        self.bytes.get(self.places.get(position)?.clone()?)
    }
}

/// The value in the answer to a GET. Every other answer comes back.
fn found<B>(reply: Reply<B>) -> Result<Option<B>, Reply<B>> {
    match reply {
        Reply::Value(value) => Ok(Some(value)),
        Reply::Nothing => Ok(None),
        other => Err(other),
    }
}

/// Whether a DEL has removed its key.
fn removed(reply: &Reply<&[u8]>) -> Result<bool, String> {
    match reply {
        Reply::Integer(removed) => Ok(*removed == 1),
        other => Err(other.unexpected("DEL")),
    }
}

impl Target for RespTarget {
    type Batch = Replies;

    const CHECKED_AT_ONCE: usize = 64;
    const LOADED_AT_ONCE: usize = 64;
    const HAS_CONNECTIONS: bool = true;

    fn check(config: &Config) -> Result<(), TargetError> {
        config.target.parse::<Address>()?;
        if config.instances > 1 {
            return Err("it is one store; leave out --instances".into());
        }
        Ok(config.options.take_only(&[])?)
    }

    fn open(config: &Config) -> Result<Self, TargetError> {
        Self::check(config)?;
        let Address { host, port, database: number } = config.target.parse()?;
        let socket = address_of(&host, port)?;
        let database = Database::new(socket, number);
        match database.len_once_loaded()? {
            0 => Ok(RespTarget {
                connections: Mutex::new(Connections::of_threads(database.endpoint, &config.connections)?),
                evicts: database.evicts(),
                database,
                oracles: config.oracles.clone(),
                server: LocalServers::at(&[socket]),
                is_restless: AtomicBool::new(false),
            }),
            keys => Err(format!(
                "its database is not empty (DBSIZE {keys}), and a benchmark measures its own keys alone; give an \
                 empty one, such as {SCHEME}{socket}/{}, or send FLUSHDB if nobody needs the keys",
                number.saturating_add(1)
            )
            .into()),
        }
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        self.database.ask(|connection| {
            let reply = connection.ask(&[b"GET", key])?;
            let found = found(reply).map_err(|other| other.unexpected("GET"))?;
            value.extend_from_slice(found.unwrap_or_default());
            Ok(found.is_some())
        })
    }

    /// A pipeline of GETs.
    fn multi_get(&self, keys: &[&[u8]], batch: &mut Replies) -> Result<(), TargetError> {
        batch.places.clear();
        self.database.ask(|connection| {
            // The memory stays with the thread and its processor, whatever connection the thread gets.
            connection.swap(&mut batch.bytes)?;
            for keys in keys.chunks(PIPELINE_MAX) {
                keys.iter().for_each(|key| resp::get(key, connection.requests()));
                connection.send()?;
                for _ in keys {
                    let found = found(connection.place()?);
                    batch.places.push(found.map_err(|other| connection.at(other).unexpected("GET"))?);
                }
            }
            connection.swap(&mut batch.bytes)
        })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.database.ask(|connection| done("SET", connection.ask(&[b"SET", key, value])?))
    }

    /// A pipeline of SETs.
    fn multi_put(&self, records: &[(&[u8], &[u8])]) -> Result<(), TargetError> {
        self.database.ask(|connection| {
            for records in records.chunks(PIPELINE_MAX) {
                records.iter().for_each(|(key, value)| resp::set(key, value, connection.requests()));
                connection.send()?;
                records.iter().try_for_each(|_| done("SET", connection.reply()?))?;
            }
            Ok(())
        })
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        self.database.ask(|connection| removed(&connection.ask(&[b"DEL", key])?))
    }

    fn connections(&self, numbers: Range<u64>) -> Result<Connections, TargetError> {
        let mut rested = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let place = rested.iter().position(|some| *some.numbers() == numbers);
        let taken = place.map(|place| rested.swap_remove(place));
        drop(rested);
        let connections = match taken {
            Some(mut connections) => connections.renew().map(|()| connections),
            None => Connections::open(self.database.endpoint, numbers),
        };
        Ok(connections.map_err(Gone)?)
    }

    fn keep(&self, connections: Connections) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).push(connections);
    }

    fn scan(&self, _: &[u8], _: usize, _: &mut Records) -> Result<(), TargetError> {
        Err(NO_SCAN.into())
    }

    fn refuses(&self, operation: Operation) -> Option<String> {
        (operation == Operation::Scan).then(|| NO_SCAN.to_owned())
    }

    fn may_forget(&self) -> bool {
        self.evicts
    }

    fn loaded(&self) -> Result<(), TargetError> {
        self.wait_until_quiet();
        Ok(())
    }

    fn held_bytes(&self) -> Option<u64> {
        self.database.info("memory", "used_memory")?.parse().ok()
    }

    fn work(&self) -> Work {
        LocalServers::work(self.server.as_ref())
    }

    fn processors(&self) -> Option<Vec<usize>> {
        self.server.as_ref()?.processor_numbers()
    }

    fn rest(&self) -> Result<(), TargetError> {
        self.wait_until_quiet();
        Ok(())
    }

    fn describe(&self) -> String {
        let version =
            self.database.info("server", "redis_version").unwrap_or_else(|| "of unknown version".into());
        let processors = self.server.as_ref().and_then(LocalServers::processors);
        format!(
            "a server like Redis {version} on processors {}, client on processors {}{}{}",
            processors.unwrap_or_else(|| "unknown".into()),
            own_processors(),
            LocalServers::about_cpu_time(self.server.as_ref()),
            if self.is_restless.load(Ordering::Relaxed) { RESTLESS } else { "" }
        )
    }
}

impl Drop for RespTarget {
    fn drop(&mut self) {
        // A server that is gone has nothing to remove, and the next benchmark refuses keys that are left.
        let _ = self.oracles.iter().try_for_each(|oracle| self.database.remove(oracle));
    }
}

#[cfg(test)]
impl RespTarget {
    /// The target of a server that nobody has asked.
    pub(crate) fn unasked(socket: SocketAddr) -> Self {
        RespTarget {
            database: Database::new(socket, 0),
            oracles: Vec::new(),
            server: None,
            evicts: false,
            is_restless: AtomicBool::new(false),
            connections: Mutex::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn addresses_are_read() {
        let read = |text: &str| text.parse::<Address>();
        let address = |host: &str, port, database| Ok(Address { host: host.into(), port, database });
        assert_eq!(read("redis://127.0.0.1"), address("127.0.0.1", 6379, 0));
        assert_eq!(read("redis://[::1]:7000/3"), address("::1", 7000, 3));
        assert_eq!(read("redis://cache/"), address("cache", 6379, 0));
        for (text, expected) in [
            ("redis://", "it has a host ``"),
            ("redis://a:port", "it has a host `a:port`"),
            ("redis://a/orders", "it has no database `orders`"),
            ("redis://:secret@a", "put the password into REDISCLI_AUTH"),
        ] {
            let told = read(text).unwrap_err();
            assert!(told.contains(expected) && !told.contains("secret"), "{told}");
        }
    }

    #[test]
    fn what_it_does_not_take_is_refused_before_anything_is_connected() {
        let config = Config { target: "redis://127.0.0.1:1".into(), ..Config::default() };
        assert!(RespTarget::check(&config).is_ok());
        let told = RespTarget::open(&config).unwrap_err().to_string();
        assert!(told.starts_with("no server answers at 127.0.0.1:1: "), "{told}");
        let told = RespTarget::check(&Config { instances: 2, ..config }).unwrap_err().to_string();
        assert!(told.contains("leave out --instances"), "{told}");
    }

    #[test]
    fn answers_are_those_of_the_last_call() {
        let long = vec![b'v'; 100_000];
        let mut first = b"$1\r\na\r\n$-1\r\n".to_vec();
        resp::value(&long, &mut first);
        let replies = [first, b"$2\r\nbc\r\n".to_vec(), b"$1\r\nd\r\n$1\r\ne\r\n".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = RespTarget::unasked(listener.local_addr().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = listener.accept().unwrap().0;
                for reply in &replies {
                    assert_ne!(client.read(&mut [0; 1024]).unwrap(), 0);
                    client.write_all(reply).unwrap();
                }
            });
            let (keys, mut batch) = ([&b"k"[..]; 3], Replies::default());
            target.multi_get(&keys, &mut batch).unwrap();
            let expected = [Some(&b"a"[..]), None, Some(&long[..]), None];
            assert_eq!([0, 1, 2, 3].map(|position| batch.answer(position)), expected);
            target.multi_get(&keys[..1], &mut batch).unwrap();
            assert_eq!([0, 1].map(|position| batch.answer(position)), [Some(&b"bc"[..]), None]);
            let told = target.multi_get(&keys[..1], &mut batch).unwrap_err().to_string();
            assert_eq!(told, "it answered more than it was asked");
        });
    }

    /// The next call would take the second answer for its own, and so would each call after that.
    #[test]
    fn an_answer_that_nobody_asked_for_fails_the_call_that_got_it() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = RespTarget::unasked(listener.local_addr().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = listener.accept().unwrap().0;
                assert_ne!(client.read(&mut [0; 64]).unwrap(), 0);
                client.write_all(b"+OK\r\n+OK\r\n").unwrap();
            });
            let told = target.put(b"k", b"v").unwrap_err().to_string();
            assert_eq!(told, "it answered more than it was asked");
        });
    }

    /// The other thread gives its connection back last.
    #[test]
    fn a_thread_keeps_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let database = &Database::new(listener.local_addr().unwrap(), 0);
        std::thread::spawn(move || {
            for (number, client) in (1..=2).zip(listener.incoming()) {
                let mut client = client.unwrap();
                std::thread::spawn(move || {
                    while client.read(&mut [0; 64]).is_ok_and(|got| got > 0) {
                        client.write_all(format!(":{number}\r\n").as_bytes()).unwrap();
                    }
                });
            }
        });
        let (both, last) = (&Barrier::new(2), &Barrier::new(2));
        std::thread::scope(|scope| {
            let asked = database.ask(|_| {
                let other = scope.spawn(move || {
                    database.ask(|_| {
                        both.wait();
                        last.wait();
                        Ok(())
                    })
                });
                both.wait();
                Ok(other)
            });
            last.wait();
            asked.unwrap().join().unwrap().unwrap();
        });
        assert_eq!(database.len().unwrap(), 1);
    }

    #[test]
    fn a_server_that_does_not_come_to_rest_is_told() {
        let mut target = RespTarget::unasked(([127, 0, 0, 1], 1).into());
        target.wait_until_quiet();
        assert!(!target.describe().ends_with(RESTLESS));
        target.is_restless.store(true, Ordering::Relaxed);
        target.wait_until_quiet();
        assert!(target.describe().ends_with(RESTLESS));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        target.server = LocalServers::at(&[listener.local_addr().unwrap()]);
        assert!(target.describe().contains("without daemons, which leave it; IT WAS NOT QUIET"));
    }

    #[test]
    fn work_that_a_server_has_left_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = RespTarget::unasked(listener.local_addr().unwrap());
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let mut client = listener.accept().unwrap().0;
                for left in [1, 1, 0] {
                    assert_ne!(client.read(&mut [0; 64]).unwrap(), 0);
                    let page = format!("# Stats\r\nbackground_work:{left}\r\n");
                    client.write_all(format!("${}\r\n{page}\r\n", page.len()).as_bytes()).unwrap();
                }
            });
            assert!(target.waited_for_work());
            assert!(server.join().is_ok(), "it was asked until nothing was left");
        });
    }

    #[test]
    fn a_server_that_is_silent_for_too_long_is_gone() {
        // The system takes connections, and nobody answers.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = listener.local_addr().unwrap();
        let impatient = Connection::patient(socket, Duration::from_millis(1)).unwrap();
        let database = Database::new(socket, 0);
        database.idle[0].0.lock().unwrap().push(impatient);
        let told = database.len().unwrap_err();
        assert!(told.is::<Gone>(), "{told}");
    }

    #[test]
    fn a_server_that_loads_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let target = format!("{SCHEME}{}", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let busy = &b"-LOADING Redis is loading the dataset in memory\r\n"[..];
            let mut client = listener.accept().unwrap().0;
            for answer in [busy, busy, b":7\r\n"] {
                assert_ne!(client.read(&mut [0; 64]).unwrap(), 0);
                client.write_all(answer).unwrap();
                // A connection with an error is not used again.
                if answer == busy {
                    client = listener.accept().unwrap().0;
                }
            }
        });
        let told = RespTarget::open(&Config { target, ..Config::default() }).unwrap_err().to_string();
        assert!(told.contains("(DBSIZE 7)"), "{told}");
        server.join().unwrap();
    }
}
