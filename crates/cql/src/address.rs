//! The address of a cluster as a target: `cql://HOST[:PORT][,HOST[:PORT]...][/ROWS]`. A `+` instead of a comma parts
//! clusters that know nothing of each other, each with a table of its own.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use ziptier_eval::{address_of, host_and_port};

/// The begin of each address.
pub const SCHEME: &str = "cql://";
/// The port of Cassandra's native protocol.
const PORT: u16 = 9042;

/// The rows of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// A key and a value, both bytes.
    Records,
    /// Readings of sensors, as the workload cql-timeseries of NoSQLBench writes them; the value is their text.
    Timeseries,
}

/// A host and its port.
pub type Host = (String, u16);

/// Clusters, and the rows to keep there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The nodes of each cluster.
    pub clusters: Vec<Vec<Host>>,
    /// The rows.
    pub rows: RowKind,
}

impl FromStr for Address {
    type Err = String;

    /// The error is a sentence that begins with "it".
    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text.strip_prefix(SCHEME).ok_or_else(|| format!("it does not begin with {SCHEME}"))?;
        let (hosts, rows) = match rest.split_once('/') {
            None | Some((_, "")) => (rest.trim_end_matches('/'), RowKind::Records),
            Some((hosts, "timeseries")) => (hosts, RowKind::Timeseries),
            Some((_, other)) => {
                return Err(format!("it has no rows `{other}`; leave `/{other}` out, or give `/timeseries`"));
            }
        };
        let cluster = |hosts: &str| hosts.split(',').map(|host| host_and_port(host, PORT)).collect();
        Ok(Address { clusters: hosts.split('+').map(cluster).collect::<Result<_, _>>()?, rows })
    }
}

impl Address {
    /// The nodes that keep this store, of so many side by side: the clusters take turns. The error is a sentence that
    /// begins with "it".
    ///
    /// # Errors
    ///
    /// Some cluster would have fewer stores than another.
    pub fn cluster(&self, instance: u64, instances: u64) -> Result<&[Host], String> {
        let clusters = self.clusters.len() as u64;
        if !instances.is_multiple_of(clusters) {
            return Err(format!(
                "it names {clusters} clusters, and each needs as many tables; give --instances {clusters} or a multiple"
            ));
        }
        Ok(&self.clusters[(instance % clusters) as usize])
    }

    /// The first socket address of each host.
    ///
    /// # Errors
    ///
    /// A sentence that names the host that has none.
    pub fn resolve<'a>(hosts: impl IntoIterator<Item = &'a Host>) -> Result<Vec<SocketAddr>, String> {
        hosts.into_iter().map(|(host, port)| address_of(host, *port)).collect()
    }

    /// Puts the hosts of one address together again, where a list of targets was split at its commas. What
    /// `is_target` knows is a target of its own.
    pub fn join_hosts(pieces: &[String], is_target: impl Fn(&str) -> bool) -> Vec<String> {
        let mut targets: Vec<String> = Vec::new();
        for piece in pieces {
            match targets.last_mut() {
                Some(last) if last.starts_with(SCHEME) && !piece.contains("://") && !is_target(piece) => {
                    *last += &format!(",{piece}");
                }
                _ => targets.push(piece.clone()),
            }
        }
        targets
    }
}

impl fmt::Display for RowKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RowKind::Records => "records",
            RowKind::Timeseries => "timeseries",
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn hosts_ports_and_rows_are_read() {
        let read = |text: &str| text.parse::<Address>().unwrap();
        let one = read("cql://127.0.0.1");
        assert_eq!(one.clusters, [[("127.0.0.1".into(), 9042)]]);
        assert_eq!(one.rows, RowKind::Records);
        assert_eq!(read("cql://127.0.0.1/"), one);
        let several = read("cql://a,b:9043,[::1]:9044/timeseries");
        assert_eq!(several.clusters, [[("a".into(), 9042), ("b".into(), 9043), ("::1".into(), 9044)]]);
        assert_eq!(several.rows, RowKind::Timeseries);
        let local = read("cql://[::1]");
        assert_eq!(Address::resolve(&local.clusters[0]).unwrap(), ["[::1]:9042".parse().unwrap()]);
    }

    #[test]
    fn stores_take_turns_on_separate_clusters() {
        let address: Address = "cql://a,b+c:1/timeseries".parse().unwrap();
        let first_host = |instance| address.cluster(instance, 4).unwrap()[0].0.as_str();
        assert_eq!([0, 1, 2, 3].map(first_host), ["a", "c", "a", "c"]);
        assert_eq!(address.cluster(0, 2).unwrap().len(), 2);
        for instances in [1, 3] {
            let told = address.cluster(0, instances).unwrap_err();
            assert!(told.contains("2 clusters") && told.contains("--instances 2"), "{told}");
        }
        assert!("cql://a+".parse::<Address>().unwrap_err().contains("a host ``"));
    }

    #[test]
    fn a_wrong_address_is_told() {
        let told = |text: &str| text.parse::<Address>().unwrap_err();
        assert!(told("127.0.0.1").contains("begin with cql://"));
        assert!(told("cql://").contains("a host ``"));
        assert!(told("cql://a,,b").contains("a host ``"));
        assert!(told("cql://a:port").contains("a host `a:port`"));
        assert!(told("cql://a/texts").contains("no rows `texts`"));
        let missing = Address::resolve(&[("no-such-host.invalid".into(), 9042)]).unwrap_err();
        assert!(missing.starts_with("it cannot find the host no-such-host.invalid: "), "{missing}");
    }

    #[test]
    fn hosts_that_a_comma_parted_come_together() {
        let pieces = ["store", "cql://a", "b", "c/timeseries", "null", "cql://d"].map(str::to_owned);
        let joined = Address::join_hosts(&pieces, |piece| ["store", "null"].contains(&piece));
        assert_eq!(joined, ["store", "cql://a,b,c/timeseries", "null", "cql://d"]);
    }
}
