//! What `CONFIG SET` may change while the server runs, beside the memory limit, which `memory_limit` keeps.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::Config;
use crate::password::Password;

/// The classes of clients that `client-output-buffer-limit` names, in its order. Only the first exists here.
pub(crate) const OUTPUT_CLASSES: [&str; 3] = ["normal", "slave", "pubsub"];

/// When a client is disconnected because of the replies that it has not taken; 0 for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutputLimit {
    /// Bytes of unsent replies above which the client goes at once.
    pub(crate) hard_bytes: u64,
    /// Bytes above which it goes after `soft_s` seconds.
    pub(crate) soft_bytes: u64,
    pub(crate) soft_s: u64,
}

/// The limits of each class, in the order of [`OUTPUT_CLASSES`].
pub(crate) type OutputLimits = [OutputLimit; OUTPUT_CLASSES.len()];

/// Redis's.
const OUTPUT_LIMITS: OutputLimits = [
    OutputLimit { hard_bytes: 0, soft_bytes: 0, soft_s: 0 },
    OutputLimit { hard_bytes: 256 << 20, soft_bytes: 64 << 20, soft_s: 60 },
    OutputLimit { hard_bytes: 32 << 20, soft_bytes: 8 << 20, soft_s: 60 },
];

/// The settings in force.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Seconds after which an idle client is disconnected; 0 for never.
    pub(crate) timeout_s: AtomicU64,
    /// Seconds of silence after which the system asks whether a peer is there; 0 for never. New connections take it.
    pub(crate) keepalive_s: AtomicU64,
    /// Connections at a time that were asked for.
    clients_wanted: AtomicUsize,
    /// Connections that the limit on open files leaves room for.
    clients_possible: AtomicUsize,
    requires_password: AtomicBool,
    password: Mutex<Option<Password>>,
    limits_output: AtomicBool,
    output_limits: Mutex<OutputLimits>,
    /// Held by whoever changes settings: two changes of several settings do not mix.
    changing: Mutex<()>,
}

impl Settings {
    pub(crate) fn new(config: &Config, clients_possible: usize) -> Self {
        Self {
            timeout_s: AtomicU64::new(config.timeout_s),
            keepalive_s: AtomicU64::new(config.keepalive_s),
            clients_wanted: AtomicUsize::new(config.clients_max),
            clients_possible: AtomicUsize::new(clients_possible),
            requires_password: AtomicBool::new(config.password.is_some()),
            password: Mutex::new(config.password.clone()),
            limits_output: AtomicBool::new(false),
            output_limits: Mutex::new(OUTPUT_LIMITS),
            changing: Mutex::new(()),
        }
    }

    /// Waits for other changes to be done.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        lock(&self.changing)
    }

    /// Whether clients that connect must send a password first.
    pub(crate) fn requires_password(&self) -> bool {
        self.requires_password.load(Relaxed)
    }

    pub(crate) fn password(&self) -> Option<Password> {
        lock(&self.password).clone()
    }

    /// Connections that are in keep what they may.
    pub(crate) fn set_password(&self, password: Option<Password>) {
        let mut held = lock(&self.password);
        self.requires_password.store(password.is_some(), Relaxed);
        *held = password;
    }

    pub(crate) fn output_limits(&self) -> OutputLimits {
        *lock(&self.output_limits)
    }

    pub(crate) fn set_output_limits(&self, limits: OutputLimits) {
        *lock(&self.output_limits) = limits;
        self.limits_output.store(limits[0].hard_bytes > 0 || limits[0].soft_bytes > 0, Relaxed);
    }

    /// The limit of ordinary clients, if there is one.
    pub(crate) fn normal_output_limit(&self) -> Option<OutputLimit> {
        self.limits_output.load(Relaxed).then(|| self.output_limits()[0])
    }

    /// Whether idle or slow clients are to be looked for.
    pub(crate) fn watches_clients(&self) -> bool {
        self.timeout_s.load(Relaxed) > 0 || self.limits_output.load(Relaxed)
    }

    /// Connections at a time: as many as were asked for and as there is room for.
    pub(crate) fn clients_max(&self) -> usize {
        self.clients_wanted.load(Relaxed).min(self.clients_possible())
    }

    pub(crate) fn set_clients_max(&self, clients: usize) {
        self.clients_wanted.store(clients, Relaxed);
    }

    pub(crate) fn clients_possible(&self) -> usize {
        self.clients_possible.load(Relaxed)
    }

    pub(crate) fn set_clients_possible(&self, clients: usize) {
        self.clients_possible.store(clients, Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
