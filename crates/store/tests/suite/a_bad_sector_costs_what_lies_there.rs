//! Some bytes of one file cannot be read any more. What is there twice is taken from the other file; a start says in a
//! sentence what cannot be read and what to do, and a salvage leaves out what lies there and nothing else. Nothing that
//! is whole goes for it: the bytes may be read again tomorrow.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use ziptier::{CheckReport, CodecChoice, Error, Options, Store, check, dump};
use ziptier_media::disk::Disk;
use ziptier_media::testing::{FailingDisk, RecordingDisk};

use crate::durable::{Contents, DIR, contents, options, value};

const KEYS: u64 = 20_000;
const WHOLE_FILE: Range<u64> = 0..u64::MAX;

fn key(n: u64) -> Vec<u8> {
    format!("key:{n:08}").into_bytes()
}

/// Keys of values that no dictionary is of use to, behind all others.
fn random_key(n: u64) -> Vec<u8> {
    format!("random:{n:08}").into_bytes()
}

fn random_value(n: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n);
    (0..3_000).map(|_| random.u8(..)).collect()
}

fn on(disk: impl Disk + 'static) -> Options {
    options(Arc::new(disk), CodecChoice::Auto)
}

fn salvaging(disk: impl Disk + 'static) -> Options {
    let mut options = on(disk);
    options.durable.as_mut().unwrap().salvage = true;
    options
}

/// A closed store with one generation of dictionaries, a checkpoint, and a log of several files behind it.
struct Folder {
    disk: RecordingDisk,
    contents: Contents,
}

static FOLDER: LazyLock<Folder> = LazyLock::new(|| {
    let disk = RecordingDisk::new();
    let store = Store::open(on(disk.clone())).unwrap();
    (0..KEYS).for_each(|n| store.put(&key(n), &value(n, 100)).unwrap());
    (0..400).for_each(|n| store.put(&random_key(n), &random_value(n)).unwrap());
    store.settle().unwrap();
    store.checkpoint().unwrap();
    assert!(store.stats().dictionary_generation > 0);
    logged().for_each(|n| store.put(&key(n), &value(n + 1, 90)).unwrap());
    let contents = contents(&store);
    store.close().unwrap();
    Folder { disk, contents }
});

/// Keys that were written behind the checkpoint.
fn logged() -> impl Iterator<Item = u64> {
    (0..KEYS).step_by(5)
}

/// The folder's files of which `has` says yes.
fn files(disk: &RecordingDisk, has: impl Fn(&Path) -> bool) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = disk.paths().into_iter().filter(|path| has(path));
    paths.map(|path| (path.clone(), disk.contents(&path).unwrap())).collect()
}

fn has(path: &Path, part: &str) -> bool {
    path.to_string_lossy().contains(part)
}

/// A copy of the folder, and the same with bytes of one file that cannot be read.
fn with_bad_bytes(path: &Path, bad: Range<u64>) -> (RecordingDisk, FailingDisk) {
    let disk = FOLDER.disk.copy();
    let bad_path = path.to_path_buf();
    let failing = FailingDisk::with_bad_bytes(Arc::new(disk.clone()), move |path| path == bad_path, bad);
    (disk, failing)
}

fn checked(disk: impl Disk + 'static) -> CheckReport {
    check(&on(disk).durable.unwrap()).unwrap()
}

/// A start refuses in a sentence that names the file, the first bad byte or what begins before it, and what to do;
/// `check` goes on behind it.
fn is_refused_and_listed(disk: &FailingDisk, path: &Path) {
    let refused = Store::open(on(disk.clone())).err().unwrap().to_string();
    assert!(has(path, "segments/STORE") || refused.contains("cannot be read"), "{refused}");
    assert!(refused.contains(&*path.to_string_lossy()) && refused.contains("(--salvage)"), "{refused}");
    let report = checked(disk.clone());
    let damage = report.damages.iter().find(|damage| damage.path == path);
    assert!(damage.is_some_and(|damage| damage.reason.contains("cannot be read")), "{:?}", report.damages);
    assert!(report.generations > 0 && report.bodies > 0, "{report:?}");
}

/// What can be read of a store; the values that a salvage has lost say so.
fn readable(store: &Store) -> Contents {
    let record = |outcome: Result<(Vec<u8>, Vec<u8>), Error>| match outcome {
        Ok((key, value)) => Some((key, (value, None, 0))),
        Err(error) => {
            assert!(error.to_string().contains("salvaged; write it again"), "{error}");
            None
        }
    };
    store.range(..).filter_map(record).collect()
}

