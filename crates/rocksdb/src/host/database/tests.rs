//! A database gives back all that was put, bounds its scans, and tells which options are in force.

use std::path::PathBuf;

use super::{BlockCache, Database, Table};
use crate::host::{Error, LIBRARY_VARIABLE, Library, ScanOptions, Values};

/// An empty database in a folder of its own; nothing where RocksDB is not installed.
fn database(options: &str) -> Option<(Result<Database, Error>, tempfile::TempDir)> {
    let asked = std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
    let library = Library::load(asked.as_deref())
        .inspect_err(|error| {
            ziptier_testing::not_run("rocksdb", &format!("{error}; run make setup-rocksdb"));
        })
        .ok()?;
    let folder = tempfile::tempdir().unwrap();
    let options = format!("create_if_missing=true;{options}");
    let table = Table { block_bytes: 1024, cache: BlockCache::None };
    Some((Database::open(library, folder.path(), &options, table), folder))
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

#[test]
fn what_was_put_is_found_in_every_way() {
    let Some((database, _folder)) = database("compression=kZSTD;write_buffer_size=65536") else { return };
    let database = database.unwrap();
    let value = |number: u32| vec![b'v'; (number % 500) as usize];
    for number in 0..2_000 {
        database.put(&key(number), &value(number)).unwrap();
    }
    database.delete(&key(7)).unwrap();
    database.compact().unwrap();
    assert!(database.sst_files() > 0 && database.sst_bytes() > 0);

    let mut found = Vec::new();
    for number in 0..2_001 {
        let is_there = number != 7 && number < 2_000;
        assert_eq!(database.get(&key(number), &mut found).unwrap(), is_there);
        assert_eq!(found, if is_there { value(number) } else { vec![] });
    }
    let mut values = Values::default();
    for numbers in [[5, 7, 0], [499, 1_999, 2_000]] {
        database.multi_get(&numbers.map(key), &mut values).unwrap();
        for (position, number) in numbers.into_iter().enumerate() {
            let expected = (number != 7 && number < 2_000).then(|| value(number));
            assert_eq!(values.get(position), expected.as_deref());
        }
        assert_eq!(values.get(3), None);
    }
    let (mut scan, mut met) = (database.scan(&key(5)), Vec::new());
    while met.len() < 3 && scan.next(|key, _| met.push(key.to_vec())).unwrap() {}
    assert_eq!(met, [5, 6, 8].map(key));
}

#[test]
fn work_in_the_background_is_told() {
    let Some((database, _folder)) = database("write_buffer_size=65536") else { return };
    let database = database.unwrap();
    let was_seen = (0..1_000_000).any(|n| {
        database.put(&key(n), &[b'v'; 500]).unwrap();
        database.has_work()
    });
    assert!(was_seen, "no flush was seen");
    ziptier_testing::until("nothing is left", || !database.has_work());
}

/// The keys that a scan of everything meets, and whether it ends because it would pass too much.
fn met(database: &Database, options: ScanOptions<'_>) -> (Vec<Vec<u8>>, bool) {
    let (mut scan, mut met) = (database.scan_with(b"", options), Vec::new());
    loop {
        match scan.next(|key, _| met.push(key.to_vec())) {
            Ok(true) => {}
            Ok(false) => return (met, false),
            Err(Error::PassesMany) => return (met, true),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A thread that serves others would stand still for as long as all deleted keys take.
#[test]
fn a_scan_passes_no_more_deleted_keys_than_it_may() {
    let Some((database, _folder)) = database("") else { return };
    let database = database.unwrap();
    let stays = |number: &u32| [1_000, 1_500, 2_999].contains(number);
    (0..3_000).for_each(|number| database.put(&key(number), b"value").unwrap());
    (0..3_000).filter(|number| !stays(number)).for_each(|number| database.delete(&key(number)).unwrap());
    let all: Vec<_> = (0..3_000).filter(stays).map(key).collect();
    // Each deleted key is two entries: the delete, and the value that it hides.
    for (passed_max, count) in [(0, 3), (1_999, 0), (2_000, 2), (9_000, 3)] {
        let expected = (all[..count].to_vec(), count < 3);
        let options = ScanOptions { passed_max, ..ScanOptions::default() };
        assert_eq!(met(&database, options), expected, "{passed_max}");
    }
    // Those behind the end are not passed.
    let end = key(1_001);
    let first = ScanOptions { passed_max: 2_100, to: Some(&end), ..ScanOptions::default() };
    assert_eq!(met(&database, first), (all[..1].to_vec(), false));
    let none = ScanOptions { passed_max: 10, to: Some(b""), ..ScanOptions::default() };
    assert_eq!(met(&database, none), (vec![], false));
    // A compaction drops the hidden values, and may keep the deletes. More than 2,000 are passed at the end.
    database.compact().unwrap();
    let deletes = ScanOptions { passed_max: 2_000, ..ScanOptions::default() };
    assert_eq!(met(&database, deletes), (all, true));
}

/// A thread that serves others would read one long value after the other.
#[test]
fn bytes_that_a_thread_reads_are_counted() {
    const LONG_BYTES: u64 = 1 << 20;
    let Some((database, _folder)) = database("compression=kNoCompression") else { return };
    let database = database.unwrap();
    database.put(b"a", b"short").unwrap();
    database.put(b"long", &vec![b'v'; LONG_BYTES as usize]).unwrap();
    let read = |key: &[u8]| {
        let before = database.thread_read_bytes();
        database.get_up_to(key, 0, &mut Vec::new()).unwrap();
        database.thread_read_bytes() - before
    };
    assert!(read(b"long") >= LONG_BYTES && read(b"lone") == 0);
    database.compact().unwrap();
    // The block of the long value shows that another key is not there.
    assert!(read(b"long") >= LONG_BYTES && read(b"lone") >= LONG_BYTES);
    let others = std::thread::scope(|scope| scope.spawn(|| database.thread_read_bytes()).join().unwrap());
    assert_eq!(others, 0);
}

/// A walk over keys would read all of them.
#[test]
fn keys_alone_are_met_without_their_values() {
    let Some((database, folder)) = database("enable_blob_files=true;min_blob_size=100") else { return };
    let database = database.unwrap();
    let all: Vec<_> = (0..50).map(key).collect();
    all.iter().for_each(|key| database.put(key, &[b'v'; 1_000]).unwrap());
    database.flush().unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let is_blob = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "blob");
    let blobs: Vec<PathBuf> = files.filter(is_blob).collect();
    assert_eq!(blobs.len(), 1);
    std::fs::remove_file(&blobs[0]).unwrap();
    let keys_only = ScanOptions { keys_only: true, ..ScanOptions::default() };
    assert_eq!(met(&database, keys_only), (all, false));
    assert!(database.scan(b"").next(|_, _| {}).is_err());
}

#[test]
fn options_are_written_down_and_wrong_ones_are_errors() {
    let Some((opened, folder)) = database("compression=kLZ4Compression;compression_opts={level=3}") else {
        return;
    };
    let database = opened.unwrap();
    let options = database.options().unwrap();
    for line in
        ["compression=kLZ4Compression", "rocksdb_version=11.8", "no_block_cache=true", "block_size=1024"]
    {
        assert!(options.contains(line), "{line}");
    }
    assert!(database.property(c"rocksdb.stats").is_some() && database.property(c"rocksdb.none").is_none());
    let again = Database::open(Library::load(None).unwrap(), folder.path(), "", Table::default());
    let again = again.unwrap_err().to_string();
    assert!(again.starts_with("could not open the database: IO error: lock"), "{again}");
}

#[test]
fn the_newest_options_have_the_highest_number() {
    let Some((opened, folder)) = database("") else { return };
    let database = opened.unwrap();
    for name in ["OPTIONS-999999", "OPTIONS-1000000", "OPTIONS-999999.old", "OPTIONS-2000000.dbtmp"] {
        std::fs::write(folder.path().join(name), name).unwrap();
    }
    assert_eq!(database.options().unwrap(), "OPTIONS-1000000");
}

#[test]
fn bad_and_ignored_options_are_told() {
    let Some((bad, _folder)) = database("compresion=kZSTD") else { return };
    assert!(bad.unwrap_err().to_string().starts_with("could not take the options: "));
    let (ignored, _folder) = database("compression_manager={id=Nobody;x=1};compression=kZSTD").unwrap();
    let ignored = ignored.unwrap_err();
    assert!(matches!(&ignored, Error::Ignored { asked, .. } if asked == "Nobody"), "{ignored}");
}
