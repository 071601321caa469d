//! The tick: counts, decides, obeys the command, tells.
//!
//! No thread of its own ticks. Whichever thread completes a step of allocated bytes does, and the others go on: two
//! ticks never run at the same time, and nothing waits for one. The steps grow with the heap, so a tick costs a fixed
//! share of the allocations. A heap that stands still has no ticks, and needs none.

use std::cell::UnsafeCell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

use ziptier_alloc::configuration::{Configuration, NodeSet};
use ziptier_alloc::page::{FarKind, Medium, Page, SharedPage};
use ziptier_alloc::placement::{Decision, Placement, Rules, Seen};
use ziptier_alloc::size_class::CLASSES;

use crate::heap::{COUNTS, Counts, TABLES, WORDS};
use crate::statistics::Names;
use crate::thread::{QUANTUM_BYTES, THREADS};

/// A thread settles this many times in a step, if it is the only one that allocates.
const QUANTA: u64 = 8;
/// The most that a thread allocates before it settles.
const QUANTUM_BYTES_MAX: u64 = 64 << 10;

/// Bytes that all threads have allocated since the last tick.
static SINCE: AtomicU64 = AtomicU64::new(0);
/// Bytes from one tick to the next. No tick comes before the start.
static STEP: AtomicU64 = AtomicU64::new(u64::MAX);
/// Whether a thread has [`TICKER`].
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether this process was forked since the last tick.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

static TICKER: Shared = Shared(UnsafeCell::new(Ticker::new()));

struct Shared(UnsafeCell<Ticker>);

// SAFETY: only the thread that has set `IS_TAKEN` touches the ticker.
unsafe impl Sync for Shared {}

/// Adds bytes to those of all threads, and ticks if they complete a step.
pub(crate) fn count(bytes: u64) {
    let since = SINCE.fetch_add(bytes, Relaxed).saturating_add(bytes);
    if since >= STEP.load(Relaxed) {
        with_ticker(|ticker| {
            SINCE.store(0, Relaxed);
            ticker.tick();
        });
    }
}

/// Runs with the ticker, unless another thread has it.
fn with_ticker(run: impl FnOnce(&mut Ticker)) {
    if IS_TAKEN.swap(true, Acquire) {
        return;
    }
    // SAFETY: this thread has set `IS_TAKEN`. What runs does not come back here: jemalloc's statistics and the page
    // allocate by jemalloc alone, or not at all.
    run(unsafe { &mut *TICKER.0.get() });
    IS_TAKEN.store(false, Release);
}

/// Starts with a configuration, and with the page where it is told, if there is one.
pub(crate) fn start(configuration: &Configuration, page: Option<SharedPage>) {
    with_ticker(|ticker| {
        ticker.configuration = *configuration;
        ticker.page = page;
        ticker.names = Names::resolve();
        ticker.tick();
    });
}

/// Keeps other threads from the ticker while the process forks: the child has only one thread.
pub(crate) unsafe extern "C" fn before_fork() {
    while IS_TAKEN.swap(true, Acquire) {
        // SAFETY: the call takes nothing.
        unsafe { libc::sched_yield() };
    }
}

/// Undoes [`before_fork`] in the parent.
pub(crate) unsafe extern "C" fn after_fork_in_parent() {
    IS_TAKEN.store(false, Release);
}

/// Undoes [`before_fork`] in the child, whose next tick gets a page of its own. Until then the child tells nothing.
pub(crate) unsafe extern "C" fn after_fork_in_child() {
    IS_FORKED.store(true, Relaxed);
    Counts::clear();
    THREADS.store(1, Relaxed);
    IS_TAKEN.store(false, Release);
}

struct Ticker {
    configuration: Configuration,
    /// The number of changes that the configuration has.
    changes: u64,
    placement: Placement,
    placed: [u64; CLASSES],
    names: Names,
    page: Option<SharedPage>,
    ticks: u64,
    /// When the ticker told last what takes long to read.
    told_ms: u64,
}

