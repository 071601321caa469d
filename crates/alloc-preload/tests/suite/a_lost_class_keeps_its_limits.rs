//! The file of the classes may be deleted while processes are in a class: by hand, or by a service manager that removes
//! a user's files in memory. A process that then had no limit would take the room of all others.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use ziptier_alloc::classes::Locked;
use ziptier_alloc::configuration::{ClassName, FilePath};
use ziptier_testing::until;

use crate::support::{far_range, free, in_child_with, malloc, page_of};

const MB: usize = 1 << 20;

fn file() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("classes_that_are_lost")
}

/// Makes the file, with a class of 16 MiB of DRAM.
fn make_class() {
    let path = FilePath::new(file().to_str().unwrap().as_bytes()).unwrap();
    let limits = [Some(16 << 20), None];
    Locked::open_or_create(&path).unwrap().set(&ClassName::new(b"gold").unwrap(), None, limits).unwrap();
}

/// Bytes that lie in DRAM, of 64 MiB in blocks of 16 KiB.
fn bytes_in_dram() -> usize {
    let far = far_range();
    let blocks: Vec<usize> = (0..64 * MB / 16384).map(|_| malloc(16384)).collect();
    let in_dram = blocks.iter().filter(|&block| !far.contains(block)).count() * 16384;
    blocks.into_iter().for_each(free);
    in_dram
}

fn lose_and_find() {
    let page = page_of(std::process::id());
    let tick = || (0..64).for_each(|_| free(malloc(MB)));
    fs::remove_file(file()).unwrap();
    let in_dram = bytes_in_dram();
    assert!(in_dram < 18 * MB, "{in_dram} bytes in DRAM without the class");
    assert_eq!(page.told.is_class_lost.load(Relaxed), 1);
    make_class();
    until("the process has joined again", || {
        tick();
        page.told.is_class_lost.load(Relaxed) == 0
    });
    let in_dram = bytes_in_dram();
    assert!((12 * MB..18 * MB).contains(&in_dram), "{in_dram} bytes in DRAM after joining again");
}

#[test]
fn and_a_process_joins_again() {
    let name = "a_lost_class_keeps_its_limits::and_a_process_joins_again";
    let options = format!("policy=only-dram,class=gold,class-file={}", file().display());
    in_child_with(name, &options, |_| make_class(), lose_and_find);
    let _ = fs::remove_file(file());
}
