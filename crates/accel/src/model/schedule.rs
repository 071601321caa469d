//! Computes the time at which the modelled device would complete a job.

use super::options::{ModelOptions, Timing};
use crate::descriptor::Opcode;
use std::time::{Duration, Instant};

/// The engines of a device, each with the time at which it is free.
pub(super) struct Schedule {
    timing: Timing,
    engines: Vec<Instant>,
}

impl Schedule {
    pub(super) fn new(options: &ModelOptions, now: Instant) -> Option<Schedule> {
        Some(Schedule { timing: options.timing?, engines: vec![now; options.engines.max(1) as usize] })
    }

    /// The completion time of a job submitted at some time. The job takes the engine that is free first.
    pub(super) fn completion(
        &mut self,
        submitted: Instant,
        opcode: u8,
        raw_bytes: u64,
        waits: bool,
    ) -> Instant {
        let timing = &self.timing;
        let is_compression = opcode == Opcode::Compress as u8;
        let (gbps, latency, engines) = if is_compression {
            (timing.compress_gbps, timing.compress_latency, timing.compress_engines as usize)
        } else {
            (timing.decompress_gbps, timing.decompress_latency, usize::MAX)
        };
        let mut busy = Duration::from_nanos((raw_bytes as f64 / gbps) as u64);
        if waits {
            busy += timing.fault_latency;
        }
        let usable = self.engines.len().min(engines.max(1));
        let engine = self.engines[..usable].iter_mut().min();
        let Some(free) = engine else { return submitted + busy + latency };
        *free = submitted.max(*free) + busy;
        *free + latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_wait_for_an_engine() {
        let timing =
            Timing { decompress_gbps: 1.0, compress_gbps: 0.5, compress_engines: 1, ..Timing::default() };
        let options = ModelOptions { engines: 2, timing: Some(timing), ..ModelOptions::default() };
        let start = Instant::now();
        let mut schedule = Schedule::new(&options, start).unwrap();
        let (decompress, compress) = (Opcode::Decompress as u8, Opcode::Compress as u8);
        let mut after = |opcode, waits| schedule.completion(start, opcode, 1000, waits) - start;
        let micros = Duration::from_micros;
        assert_eq!([(); 3].map(|()| after(decompress, false)), [micros(2), micros(2), micros(3)]);
        assert_eq!(after(compress, false), micros(4) + Duration::from_nanos(1500));
        assert_eq!(after(decompress, true), micros(1 + 1 + 300 + 1));
        assert!(Schedule::new(&ModelOptions::default(), start).is_none());
    }
}