impl Ticker {
    const fn new() -> Ticker {
        Ticker {
            configuration: Configuration::DRAM_ONLY,
            changes: 0,
            placement: Placement::new(),
            placed: [0; CLASSES],
            names: Names::none(),
            page: None,
            ticks: 0,
            told_ms: 0,
        }
    }

    fn tick(&mut self) {
        if IS_FORKED.swap(false, Relaxed) {
            self.renew();
        }
        self.obey();
        self.names.refresh();
        let (dram_bytes, far_bytes) = self.names.live_bytes();
        self.names.placed(&mut self.placed);
        for (placed, tables) in self.placed.iter_mut().zip(&TABLES) {
            *placed = placed.saturating_sub(tables.load(Relaxed));
        }
        let seen = Seen { placed: &self.placed, dram_bytes, far_bytes };
        let decision = self.placement.decide(&Rules::of(&self.configuration), &seen);
        WORDS.tables_in_dram.store(self.configuration.tables_in_dram, Relaxed);
        WORDS.set(&decision);
        STEP.store(decision.step_bytes, Relaxed);
        let quantum = (decision.step_bytes / QUANTA).min(QUANTUM_BYTES_MAX);
        QUANTUM_BYTES.store(quantum as i64, Relaxed);
        self.ticks += 1;
        self.tell(&decision, dram_bytes, far_bytes);
    }

    /// Takes what the command wants.
    fn obey(&mut self) {
        let Some(page) = &self.page else { return };
        let Some((changes, wanted)) = page.wanted(self.changes, &self.configuration) else { return };
        self.changes = changes;
        match wanted {
            Some(configuration) => {
                self.configuration = configuration;
                page.applied.store(changes, Release);
            }
            None => page.refused.store(changes, Release),
        }
    }

    /// Gives a forked child a page of its own. What the parent's page said of the far memory holds for the child's.
    fn renew(&mut self) {
        (self.told_ms, self.ticks, self.changes) = (0, 0, 0);
        let Some(page) = &mut self.page else { return };
        let (kind, nodes) = (FarKind::of_number(page.told.far_kind.load(Relaxed)), page.told.nodes());
        // Without a file, the page stays private and nobody finds it.
        let _ = page.renew();
        publish(page, kind, &nodes, &self.configuration);
    }

    fn tell(&mut self, decision: &Decision, dram_bytes: u64, far_bytes: u64) {
        let Some(page) = &self.page else { return };
        let told = &page.told;
        let bounds = if decision.far_above == u64::MAX { decision.dram_max } else { decision.far_above };
        told.threshold_bytes.store(bounds, Relaxed);
        told.dither.store(decision.far_fraction.into(), Relaxed);
        told.policy.store(self.configuration.policy as u32, Relaxed);
        told.ratio.store(self.configuration.ratio.to_word(), Relaxed);
        told.threads.store(THREADS.load(Relaxed), Relaxed);
        for (medium, bytes) in [(Medium::Dram, dram_bytes), (Medium::Far, far_bytes)] {
            let (counts, medium) = (&COUNTS[medium as usize], told.medium(medium));
            medium.live_bytes.store(bytes, Relaxed);
            medium.spills.store(counts.spills.load(Relaxed), Relaxed);
            medium.spilled_bytes.store(counts.spilled_bytes.load(Relaxed), Relaxed);
            medium.moves.store(counts.moves.load(Relaxed), Relaxed);
            medium.moved_bytes.store(counts.moved_bytes.load(Relaxed), Relaxed);
        }
        let now_ms = now_ms();
        if now_ms - self.told_ms >= u64::from(self.configuration.period_ms) {
            self.names.tell(page);
            self.told_ms = now_ms;
        }
        told.ticked_ms.store(now_ms, Relaxed);
        told.ticks.store(self.ticks, Release);
    }
}

/// Makes a new page one that commands find.
pub(crate) fn publish(page: &Page, far: FarKind, nodes: &NodeSet, configuration: &Configuration) {
    page.told.set_far(far, nodes);
    page.told.set_class(configuration.class.as_ref());
    page.publish(std::process::id(), env!("CARGO_PKG_VERSION"), configuration);
}

fn now_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes to `now` alone.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
