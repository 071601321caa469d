//! The part of a context that all formats on the CPU share: limits, buffers, counters, the queue.

use super::{BlockCodec, BlockError, ContextCounters, Done, ImmediateQueue, Job, run_job};
use crate::format::Format;
use std::mem::MaybeUninit;

/// Room that an encoder gets beyond the limit, because some give up a few bytes early. LZ4 and zstd do so up to 8 bytes
/// early; zstd's bit writer stores one machine word at once.
const SLACK_BYTES: usize = 16;

/// The fault of a compressed block, and its position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Damage {
    pub(super) position: usize,
    pub(super) what: &'static str,
}

impl Damage {
    /// The fault of input that decodes well, but to a shorter or longer block than requested.
    pub(super) fn other_length(position: usize) -> Damage {
        Damage { position, what: "another length" }
    }
}

/// The reason why a block did not come back. Either the block is damaged, or the engine could not work, which says
/// nothing about the block.
#[derive(Debug)]
pub(super) enum Failure {
    Damage(Damage),
    #[cfg_attr(
        not(any(feature = "zstd", feature = "libdeflate", feature = "zlib", feature = "qpl")),
        allow(dead_code, reason = "other coders always can")
    )]
    Engine(String),
}

impl From<Damage> for Failure {
    fn from(damage: Damage) -> Failure {
        Failure::Damage(damage)
    }
}

impl Failure {
    /// The error of an engine for a format.
    pub(super) fn of(self, format: Format, engine: &'static str) -> BlockError {
        match self {
            Failure::Damage(Damage { position, what }) => BlockError::Damaged { format, position, what },
            Failure::Engine(reason) => BlockError::Engine { engine, reason },
        }
    }
}

/// A coder for single blocks. It writes into memory that its caller has bounded and reserved.
///
/// # Safety
///
/// `compress` and `decompress` have written the first *n* bytes of their target when they return `Ok(Some(n))`.
pub(super) unsafe trait Coder: Send {
    /// The error of `decompress`. Coders on the CPU find only damage.
    type Error: Into<Failure>;

    /// The engine's name, for its errors.
    const ENGINE: &'static str = "cpu";

    /// The most bytes that `compress` can make of `raw_bytes` bytes.
    fn bound(&self, raw_bytes: usize) -> usize;

    /// The most bytes that a sound block can decode to. A longer request is refused before memory is reserved.
    fn raw_bytes_max(&self, packed: &[u8]) -> Result<usize, Damage>;

    /// Compresses, or returns `None` if the target is too small.
    fn compress(&mut self, raw: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, BlockError>;

    /// Decompresses all of `packed`, or returns `None` if the target is too small.
    fn decompress(
        &mut self,
        packed: &[u8],
        target: &mut [MaybeUninit<u8>],
    ) -> Result<Option<usize>, Self::Error>;
}

/// A [`Coder`] as a [`BlockCodec`].
pub(super) struct Context<'a, C> {
    coder: C,
    format: Format,
    fingerprint: u32,
    counters: ContextCounters<'a>,
    queue: ImmediateQueue,
}

