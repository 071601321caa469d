//! Disks return wrong bytes now and then. After a clean stop every file of the folder is damaged, one bit at a time:
//! the check must name the damage, or the store must hold what it held, because nothing of that bit is needed. It never
//! panics, and it never holds anything else.
//!
//! `ZIPTIER_FLIPS=n` flips so many bits, 2,500 by default, `ZIPTIER_SEED=n` others.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use ziptier::{CodecChoice, DiskHandle, Error, Options, SsdOptions, Store, check, check_with};
use ziptier_media::testing::{FailingDisk, RecordingDisk};

use crate::durable::{Contents, DIR, contents, from_environment, options, value};

fn options_of(disk: &RecordingDisk, codec: CodecChoice) -> Options {
    let mut options = options(Arc::new(disk.clone()), codec);
    options.durable.as_mut().unwrap().durability = ziptier::Durability::No;
    options
}

/// Checkpoint, log behind it, dead bodies, large values; dictionaries if there is enough data.
fn fill(store: &Store, keys: u64, sends: bool) {
    for n in 0..keys {
        let bytes = if n % 100 == 7 { 5000 } else { 100 };
        store.put(format!("key:{n:06}").as_bytes(), &value(n, bytes)).unwrap();
    }
    store.settle().unwrap();
    if sends {
        let least = if keys < 2000 { 1 } else { 11 };
        assert!(store.send_to_ssd(|| true).unwrap() >= least);
    }
    store.checkpoint().unwrap();
    for n in (0..keys).step_by(keys as usize / 30) {
        store.put(format!("key:{n:06}").as_bytes(), &value(n + 1, 90)).unwrap();
    }
    store.checkpoint().unwrap();
    for n in (0..keys).step_by(keys as usize / 20) {
        store.delete(format!("key:{n:06}").as_bytes()).unwrap();
    }
}

/// What kind of file it is: the name without its number.
fn kind_of(path: &Path) -> String {
    let inside = path.strip_prefix(DIR).unwrap().to_string_lossy().into_owned();
    inside.split('-').next().unwrap().to_owned()
}

/// A store, and how many of all flips it gets, in thousandths.
#[derive(Clone, Copy)]
struct Case {
    codec: CodecChoice,
    keys: u64,
    has_ssd: bool,
    per_mille: usize,
}

/// What came of flips, by the kind of file.
#[derive(Default)]
struct Tally {
    named: BTreeMap<String, usize>,
    /// The store holds what it held, and nothing is said.
    unneeded: BTreeMap<String, usize>,
}

impl Case {
    fn options(&self, disk: &RecordingDisk) -> Options {
        let ssd = self.has_ssd.then_some(SsdOptions { path: None, limit_bytes: 32 << 20 });
        Options { ssd, ..options_of(disk, self.codec) }
    }

    fn flip(&self, flips: usize, seed: u64) -> Tally {
        let disk = RecordingDisk::new();
        let store = Store::open(self.options(&disk)).unwrap();
        fill(&store, self.keys, self.has_ssd);
        let before = contents(&store);
        assert_eq!(store.stats().dictionary_generation > 0, self.codec == CodecChoice::Auto);
        store.close().unwrap();
        let durable = self.options(&disk).durable.unwrap();
        let clean = check(&durable).unwrap();
        assert!(clean.damages.is_empty() && clean.is_sealed, "{clean:?}");
        assert!(clean.records > self.keys / 2 && clean.log_records >= 20, "{clean:?}");

        let files: Vec<_> = disk
            .paths()
            .into_iter()
            .map(|path| (disk.contents(&path).unwrap(), path))
            .filter(|(bytes, _)| !bytes.is_empty())
            .collect();
        // All kinds alike, however long.
        let mut kinds: Vec<String> = files.iter().map(|(_, path)| kind_of(path)).collect();
        kinds.dedup();
        let mut random = fastrand::Rng::with_seed(self.keys ^ seed << 32);
        let mut tally = Tally::default();
        for flip in 0..flips {
            let kind = &kinds[flip % kinds.len()];
            let of_kind: Vec<_> = files.iter().filter(|(_, path)| kind_of(path) == *kind).collect();
            let (bytes, path) = of_kind[random.usize(..of_kind.len())];
            let at = random.usize(..bytes.len());
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << random.u8(..8);
            disk.put(path, damaged);
            let report = check(&durable).unwrap();
            let opened = Store::open(self.options(&disk.copy()));
            if let Some(damage) = report.damages.first() {
                assert!(damage.path.starts_with(DIR), "{damage}");
                // The store refuses, says so when it is asked for what is damaged, or has it twice.
                if let Ok(store) = opened {
                    for record in store.range(..).flatten() {
                        assert!(before[&record.0].0 == record.1, "byte {at} of {}", path.display());
                    }
                    let (mut keys, mut next) = (0, Some(Vec::new()));
                    while let Some(place) = next.take()
                        && let Ok(found) = store.keys_from(&place, usize::MAX)
                    {
                        (keys, next) = (keys + found.keys.len(), found.next);
                        assert!(next.is_some() || keys == before.len());
                    }
                }
            } else {
                assert!(contents(&opened.unwrap()) == before, "byte {at} of {}", path.display());
            }
            let counts = if report.damages.is_empty() { &mut tally.unneeded } else { &mut tally.named };
            *counts.entry(kind.clone()).or_insert(0) += 1;
            disk.put(path, bytes.clone());
        }
        tally
    }
}

