//! Rules that the tests of all crates share. The crate is a development dependency only: no product links it.
//!
//! - [`not_run`]: a test names the thing that this machine lacks. CI lists the things that it must have, and such a
//!   test fails there.
//! - [`count`] and [`seed`]: a test does little in CI and much in `make torture`, and a failure names the seed that
//!   repeats it.
//! - [`corpus`]: a test compresses real files.
//! - [`until`]: a test waits for other threads, and a hang ends as a failure that says what it waited for.
//! - [`until_seen`]: the same, and the failure says what was seen last.
//! - [`not_enough`]: a thread that has done its share goes on until others have done theirs.
//! - [`free_address`]: a program that a test starts listens where no other one does.
//!
//! ```
//! // A hundred in CI; `ZIPTIER_FLIPS=5000000` makes it more.
//! let flips = ziptier_testing::count("ZIPTIER_FLIPS", 100);
//! assert_eq!(flips, 100);
//! ```

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The things that CI must have, separated by commas.
pub const REQUIRED_VARIABLE: &str = "ZIPTIER_REQUIRED";

/// A file that collects what was not run: a test runner keeps what passed tests print to itself.
pub const NOT_RUN_VARIABLE: &str = "ZIPTIER_NOT_RUN";

/// The seed of every random test.
pub const SEED_VARIABLE: &str = "ZIPTIER_SEED";

/// The folder of real files, if it is not the one of `make corpus`.
pub const CORPUS_VARIABLE: &str = "ZIPTIER_CORPUS";

/// A wait for another thread that takes longer is a hang. The longest stop of a thread that a busy machine showed was
/// 20 s.
pub const HANG: Duration = Duration::from_secs(120);

/// Whether a thread that has done its share goes on: until `is_enough` of what others do, or for [`HANG`] from the
/// first question on. A busy machine may give the others no processor meanwhile.
pub fn not_enough(mut is_enough: impl FnMut() -> bool) -> impl FnMut() -> bool {
    let mut first_asked = None;
    move || {
        let since: Instant = *first_asked.get_or_insert_with(Instant::now);
        !is_enough() && since.elapsed() < HANG
    }
}

/// Says that a test, or a part of it, cannot run because this machine lacks `thing`, and what to do.
///
/// # Panics
///
/// [`REQUIRED_VARIABLE`] lists `thing`.
pub fn not_run(thing: &str, remedy: &str) {
    let required = std::env::var(REQUIRED_VARIABLE).unwrap_or_default();
    let line = line_of(thing, remedy, &required);
    let line = line.unwrap_or_else(|failure| panic!("{failure}"));
    eprint!("{line}");
    if let Some(path) = std::env::var_os(NOT_RUN_VARIABLE) {
        let written = std::fs::File::options().create(true).append(true).open(path);
        written.and_then(|mut file| file.write_all(line.as_bytes())).expect("the list of what was not run");
    }
}

fn line_of(thing: &str, remedy: &str, required: &str) -> Result<String, String> {
    if required.split(',').any(|name| name == thing) {
        return Err(format!("{REQUIRED_VARIABLE} lists {thing}, which this machine lacks; {remedy}"));
    }
    Ok(format!("NOT RUN: {thing} is missing; {remedy}\n"))
}

/// The folder of real files: [`CORPUS_VARIABLE`] if it is set, or else the folder that `make corpus` fills in Cargo's
/// target folder.
pub fn corpus() -> PathBuf {
    let named = std::env::var_os(CORPUS_VARIABLE).filter(|folder| !folder.is_empty());
    named.map_or_else(|| made_corpus(&std::env::current_exe().unwrap_or_default()), PathBuf::from)
}

/// Every program that Cargo builds lies in its target folder.
fn made_corpus(program: &Path) -> PathBuf {
    let mut beside = program.ancestors().map(|folder| folder.join("corpus/files"));
    beside.find(|folder| folder.is_dir()).unwrap_or_else(|| "target/corpus/files".into())
}

/// How often a test does a thing: `variable` if it is set, or else `in_ci`.
///
/// # Panics
///
/// The variable is no number.
pub fn count<T: FromStr>(variable: &str, in_ci: T) -> T {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, not a number")),
        Err(_) => in_ci,
    }
}

