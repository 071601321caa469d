//! A segment that is removed too early, a manifest that is swapped before what it names is durable, or a log that is
//! dropped before that shows only when the power goes at that moment. Here it goes at every moment.
//!
//! `ZIPTIER_IMAGES=n` recovers so many crash images.

use std::sync::Arc;

use ziptier::{Batch, CodecChoice, Options, SsdOptions, Store};
use ziptier_media::disk::Disk;
use ziptier_media::testing::{FailingDisk, Fault, RecordingDisk};

use crate::durable::{Contents, contents, from_environment, options, value};

/// Writes number `n` of a run; the model does the same.
fn write(n: u64, store: &Store, model: &mut Contents) -> Result<(), ziptier::Error> {
    let mut random = fastrand::Rng::with_seed(n);
    let key = |n: u64| format!("key:{:04}", n % 300).into_bytes();
    let (a, b) = (key(random.u64(..)), key(random.u64(..)));
    // Some live outside their leaf, of one chunk or of two.
    let bytes = match random.u8(..80) {
        0 => 70_000,
        1..8 => 2100 + random.usize(..2000),
        _ => random.usize(..200),
    };
    match random.u8(..8) {
        0 => {
            store.delete(&a)?;
            model.remove(&a);
        }
        1 => {
            store.write(&Batch::new().put(&a, b"batched").delete(&b))?;
            model.insert(a.clone(), (b"batched".to_vec(), None, 0));
            // Within a batch, the later one counts.
            if a == b {
                model.remove(&a);
            } else {
                model.remove(&b);
            }
        }
        2 => {
            if store.set_expiry(&a, Some(1 << 44))? {
                model.get_mut(&a).unwrap().1 = Some(1 << 44);
            }
        }
        3 if random.bool() => {
            store.rename(&a, &b, true)?;
            if a != b
                && let Some(moved) = model.remove(&a)
            {
                model.insert(b, moved);
            }
        }
        3 => {
            store.copy(&a, &b, true)?;
            if let Some(copied) = model.get(&a).cloned() {
                model.insert(b, copied);
            }
        }
        _ => {
            store.put(&a, &value(n, bytes))?;
            model.insert(a, (value(n, bytes), None, 0));
        }
    }
    Ok(())
}

fn open(disk: Arc<dyn Disk>, codec: CodecChoice) -> Result<Store, ziptier::Error> {
    let mut options = options(disk, codec);
    // What is written between two checkpoints is worth one when the store ends, and no more.
    options.durable.as_mut().unwrap().checkpoint_log_bytes = Some(16 << 10);
    let ssd = SsdOptions { path: None, limit_bytes: 8 << 20 };
    Store::open(Options { ssd: Some(ssd), ..options })
}

/// What must be there from a position of the recording on.
struct Acknowledged {
    position: usize,
    contents: Contents,
}

#[test]
fn every_acknowledged_write_survives_a_power_cut() {
    let wanted = from_environment("ZIPTIER_IMAGES", 300) as usize;
    let runs = [
        (CodecChoice::Auto, false),
        (CodecChoice::Lz4, false),
        (CodecChoice::None, false),
        (CodecChoice::Auto, true),
        (CodecChoice::Zstd, true),
        (CodecChoice::None, true),
    ];
    for (seed, (codec, sends)) in runs.into_iter().enumerate() {
        let mut random = fastrand::Rng::with_seed(seed as u64);
        let disk = RecordingDisk::new();
        let mut history = vec![Acknowledged { position: 0, contents: Contents::new() }];
        let mut model = Contents::new();
        let mut n = seed as u64 * 10_000;
        for _session in 0..2 {
            let store = open(Arc::new(disk.clone()), codec).unwrap();
            assert_eq!(contents(&store), model);
            for round in 0..12 {
                for _ in 0..25 {
                    write(n, &store, &mut model).unwrap();
                    n += 1;
                    if sends && random.u8(..5) == 0 {
                        store.send_to_ssd(|| random.bool()).unwrap();
                    }
                    if sends && random.u8(..20) == 0 {
                        store.bring_from_ssd(|| random.bool());
                    }
                    if sends {
                        // Large values that lie on SSD come up.
                        for _ in 0..30 {
                            let key = format!("key:{:04}", random.u64(..300));
                            (0..2).for_each(|_| drop(store.get(key.as_bytes()).unwrap()));
                        }
                    }
                    history.push(Acknowledged { position: disk.position(), contents: model.clone() });
                }
                if round < 11 {
                    store.checkpoint().unwrap();
                }
            }
            // A checkpoint in the background may leave too little of the last round for the stop to make another one.
            // This record alone is worth a checkpoint.
            store.put(b"last", &value(n, 1500)).unwrap();
            model.insert(b"last".to_vec(), (value(n, 1500), None, 0));
            history.push(Acknowledged { position: disk.position(), contents: model.clone() });
            assert!(store.stats().values_raised > 10 || !sends, "{:?}", store.stats());
        }
        let newest = open(Arc::new(disk.copy()), codec).unwrap();
        assert_eq!(newest.recovered().unwrap().records, 0, "a clean stop leaves nothing to replay");
        for image in disk.images().sample(seed as u64, wanted / 6) {
            let newest = history.partition_point(|known| known.position <= image.position) - 1;
            let store = open(Arc::new(image.disk.clone()), codec)
                .unwrap_or_else(|error| panic!("at {}: {error}\n{}", image.position, image.what));
            let found = contents(&store);
            // One write may be under way.
            assert_eq!(store.len(), found.len() as u64);
            let right = history[newest..].iter().take(2).any(|known| known.contents == found);
            assert!(right, "at {} of {codec}: other contents\n{}", image.position, image.what);
            // It goes on from there, and a checkpoint of it is one.
            store.put(b"after", b"the cut").unwrap();
            store.checkpoint().unwrap();
            let found = contents(&store);
            drop(store);
            assert_eq!(contents(&open(Arc::new(image.disk), codec).unwrap()), found);
        }
    }
}

#[test]
fn an_error_of_the_disk_at_any_moment_loses_nothing() {
    for fault in [Fault::Io, Fault::Full, Fault::ShortWrite, Fault::LyingSync] {
        let mut nth = 0;
        loop {
            let disk = RecordingDisk::new();
            let failing = FailingDisk::new(Arc::new(disk.clone()), fault, nth);
            let mut model = Contents::new();
            let mut next = Contents::new();
            let mut random = fastrand::Rng::with_seed(nth);
            if let Ok(store) = open(Arc::new(failing.clone()), CodecChoice::None) {
                for n in 0..90 {
                    // What fails may be done or not; nothing after it is tried.
                    if write(n, &store, &mut next).is_err() {
                        assert_eq!(model, next);
                        let twin = open(Arc::new(RecordingDisk::new()), CodecChoice::None).unwrap();
                        next = Contents::new();
                        (0..=n).for_each(|n| write(n, &twin, &mut next).unwrap());
                        break;
                    }
                    model = next.clone();
                    if n % 10 == 9 {
                        let _ = store.send_to_ssd(|| n % 20 == 9 || random.bool());
                    }
                    if n % 30 == 29 {
                        let _ = store.checkpoint();
                    }
                }
            }
            let again = open(Arc::new(disk.copy()), CodecChoice::None)
                .unwrap_or_else(|error| panic!("{fault:?} at {nth}: {error}"));
            let found = contents(&again);
            assert!(found == model || found == next, "{fault:?} at {nth}");
            if !failing.has_failed() {
                break;
            }
            nth += if nth < 400 { 1 } else { 7 };
        }
        assert!(nth > 20, "{fault:?}: only {nth} operations could fail");
    }
}
