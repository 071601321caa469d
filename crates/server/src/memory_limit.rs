//! Keeps the whole process within its memory limit, not the store's count alone.
//!
//! A store counts less memory than the process uses. The program itself, connections and the allocator's gaps come on
//! top, and cannot be counted. So this module measures the resident memory, subtracts the part that the store does not
//! count from the limit, and gives the store the rest.
//!
//! A thread measures several times a second, and code measures before any large request. Workers also measure after
//! many requests, because the measuring thread may wait for a processor.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::backend::{Backend, MemoryUse};
use crate::process;

/// The least that the store may hold. With less it could not even delete records.
const STORE_BYTES_MIN: u64 = 1 << 20;
/// One part in this many of the limit stays free. When a filled store settles, its bodies move from one size class of
/// the allocator to another, and leave gaps for a moment. A measurement showed a seventh more memory, which cannot be
/// predicted.
const SPARE_PART: u64 = 8;
/// The interval of measurements, and the interval when little memory is left.
const TICK: Duration = Duration::from_millis(50);
const TICK_TIGHT: Duration = Duration::from_millis(10);
const TICK_FULL: Duration = Duration::from_millis(5);
/// Workers measure after requests of one part in this many of the limit. A second figure applies when little is left.
const REQUESTS_PART: u64 = 32;
const REQUESTS_PART_TIGHT: u64 = 256;
/// A server is idle while the writes between two measurements are at most one part in this many of its limit. Reads
/// take no room beyond that of earlier writes.
const IDLE_PART: u64 = 1 << 14;
/// Bytes that a request counts besides its own: a share of the body that is packed anew for it. The gap of the old body
/// may fit no other body.
const REQUEST_BYTES: u64 = 128;
/// After this many times as many requests, a worker waits for a measurement that another thread has begun. That thread
/// may have lost its processor.
const OVERDUE_PARTS: u64 = 4;
/// The shortest interval of asking the allocator to return free pages, and the interval when there is no room. The
/// allocator would keep the pages for some seconds. Packing can free 500 MiB a second that fit no new body.
const RELEASE: Duration = Duration::from_millis(50);
const RELEASE_FULL: Duration = Duration::from_millis(5);

/// The store's part of the limit while it opens and no thread measures.
pub(crate) fn store_bytes_at_start(limit_bytes: u64) -> u64 {
    let limit_bytes = limit_bytes - limit_bytes / SPARE_PART;
    limit_bytes.saturating_sub(process::anonymous_bytes()).max(STORE_BYTES_MIN)
}

/// No limit was configured. The store may have a limit of its own.
const UNSET: u64 = u64::MAX;

/// Returns the memory of the process that belongs to no file.
pub(crate) type Meter = Box<dyn Fn() -> u64 + Send + Sync>;

/// The limit of the process, and the store's part of it.
pub(crate) struct MemoryLimit {
    /// 0 for no limit, [`UNSET`] if none was configured.
    limit_bytes: AtomicU64,
    release: Option<fn()>,
    meter: Meter,
    /// Bytes promised to running requests.
    reserved_bytes: AtomicU64,
    store_bytes: AtomicU64,
    room_bytes: AtomicU64,
    /// Of requests since the last measurement.
    request_bytes: AtomicU64,
    /// The part of these bytes that came with writes.
    write_bytes: AtomicU64,
    /// The time of the last return of free pages. The holder of this lock measures.
    released: Mutex<Option<Instant>>,
    /// The holder of this lock has the store make room, which may wait for a training. Other threads measure meanwhile.
    making_room: Mutex<()>,
}

impl MemoryLimit {
    pub(crate) fn new(limit_bytes: Option<u64>, release: Option<fn()>) -> Self {
        Self::with_meter(limit_bytes, release, Box::new(process::anonymous_bytes))
    }

