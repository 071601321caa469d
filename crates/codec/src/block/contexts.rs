//! Contexts of an engine, kept from block to block.
//!
//! This pool is for callers whose blocks come on any thread, as those of RocksDB and of the C interface do. A caller
//! that owns its threads keeps a context for each instead. The pool grows to as many contexts as ever worked at once.

use super::{BlockCodec, BlockError, Engine};
use std::sync::{Arc, Mutex, PoisonError};

/// An engine, and contexts of it that are free.
pub struct Contexts {
    /// Dropped before the engine that they borrow from: fields drop in the order of their declaration.
    free: Mutex<Vec<Box<dyn BlockCodec>>>,
    engine: Arc<dyn Engine>,
}

impl Contexts {
    /// No contexts so far.
    pub fn new(engine: Arc<dyn Engine>) -> Contexts {
        Contexts { free: Mutex::default(), engine }
    }

    /// The engine of all contexts.
    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Gives `work` a context for its exclusive use. A context is dropped after a panic.
    pub fn with<T>(
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
    use crate::block::Setting;
    use crate::format::Format;

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
