//! The table as a target of the benchmark.
//!
//! 1. [`Target::open`] makes a keyspace and a table with the compressor, and prepares the statements.
//! 2. [`Target::loaded`] flushes the table and compacts it to one SSTable. A dictionary is trained between both.
//! 3. [`Target::rest`] flushes what the window has written, and waits until the nodes are quiet.
//! 4. Dropping the target drops the keyspace.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use scylla::response::query_result::QueryResult;
use scylla::statement::prepared::PreparedStatement;
use scylla::value::CqlTimestamp;
use uuid::Uuid;
use ziptier_cassandra::{DICTIONARY_BYTES_MAX, DICTIONARY_BYTES_MAX_6, Table, dictionary_option};
use ziptier_eval::{
    Answers, Config, Counters, KEY_BYTES, KeyShape, Keys, LocalServers, RESTLESS, Records, Registration,
    Target, TargetError, Usage, Work, own_processors,
};

use crate::address::{Address, Host, RowKind};
use crate::cluster::Cluster;
use crate::compressor::{COMPRESSORS, Compressor, Trainer, chunk_kib, option_with_dictionary};
use crate::node_tool::{MODELLED, NodeTool};
use crate::timeseries::{Reading, Series};

/// The name of the target in lists: any address of its scheme means it.
const NAME: &str = "cql://HOST[,HOST]";
/// Cassandra's default length of a chunk.
const CHUNK_BYTES: usize = 16 << 10;
const TABLE: &str = "rows";
/// Bytes of a reading, about: a text of a thousand, and its key.
const READING_BYTES: u64 = 1_000 + KEY_BYTES as u64;
/// Rows that a read of a reading asks for, as in the workload that it follows.
const READINGS: &str = "10";

static NODE_TOOL: OnceLock<Option<String>> = OnceLock::new();
/// CPU time in which this process has trained dictionaries for the tables of its run, in microseconds.
static TRAINED_US: AtomicU64 = AtomicU64::new(0);

/// The target, for the list of targets. `node_tool` is the command for what CQL does not have; the first call counts.
pub fn registration(node_tool: Option<String>) -> Registration {
    NODE_TOOL.get_or_init(|| node_tool);
    let names: Vec<&str> = COMPRESSORS.iter().map(|compressor| compressor.name).collect();
    Registration::of::<CqlTarget>(
        NAME,
        "a table of Cassandra, with its own compressors and with ours",
        &names,
    )
    .foreign()
}

struct Setup {
    address: Address,
    /// The nodes that keep the table.
    hosts: Vec<Host>,
    compressor: &'static Compressor,
    chunk_kib: usize,
    node_tool: Option<NodeTool>,
}

impl Setup {
    fn of(config: &Config) -> Result<Setup, TargetError> {
        let address: Address = config.target.parse()?;
        let compressor = Compressor::named(&config.codec);
        let compressor = compressor.ok_or_else(|| format!("it has no codec {}", config.codec))?;
        let taken: &[&str] =
            if compressor.takes_path() { &["--block-bytes", "--path"] } else { &["--block-bytes"] };
        config.options.take_only(taken)?;
        if config.landing_bytes.is_some()
            || config.background.is_some()
            || config.background_threads.is_some()
        {
            return Err(
                "it has neither landings nor threads that a client sets; leave out --landing-bytes, \
                        --background and --background-threads"
                    .into(),
            );
        }
        let hosts = address.cluster(config.instance, config.instances)?.to_vec();
        let names: Vec<String> = hosts.iter().map(|(host, _)| host.clone()).collect();
        let command = NODE_TOOL.get().and_then(Option::as_deref);
        let node_tool = command.map(|command| NodeTool::new(command, &names)).transpose()?;
        if compressor.trainer.is_some() && node_tool.is_none() {
            return Err(format!(
                "its codec {} is trained on SSTables, and only a flush writes them; give --nodetool",
                compressor.name
            )
            .into());
        }
        if config.is_replay && address.rows == RowKind::Timeseries {
            return Err(
                "it has readings for the keys of the benchmark alone; leave out /timeseries, or --trace"
                    .into(),
            );
        }
        let chunk_kib = chunk_kib(config.options.block_bytes.unwrap_or(CHUNK_BYTES))?;
        Ok(Setup { address, hosts, compressor, chunk_kib, node_tool })
    }
}

