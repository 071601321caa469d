//! Blocks of values: the engines and contexts that pack and unpack them.
//!
//! Not for values that are coded alone: `coding` holds a token dictionary for those.
//!
//! 1. A block holds the values of consecutive records (`contents`).
//! 2. It is stored as a `frame` of the codec, with format, length and checksum, or raw if it does not shrink.
//! 3. A context costs more than a small block does, so each thread keeps its own. A thread that used none between two
//!    calls of [`BlockCoding::release_idle`] loses it.
//! 4. Contexts live in the coding that they work for and are freed with it: with the last body of its generation.

mod batches;
mod contents;
mod engines;
mod stored;
mod totals;
mod values;

use std::sync::{Arc, OnceLock};

use thread_local::ThreadLocal;
use ziptier_codec::block::setting::SettingError;
use ziptier_codec::block::{BlockError, DeviceSource, Dictionary, Engine, Huffman, Path, Setting, frame};
use ziptier_codec::format::Format;

use crate::Error;
use crate::codec_options::{BlockOptions, CodecChoice, CodecOptions};
use crate::sync::Mutex;
use engines::{Context, Dense, engine_of, opened};

pub use batches::BegunBlock;
pub use contents::lay_out;
pub(crate) use contents::spans;
pub use stored::format_not_built;
pub use totals::EngineTotals;
pub use values::{PackedValue, ReadAhead};
pub(crate) use values::{Unpacked, take_values};

/// No block is longer than this; a longer one is damage.
const RAW_BYTES_MAX: usize = 128 << 10;

/// Values of a block at most, so that a leaf can be cut between blocks.
pub(crate) const BLOCK_RECORDS_MAX: usize = 64;

/// Bytes of a block dictionary: the size that the codec's table of formats was measured with. With 144 MB of text, of
/// chemical tables, or of source code, one of 110 KiB saved less than 5 % of blocks of 2 KiB.
const DICTIONARY_BYTES: usize = 16 << 10;

/// The occasion of a pack, and so how hard the encoder tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Packs of writers.
    Fast,
    /// In the background: at the dense level, or by the background codec.
    Dense,
}

const NO_MEMORY: &str = "an allocator that has no memory for a context ends the process";

/// A generation of blocks: engines and dictionaries, and the contexts of every thread that used them.
pub struct BlockCoding {
    contexts: ThreadLocal<Mutex<Contexts>>,
    options: BlockOptions,
    generation: u32,
    front: Front,
    /// The engine for [`Effort::Dense`], if it differs.
    dense: Option<Dense>,
    /// Reads what an engine cannot read any more because its device failed.
    rescue: OnceLock<Option<Arc<dyn Engine>>>,
    totals: Arc<EngineTotals>,
}

/// The engine that packs where values are written. It reads all blocks of its format, whatever their level.
struct Front {
    setting: Setting,
    engine: Arc<dyn Engine>,
}

/// The contexts of one thread.
#[derive(Default)]
struct Contexts {
    front: Option<Context>,
    dense: Option<Context>,
    raw: Vec<u8>,
    /// Since the last [`BlockCoding::release_idle`].
    used: bool,
}

impl BlockCoding {
    /// The coding that a store begins with, if it packs blocks: without dictionary.
    pub fn first(options: &CodecOptions) -> Result<Option<Arc<Self>>, Error> {
        if let Some(reason) = misses_model(options) {
            return Err(Error::BlockOptions { reason });
        }
        let Some(format) = options.codec.block_format() else {
            return match options.block.path {
                Path::Hardware => Err(Error::BlockOptions {
                    reason: format!(
                        "codec {} knows no device: choose deflate, or the path auto",
                        options.codec
                    ),
                }),
                _ => Ok(None),
            };
        };
        let block = &options.block;
        let device = device_of(block);
        let refused = |reason| Error::BlockOptions { reason };
        let (fast_level, dense_level) = default_levels(format);
        // Only engines of deflate know devices: a codec beside it keeps to the CPU.
        let background = block.background_codec.and_then(CodecChoice::block_format);
        let beside_deflate = format == Format::Deflate || background == Some(Format::Deflate);
        let path = |format| match format {
            Format::Deflate => block.path,
            _ if beside_deflate => Path::Auto,
            _ => block.path,
        };
        let setting = |format, level| {
            let setting = Setting::new(format).with_level(level).with_huffman(block.huffman);
            setting.with_path(path(format)).with_device(device.clone())
        };
        let front = setting(format, block.level.unwrap_or(fast_level));
        let level = block.dense_level.or(block.level);
        let dense = match block.background_codec {
            Some(codec) if codec != options.codec => {
                let format = codec.block_format().ok_or_else(|| {
                    refused(format!(
                        "the background codec {codec} has no blocks: choose lz4, zstd or deflate"
                    ))
                })?;
                setting(format, block.dense_level.unwrap_or(default_levels(format).1))
            }
            _ => setting(format, level.unwrap_or(dense_level)),
        };
        let dense = Some(dense).filter(|dense| (dense.format, dense.level) != (front.format, front.level));
        let coding = Self::new(block.clone(), front, dense, 0, Arc::default()).map_err(|error| match error {
            SettingError::Unavailable { .. } | SettingError::NotBuilt { .. } => {
                Error::EngineUnavailable { reason: error.to_string() }
            }
            error => refused(error.to_string()),
        });
        coding.map(|coding| Some(Arc::new(coding)))
    }

