//! A benchmark that cannot fail proves nothing. Each liar here breaks one promise of a store, and each must be caught.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use ziptier_eval::targets::BTreeMapTarget;
use ziptier_eval::{
    Answers, Config, Counters, Meters, Records, Registration, RunSpec, Target, TargetError, Workload,
};

/// The fault of a liar.
trait Lie: Sync {
    /// Whether this put reaches the store.
    fn keeps_put(&self, _key: &[u8], _count: u64) -> bool {
        true
    }
    /// Whether this delete reaches the store.
    fn keeps_delete(&self) -> bool {
        true
    }
    /// The key that a get really looks up.
    fn looked_up(&self, key: &[u8]) -> Vec<u8> {
        key.to_vec()
    }
    /// Whether a delete says that there was something, though there was not.
    fn deletes_what_is_not_there(&self) -> bool {
        false
    }
    /// Changes what a get answers.
    fn answer(&self, _found: &mut bool, _value: &mut Vec<u8>) {}
    /// Changes what a scan answers.
    fn records(&self, _records: &mut Records) {}
    /// Whether calls fail.
    fn fails(&self) -> bool {
        false
    }
}

struct Honest;
impl Lie for Honest {}

thread_local! {
    /// The fault of the liar that this thread opens next. One type has them all, since the loops of the harness are
    /// compiled for each type.
    static LIE: Cell<&'static dyn Lie> = const { Cell::new(&Honest) };
}

struct Liar {
    honest: BTreeMapTarget,
    puts: AtomicU64,
    lie: &'static dyn Lie,
}

impl Target for Liar {
    type Batch = Answers;

