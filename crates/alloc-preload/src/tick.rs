//! The tick: counts, decides, obeys the command, tells.
//!
//! No thread of its own ticks. Whichever thread completes a step of allocated bytes does, and the others go on: two
//! ticks never run at the same time, and nothing waits for one. The steps grow with the heap, so a tick costs a fixed
//! share of the allocations. A heap that stands still has no ticks, and needs none.

use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

use ziptier_alloc::classes::{ClassError, Membership, Share, default_path};
use ziptier_alloc::configuration::{Configuration, NodeSet};
use ziptier_alloc::page::{FarKind, Page, SharedPage};
use ziptier_alloc::placement::{Decision, Placement, Rules, Seen};
use ziptier_alloc::size_class::{CLASSES, class};

use crate::heap::{COUNTS, Counts, WORDS};
use crate::room::{ROOMS, Room};
use crate::start::say;
use crate::statistics::Census;
use crate::thread::{QUANTUM_BYTES, THREADS, Thread};
use crate::{far, forked};

/// A thread settles this many times in a step, if it is the only one that allocates.
const QUANTA: u64 = 64;
/// The least and the most that a thread allocates before it settles.
const QUANTUM_BYTES_BOUNDS: (u64, u64) = (4 << 10, 64 << 10);

/// jemalloc sums up after as many bytes as this share of the heap has, and no fewer than so many. A page that loses or
/// gains blocks shows only in a sum.
const SUM_SHARE: u64 = 24;
const SUM_BYTES_MIN: u64 = 4 << 20;

/// A larger block counts as one of this many bytes.
pub(crate) const BLOCK_BYTES_MAX: u64 = 1 << 36;

/// The length of one sleep of a thread while another one has the ticker. A tick takes up to 50 us.
const TURN: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };

/// The most sleeps of a thread that has no room. A fork of a large process takes seconds. The turns end, because the
/// other thread may wait for this one.
pub(crate) const RECOUNT_TURNS: u32 = 600_000;

/// A process that is not in its class tries to join once in so many milliseconds.
const JOIN_MS: u64 = 1000;

/// All bytes that were allocated and that the policy may place, by class.
static PLACED: [AtomicU64; CLASSES] = [const { AtomicU64::new(0) }; CLASSES];

/// Bytes that all threads have allocated since the last tick.
static SINCE: AtomicU64 = AtomicU64::new(0);
/// Bytes from one tick to the next. No tick comes before the start.
static STEP: AtomicU64 = AtomicU64::new(u64::MAX);
/// The thread that has [`TICKER`]; null if none has.
static OWNER: AtomicPtr<Thread> = AtomicPtr::new(null_mut());
/// How often the owner has taken the ticker once more. Nobody else touches it.
static DEPTH: AtomicU32 = AtomicU32::new(0);
/// Whether this process was forked since the last tick.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

static TICKER: Shared = Shared(UnsafeCell::new(Ticker::new()));

struct Shared(UnsafeCell<Ticker>);

// SAFETY: only the thread that `OWNER` names touches the ticker.
unsafe impl Sync for Shared {}

/// Adds bytes to those of all threads, and ticks if they complete a step. The policy places the bytes if it has placed
/// the last block of them, which has the size `placed`. Limits hold for all blocks.
pub(crate) fn count(placed: Option<usize>, bytes: u64) {
    // A request that cannot be met must not outweigh all others.
    let bytes = bytes.min(BLOCK_BYTES_MAX);
    if let Some(size) = placed {
        PLACED[class(size as u64)].fetch_add(bytes, Relaxed);
    }
    let since = SINCE.fetch_add(bytes, Relaxed).saturating_add(bytes);
    if since >= STEP.load(Relaxed) {
        with_ticker(|ticker| {
            SINCE.store(0, Relaxed);
            ticker.tick(since);
        });
    }
}

/// Counts exactly and decides, for an allocation that no medium has room for: room may have been freed since the last
/// tick. Returns whether it counted.
#[cold]
pub(crate) fn recount() -> bool {
    for _ in 0..RECOUNT_TURNS {
        if with_ticker(|ticker| ticker.tick(u64::MAX)) {
            return true;
        }
        if is_own() {
            return false;
        }
        sleep();
    }
    false
}

