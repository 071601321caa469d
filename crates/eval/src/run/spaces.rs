//! The keys and values of each store of a run.

use std::sync::Arc;

use crate::data::oracle::{Live, Oracle};
use crate::data::values::Values;
use crate::error::Error;
use crate::meters::Meters;
use crate::run::spec::{RunSpec, TrainOn};
use crate::target::Config;

/// The key spaces of one store: those loaded first, if any, and those measured.
pub(crate) struct Spaces {
    pub(crate) train: Option<Arc<Oracle>>,
    pub(crate) measured: Arc<Oracle>,
}

/// Those of all stores of a run.
pub(crate) fn spaces(spec: &RunSpec, meters: &Meters) -> Result<Vec<Spaces>, Error> {
    let corpus = spec.read_corpus_into(meters.room)?;
    let len = corpus.bytes.len();
    let values = |region| {
        let corpus = Arc::clone(&corpus.bytes);
        let values = Values::ordered(corpus, region, spec.value_bytes, spec.value_order, spec.seed);
        let values = values.ok_or_else(|| Error::CorpusShorterThanValue {
            path: spec.corpus.clone(),
            corpus_bytes: len as u64,
            half: "",
            value_bytes: spec.value_bytes.max,
        })?;
        if spec.value_order.never_overlaps() && values.slice_count() < spec.keys {
            let expected = format!(
                "the corpus {} has {} values ({}) that do not overlap; give so many keys or fewer, or a larger corpus",
                spec.corpus,
                values.slice_count(),
                spec.value_order
            );
            return Err(Error::invalid("--keys", spec.keys.to_string(), expected));
        }
        Ok(values)
    };
    let keys = spec.key_space();
    (0..spec.instances)
        .map(|_| {
            Ok(match spec.train_on {
                TrainOn::All => Spaces {
                    train: None,
                    measured: Arc::new(Oracle::with_room(
                        keys,
                        0,
                        [spec.keys, spec.inserts_max()],
                        values(0..len)?,
                    )),
                },
                TrainOn::FirstHalf => Spaces {
                    train: Some(Arc::new(Oracle::new(keys, 0, spec.keys, values(0..len / 2)?))),
                    measured: Arc::new(Oracle::with_room(
                        keys,
                        spec.keys,
                        [spec.keys, spec.inserts_max()],
                        values(len / 2..len)?,
                    )),
                },
            })
        })
        .collect()
}

/// How the target of these spaces is to be opened.
pub(crate) fn config(spec: &RunSpec, spaces: &Spaces) -> Config {
    let oracles = spaces.train.iter().chain([&spaces.measured]).cloned().collect();
    Config { oracles, ..spec.config() }
}

/// The live keys of all stores.
pub(crate) fn live(spaces: &[Spaces]) -> Live {
    spaces.iter().map(|spaces| spaces.measured.live()).fold(Live::default(), Live::plus)
}

/// The number of times the values of the live keys of all stores cover their part of the corpus. Every store has the
/// corpus to itself.
pub(crate) fn coverage(spaces: &[Spaces], live: Live) -> f64 {
    let source: u64 = spaces.iter().map(|spaces| spaces.measured.values().source_bytes()).sum();
    live.value_bytes as f64 / source.max(1) as f64
}
