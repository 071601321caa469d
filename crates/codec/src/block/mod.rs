//! Seams for block codecs and accelerators.
//!
//! A *block* is the bytes of some records, packed and unpacked as one. An [`Engine`] does the work for one format: a
//! library on the CPU, or a device. Each thread opens its own context, a [`BlockCodec`], and keeps it, because building
//! a context costs more than coding a small block. A context takes one block at a time, or a batch of independent
//! blocks. The caller submits a batch together and reaps it together, and the CPU is free meanwhile.
//!
//! A stored block is a [`frame`]: format, length, checksum, and the payload. A block that does not shrink is stored
//! raw, so a frame is never larger than the block plus [`frame::HEADER_BYTES`].
//!
//! | module | what it owns |
//! |---|---|
//! | [`counters`] | what an engine has done, counted |
//! | [`frame`](mod@frame) | the stored form of a block |
//! | [`setting`] | what to write with: format, level, Huffman mode, dictionary; it finds the engine |
//! | [`dictionary`] | what blocks share: training, stored form, fingerprint |
//! | [`none`] | the engine that copies; the simplest example of one |
//! | [`lz4`], [`zstd`], [`token`] | engines `cpu` of these formats |
//! | [`libdeflate`], [`deflate`] | engine `software` of format `deflate`, without a dictionary and with one |
//! | [`parts`](mod@parts) | the same for readers that ignore what follows a stream: with entry points for a faster decoder |
//! | [`split`] | blocks of format `deflate` in parts that are compressed and decompressed side by side |
//! | [`zlib`] | engine `zlib` of format `deflate` |
//! | [`iaa`] | engine `iaa` of format `deflate`, on devices of the machine or on a model |
//! | [`qpl`] | engine `qpl` of format `deflate` |

mod batch;
mod context;
mod contexts;
pub mod counters;
#[cfg(feature = "deflate")]
pub mod deflate;
mod device;
pub mod dictionary;
mod error;
pub mod frame;
#[cfg(any(feature = "libdeflate", feature = "zlib"))]
mod heap;
#[cfg(feature = "iaa")]
pub mod iaa;
#[cfg(feature = "libdeflate")]
pub mod libdeflate;
#[cfg(feature = "lz4")]
pub mod lz4;
pub mod none;
#[cfg(feature = "libdeflate")]
pub mod parts;
mod path;
#[cfg(feature = "zlib")]
mod preload;
#[cfg(feature = "qpl")]
pub mod qpl;
pub mod setting;
pub mod split;
#[cfg(feature = "zstd")]
pub mod token;
#[cfg(feature = "zlib")]
pub mod zlib;
#[cfg(feature = "zstd")]
pub mod zstd;

pub use batch::{Batches, Begun};
pub use contexts::Contexts;
pub use counters::{ContextCounters, Counters, CountersSnapshot};
pub use device::DeviceSource;
pub use dictionary::Dictionary;
pub use error::BlockError;
pub use path::Path;
#[cfg(feature = "zlib")]
pub use preload::Preloaded;
#[cfg(feature = "doctor")]
pub(crate) use preload::record as record_preloaded;
pub use setting::{Huffman, Setting};
#[cfg(feature = "iaa")]
pub use ziptier_accel::{ModelOptions, ModelOptionsError};

use crate::format::Format;
use std::mem::MaybeUninit;

/// An implementation of one format.
pub trait Engine: Send + Sync {
    /// The name that options and tables use, such as `cpu`.
    fn name(&self) -> &'static str;

    /// The format that this engine writes and reads.
    fn format(&self) -> Format;

    /// The actual worker, in the words of result tables: `cpu`, `software`, `hardware` and so on.
    fn worker(&self) -> &'static str {
        self.name()
    }

    /// Whether [`BlockCodec::decompress`] checks the bytes behind the block's contents. Faults there are a missing end
    /// mark or extra bytes. In a [frame](frame::unpack) the checksum finds them.
    fn checks_end(&self) -> bool {
        true
    }

    /// Whether jobs of a batch run on a device while their submitter continues. Otherwise each job is done at
    /// submission, and a batch has no advantage over single calls.
    fn is_asynchronous(&self) -> bool {
        false
    }

    /// The counters of all contexts of this engine together.
    fn counters(&self) -> &Counters;

    /// The most bytes that a context can make of `raw_bytes` bytes.
    fn bound(&self, raw_bytes: usize) -> usize {
        // No code of DEFLATE for a byte is longer than 15 bits. The other formats expand less.
        raw_bytes.saturating_mul(2).saturating_add(64)
    }

    /// Bytes of heap that the engine holds for all contexts: the data prepared from its dictionary.
    fn memory_bytes(&self) -> usize {
        0
    }

    /// A context for one thread, to be kept and reused.
    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError>;
}

