//! Jobs on a device. The owner submits them one after the other and continues while they run side by side, up to a time
//! limit.
//!
//! A hanging device must not hold its caller for ever, as the library's own waiting call does. So the caller gives a
//! job up after a while. The device may still use the buffers of such a job, so they are kept until the job has ended,
//! and the caller gets copies.

use super::library::{COMPRESS, DECOMPRESS, Functions, Job, JobPath, LEVEL_DEFAULT, status};
use super::{How, NAME, Outcome, Path, QplCoder, TRIES_MAX, bound, sizes};
use crate::block::context::{Context, Damage, Failure};
use crate::block::{self, BlockCodec, BlockError, ContextCounters, Done, Task, run_job};
use crate::format::Format;
use crate::scratch::trim;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Jobs that a context has under way: each takes 190 KB of the library's memory.
const IN_FLIGHT_MAX: usize = 16;

/// How long a job may take.
const TIME_MAX: Duration = Duration::from_secs(2);

/// The most jobs of the process that were given up and have not ended. At this number, devices get no further jobs.
const GIVEN_UP_MAX: usize = 64;

/// A context whose jobs are under way on the device. If the device cannot do a job, the CPU does it on the path `auto`.
/// On the path `hardware` it is an error.
pub(super) struct Batch<'a> {
    software: Context<'a, QplCoder<'a>>,
    how: How,
    functions: &'static Functions,
    path: JobPath,
    time_max: Duration,
    under_way: Vec<UnderWay>,
    free: Vec<Job>,
    done: Vec<Done>,
    /// Buffers of calls with a single block.
    input: Vec<u8>,
    output: Vec<u8>,
    counters: ContextCounters<'a>,
}

/// A job of the caller, and the library's job that runs it.
struct UnderWay {
    job: Job,
    /// Its buffers do not move while the device works with them, and the output has room reserved.
    own: block::Job,
    since: Instant,
}

/// A job that did not begin, and the fault of the device. Without a reason, the data needs no device.
struct Refused {
    own: block::Job,
    reason: Option<String>,
}

static GIVEN_UP: Mutex<Vec<UnderWay>> = Mutex::new(Vec::new());

/// Keeps a job's buffers until the job has ended, and returns the number of such jobs.
fn given_up(job: Option<UnderWay>) -> usize {
    let mut all = GIVEN_UP.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain_mut(|kept| kept.job.check() == status::BEING_PROCESSED);
    all.extend(job);
    all.len()
}

