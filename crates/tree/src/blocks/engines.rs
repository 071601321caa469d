//! Engines of blocks: contexts that bring theirs along, and one that is prepared when it is needed.

use std::sync::{Arc, Weak};

use ziptier_codec::block::setting::SettingError;
use ziptier_codec::block::{Batches, Begun, BlockCodec, BlockError, Engine, Huffman, Setting, frame};
use ziptier_codec::format::Format;

use super::RAW_BYTES_MAX;
use super::totals::EngineTotals;
use crate::sync::Mutex;

/// The engine that packs in the background. The tables that it prepares from a dictionary for its level are kept as
/// long as a thread has a context of it.
pub(super) struct Dense {
    pub(super) setting: Setting,
    pub(super) engine: Mutex<Weak<dyn Engine>>,
    pub(super) memory_bytes: usize,
    /// One of another format than the front's is needed to read what it wrote.
    pub(super) kept: Option<Arc<dyn Engine>>,
}

/// A context that brings its engine along.
pub(super) struct Context {
    /// Dropped before the engine, which it borrows from: see [`Context::open`].
    pub(super) codec: Box<dyn BlockCodec>,
    batches: Batches,
    _engine: Arc<dyn Engine>,
}

impl Context {
    fn open(engine: Arc<dyn Engine>) -> Result<Self, BlockError> {
        let codec = engine.open()?;
        // SAFETY: only the lifetime changes. The codec borrows from the engine behind the `Arc`, which does not move,
        // and which this context keeps until after the codec is dropped (fields drop in the order of their
        // declaration).
        let codec = unsafe { std::mem::transmute::<Box<dyn BlockCodec + '_>, Box<dyn BlockCodec>>(codec) };
        Ok(Self { codec, batches: Batches::default(), _engine: engine })
    }

    /// See [`frame::begin_pack`].
    pub(super) fn begin_pack(&mut self, format: Format, contents: Vec<u8>) -> Begun {
        frame::begin_pack(&mut *self.codec, &mut self.batches, format, contents)
    }

    /// See [`frame::finish_pack`].
    pub(super) fn finish_pack(&mut self, begun: Begun) -> Vec<u8> {
        frame::finish_pack(&mut *self.codec, &mut self.batches, begun)
    }

    /// See [`frame::unpack_batch`].
    pub(super) fn unpack_batch(
        &mut self,
        format: Format,
        frames: &[&[u8]],
    ) -> Vec<Result<Vec<u8>, BlockError>> {
        frame::unpack_batch(&mut *self.codec, &mut self.batches, format, frames, RAW_BYTES_MAX)
    }

    /// Looks after the jobs under way, without waiting.
    pub(super) fn reap(&mut self) {
        self.batches.reap(&mut *self.codec);
    }

    /// Whether no job is under way, be it one that was given up.
    pub(super) fn is_idle(&mut self) -> bool {
        self.batches.under_way() == 0 || {
            self.reap();
            self.batches.under_way() == 0
        }
    }
}

/// The context of a slot, opened if need be.
pub(super) fn opened(
    slot: &mut Option<Context>,
    engine: impl FnOnce() -> Result<Arc<dyn Engine>, BlockError>,
) -> Result<&mut Context, BlockError> {
    Ok(match slot {
        Some(context) => context,
        none => none.insert(Context::open(engine()?)?),
    })
}

/// The setting's engine of that name, or the preferred one. Canned codes come with the first dictionary: before it,
/// blocks have codes of their own.
pub(super) fn engine_of(setting: &Setting, name: Option<&str>) -> Result<Arc<dyn Engine>, SettingError> {
    let named = |setting: &Setting| name.map_or_else(|| setting.engine(), |name| setting.engine_named(name));
    match named(setting) {
        Err(SettingError::NoCannedCodes) => named(&setting.clone().with_huffman(Huffman::Dynamic)),
        engine => engine,
    }
}

impl Dense {
    pub(super) fn new(
        setting: Setting,
        front: Format,
        name: Option<&str>,
        totals: &Arc<EngineTotals>,
    ) -> Result<Self, SettingError> {
        let engine = totals.tally(engine_of(&setting, name.filter(|_| setting.format == front))?);
        Ok(Self {
            memory_bytes: engine.memory_bytes(),
            kept: (setting.format != front).then(|| engine.clone()),
            engine: Mutex::new(Arc::downgrade(&engine)),
            setting,
        })
    }

    pub(super) fn engine(
        &self,
        name: Option<&str>,
        totals: &Arc<EngineTotals>,
    ) -> Result<Arc<dyn Engine>, BlockError> {
        if let Some(kept) = &self.kept {
            return Ok(kept.clone());
        }
        let mut shared = self.engine.lock();
        if let Some(engine) = shared.upgrade() {
            return Ok(engine);
        }
        let engine = engine_of(&self.setting, name)
            .map_err(|error| BlockError::Engine { engine: "dense", reason: error.to_string() })?;
        let engine = totals.tally(engine);
        *shared = Arc::downgrade(&engine);
        Ok(engine)
    }
}