    /// The same packing with a dictionary for each format that takes one, trained on `samples`; `None` if they give
    /// none.
    pub(crate) fn trained(&self, samples: &[&[u8]], generation: u32) -> Option<Self> {
        // Canned codes are made for blocks of the samples' size.
        let bytes: usize = samples.iter().map(|sample| sample.len()).sum();
        let in_a_block = (self.options.bytes * samples.len() / bytes.max(1)).max(1);
        let blocks: Vec<Vec<u8>> = samples.chunks(in_a_block).map(|values| values.concat()).collect();
        let blocks: Vec<&[u8]> = blocks.iter().map(Vec::as_slice).collect();
        let with_dictionary = |setting: &Setting| {
            let setting = Setting { dictionary: None, ..setting.clone() };
            if !takes_dictionary(&setting) {
                return Some(setting);
            }
            let samples = if setting.format == Format::Deflate { &blocks } else { samples };
            let trained = Dictionary::train(setting.format, samples, DICTIONARY_BYTES, generation).ok()?;
            Some(setting.with_dictionary(Arc::new(trained)))
        };
        let front = with_dictionary(&self.front.setting)?;
        let dense = match &self.dense {
            None => None,
            Some(dense) if dense.kept.is_some() => Some(with_dictionary(&dense.setting)?),
            Some(dense) => Some(front.clone().with_level(dense.setting.level)),
        };
        Self::new(self.options.clone(), front, dense, generation, self.totals.clone()).ok()
    }

    /// One whose blocks this engine of `deflate` packs, with any effort.
    #[cfg(all(any(test, feature = "testing"), not(miri), not(shuttle)))]
    pub fn on(engine: Arc<dyn Engine>, options: BlockOptions) -> Arc<Self> {
        let totals = Arc::<EngineTotals>::default();
        let setting = Setting::new(Format::Deflate).with_huffman(Huffman::Dynamic);
        let front = Front { setting, engine: totals.tally(engine) };
        let (contexts, rescue) = (ThreadLocal::new(), OnceLock::new());
        Arc::new(Self { contexts, options, generation: 0, front, dense: None, rescue, totals })
    }

    fn new(
        options: BlockOptions,
        front: Setting,
        dense: Option<Setting>,
        generation: u32,
        totals: Arc<EngineTotals>,
    ) -> Result<Self, SettingError> {
        let engine = totals.tally(engine_of(&front, options.engine)?);
        let dense =
            dense.map(|dense| Dense::new(dense, front.format, options.engine, &totals)).transpose()?;
        let front = Front { setting: front, engine };
        let (contexts, rescue) = (ThreadLocal::new(), OnceLock::new());
        Ok(Self { contexts, options, generation, front, dense, rescue, totals })
    }

    /// Bytes that packing densely needs while it does so; 0 if it was asked for.
    pub(crate) fn dense_memory_bytes(&self) -> usize {
        self.dense.as_ref().filter(|_| !self.has_background_codec()).map_or(0, |dense| dense.memory_bytes)
    }

    /// Whether what is packed in the background has a format of its own.
    pub(crate) fn has_background_codec(&self) -> bool {
        self.dense.as_ref().is_some_and(|dense| dense.kept.is_some())
    }

    /// The same without an engine of its own for packing densely.
    pub(crate) fn without_dense(self) -> Self {
        Self { dense: None, contexts: ThreadLocal::new(), ..self }
    }

