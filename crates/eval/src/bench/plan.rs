//! The user's plan, expanded into single runs.

use std::path::PathBuf;

use crate::bench::open_files;
use crate::bench::process::check_cpus;
use crate::bench::{Unavailable, human_seconds};
use crate::data::keys::KeyShape;
use crate::data::values::{ValueBytes, ValueOrder};
use crate::error::{DID_NOT_OPEN, Error};
use crate::run::spec::{RunSpec, TrainOn};
use crate::target::EngineUnavailable;
use crate::target::options::{Huffman, Path, TargetOptions};
use crate::target::registry::{CodecEngine, Registration, Registry};
use crate::workload::Workload;
use crate::workload::distribution::Distribution;
use crate::workload::pace::Pace;

/// Starting a process and reading a corpus, and loading and checking one key: measured, for estimates.
const START_SECONDS: f64 = 0.4;
const KEY_SECONDS: f64 = 4e-6;
/// One operation of a window that ends by count.
const OPERATION_SECONDS: f64 = 2e-6;

/// One way to compress that is measured.
#[derive(Debug, Clone, Copy)]
struct Coding<'a> {
    codec: &'a str,
    engine: Option<&'static str>,
    path: Option<Path>,
    huffman: Option<Huffman>,
    block_bytes: Option<usize>,
    takes_model: bool,
    model: Option<&'a str>,
    is_preloaded: bool,
}

/// A benchmark: lists are swept, every combination is a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Names of targets.
    pub targets: Vec<String>,
    /// Names of codecs; empty for each target's default.
    pub codecs: Vec<String>,
    /// Names of engines, for codecs that have several; empty for each codec's default.
    pub engines: Vec<String>,
    /// Whether the plan compares codecs. Then empty lists of codecs and engines mean all that each target has, and
    /// every codec gets a verdict at the end.
    pub compares_codecs: bool,
    /// Whether configurations that this machine cannot measure are listed beside the results, rather than refused.
    pub names_unavailable: bool,
    /// Workloads.
    pub workloads: Vec<Workload>,
    /// Threads per store.
    pub threads: Vec<u64>,
    /// Connections of all threads to a store; `None` for one of each thread.
    pub connections: Option<u64>,
    /// Sizes of a leaf's write buffer; empty for the target's default.
    pub landing_bytes: Vec<usize>,
    /// Compaction in the background off and on; empty for the target's default.
    pub background: Vec<bool>,
    /// Threads for background work; `None` for the target's default.
    pub background_threads: Option<usize>,
    /// Raw bytes of blocks; empty for the target's default.
    pub block_bytes: Vec<usize>,
    /// Accelerators to model; empty for none.
    pub models: Vec<String>,
    /// Whether codings that a model can run are also measured without a model, and all others only without.
    pub models_beside: bool,
    /// Further options of the targets, without engine, model and the bytes of a block.
    pub options: TargetOptions,
    /// How often everything is repeated, in turns.
    pub rounds: usize,
    /// Keys per store.
    pub keys: u64,
    /// How keys look.
    pub key_shape: KeyShape,
    /// Bytes of a key, or of the shortest of YCSB's; `None` for the shape's own.
    pub key_bytes: Option<usize>,
    /// Keys per read call.
    pub multi_get: usize,
    /// Values per write call.
    pub multi_put: usize,
    /// Lengths of values.
    pub value_bytes: Vec<ValueBytes>,
    /// Which part of the corpus a key's value is.
    pub value_orders: Vec<ValueOrder>,
    /// Name of the corpus.
    pub corpus: String,
    /// Which part of it is loaded first.
    pub train_on: TrainOn,
    /// Which keys are asked for.
    pub distribution: Distribution,
    /// Length of each timed window.
    pub seconds: f64,
    /// Operations of each timed window instead.
    pub operations: Option<u64>,
    /// Operations before it, not timed.
    pub warmup_seconds: f64,
    /// Idle time after it, before the settled memory is read.
    pub settle_seconds: f64,
    /// Sets of processors to use, an empty one for all; no sets are one for all.
    pub cpus: Vec<Vec<usize>>,
    /// Stores in parallel.
    pub instances: u64,
    /// How fast operations come.
    pub pace: Pace,
    /// The longest warm-up until the throughput is steady; `None` for a fixed one, or the usual one of a search.
    pub warmup_seconds_max: Option<f64>,
    /// Whether the timed window ends as soon as the throughput is steady.
    pub until_steady: bool,
    /// The FIFO of a `perf record --control`, which then records the timed windows alone.
    pub perf_control: Option<PathBuf>,
    /// Whether every operation is timed.
    pub latency: bool,
    /// The accelerator that is preloaded before libz for the suite's row of it.
    pub zlib_accel: Option<PathBuf>,
    /// Folder for result files.
    pub out: Option<PathBuf>,
    /// The command line, for the manifest.
    pub command: String,
}