impl<'a, C: Coder> Context<'a, C> {
    pub(super) fn new(
        coder: C,
        format: Format,
        fingerprint: u32,
        counters: ContextCounters<'a>,
    ) -> Context<'a, C> {
        Context { coder, format, fingerprint, counters, queue: ImmediateQueue::default() }
    }

    fn compress_append(
        &mut self,
        raw: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<Option<usize>, BlockError> {
        let room = max_bytes.saturating_add(SLACK_BYTES).min(self.coder.bound(raw.len()));
        out.reserve(room);
        let packed = self.coder.compress(raw, &mut out.spare_capacity_mut()[..room])?;
        let fits = packed.filter(|&length| length <= max_bytes);
        if let Some(length) = fits {
            assert!(length <= room, "an encoder says that it wrote past its target");
            // SAFETY: `length` bytes behind the old length are within the capacity (`room` was reserved) and were
            // written: that is the contract of `Coder::compress`.
            unsafe { out.set_len(out.len() + length) };
        }
        Ok(fits)
    }

    fn decompress_append(
        &mut self,
        packed: &[u8],
        out: &mut Vec<u8>,
        raw_bytes: usize,
    ) -> Result<(), Failure> {
        self.check_plausible(packed, raw_bytes)?;
        out.reserve(raw_bytes);
        self.fill(packed, &mut out.spare_capacity_mut()[..raw_bytes])?;
        // SAFETY: `raw_bytes` were reserved behind the old length, and `fill` has written all of them.
        unsafe { out.set_len(out.len() + raw_bytes) };
        Ok(())
    }

    /// Refuses a length that no sound block of so few bytes has.
    fn check_plausible(&self, packed: &[u8], raw_bytes: usize) -> Result<(), Failure> {
        match raw_bytes > self.coder.raw_bytes_max(packed)? {
            true => Err(Damage::other_length(packed.len()).into()),
            false => Ok(()),
        }
    }

    /// Writes the whole target, or fails.
    fn fill(&mut self, packed: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<(), Failure> {
        let raw_bytes = target.len();
        match self.coder.decompress(packed, target).map_err(Into::into)? {
            Some(written) if written == raw_bytes => Ok(()),
            _ => Err(Damage::other_length(packed.len()).into()),
        }
    }

    fn up_to(&mut self, packed: &[u8], target: &mut [MaybeUninit<u8>]) -> Result<Option<usize>, Failure> {
        let room = target.len().min(self.coder.raw_bytes_max(packed)?);
        self.coder.decompress(packed, &mut target[..room]).map_err(Into::into)
    }
}

/// The first bytes of a target.
///
/// # Safety
///
/// They have been written.
unsafe fn written(target: &mut [MaybeUninit<u8>], length: usize) -> &mut [u8] {
    // SAFETY: the caller's promise.
    unsafe { target[..length].assume_init_mut() }
}

impl<C: Coder> BlockCodec for Context<'_, C> {
    fn compress(
        &mut self,
        raw: &[u8],
        out: &mut Vec<u8>,
        max_bytes: usize,
    ) -> Result<Option<usize>, BlockError> {
        let begun = self.counters.begin();
        let result = self.compress_append(raw, out, max_bytes);
        match &result {
            Ok(fits) => self.counters.compressed(raw.len(), *fits, begun),
            Err(_) => self.counters.faulted(),
        }
        result
    }

    fn decompress(&mut self, packed: &[u8], out: &mut Vec<u8>, raw_bytes: usize) -> Result<(), BlockError> {
        let begun = self.counters.begin();
        let result = self.decompress_append(packed, out, raw_bytes);
        self.counters.decompressed(packed.len(), result.is_ok().then_some(raw_bytes), begun);
        result.map_err(|failure| failure.of(self.format, C::ENGINE))
    }

    fn compress_into<'t>(
        &mut self,
        raw: &[u8],
        target: &'t mut [MaybeUninit<u8>],
    ) -> Result<Option<&'t mut [u8]>, BlockError> {
        let begun = self.counters.begin();
        let room = target.len().min(self.coder.bound(raw.len()));
        let result = self.coder.compress(raw, &mut target[..room]);
        match &result {
            Ok(fits) => self.counters.compressed(raw.len(), *fits, begun),
            Err(_) => self.counters.faulted(),
        }
        // SAFETY: the contract of `Coder::compress`.
        Ok(result?.map(|length| unsafe { written(target, length) }))
    }

    fn decompress_into<'t>(
        &mut self,
        packed: &[u8],
        target: &'t mut [MaybeUninit<u8>],
    ) -> Result<&'t mut [u8], BlockError> {
        let begun = self.counters.begin();
        let raw_bytes = target.len();
        let result = self.check_plausible(packed, raw_bytes).and_then(|()| self.fill(packed, target));
        self.counters.decompressed(packed.len(), result.is_ok().then_some(raw_bytes), begun);
        result.map_err(|failure| failure.of(self.format, C::ENGINE))?;
        // SAFETY: `fill` has written the whole target.
        Ok(unsafe { written(target, raw_bytes) })
    }

    fn decompress_up_to<'t>(
        &mut self,
        packed: &[u8],
        target: &'t mut [MaybeUninit<u8>],
    ) -> Result<Option<&'t mut [u8]>, BlockError> {
        let begun = self.counters.begin();
        let result = self.up_to(packed, target);
        match &result {
            Ok(None) => self.counters.did_not_fit(packed.len(), begun),
            Ok(raw_bytes) => self.counters.decompressed(packed.len(), *raw_bytes, begun),
            Err(_) => self.counters.decompressed(packed.len(), None, begun),
        }
        let result = result.map_err(|failure| failure.of(self.format, C::ENGINE))?;
        // SAFETY: the contract of `Coder::decompress`.
        Ok(result.map(|length| unsafe { written(target, length) }))
    }

    fn dictionary_fingerprint(&self) -> u32 {
        self.fingerprint
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
