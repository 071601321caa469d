//! The parts of a window while a target is measured, outside of the allocator that tells what the target holds.
//!
//! A window of an hour has thousands of parts, each with the counts of all disks and interfaces. On the heap they would
//! count as memory of a target in this process.
//!
//! 1. Each part goes to a file in memory, which has no name, and which this process does not map.
//! 2. The sums that a window needs until it ends stay on the heap, and are freed with its end.
//! 3. The parts are read back once memory was read for the last time.

use std::fs::File;
use std::io::{Read, Seek, Write};

use nix::sys::memfd::{MFdFlags, memfd_create};
use serde_json::json;

use crate::meters::machine::MachineUse;
use crate::run::measurement::Sample;

/// The parts of a window, in their order.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    file: Option<File>,
    /// Parts that the file does not take, as where the kernel has none to give. All later ones are here, too.
    others: Vec<Sample>,
    /// Operations per second of each part.
    throughputs: Vec<f64>,
    whole: Option<MachineUse>,
}

impl Samples {
    pub(crate) fn new() -> Self {
        let file = memfd_create("samples", MFdFlags::MFD_CLOEXEC).ok();
        Samples { file: file.map(File::from), ..Samples::default() }
    }

    pub(crate) fn push(&mut self, sample: Sample) {
        self.throughputs.push(sample.operations as f64 / sample.machine.sec.max(1e-9));
        self.whole = MachineUse::joined(self.whole.iter().chain([&sample.machine]));
        if !self.others.is_empty() || !self.is_written(&sample) {
            self.others.push(sample);
        }
    }

    fn is_written(&mut self, sample: &Sample) -> bool {
        let line = json!(sample).to_string() + "\n";
        self.file.as_mut().is_some_and(|file| file.write_all(line.as_bytes()).is_ok())
    }

    /// Operations per second of each part, until the window ends.
    pub(crate) fn throughputs(&self) -> &[f64] {
        &self.throughputs
    }

    /// What the machine did in all parts, until the window ends.
    pub(crate) fn whole(&self) -> Option<&MachineUse> {
        self.whole.as_ref()
    }

    /// Frees what nobody asks for after the end of the window.
    pub(crate) fn ended(self) -> Self {
        Samples { file: self.file, others: self.others, ..Samples::default() }
    }

    /// All parts, on the heap.
    pub(crate) fn read(self) -> Vec<Sample> {
        let mut lines = Vec::new();
        if let Some(mut file) = self.file {
            // A file in memory is read as it was written.
            let _ = file.rewind().and_then(|()| file.read_to_end(&mut lines));
        }
        // The last line may be cut short: that part is among the others.
        let written =
            lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Sample>(line).ok());
        written.chain(self.others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meters::machine::DiskUse;

    fn sample(operations: u64) -> Sample {
        let disk = DiskUse { reads: operations, busy: 0.5, ..DiskUse::default() };
        let disks = Some([("vda".to_owned(), disk)].into());
        Sample { operations, machine: MachineUse { sec: 0.5, disks, ..MachineUse::default() } }
    }

    /// Thousands of parts took some megabytes of the heap, which counted as memory of the target.
    #[test]
    fn the_parts_of_a_window_lie_outside_of_the_heap_until_they_are_read() {
        let mut samples = Samples::new();
        let all: Vec<Sample> = (0..4_000).map(sample).collect();
        all.iter().cloned().for_each(|one| samples.push(one));
        assert_eq!((samples.throughputs().len(), samples.throughputs()[3]), (4_000, 6.0));
        assert_eq!(samples.whole().map(|whole| whole.sec), Some(2_000.0));
        let samples = samples.ended();
        assert_eq!((samples.others.capacity(), samples.throughputs.capacity()), (0, 0));
        assert_eq!(samples.whole(), None);
        assert_eq!(samples.read(), all);
    }

    #[test]
    fn no_part_is_lost_where_the_kernel_has_no_room() {
        let mut samples = Samples::new();
        samples.push(sample(1));
        // Nobody can write to it, and half of a line stands in it.
        let mut file = samples.file.take().unwrap();
        file.write_all(b"{\"operations\":2").unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        samples.file = Some(File::open(path).unwrap());
        (2..4).for_each(|operations| samples.push(sample(operations)));
        assert_eq!(samples.others.len(), 2);
        assert_eq!(samples.read(), [1, 2, 3].map(sample));
    }
}
