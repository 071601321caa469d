//! Start, accept, stop.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Waker};

use crate::backend::Backend;
use crate::config::{Config, ServeError};
use crate::jobs;
use crate::process;
use crate::shared::{Message, Shared};
use crate::worker::{LISTEN, WAKE, Worker};

/// Open files that connections leave to everything else, beyond those that are open when the server begins to listen.
const OTHER_FILES: u64 = 64;
/// Connections may have one part in this many of the open files while a backend opens its own.
const LOADING_PART: u64 = 4;
/// Clients that are accepted at a socket between two looks at the clock: about a millisecond.
const ACCEPTS_PER_LOOK: usize = 64;
/// The pause after the system had no room for another connection.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(100);
/// How often idle clients are looked for.
const SECOND: Duration = Duration::from_secs(1);

/// A server that listens; [`Server::run`] makes it serve.
pub struct Server {
    listeners: Vec<Listener>,
    poll: Poll,
    shared: Arc<Shared>,
    worker_polls: Vec<Poll>,
    /// The inboxes of the workers.
    received: Vec<Receiver<Message>>,
}

/// A socket that clients connect to.
struct Listener {
    socket: TcpListener,
    is_tls: bool,
}

impl Listener {
    /// Listens, and tells the address with the port that the system chose for 0.
    fn bind(address: SocketAddr, is_tls: bool) -> Result<(Self, SocketAddr), ServeError> {
        let socket = TcpListener::bind(address).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ServeError::AddressInUse { address },
            _ => ServeError::Bind { address, source },
        })?;
        let bound = socket.local_addr().map_err(|source| ServeError::Bind { address, source })?;
        Ok((Self { socket, is_tls }, bound))
    }
}

impl Server {
    /// Listens as `config` says, in front of a store that is open. Clients that connect from now on wait until
    /// [`Server::run`].
    ///
    /// # Errors
    ///
    /// If the address is taken, forbidden by protected mode or refused by the system.
    pub fn bind(config: Config, backend: Arc<dyn Backend>) -> Result<Self, ServeError> {
        let server = Self::listen(config)?;
        server.opener().open(backend);
        Ok(server)
    }

    /// Listens as `config` says, for a store that is still to come: until [`Opener::open`], commands that need one are
    /// answered with `LOADING`.
    ///
    /// # Errors
    ///
    /// If the address is taken, forbidden by protected mode or refused by the system.
    pub fn listen(mut config: Config) -> Result<Self, ServeError> {
        let addresses = config.addresses()?;
        let free = process::raise_open_files().saturating_sub(process::open_files() + OTHER_FILES);
        let clients_possible = usize::try_from(free / LOADING_PART).unwrap_or(usize::MAX).max(1);

        let failed = |source| ServeError::EventLoop { source };
        let poll = Poll::new().map_err(failed)?;
        let (mut listeners, mut first) = (Vec::new(), None);
        for (address, is_tls) in addresses {
            let (mut listener, bound) = Listener::bind(address, is_tls)?;
            poll.registry().register(&mut listener.socket, LISTEN, Interest::READABLE).map_err(failed)?;
            listeners.push(listener);
            first = first.or(Some(bound));
            if let Some(tls) = config.tls.as_mut().filter(|_| is_tls) {
                tls.port = bound.port();
            }
        }
        let address = first.ok_or(ServeError::NoPort)?;
        let mut worker_polls = Vec::new();
        let mut wakers = Vec::new();
        for _ in 0..config.threads {
            let poll = Poll::new().map_err(failed)?;
            wakers.push(Waker::new(poll.registry(), WAKE).map_err(failed)?);
            worker_polls.push(poll);
        }
        wakers.push(Waker::new(poll.registry(), WAKE).map_err(failed)?);
        let (inboxes, received): (Vec<_>, _) = (0..config.threads).map(|_| channel()).unzip();
        let shared = Arc::new(Shared::new(config, clients_possible, address, wakers, inboxes));
        Ok(Self { listeners, poll, shared, worker_polls, received })
    }

    /// The address at which the server listens, with the chosen port if the configuration left it open. Without a
    /// plain port it is that of TLS.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// The address for TLS.
    pub fn tls_address(&self) -> Option<SocketAddr> {
        let tls = self.shared.config.tls.as_ref()?;
        Some(SocketAddr::new(self.shared.address.ip(), tls.port))
    }

