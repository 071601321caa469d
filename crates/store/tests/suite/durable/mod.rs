//! Durable stores on disks in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ziptier::{CodecChoice, DiskHandle, Durability, DurableOptions, Error, Options, Store};
use ziptier_media::disk::Disk;
use ziptier_media::segments::SegmentOptions;

/// Ends the threads beside a test, also when that fails.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A number that whoever runs the test may set.
pub(crate) fn from_environment(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |number| number.parse().expect("it is a number"))
}

pub(crate) const DIR: &str = "/data";

/// Small files, so that a short run goes through many of them. Checkpoints are made when the test says so. The
/// checkpoint of a stop may take as long as the machine needs.
pub(crate) fn options(disk: Arc<dyn Disk>, codec: CodecChoice) -> Options {
    let mut durable = DurableOptions::new(Path::new(DIR));
    durable.durability = Durability::Always;
    durable.checkpoint_log_bytes = Some(u64::MAX);
    durable.stop_time_max = Duration::from_secs(3600);
    durable.log.segment_bytes = 64 << 10;
    durable.segments =
        SegmentOptions { segment_bytes: 64 << 10, write_bytes: 4096, limit_bytes: u64::MAX, read_threads: 1 };
    durable.disk = DiskHandle(disk);
    Options { codec, background_threads: 0, durable: Some(durable), ..Options::default() }
}

pub(crate) type Contents = BTreeMap<Vec<u8>, (Vec<u8>, Option<u64>, u32)>;

/// A store of fewer records is asked for each of them by its key, a larger one for about so many.
const LOOKED_UP: u64 = 2048;

/// Everything that a store holds. A look-up may read the image of a whole leaf from SSD. So a scan gives the meta of
/// every record, and look-ups confirm it.
pub(crate) fn contents(store: &Store) -> Contents {
    let step = (store.len() / LOOKED_UP + 1) as usize;
    let mut opened = store.range(..);
    let mut contents = Contents::new();
    for (at, outcome) in store.range(..).enumerate() {
        let (key, value) = outcome.expect("every value can be read");
        let next = opened.next_opened().expect("nobody writes meanwhile");
        let (same, open) = next.expect("every value can be read");
        let meta = open.meta();
        assert!(same == key && meta.len == value.len() as u64, "two scans differ at {key:?}");
        if at.is_multiple_of(step) {
            let found = store.meta(&key).expect("every value can be read");
            assert_eq!(found, Some(meta), "{key:?}");
        }
        contents.insert(key, (value, meta.expires_at_ms, meta.flags));
    }
    contents
}

/// A value that compresses, and differs from any other.
pub(crate) fn value(n: u64, bytes: usize) -> Vec<u8> {
    let words = ["alpha", "beta", "gamma", "delta", "{\"id\":", ",\"name\":\"", " ", "0123"];
    let mut random = fastrand::Rng::with_seed(n);
    let mut value = format!("{n}:").into_bytes();
    value.reserve(bytes + 8);
    while value.len() < bytes {
        value.extend_from_slice(words[random.usize(..words.len())].as_bytes());
    }
    value.truncate(bytes);
    value
}

/// One of two writers beside checkpoints: puts ascending versions under random keys of its own, `key:` and a number,
/// and notes by that number which one was acknowledged. There are as many keys as numbers in `acknowledged`.
pub(crate) fn put_versions(store: &Store, writer: u64, acknowledged: &[AtomicU64]) {
    let mut random = fastrand::Rng::with_seed(writer);
    for version in 1..25_000_u64 {
        let n = 2 * random.u64(..acknowledged.len() as u64 / 2) + writer;
        let bytes = if n % 500 < 2 { 4000 } else { 20 + n as usize % 200 };
        let text = [&version.to_be_bytes(), &value(n ^ version << 20, bytes)[..]].concat();
        store.put(format!("key:{n:08}").as_bytes(), &text).expect("there is room");
        acknowledged[n as usize].store(version, Ordering::SeqCst);
    }
}

/// Sends the leaves to SSD that `picks` says yes to. The room of replaced images comes back later, with a folder after
/// a checkpoint. So the SSD may be full while another thread stands still.
pub(crate) fn send_what_fits(store: &Store, picks: impl FnMut() -> bool) {
    if let Err(error) = store.send_to_ssd(picks) {
        assert!(matches!(&error, Error::Ssd { reason } if reason.contains("full")), "{error}");
    }
}

/// Flips a bit at `first` and at every `step` bytes from there.
pub(crate) fn flip_bits(path: &Path, first: u64, step: usize) {
    let file = File::options().read(true).write(true).open(path).expect("it is there");
    for at in (first..file.metadata().expect("it is there").len()).step_by(step) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("it has that byte");
        file.write_all_at(&[byte[0] ^ 0x10], at).expect("it can be written");
    }
}

/// Whether `error` says which value could not be read, and where that is.
pub(crate) fn names_file_and_place(error: &Error) -> bool {
    let text = error.to_string();
    matches!(error, Error::Unread { .. }) && text.contains("segments/") && text.contains("at byte")
}
