//! A raw load on the media, and how much of each resource the work took beside it.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::bench::confine::disk_of;
use crate::bench::process::Launcher;
use crate::bench::remains;
use crate::error::Error;
use crate::inputs::Number;
use crate::mbwu::limit::Shares;
use crate::mbwu::rounds::Round;
use crate::mbwu::sheets::Work;
use crate::medium::Medium;
use crate::medium::ceiling::{Ceiling, CeilingSpec, Order, THREADS_MAX, filled_file};
use crate::meters::machine::MachineUse;
use crate::run::saturation::ramp;
use crate::run::spec::RunSpec;
use crate::statistics::Mean;
use crate::workload::mix::Mix;

/// What the media did together under a raw load, beside what they did under the work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Raw {
    /// Reads of this many bytes, and how many of them the media can do.
    pub reads: Option<(usize, Ceiling)>,
    /// The same of writes.
    pub writes: Option<(usize, Ceiling)>,
}

impl Raw {
    /// Whether the page cache took no part, so that the media did all of it.
    fn is_direct(&self) -> bool {
        [self.reads, self.writes].iter().flatten().all(|(_, ceiling)| ceiling.is_direct)
    }
}

/// The requests of the work to the devices of its folders, of all rounds: reads and writes, each with their number per
/// second and mean bytes.
fn requests(folders: &[PathBuf], rounds: &[Round]) -> Option<[(f64, f64); 2]> {
    let told = rounds.first().and_then(|round| devices_of(round.origin.machine.as_ref()?));
    // Older results tell no devices, and those of this machine stand in.
    let found = || folders.iter().map(|folder| disk_of(folder).ok()).collect();
    let devices = told.map_or_else(found, Some)?;
    requests_to(&devices, rounds).filter(|_| devices.len() == folders.len())
}

/// The devices of the folders, as the machine that measured has written them down. A folder on no disk has none.
fn devices_of(machine: &Json) -> Option<Vec<String>> {
    machine["disks"].as_array()?.iter().map(|disk| Some(disk["name"].as_str()?.to_owned())).collect()
}

fn requests_to(devices: &[String], rounds: &[Round]) -> Option<[(f64, f64); 2]> {
    let mut sums = [(0.0, 0.0); 2];
    let mut sec = 0.0;
    for machine in rounds.iter().map(|round| round.measurement.steady_machine()) {
        sec += machine.sec;
        for device in devices {
            let used = machine.device(device)?;
            for (sum, (number, bytes)) in
                sums.iter_mut().zip([(used.reads, used.read_bytes), (used.writes, used.written_bytes)])
            {
                sum.0 += number as f64;
                sum.1 += bytes as f64;
            }
        }
    }
    Some(sums.map(|(number, bytes)| (number / sec, bytes / number.max(1.0))))
}

/// Below this, a disk is not at work.
const REQUESTS_PER_SEC_MIN: f64 = 1.0;
/// Bytes of the file of a raw load on each medium.
const FILE_BYTES: u64 = 256 << 20;