/// A context of an [`Engine`]: the scratch of one thread.
///
/// An implementation counts its work in its own [counters](Counters::open), and its engine adds them up.
pub trait BlockCodec: Send {
    /// Appends the compressed block to `out` and returns its length, at most `max_bytes`.
    ///
    /// Returns `Ok(None)` as soon as it is certain that the block does not fit, and leaves `out` unchanged. No input is
    /// refused.
    fn compress(
        &mut self,
        raw: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<Option<usize>, BlockError>;

    /// Appends the block to `out`. The caller knows that the block has `raw_bytes` bytes.
    ///
    /// `packed` may be any bytes. Anything except a compressed block of exactly this length is an error (but see
    /// [`Engine::checks_end`]). An error leaves `out` unchanged. At most `raw_bytes` and a small slack are allocated.
    fn decompress(&mut self, packed: &[u8], out: &mut Vec<u8>, raw_bytes: usize) -> Result<(), BlockError>;

    /// As [`compress`](Self::compress), to the start of `target`, and returns the compressed block.
    ///
    /// A block that fills the target to within 16 bytes may count as one that does not fit. With
    /// [`Engine::bound`] bytes, every block fits.
    fn compress_into<'t>(
        &mut self,
        raw: &[u8],
        target: &'t mut [MaybeUninit<u8>],
    ) -> Result<Option<&'t mut [u8]>, BlockError> {
        let mut packed = Vec::new();
        let fits = self.compress(raw, &mut packed, target.len())?;
        Ok(fits.map(|length| target[..length].write_copy_of_slice(&packed)))
    }

    /// As [`decompress`](Self::decompress), into `target`, which is as long as the block.
    fn decompress_into<'t>(
        &mut self,
        packed: &[u8],
        target: &'t mut [MaybeUninit<u8>],
    ) -> Result<&'t mut [u8], BlockError> {
        let mut raw = Vec::new();
        self.decompress(packed, &mut raw, target.len())?;
        Ok(target.write_copy_of_slice(&raw))
    }

    /// Unpacks a block whose length the caller does not know, to the start of `target`. Returns the block, or `None` if
    /// it is longer than the target.
    ///
    /// Damage may give a shorter block, where the exact length would have revealed it. An engine that needs the length
    /// returns [`BlockError::Engine`], as this default does.
    fn decompress_up_to<'t>(
        &mut self,
        _packed: &[u8],
        _target: &'t mut [MaybeUninit<u8>],
    ) -> Result<Option<&'t mut [u8]>, BlockError> {
        Err(unknown_length("of this block"))
    }

    /// The [fingerprint](Dictionary::fingerprint) of the dictionary in use, 0 if there is none.
    fn dictionary_fingerprint(&self) -> u32 {
        0
    }

    /// Submits a job of a batch. A full queue gives the job back.
    ///
    /// Jobs own their buffers, so that a device may use the buffers until the job is reaped, whatever the caller does.
    fn submit(&mut self, job: Job) -> Result<(), Job>;

    /// Moves finished jobs to `done`, in any order. With `wait` it returns only when the queue is empty.
    fn reap(&mut self, done: &mut Vec<Done>, wait: bool);
}

/// The error of an engine that must know the length of a block.
fn unknown_length(engine: &'static str) -> BlockError {
    let reason = "cannot unpack a block of unknown length: give the length".to_owned();
    BlockError::Engine { engine, reason }
}

/// The task for the input of a [`Job`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// [`BlockCodec::compress`].
    Compress {
        /// The most bytes that the result may have.
        max_bytes: usize,
    },
    /// [`BlockCodec::decompress`].
    Decompress {
        /// The bytes that the result must have.
        raw_bytes: usize,
    },
}

/// One block of a batch, with its buffers.
#[derive(Debug)]
pub struct Job {
    /// The caller's mark, returned unchanged.
    pub tag: u64,
    /// The task.
    pub task: Task,
    /// The input bytes.
    pub input: Vec<u8>,
    /// The buffer to which the result is appended.
    pub output: Vec<u8>,
}

/// A finished [`Job`].
#[derive(Debug)]
pub struct Done {
    /// The job, with its buffers.
    pub job: Job,
    /// Bytes appended to the output, or `None` if they would not fit.
    pub result: Result<Option<usize>, BlockError>,
}

/// The queue of an engine without a device. A job is done at submission, and waits to be reaped.
#[derive(Debug, Default)]
pub struct ImmediateQueue {
    done: Vec<Done>,
}

impl ImmediateQueue {
    /// The most jobs held until they are reaped. A caller that never reaps meets a full queue, as with a device.
    pub const JOBS_MAX: usize = 256;

    /// Whether the next job would be given back.
    pub fn is_full(&self) -> bool {
        self.done.len() >= ImmediateQueue::JOBS_MAX
    }

    /// Keeps a finished job.
    pub fn push(&mut self, done: Done) {
        self.done.push(done);
    }

    /// Moves every finished job to `done`.
    pub fn drain_into(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.done);
    }
}

/// Runs a job at once, by the context's [`compress`](BlockCodec::compress) or [`decompress`](BlockCodec::decompress).
pub fn run_job(codec: &mut dyn BlockCodec, mut job: Job) -> Done {
    let result = match job.task {
        Task::Compress { max_bytes } => codec.compress(&job.input, &mut job.output, max_bytes),
        Task::Decompress { raw_bytes } => {
            codec.decompress(&job.input, &mut job.output, raw_bytes).map(|()| Some(raw_bytes))
        }
    };
    Done { job, result }
}
