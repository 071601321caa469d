//! Whether the process may bind memory to nodes.
//!
//! A service manager can forbid the system call by a filter that kills who makes it: Debian's service of Redis has such
//! a filter. No call tells what a filter forbids, so a child tries, and dies in the place of the program.

use libc::{c_int, pid_t};

/// Whether `mbind` can be called. For the time before the program has threads.
pub(crate) fn may_bind() -> bool {
    // SAFETY: the calls take numbers alone, or a pointer to a local variable.
    unsafe {
        if libc::prctl(libc::PR_GET_SECCOMP) == 0 {
            return true;
        }
        // A bare system call: handlers around a fork have no part in this. The child's end raises no signal: where a
        // process ignores SIGCHLD, the kernel does not tell it how a child that raises SIGCHLD has ended.
        let no_signal: c_int = 0;
        let child = libc::syscall(libc::SYS_clone, no_signal, 0, 0, 0, 0) as pid_t;
        if child == 0 {
            // The filter's signal would leave a file of the dead child.
            libc::prctl(libc::PR_SET_DUMPABLE, 0);
            libc::syscall(libc::SYS_mbind, 0, 0, 0, 0, 0, 0);
            libc::_exit(0);
        }
        let mut status = 0;
        child > 0 && libc::waitpid(child, &mut status, libc::__WALL) == child && libc::WIFEXITED(status)
    }
}
