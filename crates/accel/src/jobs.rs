//! The pool of a thread's jobs. Each job has a completion record, room for engine state, an input and an output buffer.
//!
//! The pool is one piece of memory, allocated once. Jobs never use buffers of a caller, because a device may write to
//! them long after the caller has given up. A job that did not end in time keeps its buffers until it ends. If it never
//! ends, the pool's memory is never freed.

use crate::aecs::{CompressState, DecompressState, FilterState, Histogram};
use crate::completion::{CompletionRecord, Outcome};
use crate::memory::{PAGE_BYTES, Pages};

/// A cache line, and the alignment of every buffer.
const LINE_BYTES: usize = 64;

/// Room for the largest state, or a pair of those of compress.
const STATE_BYTES: usize = DecompressState::BYTES;

const _: () = assert!(2 * CompressState::BYTES <= STATE_BYTES);

/// The addresses of the parts of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) completion: u64,
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) state: u64,
    pub(crate) histogram: u64,
}

/// A type of state: plain bytes, so that any bytes that a device writes are a valid value.
pub(crate) trait StateBytes {}
impl StateBytes for [CompressState; 2] {}
impl StateBytes for CompressState {}
impl StateBytes for DecompressState {}
impl StateBytes for FilterState {}

/// The first byte of a part that lies in the page of an address.
pub(crate) fn first_in_page((start, end): (u64, u64), address: u64) -> Option<u64> {
    let page = address & !(PAGE_BYTES as u64 - 1);
    let first = start.max(page);
    (first < end && first - page < PAGE_BYTES as u64).then_some(first)
}

/// Memory of a fixed number of jobs.
pub(crate) struct JobPool {
    pages: Pages,
    jobs: usize,
    stride: usize,
    input_bytes: usize,
    output_bytes: usize,
}

impl JobPool {
    pub(crate) fn new(jobs: usize, input_bytes: usize, output_bytes: usize) -> JobPool {
        let input_bytes = input_bytes.max(1).next_multiple_of(LINE_BYTES);
        let output_bytes = output_bytes.max(1).next_multiple_of(LINE_BYTES);
        let bytes = STATE_BYTES + Histogram::BYTES + input_bytes + output_bytes;
        // The stride is an odd number of lines, so that the same buffer of all jobs does not fall into the same few
        // sets of a cache.
        let stride = LINE_BYTES * ((bytes / LINE_BYTES) | 1);
        let pages = Pages::new(jobs * (LINE_BYTES + stride));
        JobPool { pages, jobs, stride, input_bytes, output_bytes }
    }

    pub(crate) fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    pub(crate) fn output_bytes(&self) -> usize {
        self.output_bytes
    }

    /// Pages that a job's parts lie in.
    pub(crate) fn pages_of_job(&self) -> u32 {
        // Neither the parts nor the record of a job need begin at a page.
        (self.stride / PAGE_BYTES + 3) as u32
    }

    /// Brings the page of an address back after a page fault of a job. `false` if no part of the job lies in that page.
    ///
    /// # Safety
    ///
    /// See [`clear`](Self::clear).
    pub(crate) unsafe fn touch(&self, job: usize, address: u64, for_write: bool) -> bool {
        let base = self.state_at(job).addr() as u64;
        let record = self.record(job).addr() as u64;
        let own = [(base, base + self.stride as u64), (record, record + LINE_BYTES as u64)];
        let Some(byte) = own.into_iter().find_map(|part| first_in_page(part, address)) else { return false };
        // SAFETY: the byte belongs to the job, which is not under way.
        unsafe { self.pages.touch(byte, for_write) };
        true
    }

    fn record(&self, job: usize) -> *mut CompletionRecord {
        assert!(job < self.jobs);
        self.pages.at(job * LINE_BYTES).cast()
    }

    fn base(&self, job: usize) -> usize {
        assert!(job < self.jobs);
        self.jobs * LINE_BYTES + job * self.stride
    }

    fn state_at(&self, job: usize) -> *mut u8 {
        self.pages.at(self.base(job))
    }

    fn histogram_at(&self, job: usize) -> *mut u8 {
        self.pages.at(self.base(job) + STATE_BYTES)
    }

    fn input_at(&self, job: usize) -> *mut u8 {
        self.pages.at(self.base(job) + STATE_BYTES + Histogram::BYTES)
    }

    fn output_at(&self, job: usize) -> *mut u8 {
        self.pages.at(self.base(job) + STATE_BYTES + Histogram::BYTES + self.input_bytes)
    }

    /// The addresses that a descriptor of this job may name.
    pub(crate) fn addresses(&self, job: usize) -> Addresses {
        let address = |place: *mut u8| place.expose_provenance() as u64;
        Addresses {
            completion: address(self.record(job).cast()),
            input: address(self.input_at(job)),
            output: address(self.output_at(job)),
            state: address(self.state_at(job)),
            histogram: address(self.histogram_at(job)),
        }
    }

