//! The table of commands and the way from a request's name to its function.

mod client;
mod config;
mod config_set;
mod connection;
mod counters;
mod databases;
mod docs;
mod expiry;
mod get;
mod info;
mod introspection;
mod keys;
mod object;
mod range;
mod ranges;
mod rename;
mod scan;
mod server;
mod set;
mod transactions;

use std::mem;
use std::sync::Arc;

use crate::backend::{Access, Backend, BackendError, Chosen, Meta, Patience};
use crate::jobs::Length;
use crate::refusal::Refusal;
use crate::reply::Reply;
use crate::request::{Announced, Args, OwnedArgs, Parser};
use crate::shared::{ClientInfo, Counters, Shared};
use crate::streaming::Streaming;

/// A connection as commands see it.
pub(crate) struct Client {
    pub(crate) info: Arc<ClientInfo>,
    /// Close once the replies have left.
    pub(crate) closing: bool,
    /// Whether a command since the last release of replies may have written, or has read a write that is not yet
    /// durable.
    pub(crate) rests_on_log: bool,
    /// The same of databases other than its own.
    pub(crate) rests_on_others: bool,
    /// The reply to the last command is still being produced; later commands wait.
    pub(crate) streaming: Option<Box<Streaming>>,
    /// Whether the client sent the password, or connected when there was none.
    pub(crate) authenticated: bool,
    /// Whether the client sent `MULTI`. No command runs up to `EXEC` or `DISCARD`.
    pub(crate) in_transaction: bool,
    /// It may have cursors.
    pub(crate) scans: bool,
    /// Set if the last command was not run because it needs a thread of its own.
    pub(crate) deferred: Option<Length>,
    /// The keys of the deferred command that are done.
    pub(crate) counted: Counted,
    /// Bytes that the last command worked through, however short its reply: those that the store read for it, and
    /// those that the command counts itself.
    pub(crate) worked_bytes: u64,
    /// Whether the store read very much for the last command that looked at values.
    reads_long: bool,
    /// Set if the last command chose a database.
    pub(crate) chosen: Option<Chosen>,
}

/// The first keys of a command that answers with a number of keys.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// Keys that are done.
    pub(crate) keys: usize,
    /// The number of them that the reply counts.
    count: i64,
}

impl Client {
    pub(crate) fn new(info: Arc<ClientInfo>, authenticated: bool) -> Self {
        Self {
            info,
            closing: false,
            rests_on_log: false,
            rests_on_others: false,
            streaming: None,
            authenticated,
            in_transaction: false,
            scans: false,
            deferred: None,
            counted: Counted::default(),
            worked_bytes: 0,
            reads_long: false,
            chosen: None,
        }
    }

    /// A copy of the client for a request that runs on another thread.
    pub(crate) fn twin(&mut self) -> Self {
        let Self { in_transaction, scans, reads_long, .. } = *self;
        let counted = mem::take(&mut self.counted);
        let new = Self::new(Arc::clone(&self.info), self.authenticated);
        Self { in_transaction, scans, reads_long, counted, ..new }
    }

    /// Takes over the changes that a request on another thread made to the client.
    pub(crate) fn take_over(&mut self, twin: Self) {
        self.closing |= twin.closing;
        self.streaming = twin.streaming;
        self.authenticated = twin.authenticated;
        self.in_transaction = twin.in_transaction;
        self.scans = twin.scans;
        self.reads_long = twin.reads_long;
        self.chosen = twin.chosen;
    }

    /// Whether replies may tell of what is lost, once a wait for the logs of all databases has failed. The log of
    /// `database`, the client's own, may be whole.
    pub(crate) fn may_tell_what_is_lost(&self, shared: &Shared, database: &Chosen) -> bool {
        let one_log = shared.backend.databases().is_none();
        let has_failed = || shared.backend_of(database).wait_alone().is_err();
        self.rests_on_log && (one_log || self.rests_on_others || has_failed())
    }

    /// Whether the client must send the password first.
    pub(crate) fn must_authenticate(&self, shared: &Shared) -> bool {
        !self.authenticated && shared.settings.requires_password()
    }
}

