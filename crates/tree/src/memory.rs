//! Memory as the allocator holds it: size classes, gauges by purpose, and the limit.
//!
//! Not for making room when the limit is reached: the host does that.

use std::cell::Cell;
use std::sync::atomic::{
    AtomicI64, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Bytes the allocator sets aside for a request of `bytes`: jemalloc's size classes (16-byte steps up to 128,
/// then four steps per doubling; jemalloc manual, "Size classes").
pub const fn allocated_bytes(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        _ => bytes.next_multiple_of(bytes.next_power_of_two() >> 3),
    }
}

/// Bytes held for an `Arc<[u8]>` or `Arc<T>` whose data has `bytes`.
pub(crate) const fn arc_bytes(bytes: usize) -> usize {
    allocated_bytes(bytes + 2 * size_of::<usize>())
}

const CACHE_LINE_BYTES: usize = 64;

/// Asks the processor for the cache lines of `bytes` bytes from `address` on, without waiting for them. The address
/// may be anything.
#[inline]
pub(crate) fn prefetch(address: usize, bytes: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (address..address.saturating_add(bytes)).step_by(CACHE_LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect but on time, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line as *const i8) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (address, bytes, CACHE_LINE_BYTES);
}

/// The bytes that a store holds, by purpose, as asked of the allocator; rounding to its size classes is `slack_bytes`.
/// Fields that begin with `far` are bytes in far memory, which count for no limit of DRAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// Inner nodes, leaves, leaf states and fence keys, and what is known of large values and of what lies on SSD.
    pub index_bytes: u64,
    /// Landings, open and sealed.
    pub landing_bytes: u64,
    /// Bodies in which no value is coded.
    pub raw_body_bytes: u64,
    /// Bodies with coded values.
    pub coded_body_bytes: u64,
    /// Bodies whose values are packed in blocks.
    pub packed_body_bytes: u64,
    /// Values that live outside their leaf, in DRAM.
    pub large_bytes: u64,
    /// Dictionaries of all live generations, decoders and encoders.
    pub dictionary_bytes: u64,
    /// Marks of records, and ghosts of keys that were evicted.
    pub eviction_bytes: u64,
    /// Bytes that were replaced and wait for their last reader.
    pub retired_bytes: u64,
    /// Bytes that rounding to the allocator's size classes adds to the figures above.
    pub slack_bytes: u64,
    /// Keys and values as the user sees them, settled records only.
    pub logical_bytes: u64,
    /// Bodies in far memory.
    pub far_body_bytes: u64,
    /// Values that live outside their leaf, in far memory.
    pub far_large_bytes: u64,
    /// Bytes in far memory that were replaced and wait for their last reader.
    pub far_retired_bytes: u64,
    /// Bytes of far memory in use, what rounding adds included.
    pub far_used_bytes: u64,
    /// Bytes that far memory has, 0 for none.
    pub far_limit_bytes: u64,
}

impl MemoryUse {
    /// Everything held in DRAM, in allocator bytes: the purposes and their slack.
    pub fn total_bytes(&self) -> u64 {
        self.index_bytes
            + self.landing_bytes
            + self.raw_body_bytes
            + self.coded_body_bytes
            + self.packed_body_bytes
            + self.large_bytes
            + self.dictionary_bytes
            + self.eviction_bytes
            + self.retired_bytes
            + self.slack_bytes
    }
}

/// Threads that count in a cache line of their own; more of them share.
const LANES: usize = 8;

std::thread_local! {
    /// Which lane this thread counts in. Without a destructor: threads that end still free what was retired.
    static LANE: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    LANE.with(|lane| {
        if lane.get() == usize::MAX {
            lane.set(NEXT.fetch_add(1, Relaxed) % LANES);
        }
        lane.get()
    })
}

/// Sums of changes that many threads make, spread over cache lines so that no thread waits for another's.
///
/// A thread may take away what another one added: a lane alone means nothing, and may be negative.
#[derive(Debug, Default)]
struct Sums<const N: usize>([Lane<N>; LANES]);

#[derive(Debug)]
#[repr(align(64))]
struct Lane<const N: usize>([AtomicI64; N]);

impl<const N: usize> Default for Lane<N> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicI64::new(0)))
    }
}

impl<const N: usize> Sums<N> {
    #[inline]
    fn change(&self, changes: [i64; N]) {
        for (sum, change) in self.0[lane()].0.iter().zip(changes) {
            sum.fetch_add(change, Release);
        }
    }

    fn sum(&self, which: usize) -> i64 {
        self.0.iter().map(|lane| lane.0[which].load(Acquire)).sum()
    }
}

/// A count that many threads change.
#[derive(Debug, Default)]
pub struct Total(Sums<1>);

