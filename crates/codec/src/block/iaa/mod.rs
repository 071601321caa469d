//! Format `deflate`, engine `iaa`: Intel's In-Memory Analytics Accelerator by its own work queues, or a model of it.
//!
//! With a dictionary, the device reads streams that refer to its history, and writes such streams from generation 2 on.
//! With canned codes it does both. On the path `auto`, engine `software` does the jobs that the device cannot do; that
//! is no error, and a counter counts it. On the path `hardware`, there is no engine without a device. A job that the
//! device cannot do is then an error of the engine, and says nothing against the data.
//!
//! With a setting of several parts, the parts of a block are jobs of the device, side by side. The blocks of a batch
//! are side by side already. A block of a batch is therefore decompressed as a whole, and compressed in parts at
//! submission.

pub(crate) mod devices;
mod sessions;
mod split;

use super::setting::SettingError;
use super::{
    BlockCodec, BlockError, ContextCounters, Counters, Dictionary, Done, Engine, Huffman, Job, Path, Setting,
    Task, run_job,
};
use crate::format::Format;
use devices::Devices;
use sessions::Sessions;
use split::Split;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;
use ziptier_accel::device::iaa_cap;
use ziptier_accel::{Codes, Device, JobError, Operation, Preset, Stream};

const NAME: &str = "iaa";

/// The advice in errors about missing devices.
const ADVICE: &str = "`ziptier doctor` says what would help, and on path auto the CPU does the work";

/// The engine `iaa` of format `deflate`.
pub struct Iaa {
    path: Path,
    /// `None` on the path `auto` without a device.
    devices: Option<Arc<Devices>>,
    operations: Arc<Operations>,
    /// The most parts of a block.
    split: u32,
    /// Does jobs that the device cannot do, and empty blocks.
    software: Arc<dyn Engine>,
    counters: Counters,
}

/// The operations for the device.
struct Operations {
    compress: Operation,
    /// Compresses a part that another one follows.
    compress_part: Operation,
    decompress: Operation,
    fingerprint: u32,
}

impl Iaa {
    /// An engine for a setting. The level applies to the software, because the device has only one level.
    ///
    /// # Errors
    /// The errors of the setting, or no device on the path `hardware`.
    pub fn new(setting: &Setting) -> Result<Iaa, SettingError> {
        let (engine, format) = (NAME, Format::Deflate);
        if setting.path == Path::Software {
            let what = "the path software, which is engine software";
            return Err(SettingError::Unsupported { engine, format, what });
        }
        let devices = match Devices::open(&setting.device) {
            Ok(devices) => Some(devices),
            Err(reason) if setting.path == Path::Hardware => {
                return Err(SettingError::Unavailable {
                    engine,
                    reason: format!("path hardware needs a device, but {reason}; {ADVICE}"),
                });
            }
            Err(_) => None,
        };
        Iaa::with(setting, devices)
    }

    /// An engine on these queues, whatever source of devices the setting names. A job that takes longer than
    /// `job_time_max` has failed.
    ///
    /// # Errors
    /// The setting's.
    ///
    /// # Panics
    /// If there is no queue.
    pub fn on(
        setting: &Setting,
        queues: Vec<Arc<dyn Device>>,
        job_time_max: Duration,
    ) -> Result<Iaa, SettingError> {
        assert!(!queues.is_empty(), "an engine has a queue to work on");
        Iaa::with(setting, Some(Arc::new(Devices::given(queues, job_time_max))))
    }

    fn with(setting: &Setting, devices: Option<Arc<Devices>>) -> Result<Iaa, SettingError> {
        let software = setting.clone().with_path(Path::Software).engine_named("software")?;
        let fingerprint = software.open().map_or(0, |codec| codec.dictionary_fingerprint());
        let device = devices.as_ref().and_then(|devices| devices.near().into_iter().next());
        let operations = match device {
            None => Ok(Operations::of(setting.huffman, None, false, fingerprint)),
            Some(device) => Operations::on(&*device, setting, fingerprint),
        };
        let (devices, operations) = match operations {
            Ok(operations) => (devices, operations),
            Err(error) if setting.path == Path::Hardware => {
                let reason = format!("the device did not take the dictionary ({error}); {ADVICE}");
                return Err(SettingError::Unavailable { engine: NAME, reason });
            }
            // A device that fails here will fail at other jobs, too.
            Err(_) => (None, Operations::of(setting.huffman, None, false, fingerprint)),
        };
        let (path, split, counters) = (setting.path, setting.split, Counters::new());
        Ok(Iaa { path, devices, operations: Arc::new(operations), split, software, counters })
    }
}

