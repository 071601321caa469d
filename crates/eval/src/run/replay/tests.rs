use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use super::*;
use crate::run::control::Phase;
use crate::run::instance::open;
use crate::run::replay::owner::Replayer;
use crate::run::simulated::Ticking;
use crate::target::{Answers, Config, Records, Target, TargetError};
use crate::targets::{BTreeMapTarget, NullTarget};
use crate::workload::Workload;

/// A store with the habit that the name of its codec tells.
struct Habitual {
    map: BTreeMapTarget,
    habit: String,
    /// Values that were replaced.
    old: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
    has_failed: AtomicBool,
}

impl Habitual {
    fn has(&self, habit: &str) -> bool {
        self.habit == habit
    }

    /// Every second key, by its last byte.
    fn is_odd(key: &[u8]) -> bool {
        key.last().is_some_and(|byte| byte % 2 == 1)
    }
}

impl Target for Habitual {
    type Batch = Answers;

    fn open(config: &Config) -> Result<Self, TargetError> {
        let map = BTreeMapTarget::open(config)?;
        Ok(Habitual {
            map,
            habit: config.codec.clone(),
            old: Mutex::default(),
            has_failed: AtomicBool::new(false),
        })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        let found = self.map.get(key, value)?;
        let old = self.old.lock().unwrap();
        if self.has("answers old values")
            && let Some((_, old)) = old.iter().rev().find(|(one, _)| one == key)
        {
            value.clone_from(old);
        }
        if self.has("finds everything") && !found {
            value.clear();
            return Ok(true);
        }
        Ok(found)
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        if self.has("fails one multi_get") && !self.has_failed.swap(true, Ordering::Relaxed) {
            return Err("it is busy".into());
        }
        self.map.multi_get(keys, batch)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        let loses = self.has("loses keys") || self.has("evicts keys");
        if loses && Self::is_odd(key) {
            return Ok(());
        }
        let mut before = Vec::new();
        if self.map.get(key, &mut before)? {
            self.old.lock().unwrap().push((key.to_vec(), before));
        }
        if self.has("fails") {
            return Err("it is full".into());
        }
        self.map.put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        if self.has("keeps deleted keys") { Ok(true) } else { self.map.delete(key) }
    }

    fn scan(&self, _: &[u8], _: usize, _: &mut Records) -> Result<(), TargetError> {
        Ok(())
    }

    fn may_forget(&self) -> bool {
        self.has("evicts keys")
    }

    fn refuses(&self, operation: Operation) -> Option<String> {
        (self.has("has no deletes") && operation == Operation::Delete).then(|| "it has no DEL".into())
    }
}

struct Asked<'a> {
    habit: &'a str,
    threads: u64,
    speed: Option<f64>,
    fills: bool,
    operations: Option<u64>,
}

const USUAL: Asked<'static> =
    Asked { habit: "none", threads: 1, speed: None, fills: false, operations: None };

fn replay<T: Target + 'static>(requests: &str, asked: &Asked<'_>) -> Result<Measurement, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests");
    std::fs::write(&path, format!("ziptier-trace 1\n{requests}")).unwrap();
    let trace = TraceSpec::of(&path, asked.speed, asked.fills).unwrap();
    let usual = RunSpec::new("habitual", "json");
    let spec = RunSpec {
        codec: asked.habit.into(),
        threads: asked.threads,
        operations: asked.operations,
        ..usual.of_workload(Workload::of_trace(trace))
    };
    let meters = Meters::default();
    crate::run::run(open::<T>, &spec, &meters, &|_| {})
}

fn measured(requests: &str, asked: &Asked<'_>) -> (Measurement, Replayed) {
    let measured = replay::<Habitual>(requests, asked).unwrap();
    let replayed = measured.replayed.clone().unwrap();
    (measured, replayed)
}

const EVERY_OPERATION: &str = "\
0 get a
0 set a 100 60
0 get a
0 gets a
0 add a 50
0 add b 70
0 replace a 40
0 replace c 10
0 cas b 60
0 append b 5
0 prepend c 9
0 incr a
0 decr d
0 touch a
0 delete b
0 delete e
0 set long-key-of-some-other-length 0
0 get b
";

#[test]
fn every_operation_does_what_its_name_says() {
    let (measured, replayed) = measured(EVERY_OPERATION, &USUAL);
    assert_eq!((measured.mismatches, measured.first_mismatch), (0, None));
    // `touch` is skipped.
    assert_eq!((measured.operations, replayed.requests, replayed.skipped), (17, 18, 1));
    assert_eq!((replayed.gets, replayed.hits), (4, 2));
    // `replace c`, `prepend c`, `decr d`.
    assert_eq!((replayed.without_key, replayed.lifetimes), (3, 1));
    let names: Vec<_> = replayed.operations.iter().map(|(name, count)| (name.as_str(), *count)).collect();
    assert!(names.contains(&("add", 2)) && names.contains(&("get", 3)) && names.contains(&("touch", 1)));
    // a with 40 bytes, which `incr` leaves, and the long key with none.
    assert_eq!((measured.keys, measured.raw_bytes), (2, 1 + 40 + 29));
    assert!((40.0..60.0).contains(&replayed.hit_pct().unwrap()));
    assert!(measured.read.is_some() && measured.write.is_some());
    let notes = measured.notes.join("\n");
    for told in ["1 writes had a lifetime", "1 requests were skipped", "3 requests to change a value"] {
        assert!(notes.contains(told), "{told}: {notes}");
    }
}

