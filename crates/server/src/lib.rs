//! A server that speaks the Redis protocol (RESP2 and RESP3) over TCP, with TLS or without, in front of a key-value
//! store.
//!
//! Every Redis client works with it unchanged. The store is anything that implements [`Backend`]. The server brings
//! connections, request parsing, the commands and their error words. It knows nothing about leaves or codecs.
//!
//! ```no_run
//! use std::sync::Arc;
//! use ziptier_server::{Config, Server, StoreBackend};
//!
//! let store = StoreBackend::open(ziptier::Options::default())?;
//! let mut config = Config::default();
//! config.port = 0;
//! let server = Server::bind(config, Arc::new(store))?;
//! println!("redis-cli -p {}", server.address().port());
//! let stopper = server.stopper();
//! std::thread::spawn(move || {
//!     std::thread::sleep(std::time::Duration::from_secs(60));
//!     stopper.stop();
//! });
//! server.run()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How a request travels
//!
//! ```text
//! listener ── server ──round robin──> worker (one thread, one event loop, many connections)
//!                                       └ connection: read ─> request ─> command ─> reply ─> write
//!                                                                          └ Backend
//! ```
//!
//! A worker reads into one buffer that all its connections share, parses every complete request in it, runs them,
//! and writes all replies at once. A connection owns memory only while a request is unfinished or a reply unsent.
//!
//! # Modules
//!
//! - [`backend`]: the trait that a store implements
//! - [`config`]: settings, and what can go wrong at start
//! - [`request`]: bytes into arguments; the limits on both
//! - `inline`, `integer`, `long_double`, `glob`: the small languages inside requests
//! - `command`: the table of commands, one file per family
//! - `reply`, `refusal`: RESP2 and RESP3 output; Redis's error words
//! - `streaming`: replies that are made or sent in pieces
//! - `walk`: the keys in order, as `SCAN` and `KEYS` need them
//! - `range`: records in the order of their keys
//! - `cursors`: where every `SCAN` stands
//! - [`password`]: what clients must send first
//! - `opened`: the store, and what stands in for it while it recovers
//! - `settings`: what `CONFIG SET` changes
//! - `socket`, `connection`, `worker`, [`server`]: sockets, event loops, start and stop
//! - `tls`: certificates and keys, and connections that encrypt
//! - `jobs`: threads for requests that take long
//! - `budget`: what all clients together may make the server hold
//! - `store_backend`: the ziptier store as a [`Backend`]
//! - `memory_limit`: what the store may hold so that the process keeps its limit
//! - `shared`, `process`: state of all workers; what the system says about this process
//!
//! # When not to use it
//!
//! Commands with few and short arguments run to their end on the worker that read them, others on the threads of
//! `jobs`. A store that blocks for long on every read, on a disk for instance, would stall the workers.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod backend;
mod budget;
mod command;
pub mod config;
mod connection;
mod cursors;
mod glob;
mod inline;
mod integer;
mod jobs;
mod long_double;
mod memory_limit;
mod opened;
mod output_limits;
pub mod password;
mod process;
mod range;
mod refusal;
mod reply;
pub mod request;
pub mod server;
mod settings;
mod shared;
mod socket;
mod store_backend;
mod streaming;
mod tls;
mod walk;
mod worker;

pub use backend::{
    Access, Backend, BackendError, Chosen, DatabaseName, Databases, FarUse, ListedDatabase, MemoryUse, Meta,
    Need, Old, Operation, Patience, Save, Saving, Transfer, Transferred, Update, ValueReader,
};
pub use config::{Config, ExpectedStore, ServeError};
pub use output_limits::OutputLimits;
pub use password::{Password, PasswordError};
pub use process::raise_open_files;
pub use server::{Opener, Server, Stopper};
pub use store_backend::StoreBackend;
pub use tls::{AuthClients, Tls, TlsError, TlsFiles};
