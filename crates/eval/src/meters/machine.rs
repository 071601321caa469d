//! Meters of the whole machine: processors, disks, network interfaces, page cache and energy.
//!
//! The kernel counts since the machine started. A [`Reading`] is what it says at one moment, and [`MachineUse`] the
//! difference of two. A meter that a machine lacks is missing from both, never zero. Sensors of power do not count, so
//! their energy is the sum over parts of a time that lie close together.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::meters::energy::{self, Counter};
use crate::meters::kernel::{
    DiskCounts, InterfaceCounts, cores, disks, interfaces, is_stacked, is_whole_disk, lies_on_others, own_io,
    page_cache_bytes,
};
use crate::target::Work;

/// The unit of `/proc/diskstats`, whatever a disk's own sectors are.
const SECTOR_BYTES: u64 = 512;
/// The time between two readings of a power sensor.
const PART: Duration = Duration::from_secs(1);

/// The counts of the kernel at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Reading {
    /// Seconds since 1970, by a clock that may be set meanwhile.
    unix_sec: f64,
    /// Seconds of a clock that nobody sets.
    at_sec: f64,
    /// Ticks of each processor by its number: busy, and all.
    cores: Option<BTreeMap<usize, (u64, u64)>>,
    disks: Option<BTreeMap<String, DiskCounts>>,
    stacked: BTreeMap<String, DiskCounts>,
    interfaces: Option<BTreeMap<String, InterfaceCounts>>,
    page_cache_bytes: Option<u64>,
    own_io: Option<(u64, u64)>,
    /// Domains of RAPL.
    domains: Option<BTreeMap<String, Counter>>,
    /// Watts of sensors that tell a power, not an energy.
    sensors: Option<BTreeMap<String, f64>>,
}

/// What a machine did between two moments. `None` marks a meter that it lacks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineUse {
    /// The first moment, in seconds since 1970.
    pub from_unix_sec: f64,
    /// Seconds between them.
    pub sec: f64,
    /// The busy share of each processor, from 0 to 1, at the place of its number. Nothing stands for one that is
    /// offline.
    pub cores: Option<Vec<Option<f64>>>,
    /// Disks by their names in `/sys/block`.
    pub disks: Option<BTreeMap<String, DiskUse>>,
    /// Devices of LVM, dm-crypt and md, namespaces of NVMe with paths, loop devices and network block devices, by the
    /// same names. They lie on disks or a network, which count the requests once more.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub stacked: BTreeMap<String, DiskUse>,
    /// Network interfaces by their names, without bonds, bridges and VLANs; `lo` is the loopback.
    pub interfaces: Option<BTreeMap<String, InterfaceUse>>,
    /// Bytes of files that the kernel keeps in memory, at the second moment.
    pub page_cache_bytes: Option<u64>,
    /// Bytes that this process had read from and written to disks.
    pub own_io: Option<OwnIo>,
    /// Energy, by meters of the machine itself.
    pub joules: Option<f64>,
    /// The domains of RAPL, or the sensors of hwmon, whose sum that energy is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub joules_of: Vec<String>,
}

/// What a disk did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskUse {
    /// Finished reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Finished writes.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The share of time with a request under way, from 0 to 1. A disk that serves many requests at once can be far
    /// from its limit at 1.
    pub busy: f64,
    /// Requests under way on average.
    pub queue: f64,
}

/// What a network interface did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct InterfaceUse {
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
}

/// Bytes that the kernel moved between disks and a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnIo {
    /// Read.
    pub read_bytes: u64,
    /// Written.
    pub written_bytes: u64,
}

