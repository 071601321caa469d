//! Tests with whole files of a newer version: a start names the version, and a salvage leaves nothing of them out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ziptier_codec::checksum::crc32c;
use ziptier_media::disk::Disk;
use ziptier_media::log::LogError;
use ziptier_media::segments::{Purpose, SegmentError, Segments};
use ziptier_media::testing::RecordingDisk;
use ziptier_tree::codec_options::CodecChoice;

use super::folder::GENERATIONS_DIR;
use super::manifest::{COPY_NAME, Entries, Manifest, NAME};
use super::{DiskHandle, DurableOptions, dump, restore};
use crate::image_files::{extent_of, place_of};
use crate::options::Options;
use crate::{Error, Store};

const DIR: &str = "/data";

fn options(disk: &RecordingDisk) -> DurableOptions {
    let mut options = DurableOptions::new(DIR);
    options.disk = DiskHandle(Arc::new(disk.clone()));
    options.log.segment_bytes = 1 << 20;
    options.segments.segment_bytes = 1 << 20;
    options
}

fn open(disk: &RecordingDisk, salvage: bool) -> Result<Store, Error> {
    let durable = Some(DurableOptions { salvage, ..options(disk) });
    Store::open(Options { codec: CodecChoice::Lz4, background_threads: 0, durable, ..Options::default() })
}

/// The folder of a store with images and a generation.
fn folder() -> RecordingDisk {
    let disk = RecordingDisk::new();
    let store = open(&disk, false).expect("it is new");
    (0..100_u32).for_each(|n| store.put(&n.to_be_bytes(), &[7; 100]).expect("no limit is set"));
    store.settle().expect("the disk works");
    store.put(b"key", b"landed").expect("no limit is set");
    store.checkpoint().expect("the disk works");
    drop(store);
    disk
}

/// Changes a file.
fn edit(disk: &RecordingDisk, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.contents(path).expect("it is there");
    change(&mut bytes);
    disk.put(path, bytes);
}

fn generation(copy: u32) -> PathBuf {
    Path::new(DIR).join(GENERATIONS_DIR).join(format!("generation-00000000-{copy}"))
}

/// The end of the error for a whole file that [`make_newer`] changed.
const NEWER_GENERATION: &str = "it has version 3, and this program reads versions 1 to 2";

/// Gives a file that ends with its checksum the next version.
fn make_newer(file: &mut [u8]) {
    file[8] += 1;
    let (rest, sum) = file.split_last_chunk_mut::<4>().expect("it ends with a checksum");
    *sum = crc32c(rest).to_le_bytes();
}

fn assert_names(error: &Error, sentence: &str) {
    let told = error.to_string();
    assert!(told.ends_with(sentence) && !told.contains("salvage"), "{told}");
}

/// Neither a start nor a salvage takes the folder, and no file of it changes.
fn assert_refused(disk: &RecordingDisk, sentence: &str) {
    let contents = || -> Vec<_> {
        let files = disk.paths().into_iter();
        files.map(|path| disk.contents(&path)).collect()
    };
    let before = contents();
    for salvage in [false, true] {
        let error = open(disk, salvage).expect_err("it is refused");
        assert!(
            matches!(
                error,
                Error::FileForeign { .. }
                    | Error::Log(LogError::Foreign { .. })
                    | Error::Segments(SegmentError::Foreign { .. })
            ),
            "{error:?}"
        );
        assert_names(&error, sentence);
        assert!(contents() == before, "a refused folder has changed");
    }
}

#[test]
fn a_manifest_of_a_newer_version_is_refused() {
    let disk = folder();
    for name in [NAME, COPY_NAME] {
        edit(&disk, &Path::new(DIR).join(name), |bytes| bytes[8] = 4);
    }
    let sentence = "it has version 4, and this program reads versions 2 to 3";
    assert_refused(&disk, sentence);
    assert_names(&dump(&options(&disk), &mut Vec::new()).unwrap_err(), sentence);
}

