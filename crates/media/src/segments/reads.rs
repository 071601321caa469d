//! Reading single bodies: in the caller's thread, by `io_uring`, or by a few threads.

use super::file::SegmentFile;
use super::format::{self, BLOCK_HEADER_BYTES, PAGE_BYTES};
use super::ring::Ring;
use super::{Place, SegmentError};
use crate::aligned::AlignedBytes;
use crate::disk::read_full_at;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Gets the body.
pub(super) type Done = Box<dyn FnOnce(Result<Vec<u8>, SegmentError>) + Send>;

/// One body to be read, with the pages around it.
pub(super) struct ReadJob {
    pub(super) file: Arc<SegmentFile>,
    pub(super) place: Place,
    /// The offset of the pages in the file.
    pub(super) start: u64,
    pub(super) pages: AlignedBytes,
}

impl ReadJob {
    /// A place that cannot lie in the file means damage: the caller's source of the place is wrong.
    pub(super) fn new(file: Arc<SegmentFile>, place: Place) -> Result<ReadJob, SegmentError> {
        if !file.has_written(place) {
            let reason =
                format!("a body of {} bytes was expected here, beyond the end of the segment", place.bytes);
            return Err(file.damaged(u64::from(place.offset), reason));
        }
        let start = u64::from(place.offset) / PAGE_BYTES * PAGE_BYTES;
        let end = (u64::from(place.offset) + place.block_bytes()).next_multiple_of(PAGE_BYTES);
        Ok(ReadJob { file, place, start, pages: AlignedBytes::zeroed((end - start) as usize) })
    }

    /// Reads and checks in this thread.
    pub(super) fn read(mut self) -> Result<Vec<u8>, SegmentError> {
        let count = read_full_at(&*self.file.file, self.start, &mut self.pages)
            .map_err(|error| SegmentError::of_read(error, self.file.path(), u64::from(self.place.offset)))?;
        self.verify(count)
    }

    /// The body, if the first `count` bytes of the pages were read and hold it.
    pub(super) fn verify(&self, count: usize) -> Result<Vec<u8>, SegmentError> {
        let offset = u64::from(self.place.offset);
        let at = (offset - self.start) as usize;
        let end = at + BLOCK_HEADER_BYTES + self.place.bytes as usize;
        if count < end {
            return Err(self.file.damaged(offset, "the file ends within the block"));
        }
        let (header, body) = self.pages[at..end].split_at(BLOCK_HEADER_BYTES);
        if header != format::encode_block_header(self.place.segment, offset, body) {
            return Err(self.file.damaged(offset, "the block fails its check"));
        }
        Ok(body.to_vec())
    }
}

/// A panic in a caller's `done` ends only that read, not the thread that serves all.
pub(super) fn deliver(done: Done, result: Result<Vec<u8>, SegmentError>) {
    let _ = catch_unwind(AssertUnwindSafe(|| done(result)));
}

/// The background reader. Dropping it waits for reads under way.
pub(super) enum Reader {
    Ring(Ring),
    Threads(Threads),
}

impl Reader {
    /// Starts `io_uring` if the kernel allows it, threads otherwise.
    pub(super) fn start(threads: usize) -> Reader {
        match Ring::start() {
            Some(ring) => Reader::Ring(ring),
            None => Reader::Threads(Threads::start(threads)),
        }
    }

    pub(super) fn submit(&self, job: ReadJob, done: Done) {
        match self {
            // A disk of a test has no descriptor.
            Reader::Ring(_) if job.file.file.descriptor().is_none() => deliver(done, job.read()),
            Reader::Ring(ring) => ring.submit(job, done),
            Reader::Threads(threads) => threads.submit(job, done),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Reader::Ring(_) => "io_uring",
            Reader::Threads(_) => "threads (the kernel offers no io_uring)",
        }
    }
}

/// A few threads that read one body after the other.
pub(super) struct Threads {
    queue: Arc<Queue>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    jobs: VecDeque<(ReadJob, Done)>,
    is_stopping: bool,
}