impl<'a> Batch<'a> {
    pub(super) fn new(
        software: Context<'a, QplCoder<'a>>,
        how: How,
        functions: &'static Functions,
        path: JobPath,
        counters: ContextCounters<'a>,
    ) -> Batch<'a> {
        let (under_way, free, done) = (Vec::new(), Vec::new(), Vec::new());
        let (input, output, time_max) = (Vec::new(), Vec::new(), TIME_MAX);
        Batch { software, how, functions, path, time_max, under_way, free, done, input, output, counters }
    }

    /// Begins a job.
    fn begin(&mut self, mut own: block::Job) -> Result<(), Refused> {
        let (room, is_plausible) = match own.task {
            Task::Compress { max_bytes } => (max_bytes.min(bound(own.input.len())), true),
            // A match of 258 bytes takes at least two bits.
            Task::Decompress { raw_bytes } => {
                (raw_bytes, raw_bytes <= own.input.len().saturating_mul(4 * 258))
            }
        };
        if room == 0 || own.input.is_empty() || !is_plausible {
            return Err(Refused { own, reason: None });
        }
        let job = match self.free.pop() {
            Some(job) => Ok(job),
            None if given_up(None) >= GIVEN_UP_MAX => Err("the device ends no jobs".to_owned()),
            None => Job::new(self.functions, self.path),
        };
        let mut job = match job {
            Ok(job) => job,
            Err(reason) => return Err(Refused { own, reason: Some(reason) }),
        };
        own.output.reserve(room);
        let target = &mut own.output.spare_capacity_mut()[..room];
        let Some((source, target)) = sizes(&own.input, target) else {
            return Err(Refused { own, reason: None });
        };
        let (operation, (flags, level)) = match own.task {
            Task::Compress { .. } => (COMPRESS, self.how.compressing(self.path)),
            Task::Decompress { .. } => (DECOMPRESS, (0, LEVEL_DEFAULT)),
        };
        let mut begun = status::QUEUES_ARE_BUSY;
        for _ in 0..TRIES_MAX {
            // SAFETY: the buffers belong to the job, which is kept and left alone until it is done; moving it moves no
            // buffer.
            begun = unsafe {
                job.prepare(operation, flags, level, source, target);
                job.submit()
            };
            if begun != status::QUEUES_ARE_BUSY {
                break;
            }
            self.counters.queue_was_full();
            std::hint::spin_loop();
        }
        if begun == status::OK {
            self.under_way.push(UnderWay { job, own, since: Instant::now() });
            return Ok(());
        }
        self.free.push(job);
        if begun != status::QUEUES_ARE_BUSY && self.how.path == Path::Auto {
            self.counters.faulted();
        }
        Err(Refused { own, reason: Some(super::library::in_words(begun)) })
    }

    /// Handles a job without the device.
    fn refused(&mut self, Refused { own, reason }: Refused) -> Done {
        match reason {
            Some(reason) if self.how.path == Path::Hardware => {
                let result = Err(BlockError::Engine { engine: NAME, reason });
                self.counters.faulted();
                self.counters.ended(own.task, own.input.len(), &result, None);
                Done { job: own, result }
            }
            _ => run_job(&mut self.software, own),
        }
    }

    /// The result of a finished job.
    fn end(&mut self, UnderWay { job, mut own, .. }: UnderWay, status: u32) -> Done {
        let outcome = Outcome::of(status, &job);
        self.free.push(job);
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(reason) => return self.failed(own, reason),
        };
        let result = match own.task {
            Task::Compress { .. } => match outcome.compressed() {
                Ok(made) => Ok(made),
                Err(reason) => return self.failed(own, reason),
            },
            Task::Decompress { raw_bytes } => {
                let packed_bytes = own.input.len();
                let ended = outcome.decompressed(packed_bytes).and_then(|made| match made {
                    Some(made) if made == raw_bytes => Ok(()),
                    _ => Err(Damage::other_length(packed_bytes).into()),
                });
                if ended.is_err() && self.how.path == Path::Auto {
                    return self.blamed(own);
                }
                ended.map(|()| Some(raw_bytes)).map_err(|failure: Failure| failure.of(Format::Deflate, NAME))
            }
        };
        if let Ok(Some(made)) = result {
            // SAFETY: the library wrote so many bytes behind the old length, into room that was reserved there.
            unsafe { own.output.set_len(own.output.len() + made) };
        }
        self.counters.ended(own.task, own.input.len(), &result, None);
        Done { job: own, result }
    }

    fn failed(&mut self, own: block::Job, reason: String) -> Done {
        if self.how.path == Path::Auto {
            self.counters.faulted();
        }
        self.refused(Refused { own, reason: Some(reason) })
    }

    /// Asks the CPU about data that the device calls damaged: a flaky device would make people throw sound blocks away.
    /// If the CPU agrees, it has counted the fault.
    fn blamed(&mut self, own: block::Job) -> Done {
        let done = run_job(&mut self.software, own);
        if !matches!(done.result, Err(BlockError::Damaged { .. })) {
            self.counters.faulted();
        }
        done
    }

    /// Goes on without a job that takes too long.
    fn give_up(&mut self, late: UnderWay) -> Done {
        let block::Job { tag, task, ref input, ref output } = late.own;
        let own = block::Job { tag, task, input: input.clone(), output: output.clone() };
        given_up(Some(late));
        self.failed(own, format!("the device did not end a job in {:?}", self.time_max))
    }

    fn reap_once(&mut self) {
        let mut index = 0;
        while index < self.under_way.len() {
            let late = &mut self.under_way[index];
            let status = late.job.check();
            if status == status::BEING_PROCESSED && late.since.elapsed() <= self.time_max {
                index += 1;
                continue;
            }
            let ended = self.under_way.swap_remove(index);
            let done = match status {
                status::BEING_PROCESSED => self.give_up(ended),
                status => self.end(ended, status),
            };
            self.done.push(done);
        }
    }

    /// Does one job, whatever else is under way.
    fn alone(&mut self, job: block::Job) -> Done {
        if let Err(refused) = self.begin(job) {
            return self.refused(refused);
        }
        let mut last = self.under_way.pop().expect("the job has begun");
        loop {
            match last.job.check() {
                status::BEING_PROCESSED if last.since.elapsed() > self.time_max => return self.give_up(last),
                status::BEING_PROCESSED => std::hint::spin_loop(),
                status => return self.end(last, status),
            }
        }
    }

    /// Runs the task of one call in its own buffers. The caller may free its buffers before the device is done.
    fn call(&mut self, task: Task, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<usize>, BlockError> {
        let (mut input, output) = (std::mem::take(&mut self.input), std::mem::take(&mut self.output));
        input.extend_from_slice(bytes);
        let Done { job, result } = self.alone(block::Job { tag: 0, task, input, output });
        if let Ok(Some(_)) = result {
            out.extend_from_slice(&job.output);
        }
        (self.input, self.output) = (job.input, job.output);
        for scratch in [&mut self.input, &mut self.output] {
            scratch.clear();
            trim(scratch);
        }
        result
    }
}