/// Everything a command works with.
pub(crate) struct Session<'a> {
    pub(crate) shared: &'a Shared,
    /// The database that the client uses.
    pub(crate) backend: &'a dyn Backend,
    pub(crate) counters: &'a Counters,
    pub(crate) client: &'a mut Client,
    pub(crate) reply: &'a mut Reply,
    /// Scratch for one value; its contents mean nothing between commands.
    pub(crate) value: &'a mut Vec<u8>,
    /// The request, if it runs on a thread of its own. `None` on a worker.
    pub(crate) request: Option<&'a Arc<OwnedArgs>>,
    /// Endless on a thread of its own.
    pub(crate) patience: Patience,
}

impl Session<'_> {
    /// The request for a reply that is made later. On a worker the request is short and gets copied.
    fn own(&self, args: &Args<'_>) -> Arc<OwnedArgs> {
        self.request.map_or_else(|| Arc::new(OwnedArgs::copy(args)), Arc::clone)
    }

    /// The outcome of a walk. `None` if the walk takes too long for a worker: another thread runs the command anew.
    fn in_time<T>(&mut self, walked: Result<T, BackendError>) -> Result<Option<T>, Refusal> {
        match walked {
            Err(BackendError::TakesLong) if self.patience == Patience::Brief => {
                self.client.deferred = Some(Length::Long);
                Ok(None)
            }
            walked => Ok(Some(walked?)),
        }
    }

    /// Length and expiry of a key that a command reads; the look-up counts.
    fn read_meta(&self, key: &[u8]) -> Result<Option<Meta>, Refusal> {
        let meta = self.backend.meta(key)?;
        self.counters.note_lookup(meta.is_some());
        Ok(meta)
    }
}

/// A command writes its reply or refuses; one that refuses has written nothing.
type Run = fn(&mut Session<'_>, &Args<'_>) -> Result<(), Refusal>;

/// One row of the table.
pub(crate) struct Command {
    /// In lower case, as error messages and `COMMAND` print it.
    pub(crate) name: &'static str,
    /// Number of arguments, name included; negative means at least so many.
    pub(crate) arity: i32,
    pub(crate) flags: &'static [&'static str],
    /// First key, last key and step among the arguments; zeros where there is none.
    pub(crate) keys: (i32, i32, i32),
    run: Run,
}

impl Command {
    /// Whether it may have `given` arguments, name included.
    pub(crate) fn takes(&self, given: usize) -> bool {
        let (given, arity) = (given as i64, i64::from(self.arity));
        if arity >= 0 { given == arity } else { given >= -arity }
    }

    /// The access to the first argument, if that is a key.
    fn access(&self) -> Option<Access> {
        match (self.keys.0, self.flags.first()) {
            (1, Some(&"write")) => Some(Access::Write),
            (1, Some(&"readonly")) => Some(Access::Read),
            _ => None,
        }
    }

    fn is(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Whether it may run while the store recovers. Redis says so of each subcommand of a container.
    fn runs_while_loading(&self) -> bool {
        self.is("loading") || matches!(self.name, "client" | "config")
    }

    /// Refuses commands that the state of client or server forbids, in Redis's order.
    fn admit(&self, session: &Session<'_>) -> Result<(), Refusal> {
        let (shared, client) = (session.shared, &*session.client);
        if client.authenticated && !client.in_transaction && !shared.backend.is_loading() {
            return Ok(());
        }
        if client.must_authenticate(shared) && !self.is("no_auth") {
            return Err(Refusal::NO_AUTH);
        }
        if client.in_transaction && self.is("no_multi") {
            return Err(transactions::NOT_INSIDE);
        }
        if shared.backend.is_loading() && !self.runs_while_loading() {
            return Err(Refusal::LOADING);
        }
        if client.in_transaction && !transactions::may_run(self.name) {
            return Err(transactions::NOT_RUN);
        }
        Ok(())
    }

    /// The expected length of the command, if it is too long for a worker's other clients.
    fn runs_apart(&self, args: &Args<'_>) -> Option<Length> {
        let is = |word: &[u8]| args.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(word));
        let has = |word: &[u8]| args.from(1).any(|arg| arg.eq_ignore_ascii_case(word));
        let (arguments, text) = (args.len(), args.text_len());
        match self.name {
            "save" | "flushall" | "flushdb" | "zt.db.open" | "zt.db.close" | "zt.db.list" => {
                Some(Length::Long)
            }
            // Without, a shutdown is over at once.
            "shutdown" if has(b"save") => Some(Length::Long),
            // Eviction begins and ends leaf by leaf.
            "config" if is(b"set") && has(b"maxmemory-policy") => Some(Length::Long),
            "client" if is(b"list") => Some(Length::Short),
            _ if arguments <= ARGUMENTS_INLINE_MAX && text <= APART_BYTES => None,
            // Such commands wait for each other, or change a value of any length.
            "mset" | "msetnx" | "zt.batch" | "append" | "setrange" => Some(Length::Long),
            _ if arguments > ARGUMENTS_SHORT_MAX || text > SHORT_BYTES => Some(Length::Long),
            _ => Some(Length::Short),
        }
    }

