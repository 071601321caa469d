//! Children of a process that measures a function: those that it starts, and those that it adopts.
//!
//! A process of a run is a subreaper: it becomes the parent of each daemon of its function. An adopted process that has
//! ended keeps its number until its parent waits for it, and numbers are few.
//!
//! 1. [`start`] starts a child, and [`wait`] waits for it. Nobody else does.
//! 2. [`Reaper`] waits for all other children that have ended, once a second. The kernel adds their CPU time to that of
//!    the ended children of this process, where [`work_of_child`] finds it.
//! 3. One lock keeps these apart. So no reading misses a process or counts it twice.

use std::collections::BTreeSet;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::sys::prctl::get_child_subreaper;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::servers::process::{children_of, is_busy_below, is_tree_busy, work_below, work_of_tree};

/// Often enough for the smallest usual number of processes, 32,768, and too seldom to be seen in a figure.
const WAIT_EVERY: Duration = Duration::from_secs(1);

/// Children that this process has started, and has not waited for.
static STARTED: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn started() -> MutexGuard<'static, BTreeSet<u32>> {
    STARTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a child that [`wait`] waits for.
pub(crate) fn start(command: &mut Command) -> io::Result<Child> {
    let mut started = started();
    let child = command.spawn()?;
    started.insert(child.id());
    Ok(child)
}

/// Waits until a child has ended.
pub(crate) fn wait(mut child: Child) -> io::Result<ExitStatus> {
    let status = child.wait();
    started().remove(&child.id());
    status
}

/// A child of this process and all that descend from it: their CPU seconds so far, with those of children that have
/// ended, and their resident bytes. Daemons that descend from it count if this process adopts them. A process that
/// adopts daemons has started no other child. Nothing if the child has ended.
pub(crate) fn work_of_child(pid: u32) -> Option<(f64, u64)> {
    let _no_wait = started();
    let own = work_of_tree(pid)?;
    if adopts() { work_below(std::process::id()) } else { Some(own) }
}

/// Whether a child of this process, or one that descends from it, has a thread that is ready to run or waits for a
/// disk. Daemons count as in [`work_of_child`].
pub(crate) fn is_child_busy(pid: u32) -> bool {
    if adopts() { is_busy_below(std::process::id()) } else { is_tree_busy(pid) }
}

fn adopts() -> bool {
    matches!(get_child_subreaper(), Ok(true))
}

/// A thread that waits for adopted processes which have ended. It ends with this.
#[derive(Debug)]
pub(crate) struct Reaper {
    _ends: Sender<()>,
}

impl Reaper {
    /// Nothing if this process adopts none.
    pub(crate) fn start() -> Option<Self> {
        let (ends, end) = channel();
        adopts().then(|| {
            thread::spawn(move || {
                while end.recv_timeout(WAIT_EVERY) == Err(RecvTimeoutError::Timeout) {
                    wait_for_adopted();
                }
            });
            Reaper { _ends: ends }
        })
    }
}

/// Waits for all adopted processes that have ended.
fn wait_for_adopted() {
    let started = started();
    for child in children_of("self") {
        if !u32::try_from(child).is_ok_and(|pid| started.contains(&pid)) {
            // One that has not ended is left alone.
            let _ = waitpid(Pid::from_raw(child), Some(WaitPidFlag::WNOHANG));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use nix::sys::prctl::set_child_subreaper;

    use super::*;

    fn has_ended(pid: i32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('Z'))
    }

    /// Each daemon that is left works for so long that no processor does it within the steps of the clock, and ends.
    #[test]
    fn daemons_that_have_ended_are_waited_for_and_their_work_stays() {
        set_child_subreaper(true).unwrap();
        let busy = "i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done";
        let script = format!("for n in 1 2 3; do (sh -c '{busy}' &); done; read line; exit 7");
        let mut child = start(Command::new("sh").args(["-c", &script]).stdin(Stdio::piped())).unwrap();
        let own = child.id();
        let ended = || children_of("self").filter(|child| has_ended(*child)).count();
        ziptier_testing::until("three daemons have ended", || ended() == 3);
        let (before_sec, _) = work_of_child(own).unwrap();
        wait_for_adopted();
        assert_eq!(children_of("self").collect::<Vec<_>>(), [own as i32]);
        let (after_sec, _) = work_of_child(own).unwrap();
        // Each time of each process is rounded down to a hundredth.
        assert!((before_sec..before_sec + 0.08).contains(&(after_sec + 1e-6)), "{before_sec} {after_sec}");
        assert!(before_sec > 0.05, "{before_sec}");

        // Only the reaper's thread waits for this one.
        let reaper = Reaper::start();
        assert!(reaper.is_some());
        let again = start(Command::new("sh").args(["-c", "(true &)"])).unwrap();
        assert!(wait(again).unwrap().success());
        ziptier_testing::until("the reaper has waited", || children_of("self").count() == 1);

        // The exit status of a started child is for its own waiter.
        drop(child.stdin.take());
        ziptier_testing::until("the child has ended", || has_ended(own as i32));
        wait_for_adopted();
        assert_eq!(wait(child).unwrap().code(), Some(7));
        set_child_subreaper(false).unwrap();
        assert!(Reaper::start().is_none());
    }
}