    /// Its number: of two codings of a store, the later has the higher one.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Bytes of values in a block. A write packs a block anew. A block of half the size takes little more than half the
    /// time, and less than a tenth more room until its leaf is quiet.
    pub fn block_bytes(&self, effort: Effort) -> usize {
        match effort {
            Effort::Fast => self.options.bytes / 2,
            Effort::Dense => self.options.bytes,
        }
    }

    /// Whether a dictionary can pay.
    pub(crate) fn wants_dictionary(&self) -> bool {
        takes_dictionary(&self.front.setting)
            || self.dense.as_ref().is_some_and(|dense| takes_dictionary(&dense.setting))
    }

    /// Bytes of dictionaries and engines. Contexts are not counted, nor what is prepared for packing densely: both are
    /// there while there is work for them.
    pub(crate) fn memory_bytes(&self) -> usize {
        let background = self.dense.as_ref().filter(|_| self.has_background_codec());
        let settings = std::iter::once(&self.front.setting).chain(background.map(|dense| &dense.setting));
        let dictionaries = settings.filter_map(|setting| setting.dictionary.as_ref());
        dictionaries.map(|own| own.memory_bytes()).sum::<usize>()
            + self.front.engine.memory_bytes()
            + background.map_or(0, |dense| dense.memory_bytes)
    }

    /// About what [`BlockCoding::memory_bytes`] of one with a dictionary will be.
    pub(crate) fn memory_bytes_expected(&self) -> usize {
        // With the tables of both levels, `lz4` at its default levels held 295,000 bytes and `zstd` 549,000.
        Dictionary::memory_bytes_expected(self.front.setting.format, DICTIONARY_BYTES) + (192 << 10)
    }

    /// Appends the frame of a block; `raw` is its contents.
    pub fn pack(&self, effort: Effort, raw: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        let packed = self.with_contexts(|contexts| {
            if let (Effort::Dense, Some(dense)) = (effort, &self.dense) {
                let codec = &mut *self.dense(contexts, dense)?.codec;
                // A raw block is always the front's: its checksum depends on the dictionary, and nothing else tells
                // whose.
                if frame::pack(codec, dense.setting.format, raw, out).is_ok() {
                    if dense.kept.is_none() || out[start] != Format::None.number() {
                        return Ok(());
                    }
                    out.truncate(start);
                }
                let codec = &mut *self.front(contexts)?.codec;
                return frame::pack(codec, Format::None, raw, out).map(|_| ());
            }
            let codec = &mut *self.front(contexts)?.codec;
            // An engine that fails leaves the block raw.
            let packed = frame::pack(codec, self.front.setting.format, raw, out);
            packed.or_else(|_| frame::pack(codec, Format::None, raw, out)).map(|_| ())
        });
        packed.expect(NO_MEMORY);
    }

    /// Appends the contents of a block.
    ///
    /// # Errors
    /// The fault of the frame; `raw` is as it was then.
    pub fn unpack(&self, frame: &[u8], raw: &mut Vec<u8>) -> Result<(), String> {
        self.with_contexts(|contexts| self.unpack_with(contexts, frame, raw))
            .map_err(|error| error.to_string())
    }

    fn unpack_with(
        &self,
        contexts: &mut Contexts,
        frame: &[u8],
        raw: &mut Vec<u8>,
    ) -> Result<(), BlockError> {
        let unpacked = match &self.dense {
            Some(dense) if dense.kept.is_some() && frame.first() == Some(&dense.setting.format.number()) => {
                let codec = &mut *self.dense(contexts, dense)?.codec;
                frame::unpack(codec, dense.setting.format, frame, raw, RAW_BYTES_MAX)
            }
            _ => {
                let codec = &mut *self.front(contexts)?.codec;
                frame::unpack(codec, self.front.setting.format, frame, raw, RAW_BYTES_MAX)
            }
        };
        match unpacked {
            Err(BlockError::Engine { .. }) => self.rescue(frame, raw),
            unpacked => unpacked.map(|_| ()),
        }
    }

