//! Windows of one thread with several connections to a server in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ziptier_testing::HANG;

use crate::data::keys::{KeyShape, Keys};
use crate::data::oracle::Oracle;
use crate::data::values::{ValueBytes, Values};
use crate::run::clock::Clock;
use crate::run::control::{Control, Phase};
use crate::run::every_key::{check_all, load};
use crate::run::instance::Instance;
use crate::run::spec::RunSpec;
use crate::run::tally::{Mistakes, Tally};
use crate::run::worker::{Buffers, Worker};
use crate::servers::resp::Endpoint;
use crate::servers::resp::served::{Answered, Asked, serve};
use crate::target::{Target, Work};
use crate::targets::{Connections, RespTarget};
use crate::workload::distribution::{Distribution, KeyLaw};
use crate::workload::scan::{ScanLength, ScanLengths};
use crate::workload::{LoadOrder, Workload};

const KEYS: u64 = 200;
const STALL: Duration = Duration::from_millis(300);

/// A window of one thread.
#[derive(Clone, Copy)]
struct Window {
    connections: u64,
    mix: &'static str,
    at_once: usize,
    quota: Option<u64>,
    interval_ns: Option<f64>,
    begin: Phase,
    patience: Option<Duration>,
}

const READS: Window = Window {
    connections: 2,
    mix: "read=100",
    at_once: 1,
    quota: Some(500),
    interval_ns: None,
    begin: Phase::Measure,
    patience: None,
};

/// Works in a window at a server whose right answers go through `answer`, and checks every key. The server's first
/// connection is that of the load and the check.
fn worked(
    window: Window,
    answer: impl Fn(&Asked, Vec<u8>) -> Answered + Send + Sync + 'static,
    meanwhile: impl FnOnce(&Control, &Clock),
) -> Tally {
    let corpus: Arc<Vec<u8>> = Arc::new((0..40_000u32).flat_map(u32::to_le_bytes).collect());
    let region = 0..corpus.len();
    let values = Values::new(corpus, region, ValueBytes { min: 0, max: 300 }, 5).unwrap();
    let oracle = Oracle::with_room(Keys::new(KeyShape::Decimal, None), 0, [KEYS, 2_000], values);
    let socket = serve(answer);
    let target = Arc::new(RespTarget::unasked(socket));
    let instance: Instance = target.clone();
    let mut mistakes = Mistakes::default();
    load(&instance, &oracle, 1, LoadOrder::Random, &mut mistakes);
    if let Some(patience) = window.patience {
        let endpoint = Endpoint { socket, database: 0 };
        let mut connections = Connections::open(endpoint, 0..window.connections).unwrap();
        connections.be_patient_for(patience);
        target.keep(connections);
    }
    let (clock, control) = (Clock::system(), Control::new(1));
    control.enter(window.begin);
    let mut worker = Worker {
        work: Work::Servers(None),
        oracle: &oracle,
        chooser: KeyLaw::new(Distribution::Zipfian { theta: 0.8 }, KEYS).chooser(7, 0, 1),
        mix: Workload::mixed(window.mix).unwrap().mix,
        scan_lengths: ScanLengths::new(ScanLength::default()),
        thread: 0,
        threads: 1,
        connections: 0..window.connections,
        multi_get: window.at_once,
        multi_put: window.at_once,
        clock: Some(clock.clone()),
        interval_ns: window.interval_ns,
        quota: window.quota,
        buffers: Buffers::new(window.at_once, 0, 0, 0),
    };
    thread::scope(|scope| {
        scope.spawn(|| instance.operate(&mut worker, &control));
        control.start();
        meanwhile(&control, &clock);
    });
    let tally = worker.buffers.tally;
    if tally.mistakes.gone.is_none() {
        check_all(&instance, &oracle, &mut mistakes);
        assert!((0..oracle.len()).all(|index| !oracle.observe(index).in_flight()));
    }
    assert_eq!(mistakes.first, None);
    tally
}

fn nothing_more(_: &Control, _: &Clock) {}