/// What a salvage finds, all of it as it was; one of its notes names the file.
fn salvaged(disk: &FailingDisk, path: &Path) -> Contents {
    let store = Store::open(salvaging(disk.clone())).unwrap();
    let skipped = &store.recovered().unwrap().skipped;
    let is_named = skipped.iter().any(|note| note.contains(&*path.to_string_lossy()));
    assert!(is_named && skipped.iter().any(|note| note.contains("cannot be read")), "{skipped:?}");
    readable(&store)
}

/// Who starts and stops with salvage, though a checkpoint would be due, and then without, when all can be read again,
/// has lost nothing.
fn is_left_as_it_was(disk: &RecordingDisk, failing: &FailingDisk) {
    let mut options = salvaging(failing.clone());
    options.durable.as_mut().unwrap().checkpoint_log_bytes = Some(64 << 10);
    Store::open(options).unwrap().close().unwrap();
    assert!(contents(&Store::open(on(disk.copy())).unwrap()) == FOLDER.contents);
}

/// Whether all of `found` is what was written first or last.
fn is_known(found: &Contents) -> bool {
    found.iter().all(|(key, (value, ..))| {
        let written_first = || key.strip_prefix(b"key:").is_some_and(|n| first_value(n) == *value);
        FOLDER.contents[key].0 == *value || written_first()
    })
}

fn first_value(n: &[u8]) -> Vec<u8> {
    value(str::from_utf8(n).unwrap().parse().unwrap(), 100)
}

#[test]
fn what_is_there_twice_is_taken_from_the_other_file() {
    let twice = |path: &Path| has(path, "dictionaries/generation-") || has(path, "/MANIFEST");
    let files = files(&FOLDER.disk, twice);
    assert_eq!(files.len(), 4);
    for (path, bytes) in files {
        for bad in [WHOLE_FILE, 10..20, bytes.len() as u64 - 1..u64::MAX] {
            let (disk, failing) = with_bad_bytes(&path, bad);
            let damages = checked(failing.clone()).damages;
            assert!(damages.len() == 1 && damages[0].path == path, "{damages:?}");
            assert!(damages[0].reason.contains("cannot be read"), "{damages:?}");
            let store = Store::open(on(failing)).unwrap();
            assert!(contents(&store) == FOLDER.contents);
            let skipped = store.recovered().unwrap().skipped.join("\n");
            assert!(skipped.contains(&*path.to_string_lossy()) && skipped.contains("anew"), "{skipped}");
            drop(store);
            assert!(disk.contents(&path).unwrap() == bytes);
            assert_eq!(checked(disk).damages, []);
        }
    }
}

#[test]
fn without_both_files_of_a_generation_only_what_needs_it_is_left_out_and_nothing_goes() {
    let disk = FOLDER.disk.copy();
    let is_bad = |path: &Path| has(path, "dictionaries/generation-");
    let failing = FailingDisk::with_bad_bytes(Arc::new(disk.clone()), is_bad, WHOLE_FILE);
    let first = files(&disk, is_bad).into_keys().next().unwrap();
    is_refused_and_listed(&failing, &first);

    let found = salvaged(&failing, &first);
    assert!(is_known(&found));
    assert!(logged().all(|n| found.contains_key(&key(n))));
    let random = (0..400).filter(|n| found.contains_key(&random_key(*n))).count();
    assert!(random > 100, "{random}");
    assert!(found.len() < FOLDER.contents.len() / 2);
    is_left_as_it_was(&disk, &failing);

    let kept = |path: &Path| is_bad(path) || has(path, "segments/segment-");
    let before = files(&disk, kept);
    let store = Store::open(salvaging(failing.clone())).unwrap();
    (0..KEYS).for_each(|n| store.put(&key(n), &value(n + 2, 100)).unwrap());
    store.settle().unwrap();
    assert!(store.stats().dictionary_generation > 1, "the number of another one");
    (0..3).for_each(|_| store.checkpoint().unwrap());
    store.close().unwrap();
    for (path, bytes) in before {
        assert!(disk.contents(&path).is_some_and(|now| now == bytes), "{}", path.display());
    }
    // What is there by now needs nothing of it.
    let store = Store::open(on(disk)).unwrap();
    assert!((0..KEYS).all(|n| store.get(&key(n)).unwrap() == Some(value(n + 2, 100))));
}

#[test]
fn a_header_of_a_segment_that_cannot_be_read_costs_nothing() {
    let segments = files(&FOLDER.disk, |path| has(path, "segments/segment-"));
    assert!(segments.len() > 5);
    for path in segments.keys().step_by(3) {
        let (_, failing) = with_bad_bytes(path, 0..4096);
        is_refused_and_listed(&failing, path);
        assert!(salvaged(&failing, path) == FOLDER.contents);
    }
    let path = Path::new(DIR).join("segments/STORE");
    let (_, failing) = with_bad_bytes(&path, WHOLE_FILE);
    is_refused_and_listed(&failing, &path);
    assert!(salvaged(&failing, &path) == FOLDER.contents);
}