    /// Makes the completion record ready.
    ///
    /// # Safety
    ///
    /// The job is not under way; the same holds for the buffers below.
    pub(crate) unsafe fn clear(&mut self, job: usize) {
        // SAFETY: the record lies in the pool, and only the device of a job under way would write to it.
        unsafe { (*self.record(job)).clear() };
    }

    /// The outcome, once the job has ended.
    pub(crate) fn poll(&self, job: usize) -> Option<Outcome> {
        // SAFETY: the record lies in the pool; while a job is under way only its device writes to it.
        unsafe { CompletionRecord::poll(self.record(job)) }
    }

    /// # Safety
    ///
    /// See [`clear`](Self::clear).
    pub(crate) unsafe fn input_mut(&mut self, job: usize) -> &mut [u8] {
        // SAFETY: the buffer lies in the pool and nobody else uses it.
        unsafe { std::slice::from_raw_parts_mut(self.input_at(job), self.input_bytes) }
    }

    /// # Safety
    ///
    /// See [`clear`](Self::clear).
    pub(crate) unsafe fn output(&self, job: usize, bytes: usize) -> &[u8] {
        assert!(bytes <= self.output_bytes);
        // SAFETY: the buffer lies in the pool and nobody writes to it.
        unsafe { std::slice::from_raw_parts(self.output_at(job), bytes) }
    }

    /// # Safety
    ///
    /// See [`clear`](Self::clear).
    pub(crate) unsafe fn output_mut(&mut self, job: usize, bytes: usize) -> &mut [u8] {
        assert!(bytes <= self.output_bytes);
        // SAFETY: the buffer lies in the pool and nobody else uses it.
        unsafe { std::slice::from_raw_parts_mut(self.output_at(job), bytes) }
    }

    /// # Safety
    ///
    /// See [`clear`](Self::clear).
    pub(crate) unsafe fn histogram(&self, job: usize) -> &Histogram {
        // SAFETY: the bytes lie in the pool at a line's beginning, and any bytes are a histogram.
        unsafe { &*self.histogram_at(job).cast() }
    }

    /// # Safety
    ///
    /// See [`clear`](Self::clear).
    pub(crate) unsafe fn state_mut<S: StateBytes>(&mut self, job: usize) -> &mut S {
        const { assert!(size_of::<S>() <= STATE_BYTES && align_of::<S>() <= LINE_BYTES) };
        // SAFETY: the bytes lie in the pool at a line's beginning, and any bytes are a state.
        unsafe { &mut *self.state_at(job).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_and_apart() {
        let pool = JobPool::new(3, 1000, 100);
        assert_eq!((pool.input_bytes(), pool.output_bytes()), (1024, 128));
        let mut parts: Vec<(u64, u64)> = (0..3)
            .flat_map(|job| {
                let at = pool.addresses(job);
                [
                    (at.completion, 64),
                    (at.state, 0x1500),
                    (at.histogram, 0x500),
                    (at.input, 1024),
                    (at.output, 128),
                ]
            })
            .collect();
        parts.sort_unstable();
        assert!(parts.iter().all(|(at, bytes)| at % 64 == 0 && at + bytes > 0));
        assert!(parts.is_sorted_by(|before, after| before.0 + before.1 <= after.0));
    }

    #[test]
    fn only_pages_of_the_job_are_touched() {
        let pool = JobPool::new(40, 9000, 64);
        let at = pool.addresses(20);
        // SAFETY: no job is under way.
        let touch = |address| unsafe { pool.touch(20, address, true) };
        assert!(touch(at.completion) && touch(at.input) && touch(at.output + 63));
        // A device may tell the page alone.
        assert!(touch(at.state & !4095) && touch((at.output + 63) & !4095));
        assert!(!touch(0) && !touch(at.state - 8192) && !touch(at.output + 8192) && !touch(u64::MAX));
    }

    #[test]
    fn what_the_device_writes_is_seen() {
        let mut pool = JobPool::new(2, 64, 64);
        // SAFETY: no job is under way.
        unsafe {
            pool.clear(1);
            pool.input_mut(1).fill(3);
            pool.state_mut::<FilterState>(1).set_low(9);
            assert_eq!(pool.output(1, 64), [0; 64]);
            assert_eq!(pool.histogram(1).literals()[0], 0);
        }
        assert_eq!(pool.poll(1), None);
        let outcome = Outcome::new(crate::Status::Success);
        let record = std::ptr::with_exposed_provenance_mut(pool.addresses(1).completion as usize);
        // SAFETY: the record is the pool's.
        unsafe { CompletionRecord::complete(record, &outcome) };
        assert_eq!((pool.poll(1), pool.poll(0)), (Some(outcome), None));
    }
}
