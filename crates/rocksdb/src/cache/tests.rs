//! A stored block comes back or is a miss, whatever happens to the files.

mod beside;
mod ending;

use super::*;
use std::fs;
use std::path::Path;
use ziptier_media::disk::RealDisk;
use ziptier_media::testing::{FailingDisk, Fault, PausingDisk};

const CAPACITY: u64 = 8 << 20;

fn settings(folder: &Path) -> Settings {
    Settings { admission: Admission::All, ..Settings::new(folder.join("cache"), CAPACITY) }
}

fn key(i: u64) -> [u8; 16] {
    let mut key = [7; 16];
    key[3..11].copy_from_slice(&i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

/// Blocks of a few kilobytes: text, bytes that do not pack, and now and then an empty one.
fn block(i: u64) -> Vec<u8> {
    let bytes = (i * 31 % 9000) as usize;
    if i.is_multiple_of(3) {
        let mut random = fastrand::Rng::with_seed(i);
        return (0..bytes).map(|_| random.u8(..)).collect();
    }
    format!("block {i} of this test, and so on; ").bytes().cycle().take(bytes).collect()
}

fn kind(i: u64) -> Kind {
    Kind { compression: (i % 8) as u8, tier: (i % 3) as u8, role: (i % 5) as u8 }
}

/// Puts a block, waiting for room.
fn put(cache: &Cache, i: u64) {
    while !cache.put(&key(i), kind(i), &block(i)) {
        cache.flush();
    }
}

/// Whether the block is there; if so, it is right.
fn has(cache: &Cache, i: u64) -> bool {
    cache
        .get(&key(i), |kind_found, found| assert!(kind_found == kind(i) && found == block(i), "block {i}"))
        .is_some()
}

fn count(cache: &Cache, keys: impl Iterator<Item = u64>) -> u64 {
    keys.filter(|&i| has(cache, i)).count() as u64
}

/// The files as a kill would leave them: the cache is open.
fn copy_files(cache: &Cache, to: &Path) {
    cache.flush();
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(&cache.settings().path).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

fn file_bytes(folder: &Path) -> u64 {
    fs::read_dir(folder).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn the_first_block_finds_room_at_once() {
    for _ in 0..50 {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        assert!(Cache::open(&settings).unwrap().put(&key(1), kind(1), &block(1)));
        assert!(has(&Cache::open(&settings).unwrap(), 1));
    }
}

#[test]
fn blocks_come_back_after_a_clean_stop() {
    for (codec, direct) in [(Codec::Lz4, false), (Codec::Zstd, true), (Codec::None, false)] {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { codec, direct, ..settings(folder.path()) };
        let cache = Cache::open(&settings).unwrap();
        (0..500).for_each(|i| put(&cache, i));
        assert_eq!(count(&cache, 0..600), 500);
        drop(cache);
        // Packed by one codec, read with another as the choice.
        let cache = Cache::open(&Settings { codec: Codec::None, ..settings.clone() }).unwrap();
        assert_eq!(cache.counters().restored_from_index.get(), 1);
        assert_eq!(count(&cache, 0..600), 500);
        // The index was true only once, and the segment is gone on with.
        (500..520).for_each(|i| put(&cache, i));
        assert!(!settings.path.join("index").exists());
        drop(cache);
        let cache = Cache::open(&settings).unwrap();
        assert_eq!(count(&cache, 0..600), 520);
        assert_eq!(cache.counters().damaged.get(), 0);
    }
}

#[test]
fn a_restart_costs_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    for i in 0..30 {
        put(&Cache::open(&settings).unwrap(), i);
    }
    let cache = Cache::open(&settings).unwrap();
    assert_eq!(count(&cache, 0..30), 30);
    // A segment, the one after it, and the lock.
    assert_eq!(fs::read_dir(&settings.path).unwrap().count(), 3);
}

#[test]
fn blocks_come_back_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(&settings(folder.path())).unwrap();
    (0..500).for_each(|i| put(&cache, i));
    let killed = Settings { path: folder.path().join("killed"), ..settings(folder.path()) };
    copy_files(&cache, &killed.path);
    (500..700).for_each(|i| put(&cache, i));
    let cache = Cache::open(&killed).unwrap();
    assert_eq!(cache.counters().restored_from_index.get(), 0);
    assert_eq!(count(&cache, 0..700), 500);
    (1000..1100).for_each(|i| put(&cache, i));
    assert_eq!(count(&cache, 0..1100), 600);
}

#[test]
fn the_capacity_holds_and_what_is_read_stays() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let cache = Cache::open(&settings).unwrap();
    // A segment has begun, and has the entries that were moved on.
    let is_settled = || {
        let tail = cache.shared.tail();
        tail.next().is_none() && !tail.wants_segment()
    };
    for i in 0..12_000 {
        put(&cache, i);
        ziptier_testing::until("the writer has nothing to do", is_settled);
        if i % 100 == 99 {
            count(&cache, 0..20);
        }
        if i % 1000 == 0 {
            assert!(file_bytes(&settings.path) <= CAPACITY);
        }
    }
    assert!(count(&cache, 0..20) >= 15);
    assert!(count(&cache, 11_900..12_000) == 100);
    assert_eq!(count(&cache, 3000..4000), 0);
    assert!(cache.counters().kept.get() > 0);
    drop(cache);
    assert!(file_bytes(&settings.path) <= CAPACITY);
    let cache = Cache::open(&settings).unwrap();
    assert_eq!(count(&cache, 11_900..12_000), 100);
    drop(cache);
    // Twice the capacity goes on with what is there.
    let cache = Cache::open(&Settings { capacity_bytes: 2 * CAPACITY, ..settings }).unwrap();
    assert_eq!(count(&cache, 11_900..12_000), 100);
}

#[test]
fn first_timers_are_turned_away() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(&Settings { admission: Admission::Ghost, ..settings(folder.path()) }).unwrap();
    assert!(!cache.wants(&key(1), false));
    assert!(cache.wants(&key(1), false));
    assert!(cache.wants(&key(2), true));
    put(&cache, 1);
    assert!(!cache.wants(&key(1), true));
    cache.remove(&key(1));
    assert!(!has(&cache, 1));
    assert!(cache.wants(&key(1), true));
}