/// Tries to prepare a dictionary. The device has to return parts of its state, and a single failure means little.
const PREPARE_TRIES: usize = 8;

impl Operations {
    fn on(device: &dyn Device, setting: &Setting, fingerprint: u32) -> Result<Operations, JobError> {
        let Some(shared) = setting.dictionary.as_deref().and_then(Dictionary::deflate) else {
            return Ok(Operations::of(setting.huffman, None, false, fingerprint));
        };
        let mut preset = Preset::new(&shared, device);
        for _ in 1..PREPARE_TRIES {
            if preset.is_ok() {
                break;
            }
            preset = Preset::new(&shared, device);
        }
        let writes_history = device.capabilities().has_iaa(iaa_cap::DICTIONARY);
        Ok(Operations::of(setting.huffman, Some(Arc::new(preset?)), writes_history, fingerprint))
    }

    /// `writes_history`: the device finds matches in a dictionary (generation 2).
    fn of(
        huffman: Huffman,
        preset: Option<Arc<Preset>>,
        writes_history: bool,
        fingerprint: u32,
    ) -> Operations {
        let codes = match (huffman, preset.clone()) {
            (Huffman::Canned, Some(preset)) if writes_history => Codes::CannedBehind(preset),
            (Huffman::Canned, Some(preset)) => Codes::Canned(preset),
            (Huffman::Fixed, Some(preset)) if writes_history => Codes::FixedBehind(preset),
            (Huffman::Fixed, _) => Codes::Fixed,
            _ => Codes::Dynamic,
        };
        let stream = match (huffman, preset) {
            (_, None) => Stream::Plain,
            (Huffman::Canned, Some(preset)) => Stream::Canned(preset),
            (_, Some(preset)) => Stream::History(preset),
        };
        // Without verification a wrong stream would be found only when it is read, and its bytes would be lost.
        let compress = Operation::Compress { codes: codes.clone(), verify: true };
        let compress_part = Operation::CompressPart(codes);
        Operations { compress, compress_part, decompress: Operation::Decompress(stream), fingerprint }
    }
}

impl Engine for Iaa {
    fn name(&self) -> &'static str {
        NAME
    }

    fn format(&self) -> Format {
        Format::Deflate
    }

    fn worker(&self) -> &'static str {
        match &self.devices {
            Some(devices) if devices.is_modelled() => "modelled",
            Some(_) => "hardware",
            None => "software",
        }
    }

    /// A device stops at the end mark of a stream, and reports its whole input as consumed.
    fn checks_end(&self) -> bool {
        self.devices.is_none()
    }

    fn is_asynchronous(&self) -> bool {
        self.devices.is_some()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn memory_bytes(&self) -> usize {
        let prepared = match &self.operations.decompress {
            Operation::Decompress(Stream::History(preset) | Stream::Canned(preset)) => preset.memory_bytes(),
            _ => 0,
        };
        self.software.memory_bytes() + prepared
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        Ok(Box::new(IaaContext {
            engine: self,
            sessions: self.devices.as_ref().map(|devices| Sessions::new(devices.clone())),
            split: (self.split > 1).then(|| Split::new(&self.operations, self.split)),
            software: None,
            under_way: Vec::new(),
            done: Vec::new(),
            counters: self.counters.open(),
        }))
    }
}

/// A thread's context. It makes its parts when they are first needed.
struct IaaContext<'a> {
    engine: &'a Iaa,
    sessions: Option<Sessions>,
    /// `None` if a setting has whole blocks.
    split: Option<Split<'a>>,
    software: Option<Box<dyn BlockCodec + 'a>>,
    /// Jobs of a batch on the device, indexed by their tag there.
    under_way: Vec<Option<Job>>,
    done: Vec<Done>,
    counters: ContextCounters<'a>,
}

