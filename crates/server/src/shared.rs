//! State that all workers of a server share: the store, counters, the list of clients, the stop flag.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use mio::Waker;
use mio::net::TcpStream;

use crate::backend::{Backend, Chosen, ValueReader};
use crate::budget::Budget;
use crate::config::Config;
use crate::cursors::Cursors;
use crate::jobs::{self, Done, Jobs};
use crate::memory_limit::{MemoryLimit, Reservation};
use crate::opened::Opened;
use crate::refusal::Refusal;
use crate::settings::Settings;

/// Bytes that a command may take without a check of the memory limit. The next measurement covers them.
const UNMEASURED_BYTES_MAX: usize = 64 << 10;

/// Clients of one worker that share a wait for the disk. Two workers with half of them each would wait twice as often.
const SHARED_WAIT_CLIENTS: usize = 64;

/// One server's state.
pub(crate) struct Shared {
    /// The store, once its recovery is done.
    pub(crate) backend: Opened,
    /// How the server was started.
    pub(crate) config: Config,
    /// The settings that may change while the server runs.
    pub(crate) settings: Settings,
    pub(crate) address: SocketAddr,
    pub(crate) started: Instant,
    pub(crate) started_unix_ms: u64,
    pub(crate) cursors: Cursors,
    /// One per worker, each written by its worker alone.
    pub(crate) counters: Vec<Counters>,
    pub(crate) connections_accepted: AtomicU64,
    pub(crate) connections_rejected: AtomicU64,
    pub(crate) connections_open: AtomicUsize,
    /// Connections of each worker.
    worker_connections: Vec<AtomicUsize>,
    /// Bytes of unfinished requests and unsent replies of all connections.
    pub(crate) budget: Budget,
    /// Requests that run on threads of their own.
    pub(crate) jobs: Jobs,
    inboxes: Vec<Sender<Message>>,
    pub(crate) memory_peak_bytes: AtomicU64,
    pub(crate) memory_limit: MemoryLimit,
    /// The sums at the last reset of the counters.
    pub(crate) counted_before: Mutex<Totals>,
    clients: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    /// Seconds since the start, as far as idle clients are concerned.
    seconds: AtomicU64,
    /// The number of times workers were asked to look for clients to disconnect.
    sweeps: AtomicU64,
    stopping: AtomicBool,
    wakers: Vec<Waker>,
}

impl Shared {
    pub(crate) fn new(
        config: Config,
        clients_possible: usize,
        address: SocketAddr,
        wakers: Vec<Waker>,
        inboxes: Vec<Sender<Message>>,
    ) -> Self {
        let memory_limit = MemoryLimit::new(config.memory_limit_bytes, config.release_memory);
        let worker_connections = (0..config.threads).map(|_| AtomicUsize::new(0)).collect();
        let counters = (0..config.threads + jobs::THREADS).map(|_| Counters::default()).collect();
        let started_unix_ms = unix_ms();
        Self {
            backend: Opened::expecting(config.expected_store.clone(), started_unix_ms),
            settings: Settings::new(&config, clients_possible),
            budget: Budget::new(config.client_bytes_max(config.memory_limit_bytes.unwrap_or(0))),
            jobs: Jobs::default(),
            inboxes,
            config,
            address,
            started: Instant::now(),
            started_unix_ms,
            cursors: Cursors::new(),
            counters,
            connections_accepted: AtomicU64::new(0),
            connections_rejected: AtomicU64::new(0),
            connections_open: AtomicUsize::new(0),
            worker_connections,
            memory_peak_bytes: AtomicU64::new(0),
            memory_limit,
            counted_before: Mutex::default(),
            clients: Mutex::new(BTreeMap::new()),
            seconds: AtomicU64::new(0),
            sweeps: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            wakers,
        }
    }

    /// The database that a client uses.
    pub(crate) fn backend_of<'a>(&'a self, chosen: &'a Chosen) -> &'a dyn Backend {
        match chosen {
            Some(database) => &**database,
            None => &*self.backend,
        }
    }

