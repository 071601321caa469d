//! `ziptier serve`: a store behind the Redis protocol.

mod access;
mod durable;
mod rocksdb;
mod tls;

use std::io::Write;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use clap::builder::UnknownArgumentValueParser;
use clap::{ArgAction, Args};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use ziptier::{
    BlockOptions, ByteSize, CodecChoice, DeviceSource, Huffman, ModelOptions, Options, Path, SsdOptions,
    Store,
};
use ziptier_server::{
    Backend, Config, ExpectedStore, Opener, Server, Stopper, StoreBackend, raise_open_files,
};

use crate::far::FarArguments;
use crate::rocksdb_backend::{self, RocksDbBackend};
use crate::store_target::engine_name;
use crate::{heap, output};
use access::AccessArguments;
use durable::{DurableArguments, Progress};
use rocksdb::BackendArguments;
use tls::TlsArguments;

/// The options of `ziptier serve`. The environment may set each of them instead.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// TCP port to listen on; 0 takes a free one
    #[arg(long, env = "ZIPTIER_PORT", default_value_t = 6379, help_heading = "Clients")]
    port: u16,

    /// Address to listen on
    #[arg(
        long,
        env = "ZIPTIER_BIND",
        default_value = "127.0.0.1",
        value_name = "ADDRESS",
        help_heading = "Clients"
    )]
    bind: IpAddr,

    /// Memory that the process may have, in bytes: 512MiB, 2GB, 1000000; 0 for no limit
    #[arg(
        long,
        env = "ZIPTIER_MEMORY",
        default_value = "1GiB",
        value_name = "BYTES",
        help_heading = "Memory and SSD"
    )]
    memory: ByteSize,

    /// Redis's name for --memory. It is refused, because the units of a value that was copied from Redis differ
    #[arg(
        long = "maxmemory",
        hide = true,
        value_parser = UnknownArgumentValueParser::suggest_arg("--memory")
            .and_suggest("the units differ: Redis's 64mb is --memory 64MiB")
    )]
    _maxmemory: Option<String>,

    #[command(flatten)]
    far: FarArguments,

    /// SSD for data that memory has no room for: the most bytes, and a folder of segment files, such as
    /// 8GiB:/mnt/ssd/ziptier. With --dir the folder belongs to that store, and 8GiB alone names DIR/segments. Without
    /// --dir a start removes the segment files that it finds [default: no SSD]
    #[arg(long, env = "ZIPTIER_SSD", value_name = "BYTES[:FOLDER]", help_heading = "Memory and SSD")]
    ssd: Option<SsdOptions>,

    /// Policy at the memory limit: noeviction (refuses writes) or allkeys-s3fifo (evicts keys that are seldom read).
    /// With --dir a cache is there again after a restart; evicted keys may come back with their newest value
    #[arg(
        long,
        env = "ZIPTIER_MAXMEMORY_POLICY",
        default_value = "noeviction",
        value_name = "POLICY",
        action = ArgAction::Set,
        value_parser = evicts,
        help_heading = "Memory and SSD"
    )]
    maxmemory_policy: bool,

    /// Codec of values: auto (tokens; hot leaves stay raw), none, token, or lz4, zstd and deflate in blocks
    #[arg(long, env = "ZIPTIER_CODEC", default_value_t = CodecChoice::Auto, help_heading = "Codec")]
    codec: CodecChoice,

    /// Engine that packs deflate blocks: software, iaa, qpl or zlib [default: software; iaa with --path hardware or
    /// --model]
    #[arg(long, env = "ZIPTIER_CODEC_ENGINE", value_name = "NAME", help_heading = "Codec")]
    codec_engine: Option<String>,

    /// Permission to use a device: auto (the CPU does blocks that a device cannot do, and counts them), hardware (a
    /// device, or the server does not start) or software. auto alone does not choose a device: name the engine
    #[arg(long, env = "ZIPTIER_PATH", default_value_t = Path::Auto, help_heading = "Codec")]
    path: Path,

    /// Modelled accelerator for deflate blocks instead of a device: devices=4,depth=128 and so on; timing=off makes it
    /// as fast as the software [default: no model]
    #[arg(long, env = "ZIPTIER_MODEL", value_name = "MODEL", help_heading = "Codec")]
    model: Option<ModelOptions>,

    /// Huffman codes of deflate blocks: fixed (the format's), dynamic (each block's own) or canned (shared by all
    /// blocks)
    #[arg(long, env = "ZIPTIER_HUFFMAN", default_value_t = Huffman::Dynamic, help_heading = "Codec")]
    huffman: Huffman,

    /// Threads that serve clients [default: one per core, at most 4]
    #[arg(long, env = "ZIPTIER_THREADS", value_name = "N", help_heading = "Clients")]
    threads: Option<usize>,

    #[command(flatten)]
    access: AccessArguments,

    #[command(flatten)]
    tls: TlsArguments,

    /// Refusal of addresses that other machines can reach while there is no password: yes or no
    #[arg(
        long,
        env = "ZIPTIER_PROTECTED_MODE",
        default_value = "yes",
        value_name = "yes|no",
        action = ArgAction::Set,
        value_parser = yes_or_no,
        help_heading = "Clients"
    )]
    protected_mode: bool,

    /// Number of clients that may be connected at a time
    #[arg(
        long,
        env = "ZIPTIER_MAX_CLIENTS",
        default_value_t = 10_000,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..),
        help_heading = "Clients"
    )]
    max_clients: u32,

    #[command(flatten)]
    durable: DurableArguments,

    #[command(flatten)]
    backend: BackendArguments,
}

