//! Batches on a device: jobs are submitted one after the other and run side by side, while their owner goes on.

use super::library::{COMPRESS, DECOMPRESS, Job, JobPath, LEVEL_DEFAULT, status};
use super::{EMPTY_STREAM, How, NAME, Outcome, Path, QplCoder, bound, sizes};
use crate::block::context::{Context, Failure};
use crate::block::{self, BlockCodec, BlockError, ContextCounters, Done, Task, run_job};
use crate::format::Format;

/// Jobs that a context has under way: each takes 190 KB of the library's memory.
const IN_FLIGHT_MAX: usize = 16;

/// A context whose batches are under way on the device.
pub(super) struct Batch<'a> {
    context: Context<'a, QplCoder<'a>>,
    how: How,
    path: JobPath,
    under_way: Vec<UnderWay>,
    free: Vec<Job>,
    done: Vec<Done>,
    counters: ContextCounters<'a>,
}

/// A job of the caller, and the library's that does it.
struct UnderWay {
    job: Job,
    /// Its buffers do not move while the device works with them, and the output has room reserved.
    own: block::Job,
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        context: Context<'a, QplCoder<'a>>,
        how: How,
        path: JobPath,
        counters: ContextCounters<'a>,
    ) -> Batch<'a> {
        let (under_way, free, done) = (Vec::new(), Vec::new(), Vec::new());
        Batch { context, how, path, under_way, free, done, counters }
    }

    /// Begins a job; one that the device does not take is given back.
    fn begin(&mut self, mut own: block::Job) -> Result<(), block::Job> {
        let job = self.free.pop().map_or_else(|| Job::new(self.path), Ok);
        let Ok(mut job) = job else { return Err(own) };
        let room = match own.task {
            Task::Compress { max_bytes } => max_bytes.min(bound(own.input.len())),
            Task::Decompress { raw_bytes } => raw_bytes,
        };
        let most = own.input.len().saturating_mul(4 * 258);
        let plain = room > 0 && own.input.len() > EMPTY_STREAM.len();
        if !plain || matches!(own.task, Task::Decompress { .. }) && room > most {
            return Err(own);
        }
        own.output.reserve(room);
        let target = &mut own.output.spare_capacity_mut()[..room];
        let Some((source, target)) = sizes(&own.input, target) else { return Err(own) };
        let (operation, flags, level) = match own.task {
            Task::Compress { .. } => {
                let (flags, level) = self.how.compressing(self.path);
                (COMPRESS, flags, level)
            }
            Task::Decompress { .. } => (DECOMPRESS, 0, LEVEL_DEFAULT),
        };
        // SAFETY: the buffers belong to the job, which is kept and left alone until it is done; moving it moves no buffer.
        let begun = unsafe {
            job.prepare(operation, flags, level, source, target);
            job.submit()
        };
        match begun {
            status::OK => {
                self.under_way.push(UnderWay { job, own });
                Ok(())
            }
            other => {
                if other == status::QUEUES_ARE_BUSY {
                    self.counters.queue_was_full();
                }
                self.free.push(job);
                Err(own)
            }
        }
    }

    /// What a finished job came to; `Err` gives it back if the device failed and the CPU may do it.
    fn end(&mut self, UnderWay { job, mut own }: UnderWay, status: u32) -> Result<Done, block::Job> {
        let outcome = Outcome::of(status, &job);
        self.free.push(job);
        let outcome = match outcome {
            Err(_) if self.how.path == Path::Auto => {
                self.counters.faulted();
                return Err(own);
            }
            other => other,
        };
        let engine = |reason| BlockError::Engine { engine: NAME, reason };
        let result = match own.task {
            Task::Compress { .. } => outcome.and_then(Outcome::compressed).map_err(engine),
            Task::Decompress { raw_bytes } => {
                let ended = outcome.map_err(Failure::Engine);
                let ended = ended.and_then(|outcome| outcome.decompressed(own.input.len(), raw_bytes));
                ended.map(|()| Some(raw_bytes)).map_err(|failure| failure.of(Format::Deflate, NAME))
            }
        };
        if let Ok(Some(made)) = result {
            // SAFETY: the library wrote so many bytes behind the old length, into room that was reserved there.
            unsafe { own.output.set_len(own.output.len() + made) };
        }
        if matches!(result, Err(BlockError::Engine { .. })) {
            self.counters.faulted();
        }
        self.counters.ended(own.task, own.input.len(), &result, None);
        Ok(Done { job: own, result })
    }

    fn reap_once(&mut self) {
        let mut index = 0;
        while index < self.under_way.len() {
            let status = self.under_way[index].job.check();
            if status == status::BEING_PROCESSED {
                index += 1;
                continue;
            }
            let ended = self.under_way.swap_remove(index);
            let done = self.end(ended, status).unwrap_or_else(|own| run_job(&mut self.context, own));
            self.done.push(done);
        }
    }
}