    /// A handle that stops the server from any thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::clone(&self.shared) }
    }

    /// A handle that brings the store.
    pub fn opener(&self) -> Opener {
        Opener { shared: Arc::clone(&self.shared) }
    }

    /// Serves until a client sends `SHUTDOWN` or a [`Stopper`] is used; all threads have ended when it returns. The
    /// caller closes the store then, which makes no more checkpoints.
    ///
    /// # Errors
    ///
    /// If the system refuses threads or events, or if a worker panicked.
    pub fn run(self) -> Result<(), ServeError> {
        let Self { listeners, poll, shared, worker_polls, received } = self;
        let mut workers = Workers { shared: Arc::clone(&shared), threads: Vec::new() };
        let started = workers.start(worker_polls.into_iter().zip(received));
        let accepted = started.and_then(|()| accept(&listeners, poll, &shared));
        let stopped = workers.stop();
        accepted.map_err(|source| ServeError::EventLoop { source })?;
        stopped
    }
}

/// Stops a server.
#[derive(Clone)]
pub struct Stopper {
    shared: Arc<Shared>,
}

impl Stopper {
    /// Makes [`Server::run`] return. The server answers running requests, and refuses requests that wait for a thread.
    /// Another call changes nothing.
    pub fn stop(&self) {
        self.shared.stop();
    }
}

/// Brings a server its store, from the thread that recovers it.
#[derive(Clone)]
pub struct Opener {
    shared: Arc<Shared>,
}

impl Opener {
    /// Tells clients how far the recovery has come, by `INFO persistence`.
    pub fn progress(&self, done_bytes: u64, all_bytes: u64) {
        self.shared.backend.progress(done_bytes, all_bytes);
    }

    /// Serves from `backend` from now on. Only the first call has an effect.
    pub fn open(&self, backend: Arc<dyn Backend>) {
        let shared = &self.shared;
        let files_to_come = backend.files_to_come();
        shared.backend.set(backend);
        // The backend has opened its files. Files of connections are counted separately.
        let connections = shared.connections_open.load(Relaxed) as u64;
        let others = process::open_files().saturating_sub(connections) + OTHER_FILES + files_to_come;
        let free = process::raise_open_files().saturating_sub(others);
        let clients_possible = usize::try_from(free).unwrap_or(usize::MAX).max(1);
        shared.settings.set_clients_possible(clients_possible);
        // `CONFIG SET` may have changed the limit meanwhile.
        if let Some(limit_bytes) = shared.memory_limit.set_bytes() {
            shared.memory_limit.set(limit_bytes, &*shared.backend);
        }
        shared.wake_acceptor();
    }
}

/// The running workers.
struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Workers {
    fn start(&mut self, loops: impl Iterator<Item = (Poll, Receiver<Message>)>) -> io::Result<()> {
        for number in 0..jobs::THREADS {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name(format!("job-{number}")).spawn(move || {
                let _stop = StopOnDrop { shared: &shared };
                shared.jobs.run(number, &shared);
                Ok(())
            })?;
            self.threads.push(thread);
        }
        for (index, (poll, received)) in loops.enumerate() {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
                // Stops the server however the thread ends, so that no client hangs.
                let _stop = StopOnDrop { shared: &shared };
                Worker::new(index, poll, received, Arc::clone(&shared)).run()
            })?;
            self.threads.push(thread);
        }
        Ok(())
    }

    fn stop(self) -> Result<(), ServeError> {
        self.shared.stop();
        // A thread that runs `SAVE` would delay the stop.
        self.shared.backend.stop();
        let mut outcome = Ok(());
        // Other threads send their last replies, whatever became of one.
        for thread in self.threads {
            let ended = match thread.join() {
                Ok(ended) => ended.map_err(|source| ServeError::EventLoop { source }),
                Err(_) => Err(ServeError::WorkerPanicked),
            };
            outcome = outcome.and(ended);
        }
        outcome
    }
}

