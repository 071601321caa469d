//! Measures the host's cost of a job of 4 KiB, from submit to reap, with a device that takes no time: `cargo run
//! --release -p ziptier-accel --example job_cost`. The example prints nanoseconds of CPU time per job (median and
//! spread of seven rounds), and heap allocations per job.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use ziptier_accel::null::NullDevice;
use ziptier_accel::{Codes, Limits, Operation, Session, Stream};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BLOCK_BYTES: usize = 4096;
const BATCH: u64 = 16;
const BATCHES: u64 = 50_000;
const ROUNDS: usize = 7;

fn main() {
    let compress = |codes, verify| Operation::Compress { codes, verify };
    for (name, operation, copies) in [
        ("compress fixed, source in place", compress(Codes::Fixed, false), false),
        ("compress fixed, source copied", compress(Codes::Fixed, false), true),
        ("compress fixed and verify, source copied", compress(Codes::Fixed, true), true),
        ("decompress, source copied", Operation::Decompress(Stream::Plain), true),
    ] {
        let mut session = Session::new(vec![Arc::new(NullDevice::new())], Limits::default());
        run(&mut session, &operation, copies, BATCHES / 10);
        let mut rounds: Vec<f64> = Vec::with_capacity(ROUNDS);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..ROUNDS {
            let start = cpu_ns();
            run(&mut session, &operation, copies, BATCHES);
            rounds.push((cpu_ns() - start) / (BATCH * BATCHES) as f64);
        }
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        rounds.sort_unstable_by(f64::total_cmp);
        println!(
            "{name}: {:.0} ns a job ({:.0}-{:.0}), {allocations} allocations in {} jobs",
            rounds[ROUNDS / 2],
            rounds[0],
            rounds[ROUNDS - 1],
            ROUNDS as u64 * BATCH * BATCHES,
        );
    }
}

fn run(session: &mut Session, operation: &Operation, copies: bool, batches: u64) {
    let block = [7; BLOCK_BYTES];
    for _ in 0..batches {
        for tag in 0..BATCH {
            let fill = |input: &mut [u8]| {
                if copies {
                    input.copy_from_slice(black_box(&block))
                }
            };
            let taken = session.submit_filled(operation, tag, BLOCK_BYTES, BLOCK_BYTES, fill);
            taken.expect("a null device takes every job");
        }
        let mut tags = 0;
        let ended = session.reap_all(|tag, result| {
            tags += tag;
            black_box(result.expect("a null device fails at nothing").output);
        });
        assert_eq!((ended as u64, tags), (BATCH, BATCH * (BATCH - 1) / 2));
    }
}

/// CPU time of this thread.
fn cpu_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