    /// One that believes `meter`.
    pub(crate) fn with_meter(limit_bytes: Option<u64>, release: Option<fn()>, meter: Meter) -> Self {
        Self {
            limit_bytes: AtomicU64::new(limit_bytes.unwrap_or(UNSET)),
            release,
            meter,
            reserved_bytes: AtomicU64::new(0),
            store_bytes: AtomicU64::new(limit_bytes.unwrap_or(u64::MAX)),
            room_bytes: AtomicU64::new(limit_bytes.unwrap_or(u64::MAX)),
            request_bytes: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            released: Mutex::new(None),
            making_room: Mutex::new(()),
        }
    }

    /// The limit of the process, if it has one of its own.
    pub(crate) fn limit_bytes(&self) -> Option<u64> {
        self.set_bytes().filter(|&bytes| bytes > 0)
    }

    /// The configured limit, 0 for no limit; `None` if none was configured.
    pub(crate) fn set_bytes(&self) -> Option<u64> {
        Some(self.limit_bytes.load(Relaxed)).filter(|&bytes| bytes != UNSET)
    }

    /// Changes the limit; 0 lifts it.
    pub(crate) fn set(&self, limit_bytes: u64, backend: &dyn Backend) {
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        let limit_bytes = limit_bytes.min(UNSET - 1);
        self.limit_bytes.store(limit_bytes, Relaxed);
        if limit_bytes == 0 {
            self.store_bytes.store(u64::MAX, Relaxed);
            self.room_bytes.store(u64::MAX, Relaxed);
            backend.set_memory_limit(None);
        } else {
            self.store_bytes.store(limit_bytes, Relaxed);
            self.measure(limit_bytes, &mut released, 0, backend);
        }
    }

    /// The store's limit, as of the last measurement.
    pub(crate) fn store_bytes(&self) -> Option<u64> {
        self.limit_bytes().map(|_| self.store_bytes.load(Relaxed))
    }

    /// When to measure again; never without a limit.
    pub(crate) fn tick(&self) -> Option<Duration> {
        let limit_bytes = self.limit_bytes()?;
        Some(match self.room_bytes.load(Relaxed) {
            room if room < limit_bytes / 32 => TICK_FULL,
            room if room < limit_bytes / 4 => TICK_TIGHT,
            _ => TICK,
        })
    }

    /// Little was left at the last measurement.
    pub(crate) fn is_tight(&self) -> bool {
        self.limit_bytes().is_some_and(|limit_bytes| self.room_bytes.load(Relaxed) < limit_bytes / 16)
    }

    /// Counts `requests` requests of `bytes` bytes together, `writes` of which write, and measures when a measurement
    /// is due.
    pub(crate) fn note_requests(&self, requests: u64, writes: u64, bytes: u64, backend: &dyn Backend) {
        let Some(limit_bytes) = self.limit_bytes() else { return };
        let part = if self.is_tight() { REQUESTS_PART_TIGHT } else { REQUESTS_PART };
        let due_bytes = limit_bytes / part;
        let counted = requests * REQUEST_BYTES + bytes;
        if writes > 0 {
            self.write_bytes.fetch_add(writes * REQUEST_BYTES + bytes, Relaxed);
        }
        let since_bytes = self.request_bytes.fetch_add(counted, Relaxed) + counted;
        if since_bytes > due_bytes * OVERDUE_PARTS {
            let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
            if self.request_bytes.load(Relaxed) > due_bytes
                && let Some(limit_bytes) = self.limit_bytes()
            {
                self.measure(limit_bytes, &mut released, 0, backend);
            }
        } else if since_bytes > due_bytes {
            self.keep(backend);
        }
    }

    /// Measures, unless another thread does, and sets the store's limit.
    pub(crate) fn keep(&self, backend: &dyn Backend) {
        if let Ok(mut released) = self.released.try_lock()
            && let Some(limit_bytes) = self.limit_bytes()
        {
            self.measure(limit_bytes, &mut released, 0, backend);
        }
    }

