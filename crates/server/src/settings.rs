//! The settings that `CONFIG SET` may change while the server runs. The memory limit is in `memory_limit`.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::Config;
use crate::output_limits::{OutputLimit, OutputLimits};
use crate::password::Password;

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
    /// Held during a change, so that two changes of several settings do not mix.
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
            limits_output: AtomicBool::new(config.output_limits.normal().is_set()),
            output_limits: Mutex::new(config.output_limits),
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

    /// Existing connections keep their rights.
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
        self.limits_output.store(limits.normal().is_set(), Relaxed);
    }

    /// The limit of ordinary clients, if there is one.
    pub(crate) fn normal_output_limit(&self) -> Option<OutputLimit> {
        self.limits_output.load(Relaxed).then(|| self.output_limits().normal())
    }

    /// Whether idle or slow clients are to be looked for.
    pub(crate) fn watches_clients(&self) -> bool {
        self.timeout_s.load(Relaxed) > 0 || self.limits_output.load(Relaxed)
    }

    /// Connections at a time: the configured number, or fewer if the limit on open files requires it.
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
