//! The trait that the server needs of a store.
//!
//! The trait is small and object-safe. One indirect call per command is cheap beside a socket, and the server is
//! compiled once. All workers share an implementation, so every method takes `&self` and may run at the same time as
//! any other. Expired keys are invisible to every method.
//!
//! An implementation must hold three promises that commands are built on:
//!
//! - [`Backend::update`] is atomic for its key.
//! - [`Backend::write`] is seen whole or not at all.
//! - [`Backend::keys_from`] meets every key that exists throughout a walk.

mod databases;
mod memory;
mod value_reader;

pub use databases::{Chosen, DatabaseName, Databases, ListedDatabase};
pub use memory::{FarUse, MemoryUse};
pub use value_reader::{Borrowed, ValueReader};

use std::fmt;
use std::ops::Bound;

/// The properties of a value that are known without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// Length in bytes.
    pub len: u64,
    /// The time at which the key expires, in milliseconds of Unix time.
    pub expires_at_ms: Option<u64>,
}

/// The coming access to keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// They are read.
    Read,
    /// They are written to.
    Write,
}

/// The result of an update by [`Backend::update`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Update {
    /// Give the key this value.
    Put {
        /// The new value.
        value: Vec<u8>,
        /// Its expiry in milliseconds of Unix time.
        expires_at_ms: Option<u64>,
    },
    /// Keep the value and change its expiry. A missing key stays missing.
    Expire {
        /// The expiry in milliseconds of Unix time.
        expires_at_ms: Option<u64>,
    },
    /// No key.
    Delete,
    /// Change nothing.
    Keep,
}

/// A value as [`Backend::update`] finds it.
pub enum Old<'a> {
    /// All of its few bytes.
    Whole(&'a [u8]),
    /// A large value, not yet read, because there may be no room for it.
    Large(Box<dyn ValueReader>),
}

/// One step of [`Backend::write`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Stores a value without expiry.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
    },
    /// Removes a key, if it is there.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Writes nothing at all if the key exists.
    RequireAbsent {
        /// The key.
        key: &'a [u8],
    },
}

/// Options of [`Backend::transfer`] for the source, and for an existing target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Leave the source where it is.
    pub keep_source: bool,
    /// Replace an existing target.
    pub replace: bool,
}

/// How a [`Backend::transfer`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transferred {
    /// The target has the source's value and expiry.
    Done,
    /// There is no source; nothing was changed.
    NoSource,
    /// The target exists and was to be kept; nothing was changed.
    TargetExists,
    /// The caller did not grant a [`Need`]; nothing was changed.
    NotGranted,
}

/// A need of [`Backend::transfer`] that the caller must grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Time: another write of several keys is under way, and may take any length of time.
    Wait,
    /// Memory for a copy of this many bytes of the value.
    Bytes(u64),
}

/// How [`Backend::save`] goes about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Save {
    /// In the background, unless a save is under way.
    Begin,
    /// Before it returns, unless a save is under way.
    Make,
    /// Before it returns, after a save that is under way.
    MakeNext,
}

/// What came of [`Backend::save`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saving {
    /// It is done, or has begun.
    Done,
    /// One is under way already.
    UnderWay,
    /// There is no folder.
    NoFolder,
}

/// How long a walk over keys may take to its next key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Some milliseconds, because other clients wait. A walk that would take longer ends with
    /// [`BackendError::TakesLong`].
    Brief,
    /// Any length of time.
    Endless,
}