    /// Counts a connection in, and returns its worker: the one with the fewest connections. If replies wait for the
    /// disk, it is the first worker with too few connections to share each wait.
    pub(crate) fn deal(&self) -> usize {
        let open = |index: &usize| self.worker_connections[*index].load(Relaxed);
        let workers = 0..self.worker_connections.len();
        let filled = if self.backend.waits_for_disk() { SHARED_WAIT_CLIENTS } else { 0 };
        let first = workers.clone().find(|index| open(index) < filled);
        let index = first.or_else(|| workers.min_by_key(open)).unwrap_or_default();
        self.worker_connections[index].fetch_add(1, Relaxed);
        self.connections_open.fetch_add(1, Relaxed);
        index
    }

    /// Counts a connection of a worker out.
    pub(crate) fn drop_connection(&self, worker: usize) {
        self.worker_connections[worker].fetch_sub(1, Relaxed);
        self.connections_open.fetch_sub(1, Relaxed);
    }

    /// Asks every thread of the server to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Relaxed);
        for index in 0..self.wakers.len() {
            self.wake(index);
        }
        self.jobs.wake();
    }

    /// Sends a message to a worker. If a worker has ended, the server is stopping.
    pub(crate) fn send(&self, worker: usize, message: Message) {
        let _ = self.inboxes[worker].send(message);
        self.wake(worker);
    }

    /// Hands the outcome of a request to the worker whose client sent it.
    pub(crate) fn finish(&self, worker: usize, done: Done) {
        self.send(worker, Message::Done(Box::new(done)));
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    /// Wakes event loop `index`; the acceptor's is the last.
    pub(crate) fn wake(&self, index: usize) {
        // Failure means the loop is gone or about to look by itself: its wake-up counter is full.
        let _ = self.wakers[index].wake();
    }

    pub(crate) fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ClientInfo>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds since the start, as far as idle clients are concerned.
    pub(crate) fn seconds(&self) -> u64 {
        self.seconds.load(Relaxed)
    }

    /// Advances the clock by `seconds`, and disconnects clients that were idle for too long.
    pub(crate) fn pass_seconds(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Relaxed);
        self.used_bytes();
        if self.settings.watches_clients() {
            self.sweep();
        }
        self.look_at_readers();
    }

    /// Bytes that the process uses now, and their peak. The peak is taken each second and at each `INFO`.
    pub(crate) fn used_bytes(&self) -> (u64, u64) {
        let used = match self.config.allocated_bytes {
            Some(bytes) => bytes(),
            None => self.backend.memory().held_bytes + self.budget.held_bytes() as u64,
        };
        (used, self.memory_peak_bytes.fetch_max(used, Relaxed).max(used))
    }

    /// Makes clients with large replies count values that no key has any more. A client that reads nothing gets no turn
    /// of its own to do so.
    pub(crate) fn look_at_readers(&self) {
        if self.backend.open_values() > 0 {
            self.sweep();
        }
    }

    /// The number of sweeps asked for. A worker with another number has clients to check.
    pub(crate) fn sweeps(&self) -> u64 {
        self.sweeps.load(Relaxed)
    }

    /// Makes workers disconnect the clients that have to go.
    pub(crate) fn sweep(&self) {
        self.sweeps.fetch_add(1, Relaxed);
        for index in 0..self.wakers.len() {
            self.wake(index);
        }
    }

    /// Wakes the thread that accepts connections and keeps the memory limit.
    pub(crate) fn wake_acceptor(&self) {
        self.wake(self.wakers.len() - 1);
    }

    /// Sums over the workers since they were last reset.
    pub(crate) fn totals(&self) -> Totals {
        let before = self.counted_before.lock().unwrap_or_else(PoisonError::into_inner);
        self.totals_since_start().less(&before)
    }

    /// Lets the sums begin anew.
    pub(crate) fn reset_totals(&self) {
        let mut before = self.counted_before.lock().unwrap_or_else(PoisonError::into_inner);
        *before = self.totals_since_start();
    }

    fn totals_since_start(&self) -> Totals {
        Totals([
            self.connections_accepted.load(Relaxed),
            self.total(|counters| &counters.commands),
            self.total(|counters| &counters.bytes_in),
            self.total(|counters| &counters.bytes_out),
            self.connections_rejected.load(Relaxed),
            self.backend.evicted_keys(),
            self.total(|counters| &counters.hits),
            self.total(|counters| &counters.misses),
            self.total(|counters| &counters.errors),
            self.total(|counters| &counters.refused_writes),
        ])
    }

    /// Up to `count` clients with numbers above `after`, in their order.
    pub(crate) fn clients_after(&self, after: u64, count: usize) -> Vec<Arc<ClientInfo>> {
        self.clients().range(after + 1..).take(count).map(|(_, info)| Arc::clone(info)).collect()
    }

    /// Marks the clients that hold most for disconnection, until the budget has room again.
    pub(crate) fn evict_clients(&self) {
        let clients = self.clients();
        let (mut going, mut staying) = (self.budget.running_bytes(), Vec::new());
        for info in clients.values() {
            let held = info.held_bytes.load(Relaxed).saturating_sub(info.job_bytes.load(Relaxed));
            match info.killed.load(Relaxed) {
                true => going += held,
                false if held > 0 => staying.push((held, info)),
                false => {}
            }
        }
        staying.sort_unstable_by_key(|(held, _)| std::cmp::Reverse(*held));
        let mut excess = self.budget.excess_bytes(going);
        for (held, info) in staying {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(held);
            if !info.killed.swap(true, Relaxed) {
                self.budget.evicted.fetch_add(1, Relaxed);
            }
        }
        drop(clients);
        self.sweep();
    }

    /// Counts a request that was refused because the budget lacked `bytes`.
    pub(crate) fn note_refusal(&self, bytes: usize) {
        if self.budget.note_refusal(bytes) {
            self.evict_clients();
        }
    }

    /// Refuses a reply for which `value` would hold more memory than other clients than `client` have left, before the
    /// reply begins.
    pub(crate) fn check_room_for(&self, client: &ClientInfo, value: &dyn ValueReader) -> Result<(), Refusal> {
        let others = self.budget.held_bytes().saturating_sub(client.held_bytes.load(Relaxed));
        if value.own_bytes() <= self.budget.limit_bytes().saturating_sub(others) {
            return Ok(());
        }
        self.note_refusal(value.own_bytes());
        Err(Refusal::OUT_OF_MEMORY)
    }

    /// Sum over the workers.
    pub(crate) fn total(&self, counter: impl Fn(&Counters) -> &Counter) -> u64 {
        self.counters.iter().map(|counters| counter(counters).get()).sum()
    }

    /// Whether the process may hold `bytes` more.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        // A recovery keeps the limit by itself, and its memory cannot be told from free memory.
        self.backend.is_loading() || self.memory_limit.has_room(bytes as u64, &*self.backend)
    }

    /// Counts `requests` served requests of `bytes` bytes together, `writes` of which write, for the memory limit.
    pub(crate) fn note_requests(&self, requests: u64, writes: u64, bytes: usize) {
        if !self.backend.is_loading() {
            self.memory_limit.note_requests(requests, writes, bytes as u64, &*self.backend);
        }
    }

    /// Promises `bytes` to a request while it holds the returned value, or refuses it. Small requests are not measured.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Option<Reservation<'_>>, Refusal> {
        if bytes <= UNMEASURED_BYTES_MAX || self.backend.is_loading() {
            return Ok(None);
        }
        let reserved = self.memory_limit.reserve(bytes as u64, &*self.backend);
        reserved.map(Some).ok_or(Refusal::OUT_OF_MEMORY)
    }

    /// The limit on memory, of the process or of the store alone; 0 for none.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.memory_limit.set_bytes().or(self.backend.memory().limit_bytes).unwrap_or(0)
    }

    /// What becomes of writes beyond the limit, in Redis's words.
    pub(crate) fn eviction_policy(&self) -> &'static str {
        if self.backend.evicts() { "allkeys-s3fifo" } else { "noeviction" }
    }

    /// Changes the memory limit of the process, 0 for none, and what clients may hold of it.
    pub(crate) fn set_memory_limit(&self, limit_bytes: u64) {
        self.budget.set_limit(self.config.client_bytes_max(limit_bytes));
        self.memory_limit.set(limit_bytes, &*self.backend);
        // The acceptor then measures at the interval of the new limit.
        self.wake_acceptor();
    }

    /// Connections together hold more than they may.
    pub(crate) fn clients_over_budget(&self) -> bool {
        self.budget.is_tight() || self.memory_limit.is_tight()
    }
}

