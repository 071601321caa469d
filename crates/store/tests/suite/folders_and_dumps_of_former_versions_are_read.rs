//! A folder or a dump that only the program that wrote it can read is lost with the next upgrade. `fixtures/N` has a
//! folder as a clean stop left it, one as a kill left it, and a dump, all of the formats of set N
//! (`docs/COMPATIBILITY.md`); `fixtures/N/cold` has the same of a store with a token dictionary and with leaves on SSD,
//! `fixtures/N/codes` of such a store whose values are coded by entropy. Every one is opened, compared, written to, and
//! opened again.
//!
//! After a format has changed, and before that is merged, this makes the fixtures that the new set does not have yet:
//! `ZIPTIER_WRITE_FIXTURES=N cargo test -p ziptier --test suite folders_and_dumps_of_former_versions_are_read`.

use std::fs;
use std::path::{Path, PathBuf};

use ziptier::{Batch, CodecChoice, DurableOptions, Options, SsdOptions, Store, check, dump, restore};
use ziptier_media::segments::SegmentOptions;

use crate::durable::{Contents, contents, value};

const KEYS: u64 = 2500;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn durable_options(dir: &Path) -> DurableOptions {
    let mut durable = DurableOptions::new(dir);
    durable.checkpoint_log_bytes = Some(u64::MAX);
    durable.log.segment_bytes = 16 << 10;
    durable.segments =
        SegmentOptions { segment_bytes: 64 << 10, write_bytes: 4096, limit_bytes: u64::MAX, read_threads: 1 };
    durable
}

/// Which store a fixture is of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Blocks of LZ4; all leaves are in memory.
    Blocks,
    /// Tokens; most leaves and a large value are on SSD.
    Cold,
    /// Tokens with codes; every second leaf and a large value are on SSD.
    Codes,
}

impl Kind {
    fn folder(self, set: &Path) -> PathBuf {
        match self {
            Self::Blocks => set.to_path_buf(),
            Self::Cold => set.join("cold"),
            Self::Codes => set.join("codes"),
        }
    }

    fn open(self, dir: &Path) -> Store {
        let (codec, ssd) = match self {
            Self::Blocks => (CodecChoice::Lz4, None),
            Self::Cold | Self::Codes => {
                (CodecChoice::Auto, Some(SsdOptions { path: None, limit_bytes: 4 << 20 }))
            }
        };
        let durable = Some(durable_options(dir));
        Store::open(Options { codec, ssd, background_threads: 0, durable, ..Options::default() }).unwrap()
    }

    fn fill(self, store: &Store) {
        match self {
            Self::Blocks => fill(store),
            Self::Cold => fill_cold(store, 8_000, |n| self.value(n), || true),
            Self::Codes => {
                let mut is_picked = false;
                let every_second = || {
                    is_picked = !is_picked;
                    is_picked
                };
                fill_cold(store, 60_000, |n| self.value(n), every_second);
            }
        }
    }

    /// A value of 150 bytes.
    fn value(self, n: u64) -> Vec<u8> {
        if self == Self::Codes { by_rules(n) } else { value(n, 150) }
    }
}

/// Ten words as long as a token, each of which has four successors: codes make much less of them than numbers do.
fn by_rules(n: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(n);
    let (mut word, mut value) = (random.u32(0..300), String::new());
    for _ in 0..10 {
        value.push_str(&format!("{word:03} is a number,"));
        word = (word * 5 + random.u32(0..4)) % 300;
    }
    value.into_bytes()
}

/// The same writes in every set: values of all lengths, a large one, flags, expiries, deletes and a batch, before a
/// checkpoint and behind it.
fn fill(store: &Store) {
    let key = |n: u64| format!("key:{n:06}").into_bytes();
    for n in 0..KEYS {
        let bytes = if n == 700 { 70_000 } else { n as usize % 300 };
        store.put(&key(n), &value(n, bytes)).unwrap();
        if n == KEYS - 100 {
            store.set_expiry(&key(11), Some(1 << 44)).unwrap();
            store.settle().unwrap();
            store.checkpoint().unwrap();
        }
    }
    store.write(&Batch::new().put(b"a", b"1").delete(&key(9))).unwrap();
    store.set_expiry(&key(10), Some(1 << 44)).unwrap();
    store.put(&key(12), b"").unwrap();
}