    /// Measures, sets the store's limit, and returns whether there is room for `bytes` more. The store makes room if
    /// there is none.
    pub(crate) fn has_room(&self, bytes: u64, backend: &dyn Backend) -> bool {
        if self.limit_bytes().is_none() {
            return true;
        }
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have been lifted meanwhile.
        let Some(limit_bytes) = self.limit_bytes() else { return true };
        let is_there = self.measure(limit_bytes, &mut released, bytes, backend);
        drop(released);
        is_there || {
            let _turn = self.making_room.lock().unwrap_or_else(PoisonError::into_inner);
            backend.make_room(bytes)
        }
    }

    /// Promises `bytes` to a request, if there is room beside the promises to others. The store makes room if there is
    /// none.
    pub(crate) fn reserve(&self, bytes: u64, backend: &dyn Backend) -> Option<Reservation<'_>> {
        let promise = |bytes| {
            self.reserved_bytes.fetch_add(bytes, Relaxed);
            Reservation { limit: self, bytes }
        };
        if self.limit_bytes().is_none() {
            return Some(promise(0));
        }
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have been lifted meanwhile.
        let Some(limit_bytes) = self.limit_bytes() else { return Some(promise(0)) };
        let wanted = bytes.saturating_add(self.reserved_bytes.load(Relaxed));
        if self.measure(limit_bytes, &mut released, wanted, backend) {
            return Some(promise(bytes));
        }
        drop(released);
        let _turn = self.making_room.lock().unwrap_or_else(PoisonError::into_inner);
        // The promise comes before the room, so that no other request gets the bytes that become free. More than the
        // whole limit can never become free.
        let promised = (bytes <= limit_bytes).then(|| promise(bytes))?;
        backend.make_room(self.reserved_bytes.load(Relaxed)).then_some(promised)
    }

    /// Measures, sets the store's limit, and tells whether `bytes` are free.
    fn measure(
        &self,
        limit_bytes: u64,
        released: &mut Option<Instant>,
        bytes: u64,
        backend: &dyn Backend,
    ) -> bool {
        let process_bytes = limit_bytes;
        let limit_bytes = process_bytes - process_bytes / SPARE_PART;
        self.request_bytes.store(0, Relaxed);
        let is_idle = self.write_bytes.swap(0, Relaxed) <= process_bytes / IDLE_PART && bytes == 0;
        let MemoryUse { held_bytes, far_anonymous_bytes, .. } = backend.memory();
        // Files in memory are none of it, a NUMA node's memory is.
        let resident = || (self.meter)().saturating_sub(far_anonymous_bytes);
        let mut resident_bytes = resident();
        // Otherwise the measurement would count free pages in the allocator as used memory.
        let is_pressed = resident_bytes.saturating_add(bytes) > limit_bytes - limit_bytes / 16
            || resident_bytes > held_bytes + limit_bytes / 16;
        let pause = if resident_bytes.saturating_add(bytes) > limit_bytes { RELEASE_FULL } else { RELEASE };
        if is_pressed
            && let Some(release) = self.release
            && released.is_none_or(|last| last.elapsed() >= pause)
        {
            release();
            *released = Some(Instant::now());
            resident_bytes = resident();
        }
        // The store's count is read before and after the measurement. Bytes that it takes or frees meanwhile count
        // twice rather than not at all.
        let other_bytes = resident_bytes.saturating_sub(held_bytes.min(backend.memory().held_bytes));
        let mut store_bytes = limit_bytes.saturating_sub(other_bytes).max(STORE_BYTES_MIN);
        // A settling store leaves gaps in the allocator's slabs for a while. An idle server lets these gaps use all of
        // the limit, so that a cache evicts nothing for them. Beyond the limit the store gives up only the excess.
        if is_idle {
            // All of the limit: it was not measured yet.
            let before_bytes = Some(self.store_bytes.load(Relaxed)).filter(|&bytes| bytes < process_bytes);
            let kept_bytes = match resident_bytes.saturating_sub(process_bytes) {
                0 => before_bytes,
                over_bytes => before_bytes.map(|bytes| bytes.min(held_bytes).saturating_sub(over_bytes)),
            };
            store_bytes = store_bytes.max(kept_bytes.unwrap_or(0));
        }
        let room_bytes = limit_bytes.saturating_sub(resident_bytes);
        self.store_bytes.store(store_bytes, Relaxed);
        self.room_bytes.store(room_bytes, Relaxed);
        backend.set_memory_limit(Some(store_bytes));
        bytes <= room_bytes
    }
}

