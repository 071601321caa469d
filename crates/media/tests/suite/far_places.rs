//! Far memory promises room that it does not have, or shows itself as another kind. Then the process dies of SIGBUS, or
//! overwrites another program's file. Here every place is either opened and named by its true kind, or refused with one
//! sentence and left unchanged.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ziptier_media::far::{Far, FarError, FarKind, FarOptions, FarPlace};

const MIB: u64 = 1 << 20;

fn file(path: impl AsRef<Path>, mib: u64) -> FarOptions {
    FarOptions { place: FarPlace::File(path.as_ref().into()), capacity_bytes: mib * MIB, require_dax: false }
}

fn node(node: u32) -> FarOptions {
    FarOptions { place: FarPlace::Node(node), capacity_bytes: 8 * MIB, require_dax: false }
}

/// The one sentence of a refusal.
fn refusal(options: &FarOptions) -> String {
    let sentence = Far::open(options).unwrap_err().to_string();
    assert!(!sentence.contains(['\n', '\r']) && sentence.len() < 250, "{sentence}");
    sentence
}

#[test]
fn a_file_keeps_its_blocks_and_grows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("far");
    let (far, reopened) = Far::open(&file(&path, 64)).unwrap();
    assert!(reopened.blocks.is_empty() && !reopened.sealed);
    assert!(matches!(far.kind(), FarKind::File | FarKind::Tmpfs | FarKind::Dax));
    let kept: Vec<Vec<u8>> = (0..100u8).map(|n| vec![n; usize::from(n) * 30]).collect();
    let blocks: Vec<_> = kept.iter().map(|bytes| far.put(bytes).unwrap()).collect();
    assert!(blocks.iter().zip(&kept).all(|(block, bytes)| far.get(block) == bytes));
    far.seal().unwrap();
    far.seal().unwrap();
    drop((far, blocks));

    let (far, reopened) = Far::open(&file(&path, 80)).unwrap();
    assert!(reopened.sealed && reopened.unreadable.is_empty());
    let mut found: Vec<Vec<u8>> = reopened.blocks.iter().map(|block| far.get(block).to_vec()).collect();
    found.sort_unstable();
    assert_eq!(found, kept);
    assert_eq!(far.usage().capacity_bytes, 80 * MIB);
    let large = far.put(&vec![9; 9 << 20]).unwrap();
    far.sync().unwrap();
    let offset = large.offset();
    drop((far, large));

    let (far, reopened) = Far::open(&file(&path, 80)).unwrap();
    assert!(!reopened.sealed, "a change takes the seal off");
    let large = reopened.blocks.iter().find(|block| block.offset() == offset).unwrap();
    assert_eq!(far.get(large), vec![9; 9 << 20]);
    drop((far, reopened));
    let sentence = refusal(&file(&path, 8));
    assert!(sentence.contains("has 83886080 bytes and 8388608 are asked for"), "{sentence}");
}

/// The blocks of an earlier process are forgotten, and a walk never takes one of them for a newer block.
#[test]
fn a_medium_that_is_opened_empty_forgets_its_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("far");
    let (far, _) = Far::open(&file(&path, 8)).unwrap();
    for len in [100, 5000, 600_000] {
        let _ = far.put(&vec![1; len]).unwrap();
    }
    far.seal().unwrap();
    drop(far);

    let far = Far::open_empty(&file(&path, 8)).unwrap();
    assert_eq!(far.usage().used_bytes, 0);
    let kept = far.put(&[2; 100]).unwrap();
    assert_eq!(far.get(&kept), [2; 100]);
    far.verify(&kept).unwrap();
    far.sync().unwrap();
    drop((far, kept));

    let (far, reopened) = Far::open(&file(&path, 8)).unwrap();
    assert!(!reopened.sealed);
    let found: Vec<&[u8]> = reopened.blocks.iter().map(|block| far.get(block)).collect();
    assert_eq!(found, [[2; 100]]);
}

#[test]
fn every_byte_is_allocated_before_it_is_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("far");
    drop(Far::open(&file(&path, 8)).unwrap());
    assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 8 * MIB);

    // A copy with holes is filled up again.
    let holes = folder.path().join("holes");
    fs::write(&holes, &fs::read(&path).unwrap()[..8192]).unwrap();
    fs::File::options().write(true).open(&holes).unwrap().set_len(8 * MIB).unwrap();
    drop(Far::open(&file(&holes, 8)).unwrap());
    assert!(fs::metadata(&holes).unwrap().blocks() * 512 >= 8 * MIB);
}

#[test]
fn tmpfs_is_named_as_what_it_is() {
    let shm = Path::new("/dev/shm");
    let Ok(folder) = tempfile::tempdir_in(shm) else {
        return ziptier_testing::not_run("tmpfs", "mount one at /dev/shm");
    };
    let (far, _) = Far::open(&file(folder.path().join("far"), 4)).unwrap();
    if far.kind() == FarKind::Tmpfs {
        assert_eq!(far.kind().to_string(), "a file on tmpfs (ordinary memory, no DAX)");
        let block = far.put(b"bytes").unwrap();
        assert_eq!(far.get(&block), b"bytes");
    }
}

