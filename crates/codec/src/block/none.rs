//! Format `none`: the engine that copies.

use super::{BlockCodec, BlockError, Counters, Done, Engine, ImmediateQueue, Job, run_job};
use crate::format::Format;
use std::time::Instant;

/// The engine of format `none`.
///
/// ```
/// use ziptier_codec::block::{Engine, frame, none::Copying};
///
/// let engine = Copying::new();
/// let mut codec = engine.open()?;
/// let mut stored = Vec::new();
/// frame::pack(codec.as_mut(), engine.format(), b"some records", &mut stored)?;
/// let mut raw = Vec::new();
/// frame::unpack(codec.as_mut(), engine.format(), &stored, &mut raw, 4096)?;
/// assert_eq!(raw, b"some records");
/// # Ok::<(), ziptier_codec::block::BlockError>(())
/// ```
#[derive(Debug, Default)]
pub struct Copying {
    counters: Counters,
}

impl Copying {
    /// An engine whose counters are at zero.
    pub const fn new() -> Copying {
        Copying { counters: Counters::new() }
    }
}

impl Engine for Copying {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn format(&self) -> Format {
        Format::None
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        Ok(Box::new(Context { counters: &self.counters, queue: ImmediateQueue::default() }))
    }
}

struct Context<'a> {
    counters: &'a Counters,
    queue: ImmediateQueue,
}

impl BlockCodec for Context<'_> {
    fn compress(
        &mut self,
        raw: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<Option<usize>, BlockError> {
        let begun = Instant::now();
        let fits = (raw.len() <= max_bytes).then_some(raw.len());
        if fits.is_some() {
            out.extend_from_slice(raw);
        }
        self.counters.compressed(raw.len(), fits, begun.elapsed());
        Ok(fits)
    }

    fn decompress(&mut self, packed: &[u8], out: &mut Vec<u8>, raw_bytes: usize) -> Result<(), BlockError> {
        let begun = Instant::now();
        let sound = packed.len() == raw_bytes;
        if sound {
            out.extend_from_slice(packed);
        }
        self.counters.decompressed(packed.len(), sound.then_some(raw_bytes), begun.elapsed());
        if sound {
            return Ok(());
        }
        let position = packed.len().min(raw_bytes);
        Err(BlockError::Damaged { format: Format::None, position, what: "another length" })
    }

    fn submit(&mut self, job: Job) -> Result<(), Job> {
        if self.queue.is_full() {
            self.counters.queue_was_full();
            return Err(job);
        }
        let done = run_job(self, job);
        self.queue.push(done);
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>, _wait: bool) {
        self.queue.drain_into(done);
    }
}