impl Reading {
    /// Reads all meters that this machine has.
    pub(crate) fn now() -> Self {
        let text = |path: &str| fs::read_to_string(path).ok();
        let (stats, blocks) = (text("/proc/diskstats"), Path::new("/sys/block"));
        Reading {
            unix_sec: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64()),
            at_sec: at_sec(),
            cores: text("/proc/stat").map(|stat| cores(&stat)).filter(|cores| !cores.is_empty()),
            disks: stats.as_deref().map(|stats| disks(stats, |name| is_whole_disk(blocks, name))),
            stacked: disks(&stats.unwrap_or_default(), |name| is_stacked(blocks, name)),
            interfaces: text("/proc/net/dev").map(|dev| interfaces(&dev, lies_on_others)),
            page_cache_bytes: text("/proc/meminfo").and_then(|info| page_cache_bytes(&info)),
            own_io: text("/proc/self/io").and_then(|io| own_io(&io)),
            domains: energy::domains(Path::new("/sys/class/powercap")),
            sensors: energy::sensors(Path::new("/sys/class/hwmon")),
        }
    }

    /// What happened between `before` and this reading.
    pub(crate) fn since(&self, before: &Reading) -> MachineUse {
        let sec = self.at_sec - before.at_sec;
        let (joules, joules_of) = self.energy_since(before, sec).unzip();
        MachineUse {
            from_unix_sec: before.unix_sec,
            sec,
            cores: both(&self.cores, &before.cores, |now, then| {
                let busy = differences(now, then, |now, then| {
                    let all = now.1.saturating_sub(then.1);
                    now.0.saturating_sub(then.0) as f64 / all.max(1) as f64
                });
                let places = busy.last_key_value().map_or(0, |(number, _)| number + 1);
                (0..places).map(|number| busy.get(&number).copied()).collect()
            }),
            disks: both(&self.disks, &before.disks, |now, then| {
                differences(now, then, |now, then| now.since(then, sec))
            }),
            stacked: differences(&self.stacked, &before.stacked, |now, then| now.since(then, sec)),
            interfaces: both(&self.interfaces, &before.interfaces, |now, then| {
                differences(now, then, |now, then| InterfaceUse {
                    received_bytes: now.received_bytes.saturating_sub(then.received_bytes),
                    sent_bytes: now.sent_bytes.saturating_sub(then.sent_bytes),
                })
            }),
            page_cache_bytes: self.page_cache_bytes,
            own_io: both(&self.own_io, &before.own_io, |now, then| OwnIo {
                read_bytes: now.0.saturating_sub(then.0),
                written_bytes: now.1.saturating_sub(then.1),
            }),
            joules,
            joules_of: joules_of.unwrap_or_default(),
        }
    }

    /// Joules, and the names of the meters that told them.
    fn energy_since(&self, before: &Reading, sec: f64) -> Option<(f64, Vec<String>)> {
        let domains = || {
            let (now, then) = self.domains.as_ref().zip(before.domains.as_ref())?;
            Some((energy::joules_of_domains(now, then)?, now.keys().cloned().collect()))
        };
        let sensors = || {
            let (now, then) = self.sensors.as_ref().zip(before.sensors.as_ref())?;
            Some((energy::joules_of_sensors(now, then, sec)?, now.keys().cloned().collect()))
        };
        domains().or_else(sensors)
    }
}

