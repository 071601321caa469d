//! Which process a slot belongs to, and whether that process lives.

use core::fmt::Write;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::fixed_text::FixedText;

/// Bits of a word for the number, the start time and the program. Linux gives no process a number of 2^22 or more.
const PID_BITS: u32 = 22;
const STARTED_BITS: u32 = 16;
const PROGRAM_BITS: u32 = u64::BITS - PID_BITS - STARTED_BITS;

/// A process: its number, the lower bits of its start time in ticks since boot, and what tells its program from one
/// that it ran before by `exec`. Otherwise a number that is used again would be taken for the first process. One word
/// has room for all three, so that members change it at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: u32,
    /// 0 is unknown, as to a process that cannot read `/proc`.
    started: u16,
    /// 0 is unknown. Two programs of a process are the same here once in 67 million times.
    program: u32,
}

impl Identity {
    /// The calling process.
    pub(super) fn own() -> Identity {
        let pid = rustix::process::getpid().as_raw_nonzero().get() as u32;
        let status = Status::of(pid);
        Identity {
            pid,
            started: status.map_or(0, |status| status.started),
            program: status.map_or(0, |status| status.program),
        }
    }

    pub(super) const fn to_word(self) -> u64 {
        (self.program as u64) << (PID_BITS + STARTED_BITS)
            | (self.started as u64) << PID_BITS
            | self.pid as u64
    }

    /// The process of a word; 0 is none.
    pub(super) fn of_word(word: u64) -> Option<Identity> {
        let pid = (word & ((1 << PID_BITS) - 1)) as u32;
        let (started, program) = ((word >> PID_BITS) as u16, (word >> (PID_BITS + STARTED_BITS)) as u32);
        (word != 0).then_some(Identity { pid, started, program })
    }

    /// Whether the process lives and runs the same program. One whose status nobody may read counts as living.
    pub(super) fn is_alive(self) -> bool {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return false };
        if rustix::process::test_kill_process(pid) == Err(Errno::SRCH) {
            return false;
        }
        let Some(status) = Status::of(self.pid) else { return true };
        let is_same = |own: u32, seen: u32| own == seen || own == 0 || seen == 0;
        !status.has_ended
            && is_same(self.started.into(), status.started.into())
            && is_same(self.program, status.program)
    }
}

/// What `/proc/PID/stat` says of a process.
#[derive(Clone, Copy)]
struct Status {
    /// No thread is left, but the parent has not reaped the process.
    has_ended: bool,
    started: u16,
    program: u32,
}

impl Status {
    fn of(pid: u32) -> Option<Status> {
        let mut path = FixedText::<32>::new();
        write!(path, "/proc/{pid}/stat").ok()?;
        let file = rustix::fs::open(path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let mut buffer = [0; 1024];
        let bytes = rustix::io::read(&file, &mut buffer).ok()?;
        // The name of the program stands in parentheses and may hold any byte. Behind it come the state, as the 18th
        // field the number of threads, as the 20th the start time, and as the 26th the address of the stack.
        let end = buffer[..bytes].iter().rposition(|&byte| byte == b')')?;
        let mut fields = buffer[end + 1..bytes].trim_ascii().split(|&byte| byte == b' ');
        let state = fields.next()?;
        let threads = number(fields.nth(16)?)?;
        let started = number(fields.nth(1)?)? as u16;
        let program = program(number(fields.nth(5)?)?);
        // A first thread that ended before the others is a zombie, too.
        Some(Status { has_ended: matches!(state, b"Z" | b"X") && threads <= 1, started, program })
    }
}

fn number(field: &[u8]) -> Option<u64> {
    core::str::from_utf8(field).ok()?.parse().ok()
}

/// The kernel gives a program a stack at a random address. 0, where it does not tell the address, stays 0.
fn program(stack: u64) -> u32 {
    let hash = ((stack >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - PROGRAM_BITS)) as u32;
    if stack == 0 { 0 } else { hash.max(1) }
}
