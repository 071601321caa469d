//! Far memory is bound to its nodes wherever the kernel allows the system call. Otherwise a service would take DRAM,
//! and say that its far memory is simulated.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;

use ziptier_alloc::page::FarKind;

use crate::support::{in_child_with, page_of};

/// A filter of system calls, as a service has it, and parents that do not wait for their children.
fn as_service(command: &mut Command) {
    let filtered = || {
        let mut allow = libc::sock_filter {
            code: (libc::BPF_RET | libc::BPF_K) as u16,
            jt: 0,
            jf: 0,
            k: libc::SECCOMP_RET_ALLOW,
        };
        let program = libc::sock_fprog { len: 1, filter: &mut allow };
        // SAFETY: the calls take numbers, or a pointer to a local variable.
        let failed = unsafe {
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
        };
        if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure makes system calls alone.
    unsafe { command.pre_exec(filtered) };
}

#[test]
fn in_a_service_that_ignores_the_end_of_children() {
    if !Path::new("/sys/devices/system/node/node0").exists() {
        return ziptier_testing::not_run("mbind", "take a kernel with NUMA");
    }
    let name = "far_memory_lies_on_its_nodes::in_a_service_that_ignores_the_end_of_children";
    in_child_with(name, "far=node:0", as_service, || {
        let kind = page_of(std::process::id()).told.far_kind.load(Relaxed);
        assert_eq!(FarKind::of_number(kind), FarKind::Nodes);
    });
}
