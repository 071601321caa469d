//! `libziptier_alloc.so`: the allocator of an unmodified program, by `LD_PRELOAD`.
//!
//! The library gives the program one heap over two media. Blocks in DRAM come from jemalloc's own arenas. Blocks in
//! far memory come from arenas whose extents lie in one reserved range of addresses, so one comparison tells the medium
//! of a pointer. [`ziptier_alloc::placement`] decides the medium of a size; this crate counts and obeys.
//!
//! The library must not be linked into a program, and must not be loaded by `dlopen`: its thread-local words need room
//! that only the start of a program gives.
//!
//! | module | what it owns |
//! |---|---|
//! | `heap` | the way of an allocation: compare, choose the medium, spill, move |
//! | `thread` | what each thread has: bytes until it settles, its cache of far blocks |
//! | `magazines` | the free far blocks that a thread keeps at hand |
//! | `sizes` | the size of each small block |
//! | `room` | room below a limit, which large blocks take before they are allocated |
//! | `far` | the range of far addresses, its nodes, and jemalloc's hooks into it |
//! | `nodes` | the nodes that are far memory |
//! | `permission` | whether memory may be bound to nodes |
//! | `statistics` | what jemalloc counts |
//! | `forked` | whether this process is a forked child for which no fork handler has run |
//! | `tick` | now and then: counts, decides, obeys the command, tells |
//! | `start` | the environment, the set-up before `main`, and fork |
//! | `symbols` | the exported names: C, C++, and jemalloc's own |
//!
//! How the parts work together:
//!
//! 1. Before the constructor has run, [`heap::WORDS`] send every size to DRAM. jemalloc sets itself up at the first
//!    call, so the dynamic linker and other constructors can allocate. Right after it, the handlers of fork register.
//! 2. The constructor reads the environment, reserves the range, makes a far arena and the shared page, and decides for
//!    the first time.
//! 3. Each thread counts the bytes that it allocates. Whoever completes a step runs a tick.
//! 4. A tick reads jemalloc's statistics, asks the policy, and stores two words that allocations compare with.
//!
//! The random calls of `tests/suite` run here once more, in a program that has the library as a part of itself. So a
//! sanitizer can watch them (`make asan-alloc`, `make tsan-alloc`). Another test commits a fault that each sanitizer
//! must report.
//!
//! The code here allocates nothing of its own, and does not unwind: `operator new` alone lets an exception of C++ pass.

mod far;
mod forked;
mod heap;
mod magazines;
mod nodes;
mod permission;
mod room;
mod sizes;
mod start;
mod statistics;
mod symbols;
mod thread;
mod tick;

#[cfg(test)]
#[path = "../tests/suite/a_million_calls_agree_with_a_shadow.rs"]
#[allow(clippy::unwrap_used, reason = "a test that can't go on should stop")]
mod a_million_calls_agree_with_a_shadow;
#[cfg(test)]
mod sanitizers_report_faults;
#[cfg(test)]
mod support;