#[test]
fn dax_is_demanded_or_refused_never_pretended() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("far");
    let dax = Far::open(&file(&path, 4)).unwrap().0.kind() == FarKind::Dax;
    fs::remove_file(&path).unwrap();
    let demanded = FarOptions { require_dax: true, ..file(&path, 4) };
    if dax {
        Far::open(&demanded).unwrap();
    } else {
        let sentence = refusal(&demanded);
        assert!(sentence.starts_with("DAX was demanded, and ") && sentence.contains("no DAX"), "{sentence}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    }
    let sentence = refusal(&FarOptions { require_dax: true, ..node(0) });
    assert!(sentence.starts_with("DAX was demanded, and node 0 is memory of a NUMA node"), "{sentence}");
}

#[test]
fn what_is_no_far_file_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let refused = |contents: &[u8], words: &str| {
        fs::write(&path, contents).unwrap();
        let sentence = refusal(&file(&path, 4));
        assert!(sentence.contains(words), "{sentence}");
        assert_eq!(fs::read(&path).unwrap(), contents);
    };
    refused(b"a letter", "is not a far file of ziptier");
    refused(&[0; 100_000], "is not a far file of ziptier");
    let whole = folder.path().join("whole");
    drop(Far::open(&file(&whole, 4)).unwrap());
    let bytes = fs::read(&whole).unwrap();
    refused(&bytes[..3 << 20], "has 3145728 bytes and should have 4194304; its end was cut off");
    let mut damaged = bytes.clone();
    damaged[20] ^= 1;
    damaged[4096 + 20] ^= 1;
    refused(&damaged, "is not a far file of ziptier");
    damaged[20] ^= 1;
    fs::write(&path, &damaged).unwrap();
    Far::open(&file(&path, 4)).unwrap();

    let sentence = refusal(&file(folder.path(), 4));
    assert!(sentence.ends_with("is a folder; give the path of a file"), "{sentence}");
    let sentence = refusal(&file("/dev/null", 4));
    assert!(sentence.ends_with("is a device, a pipe or a socket; give the path of a file"), "{sentence}");
    let sentence = refusal(&file(folder.path().join("no/such"), 4));
    assert!(sentence.starts_with("cannot open the folder of far file"), "{sentence}");
    // Nobody may make files here, root neither.
    let sentence = refusal(&file("/sys/kernel/far", 4));
    assert!(sentence.starts_with("cannot create far file /sys/kernel/far: "), "{sentence}");
    let sentence = refusal(&file(folder.path().join("small"), 3));
    assert_eq!(sentence, "far memory of 3145728 bytes was asked for; give at least 4194304");
}

#[test]
fn a_disk_without_room_is_refused_before_it_is_filled() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("far");
    let sentence = refusal(&file(&path, 1 << 34));
    assert!(
        sentence.contains("is to have 18014398509481984 more bytes, and its file system has"),
        "{sentence}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    drop(Far::open(&file(&path, 4)).unwrap());
    refusal(&file(&path, 1 << 34));
    assert_eq!(fs::metadata(&path).unwrap().len(), 4 * MIB);
}

#[test]
fn one_process_has_a_file_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("far");
    let (far, _) = Far::open(&file(&path, 4)).unwrap();
    assert!(matches!(Far::open(&file(&path, 4)), Err(FarError::InUse { .. })));
    assert!(refusal(&file(&path, 4)).contains("is open already"));
    drop(far);
    Far::open(&file(&path, 4)).unwrap();
}

#[test]
fn a_node_is_used_if_it_is_there() {
    let sentence = refusal(&node(999));
    assert!(sentence.starts_with("there is no NUMA node 999; this machine has n"), "{sentence}");
    if !Path::new("/sys/devices/system/node/node0").exists() {
        return;
    }
    let sentence = refusal(&FarOptions { capacity_bytes: 1 << 46, ..node(0) });
    assert!(sentence.contains("free and 70368744177664 are asked for; ask for less"), "{sentence}");
    match Far::open(&node(0)) {
        Ok((far, reopened)) => {
            assert!(matches!(far.kind(), FarKind::Node { node: 0, .. }) && reopened.blocks.is_empty());
            assert_eq!(far.persistence().to_string(), "memory only: nothing survives the process");
            let blocks: Vec<_> = (0..50u8).map(|n| far.put(&vec![n; 10_000]).unwrap()).collect();
            assert!(blocks.iter().zip(0..).all(|(block, n)| far.get(block) == [n; 10_000]));
            blocks.into_iter().for_each(|block| far.free(block));
            assert_eq!(far.usage().used_bytes, 0);
            far.seal().unwrap();
        }
        // Some containers forbid mbind.
        Err(error) => assert!(matches!(error, FarError::Node { action: "bind", .. }), "{error}"),
    }
}
