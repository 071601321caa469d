//! Each part of a durable store survives a power cut alone. Here the power is cut while several threads write,
//! checkpoints are made one after the other, and leaves go to SSD and come back; nothing is ever evicted, so whatever
//! was acknowledged must be there.
//!
//! `ZIPTIER_IMAGES=n` recovers so many crash images.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ziptier::{Durability, Options, SsdOptions, Store};
use ziptier_media::disk::Disk;
use ziptier_media::segments::SegmentOptions;
use ziptier_media::testing::RecordingDisk;
use ziptier_testing::until;

use crate::durable::send_what_fits;
use crate::durable_scenario;
use crate::durable_scenario::{History, Write, check_with, contents};

const THREADS: u64 = 3;
/// Writes of each thread, and more until checkpoints were made meanwhile, and leaves have gone to SSD and come back.
const STEPS: u64 = 100;
const STEPS_MAX: u64 = 20_000;
/// Keys that nobody writes to after the first checkpoint: several leaves, which go to SSD whole.
const QUIET_KEYS: u64 = 900;

fn options(disk: Arc<dyn Disk>) -> Options {
    let mut options = durable_scenario::options(disk, Durability::Always);
    let durable = options.durable.as_mut().unwrap();
    durable.checkpoint_log_bytes = Some(u64::MAX);
    durable.segments =
        SegmentOptions { segment_bytes: 64 << 10, write_bytes: 4096, limit_bytes: u64::MAX, read_threads: 1 };
    Options { ssd: Some(SsdOptions { path: None, limit_bytes: 16 << 20 }), ..options }
}

fn quiet_key(n: u64) -> Vec<u8> {
    format!("quiet/{n:05}").into_bytes()
}

fn quiet_value(n: u64) -> Vec<u8> {
    format!("{n} is the value of a key that nobody writes to any more;")
        .repeat(1 + n as usize % 4)
        .into_bytes()
}

struct Recorded {
    disk: RecordingDisk,
    /// From here on the quiet keys are acknowledged.
    begun: usize,
    histories: Vec<History>,
}

fn run(seed: u64) -> Recorded {
    let disk = RecordingDisk::new();
    let store = Store::open(options(Arc::new(disk.clone()))).unwrap();
    (0..QUIET_KEYS).for_each(|n| store.put(&quiet_key(n), &quiet_value(n)).unwrap());
    store.settle().unwrap();
    let begun = disk.position();
    let (writing, sent) = (AtomicU64::new(THREADS), AtomicU64::new(0));
    let histories = std::thread::scope(|scope| {
        let (store, disk, writing, sent) = (&store, &disk, &writing, &sent);
        let goes_on = move || writing.load(Ordering::SeqCst) > 0;
        let write = move |thread| {
            let _ends = Ends(writing);
            let mut history = History::default();
            let has_seen =
                || sent.load(Ordering::SeqCst) > 1 && store.checkpoint_stats().unwrap().checkpoints > 1;
            let is_enough = |step| step >= STEPS && has_seen();
            for step in (0..STEPS_MAX).take_while(|step| !is_enough(*step)) {
                history.make(store, Write::of(seed, thread, step), &|| disk.position()).unwrap();
            }
            // The other threads may have had no processor.
            until("several checkpoints were made, and leaves sent several times", has_seen);
            history
        };
        let writers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || write(thread))).collect();
        scope.spawn(move || {
            while goes_on() {
                store.checkpoint().unwrap();
            }
        });
        scope.spawn(move || {
            let mut random = fastrand::Rng::with_seed(seed);
            while goes_on() {
                send_what_fits(store, || random.bool());
                store.bring_from_ssd(|| random.bool());
                for _ in 0..20 {
                    let n = random.u64(..QUIET_KEYS);
                    assert_eq!(store.get(&quiet_key(n)).unwrap(), Some(quiet_value(n)));
                }
                sent.fetch_add(1, Ordering::SeqCst);
            }
        });
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    store.close().unwrap();
    Recorded { disk, begun, histories }
}

/// Counts down when a writer ends, also when it fails.
struct Ends<'a>(&'a AtomicU64);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Recorded {
    fn check(&self, disk: &RecordingDisk, position: usize, what: &str) -> Store {
        let store = check_with(options(Arc::new(disk.clone())), position, &self.histories, what);
        if position >= self.begun {
            for n in (0..QUIET_KEYS).step_by(7) {
                assert_eq!(store.get(&quiet_key(n)).unwrap(), Some(quiet_value(n)), "key {n}: {what}");
            }
        }
        store
    }
}

fn images_wanted() -> usize {
    std::env::var("ZIPTIER_IMAGES").map_or(240, |number| number.parse().expect("it is a number"))
}

#[test]
fn every_acknowledged_write_is_in_every_image() {
    for seed in 0..4 {
        let recorded = run(seed);
        for image in recorded.disk.images().sample(seed, images_wanted() / 4) {
            recorded.check(&image.disk, image.position, &image.what);
        }
    }
}

/// The process is killed, another one goes on, checkpoints, and then the power is cut: what the second one has seen is
/// there.
#[test]
fn what_was_seen_after_a_kill_is_in_every_later_image() {
    let recorded = run(7);
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..images_wanted() / 12 {
        let start = random.usize(..=recorded.disk.position());
        let killed = recorded.disk.killed_at(start);
        let what = format!("killed before operation {start}");
        let store = recorded.check(&killed, start, &what);
        let seen: Vec<_> = (0..THREADS).map(|thread| contents(&store, thread)).collect();
        let open = killed.position();
        store.checkpoint().unwrap();
        drop(store);
        for image in killed.images().sample_from(start, round as u64, 4) {
            let what = format!("{what}, then {}", image.what);
            let store = recorded.check(&image.disk, start, &what);
            let found: Vec<_> = (0..THREADS).map(|thread| contents(&store, thread)).collect();
            assert!(image.position < open || found == seen, "{what}");
        }
    }
}