/// More than codes of up to 15 bits make of `raw_bytes` bytes.
fn bound(raw_bytes: usize) -> usize {
    raw_bytes.saturating_mul(2).saturating_add(64)
}

/// A match of 258 bytes takes at least two bits.
fn raw_bytes_max(packed_bytes: usize) -> usize {
    packed_bytes.saturating_mul(4 * 258)
}

fn damaged(position: usize, what: &'static str) -> BlockError {
    BlockError::Damaged { format: Format::Deflate, position, what }
}

/// Interprets a device's answer to a compression. `Err` says nothing about the block.
fn compressed(result: Result<usize, JobError>) -> Result<Option<usize>, JobError> {
    match result {
        Err(JobError::DoesNotFit) => Ok(None),
        other => other.map(Some),
    }
}

/// Interprets a device's answer to a decompression. On the path `auto`, a report of damage counts as a failure of the
/// device, and the CPU decides. Otherwise a flaky device would make people throw sound blocks away.
fn decompressed(
    result: Result<usize, JobError>,
    packed_bytes: usize,
    raw_bytes: usize,
    path: Path,
) -> Result<Result<(), BlockError>, JobError> {
    match result {
        Ok(made) if made == raw_bytes => Ok(Ok(())),
        Ok(_) if path == Path::Auto => Err(JobError::Contradiction("output of another length")),
        Err(error) if path == Path::Auto => Err(error),
        Ok(_) | Err(JobError::DoesNotFit) => Ok(Err(damaged(packed_bytes, "another length"))),
        Err(JobError::Damaged(_)) => Ok(Err(damaged(packed_bytes, "no valid stream"))),
        Err(error) => Err(error),
    }
}

impl<'a> IaaContext<'a> {
    fn software(&mut self) -> Result<&mut (dyn BlockCodec + 'a), BlockError> {
        let codec = match self.software.take() {
            Some(codec) => codec,
            None => self.engine.software.open()?,
        };
        Ok(&mut **self.software.insert(codec))
    }

