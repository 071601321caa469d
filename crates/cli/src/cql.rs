//! Cassandra as a target of `ziptier bench`, with the feature `cql`; without it, the sentence that says so.

use clap::Args;
use ziptier_codec::block::Setting;
use ziptier_codec::format::Format as BlockFormat;
use ziptier_cql::{Address, COMPRESSORS, SCHEME};
use ziptier_eval::{Corpus, Error, Plan, Registration, Registry};

/// Rows of each table of the suite: 20 MB of whole rows.
pub(crate) const DEFAULT_KEYS: u64 = 20_000;
/// Bytes of a text that tell its ratios.
const TEXT_BYTES: usize = 4 << 20;
const TEXT_CHUNK_BYTES: usize = 16 << 10;

/// The command for what CQL does not have.
#[derive(Debug, Args)]
pub(crate) struct NodeToolArgument {
    /// Command that takes the orders flush, compact, tablestats, compressiondictionary and sjk of Cassandra's nodetool,
    /// for targets cql://. {host} in it stands for each host. Without it nothing is flushed, and the size of the table
    /// is not known [default: none]
    #[arg(long, env = "ZIPTIER_NODETOOL", value_name = "COMMAND")]
    nodetool: Option<String>,
}

impl NodeToolArgument {
    /// The arguments that tell another process of this program the same.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        self.nodetool.iter().flat_map(|command| ["--nodetool".into(), command.clone()]).collect()
    }

    /// Refuses a suite without a cluster, or without the command.
    pub(crate) fn check_suite(&self, targets: &[String]) -> Result<(), Error> {
        if targets.len() != 1 || targets.iter().any(|target| !target.starts_with(SCHEME)) {
            return Err(invalid(
                "--target",
                targets.join(","),
                "suite cassandra measures one cluster, such as cql://127.0.0.1",
            ));
        }
        match self.nodetool {
            Some(_) => Ok(()),
            None => Err(invalid(
                "--nodetool",
                "nothing",
                "suite cassandra flushes and compacts tables, which CQL cannot ask for; give nodetool's command",
            )),
        }
    }
}

fn invalid(what: &'static str, given: impl Into<String>, expected: &str) -> Error {
    Error::Invalid { what, given: given.into(), expected: expected.into() }
}

/// The target, if this program has a driver.
#[cfg(feature = "cql")]
pub(crate) fn registration(argument: &NodeToolArgument) -> Option<Registration> {
    Some(ziptier_cql::registration(argument.nodetool.clone()))
}

/// The target, if this program has a driver.
#[cfg(not(feature = "cql"))]
pub(crate) fn registration(_: &NodeToolArgument) -> Option<Registration> {
    None
}

/// The targets with the hosts of each cluster together. Clusters are refused if this program has no driver.
pub(crate) fn targets(asked: &[String], registry: &Registry) -> Result<Vec<String>, Error> {
    let joined = Address::join_hosts(asked, |name| registry.find(name).is_ok());
    match joined.iter().find(|target| target.starts_with(SCHEME) && registry.find(target).is_err()) {
        Some(target) => Err(invalid(
            "--target",
            target,
            "this ziptier was compiled without the feature cql; compile it by \
             `cargo build --release --package ziptier-cli --features cql`",
        )),
        None => Ok(joined),
    }
}

/// What LZ4 and zstd make of a generated text in chunks, in a line: other texts of the kind are denser or less dense.
pub(crate) fn text_ratios(plan: &Plan) -> Result<String, String> {
    let chunk_bytes = plan.block_bytes.first().copied().unwrap_or(TEXT_CHUNK_BYTES);
    let text = Corpus::read(&plan.corpus, TEXT_BYTES, chunk_bytes).map_err(|error| error.to_string())?.bytes;
    let ratio = |format| {
        let engine = Setting::new(format).engine().map_err(|error| error.to_string())?;
        let mut codec = engine.open().map_err(|error| error.to_string())?;
        let mut packed = Vec::new();
        for chunk in text.chunks(chunk_bytes) {
            codec.compress(chunk, &mut packed, usize::MAX).map_err(|error| error.to_string())?;
        }
        Ok::<f64, String>(text.len() as f64 / packed.len() as f64)
    };
    let (lz4, zstd) = (ratio(BlockFormat::Lz4)?, ratio(BlockFormat::Zstd)?);
    Ok(format!("The text itself, in chunks of {chunk_bytes} B: ratio {lz4:.2} by LZ4, {zstd:.2} by zstd.\n"))
}

/// The compressors that the suite compares, unless the user names others.
pub(crate) fn codecs() -> Vec<String> {
    let everywhere = COMPRESSORS.iter().filter(|compressor| compressor.is_everywhere());
    everywhere.map(|compressor| compressor.name.to_owned()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_a_driver_says_how_to_get_one() {
        let registry = Registry::with(vec![]);
        let told = targets(&["cql://a".into(), "b".into()], &registry).unwrap_err().to_string();
        assert!(told.contains("`cql://a,b`") && told.contains("--features cql"), "{told}");
        assert_eq!(targets(&["null".into()], &registry).unwrap(), ["null"]);
    }

    #[test]
    fn the_suite_compares_what_every_node_has() {
        let codecs = codecs();
        assert_eq!(codecs.len(), COMPRESSORS.len() - 1);
        assert!(!codecs.contains(&"builtin-zstd-dictionary".into()), "{codecs:?}");
    }

    #[test]
    fn the_suite_needs_a_cluster_and_a_command() {
        let without = NodeToolArgument { nodetool: None };
        let with = NodeToolArgument { nodetool: Some("nodetool".into()) };
        assert!(with.check_suite(&["store".into()]).unwrap_err().to_string().contains("cql://127.0.0.1"));
        assert!(
            with.check_suite(&[]).is_err()
                && with.check_suite(&["cql://a".into(), "cql://b".into()]).is_err()
        );
        assert!(without.check_suite(&["cql://a".into()]).unwrap_err().to_string().contains("--nodetool"));
        assert!(with.check_suite(&["cql://a".into()]).is_ok());
    }
}