/// Runs `work`, and tells what the machine did from `start`, shortly before, until the work was done.
pub(crate) fn during<R>(start: Reading, work: impl FnOnce() -> R) -> (R, MachineUse) {
    let (done, is_done) = channel::<()>();
    thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let (mut before, mut whole) = (start, None::<MachineUse>);
            loop {
                let is_over = is_done.recv_timeout(PART) != Err(RecvTimeoutError::Timeout);
                let now = Reading::now();
                let part = now.since(&before);
                let joined = whole.map_or_else(|| part.clone(), |whole| whole.followed_by(&part));
                if is_over {
                    return joined;
                }
                (before, whole) = (now, Some(joined));
            }
        });
        let result = work();
        drop(done);
        (result, watch.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn at_sec() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

impl DiskCounts {
    fn since(&self, before: &DiskCounts, sec: f64) -> DiskUse {
        let share = |now: u32, then: u32| f64::from(now.wrapping_sub(then)) / 1e3 / sec.max(1e-9);
        DiskUse {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_sectors.saturating_sub(before.read_sectors) * SECTOR_BYTES,
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_sectors.saturating_sub(before.written_sectors) * SECTOR_BYTES,
            busy: share(self.busy_ms, before.busy_ms).min(1.0),
            queue: share(self.waiting_ms, before.waiting_ms),
        }
    }
}

impl MachineUse {
    /// Processors kept busy on average, of those with the given numbers; of all if there are none.
    pub fn busy_cores(&self, of: &[usize]) -> Option<f64> {
        let cores = self.cores.as_ref()?;
        match of {
            [] => Some(cores.iter().flatten().sum()),
            of => of.iter().map(|core| *cores.get(*core)?).sum(),
        }
    }

    /// The numbers of the processors that were online.
    pub fn online(&self) -> Vec<usize> {
        let shares = self.cores.iter().flatten().enumerate();
        shares.filter_map(|(number, share)| share.map(|_| number)).collect()
    }

    /// The processors among `numbers` that were online; `None` if none was. A container may have a `/proc/stat` that
    /// numbers processors by itself.
    pub(crate) fn online_of(&self, mut numbers: Vec<usize>) -> Option<Vec<usize>> {
        let online = self.online();
        numbers.retain(|number| online.contains(number));
        (!numbers.is_empty()).then_some(numbers)
    }

    /// What the machine did in parts of a time that follow each other; nothing of no part. A meter that one of them
    /// lacks is missing.
    pub(crate) fn joined<'a>(parts: impl IntoIterator<Item = &'a MachineUse>) -> Option<MachineUse> {
        let mut parts = parts.into_iter();
        let first = parts.next()?.clone();
        Some(parts.fold(first, |whole, part| whole.followed_by(part)))
    }

    fn followed_by(self, next: &MachineUse) -> MachineUse {
        let sec = self.sec + next.sec;
        let mean = |one: f64, other: f64| (one * self.sec + other * next.sec) / sec.max(1e-9);
        let are_alike = self.joules_of == next.joules_of;
        let disk = |one: &DiskUse, other: &DiskUse| DiskUse {
            reads: one.reads + other.reads,
            read_bytes: one.read_bytes + other.read_bytes,
            writes: one.writes + other.writes,
            written_bytes: one.written_bytes + other.written_bytes,
            busy: mean(one.busy, other.busy),
            queue: mean(one.queue, other.queue),
        };
        MachineUse {
            from_unix_sec: self.from_unix_sec,
            sec,
            cores: both(&self.cores, &next.cores, |one, other| {
                let mean = |(one, other): (&Option<f64>, &Option<f64>)| Some(mean((*one)?, (*other)?));
                one.iter().zip(other).map(mean).collect()
            }),
            disks: both(&self.disks, &next.disks, |one, other| differences(one, other, disk)),
            stacked: differences(&self.stacked, &next.stacked, disk),
            interfaces: both(&self.interfaces, &next.interfaces, |one, other| {
                differences(one, other, |one, other| InterfaceUse {
                    received_bytes: one.received_bytes + other.received_bytes,
                    sent_bytes: one.sent_bytes + other.sent_bytes,
                })
            }),
            page_cache_bytes: next.page_cache_bytes,
            own_io: both(&self.own_io, &next.own_io, |one, other| OwnIo {
                read_bytes: one.read_bytes + other.read_bytes,
                written_bytes: one.written_bytes + other.written_bytes,
            }),
            joules: both(&self.joules, &next.joules, |one, other| one + other).filter(|_| are_alike),
            joules_of: self.joules_of,
        }
    }

    /// The same with the energy of its parts, between whose ends a sensor of power was read.
    pub(crate) fn with_energy_of<'a>(self, parts: impl IntoIterator<Item = &'a MachineUse>) -> MachineUse {
        let MachineUse { joules, joules_of, .. } = MachineUse::joined(parts).unwrap_or_default();
        MachineUse { joules, joules_of, ..self }
    }

    /// The meters of this machine that tell of the `work`. Of the work of another machine, they tell the network alone
    /// and what this process did itself.
    pub(crate) fn of(self, work: Work) -> MachineUse {
        match work {
            Work::Elsewhere => MachineUse {
                cores: None,
                disks: None,
                stacked: BTreeMap::new(),
                page_cache_bytes: None,
                joules: None,
                joules_of: Vec::new(),
                ..self
            },
            _ => self,
        }
    }

    /// The use of a disk, or of a device that lies on disks.
    pub fn device(&self, name: &str) -> Option<&DiskUse> {
        self.disks.as_ref().and_then(|disks| disks.get(name)).or_else(|| self.stacked.get(name))
    }

    /// The sum over all disks of what `bytes` says of one.
    pub fn disk_bytes(&self, bytes: impl Fn(&DiskUse) -> u64) -> Option<u64> {
        Some(self.disks.as_ref()?.values().map(bytes).sum())
    }

    /// Bytes that went over the network. What the loopback sends it also receives, so that counts once.
    pub fn network_bytes(&self) -> Option<u64> {
        let of = |(name, one): (&String, &InterfaceUse)| match name.as_str() {
            "lo" => one.sent_bytes,
            _ => one.sent_bytes + one.received_bytes,
        };
        Some(self.interfaces.as_ref()?.iter().map(of).sum())
    }

    /// Bytes that went over the network in the direction that carried more. A link with two directions is in full use
    /// as soon as one of them is. The loopback has received what it has sent.
    pub(crate) fn busier_network_bytes(&self) -> Option<u64> {
        let interfaces = self.interfaces.as_ref()?;
        let sum = |of: fn(&InterfaceUse) -> u64| interfaces.values().map(of).sum::<u64>();
        Some(sum(|one| one.received_bytes).max(sum(|one| one.sent_bytes)))
    }

    /// Mean power, by meters of the machine itself.
    pub fn watts(&self) -> Option<f64> {
        self.joules.map(|joules| joules / self.sec.max(1e-9))
    }

    /// The meters that this machine lacks, in words.
    pub fn missing(&self) -> Vec<&'static str> {
        [
            ("processors", self.cores.is_none()),
            ("disks", self.disks.is_none()),
            ("network", self.interfaces.is_none()),
            ("page cache", self.page_cache_bytes.is_none()),
            ("disk traffic of the process", self.own_io.is_none()),
            ("power", self.joules.is_none()),
        ]
        .into_iter()
        .filter_map(|(name, is_missing)| is_missing.then_some(name))
        .collect()
    }
}