struct StopOnDrop<'a> {
    shared: &'a Shared,
}

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// Accepts connections and deals them to the workers; keeps the memory limit in between.
fn accept(listeners: &[Listener], mut poll: Poll, shared: &Shared) -> io::Result<()> {
    let mut events = Events::with_capacity(8);
    // Set while connections wait that no event will tell of.
    let mut retry = None;
    let (mut measured, mut counted) = (Instant::now(), Instant::now());
    while !shared.is_stopping() {
        let tick = shared.memory_limit.tick().filter(|_| !shared.backend.is_loading());
        let measure = tick.map(|tick| tick.saturating_sub(measured.elapsed()));
        let wait = [retry, measure, Some(SECOND.saturating_sub(counted.elapsed()))];
        match poll.poll(&mut events, wait.into_iter().flatten().min()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            outcome => outcome?,
        }
        if tick.is_some_and(|tick| measured.elapsed() >= tick) {
            shared.has_room(0);
            shared.look_at_readers();
            measured = Instant::now();
        }
        let seconds = counted.elapsed().as_secs();
        if seconds > 0 {
            counted += Duration::from_secs(seconds);
            shared.pass_seconds(seconds);
        }
        retry = listeners.iter().filter_map(|listener| accept_some(listener, shared)).min();
    }
    Ok(())
}

/// Deals clients that wait at a socket. Returns the pause before the next ones if no event will tell of these: zero at
/// the bound, and [`NO_ROOM_PAUSE`] if the system has no room for another connection.
fn accept_some(listener: &Listener, shared: &Shared) -> Option<Duration> {
    for _ in 0..ACCEPTS_PER_LOOK {
        match listener.socket.accept() {
            Ok((stream, _)) if shared.connections_open.load(Relaxed) >= shared.settings.clients_max() => {
                reject(stream, listener.is_tls, shared);
            }
            Ok((stream, _)) => {
                shared.send(shared.deal(), Message::Connection(stream, listener.is_tls));
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return None,
                io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                _ => return Some(NO_ROOM_PAUSE),
            },
        }
    }
    Some(Duration::ZERO)
}

