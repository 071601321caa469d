//! Orders that CQL does not have: flush, compact, and tell the size of a table. The user names a command for them.

use std::process::Command;

/// The part of the command that stands for the host of a node.
const HOST: &str = "{host}";

/// The worker of chunks that a modelled device compresses.
pub(crate) const MODELLED: &str = "modelled";
/// The worker of a node that lacks ziptier's native library: Cassandra's own code.
const CASSANDRA: &str = "cassandra";

/// A command that takes the orders of Cassandra's `nodetool` as its last arguments.
#[derive(Debug, Clone)]
pub struct NodeTool {
    command: String,
    hosts: Vec<String>,
}

/// The files of a table on all nodes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TableFiles {
    /// SSTables.
    pub ss_tables: u64,
    /// Their bytes with indexes and filters.
    pub bytes: u64,
}

impl NodeTool {
    /// The command for these nodes. The error is a sentence that begins with "it".
    ///
    /// # Errors
    ///
    /// Several hosts need a place for their names.
    pub fn new(command: &str, hosts: &[String]) -> Result<NodeTool, String> {
        if hosts.len() > 1 && !command.contains(HOST) {
            return Err(format!(
                "it has {} hosts, and the command of --nodetool does not say where their names go; give it {HOST}, \
                 such as 'nodetool -h {HOST}'",
                hosts.len()
            ));
        }
        Ok(NodeTool { command: command.to_owned(), hosts: hosts.to_vec() })
    }

    /// Gives the order to every node, and returns what each has printed.
    ///
    /// # Errors
    ///
    /// A sentence with the command and its last words.
    pub fn run(&self, order: &[&str]) -> Result<Vec<String>, String> {
        self.hosts.iter().map(|host| run(&self.command.replace(HOST, host), order)).collect()
    }

    /// Whether ziptier models a device on some node. A node that cannot tell has no model.
    ///
    /// # Errors
    ///
    /// A sentence, if a node has ziptier's class and not its library.
    pub fn is_modelled(&self) -> Result<bool, String> {
        let asked = ["sjk", "mx", "-mg", "-all", "-b", "io.ziptier:type=Compressor,*", "-f", "Worker"];
        let told = self.run(&asked).unwrap_or_default();
        let is_one = |worker| told.iter().flat_map(|told| told.lines()).any(|line| line.trim() == worker);
        match is_one(CASSANDRA) {
            true => Err(
                "its node cannot load ziptier's native library, and Cassandra's own code does the work; the \
                         node's log tells why"
                    .into(),
            ),
            false => Ok(is_one(MODELLED)),
        }
    }

    /// The files of a table.
    ///
    /// # Errors
    ///
    /// As [`NodeTool::run`]; also if the answer does not name them.
    pub fn files(&self, table: &str) -> Result<TableFiles, String> {
        let mut all = TableFiles::default();
        for told in self.run(&["tablestats", table])? {
            let found = files_in(&told);
            let found =
                found.ok_or_else(|| format!("'tablestats {table}' did not tell its SSTables: {told}"))?;
            all.ss_tables += found.ss_tables;
            all.bytes += found.bytes;
        }
        Ok(all)
    }
}

/// By a shell, because the command has arguments of its own.
fn run(command: &str, order: &[&str]) -> Result<String, String> {
    let fail = |reason: String| {
        format!("the command '{command} {}' of --nodetool failed: {reason}", order.join(" "))
    };
    let ran =
        Command::new("sh").arg("-c").arg(format!("{command} \"$@\"")).arg("nodetool").args(order).output();
    let ran = ran.map_err(|error| fail(error.to_string()))?;
    let told = String::from_utf8_lossy(&ran.stdout).into_owned();
    if ran.status.success() {
        return Ok(told);
    }
    let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
    let last = errors.lines().chain(told.lines()).rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(fail(format!("{}: {}", ran.status, last.trim())))
}

/// The lines of `nodetool tablestats` that name files.
fn files_in(told: &str) -> Option<TableFiles> {
    let figure = |name: &str| {
        let line = told.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse().ok()
    };
    Some(TableFiles { ss_tables: figure("SSTable count")?, bytes: figure("Space used (live)")? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn every_node_gets_the_order() {
        let tool = NodeTool::new("echo '-h {host}'", &hosts(&["a", "b"])).unwrap();
        assert_eq!(tool.run(&["flush", "k", "t"]).unwrap(), ["-h a flush k t\n", "-h b flush k t\n"]);
        let told = NodeTool::new("nodetool", &hosts(&["a", "b"])).unwrap_err();
        assert!(told.starts_with("it has 2 hosts") && told.contains("{host}"), "{told}");
    }

    #[test]
    fn a_failing_command_is_named_with_its_last_words() {
        let tool = NodeTool::new("f() { echo no such keyspace >&2; return 3; }; f", &hosts(&["a"])).unwrap();
        let told = tool.run(&["flush", "k"]).unwrap_err();
        assert!(told.contains("f flush k' of --nodetool failed: exit status: 3: no such keyspace"), "{told}");
    }

    #[test]
    fn a_model_is_told_by_the_worker_of_some_node() {
        let is_modelled = |told: &str| {
            let tool = NodeTool::new(&format!("echo {{host}}; printf '{told}';:"), &hosts(&["a", "b"]));
            tool.unwrap().is_modelled()
        };
        assert_eq!(is_modelled("io.ziptier:type=Compressor\\n modelled\\n"), Ok(true));
        assert_eq!([is_modelled("software\\n"), is_modelled("")], [Ok(false), Ok(false)]);
        assert_eq!(NodeTool::new("false", &hosts(&["a"])).unwrap().is_modelled(), Ok(false));
        let told = is_modelled("cpu\\ncassandra\\n").unwrap_err();
        assert!(told.contains("cannot load ziptier's native library"), "{told}");
    }

    #[test]
    fn files_are_read_from_tablestats() {
        let told = "Keyspace: k\n\t\tTable: t\n\t\tSSTable count: 2\n\t\tSpace used (live): 4711\n\
                    \t\tSpace used (total): 5000\n";
        assert_eq!(files_in(told), Some(TableFiles { ss_tables: 2, bytes: 4711 }));
        assert_eq!(files_in("Space used (live): 1.2 MiB\nSSTable count: 2\n"), None);
        let tool = NodeTool::new("echo nothing;:", &hosts(&["a"])).unwrap();
        assert!(tool.files("k.t").unwrap_err().contains("did not tell its SSTables"));
    }
}