    fn open(config: &Config) -> Result<Self, TargetError> {
        Ok(Liar { honest: BTreeMapTarget::open(config)?, puts: AtomicU64::new(0), lie: LIE.get() })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        if self.lie.fails() {
            return Err("this store is out of order".into());
        }
        let mut found = self.honest.get(&self.lie.looked_up(key), value)?;
        self.lie.answer(&mut found, value);
        Ok(found)
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        batch.clear();
        let mut value = Vec::new();
        for key in keys {
            let found = self.get(key, &mut value)?;
            batch.push(found.then_some(value.as_slice()));
        }
        Ok(())
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        if self.lie.keeps_put(key, self.puts.fetch_add(1, Ordering::Relaxed)) {
            self.honest.put(key, value)
        } else {
            Ok(())
        }
    }

    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        let existed = if self.lie.keeps_delete() {
            self.honest.delete(key)?
        } else {
            self.honest.get(key, &mut Vec::new())?
        };
        Ok(existed || self.lie.deletes_what_is_not_there())
    }

    fn scan(&self, from: &[u8], limit: usize, records: &mut Records) -> Result<(), TargetError> {
        self.honest.scan(from, limit, records)?;
        self.lie.records(records);
        Ok(())
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

fn liar(lie: &'static dyn Lie) -> Registration {
    LIE.set(lie);
    Registration::of::<Liar>("liar", "breaks a promise", &["none"])
}

/// Runs the liar with a workload and returns the wrong answers that were found and the first of them.
fn caught(lie: &'static dyn Lie, workload: Workload, multi_get: usize, threads: u64) -> (u64, String) {
    let usual = RunSpec::new("liar", "json");
    let spec = RunSpec {
        distribution: workload.settings.distribution.unwrap_or(usual.distribution),
        workload,
        multi_get,
        multi_put: multi_get,
        threads,
        keys: 2_000,
        operations: Some(10_000),
        warmup_seconds: 0.0,
        ..usual
    };
    let meters = Meters::default();
    let measured = liar(lie).run(&spec, &meters, &|_| {}).unwrap();
    assert!((10_000..10_100).contains(&measured.operations), "{}", measured.operations);
    (measured.mismatches, measured.first_mismatch.unwrap_or_default())
}

fn read_only() -> Workload {
    Workload::named("read_only").unwrap()
}

fn write_only() -> Workload {
    Workload::named("write_only").unwrap()
}

#[test]
fn an_honest_target_passes() {
    let mixes = ["read=40,write=40,delete=10,scan=10", "read=10,delete=10,scan=10,insert=40,rmw=30"];
    let mixes = mixes.map(Workload::mixed);
    let ycsb = ["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"].map(Workload::named);
    let all = mixes.into_iter().chain(ycsb).map(Result::unwrap);
    for workload in all.chain([read_only(), write_only()]) {
        for threads in [1, 3] {
            assert_eq!(caught(&Honest, workload.clone(), 1, threads), (0, String::new()));
        }
    }
    liar(&Honest).check_conformance("none").unwrap();
}

#[test]
fn a_store_that_keeps_nothing_is_caught_in_every_workload() {
    struct KeepsNothing;
    impl Lie for KeepsNothing {
        fn keeps_put(&self, _: &[u8], _: u64) -> bool {
            false
        }
    }
    for (workload, multi_get) in [(read_only(), 1), (read_only(), 16), (write_only(), 1)] {
        let (wrong, first) = caught(&KeepsNothing, workload, multi_get, 1);
        assert!(wrong >= 2_000 && first.contains("did not find"), "{wrong}: {first}");
    }
}

#[test]
fn one_lost_key_in_a_thousand_is_caught() {
    struct LosesOne;
    impl Lie for LosesOne {
        // The same ones each time they are written: what is lost stays lost, however long the run.
        fn keeps_put(&self, key: &[u8], _: u64) -> bool {
            let sum = key.iter().fold(7_u32, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            sum % 1_000 != 500
        }
    }
    for workload in [read_only(), write_only()] {
        assert!(caught(&LosesOne, workload, 1, 2).0 > 0);
    }
}

#[test]
fn stale_values_are_caught() {
    struct IgnoresOverwrites;
    impl Lie for IgnoresOverwrites {
        fn keeps_put(&self, _: &[u8], count: u64) -> bool {
            count < 2_000
        }
    }
    assert!(caught(&IgnoresOverwrites, write_only(), 1, 1).1.contains("bytes that were not written"));
}

#[test]
fn one_wrong_byte_is_caught() {
    struct FlipsTheLastByte;
    impl Lie for FlipsTheLastByte {
        fn answer(&self, _: &mut bool, value: &mut Vec<u8>) {
            if let Some(last) = value.last_mut() {
                *last ^= 1;
            }
        }
    }
    assert!(caught(&FlipsTheLastByte, read_only(), 1, 1).0 > 0);
}

#[test]
fn a_short_value_is_caught() {
    struct CutsTheLastByte;
    impl Lie for CutsTheLastByte {
        fn answer(&self, _: &mut bool, value: &mut Vec<u8>) {
            value.pop();
        }
    }
    assert!(caught(&CutsTheLastByte, read_only(), 16, 1).0 > 0);
}

#[test]
fn finding_what_was_never_written_is_caught() {
    struct FindsEverything;
    impl Lie for FindsEverything {
        fn answer(&self, found: &mut bool, _: &mut Vec<u8>) {
            *found = true;
        }
    }
    let (wrong, first) = caught(&FindsEverything, read_only(), 1, 1);
    assert!(wrong == 1_000 && first.contains("never written"), "{wrong}: {first}");
}

#[test]
fn deletions_that_do_not_happen_are_caught() {
    struct KeepsDeleted;
    impl Lie for KeepsDeleted {
        fn keeps_delete(&self) -> bool {
            false
        }
    }
    assert!(caught(&KeepsDeleted, Workload::mixed("read=50,delete=50").unwrap(), 1, 1).0 > 0);
}

#[test]
fn deletions_of_what_was_not_there_are_caught() {
    struct DeletesAnything;
    impl Lie for DeletesAnything {
        fn deletes_what_is_not_there(&self) -> bool {
            true
        }
    }
    let (_, first) = caught(&DeletesAnything, Workload::mixed("delete=100").unwrap(), 1, 1);
    assert!(first.contains("said true, and the key did not exist"), "{first}");
}

#[test]
fn the_value_of_another_key_is_caught() {
    struct MixesUpKeys;
    impl Lie for MixesUpKeys {
        fn looked_up(&self, key: &[u8]) -> Vec<u8> {
            // The next odd key for each even one.
            let last = key.len() - 1;
            [&key[..last], &[key[last] | 1]].concat()
        }
    }
    for multi_get in [1, 16] {
        let (wrong, first) = caught(&MixesUpKeys, read_only(), multi_get, 1);
        assert!(wrong > 1_000 && first.contains("bytes that were not written"), "{wrong}: {first}");
    }
}

#[test]
fn every_thousandth_put_that_is_dropped_is_caught() {
    struct DropsEveryThousandth;
    impl Lie for DropsEveryThousandth {
        fn keeps_put(&self, _: &[u8], count: u64) -> bool {
            count % 1_000 != 999
        }
    }
    for workload in [read_only(), write_only()] {
        assert!(caught(&DropsEveryThousandth, workload, 1, 2).0 > 0);
    }
}

#[test]
fn a_scan_that_skips_a_key_is_caught() {
    struct SkipsTheThird;
    impl Lie for SkipsTheThird {
        fn records(&self, records: &mut Records) {
            let kept: Vec<_> = records
                .iter()
                .enumerate()
                .filter(|(i, _)| *i != 2)
                .map(|(_, (k, v))| (k.to_vec(), v.to_vec()))
                .collect();
            records.clear();
            kept.iter().for_each(|(key, value)| records.push(key, value));
        }
    }
    assert!(caught(&SkipsTheThird, Workload::mixed("scan=100").unwrap(), 1, 1).1.contains("missed"));
}

/// An even mix inserts the keys from number 2,000 on.
fn is_new(key: &[u8]) -> bool {
    key >= b"key:000000002000".as_slice()
}

#[test]
fn losing_one_new_key_in_a_hundred_is_caught() {
    struct LosesNewKeys;
    impl Lie for LosesNewKeys {
        fn keeps_put(&self, key: &[u8], count: u64) -> bool {
            !is_new(key) || !count.is_multiple_of(100)
        }
    }
    // Nothing but the final check reads the new keys of the first.
    let (wrong, _) = caught(&LosesNewKeys, Workload::mixed("insert=100").unwrap(), 1, 1);
    assert_eq!(wrong, 100);
    for mix in ["ycsb-d", "ycsb-e"] {
        assert!(caught(&LosesNewKeys, Workload::named(mix).unwrap(), 1, 2).0 > 0, "{mix}");
    }
}

#[test]
fn a_read_modify_write_checks_its_read_and_its_write() {
    struct LosesWrites;
    impl Lie for LosesWrites {
        fn keeps_put(&self, _: &[u8], count: u64) -> bool {
            count < 2_000
        }
    }
    struct AnswersWrong;
    impl Lie for AnswersWrong {
        fn answer(&self, found: &mut bool, _: &mut Vec<u8>) {
            *found = false;
        }
    }
    let modify = || Workload::mixed("rmw=100").unwrap();
    // Each key once by the final check, and each operation on a key that was written before.
    let (wrong, _) = caught(&LosesWrites, modify(), 1, 1);
    assert!((7_000..12_000).contains(&wrong), "{wrong}");
    assert_eq!(caught(&AnswersWrong, modify(), 1, 1).0, 12_000);
}

#[test]
fn failing_calls_count_as_wrong_answers() {
    struct OutOfOrder;
    impl Lie for OutOfOrder {
        fn fails(&self) -> bool {
            true
        }
    }
    assert!(caught(&OutOfOrder, read_only(), 1, 1).1.contains("out of order"));
}

#[test]
fn the_conformance_suite_catches_a_liar() {
    struct LosesOne;
    impl Lie for LosesOne {
        fn keeps_put(&self, _: &[u8], count: u64) -> bool {
            count != 700
        }
    }
    assert!(liar(&LosesOne).check_conformance("none").is_err());
}