    /// Whether the command looks at values, if only to tell that they are there.
    fn looks_at_values(&self, args: &Args<'_>) -> bool {
        match self.name {
            "mset" | "setex" | "psetex" | "watch" => false,
            // Only with options.
            "set" => args.len() > 3,
            // HELP names no key.
            "object" | "memory" => args.len() > 2,
            "zt.range" => true,
            _ => self.keys != NO_KEYS,
        }
    }

    /// Whether the command writes to a key that another write holds for long, or to a store that may have to make room
    /// first. A worker's other clients would wait, too.
    fn is_held_up(&self, args: &Args<'_>, backend: &dyn Backend) -> bool {
        let (first, last, step) = self.keys;
        let last = if last < 0 { args.len() as i32 + last } else { last };
        let mut keys = (first..=last).step_by(step.max(1) as usize).map(|index| args.at(index as usize));
        let waits = || backend.may_wait_for_room(self.is("denyoom"));
        self.is("write") && (keys.any(|key| backend.holds_up(key)) || waits())
    }

    /// Bytes that a run takes besides the request, the store and the reply to a read.
    fn bytes_needed(&self, args: &Args<'_>, shared: &Shared) -> usize {
        let text = args.text_len();
        match self.is("denyoom") {
            // A log has a copy until it is written.
            true => text * (1 + usize::from(shared.backend.holds_replies())) + args.len() * ARGUMENT_BYTES,
            // Commands that repeat their arguments.
            false if self.keys.0 == 0 => 2 * text,
            false => 0,
        }
    }

    /// The store admits the bytes that a command writes. This function admits large copies on the way.
    fn run(&self, session: &mut Session<'_>, args: &Args<'_>) -> Result<(), Refusal> {
        let _room = session.shared.reserve(self.bytes_needed(args, session.shared))?;
        let outcome = (self.run)(session, args);
        // Redis has the flags of these two at their subcommands.
        let looks_at_a_key = || matches!(self.name, "object" | "memory");
        let reads_wait = session.shared.backend.waits_for_disk();
        session.client.rests_on_log |= match &outcome {
            Ok(()) => match self.flags.first() {
                Some(&"write") => true,
                Some(&"readonly") => reads_wait,
                _ => looks_at_a_key() && reads_wait,
            },
            Err(refusal) => reads_wait && refusal.may_tell_of_a_key(),
        };
        outcome
    }
}

const fn command(
    name: &'static str,
    arity: i32,
    flags: &'static [&'static str],
    keys: (i32, i32, i32),
    run: Run,
) -> Command {
    Command { name, arity, flags, keys, run }
}

const NO_KEYS: (i32, i32, i32) = (0, 0, 0);
const ONE_KEY: (i32, i32, i32) = (1, 1, 1);
const TWO_KEYS: (i32, i32, i32) = (1, 2, 1);
const ALL_KEYS: (i32, i32, i32) = (1, -1, 1);
const PAIRS: (i32, i32, i32) = (1, -1, 2);
const CONTAINER: &[&str] = &[];
const READ: &[&str] = &["readonly", "fast"];
const READ_MUCH: &[&str] = &["readonly"];
const WRITE: &[&str] = &["write", "denyoom"];
const MODIFY: &[&str] = &["write", "denyoom", "fast"];
const CHANGE: &[&str] = &["write", "fast"];
const REMOVE: &[&str] = &["write"];
const ADMIN: &[&str] = &["admin", "noscript", "loading", "stale", "no_multi", "allow_busy"];
const SAVE: &[&str] = &["admin", "noscript", "no_async_loading", "no_multi"];
const BGSAVE: &[&str] = &["admin", "noscript", "no_async_loading"];
const DATABASES: &[&str] = &["admin", "noscript"];
const TRANSACT: &[&str] = &["noscript", "loading", "stale", "fast", "allow_busy"];
const EXECUTE: &[&str] = &["noscript", "loading", "stale", "skip_slowlog"];
const GREET: &[&str] = &["noscript", "loading", "stale", "fast", "no_auth", "allow_busy"];
const ALWAYS: &[&str] = &["loading", "stale"];
const ALWAYS_FAST: &[&str] = &["loading", "stale", "fast"];