/// How keys and values become rows.
enum Rows {
    Records,
    Timeseries(Series, Keys),
}

impl Rows {
    fn of(config: &Config, kind: RowKind) -> Rows {
        match kind {
            RowKind::Records => Rows::Records,
            RowKind::Timeseries => {
                let keys = config
                    .oracles
                    .first()
                    .map_or_else(|| Keys::new(KeyShape::Decimal, None), |oracle| oracle.keys());
                Rows::Timeseries(Series::of_rows(config.raw_bytes / READING_BYTES), keys)
            }
        }
    }

    /// The columns, and the strategy of compaction where it is not the default.
    fn columns(&self) -> (&'static str, &'static str) {
        match self {
            Rows::Records => ("key blob PRIMARY KEY, value blob", ""),
            Rows::Timeseries(..) => (
                "machine_id uuid, sensor_name text, time timestamp, sensor_value double, station_id uuid, data text, \
                 PRIMARY KEY ((machine_id, sensor_name), time)",
                " AND CLUSTERING ORDER BY (time DESC) AND compaction = {'class': 'TimeWindowCompactionStrategy', \
                 'compaction_window_size': 60, 'compaction_window_unit': 'MINUTES'}",
            ),
        }
    }

    /// The statements that insert, select and delete a row.
    fn statements(&self, table: &str) -> [String; 3] {
        match self {
            Rows::Records => [
                format!("INSERT INTO {table} (value, key) VALUES (?, ?)"),
                format!("SELECT value FROM {table} WHERE key = ?"),
                format!("DELETE FROM {table} WHERE key = ?"),
            ],
            Rows::Timeseries(..) => [
                format!(
                    "INSERT INTO {table} (machine_id, sensor_name, time, sensor_value, station_id, data) \
                     VALUES (?, ?, ?, ?, ?, ?)"
                ),
                format!(
                    "SELECT machine_id, sensor_name, time, sensor_value, station_id, data FROM {table} \
                     WHERE machine_id = ? AND sensor_name = ? AND time <= ? LIMIT {READINGS}"
                ),
                format!("DELETE FROM {table} WHERE machine_id = ? AND sensor_name = ? AND time = ?"),
            ],
        }
    }
}

/// The primary key of a reading, as its statements take it.
type Place<'a> = (Uuid, &'a str, CqlTimestamp);
/// A row of the other table.
type Row<'a> = (Uuid, &'a str, CqlTimestamp, f64, Uuid, &'a str);

/// The work of the nodes, with so many microseconds of work that this process did in their place.
fn with_training(work: Work, trained_us: u64) -> Work {
    match work {
        Work::Servers(Some(cpu_sec)) => Work::Servers(Some(cpu_sec + trained_us as f64 / 1e6)),
        work => work,
    }
}

fn place(reading: &Reading) -> Place<'_> {
    (Uuid::from_u128(reading.machine_id), &reading.sensor_name, CqlTimestamp(reading.time_ms))
}

fn reading(series: &Series, keys: &Keys, key: &[u8]) -> Result<Reading, TargetError> {
    Ok(series.reading(keys.number(key).ok_or("it has readings for the keys of the benchmark alone")?))
}

struct CqlTarget {
    cluster: Cluster,
    rows: Rows,
    table: String,
    compressor: &'static Compressor,
    chunk_kib: usize,
    insert: PreparedStatement,
    select: PreparedStatement,
    delete: PreparedStatement,
    node_tool: Option<NodeTool>,
    servers: Option<LocalServers>,
    has_written: AtomicBool,
    ss_tables: AtomicU64,
    is_modelled: AtomicBool,
    /// Whether the nodes were not quiet in time.
    is_restless: AtomicBool,
}

