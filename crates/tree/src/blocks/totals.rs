//! Counters of the engines of a store, summed over all engines that it ever had: each generation of dictionaries brings
//! its own.

use std::sync::{Arc, Weak};

use ziptier_codec::block::{BlockCodec, BlockError, Counters, CountersSnapshot, Engine};
use ziptier_codec::format::Format;

use crate::sync::Mutex;

/// The sums, shared by all codings of a store.
#[derive(Default)]
pub struct EngineTotals(Mutex<Sums>);

#[derive(Default)]
struct Sums {
    live: Vec<Weak<TalliedEngine>>,
    /// Of engines that are gone, by name.
    gone: Vec<(&'static str, CountersSnapshot)>,
}

/// An engine whose counters outlive it.
pub(super) struct TalliedEngine {
    engine: Arc<dyn Engine>,
    totals: Arc<EngineTotals>,
}

impl EngineTotals {
    /// The same engine, counted here.
    pub(super) fn tally(self: &Arc<Self>, engine: Arc<dyn Engine>) -> Arc<dyn Engine> {
        let tallied = Arc::new(TalliedEngine { engine, totals: self.clone() });
        let mut sums = self.0.lock();
        sums.live.retain(|engine| engine.strong_count() > 0);
        sums.live.push(Arc::downgrade(&tallied));
        tallied
    }

    /// Counts a block that the engine of that name could not do, and that another did in its place.
    pub(super) fn note_fallback(&self, name: &'static str) {
        let fallback = CountersSnapshot { fallbacks: 1, ..CountersSnapshot::default() };
        add(&mut self.0.lock().gone, name, &fallback);
    }

    /// The counters of engines by their name.
    pub fn by_engine(&self) -> Vec<(&'static str, CountersSnapshot)> {
        // An engine that ends meanwhile takes this lock, and must not do so here.
        let (live, gone) = {
            let sums = self.0.lock();
            (sums.live.iter().filter_map(Weak::upgrade).collect::<Vec<_>>(), sums.gone.clone())
        };
        let mut totals = gone;
        live.iter().for_each(|engine| add(&mut totals, engine.name(), &engine.counters().snapshot()));
        totals
    }
}

fn add(totals: &mut Vec<(&'static str, CountersSnapshot)>, name: &'static str, counted: &CountersSnapshot) {
    match totals.iter_mut().find(|(known, _)| *known == name) {
        Some((_, sum)) => *sum = sum.plus(counted),
        None => totals.push((name, *counted)),
    }
}

impl Drop for TalliedEngine {
    fn drop(&mut self) {
        add(&mut self.totals.0.lock().gone, self.engine.name(), &self.engine.counters().snapshot());
    }
}

impl Engine for TalliedEngine {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn format(&self) -> Format {
        self.engine.format()
    }

    fn worker(&self) -> &'static str {
        self.engine.worker()
    }

    fn checks_end(&self) -> bool {
        self.engine.checks_end()
    }

    fn is_asynchronous(&self) -> bool {
        self.engine.is_asynchronous()
    }

    fn counters(&self) -> &Counters {
        self.engine.counters()
    }

    fn memory_bytes(&self) -> usize {
        self.engine.memory_bytes()
    }

    fn open(&self) -> Result<Box<dyn BlockCodec + '_>, BlockError> {
        self.engine.open()
    }
}

// The C libraries do not run under Miri.
#[cfg(all(test, not(miri), not(shuttle)))]
mod tests {
    use super::*;
    use ziptier_codec::block::Setting;

    #[test]
    fn counts_of_engines_that_are_gone_stay() {
        let totals = Arc::new(EngineTotals::default());
        for format in [Format::Lz4, Format::Deflate, Format::Lz4] {
            let engine = totals.tally(Setting::new(format).engine().expect("a default"));
            let mut out = Vec::new();
            engine.open().expect("opens").compress(&[7; 100], &mut out, 100).expect("compresses");
            assert!(totals.by_engine().iter().any(|(name, _)| *name == engine.name()));
        }
        let calls: Vec<_> =
            totals.by_engine().iter().map(|(name, counted)| (*name, counted.compress_calls)).collect();
        assert_eq!(calls, [("cpu", 2), ("software", 1)]);
        totals.note_fallback("iaa");
        totals.note_fallback("iaa");
        assert!(totals.by_engine().iter().any(|(name, counted)| (*name, counted.fallbacks) == ("iaa", 2)));
    }
}