/// Serves until a client says `SHUTDOWN` or the process is told to end. `allocated_bytes` is what the process's
/// allocator holds, if it can tell.
pub(crate) fn serve(arguments: Arguments, allocated_bytes: Option<fn() -> u64>) -> ExitCode {
    match run(arguments, allocated_bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::say(&format!("ziptier serve: {error}\n"));
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments, allocated_bytes: Option<fn() -> u64>) -> Result<(), Error> {
    let mut config = arguments.config(allocated_bytes)?;
    let threads = config.threads;
    let options = arguments.store_options()?;
    let plan = match arguments.backend.rocksdb(&options)? {
        None => {
            check_huffman(&options)?;
            Plan::Store(Box::new(options))
        }
        Some(options) => Plan::RocksDb(options),
    };
    config.expected_store = plan.expected();
    raise_open_files();
    let server = Server::listen(config)?;
    let limit_bytes = arguments.limit_bytes();
    let limit =
        limit_bytes.map_or("no memory limit".to_owned(), |bytes| format!("{} of memory", ByteSize(bytes)));
    let greeting = Greeting {
        before: format!(
            "ziptier {} listens on {} with {limit}, {}",
            env!("CARGO_PKG_VERSION"),
            addresses(&server),
            plan.name()
        ),
        after: format!(", {threads} threads"),
        made_for_ssd: plan.folder_to_make(),
        durable: arguments.durable,
        has_limit: limit_bytes.is_some(),
    };
    let served = serve_until_told(server, plan, greeting)?;
    // The server is gone, so this is the last share.
    served.map_or(Ok(()), Served::close)
}

/// The addresses at which the server listens.
fn addresses(server: &Server) -> String {
    let plain = server.address();
    match server.tls_address() {
        None => plain.to_string(),
        Some(tls) if tls == plain => format!("{tls} (TLS)"),
        Some(tls) => format!("{plain} and {tls} (TLS)"),
    }
}

/// Runs the server while a thread opens its store. Returns the store, or nothing if the server was told to stop before
/// the store was open.
fn serve_until_told(server: Server, plan: Plan, greeting: Greeting) -> Result<Option<Served>, Error> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (closing, stopper) = (signals.handle(), server.stopper());
    let waiting = thread::spawn(move || {
        if signals.forever().next().is_some() {
            stopper.stop();
        }
    });
    let (opened, store) = channel();
    let (opener, stopper) = (server.opener(), server.stopper());
    let opening = thread::Builder::new()
        .name("opening".into())
        .spawn(move || open(plan, &opener, &stopper, &opened, &greeting))?;

    let outcome = server.run();
    closing.close();
    // The thread ends with its signals; a panic there has been printed.
    let _ = waiting.join();
    let Ok(served) = store.try_recv() else {
        // The server was told to stop. A recovery under way ends with the process, and the next start repeats it, so
        // the stop does not wait for it.
        outcome?;
        return Ok(None);
    };
    let served = served?;
    let _ = opening.join();
    outcome?;
    Ok(Some(served))
}

