//! Shared code of the measuring examples: files, random order, CPU time.

use std::time::Duration;

/// A file, decompressed if zstd compressed it.
#[allow(dead_code, reason = "not every example reads files")]
pub(crate) struct File {
    /// Without folders, and without `.zst`.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// Reads files.
#[allow(dead_code, reason = "not every example reads files")]
pub(crate) fn read(paths: &[String]) -> std::io::Result<Vec<File>> {
    let read = |path: &String| {
        let bytes = std::fs::read(path)?;
        let bytes = if path.ends_with(".zst") { zstd::decode_all(&*bytes)? } else { bytes };
        let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".zst");
        Ok(File { name: name.to_owned(), bytes })
    };
    paths.iter().map(read).collect()
}

/// Random numbers from a seed (Knuth's linear congruential generator, the high half of it).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `limit`, which is above 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// The numbers below `count` in random order, as a store reads its records.
#[allow(dead_code, reason = "not every example reads")]
pub(crate) fn random_order(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut random = Random(1);
    for last in (1..count).rev() {
        order.swap(last, random.below(last + 1));
    }
    order
}

/// The least CPU time of several runs.
#[allow(dead_code, reason = "not every example takes time")]
pub(crate) fn best(runs: usize, mut run: impl FnMut()) -> Duration {
    let time = |run: &mut dyn FnMut()| {
        let begun = cpu_time();
        run();
        cpu_time() - begun
    };
    (0..runs).map(|_| time(&mut run)).min().unwrap_or_default()
}

/// CPU time of this thread.
#[allow(dead_code, reason = "not every example takes time")]
pub(crate) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