/// Few records remain; a dictionary needs more `keys` to be trained on. Then come records above the images on SSD.
fn fill_cold(store: &Store, keys: u64, value_of: impl Fn(u64) -> Vec<u8>, picks: impl FnMut() -> bool) {
    let key = |n: u64| format!("key:{n:06}").into_bytes();
    (0..keys).for_each(|n| store.put(&key(n), &value_of(n)).unwrap());
    store.settle().unwrap();
    assert!(store.stats().dictionary_generation > 0, "no dictionary was adopted");
    (600..keys).for_each(|n| assert!(store.delete(&key(n)).unwrap()));
    store.put(&key(600), &value(600, 5_000)).unwrap();
    store.set_expiry(&key(11), Some(1 << 44)).unwrap();
    store.settle().unwrap();
    assert!(store.send_to_ssd(picks).unwrap() > 1);
    store.checkpoint().unwrap();
    store.put(&key(2), b"above what lies on SSD").unwrap();
    store.delete(&key(3)).unwrap();
    store.settle().unwrap();
    store.checkpoint().unwrap();
    store.write(&Batch::new().put(b"a", b"1").delete(&key(9))).unwrap();
    store.set_expiry(&key(10), Some(1 << 44)).unwrap();
}

/// What a store in memory holds after the same writes.
fn expected(kind: Kind) -> Contents {
    let key = |n: u64| format!("key:{n:06}").into_bytes();
    let store = Store::open(Options { background_threads: 0, ..Options::default() }).unwrap();
    match kind {
        Kind::Blocks => {
            for n in 0..KEYS {
                let bytes = if n == 700 { 70_000 } else { n as usize % 300 };
                store.put(&key(n), &value(n, bytes)).unwrap();
            }
            store.put(&key(12), b"").unwrap();
        }
        Kind::Cold | Kind::Codes => {
            (0..600).for_each(|n| store.put(&key(n), &kind.value(n)).unwrap());
            store.put(&key(600), &value(600, 5_000)).unwrap();
            store.put(&key(2), b"above what lies on SSD").unwrap();
            store.delete(&key(3)).unwrap();
        }
    }
    store.set_expiry(&key(11), Some(1 << 44)).unwrap();
    store.write(&Batch::new().put(b"a", b"1").delete(&key(9))).unwrap();
    store.set_expiry(&key(10), Some(1 << 44)).unwrap();
    contents(&store)
}

/// Copies a folder but for its locks and spare files, which hold nothing.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to.join(&name));
        } else if name != "LOCK" && !name.starts_with("spare-") {
            fs::copy(entry.path(), to.join(&name)).unwrap();
        }
    }
}

fn write_fixtures(kind: Kind, into: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let store = kind.open(folder.path());
    kind.fill(&store);
    copy(folder.path(), &into.join("killed"));
    drop(store);
    copy(folder.path(), &into.join("stopped"));
    let mut stream = Vec::new();
    dump(&durable_options(folder.path()), &mut stream).unwrap();
    fs::write(into.join("dump"), stream).unwrap();
}

/// Whether a dictionary of a folder has codes.
fn has_codes(dir: &Path) -> bool {
    let mut files = Vec::new();
    sources(&dir.join("dictionaries"), &mut files);
    files.iter().any(|file| fs::read(file).unwrap()[16..20] == 3_u32.to_le_bytes())
}

/// Opens a folder, compares, writes, stops and opens it again.
fn audit(kind: Kind, dir: &Path, expected: &Contents) {
    let report = check(&durable_options(dir)).unwrap();
    assert_eq!(report.damages, Vec::new(), "{}", dir.display());
    assert_eq!(has_codes(dir), kind == Kind::Codes, "{}", dir.display());
    let store = kind.open(dir);
    if kind != Kind::Blocks {
        assert!(store.stats().dictionary_generation > 0, "{} has no dictionary", dir.display());
        assert!(store.ssd().unwrap().leaves > 0, "{} has nothing on SSD", dir.display());
        let in_memory = store.memory().coded_body_bytes;
        assert!(in_memory > 0 || kind == Kind::Cold, "{} has nothing coded in memory", dir.display());
    }
    assert!(contents(&store) == *expected, "{}", dir.display());
    store.put(b"later", b"written by this version").unwrap();
    store.checkpoint().unwrap();
    store.put(b"latest", b"behind a checkpoint").unwrap();
    drop(store);
    let store = kind.open(dir);
    let mut expected = expected.clone();
    expected.insert(b"later".to_vec(), (b"written by this version".to_vec(), None, 0));
    expected.insert(b"latest".to_vec(), (b"behind a checkpoint".to_vec(), None, 0));
    assert!(contents(&store) == expected, "{}", dir.display());
}

/// Audits the fixtures of one kind of a set; which there are.
fn audit_set(kind: Kind, set: &Path, expected: &Contents) -> Vec<&'static str> {
    let work = tempfile::tempdir().unwrap();
    let fixtures: Vec<_> = ["killed", "stopped", "dump"]
        .into_iter()
        .filter(|name| kind.folder(set).join(name).exists())
        .collect();
    for name in &fixtures {
        let (from, dir) = (kind.folder(set).join(name), work.path().join(name));
        match *name {
            "dump" => drop(restore(&durable_options(&dir), &mut fs::File::open(from).unwrap()).unwrap()),
            _ => copy(&from, &dir),
        }
        audit(kind, &dir, expected);
    }
    fixtures
}