    /// Unpacks a block whose engine failed: it is as sound as before, and must not be taken for damaged.
    #[cold]
    fn rescue(&self, frame: &[u8], raw: &mut Vec<u8>) -> Result<(), BlockError> {
        let software = || {
            let setting = self.front.setting.clone().with_path(Path::Software);
            engine_of(&setting, Some("software")).ok().map(|engine| self.totals.tally(engine))
        };
        let Some(engine) = self.rescue.get_or_init(software) else {
            let reason = "it failed, and no other engine reads its blocks".into();
            return Err(BlockError::Engine { engine: self.front.engine.name(), reason });
        };
        self.totals.note_fallback(self.front.engine.name());
        frame::unpack(engine.open()?.as_mut(), engine.format(), frame, raw, RAW_BYTES_MAX).map(|_| ())
    }

    /// The name of the foreground's engine.
    pub fn engine_name(&self) -> &'static str {
        self.front.engine.name()
    }

    /// The worker of the foreground's engine, in the words of result tables.
    pub fn worker(&self) -> &'static str {
        self.front.engine.worker()
    }

    /// The counters of all engines of the store.
    pub fn totals(&self) -> &Arc<EngineTotals> {
        &self.totals
    }

    /// Hands the contents of a block to `take`; they lie in this thread's scratch.
    fn unpacked<R>(&self, frame: &[u8], take: impl FnOnce(&[u8]) -> R) -> Result<R, String> {
        let taken = self.with_contexts(|contexts| {
            let mut raw = std::mem::take(&mut contexts.raw);
            raw.clear();
            let unpacked = self.unpack_with(contexts, frame, &mut raw);
            let taken = unpacked.map(|()| take(&raw));
            contexts.raw = raw;
            taken
        });
        taken.map_err(|error| error.to_string())
    }

    fn front<'c>(&self, contexts: &'c mut Contexts) -> Result<&'c mut Context, BlockError> {
        opened(&mut contexts.front, || Ok(self.front.engine.clone()))
    }

    fn dense<'c>(&self, contexts: &'c mut Contexts, dense: &Dense) -> Result<&'c mut Context, BlockError> {
        opened(&mut contexts.dense, || dense.engine(self.options.engine, &self.totals))
    }

    /// The engine that packs with this effort.
    fn packing<'c>(&self, contexts: &'c mut Contexts, effort: Effort) -> Result<&'c mut Context, BlockError> {
        match (effort, &self.dense) {
            (Effort::Dense, Some(dense)) => self.dense(contexts, dense),
            _ => self.front(contexts),
        }
    }

    #[inline]
    fn with_contexts<R>(
        &self,
        work: impl FnOnce(&mut Contexts) -> Result<R, BlockError>,
    ) -> Result<R, BlockError> {
        if !self.options.context_cache {
            return work(&mut Contexts::default());
        }
        // Only its own thread and, now and then, `release_idle` want this lock.
        let mut contexts = self.contexts.get_or_default().lock();
        contexts.used = true;
        work(&mut contexts)
    }

    /// Contexts that threads keep.
    #[cfg(all(any(test, feature = "testing"), not(miri), not(shuttle)))]
    pub fn contexts_kept(&self) -> usize {
        let kept = |contexts: &Contexts| {
            usize::from(contexts.front.is_some()) + usize::from(contexts.dense.is_some())
        };
        self.contexts.iter().map(|contexts| kept(&contexts.lock())).sum()
    }

    /// Frees the contexts of all threads that used none since this was last called. It frees contexts for packing
    /// densely in any case: between two such calls no thread needs them, and with their tables they hold 250
    /// to 550 KiB. Contexts with jobs under way stay.
    pub fn release_idle(&self) {
        for contexts in &self.contexts {
            let mut contexts = contexts.lock();
            if !std::mem::take(&mut contexts.used) {
                contexts.raw = Vec::new();
                contexts.front.take_if(Context::is_idle);
                contexts.dense.take_if(Context::is_idle);
            } else if !self.has_background_codec() {
                contexts.dense.take_if(Context::is_idle);
            }
        }
    }
}

/// Why nothing would work on the model that was asked for.
fn misses_model(options: &CodecOptions) -> Option<String> {
    let block = &options.block;
    let packs = |codec: CodecChoice| codec.block_format() == Some(Format::Deflate);
    let deflate = packs(options.codec) || block.background_codec.is_some_and(packs);
    let works = deflate && block.engine.is_none_or(|name| name == "iaa") && block.path != Path::Software;
    let reason = || "a model is for engine iaa of codec deflate, and not for the path software".to_owned();
    (block.device != DeviceSource::Discovered && !works).then(reason)
}

