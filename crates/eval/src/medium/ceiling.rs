//! The most that a raw medium does: reads and writes of whole blocks without any data access function, as fio does
//! them with direct I/O.
//!
//! 1. A file that is not there is made, and every block of it is written, because a device need not read what nobody
//!    wrote. Measurements that follow each other share a file that was made before ([`filled_file`]).
//! 2. Each thread reads and writes blocks, one after the other: the queue is as deep as there are threads.
//! 3. The system's count of the bytes that each of these threads moved to and from devices tells whether the page cache
//!    took part.
//!
//! A workload is limited by its medium if it gets near the ceiling; `mbwu` judges that.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::medium::{Access, Aligned, Medium};
use crate::workload::mix::{Mix, Operation, WHOLE};

/// The most operations under way at a time.
pub(crate) const THREADS_MAX: u64 = 1024;
/// Bytes of one write while a new medium is filled.
const FILLED_BYTES: usize = 1 << 20;

/// Which block comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Any.
    Random,
    /// The one behind the last; each thread has a part of the medium.
    Sequential,
}

/// How a raw medium is measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CeilingSpec {
    /// A file or a block device. A file that is not there is made, and removed in the end.
    pub path: PathBuf,
    /// Bytes of a new file; of another medium, all that there are.
    pub file_bytes: u64,
    /// Shares of reads and writes. A medium has no deletions and no scans.
    pub mix: Mix,
    /// Which block comes next.
    pub order: Order,
    /// Bytes of an operation: a multiple of the device's block.
    pub block_bytes: usize,
    /// Operations under way at a time.
    pub threads: u64,
    /// Length of the window.
    pub seconds: f64,
    /// Whether writes may go over data that are there.
    pub overwrites: bool,
}

/// The most that a medium did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ceiling {
    /// Blocks read and written per second.
    pub operations_per_sec: f64,
    /// Their bytes per second.
    pub bytes_per_sec: f64,
    /// Bytes that went to and from devices for each operation, as the system counts them for the threads that operate;
    /// `None` where the system does not tell. Zero of a medium that is no device, such as memory.
    pub device_bytes_per_operation: Option<f64>,
    /// Whether the page cache was left out. Otherwise the ceiling is that of memory.
    pub is_direct: bool,
}

impl Ceiling {
    /// What several media do at the same time.
    pub(crate) fn together(all: &[Ceiling]) -> Self {
        let sum = |of: fn(&Ceiling) -> f64| all.iter().map(of).sum::<f64>();
        let operations_per_sec = sum(|one| one.operations_per_sec);
        let device_bytes: Option<f64> =
            all.iter().map(|one| Some(one.device_bytes_per_operation? * one.operations_per_sec)).sum();
        Ceiling {
            operations_per_sec,
            bytes_per_sec: sum(|one| one.bytes_per_sec),
            device_bytes_per_operation: device_bytes.map(|bytes| bytes / operations_per_sec.max(1e-9)),
            is_direct: all.iter().all(|one| one.is_direct),
        }
    }
}

/// Measures the most that a medium does.
///
/// # Errors
///
/// [`Error::Invalid`] names what the medium does not take, or that it has data and `overwrites` is not set.
/// [`Error::Target`] says that it did not read or write.
pub fn raw_ceiling(spec: &CeilingSpec) -> Result<Ceiling, Error> {
    // A thread that begins late does one.
    ceiling_of(spec, 1)
}

