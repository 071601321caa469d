//! Workloads: the shares of operations, the order in which keys are loaded before, and what else belongs to a name.

pub(crate) mod distribution;
pub(crate) mod mix;
pub(crate) mod pace;
pub(crate) mod permutation;
pub(crate) mod scan;
pub mod trace;
pub(crate) mod twitter;
pub(crate) mod ycsb;
pub(crate) mod zipf;

use serde::{Deserialize, Serialize};

use crate::data::keys::KeyShape;
use crate::data::values::ValueBytes;
use crate::error::Error;
use crate::results::table::folded;
use crate::run::spec::{RunSpec, TraceSpec};
use crate::workload::distribution::Distribution;
use crate::workload::mix::Mix;
use crate::workload::pace::Pace;
use crate::workload::scan::ScanLength;

/// In which order keys are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LoadOrder {
    /// At random, by all threads.
    Random,
    /// One after the other, by one thread.
    Sequential,
}

/// A named mix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// As printed in the results.
    pub name: String,
    /// The shares of its operations.
    pub mix: Mix,
    /// The order of loading its keys.
    pub load: LoadOrder,
    /// Records that its scans ask for.
    pub scan: ScanLength,
    /// What it asks of the run besides.
    pub settings: Settings,
    /// What readers of its figures must know.
    pub notes: Vec<String>,
}

/// Settings of a run that a workload brings with it. `None` leaves a setting to the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Keys per store.
    pub keys: Option<u64>,
    /// Operations of the timed window.
    pub operations: Option<u64>,
    /// How keys look.
    pub key_shape: Option<KeyShape>,
    /// Bytes of a key, or of the shortest of YCSB's.
    pub key_bytes: Option<usize>,
    /// Lengths of values.
    pub value_bytes: Option<ValueBytes>,
    /// Which keys are asked for.
    pub distribution: Option<Distribution>,
    /// Threads per store.
    pub threads: Option<u64>,
    /// How fast operations come.
    pub pace: Option<Pace>,
    /// Length of the timed window.
    pub seconds: Option<f64>,
    /// Operations before it.
    pub warmup_seconds: Option<f64>,
    /// The trace that it is.
    #[serde(default)]
    pub trace: Option<TraceSpec>,
}

/// The workload that is loading itself.
const FILL: &str = "fillseq";

/// Name, shares of reads and writes, and order of loading. The first five are those of the published evaluation of the
/// store's codecs. The others are those of `db_bench` from RocksDB's evaluation.
const NAMED: [(&str, u32, u32, LoadOrder); 8] = [
    ("read_only", 100, 0, LoadOrder::Random),
    ("write_only", 0, 100, LoadOrder::Random),
    ("read_write_8_2", 80, 20, LoadOrder::Random),
    ("read_write_5_5", 50, 50, LoadOrder::Random),
    ("read_write_2_8", 20, 80, LoadOrder::Random),
    (FILL, 0, 100, LoadOrder::Sequential),
    ("readrandom", 100, 0, LoadOrder::Sequential),
    ("readrandomwriterandom", 80, 20, LoadOrder::Sequential),
];
/// The number of workloads that run by default.
const USUAL: usize = 5;

impl Workload {
    /// A workload of keys that are loaded in random order, without settings of its own.
    pub(crate) fn of(name: &str, mix: Mix) -> Self {
        Workload {
            name: name.into(),
            mix,
            load: LoadOrder::Random,
            scan: ScanLength::default(),
            settings: Settings::default(),
            notes: Vec::new(),
        }
    }

    /// One of the named workloads.
    pub fn named(name: &str) -> Result<Self, Error> {
        if let Some(&(_, read, write, load)) = NAMED.iter().find(|(known, ..)| *known == name) {
            return Ok(Workload { load, ..Workload::of(name, Mix::percent(read, write)) });
        }
        ycsb::preset(name).or_else(|| twitter::named(name)).ok_or_else(|| Error::Unknown {
            what: "workload",
            given: name.into(),
            known: format!(
                "{}, twitter-cluster1 to twitter-cluster54 without 5",
                Self::short_names().join(", ")
            ),
        })
    }