/// All commands, the most frequent ones first: names are compared in this order. Arity, flags and places of keys are
/// Redis's. Names that begin with `zt.` are not Redis's.
pub(crate) static COMMANDS: &[Command] = &[
    command("get", 2, READ, ONE_KEY, get::get),
    command("set", -3, WRITE, ONE_KEY, set::set),
    command("mget", -2, READ, ALL_KEYS, get::mget),
    command("mset", -3, WRITE, PAIRS, set::mset),
    command("del", -2, REMOVE, ALL_KEYS, keys::del),
    command("unlink", -2, CHANGE, ALL_KEYS, keys::del),
    command("exists", -2, READ, ALL_KEYS, keys::exists),
    command("incr", 2, MODIFY, ONE_KEY, counters::incr),
    command("decr", 2, MODIFY, ONE_KEY, counters::decr),
    command("incrby", 3, MODIFY, ONE_KEY, counters::incrby),
    command("decrby", 3, MODIFY, ONE_KEY, counters::decrby),
    command("setex", 4, WRITE, ONE_KEY, set::setex),
    command("psetex", 4, WRITE, ONE_KEY, set::psetex),
    command("setnx", 3, MODIFY, ONE_KEY, set::setnx),
    command("expire", -3, CHANGE, ONE_KEY, expiry::expire),
    command("pexpire", -3, CHANGE, ONE_KEY, expiry::pexpire),
    command("expireat", -3, CHANGE, ONE_KEY, expiry::expireat),
    command("pexpireat", -3, CHANGE, ONE_KEY, expiry::pexpireat),
    command("ttl", 2, READ, ONE_KEY, expiry::ttl),
    command("pttl", 2, READ, ONE_KEY, expiry::pttl),
    command("ping", -1, &["fast"], NO_KEYS, connection::ping),
    command("append", 3, MODIFY, ONE_KEY, ranges::append),
    command("strlen", 2, READ, ONE_KEY, get::strlen),
    command("getrange", 4, READ_MUCH, ONE_KEY, ranges::getrange),
    command("setrange", 4, WRITE, ONE_KEY, ranges::setrange),
    command("getex", -2, CHANGE, ONE_KEY, get::getex),
    command("getdel", 2, CHANGE, ONE_KEY, get::getdel),
    command("getset", 3, MODIFY, ONE_KEY, set::getset),
    command("msetnx", -3, WRITE, PAIRS, set::msetnx),
    command("incrbyfloat", 3, MODIFY, ONE_KEY, counters::incrbyfloat),
    command("persist", 2, CHANGE, ONE_KEY, expiry::persist),
    command("type", 2, READ, ONE_KEY, keys::type_of),
    command("touch", -2, READ, ALL_KEYS, keys::exists),
    command("expiretime", 2, READ, ONE_KEY, expiry::expiretime),
    command("pexpiretime", 2, READ, ONE_KEY, expiry::pexpiretime),
    command("rename", 3, REMOVE, TWO_KEYS, rename::rename),
    command("renamenx", 3, CHANGE, TWO_KEYS, rename::renamenx),
    command("copy", -3, WRITE, TWO_KEYS, rename::copy),
    command("substr", 4, READ_MUCH, ONE_KEY, ranges::getrange),
    command("scan", -2, READ_MUCH, NO_KEYS, scan::scan),
    command("keys", 2, READ_MUCH, NO_KEYS, keys::keys),
    command("randomkey", 1, READ_MUCH, NO_KEYS, keys::randomkey),
    command("dbsize", 1, READ, NO_KEYS, keys::dbsize),
    command("object", -2, CONTAINER, NO_KEYS, object::object),
    command("memory", -2, CONTAINER, NO_KEYS, object::memory),
    command("echo", 2, ALWAYS_FAST, NO_KEYS, connection::echo),
    command("select", 2, ALWAYS_FAST, NO_KEYS, connection::select),
    command("hello", -1, GREET, NO_KEYS, connection::hello),
    command("auth", -2, GREET, NO_KEYS, connection::auth),
    command("quit", -1, GREET, NO_KEYS, connection::quit),
    command("reset", 1, GREET, NO_KEYS, connection::reset),
    command("multi", 1, TRANSACT, NO_KEYS, transactions::multi),
    command("exec", 1, EXECUTE, NO_KEYS, transactions::exec),
    command("discard", 1, TRANSACT, NO_KEYS, transactions::discard),
    command("watch", -2, TRANSACT, ALL_KEYS, transactions::watch),
    command("unwatch", 1, TRANSACT, NO_KEYS, transactions::unwatch),
    command("time", 1, ALWAYS_FAST, NO_KEYS, server::time),
    command("client", -2, CONTAINER, NO_KEYS, client::client),
    command("command", -1, ALWAYS, NO_KEYS, introspection::command),
    command("config", -2, CONTAINER, NO_KEYS, config::config),
    command("info", -1, ALWAYS, NO_KEYS, info::info),
    command("flushall", -1, REMOVE, NO_KEYS, keys::flushall),
    command("flushdb", -1, REMOVE, NO_KEYS, keys::flushdb),
    command("save", 1, SAVE, NO_KEYS, server::save),
    command("bgsave", -1, BGSAVE, NO_KEYS, server::bgsave),
    command("lastsave", 1, ALWAYS_FAST, NO_KEYS, server::lastsave),
    command("shutdown", -1, ADMIN, NO_KEYS, server::shutdown),
    command("zt.batch", -3, WRITE, NO_KEYS, set::batch),
    command("zt.db.close", 2, DATABASES, NO_KEYS, databases::close),
    command("zt.db.list", 1, DATABASES, NO_KEYS, databases::list),
    command("zt.db.open", -2, DATABASES, NO_KEYS, databases::open),
    command("zt.db.use", 2, &["fast"], NO_KEYS, databases::choose),
    command("zt.range", -3, READ_MUCH, NO_KEYS, range::range),
];

