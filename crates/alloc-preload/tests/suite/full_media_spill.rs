//! A medium that has reached its limit leaves the program running: the other medium takes its blocks, and both count
//! them. `malloc` fails only where both are full.

use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use ziptier_alloc::configuration::{Configuration, Policy};
use ziptier_alloc::page::{Medium, SharedPage};
use ziptier_alloc::size_class::class;
use ziptier_testing::until;

use crate::support::{far_range, free, in_child, in_child_with, malloc, page_of, usable};

const MB: usize = 1 << 20;

/// Allocates 16 KiB at a time until `bytes`, or until nothing is left.
fn fill(bytes: usize) -> Vec<usize> {
    let mut blocks = Vec::with_capacity(bytes / 16384 + 1);
    while blocks.len() * 16384 < bytes {
        let block = malloc(16384);
        if block == 0 {
            break;
        }
        blocks.push(block);
    }
    blocks
}

fn bytes_in_far(blocks: &[usize]) -> usize {
    let far = far_range();
    blocks.iter().filter(|block| far.contains(block)).count() * 16384
}

/// The page after a tick that has told everything.
fn told() -> SharedPage {
    std::thread::sleep(Duration::from_millis(150));
    fill(2 * MB).into_iter().for_each(free);
    page_of(std::process::id())
}

fn far_is_full() {
    let blocks = fill(64 * MB);
    assert_eq!(blocks.len(), 64 * MB / 16384);
    let in_far = bytes_in_far(&blocks);
    assert!((15 * MB..18 * MB).contains(&in_far), "{in_far} bytes in far memory");
    let page = told();
    let far = page.told.medium(Medium::Far);
    assert!(far.spills.load(Relaxed) > 1000 && far.spilled_bytes.load(Relaxed) > 16_000_000);
}

#[test]
fn from_far_memory_to_dram() {
    let options = "policy=only-far,far-limit=16MiB";
    in_child("full_media_spill::from_far_memory_to_dram", options, far_is_full);
}

fn far_is_full_after_the_start() {
    let in_far = bytes_in_far(&fill(3 * MB));
    assert!((MB / 2..MB + MB / 8).contains(&in_far), "{in_far} bytes in far memory");
}

#[test]
fn also_right_after_the_start() {
    let options = "policy=only-far,far-limit=1MiB,period-ms=60000";
    in_child("full_media_spill::also_right_after_the_start", options, far_is_full_after_the_start);
}

/// Has the library put all blocks into far memory, up to 1 MiB, in a heap after a 24th of which jemalloc sums up, 40
/// MiB. Returns the page and the number of the change.
fn want_far_in_a_large_heap() -> (SharedPage, u64) {
    assert_ne!(malloc(960 * MB), 0, "no page of the block is touched");
    let page = page_of(std::process::id());
    let changes = page.want(&Configuration {
        policy: Policy::OnlyFar,
        far_limit_bytes: MB as u64,
        ..Configuration::DEFAULT
    });
    (page, changes)
}

/// At jemalloc's last sum, far memory had no pages. The next tick sums up only if there is a new arena, and the first
/// tick in DRAM has seen that of this thread.
fn far_is_full_before_a_sum() {
    let (page, changes) = want_far_in_a_large_heap();
    let is_obeyed = |_| {
        free(malloc(4096));
        page.applied.load(Relaxed) == changes
    };
    assert!((0..48 * MB / 4096).any(is_obeyed));
    let in_far = bytes_in_far(&fill(3 * MB));
    assert!((MB / 2..MB + MB / 8).contains(&in_far), "{in_far} bytes in far memory");
}

#[test]
fn also_before_jemalloc_sums_up() {
    let options = "policy=only-dram,far-limit=1MiB,period-ms=60000";
    in_child("full_media_spill::also_before_jemalloc_sums_up", options, far_is_full_before_a_sum);
}

