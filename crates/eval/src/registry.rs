//! The list of targets that a program can benchmark.

use std::fmt;

use crate::conformance;
use crate::error::Error;
use crate::measurement::Measurement;
use crate::meters::Meters;
use crate::spec::RunSpec;
use crate::target::Target;
use crate::targets::{BTreeMapTarget, NullTarget, SkipListTarget};

type Run = fn(&RunSpec, &Meters, &dyn Fn(&str)) -> Result<Measurement, Error>;

/// One kind of target.
#[derive(Clone, Copy)]
pub struct Registration {
    /// What the user calls it.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Codecs it can use; the first is its default. Targets without compression have `none` alone.
    pub codecs: &'static [&'static str],
    /// Whether landing size and background threads mean anything to it: if not, sweeps of them leave it alone.
    pub tunable: bool,
    /// Whether it is the harness itself.
    pub is_harness: bool,
    pub(crate) run: Run,
    pub(crate) conformance: fn(&str) -> Result<(), String>,
}

impl Registration {
    /// Registers the target type `T`.
    pub fn of<T: Target + 'static>(
        name: &'static str,
        about: &'static str,
        codecs: &'static [&'static str],
    ) -> Self {
        Registration {
            name,
            about,
            codecs,
            tunable: codecs != ["none"],
            is_harness: false,
            run: crate::run::run::<T>,
            conformance: conformance::check::<T>,
        }
    }

    /// Does one run in this process, telling its phases to `progress`.
    pub fn run(
        &self,
        spec: &RunSpec,
        meters: &Meters,
        progress: &dyn Fn(&str),
    ) -> Result<Measurement, Error> {
        (self.run)(spec, meters, progress)
    }

    /// Runs the conformance suite with one of the target's codecs.
    pub fn check_conformance(&self, codec: &str) -> Result<(), String> {
        (self.conformance)(codec)
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
    /// The uncompressed yardsticks and the harness itself, after the program's own targets.
    pub fn with(mut own: Vec<Registration>) -> Self {
        own.push(Registration::of::<BTreeMapTarget>(
            "btreemap",
            "std BTreeMap behind an RwLock, uncompressed",
            &["none"],
        ));
        own.push(Registration::of::<SkipListTarget>(
            "skiplist",
            "crossbeam SkipMap, lock-free, uncompressed",
            &["none"],
        ));
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

    /// The target of this name.
    pub fn find(&self, name: &str) -> Result<&Registration, Error> {
        self.iter().find(|registration| registration.name == name).ok_or_else(|| Error::Unknown {
            what: "target",
            given: name.into(),
            known: self.iter().map(|registration| registration.name).collect::<Vec<_>>().join(", "),
        })
    }

    /// Every codec that some target has.
    pub fn codecs(&self) -> Vec<&'static str> {
        let mut codecs = Vec::new();
        for codec in self.iter().flat_map(|registration| registration.codecs) {
            if !codecs.contains(codec) {
                codecs.push(*codec);
            }
        }
        codecs
    }
}