/// The folder after so many blocks, closed; its files.
fn filled(folder: &Path, blocks: u64) -> (Settings, Vec<(std::path::PathBuf, Vec<u8>)>) {
    let settings = settings(folder);
    let cache = Cache::open(&settings).unwrap();
    (0..blocks).for_each(|i| put(&cache, i));
    drop(cache);
    let files = names_and_bytes(&settings.path);
    (settings, files)
}

#[test]
fn no_flipped_bit_is_returned() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, files) = filled(folder.path(), 300);
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..60 {
        let damaged = &files[random.usize(..files.len())];
        for (path, bytes) in &files {
            fs::write(path, bytes).unwrap();
        }
        let mut bytes = damaged.1.clone();
        for _ in 0..1 + round % 20 {
            // Headers as often as what follows them.
            let most = if random.bool() { 64 } else { bytes.len() };
            let at = random.usize(..most.min(bytes.len()));
            bytes[at] ^= 1 << random.u8(..8);
        }
        let is_signed = bytes[..8] == damaged.1[..8];
        fs::write(&damaged.0, bytes).unwrap();
        let cache = match Cache::open(&settings) {
            // No proof is left that the folder belongs to the cache.
            Err(CacheError::Foreign { path }) if path == damaged.0 && !is_signed => continue,
            cache => cache.unwrap(),
        };
        let found = count(&cache, 0..300);
        put(&cache, 1000);
        assert!(has(&cache, 1000));
        // A segment without a header is lost, with all its blocks.
        let is_headless = cache.counters().damaged_segments.get() > 0;
        assert!(found >= 200 || is_headless, "{found} in round {round}, {}", damaged.0.display());
    }
}

#[test]
fn a_block_damaged_while_open_is_dropped_once() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let cache = Cache::open(&settings).unwrap();
    (0..100).for_each(|i| put(&cache, i));
    cache.flush();
    let path = settings.path.join("blocks-00000");
    let mut bytes = fs::read(&path).unwrap();
    bytes[4096..].iter_mut().step_by(50).for_each(|byte| *byte ^= 0x10);
    fs::write(&path, bytes).unwrap();
    let found = count(&cache, 0..100);
    assert!(found < 60, "{found}");
    assert_eq!(cache.counters().damaged.get(), 100 - found);
    assert_eq!(count(&cache, 0..100), found);
    assert_eq!(cache.counters().damaged.get(), 100 - found);
}