    /// The names of all named workloads but those of clusters.
    fn short_names() -> Vec<&'static str> {
        NAMED.iter().map(|(name, ..)| *name).chain(ycsb::presets()).collect()
    }

    /// The names of all named workloads.
    fn names() -> impl Iterator<Item = String> {
        Self::short_names().into_iter().map(str::to_owned).chain(twitter::names())
    }

    /// Every named workload: name, shares in per cent, and what it brings with it.
    pub fn list() -> String {
        let mut text = String::from("workload              operations, and what else belongs to it\n");
        for workload in Self::names().filter_map(|name| Self::named(&name).ok()) {
            text += &folded(&format!("{:<21} ", workload.name), &workload.in_words());
        }
        text
    }

    fn in_words(&self) -> String {
        let Settings { key_shape, key_bytes, value_bytes, distribution, .. } = &self.settings;
        let mut words = vec![self.mix.in_words()];
        words.extend(self.is_fill().then(|| "the load itself is measured".into()));
        words.extend((self.load == LoadOrder::Sequential).then(|| "loaded in order".into()));
        words.extend(match (key_shape, key_bytes) {
            (None, None) => None,
            (Some(shape), None) => Some(format!("{shape} keys")),
            (None, Some(bytes)) => Some(format!("keys of {bytes} B")),
            (Some(shape), Some(bytes)) => Some(format!("{shape} keys of {bytes} B")),
        });
        words.extend(value_bytes.map(|bytes| format!("values of {bytes} B")));
        words.extend(distribution.map(|distribution| distribution.to_string()));
        words.extend((self.mix.scan > 0).then(|| format!("scans of {} records", self.scan)));
        words.join(", ")
    }

    /// Whether it is the loading of the keys that is measured, and nothing after it.
    pub fn is_fill(&self) -> bool {
        self.name == FILL
    }

    /// The five that are run unless others are asked for.
    pub fn usual() -> Vec<Workload> {
        NAMED[..USUAL].iter().filter_map(|(name, ..)| Self::named(name).ok()).collect()
    }

    /// The requests of a trace, all of them unless a run has an end of its own.
    pub fn of_trace(trace: TraceSpec) -> Self {
        let name =
            trace.path.file_name().map_or_else(|| "trace".into(), |name| name.to_string_lossy().into_owned());
        let settings = Settings {
            seconds: Some(RunSpec::SECONDS_MAX),
            warmup_seconds: Some(0.0),
            trace: Some(trace),
            ..Settings::default()
        };
        // A target must have reads at least.
        Workload { settings, ..Workload::of(&name, Mix::percent(100, 0)) }
    }

    /// A mix such as `read=80,write=20,delete=0,scan=0`; what is left out is 0, and the sum must be 100.
    pub fn mixed(text: &str) -> Result<Self, Error> {
        let mix = Mix::parse(text)?;
        Ok(Workload::of(&mix.to_string(), mix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_workloads_are_those_of_the_published_evaluation() {
        assert_eq!(Workload::usual().len(), 5);
        assert!(
            Workload::named("fillseq").unwrap().is_fill() && !Workload::usual().iter().any(Workload::is_fill)
        );
        assert_eq!(Workload::named("read_write_2_8").unwrap().mix, Mix::percent(20, 80));
        assert!(Workload::named("read").unwrap_err().to_string().contains("read_only"));
    }

    #[test]
    fn the_list_has_lines_for_each_workload_that_fit_a_terminal() {
        let list = Workload::list();
        let named = list.lines().filter(|line| !line.starts_with(' '));
        assert_eq!(named.count(), 1 + Workload::names().count());
        assert!(
            list.contains("\nycsb-e                95 % scan, 5 % insert, ycsb keys, values of 1000 B"),
            "{list}"
        );
        assert!(list.lines().all(|line| line.len() <= 80), "{list}");
    }
}