    /// Has software do the failed job, or returns the error that says what happened. The end of a block that software
    /// calls damaged, too, counts its fault, so the device's word against it counts none.
    fn fall_back<T>(
        &mut self,
        failure: Option<JobError>,
        job: impl FnOnce(&mut (dyn BlockCodec + 'a)) -> Result<T, BlockError>,
    ) -> Result<T, BlockError> {
        if self.engine.path == Path::Hardware {
            let reason = failure.map_or("no device".to_owned(), |error| error.to_string());
            self.counters.faulted();
            return Err(BlockError::Engine { engine: NAME, reason });
        }
        self.counters.fell_back();
        let result = self.software().and_then(job);
        let is_fault = match &failure {
            None | Some(JobError::QueueFull) => false,
            Some(JobError::Damaged(_) | JobError::DoesNotFit | JobError::Contradiction(_)) => {
                !matches!(result, Err(BlockError::Damaged { .. }))
            }
            Some(_) => true,
        };
        if is_fault {
            self.counters.faulted();
        }
        result
    }

    fn compress_uncounted(
        &mut self,
        raw: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<Option<usize>, BlockError> {
        if raw.is_empty() {
            return self.software()?.compress(raw, out, max_bytes);
        }
        let room = max_bytes.min(bound(raw.len()));
        if room == 0 {
            return Ok(None);
        }
        self.make_room();
        let operation = &self.engine.operations.compress;
        let failure = match &mut self.sessions {
            None => None,
            Some(sessions) => {
                let counters = &mut self.counters;
                let result = match &mut self.split {
                    Some(split) if split.parts(raw.len()) > 1 => {
                        split.compress(sessions, raw, room, out, counters)
                    }
                    _ => sessions.run_up_to(operation, raw, room, out, counters),
                };
                match compressed(result) {
                    Ok(made) => return Ok(made),
                    Err(error) => Some(error),
                }
            }
        };
        self.fall_back(failure, |software| software.compress(raw, out, max_bytes))
    }

    fn decompress_uncounted(
        &mut self,
        packed: &[u8],
        out: &mut Vec<u8>,
        raw_bytes: usize,
    ) -> Result<(), BlockError> {
        if packed.is_empty() || raw_bytes == 0 {
            return self.software()?.decompress(packed, out, raw_bytes);
        }
        if raw_bytes > raw_bytes_max(packed.len()) {
            return Err(damaged(packed.len(), "another length"));
        }
        self.make_room();
        let operation = &self.engine.operations.decompress;
        let before = out.len();
        let failure = match &mut self.sessions {
            None => None,
            Some(sessions) => {
                if let Some(split) = &self.split
                    && split.decompress(sessions, packed, raw_bytes, out, &mut self.counters)
                        == Some(raw_bytes)
                {
                    return Ok(());
                }
                out.truncate(before);
                let result = sessions.run(operation, packed, raw_bytes, out, &mut self.counters);
                match decompressed(result, packed.len(), raw_bytes, self.engine.path) {
                    Ok(Ok(())) => return Ok(()),
                    Ok(Err(error)) => {
                        out.truncate(before);
                        return Err(error);
                    }
                    Err(error) => Some(error),
                }
            }
        };
        out.truncate(before);
        self.fall_back(failure, |software| software.decompress(packed, out, raw_bytes))
    }

    fn decompress_up_to_uncounted<'t>(
        &mut self,
        packed: &[u8],
        target: &'t mut [MaybeUninit<u8>],
    ) -> Result<Option<&'t mut [u8]>, BlockError> {
        let room = target.len().min(raw_bytes_max(packed.len()));
        if room == 0 {
            return self.software()?.decompress_up_to(packed, target);
        }
        self.make_room();
        let (operation, path) = (&self.engine.operations.decompress, self.engine.path);
        let failure = match &mut self.sessions {
            None => None,
            Some(sessions) => {
                let (mut made, counters) = (Vec::new(), &mut self.counters);
                if let Some(split) = &self.split
                    && let Some(length) = split.decompress(sessions, packed, room, &mut made, counters)
                {
                    return Ok(Some(target[..length].write_copy_of_slice(&made)));
                }
                match sessions.run_up_to(operation, packed, room, &mut made, counters) {
                    Ok(length) => return Ok(Some(target[..length].write_copy_of_slice(&made))),
                    Err(JobError::DoesNotFit) if path == Path::Hardware => return Ok(None),
                    Err(JobError::Damaged(_)) if path == Path::Hardware => {
                        return Err(damaged(packed.len(), "no valid stream"));
                    }
                    Err(error) => Some(error),
                }
            }
        };
        if !matches!(failure, Some(JobError::DoesNotFit)) {
            return self.fall_back(failure, |software| software.decompress_up_to(packed, target));
        }
        // The CPU has the last word, too. A device that it agrees with has done the job.
        let answer = self.software()?.decompress_up_to(packed, target);
        if matches!(answer, Ok(None)) {
            return answer;
        }
        self.fall_back(failure, |_| answer)
    }

    /// Hands a job of a batch to the device. `Err` returns a job that cannot run beside others.
    fn begin(&mut self, job: Job) -> Result<(), Job> {
        let Some(sessions) = &mut self.sessions else { return Err(job) };
        let (operation, room) = match job.task {
            Task::Compress { max_bytes } => {
                (&self.engine.operations.compress, max_bytes.min(bound(job.input.len())))
            }
            Task::Decompress { raw_bytes } if raw_bytes <= raw_bytes_max(job.input.len()) => {
                (&self.engine.operations.decompress, raw_bytes)
            }
            Task::Decompress { .. } => return Err(job),
        };
        let is_split = matches!(job.task, Task::Compress { .. })
            && self.split.as_ref().is_some_and(|split| split.parts(job.input.len()) > 1);
        if job.input.is_empty() || room == 0 || is_split {
            return Err(job);
        }
        let free = self.under_way.iter().position(Option::is_none).unwrap_or(self.under_way.len());
        match sessions.submit(operation, free as u64, &job.input, room, &mut self.counters) {
            Err(_) => Err(job),
            Ok(()) => {
                if free == self.under_way.len() {
                    self.under_way.push(None);
                }
                self.under_way[free] = Some(job);
                Ok(())
            }
        }
    }

    /// Finishes a job that the device has ended.
    fn end(&mut self, mut job: Job, before: usize, result: Result<usize, JobError>) {
        let task = job.task;
        let result = match task {
            Task::Compress { .. } => compressed(result).map(Ok),
            Task::Decompress { raw_bytes } => {
                let ended = decompressed(result, job.input.len(), raw_bytes, self.engine.path);
                ended.map(|ended| ended.map(|()| Some(raw_bytes)))
            }
        };
        let result = match result {
            Ok(result) => result,
            Err(error) => self.fall_back(Some(error), |software| {
                job.output.truncate(before);
                let own = Job { output: std::mem::take(&mut job.output), ..take(&mut job) };
                let done = run_job(software, own);
                job = done.job;
                done.result
            }),
        };
        if !matches!(result, Ok(Some(_))) {
            job.output.truncate(before);
        }
        self.counters.ended(task, job.input.len(), &result, None);
        self.done.push(Done { job, result });
    }

    /// Makes room for a single job beside those of a batch.
    fn make_room(&mut self) {
        if self.sessions.as_ref().is_some_and(Sessions::is_full) {
            self.reap_device(true);
        }
    }

    fn reap_device(&mut self, wait: bool) {
        let Some(sessions) = &mut self.sessions else { return };
        let mut ended = Vec::new();
        let under_way = &mut self.under_way;
        sessions.reap(wait, &mut self.counters, |tag, result| {
            let job = under_way.get_mut(tag as usize).and_then(Option::take);
            let mut job = job.expect("a device ends what it was given, once");
            let before = job.output.len();
            let result = result.map(|made| {
                job.output.extend_from_slice(made);
                made.len()
            });
            ended.push((job, before, result));
        });
        ended.into_iter().for_each(|(job, before, result)| self.end(job, before, result));
    }
}

/// A job without its output, which was taken before.
fn take(job: &mut Job) -> Job {
    Job { tag: job.tag, task: job.task, input: std::mem::take(&mut job.input), output: Vec::new() }
}

impl BlockCodec for IaaContext<'_> {
    fn compress(
        &mut self,
        raw: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<Option<usize>, BlockError> {
        let begun = self.counters.begin();
        let result = self.compress_uncounted(raw, out, max_bytes);
        self.counters.ended(Task::Compress { max_bytes }, raw.len(), &result, begun);
        result
    }

    fn decompress(&mut self, packed: &[u8], out: &mut Vec<u8>, raw_bytes: usize) -> Result<(), BlockError> {
        let begun = self.counters.begin();
        let result = self.decompress_uncounted(packed, out, raw_bytes);
        let counted = result.clone().map(|()| Some(raw_bytes));
        self.counters.ended(Task::Decompress { raw_bytes }, packed.len(), &counted, begun);
        result
    }

    fn dictionary_fingerprint(&self) -> u32 {
        self.engine.operations.fingerprint
    }

    fn decompress_up_to<'t>(
        &mut self,
        packed: &[u8],
        target: &'t mut [MaybeUninit<u8>],
    ) -> Result<Option<&'t mut [u8]>, BlockError> {
        let begun = self.counters.begin();
        let result = self.decompress_up_to_uncounted(packed, target);
        match &result {
            Ok(Some(raw)) => self.counters.decompressed(packed.len(), Some(raw.len()), begun),
            Ok(None) => self.counters.did_not_fit(packed.len(), begun),
            Err(BlockError::Engine { .. }) => {}
            Err(_) => self.counters.decompressed(packed.len(), None, begun),
        }
        result
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        let is_full = self.sessions.as_ref().is_some_and(Sessions::is_full);
        if is_full || self.done.len() >= super::ImmediateQueue::JOBS_MAX {
            self.counters.queue_was_full();
            return Err(job);
        }
        if let Err(job) = self.begin(job) {
            let done = run_job(self, job);
            self.done.push(done);
        }
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>, wait: bool) {
        self.reap_device(wait);
        done.append(&mut self.done);
    }
}