/// Sleeps a turn. A thread that only yielded would starve the other one, if it is a real-time thread.
pub(crate) fn sleep() {
    // The functions of glibc that sleep may end a thread that another one cancels, and malloc must not.
    // SAFETY: the call reads a time.
    unsafe { libc::syscall(libc::SYS_nanosleep, &TURN, null_mut::<libc::timespec>()) };
}

/// Runs with the ticker, unless a thread has it. Returns whether it ran.
fn with_ticker(run: impl FnOnce(&mut Ticker)) -> bool {
    // SAFETY: `OWNER` names this thread. What runs does not come back here: jemalloc's statistics and the page allocate
    // by jemalloc alone, or not at all.
    try_without_ticks(|| run(unsafe { &mut *TICKER.0.get() }))
}

/// Runs what must not run beside a tick, unless a thread has the ticker. Returns whether it ran.
pub(crate) fn try_without_ticks(run: impl FnOnce()) -> bool {
    let is_taken = try_take();
    if is_taken {
        run();
        release();
    }
    is_taken
}

/// Runs a command of the program to jemalloc. jemalloc holds its locks while it starts or joins a thread. A tick of
/// either thread would wait for these locks, and for ever.
pub(crate) fn without_ticks<T>(run: impl FnOnce() -> T) -> T {
    take();
    let result = run();
    release();
    result
}

/// Takes the ticker, or takes it once more: a signal handler may fork in the middle of a tick of its own thread.
fn take() {
    if is_own() {
        DEPTH.fetch_add(1, Relaxed);
        return;
    }
    while !try_take() {
        sleep();
    }
}

fn try_take() -> bool {
    let own = Thread::current();
    // Before the child is known, so that no thread of the child has the ticker yet.
    let inherited = OWNER.load(Acquire);
    if forked::is_new() {
        begin_anew();
        // A thread of the parent that has the ticker is not here to give it back, or to end a write.
        if inherited != own && !inherited.is_null() {
            DEPTH.store(0, Relaxed);
            // SAFETY: no thread of the child takes the ticker while `OWNER` names one of the parent.
            if let Some(membership) = unsafe { &mut (*TICKER.0.get()).membership } {
                membership.forget_file();
            }
            let _ = OWNER.compare_exchange(inherited, null_mut(), Relaxed, Relaxed);
        }
    }
    OWNER.compare_exchange(null_mut(), own, Acquire, Relaxed).is_ok()
}

/// Whether this thread has the ticker.
fn is_own() -> bool {
    OWNER.load(Relaxed) == Thread::current()
}

fn release() {
    match DEPTH.load(Relaxed) {
        0 => OWNER.store(null_mut(), Release),
        depth => DEPTH.store(depth - 1, Relaxed),
    }
}

/// Starts with a configuration, and with the page where it is told, if there is one. A thread of an earlier constructor
/// may have the ticker, for a fork or for a command to jemalloc: this thread waits for it.
pub(crate) fn start(configuration: &Configuration, page: Option<SharedPage>) {
    // A child that was forked before the start has no page of its parent.
    IS_FORKED.store(false, Relaxed);
    without_ticks(|| {
        // SAFETY: this thread has the ticker.
        let ticker = unsafe { &mut *TICKER.0.get() };
        ticker.configuration = *configuration;
        ticker.page = page;
        if let Err(error) = ticker.join(now_ms()) {
            let name = configuration.class.as_ref().map_or("", |name| name.as_str());
            say(format_args!("it serves without the class {name}, because {error}"));
        }
        ticker.tick(u64::MAX);
    });
}

/// Keeps other threads from the ticker while the process forks: the child has only one thread.
pub(crate) unsafe extern "C" fn before_fork() {
    take();
}

/// Undoes [`before_fork`] in the parent.
pub(crate) unsafe extern "C" fn after_fork_in_parent() {
    release();
}

/// Resets what a forked child has of its parent. The child's next tick gets a page of its own before it tells.
fn begin_anew() {
    IS_FORKED.store(true, Relaxed);
    Counts::clear();
    ROOMS.iter().for_each(Room::end_all);
    // SAFETY: the variables are this thread's. The child has no other thread of its parent.
    let has_magazines = unsafe { !(*Thread::current()).magazines.is_null() };
    THREADS.store(has_magazines.into(), Relaxed);
}

