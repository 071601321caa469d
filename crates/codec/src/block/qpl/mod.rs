//! Format `deflate`, engine `qpl`: Intel's Query Processing Library, on machines that have it installed. The library
//! drives Intel's accelerator, and does the same work in software.
//!
//! Making an engine loads the library (`libqpl.so.1`, `libqpl.so`, or the file that the environment names in
//! [`LIBRARY_VARIABLE`]). Without the library there is no engine, and everything else works. The history window is 4
//! KiB, so every engine reads its streams. The library has no preset history outside the newest devices. It makes
//! Huffman tables for canned blocks from histograms by its own rules, so it cannot use ziptier's. The engine refuses
//! both.
//!
//! On a device the library reads its compressed output back. A job on the CPU skips that, because the frame's checksum
//! guards the stored bytes.

mod batch;
mod library;

use super::context::{Coder, Context, Damage, Failure};
use super::setting::{Huffman, SettingError};
use super::{BlockCodec, BlockError, ContextCounters, Counters, Dictionary, Engine, Path};
use crate::format::Format;
use batch::Batch;
pub use library::LIBRARY_VARIABLE;
use library::{COMPRESS, DECOMPRESS, Functions, Job, JobPath, LEVEL_DEFAULT, LEVEL_HIGH, flag, status};
use std::mem::MaybeUninit;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Levels up to 5 are the library's default, from 6 on its high level. A device always uses the default.
pub const LEVELS: RangeInclusive<i32> = 1..=9;

const NAME: &str = "qpl";

/// Tries to hand a job to busy queues, before the CPU does the job or it is an error. In each try the library goes
/// round all queues.
const TRIES_MAX: u32 = 64;

/// The stream of no bytes: one final block with fixed codes. The library refuses to make it.
const EMPTY_STREAM: [u8; 2] = [3, 0];

/// The engine `qpl` of format `deflate`.
pub struct Qpl {
    how: How,
    functions: &'static Functions,
    counters: Counters,
}

/// How an engine's jobs are done.
#[derive(Debug, Clone, Copy)]
struct How {
    path: Path,
    /// Whether the library has a device to work with; always, if the path is that of the hardware.
    has_device: bool,
    dynamic: bool,
    level: i32,
}

impl Qpl {
    /// An engine for a level, a Huffman mode and a path.
    ///
    /// # Errors
    /// No library, no device on the path `hardware`, or a setting that the library cannot do.
    pub fn new(
        level: i32,
        huffman: Huffman,
        dictionary: Option<Arc<Dictionary>>,
        path: Path,
    ) -> Result<Qpl, SettingError> {
        let (engine, format) = (NAME, Format::Deflate);
        if !LEVELS.contains(&level) {
            return Err(SettingError::Level { engine, format, level, levels: LEVELS });
        }
        if huffman == Huffman::Canned {
            return Err(SettingError::Unsupported { engine, format, what: "our canned codes" });
        }
        if dictionary.is_some() {
            return Err(SettingError::Unsupported { engine, format, what: "a dictionary" });
        }
        let unavailable = |reason| SettingError::Unavailable { engine, reason };
        let functions = library::functions().map_err(unavailable)?;
        let device = match path {
            Path::Software => Err(String::new()),
            Path::Auto | Path::Hardware => Job::new(functions, JobPath::Hardware).map(drop),
        };
        let has_device = device.is_ok();
        if path == Path::Hardware {
            device.map_err(|reason| {
                unavailable(format!("path hardware needs a device, but libqpl has none: {reason}"))
            })?;
        }
        let how = How { path, has_device, dynamic: huffman == Huffman::Dynamic, level };
        Ok(Qpl { how, functions, counters: Counters::new() })
    }

    /// The version of the library, if it is installed.
    pub fn library_version() -> Result<&'static str, String> {
        library::functions().map(|functions| functions.version.as_str())
    }
}

impl Engine for Qpl {
    fn name(&self) -> &'static str {
        NAME
    }

    fn format(&self) -> Format {
        Format::Deflate
    }

    fn worker(&self) -> &'static str {
        if self.how.has_device { "hardware" } else { "software" }
    }

    /// The library stops when the target is full, and counts its whole input as consumed, wherever the stream ended.
    fn checks_end(&self) -> bool {
        false
    }

    fn is_asynchronous(&self) -> bool {
        self.how.has_device
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        let (how, functions) = (self.how, self.functions);
        let coder = QplCoder { how, functions, job: None, counters: self.counters.open() };
        let software = Context::new(coder, Format::Deflate, 0, self.counters.open());
        Ok(match how.has_device {
            true => Box::new(Batch::new(software, how, functions, JobPath::Hardware, self.counters.open())),
            false => Box::new(software),
        })
    }
}

impl How {
    /// Flags of a job to compress, and its level.
    fn compressing(&self, path: JobPath) -> (u32, u32) {
        let high = path == JobPath::Software && self.path == Path::Software && self.level > 5;
        let dynamic = if self.dynamic { flag::DYNAMIC_HUFFMAN } else { 0 };
        // A device's output is read back before anything relies on it.
        let verify = if path == JobPath::Hardware { 0 } else { flag::OMIT_VERIFY };
        (verify | dynamic, if high { LEVEL_HIGH } else { LEVEL_DEFAULT })
    }
}

/// The library's software. Its job is made when it is first needed.
struct QplCoder<'a> {
    how: How,
    functions: &'static Functions,
    job: Option<Job>,
    counters: ContextCounters<'a>,
}

