//! What the user asked for, spread into single runs.

use std::path::PathBuf;

use crate::distribution::Distribution;
use crate::error::Error;
use crate::keys::KeyShape;
use crate::registry::Registry;
use crate::spec::{RunSpec, TrainOn};
use crate::values::ValueBytes;
use crate::workload::Workload;

/// A benchmark: lists are swept, every combination is a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Names of targets.
    pub targets: Vec<String>,
    /// Names of codecs; empty for each target's default.
    pub codecs: Vec<String>,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// Threads per store.
    pub threads: Vec<u64>,
    /// Sizes of a leaf's write buffer; empty for the target's default.
    pub landing_bytes: Vec<usize>,
    /// Compaction in the background off and on; empty for the target's default.
    pub background: Vec<bool>,
    /// Threads for background work; `None` for the target's default.
    pub background_threads: Option<usize>,
    /// How often everything is repeated, in turns.
    pub rounds: usize,
    /// Keys per store.
    pub keys: u64,
    /// How keys look.
    pub key_shape: KeyShape,
    /// Keys per read call.
    pub multi_get: usize,
    /// Lengths of values.
    pub value_bytes: ValueBytes,
    /// Name of the corpus.
    pub corpus: String,
    /// Which part of it is loaded first.
    pub train_on: TrainOn,
    /// Which keys are asked for.
    pub distribution: Distribution,
    /// Length of each timed window.
    pub seconds: f64,
    /// Operations before it, not timed.
    pub warmup_seconds: f64,
    /// Idle time after it, before the settled memory is read.
    pub settle_seconds: f64,
    /// Processors to use; empty for all.
    pub cpus: Vec<usize>,
    /// Stores in parallel.
    pub instances: u64,
    /// Raise the offered rate until the 99th percentile exceeds this.
    pub until_p99_us: Option<f64>,
    /// Whether every operation is timed.
    pub latency: bool,
    /// Folder for result files.
    pub out: Option<PathBuf>,
    /// The command line, for the manifest.
    pub command: String,
}

impl Plan {
    /// Checks the whole plan, reads the corpus once to see that it can be read, and lists the runs of one round: workload by
    /// workload, with the targets side by side.
    pub fn runs(&self, registry: &Registry) -> Result<Vec<RunSpec>, Error> {
        let known = registry.codecs();
        if let Some(codec) = self.codecs.iter().find(|codec| !known.contains(&codec.as_str())) {
            return Err(Error::Unknown { what: "codec", given: codec.clone(), known: known.join(", ") });
        }
        if self.rounds == 0 || self.rounds > 1_000 {
            return Err(Error::invalid("--rounds", self.rounds.to_string(), "give 1 to 1000"));
        }
        let mut runs = Vec::new();
        for workload in &self.workloads {
            for &threads in &self.threads {
                for name in &self.targets {
                    let target = registry.find(name)?;
                    let codecs: Vec<&str> = match self.codecs.as_slice() {
                        _ if !target.tunable => vec!["none"],
                        [] => target.codecs.iter().take(1).copied().collect(),
                        asked => asked.iter().map(String::as_str).collect(),
                    };
                    for codec in codecs {
                        if !target.codecs.contains(&codec) {
                            let known = target.codecs.join(", ");
                            return Err(Error::Unknown { what: "codec", given: codec.into(), known });
                        }
                        self.tune(target.tunable, |landing_bytes, background| {
                            runs.push(RunSpec {
                                target: name.clone(),
                                tunable: target.tunable,
                                codec: codec.into(),
                                workload: workload.clone(),
                                threads,
                                landing_bytes,
                                background,
                                ..self.common()
                            });
                        });
                    }
                }
            }
        }
        for run in &runs {
            run.check()?;
        }
        self.check_cpus()?;
        if let Some(run) = runs.first() {
            run.read_corpus()?;
        }
        Ok(runs)
    }

    /// Calls `add` for each combination of landing size and background compaction that means something to the target.
    fn tune(&self, tunable: bool, mut add: impl FnMut(Option<usize>, Option<bool>)) {
        if !tunable {
            return add(None, None);
        }
        for landing in swept(&self.landing_bytes) {
            for background in swept(&self.background) {
                add(landing, background);
            }
        }
    }

    fn common(&self) -> RunSpec {
        RunSpec {
            keys: self.keys,
            key_shape: self.key_shape,
            multi_get: self.multi_get,
            value_bytes: self.value_bytes,
            train_on: self.train_on,
            distribution: self.distribution,
            seconds: self.seconds,
            warmup_seconds: self.warmup_seconds,
            settle_seconds: self.settle_seconds,
            cpus: self.cpus.clone(),
            instances: self.instances,
            until_p99_us: self.until_p99_us,
            latency: self.latency,
            background_threads: self.background_threads,
            ..RunSpec::new("", &self.corpus)
        }
    }

    fn check_cpus(&self) -> Result<(), Error> {
        let there = std::thread::available_parallelism().map_or(1, usize::from);
        match self.cpus.iter().find(|&&cpu| crate::process::cpu_set(&[cpu]).is_none()) {
            Some(cpu) => Err(Error::invalid(
                "--cpus",
                cpu.to_string(),
                format!("this machine has {there} processors, from 0 on"),
            )),
            None => Ok(()),
        }
    }
}

/// The values of a list, or one `None` for an empty one.
fn swept<T: Copy>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() { vec![None] } else { list.iter().copied().map(Some).collect() }
}