/// Raw loads of reads and of writes with as many bytes as the work's requests had, on all media at once. The first has
/// as many `threads` as the work had there. All loads on a medium share a file, which this process fills once, without
/// the limits of the work.
pub(crate) fn measure_raw(
    folders: &[PathBuf],
    asked: &RunSpec,
    rounds: &[Round],
    threads: u64,
    launcher: &Launcher,
) -> Result<Raw, Error> {
    const BLOCK: usize = 4096;
    const BLOCK_MAX: usize = 1 << 20;
    let found = requests(folders, rounds).unwrap_or_default();
    if found.iter().all(|(per_sec, _)| *per_sec < REQUESTS_PER_SEC_MIN) {
        return Ok(Raw { reads: None, writes: None });
    }
    let files = folders.iter().map(|folder| filled_file(&file_of(folder), FILE_BYTES));
    let _kept_until_the_end: Vec<Medium> = files.collect::<Result<_, Error>>()?;
    let load = |(per_sec, mean_bytes): (f64, f64), read: u32| {
        if per_sec < REQUESTS_PER_SEC_MIN {
            return Ok(None);
        }
        let block_bytes = ((mean_bytes / BLOCK as f64).round() as usize * BLOCK).clamp(BLOCK, BLOCK_MAX);
        let at = |threads: u64| {
            let all = thread::scope(|scope| {
                let one = |folder: &PathBuf| {
                    let spec = spec(folder, read, block_bytes, threads);
                    scope.spawn(move || launcher.ceiling(&spec, asked, &mut |_| {}))
                };
                let begun: Vec<_> = folders.iter().map(one).collect();
                let ended =
                    begun.into_iter().map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic)));
                ended.collect::<Result<Vec<Ceiling>, Error>>()
            })?;
            Ok(Ceiling::together(&all))
        };
        let threads_max = threads_max(block_bytes, asked.confinement.memory_bytes);
        Ok(Some((block_bytes, most(threads, threads_max, at)?)))
    };
    Ok(Raw { reads: load(found[0], 100)?, writes: load(found[1], 0)? })
}

/// The file of the raw loads on a medium.
fn file_of(folder: &Path) -> PathBuf {
    folder.join(remains::name("raw"))
}

/// One raw load on a file that is there.
fn spec(folder: &Path, read: u32, block_bytes: usize, threads: u64) -> CeilingSpec {
    const SECONDS: f64 = 5.0;
    CeilingSpec {
        path: file_of(folder),
        file_bytes: FILE_BYTES,
        mix: Mix::percent(read, 100 - read),
        order: Order::Random,
        block_bytes,
        threads,
        seconds: SECONDS,
        overwrites: true,
    }
}

/// Threads that may read and write at once on a medium. Each has a block in memory, and all of them take half of what
/// the process may have: the kernel would kill a larger load, and the evaluation could not go on.
fn threads_max(block_bytes: usize, memory_bytes: Option<u64>) -> u64 {
    const BLOCKS_BYTES_MAX: u64 = 64 << 20;
    /// Of a thread beside its block: its stack, that of the kernel, and the room that aligns the block.
    const THREAD_BYTES: u64 = 48 << 10;
    let block_bytes = block_bytes as u64;
    let fitting = memory_bytes.map_or(THREADS_MAX, |bytes| bytes / 2 / (block_bytes + THREAD_BYTES));
    THREADS_MAX.min(BLOCKS_BYTES_MAX / block_bytes).min(fitting).max(1)
}

/// The most that the media do, with `threads` or more. With the threads of the work alone, media that could do more
/// with a longer queue would seem to be in full use. The search chooses a number of threads, and another measurement
/// with that number counts: the largest of several figures is the luckiest, too.
fn most(
    threads: u64,
    threads_max: u64,
    mut at: impl FnMut(u64) -> Result<Ceiling, Error>,
) -> Result<Ceiling, Error> {
    let doubled = |threads: &u64| (*threads < threads_max).then(|| (threads * 2).min(threads_max));
    let mut best = (0.0, threads.min(threads_max));
    ramp(std::iter::successors(Some(best.1), doubled), &mut |threads| {
        let per_sec = at(threads)?.operations_per_sec;
        if per_sec > best.0 {
            best = (per_sec, threads);
        }
        Ok(per_sec)
    })?;
    at(best.1)
}

