//! Meters: memory held, resident memory, CPU time and context switches of this process, and what the machine did.

mod energy;
mod kernel;
pub(crate) mod machine;

use std::fs;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::{Deserialize, Serialize};

/// Functions of the program that owns the allocator.
#[derive(Debug, Clone, Copy)]
pub struct Meters {
    /// Bytes in pages that the allocator has in use now ("active" in jemalloc's terms): what the data costs, with
    /// size classes and fragmentation.
    pub held_bytes: fn() -> u64,
    /// The work of modelled devices in this process.
    pub modelled: fn() -> ModelledWork,
    /// An empty vector with room for so many bytes: for the text that values are cut from, which workers read at
    /// random. On huge pages, their processor looks up fewer addresses. That time is the harness's, and not the
    /// target's.
    pub room: fn(usize) -> Vec<u8>,
}

impl Default for Meters {
    /// No figures of an allocator, and memory as it comes.
    fn default() -> Self {
        Meters { held_bytes: || 0, modelled: ModelledWork::default, room: Vec::with_capacity }
    }
}

/// The work of modelled devices. They run on the measured processors, so their own time is subtracted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelledWork {
    /// Jobs that had a time to be completed at.
    pub jobs: u64,
    /// Jobs that the model completed too late.
    pub late_jobs: u64,
    /// By how much together, in seconds.
    pub late_sec: f64,
    /// CPU time of the models.
    pub cpu_sec: f64,
    /// Bytes of answers that the models keep now, outside the allocator.
    pub memo_bytes: u64,
}

impl ModelledWork {
    /// The sum of the work of models in two places.
    pub fn plus(self, other: ModelledWork) -> ModelledWork {
        ModelledWork {
            jobs: self.jobs + other.jobs,
            late_jobs: self.late_jobs + other.late_jobs,
            late_sec: self.late_sec + other.late_sec,
            cpu_sec: self.cpu_sec + other.cpu_sec,
            memo_bytes: self.memo_bytes + other.memo_bytes,
        }
    }

    pub(crate) fn since(self, before: ModelledWork) -> ModelledWork {
        ModelledWork {
            jobs: self.jobs - before.jobs,
            late_jobs: self.late_jobs - before.late_jobs,
            late_sec: self.late_sec - before.late_sec,
            cpu_sec: self.cpu_sec - before.cpu_sec,
            memo_bytes: self.memo_bytes,
        }
    }
}

/// Memory at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) held_bytes: u64,
    pub(crate) rss_bytes: u64,
}

/// Memory now less memory then. Memory freed meanwhile gives a negative number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// Allocator bytes, or those of the target's files; nothing if the target does not tell these any more.
    pub held_bytes: Option<i64>,
    /// Resident bytes.
    pub rss_bytes: i64,
}

impl Meters {
    pub(crate) fn memory(&self) -> Memory {
        Memory { held_bytes: (self.held_bytes)(), rss_bytes: rss_bytes() }
    }
}

impl Memory {
    pub(crate) fn since(self, before: Memory) -> Growth {
        Growth {
            held_bytes: Some(self.held_bytes as i64 - before.held_bytes as i64),
            rss_bytes: self.rss_bytes as i64 - before.rss_bytes as i64,
        }
    }
}

/// `VmRSS` of this process; 0 where the system does not tell.
fn rss_bytes() -> u64 {
    rss_of(&fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// `VmRSS` in what `/proc/PID/status` says.
pub(crate) fn rss_of(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) << 10
}

/// CPU time and context switches of all threads of this process.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Seconds in user mode.
    pub user_sec: f64,
    /// Seconds in the kernel.
    pub sys_sec: f64,
    /// Context switches because a thread waited.
    pub ctx_switches_voluntary: u64,
    /// Context switches because a thread was interrupted.
    pub ctx_switches_involuntary: u64,
    /// The largest resident size so far, in bytes; no difference.
    pub max_rss_bytes: u64,
}

impl Usage {
    /// Totals up to now.
    pub fn now() -> Self {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
            return Usage::default();
        };
        Usage {
            user_sec: usage.user_time().num_microseconds() as f64 * 1e-6,
            sys_sec: usage.system_time().num_microseconds() as f64 * 1e-6,
            ctx_switches_voluntary: usage.voluntary_context_switches().max(0) as u64,
            ctx_switches_involuntary: usage.involuntary_context_switches().max(0) as u64,
            max_rss_bytes: (usage.max_rss().max(0) as u64) << 10,
        }
    }

    pub(crate) fn since(self, before: Usage) -> Usage {
        Usage {
            user_sec: self.user_sec - before.user_sec,
            sys_sec: self.sys_sec - before.sys_sec,
            ctx_switches_voluntary: self.ctx_switches_voluntary - before.ctx_switches_voluntary,
            ctx_switches_involuntary: self.ctx_switches_involuntary - before.ctx_switches_involuntary,
            max_rss_bytes: self.max_rss_bytes,
        }
    }

    /// Seconds of CPU.
    pub fn cpu_sec(&self) -> f64 {
        self.user_sec + self.sys_sec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_uses_cpu_and_memory() {
        let (before, rss) = (Usage::now(), rss_bytes());
        let filled: Vec<u64> = (0..4 << 20).collect();
        // As long as it takes: without a count of CPU time this never ends.
        while Usage::now().since(before).cpu_sec() <= 0.01 {
            std::hint::black_box(filled.iter().sum::<u64>());
        }
        assert!(rss_bytes() > rss + (16 << 20));
    }
}
