//! Which process a slot belongs to, and whether that process lives.

use core::fmt::Write;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::fixed_text::FixedText;

/// A process: its number and the lower half of its start time in ticks since boot, so that a number that is used again
/// is not taken for the first process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: u32,
    started: u32,
}

impl Identity {
    /// The calling process.
    pub(super) fn own() -> Identity {
        let pid = rustix::process::getpid().as_raw_nonzero().get() as u32;
        Identity { pid, started: start_time(pid).unwrap_or(0) }
    }

    pub(super) const fn to_word(self) -> u64 {
        (self.started as u64) << 32 | self.pid as u64
    }

    /// The process of a word; 0 is none.
    pub(super) fn of_word(word: u64) -> Option<Identity> {
        (word != 0).then_some(Identity { pid: word as u32, started: (word >> 32) as u32 })
    }

    /// Whether the process lives. One whose start time nobody may read counts as living.
    pub(super) fn is_alive(self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return false };
        if rustix::process::test_kill_process(pid) == Err(Errno::SRCH) {
            return false;
        }
        start_time(self.pid).is_none_or(|started| started == self.started)
    }
}

/// The start time of a process, from `/proc/PID/stat`.
fn start_time(pid: u32) -> Option<u32> {
    let mut path = FixedText::<32>::new();
    write!(path, "/proc/{pid}/stat").ok()?;
    let file = rustix::fs::open(path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0; 1024];
    let bytes = rustix::io::read(&file, &mut buffer).ok()?;
    // The name of the program stands in parentheses and may hold any byte. The start time is the 20th field behind it.
    let end = buffer[..bytes].iter().rposition(|&byte| byte == b')')?;
    let field = buffer[end + 1..bytes].trim_ascii().split(|&byte| byte == b' ').nth(19)?;
    core::str::from_utf8(field).ok()?.parse::<u64>().ok().map(|ticks| ticks as u32)
}