/// At jemalloc's last sum, far memory had one small block in a page.
fn far_is_full_after_a_small_block() {
    let (page, changes) = want_far_in_a_large_heap();
    (0..48 * MB / 4096).for_each(|_| free(malloc(4096)));
    assert_eq!(page.applied.load(Relaxed), changes);
    assert!(far_range().contains(&malloc(100)));
    (0..48 * MB / 100).for_each(|_| free(malloc(100)));
    let in_far = bytes_in_far(&fill(3 * MB));
    assert!((MB / 2..MB + MB / 8).contains(&in_far), "{in_far} bytes in far memory");
}

#[test]
fn also_after_a_sum_of_little() {
    let options = "policy=only-dram,far-limit=1MiB,period-ms=60000";
    in_child("full_media_spill::also_after_a_sum_of_little", options, far_is_full_after_a_small_block);
}

/// jemalloc's sum finds the arena of the second thread.
fn far_is_full_in_a_new_arena() {
    // SAFETY: the call takes a number.
    if unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } < 2 {
        return ziptier_testing::not_run("several arenas", "take a machine with two processors");
    }
    let (page, changes) = want_far_in_a_large_heap();
    (0..48 * MB / 4096).for_each(|_| free(malloc(4096)));
    assert_eq!(page.applied.load(Relaxed), changes);
    // This thread takes the arena that the library made at its start.
    assert!(far_range().contains(&malloc(100)));
    let in_far = std::thread::spawn(|| bytes_in_far(&fill(3 * MB))).join().unwrap();
    assert!((MB / 2..MB + MB / 8).contains(&in_far), "{in_far} bytes in far memory");
}

#[test]
fn also_in_an_arena_that_was_just_made() {
    let options = "policy=only-dram,far-limit=1MiB,period-ms=60000";
    in_child("full_media_spill::also_in_an_arena_that_was_just_made", options, far_is_full_in_a_new_arena);
}

fn far_is_full_after_an_impossible_request() {
    assert_eq!(malloc(usize::MAX / 4 * 3), 0);
    far_is_full();
}

#[test]
fn also_after_a_request_that_nobody_can_meet() {
    let options = "policy=only-far,far-limit=16MiB";
    let name = "full_media_spill::also_after_a_request_that_nobody_can_meet";
    in_child(name, options, far_is_full_after_an_impossible_request);
}

/// Each thread has an arena of its own, and stays until the test ends.
fn far_is_full_beside_many_arenas() {
    const THREADS: usize = 550;
    static WITH_ARENA: AtomicUsize = AtomicUsize::new(0);
    for _ in 0..THREADS {
        let work = || {
            let block = malloc(8);
            WITH_ARENA.fetch_add(1, SeqCst);
            std::thread::park();
            free(block);
        };
        std::thread::Builder::new().stack_size(64 << 10).spawn(work).unwrap();
    }
    until("each thread has its arena", || WITH_ARENA.load(SeqCst) == THREADS);
    far_is_full();
}

#[test]
fn also_beside_many_arenas_in_dram() {
    let name = "full_media_spill::also_beside_many_arenas_in_dram";
    let arenas = |command: &mut std::process::Command| {
        command.env("_RJEM_MALLOC_CONF", "narenas:600");
    };
    in_child_with(name, "policy=only-far,pin=64,far-limit=16MiB", arenas, far_is_full_beside_many_arenas);
}

fn dram_is_full() {
    let blocks = fill(64 * MB);
    assert_eq!(blocks.len(), 64 * MB / 16384);
    let in_dram = 64 * MB - bytes_in_far(&blocks);
    assert!((12 * MB..18 * MB).contains(&in_dram), "{in_dram} bytes in DRAM");
    let page = told();
    let dram = page.told.medium(Medium::Dram);
    assert!(dram.spills.load(Relaxed) > 1000 && dram.spilled_bytes.load(Relaxed) > 16_000_000);
}

#[test]
fn from_dram_to_far_memory() {
    let options = "policy=only-dram,dram-limit=16MiB";
    in_child("full_media_spill::from_dram_to_far_memory", options, dram_is_full);
}