#[test]
fn images_that_cannot_be_read_are_the_only_ones_left_out() {
    let segments = files(&FOLDER.disk, |path| has(path, "segments/segment-"));
    let mut lost = 0;
    for (path, bytes) in segments.iter().step_by(3) {
        let middle = bytes.len() as u64 / 2;
        let (disk, failing) = with_bad_bytes(path, middle..middle + 512);
        is_refused_and_listed(&failing, path);
        let found = salvaged(&failing, path);
        assert!(is_known(&found) && found.len() > FOLDER.contents.len() * 95 / 100, "{}", found.len());
        lost += FOLDER.contents.len() - found.len();
        if found != FOLDER.contents {
            is_left_as_it_was(&disk, &failing);
        }
    }
    assert!(lost > 0);
}

#[test]
fn a_bad_sector_of_the_log_costs_the_records_in_it() {
    let logs = files(&FOLDER.disk, |path| has(path, "log/log-"));
    assert!(logs.len() > 3);
    let last = logs.keys().next_back().unwrap();
    let mut lost = 0;
    for (path, bytes) in logs.iter().filter(|(_, bytes)| bytes.len() > 20_000) {
        for bad in [8192..8704, bytes.len() as u64 - 10..u64::MAX] {
            let (disk, failing) = with_bad_bytes(path, bad);
            is_refused_and_listed(&failing, path);
            let found = salvaged(&failing, path);
            // What was there before is there instead.
            assert!(is_known(&found) && found.len() == FOLDER.contents.len(), "{}", found.len());
            let old = found.iter().filter(|(key, value)| FOLDER.contents[*key] != **value).count();
            assert!(old < 40, "{old} of {}", path.display());
            lost += old;
            assert!(disk.contents(path).unwrap() == *bytes);
            // Behind the last file the log goes on with the numbers of what could not be read.
            if path != last {
                is_left_as_it_was(&disk, &failing);
            }
        }
        let (_, failing) = with_bad_bytes(path, WHOLE_FILE);
        is_refused_and_listed(&failing, path);
        let found = salvaged(&failing, path);
        assert!(is_known(&found) && found.len() == FOLDER.contents.len());
    }
    assert!(lost > 0);
}

#[test]
fn a_check_names_all_damage_of_the_log() {
    let disk = FOLDER.disk.copy();
    let is_long = |path: &Path| has(path, "log/log-") && disk.contents(path).unwrap().len() > 20_000;
    let logs = files(&disk, is_long);
    assert!(logs.len() > 1);
    for (path, bytes) in &logs {
        let mut damaged = bytes.clone();
        [8192, 16_384].iter().for_each(|at: &usize| damaged[*at] ^= 1);
        disk.put(path, damaged);
    }
    let report = checked(disk);
    assert_eq!(report.damages.len(), 2 * logs.len(), "{:?}", report.damages);
    for path in logs.keys() {
        assert_eq!(report.damages.iter().filter(|damage| damage.path == *path).count(), 2);
    }
    assert!(report.is_sealed && report.log_records > 0);
}

/// A crash left a segment that no manifest names, and the medium does not open it any more.
#[test]
fn a_segment_that_is_neither_opened_nor_needed_refuses_no_start() {
    let disk = FOLDER.disk.copy();
    let segments = files(&disk, |path| has(path, "segments/segment-"));
    let (needed, bytes) = segments.first_key_value().unwrap();
    let unneeded = Path::new(DIR).join("segments/segment-00000000000000ff");
    disk.put(&unneeded, bytes.clone());
    let without = |path: &Path| {
        let path = path.to_path_buf();
        FailingDisk::that_does_not_open(Arc::new(disk.clone()), move |other| other == path)
    };
    let refused = Store::open(on(without(needed))).err().unwrap().to_string();
    assert!(refused.contains(&*needed.to_string_lossy()) && refused.contains("(--salvage)"), "{refused}");

    let failing = without(&unneeded);
    let mut stream = Vec::new();
    dump(&on(failing.clone()).durable.unwrap(), &mut stream).unwrap();
    let store = Store::open(on(failing)).unwrap();
    assert!(contents(&store) == FOLDER.contents);
    let skipped = store.recovered().unwrap().skipped.join("\n");
    assert!(skipped.contains(&*unneeded.to_string_lossy()), "{skipped}");
    store.checkpoint().unwrap();
    store.close().unwrap();
    assert!(disk.contents(&unneeded).unwrap() == *bytes, "its number was used again");
}