/// Many keys, whose order matters, as each is read right after it was written.
fn busy() -> String {
    let line = |at: u64| match at % 5 {
        0 => format!("{at} set k{} {}\n", at % 37, at % 300),
        1 => format!("{at} append k{} 1\n", (at - 1) % 37),
        4 => format!("{at} delete k{}\n", at % 11),
        _ => format!("{at} get k{}\n", (at - at % 5) % 37),
    };
    (0..20_000).map(line).collect()
}

#[test]
fn several_threads_keep_the_order_of_each_key() {
    let (alone, alone_replayed) = measured(&busy(), &USUAL);
    let (together, replayed) = measured(&busy(), &Asked { threads: 3, ..USUAL });
    assert_eq!([&alone, &together].map(|one| (one.mismatches, &one.first_mismatch)), [(0, &None); 2]);
    assert_eq!((alone.keys, alone.raw_bytes), (together.keys, together.raw_bytes));
    assert_eq!(alone_replayed, Replayed { file: alone_replayed.file.clone(), ..replayed });
    assert_eq!(together.operations, 20_000);
}

#[test]
fn liars_are_caught() {
    for (habit, told) in [
        ("answers old values", "answered bytes that were not written"),
        ("loses keys", "did not find a key that exists"),
        ("keeps deleted keys", "said true, and the key did not exist"),
        ("finds everything", "found a key that does not exist"),
        ("fails", "failed: it is full"),
    ] {
        let (measured, _) = measured(&busy(), &Asked { habit, threads: 2, ..USUAL });
        let first = measured.first_mismatch.unwrap_or_default();
        assert!(measured.mismatches > 0 && first.contains(told), "{habit}: {first}");
    }
    // Nobody reads the key before the last check.
    let (measured, _) = measured("0 set k1 5\n", &Asked { habit: "loses keys", ..USUAL });
    assert_eq!(
        measured.first_mismatch.as_deref(),
        Some("multi_get of key `k1` did not find a key that exists")
    );
}

#[test]
fn a_cache_may_forget_and_not_invent() {
    let (measured, replayed) = measured(&busy(), &Asked { habit: "evicts keys", ..USUAL });
    assert_eq!(measured.first_mismatch, None);
    assert!((20.0..70.0).contains(&replayed.hit_pct().unwrap()), "{replayed:?}");
    // Of the keys that the trace has written, those with an odd last byte are not held.
    let (all, _) = self::measured(&busy(), &USUAL);
    let [held, written] = [&measured, &all].map(|one| (one.keys, one.raw_bytes));
    assert!(0 < held.0 && held.0 < written.0 && held.1 < written.1, "{held:?} of {written:?}");
    let requests = "0 set k1 5\n0 set k2 7\n";
    let (few, _) = self::measured(requests, &Asked { habit: "evicts keys", ..USUAL });
    assert_eq!((few.keys, few.raw_bytes), (1, 2 + 7));
    // The harness itself stores nothing.
    let null = replay::<NullTarget>(&busy(), &USUAL).unwrap();
    assert_eq!((null.first_mismatch, null.replayed.unwrap().hits), (None, 0));
}

#[test]
fn misses_are_filled_where_that_is_asked_for() {
    let requests = "0 get a 30\n0 get a 30\n0 get b\n0 get b\n";
    let (plain, replayed) = measured(requests, &USUAL);
    assert_eq!((plain.keys, replayed.hits, replayed.fills), (0, 0, 0));
    let (filled, replayed) = measured(requests, &Asked { fills: true, ..USUAL });
    assert_eq!((filled.keys, filled.raw_bytes, replayed.hits, replayed.fills), (1, 31, 1, 1));
    assert_eq!((filled.operations, filled.first_mismatch), (4, None));
}

#[test]
fn requests_of_a_target_without_deletes_are_skipped() {
    let (measured, replayed) = measured(EVERY_OPERATION, &Asked { habit: "has no deletes", ..USUAL });
    assert_eq!((measured.first_mismatch, replayed.skipped, measured.operations), (None, 3, 15));
}

#[test]
fn what_was_replayed_before_a_fault_is_kept() {
    let requests = "0 set a 10\n0 get a\n1 set b\n0 get a\n";
    for threads in [1, 2] {
        let (measured, replayed) = measured(requests, &Asked { threads, ..USUAL });
        assert_eq!((measured.operations, replayed.requests, measured.first_mismatch), (2, 2, None));
        let fault = replayed.fault.unwrap();
        let told = "requests: line 4, field 4 (bytes of the value): it is missing";
        assert!(fault.starts_with("cannot take ") && fault.contains(told), "{fault}");
    }
    let (some, replayed) = measured(requests, &Asked { operations: Some(2), ..USUAL });
    assert_eq!((some.operations, replayed.fault), (2, None));
}