/// Requests with more text or more arguments run on threads of their own, and so do changes of longer values. Coding a
/// value of this length takes some milliseconds.
const APART_BYTES: usize = 256 << 10;
const ARGUMENTS_INLINE_MAX: usize = 1024;
/// Of those, requests up to this are short.
const SHORT_BYTES: usize = 1 << 20;
const ARGUMENTS_SHORT_MAX: usize = 8192;
/// The next command of a client that looks at values runs on a thread of its own if the store read more bytes for the
/// last such command.
const LONG_READ_BYTES: u64 = 16 << 20;
/// Bytes that an overview of the server counts in its client's turn: a count looks at some hundred leaves.
const OVERVIEW_BYTES: u64 = 8 << 10;
/// Memory of a write of several keys, for each argument. A measurement gave 500 bytes for a key and its value.
const ARGUMENT_BYTES: usize = 320;

/// Requests of a pipeline that the store is told of at a time.
const ANNOUNCED_MAX: usize = 16;

/// Longest name that [`pack`] tells apart.
const NAME_BYTES_MAX: usize = 16;

/// A name as one number, in upper case, so that comparing names is comparing registers.
const fn pack(name: &[u8]) -> u128 {
    let mut packed = 0;
    let mut index = 0;
    while index < name.len() {
        packed = packed << 8 | name[index].to_ascii_uppercase() as u128;
        index += 1;
    }
    packed
}

static NAMES: [u128; COMMANDS.len()] = {
    let mut names = [0; COMMANDS.len()];
    let mut index = 0;
    while index < names.len() {
        let name = COMMANDS[index].name.as_bytes();
        assert!(name.len() <= NAME_BYTES_MAX);
        names[index] = pack(name);
        index += 1;
    }
    names
};