/// The names that `INFO stats` has for the sums over all workers.
pub(crate) const TOTALS: [&str; 10] = [
    "total_connections_received",
    "total_commands_processed",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "rejected_connections",
    "evicted_keys",
    "keyspace_hits",
    "keyspace_misses",
    "total_error_replies",
    "refused_writes",
];

/// Sums over all workers, in the order of [`TOTALS`].
#[derive(Debug, Default)]
pub(crate) struct Totals(pub(crate) [u64; TOTALS.len()]);

impl Totals {
    fn less(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|index| self.0[index].saturating_sub(before.0[index])))
    }
}

/// Milliseconds of Unix time, by the clock that keys expire by: a time to live must be counted from there.
pub(crate) fn unix_ms() -> u64 {
    ziptier::Clock::system().now_ms()
}

/// One worker's counters. The alignment keeps workers out of each other's cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) commands: Counter,
    /// Commands that may write, those included that were handed to another thread.
    pub(crate) writes: Counter,
    pub(crate) errors: Counter,
    /// Writes for which there was no memory, and requests that were dropped for the same reason.
    pub(crate) refused_writes: Counter,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    /// Rounds of the event loop.
    pub(crate) cycles: Counter,
}

impl Counters {
    /// Counts the look-up of a key by a command that reads it. Redis counts none for commands that only write.
    pub(crate) fn note_lookup(&self, found: bool) {
        if found { &self.hits } else { &self.misses }.add(1);
    }
}