impl BlockCodec for Batch<'_> {
    fn compress(
        &mut self,
        raw: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<Option<usize>, BlockError> {
        self.context.compress(raw, out, max_bytes)
    }

    fn decompress(&mut self, packed: &[u8], out: &mut Vec<u8>, raw_bytes: usize) -> Result<(), BlockError> {
        self.context.decompress(packed, out, raw_bytes)
    }

    fn submit(&mut self, job: block::Job) -> Result<(), block::Job> {
        if self.under_way.len() + self.done.len() >= IN_FLIGHT_MAX {
            self.counters.queue_was_full();
            return Err(job);
        }
        if let Err(job) = self.begin(job) {
            // What cannot run by the side of the others is done at once, by the rules of a single call.
            let done = run_job(&mut self.context, job);
            self.done.push(done);
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>, wait: bool) {
        self.reap_once();
        while wait && !self.under_way.is_empty() {
            std::hint::spin_loop();
            self.reap_once();
        }
        done.append(&mut self.done);
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // The device writes to buffers of jobs that nobody reaped.
        while !self.under_way.is_empty() {
            self.reap_once();
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::block::{Counters, Huffman, Setting};

    /// On a machine without a device the library's software runs through the same interface: it is done when it is submitted.
    #[test]
    fn a_batch_gives_back_every_job_once_with_its_bytes() {
        let setting = Setting::new(Format::Deflate).with_path(Path::Software);
        if let Err(error) = setting.engine_named(NAME) {
            eprintln!("SKIPPED, nothing of this is tested here: {error}");
            return;
        }
        for huffman in [Huffman::Fixed, Huffman::Dynamic] {
            let counters = Counters::new();
            let dynamic = huffman == Huffman::Dynamic;
            let how = How { path: Path::Auto, has_device: false, dynamic, level: 1 };
            let coder = QplCoder { how, hardware: None, software: None, counters: counters.open() };
            let context = Context::new(coder, Format::Deflate, 0, counters.open());
            let mut batch = Batch::new(context, how, JobPath::Software, counters.open());
            let raw: Vec<Vec<u8>> =
                (0..40).map(|n| format!("block {n} of many, ").repeat(n).into_bytes()).collect();
            let tasks = raw.iter().map(|raw| (Task::Compress { max_bytes: raw.len() + 1000 }, raw.clone()));
            let packed = run(&mut batch, tasks.collect());
            let tasks = packed.iter().zip(&raw).map(|(job, raw)| {
                let raw_bytes = raw.len();
                (Task::Decompress { raw_bytes }, job.output.clone())
            });
            for (job, raw) in run(&mut batch, tasks.collect()).iter().zip(&raw) {
                assert_eq!(job.output, *raw);
            }
            let counted = counters.snapshot();
            assert_eq!((counted.compress_calls, counted.decompress_calls), (40, 40), "{counted}");
            let room = Task::Compress { max_bytes: 3 };
            batch.submit(block::Job { tag: 7, task: room, input: raw[9].clone(), output: vec![1] }).unwrap();
            let broken = Task::Decompress { raw_bytes: 50 };
            batch.submit(block::Job { tag: 8, task: broken, input: vec![7; 9], output: vec![] }).unwrap();
            let mut done = Vec::new();
            batch.reap(&mut done, true);
            done.sort_by_key(|done| done.job.tag);
            assert!(done[0].result == Ok(None) && done[0].job.output == [1], "{done:?}");
            assert!(matches!(done[1].result, Err(BlockError::Damaged { .. })), "{done:?}");
        }
    }

    /// Submits all and reaps all, in their order.
    fn run(batch: &mut Batch<'_>, tasks: Vec<(Task, Vec<u8>)>) -> Vec<block::Job> {
        let (mut done, count) = (Vec::new(), tasks.len());
        for (tag, (task, input)) in tasks.into_iter().enumerate() {
            let mut job = Some(block::Job { tag: tag as u64, task, input, output: Vec::new() });
            while let Some(waiting) = job.take() {
                job = batch.submit(waiting).err();
                if job.is_some() {
                    batch.reap(&mut done, true);
                }
            }
        }
        batch.reap(&mut done, true);
        done.sort_by_key(|done| done.job.tag);
        assert_eq!(done.len(), count);
        assert!(done.iter().all(|done| matches!(done.result, Ok(Some(_)))), "{done:?}");
        done.into_iter().map(|done| done.job).collect()
    }
}
