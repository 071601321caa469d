//! Settings of a server, and the errors of starting it.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::output_limits::OutputLimits;
use crate::password::Password;
use crate::tls::Tls;

/// What a server tells of a store that is not open yet.
#[derive(Debug, Clone, Default)]
pub struct ExpectedStore {
    /// When a write is on the disk, in the words of `appendfsync`; `None` for a store without a folder.
    pub durability: Option<String>,
    /// Whether it will evict keys at the limit.
    pub evicts: bool,
}

/// A server's settings. `Config::default()` listens where Redis does, for this machine only.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// Address to listen on.
    pub bind: IpAddr,
    /// TCP port; 0 takes a free one.
    pub port: u16,
    /// A port for clients with TLS.
    pub tls: Option<Tls>,
    /// Whether the server listens at `port`, too, for clients without TLS.
    pub plain: bool,
    /// Refuses addresses that other machines can reach, unless there is a password.
    pub protected_mode: bool,
    /// The password that clients must send with `AUTH` first. `None` lets every client in.
    pub password: Option<Password>,
    /// Worker threads, each with its own event loop; at least 1.
    pub threads: usize,
    /// Connections at a time; more are answered with an error and closed.
    pub clients_max: usize,
    /// Seconds after which an idle client is disconnected; 0 for never.
    pub timeout_s: u64,
    /// Seconds of silence after which the system asks whether a client is still there; 0 for never.
    pub keepalive_s: u64,
    /// Limits at which clients that do not read their replies are disconnected; by default none.
    pub output_limits: OutputLimits,
    /// Bytes of memory that the process may use, without memory that belongs to files. The store gets what everything
    /// else leaves. Writes that do not fit are refused. Requests too large to be kept are read and dropped.
    pub memory_limit_bytes: Option<u64>,
    /// Makes the allocator return its free pages to the system, if it keeps any.
    pub release_memory: Option<fn()>,
    /// Bytes that unfinished requests and unsent replies of all connections may hold together. Above it, large
    /// unfinished requests are dropped and refused, and clients must take their replies before they may ask for more.
    /// `None` stands for a quarter of the memory limit, but at least 1 MiB, and follows `CONFIG SET maxmemory`. Without
    /// a limit it stands for 2 GiB.
    pub client_bytes_max: Option<usize>,
    /// Bytes in the process's allocator, for `INFO memory`; without it the store's own figure is shown.
    pub allocated_bytes: Option<fn() -> u64>,
    /// The store that [`Opener::open`](crate::Opener::open) will bring.
    pub expected_store: ExpectedStore,
}

impl Default for Config {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 6379,
            tls: None,
            plain: true,
            protected_mode: true,
            password: None,
            threads: cores.min(4),
            clients_max: 10_000,
            timeout_s: 0,
            keepalive_s: 300,
            output_limits: OutputLimits::default(),
            memory_limit_bytes: None,
            release_memory: None,
            client_bytes_max: None,
            allocated_bytes: None,
            expected_store: ExpectedStore::default(),
        }
    }
}

/// Bytes that clients may hold without a limit on memory.
const CLIENT_BYTES_MAX: usize = 2 << 30;
/// The least that clients may hold. Otherwise they may hold one part in `CLIENT_PART` of the limit.
const CLIENT_BYTES_MIN: usize = 1 << 20;
const CLIENT_PART: u64 = 4;

impl Config {
    /// Bytes that all clients may hold under a memory limit; 0 stands for no limit.
    pub(crate) fn client_bytes_max(&self, memory_limit_bytes: u64) -> usize {
        self.client_bytes_max.unwrap_or_else(|| match memory_limit_bytes {
            0 => CLIENT_BYTES_MAX,
            limit => usize::try_from(limit / CLIENT_PART).unwrap_or(usize::MAX).max(CLIENT_BYTES_MIN),
        })
    }

    /// The addresses to listen on, and whether for TLS.
    ///
    /// # Errors
    ///
    /// If protected mode forbids the address, if there would be no thread to serve it, or if both ports are one.
    pub(crate) fn addresses(&self) -> Result<Vec<(SocketAddr, bool)>, ServeError> {
        let address = SocketAddr::new(self.bind, self.port);
        if self.is_exposed(self.password.is_some()) {
            return Err(ServeError::NotLoopback { address });
        }
        if self.threads == 0 {
            return Err(ServeError::NoThreads);
        }
        let is_twice = |tls: &Tls| self.plain && tls.port == self.port && self.port != 0;
        if self.tls.as_ref().is_some_and(is_twice) {
            return Err(ServeError::SamePort { port: self.port });
        }
        let plain = self.plain.then_some((address, false));
        let tls = self.tls.as_ref().map(|tls| (SocketAddr::new(self.bind, tls.port), true));
        Ok(plain.into_iter().chain(tls).collect())
    }

    /// Whether protected mode forbids to listen at this address, with or without a password.
    pub(crate) fn is_exposed(&self, has_password: bool) -> bool {
        self.protected_mode && !has_password && !self.bind.is_loopback()
    }
}

/// Why a server did not start, or stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is reachable from other machines, there is no password, and protected mode is on.
    NotLoopback {
        /// The requested address.
        address: SocketAddr,
    },
    /// Zero worker threads were asked for.
    NoThreads,
    /// Neither a plain port nor one for TLS was asked for.
    NoPort,
    /// One port was asked for clients with TLS and for those without.
    SamePort {
        /// The port.
        port: u16,
    },
    /// Another process listens there.
    AddressInUse {
        /// The requested address.
        address: SocketAddr,
    },
    /// The system refused the address for another reason.
    Bind {
        /// The requested address.
        address: SocketAddr,
        /// The system's answer.
        source: io::Error,
    },
    /// The system refused something that an event loop needs.
    EventLoop {
        /// The system's answer.
        source: io::Error,
    },
    /// A worker panicked; the others were stopped.
    WorkerPanicked,
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoopback { address } => write!(
                f,
                "refused to listen on {address}: other machines can reach it and there is no password; set one \
                 (--requirepass), bind 127.0.0.1 or, on a network you trust, say --protected-mode no"
            ),
            Self::NoPort => f.write_str("cannot serve without a port; ask for a plain one or one for TLS"),
            Self::NoThreads => f.write_str("cannot serve with 0 threads; ask for at least 1"),
            Self::SamePort { port } => write!(
                f,
                "cannot listen on port {port} for TLS and for clients without; name another --tls-port, or say \
                 --tls-only"
            ),
            Self::AddressInUse { address } => write!(
                f,
                "could not listen on {address}: another process already does; stop it, or choose another --port or \
                 --tls-port"
            ),
            Self::Bind { address, source } => {
                write!(f, "could not listen on {address}: {source}; check --bind and --port")
            }
            Self::EventLoop { source } => write!(
                f,
                "could not run an event loop: {source}; check the limits on open files and threads (ulimit -n -u)"
            ),
            Self::WorkerPanicked => f.write_str(
                "stopped because a worker thread panicked; its message is above, please report it",
            ),
        }
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Bind { source, .. } | Self::EventLoop { source } => Some(source),
            _ => None,
        }
    }
}