/// Files of any bytes, also such whose checksums are right.
#[test]
fn hostile_files_are_misses() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, files) = filled(folder.path(), 200);
    let mut random = fastrand::Rng::with_seed(2);
    for round in 0..150 {
        for (path, bytes) in files.iter().filter(|(path, _)| !path.ends_with("LOCK")) {
            let mut bytes = bytes.clone();
            match random.u8(..6) {
                0 => bytes.truncate(random.usize(..=bytes.len())),
                1 => bytes.extend((0..random.usize(..10_000)).map(|_| random.u8(..))),
                2 if !bytes.is_empty() => {
                    let start = random.usize(..bytes.len());
                    bytes[start..].iter_mut().take(5000).for_each(|byte| *byte = random.u8(..));
                }
                3 if bytes.len() > 44 => {
                    let at = 8 * random.usize(1..5);
                    bytes[at..at + 8].copy_from_slice(&random.u64(..).to_le_bytes());
                    bytes[8..12].copy_from_slice(&1_u32.to_le_bytes());
                    let crc = crc32c::crc32c(&bytes[..40]);
                    bytes[40..44].copy_from_slice(&crc.to_le_bytes());
                }
                4 if path.ends_with("index") => {
                    let at = random.usize(12..bytes.len() - 12);
                    bytes[at..at + 8].copy_from_slice(&random.u64(..).to_le_bytes());
                    let end = bytes.len() - 4;
                    let crc = crc32c::crc32c(&bytes[..end]);
                    bytes[end..].copy_from_slice(&crc.to_le_bytes());
                }
                _ => {}
            }
            fs::write(path, bytes).unwrap();
        }
        let cache = match Cache::open(&settings) {
            Err(CacheError::Foreign { path }) => {
                let bytes = fs::read(path).unwrap();
                assert!(!bytes.starts_with(b"ziptrblk") && !bytes.starts_with(b"ziptridx"));
                continue;
            }
            cache => cache.unwrap_or_else(|error| panic!("round {round}: {error}")),
        };
        count(&cache, 0..300);
        put(&cache, 500);
        assert!(has(&cache, 500));
    }
}

/// An entry whose check is right and whose words are lies.
#[test]
fn a_lying_entry_is_a_miss() {
    let mut random = fastrand::Rng::with_seed(3);
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(&settings(folder.path())).unwrap();
    for i in 0..2000 {
        let packed = block(i % 50);
        let packing = [format::Packing::Raw, format::Packing::Lz4, format::Packing::Zstd][random.usize(..3)];
        let raw_bytes = if random.bool() { random.u32(..) } else { random.u32(..20_000) };
        let mut entry = Vec::new();
        Entry { key: &key(i), kind: kind(i), packing, raw_bytes, packed: &packed }.encode(&mut entry);
        while !cache.shared.append(hash_of(&key(i)), &mut entry) {
            cache.flush();
        }
        let truth = packing == format::Packing::Raw && raw_bytes as usize == packed.len();
        if packing == format::Packing::Raw {
            assert_eq!(cache.get(&key(i), |_, found| assert_eq!(found, packed)).is_some(), truth);
        } else {
            cache.get(&key(i), |_, found| assert_eq!(found.len(), raw_bytes as usize));
        }
    }
}

#[test]
fn what_cannot_be_opened_is_told_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, _) = filled(folder.path(), 10);
    let told = |settings: &Settings| {
        let told = Cache::open(settings).err().unwrap().to_string();
        assert!(!told.contains('\n'));
        told
    };
    let cache = Cache::open(&settings).unwrap();
    assert!(told(&settings).contains("is open already"));
    drop(cache);

    let path = settings.path.join("blocks-00000");
    let mut bytes = fs::read(&path).unwrap();
    bytes[8] = 2;
    let crc = crc32c::crc32c(&bytes[..40]);
    bytes[40..44].copy_from_slice(&crc.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    assert!(told(&settings).contains("version 2"));

    fs::write(folder.path().join("file"), b"").unwrap();
    assert!(
        told(&Settings { path: folder.path().join("file"), ..settings.clone() }).contains("cannot create")
    );
    assert!(told(&Settings { path: "".into(), ..settings.clone() }).contains("path=DIR"));
    assert!(told(&Settings { capacity_bytes: 5, ..settings.clone() }).contains("8388608"));
    fs::create_dir(folder.path().join("db")).unwrap();
    fs::write(folder.path().join("db/CURRENT"), b"").unwrap();
    assert!(told(&Settings { path: folder.path().join("db"), ..settings.clone() }).contains("database"));
    assert!(settings.clone().set("codec", "gzip").unwrap_err().to_string().contains("lz4, zstd, none"));
}