impl BlockCodec for Batch<'_> {
    fn compress(
        &mut self,
        raw: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<Option<usize>, BlockError> {
        self.call(Task::Compress { max_bytes }, raw, out)
    }

    fn decompress(&mut self, packed: &[u8], out: &mut Vec<u8>, raw_bytes: usize) -> Result<(), BlockError> {
        self.call(Task::Decompress { raw_bytes }, packed, out).map(drop)
    }

    /// A device gets the exact length, as for all jobs of a batch. On the path `auto` the CPU does without it.
    fn decompress_up_to<'t>(
        &mut self,
        packed: &[u8],
        target: &'t mut [MaybeUninit<u8>],
    ) -> Result<Option<&'t mut [u8]>, BlockError> {
        match self.how.path {
            Path::Hardware => Err(block::unknown_length(NAME)),
            _ => self.software.decompress_up_to(packed, target),
        }
    }

    fn submit(&mut self, job: block::Job) -> Result<(), block::Job> {
        if self.under_way.len() + self.done.len() >= IN_FLIGHT_MAX {
            self.counters.queue_was_full();
            return Err(job);
        }
        if let Err(refused) = self.begin(job) {
            let done = self.refused(refused);
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
        // The device may still write to buffers of unreaped jobs.
        for mut job in self.under_way.drain(..) {
            while job.job.check() == status::BEING_PROCESSED {
                if job.since.elapsed() > self.time_max {
                    given_up(Some(job));
                    break;
                }
                std::hint::spin_loop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::qpl::EMPTY_STREAM;
    use crate::block::qpl::library::{self, fake};
    use crate::block::{Counters, Huffman, Setting};
    use crate::scratch::SCRATCH_BYTES_MAX;
    use std::sync::atomic::Ordering::Relaxed;

    fn batch<'a>(how: How, functions: &'static Functions, counters: &'a Counters) -> Batch<'a> {
        let coder = QplCoder { how, functions, job: None, counters: counters.open() };
        let software = Context::new(coder, Format::Deflate, 0, counters.open());
        Batch::new(software, how, functions, JobPath::Software, counters.open())
    }

    fn job(tag: u64) -> block::Job {
        let task = Task::Decompress { raw_bytes: 5 };
        block::Job { tag, task, input: b"bytes".to_vec(), output: b"before".to_vec() }
    }

    /// The device copies into the buffers of jobs that were given up. If these buffers were freed, it would write into
    /// other memory.
    #[test]
    fn a_device_that_ends_no_job_holds_nobody_and_its_buffers_are_kept() {
        for path in [Path::Auto, Path::Hardware] {
            let counters = Counters::new();
            let how = How { path, has_device: true, dynamic: false, level: 1 };
            let mut batch = batch(how, fake::functions(), &counters);
            batch.time_max = Duration::from_millis(1);
            fake::IS_STUCK.store(true, Relaxed);
            let (mut done, mut out) = (Vec::new(), b"before".to_vec());
            batch.submit(job(1)).unwrap();
            batch.reap(&mut done, true);
            let alone = batch.decompress(b"bytes", &mut out, 5);
            batch.submit(job(2)).unwrap();
            let counted = counters.snapshot();
            let Done { job: given_back, result } = done.pop().unwrap();
            if path == Path::Auto {
                assert_eq!((result, alone), (Ok(Some(5)), Ok(())));
                assert!(given_back.output == b"beforebytes" && out == b"beforebytes");
                assert_eq!((counted.fallbacks, counted.faults), (2, 2), "{counted}");
            } else {
                let Err(BlockError::Engine { reason, .. }) = result else { panic!("{result:?}") };
                assert_eq!(reason, "the device did not end a job in 1ms");
                assert!(matches!(alone, Err(BlockError::Engine { .. })) && out == b"before", "{alone:?}");
                assert!(given_back.input == b"bytes" && given_back.output == b"before");
                assert_eq!((counted.fallbacks, counted.faults), (0, 2), "{counted}");
            }
            drop(batch);
            assert_eq!((given_up(None), fake::JOBS.load(Relaxed)), (3, 3), "the last was not even reaped");
            fake::IS_STUCK.store(false, Relaxed);
            assert_eq!((given_up(None), fake::JOBS.load(Relaxed)), (0, 0));
        }
        a_full_queue_is_not_waited_for();
        a_long_block_leaves_no_scratch();
        a_device_that_ends_nothing_gets_no_more_jobs();
        a_library_that_says_it_wrote_too_much_is_not_believed();
        a_device_that_blames_sound_data_is_not_believed_on_auto();
        a_block_that_the_cpu_calls_damaged_too_counts_one_fault();
        any_stream_of_no_bytes_is_an_empty_block();
    }

    fn a_library_that_says_it_wrote_too_much_is_not_believed() {
        let counters = Counters::new();
        let how = How { path: Path::Hardware, has_device: true, dynamic: false, level: 1 };
        let mut batch = batch(how, fake::functions(), &counters);
        fake::IS_LYING.store(true, Relaxed);
        let compressed = batch.compress(b"bytes", &mut Vec::new(), 60);
        let task = Task::Compress { max_bytes: 60 };
        batch.submit(block::Job { task, ..job(1) }).unwrap();
        let mut done = Vec::new();
        batch.reap(&mut done, true);
        fake::IS_LYING.store(false, Relaxed);
        for result in [compressed, done.pop().unwrap().result] {
            let Err(BlockError::Engine { reason, .. }) = result else { panic!("{result:?}") };
            assert_eq!(reason, "it says that it wrote 61 bytes where there was room for 60");
        }
    }

    fn a_device_that_blames_sound_data_is_not_believed_on_auto() {
        for path in [Path::Auto, Path::Hardware] {
            let counters = Counters::new();
            let how = How { path, has_device: true, dynamic: false, level: 1 };
            let mut batch = batch(how, fake::functions(), &counters);
            fake::BLAMES_DATA.store(true, Relaxed);
            let (mut out, mut packed) = (Vec::new(), Vec::new());
            let result = batch.decompress(b"bytes", &mut out, 5);
            let compressed = batch.compress(b"bytes", &mut packed, 60);
            fake::BLAMES_DATA.store(false, Relaxed);
            if path == Path::Auto {
                let counted = counters.snapshot();
                assert_eq!((result, out.as_slice()), (Ok(()), &b"bytes"[..]));
                assert_eq!((compressed, packed.as_slice()), (Ok(Some(5)), &b"bytes"[..]));
                assert_eq!((counted.fallbacks, counted.faults), (2, 2), "{counted}");
            } else {
                assert!(matches!(result, Err(BlockError::Damaged { .. })), "{result:?}");
                assert!(matches!(compressed, Err(BlockError::Engine { .. })), "{compressed:?}");
            }
        }
    }

    fn a_block_that_the_cpu_calls_damaged_too_counts_one_fault() {
        let counters = Counters::new();
        let how = How { path: Path::Auto, has_device: true, dynamic: false, level: 1 };
        let mut batch = batch(how, fake::functions(), &counters);
        let longer = batch.decompress(b"longer", &mut Vec::new(), 5);
        assert!(matches!(longer, Err(BlockError::Damaged { .. })), "{longer:?}");
        let counted = counters.snapshot();
        assert_eq!((counted.decompress_calls, counted.fallbacks, counted.faults), (1, 1, 1), "{counted}");
    }

    /// Engine `software` writes such a block as a stored one.
    fn any_stream_of_no_bytes_is_an_empty_block() {
        let counters = Counters::new();
        let how = How { path: Path::Auto, has_device: true, dynamic: false, level: 1 };
        let mut batch = batch(how, fake::functions(), &counters);
        // This engine's own needs no library, so nothing falls back.
        assert_eq!(batch.decompress(&EMPTY_STREAM, &mut Vec::new(), 0), Ok(()));
        assert_eq!(counters.snapshot().fallbacks, 0);
        fake::MAKES_NOTHING.store(true, Relaxed);
        let empty = batch.decompress(&[1, 0, 0, 0xFF, 0xFF], &mut Vec::new(), 0);
        fake::MAKES_NOTHING.store(false, Relaxed);
        assert_eq!(empty, Ok(()));
        for other in [&b"x"[..], b"bytes"] {
            let other = batch.decompress(other, &mut Vec::new(), 0);
            assert!(matches!(other, Err(BlockError::Damaged { .. })), "{other:?}");
        }
    }

    fn a_long_block_leaves_no_scratch() {
        let counters = Counters::new();
        let how = How { path: Path::Hardware, has_device: true, dynamic: false, level: 1 };
        let mut batch = batch(how, fake::functions(), &counters);
        for (bytes, is_kept) in [(5, true), (SCRATCH_BYTES_MAX + 1, false)] {
            batch.decompress(&vec![7; bytes], &mut Vec::new(), bytes).unwrap();
            assert_eq!((batch.input.capacity() > 0, batch.output.capacity() > 0), (is_kept, is_kept));
        }
    }

    fn a_full_queue_is_not_waited_for() {
        let counters = Counters::new();
        let how = How { path: Path::Hardware, has_device: true, dynamic: false, level: 1 };
        let mut batch = batch(how, fake::functions(), &counters);
        fake::IS_FULL.store(true, Relaxed);
        let full = batch.decompress(b"bytes", &mut Vec::new(), 5);
        fake::IS_FULL.store(false, Relaxed);
        let Err(BlockError::Engine { reason, .. }) = full else { panic!("{full:?}") };
        assert!(reason.starts_with("all work queues are busy"), "{reason}");
        assert_eq!(counters.snapshot().queue_full_retries, u64::from(TRIES_MAX));
    }

    fn a_device_that_ends_nothing_gets_no_more_jobs() {
        let counters = Counters::new();
        let how = How { path: Path::Hardware, has_device: true, dynamic: false, level: 1 };
        let mut batch = batch(how, fake::functions(), &counters);
        batch.time_max = Duration::ZERO;
        fake::IS_STUCK.store(true, Relaxed);
        for _ in 0..GIVEN_UP_MAX {
            batch.decompress(b"bytes", &mut Vec::new(), 5).unwrap_err();
        }
        let refused = batch.decompress(b"bytes", &mut Vec::new(), 5);
        let Err(BlockError::Engine { reason, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!((reason.as_str(), given_up(None)), ("the device ends no jobs", GIVEN_UP_MAX));
        fake::IS_STUCK.store(false, Relaxed);
        batch.time_max = TIME_MAX;
        assert_eq!(batch.decompress(b"bytes", &mut Vec::new(), 5), Ok(()));
        assert_eq!(given_up(None), 0);
    }

    /// On a machine without a device, the library's software runs behind the same interface. A job is then done at
    /// submission.
    #[test]
    fn a_batch_gives_back_every_job_once_with_its_bytes() {
        let setting = Setting::new(Format::Deflate).with_path(Path::Software);
        if let Err(error) = setting.engine_named(NAME) {
            ziptier_testing::not_run("qpl", &error.to_string());
            return;
        }
        for huffman in [Huffman::Fixed, Huffman::Dynamic] {
            let counters = Counters::new();
            let dynamic = huffman == Huffman::Dynamic;
            let how = How { path: Path::Auto, has_device: false, dynamic, level: 1 };
            let mut batch = batch(how, library::functions().unwrap(), &counters);
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