/// The seed of a random test: [`SEED_VARIABLE`] if it is set, or else always the same. A failure shows it, as all that
/// a test prints.
pub fn seed() -> u64 {
    let seed = count(SEED_VARIABLE, 1);
    println!("{SEED_VARIABLE}={seed} repeats this run");
    seed
}

/// Waits until `is_so`.
///
/// # Panics
///
/// It is not so after [`HANG`].
#[track_caller]
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    let seen = wait(HANG, is_so, |is_so| *is_so);
    assert!(seen.is_ok(), "waited {} s in vain until {what}", HANG.as_secs());
}

/// Waits until `is_so` of what `look` returns, and returns that.
///
/// # Panics
///
/// It is not so after [`HANG`]. The message has what was seen last.
#[track_caller]
pub fn until_seen<T: Debug>(what: &str, look: impl FnMut() -> T, is_so: impl FnMut(&T) -> bool) -> T {
    match wait(HANG, look, is_so) {
        Ok(seen) => seen,
        Err(seen) => panic!("waited {} s in vain until {what}, and saw {seen:?}", HANG.as_secs()),
    }
}

/// Looks until it is so, at most for some time. An error has what was seen after that time: the thread may have stood
/// still before its last look.
fn wait<T>(most: Duration, mut look: impl FnMut() -> T, mut is_so: impl FnMut(&T) -> bool) -> Result<T, T> {
    let start = Instant::now();
    loop {
        let is_late = start.elapsed() >= most;
        let seen = look();
        if is_so(&seen) {
            return Ok(seen);
        }
        if is_late {
            return Err(seen);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An address of this machine at which a program may listen later. Each process of tests has an IP address of its own,
/// so nobody else takes the port meanwhile.
///
/// # Panics
///
/// The system does not take all of 127.0.0.0/8 for this machine, as Linux does.
pub fn free_address() -> SocketAddr {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    // Linux has at most 22 bits for the number of a process.
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let own = Ipv4Addr::new(127, 64 | high, middle, low);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let free = TcpListener::bind((own, 0)).and_then(|listener| listener.local_addr());
        let free = free.expect("a free port at a loopback address");
        if given.insert(free.port()) {
            return free;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_that_is_required_fails_its_test() {
        assert!(line_of("corpus", "set it", "rocksdb,corpus").is_err_and(|said| said.contains("set it")));
        let line = line_of("corpus", "set it", "rocksdb,corpora").ok();
        assert_eq!(line.as_deref(), Some("NOT RUN: corpus is missing; set it\n"));
    }

    #[test]
    fn the_made_corpus_lies_beside_what_cargo_built() {
        let target = std::env::temp_dir().join(format!("ziptier-testing-{}", std::process::id()));
        let program = target.join("debug/deps/suite");
        assert_eq!(made_corpus(&program), Path::new("target/corpus/files"));
        let files = target.join("corpus/files");
        std::fs::create_dir_all(&files).unwrap();
        let found = made_corpus(&program);
        std::fs::remove_dir_all(&target).unwrap();
        assert_eq!(found, files);
    }

    #[test]
    fn counts_come_from_the_environment() {
        assert_eq!(count("ZIPTIER_NO_SUCH_COUNT", 7), 7);
        // Cargo sets it for every test.
        assert!(count::<u64>("CARGO_PKG_VERSION_MINOR", 1_000_000) < 1_000_000);
    }

    #[test]
    fn a_wait_ends_when_it_is_so() {
        let mut tries = 0;
        until("it was tried three times", || {
            tries += 1;
            tries == 3
        });
        assert_eq!(tries, 3);
    }

    #[test]
    fn a_wait_looks_once_more_when_its_time_is_over() {
        let mut number = 0;
        let mut look = || {
            number += 1;
            number
        };
        assert_eq!(until_seen("it is two", &mut look, |number| *number == 2), 2);
        assert_eq!(wait(Duration::ZERO, &mut look, |number| *number == 3), Ok(3));
        assert_eq!(wait(Duration::ZERO, &mut look, |number| *number == 5), Err(4));
    }

    #[test]
    fn a_free_address_is_given_once_and_can_be_had() {
        let addresses = [(); 3].map(|()| free_address());
        let listeners = addresses.map(|address| TcpListener::bind(address).unwrap());
        assert!(addresses.iter().all(|address| address.ip().is_loopback()));
        assert_eq!(listeners.map(|listener| listener.local_addr().unwrap()), addresses);
    }
}
