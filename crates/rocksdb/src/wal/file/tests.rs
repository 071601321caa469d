use super::super::is_written;
use super::*;
use std::fs;
use std::path::PathBuf;

/// A folder on the disk, and one on tmpfs where there is one.
fn folders() -> Vec<tempfile::TempDir> {
    let mut folders = vec![tempfile::tempdir().unwrap()];
    folders.extend(tempfile::tempdir_in("/dev/shm"));
    folders
}

fn length_of(path: &Path) -> u64 {
    live::length_in(&fs::metadata(path).unwrap()).unwrap().bytes()
}

fn empty(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, []).unwrap();
    path
}

#[test]
fn a_file_has_what_was_appended_and_zeros_until_it_is_closed() {
    for folder in folders() {
        let path = empty(&folder, "000001.log");
        let log = LogFile::begin(&path).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut appended = Vec::new();
        for n in 0..3000 {
            // Now and then as long as several blocks; runs of synced and of unsynced appends.
            let longest = if n % 100 == 0 { 200_000 } else { 700 };
            let count = random.usize(1..longest);
            let bytes: Vec<u8> = iter::repeat_with(|| random.u8(1..)).take(count).collect();
            log.append(&bytes).unwrap();
            appended.extend(bytes);
            if n / 30 % 2 == 0 {
                log.sync().unwrap();
            }
            if n % 500 == 0 {
                let found = fs::read(&path).unwrap();
                assert!(
                    found[..appended.len()] == appended
                        && found[appended.len()..].iter().all(|byte| *byte == 0)
                );
            }
        }
        assert_eq!(length_of(&path), appended.len() as u64);
        log.close().unwrap();
        assert!(!is_written(&path) && fs::read(&path).unwrap() == appended);
    }
}

#[test]
fn room_is_made_once_somebody_syncs() {
    let folder = tempfile::tempdir().unwrap();
    let path = empty(&folder, "000001.log");
    let log = LogFile::begin(&path).unwrap();
    let bytes_of_file = || fs::metadata(&path).unwrap().len();
    let begun = bytes_of_file();
    for _ in 0..3 {
        log.append(&vec![7; begun as usize]).unwrap();
    }
    let has_room_at_once = log.file.is_mapped();
    assert!(has_room_at_once || bytes_of_file() == log.bytes(), "zeros that nobody asked for");
    log.sync().unwrap();
    log.append(b"more").unwrap();
    assert!(bytes_of_file() >= log.bytes() + begun / 2, "no room behind a log that is synced");
    log.close().unwrap();
    let found = fs::read(&path).unwrap();
    assert!(found.len() as u64 == 3 * begun + 4 && found.ends_with(b"\x07more"));
}

#[test]
fn a_file_is_used_again_and_the_former_log_does_not_cut_it() {
    for folder in folders() {
        let path = empty(&folder, "000001.log");
        let former = LogFile::begin(&path).unwrap();
        former.append(&[1; 100_000]).unwrap();
        let reused = folder.path().join("000002.log");
        let log = LogFile::reuse(&path, &reused).unwrap();
        assert_eq!((log.bytes(), length_of(&reused)), (0, 0));
        log.append(&[2; 200_000]).unwrap();
        drop(former);
        assert!(fs::read(&reused).unwrap().len() > 200_000);
        log.append(&[3; 5]).unwrap();
        log.truncate(200_002).unwrap();
        log.append(&[4; 3]).unwrap();
        log.close().unwrap();
        let found = fs::read(&reused).unwrap();
        assert_eq!((found.len(), &found[199_999..]), (200_005, &[2, 3, 3, 4, 4, 4][..]));
    }
}

/// What a cut and an append through the page cache left is not written over with what was there before, at the same length.
#[test]
fn a_cut_log_keeps_what_came_after_the_cut() {
    for folder in folders() {
        let path = empty(&folder, "000001.log");
        let log = LogFile::begin(&path).unwrap();
        let append = |byte: u8, count: usize| {
            log.append(&vec![byte; count]).unwrap();
            log.sync().unwrap();
        };
        (0..10).for_each(|_| append(1, 10_000));
        log.truncate(1000).unwrap();
        // Longer than what is written directly.
        append(2, 99_000);
        append(3, 10);
        log.close().unwrap();
        let found = fs::read(&path).unwrap();
        let expected = [vec![1; 1000], vec![2; 99_000], vec![3; 10]].concat();
        assert!(found == expected, "{:?}", found.iter().zip(&expected).position(|(a, b)| a != b));
    }
}

#[test]
fn links_and_other_names_have_the_same_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = empty(&folder, "000001.log");
    let log = LogFile::begin(&path).unwrap();
    log.append(&[1; 10]).unwrap();
    let (link, renamed) = (folder.path().join("link"), folder.path().join("renamed"));
    fs::hard_link(&path, &link).unwrap();
    fs::rename(&path, &renamed).unwrap();
    assert_eq!([&link, &renamed].map(|path| length_of(path)), [10, 10]);
    fs::remove_file(&renamed).unwrap();
    log.append(&[2; 10]).unwrap();
    assert_eq!(length_of(&link), 20);
}

/// Notes where it is written.
#[derive(Default)]
struct Noting(Mutex<Vec<(u64, usize)>>);

impl DiskFile for Noting {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, DiskError> {
        self.0.lock().push((offset, bytes.len()));
        Ok(bytes.len())
    }
    fn len(&self) -> Result<u64, DiskError> {
        unreachable!()
    }
    fn read_at(&self, _: u64, _: &mut [u8]) -> Result<usize, DiskError> {
        unreachable!()
    }
    fn preallocate(&self, _: u64) -> Result<(), DiskError> {
        unreachable!()
    }
    fn set_len(&self, _: u64) -> Result<(), DiskError> {
        unreachable!()
    }
    fn sync_data(&self) -> Result<(), DiskError> {
        unreachable!()
    }
    fn is_direct(&self) -> bool {
        unreachable!()
    }
    fn path(&self) -> &Path {
        unreachable!()
    }
}

#[test]
fn heads_are_stored_last_and_the_first_one_at_the_end() {
    let block = BLOCK_BYTES as u64;
    let order = |at, count| {
        let file = Noting::default();
        store_heads_last(&file, at, &vec![7; count]).unwrap();
        file.0.into_inner()
    };
    assert_eq!(
        order(block - 100, 2 * BLOCK_BYTES),
        [
            (block - 92, 92),
            (block + 8, BLOCK_BYTES - 8),
            (2 * block + 8, BLOCK_BYTES - 108),
            (2 * block, 8),
            (block, 8),
            (block - 100, 8),
        ]
    );
    assert_eq!(order(0, 9), [(8, 1), (0, 8)]);
    assert_eq!(order(5, 3), [(5, 3)]);
    assert_eq!(order(block - 2, 5), [(block, 3), (block - 2, 2)]);
    assert_eq!(order(block, 100), [(block + 8, 92), (block, 8)]);
}
