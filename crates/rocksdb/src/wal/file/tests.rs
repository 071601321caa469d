mod tears;

use super::super::is_written;
use super::*;
use std::fs;
use std::path::PathBuf;
use ziptier_media::disk::{DirLock, OpenDir};
use ziptier_media::testing::RecordingDisk;

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

/// Room is for records that are synced one by one: behind others, a power cut would leave zeros before later records.
#[test]
fn room_is_made_for_records_that_are_synced_and_left_by_others() {
    let folder = tempfile::tempdir().unwrap();
    let path = empty(&folder, "000001.log");
    let log = LogFile::begin(&path).unwrap();
    let has_room = || fs::metadata(&path).unwrap().len() > log.bytes();
    if log.file.is_mapped() {
        ziptier_testing::not_run("unmapped-temporary-folder", "set TMPDIR to one on an ordinary disk");
        return;
    }
    let append = |syncs: bool| {
        log.append(&[7; 1000]).unwrap();
        if syncs {
            log.sync().unwrap();
        }
    };
    (0..300).for_each(|_| append(false));
    assert!(!has_room(), "zeros that nobody asked for");
    log.sync().unwrap();
    for _ in 0..3 {
        (0..=SYNCED_APPENDS).for_each(|_| append(true));
        assert!(has_room(), "no room behind a log that is synced");
        // One record that is not synced is the last one, whatever becomes of it.
        append(false);
        assert!(has_room());
        append(false);
        assert!(!has_room(), "zeros behind records that are not synced");
        // Those that were in the room are durable by now.
        assert_eq!(log.state.lock().synced_bytes, log.bytes() - 1000);
        (0..SYNCED_APPENDS).for_each(|_| append(true));
        assert!(!has_room(), "room at once");
    }
    let bytes = log.bytes();
    log.close().unwrap();
    assert!(fs::read(&path).unwrap() == vec![7; bytes as usize]);
}

/// A killed process leaves the room. RocksDB takes 1 to 6 bytes behind the last record for a torn head, unless they end
/// a whole block.
#[test]
fn a_few_bytes_of_room_end_a_block() {
    for folder in folders() {
        let path = empty(&folder, "000001.log");
        let log = LogFile::begin(&path).unwrap();
        let file_bytes = || fs::metadata(&path).unwrap().len();
        let append = |count: u64| log.append(&vec![7; count as usize]).unwrap();
        (0..300).for_each(|_| append(1000));
        for left in 1..7 {
            log.sync().unwrap();
            for _ in 0..=SYNCED_APPENDS {
                append(1000);
                log.sync().unwrap();
            }
            let room_end = file_bytes();
            append(room_end - log.bytes() - left);
            assert_eq!((file_bytes(), log.bytes()), (room_end, room_end - left));
            assert!(room_end.is_multiple_of(BLOCK_BYTES as u64), "a torn head in a file of {room_end} bytes");
        }
    }
}

/// A log in a file that is used again has room from the beginning.
#[test]
fn records_that_are_not_synced_leave_the_room_of_a_former_log() {
    let folder = tempfile::tempdir().unwrap();
    let (former, path) = (folder.path().join("000001.log"), folder.path().join("000002.log"));
    fs::write(&former, vec![1; 100_000]).unwrap();
    let log = LogFile::reuse(&former, &path).unwrap();
    log.append(&[2; 100]).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 100_000);
    log.append(&[2; 100]).unwrap();
    assert!(log.file.is_mapped() || fs::metadata(&path).unwrap().len() == 200);
}

/// A record as RocksDB writes it: of one block, numbered.
fn record(number: u32, content: &[u8]) -> Vec<u8> {
    let checked = [&[5][..], &number.to_le_bytes(), content].concat();
    let check = crc32c::crc32c(&checked).rotate_right(15).wrapping_add(0xa282_ead8);
    [&check.to_le_bytes()[..], &(content.len() as u16).to_le_bytes(), &checked].concat()
}

