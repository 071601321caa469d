//! Counters of all managers of this process, so that users see which engine does the work.

use crate::codec::{BlockType, CANNED, ENTROPY, ENTROPY_PARTS, LZ4, TOKENS, ZLIB, ZSTD};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use ziptier_accel::ModelUsage;
use ziptier_codec::block::{Contexts, CountersSnapshot, Engine};

/// Blocks and bytes of one type.
#[derive(Debug, Default)]
struct Flow {
    blocks: AtomicU64,
    raw_bytes: AtomicU64,
    packed_bytes: AtomicU64,
}

impl Flow {
    fn add(&self, raw_bytes: usize, packed_bytes: usize) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        self.raw_bytes.fetch_add(raw_bytes as u64, Ordering::Relaxed);
        self.packed_bytes.fetch_add(packed_bytes as u64, Ordering::Relaxed);
    }
}

impl Flow {
    /// Counters that are zero are left out.
    fn write(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        if self.blocks.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let counters =
            [("blocks", &self.blocks), ("raw_bytes", &self.raw_bytes), ("packed_bytes", &self.packed_bytes)];
        counters
            .iter()
            .try_for_each(|(what, counter)| writeln!(f, "{name}_{what} {}", counter.load(Ordering::Relaxed)))
    }
}

/// The types in the order of [`TYPES`], for one direction.
#[derive(Debug, Default)]
struct Flows([Flow; TYPES.len()]);

const TYPES: [(BlockType, &str); 6] = [
    (TOKENS, "token"),
    (ENTROPY, "entropy"),
    (ZSTD, "zstd"),
    (CANNED, "canned"),
    (ZLIB, "deflate"),
    (LZ4, "lz4"),
];

impl Flows {
    fn of(&self, packed_as: BlockType) -> Option<&Flow> {
        // Users of counters do not ask which blocks have parts.
        let packed_as = if packed_as == ENTROPY_PARTS { ENTROPY } else { packed_as };
        let at = TYPES.iter().position(|(number, _)| *number == packed_as)?;
        Some(&self.0[at])
    }
}

/// Counters of all managers of the process.
#[derive(Default)]
pub struct Counters {
    packed: Flows,
    unpacked: Flows,
    declined_blocks: AtomicU64,
    declined_bytes: AtomicU64,
    failures: AtomicU64,
    engines: Mutex<Engines>,
}