impl Plan {
    /// Checks the whole plan, reads the corpus once as a test, and lists the runs of one round. The order is workload
    /// by workload, with the targets side by side.
    pub fn runs(&self, registry: &Registry) -> Result<Vec<RunSpec>, Error> {
        self.possible_runs(registry).map(|(runs, _)| runs)
    }

    /// The same, and the configurations that a comparison of codecs cannot measure on this machine. Without a
    /// comparison such a configuration is an error.
    pub(crate) fn possible_runs(
        &self,
        registry: &Registry,
    ) -> Result<(Vec<RunSpec>, Vec<Unavailable>), Error> {
        let known = registry.codecs();
        if let Some(codec) = self.codecs.iter().find(|codec| !known.contains(&codec.as_str())) {
            return Err(Error::Unknown { what: "codec", given: codec.clone(), known: known.join(", ") });
        }
        if self.rounds == 0 || self.rounds > 1_000 {
            return Err(Error::invalid("--rounds", self.rounds.to_string(), "give 1 to 1000"));
        }
        let mut runs = Vec::new();
        for setting in self.settings() {
            for name in &self.targets {
                let target = registry.find(name)?;
                for coding in self.codings(target)? {
                    self.tune(target.tunable, |landing_bytes, background| {
                        runs.push(RunSpec {
                            target: name.clone(),
                            tunable: target.tunable,
                            codec: coding.codec.into(),
                            landing_bytes,
                            background,
                            options: self.options_for(target, coding),
                            preload: coding.is_preloaded.then(|| self.preload()),
                            is_published: self.compares_codecs,
                            ..setting.clone()
                        });
                    });
                }
            }
        }
        if let Some(model) = self.models.first()
            && self.models_beside
            && !runs.iter().any(|run| run.options.model.is_some())
        {
            return Err(Error::invalid(
                "--model",
                model,
                "no codec of this benchmark can have a device; leave it out",
            ));
        }
        let mut unavailable: Vec<Unavailable> = Vec::new();
        let mut possible = Vec::new();
        for spec in runs {
            spec.check()?;
            let target = registry.find(&spec.target)?;
            check_connections(&spec, target)?;
            match self.check_options(&spec, target)? {
                None => possible.push(spec),
                Some(reason) => {
                    let known =
                        |one: &Unavailable| one.spec.options == spec.options && one.spec.codec == spec.codec;
                    if !unavailable.iter().any(known) {
                        unavailable.push(Unavailable { spec, reason });
                    }
                }
            }
        }
        let runs = possible;
        if let ([], [first, ..]) = (runs.as_slice(), unavailable.as_slice()) {
            let reason = first.reason.clone();
            return Err(Error::Target { target: first.spec.target.clone(), action: DID_NOT_OPEN, reason });
        }
        self.check_somebody_takes_options(&runs)?;
        check_cpus("--cpus", self.cpus.iter().flatten().copied())?;
        if let Some(run) = runs.iter().max_by_key(|run| run.value_bytes.max) {
            run.read_corpus()?;
        }
        Ok((runs, unavailable))
    }

    /// The library that the row of a preloaded accelerator preloads; empty if none is known.
    fn preload(&self) -> String {
        self.zlib_accel.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
    }

