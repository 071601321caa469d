//! The processes of a class have one budget. If each of them had all of it, a tenant with two processes would take
//! twice the memory that the tenant has bought.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use ziptier_alloc::classes::Locked;
use ziptier_alloc::configuration::{ClassName, FilePath};

use crate::support::{far_range, in_child_with, malloc};

const MB: usize = 1 << 20;
const NAME: &str = "processes_share_a_budget::of_a_class";

/// Says to this program that it is the second process.
const SECOND: &str = "ZIPTIER_ALLOC_TEST_SECOND";

fn file() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("classes_that_share")
}

/// Makes the file, with a class of 32 MiB of DRAM.
fn make_class() {
    let path = FilePath::new(file().to_str().unwrap().as_bytes()).unwrap();
    let limits = [Some(32 << 20), None];
    Locked::open_or_create(&path).unwrap().set(&ClassName::new(b"gold").unwrap(), None, limits).unwrap();
}

/// Bytes that lie in DRAM, of so many in blocks of 16 KiB, which nobody frees.
fn bytes_in_dram(bytes: usize) -> usize {
    let far = far_range();
    (0..bytes / 16384).filter(|_| !far.contains(&malloc(16384))).count() * 16384
}

fn share() {
    if env::var_os(SECOND).is_some() {
        return println!("\nin DRAM: {}", bytes_in_dram(64 * MB));
    }
    let own = bytes_in_dram(16 * MB);
    let mut second = Command::new(env::current_exe().unwrap());
    second.args([NAME, "--exact", "--nocapture", "--test-threads=1"]);
    let output = second.env(SECOND, "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let others = said.lines().find_map(|line| line.strip_prefix("in DRAM: ")).unwrap();
    let all = own + others.parse::<usize>().unwrap();
    assert!((24 * MB..35 * MB).contains(&all), "{own} and {others} bytes in DRAM");
}

#[test]
fn of_a_class() {
    let options = format!("policy=only-dram,class=gold,class-file={}", file().display());
    in_child_with(NAME, &options, |_| make_class(), share);
    let _ = fs::remove_file(file());
}
