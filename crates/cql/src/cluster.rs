//! A connection to the nodes, with a keyspace of its own that goes with it.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::ExecutionError;
use scylla::policies::timestamp_generator::MonotonicTimestampGenerator;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;
use ziptier_eval::{Gone, TargetError};

use crate::address::{Address, Host};
use crate::compressor::ZIPTIER;

/// A node that listens answers within this time.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// And answers a client's first questions within this one, on a starved machine, too.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// A node that compacts on two busy processors has taken seconds for a statement that changes the schema.
const REQUEST_MAX: Duration = Duration::from_secs(60);
/// Connections to each node. A node serves each by one thread of its own.
const CONNECTIONS: std::num::NonZeroUsize = std::num::NonZeroUsize::new(4).expect("four is not zero");
/// Threads that send and receive for the threads of the benchmark.
const CLIENT_THREADS: usize = 2;
/// The words of a node that lacks the class of a compressor.
const NO_CLASS: &str = "Could not create Compression for type";

/// The nodes, and the keyspace that this connection has made there. The keyspace is dropped with it.
pub(crate) struct Cluster {
    runtime: Runtime,
    session: Session,
    pub(crate) keyspace: String,
}

impl Cluster {
    /// Connects, and makes the keyspace of a store of this number, with one copy of each row.
    pub(crate) fn open(hosts: &[Host], instance: u64) -> Result<Cluster, TargetError> {
        let nodes = Address::resolve(hosts)?;
        nodes.iter().try_for_each(reach)?;
        let runtime = Builder::new_multi_thread().worker_threads(CLIENT_THREADS).enable_all().build()?;
        let profile = ExecutionProfile::builder().request_timeout(Some(REQUEST_MAX)).build();
        let session = SessionBuilder::new()
            .known_nodes_addr(&nodes)
            .connection_timeout(CONNECT_MAX)
            .pool_size(PoolSize::PerHost(CONNECTIONS))
            .default_execution_profile_handle(profile.into_handle())
            .fetch_schema_metadata(false)
            // Of two writes to a key the later one counts, whichever node coordinates it.
            .timestamp_generator(Arc::new(MonotonicTimestampGenerator::new()));
        let hosts = || nodes.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ");
        let refused = |reason: &str| {
            format!("it reached {}, but no node of Cassandra answered there: {reason}", hosts())
        };
        let session = runtime
            .block_on(async { tokio::time::timeout(ANSWER_MAX, session.build()).await })
            .map_err(|_| refused(&format!("nothing came for {} s", ANSWER_MAX.as_secs())))?
            // The driver explains itself over several lines, and the first one names the cause.
            .map_err(|error| refused(error.to_string().lines().next().unwrap_or_default()))?;
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let keyspace = format!("ziptier_bench_{seconds:x}_{}_{instance}", std::process::id());
        let cluster = Cluster { runtime, session, keyspace };
        cluster.change(&format!(
            "CREATE KEYSPACE {} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
            cluster.keyspace
        ))?;
        Ok(cluster)
    }

    /// Changes the schema.
    pub(crate) fn change(&self, statement: &str) -> Result<(), TargetError> {
        let changed = self.runtime.block_on(self.session.query_unpaged(statement, ()));
        changed.map(|_| ()).map_err(|error| explained(&error.to_string(), statement).into())
    }