/// Waits until it is so, and not for ever; whether it is.
fn comes(is_so: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > HANG {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

#[test]
fn connections_are_spread_over_threads_as_evenly_as_may_be() {
    for (connections, spread, several) in [
        (None, [0..1, 1..2, 2..3, 3..4], 0),
        (Some(5), [0..1, 1..2, 2..3, 3..5], 1),
        (Some(13), [0..3, 3..6, 6..9, 9..13], 4),
    ] {
        let spec = RunSpec { threads: 4, connections, ..RunSpec::new("redis://", "json") };
        assert_eq!([0, 1, 2, 3].map(|thread| spec.connections_of(thread, 4)), spread);
        // A thread with one connection is no concern of the target.
        assert_eq!(spec.config().connections, spread[4 - several..]);
    }
}

#[test]
fn calls_of_all_connections_are_under_way_at_the_same_time() {
    const CONNECTIONS: usize = 8;
    for at_once in [1, 4] {
        let waiting = AtomicUsize::new(0);
        let together = move |asked: &Asked, right| {
            if asked.is_get() && asked.before == 0 {
                waiting.fetch_add(1, Ordering::Relaxed);
                // A thread that waits for one answer after the other never has so many requests here.
                if !comes(|| waiting.load(Ordering::Relaxed) >= CONNECTIONS) {
                    return (b"-ERR alone\r\n".to_vec(), true);
                }
            }
            (right, true)
        };
        let window = Window { connections: CONNECTIONS as u64, at_once, ..READS };
        let tally = worked(window, together, nothing_more);
        assert_eq!(tally.mistakes.first, None);
        assert!((500..504).contains(&tally.operations), "{}", tally.operations);
    }
}

#[test]
fn every_answer_of_every_operation_is_judged() {
    for at_once in [1, 4] {
        let mix = "read=50,write=25,delete=10,insert=5,rmw=10";
        let window = Window { connections: 7, mix, at_once, quota: Some(2_000), ..READS };
        let tally = worked(window, |_, right| (right, true), nothing_more);
        assert_eq!(tally.mistakes.first, None);
        assert!((2_000..2_004).contains(&tally.operations), "{}", tally.operations);
        let calls = tally.read_ns.len() + tally.write_ns.len();
        assert!((tally.operations / at_once as u64..=tally.operations).contains(&calls), "{calls}");
        let has_lied = AtomicBool::new(false);
        let lying = move |asked: &Asked, mut right: Vec<u8>| {
            let is_long = asked.connection > 0 && asked.is_get() && right.len() > 20;
            if is_long && !has_lied.swap(true, Ordering::Relaxed) {
                let middle = right.len() / 2;
                right[middle] ^= 1;
            }
            (right, true)
        };
        let Mistakes { count, first, .. } = worked(window, lying, nothing_more).mistakes;
        let first = first.unwrap();
        assert!(count == 1 && first.starts_with("get of key number "), "{count}: {first}");
        assert!(first.ends_with(" answered bytes that were not written"), "{first}");
    }
}

#[test]
fn a_refusal_is_told_with_its_connection() {
    let refusing = |asked: &Asked, right| match asked.parts[0].as_slice() {
        b"SET" if asked.connection == 2 && asked.before == 0 => (b"-OOM no memory\r\n".to_vec(), true),
        _ => (right, true),
    };
    let window = Window { mix: "read=50,write=50", ..READS };
    let Mistakes { count, first, .. } = worked(window, refusing, nothing_more).mistakes;
    let first = first.unwrap();
    assert!(count == 1 && first.contains("failed: connection 2, from port "), "{count}: {first}");
    assert!(first.ends_with(": it refused SET: OOM no memory"), "{first}");
}

#[test]
fn a_connection_that_fails_is_named_and_another_takes_its_place() {
    let closing = |asked: &Asked, right| match asked.connection {
        3 if asked.before == 0 => (Vec::new(), false),
        _ => (right, true),
    };
    for mix in ["read=100", "write=100", "rmw=100"] {
        let tally = worked(Window { connections: 4, mix, ..READS }, closing, nothing_more);
        let Mistakes { count, first, gone } = tally.mistakes;
        let first = first.unwrap();
        assert!(count == 1 && gone.is_none(), "{count}: {first}");
        assert!(first.contains("failed: connection 3, from port "), "{first}");
        assert!(first.ends_with(": it closed the connection"), "{first}");
        assert!((500..504).contains(&tally.operations), "{}", tally.operations);
    }
}

#[test]
fn a_server_that_is_silent_on_all_connections_is_gone() {
    let silent = |asked: &Asked, right| match asked.connection {
        0 => (right, true),
        _ => loop {
            thread::park();
        },
    };
    let window = Window { patience: Some(Duration::from_millis(50)), ..READS };
    let gone = worked(window, silent, nothing_more).mistakes.gone.unwrap();
    assert!(gone.starts_with("connection 1, from port "), "{gone}");
    assert!(gone.ends_with(": it did not answer for 0.05 s"), "{gone}");
}

#[test]
fn a_connection_that_stalls_holds_up_no_other() {
    let stalling = |asked: &Asked, right| {
        if asked.connection == 1 && asked.before == 0 {
            thread::sleep(STALL);
        }
        (right, true)
    };
    let Tally { operations, read_ns, .. } = worked(READS, stalling, nothing_more);
    assert_eq!((operations, read_ns.len()), (500, 500));
    let stall_ns = STALL.as_nanos() as u64;
    assert!(read_ns.max() >= stall_ns && read_ns.value_at_quantile(0.9) < stall_ns, "{}", read_ns.max());
}

/// All connections stall in the first third of the window.
#[test]
fn an_arrival_that_finds_no_idle_connection_waits_from_its_arrival_on() {
    let stalling = |asked: &Asked, right| {
        if asked.connection > 0 && asked.before == 3 {
            thread::sleep(STALL);
        }
        (right, true)
    };
    let window = Window { quota: Some(1_000), ..READS };
    let late_ns = |interval_ns| {
        let tally = worked(Window { interval_ns, ..window }, stalling, nothing_more);
        assert_eq!((tally.operations, tally.read_ns.len()), (1_000, 1_000));
        tally.read_ns.value_at_quantile(0.85)
    };
    // Of a thousand operations, a millisecond apart, a fifth comes while two thirds of the stall lie ahead.
    let (open_ns, closed_ns, third_ns) = (late_ns(Some(1e6)), late_ns(None), STALL.as_nanos() as u64 / 3);
    assert!(open_ns >= third_ns && closed_ns < third_ns, "{open_ns} and {closed_ns}");
}

/// A window of two connections whose first calls come and stay unanswered until `meanwhile` is over.
fn held_up(window: Window, meanwhile: impl FnOnce(&Control, &Clock)) -> Tally {
    let (waiting, is_released) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (there, released) = (Arc::clone(&waiting), Arc::clone(&is_released));
    let holding = move |asked: &Asked, right| {
        if asked.connection > 0 {
            there.fetch_add(1, Ordering::Relaxed);
            comes(|| released.load(Ordering::Relaxed));
        }
        (right, true)
    };
    let tally = worked(Window { quota: None, ..window }, holding, |control, clock| {
        assert!(comes(|| waiting.load(Ordering::Relaxed) == 2));
        meanwhile(control, clock);
        is_released.store(true, Ordering::Relaxed);
    });
    assert_eq!(tally.mistakes.first, None);
    tally
}

#[test]
fn operations_that_find_no_idle_connection_until_the_window_ends_are_charged() {
    let tally = held_up(Window { interval_ns: Some(1e6), ..READS }, |control, clock| {
        thread::sleep(STALL);
        control.end(clock.raw());
    });
    // Two have begun, and one comes in each of at least 300 milliseconds.
    assert_eq!(tally.operations, 2);
    assert!(tally.read_ns.len() > 200, "{}", tally.read_ns.len());
}

/// Both calls are under way when the window begins, or from its begin on, and when it ends.
#[test]
fn a_call_counts_for_the_window_in_which_it_was_sent() {
    for (begin, expected) in [(Phase::WarmUp, 0), (Phase::Measure, 2)] {
        let tally = held_up(Window { begin, ..READS }, |control, clock| {
            control.enter(Phase::Measure);
            control.end(clock.raw());
        });
        assert_eq!((tally.operations, tally.read_ns.len()), (expected, expected), "{begin:?}");
    }
}