// SAFETY: `total_out` counts the bytes that the library wrote from the start of the target.
unsafe impl Coder for QplCoder<'_> {
    type Error = Failure;

    const ENGINE: &'static str = NAME;

    fn bound(&self, raw_bytes: usize) -> usize {
        bound(raw_bytes)
    }

    fn raw_bytes_max(&self, packed: &[u8]) -> Result<usize, Damage> {
        // A match of 258 bytes takes at least two bits.
        Ok(packed.len().saturating_mul(4 * 258).min(u32::MAX as usize))
    }

    fn compress(&mut self, raw: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, BlockError> {
        if raw.is_empty() {
            return Ok(empty_stream(target));
        }
        let Some((source, target)) = sizes(raw, target) else { return Ok(None) };
        let (flags, level) = self.how.compressing(JobPath::Software);
        let outcome = self.run(|job| {
            // SAFETY: both buffers are borrowed until the job is done, which it is when `execute` returns.
            unsafe { job.prepare(COMPRESS, flags, level, source, target) };
        });
        let outcome = outcome.and_then(|outcome| outcome.compressed());
        outcome.map_err(|reason| BlockError::Engine { engine: NAME, reason })
    }

    fn decompress(
        &mut self,
        packed: &[u8],
        target: &mut [MaybeUninit<u8>],
    ) -> Result<Option<usize>, Failure> {
        if packed.is_empty() {
            return Err(Damage { position: 0, what: "the input ends" }.into());
        }
        if target.is_empty() {
            if packed == EMPTY_STREAM {
                return Ok(Some(0));
            }
            // The library wants room, and other streams hold no bytes, too.
            let mut room = [MaybeUninit::uninit()];
            return Ok(self.decompress(packed, &mut room)?.filter(|&made| made == 0));
        }
        let Some((source, target)) = sizes(packed, target) else {
            return Err(Damage::other_length(packed.len()).into());
        };
        let outcome = self.run(|job| {
            // SAFETY: both buffers are borrowed until the job is done, which it is when `execute` returns.
            unsafe { job.prepare(DECOMPRESS, 0, LEVEL_DEFAULT, source, target) };
        });
        outcome.map_err(Failure::Engine)?.decompressed(packed.len())
    }
}

impl QplCoder<'_> {
    /// Does a job that `prepare` sets up.
    fn run(&mut self, prepare: impl FnOnce(&mut Job)) -> Result<Outcome, String> {
        if self.how.path == Path::Auto {
            self.counters.fell_back();
        }
        let job = match &mut self.job {
            Some(job) => job,
            none => none.insert(Job::new(self.functions, JobPath::Software)?),
        };
        prepare(job);
        // SAFETY: the job was prepared with buffers that live until this returns.
        let status = unsafe { job.execute() };
        Outcome::of(status, job)
    }
}

/// More than the library makes of `raw_bytes` bytes. It stores bytes that do not shrink, at most 65,535 in a block.
fn bound(raw_bytes: usize) -> usize {
    raw_bytes.saturating_add(raw_bytes / 8 + 64)
}

fn empty_stream(target: &mut [MaybeUninit<u8>]) -> Option<usize> {
    let target = target.get_mut(..EMPTY_STREAM.len())?;
    target.write_copy_of_slice(&EMPTY_STREAM);
    Some(EMPTY_STREAM.len())
}

/// Addresses and lengths as a job has them, if its integers hold them.
#[expect(clippy::type_complexity, reason = "two pairs that a job takes")]
fn sizes(source: &[u8], target: &mut [MaybeUninit<u8>]) -> Option<((*const u8, u32), (*mut u8, u32))> {
    let lengths = (u32::try_from(source.len()).ok()?, u32::try_from(target.len()).ok()?);
    Some(((source.as_ptr(), lengths.0), (target.as_mut_ptr().cast(), lengths.1)))
}

/// The outcome of a job that says something about its data.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Done { taken: usize, made: usize },
    TargetFull,
    InputEnds,
    NoValidStream,
}

impl Outcome {
    /// The outcome of a job. A status that says nothing about the data is an error of the engine.
    fn of(status: u32, job: &Job) -> Result<Outcome, String> {
        match status {
            status::OK => {
                let (taken, made, room) = job.totals();
                match made <= room {
                    true => Ok(Outcome::Done { taken, made }),
                    false => {
                        Err(format!("it says that it wrote {made} bytes where there was room for {room}"))
                    }
                }
            }
            status::MORE_OUTPUT_NEEDED | status::DESTINATION_IS_SHORT => Ok(Outcome::TargetFull),
            status::MORE_INPUT_NEEDED => Ok(Outcome::InputEnds),
            other if status::DATA_ERRORS.contains(&other) && !status::NOT_THE_DATA.contains(&other) => {
                Ok(Outcome::NoValidStream)
            }
            other => Err(library::in_words(other)),
        }
    }

    fn compressed(self) -> Result<Option<usize>, String> {
        match self {
            Outcome::Done { made, .. } => Ok(Some(made)),
            Outcome::TargetFull => Ok(None),
            Outcome::InputEnds | Outcome::NoValidStream => Err("it refuses what it should compress".into()),
        }
    }

    fn decompressed(self, packed_bytes: usize) -> Result<Option<usize>, Failure> {
        let damage = match self {
            Outcome::Done { taken, .. } if taken != packed_bytes => {
                Damage { position: taken, what: "bytes after the last block" }
            }
            Outcome::Done { made, .. } => return Ok(Some(made)),
            Outcome::TargetFull => return Ok(None),
            Outcome::InputEnds => Damage { position: packed_bytes, what: "the input ends" },
            Outcome::NoValidStream => Damage { position: packed_bytes, what: "no valid stream" },
        };
        Err(damage.into())
    }
}