/// The command called `name`, in whatever case.
pub(crate) fn find(name: &[u8]) -> Option<&'static Command> {
    // A zero byte in front would pack to the same number.
    if name.len() > NAME_BYTES_MAX || name.first() == Some(&0) {
        return None;
    }
    let packed = pack(name);
    NAMES.iter().position(|&known| known == packed).map(|index| &COMMANDS[index])
}

/// Announces the keys of the next requests of `input` to the store, and returns the number of requests.
pub(crate) fn announce(parser: &Parser, input: &[u8], backend: &dyn Backend) -> usize {
    let mut announced = [Announced::default(); ANNOUNCED_MAX];
    let count = parser.look_ahead(input, &mut announced);
    if count < 2 {
        return count;
    }
    let mut keys = [[&[][..]; ANNOUNCED_MAX]; 2];
    let mut known = [0; 2];
    for request in &announced[..count] {
        if let Some(access) = find(request.name).and_then(Command::access) {
            let index = access as usize;
            keys[index][known[index]] = request.key;
            known[index] += 1;
        }
    }
    for access in [Access::Read, Access::Write] {
        let (keys, known) = (&keys[access as usize], known[access as usize]);
        if known > 0 {
            backend.prepare(&keys[..known], access);
        }
    }
    count
}

/// Runs one request and writes its reply, or notes that the request must run elsewhere.
pub(crate) fn run(session: &mut Session<'_>, args: &Args<'_>) {
    let found = find(args.at(0));
    session.client.worked_bytes = 0;
    let outcome = match found {
        Some(command) => {
            let admitted = match command.takes(args.len()) {
                true => command.admit(session),
                false => Err(Refusal::wrong_arity(command.name)),
            };
            session.counters.writes.add(u64::from(admitted.is_ok() && command.is("write")));
            match admitted {
                Ok(()) => {
                    if session.request.is_none() {
                        let waits = || {
                            session.client.reads_long && command.looks_at_values(args)
                                || command.is_held_up(args, session.backend)
                        };
                        session.client.deferred =
                            command.runs_apart(args).or_else(|| waits().then_some(Length::Long));
                        if session.client.deferred.is_some() {
                            return;
                        }
                    }
                    let read_before = session.backend.thread_read_bytes();
                    let outcome = command.run(session, args);
                    let read_bytes = session.backend.thread_read_bytes().saturating_sub(read_before);
                    session.client.worked_bytes += read_bytes;
                    let reads_long = read_bytes > LONG_READ_BYTES;
                    if reads_long != session.client.reads_long && command.looks_at_values(args) {
                        session.client.reads_long = reads_long;
                    }
                    outcome
                }
                Err(refusal) if command.name == "exec" => Err(transactions::abort(session.client, &refusal)),
                refused => refused,
            }
        }
        None => {
            // A web page can make a browser post to this port. No command may get through that way.
            session.client.closing |= is_http(args.at(0));
            Err(Refusal::unknown_command(args.at(0), args.from(1)))
        }
    };
    if session.client.deferred.is_some() {
        return;
    }
    session.counters.commands.add(1);
    if let Err(refusal) = outcome {
        let is_write = found.is_some_and(|command| command.is("write"));
        session.counters.errors.add(1);
        session.counters.refused_writes.add(u64::from(is_write && refusal == Refusal::OUT_OF_MEMORY));
        session.reply.error(&refusal);
    }
}

fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_only_whole() {
        for command in COMMANDS {
            let name = command.name.as_bytes();
            for name in [name.to_ascii_uppercase(), name.to_vec()] {
                assert_eq!(find(&name).unwrap().name, command.name);
            }
            assert!(find(&[name, b"x"].concat()).is_none());
            assert!(find(&[b"\0", name].concat()).is_none());
        }
        assert!(find(b"").is_none());
        assert!(find(b"gEt").is_some());
        assert!(find(&[b'x'; 100]).is_none());
    }

    #[test]
    fn a_list_of_folders_is_read_apart() {
        let mut parser = Parser::default();
        let args = parser.next(b"*1\r\n$10\r\nZT.DB.LIST\r\n").unwrap().unwrap();
        assert_eq!(find(args.at(0)).unwrap().runs_apart(&args), Some(Length::Long));
    }
}