fn reject(mut stream: TcpStream, is_tls: bool, shared: &Shared) {
    shared.connections_rejected.fetch_add(1, Relaxed);
    // A fresh socket has room for a line; if not, closing says enough. Without a handshake it does so for TLS.
    if !is_tls {
        let _ = stream.write_all(b"-ERR max number of clients reached\r\n");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;

    use ziptier_testing::until;

    use super::*;
    use crate::StoreBackend;
    use crate::shared::ClientInfo;

    /// Seconds go by when the test says so; the second or two that really do are far from every bound.
    #[test]
    fn idle_clients_go_when_their_time_is_over() {
        let backend = Arc::new(StoreBackend::open(ziptier::Options::default()).unwrap());
        let config = Config { port: 0, threads: 2, timeout_s: 100_000, ..Config::default() };
        let server = Server::bind(config, backend).unwrap();
        let (address, shared) = (server.address(), Arc::clone(&server.shared));
        let running = thread::spawn(move || server.run());
        let connect = || {
            let stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(ziptier_testing::HANG)).unwrap();
            stream
        };
        let ask = |stream: &mut TcpStream, line: &[u8], reply: &[u8]| {
            stream.write_all(line).unwrap();
            let mut read = vec![0; reply.len()];
            stream.read_exact(&mut read).unwrap();
            assert_eq!(read, reply);
        };
        let (mut idle, mut active) = (connect(), connect());
        ask(&mut idle, b"PING\n", b"+PONG\r\n");
        for _ in 0..3 {
            shared.pass_seconds(60_000);
            ask(&mut active, b"PING\n", b"+PONG\r\n");
        }
        // It was sent nothing but the end.
        assert_eq!(idle.read(&mut [0; 8]).unwrap(), 0);
        ask(&mut active, b"CONFIG SET timeout 0\n", b"+OK\r\n");
        shared.pass_seconds(1_000_000);
        ask(&mut active, b"PING\n", b"+PONG\r\n");
        ask(&mut active, b"CONFIG SET timeout 100000\n", b"+OK\r\n");
        shared.pass_seconds(200_000);
        assert_eq!(active.read(&mut [0; 8]).unwrap(), 0);
        shared.stop();
        running.join().unwrap().unwrap();
    }

    /// While clients kept coming, nobody kept the memory limit, and no stop came about.
    #[test]
    fn a_crowd_of_new_clients_is_dealt_in_parts() {
        const CLIENTS: usize = ACCEPTS_PER_LOOK + 10;
        let backend = Arc::new(StoreBackend::open(ziptier::Options::default()).unwrap());
        let server = Server::bind(Config { port: 0, threads: 1, ..Config::default() }, backend).unwrap();
        let _clients: Vec<_> = (0..CLIENTS).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
        let open = || server.shared.connections_open.load(Relaxed);
        let mut looks = Vec::new();
        until("all clients are dealt", || {
            let before = open();
            let pause = accept_some(&server.listeners[0], &server.shared);
            looks.push((open() - before, pause));
            open() == CLIENTS
        });
        // No event tells of clients behind the bound, so the next look comes without a pause.
        let pause = |clients| (clients == ACCEPTS_PER_LOOK).then_some(Duration::ZERO);
        let is_right = |&(clients, said): &(usize, Option<Duration>)| {
            clients <= ACCEPTS_PER_LOOK && said == pause(clients)
        };
        assert!(looks.iter().all(is_right), "{looks:?}");
        assert_eq!(accept_some(&server.listeners[0], &server.shared), None);
    }

    /// A request that came byte by byte kept its connection open for good.
    #[test]
    fn clients_whose_requests_trickle_in_are_idle() {
        let backend = Arc::new(StoreBackend::open(ziptier::Options::default()).unwrap());
        let config = Config { port: 0, threads: 1, timeout_s: 100_000, ..Config::default() };
        let server = Server::bind(config, backend).unwrap();
        let (address, shared) = (server.address(), Arc::clone(&server.shared));
        let running = thread::spawn(move || server.run());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(ziptier_testing::HANG)).unwrap();
        let mut sent = 0;
        let mut arrive = |stream: &mut TcpStream, bytes: &[u8]| {
            stream.write_all(bytes).unwrap();
            sent += bytes.len() as u64;
            until("the bytes have arrived", || shared.counters[0].bytes_in.get() == sent);
            shared.pass_seconds(60_000);
        };
        arrive(&mut stream, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$20000\r\n");
        for _ in 0..4 {
            arrive(&mut stream, &[b'v'; 5_000]);
        }
        arrive(&mut stream, b"\r\n");
        let mut reply = [0; 5];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+OK\r\n");
        arrive(&mut stream, b"P");
        assert_eq!(stream.read(&mut reply).unwrap(), 0);
        shared.stop();
        running.join().unwrap().unwrap();
    }

    /// A worker that had stood still took clients for idle whose requests waited for it.
    #[test]
    fn clients_whose_requests_wait_to_be_read_are_not_idle() {
        let backend = Arc::new(StoreBackend::open(ziptier::Options::default()).unwrap());
        let config = Config { port: 0, threads: 1, timeout_s: 100_000, ..Config::default() };
        let server = Server::bind(config, backend).unwrap();
        let (address, shared) = (server.address(), Arc::clone(&server.shared));
        let running = thread::spawn(move || server.run());
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(ziptier_testing::HANG)).unwrap();
        until("the client is known", || shared.clients().len() == 1);
        // The only worker waits for this list to add the next client.
        let list = shared.clients();
        let _other = TcpStream::connect(address).unwrap();
        until("the worker stands still", || shared.connections_accepted.load(Relaxed) == 2);
        client.write_all(b"PING\n").unwrap();
        let ends = [address, client.local_addr().unwrap()].map(|end| format!(":{:04X}", end.port()));
        let has_arrived = |row: &str| {
            let words: Vec<&str> = row.split_ascii_whitespace().collect();
            // The server's end, that of the client, and bytes to send and to read.
            words[1].ends_with(&ends[0]) && words[2].ends_with(&ends[1]) && !words[4].ends_with(":00000000")
        };
        until("the request has arrived", || {
            std::fs::read_to_string("/proc/net/tcp").unwrap().lines().any(has_arrived)
        });
        shared.pass_seconds(200_000);
        drop(list);
        let mut reply = [0; 7];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+PONG\r\n");
        shared.stop();
        running.join().unwrap().unwrap();
    }

    /// A server that met a thread that had panicked returned, and other threads still sent replies.
    #[test]
    fn a_stop_waits_for_threads_behind_one_that_panicked() {
        let backend = Arc::new(StoreBackend::open(ziptier::Options::default()).unwrap());
        let server = Server::bind(Config { port: 0, threads: 1, ..Config::default() }, backend).unwrap();
        // The thread that joins the first one drops this end.
        let (dropped_by_join, until_joined) = channel::<()>();
        let panicked = thread::spawn(move || -> io::Result<()> { std::panic::panic_any(dropped_by_join) });
        let (sender, ended) = channel();
        let late = thread::spawn(move || {
            assert!(until_joined.recv().is_err());
            // A stop that does not wait returns in this time.
            thread::sleep(Duration::from_millis(200));
            sender.send(()).unwrap();
            Ok(())
        });
        let workers = Workers { shared: Arc::clone(&server.shared), threads: vec![panicked, late] };
        assert!(matches!(workers.stop(), Err(ServeError::WorkerPanicked)));
        ended.try_recv().expect("the other thread has ended");
    }

    /// Disconnecting a client frees no byte of a request that another thread runs.
    #[test]
    fn clients_are_not_evicted_for_requests_that_run() {
        const MIB: usize = 1 << 20;
        let backend = Arc::new(StoreBackend::open(ziptier::Options::default()).unwrap());
        let config = Config { port: 0, threads: 1, client_bytes_max: Some(16 * MIB), ..Config::default() };
        let server = Server::bind(config, backend).unwrap();
        let (shared, address) = (&server.shared, server.address());
        let client = |id, held_bytes, job_bytes| {
            let info = Arc::new(ClientInfo::new(id, address, address, 0));
            assert!(shared.budget.take(held_bytes));
            shared.budget.note_running(job_bytes);
            info.held_bytes.store(held_bytes, Relaxed);
            info.job_bytes.store(job_bytes, Relaxed);
            shared.clients().insert(id, Arc::clone(&info));
            info
        };
        let clients = [client(1, 6 * MIB, 6 * MIB), client(2, 5 * MIB, 0), client(3, 4 * MIB, 0)];
        // Half of the 16 MiB is wanted, and the two clients without a running request hold 9.
        shared.budget.note_refusal(8 * MIB);
        shared.evict_clients();
        assert_eq!(clients.map(|info| info.killed.load(Relaxed)), [false, true, false]);
    }

    #[test]
    fn commands_that_may_write_are_counted_apart() {
        let backend = Arc::new(StoreBackend::open(ziptier::Options::default()).unwrap());
        let server = Server::bind(Config { port: 0, threads: 1, ..Config::default() }, backend).unwrap();
        let (address, shared) = (server.address(), Arc::clone(&server.shared));
        let running = thread::spawn(move || server.run());
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(ziptier_testing::HANG)).unwrap();
        let mut writes_after = |request: &[u8], reply: &[u8]| {
            stream.write_all(request).unwrap();
            let mut read = vec![0; reply.len()];
            stream.read_exact(&mut read).unwrap();
            assert_eq!(read, reply);
            shared.counters[0].writes.get()
        };
        assert_eq!(writes_after(&b"GET k\nEXISTS k\n".repeat(100), &b"$-1\r\n:0\r\n".repeat(100)), 0);
        assert_eq!(
            writes_after(
                b"SET k\nSET k v\nDEL k\n",
                b"-ERR wrong number of arguments for 'set' command\r\n+OK\r\n:1\r\n"
            ),
            2
        );
        // One that another thread runs.
        assert_eq!(writes_after(&[b"DEL", &b" k".repeat(2000)[..], b"\n"].concat(), b":0\r\n"), 3);
        shared.stop();
        running.join().unwrap().unwrap();
    }

    /// A client that is owed more than the soft limit has the time that goes with it, and no more.
    #[test]
    fn slow_clients_go_when_their_time_is_over() {
        let backend = Arc::new(StoreBackend::open(ziptier::Options::default()).unwrap());
        backend.put(b"k", &vec![b'v'; 200 << 10], None).unwrap();
        let output_limits = "normal 0 1mb 100000".parse().unwrap();
        let config = Config { port: 0, threads: 1, output_limits, ..Config::default() };
        let server = Server::bind(config, backend).unwrap();
        let (address, shared) = (server.address(), Arc::clone(&server.shared));
        let running = thread::spawn(move || server.run());
        let mut slow = TcpStream::connect(address).unwrap();
        slow.write_all(&b"GET k\n".repeat(200)).unwrap();
        let open = || shared.connections_open.load(Relaxed);
        // Each turn runs one request, and the system takes the replies of the first ones alone. So many turns have
        // ended above the soft limit when the last request runs.
        until("all requests have run", || shared.total(|counters| &counters.commands) == 200);
        shared.pass_seconds(60_000);
        let mut other = TcpStream::connect(address).unwrap();
        other.write_all(b"PING\n").unwrap();
        other.read_exact(&mut [0; 7]).unwrap();
        assert_eq!(open(), 2);
        drop(other);
        until("the other client has gone", || open() == 1);
        shared.pass_seconds(120_000);
        until("the slow client has gone", || open() == 0);
        shared.stop();
        running.join().unwrap().unwrap();
    }
}
