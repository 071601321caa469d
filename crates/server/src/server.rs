//! Start, accept, stop.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Waker};

use crate::backend::Backend;
use crate::config::{Config, ServeError};
use crate::process;
use crate::shared::Shared;
use crate::worker::{LISTEN, WAKE, Worker};

/// Open files that connections leave to everything else, beside those that are open when it begins to listen: the backend's.
const OTHER_FILES: u64 = 64;

/// A server that listens; [`Server::run`] makes it serve.
pub struct Server {
    listener: TcpListener,
    poll: Poll,
    shared: Arc<Shared>,
    worker_polls: Vec<Poll>,
}

impl Server {
    /// Listens as `config` says. Clients that connect from now on wait until [`Server::run`].
    ///
    /// # Errors
    ///
    /// When the address is taken, forbidden by protected mode or refused by the system.
    pub fn bind(mut config: Config, backend: Arc<dyn Backend>) -> Result<Self, ServeError> {
        let address = config.address()?;
        let free = process::raise_open_files().saturating_sub(process::open_files() + OTHER_FILES);
        config.clients_max = config.clients_max.min(usize::try_from(free).unwrap_or(usize::MAX).max(1));

        let mut listener = TcpListener::bind(address).map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ServeError::AddressInUse { address },
            _ => ServeError::Bind { address, source },
        })?;
        let address = listener.local_addr().map_err(|source| ServeError::Bind { address, source })?;
        let failed = |source| ServeError::EventLoop { source };
        let poll = Poll::new().map_err(failed)?;
        poll.registry().register(&mut listener, LISTEN, Interest::READABLE).map_err(failed)?;
        let mut worker_polls = Vec::new();
        let mut wakers = Vec::new();
        for _ in 0..config.threads {
            let poll = Poll::new().map_err(failed)?;
            wakers.push(Waker::new(poll.registry(), WAKE).map_err(failed)?);
            worker_polls.push(poll);
        }
        wakers.push(Waker::new(poll.registry(), WAKE).map_err(failed)?);
        let shared = Arc::new(Shared::new(backend, config, address, wakers));
        shared.has_room(0);
        Ok(Self { listener, poll, shared, worker_polls })
    }

    /// Where it listens; tells the port when the configuration left it open.
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// A handle that stops the server from any thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { shared: Arc::clone(&self.shared) }
    }

    /// Serves until a client sends `SHUTDOWN` or a [`Stopper`] is used; all threads have ended when it returns.
    ///
    /// # Errors
    ///
    /// When the system refuses threads or events, or a worker panicked.
    pub fn run(self) -> Result<(), ServeError> {
        let Self { listener, poll, shared, worker_polls } = self;
        let mut workers = Workers { shared: Arc::clone(&shared), inboxes: Vec::new(), threads: Vec::new() };
        let accepted =
            workers.start(worker_polls).and_then(|()| accept(&listener, poll, &shared, &workers.inboxes));
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
    /// Makes [`Server::run`] return. Requests that are being run are answered; calling it again changes nothing.
    pub fn stop(&self) {
        self.shared.stop();
    }
}

/// The running workers.
struct Workers {
    shared: Arc<Shared>,
    inboxes: Vec<Sender<TcpStream>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Workers {
    fn start(&mut self, polls: Vec<Poll>) -> io::Result<()> {
        for (index, poll) in polls.into_iter().enumerate() {
            let (inbox, received) = channel();
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
                // However the thread ends, its clients are not left hanging.
                let _stop = StopOnDrop { shared: &shared };
                Worker::new(index, poll, received, Arc::clone(&shared)).run()
            })?;
            self.inboxes.push(inbox);
            self.threads.push(thread);
        }
        Ok(())
    }

    fn stop(self) -> Result<(), ServeError> {
        self.shared.stop();
        let mut outcome = Ok(());
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(source)) => outcome = Err(ServeError::EventLoop { source }),
                Err(_) => return Err(ServeError::WorkerPanicked),
            }
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
fn accept(
    listener: &TcpListener,
    mut poll: Poll,
    shared: &Shared,
    inboxes: &[Sender<TcpStream>],
) -> io::Result<()> {
    let mut events = Events::with_capacity(8);
    // Set while the system has no room for another connection: no event will tell when it has.
    let mut retry = None;
    let mut measured = Instant::now();
    while !shared.is_stopping() {
        let tick = shared.memory_limit.tick();
        let wait = [retry.take(), tick.map(|tick| tick.saturating_sub(measured.elapsed()))];
        match poll.poll(&mut events, wait.into_iter().flatten().min()) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            outcome => outcome?,
        }
        if tick.is_some_and(|tick| measured.elapsed() >= tick) {
            shared.has_room(0);
            measured = Instant::now();
        }
        loop {
            match listener.accept() {
                Ok((stream, _)) if shared.connections_open.load(Relaxed) >= shared.config.clients_max => {
                    reject(stream, shared);
                }
                Ok((stream, _)) => {
                    let worker = shared.deal();
                    // A worker that is gone has stopped the server.
                    let _ = inboxes[worker].send(stream);
                    shared.wake(worker);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => break,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        retry = Some(Duration::from_millis(100));
                        break;
                    }
                },
            }
        }
    }
    Ok(())
}

fn reject(mut stream: TcpStream, shared: &Shared) {
    shared.connections_rejected.fetch_add(1, Relaxed);
    // A fresh socket has room for a line; if not, closing says enough.
    let _ = stream.write_all(b"-ERR max number of clients reached\r\n");
}