impl Threads {
    /// Starts as many threads as the system grants. Without threads, submitters read their own jobs.
    pub(super) fn start(count: usize) -> Threads {
        let queue = Arc::new(Queue::default());
        let start = |_| {
            let queue = queue.clone();
            std::thread::Builder::new().name("segment reader".to_string()).spawn(move || queue.serve()).ok()
        };
        let threads = (0..count).filter_map(start).collect();
        Threads { queue, threads }
    }

    pub(super) fn submit(&self, job: ReadJob, done: Done) {
        if self.threads.is_empty() {
            return deliver(done, job.read());
        }
        self.queue.state.lock().jobs.push_back((job, done));
        self.queue.changed.notify_one();
    }
}

impl Queue {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some((job, done)) = state.jobs.pop_front() {
                parking_lot::MutexGuard::unlocked(&mut state, || deliver(done, job.read()));
            } else if state.is_stopping {
                return;
            } else {
                self.changed.wait(&mut state);
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.queue.state.lock().is_stopping = true;
        self.queue.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::RealDisk;
    use crate::segments::{Purpose, SegmentOptions, Segments};
    use std::sync::mpsc::channel;

    fn body(i: usize) -> Vec<u8> {
        (0..1 + i * 37 % 9000).map(|at| (at * 7 + i) as u8).collect()
    }

    /// Every reader returns every body, many at once, and damage as an error.
    fn conforms(reader: &Reader) {
        let folder = tempfile::tempdir().unwrap();
        let options = SegmentOptions {
            segment_bytes: 1 << 20,
            write_bytes: 65536,
            limit_bytes: 1 << 23,
            ..SegmentOptions::default()
        };
        let segments = Segments::open(Arc::new(RealDisk), folder.path(), options).unwrap();
        let places: Vec<Place> = (0..600).map(|i| segments.append(&body(i), Purpose::New).unwrap()).collect();
        segments.close().unwrap();
        let (sender, receiver) = channel();
        let job = |place: Place| ReadJob::new(segments.shared.file(place.segment).unwrap(), place).unwrap();
        for (i, place) in places.iter().enumerate() {
            let sender = sender.clone();
            reader.submit(job(*place), Box::new(move |result| sender.send((i, result)).unwrap()));
        }
        for _ in &places {
            let (i, result) = receiver.recv().unwrap();
            assert_eq!(result.unwrap(), body(i), "body {i}");
        }
        let wrong = Place { bytes: places[3].bytes - 1, ..places[3] };
        reader.submit(job(wrong), Box::new(|_| panic!("a caller's panic")));
        reader.submit(job(wrong), Box::new(move |result| sender.send((0, result)).unwrap()));
        assert!(matches!(receiver.recv().unwrap().1, Err(SegmentError::Damaged { .. })));
    }

    #[test]
    fn threads_read_every_body() {
        conforms(&Reader::Threads(Threads::start(3)));
        conforms(&Reader::Threads(Threads::start(0)));
    }

    #[test]
    fn the_ring_reads_every_body() {
        match Ring::start() {
            Some(ring) => conforms(&Reader::Ring(ring)),
            None => ziptier_testing::not_run("io_uring", "allow the system call io_uring_setup"),
        }
    }

    /// Reads that were submitted are answered, even if the reader is dropped at once.
    #[test]
    fn dropping_a_reader_answers_all() {
        let folder = tempfile::tempdir().unwrap();
        let segments = Segments::open(Arc::new(RealDisk), folder.path(), SegmentOptions::default()).unwrap();
        let place = segments.append(&body(5), Purpose::New).unwrap();
        segments.sync().unwrap();
        let (sender, receiver) = channel();
        for _ in 0..500 {
            let sender = sender.clone();
            segments.read_later(place, move |result| sender.send(result).unwrap());
        }
        drop((segments, sender));
        assert_eq!(receiver.iter().filter(|result| *result == Ok(body(5))).count(), 500);
    }
}
