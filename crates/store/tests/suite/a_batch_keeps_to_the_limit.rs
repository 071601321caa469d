//! Batches into one leaf keep to the memory limit. A second one fits once the memory of the first is free.

use ziptier::{Batch, CodecChoice, Options, Store};

const MEMORY: u64 = 32 << 20;

#[test]
fn a_batch_into_one_leaf_keeps_to_the_limit() {
    // The second batch waits for a background thread that maintains the leaf.
    for background_threads in [0, 1] {
        assert_eq!(batches_taken(background_threads), 2, "{background_threads}");
    }
}

/// How many of eight batches of 9 MB into one leaf are taken.
fn batches_taken(background_threads: usize) -> usize {
    let options = Options { codec: CodecChoice::None, background_threads, ..Options::default() };
    let store = Store::open(Options { memory_limit_bytes: Some(MEMORY), ..options }).unwrap();
    let value = [7; 1000];
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let taken = (0..8u8).take_while(|round| {
                let batch = (0..9_000u32).fold(Batch::new(), |batch, n| {
                    batch.put(&[&[*round][..], &n.to_be_bytes()].concat(), &value)
                });
                store.write(&batch).is_ok()
            });
            let taken = taken.count();
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            taken
        });
        while !is_done.load(std::sync::atomic::Ordering::Relaxed) && !writer.is_finished() {
            // A watcher that loses its processor between two gauges sees what was never there.
            let held = (0..3).map(|_| store.memory().total_bytes()).min().unwrap();
            assert!(held <= MEMORY + MEMORY * 3 / 100, "{held}");
        }
        writer.join().unwrap()
    })
}