#[test]
fn a_flipped_bit_is_named_or_needed_by_nobody() {
    let wanted = from_environment("ZIPTIER_FLIPS", 2_500) as usize;
    let seed = from_environment("ZIPTIER_SEED", 1);
    let mut cases = Vec::new();
    for has_ssd in [false, true] {
        for codec in [CodecChoice::None, CodecChoice::Lz4] {
            cases.push(Case { codec, keys: 200, has_ssd, per_mille: 240 });
            cases.push(Case { codec, keys: 2000, has_ssd, per_mille: 8 });
        }
        // Enough for dictionaries.
        cases.push(Case { codec: CodecChoice::Auto, keys: 20_000, has_ssd, per_mille: 4 });
    }
    assert_eq!(cases.iter().map(|case| case.per_mille).sum::<usize>(), 1000);
    let (mut named, mut unneeded) = (BTreeMap::new(), BTreeMap::new());
    std::thread::scope(|scope| {
        let flip = |case: &Case| case.flip(wanted * case.per_mille / 1000, seed);
        let cases: Vec<_> = cases.iter().map(|case| scope.spawn(move || flip(case))).collect();
        for tally in cases.into_iter().map(|case| case.join().unwrap()) {
            tally.named.into_iter().for_each(|(kind, count)| *named.entry(kind).or_insert(0) += count);
            tally.unneeded.into_iter().for_each(|(kind, count)| *unneeded.entry(kind).or_insert(0) += count);
        }
    });
    println!("named: {named:?}; nobody needs: {unneeded:?}");
    assert_eq!((unneeded.get("MANIFEST"), unneeded.get("MANIFEST.copy")), (None, None));
    assert!(named["segments/segment"] > 10 && named["log/log"] > 10 && named["dictionaries/generation"] > 10);
}

#[test]
fn a_damaged_manifest_loses_nothing() {
    let disk = RecordingDisk::new();
    let store = Store::open(options_of(&disk, CodecChoice::None)).unwrap();
    fill(&store, 2000, false);
    let before = contents(&store);
    store.close().unwrap();
    for name in ["MANIFEST", "MANIFEST.copy"] {
        let disk = disk.copy();
        let durable = options_of(&disk, CodecChoice::None).durable.unwrap();
        let path = Path::new(DIR).join(name);
        let whole = disk.contents(&path).unwrap();
        disk.put(&path, [&whole[..100], &[!whole[100]], &whole[101..]].concat());
        let damages = check(&durable).unwrap().damages;
        assert!(damages.len() == 1 && damages[0].path == path, "{damages:?}");
        let store = Store::open(options_of(&disk, CodecChoice::None)).unwrap();
        assert!(contents(&store) == before);
        assert!(store.recovered().unwrap().skipped[0].contains(name));
        // It is there twice again.
        assert!(disk.contents(&path).unwrap() == whole);
        store.close().unwrap();
        assert_eq!(check(&durable).unwrap().damages, []);
    }
    // A salvage needs one of the two, too.
    let both = ["MANIFEST", "MANIFEST.copy"].map(|name| Path::new(DIR).join(name));
    for path in &both {
        let whole = disk.contents(path).unwrap();
        disk.put(path, [&whole[..100], &[!whole[100]], &whole[101..]].concat());
    }
    let damages = check(&options_of(&disk, CodecChoice::None).durable.unwrap()).unwrap().damages;
    assert!(both.iter().all(|path| damages.iter().any(|damage| damage.path == *path)), "{damages:?}");
    let refused = Store::open(options_of(&disk, CodecChoice::None)).unwrap_err().to_string();
    assert!(refused.contains("restore a dump") && !refused.contains("--salvage"), "{refused}");
}