    /// The codecs to measure with a target, each with the engines and Huffman modes to measure.
    fn codings<'a>(&'a self, target: &Registration) -> Result<Vec<Coding<'a>>, Error> {
        let codecs: Vec<&str> = match self.codecs.as_slice() {
            _ if !target.tunable => vec!["none"],
            [] if self.compares_codecs => target.codecs.clone(),
            [] => target.codecs.iter().take(1).copied().collect(),
            asked => asked.iter().map(String::as_str).collect(),
        };
        let mut codings = Vec::new();
        for codec in codecs {
            if !target.codecs.contains(&codec) {
                let known = target.codecs.join(", ");
                return Err(Error::Unknown { what: "codec", given: codec.into(), known });
            }
            let engines = self.engines_for(codec, &target.engines_of(codec))?;
            codings.extend(engines.into_iter().flat_map(|coding| self.on_models(coding, target)));
        }
        // Codecs with blocks of one size stand, and are measured, side by side.
        let sized = |bytes: Option<usize>| {
            let codings = codings.iter();
            codings.map(move |coding| Coding { block_bytes: bytes.or(coding.block_bytes), ..*coding })
        };
        Ok(swept(&self.block_bytes).into_iter().flat_map(sized).collect())
    }

    /// The engines of a codec to measure, of those that are `there`.
    fn engines_for<'a>(&self, codec: &'a str, there: &[CodecEngine]) -> Result<Vec<Coding<'a>>, Error> {
        let own = Coding {
            codec,
            engine: None,
            path: self.options.path,
            huffman: self.options.huffman,
            block_bytes: None,
            takes_model: !self.compares_codecs,
            model: None,
            is_preloaded: false,
        };
        if there.is_empty() || (self.engines.is_empty() && !self.compares_codecs) {
            // In a comparison a path is meant for the codecs that have one.
            let path = own.path.filter(|_| !self.compares_codecs);
            return Ok(vec![Coding { path, ..own }]);
        }
        let by_name = || there.iter().filter(|engine| !engine.is_preloaded);
        let known = || by_name().map(|engine| engine.name).collect::<Vec<_>>().join(", ");
        let is_there = |asked: &&String| there.iter().any(|engine| engine.name == asked.as_str());
        if let Some(engine) = self.engines.iter().find(|asked| !is_there(asked)) {
            return Err(Error::Unknown { what: "engine", given: engine.clone(), known: known() });
        }
        let mut codings = Vec::new();
        for engine in there {
            let asked = self.engines.is_empty() || self.engines.iter().any(|name| name == engine.name);
            let coding = Coding {
                engine: Some(engine.name),
                block_bytes: engine.block_bytes,
                // Of several engines that are compared, those with a model for a device get it.
                takes_model: engine.takes_model || own.takes_model && self.engines.len() < 2,
                is_preloaded: engine.is_preloaded,
                ..own
            };
            match self.options.huffman {
                _ if !asked || engine.is_preloaded && !self.compares_codecs => {}
                None if self.compares_codecs && !engine.huffman.is_empty() => {
                    let modes = engine.huffman.iter();
                    codings.extend(modes.map(|mode| Coding { huffman: Some(*mode), ..coding }));
                }
                // Of the engines that nobody asked for by name, those that cannot do it are left out.
                Some(mode) if self.engines.is_empty() && !engine.huffman.contains(&mode) => {}
                _ => codings.push(coding),
            }
        }
        if codings.is_empty() {
            return Ok(vec![own]);
        }
        Ok(codings.into_iter().flat_map(|coding| self.on_each_path(coding, there)).collect())
    }

    /// The coding with each of the models, as far as it takes one.
    fn on_models<'a>(&'a self, coding: Coding<'a>, target: &Registration) -> Vec<Coding<'a>> {
        let modelled = || self.models.iter().map(move |model| Coding { model: Some(model), ..coding });
        let own = || std::iter::once(coding);
        match self.models_beside {
            true if target.modelled_codecs.contains(&coding.codec) => own().chain(modelled()).collect(),
            false if coding.takes_model && !self.models.is_empty() => modelled().collect(),
            _ => vec![coding],
        }
    }

    /// The coding on each path that the suite measures it on.
    fn on_each_path<'a>(&self, coding: Coding<'a>, there: &[CodecEngine]) -> Vec<Coding<'a>> {
        let of_engine = |engine: &&CodecEngine| Some(engine.name) == coding.engine;
        let paths = there.iter().find(of_engine).map_or(&[][..], |engine| engine.paths);
        match self.options.path {
            None if self.compares_codecs && !paths.is_empty() => {
                paths.iter().map(|path| Coding { path: Some(*path), ..coding }).collect()
            }
            // A path means nothing to engines without one, and those that nobody asked for by name go on without it.
            Some(_) if self.engines.is_empty() && paths.is_empty() => vec![Coding { path: None, ..coding }],
            _ => vec![coding],
        }
    }

    /// Uncompressed yardsticks are not asked for anything.
    fn options_for(&self, target: &Registration, coding: Coding<'_>) -> TargetOptions {
        if !target.tunable {
            return TargetOptions::default();
        }
        let engine = coding.engine.map(str::to_owned);
        let Coding { path, huffman, block_bytes, .. } = coding;
        let model = coding.model.map(str::to_owned);
        TargetOptions { engine, path, model, huffman, block_bytes, ..self.options.clone() }
    }

    /// Asks the target before the first run whether it takes its options. In a comparison of codecs, says why this
    /// machine cannot.
    fn check_options(&self, run: &RunSpec, target: &Registration) -> Result<Option<String>, Error> {
        if let Some(codec) = &run.options.background_codec
            && !target.codecs.contains(&codec.as_str())
        {
            let known = target.codecs.join(", ");
            return Err(Error::Unknown { what: "--background-codec", given: codec.clone(), known });
        }
        if let Some(library) = &run.preload
            && let Some(reason) = cannot_be_preloaded(library)
        {
            return Ok(Some(reason));
        }
        match (target.check)(&run.config()) {
            Ok(()) => Ok(None),
            Err(reason) if self.names_unavailable && reason.is::<EngineUnavailable>() => {
                Ok(Some(reason.to_string()))
            }
            Err(reason) => {
                let reason = reason.to_string();
                Err(Error::Target { target: run.target.clone(), action: DID_NOT_OPEN, reason })
            }
        }
    }

    /// An option that reaches no run would be dropped silently.
    fn check_somebody_takes_options(&self, runs: &[RunSpec]) -> Result<(), Error> {
        let unused =
            |given: &str| Error::invalid("option", given, "no target of this benchmark compresses anything");
        let blocks = self.block_bytes.first().map(|bytes| ("--block-bytes", bytes.to_string()));
        let model = self.models.first().map(|model| ("--model", model.clone()));
        // A target that compresses nothing has the codec `none`.
        let codec = self.codecs.iter().find(|codec| *codec != "none").map(|codec| ("--codec", codec.clone()));
        let mut given = self.options.asked().into_iter().chain(blocks).chain(model).chain(codec);
        if let Some((flag, value)) = given.next()
            && !runs.iter().any(|run| run.tunable)
        {
            return Err(unused(&format!("{flag} {value}")));
        }
        match self.engines.first() {
            Some(engine) if !runs.iter().any(|run| run.options.engine.is_some()) => Err(Error::invalid(
                "--codec-engine",
                engine,
                "no codec of this benchmark has engines to choose from; leave it out",
            )),
            _ => Ok(()),
        }
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

    /// About how long `runs` runs in each round take: windows, loading, start and final check.
    pub fn expected_seconds(&self, runs: usize) -> f64 {
        let first_half = match self.train_on {
            TrainOn::All => 1.0,
            TrainOn::FirstHalf => 2.0,
        };
        let keys = (self.keys * self.instances) as f64 * first_half;
        let window = self.operations.map_or(self.seconds, |operations| operations as f64 * OPERATION_SECONDS);
        let windows = self.pace.windows_usual() as f64 * (window + self.warmup_seconds) + self.settle_seconds;
        (runs * self.rounds) as f64 * (windows + START_SECONDS + keys * KEY_SECONDS)
    }

    /// The announcement of the benchmark's work and its expected time.
    pub fn announcement(&self, registry: &Registry) -> Result<String, Error> {
        let runs = self.runs(registry)?.len();
        let seconds = self.expected_seconds(runs);
        let rounds =
            if self.rounds > 1 { format!(" in each of {} rounds", self.rounds) } else { String::new() };
        Ok(format!(
            "{}{rounds}, {:.1} s each: about {} in all",
            runs_in_words(runs),
            seconds / (runs * self.rounds).max(1) as f64,
            human_seconds(seconds)
        ))
    }

    /// The common settings of runs side by side: one for each workload, shape of values, number of threads and set of
    /// processors.
    fn settings(&self) -> Vec<RunSpec> {
        let mut settings = vec![self.common()];
        let mut sweep = |each: &dyn Fn(&RunSpec) -> Vec<RunSpec>| {
            settings = settings.iter().flat_map(each).collect();
        };
        sweep(&|spec| on(&self.workloads, |workload| spec.clone().of_workload(workload)));
        sweep(&|spec| {
            let own = spec.workload.settings.value_bytes.map(|bytes| vec![bytes]);
            let all = own.unwrap_or_else(|| self.value_bytes.clone());
            on(&all, |value_bytes| RunSpec { value_bytes, ..spec.clone() })
        });
        sweep(&|spec| on(&self.value_orders, |value_order| RunSpec { value_order, ..spec.clone() }));
        sweep(&|spec| {
            let own = spec.workload.settings.threads.map(|threads| vec![threads]);
            on(&own.unwrap_or_else(|| self.threads.clone()), |threads| RunSpec { threads, ..spec.clone() })
        });
        if !self.cpus.is_empty() {
            sweep(&|spec| on(&self.cpus, |cpus| RunSpec { cpus, ..spec.clone() }));
        }
        settings
    }

    pub(crate) fn common(&self) -> RunSpec {
        RunSpec {
            connections: self.connections,
            keys: self.keys,
            key_shape: self.key_shape,
            key_bytes: self.key_bytes,
            multi_get: self.multi_get,
            multi_put: self.multi_put,
            train_on: self.train_on,
            distribution: self.distribution,
            seconds: self.seconds,
            operations: self.operations,
            warmup_seconds: self.warmup_seconds,
            warmup_seconds_max: self.warmup_seconds_max,
            settle_seconds: self.settle_seconds,
            instances: self.instances,
            pace: self.pace,
            until_steady: self.until_steady,
            perf_control: self.perf_control.clone(),
            latency: self.latency,
            background_threads: self.background_threads,
            ..RunSpec::new("", &self.corpus)
        }
    }
}