impl Arguments {
    fn limit_bytes(&self) -> Option<u64> {
        Some(self.memory.0).filter(|&bytes| bytes > 0)
    }

    fn store_options(&self) -> Result<Options, Error> {
        let engine = self.codec_engine.as_deref().map(|name| engine_name(self.codec, name)).transpose()?;
        let device = self.model.clone().map_or(DeviceSource::Discovered, DeviceSource::Modelled);
        let usual = Options::default();
        let block = BlockOptions { device, engine, path: self.path, huffman: self.huffman, ..usual.block };
        let options = Options {
            memory_limit_bytes: self.limit_bytes(),
            ssd: self.ssd.clone(),
            eviction: self.maxmemory_policy,
            codec: self.codec,
            block,
            durable: self.durable.options(),
            ..usual
        };
        Ok(self.far.apply(options))
    }

    /// The settings of the server.
    fn config(&self, allocated_bytes: Option<fn() -> u64>) -> Result<Config, Error> {
        let mut config = Config::default();
        config.port = self.port;
        config.bind = self.bind;
        config.protected_mode = self.protected_mode;
        config.clients_max = self.max_clients as usize;
        config.threads = self.threads.unwrap_or(config.threads);
        config.allocated_bytes = allocated_bytes;
        // `CONFIG SET maxmemory` may bring a limit.
        config.release_memory = Some(heap::release);
        self.access.apply(&mut config)?;
        self.tls.apply(&mut config)?;
        config.memory_limit_bytes = self.limit_bytes();
        Ok(config)
    }
}

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The store to open.
enum Plan {
    Store(Box<Options>),
    RocksDb(rocksdb_backend::Options),
}

impl Plan {
    fn name(&self) -> String {
        match self {
            Self::Store(options) => format!("codec {}", options.codec),
            Self::RocksDb(options) => format!("backend rocksdb, compression {}", options.compression.name),
        }
    }

    /// What the server tells of the store until it is open.
    fn expected(&self) -> ExpectedStore {
        let (durability, evicts) = match self {
            Self::Store(options) => {
                (options.durable.as_ref().map(|durable| durable.durability), options.eviction)
            }
            Self::RocksDb(options) => (Some(options.durability), false),
        };
        ExpectedStore { durability: durability.map(|durability| durability.to_string()), evicts }
    }

    /// The folder that `--ssd` names, if it is not there.
    fn folder_to_make(&self) -> Option<PathBuf> {
        match self {
            Self::Store(options) => options.ssd.as_ref()?.path.clone().filter(|path| !path.exists()),
            Self::RocksDb(_) => None,
        }
    }

    /// Opens the store, and tells how far its recovery has come.
    fn open(self, opener: &Opener) -> Result<Served, Error> {
        let options = match self {
            Self::Store(options) => options,
            Self::RocksDb(options) => return Ok(Served::RocksDb(Arc::new(RocksDbBackend::open(options)?))),
        };
        let mut progress = Progress::default();
        let store = StoreBackend::open_with(*options, |recovery| {
            opener.progress(recovery.done_bytes, recovery.all_bytes);
            progress.show(recovery);
        });
        progress.end();
        let store = store?;
        if let Some(recovered) = store.store().recovered() {
            let skipped = recovered.skipped.iter();
            skipped.for_each(|skipped| output::say(&format!("ziptier serve: {skipped}\n")));
        }
        Ok(Served::Store(Arc::new(store)))
    }
}

/// An open store.
#[derive(Clone)]
enum Served {
    Store(Arc<StoreBackend>),
    RocksDb(Arc<RocksDbBackend>),
}

impl Served {
    fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Self::Store(store) => Arc::clone(store) as Arc<dyn Backend>,
            Self::RocksDb(rocksdb) => Arc::clone(rocksdb) as Arc<dyn Backend>,
        }
    }

    /// Ends the store if this is the last share, and tells whether everything is durable.
    fn close(self) -> Result<(), Error> {
        match self {
            Self::Store(store) => Arc::into_inner(store).map_or(Ok(()), StoreBackend::close)?,
            Self::RocksDb(rocksdb) => Arc::into_inner(rocksdb).map_or(Ok(()), RocksDbBackend::close)?,
        }
        Ok(())
    }
}