/// Undoes [`before_fork`] in the child.
pub(crate) unsafe extern "C" fn after_fork_in_child() {
    // From now on the child is known.
    forked::is_new();
    begin_anew();
    // SAFETY: since `before_fork` this thread is the owner. A tick that a signal handler interrupts does not go on
    // meanwhile.
    if let Some(page) = unsafe { &mut (*TICKER.0.get()).page } {
        page.detach();
    }
    release();
}

struct Ticker {
    configuration: Configuration,
    /// The number of changes that were read.
    changes: u64,
    /// The number of changes that the configuration has.
    obeyed: u64,
    placement: Placement,
    census: Census,
    /// Bytes allocated since jemalloc summed up.
    since_sum: u64,
    /// Whether the last decision followed live bytes.
    follows_live_bytes: bool,
    page: Option<SharedPage>,
    membership: Option<Membership>,
    /// What the class left at the last tick in which the process was a member.
    share: Option<Share>,
    /// When the process may try to join.
    join_ms: u64,
    ticks: u64,
    /// When the ticker told last what takes long to read.
    told_ms: u64,
}

impl Ticker {
    const fn new() -> Ticker {
        Ticker {
            configuration: Configuration::DRAM_ONLY,
            changes: 0,
            obeyed: 0,
            placement: Placement::new(),
            census: Census::new(),
            since_sum: 0,
            follows_live_bytes: true,
            page: None,
            membership: None,
            share: None,
            join_ms: 0,
            ticks: 0,
            told_ms: 0,
        }
    }

    fn tick(&mut self, bytes: u64) {
        let now_ms = now_ms();
        self.since_sum = self.since_sum.saturating_add(bytes);
        let ended = ROOMS.each_ref().map(Room::ended);
        let (mut live_bytes, mut most_bytes) = (self.census.estimate(), self.census.at_most());
        let live: u64 = live_bytes.iter().sum();
        let is_time = now_ms - self.told_ms >= u64::from(self.configuration.period_ms);
        let count_bytes = SUM_BYTES_MIN.max(live / SUM_SHARE);
        // The pages of a new arena count from a sum on.
        let is_due = || self.since_sum >= count_bytes || far::has_new_arena();
        let is_counted = is_time || (self.follows_live_bytes && is_due());
        if is_counted {
            live_bytes = self.census.sum_up();
            most_bytes = live_bytes;
            self.since_sum = 0;
        }
        if IS_FORKED.swap(false, Relaxed) {
            self.renew(live_bytes);
        }
        self.obey();
        let configuration = self.with_class(live_bytes, now_ms);
        let placed = PLACED.each_ref().map(|bytes| bytes.load(Relaxed));
        let page_bytes = self.census.page_bytes;
        let seen = Seen { placed: &placed, live_bytes, most_bytes, is_counted, count_bytes, page_bytes };
        let rules = Rules::of(&configuration);
        self.follows_live_bytes = rules.follow_live_bytes();
        let decision = self.placement.decide(&rules, &seen);
        WORDS.tables_in_dram.store(configuration.tables_in_dram, Relaxed);
        WORDS.set(&decision);
        ROOMS[0].allow(ended[0], decision.dram_room_bytes);
        ROOMS[1].allow(ended[1], decision.far_room_bytes);
        STEP.store(decision.step_bytes, Relaxed);
        let (least, most) = QUANTUM_BYTES_BOUNDS;
        QUANTUM_BYTES.store((decision.step_bytes / QUANTA).clamp(least, most) as u32, Relaxed);
        self.ticks += 1;
        if is_time {
            self.told_ms = now_ms;
        }
        let Some(page) = &self.page else { return };
        tell(page, &configuration, &decision, [live_bytes, self.census.active()]);
        if is_time {
            self.census.tell(page);
        }
        // A command that sees this shows what was told, and allocations obey.
        page.applied.store(self.obeyed, Release);
        page.told.ticked_ms.store(now_ms, Relaxed);
        page.told.ticks.store(self.ticks, Release);
    }