/// A format, and who works for it: software, a device, or a model.
type Worker = (String, &'static str);

/// Engines of standard formats and of canned codes.
#[derive(Default)]
struct Engines {
    in_use: Vec<Weak<dyn Engine>>,
    /// The work of those that are gone, so that no sum falls.
    gone: BTreeMap<Worker, CountersSnapshot>,
}

fn add(sums: &mut BTreeMap<Worker, CountersSnapshot>, engine: &dyn Engine) {
    let sum = sums.entry((engine.format().to_string(), engine.worker())).or_default();
    *sum = sum.plus(&engine.counters().snapshot());
}

/// Contexts of an engine whose work counts as long as the process runs.
pub(crate) struct Counted {
    contexts: Contexts,
    engine: Arc<dyn Engine>,
    counters: Arc<Counters>,
}

impl Counted {
    pub(crate) fn new(engine: Arc<dyn Engine>) -> Counted {
        Counted::by(Counters::of_process(), engine)
    }

    fn by(counters: Arc<Counters>, engine: Arc<dyn Engine>) -> Counted {
        counters.engines().in_use.push(Arc::downgrade(&engine));
        Counted { contexts: Contexts::new(Arc::clone(&engine)), engine, counters }
    }
}

impl Deref for Counted {
    type Target = Contexts;

    fn deref(&self) -> &Contexts {
        &self.contexts
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let own = Arc::downgrade(&self.engine);
        let mut engines = self.counters.engines();
        engines.in_use.retain(|engine| !engine.ptr_eq(&own));
        add(&mut engines.gone, &*self.engine);
    }
}

static OF_PROCESS: LazyLock<Arc<Counters>> = LazyLock::new(Arc::default);

impl Counters {
    /// The counters of the process.
    pub fn of_process() -> Arc<Counters> {
        Arc::clone(&OF_PROCESS)
    }

    fn engines(&self) -> MutexGuard<'_, Engines> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work of all engines, those that are gone included.
    fn work(&self) -> BTreeMap<Worker, CountersSnapshot> {
        let engines = self.engines();
        let mut sums = engines.gone.clone();
        engines.in_use.iter().filter_map(Weak::upgrade).for_each(|engine| add(&mut sums, &*engine));
        sums
    }

    pub(crate) fn packed(&self, packed_as: BlockType, raw_bytes: usize, packed_bytes: usize) {
        if let Some(flow) = self.packed.of(packed_as) {
            flow.add(raw_bytes, packed_bytes);
        }
    }

    pub(crate) fn unpacked(&self, packed_as: BlockType, packed_bytes: usize, raw_bytes: usize) {
        if let Some(flow) = self.unpacked.of(packed_as) {
            flow.add(raw_bytes, packed_bytes);
        }
    }

    pub(crate) fn declined(&self, raw_bytes: usize) {
        self.declined_blocks.fetch_add(1, Ordering::Relaxed);
        self.declined_bytes.fetch_add(raw_bytes as u64, Ordering::Relaxed);
    }

    /// An engine failed, or a block did not verify; the block was stored raw.
    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}

/// Writes the work and the costs of models, if any, so that a measurement of the process can subtract them.
fn write_modelled(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let usage = ModelUsage::now();
    if usage.jobs == 0 {
        return Ok(());
    }
    let figures = [
        ("jobs", u128::from(usage.jobs)),
        ("late_jobs", u128::from(usage.late_jobs)),
        ("late_ns", usage.late.as_nanos()),
        ("cpu_ns", usage.cpu.as_nanos()),
        ("memo_bytes", u128::from(usage.memo_bytes)),
    ];
    figures.iter().try_for_each(|(name, figure)| writeln!(f, "modelled_{name} {figure}"))
}

impl fmt::Display for Counters {
    /// One line for each figure, `name value`, as metrics are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (direction, flows) in [("packed", &self.packed), ("unpacked", &self.unpacked)] {
            for ((_, name), flow) in TYPES.iter().zip(&flows.0) {
                flow.write(f, &format!("{direction}_{name}"))?;
            }
        }
        for ((format, worker), counters) in self.work() {
            if counters != CountersSnapshot::default() {
                writeln!(f, "{format} by {worker}: {counters}")?;
            }
        }
        write_modelled(f)?;
        writeln!(f, "declined_blocks {}", self.declined_blocks.load(Ordering::Relaxed))?;
        writeln!(f, "declined_bytes {}", self.declined_bytes.load(Ordering::Relaxed))?;
        writeln!(f, "failures {}", self.failures.load(Ordering::Relaxed))?;
        write!(f, "{}", crate::wal::WalCounters::of_process())?;
        crate::cache::counters_of_all().map_or(Ok(()), |cache| cache.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ziptier_codec::block::{Path, Setting};
    use ziptier_codec::format::Format;

    /// Databases that are closed take their engines along, and sums over the lines fell.
    #[test]
    fn the_work_of_an_engine_that_is_gone_still_counts() {
        let counters = Arc::<Counters>::default();
        let work = || {
            let engine = Setting::new(Format::Deflate).with_path(Path::Software).engine().unwrap();
            let contexts = Counted::by(Arc::clone(&counters), engine);
            contexts.with(|codec| codec.compress(&[7; 1000], &mut Vec::new(), 1000)).unwrap();
            contexts
        };
        let line = |calls| format!("deflate by software: compress_calls={calls} ");
        let first = work();
        assert!(counters.to_string().contains(&line(1)), "{counters}");
        drop(first);
        assert!(counters.to_string().contains(&line(1)), "{counters}");
        let _second = work();
        assert!(counters.to_string().contains(&line(2)), "{counters}");
    }
}
