//! What all workers of a server share: the store, counters, the list of clients, the stop flag.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use mio::Waker;

use crate::backend::Backend;
use crate::config::Config;
use crate::cursors::Cursors;
use crate::memory_limit::MemoryLimit;
use crate::refusal::Refusal;

/// What a command may take without a look at the memory limit: the next tick sees it.
pub(crate) const UNMEASURED_BYTES_MAX: usize = 64 << 10;

/// Clients of one worker that share a wait for the disk: two workers with half of them each would wait twice as often.
const SHARED_WAIT_CLIENTS: usize = 64;

/// One server's state.
pub(crate) struct Shared {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) config: Config,
    /// Replies wait for what they say to be durable.
    pub(crate) holds_replies: bool,
    /// And that takes as long as the disk does.
    waits_for_disk: bool,
    pub(crate) address: SocketAddr,
    pub(crate) started: Instant,
    pub(crate) started_unix_ms: u64,
    pub(crate) cursors: Cursors,
    /// One per worker, each written by its worker alone.
    pub(crate) counters: Vec<Counters>,
    pub(crate) connections_accepted: AtomicU64,
    pub(crate) connections_rejected: AtomicU64,
    pub(crate) connections_open: AtomicUsize,
    /// Those of each worker.
    worker_connections: Vec<AtomicUsize>,
    /// Bytes of unfinished requests and unsent replies of all connections.
    pub(crate) client_bytes: AtomicUsize,
    pub(crate) memory_peak_bytes: AtomicU64,
    pub(crate) memory_limit: MemoryLimit,
    clients: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    stopping: AtomicBool,
    wakers: Vec<Waker>,
}

impl Shared {
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        config: Config,
        address: SocketAddr,
        wakers: Vec<Waker>,
    ) -> Self {
        let memory_limit = MemoryLimit::new(config.memory_limit_bytes, config.release_memory);
        let worker_connections = (0..config.threads).map(|_| AtomicUsize::new(0)).collect();
        let counters = (0..config.threads).map(|_| Counters::default()).collect();
        Self {
            holds_replies: backend.holds_replies(),
            waits_for_disk: backend.waits_for_disk(),
            backend,
            config,
            address,
            started: Instant::now(),
            started_unix_ms: unix_ms(),
            cursors: Cursors::new(),
            counters,
            connections_accepted: AtomicU64::new(0),
            connections_rejected: AtomicU64::new(0),
            connections_open: AtomicUsize::new(0),
            worker_connections,
            client_bytes: AtomicUsize::new(0),
            memory_peak_bytes: AtomicU64::new(0),
            memory_limit,
            clients: Mutex::new(BTreeMap::new()),
            stopping: AtomicBool::new(false),
            wakers,
        }
    }

    /// Counts a connection in, and says which worker is to have it: the one with the fewest, but where replies wait for the disk the
    /// first one that has not enough of them to share each wait.
    pub(crate) fn deal(&self) -> usize {
        let open = |index: &usize| self.worker_connections[*index].load(Relaxed);
        let workers = 0..self.worker_connections.len();
        let filled = if self.waits_for_disk { SHARED_WAIT_CLIENTS } else { 0 };
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

    /// Sum over the workers.
    pub(crate) fn total(&self, counter: impl Fn(&Counters) -> &Counter) -> u64 {
        self.counters.iter().map(|counters| counter(counters).get()).sum()
    }

    /// Whether the process may hold `bytes` more.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.memory_limit.has_room(bytes as u64, &*self.backend)
    }

    /// Keeps the memory limit beside requests of so many bytes together that were served.
    pub(crate) fn note_requests(&self, requests: u64, bytes: usize) {
        self.memory_limit.note_requests(requests, bytes as u64, &*self.backend);
    }

    /// Refuses what would take `bytes` more than there is room for. Small things go unmeasured.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), Refusal> {
        let fits = bytes <= UNMEASURED_BYTES_MAX || self.has_room(bytes);
        if fits { Ok(()) } else { Err(Refusal::OUT_OF_MEMORY) }
    }

    /// The limit on memory, of the process or of the store alone; 0 for none.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.memory_limit.limit_bytes().or(self.backend.memory().limit_bytes).unwrap_or(0)
    }

    /// Connections together hold more than they may.
    pub(crate) fn clients_over_budget(&self) -> bool {
        self.client_bytes.load(Relaxed) > self.config.client_bytes_max || self.memory_limit.is_tight()
    }
}

/// Milliseconds of Unix time.
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// One worker's counters. The alignment keeps workers out of each other's cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) commands: Counter,
    pub(crate) errors: Counter,
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
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

/// What `CLIENT LIST` tells of a connection.
#[derive(Debug)]
pub(crate) struct ClientInfo {
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) connected: Instant,
    pub(crate) names: Mutex<ClientNames>,
}

/// What a client has said of itself.
#[derive(Debug, Default, Clone)]
pub(crate) struct ClientNames {
    pub(crate) name: String,
    pub(crate) library: String,
    pub(crate) library_version: String,
    pub(crate) resp3: bool,
}

impl ClientInfo {
    pub(crate) fn names(&self) -> MutexGuard<'_, ClientNames> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
