//! Measures the CPU time of a durable record of 256 bytes: `log_cost DIR [RECORDS [ROUNDS]]`. One side appends the
//! record to the log and syncs. The other is a bare loop of pwrite and fdatasync into a file that is allocated and
//! filled beforehand.
//!
//! Both sides take turns, each in a file of its own. Then eight threads share syncs, records are appended without a
//! sync, and the log replays the records.

#![allow(clippy::unwrap_used)]

use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
use std::sync::Arc;
use ziptier_media::disk::{Caching, Disk, RealDisk, write_all_at};
use ziptier_media::log::{Log, LogOptions};

const RECORD_BYTES: usize = 256;
const FILE_BYTES: u64 = 64 << 20;

fn cpu_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// CPU microseconds and wall microseconds of each of `records` records.
fn measure(records: u64, work: impl FnOnce()) -> (f64, f64) {
    let (cpu, wall) = (cpu_us(), std::time::Instant::now());
    work();
    ((cpu_us() - cpu) / records as f64, wall.elapsed().as_secs_f64() * 1e6 / records as f64)
}

fn bare(dir: &Path, records: u64) -> (f64, f64) {
    let path = dir.join("bare");
    let file = RealDisk.create(&path, Caching::Cached).unwrap();
    file.preallocate(FILE_BYTES).unwrap();
    for at in 0..FILE_BYTES >> 20 {
        write_all_at(&*file, at << 20, &vec![0; 1 << 20]).unwrap();
    }
    file.sync_data().unwrap();
    let cost = measure(records, || {
        for i in 0..records {
            let offset = i * RECORD_BYTES as u64 % FILE_BYTES;
            write_all_at(&*file, offset, &[i as u8; RECORD_BYTES]).unwrap();
            file.sync_data().unwrap();
        }
    });
    RealDisk.remove(&path).unwrap();
    cost
}

fn logged(dir: &Path, records: u64, threads: u64) -> (f64, f64, f64) {
    let dir = dir.join("log");
    let log = Log::open(Arc::new(RealDisk), &dir, LogOptions::default()).unwrap().into_log().unwrap();
    let cost = measure(records, || {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for i in 0..records / threads {
                        let lsn = log.append(&[&[i as u8; RECORD_BYTES]]).unwrap();
                        log.sync(lsn).unwrap();
                    }
                });
            }
        });
    });
    let per_sync = records as f64 / log.stats().syncs as f64;
    drop(log);
    std::fs::remove_dir_all(&dir).unwrap();
    (cost.0, cost.1, per_sync)
}

/// Nanoseconds of CPU time to append a record into a buffer whose memory is allocated, and MB of records replayed per
/// second of wall time.
fn appended_and_replayed(dir: &Path) -> (f64, f64) {
    const BATCH: u64 = 10_000;
    const BATCHES: u64 = 50;
    let dir = dir.join("log");
    let log = Log::open(Arc::new(RealDisk), &dir, LogOptions::default()).unwrap().into_log().unwrap();
    let append = || {
        for i in 0..BATCH {
            log.append(&[&[i as u8; RECORD_BYTES]]).unwrap();
        }
    };
    let mut append_us = Vec::new();
    for _ in 0..BATCHES {
        log.prepare_segment().unwrap();
        append_us.push(measure(BATCH, append).0);
        log.write(log.last_lsn()).unwrap();
    }
    append_us.sort_by(f64::total_cmp);
    let records = BATCH * BATCHES;
    log.sync(records).unwrap();
    drop(log);
    let (_, replay_us) = measure(records, || {
        let mut replay = Log::open(Arc::new(RealDisk), &dir, LogOptions::default()).unwrap();
        while replay.next_record().unwrap().is_some() {}
        assert_eq!(replay.next_lsn(), records + 1);
    });
    std::fs::remove_dir_all(&dir).unwrap();
    (append_us[append_us.len() / 2] * 1e3, RECORD_BYTES as f64 / replay_us)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("log_cost DIR [RECORDS [ROUNDS]]");
    let records: u64 = arguments.next().map_or(5000, |text| text.parse().unwrap());
    let rounds: u64 = arguments.next().map_or(7, |text| text.parse().unwrap());
    let folder = tempfile::tempdir_in(dir).expect("a folder in DIR");
    let dir = folder.path();
    println!(
        "round\tbare cpu us\twall us\tlog cpu us\twall us\tratio cpu\t8 threads cpu us\twall us\t\
         records a sync\tappend alone ns"
    );
    let mut ratios = Vec::new();
    for round in 0..rounds {
        // The first side alternates, too.
        let ((bare_cpu, bare_wall), (log_cpu, log_wall, _)) = if round % 2 == 0 {
            let first = bare(dir, records);
            (first, logged(dir, records, 1))
        } else {
            let first = logged(dir, records, 1);
            (bare(dir, records), first)
        };
        let (shared_cpu, shared_wall, per_sync) = logged(dir, records, 8);
        let (append_ns, replay_mbps) = appended_and_replayed(dir);
        ratios.push(log_cpu / bare_cpu);
        println!(
            "{round}\t{bare_cpu:.2}\t{bare_wall:.1}\t{log_cpu:.2}\t{log_wall:.1}\t{:.3}\t{shared_cpu:.2}\t\
             {shared_wall:.1}\t{per_sync:.1}\t{append_ns:.0}\t{replay_mbps:.0}",
            log_cpu / bare_cpu
        );
    }
    ratios.sort_by(f64::total_cmp);
    let (low, high) = (ratios[0], ratios[ratios.len() - 1]);
    println!("ratio of CPU time, median {:.3}, {low:.3} to {high:.3}", ratios[ratios.len() / 2]);
}
