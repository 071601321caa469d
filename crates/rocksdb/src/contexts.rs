//! Contexts of an engine, kept from block to block.
//!
//! RocksDB may pack a block on any background thread and read it on any other, and gives no working area for a context.
//! So contexts wait in a pool, which grows to as many as ever worked at once.

use std::sync::{Arc, Mutex, PoisonError};
use ziptier_codec::block::{BlockCodec, BlockError, Engine};

/// An engine, and contexts of it that are free.
pub(crate) struct Contexts {
    /// Dropped before the engine that they borrow from: fields drop in the order of their declaration.
    free: Mutex<Vec<Box<dyn BlockCodec>>>,
    engine: Arc<dyn Engine>,
}

impl Contexts {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Contexts {
        Contexts { free: Mutex::default(), engine }
    }

    pub(crate) fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Gives `work` a context for its exclusive use. A context is dropped after a panic.
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&mut dyn BlockCodec) -> Result<T, BlockError>,
    ) -> Result<T, BlockError> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut context = match free {
            Some(context) => context,
            None => self.open()?,
        };
        let result = work(&mut *context);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(context);
        result
    }

    fn open(&self) -> Result<Box<dyn BlockCodec>, BlockError> {
        let context = self.engine.open()?;
        // SAFETY: only the lifetime changes. The context borrows from the engine behind the `Arc`, which does not move
        // and is dropped after the pool. `with` hands a context out only for the time of a borrow of `self`.
        Ok(unsafe { std::mem::transmute::<Box<dyn BlockCodec + '_>, Box<dyn BlockCodec>>(context) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ziptier_codec::block::Setting;
    use ziptier_codec::format::Format;

    #[test]
    fn contexts_come_back_and_outlive_no_engine() {
        let contexts = Contexts::new(Setting::new(Format::None).engine().unwrap());
        for _ in 0..3 {
            let mut out = Vec::new();
            contexts.with(|codec| codec.compress(b"abc", &mut out, 10)).unwrap();
            assert_eq!(out, b"abc");
        }
        assert_eq!(contexts.free.lock().unwrap().len(), 1);
        // Two at once are two contexts.
        contexts.with(|_| contexts.with(|_| Ok(()))).unwrap();
        assert_eq!(contexts.free.lock().unwrap().len(), 2);
    }
}