/// The source of devices: the one that was asked for, or a model in tests that ask for one in the environment.
fn device_of(options: &BlockOptions) -> DeviceSource {
    #[cfg(all(debug_assertions, feature = "iaa"))]
    if options.device == DeviceSource::Discovered
        && options.engine.is_none()
        && std::env::var("ZIPTIER_TEST_ENGINE").is_ok_and(|name| name == "model")
    {
        return DeviceSource::Modelled(ziptier_codec::block::ModelOptions::default());
    }
    options.device.clone()
}

/// Whether blocks are given a dictionary. `deflate` with a dictionary, and codes of its own for every block, takes 1.5
/// times as long to read and 3 times to write. It saves 13 % of the bytes of 512-byte blocks of text, and less of
/// larger ones (`docs/MEASUREMENTS.md`, "Codec, blocks").
fn takes_dictionary(setting: &Setting) -> bool {
    setting.format != Format::Deflate || setting.huffman == Huffman::Canned
}

/// Levels for writing and for quiet leaves.
fn default_levels(format: Format) -> (i32, i32) {
    match format {
        Format::Lz4 => (1, 6),
        Format::Zstd => (1, 6),
        _ => (1, 6),
    }
}

// The C libraries do not run under Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use super::*;

    fn coding(codec: CodecChoice, background_codec: Option<CodecChoice>) -> Arc<BlockCoding> {
        let block = BlockOptions { background_codec, ..BlockOptions::default() };
        let options = CodecOptions { codec, block };
        BlockCoding::first(&options).expect("the options are sound").expect("the codec packs blocks")
    }

    /// Contexts that threads keep: those that write, and those that pack densely.
    fn kept(coding: &BlockCoding) -> (usize, usize) {
        let kept = |pick: fn(&Contexts) -> &Option<Context>| {
            coding.contexts.iter().filter(|contexts| pick(&contexts.lock()).is_some()).count()
        };
        (kept(|contexts| &contexts.front), kept(|contexts| &contexts.dense))
    }

    #[test]
    fn idle_contexts_are_freed_and_those_for_packing_densely_at_once() {
        for codec in [CodecChoice::Lz4, CodecChoice::Zstd, CodecChoice::Deflate] {
            let coding = coding(codec, None);
            let (mut fast, mut dense) = (Vec::new(), Vec::new());
            coding.pack(Effort::Fast, &[b'a'; 300], &mut fast);
            coding.pack(Effort::Dense, &[b'a'; 300], &mut dense);
            let made = &coding.dense.as_ref().expect("levels differ").engine;
            assert_eq!((kept(&coding), made.lock().strong_count()), ((1, 1), 1), "{codec}");
            coding.release_idle();
            assert_eq!((kept(&coding), made.lock().strong_count()), ((1, 0), 0), "{codec}");
            coding.release_idle();
            assert_eq!(kept(&coding), (0, 0), "{codec}");
            for frame in [fast, dense] {
                let mut raw = Vec::new();
                coding.unpack(&frame, &mut raw).expect("it was packed by the same codec");
                assert_eq!(raw, [b'a'; 300], "{codec}");
            }
        }
    }

    #[test]
    fn every_bit_of_a_block_of_either_codec_is_checked() {
        let samples: Vec<String> =
            (0..4000).map(|n| format!("value {} of a block", n * 7919 % 3001)).collect();
        let samples: Vec<&[u8]> = samples.iter().map(String::as_bytes).collect();
        let first = coding(CodecChoice::Lz4, Some(CodecChoice::Zstd));
        let coding = first.trained(&samples, 1).expect("the samples have much in common");
        let noise: Vec<u8> = (0..200u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for raw in [&samples[..20].concat(), &noise] {
            for effort in [Effort::Fast, Effort::Dense] {
                let mut frame = Vec::new();
                coding.pack(effort, raw, &mut frame);
                let mut out = Vec::new();
                assert_eq!(coding.unpack(&frame, &mut out), Ok(()));
                assert_eq!(out, *raw);
                for bit in 0..8 * frame.len() {
                    let mut damaged = frame.clone();
                    damaged[bit / 8] ^= 1 << (bit % 8);
                    assert!(coding.unpack(&damaged, &mut out).is_err(), "{effort:?}, bit {bit}");
                    assert_eq!(out, *raw);
                }
                assert!(first.unpack(&frame, &mut out).is_err(), "another generation has other dictionaries");
            }
        }
    }
}