/// Measures until the window is over and each thread has done so many operations at least.
fn ceiling_of(spec: &CeilingSpec, operations_min: u64) -> Result<Ceiling, Error> {
    let medium = opened(spec)?;
    let failed = |reason| Error::Target {
        target: spec.path.display().to_string(),
        action: "did not read and write",
        reason,
    };
    if medium.is_new() {
        fill(&medium).map_err(failed)?;
    }
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    let done: Result<Vec<Done>, String> = thread::scope(|scope| {
        let work = |thread| {
            let (medium, stop) = (&medium, &stop);
            scope.spawn(move || operate(spec, medium, thread, operations_min, stop))
        };
        let threads: Vec<_> = (0..spec.threads).map(work).collect();
        while start.elapsed().as_secs_f64() < spec.seconds && !threads.iter().any(|one| one.is_finished()) {
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        let joined = threads.into_iter().map(|one| one.join());
        joined.map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let seconds = start.elapsed().as_secs_f64();
    let done = done.map_err(failed)?;
    let operations: u64 = done.iter().map(|one| one.operations).sum();
    let moved_bytes: Option<u64> = done.iter().map(|one| one.device_bytes).sum();
    let operations_per_sec = operations as f64 / seconds;
    Ok(Ceiling {
        operations_per_sec,
        bytes_per_sec: operations_per_sec * spec.block_bytes as f64,
        device_bytes_per_operation: moved_bytes.map(|bytes| bytes as f64 / operations.max(1) as f64),
        is_direct: medium.is_direct(),
    })
}

/// Makes a file with bytes in every block, for measurements that follow each other. It is removed with the medium.
///
/// # Errors
///
/// The file is there already, or cannot be made or written.
pub(crate) fn filled_file(path: &Path, bytes: u64) -> Result<Medium, Error> {
    let medium = Medium::open(path, bytes, Access::Write).map_err(refused(path))?;
    fill(&medium).map_err(refused(path))?;
    Ok(medium)
}

fn refused(path: &Path) -> impl Fn(String) -> Error {
    move |sentence: String| Error::invalid("medium", path.display().to_string(), sentence)
}

fn opened(spec: &CeilingSpec) -> Result<Medium, Error> {
    let refused = refused(&spec.path);
    if !spec.mix.operations().all(|one| matches!(one, Operation::Read | Operation::Write)) {
        return Err(refused(format!("it has reads and writes alone, and the mix is {}", spec.mix)));
    }
    if !(1..=THREADS_MAX).contains(&spec.threads) || !(0.01..=86_400.0).contains(&spec.seconds) {
        return Err(refused(format!("give 1 to {THREADS_MAX} threads and up to 86400 seconds")));
    }
    let writes = spec.mix.operations().any(|one| one == Operation::Write);
    let is_empty = fs::metadata(&spec.path).map_or(true, |found| found.is_file() && found.len() == 0);
    let (access, bytes) = match spec.overwrites {
        _ if !writes && !is_empty => (Access::Read, 0),
        false => (Access::Write, spec.file_bytes),
        // What is there is measured, and not made longer.
        true => (Access::Overwrite, if is_empty { spec.file_bytes } else { 0 }),
    };
    let medium = Medium::open(&spec.path, bytes, access).map_err(&refused)?;
    let block = medium.block_bytes();
    if spec.block_bytes == 0 || !spec.block_bytes.is_multiple_of(block) || spec.block_bytes > FILLED_BYTES {
        return Err(refused(format!("its blocks are multiples of {block} bytes up to {FILLED_BYTES}")));
    }
    match medium.bytes() / spec.block_bytes as u64 {
        blocks if blocks < spec.threads => {
            Err(refused(format!("it has {blocks} blocks, fewer than threads")))
        }
        _ => Ok(medium),
    }
}

/// Writes random bytes everywhere, which no device can leave out.
fn fill(medium: &Medium) -> Result<(), String> {
    let mut piece = Aligned::new(FILLED_BYTES);
    SmallRng::seed_from_u64(1).fill_bytes(&mut piece);
    for at in (0..medium.bytes()).step_by(FILLED_BYTES) {
        let length = (medium.bytes() - at).min(FILLED_BYTES as u64) as usize;
        medium.write(at, &piece[..length - length % medium.block_bytes()])?;
    }
    medium.sync()
}

/// The work that one thread has done.
struct Done {
    operations: u64,
    /// Bytes that it has moved to and from devices, if the system tells.
    device_bytes: Option<u64>,
}

/// One thread's blocks, until it is told to stop and has done `operations_min`.
fn operate(
    spec: &CeilingSpec,
    medium: &Medium,
    thread: u64,
    operations_min: u64,
    stop: &AtomicBool,
) -> Result<Done, String> {
    let mut random = SmallRng::seed_from_u64(thread);
    let mut block = Aligned::new(spec.block_bytes);
    random.fill_bytes(&mut block);
    let blocks = medium.bytes() / spec.block_bytes as u64;
    let part = blocks / spec.threads;
    let before = device_bytes();
    let (mut operations, mut next) = (0, 0);
    loop {
        let place = match spec.order {
            Order::Random => random.next_u64() % blocks,
            Order::Sequential => thread * part + next % part,
        };
        next += 1;
        let at = place * spec.block_bytes as u64;
        match spec.mix.operation(random.next_u64() % u64::from(WHOLE)) {
            Operation::Read => medium.read(at, &mut block)?,
            _ => medium.write(at, &block)?,
        }
        operations += 1;
        if operations >= operations_min && stop.load(Ordering::Relaxed) {
            let moved = device_bytes().zip(before);
            return Ok(Done { operations, device_bytes: moved.map(|(now, before)| now - before) });
        }
    }
}

/// Bytes that this thread has read from and written to devices.
fn device_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/io").ok()?;
    let number =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    Some(number("read_bytes:")? + number("write_bytes:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(path: PathBuf, read: u32) -> CeilingSpec {
        CeilingSpec {
            path,
            file_bytes: 4 << 20,
            mix: Mix::percent(read, 100 - read),
            order: Order::Random,
            block_bytes: 4096,
            threads: 2,
            seconds: 0.05,
            overwrites: false,
        }
    }

    /// Every block goes to the device and nothing else, so that the ceiling is that of the medium and not of memory.
    /// The pages of the program that the system reads for the threads are few beside so many operations.
    #[test]
    fn every_operation_moves_its_block() {
        let folder = tempfile::tempdir().unwrap();
        for (read, order) in [(100, Order::Random), (0, Order::Sequential), (50, Order::Random)] {
            let spec = CeilingSpec { order, block_bytes: 8192, ..spec(folder.path().join("medium"), read) };
            let ceiling = ceiling_of(&spec, 500).unwrap();
            assert!(ceiling.operations_per_sec > 0.0, "{ceiling:?}");
            assert_eq!(ceiling.bytes_per_sec, ceiling.operations_per_sec * 8192.0);
            assert!(!spec.path.exists());
            let moved = ceiling.device_bytes_per_operation.unwrap();
            // A folder in memory has no device.
            assert!(!ceiling.is_direct || moved == 0.0 || (8192.0..12_000.0).contains(&moved), "{ceiling:?}");
        }
    }

    #[test]
    fn data_are_read_and_never_written_over_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("accounts");
        let data = vec![9; 1 << 16];
        fs::write(&path, &data).unwrap();
        assert!(raw_ceiling(&spec(path.clone(), 100)).unwrap().operations_per_sec > 0.0);
        let told = raw_ceiling(&spec(path.clone(), 99)).unwrap_err().to_string();
        assert!(told.contains("has 65536 bytes, which a benchmark would write over"), "{told}");
        assert_eq!(fs::read(&path).unwrap(), data);
        raw_ceiling(&CeilingSpec { overwrites: true, ..spec(path.clone(), 0) }).unwrap();
        let now = fs::read(&path).unwrap();
        assert!(now.len() == data.len() && now != data);
    }

    #[test]
    fn what_no_medium_has_is_refused() {
        let told = |change: &dyn Fn(&mut CeilingSpec)| {
            let mut spec = spec("/nowhere/medium".into(), 100);
            change(&mut spec);
            raw_ceiling(&spec).unwrap_err().to_string()
        };
        assert!(told(&|spec| spec.mix.scan = 5).contains("reads and writes alone"));
        assert!(told(&|spec| spec.threads = 0).contains("1 to 1024 threads"));
        assert!(told(&|_| {}).contains("cannot make /nowhere/medium"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("medium");
        assert!(
            told(&|spec| (spec.path, spec.block_bytes) = (path.clone(), 512)).contains("multiples of 4096")
        );
    }
}