/// Refuses connections for a target that has none, and more than the system allows.
fn check_connections(spec: &RunSpec, target: &Registration) -> Result<(), Error> {
    match spec.connections {
        _ if target.has_connections => open_files::check_run(spec),
        None => Ok(()),
        Some(connections) => {
            let expected = format!("the target {} has no connections; leave out one of the two", spec.target);
            Err(Error::invalid("--connections", connections.to_string(), expected))
        }
    }
}

/// The reason why a library cannot be preloaded, if that is visible without a trial.
fn cannot_be_preloaded(library: &str) -> Option<String> {
    if library.is_empty() {
        return Some(
            "no accelerator to preload before libz: name Intel's libzlib-accel.so in ZLIB_ACCEL_SO".into(),
        );
    }
    let read = std::fs::File::open(library).err();
    read.map(|error| format!("{library} (ZLIB_ACCEL_SO) cannot be preloaded before libz: {error}"))
}

pub(crate) fn runs_in_words(runs: usize) -> String {
    if runs == 1 { "1 run".into() } else { format!("{runs} runs") }
}

/// The result of `make` for each value.
fn on<T: Clone>(values: &[T], make: impl Fn(T) -> RunSpec) -> Vec<RunSpec> {
    values.iter().cloned().map(make).collect()
}

/// The values of a list, or one `None` for an empty one.
fn swept<T: Copy>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() { vec![None] } else { list.iter().copied().map(Some).collect() }
}
