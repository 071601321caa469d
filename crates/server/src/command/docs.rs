//! The texts of `COMMAND DOCS`: one row per command.

/// A command's name, the Redis version it came with (empty for ziptier's own), its group, and what it does.
pub(super) struct Doc {
    pub(super) name: &'static str,
    pub(super) since: &'static str,
    pub(super) group: &'static str,
    pub(super) summary: &'static str,
}

const fn doc(name: &'static str, since: &'static str, group: &'static str, summary: &'static str) -> Doc {
    Doc { name, since, group, summary }
}

/// The documentation of the command called `name`.
pub(super) fn find(name: &str) -> Option<&'static Doc> {
    DOCS.iter().find(|doc| doc.name == name)
}

static DOCS: &[Doc] = &[
    doc("append", "2.0.0", "string", "Append to the value of a key"),
    doc("auth", "1.0.0", "connection", "Send the password"),
    doc("bgsave", "1.0.0", "server", "Save everything to the folder in the background"),
    doc("client", "2.4.0", "connection", "Name connections, list them and disconnect them"),
    doc("command", "2.8.13", "server", "Describe the commands"),
    doc("config", "2.0.0", "server", "Read and change the settings"),
    doc("copy", "6.2.0", "generic", "Copy a value and its expiry to another key"),
    doc("dbsize", "1.0.0", "server", "Count the keys"),
    doc("decr", "1.0.0", "string", "Subtract one from the integer that a key holds"),
    doc("decrby", "1.0.0", "string", "Subtract from the integer that a key holds"),
    doc("del", "1.0.0", "generic", "Delete keys"),
    doc("discard", "2.0.0", "transactions", "Leave the state that MULTI begins, in which nothing runs"),
    doc("echo", "1.0.0", "connection", "Answer with the given text"),
    doc("exec", "1.2.0", "transactions", "Refuse, because there are no transactions"),
    doc("exists", "1.0.0", "generic", "Count how many of the given keys exist"),
    doc("expire", "1.0.0", "generic", "Let a key expire after some seconds"),
    doc("expireat", "1.2.0", "generic", "Let a key expire at a Unix time"),
    doc("expiretime", "7.0.0", "generic", "Tell the Unix time at which a key expires"),
    doc("flushall", "1.0.0", "server", "Delete all keys"),
    doc("flushdb", "1.0.0", "server", "Delete all keys of the database"),
    doc("get", "1.0.0", "string", "Read the value of a key"),
    doc("getdel", "6.2.0", "string", "Read the value of a key and delete the key"),
    doc("getex", "6.2.0", "string", "Read the value of a key and change its expiry"),
    doc("getrange", "2.4.0", "string", "Read a part of the value of a key"),
    doc("getset", "1.0.0", "string", "Set the value of a key and answer with the old one"),
    doc("hello", "6.0.0", "connection", "Choose the protocol and greet"),
    doc("incr", "1.0.0", "string", "Add one to the integer that a key holds"),
    doc("incrby", "1.0.0", "string", "Add to the integer that a key holds"),
    doc("incrbyfloat", "2.6.0", "string", "Add to the number that a key holds"),
    doc("info", "1.0.0", "server", "Tell the state of the server"),
    doc("keys", "1.0.0", "generic", "List all keys that match a pattern"),
    doc("lastsave", "1.0.0", "server", "Tell when everything was last saved"),
    doc("memory", "4.0.0", "server", "Tell what a key holds in memory"),
    doc("mget", "1.0.0", "string", "Read the values of several keys"),
    doc("mset", "1.0.1", "string", "Set several keys at once"),
    doc("msetnx", "1.0.1", "string", "Set several keys at once if none of them exists"),
    doc("multi", "1.2.0", "transactions", "Refuse, because there are no transactions"),
    doc("object", "2.2.3", "generic", "Tell how the value of a key is kept"),
    doc("persist", "2.2.0", "generic", "Take the expiry from a key"),
    doc("pexpire", "2.6.0", "generic", "Let a key expire after some milliseconds"),
    doc("pexpireat", "2.6.0", "generic", "Let a key expire at a Unix time in milliseconds"),
    doc("pexpiretime", "7.0.0", "generic", "Tell the Unix time in milliseconds at which a key expires"),
    doc("ping", "1.0.0", "connection", "Ask for an answer"),
    doc("psetex", "2.6.0", "string", "Set the value of a key and its expiry in milliseconds"),
    doc("pttl", "2.6.0", "generic", "Tell how many milliseconds a key has left"),
    doc("quit", "1.0.0", "connection", "Close the connection"),
    doc("randomkey", "1.0.0", "generic", "Name some key"),
    doc("rename", "1.0.0", "generic", "Give a key another name"),
    doc("renamenx", "1.0.0", "generic", "Give a key another name that does not exist"),
    doc("reset", "6.2.0", "connection", "Make the connection what it was when it began"),
    doc("save", "1.0.0", "server", "Save everything to the folder"),
    doc("scan", "2.8.0", "generic", "Walk over the keys, some per call"),
    doc("select", "1.0.0", "connection", "Choose the database, of which there is one"),
    doc("set", "1.0.0", "string", "Set the value of a key"),
    doc("setex", "2.0.0", "string", "Set the value of a key and its expiry in seconds"),
    doc("setnx", "1.0.0", "string", "Set the value of a key that does not exist"),
    doc("setrange", "2.2.0", "string", "Overwrite a part of the value of a key"),
    doc("shutdown", "1.0.0", "server", "Stop the server"),
    doc("strlen", "2.2.0", "string", "Tell the length of the value of a key"),
    doc("substr", "1.0.0", "string", "Read a part of the value of a key"),
    doc("time", "2.6.0", "server", "Tell the time of the server"),
    doc("touch", "3.2.1", "generic", "Count how many of the given keys exist"),
    doc("ttl", "1.0.0", "generic", "Tell how many seconds a key has left"),
    doc("type", "1.0.0", "generic", "Tell the type of the value of a key"),
    doc("unlink", "4.0.0", "generic", "Delete keys"),
    doc("unwatch", "2.2.0", "transactions", "Do nothing: no key is watched"),
    doc("watch", "2.2.0", "transactions", "Refuse, because there are no transactions"),
    doc("zt.batch", "", "string", "Set and delete several keys at once"),
    doc("zt.db.close", "", "server", "Close a database"),
    doc("zt.db.list", "", "server", "List the databases"),
    doc("zt.db.open", "", "server", "Open a database, or make it"),
    doc("zt.db.use", "", "connection", "Choose the database"),
    doc("zt.range", "", "string", "Read the records of a range of keys, in order"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::COMMANDS;

    #[test]
    fn every_command_is_described_and_nothing_else() {
        assert!(COMMANDS.iter().all(|command| find(command.name).is_some()));
        assert_eq!(COMMANDS.len(), DOCS.len());
    }
}