fn both_are_full() {
    let blocks = fill(64 * MB);
    let error = std::io::Error::last_os_error();
    let got = blocks.len() * 16384;
    assert!((28 * MB..36 * MB).contains(&got), "{got} bytes");
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    blocks.into_iter().for_each(free);
    assert_ne!(malloc(16384), 0, "what was freed is room");
    let blocks = fill(64 * MB);
    let again = blocks.len() * 16384;
    blocks.into_iter().for_each(free);
    assert!(again > 26 * MB, "{again} bytes");
}

#[test]
fn and_malloc_fails_where_both_are_full() {
    let options = "ratio=1:1,dram-limit=16MiB,far-limit=16MiB";
    in_child("full_media_spill::and_malloc_fails_where_both_are_full", options, both_are_full);
}

fn reallocate_where_both_are_full() {
    let small = malloc(16);
    fill(64 * MB).into_iter().for_each(free);
    // SAFETY: the block is live.
    assert!(!unsafe { libc::realloc(small as *mut _, 16384) }.is_null(), "what was freed is room");
}

#[test]
fn and_realloc_finds_what_was_freed() {
    let options = "ratio=1:1,dram-limit=16MiB,far-limit=16MiB";
    in_child("full_media_spill::and_realloc_finds_what_was_freed", options, reallocate_where_both_are_full);
}

fn free_one_where_both_are_full() {
    let far = far_range();
    let mut blocks = fill(64 * MB);
    let block = blocks.remove(blocks.iter().position(|block| far.contains(block)).unwrap());
    free(block);
    let again = malloc(16384);
    blocks.into_iter().for_each(free);
    assert_eq!(again, block);
}

#[test]
fn and_a_thread_takes_the_far_block_that_it_freed() {
    let options = "policy=only-far,dram-limit=16MiB,far-limit=16MiB";
    let name = "full_media_spill::and_a_thread_takes_the_far_block_that_it_freed";
    in_child(name, options, free_one_where_both_are_full);
}

fn large_blocks() {
    assert_eq!(malloc(64 * MB), 0, "larger than both limits");
    let blocks: Vec<usize> = (0..3).map(|_| malloc(12 * MB)).collect();
    let are_null: Vec<bool> = blocks.iter().map(|&block| block == 0).collect();
    assert_eq!(are_null, [false, false, true], "one in each medium");
    assert_eq!(bytes_in_far(&blocks), 16384);
}

#[test]
fn and_a_large_block_does_not_exceed_them() {
    let options = "policy=only-dram,dram-limit=16MiB,far-limit=16MiB";
    in_child("full_media_spill::and_a_large_block_does_not_exceed_them", options, large_blocks);
}

/// A step between two ticks has 16 MiB here, since it grows with the heap.
fn small_blocks_after_a_large_one() {
    let far = far_range();
    assert!(far.contains(&malloc(2048 * MB)), "no page of the block is touched");
    let large = malloc(120 * MB);
    assert!(large != 0 && !far.contains(&large));
    let in_dram = (0..16 * MB / 1024).filter(|_| !far.contains(&malloc(1024))).count() * 1024;
    assert!((6 * MB..9 * MB).contains(&in_dram), "{in_dram} bytes in small blocks beside 120 MiB");
}

#[test]
fn and_small_blocks_after_a_large_one_do_not_exceed_them() {
    let options = "policy=only-dram,dram-limit=128MiB";
    let name = "full_media_spill::and_small_blocks_after_a_large_one_do_not_exceed_them";
    in_child(name, options, small_blocks_after_a_large_one);
}