/// How much of each resource was in use while throughput was steady. `link` is what the network can carry in each
/// direction.
pub(crate) fn shares(work: &Work, link: Option<Number>, rounds: &[Round], raw: Option<&Raw>) -> Shares {
    let mean = |of: &dyn Fn(&MachineUse, &Round) -> Option<f64>| {
        let of = |round: &Round| of(&round.measurement.steady_machine(), round);
        let all: Option<Vec<f64>> = rounds.iter().map(of).collect();
        Some(Mean::of(&all?)?.mean)
    };
    let cpus = work.cpus();
    let processors = mean(&|machine, round| {
        let usable = if cpus.is_empty() { round.measurement.usable_processors() } else { cpus.clone() };
        Some(machine.busy_cores(&usable)? / usable.len().max(1) as f64)
    });
    let network = link.and_then(|link| {
        mean(&|machine, _| Some(machine.busier_network_bytes()? as f64 / machine.sec / link.0))
    });
    let medium = raw.filter(|raw| raw.is_direct()).and_then(|raw| {
        let found = requests(work.folders(), rounds)?;
        let share = |(per_sec, _): (f64, f64), raw: Option<(usize, Ceiling)>| {
            raw.map_or(0.0, |(_, ceiling)| per_sec / ceiling.operations_per_sec.max(1e-9))
        };
        let [reads, writes] = [share(found[0], raw.reads), share(found[1], raw.writes)];
        // Limits of a control group are apart for reads and writes; a disk's own time is shared by them.
        Some(if work.limits().is_none() { reads + writes } else { reads.max(writes) })
    });
    Shares { medium, processors, network }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::json;

    use super::*;
    use crate::bench::confine::Folders;
    use crate::mbwu::origin::Origin;
    use crate::medium::ceiling::raw_ceiling;
    use crate::meters::Meters;
    use crate::meters::machine::{DiskUse, InterfaceUse};
    use crate::run::measurement::Sample;
    use crate::run::steady::Steadiness;
    use crate::target::registry::Registry;

    /// Numbers of threads that a search asked for, and operations per second that it found, where `per_sec` gives those
    /// of a number of threads that is asked for the n-th time.
    fn searched(threads: u64, threads_max: u64, per_sec: impl Fn(u64, usize) -> f64) -> (Vec<u64>, f64) {
        let mut asked = Vec::new();
        let at = |threads: u64| {
            asked.push(threads);
            let times = asked.iter().filter(|one| **one == threads).count();
            Ok(Ceiling {
                operations_per_sec: per_sec(threads, times),
                bytes_per_sec: 0.0,
                device_bytes_per_operation: None,
                is_direct: true,
            })
        };
        let found = most(threads, threads_max, at).unwrap().operations_per_sec;
        (asked, found)
    }

    /// Work that waits for a lock has few threads, with which a raw load keeps no queue of an SSD filled.
    #[test]
    fn a_raw_load_has_as_many_threads_as_the_media_take() {
        let found = searched(5, THREADS_MAX, |threads, _| 1_000.0 * threads.min(40) as f64);
        assert_eq!(found, (vec![5, 10, 20, 40, 80, 160, 40], 40_000.0));
        let found = searched(300, THREADS_MAX, |threads, _| threads as f64);
        assert_eq!(found, (vec![300, 600, 1_024, 1_024], 1_024.0));
        assert_eq!(searched(90, 64, |threads, _| threads as f64), (vec![64, 64], 64.0));
    }

    #[test]
    fn a_lucky_measurement_is_not_what_the_media_do() {
        let found = searched(8, THREADS_MAX, |_, times| if times == 1 { 150.0 } else { 100.0 });
        assert_eq!(found, (vec![8, 16, 32, 8], 100.0));
    }

    #[test]
    fn every_thread_of_a_raw_load_has_a_block_on_the_medium_and_in_memory() {
        for block_bytes in [4_096, 64 << 10, 128 << 10, 1 << 20] {
            let threads = threads_max(block_bytes, None);
            assert!(threads * block_bytes as u64 <= 64 << 20, "{threads} of {block_bytes}");
            let spec = spec(Path::new("/medium"), 100, block_bytes, threads);
            assert!(spec.file_bytes / block_bytes as u64 >= threads, "{spec:?}");
        }
        assert_eq!([4_096, 1 << 20].map(|block_bytes| threads_max(block_bytes, None)), [THREADS_MAX, 64]);
    }

    /// 1,024 threads with blocks of 64 KiB need more than the 128 MiB of an evaluation.
    #[test]
    fn the_threads_of_a_raw_load_fit_into_the_memory_of_the_work() {
        for memory_bytes in [64 << 10, 32 << 20, 128 << 20] {
            for block_bytes in [4_096, 64 << 10, 1 << 20] {
                let threads = threads_max(block_bytes, Some(memory_bytes));
                assert!(threads == 1 || threads * block_bytes as u64 <= memory_bytes / 2, "{threads}");
            }
        }
        let found = [4_096, 64 << 10].map(|block_bytes| threads_max(block_bytes, Some(128 << 20)));
        assert_eq!(found, [THREADS_MAX, 585]);
    }

    /// Each step of a search would fill its file anew, which takes longer than the step on a slow disk.
    #[test]
    fn raw_loads_share_a_file_that_is_filled_once() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mark) = (file_of(folder.path()), [7u8; 4_096]);
        let file = filled_file(&path, 64 << 10).unwrap();
        assert!(filled_file(&path, 64 << 10).is_err(), "a file of somebody else");
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().write_all(&mark).unwrap();
        let load = |read| CeilingSpec { seconds: 0.01, ..spec(folder.path(), read, 4_096, 2) };
        raw_ceiling(&load(100)).unwrap();
        let left = std::fs::read(&path).unwrap();
        assert!(left.len() == 64 << 10 && left[..4_096] == mark, "the file was filled anew");
        raw_ceiling(&load(0)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 64 << 10);
        drop(file);
        assert!(!path.exists());
    }

    /// A second of four processors, of which two were busy for these shares.
    fn second(busy: [f64; 2], sent_bytes: u64, joules: f64) -> MachineUse {
        let shares = [Some(busy[0]), Some(busy[1]), Some(0.0), Some(0.0)];
        let loopback = InterfaceUse { received_bytes: sent_bytes, sent_bytes };
        MachineUse {
            sec: 1.0,
            cores: Some(shares.into()),
            interfaces: Some([("lo".to_owned(), loopback)].into()),
            joules: Some(joules),
            ..MachineUse::default()
        }
    }

    /// A round whose throughput was steady in the second of two seconds.
    fn round() -> Round {
        let asked = RunSpec { keys: 20, operations: Some(20), ..RunSpec::new("btreemap", "json") };
        let meters = Meters::default();
        let run = Registry::with(vec![]).find("btreemap").unwrap().run(&asked, &meters, &|_| {});
        let mut measurement = run.unwrap();
        let parts = [second([1.0, 1.0], 90, 70.0), second([0.5, 0.25], 50, 30.0)];
        measurement.machine = MachineUse::joined(&parts).unwrap();
        measurement.samples = parts.map(|machine| Sample { operations: 10, machine }).into();
        let throughput = Mean { mean: 10.0, error: None, samples: 1 };
        measurement.steadiness = Some(Steadiness::Steady { samples: 1, throughput });
        Round { origin: Origin::of(asked), measurement }
    }

    #[test]
    fn shares_and_power_are_of_the_time_in_which_throughput_was_steady() {
        let mut round = round();
        round.measurement.processors = None;
        let of = |round: &Round| {
            let shares = shares(&Work::default(), Some(Number(100.0)), std::slice::from_ref(round), None);
            (shares.processors, shares.network, round.measurement.steady_machine().watts())
        };
        assert_eq!(of(&round), (Some(0.75 / 4.0), Some(0.5), Some(30.0)));
        round.measurement.steadiness = Some(Steadiness::Unsure { change_max: None });
        assert_eq!(of(&round), (Some(2.75 / 2.0 / 4.0), Some(0.7), Some(50.0)), "all of the window");
    }

    /// Replies fill one direction of a link, and the requests for them leave the other one nearly empty.
    #[test]
    fn a_link_is_in_full_use_when_one_direction_is() {
        for (received_bytes, sent_bytes) in [(80, 8), (8, 80)] {
            let mut round = round();
            let link = InterfaceUse { received_bytes, sent_bytes };
            for sample in &mut round.measurement.samples {
                sample.machine.interfaces = Some([("veth0".to_owned(), link)].into());
            }
            let used = shares(&Work::default(), Some(Number(100.0)), std::slice::from_ref(&round), None);
            assert_eq!(used.network, Some(0.8));
        }
    }

    /// Requests to a volume of LVM are counted on its disk, too, beside those to other volumes.
    #[test]
    fn requests_to_a_device_on_disks_are_its_own() {
        let mut round = round();
        let read = |reads: u64| DiskUse { reads, read_bytes: reads * 8_192, ..DiskUse::default() };
        for sample in &mut round.measurement.samples {
            sample.machine.disks = Some([("sda".to_owned(), read(60))].into());
            sample.machine.stacked = [("dm-0".to_owned(), read(40))].into();
        }
        let of = |device: &str| {
            requests_to(&[device.to_owned()], std::slice::from_ref(&round)).map(|[reads, _]| reads)
        };
        assert_eq!(["dm-0", "sda", "dm-1"].map(of), [Some((40.0, 8_192.0)), Some((60.0, 8_192.0)), None]);
    }

    /// Another machine may lack the folder of the medium, or have it on another disk.
    #[test]
    fn the_share_of_a_medium_is_that_of_the_machine_that_measured() {
        let mut round = round();
        let read = DiskUse { reads: 60, read_bytes: 60 * 4_096, ..DiskUse::default() };
        for sample in &mut round.measurement.samples {
            sample.machine.disks = Some([("sdx".to_owned(), read)].into());
        }
        let work = Work { folder: Some(Folders::One("/no/medium".into())), ..Work::default() };
        let ceiling = Ceiling {
            operations_per_sec: 100.0,
            bytes_per_sec: 409_600.0,
            device_bytes_per_operation: None,
            is_direct: true,
        };
        let raw = Raw { reads: Some((4_096, ceiling)), writes: None };
        let mut medium = |machine: Option<Json>| {
            round.origin.machine = machine;
            shares(&work, None, std::slice::from_ref(&round), Some(&raw)).medium
        };
        assert_eq!(medium(Some(json!({ "disks": [{ "name": "sdx" }] }))), Some(0.6));
        assert_eq!(medium(Some(json!({ "disks": [] }))), None, "the folder lay on no disk");
        assert_eq!(medium(None), None, "older results");
    }

    /// Memory does far more than the medium, which may be in full use.
    #[test]
    fn a_raw_load_of_the_page_cache_is_no_ceiling_of_the_medium() {
        let ceiling = |is_direct| Ceiling {
            operations_per_sec: 1e6,
            bytes_per_sec: 4_096e6,
            device_bytes_per_operation: Some(0.0),
            is_direct,
        };
        let round = round();
        let medium = |is_direct| {
            let raw = Raw { reads: None, writes: Some((4_096, ceiling(is_direct))) };
            shares(&Work::default(), None, std::slice::from_ref(&round), Some(&raw)).medium
        };
        assert_eq!([true, false].map(medium), [Some(0.0), None]);
    }

    #[test]
    fn processors_that_the_work_may_not_use_are_not_idle() {
        let mut round = round();
        round.measurement.processors = Some(vec![0, 1]);
        let of = |work: &Work| shares(work, None, std::slice::from_ref(&round), None).processors;
        assert_eq!(of(&Work::default()), Some(0.75 / 2.0));
        assert_eq!(of(&Work { cpus: Some(vec![0]), ..Work::default() }), Some(0.5), "fewer were asked for");
    }
}
