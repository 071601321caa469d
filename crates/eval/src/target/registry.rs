//! The list of targets that a program can benchmark.

use std::fmt;

use crate::error::Error;
use crate::meters::Meters;
use crate::run;
use crate::run::instance::{self, Open};
use crate::run::measurement::Measurement;
use crate::run::spec::RunSpec;
use crate::suites::bypass::{self, BypassSeries, BypassSpec};
use crate::target::conformance;
use crate::target::options::{Huffman, Path};
use crate::target::{Config, Target, TargetError};
use crate::targets::{
    BTreeMapInlineTarget, BTreeMapTarget, EXEC_NAME, ExecTarget, FILE_NAME, FileTarget, HashMapTarget,
    NullTarget, RESP_NAME, RespTarget, SkipListTarget,
};

/// One of several engines of a codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodecEngine {
    /// The codec.
    pub codec: &'static str,
    /// The user's name for the engine.
    pub name: &'static str,
    /// Huffman modes that it has; empty if there is nothing to choose.
    pub huffman: &'static [Huffman],
    /// Paths that the suite of codecs measures; empty if there is nothing to choose.
    pub paths: &'static [Path],
    /// Whether it works on a modelled device where one is asked for.
    pub takes_model: bool,
    /// Bytes of a block that the suite measures it with, where the target's own choice means nothing to it.
    pub block_bytes: Option<usize>,
    /// Whether it works by a library that is preloaded before libz: a row of the suite, no engine to ask for by name.
    pub is_preloaded: bool,
}

/// One kind of target.
#[derive(Clone)]
pub struct Registration {
    /// The user's name for the target.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Codecs it can use; the first is its default. Targets without compression have `none` alone.
    pub codecs: Vec<&'static str>,
    /// Engines of codecs that have several; a codec without any here has one, without a name.
    pub engines: Vec<CodecEngine>,
    /// Codecs without named engines that a modelled device can work for.
    pub modelled_codecs: Vec<&'static str>,
    /// Whether landing size and background threads mean anything to it: if not, sweeps of them leave it alone.
    pub tunable: bool,
    /// Whether it is the harness itself.
    pub is_harness: bool,
    /// Whether it is a foreign database, which a machine may lack. Smoke checks skip it, and so do suites unless the
    /// user names it.
    pub is_foreign: bool,
    /// Whether its threads may have several connections each.
    pub has_connections: bool,
    pub(crate) open: Open,
    pub(crate) check: fn(&Config) -> Result<(), TargetError>,
}

