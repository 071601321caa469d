//! Batches into one leaf keep to the memory limit. Alone in its process: a second one fits once the memory of the first
//! is free, for which no reader may stand still.

use ziptier::{Batch, CodecChoice, Options, Store};

const MEMORY: u64 = 32 << 20;

#[test]
fn a_batch_into_one_leaf_keeps_to_the_limit() {
    let memory_limit_bytes = Some(MEMORY);
    let store =
        Store::open(Options { codec: CodecChoice::None, memory_limit_bytes, ..Options::default() }).unwrap();
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
        assert_eq!(writer.join().unwrap(), 2);
    });
}
