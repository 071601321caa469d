//! Each segment of an SSD needs an open file. Clients took all files but a few, and later segments found none.

use ziptier::{CodecChoice, Options, SsdOptions};
use ziptier_server::{Backend, StoreBackend, raise_open_files};

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

#[test]
fn a_store_without_an_ssd_has_none_to_come() {
    assert_eq!(StoreBackend::open(Options::default()).unwrap().files_to_come(), 0);
}