/// Without the speed, or at the times of the trace's own clock, a replay would take hours.
#[test]
fn requests_arrive_at_the_times_of_the_trace() {
    let requests = "1000000 set a 10\n1007200 get a\n1014400 get a\n";
    let (paced, _) = measured(requests, &Asked { speed: Some(72_000.0), ..USUAL });
    assert_eq!((paced.operations, paced.first_mismatch), (3, None));
    assert!(paced.wall_sec >= 0.2, "{}", paced.wall_sec);
    let (closed, _) = measured(requests, &USUAL);
    assert_eq!((closed.operations, closed.first_mismatch), (3, None));
}

#[test]
fn a_look_at_a_key_that_fails_blames_no_other_key() {
    let asked = Asked { habit: "fails one multi_get", ..USUAL };
    let (measured, _) = measured("0 set a 100\n0 set b 50\n", &asked);
    let told = measured.first_mismatch.unwrap();
    assert!(measured.mismatches == 1 && told.contains("key `a` failed: it is busy"), "{told}");
}

/// The keys of a thread may come in the begin of a trace alone.
#[test]
fn requests_of_a_warm_up_are_not_counted_though_none_follows_in_the_window() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "ziptier-trace 1\n0 set a 10\n0 get a\n").unwrap();
    let mut trace = TraceFile::open(file.path(), 100).unwrap();
    let (mut feeder, mut inboxes) = Feeder::new(1, None);
    feeder.feed(&mut trace, u64::MAX);
    let batch = inboxes.remove(0).batches.recv().unwrap();
    let ((queue, batches), (empty, worked_off)) = (channel(), channel());
    queue.send(batch).unwrap();
    let inbox = Inbox { batches, empty };
    let target = Habitual::open(&Config::default()).unwrap();
    let control = Control::new(1);
    let (values, mut part) = (TraceValues(Arc::new(vec![0; 100])), Part::default());
    let mut owner = Owner {
        work: Work::Here,
        values: &values,
        may_forget: false,
        can_delete: true,
        fills: false,
        is_paced: false,
        clock: Some(Clock::system()),
        part: &mut part,
        buffers: Buffers::new(1, 0, 100, 0),
    };
    let tally = thread::scope(|scope| {
        let (target, control) = (&target, &control);
        let replayer = scope.spawn(move || {
            Replayer::new(target, &mut owner).run(&inbox, control);
            owner.buffers.tally
        });
        control.start();
        worked_off.recv().unwrap();
        control.enter(Phase::Measure);
        drop(queue);
        replayer.join().unwrap()
    });
    assert_eq!((tally.operations, tally.read_ns.len(), tally.write_ns.len()), (0, 0, 0));
    assert_eq!((part.counts.hits, part.counts.operations.iter().sum::<u64>()), (0, 0));
    assert_eq!(tally.mistakes.first, None);
}

#[test]
fn requests_that_a_stall_kept_from_their_window_are_charged() {
    // One request each millisecond for ten seconds; the window ends in the middle of the first, which takes four.
    let requests: String =
        (0..10_000).map(|ms| format!("{}.{:03} get a\n", ms / 1_000, ms % 1_000)).collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("ziptier-trace 1\n{requests}")).unwrap();
    let mut trace = TraceFile::open(file.path(), 100).unwrap();
    let target = Ticking::open(&Config::default()).unwrap();
    let control = target.window_that_ends_in(4_000_000_000);
    let (mut feeder, mut inboxes) = Feeder::new(1, Some(1.0));
    let (values, mut part) = (TraceValues(Arc::new(vec![0; 100])), Part::default());
    let mut owner = Owner {
        work: Work::Here,
        values: &values,
        may_forget: false,
        can_delete: true,
        fills: false,
        is_paced: true,
        clock: Some(Clock::simulated(target.now())),
        part: &mut part,
        buffers: Buffers::new(1, 0, 100, 0),
    };
    let inbox = inboxes.remove(0);
    let tally = thread::scope(|scope| {
        scope.spawn(|| feeder.feed(&mut trace, u64::MAX));
        let (target, control) = (&target, &control);
        let replayer = scope.spawn(move || {
            Replayer::new(target, &mut owner).run(&inbox, control);
            owner.buffers.tally
        });
        control.start();
        replayer.join().unwrap()
    });
    assert_eq!((tally.operations, tally.mistakes.first), (1, None));
    let sec = [tally.read_ns.min(), tally.read_ns.max()].map(|ns| ns as f64 / 1e9);
    assert!((1_990..2_010).contains(&tally.read_ns.len()), "{}", tally.read_ns.len());
    assert!((1.9..2.1).contains(&sec[0]) && (3.9..4.1).contains(&sec[1]), "{sec:?}");
}
