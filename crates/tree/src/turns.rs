//! Turns: while a key has its turn, one writer writes it, and other writers of that key wait.
//!
//! An update takes a turn that began anew too often, because others wrote the key meanwhile.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::record::key_hash;
use crate::sync::{Mutex, MutexGuard, back_off};

/// The key that has its turn.
#[derive(Default)]
pub struct Turns {
    one_at_a_time: Mutex<()>,
    /// The key's hash with its lowest bit set; 0 for none. Keys with the same hash wait, too.
    hash: AtomicU64,
    /// Writers that wait.
    waiting: AtomicU32,
}

/// A turn; it ends on drop.
pub struct Turn<'t> {
    turns: &'t Turns,
    _one_at_a_time: MutexGuard<'t, ()>,
}

impl Turns {
    /// Gives the key of this hash its turn, once no other key has one. The caller holds no guard and no lock.
    pub(crate) fn take(&self, hash: u64) -> Turn<'_> {
        let one_at_a_time = self.one_at_a_time.lock();
        self.hash.store(hash | 1, Ordering::Release);
        Turn { turns: self, _one_at_a_time: one_at_a_time }
    }

    /// Waits while a key of this hash has its turn. A write `is_exempt` that is part of the turn, or no write. The
    /// caller holds no guard and no lock: the turn may need memory or an SSD.
    #[inline]
    pub(crate) fn wait_for(&self, hash: u64, is_exempt: impl FnOnce() -> bool) {
        if self.hash.load(Ordering::Acquire) == hash | 1 && !is_exempt() {
            self.wait(hash);
        }
    }

    /// Whether a writer of one of these keys would wait now.
    pub(crate) fn holds_up<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>) -> bool {
        let hash = self.hash.load(Ordering::Acquire);
        hash != 0 && keys.any(|key| key_hash(key) | 1 == hash)
    }

    /// As [`Turns::wait_for`], for several keys.
    #[inline]
    pub(crate) fn wait_for_all<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        if self.hash.load(Ordering::Acquire) != 0 {
            keys.for_each(|key| self.wait(key_hash(key)));
        }
    }

    #[cold]
    fn wait(&self, hash: u64) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut round = 0;
        while self.hash.load(Ordering::Acquire) == hash | 1 {
            back_off(round);
            round += 1;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// Writers that wait for a turn to end.
    #[cfg(all(any(test, feature = "testing"), not(shuttle), not(miri)))]
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.hash.store(0, Ordering::Release);
    }
}
