//! Injects faults into a modelled device, on purpose and reproducibly.

use crate::completion::{ErrorCode, Status};
use std::time::Duration;

/// One thing that can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfortune {
    /// The descriptor is not taken: the queue is full.
    QueueFull,
    /// An access at an offset in source 1, or in the destination for a write, faults. With
    /// [`BLOCK_ON_FAULT`](crate::descriptor::operation::BLOCK_ON_FAULT) the job waits for the page and continues.
    PageFault {
        /// Whether it was a write.
        is_write: bool,
        /// The offset in the buffer.
        offset: u32,
    },
    /// The job ends with this status and has written nothing.
    Status(Status),
    /// The job ends with this error in its data and has written nothing.
    Error(ErrorCode),
    /// The job does not end before the model is dropped. It then ends with a failure of the hardware.
    Stuck,
    /// The job ends after this many later ones have ended, or when there are no more. A synchronous model ends it at
    /// once.
    Late {
        /// How many.
        jobs: u32,
    },
}

/// The faults and their times. Jobs are counted from 0 in the order of submission. A job that is refused by chance or
/// plan counts; a job that finds the queue really full does not.
///
/// ```
/// use ziptier_accel::{Injection, Misfortune, Status};
///
/// let injection = Injection {
///     plan: vec![(3, Misfortune::Status(Status::Watchdog))],
///     one_in: vec![(100, Misfortune::QueueFull)],
///     ..Injection::default()
/// };
/// assert_eq!(injection.plan.len(), 1);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Injection {
    /// The seed of the random faults. The same seed gives the same faults.
    pub seed: u64,
    /// Faults of jobs by number.
    pub plan: Vec<(u64, Misfortune)>,
    /// Random faults of one in this many jobs. The first that applies counts.
    pub one_in: Vec<(u32, Misfortune)>,
    /// Addresses at which the first access faults, and whether only a write does.
    pub faulting: Vec<(u64, bool)>,
    /// How much longer every job takes.
    pub delay: Duration,
    /// After this many jobs the device is gone. It takes no more jobs, and those that it holds do not end before it is
    /// dropped.
    pub lost_after: Option<u64>,
}

/// The state of an injection.
#[derive(Debug)]
pub(super) struct Injector {
    injection: Injection,
    chance: u64,
    jobs: u64,
}

impl Injector {
    pub(super) fn new(injection: Injection) -> Injector {
        let chance = injection.seed;
        Injector { injection, chance, jobs: 0 }
    }

    pub(super) fn delay(&self) -> Duration {
        self.injection.delay
    }

    /// Whether the device is gone.
    pub(super) fn is_lost(&self) -> bool {
        self.injection.lost_after.is_some_and(|jobs| self.jobs >= jobs)
    }

    /// The fault of the next job.
    pub(super) fn next(&mut self) -> Option<Misfortune> {
        let job = self.jobs;
        self.jobs += 1;
        if let Some((_, planned)) = self.injection.plan.iter().find(|(number, _)| *number == job) {
            return Some(*planned);
        }
        for index in 0..self.injection.one_in.len() {
            let (jobs, misfortune) = self.injection.one_in[index];
            if jobs > 0 && self.random().is_multiple_of(u64::from(jobs)) {
                return Some(misfortune);
            }
        }
        None
    }

    /// The address at which an access to one of these ranges faults, which is then mapped, and whether it was a write.
    pub(super) fn fault(&mut self, ranges: &[(u64, u64, bool)]) -> Option<(u64, bool)> {
        let hits = |&(address, only_writes): &(u64, bool)| {
            let range = ranges.iter().find(|(begin, bytes, is_write)| {
                (*begin..begin.saturating_add(*bytes)).contains(&address) && (*is_write || !only_writes)
            });
            range.map(|(_, _, is_write)| (address, *is_write))
        };
        let place = self.injection.faulting.iter().position(|fault| hits(fault).is_some())?;
        hits(&self.injection.faulting.swap_remove(place))
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.chance;
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_the_same_for_a_seed_and_as_frequent_as_stated() {
        let run = |seed| {
            let one_in = vec![(10, Misfortune::QueueFull)];
            let mut injector = Injector::new(Injection { seed, one_in, ..Injection::default() });
            (0..10_000).map(|_| injector.next().is_some()).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        let hits = run(3).into_iter().filter(|hit| *hit).count();
        assert!((800..1200).contains(&hits), "{hits}");
    }

    #[test]
    fn an_address_faults_once() {
        let faulting = vec![(0x5000, true), (0x6000, false)];
        let mut injector = Injector::new(Injection { faulting, ..Injection::default() });
        let ranges = [(0x4000, 0x3000, false)];
        assert_eq!(injector.fault(&ranges), Some((0x6000, false)));
        assert_eq!(injector.fault(&ranges), None);
        assert_eq!(injector.fault(&[(0x4000, 0x3000, true)]), Some((0x5000, true)));
    }
}
