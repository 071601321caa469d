//! Several batches of one context side by side.
//!
//! A [context](BlockCodec) gives the jobs of all batches back together, in any order, to any caller of `reap`.
//! [`Batches`] hands each job to its owner. An owner begins jobs, continues with other work, which may begin more jobs,
//! and finishes each job when it needs the result.

use super::{BlockCodec, Done, Job, Task};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Submissions between two calls of `reap`. A job that takes a device several steps takes its next step in such a call.
const JOBS_PER_LOOK: usize = 8;

/// Calls of `reap` in a row before the thread yields the processor: some microseconds.
const SPINS: u32 = 64;

/// The slot for the result of a job.
type Place = Mutex<Option<Done>>;

/// A job that was begun. Dropping it gives the job up: the job ends like any other, and its result is discarded.
#[derive(Debug)]
pub struct Begun(Arc<Place>);

impl Begun {
    fn take(&self) -> Option<Done> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The jobs that a context has under way, each with the slot of its owner.
#[derive(Debug, Default)]
pub struct Batches {
    /// By tag.
    owners: Vec<Option<Weak<Place>>>,
    under_way: usize,
    ended: Vec<Done>,
}

impl Batches {
    /// Submits a job, and reaps ended jobs now and then. When the queue is full, it waits until half of the jobs have
    /// ended.
    pub fn begin(
        &mut self,
        codec: &mut dyn BlockCodec,
        task: Task,
        input: Vec<u8>,
        output: Vec<u8>,
    ) -> Begun {
        let begun = Begun(Arc::default());
        let free = self.owners.iter().position(Option::is_none).unwrap_or(self.owners.len());
        let mut job = Some(Job { tag: free as u64, task, input, output });
        while let Some(waiting) = job.take() {
            job = codec.submit(waiting).err();
            if job.is_some() {
                let half = self.under_way / 2;
                self.reap_until(codec, |own| own.under_way <= half);
            }
        }
        if free == self.owners.len() {
            self.owners.push(None);
        }
        self.owners[free] = Some(Arc::downgrade(&begun.0));
        self.under_way += 1;
        if self.under_way.is_multiple_of(JOBS_PER_LOOK) {
            self.reap(codec);
        }
        begun
    }

    /// Reaps without waiting. Ended jobs go to their owners, and jobs of several steps take the next step.
    pub fn reap(&mut self, codec: &mut dyn BlockCodec) {
        codec.reap(&mut self.ended, false);
        for done in self.ended.drain(..) {
            let owner = self.owners.get_mut(done.job.tag as usize).and_then(Option::take);
            self.under_way -= 1;
            if let Some(place) = owner.expect("an engine gives every job back once").upgrade() {
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
            }
        }
    }

    /// Waits for a job and returns its result. Other jobs continue meanwhile.
    ///
    /// # Panics
    ///
    /// If the engine loses the job, or the job belongs to another context.
    pub fn finish(&mut self, codec: &mut dyn BlockCodec, begun: Begun) -> Done {
        let mut done = begun.take();
        if done.is_none() {
            self.reap_until(codec, |_| {
                done = begun.take();
                done.is_some()
            });
        }
        done.expect("an engine gives every job back")
    }

    /// Jobs under way.
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Reaps until `enough` is true or no job is left. It spins at first, then yields the processor.
    fn reap_until(&mut self, codec: &mut dyn BlockCodec, mut enough: impl FnMut(&Self) -> bool) {
        let mut rounds = 0;
        loop {
            self.reap(codec);
            if enough(self) || self.under_way == 0 {
                return;
            }
            match rounds {
                ..SPINS => std::hint::spin_loop(),
                _ => std::thread::yield_now(),
            }
            rounds += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BlockError, run_job};

    /// Takes three jobs, and ends one, the last first, on every second call of `reap`.
    #[derive(Default)]
    struct Held(Vec<Job>, u32);

    impl BlockCodec for Held {
        fn compress(&mut self, raw: &[u8], out: &mut Vec<u8>, _: usize) -> Result<Option<usize>, BlockError> {
            out.extend_from_slice(raw);
            Ok(Some(raw.len()))
        }

        fn decompress(&mut self, packed: &[u8], out: &mut Vec<u8>, _: usize) -> Result<(), BlockError> {
            out.extend_from_slice(packed);
            Ok(())
        }

        fn submit(&mut self, job: Job) -> Result<(), Job> {
            if self.0.len() == 3 {
                return Err(job);
            }
            self.0.push(job);
            Ok(())
        }

        fn reap(&mut self, done: &mut Vec<Done>, _: bool) {
            self.1 += 1;
            if self.1.is_multiple_of(2)
                && let Some(job) = self.0.pop()
            {
                done.push(run_job(self, job));
            }
        }
    }

    #[test]
    fn each_owner_gets_its_own_result_and_given_up_jobs_end_all_the_same() {
        let (mut batches, mut held) = (Batches::default(), Held::default());
        let begin = |batches: &mut Batches, held: &mut Held, number: u8| {
            batches.begin(held, Task::Compress { max_bytes: 9 }, vec![number; 3], vec![9])
        };
        let first = begin(&mut batches, &mut held, 1);
        drop(begin(&mut batches, &mut held, 2));
        let third = begin(&mut batches, &mut held, 3);
        assert_eq!(batches.under_way(), 3);
        // The queue is full.
        let fourth = begin(&mut batches, &mut held, 4);
        assert_eq!((batches.under_way(), held.0.len()), (2, 2));
        for (begun, number) in [(third, 3), (first, 1), (fourth, 4)] {
            assert_eq!(batches.finish(&mut held, begun).job.output, [9, number, number, number]);
        }
        assert_eq!(batches.under_way(), 0);
    }
}