fn names_and_bytes(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut files: Vec<_> = paths.map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn a_folder_of_somebody_else_keeps_all_it_has() {
    for (name, bytes) in [
        ("index", &b"DIRC\0\0\0\x02, as git has it"[..]),
        ("index.new", b"index"),
        ("blocks-00000", b"ziptridx, but of another kind of file"),
        ("blocks-00017", &[0; 5000]),
        ("blocks-00017", b""),
        ("index", b""),
        ("LOCK", b"process 17"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { path: folder.path().into(), ..settings(folder.path()) };
        fs::write(folder.path().join("config"), b"").unwrap();
        fs::write(folder.path().join(name), bytes).unwrap();
        let before = names_and_bytes(folder.path());
        let told = Cache::open(&settings).err().unwrap_or_else(|| panic!("{name} was taken"));
        assert_eq!(told, CacheError::Foreign { path: folder.path().join(name) });
        assert!(names_and_bytes(folder.path()) == before, "{name}");
    }
}

/// A crash leaves files that were made and not written, next to each other or alone.
#[test]
fn what_a_crash_left_unwritten_is_no_hindrance() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, written) = filled(folder.path(), 300);
    let of_version_without_mark = (settings.path.join("LOCK"), Vec::new());
    for name in ["index", "index.new", "blocks-00000", "blocks-00001"] {
        for bytes in [&b""[..], &[0; 100_000]] {
            let unwritten = (settings.path.join(name), bytes.to_vec());
            // In a folder that has nothing but its mark, or segments alone, or both.
            let lock = written.iter().find(|(path, _)| path.ends_with("LOCK")).unwrap().clone();
            let unmarked = [&written[..], std::slice::from_ref(&of_version_without_mark)].concat();
            for files in [vec![lock], unmarked, written.clone()] {
                fs::remove_dir_all(&settings.path).unwrap();
                fs::create_dir(&settings.path).unwrap();
                for (path, bytes) in files.iter().chain([&unwritten]) {
                    fs::write(path, bytes).unwrap();
                }
                let cache = Cache::open(&settings).unwrap();
                put(&cache, 1000);
                assert!(has(&cache, 1000));
            }
        }
    }
}

#[test]
fn databases_of_a_process_share_a_cache() {
    let folder = tempfile::tempdir().unwrap();
    let other_folder = tempfile::tempdir().unwrap();
    let second = Cache::open_shared(&settings(other_folder.path())).unwrap();
    let settings = settings(folder.path());
    let cache = Cache::open_shared(&settings).unwrap();
    let same = Cache::open_shared(&settings).unwrap();
    put(&cache, 3);
    assert!(has(&same, 3));
    let other = Settings { codec: Codec::Zstd, ..settings.clone() };
    assert!(Cache::open_shared(&other).is_err_and(|error| error.to_string().contains("other options")));
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&settings.path, &link).unwrap();
    let linked = Cache::open_shared(&Settings { path: link, ..settings.clone() }).unwrap();
    assert!(Arc::ptr_eq(&cache, &linked));
    drop(linked);
    assert!(cache.counters().to_string().contains("cache_stored 1\n"));
    // Other tests may have shared caches at the same time, each with a few blocks; no sum of those comes near.
    for cache in [&cache, &second] {
        (100..1100).for_each(|i| put(cache, i));
    }
    let all = counters_of_all().unwrap().to_string();
    let stored = all.lines().find_map(|line| line.strip_prefix("cache_stored ")).unwrap();
    let stored: u64 = stored.parse().unwrap();
    assert!((2001..2500).contains(&stored), "{all}");
    drop((cache, same, second));
    Cache::open_shared(&other).unwrap();
}

/// Databases and counters waited until a cache had read all of its segments.
#[test]
fn a_cache_that_is_being_opened_holds_up_no_other_one() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), PausingDisk::new());
    let slow = Settings::new("/slow", CAPACITY);
    let open_slow = || drop(Cache::open_shared_on(Arc::new(disk.clone()), &slow).unwrap());
    disk.during("/slow", open_slow, || {
        put(&Cache::open_shared(&settings(folder.path())).unwrap(), 1);
        counters_of_all();
    });
    Cache::open_shared_on(Arc::new(disk.clone()), &slow).unwrap();
}

