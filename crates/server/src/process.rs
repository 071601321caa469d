//! Reads the system's figures about this process: memory, processor time, the limit on open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The Redis version whose commands and error words these are; clients decide by it what they may ask.
pub(crate) const COMPATIBLE_VERSION: &str = "7.0.15";

/// Resident memory; zeros where the system doesn't tell.
#[derive(Debug, Default)]
pub(crate) struct Resident {
    pub(crate) bytes: u64,
    /// The part that belongs to no file, such as heap and stacks.
    pub(crate) anonymous_bytes: u64,
}

/// Both figures of one reading, so that the part is never more than the whole.
pub(crate) fn resident() -> Resident {
    // Pages: size, resident, of which shared with files, and more.
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = statm.split_ascii_whitespace().skip(1).map_while(|field| field.parse::<u64>().ok());
    let (resident, of_files) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    let page_bytes = rustix::param::page_size() as u64;
    Resident { bytes: resident * page_bytes, anonymous_bytes: resident.saturating_sub(of_files) * page_bytes }
}

/// Resident memory that belongs to no file.
pub(crate) fn anonymous_bytes() -> u64 {
    resident().anonymous_bytes
}

/// Processor time used so far.
#[derive(Debug, Default)]
pub(crate) struct CpuSeconds {
    pub(crate) user: f64,
    pub(crate) system: f64,
}

/// Processor time of all threads, in the kernel's steps of 10 ms; zeros where the system doesn't tell.
pub(crate) fn cpu_seconds() -> CpuSeconds {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command's name may hold blanks; what follows its closing parenthesis does not.
    let Some((_, fields)) = stat.rsplit_once(')') else { return CpuSeconds::default() };
    let ticks =
        |index| fields.split_ascii_whitespace().nth(index).and_then(|field| field.parse::<f64>().ok());
    CpuSeconds { user: ticks(11).unwrap_or(0.0) / 100.0, system: ticks(12).unwrap_or(0.0) / 100.0 }
}

/// Allows this process as many open files as the system lets it have, and returns how many that are. A store needs one
/// for each segment: call it before one is opened.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    let in_force = if setrlimit(Resource::Nofile, raised).is_ok() { limit.maximum } else { limit.current };
    in_force.unwrap_or(u64::MAX)
}

/// Files that this process has open; 0 where the system doesn't tell.
pub(crate) fn open_files() -> u64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64)
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_tells() {
        // Some kernels count a few pages of each processor later, so the process needs many.
        let held = std::hint::black_box(vec![1_u8; 32 << 20]);
        let resident = super::resident();
        assert!((held.len() as u64 / 2..resident.bytes).contains(&resident.anonymous_bytes), "{resident:?}");
        drop(held);
        let start = super::cpu_seconds();
        while super::cpu_seconds().user + super::cpu_seconds().system <= start.user + start.system {}
        let file = std::fs::File::open("/proc/self/stat").unwrap();
        assert!((1..super::raise_open_files()).contains(&super::open_files()));
        drop(file);
    }
}