/// The lines that are printed when the store is open. Scripts wait for the first line.
struct Greeting {
    before: String,
    after: String,
    durable: DurableArguments,
    /// The folder that `--ssd` names, if it was not there.
    made_for_ssd: Option<PathBuf>,
    /// Whether memory has a limit.
    has_limit: bool,
}

impl Greeting {
    fn print(&self, served: &Served) {
        let (packer, places) = match served {
            Served::Store(backend) => (packer(backend.store()), places(backend.store(), self)),
            Served::RocksDb(rocksdb) => (String::new(), rocksdb.describe()),
        };
        let page = format!("{}{packer}{}\n{places}", self.before, self.after);
        // The server also serves if no process reads its output.
        let _ = std::io::stdout().write_all(page.as_bytes());
    }
}

/// Opens the store while the server tells its clients to wait; a failure ends the server.
fn open(plan: Plan, opener: &Opener, stopper: &Stopper, opened: &Sender<Outcome>, greeting: &Greeting) {
    let mut unless_open = StopOnDrop { stopper, opened, is_open: false };
    let served = match plan.open(opener) {
        Ok(served) => served,
        Err(error) => {
            let _ = opened.send(Err(error));
            return;
        }
    };
    if opened.send(Ok(served.clone())).is_err() {
        // The server was told to stop.
        return;
    }
    opener.open(served.backend());
    unless_open.is_open = true;
    greeting.print(&served);
}

/// An open store, or why there is none.
type Outcome = Result<Served, Error>;

/// Ends the server if this thread ends without a store.
struct StopOnDrop<'a> {
    stopper: &'a Stopper,
    opened: &'a Sender<Outcome>,
    is_open: bool,
}

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let words = "stopped because opening the store panicked; its message is above, please report it";
            let _ = self.opened.send(Err(words.into()));
        }
        if !self.is_open {
            self.stopper.stop();
        }
    }
}

/// A line for each place besides memory, and one if nothing will go there.
fn places(store: &Store, greeting: &Greeting) -> String {
    let far = store.far().map(|far| format!("far memory: {} of {far}\n", ByteSize(far.limit_bytes)));
    let made = greeting.made_for_ssd.as_ref().map(|path| format!("; made the folder {}", path.display()));
    let made = made.unwrap_or_default();
    let ssd = store.ssd().map(|ssd| format!("SSD: {}, {}{made}\n", ssd_limit(ssd.limit_bytes), ssd.medium));
    let is_idle = !greeting.has_limit && (far.is_some() || ssd.is_some());
    let idle = is_idle.then(|| {
        "nothing is demoted to far memory or SSD, since memory has no limit; set one with --memory\n"
            .to_owned()
    });
    let folder = greeting.durable.found(store).map(|found| format!("{found}\n"));
    [far, ssd, idle, folder].into_iter().flatten().collect()
}

/// The limit of the SSD. A store with leaves there that starts without `--ssd` has none.
fn ssd_limit(limit_bytes: u64) -> String {
    match limit_bytes {
        u64::MAX => "no limit".to_owned(),
        bytes => ByteSize(bytes).to_string(),
    }
}

/// The engine that packs blocks and its worker, unless that is the plain processor. So a model is always labelled, and
/// also a processor that replaces a device.
fn packer(store: &Store) -> String {
    match (store.block_engine(), store.block_worker()) {
        (Some(engine), Some(worker)) if engine != worker => format!(" ({engine}, {worker})"),
        _ => String::new(),
    }
}

/// Refuses Huffman codes for a codec that has none, which would ignore them.
fn check_huffman(options: &Options) -> Result<(), Error> {
    let (codec, huffman) = (options.codec, options.block.huffman);
    if codec == CodecChoice::Deflate || huffman == Huffman::Dynamic {
        return Ok(());
    }
    let words = format!(
        "--huffman {huffman} is for deflate blocks, and codec {codec} has none; say --codec deflate, or leave \
         --huffman out"
    );
    Err(words.into())
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("say yes or no".to_owned()),
    }
}

fn evicts(policy: &str) -> Result<bool, String> {
    match policy {
        "noeviction" => Ok(false),
        "allkeys-s3fifo" => Ok(true),
        _ => Err("say noeviction or allkeys-s3fifo".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::ssd_limit;

    #[test]
    fn an_ssd_without_a_limit_has_none() {
        assert_eq!([ssd_limit(8 << 30), ssd_limit(u64::MAX)], ["8 GiB", "no limit"]);
    }
}
