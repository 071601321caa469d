//! A limit that is not kept ends in the kernel killing the process; one that is kept by dropping data is worse.

use ziptier::{CodecChoice, Error, Options, Store};
use ziptier_testing::until;

fn text(n: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n);
    let words = ["lorem", "ipsum", "dolor", "sit", "amet", "consectetur", "adipiscing", "elit", "sed", "do"];
    let mut text = String::new();
    for _ in 0..25 {
        text.push_str(words[random.usize(..10)]);
        text.push(' ');
    }
    text.into_bytes()
}

#[test]
fn a_write_over_the_limit_is_refused_and_changes_nothing() {
    let limit_bytes = 8 << 20;
    let store = Store::open(Options { memory_limit_bytes: Some(limit_bytes), ..Options::default() }).unwrap();
    let mut written = 0u64;
    let refusal = loop {
        match store.put(format!("key:{written:012}").as_bytes(), &text(written)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 1_000_000, "the limit never came");
    };
    assert!(matches!(refusal, Error::MemoryLimit { .. }), "{refusal}");
    assert!(store.memory().total_bytes() <= limit_bytes + limit_bytes / 20);
    for n in 0..written {
        assert_eq!(store.get(format!("key:{n:012}").as_bytes()).unwrap(), Some(text(n)));
    }
    assert!(matches!(store.put(b"huge", &vec![1; 16 << 20]), Err(Error::MemoryLimit { .. })));
    assert_eq!(store.get(b"huge").unwrap(), None);
    // What makes room is not refused, however often it comes.
    for n in 0..written {
        let key = format!("key:{n:012}");
        assert!(store.set_expiry(key.as_bytes(), Some(33_177_117_420_000)).unwrap());
        assert!(n % 2 == 0 || store.delete(key.as_bytes()).unwrap());
        assert!(store.memory().total_bytes() <= limit_bytes + limit_bytes / 20);
    }
    store.settle().unwrap();
    store.put(b"there is", b"room again").unwrap();
    store.set_memory_limit(None);
    store.put(b"one more", b"fits").unwrap();
}

const MEMORY: u64 = 32 << 20;

#[test]
fn large_values_that_come_at_once_share_what_room_there_is() {
    let memory_limit_bytes = Some(MEMORY);
    let store =
        Store::open(Options { codec: CodecChoice::None, memory_limit_bytes, ..Options::default() }).unwrap();
    let value = vec![7; 12 << 20];
    for round in 0..20 {
        let start = std::sync::Barrier::new(5);
        let taken = std::thread::scope(|scope| {
            let (store, value, start) = (&store, &value, &start);
            let writers: Vec<_> = (0..4u8)
                .map(|n| {
                    scope.spawn(move || {
                        start.wait();
                        store.put(&[n], value).is_ok()
                    })
                })
                .collect();
            start.wait();
            while !writers.iter().all(|writer| writer.is_finished()) {
                // A watcher that loses its processor between two gauges sees what was never there.
                let held = (0..3).map(|_| store.memory().total_bytes()).min().unwrap();
                assert!(held <= MEMORY + MEMORY * 3 / 100, "{held} in round {round}");
            }
            writers.into_iter().map(|writer| usize::from(writer.join().unwrap())).sum::<usize>()
        });
        assert!(taken <= 2, "{taken} in round {round}");
        (0..4u8).for_each(|n| {
            store.delete(&[n]).unwrap();
        });
        until("the bytes of large values are back", || {
            store.settle().unwrap();
            store.memory().large_bytes == 0
        });
    }
}