/// A host forks while the cache is open, and its child ends as a process does. The thread that writes is the parent's
/// alone.
#[test]
fn a_forked_child_closes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut cache = Some(Cache::open_shared(&settings(folder.path())).unwrap());
    put(cache.as_ref().unwrap(), 3);
    // SAFETY: the child drops the cache and ends; if it waits for a thread that it does not have, the alarm ends it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::alarm(60);
            drop(cache.take());
            libc::_exit(0);
        }
    }
    let mut status = 0;
    // SAFETY: the child is ours.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child waited for what it does not have");
    let cache = cache.unwrap();
    put(&cache, 4);
    assert!(has(&cache, 3) && has(&cache, 4));
    drop(cache);
    let cache = Cache::open_shared(&settings(folder.path())).unwrap();
    assert!(has(&cache, 3) && has(&cache, 4));
}

/// Blocks lie there as they were before any encryption of the database's files.
#[test]
fn nobody_else_reads_what_the_cache_writes() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { path: folder.path().join("new"), ..settings(folder.path()) };
    let path = &settings.path;
    for round in 0..2 {
        let cache = Cache::open(&settings).unwrap();
        put(&cache, round);
        cache.flush();
        drop(cache);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(path), 0o700);
        let files: Vec<_> = fs::read_dir(path).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(files.len() >= 3, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    }
}

/// One thread has the last of it and closes it, which takes as long as writing all that is left, while another opens
/// it.
#[test]
fn a_cache_that_is_being_closed_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let other = Settings { codec: Codec::Zstd, ..settings.clone() };
    let mut stored = 0;
    for round in 0..40 {
        let cache = Cache::open_shared(&settings).unwrap();
        assert_eq!(count(&cache, 0..stored), stored);
        (stored..stored + 5).for_each(|i| put(&cache, i));
        stored += 5;
        let last = Arc::downgrade(&cache);
        std::thread::scope(|scope| {
            // A thread that asks for counters may be the one that closes the cache. So may a thread that wants it with
            // other options.
            scope.spawn(counters_of_all);
            scope.spawn(|| drop(Cache::open_shared(&other).ok()));
            scope.spawn(|| drop(cache));
            if round % 2 == 0 {
                while last.strong_count() > 0 {
                    std::hint::spin_loop();
                }
            }
            match Cache::open_shared(&settings) {
                Ok(_) | Err(CacheError::OtherOptions { .. }) => {}
                Err(error) => panic!("round {round}: {error}"),
            }
        });
    }
}

/// The cache works without what the disk refuses, and reports that once.
#[test]
fn a_failing_disk_makes_a_smaller_cache_or_none() {
    for fault in [Fault::Full, Fault::Io] {
        for nth in 0..60 {
            let folder = tempfile::tempdir().unwrap();
            let settings = settings(folder.path());
            let disk = Arc::new(FailingDisk::new(Arc::new(RealDisk), fault, nth));
            let Ok(cache) = Cache::open_on(disk, &settings) else { continue };
            for i in 0..300 {
                cache.put(&key(i), kind(i), &block(i));
                cache.flush();
            }
            count(&cache, 0..300);
            drop(cache);
            let cache = Cache::open(&settings).unwrap();
            count(&cache, 0..300);
            put(&cache, 700);
            assert!(has(&cache, 700));
        }
    }
}

#[test]
fn what_cannot_be_told_ends_no_thread() {
    let failing = "cache::tests::a_failing_disk_makes_a_smaller_cache_or_none";
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", failing, "--nocapture"])
        .stderr(fs::OpenOptions::new().write(true).open("/dev/full").unwrap())
        .output()
        .unwrap();
    let told = String::from_utf8(run.stdout).unwrap();
    assert!(run.status.success() && told.contains("1 passed"), "{told}");
}

#[test]
fn what_a_file_claims_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path());
    let cache = Cache::open(&settings).unwrap();
    (0..100).for_each(|i| put(&cache, i));
    drop(cache);
    // An index as long as no index is: no room is made for what it may say that it has.
    let index = fs::OpenOptions::new().write(true).open(settings.path.join("index")).unwrap();
    index.set_len(1 << 40).unwrap();
    drop(index);
    let cache = Cache::open(&settings).unwrap();
    assert_eq!((cache.counters().restored_from_index.get(), count(&cache, 0..100)), (0, 100));
    drop(cache);
    // The last number that a segment can have.
    let path = settings.path.join("blocks-00000");
    let mut bytes = fs::read(&path).unwrap();
    let header = format::Header::decode(&bytes).unwrap();
    format::Header { sequence: u64::MAX, ..header }.encode(&mut bytes[..format::PAGE_BYTES]);
    fs::write(&path, bytes).unwrap();
    let cache = Cache::open(&settings).unwrap();
    (100..1000).for_each(|i| put(&cache, i));
    assert_eq!((count(&cache, 900..1000), cache.counters().stopped.get()), (100, 0));
}