/// A number that one thread adds to and any may read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Only the owner calls this, so no locked instruction is needed.
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(count), Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A message to a worker.
pub(crate) enum Message {
    /// A new client, and whether it speaks TLS.
    Connection(TcpStream, bool),
    /// The result of a request that ran on another thread.
    Done(Box<Done>),
}

/// The part of a connection that is known outside of its worker.
#[derive(Debug)]
pub(crate) struct ClientInfo {
    pub(crate) id: u64,
    /// Bytes that it has taken from the budget.
    pub(crate) held_bytes: AtomicUsize,
    /// Bytes of the client's request that another thread runs. The request holds them even if the client goes.
    pub(crate) job_bytes: AtomicUsize,
    names_bytes: AtomicUsize,
    pub(crate) peer: SocketAddr,
    pub(crate) address: SocketAddr,
    pub(crate) connected: Instant,
    /// The time of its last activity, in [`Shared::seconds`].
    pub(crate) active_s: AtomicU64,
    /// It is to be disconnected.
    pub(crate) killed: AtomicBool,
    names: Mutex<ClientNames>,
}

/// The names that a client has given itself.
#[derive(Debug, Default, Clone)]
pub(crate) struct ClientNames {
    pub(crate) name: String,
    pub(crate) library: String,
    pub(crate) library_version: String,
    pub(crate) resp3: bool,
}

impl ClientInfo {
    pub(crate) fn new(id: u64, peer: SocketAddr, address: SocketAddr, active_s: u64) -> Self {
        Self {
            id,
            held_bytes: AtomicUsize::new(0),
            job_bytes: AtomicUsize::new(0),
            names_bytes: AtomicUsize::new(0),
            peer,
            address,
            active_s: AtomicU64::new(active_s),
            killed: AtomicBool::new(false),
            connected: Instant::now(),
            names: Mutex::default(),
        }
    }

    /// Bytes of the names that the client has given itself.
    pub(crate) fn names_bytes(&self) -> usize {
        self.names_bytes.load(Relaxed)
    }

    /// Changes the names that the client has given itself.
    pub(crate) fn rename(&self, change: impl FnOnce(&mut ClientNames)) {
        let mut names = self.names();
        change(&mut names);
        let bytes = names.name.capacity() + names.library.capacity() + names.library_version.capacity();
        self.names_bytes.store(bytes, Relaxed);
    }

    pub(crate) fn names(&self) -> MutexGuard<'_, ClientNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