fn both<T, U>(now: &Option<T>, then: &Option<T>, join: impl Fn(&T, &T) -> U) -> Option<U> {
    Some(join(now.as_ref()?, then.as_ref()?))
}

/// Of each name that both have, what `join` makes of the two.
fn differences<K: Ord + Clone, T, U>(
    now: &BTreeMap<K, T>,
    then: &BTreeMap<K, T>,
    join: impl Fn(&T, &T) -> U,
) -> BTreeMap<K, U> {
    now.iter().filter_map(|(name, now)| Some((name.clone(), join(now, then.get(name)?)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Somebody sets the clock of the day back between any two readings. Processor 1 is offline.
    fn reading(sec: f64, ticks: u64) -> Reading {
        let stat = format!(
            "cpu  1 2 3\ncpu0 {} 0 10 {} 5 0 0 7 0 0\ncpu2 10 0 10 {} 0 0 0 0 0 0\nintr 9",
            50 + ticks,
            100,
            100 + ticks
        );
        let disk = format!(
            "   8  0 sda {t} 1 {s} 2 {t} 3 {s} 4 0 {t} {t} 0\n 8 1 sda1 1 1 1 1 1 1 1 1 0 1 1\n \
             253 0 dm-0 {t} 0 {s} 0 0 0 0 0 0 0 0 0",
            t = ticks * 10,
            s = ticks * 8
        );
        let dev = format!(
            "Inter-| Receive\n face |bytes\n    lo: {ticks} 0 0 0 0 0 0 0 {ticks} 0\n  eth0:7 0 0 0 0 0 0 0 {t} 0\n \
             bond0: 9 0 0 0 0 0 0 0 {t} 0",
            t = ticks * 2
        );
        Reading {
            unix_sec: 1_000.0 - sec,
            at_sec: sec,
            cores: Some(cores(&stat)),
            disks: Some(disks(&disk, |name| name == "sda")),
            stacked: disks(&disk, |name| name == "dm-0"),
            interfaces: Some(interfaces(&dev, |name| name == "bond0")),
            page_cache_bytes: page_cache_bytes("MemFree: 1 kB\nCached:   4 kB\nSwapCached: 9 kB"),
            own_io: own_io("rchar: 5\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 0"),
            domains: None,
            sensors: Some([("hwmon0/acpi/power1".to_owned(), 100.0 + ticks as f64)].into()),
        }
    }

    #[test]
    fn counts_of_the_kernel_become_shares_and_bytes() {
        let done = reading(12.0, 100).since(&reading(10.0, 0));
        assert_eq!((done.from_unix_sec, done.sec), (990.0, 2.0));
        assert_eq!(done.cores, Some(vec![Some(1.0), None, Some(0.0)]));
        let busy = [&[][..], &[0, 2], &[2], &[1], &[3]].map(|numbers| done.busy_cores(numbers));
        assert_eq!(busy, [Some(1.0), Some(1.0), Some(0.0), None, None]);
        assert_eq!(done.online(), [0, 2]);
        assert_eq!(done.online_of(vec![1, 2]), Some(vec![2]));
        assert_eq!(done.online_of(vec![6, 7]), None, "numbers of the host beside those of a container");
        let disks = done.disks.as_ref().unwrap();
        let sda = DiskUse {
            reads: 1_000,
            read_bytes: 800 * 512,
            writes: 1_000,
            written_bytes: 800 * 512,
            busy: 0.5,
            queue: 0.5,
        };
        assert_eq!((disks.len(), disks["sda"]), (1, sda));
        let dm = DiskUse { reads: 1_000, read_bytes: 800 * 512, ..DiskUse::default() };
        let devices = ["sda", "dm-0", "md0"].map(|name| done.device(name));
        assert_eq!(devices, [Some(&sda), Some(&dm), None]);
        assert_eq!(done.disk_bytes(|disk| disk.read_bytes), Some(800 * 512), "no request counts twice");
        assert_eq!(done.network_bytes(), Some(100 + 200), "what a bond sends counts below");
        assert_eq!(done.page_cache_bytes, Some(4096));
        assert_eq!(done.own_io, Some(OwnIo::default()));
        assert_eq!((done.joules, done.watts()), (Some(300.0), Some(150.0)));
        assert_eq!(done.joules_of, ["hwmon0/acpi/power1"]);
        assert!(done.missing().is_empty());
    }

    #[test]
    fn milliseconds_of_a_disk_that_begin_anew_are_no_zero() {
        let counts = |busy_ms: u64, waiting_ms: u64| {
            disks(&format!("8 0 sda 1 0 1 1 1 0 1 1 0 {busy_ms} {waiting_ms}"), |_| true)["sda"]
        };
        let done = counts(300, 1_800).since(&counts((1 << 32) - 200, (1 << 32) - 200), 1.0);
        assert_eq!((done.busy, done.queue), (0.5, 2.0));
        let wide = counts((1 << 32) + 500, (1 << 32) + 1).since(&counts(1 << 32, (1 << 32) - 1_999), 1.0);
        assert_eq!((wide.busy, wide.queue), (0.5, 2.0));
    }

    #[test]
    fn a_meter_that_is_missing_is_no_zero() {
        let nothing = Reading::default().since(&Reading::default());
        assert_eq!(nothing.missing().len(), 6);
        assert_eq!((nothing.busy_cores(&[]), nothing.network_bytes(), nothing.watts()), (None, None, None));
        // A meter that vanishes is missing, too.
        let vanished = Reading { disks: None, ..reading(12.0, 100) }.since(&reading(10.0, 0));
        assert_eq!(vanished.missing(), ["disks"]);
    }

    #[test]
    fn parts_are_joined_to_the_use_of_the_whole_time() {
        let readings = [reading(0.0, 0), reading(1.0, 100), reading(3.0, 300)];
        let parts = [readings[1].since(&readings[0]), readings[2].since(&readings[1])];
        assert_eq!(MachineUse::joined(&parts), Some(readings[2].since(&readings[0])));
        assert_eq!(MachineUse::joined([]), None);
        let blind = MachineUse { disks: None, ..parts[1].clone() };
        assert_eq!(MachineUse::joined([&parts[0], &blind]).unwrap().missing(), ["disks"]);
    }

    #[test]
    fn power_between_the_ends_of_a_time_is_part_of_its_energy() {
        // A sensor tells 100, 300 and 100 watts.
        let readings = [reading(0.0, 0), reading(1.0, 200), reading(2.0, 0)];
        let parts = [readings[1].since(&readings[0]), readings[2].since(&readings[1])];
        let whole = readings[2].since(&readings[0]);
        assert_eq!(whole.joules, Some(200.0), "two ends alone miss the peak");
        let whole = whole.with_energy_of(&parts);
        assert_eq!((whole.joules, whole.watts(), whole.sec), (Some(400.0), Some(200.0), 2.0));
        let other = MachineUse { joules_of: vec!["package-0".into()], ..parts[1].clone() };
        assert_eq!(whole.with_energy_of([&parts[0], &other]).joules, None, "the meter became another");
    }

    #[test]
    fn of_the_work_of_another_machine_only_the_network_is_known() {
        let done = reading(12.0, 100).since(&reading(10.0, 0));
        assert_eq!(done.clone().of(Work::Servers(None)), done);
        let elsewhere = done.of(Work::Elsewhere);
        assert_eq!(elsewhere.missing(), ["processors", "disks", "page cache", "power"]);
        assert_eq!((elsewhere.network_bytes(), elsewhere.sec), (Some(100 + 200), 2.0));
        assert!(elsewhere.joules_of.is_empty() && elsewhere.device("dm-0").is_none());
    }

    #[test]
    fn work_is_watched_from_its_begin_to_its_end() {
        let start = Reading::now();
        let before_sec = start.at_sec;
        let (answer, done) = during(start, || 7);
        assert_eq!(answer, 7);
        assert!((0.0..=at_sec() - before_sec).contains(&done.sec), "{done:?}");
    }

    #[test]
    fn this_machine_has_processors_and_a_page_cache() {
        let before = Reading::now();
        let done = Reading::now().since(&before);
        assert!(done.cores.is_some_and(|cores| !cores.is_empty()));
        assert!(done.page_cache_bytes.is_some_and(|bytes| bytes > 0));
    }
}
