//! Recorded histories of concurrent clients, and whether they are linearizable.
//!
//! The tests of the store and of the server use this crate; nothing that users run does. It must not know what a store
//! or a server is.
//!
//! 1. [`record`] gives each [`Client`] a thread and a seeded sequence of [`Call`]s on [`KEYS`] keys.
//! 2. Each call and each [`Answer`] takes a ticket from one counter, which orders them in real time.
//! 3. [`History::check`] asks the checker of `todc-utils` (Wing, Gong and Lowe's algorithm) for an order of all calls
//!    that agrees with the tickets and explains every answer.
//!
//! ```
//! use ziptier_histories::{Answer, Call, Client, Loss, record};
//!
//! /// A map that nobody shares needs no lock.
//! struct Map([Option<u64>; ziptier_histories::KEYS]);
//!
//! impl Client for Map {
//!     fn call(&mut self, call: &Call) -> Answer {
//!         match *call {
//!             Call::Get(key) => Answer::Value(self.0[key]),
//!             Call::Put(key, value) => {
//!                 self.0[key] = Some(value);
//!                 Answer::Done(true)
//!             }
//!             _ => Answer::Refused,
//!         }
//!     }
//! }
//!
//! let history = record(1, &mut [Map(Default::default())], 100);
//! history.check(Loss::Never).expect("one client is always linearizable");
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod model;
mod recorder;

pub use model::{Answer, Call, Loss};
pub use recorder::{Client, History, record};

/// Keys of a history: few, so that clients meet at them.
pub const KEYS: usize = 8;