impl Registration {
    /// Registers the target type `T`.
    pub fn of<T: Target + 'static>(name: &'static str, about: &'static str, codecs: &[&'static str]) -> Self {
        Registration {
            name,
            about,
            codecs: codecs.to_vec(),
            engines: Vec::new(),
            modelled_codecs: Vec::new(),
            tunable: codecs != ["none"],
            is_harness: false,
            is_foreign: false,
            has_connections: T::HAS_CONNECTIONS,
            open: instance::open::<T>,
            check: T::check,
        }
    }

    /// Says that it is somebody else's database.
    pub fn foreign(mut self) -> Self {
        self.is_foreign = true;
        self
    }

    /// Adds an engine that the user may choose for `codec`. The suite of codecs measures it in each of its Huffman
    /// modes, which are none where there is nothing to choose.
    pub fn with_engine(
        mut self,
        codec: &'static str,
        name: &'static str,
        huffman: &'static [Huffman],
    ) -> Self {
        self.engines.push(CodecEngine {
            codec,
            name,
            huffman,
            paths: &[],
            takes_model: false,
            block_bytes: None,
            is_preloaded: false,
        });
        self
    }

    /// Says on which paths the suite of codecs measures the engine that was added last.
    pub fn on_paths(mut self, paths: &'static [Path]) -> Self {
        if let Some(engine) = self.engines.last_mut() {
            engine.paths = paths;
        }
        self
    }

    /// Says that the engine that was added last works on a modelled device where one is asked for.
    pub fn on_models(mut self) -> Self {
        if let Some(engine) = self.engines.last_mut() {
            engine.takes_model = true;
        }
        self
    }

    /// Says which codecs without named engines a modelled device can work for.
    pub fn with_models_for(mut self, codecs: impl IntoIterator<Item = &'static str>) -> Self {
        self.modelled_codecs.extend(codecs);
        self
    }

    /// Adds the row of the accelerator that is preloaded before libz, in blocks of so many bytes: smaller ones it
    /// leaves to libz.
    pub fn with_preloaded(self, codec: &'static str, name: &'static str, block_bytes: usize) -> Self {
        let mut added = self.with_engine(codec, name, &[Huffman::Dynamic]);
        if let Some(engine) = added.engines.last_mut() {
            (engine.is_preloaded, engine.block_bytes) = (true, Some(block_bytes));
        }
        added
    }

    /// Whether a user means it by `name`: its own name, or an address of its scheme, such as `cql://` and hosts or
    /// `file:` and a path.
    pub fn is_named(&self, name: &str) -> bool {
        let scheme = |name: &str| name.find(':').map(|end| name[..end].to_owned());
        self.name == name || scheme(self.name).is_some_and(|own| Some(own) == scheme(name))
    }

    /// The engines of a codec; empty if there is nothing to choose from.
    pub fn engines_of(&self, codec: &str) -> Vec<CodecEngine> {
        self.engines.iter().filter(|engine| engine.codec == codec).copied().collect()
    }

    /// Does one run in this process, telling its phases to `progress`.
    pub fn run(
        &self,
        spec: &RunSpec,
        meters: &Meters,
        progress: &dyn Fn(&str),
    ) -> Result<Measurement, Error> {
        run::run(self.open, spec, meters, progress)
    }

    /// Does one bypass run in this process, telling its phases to `progress`.
    pub fn run_bypass(
        &self,
        spec: &BypassSpec,
        meters: &Meters,
        progress: &dyn Fn(&str),
    ) -> Result<BypassSeries, Error> {
        bypass::run(self.open, spec, meters, progress)
    }

    /// Runs the conformance suite with one of the target's codecs.
    pub fn check_conformance(&self, codec: &str) -> Result<(), String> {
        self.check_conformance_of(self.name, codec)
    }

    /// Runs the conformance suite with the target that a user has named so.
    pub fn check_conformance_of(&self, target: &str, codec: &str) -> Result<(), String> {
        conformance::check_opened(self.open, target, codec)
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The targets a program offers.
#[derive(Debug, Clone)]
pub struct Registry {
    registrations: Vec<Registration>,
}

impl Registry {
    /// The uncompressed yardsticks, any RESP server, a raw medium, any function and the harness itself, after the
    /// program's own targets.
    pub fn with(mut own: Vec<Registration>) -> Self {
        own.push(Registration::of::<BTreeMapTarget>(
            "btreemap",
            "std BTreeMap behind an RwLock, uncompressed",
            &["none"],
        ));
        own.push(Registration::of::<BTreeMapInlineTarget>(
            "btreemap-inline",
            "the same with keys in its nodes, uncompressed",
            &["none"],
        ));
        own.push(Registration::of::<HashMapTarget>(
            "hashmap",
            "std HashMap behind an RwLock, keys in its table, uncompressed, without an order",
            &["none"],
        ));
        own.push(Registration::of::<SkipListTarget>(
            "skiplist",
            "crossbeam SkipMap, lock-free, uncompressed",
            &["none"],
        ));
        own.push(
            Registration::of::<RespTarget>(
                RESP_NAME,
                "an empty database of a server that speaks RESP",
                &["none"],
            )
            .foreign(),
        );
        own.push(
            Registration::of::<FileTarget>(FILE_NAME, "a file or a block device, one slot a key", &["none"])
                .foreign(),
        );
        own.push(
            Registration::of::<ExecTarget>(
                EXEC_NAME,
                "a data access function that speaks ziptier's protocol on its standard input and output",
                &["none"],
            )
            .foreign(),
        );
        let null = Registration::of::<NullTarget>(
            "null",
            "stores nothing: what the harness itself costs",
            &["none"],
        );
        own.push(Registration { is_harness: true, ..null });
        Registry { registrations: own }
    }

    /// All targets.
    pub fn iter(&self) -> impl Iterator<Item = &Registration> {
        self.registrations.iter()
    }

    /// The names of our own targets that compress.
    pub fn compressing(&self) -> Vec<String> {
        let ours = |target: &&Registration| target.tunable && !target.is_foreign;
        self.iter().filter(ours).map(|target| target.name.to_owned()).collect()
    }

    /// The target of this name.
    pub fn find(&self, name: &str) -> Result<&Registration, Error> {
        self.iter().find(|registration| registration.is_named(name)).ok_or_else(|| Error::Unknown {
            what: "target",
            given: name.into(),
            known: self.iter().map(|registration| registration.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Every codec that some target has.
    pub fn codecs(&self) -> Vec<&'static str> {
        let mut codecs = Vec::new();
        for codec in self.iter().flat_map(|registration| &registration.codecs) {
            if !codecs.contains(codec) {
                codecs.push(*codec);
            }
        }
        codecs
    }
}