/// Bytes promised to a running request. Once the request has them they count twice, until it ends.
#[must_use]
pub(crate) struct Reservation<'a> {
    limit: &'a MemoryLimit,
    bytes: u64,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.limit.reserved_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StoreBackend;

    fn backend() -> impl Backend {
        StoreBackend::open(ziptier::Options::default()).expect("memory needs nothing")
    }

    #[test]
    fn who_serves_much_measures_however_late_the_next_tick_is() {
        let (limit, backend) = (MemoryLimit::new(Some(64 << 30), None), backend());
        let counted = |requests, bytes| {
            limit.note_requests(requests, 0, bytes, &backend);
            limit.request_bytes.load(Relaxed)
        };
        assert_eq!([counted(0, 1 << 30), counted(0, 1 << 30)], [1 << 30, 2 << 30]);
        assert_eq!(counted(0, 1), 0);
        // Small requests count, too.
        assert_eq!(counted(10_000_000, 0), 10_000_000 * REQUEST_BYTES);
        assert_eq!(counted(10_000_000, 0), 0);
        limit.room_bytes.store(1 << 30, Relaxed);
        assert_eq!(counted(0, 256 << 20), 256 << 20);
        assert_eq!(counted(0, 1), 0);
        let unlimited = MemoryLimit::new(None, None);
        unlimited.note_requests(1, 1, 1 << 40, &backend);
        assert_eq!(unlimited.request_bytes.load(Relaxed), 0);
    }

    #[test]
    fn what_is_promised_to_one_is_not_promised_to_another() {
        let resident = std::sync::Arc::new(AtomicU64::new(100 << 20));
        let seen = resident.clone();
        let limit = MemoryLimit::with_meter(Some(800 << 20), None, Box::new(move || seen.load(Relaxed)));
        let backend = backend();
        // An eighth stays free: 600 MiB are there.
        let first = limit.reserve(400 << 20, &backend);
        assert!(first.is_some() && limit.reserve(400 << 20, &backend).is_none());
        let second = limit.reserve(200 << 20, &backend);
        assert!(second.is_some() && limit.reserve(1 << 20, &backend).is_none());
        drop(first);
        assert!(limit.reserve(400 << 20, &backend).is_some());
        // They have been given back, and what others have taken meanwhile counts.
        resident.fetch_add(100 << 20, Relaxed);
        assert!(limit.reserve(301 << 20, &backend).is_none() && limit.reserve(300 << 20, &backend).is_some());
        assert!(limit.reserve(u64::MAX, &backend).is_none());
        drop(second);
        assert_eq!(limit.reserved_bytes.load(Relaxed), 0);
        let unlimited = MemoryLimit::new(None, None);
        assert!(unlimited.reserve(u64::MAX, &backend).is_some());
    }

    #[test]
    fn others_measure_while_room_is_made_for_one() {
        let limit = MemoryLimit::with_meter(Some(800 << 20), None, Box::new(|| 700 << 20));
        let backend = backend();
        limit.request_bytes.store(1, Relaxed);
        let turn = limit.making_room.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| limit.reserve(1 << 20, &backend).is_some());
            ziptier_testing::until("it has measured", || limit.request_bytes.load(Relaxed) == 0);
            limit.request_bytes.store(1, Relaxed);
            assert!(limit.has_room(0, &backend));
            assert_eq!(limit.request_bytes.load(Relaxed), 0);
            assert!(!asking.is_finished());
            drop(turn);
            assert!(!asking.join().expect("it does not panic"), "this store makes no room");
        });
        assert_eq!(limit.reserved_bytes.load(Relaxed), 0);
    }

    #[test]
    fn gaps_of_a_store_that_settles_cost_an_idle_server_no_key() {
        const MIB: u64 = 1 << 20;
        let resident = std::sync::Arc::new(AtomicU64::new(8 * MIB));
        let seen = resident.clone();
        let limit = MemoryLimit::with_meter(Some(64 * MIB), None, Box::new(move || seen.load(Relaxed)));
        let backend = backend();
        let store_mib_at = |resident_mib: u64| {
            resident.store(resident_mib * MIB, Relaxed);
            limit.keep(&backend);
            limit.store_bytes().expect("there is a limit") / MIB
        };
        // Of 64 MiB an eighth is left free.
        assert_eq!([8, 12, 40, 64, 6].map(store_mib_at), [48, 48, 48, 48, 50]);
        // If memory is short, or a request needs some, the store loses the bytes that others take.
        assert_eq!(store_mib_at(8), 50);
        // Reads do not count.
        limit.note_requests(1000, 0, MIB / 4, &backend);
        assert_eq!(store_mib_at(8), 50);
        limit.note_requests(1000, 1, MIB / 4, &backend);
        assert_eq!(store_mib_at(8), 48);
        assert_eq!(store_mib_at(66), 1);
        limit.set(32 * MIB, &backend);
        assert_eq!([33, 8].map(store_mib_at), [1, 20]);
    }

    #[test]
    fn a_store_that_is_filled_leaves_room_for_everything_else() {
        const LIMIT: u64 = 32 << 20;
        let backend = std::sync::Arc::new(backend());
        let other = std::sync::Arc::new(AtomicU64::new(2 << 20));
        let (metered, others) = (backend.clone(), other.clone());
        let meter = move || metered.memory().held_bytes + others.load(Relaxed);
        let limit = MemoryLimit::with_meter(Some(LIMIT), None, Box::new(meter));
        let mut random = fastrand::Rng::with_seed(0x11a1);
        let (mut most, mut refused, mut value) = (0, 0, vec![0; 4000]);
        for number in 0..100_000u32 {
            if refused >= 50 {
                break;
            }
            // A step of the clock every 64 requests, and memory that something else takes or frees.
            if number % 64 == 0 {
                other.store(random.u64(2 << 20..5 << 20), Relaxed);
                limit.keep(&*backend);
            }
            value.fill_with(|| random.u8(..));
            let written = backend.put(&number.to_be_bytes(), &value[..random.usize(1..4000)], None);
            refused += u32::from(written.is_err());
            most = most.max(backend.memory().held_bytes + other.load(Relaxed));
        }
        // The eighth that is left free is more than what something else takes at a step.
        assert!(most <= LIMIT, "{most}");
        assert!(refused >= 50 && most > LIMIT * 3 / 4, "{refused} refused, at most {most}");
    }

    #[test]
    fn who_serves_too_much_waits_for_the_measurement() {
        let (limit, backend) = (MemoryLimit::new(Some(64 << 30), None), backend());
        let measuring = limit.released.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody else measures: a little more is served.
        limit.note_requests(1, 1, 3 << 30, &backend);
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| limit.note_requests(1, 1, 8 << 30, &backend));
            ziptier_testing::until("the request is counted", || limit.request_bytes.load(Relaxed) > 11 << 30);
            // One that does not wait would end in this time.
            std::thread::sleep(Duration::from_millis(50));
            assert!(!serving.is_finished());
            drop(measuring);
        });
        assert_eq!(limit.request_bytes.load(Relaxed), 0);
    }
}
