//! A host forks while jobs are under way. A queue belongs to the process that opened it, and a device writes to that
//! process's pages. A child that submitted, polled or freed jobs would crash or wait for ever.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod scripted;

use std::sync::Arc;
use std::time::Duration;

use scripted::{Answer, Scripted, put_output, success};
use ziptier_accel::{
    Codes, Descriptor, Device, Guarded, Home, JobError, Limits, Operation, Session, SubmitError,
};

const COMPRESS: Operation = Operation::Compress { codes: Codes::Fixed, verify: false };

/// Whether `what` holds in a forked child. A crash of the child counts as `false`.
fn child_finds(what: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls what is given, none of which another thread may hold a lock of, and ends.
    match unsafe { libc::fork() } {
        -1 => panic!("{}", std::io::Error::last_os_error()),
        // SAFETY: the child ends here, without the parent's handlers.
        0 => unsafe { libc::_exit(i32::from(!what())) },
        child => {
            let mut status = 0;
            // SAFETY: the child is ours.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            status == 0
        }
    }
}

#[test]
fn a_child_is_told_and_the_parent_goes_on() {
    let device = Scripted::new(|_| Answer::Runs);
    let time_max = Duration::from_secs(100_000);
    let limits = Limits { jobs: 4, source_bytes_max: 5000, output_bytes_max: 5000, time_max };
    let queue = Arc::new(Guarded::new(device.clone()));
    // With a queue that does not look, the session does.
    for queue in [queue.clone() as Arc<dyn Device>, device.clone()] {
        let mut session = Some(Session::new(vec![queue], limits));
        session.as_mut().unwrap().submit(&COMPRESS, 1, &[3; 5000], 5000).unwrap();
        let is_told = child_finds(|| {
            let mut inherited = session.take().unwrap();
            let refused = inherited.submit(&COMPRESS, 2, b"block", 100);
            let mut ended = Vec::new();
            inherited.reap_all(|tag, result| ended.push((tag, matches!(result, Err(JobError::NoQueue(_))))));
            drop(inherited);
            matches!(refused, Err(JobError::NoQueue(_))) && ended == [(1, true)]
        });
        assert!(is_told);
        let mut session = session.unwrap();
        put_output(&device.running.lock().unwrap()[0], b"output");
        device.end_oldest(&success(6));
        session.reap_all(|tag, result| assert_eq!((tag, result.unwrap().output), (1, &b"output"[..])));
    }
    let descriptor = Descriptor::from_bytes([0; 64]);
    // SAFETY: nobody executes the descriptor.
    let submits = || unsafe { queue.submit(&descriptor) };
    assert!(child_finds(|| matches!(submits(), Err(SubmitError::Lost(_))) && queue.is_lost()));
    assert!(submits().is_ok());
}

#[test]
fn every_process_has_its_own_home() {
    let home = Home::here();
    assert!(child_finds(|| {
        let own = Home::here();
        !home.is_here() && own != home && own.is_here() && child_finds(|| !own.is_here() && !home.is_here())
    }));
    assert!(home.is_here());
}