#[test]
fn every_set_of_formats_is_read_and_written_on() {
    let kinds = [Kind::Blocks, Kind::Cold, Kind::Codes];
    if let Ok(set) = std::env::var("ZIPTIER_WRITE_FIXTURES") {
        let into = kinds.map(|kind| (kind, kind.folder(&fixtures().join(&set))));
        into.iter().filter(|(_, into)| !into.join("dump").exists()).for_each(|(kind, into)| {
            fs::create_dir_all(into).unwrap();
            write_fixtures(*kind, into);
        });
    }
    for kind in kinds {
        let expected = expected(kind);
        for set in sets() {
            let found = audit_set(kind, &fixtures().join(set.to_string()), &expected);
            // Set 0 has a dump alone: its folders are refused. There was no store with an SSD in fixtures before set 2,
            // and none with codes before set 3.
            let wanted: &[&str] = match (kind, set) {
                (Kind::Blocks, 0) => &["dump"],
                (Kind::Cold, 0 | 1) | (Kind::Codes, 0..=2) => &[],
                _ => &["killed", "stopped", "dump"],
            };
            assert_eq!(found, wanted, "set {set}");
        }
    }
}

/// The numbers of all sets that have fixtures, ascending.
fn sets() -> Vec<u32> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut sets: Vec<u32> =
        fs::read_dir(fixtures()).unwrap().map(|entry| name(entry).parse().unwrap()).collect();
    sets.sort_unstable();
    sets
}

/// Columns of the table of sets, the source that has the format's version, and a file of that format whose bytes 8 to
/// 11 are the version.
const FORMATS: [(&str, &str, Option<&str>); 8] = [
    ("log", "../media/src/log/format.rs", Some("killed/log/log-")),
    ("manifest", "src/durable/manifest.rs", Some("killed/MANIFEST")),
    ("segments", "../media/src/segments/format.rs", Some("killed/segments/segment-")),
    ("owner", "src/durable/segments_dir.rs", Some("killed/segments/STORE")),
    ("image", "src/leaf_image.rs", None),
    ("generation", "src/durable/generation.rs", Some("killed/dictionaries/generation-")),
    ("record", "src/durable/operation.rs", None),
    ("dump", "src/durable/stream.rs", Some("dump")),
];

/// The version that a source says is written.
fn version_in(source: &Path) -> Option<u32> {
    let text = fs::read_to_string(source).unwrap();
    let line = text.lines().find(|line| line.contains("const VERSION: u"))?;
    line.split([' ', ';']).find_map(|word| word.parse().ok())
}

/// All sources below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { sources(&path, found) } else { found.push(path) }
    }
}

/// Whoever gives a format its next version and forgets the fixtures, or invents a format, learns of it here.
#[test]
fn the_newest_set_has_the_versions_that_are_written_and_fixtures_of_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/COMPATIBILITY.md")).unwrap();
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let rows: Vec<Vec<String>> = page.lines().filter(|line| line.starts_with('|')).map(cells).collect();
    let numbers: Vec<u32> = rows[2..].iter().map(|row| row[0].parse().unwrap()).collect();
    assert_eq!(numbers, sets(), "the table has a row for each set of fixtures");
    let (titles, newest) = (&rows[0], &rows[rows.len() - 1]);
    let set = fixtures().join(&newest[0]);
    for (format, source, sample) in FORMATS {
        let written = version_in(&root.join(source));
        let column = titles.iter().position(|title| title == format).unwrap();
        assert_eq!(newest[column].parse().ok(), written, "the newest set's version of {format}");
        let Some(sample) = sample else { continue };
        for folder in [set.clone(), set.join("cold"), set.join("codes")] {
            let (prefix, mut files) = (folder.join(sample), Vec::new());
            let dir = prefix.parent().unwrap();
            sources(dir, &mut files);
            let is_sample = |path: &&PathBuf| path.to_str().unwrap().starts_with(prefix.to_str().unwrap());
            let file = files.iter().find(is_sample).unwrap_or_else(|| panic!("no {}", prefix.display()));
            let header: [u8; 4] = fs::read(file).unwrap()[8..12].try_into().unwrap();
            assert_eq!(Some(u32::from_le_bytes(header)), written, "{} is of another version", file.display());
        }
    }
    let mut all = vec![root.join("src/leaf_image.rs")];
    for dir in ["src/durable", "../media/src/log", "../media/src/segments"] {
        sources(&root.join(dir), &mut all);
    }
    for source in all.into_iter().filter(|source| version_in(source).is_some()) {
        let is_known = FORMATS.iter().any(|(_, known, _)| source == root.join(known));
        assert!(is_known, "{} has a format that no set names", source.display());
    }
}
