//! Each segment of an SSD, or of a folder, needs an open file. Clients took all files but a few, and later segments
//! found none.

use ziptier::{CodecChoice, DurableOptions, Options, SsdOptions};
use ziptier_server::{Backend, Save, Saving, StoreBackend, raise_open_files};

/// A store whose SSD has so many bytes.
fn with_ssd(folder: &tempfile::TempDir, limit_bytes: u64) -> StoreBackend {
    let options = Options {
        ssd: Some(SsdOptions { path: Some(folder.path().to_owned()), limit_bytes }),
        codec: CodecChoice::None,
        background_threads: 0,
        ..Options::default()
    };
    StoreBackend::open(options).expect("a store opens")
}

#[test]
fn files_of_segments_to_come_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let backend = with_ssd(&folder, 64 << 20);
    assert_eq!(backend.files_to_come(), 16);
    (0..1000u32).for_each(|number| backend.put(&number.to_be_bytes(), &[7; 200], None).unwrap());
    backend.store().send_to_ssd(|| true).unwrap();
    let ssd = backend.store().ssd().unwrap();
    let segments = ssd.allocated_bytes / ssd.segment_bytes;
    assert!(segments > 0);
    // Those that are there are open.
    assert_eq!(backend.files_to_come(), 16 - segments);
}

#[test]
fn segments_to_come_leave_files_to_clients() {
    let folder = tempfile::tempdir().unwrap();
    let backend = with_ssd(&folder, 1 << 62);
    assert_eq!(backend.files_to_come(), (1u64 << 36).min(raise_open_files() / 2));
}

const SEGMENT_BYTES: u64 = 1 << 20;

/// A store in a folder without an SSD.
fn in_folder(folder: &tempfile::TempDir, memory_limit_bytes: Option<u64>) -> StoreBackend {
    let mut durable = DurableOptions::new(folder.path());
    (durable.log.segment_bytes, durable.segments.segment_bytes) = (1 << 20, SEGMENT_BYTES);
    let options = Options {
        durable: Some(durable),
        memory_limit_bytes,
        codec: CodecChoice::None,
        background_threads: 0,
        ..Options::default()
    };
    StoreBackend::open(options).expect("a store opens")
}

/// They hold up to three times as much as memory.
#[test]
fn files_of_a_folder_to_come_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let backend = in_folder(&folder, Some(4 * SEGMENT_BYTES));
    let segments = || backend.store().checkpoint_stats().unwrap().segment_allocated_bytes / SEGMENT_BYTES;
    assert_eq!((backend.files_to_come(), segments()), (12, 0));
    (0..1000u32).for_each(|number| backend.put(&number.to_be_bytes(), &[7; 200], None).unwrap());
    assert_eq!(backend.save(Save::Make).unwrap(), Saving::Done);
    assert!(segments() > 0);
    assert_eq!(backend.files_to_come(), 12 - segments());
}

#[test]
fn a_folder_without_a_limit_leaves_files_to_clients() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(in_folder(&folder, None).files_to_come(), raise_open_files() / 2);
}

#[test]
fn a_store_in_memory_alone_has_none_to_come() {
    assert_eq!(StoreBackend::open(Options::default()).unwrap().files_to_come(), 0);
}