/// The reason why a store refused: one sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendError {
    /// The write would exceed the memory limit.
    MemoryLimit,
    /// A walk with [`Patience::Brief`] comes to so many deleted keys that it would take long. Clients never see this: a
    /// thread of its own takes over.
    TakesLong,
    /// The next keys of a walk cannot be read.
    UnreadKeys {
        /// The store's own words.
        words: String,
        /// The place behind these keys, at which a walk may go on; `None` if they are the last ones.
        next: Option<Vec<u8>>,
    },
    /// Anything else, in the store's own words.
    Refused(String),
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemoryLimit => f.write_str("the memory limit is reached; delete keys or raise the limit"),
            Self::TakesLong => f.write_str("the walk comes to many deleted keys; run it on another thread"),
            Self::UnreadKeys { words, .. } | Self::Refused(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for BackendError {}

/// A key-value store behind the server.
///
/// Keys of every length up to the protocol's 512 MiB arrive here. A store refuses keys that it does not accept (an
/// empty key, a long one) with a sentence.
pub trait Backend: Send + Sync {
    /// Looks `key` up. If its value has at most `bytes_max` bytes, `value` holds exactly that value afterwards.
    /// Otherwise `value` is empty, and the caller opens the value. `value` is also empty if there is no such key.
    fn get_into(
        &self,
        key: &[u8],
        bytes_max: usize,
        value: &mut Vec<u8>,
    ) -> Result<Option<Meta>, BackendError>;

    /// Looks `keys` up, and calls `each` once per key, in order, with the result of [`Backend::get_into`], until it
    /// returns `false`. A store that can overlap the lookups' memory latencies does better than this default.
    fn multi_get(&self, keys: &[&[u8]], bytes_max: usize, each: &mut EachValue<'_>) {
        let mut value = Vec::new();
        for key in keys {
            let found = self.get_into(key, bytes_max, &mut value);
            if !each(found.map(|meta| meta.map(|meta| (meta, &value[..])))) {
                break;
            }
        }
    }

    /// Announces keys that will be read or written next. A store may prefetch them; nothing else happens.
    fn prepare(&self, _keys: &[&[u8]], _access: Access) {}

    /// Opens a value for reading in pieces.
    fn open_value(&self, key: &[u8]) -> Result<Option<Box<dyn ValueReader>>, BackendError>;

    /// Readers whose [`ValueReader::own_bytes`] may become more.
    fn open_values(&self) -> u64 {
        0
    }

    /// Length and expiry of a key's value.
    fn meta(&self, key: &[u8]) -> Result<Option<Meta>, BackendError>;

    /// Stores a value, replacing value and expiry of a key that exists.
    fn put(&self, key: &[u8], value: &[u8], expires_at_ms: Option<u64>) -> Result<(), BackendError>;

    /// Changes only the expiry; `false` if there is no such key. A time that has passed removes the key.
    fn set_expiry(&self, key: &[u8], expires_at_ms: Option<u64>) -> Result<bool, BackendError>;

    /// Removes a key; `true` if it existed.
    fn delete(&self, key: &[u8]) -> Result<bool, BackendError>;

    /// Reads and writes one key atomically. `change` may be called more than once; the last call counts. It gets values
    /// above some KiB opened, not read, so that it can check for room before it reads them.
    fn update(&self, key: &[u8], change: &mut Change<'_>) -> Result<(), BackendError>;

    /// As [`Backend::update`], for changes that need only length and expiry. A store that keeps both apart from the
    /// value does better than this default.
    fn update_meta(&self, key: &[u8], change: &mut ChangeMeta<'_>) -> Result<(), BackendError> {
        self.update(key, &mut |old| change(old.map(|(_, meta)| meta)))
    }

    /// Gives `target` the value and expiry of `source` atomically. The keys differ. Before it waits, or reads a large
    /// value, it calls `grant`, and ends if the answer is no.
    fn transfer(
        &self,
        source: &[u8],
        target: &[u8],
        how: Transfer,
        grant: &mut Grant<'_>,
    ) -> Result<Transferred, BackendError>;

    /// Performs all operations or none; readers see all of them or none. `false` if a requirement was not met.
    fn write(&self, operations: &[Operation<'_>]) -> Result<bool, BackendError>;

    /// As [`Backend::write`], but returns `None` and does nothing if it would wait for another write of several keys,
    /// or read many keys from an SSD. A store whose writes of several keys wait so must override this default.
    fn write_if_free(&self, operations: &[Operation<'_>]) -> Result<Option<bool>, BackendError> {
        self.write(operations).map(Some)
    }

    /// Whether a write of `key` would wait for a long write of several keys, or of this one. A store with such waits
    /// must override this default.
    fn holds_up(&self, _key: &[u8]) -> bool {
        false
    }

    /// Whether a write may wait long until the store has made room; `adds` says whether it adds data. A store with such
    /// waits must override this default.
    fn may_wait_for_room(&self, _adds: bool) -> bool {
        false
    }

    /// Bytes of this store that the calling thread has read since it began, about. A store that reads whole values, or
    /// more, to look at a key must override this default. A worker that reads much for one command leaves the rest of
    /// it, or the client's next one, to another thread, and one that reads much for one client serves others next.
    fn thread_read_bytes(&self) -> u64 {
        0
    }

    /// Calls `each` with up to `limit` keys in ascending order, beginning at `from`. Returns the place to go on from,
    /// `None` at the end. A call that would take long may end with fewer keys, or none.
    ///
    /// # Errors
    ///
    /// The store's, and [`BackendError::TakesLong`] if brief patience ends before the first key.
    fn keys_from(
        &self,
        from: &[u8],
        limit: usize,
        patience: Patience,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Option<Vec<u8>>, BackendError>;

    /// Calls `each` with the records between the two ends in ascending order of their keys, until it returns `false` or
    /// there are no more. Every record that exists throughout the call is met. Writes that come meanwhile may be seen.
    /// A call that would take long to come to the next record may end before that, and returns the place to go on from.
    ///
    /// # Errors
    ///
    /// The store's, or that of `each`. After [`BackendError::TakesLong`] the records that were met count, and a call
    /// may go on behind them.
    fn records(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        patience: Patience,
        each: &mut EachRecord<'_>,
    ) -> Result<Option<Vec<u8>>, BackendError>;

    /// A random key, each about equally likely; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The store's, and [`BackendError::TakesLong`] if brief patience ends before there is a key.
    fn random_key(&self, patience: Patience) -> Result<Option<Vec<u8>>, BackendError>;

    /// Counts the keys.
    ///
    /// # Errors
    /// The store cannot read all of them.
    fn count(&self) -> Result<u64, BackendError>;

    /// Number of keys, if counting takes no longer than a few requests. Otherwise the error is an estimate of the
    /// number.
    fn len_if_quick(&self) -> Result<u64, u64> {
        self.count().map_err(|_| 0)
    }

    /// Removes every key.
    fn clear(&self) -> Result<(), BackendError>;

    /// Whether replies are held until [`Backend::wait`] has returned.
    fn holds_replies(&self) -> bool {
        false
    }

    /// Whether [`Backend::wait`] usually takes as long as the disk does.
    fn waits_for_disk(&self) -> bool {
        false
    }

    /// Returns when everything that the calling thread has written or read is as durable as the store promises. A
    /// worker calls it once for all requests of a round, before any of their replies leaves.
    ///
    /// # Errors
    ///
    /// The fate of writes since the last successful call is unknown. The server tells their writers, and also readers
    /// if
    /// [`Backend::waits_for_disk`]: what they saw may not last. Where nobody waits for the disk reads go on.
    fn wait(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// As [`Backend::wait`], but for this database alone. Of a store that has others, the server asks so after a failed
    /// [`Backend::wait`], which does not tell whose log has failed.
    fn wait_alone(&self) -> Result<(), BackendError> {
        self.wait()
    }

    /// Writes everything to the folder apart from the log.
    ///
    /// # Errors
    ///
    /// The disk's. Nothing is lost.
    fn save(&self, _how: Save) -> Result<Saving, BackendError> {
        Ok(Saving::NoFolder)
    }

    /// Prepares for the end of the server. A [`Backend::save`] under way, and every later one, then ends soon, with an
    /// error if necessary.
    fn stop(&self) {}

    /// The time of the last save, or of opening the folder, in milliseconds of Unix time; `None` without a folder.
    fn last_save_ms(&self) -> Option<u64> {
        None
    }

    /// Fields of `INFO persistence` beside Redis's: lower-case names, plain values. Empty without a folder.
    fn persistence(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The databases by name, if the store has more than one. Calls of [`Backend::wait`], [`Backend::save`] and
    /// [`Backend::memory`] are about all of them.
    fn databases(&self) -> Option<&dyn Databases> {
        None
    }

    /// Changes the limit on the bytes that the store holds; `None` lifts it. A store without a limit does nothing.
    fn set_memory_limit(&self, _limit_bytes: Option<u64>) {}

    /// Whether keys are evicted at the limit; otherwise writes are refused there.
    fn evicts(&self) -> bool {
        false
    }

    /// Whether keys may be evicted at the limit, as [`Backend::set_eviction`] asks for.
    fn may_evict(&self) -> Result<(), BackendError> {
        Err(BackendError::Refused("this store evicts nothing".into()))
    }

    /// Begins or ends eviction at the limit. A store that may not evict does nothing.
    fn set_eviction(&self, _evicts: bool) {}

    /// Evicts keys until there is room for `bytes` more. `false` if there is none, or if the store does not evict.
    fn make_room(&self, _bytes: u64) -> bool {
        false
    }

    /// Keys evicted since the start.
    fn evicted_keys(&self) -> u64 {
        0
    }

    /// Whether the store has done all work in the background that writes so far have asked for.
    fn is_settled(&self) -> bool {
        true
    }

    /// Memory held now.
    fn memory(&self) -> MemoryUse;

    /// Bytes that the store holds below DRAM: far memory in use, and live bytes on SSD.
    fn held_below_bytes(&self) -> u64 {
        0
    }

    /// Far memory in force, if any.
    fn far(&self) -> Option<FarUse> {
        None
    }

    /// Files that the store may open beyond those that it has open. Clients get none of them.
    fn files_to_come(&self) -> u64 {
        0
    }

    /// Name of the codec, for the first line and `INFO`.
    fn codec(&self) -> String;

    /// Fields of `INFO ssd`: lower-case names, plain values. Empty without an SSD.
    fn ssd(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Counters of codec and store as `INFO codec` shows them: lower-case names, plain values.
    fn counters(&self) -> Vec<(&'static str, String)>;
}

/// Receives one looked-up value of [`Backend::multi_get`], and decides whether it wants the next one.
pub type EachValue<'a> = dyn FnMut(Result<Option<(Meta, &[u8])>, BackendError>) -> bool + 'a;

/// Receives a record of [`Backend::records`], and decides whether it wants the next one.
pub type EachRecord<'a> = dyn FnMut(&[u8], &mut dyn ValueReader) -> Result<bool, BackendError> + 'a;

/// Decides whether a [`Backend::transfer`] gets a need granted.
pub type Grant<'a> = dyn FnMut(Need) -> bool + 'a;

/// Decides the new state of a key in [`Backend::update_meta`].
pub type ChangeMeta<'a> = dyn FnMut(Option<Meta>) -> Update + 'a;

/// Decides the new state of a key in [`Backend::update`].
pub type Change<'a> = dyn FnMut(Option<(Old<'_>, Meta)>) -> Update + 'a;