impl Total {
    /// Adds `by`, which may be negative.
    pub fn change(&self, by: i64) {
        self.0.change([by]);
    }

    /// The sum of all changes; 0 if it is negative.
    pub fn get(&self) -> u64 {
        self.0.sum(0).max(0) as u64
    }
}

/// How often [`Gauges::memory_use`] reads all of them, at most.
const READINGS_MAX: usize = 8;

const HELD: usize = 0;
const ASKED: usize = 1;

/// One purpose: bytes held and bytes asked for.
#[derive(Debug, Default)]
pub struct Gauge(Sums<2>);

impl Gauge {
    /// Accounts for an allocation of `bytes` asked for.
    pub fn add(&self, bytes: usize) {
        self.0.change([allocated_bytes(bytes) as i64, bytes as i64]);
    }

    /// Accounts for the release of an allocation of `bytes` asked for.
    pub fn take(&self, bytes: usize) {
        self.0.change([-(allocated_bytes(bytes) as i64), -(bytes as i64)]);
    }

    /// Accounts for `held` bytes that were rounded already.
    pub fn add_held(&self, held: usize) {
        self.0.change([held as i64, held as i64]);
    }

    /// Accounts for the release of what [`Gauge::add_held`] counted.
    pub fn take_held(&self, held: usize) {
        self.0.change([-(held as i64), -(held as i64)]);
    }

    /// Bytes held, rounding included.
    pub fn held(&self) -> u64 {
        self.0.sum(HELD).max(0) as u64
    }

    /// Bytes asked for, and what is held beyond them: together what is held, also when others count meanwhile.
    fn asked_and_slack(&self) -> (u64, u64) {
        let held = self.held();
        let asked = (self.0.sum(ASKED).max(0) as u64).min(held);
        (asked, held - asked)
    }
}

/// Bytes of a large value or a batch that are counted before they are there, so that others leave room for them.
pub struct Reserved<'a> {
    gauge: &'a Gauge,
    bytes: usize,
}

impl Reserved<'_> {
    /// Leaves `bytes` of them, at most all, to what the caller is about to allocate.
    pub(crate) fn give_back(&mut self, bytes: usize) {
        let given = bytes.min(self.bytes);
        self.bytes -= given;
        self.gauge.take_held(given);
    }

    /// Counts `held` bytes that are there now in their place. At no moment do others see neither or both.
    pub(crate) fn becomes(mut self, held: usize) {
        let reserved = std::mem::take(&mut self.bytes);
        let change = held as i64 - reserved as i64;
        self.gauge.0.change([change, change]);
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.gauge.take_held(self.bytes);
    }
}

/// All gauges of a store.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Inner nodes, leaves, leaf states and fence keys, and what is known of large values and of what lies on SSD.
    pub index: Gauge,
    /// Landings, open and sealed.
    pub landing: Gauge,
    pub(crate) raw_body: Gauge,
    pub(crate) coded_body: Gauge,
    pub(crate) packed_body: Gauge,
    /// Values that live outside their leaf, in DRAM, and bytes reserved for them and for batches.
    pub large: Gauge,
    /// Dictionaries of all live generations, and what a training takes.
    pub dictionary: Gauge,
    /// Marks of records, and ghosts of keys that were evicted.
    pub eviction: Gauge,
    /// What was replaced in DRAM and waits for its last reader.
    pub retired: Gauge,
    /// The part of it that readers have shares of, and that no step of the epoch frees: nobody waits for that.
    pub retired_shared: Gauge,
    /// In far memory, which no limit of DRAM counts.
    pub far_body: Gauge,
    /// Values that live outside their leaf, in far memory.
    pub far_large: Gauge,
    pub(crate) far_retired: Gauge,
    /// Bytes of settled keys and values.
    pub logical: Total,
    /// Settled records.
    pub records: Total,
    /// Large values that are open, each as often as it is.
    pub open: Total,
    /// Cold leaves with an upper body, of which it is not known what it shadows.
    pub(crate) shadowing: Total,
    limit: AtomicU64,
}

impl Gauges {
    /// Gauges at 0, with a limit in bytes of DRAM; `None` for no limit.
    pub fn new(limit_bytes: Option<u64>) -> Self {
        let gauges = Self::default();
        gauges.set_limit(limit_bytes);
        gauges
    }

    /// Sets the limit in bytes of DRAM; `None` for no limit.
    pub fn set_limit(&self, limit_bytes: Option<u64>) {
        self.limit.store(limit_bytes.unwrap_or(u64::MAX), Relaxed);
    }

    /// Retired bytes that are free when the readers of this moment have gone on.
    pub fn retired_soon_free(&self) -> u64 {
        self.retired.held().saturating_sub(self.retired_shared.held())
    }