/// Threads that allocate at the same moment, between two ticks.
fn large_blocks_of_threads() {
    const THREADS: usize = 8;
    let far = far_range();
    let (ready, done) = (Barrier::new(THREADS), Barrier::new(THREADS));
    let (in_dram, most_in_dram) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..200 {
                    ready.wait();
                    let block = malloc(6 * MB);
                    let own = usize::from(!far.contains(&block));
                    most_in_dram.fetch_max(in_dram.fetch_add(own, SeqCst) + own, SeqCst);
                    done.wait();
                    in_dram.fetch_sub(own, SeqCst);
                    free(block);
                }
            });
        }
    });
    let most_in_dram = most_in_dram.into_inner();
    assert!(most_in_dram <= 2, "{most_in_dram} blocks of 6 MiB in DRAM");
    let page = page_of(std::process::id());
    let spills = || page.told.medium(Medium::Dram).spills.load(Relaxed);
    // The next tick tells of the last ones.
    until("all spills are told", || {
        free(malloc(6 * MB));
        spills() >= 200 * 6
    });
    assert!(spills() < 200 * 8, "{} of 1600 blocks spilled", spills());
}

#[test]
fn and_large_blocks_of_threads_do_not_exceed_them_together() {
    let name = "full_media_spill::and_large_blocks_of_threads_do_not_exceed_them_together";
    in_child(name, "policy=only-dram,dram-limit=16MiB", large_blocks_of_threads);
}

/// A thread asks for a block that has room, while others take and free what a tick allows.
fn a_block_beside_churn() {
    let is_done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while is_done.load(SeqCst) == 0 {
                    let block = malloc(MB);
                    assert!(block != 0);
                    free(block);
                }
            });
        }
        for round in 0..1000 {
            let block = malloc(20 * MB);
            is_done.store(usize::from(block == 0 || round == 999), SeqCst);
            assert!(block != 0, "no room in round {round}");
            free(block);
        }
    });
}

#[test]
fn and_large_blocks_that_others_free_leave_room() {
    let name = "full_media_spill::and_large_blocks_that_others_free_leave_room";
    in_child(name, "ratio=1:1,dram-limit=32MiB,far-limit=32MiB", a_block_beside_churn);
}

/// The limit of DRAM has room for it, and the system has no addresses.
fn a_block_that_the_system_refuses() {
    let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the call reads the limit that it is given.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
    assert_eq!(malloc(2 << 30), 0);
    // SAFETY: the block is live.
    assert!(unsafe { libc::realloc(malloc(MB) as *mut _, 2 << 30) }.is_null());
}

#[test]
fn and_the_system_may_refuse_a_block_that_has_room() {
    let name = "full_media_spill::and_the_system_may_refuse_a_block_that_has_room";
    in_child(name, "policy=only-dram,dram-limit=8GiB,far-limit=64MiB", a_block_that_the_system_refuses);
}

fn grow() {
    let small = malloc(MB);
    // SAFETY: the block is live.
    let large = unsafe { libc::realloc(small as *mut _, 64 * MB) } as usize;
    assert!(far_range().contains(&large));
}

#[test]
fn and_a_block_that_grows_does_not_exceed_them() {
    let options = "policy=only-dram,dram-limit=16MiB";
    in_child("full_media_spill::and_a_block_that_grows_does_not_exceed_them", options, grow);
}

fn tables() {
    // SAFETY: nothing is given.
    let tables: Vec<usize> = (0..8).map(|_| unsafe { libc::calloc(1 << 19, 8) } as usize).collect();
    let far = far_range();
    let in_dram = tables.iter().filter(|&table| !far.contains(table)).count();
    assert!((2..=4).contains(&in_dram), "{in_dram} tables of 4 MiB in DRAM");
    // SAFETY: nothing is given.
    assert!(far.contains(&(unsafe { libc::calloc(1 << 24, 8) } as usize)));
}

#[test]
fn and_tables_do_not_exceed_them() {
    let options = "policy=only-dram,dram-limit=17MiB";
    in_child("full_media_spill::and_tables_do_not_exceed_them", options, tables);
}

fn zeroed(bytes: usize) -> usize {
    // SAFETY: nothing is given.
    unsafe { libc::calloc(1, bytes) as usize }
}