    /// Takes a slot in the class, if there is one.
    fn join(&mut self, now_ms: u64) -> Result<(), ClassError> {
        self.join_ms = now_ms + JOIN_MS;
        let Some(name) = self.configuration.class else { return Ok(()) };
        let path = self.configuration.class_file.unwrap_or_else(default_path);
        self.membership.get_or_insert_with(|| Membership::new(path, name)).join()
    }

    /// The configuration with the ratio and the budgets of the class: the last ones, while there is no class.
    fn with_class(&mut self, live_bytes: [u64; 2], now_ms: u64) -> Configuration {
        let told = self.membership.as_mut().map(|membership| membership.tick(live_bytes, now_ms));
        let is_member = matches!(told, Some(Ok(_)));
        match told {
            Some(Ok(share)) => self.share = Some(share),
            // One that has joined is a member from the next tick on. An error shows in the page.
            _ if now_ms >= self.join_ms => {
                let _ = self.join(now_ms);
            }
            _ => {}
        }
        if let Some(page) = &self.page {
            let is_lost = self.configuration.class.is_some() && !is_member;
            page.told.is_class_lost.store(is_lost.into(), Relaxed);
        }
        let mut configuration = self.configuration;
        if let Some(share) = self.share {
            let [dram, far] = share.limit_bytes;
            configuration.ratio = share.ratio.unwrap_or(configuration.ratio);
            configuration.dram_limit_bytes = configuration.dram_limit_bytes.min(dram);
            configuration.far_limit_bytes = configuration.far_limit_bytes.min(far);
        }
        configuration
    }

    /// Takes what the command wants.
    fn obey(&mut self) {
        let Some(page) = &self.page else { return };
        let Some((changes, wanted)) = page.wanted(self.changes, &self.configuration) else { return };
        self.changes = changes;
        match wanted {
            Some(configuration) => (self.configuration, self.obeyed) = (configuration, changes),
            None => page.refused.store(changes, Release),
        }
    }

    /// Gives a forked child a page of its own. What the parent's page said of far memory and of mistakes holds
    /// for the child's.
    fn renew(&mut self, live_bytes: [u64; 2]) {
        (self.told_ms, self.ticks, self.changes, self.obeyed) = (0, 0, 0, 0);
        // Without a slot, the child is no member at its next tick.
        if let Some(membership) = &mut self.membership {
            let _ = membership.fork(live_bytes);
        }
        let Some(page) = &mut self.page else { return };
        let (kind, nodes) = (FarKind::of_number(page.told.far_kind.load(Relaxed)), page.told.nodes());
        let failed_bindings = page.told.failed_bindings.load(Relaxed);
        let mut mistake = [[0; 8]; 64];
        page.mistake.get(&mut mistake);
        // Without a file, the page stays private and nobody finds it.
        let _ = page.renew();
        page.mistake.set(mistake.as_flattened());
        page.told.failed_bindings.store(failed_bindings, Relaxed);
        publish(page, kind, &nodes, &self.configuration);
    }
}

/// Tells what a tick knows; of bytes, the live ones and those of their pages.
fn tell(page: &Page, configuration: &Configuration, decision: &Decision, bytes: [[u64; 2]; 2]) {
    let told = &page.told;
    let threshold = if decision.far_above == u64::MAX { decision.dram_max } else { decision.far_above };
    told.threshold_bytes.store(threshold, Relaxed);
    told.dither.store(decision.far_fraction.into(), Relaxed);
    told.policy.store(configuration.policy as u32, Relaxed);
    told.ratio.store(configuration.ratio.to_word(), Relaxed);
    told.threads.store(THREADS.load(Relaxed), Relaxed);
    for ((medium, counts), (live, active)) in
        told.media.iter().zip(&COUNTS).zip(bytes[0].into_iter().zip(bytes[1]))
    {
        medium.live_bytes.store(live, Relaxed);
        medium.active_bytes.store(active, Relaxed);
        medium.spills.store(counts.spills.load(Relaxed), Relaxed);
        medium.spilled_bytes.store(counts.spilled_bytes.load(Relaxed), Relaxed);
        medium.moves.store(counts.moves.load(Relaxed), Relaxed);
        medium.moved_bytes.store(counts.moved_bytes.load(Relaxed), Relaxed);
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
