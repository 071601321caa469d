//! Epochs (`crossbeam-epoch`): memory that readers may still hold is freed after its last reader.
//!
//! Each store has a collector of its own, so readers of one store hold nothing of another back. Guards of another
//! collector protect nothing.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use crossbeam_epoch::{Collector, Guard, LocalHandle};
use parking_lot::Mutex;

/// A pointer to something that new readers cannot reach, on its way to be freed by whatever thread moves the epoch.
pub(crate) struct Unreachable<T>(*mut T);

// SAFETY: this is the one owner of what it points to, and everything the store retires may be dropped anywhere.
unsafe impl<T: Send + Sync> Send for Unreachable<T> {}

impl<T> Unreachable<T> {
    pub(crate) fn new(pointer: *mut T) -> Self {
        Self(pointer)
    }

    pub(crate) fn into_raw(self) -> *mut T {
        self.0
    }
}

/// The epochs of one store: what it retires waits for its own readers only, and is freed with the store at the latest.
///
/// A thread that reads is a *participant*. It registers at its first read and leaves when it ends, or when the store is
/// dropped.
pub struct Epochs {
    /// Freed last: what participants still have to free goes there when they leave.
    collector: Collector,
    /// No other store of the process has or had this number.
    number: u64,
    participants: Arc<Participants>,
}

type Participants = Mutex<Vec<Arc<Participant>>>;

/// The handle of one thread, until the thread ends or the store is dropped. Its address stays.
struct Participant(Mutex<Option<Box<LocalHandle>>>);

// SAFETY: a handle is used by the thread that registered it, through `Epochs::pin` of a store that lives, and is
// dropped under the lock: by that thread at its end, when it uses the store no more, or by the thread that drops the
// store, which then nobody uses any more. Both happen after every use, so that no two threads ever use a handle at
// once.
unsafe impl Send for Participant {}
// SAFETY: as above.
unsafe impl Sync for Participant {}

/// A thread's part in one store.
struct Part {
    number: u64,
    participant: Arc<Participant>,
    /// Gone with the store.
    participants: Weak<Participants>,
}

impl Drop for Part {
    /// The thread ends.
    fn drop(&mut self) {
        // Other destructors of the thread may read the store yet.
        let _ = LAST.try_with(|last| last.set((0, std::ptr::null())));
        // With it goes what the thread retired last: others free that from now on.
        let handle = self.participant.0.lock().take();
        drop(handle);
        if let Some(participants) = self.participants.upgrade() {
            participants.lock().retain(|other| !Arc::ptr_eq(other, &self.participant));
        }
    }
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

// The store that the thread read last, and the handle that it has there. Without a destructor, so that a look costs two
// loads.
#[cfg(not(shuttle))]
std::thread_local! {
    static LAST: Cell<(u64, *const LocalHandle)> = const { Cell::new((0, std::ptr::null())) };
}

// The tasks of an exploration share one thread, and each has a part of its own.
#[cfg(shuttle)]
shuttle::thread_local! {
    static LAST: Cell<(u64, *const LocalHandle)> = Cell::new((0, std::ptr::null()));
}

crate::sync::thread_local! {
    static PARTS: RefCell<Vec<Part>> = RefCell::default();
}

impl Default for Epochs {
    fn default() -> Self {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { collector: Collector::new(), number, participants: Arc::default() }
    }
}

impl Epochs {
    /// Nothing that is reachable now is freed while the guard lives. The caller drops the guard before the store.
    #[inline]
    pub fn pin(&self) -> Guard {
        let (number, handle) = LAST.with(Cell::get);
        if number == self.number {
            // SAFETY: this thread registered the handle with this store, which lives. It is dropped with the store, or
            // when the thread ends. After that `LAST` is not asked, or names a store that is gone, whose number no
            // other store has.
            return unsafe { (*handle).pin() };
        }
        self.pin_other()
    }

    /// As [`Epochs::pin`], where the thread read another store before, or none.
    #[cold]
    fn pin_other(&self) -> Guard {
        let handle = PARTS.try_with(|parts| {
            let mut parts = parts.borrow_mut();
            let known = parts.iter().position(|part| part.number == self.number);
            let at = known.unwrap_or_else(|| {
                parts.retain(|part| part.participants.strong_count() > 0);
                parts.push(self.register());
                parts.len() - 1
            });
            let handle = parts[at].participant.0.lock();
            handle.as_ref().map_or(std::ptr::null(), |handle| std::ptr::from_ref(&**handle))
        });
        match handle {
            Ok(handle) if !handle.is_null() => {
                LAST.with(|last| last.set((self.number, handle)));
                // SAFETY: as in `pin`.
                unsafe { (*handle).pin() }
            }
            // The thread ends: a handle for this once, which lives as long as its guard.
            _ => self.collector.register().pin(),
        }
    }

    fn register(&self) -> Part {
        let participant = Arc::new(Participant(Mutex::new(Some(Box::new(self.collector.register())))));
        self.participants.lock().push(participant.clone());
        Part { number: self.number, participant, participants: Arc::downgrade(&self.participants) }
    }

    /// Threads that read the store and have not ended.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn participants(&self) -> usize {
        self.participants.lock().len()
    }
}

impl Drop for Epochs {
    /// Nobody reads the store any more: all participants leave, and the collector, which is dropped next, frees what
    /// they retired.
    fn drop(&mut self) {
        let participants = std::mem::take(&mut *self.participants.lock());
        for participant in participants {
            let handle = participant.0.lock().take();
            drop(handle);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc;

    use super::*;

    /// Counts one more when it is freed.
    fn retire(epochs: &Epochs, freed: &Arc<AtomicU32>) {
        let freed = freed.clone();
        let guard = epochs.pin();
        // SAFETY: the closure owns all that it touches.
        unsafe { guard.defer_unchecked(move || freed.fetch_add(1, Ordering::Relaxed)) };
    }

    #[test]
    fn what_a_store_retired_is_freed_with_it_whoever_retired_it() {
        let freed = Arc::new(AtomicU32::new(0));
        let epochs = Arc::new(Epochs::default());
        retire(&epochs, &freed);
        // One thread that goes on, and some that ended.
        let (go_on, waits) = mpsc::channel::<()>();
        let (retired, is_retired) = mpsc::channel();
        let thread = {
            let (epochs, freed) = (epochs.clone(), freed.clone());
            std::thread::spawn(move || {
                retire(&epochs, &freed);
                drop(epochs);
                assert!(retired.send(()).is_ok());
                assert!(waits.recv().is_err());
            })
        };
        assert!(is_retired.recv().is_ok());
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| retire(&epochs, &freed));
            }
        });
        // The scope ends before its threads' destructors have run.
        while epochs.participants() > 2 {
            std::thread::yield_now();
        }
        // Another store's reader holds nothing back.
        let other = Epochs::default();
        let _reader = other.pin();
        drop(epochs);
        assert_eq!(freed.load(Ordering::Relaxed), 5);
        drop(go_on);
        assert!(thread.join().is_ok());
    }

    #[test]
    fn threads_that_end_leave_and_stores_that_are_gone_are_forgotten() {
        let epochs = Epochs::default();
        drop(epochs.pin());
        for _ in 0..20 {
            let ended = std::thread::scope(|scope| scope.spawn(|| drop(epochs.pin())).join());
            assert!(ended.is_ok());
        }
        while epochs.participants() > 1 {
            std::thread::yield_now();
        }
        for _ in 0..100 {
            let other = Epochs::default();
            drop((other.pin(), epochs.pin()));
        }
        assert!(PARTS.with_borrow(|parts| parts.len()) < 5);
    }
}