fn small_zeroed_blocks() {
    let blocks: Vec<usize> = (0..64 * MB / 1024).map(|_| zeroed(1024)).collect();
    let far = far_range();
    let in_dram = blocks.iter().filter(|&block| !far.contains(block)).count() * 1024;
    assert!((12 * MB..18 * MB).contains(&in_dram), "{in_dram} bytes in DRAM");
}

#[test]
fn and_small_zeroed_blocks_do_not_exceed_them() {
    let options = "policy=only-dram,dram-limit=16MiB";
    let name = "full_media_spill::and_small_zeroed_blocks_do_not_exceed_them";
    in_child(name, options, small_zeroed_blocks);
}

/// The largest block that has room takes the pages that it needs, and no more.
fn almost_the_limit() {
    let block = malloc(1100 * MB);
    assert_ne!(block, 0, "there is room for 1200 MiB");
    assert_eq!(usable(block), 1100 * MB);
}

#[test]
fn and_a_block_just_below_a_limit_has_room() {
    let options = "policy=only-dram,dram-limit=1200MiB,far-limit=1200MiB";
    in_child("full_media_spill::and_a_block_just_below_a_limit_has_room", options, almost_the_limit);
}

fn told_by_class() {
    let blocks: Vec<usize> = (0..256).map(|_| malloc(33_000)).collect();
    assert_eq!(usable(blocks[0]), 36_864);
    let page = told();
    let told: u64 =
        page.told.media.iter().map(|medium| medium.live_bytes_by_class[class(33_000)].load(Relaxed)).sum();
    blocks.into_iter().for_each(free);
    assert!((256 * 36_864..258 * 36_864).contains(&told), "{told} bytes");
}

#[test]
fn and_the_bytes_of_a_class_are_those_of_its_pages() {
    let name = "full_media_spill::and_the_bytes_of_a_class_are_those_of_its_pages";
    in_child(name, "ratio=1:3", told_by_class);
}

/// The system's own limit: no more addresses for DRAM. Far memory has addresses that it used before; for others, too,
/// jemalloc would need room in DRAM to describe them.
fn no_addresses() {
    let far = far_range();
    let is_far = |block: &usize| far.contains(block);
    let (in_far, _in_dram): (Vec<_>, Vec<_>) = (0..80).map(|_| malloc(64 * MB)).partition(is_far);
    assert!(in_far.len() > 30, "{} blocks in far memory", in_far.len());
    in_far.into_iter().for_each(free);
    // SAFETY: the call reads the limit that it is given.
    unsafe {
        let limit = libc::rlimit { rlim_cur: 1 << 30, rlim_max: libc::RLIM_INFINITY };
        assert_eq!(libc::setrlimit(libc::RLIMIT_AS, &limit), 0);
    }
    let blocks: Vec<usize> = (0..30).map(|_| malloc(64 * MB)).collect();
    assert_eq!(blocks.iter().position(|&block| block == 0), None);
    assert!(blocks.iter().filter(|block| is_far(block)).count() > 20);
}

#[test]
fn and_where_the_system_has_no_addresses_for_dram() {
    let name = "full_media_spill::and_where_the_system_has_no_addresses_for_dram";
    in_child(name, "ratio=1:1", no_addresses);
}

/// The system refuses memory, but the addresses are there for the next block.
fn refused_memory() {
    let far = far_range();
    let limit_data = |rlim_cur| {
        let limit = libc::rlimit { rlim_cur, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: the call reads the limit that it is given.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) }, 0);
    };
    limit_data(1 << 30);
    (0..8).for_each(|_| assert_eq!(malloc(1 << 40), 0));
    limit_data(libc::RLIM_INFINITY);
    assert!(far.contains(&malloc(8 << 40)));
}

#[test]
fn and_memory_that_the_system_refuses_takes_no_addresses() {
    let name = "full_media_spill::and_memory_that_the_system_refuses_takes_no_addresses";
    in_child(name, "policy=only-far", refused_memory);
}