#[test]
fn a_generation_of_a_newer_version_is_refused_and_a_damaged_number_is_mended() {
    let disk = folder();
    let damaged = disk.copy();
    for copy in [1, 2] {
        edit(&disk, &generation(copy), |bytes| make_newer(bytes));
    }
    assert_refused(&disk, NEWER_GENERATION);
    let whole = damaged.contents(&generation(2));
    edit(&damaged, &generation(1), |bytes| bytes[8] = 3);
    drop(open(&damaged, false).unwrap());
    assert!(damaged.contents(&generation(1)) == whole);
    for copy in [1, 2] {
        edit(&damaged, &generation(copy), |bytes| bytes[8] = 3);
    }
    assert!(matches!(open(&damaged, false).err(), Some(Error::FileDamaged { .. })));
}

/// The damage of the other file would have a salvage leave the generation out.
#[test]
fn a_generation_of_a_newer_version_is_refused_beside_a_damaged_file() {
    for [damaged, newer] in [[1, 2], [2, 1]] {
        let disk = folder();
        edit(&disk, &generation(damaged), |bytes| bytes[24] ^= 1);
        edit(&disk, &generation(newer), |bytes| make_newer(bytes));
        assert_refused(&disk, NEWER_GENERATION);
    }
}

#[test]
fn an_image_of_a_newer_version_is_refused() {
    let disk = folder();
    let (shared, dir): (Arc<dyn Disk>, _) = (Arc::new(disk.clone()), Path::new(DIR));
    let manifest = Manifest::load(&*shared, dir).unwrap().unwrap();
    let segments = Segments::open(shared.clone(), &dir.join("segments"), options(&disk).segments).unwrap();
    let mut entries = Entries::default();
    for entry in manifest.entries() {
        let mut entry = entry.unwrap();
        let mut image = segments.read(place_of(entry.image.unwrap())).unwrap();
        image[0] = 3;
        entry.image = Some(extent_of(segments.append(&image, Purpose::New).unwrap()));
        entries.push(&entry);
    }
    segments.close().unwrap();
    manifest.head.store(&entries, &*shared, dir).unwrap();
    let sentence = "an image has version 3, and this program reads versions 1 to 2";
    assert_refused(&disk, sentence);
    assert_names(&dump(&options(&disk), &mut Vec::new()).unwrap_err(), sentence);
}

/// A salvage writes a damaged one anew.
#[test]
fn a_folder_of_segments_that_names_its_store_in_a_newer_version_is_refused() {
    let disk = folder();
    edit(&disk, &Path::new(DIR).join("segments/STORE"), |bytes| make_newer(bytes));
    assert_refused(&disk, "it has version 2, and this program reads version 1");
}

/// A salvage would set the log aside, and the next start would remove it.
#[test]
fn a_file_of_segments_or_of_the_log_of_a_newer_version_is_refused() {
    for (files, sentence) in [
        ("/segments/segment-", "it has version 2, this program reads version 1"),
        ("/log/log-", "it has version 3, this program reads versions 1 to 2"),
    ] {
        let disk = folder();
        let is_one = |path: &PathBuf| path.to_string_lossy().contains(files);
        let path = disk.paths().into_iter().find(is_one).expect("a store has both");
        edit(&disk, &path, |bytes| {
            bytes[8] += 1;
            let sum = crc32c(&bytes[..4092]).to_le_bytes();
            bytes[4092..4096].copy_from_slice(&sum);
        });
        assert_refused(&disk, sentence);
    }
}

#[test]
fn a_dump_of_a_newer_version_is_refused() {
    let (disk, mut stream) = (folder(), Vec::new());
    dump(&options(&disk), &mut stream).unwrap();
    stream[8] = 4;
    let error = restore(&options(&RecordingDisk::new()), &mut &*stream).unwrap_err();
    assert_names(&error, "it has version 4, and this program reads versions 1 to 3");
}