impl CqlTarget {
    /// The value in an answer to [`CqlTarget::select`], which must be that of `key`.
    fn value_in<T>(
        &self,
        key: &[u8],
        answer: QueryResult,
        take: impl FnOnce(Option<&[u8]>) -> T,
    ) -> Result<T, TargetError> {
        let answer = answer.into_rows_result()?;
        match &self.rows {
            Rows::Records => Ok(take(answer.maybe_first_row::<(&[u8],)>()?.map(|(value,)| value))),
            Rows::Timeseries(series, numbers) => {
                let expected = reading(series, numbers, key)?;
                let rows = answer.rows::<Row<'_>>()?.collect::<Result<Vec<_>, _>>()?;
                let Some(&(machine, sensor, time, value, station, data)) = rows.first() else {
                    return Ok(take(None));
                };
                if (machine, sensor, time) != place(&expected) {
                    return Ok(take(None));
                }
                if value != expected.sensor_value || station.as_u128() != expected.station_id {
                    return Err("it answered with a reading that was not written".into());
                }
                Ok(take(Some(data.as_bytes())))
            }
        }
    }

    fn ask_for(&self, key: &[u8]) -> Result<QueryResult, TargetError> {
        match &self.rows {
            Rows::Records => self.cluster.ask(&self.select, (key,)),
            Rows::Timeseries(series, numbers) => {
                self.cluster.ask(&self.select, place(&reading(series, numbers, key)?))
            }
        }
    }

    /// Gives an order of `nodetool` for the table; nothing without that command.
    fn order(&self, order: &[&str]) -> Result<(), TargetError> {
        if let Some(tool) = &self.node_tool {
            tool.run(&[order, &[self.cluster.keyspace.as_str(), TABLE]].concat())?;
        }
        Ok(())
    }

    /// Trains a dictionary on the SSTables, and gives it to the table.
    fn train(&self) -> Result<(), TargetError> {
        let is_6 = self.cluster.version().is_some_and(|version| version.starts_with("6."));
        let bytes_max = if is_6 { DICTIONARY_BYTES_MAX_6 } else { DICTIONARY_BYTES_MAX };
        let (folder, before) = (self.cluster.folder_of(TABLE)?, Usage::now());
        let trained = ziptier_cassandra::train(&Table::open(&folder)?, bytes_max)?;
        let cpu_sec = Usage::now().cpu_sec() - before.cpu_sec();
        TRAINED_US.fetch_add((cpu_sec * 1e6) as u64, Ordering::Relaxed);
        let dictionary = dictionary_option(&trained);
        let option = option_with_dictionary(self.chunk_kib, &dictionary);
        self.cluster.change(&format!("ALTER TABLE {} WITH compression = {option}", self.table))
    }

    fn wait_until_quiet(&self) {
        let is_quiet = self.servers.as_ref().is_none_or(LocalServers::wait_until_quiet);
        self.is_restless.fetch_or(!is_quiet, Ordering::Relaxed);
    }
}

impl Target for CqlTarget {
    type Batch = Answers;

    const CHECKED_AT_ONCE: usize = 64;

    fn check(config: &Config) -> Result<(), TargetError> {
        Setup::of(config).map(|_| ())
    }

    fn open(config: &Config) -> Result<Self, TargetError> {
        let Setup { address, hosts, compressor, chunk_kib, node_tool } = Setup::of(config)?;
        let cluster = Cluster::open(&hosts, config.instance)?;
        let rows = Rows::of(config, address.rows);
        let table = format!("{}.{TABLE}", cluster.keyspace);
        let (columns, strategy) = rows.columns();
        cluster.change(&format!(
            "CREATE TABLE {table} ({columns}) WITH compression = {} AND caching = {{'keys': 'ALL', \
             'rows_per_partition': 'NONE'}}{strategy}",
            compressor.option(chunk_kib, config.options.path)
        ))?;
        let [insert, select, delete] = rows.statements(&table).map(|statement| cluster.prepare(&statement));
        Ok(CqlTarget {
            insert: insert?,
            select: select?,
            delete: delete?,
            // CPU time is that of all clusters, because stores side by side are measured together.
            servers: LocalServers::at(&Address::resolve(address.clusters.iter().flatten())?),
            cluster,
            rows,
            table,
            compressor,
            chunk_kib,
            node_tool,
            has_written: AtomicBool::new(false),
            ss_tables: AtomicU64::new(0),
            is_modelled: AtomicBool::new(false),
            is_restless: AtomicBool::new(false),
        })
    }

    fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool, TargetError> {
        value.clear();
        let answer = self.ask_for(key)?;
        self.value_in(key, answer, |found| {
            value.extend_from_slice(found.unwrap_or_default());
            found.is_some()
        })
    }

    fn multi_get(&self, keys: &[&[u8]], batch: &mut Answers) -> Result<(), TargetError> {
        batch.clear();
        let answers = match &self.rows {
            Rows::Records => self.cluster.ask_all(&self.select, keys.iter().map(|key| (*key,)))?,
            Rows::Timeseries(series, numbers) => {
                let readings =
                    keys.iter().map(|key| reading(series, numbers, key)).collect::<Result<Vec<_>, _>>()?;
                self.cluster.ask_all(&self.select, readings.iter().map(place))?
            }
        };
        keys.iter()
            .zip(answers)
            .try_for_each(|(key, answer)| self.value_in(key, answer, |found| batch.push(found)))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<(), TargetError> {
        self.has_written.store(true, Ordering::Relaxed);
        match &self.rows {
            Rows::Records => self.cluster.ask(&self.insert, (value, key))?,
            Rows::Timeseries(series, numbers) => {
                let text = std::str::from_utf8(value);
                let text =
                    text.map_err(|_| "its readings have a text, and the value is none; give --corpus lorem")?;
                let reading = reading(series, numbers, key)?;
                let ((machine, sensor, time), station) =
                    (place(&reading), Uuid::from_u128(reading.station_id));
                self.cluster
                    .ask(&self.insert, (machine, sensor, time, reading.sensor_value, station, text))?
            }
        };
        Ok(())
    }

    /// Cassandra does not say whether a row existed, so it is asked first.
    fn delete(&self, key: &[u8]) -> Result<bool, TargetError> {
        let existed = self.get(key, &mut Vec::new())?;
        self.has_written.store(true, Ordering::Relaxed);
        match &self.rows {
            Rows::Records => self.cluster.ask(&self.delete, (key,))?,
            Rows::Timeseries(series, numbers) => {
                self.cluster.ask(&self.delete, place(&reading(series, numbers, key)?))?
            }
        };
        Ok(existed)
    }

    fn scan(&self, _: &[u8], _: usize, _: &mut Records) -> Result<(), TargetError> {
        Err("it keeps rows in the order of a hash and cannot scan keys; leave scan out of --mix".into())
    }

    fn loaded(&self) -> Result<(), TargetError> {
        self.order(&["flush"])?;
        match self.compressor.trainer {
            Some(Trainer::Client) => self.train()?,
            Some(Trainer::Node) => self.order(&["compressiondictionary", "train", "--force"])?,
            None => {}
        }
        self.order(&["compact"])?;
        self.wait_until_quiet();
        if let Some(tool) = &self.node_tool {
            self.ss_tables.store(tool.files(&self.table)?.ss_tables, Ordering::Relaxed);
            let is_modelled = self.compressor.is_ziptier() && tool.is_modelled()?;
            self.is_modelled.store(is_modelled && self.compressor.takes_path(), Ordering::Relaxed);
        }
        self.has_written.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn work(&self) -> Work {
        with_training(LocalServers::work(self.servers.as_ref()), TRAINED_US.load(Ordering::Relaxed))
    }

    fn processors(&self) -> Option<Vec<usize>> {
        self.servers.as_ref()?.processor_numbers()
    }

    fn rest(&self) -> Result<(), TargetError> {
        if self.has_written.swap(false, Ordering::Relaxed) {
            self.order(&["flush"])?;
        }
        self.wait_until_quiet();
        Ok(())
    }

    fn held_bytes(&self) -> Option<u64> {
        let files = self.node_tool.as_ref()?.files(&self.table);
        files.map(|files| files.bytes).ok()
    }

    fn describe(&self) -> String {
        let told = |name: &str| self.cluster.setting(name).unwrap_or_else(|| "unknown".into());
        let processors = self.servers.as_ref().and_then(LocalServers::processors);
        format!(
            "Cassandra {} on processors {}, client on processors {}, flush_compression {}, file_cache_enabled {}, row \
             cache off, one copy of each row{}{}",
            self.cluster.version().unwrap_or_else(|| "unknown".into()),
            processors.as_deref().unwrap_or("unknown"),
            own_processors(),
            told("flush_compression"),
            told("file_cache_enabled"),
            LocalServers::about_cpu_time(self.servers.as_ref()),
            if self.is_restless.load(Ordering::Relaxed) { RESTLESS } else { "" },
        )
    }

    fn counters(&self) -> Counters {
        let ss_tables = self.ss_tables.load(Ordering::Relaxed);
        Counters {
            engine: Some(if self.is_modelled.load(Ordering::Relaxed) { MODELLED } else { "server" }.into()),
            files: (ss_tables > 0).then_some(ss_tables),
            ..Counters::default()
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use ziptier_eval::TargetOptions;

    use super::*;

    fn config(codec: &str) -> Config {
        Config { target: "cql://127.0.0.1:1".into(), codec: codec.into(), instances: 1, ..Config::default() }
    }

    #[test]
    fn what_it_does_not_take_is_refused_before_anything_is_connected() {
        let refused = |config: Config| Setup::of(&config).err().unwrap().to_string();
        let options = |block_bytes, level| TargetOptions { block_bytes, level, ..TargetOptions::default() };
        assert!(refused(config("token")).contains("no codec token"));
        assert!(
            refused(Config { options: options(None, Some(3)), ..config("builtin-zstd") })
                .contains("--level 3")
        );
        let odd = Config { options: options(Some(5000), None), ..config("builtin-zstd") };
        assert!(refused(odd).contains("chunks of 5000 bytes"));
        assert!(
            refused(Config { landing_bytes: Some(512), ..config("builtin-lz4") }).contains("--landing-bytes")
        );
        assert!(refused(config("ziptier-token")).contains("give --nodetool"));
        let separate = Config { target: "cql://127.0.0.1+127.0.0.2".into(), ..config("builtin-lz4") };
        assert!(refused(separate).contains("--instances 2"));
    }

    #[test]
    fn training_by_the_client_is_work_of_the_nodes() {
        let nodes = [Work::Servers(Some(2.0)), Work::Servers(None), Work::Elsewhere];
        let expected = [Work::Servers(Some(2.5)), Work::Servers(None), Work::Elsewhere];
        assert_eq!(nodes.map(|work| with_training(work, 500_000)), expected);
    }

    #[test]
    fn a_host_without_a_node_is_told_in_one_sentence() {
        let told = CqlTarget::open(&config("builtin-lz4")).err().unwrap().to_string();
        assert!(told.starts_with("it cannot reach 127.0.0.1:1: "), "{told}");
        assert!(told.ends_with("start a node of Cassandra there, or name its rpc_address"), "{told}");
    }

    #[test]
    fn another_server_is_told_in_one_line() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // It hangs up on everybody, until the test ends.
        std::thread::spawn(move || listener.incoming().for_each(drop));
        let config = Config { target: format!("cql://{address}"), ..config("builtin-lz4") };
        let told = CqlTarget::open(&config).err().unwrap().to_string();
        assert!(
            told.starts_with(&format!("it reached {address}, but no node of Cassandra answered there: ")),
            "{told}"
        );
        assert!(!told.contains('\n'), "{told}");
    }
}
