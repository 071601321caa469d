//! The kinds of benchmarks: what each prints, writes and returns as its exit status.

use ziptier_eval::{BypassPlan, Error, Format, Launcher, Outcome, Plan, Registry, Verdicts};

use crate::{codec_checks, cql, interruption, output, program};

/// The codecs that the suite of RocksDB compares.
const ROCKSDB_CODECS: [&str; 8] = [
    "builtin-zstd",
    "builtin-zstd-1",
    "builtin-zstd-9",
    "builtin-zstd-dict",
    "builtin-lz4",
    "builtin-lz4-dict",
    "ziptier",
    "ziptier-deflate",
];

/// The inputs of every kind of benchmark. Each kind returns the exit status.
pub(super) struct Bench {
    pub(super) registry: Registry,
    pub(super) launcher: Launcher,
    pub(super) format: Format,
}

impl Bench {
    pub(super) fn smoke(&self, plan: &Plan, mut say: impl FnMut(&str)) -> Result<(), Error> {
        ziptier_eval::smoke(plan, &self.registry, &self.launcher, codec_checks::CODECS, &mut say)
    }

    pub(super) fn conformance(&self, plan: &Plan) -> Result<(), Error> {
        if plan.targets.is_empty() {
            let expected = "name the targets to check, such as --target exec:./function.py".into();
            return Err(Error::Invalid { what: "--conformance", given: "no --target".into(), expected });
        }
        for name in &plan.targets {
            let target = self.registry.find(name)?;
            let own = || target.codecs.iter().take(1).map(|codec| (*codec).to_owned()).collect();
            let codecs = if plan.codecs.is_empty() { own() } else { plan.codecs.clone() };
            for codec in codecs {
                let with = if codec == "none" { String::new() } else { format!(" with codec {codec}") };
                let check = format!("{name}{with} answers like its model, alone and with three threads");
                let checked = target.check_conformance_of(name, &codec);
                checked.map_err(|reason| Error::Smoke { check: check.clone(), reason })?;
                output::print(&format!("ok: {check}\n"));
            }
        }
        Ok(())
    }

    pub(super) fn codecs(&self, plan: Plan) -> Result<u8, Error> {
        let plan = ziptier_eval::codec_suite(plan, &self.registry);
        output::say(&format!("{}\n", plan.announcement(&self.registry)?));
        output::say("the smoke checks come first and take less than a minute\n");
        self.smoke(&plan, |check| output::say(&format!("ok: {check}\n")))?;
        self.measure(&plan)
    }

    /// Measures a plan. A signal ends that early, and the outcome has the runs before.
    fn outcome(&self, plan: &Plan) -> Result<Outcome, Error> {
        interruption::watch()?;
        ziptier_eval::bench(plan, &self.registry, &self.launcher, &program::program())
    }

    pub(super) fn measure(&self, plan: &Plan) -> Result<u8, Error> {
        let outcome = self.outcome(plan)?;
        if !outcome.configurations.is_empty() {
            output::print(&ziptier_eval::render(plan, &outcome, self.format));
            if plan.compares_codecs && self.format != Format::Table {
                output::say(&Verdicts::of(&outcome).to_text());
            }
        }
        Ok(self.status(&outcome))
    }

    /// Says what went wrong; tables say it of their own rows.
    fn status(&self, outcome: &Outcome) -> u8 {
        if self.format != Format::Table {
            output::say(&ziptier_eval::faults(outcome));
        }
        if let Some(failure) = &outcome.failure {
            output::say(&format!("error: {failure}\n"));
        }
        outcome.exit_status()
    }

    pub(super) fn rocksdb(&self, mut plan: Plan) -> Result<u8, Error> {
        if plan.targets.is_empty() {
            plan.targets = vec!["rocksdb".into()];
        }
        if plan.codecs.is_empty() {
            plan.codecs = ROCKSDB_CODECS.map(str::to_owned).to_vec();
        }
        let plan = ziptier_eval::database_suite(plan)?;
        output::say(&format!("{}\n", plan.announcement(&self.registry)?));
        let outcome = self.outcome(&plan)?;
        if !outcome.configurations.is_empty() {
            output::print(&ziptier_eval::render_databases(&plan, &outcome, self.format));
            ziptier_eval::write_databases(&outcome)?;
        }
        Ok(self.status(&outcome))
    }

    pub(super) fn cassandra(&self, mut plan: Plan) -> Result<u8, Error> {
        if plan.codecs.is_empty() {
            plan.codecs = cql::codecs();
        }
        let program = program::program();
        let plans = ziptier_eval::cassandra_suite(plan)?;
        for plan in &plans {
            plan.runs(&self.registry)?;
        }
        output::say("rounds that are not measured come first, until the nodes have compiled their code\n");
        let warmed_up = ziptier_eval::warm_up(&plans, &self.registry, &self.launcher, &program)?;
        output::say(&format!("{warmed_up}\n"));
        let mut status = 0;
        for plan in plans {
            let outcome = self.outcome(&plan)?;
            if !outcome.configurations.is_empty() {
                output::print(&ziptier_eval::render_compressors(&plan, &outcome, self.format));
                if plan.corpus == "lorem" && self.format == Format::Table {
                    output::print(&cql::text_ratios(&plan).unwrap_or_else(|error| format!("{error}\n")));
                }
                ziptier_eval::write_compressors(&outcome)?;
            }
            status = status.max(self.status(&outcome));
            if matches!(outcome.failure, Some(Error::Interrupted { .. })) {
                break;
            }
        }
        Ok(status)
    }

    pub(super) fn bypass(&self, plan: BypassPlan) -> Result<u8, Error> {
        output::say(&format!("{}\n", plan.announcement(&self.registry)?));
        let program = program::program();
        interruption::watch()?;
        let outcome = ziptier_eval::bypass_suite(&plan, &self.registry, &self.launcher, &program)?;
        if !outcome.runs.is_empty() {
            output::print(&outcome.render(self.format));
        }
        if let Some(failure) = &outcome.failure {
            output::say(&format!("error: {failure}\n"));
        }
        Ok(outcome.exit_status())
    }
}
