//! The conformance suite of targets. The author of a target runs it, and a smoke test runs it again.
//!
//! The oracle is the model. First one thread creates, reads, overwrites, deletes, scans and inserts in a random order,
//! and the suite compares every answer. Then several threads do the same at once. Each writes its own keys and reads
//! the keys of all.

use std::sync::Arc;

use crate::data::keys::{KEY_BYTES_MAX, KeyShape, Keys};
use crate::data::oracle::Oracle;
use crate::data::values::{ValueBytes, Values};
use crate::run::control::{Control, Phase};
use crate::run::every_key::{check_all, load};
use crate::run::instance::{Instance, Open, open};
use crate::run::tally::Mistakes;
use crate::run::worker::{Buffers, Worker};
use crate::target::{Config, Target};
use crate::workload::LoadOrder;
use crate::workload::distribution::{Distribution, KeyLaw};
use crate::workload::mix::{Mix, Operation};
use crate::workload::scan::{ScanLength, ScanLengths};

const KEYS: u64 = 2_000;
/// Three times as many as are expected of three threads.
const INSERTS_MAX: u64 = 2_000;
/// About as many as are loaded.
const RAW_BYTES: u64 = KEYS * 200;
/// Of each thread: several at a key, so that threads meet.
const MIXED_OPERATIONS: u64 = 2_000;
/// Threads, and keys per call, of the mixes that the kinds of keys and values have in turns.
const MIXES: [[(u64, usize); 2]; 2] = [[(1, 1), (3, 16)], [(1, 16), (3, 1)]];

/// Runs the suite with a target of this name and a codec. The suite leaves out operations that the target refuses. The
/// error names the first fault.
pub fn check<T: Target + 'static>(target: &str, codec: &str) -> Result<(), String> {
    check_opened(open::<T>, target, codec)
}

/// The same with a target that `open` opens.
pub(crate) fn check_opened(open: Open, target: &str, codec: &str) -> Result<(), String> {
    let (fixed, any) = (ValueBytes { min: 100, max: 100 }, ValueBytes { min: 0, max: 600 });
    let kinds = [
        (KeyShape::Decimal, None, fixed),
        (KeyShape::Decimal, None, any),
        (KeyShape::Random, None, fixed),
        (KeyShape::Random, None, any),
        (KeyShape::Decimal, Some(40), any),
        (KeyShape::Random, Some(KEY_BYTES_MAX), fixed),
        (KeyShape::Ycsb, None, any),
    ];
    for ((shape, key_bytes, value_bytes), mixes) in kinds.into_iter().zip(MIXES.into_iter().cycle()) {
        let keys = Keys::new(shape, key_bytes);
        check_with(open, target, codec, keys, value_bytes, mixes).map_err(|(step, error)| {
            let bytes = key_bytes.map(|bytes| format!(" of {bytes} bytes")).unwrap_or_default();
            format!("{step} ({shape} keys{bytes}, values of {value_bytes} bytes): {error}")
        })?;
    }
    Ok(())
}

/// The same with one kind of keys and values. The error has the step, and the first fault.
fn check_with(
    open: Open,
    target: &str,
    codec: &str,
    keys: Keys,
    bytes: ValueBytes,
    mixes: [(u64, usize); 2],
) -> Result<(), (String, String)> {
    fn at<E: ToString>(step: &str) -> impl Fn(E) -> (String, String) {
        move |error| (step.to_owned(), error.to_string())
    }
    let oracle = Arc::new(Oracle::with_room(keys, 0, [KEYS, INSERTS_MAX], values(bytes)));
    let config = Config {
        target: target.into(),
        codec: codec.into(),
        instances: 1,
        raw_bytes: RAW_BYTES,
        oracles: vec![Arc::clone(&oracle)],
        ..Config::default()
    };
    let target = open(&config).map_err(at("opening"))?;
    empty_store_has_nothing(&target, &oracle).map_err(at("an empty store"))?;
    let mut mistakes = Mistakes::default();
    load(&target, &oracle, 1, LoadOrder::Random, &mut mistakes);
    target.loaded().map_err(at("loading"))?;
    check_all(&target, &oracle, &mut mistakes);
    verdict(mistakes).map_err(at("loading"))?;
    for (threads, at_once) in mixes {
        let step = format!("{threads} threads, {at_once} keys per call");
        verdict(mixed(&target, &oracle, threads, at_once)).map_err(at(&step))?;
    }
    target.settle().map_err(at("settling"))?;
    let mut mistakes = Mistakes::default();
    check_all(&target, &oracle, &mut mistakes);
    verdict(mistakes).map_err(at("after settling"))
}