/// Every record that was synced is in every image that a power cut can leave, behind none that is missing.
#[test]
fn a_power_cut_leaves_all_that_was_synced() {
    let images: usize = std::env::var("ZIPTIER_IMAGES").map_or(300, |images| images.parse().unwrap());
    for seed in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let disk = RecordingDisk::new();
        let mut random = fastrand::Rng::with_seed(seed);
        // The claim is laid on a real file, of which nothing else is used.
        let path = empty(&folder, "000001.log");
        disk.put(&path, Vec::new());
        let mut synced = Vec::new();
        for number in 1..=3u32 {
            let path = folder.path().join(format!("00000{number}.log"));
            // From here on nobody needs what was in the file.
            synced.push((disk.position(), number, 0));
            let log = match number {
                1 => LogFile::begin_on(&disk, &path).unwrap(),
                _ => {
                    let former = folder.path().join(format!("00000{}.log", number - 1));
                    fs::rename(&former, &path).unwrap();
                    fs::copy(&path, &former).unwrap();
                    LogFile::reuse_on(&disk, &former, &path).unwrap()
                }
            };
            disk.sync_dir(folder.path()).unwrap();
            let mut is_synced_phase = true;
            for index in 0..60u32 {
                is_synced_phase ^= random.u8(..) < 16;
                let count = random.usize(1..400);
                let content: Vec<u8> =
                    index.to_le_bytes().into_iter().chain(iter::repeat_n(7, count)).collect();
                log.append(&record(number, &content)).unwrap();
                if is_synced_phase || random.u8(..) < 16 {
                    log.sync().unwrap();
                    synced.push((disk.position(), number, log.bytes()));
                }
            }
            log.sync().unwrap();
            synced.push((disk.position(), number, log.bytes()));
        }
        for image in disk.images().sample(seed, images) {
            let durable = synced.iter().rev().find(|(position, ..)| *position <= image.position);
            let Some(&(_, number, bytes)) = durable else { continue };
            let path = folder.path().join(format!("00000{number}.log"));
            // A file that was used again since has another name.
            let Some(found) = image.disk.contents(&path) else { continue };
            let read = |at: u64, into: &mut [u8]| {
                let rest = &found[found.len().min(at as usize)..];
                let count = rest.len().min(into.len());
                into[..count].copy_from_slice(&rest[..count]);
                Ok::<_, std::convert::Infallible>(count)
            };
            let Ok(whole) = super::super::Walk::new(number).advance(read);
            assert!(
                whole >= bytes,
                "log {number}: {whole} of {bytes} synced bytes, seed {seed}: {}",
                image.what
            );
        }
    }
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
        assert!(fs::read(&reused).unwrap().len() >= 200_000);
        log.append(&[3; 5]).unwrap();
        log.truncate(200_002).unwrap();
        log.append(&[4; 3]).unwrap();
        log.close().unwrap();
        let found = fs::read(&reused).unwrap();
        assert_eq!((found.len(), &found[199_999..]), (200_005, &[2, 3, 3, 4, 4, 4][..]));
    }
}

/// A disk on which a former log ends as soon as the next one has opened its file as `at`.
struct EndsFormer {
    at: Caching,
    former: Mutex<Option<LogFile>>,
}

impl Disk for EndsFormer {
    fn open(&self, path: &Path, caching: Caching) -> Result<Arc<dyn DiskFile>, DiskError> {
        let file = RealDisk.open(path, caching)?;
        if caching == self.at {
            drop(self.former.lock().take());
        }
        Ok(file)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), DiskError> {
        RealDisk.rename(from, to)
    }

    fn create_dir(&self, _: &Path) -> Result<(), DiskError> {
        unimplemented!()
    }

    fn create(&self, _: &Path, _: Caching) -> Result<Arc<dyn DiskFile>, DiskError> {
        unimplemented!()
    }

    fn remove(&self, _: &Path) -> Result<(), DiskError> {
        unimplemented!()
    }

    fn list(&self, _: &Path) -> Result<Vec<String>, DiskError> {
        unimplemented!()
    }

    fn sync_dir(&self, _: &Path) -> Result<(), DiskError> {
        unimplemented!()
    }

    fn open_dir(&self, _: &Path) -> Result<Box<dyn OpenDir>, DiskError> {
        unimplemented!()
    }

    fn lock_dir(&self, _: &Path) -> Result<Box<dyn DirLock>, DiskError> {
        unimplemented!()
    }
}

/// RocksDB ends a log in one thread while another begins the next one in its file. A cut behind the mapping would kill
/// the process at the next append.
#[test]
fn a_former_log_that_ends_meanwhile_takes_no_room_from_the_next() {
    let folders = || folders().into_iter();
    let cases = [Caching::Cached, Caching::Mapped]
        .into_iter()
        .flat_map(|at| folders().map(move |folder| (folder, at)));
    for (folder, at) in cases {
        let path = empty(&folder, "000001.log");
        let former = LogFile::begin(&path).unwrap();
        former.append(&[1; 100]).unwrap();
        let disk = EndsFormer { at, former: Mutex::new(Some(former)) };
        let reused = folder.path().join("000002.log");
        let log = LogFile::reuse_on(&disk, &path, &reused).unwrap();
        assert!(disk.former.lock().is_none(), "the former log has not ended");
        let room_bytes = log.state.lock().room_bytes;
        assert!(fs::metadata(&reused).unwrap().len() >= room_bytes, "room that the file does not have");
        log.append(&[2; 200_000]).unwrap();
        log.close().unwrap();
        assert!(fs::read(&reused).unwrap() == [2; 200_000]);
    }
}

/// What a cut and an append through the page cache left is not written over with what was there before, at the same
/// length.
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
fn heads_are_stored_last_and_in_their_order() {
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
            (block - 100, 8),
            (block, 8),
            (2 * block, 8),
        ]
    );
    assert_eq!(order(0, 9), [(8, 1), (0, 8)]);
    assert_eq!(order(5, 3), [(5, 3)]);
    assert_eq!(order(block - 2, 5), [(block - 2, 2), (block, 3)]);
    assert_eq!(order(block, 100), [(block + 8, 92), (block, 8)]);
}