#[test]
fn a_check_tells_how_far_it_has_come() {
    let disk = RecordingDisk::new();
    let store = Store::open(options_of(&disk, CodecChoice::None)).unwrap();
    fill(&store, 2000, false);
    store.close().unwrap();
    let durable = options_of(&disk, CodecChoice::None).durable.unwrap();
    let mut told = Vec::new();
    let report = check_with(&durable, |report| told.push(report.leaves)).unwrap();
    assert!(told.is_sorted() && told.last() == Some(&report.leaves), "{told:?}: {report:?}");
}

/// Everything but the values that a salvage has lost, which say so.
fn readable(store: &Store) -> Contents {
    let record = |outcome: Result<(Vec<u8>, Vec<u8>), Error>| match outcome {
        Ok((key, value)) => {
            let meta = store.meta(&key).unwrap().unwrap();
            Some((key, (value, meta.expires_at_ms, meta.flags)))
        }
        Err(error) => {
            assert!(error.to_string().contains("salvaged; write it again"), "{error}");
            None
        }
    };
    store.range(..).filter_map(record).collect()
}

#[test]
fn a_salvage_starts_with_what_is_whole_and_lists_what_is_not() {
    for codec in [CodecChoice::None, CodecChoice::Auto] {
        let disk = RecordingDisk::new();
        let store = Store::open(options_of(&disk, codec)).unwrap();
        fill(&store, 3000, false);
        let before = contents(&store);
        store.close().unwrap();
        let segment = disk.paths().into_iter().find(|path| kind_of(path) == "segments/segment").unwrap();
        let mut refusals = 0;
        for at in [100].into_iter().chain((5000..60_000).step_by(5000)) {
            let copy = disk.copy();
            let mut bytes = copy.contents(&segment).unwrap();
            bytes[at] ^= 4;
            copy.put(&segment, bytes);
            // Nobody needs a body that a later checkpoint has replaced.
            let Err(refused) = Store::open(options_of(&copy.copy(), codec)) else { continue };
            assert!(refused.to_string().contains("segment-"), "{refused}");
            refusals += 1;
            let mut options = options_of(&copy, codec);
            options.durable.as_mut().unwrap().salvage = true;
            let store = Store::open(options.clone()).unwrap();
            let found = readable(&store);
            assert!(!store.recovered().unwrap().skipped.is_empty());
            // Bodies know their place without the header of their file.
            assert_eq!(at == 100, found == before);
            assert!(found.iter().all(|(key, value)| before[key] == *value));
            assert!(found.len() > before.len() / 2, "{} of {}", found.len(), before.len());
            store.checkpoint().unwrap();
            drop(store);
            options.durable.as_mut().unwrap().salvage = false;
            assert!(readable(&Store::open(options).unwrap()) == found);
        }
        assert!(refusals > 1, "{refusals}");
    }
}

#[test]
fn a_foreign_file_that_each_start_refuses_is_told_by_a_check() {
    let disk = RecordingDisk::new();
    let options = options_of(&disk, CodecChoice::None);
    drop(Store::open(options.clone()).unwrap());
    let durable = options.durable.clone().unwrap();
    assert_eq!(check(&durable).map(|report| report.damages), Ok(Vec::new()));
    disk.put(&Path::new(DIR).join("thesis.tex"), b"years of work".to_vec());
    let refused = Store::open(options).map(drop).unwrap_err();
    assert!(matches!(refused, Error::ForeignFile { .. }), "{refused}");
    assert_eq!(check(&durable).map(drop), Err(refused));
}

/// Its last checkpoint removes files that the one before names.
#[test]
fn a_store_that_stops_beside_a_check_is_not_damaged() {
    let disk = RecordingDisk::new();
    let options = options_of(&disk, CodecChoice::None);
    let store = Store::open(options.clone()).unwrap();
    let fill = |store: &Store, seed: u64| {
        (0..2000).for_each(|n| store.put(format!("key:{n:06}").as_bytes(), &value(n + seed, 100)).unwrap());
        store.checkpoint().unwrap();
    };
    fill(&store, 0);
    let after_first = store.durable_stats().unwrap().last_lsn;
    let running = Mutex::new(Some(store));
    let stops = move |path: &Path| {
        if path.ends_with("MANIFEST")
            && let Some(store) = running.lock().unwrap().take()
        {
            fill(&store, 1);
            assert!(store.durable_stats().unwrap().first_lsn > after_first);
            store.close().unwrap();
        }
        false
    };
    let mut durable = options.durable.unwrap();
    durable.disk = DiskHandle(Arc::new(FailingDisk::with_bad_bytes(Arc::new(disk), stops, 0..u64::MAX)));
    assert_eq!(check(&durable).map(|report| report.damages), Ok(Vec::new()));
}