    /// The limit in bytes of DRAM; `u64::MAX` if there is none.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Reserves `bytes` for a large value.
    pub fn reserve(&self, bytes: usize) -> Reserved<'_> {
        self.large.add_held(bytes);
        Reserved { gauge: &self.large, bytes }
    }

    /// Accounts for allocations that left their purpose and wait for their last reader.
    pub fn retire(&self, asked: usize, held: usize) {
        self.retired.0.change([held as i64, asked as i64]);
    }

    /// Accounts for the release of what [`Gauges::retire`] counted.
    pub fn free(&self, asked: usize, held: usize) {
        self.retired.0.change([-(held as i64), -(asked as i64)]);
    }

    /// Bytes held in DRAM for all purposes.
    pub fn held(&self) -> u64 {
        self.purposes().iter().map(|gauge| gauge.held()).sum()
    }

    /// Bytes held without those that only wait for their last reader.
    pub fn live_bytes(&self) -> u64 {
        self.held().saturating_sub(self.retired.held())
    }

    /// Bytes of bodies in DRAM.
    pub fn body_bytes(&self) -> u64 {
        [&self.raw_body, &self.coded_body, &self.packed_body].iter().map(|gauge| gauge.held()).sum()
    }

    /// All purposes, as they were at one moment if the store ever rests for one.
    ///
    /// One gauge is read after another, and bytes that go from one to another meanwhile may count twice. So they are
    /// read until two readings agree; where none do, the least of some is taken.
    pub fn memory_use(&self) -> MemoryUse {
        let mut least = self.read();
        let mut last = least;
        for _ in 1..READINGS_MAX {
            let now = self.read();
            if now == last {
                return now;
            }
            if now.total_bytes() < least.total_bytes() {
                least = now;
            }
            last = now;
        }
        least
    }

    fn read(&self) -> MemoryUse {
        let mut slack_bytes = 0;
        let [index, landing, raw_body, coded_body, packed_body, large, dictionary, eviction, retired] =
            self.purposes().map(|gauge| {
                let (asked, slack) = gauge.asked_and_slack();
                slack_bytes += slack;
                asked
            });
        MemoryUse {
            index_bytes: index,
            landing_bytes: landing,
            raw_body_bytes: raw_body,
            coded_body_bytes: coded_body,
            packed_body_bytes: packed_body,
            large_bytes: large,
            dictionary_bytes: dictionary,
            eviction_bytes: eviction,
            retired_bytes: retired,
            slack_bytes,
            logical_bytes: self.logical.get(),
            far_body_bytes: self.far_body.held(),
            far_large_bytes: self.far_large.held(),
            far_retired_bytes: self.far_retired.held(),
            far_used_bytes: 0,
            far_limit_bytes: 0,
        }
    }

    fn purposes(&self) -> [&Gauge; 9] {
        [
            &self.index,
            &self.landing,
            &self.raw_body,
            &self.coded_body,
            &self.packed_body,
            &self.large,
            &self.dictionary,
            &self.eviction,
            &self.retired,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_thread_adds_another_may_take_away() {
        let gauge = Gauge::default();
        std::thread::scope(|scope| {
            for _ in 0..2 * LANES {
                scope.spawn(|| (0..100).for_each(|_| gauge.add(100)));
            }
        });
        let threads = LANES as u64;
        assert_eq!(
            (gauge.held(), gauge.asked_and_slack()),
            (threads * 22_400, (threads * 20_000, threads * 2_400))
        );
        (0..200 * LANES).for_each(|_| gauge.take(100));
        assert_eq!((gauge.held(), gauge.asked_and_slack()), (0, (0, 0)));
    }

    #[test]
    fn what_is_reserved_and_what_comes_of_it_are_never_seen_together() {
        let gauges = Gauges::default();
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut most = 0;
                while !is_done.load(Acquire) {
                    most = most.max(gauges.memory_use().total_bytes());
                }
                most
            });
            for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
                gauges.reserve(1000).becomes(900);
                gauges.large.take_held(900);
            }
            drop(gauges.reserve(1000));
            is_done.store(true, Release);
            assert!(watcher.join().unwrap() <= 1000);
        });
        assert_eq!(gauges.memory_use().total_bytes(), 0);
    }

    #[test]
    fn size_classes_are_the_allocators() {
        for (bytes, class) in [
            (1, 8),
            (8, 8),
            (9, 16),
            (100, 112),
            (129, 160),
            (256, 256),
            (257, 320),
            (4096, 4096),
            (4097, 5120),
            (6000, 6144),
            (8193, 10240),
            (100_000, 114_688),
        ] {
            assert_eq!(allocated_bytes(bytes), class, "{bytes}");
        }
    }
}
