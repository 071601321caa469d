//! The limit of open files, checked before anything starts. Each connection to a server takes one file.
//!
//! A process has a soft limit, which is in force, and a hard limit, up to which it may raise the soft one. The process
//! of a run raises it by the function that [`serve_child`](crate::serve_child) gets, so the hard limit alone counts
//! here.

use nix::sys::resource::{Resource, getrlimit};

use crate::error::Error;
use crate::results::table::grouped;
use crate::run::spec::RunSpec;
use crate::workload::pace::Pace;

/// Files of a run beside those of its connections: the corpus, results, figures of the system.
const OTHER_FILES: u64 = 64;

/// The most files that this process, and each one that it starts, may have open.
fn open_files_max() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(_soft, hard)| hard)
}

/// Refuses a run with more connections to a server than this process may have files.
pub(crate) fn check_run(spec: &RunSpec) -> Result<(), Error> {
    check_within(spec, open_files_max())
}

fn check_within(spec: &RunSpec, open_files_max: u64) -> Result<(), Error> {
    // Each thread has a connection of its own for loading, and waits for several by one more file.
    let several = spec.connections.map_or(0, |connections| connections + spec.threads);
    let (what, given) = match (spec.connections, spec.pace) {
        (Some(connections), _) => ("--connections", connections),
        (None, Pace::Saturated(threads_max)) => ("--saturate", threads_max),
        (None, _) => ("--threads", spec.threads),
    };
    check_files(what, given, several + spec.threads_max(), open_files_max)
}

/// Refuses so many clients of a server in this process.
pub(crate) fn check_clients(clients: u64) -> Result<(), Error> {
    check_files("--connections", clients, clients, open_files_max())
}

fn check_files(what: &'static str, given: u64, files: u64, open_files_max: u64) -> Result<(), Error> {
    let needed = files + OTHER_FILES;
    if needed <= open_files_max {
        return Ok(());
    }
    let [needed, most] = [needed, open_files_max].map(|files| grouped(files as f64, 0));
    let expected = format!(
        "this needs {needed} open files, and the hard limit of this process is {most}; give fewer, or raise the limit \
         with `ulimit -Hn` as root, LimitNOFILE of systemd, or --ulimit nofile of a container"
    );
    Err(Error::invalid(what, given.to_string(), expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_more_connections_than_files_is_refused() {
        let spec = |threads, connections, pace| RunSpec {
            threads,
            connections,
            pace,
            ..RunSpec::new("redis://127.0.0.1", "log")
        };
        let usual = RunSpec::new("", "log").pace;
        for (spec, files, expected) in [
            (spec(4, Some(1_000), usual), 1_000 + 4 + 4, "bad --connections `1000`: this needs 1,072 open"),
            (spec(1_000, None, usual), 1_000, "bad --threads `1000`: this needs 1,064 open files"),
            (
                spec(1, None, Pace::Saturated(2_000)),
                2_000,
                "bad --saturate `2000`: this needs 2,064 open files",
            ),
        ] {
            assert!(check_within(&spec, files + OTHER_FILES).is_ok());
            let told = check_within(&spec, files + OTHER_FILES - 1).unwrap_err();
            assert_eq!(told.exit_status(), 2);
            assert!(told.to_string().starts_with(expected), "{told}");
        }
        assert!(check_run(&spec(1, None, usual)).is_ok());
    }
}