    pub(crate) fn prepare(&self, statement: &str) -> Result<PreparedStatement, TargetError> {
        Ok(self.runtime.block_on(self.session.prepare(statement))?)
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn ask(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<QueryResult, TargetError> {
        self.runtime.block_on(self.session.execute_unpaged(statement, values)).map_err(unanswered)
    }

    /// Sends requests at once and waits for all answers.
    pub(crate) fn ask_all<V: SerializeRow>(
        &self,
        statement: &PreparedStatement,
        each: impl Iterator<Item = V>,
    ) -> Result<Vec<QueryResult>, TargetError> {
        let asked = each.map(|values| self.session.execute_unpaged(statement, values));
        self.runtime.block_on(futures_util::future::try_join_all(asked)).map_err(unanswered)
    }

    /// A setting of the node, if it tells them.
    pub(crate) fn setting(&self, name: &str) -> Option<String> {
        self.one_text("SELECT value FROM system_views.settings WHERE name = ?", (name,))
    }

    pub(crate) fn version(&self) -> Option<String> {
        self.one_text("SELECT release_version FROM system.local", ())
    }

    fn one_text(&self, statement: &str, values: impl SerializeRow) -> Option<String> {
        let asked = self.runtime.block_on(self.session.query_unpaged(statement, values)).ok()?;
        let row = asked.into_rows_result().ok()?.maybe_first_row::<(Option<String>,)>().ok()?;
        row?.0
    }

    /// The folder of a table's SSTables, if this machine has it.
    pub(crate) fn folder_of(&self, table: &str) -> Result<PathBuf, TargetError> {
        const TABLE: &str = "SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?";
        let asked = self.session.query_unpaged(TABLE, (self.keyspace.as_str(), table));
        let (id,) = self.runtime.block_on(asked)?.into_rows_result()?.single_row::<(Uuid,)>()?;
        let setting = self.setting("data_file_directories").unwrap_or_default();
        let found = folders(&setting)
            .map(|folder| folder.join(&self.keyspace).join(format!("{table}-{}", id.simple())))
            .find(|folder| folder.is_dir());
        found
            .ok_or_else(|| "its SSTables, which the dictionary is trained on, are not on this machine".into())
    }
}

/// The error of a request. A node that was silent for the longest time hangs, and each later request would wait, too.
fn unanswered(error: ExecutionError) -> TargetError {
    match error {
        ExecutionError::RequestTimeout(_) => Gone(error.to_string()).into(),
        error => error.into(),
    }
}

/// The folders of a setting: `[/a, /b]` as Cassandra 5 tells it, `["/a","/b"]` as Cassandra 6 does.
fn folders(setting: &str) -> impl Iterator<Item = &Path> {
    let folders = setting.trim_matches(['[', ']']).split(',');
    folders.map(|folder| Path::new(folder.trim().trim_matches('"')))
}

/// The node's own words about a statement, and what helps if a class is missing.
fn explained(told: &str, statement: &str) -> String {
    let help = match told.contains(NO_CLASS) {
        true if statement.contains(ZIPTIER) => {
            "; put ziptier-cassandra.jar into the folder lib of each node, and restart it"
        }
        true => "; a later Cassandra may have this compressor",
        false => "",
    };
    format!("{told}{help}")
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Err(error) = self.change(&format!("DROP KEYSPACE {}", self.keyspace)) {
            eprintln!("the keyspace {} is still there: {error}", self.keyspace);
        }
    }
}

/// The system's own words about a host that nobody serves are shorter than the driver's.
fn reach(node: &SocketAddr) -> Result<(), TargetError> {
    TcpStream::connect_timeout(node, CONNECT_MAX).map(|_| ()).map_err(|error| {
        format!("it cannot reach {node}: {error}; start a node of Cassandra there, or name its rpc_address")
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_silent_for_too_long_is_gone() {
        assert!(unanswered(ExecutionError::RequestTimeout(REQUEST_MAX)).is::<Gone>());
        assert!(!unanswered(ExecutionError::EmptyPlan).is::<Gone>());
    }

    #[test]
    fn a_missing_class_is_explained() {
        let told = |class| {
            explained(&format!("{NO_CLASS} of.{class}"), &format!("CREATE TABLE {{'class': '{class}'}}"))
        };
        assert!(
            told(ZIPTIER)
                .ends_with("put ziptier-cassandra.jar into the folder lib of each node, and restart it")
        );
        assert!(told("ZstdDictionaryCompressor").ends_with("a later Cassandra may have this compressor"));
        assert_eq!(explained("no such keyspace", ZIPTIER), "no such keyspace");
    }
}