fn values(bytes: ValueBytes) -> Values {
    let corpus: Arc<Vec<u8>> =
        Arc::new((0..40_000u64).flat_map(|i| format!("{i:05} the quick brown fox; ").into_bytes()).collect());
    let region = 0..corpus.len();
    Values::new(corpus, region, bytes, 11).expect("the corpus is longer than a value")
}

fn empty_store_has_nothing(target: &Instance, oracle: &Oracle) -> Result<(), String> {
    let mut value = vec![1, 2, 3];
    let mut records = crate::target::Records::default();
    let key = oracle.key(1);
    let has = |operation| target.refuses(operation).is_none();
    let deleted = if has(Operation::Delete) { target.delete(&key) } else { Ok(false) };
    let scanned = if has(Operation::Scan) { target.scan(&key, 10, &mut records) } else { Ok(()) };
    match (target.get(&key, &mut value), deleted, scanned) {
        (Ok(false), Ok(false), Ok(())) if records.is_empty() => Ok(()),
        answers => Err(format!(
            "get, delete and scan of a key that is not there gave {answers:?} and {} records",
            records.len()
        )),
    }
}

/// Everything that the target has. Reads take the place of the rest.
fn mix_of(target: &Instance) -> Mix {
    let share = |share, operation| if target.refuses(operation).is_none() { share } else { 0.0 };
    let others = [
        share(20.0, Operation::Write),
        share(15.0, Operation::Delete),
        share(5.0, Operation::Scan),
        share(10.0, Operation::Insert),
        share(5.0, Operation::ReadModifyWrite),
    ];
    let [write, delete, scan, insert, read_modify_write] = others;
    let read = 100.0 - others.iter().sum::<f64>();
    Mix::weighted([read, write, delete, scan, insert, read_modify_write]).expect("these are weights")
}

/// Everything at once.
fn mixed(target: &Instance, oracle: &Oracle, threads: u64, at_once: usize) -> Mistakes {
    let law = KeyLaw::new(Distribution::Zipfian { theta: 0.8 }, oracle.loaded());
    let mix = mix_of(target);
    let control = Control::new(threads);
    control.enter(Phase::Measure);
    let mut total = Mistakes::default();
    let work = target.work();
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|thread| {
                let mut worker = Worker {
                    work,
                    oracle,
                    chooser: law.chooser(100 + thread, thread, threads),
                    mix,
                    scan_lengths: ScanLengths::new(ScanLength::default()),
                    thread,
                    threads,
                    connections: thread..thread + 1,
                    multi_get: at_once,
                    multi_put: at_once,
                    clock: None,
                    interval_ns: None,
                    quota: Some(MIXED_OPERATIONS),
                    buffers: Buffers::new(at_once, 0, 0, 0),
                };
                let control = &control;
                scope.spawn(move || {
                    target.operate(&mut worker, control);
                    worker.buffers.tally.mistakes
                })
            })
            .collect();
        control.start();
        for handle in handles {
            total.merge(handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
    });
    total
}

fn verdict(mistakes: Mistakes) -> Result<(), String> {
    match mistakes.first {
        None => Ok(()),
        Some(first) => Err(format!("{} wrong answers; the first: {first}", mistakes.count)),
    }
}
